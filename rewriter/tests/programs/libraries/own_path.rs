//! What a program that runs out of the cache is told of its own file.

use blizzard_contract as contract;
use blizzard_test_harness::{needs, tool};
use std::path::Path;
use std::process::{Command, Output};

blizzard_test_harness::module! {
    a_program_from_the_cache_finds_its_original_and_starts_itself_again_rewritten,
    every_node_finds_the_original,
    a_program_rewritten_elsewhere_stays_in_its_own_place,
    whatever_names_a_program_rewritten_elsewhere_agrees,
    what_a_program_reads_of_its_own_file_is_of_the_code_that_runs,
    start_up_code_that_reads_the_link_does_not_count,
    libraries_left_as_they_are_are_warned_of_on_several_nodes,
    a_bundle_that_cannot_find_itself_says_so_in_one_line,
}

/// Prints what it is told; starts itself again by the link, by the path that it was told, and as a child.
const SOURCE: &str = r#"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    char path[PATH_MAX] = {0};
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) return 2;
    printf("%s: %s %s %s %s\n", argv[1], path, (char *)getauxval(AT_EXECFN), getauxval(AT_BLIZZARD) ? "rewritten" : "original",
           getenv("BLIZZARD_EXE") ? "told" : "not told");
    fflush(stdout);
    if (!strcmp(argv[1], "first")) execl("/proc/self/exe", "x", "second", (char *)0);
    if (!strcmp(argv[1], "second")) execl(path, "x", "third", (char *)0);
    if (!strcmp(argv[1], "third")) {
        pid_t child = vfork();
        if (child == 0) { execl(path, "x", "fourth", (char *)0); _exit(3); }
        int status;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    return 0;
}
"#;

fn build(folder: &Path, flags: &[&str]) -> std::path::PathBuf {
    let (file, program) = (folder.join("self.c"), folder.join("self"));
    std::fs::write(&file, SOURCE).unwrap();
    let define = format!("-DAT_BLIZZARD={}", contract::AT_BLIZZARD);
    let status = tool("gcc").args(flags).arg(define).arg("-o").arg(&program).arg(&file).status().unwrap();
    assert!(status.success());
    program.canonicalize().unwrap()
}

fn run(folder: &Path, more: &[&str], program: &Path, word: &str) -> (String, Output) {
    let output = Command::new(env!("CARGO_BIN_EXE_blizzard"))
        .env("BLIZZARD_CACHE", folder.join("cache"))
        .arg("run")
        .args(more)
        .arg("--")
        .arg(program)
        .arg(word)
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output)
}

fn a_program_from_the_cache_finds_its_original_and_starts_itself_again_rewritten() {
    // rustup's proxies, busybox, and everything that looks for its files beside itself.
    let folder = tempfile::tempdir().unwrap();
    for flags in [&["-O1"][..], &["-O1", "-static"]] {
        let program = build(folder.path(), flags);
        let (said, output) = run(folder.path(), &[], &program, "first");
        assert!(output.status.success(), "{output:?}");
        let path = program.display();
        let expected: String = ["first", "second", "third", "fourth"]
            .iter()
            .map(|word| {
                // Who executes the link is told so by the kernel, and by the runtime the path.
                format!("{word}: {path} {path} rewritten not told\n")
            })
            .collect();
        assert_eq!(said, expected);
    }
}

fn every_node_finds_the_original() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), &["-O1"]);
    let (said, output) = run(folder.path(), &["-n", "2"], &program, "last");
    assert!(output.status.success(), "{output:?}");
    let path = program.display();
    assert_eq!(said, format!("last: {path} {path} rewritten not told\n").repeat(2));
}

