//! Programs that give up their rights, as servers do, and open libraries afterwards.
//!
//! The cache is its owner's alone, and glibc itself opens libgcc_s when a thread ends before its function returns. Only root can become another
//! user; the tests that need that say so where they are run by somebody else.

use crate::sources::said;
use blizzard_test_harness::executable;
use blizzard_test_harness::{needs, tool};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

blizzard_test_harness::module! {
    a_thread_ends_in_a_process_that_has_become_another_user,
    a_thread_ends_in_a_bundle,
    a_thread_ends_below_another_root,
    another_user_who_starts_the_program_has_a_cache_of_their_own,
    a_process_with_other_rights_than_its_user_takes_nothing_from_the_users_cache,
    a_program_with_more_rights_than_its_caller_takes_nothing_from_its_environment,
}

/// `W` becomes user W; `~W` does so for now; `/DIR` makes DIR its root directory; `:PATH` opens a library and calls a function of it; `-` closes all
/// descriptors but the standard streams; `.` ends a thread; `!` says whether the kernel calls the process secure, and of what name it is. In the order of
/// the arguments.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>
static void *ends(void *p) { pthread_exit(p); return 0; }
static int call(const char *path) {
    void *m = dlopen(path, RTLD_NOW);
    double (*f)(double) = m ? (double (*)(double))dlsym(m, "cbrt") : 0;
    if (!m) puts(dlerror());
    printf("cbrt %g\n", f ? f(27.0) : -1.0);
    return f ? 0 : 4;
}
int main(int argc, char **argv) {
    setvbuf(stdout, 0, _IONBF, 0);
    for (int i = 1; i < argc; i++) switch (argv[i][0]) {
    case '/':
        if (chroot(argv[i]) || chdir("/")) return 2;
        break;
    case ':':
        if (call(argv[i] + 1)) return 4;
        break;
    case '~':
        if (seteuid(atoi(argv[i] + 1))) return 3;
        break;
    case '!':
        printf("%lu %s\n", getauxval(AT_SECURE), (char *)getauxval(AT_EXECFN));
        break;
    case '-':
        closefrom(3);
        break;
    case '.': {
        pthread_t t;
        void *r;
        if (pthread_create(&t, 0, ends, argv) || pthread_join(t, &r) || r != argv) return 6;
        puts("thread ended");
        break;
    }
    default: {
        unsigned id = atoi(argv[i]);
        if (setresgid(id, id, id) || setresuid(id, id, id)) return 3;
    }
    }
    return 0;
}
"#;

struct Bench {
    folder: TempDir,
    program: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (file, program) = (folder.path().join("gives-up.c"), folder.path().join("gives-up"));
        fs::write(&file, SOURCE).unwrap();
        let status = tool("gcc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(&file).status().unwrap();
        assert!(status.success());
        Bench { folder, program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn tool(&self, tool: &Path) -> Command {
        let mut command = Command::new(tool);
        command.env("BLIZZARD_CACHE", self.path("cache"));
        command
    }

    /// The program, rewritten with `tool`, whose cache nobody else may enter.
    fn rewritten(&self, tool: &Path) -> PathBuf {
        let to = self.path("gives-up.blz");
        let status = self.tool(tool).arg("rewrite").arg(&self.program).arg("-o").arg(&to).status().unwrap();
        assert!(status.success());
        assert_eq!(fs::metadata(self.path("cache")).unwrap().mode() & 0o777, 0o700);
        to
    }

    fn bundle(&self) -> PathBuf {
        let to = self.path("bundle");
        let mut rewrite = self.tool(own());
        let status = rewrite.arg("rewrite").arg(&self.program).arg("--bundle").arg(&to).status().unwrap();
        assert!(status.success());
        fs::set_permissions(&to, Permissions::from_mode(0o700)).unwrap();
        to.join("gives-up")
    }

    /// A copy of the mathematical library, which no closure has.
    fn math(&self) -> String {
        let copy = self.path("math.so");
        fs::copy(library("libm.so.6"), &copy).unwrap();
        copy.display().to_string()
    }

    /// An executable that other users may run. It is the same program, but another file, so it has libraries of its own.
    fn tool_for_all(&self) -> PathBuf {
        let tool = self.path("blizzard");
        executable::write(&tool, &fs::read(own()).unwrap());
        fs::set_permissions(self.folder.path(), Permissions::from_mode(0o711)).unwrap();
        tool
    }
}

fn own() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_blizzard"))
}

fn library(name: &str) -> PathBuf {
    let of_gcc = tool("gcc").arg(format!("-print-file-name={name}")).output().unwrap();
    PathBuf::from(String::from_utf8(of_gcc.stdout).unwrap().trim()).canonicalize().unwrap()
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

/// A user that nobody is, and the folder of its cache; the folder is removed at the end.
struct User(u32);

impl User {
    fn new() -> Self {
        needs::need_system(needs::is_root(), "root's rights to become another user");
        // Neither adduser nor systemd gives these to anybody.
        let user = (61_000..61_184).map(User).find(|user| fs::create_dir(user.mark()).is_ok());
        user.expect("no user is free: remove /tmp/blizzard-test-user-*")
    }

    /// Taken by a test that runs at the same time.
    fn mark(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/blizzard-test-user-{}", self.0))
    }

    fn cache(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/blizzard-cache-{}", self.0))
    }

    fn name(&self) -> String {
        self.0.to_string()
    }

    /// A command by which this user starts the program.
    fn starts(&self, program: &Path) -> Command {
        let mut command = tool("setpriv");
        command.args([&format!("--reuid={}", self.0), &format!("--regid={}", self.0), "--clear-groups"]).arg(program);
        command
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.cache());
        let _ = fs::remove_dir(self.mark());
    }
}

fn a_thread_ends_in_a_process_that_has_become_another_user() {
    let user = User::new();
    let bench = Bench::new();
    // The user may not enter the cache, and has none of its own.
    for program in [bench.rewritten(own()), bench.bundle()] {
        let output = run(&program, &[&user.name(), "."]);
        assert_eq!((said(&output).as_str(), output.status.code()), ("thread ended\n", Some(0)));
        assert!(!user.cache().exists());
    }
}

fn a_thread_ends_in_a_bundle() {
    let output = run(&Bench::new().bundle(), &["."]);
    assert_eq!((said(&output).as_str(), output.status.code()), ("thread ended\n", Some(0)));
}

fn a_thread_ends_below_another_root() {
    let bench = Bench::new();
    let cell = bench.path("cell");
    // Programs of the cache get the rewritten form of this very file, not of a copy.
    let libgcc = library("libgcc_s.so.1");
    let inside = cell.join(libgcc.strip_prefix("/").unwrap());
    fs::create_dir_all(inside.parent().unwrap()).unwrap();
    fs::write(&inside, "").unwrap();
    let enter = |then: &str| {
        let mut command = tool("unshare");
        let script = format!("mount --bind \"$0\" \"$1\" && {then}");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]).args([&libgcc, &inside]);
        command
    };
    // 127: there is no shell.
    if enter("chroot \"$2\"").arg(&cell).output().ok().and_then(|o| o.status.code()) != Some(127) {
        needs::skip("needs a system that lets users mount file systems and change their root directory");
    }
    for program in [bench.bundle(), bench.rewritten(own())] {
        let output = enter("exec \"$2\" \"$3\" .").args([&program, &cell]).output().unwrap();
        assert_eq!((said(&output).as_str(), output.status.code()), ("thread ended\n", Some(0)));
    }
}