fn a_program_rewritten_elsewhere_stays_in_its_own_place() {
    // `$ORIGIN` was where the rewritten file lies, and the libraries were not there.
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let at = |name: &str| folder.join(name);
    std::fs::create_dir(at("elsewhere")).unwrap();
    std::fs::write(at("l.c"), "int linked(void) { return 7; }\n").unwrap();
    let gcc =
        |arguments: &[&str]| assert!(tool("gcc").args(arguments).current_dir(&folder).status().unwrap().success());
    gcc(&["-shared", "-fPIC", "l.c", "-o", "liblinked.so"]);
    std::fs::write(at("p.c"), SOURCE).unwrap();
    let define = format!("-DAT_BLIZZARD={}", contract::AT_BLIZZARD);
    gcc(&["-O1", &define, "p.c", "-o", "self", "-L.", "-Wl,--no-as-needed", "-llinked", "-Wl,-rpath,$ORIGIN"]);
    let rewrite = Command::new(env!("CARGO_BIN_EXE_blizzard"))
        .env("BLIZZARD_CACHE", at("cache"))
        .args(["rewrite", "self", "-o", "elsewhere/self.blz"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(rewrite.status.success(), "{rewrite:?}");
    let said = |program: &str, word: &str| {
        let output = Command::new(at(program)).arg(word).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    };
    let original = at("self").display().to_string();
    let lines = ["first", "second", "third", "fourth"];
    let expected: String = lines.map(|word| format!("{word}: {original} {original} rewritten not told\n")).concat();
    assert_eq!(said("elsewhere/self.blz", "first"), expected);
    // In the original's folder, and where there is no original, its own place is that of its file.
    for (program, gone) in [("here", false), ("elsewhere/self.blz", true)] {
        if gone {
            std::fs::remove_file(at("self")).unwrap();
            std::fs::copy(at("liblinked.so"), at("elsewhere/liblinked.so")).unwrap();
        } else {
            std::fs::copy(at("elsewhere/self.blz"), at(program)).unwrap();
        }
        let path = at(program).display().to_string();
        assert_eq!(said(program, "last"), format!("last: {path} {path} rewritten not told\n"));
    }
}

/// Prints each name that it is given of itself.
const NAMED: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
static int first(struct dl_phdr_info *info, size_t bytes, void *unused) { printf(" phdr '%s'", info->dlpi_name); return 1; }
int main(int argc, char **argv) {
    char path[PATH_MAX] = {0};
    if (readlink("/proc/self/exe", path, sizeof path - 1) < 0) return 2;
    printf("name %s exe %s call %s short %s", argv[0], path, program_invocation_name, program_invocation_short_name);
    dl_iterate_phdr(first, 0);
#ifdef DYNAMIC
    Dl_info info;
    struct dl_find_object object;
    char origin[PATH_MAX];
    if (!dladdr((void *)main, &info) || _dl_find_object((void *)main, &object)) return 3;
    if (dlinfo(dlopen(0, RTLD_NOW), RTLD_DI_ORIGIN, origin)) return 4;
    printf(" main %s map '%s' origin %s", info.dli_fname, object.dlfo_link_map->l_name, origin);
#endif
    /* As programs do that set their titles. */
    argv[0][strlen(argv[0]) - 1] = '#';
    puts("");
    return argc != 2 || strcmp(argv[1], "word");
}
"#;

/// The first argument, and so `dladdr` of `main`, said where the rewritten file lies, all else where the original is.
fn whatever_names_a_program_rewritten_elsewhere_agrees() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    let elsewhere = folder.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink("named.blz", elsewhere.join("link")).unwrap();
    std::fs::write(folder.join("named.c"), NAMED).unwrap();
    // glibc knows the folder of a program only where that names it.
    let origin = "-Wl,-rpath,$ORIGIN";
    for flags in [&["-DDYNAMIC", origin][..], &["-DDYNAMIC", origin, "-no-pie"], &["-static"], &["-static-pie"]] {
        let compiler = tool("gcc").args(["-O1", "named.c", "-o", "named"]).args(flags).current_dir(&folder).status();
        assert!(compiler.unwrap().success());
        let rewrite = Command::new(env!("CARGO_BIN_EXE_blizzard"))
            .env("BLIZZARD_CACHE", folder.join("cache"))
            .args(["rewrite", "named", "-o", "elsewhere/named.blz"])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(rewrite.status.success(), "{rewrite:?}");
        let said = |script: &str| {
            let mut bash = tool("bash");
            bash.args(["-c", script]).arg(env!("CARGO_BIN_EXE_blizzard")).current_dir(&folder);
            let output = bash.env("BLIZZARD_CACHE", folder.join("cache")).output().unwrap();
            assert!(output.status.success(), "{flags:?} {script}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let same = |original: &str, rewritten: &str| assert_eq!(said(rewritten), said(original), "{flags:?}");
        let original = folder.join("named").display().to_string();
        for call in ["elsewhere/named.blz", "cd elsewhere && ./named.blz", "PATH=elsewhere:$PATH && named.blz"] {
            same(&format!("{original} word"), &format!("{call} word"));
        }
        same(&format!("{original} word"), "\"$0\" run elsewhere/named.blz word");
        // What says more than where the file is, stays: another name, a link.
        same("exec -a other ./named word", "exec -a other elsewhere/named.blz word");
        same("exec -a elsewhere/link ./named word", "elsewhere/link word");
        // `blizzard run` of the original: as it was typed.
        same("./named word", "\"$0\" run ./named word");
        same("cd elsewhere && ../named word", "cd elsewhere && \"$0\" run ../named word");
    }
}

/// Reads what is attached to its own file, from the end and from where that ends in the original; then the symbols, which a backtrace of a fixed-address program
/// looks for where the link leads.
const READER: &str = r#"
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
#[inline(never)]
fn inner() -> String { std::backtrace::Backtrace::force_capture().to_string() }
fn main() {
    let path = std::env::current_exe().unwrap();
    let size = std::fs::metadata(&path).unwrap().size();
    let mut file = std::fs::File::open(&path).unwrap();
    for place in [SeekFrom::End(-8), SeekFrom::Start(size - 8)] {
        let mut text = [0; 8];
        file.seek(place).unwrap();
        file.read_exact(&mut text).unwrap();
        print!("{} ", String::from_utf8_lossy(&text));
    }
    let trace = inner();
    for name in ["own::inner", "own::main"] { print!("{} ", trace.contains(name)); }
    println!("{}", path.display());
}
"#;

fn what_a_program_reads_of_its_own_file_is_of_the_code_that_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    std::fs::create_dir(folder.join("elsewhere")).unwrap();
    std::fs::write(folder.join("own.rs"), READER).unwrap();
    let own = folder.join("own");
    for model in ["static", "pic"] {
        let model = format!("-Crelocation-model={model}");
        let status = Command::new("rustc").args(["-O", "own.rs", &model]).current_dir(&folder).status().unwrap();
        assert!(status.success());
        let attached = [std::fs::read(&own).unwrap(), b"attached".to_vec()].concat();
        std::fs::write(&own, attached).unwrap();
        let expected = format!("attached attached true true {}\n", own.display());
        let said = |output: Output| {
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
        };
        assert_eq!(said(Command::new(&own).output().unwrap()), expected, "the original");
        assert_eq!(said(run(&folder, &[], &own, "").1), expected, "{model}");
        let blizzard = Command::new(env!("CARGO_BIN_EXE_blizzard"))
            .env("BLIZZARD_CACHE", folder.join("cache"))
            .args(["rewrite", "own", "-o", "elsewhere/own"])
            .current_dir(&folder)
            .output()
            .unwrap();
        assert!(blizzard.status.success(), "{blizzard:?}");
        assert_eq!(said(Command::new(folder.join("elsewhere/own")).output().unwrap()), expected, "{model}");
    }
}

/// glibc reads the link of a static program before `main`: opening the own path gave the rewritten file.
fn start_up_code_that_reads_the_link_does_not_count() {
    const SOURCE: &str = r#"
        #include <fcntl.h>
        #include <stdio.h>
        #include <string.h>
        #include <sys/stat.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            char path[4096] = "";
            if (argc > 2 && readlink("/proc/self/exe", path, sizeof path - 1) < 0) return 2;
            struct stat opened, named;
            if (fstat(open(argv[1], O_RDONLY), &opened) || stat(argv[1], &named)) return 3;
            puts(opened.st_ino == named.st_ino ? "original" : "rewritten");
            return 0;
        }"#;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().canonicalize().unwrap();
    std::fs::write(folder.join("own.c"), SOURCE).unwrap();
    let program = folder.join("own");
    for flags in [&["-static"][..], &["-static-pie"], &["-pie", "-fpie"]] {
        let built = tool("gcc").args(["-O1", "own.c", "-o", "own"]).args(flags).current_dir(&folder).status().unwrap();
        assert!(built.success());
        for (nodes, word, expected) in
            [("1", None, "original\n"), ("1", Some("read"), "rewritten\n"), ("2", None, "original\n")]
        {
            let output = Command::new(env!("CARGO_BIN_EXE_blizzard"))
                .env("BLIZZARD_CACHE", folder.join("cache"))
                .args(["run", "-n", nodes, "--"])
                .args([&program, &program])
                .args(word)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(said, expected.repeat(nodes.parse().unwrap()), "{flags:?} {word:?}");
        }
    }
}

fn libraries_left_as_they_are_are_warned_of_on_several_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path(), &["-O1"]);
    let rewritten = folder.path().join("self.blz");
    let status = Command::new(env!("CARGO_BIN_EXE_blizzard"))
        .args(["rewrite", "--no-libraries"])
        .arg(&program)
        .arg("-o")
        .arg(&rewritten)
        .status()
        .unwrap();
    assert!(status.success());
    for (more, warned) in [(&["-n", "2"][..], true), (&[], false)] {
        let (_, output) = run(folder.path(), more, &rewritten, "last");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.contains("its libraries' accesses to shared memory are not checked"), warned, "{said}");
    }
}

/// The libraries were said not to be in the bundle.
fn a_bundle_that_cannot_find_itself_says_so_in_one_line() {
    let hide = "mount -t tmpfs none /proc";
    needs::in_mount_namespace(hide, ":");
    let folder = tempfile::tempdir().unwrap();
    let (program, bundle) = (build(folder.path(), &["-O1"]), folder.path().join("bundle"));
    let status = Command::new(env!("CARGO_BIN_EXE_blizzard"))
        .env("BLIZZARD_CACHE", folder.path().join("cache"))
        .args(["rewrite", "--checks", "none"])
        .arg(&program)
        .arg("--bundle")
        .arg(&bundle)
        .status()
        .unwrap();
    assert!(status.success());
    let run = |before: &str| {
        let script = format!("{before} && exec \"$0\" fifth");
        needs::in_mount_namespace(":", &script).arg(bundle.join("self")).output().unwrap()
    };
    assert!(run(":").status.success());
    let output = run(hide);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((said.lines().count(), output.status.code()), (1, Some(1)), "{said}");
    assert!(said.contains("/proc/self/exe") && said.contains("mounted"), "{said}");
}