fn another_user_who_starts_the_program_has_a_cache_of_their_own() {
    let user = User::new();
    let bench = Bench::new();
    let tool = bench.tool_for_all();
    let (program, open) = (bench.rewritten(&tool), format!(":{}", bench.math()));
    for _ in 0..2 {
        let output = user.starts(&program).args([".", &open]).output().unwrap();
        assert_eq!((said(&output).as_str(), output.status.code()), ("thread ended\ncbrt 3\n", Some(0)));
    }
    let m = fs::metadata(user.cache()).unwrap();
    assert_eq!((m.uid(), m.mode() & 0o777), (user.0, 0o700));
    let made = |folder: &Path| {
        let listed = Command::new(&tool).args(["cache", "list"]).env("BLIZZARD_CACHE", folder).output().unwrap();
        String::from_utf8(listed.stdout).unwrap().matches("math.so").count()
    };
    assert_eq!((made(&user.cache()), made(&bench.path("cache"))), (1, 0));

    // Whatever somebody else has put there is not used.
    fs::remove_dir_all(user.cache()).unwrap();
    fs::create_dir(user.cache()).unwrap();
    fs::set_permissions(user.cache(), Permissions::from_mode(0o777)).unwrap();
    let output = user.starts(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("not a folder that belongs to user"), "{}", said(&output));
    assert_eq!(fs::read_dir(user.cache()).unwrap().count(), 0);
}

/// Whoever else runs as that user could put anything there: it would get what the process has opened and knows, and all its other rights.
fn a_process_with_other_rights_than_its_user_takes_nothing_from_the_users_cache() {
    let user = User::new();
    let bench = Bench::new();
    let (program, open) = (bench.rewritten(&bench.tool_for_all()), format!(":{}", bench.math()));
    let name = user.name();
    // The cache of the user has everything.
    assert!(user.starts(&program).arg(&open).status().unwrap().success());
    for arguments in [[&name, &open], [&format!("~{name}"), &open]] {
        let output = run(&program, &arguments.map(String::as_str));
        assert_eq!(output.status.code(), Some(4), "{}", said(&output));
        assert!(said(&output).contains("cannot write to the cache folder"), "{}", said(&output));
    }
    // With another group there is not even a dynamic loader.
    std::os::unix::fs::chown(&program, None, Some(user.0 + 1)).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o2755)).unwrap();
    let output = user.starts(&program).args(["!", &open]).output().unwrap();
    if said(&output).starts_with("0 ") {
        needs::skip("needs a file system that heeds set-group-ID bits");
    }
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("cannot open the dynamic loader"), "{}", said(&output));
}

/// Whoever starts a set-user-ID program must not tell its runtime what memory to share with them, or where to find libraries.
fn a_program_with_more_rights_than_its_caller_takes_nothing_from_its_environment() {
    let user = User::new();
    let bench = Bench::new();
    let (program, bundle) = (bench.rewritten(own()), bench.bundle());
    fs::set_permissions(bench.folder.path(), Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(bundle.parent().unwrap(), Permissions::from_mode(0o711)).unwrap();
    for file in [&program, &bundle] {
        fs::set_permissions(file, Permissions::from_mode(0o4755)).unwrap();
    }
    let run = |program: &Path, variable: &str, value: &str| {
        user.starts(program).args(["!", "."]).env(variable, value).output().unwrap()
    };
    let output = run(&program, "BLIZZARD_EXE", "/another/name");
    let text = said(&output);
    if text.starts_with("0 ") {
        needs::skip("needs a file system that heeds set-user-ID bits");
    }
    assert_eq!((text, output.status.code()), (format!("1 {}\nthread ended\n", program.display()), Some(0)));
    for (program, variable, value, status, remedy) in [
        (&program, "BLIZZARD_BOOT", "fd=0,node=0", 127, "without `blizzard run`"),
        (&bundle, "NONE", "", 1, "without --bundle"),
    ] {
        let output = run(program, variable, value);
        assert_eq!((said(&output).lines().count(), output.status.code()), (1, Some(status)), "{}", said(&output));
        assert!(said(&output).contains(remedy), "{}", said(&output));
    }
}
