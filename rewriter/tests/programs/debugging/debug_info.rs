//! Debuggers and backtraces find in a rewritten program what they find in the original: lines, locals, libraries.

use blizzard::base::options::{AccessMode, Options};
use blizzard::pipeline;
use blizzard_test_harness::executable;
use blizzard_test_harness::tool;
use object::{Object, ObjectSymbol};
use std::path::Path;
use std::process::{Command, Output};

blizzard_test_harness::module! {
    gdb_shows_the_same_lines_frames_and_variables: ["gcc", "clang"],
    gdb_finds_the_libraries,
    every_function_has_its_line,
    backtraces_of_rust_name_files_and_lines,
    another_code_has_another_build_id,
    gdb_knows_rewritten_libraries,
    gdb_finds_both_versions_of_guarded_code,
    exceptions_pass_full_code_and_gdb_sees_its_frames,
    gdb_shows_shared_memory_of_guarded_nodes,
}

const SOURCE: &str = "#include <stdio.h>
struct node { int v; struct node *next; };
static int sum(struct node *n) {
    int s = 0;
    while (n) {
        s += n->v;
        n = n->next;
    }
    return s;
}
__attribute__((noinline)) int deep(int k, struct node *n) {
    if (k == 0)
        return sum(n);
    int r = deep(k - 1, n) + 1;
    return r;
}
int main(int argc, char **argv) {
    struct node a = {1, 0}, b = {argc, &a};
    int t = deep(3, &b);
    printf(\"%d\\n\", t);
    return 0;
}
";

/// Breaks in a loop in a called function, by line.
const SESSION: &str = "set pagination off
break f.c:6
break deep
run
bt
delete 2
continue
bt
info locals
step
step
next
delete
finish
bt
";

fn run(command: &mut Command) -> Output {
    command.env("LC_ALL", "C").output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Builds `source` and its rewritten form in `folder`.
fn build(folder: &Path, compiler: &str, file: &str, source: &str, flags: &[&str]) -> [std::path::PathBuf; 2] {
    std::fs::write(folder.join(file), source).unwrap();
    let [old, new] = ["old", "new"].map(|name| folder.join(name));
    let built = run(tool(compiler).current_dir(folder).args(flags).args([file, "-o"]).arg(&old));
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let rewritten = pipeline::rewrite(&std::fs::read(&old).unwrap(), "old", &Options::tests()).unwrap();
    executable::write(&new, &rewritten.bytes);
    [old, new]
}

/// Text with every address replaced: code has moved, and the runtime has changed the stack's height.
fn normalised(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with("[Inferior")).collect();
    let text = lines.join("\n");
    let mut parts = text.split("0x");
    let mut out = parts.next().unwrap_or("").to_owned();
    for part in parts {
        out.push_str("ADDRESS");
        out.push_str(part.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    }
    out
}

fn gdb_shows_the_same_lines_frames_and_variables(compiler: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("session"), SESSION).unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        for flags in [&["-O0"][..], &["-O2", "-fno-inline"], &["-O1", "-no-pie"]] {
            let all = [flags, &["-g", version]].concat();
            let programs = build(folder.path(), compiler, "f.c", SOURCE, &all);
            let [old, new] = programs.map(|program| {
                let out =
                    run(tool("gdb").current_dir(folder.path()).args(["-nx", "-batch", "-x", "session"]).arg(program));
                normalised(&out.stdout)
            });
            assert!(old.contains("deep (k=") && old.contains("in main ("), "{old}");
            // The prologue is where the debugger stops first; checks of it belong to the same line.
            assert_eq!(old, new, "{compiler} {all:?}");
        }
    }
}

fn gdb_finds_the_libraries() {
    // The kernel's program headers have no PT_INTERP, and gdb believed a .interp section that the kernel had not followed.
    let folder = tempfile::tempdir().unwrap();
    for kind in ["-pie", "-no-pie"] {
        let [_, new] = build(folder.path(), "gcc", "f.c", SOURCE, &["-g", kind]);
        let commands = ["break main", "run", "info sharedlibrary", "break printf", "continue", "bt"];
        let args = commands.iter().flat_map(|c| ["-ex", *c]);
        let out = run(tool("gdb").args(["-nx", "-batch"]).args(args).arg(new));
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(text.contains("Yes") && text.contains("libc.so.6"), "{text}");
        assert!(text.contains("in main (") && text.contains("printf"), "{text}");
    }
}

fn every_function_has_its_line() {
    let folder = tempfile::tempdir().unwrap();
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let programs = build(folder.path(), "gcc", "f.c", SOURCE, &["-O2", "-g", version]);
        let [old, new] = programs.map(|program| {
            let bytes = std::fs::read(&program).unwrap();
            let file = object::File::parse(&*bytes).unwrap();
            ["sum", "deep", "main"].map(|name| {
                let Some(symbol) = file.symbol_by_name(name) else { return String::new() };
                let at = format!("{:#x}", symbol.address());
                let out = run(tool("addr2line").arg("-fie").arg(&program).arg(at));
                String::from_utf8_lossy(&out.stdout).into_owned()
            })
        });
        assert!(old[1].contains("f.c:"), "{old:?}");
        assert_eq!(old, new, "{version}");
    }
}

fn backtraces_of_rust_name_files_and_lines() {
    const PANIC: &str = "fn inner(n: usize, v: &[u32]) -> u32 {
    v[n]
}
fn outer(n: usize) -> u32 {
    let v = vec![1, 2, 3];
    inner(n, &v) + 1
}
fn main() {
    println!(\"{}\", outer(std::env::args().count() + 5));
}
";
    let folder = tempfile::tempdir().unwrap();
    for level in ["-Copt-level=0", "-Copt-level=2"] {
        let programs = build(folder.path(), "rustc", "p.rs", PANIC, &["-g", level]);
        let [old, new] = programs.map(|program| {
            let out = run(Command::new(program).env("RUST_BACKTRACE", "1"));
            let text = String::from_utf8_lossy(&out.stderr).into_owned();
            text.lines().filter(|l| !l.contains("panicked at")).collect::<Vec<_>>().join("\n")
        });
        assert!(old.contains("p.rs:2"), "{old}");
        assert_eq!(old, new, "{level}");
    }
}

fn another_code_has_another_build_id() {
    // perf took the symbols of the original, which it had kept under the same id, for those of the rewritten program.
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = build(folder.path(), "gcc", "f.c", SOURCE, &["-O2", "-Wl,--build-id=sha1"]);
    let id = |bytes: &[u8]| object::File::parse(bytes).unwrap().build_id().unwrap().unwrap().to_vec();
    let (old, new) = (std::fs::read(old).unwrap(), std::fs::read(new).unwrap());
    assert_eq!((id(&old).len(), id(&new).len()), (20, 20));
    let other = pipeline::rewrite(&old, "f", &Options { access: AccessMode::Guard, ..Options::default() }).unwrap();
    assert!(id(&old) != id(&new) && id(&new) != id(&other.bytes));
    assert_eq!(id(&new), id(&pipeline::rewrite(&old, "f", &Options::tests()).unwrap().bytes));
}

/// `bt` ended in qsort, and no breakpoint there was hit: gdb took the rewritten library for the original, whose name it has.
fn gdb_knows_rewritten_libraries() {
    const SORT: &str = "#include <stdlib.h>
int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void) {
    int v[] = {3, 1, 2};
    qsort(v, 3, sizeof *v, compare);
    return v[0] != 1;
}
";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("f.c"), SORT).unwrap();
    let blizzard = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blizzard"));
        command.current_dir(&folder).env("BLIZZARD_CACHE", folder.path().join("cache"));
        command
    };
    assert!(run(tool("gcc").current_dir(&folder).args(["-g", "f.c", "-o", "old"])).status.success());
    assert!(run(blizzard().args(["rewrite", "old", "-o", "new"])).status.success());
    let commands = run(blizzard().args(["config", "--gdb"])).stdout;
    let commands = String::from_utf8(commands).unwrap();
    let mut gdb = tool("gdb");
    gdb.current_dir(&folder).args(["-nx", "-batch", "-x", commands.trim_end()]);
    let session = ["break main", "run", "break qsort", "break compare", "continue", "bt", "continue", "bt"];
    let out = run(gdb
        .args(session.iter().chain(&["kill"]).chain(&session[1..2]).chain(&session[4..]).flat_map(|c| ["-ex", *c]))
        .arg("new"));
    let text = String::from_utf8_lossy(&out.stdout);
    // In each of two runs: stopped in qsort, called by main; stopped in compare, called by qsort, called by main.
    assert_eq!(text.matches("in qsort ()").count(), 4, "{text}");
    assert_eq!(text.matches("in qsort_r ()").count(), 2, "{text}");
    assert_eq!(text.matches("in main () at f.c:5").count(), 4, "{text}");
}

/// A program that shares memory, guarded.
struct Guarded {
    folder: tempfile::TempDir,
}

/// A run of two nodes. When it is dropped it has ended.
struct Nodes {
    run: std::process::Child,
    /// What node 0 printed first.
    first: String,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = self.run.kill();
        let _ = self.run.wait();
    }
}

impl Guarded {
    fn new(compiler: &str, file: &str, source: &str) -> Guarded {
        let guarded = Guarded { folder: tempfile::tempdir().unwrap() };
        std::fs::write(guarded.folder.path().join(file), source).unwrap();
        let flags = |which: &str| {
            let out = run(guarded.blizzard().args(["config", which])).stdout;
            String::from_utf8(out).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let mut cc = tool(compiler);
        cc.current_dir(&guarded.folder).args(["-g", "-O2"]).args(flags("--cflags")).args([file, "-o", "old"]);
        let built = run(cc.args(flags("--libs")));
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let rewritten = run(guarded.blizzard().args(["rewrite", "--access", "guard", "old", "-o", "new"]));
        assert!(rewritten.status.success(), "{}", String::from_utf8_lossy(&rewritten.stderr));
        guarded
    }

    fn blizzard(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_blizzard"));
        command.current_dir(&self.folder).env("BLIZZARD_CACHE", self.folder.path().join("cache"));
        command
    }

    /// Two nodes, of which node 0 has printed a line and waits.
    fn started(&self) -> Nodes {
        use std::io::BufRead;
        let mut command = self.blizzard();
        command.args(["run", "-n", "2", "--", "./new"]).stdout(std::process::Stdio::piped());
        let mut nodes = Nodes { run: command.spawn().unwrap(), first: String::new() };
        let mut lines = std::io::BufReader::new(nodes.run.stdout.take().unwrap());
        lines.read_line(&mut nodes.first).unwrap();
        // Whoever writes more is not stopped by a closed pipe.
        std::thread::spawn(move || while lines.read_line(&mut String::new()).is_ok_and(|n| n > 0) {});
        nodes
    }

    /// What gdb says to the commands.
    fn gdb(&self, arguments: &[&str], session: &[&str]) -> String {
        let mut gdb = tool("gdb");
        // What faults is the runtime's business.
        gdb.current_dir(&self.folder).args(["-nx", "-batch", "-ex", "handle SIGSEGV nostop noprint pass"]);
        let out = run(gdb.args(arguments).args(session.iter().flat_map(|c| ["-ex", c])));
        String::from_utf8_lossy(&out.stdout).into_owned()
    }
}

/// Frames have the function's name and lines in both versions; breakpoints find full code as `sum.full`.
fn gdb_finds_both_versions_of_guarded_code() {
    const SOURCE: &str = "#include <blizzard.h>
#include <stdio.h>
#include <unistd.h>
volatile int go, limit = 4;
__attribute__((noinline)) long sum(const long *v, int n) {
    long s = 0;
    for (int i = 0; i < n; i++)
        s += v[i];
    return s;
}
int main(void) {
    long own[4] = {1, 2, 3, 4}, *v = bz_alloc(4 * sizeof *v), total = 0;
    if (bz_node() == 0) {
        printf(\"%d\\n\", getpid());
        fflush(stdout);
        while (!go)
            usleep(1000);
        total += sum(own, limit);
        for (int k = 0; k < 8; k++)
            total += sum(v, limit);
    }
    limit = total;
    bz_barrier();
    return 0;
}
";
    let guarded = Guarded::new("gcc", "f.c", SOURCE);
    let nodes = guarded.started();
    let plain = ["break f.c:8", "set var go=1", "continue", "bt", "delete"];
    let full = ["break sum.full", "continue", "bt", "info line *$pc"];
    let text = guarded.gdb(&["-p", nodes.first.trim_end()], &[&plain[..], &full[..]].concat());
    // The first call has private memory, the last ones are entered in full code.
    assert_eq!(text.matches("#0  sum (").count(), 2, "{text}");
    assert!(text.contains("in main () at f.c:18") && text.contains("in main () at f.c:20"), "{text}");
    assert!(text.contains("of \"f.c\" starts at address") && text.contains("<sum.full>"), "{text}");
}

/// Frames describe full code: an exception passes it, and backtraces go on behind it.
fn exceptions_pass_full_code_and_gdb_sees_its_frames() {
    const SOURCE: &str = "#include <blizzard.h>
#include <cstdio>
#include <unistd.h>
volatile int go, caught;
__attribute__((noinline)) void thrown(long x) {
    if (x > 6)
        throw x;
}
struct Last {
    long &counter;
    ~Last() { counter++; }
};
__attribute__((noinline)) long first(volatile long *v, long &counter) {
    Last last{counter};
    long x = v[0];
    v[0] = x + 1;
    thrown(x);
    return v[0];
}
int main() {
    long *v = (long *)bz_alloc(64), counter = 0;
    if (bz_node() == 0) {
        std::printf(\"%d\\n\", getpid());
        std::fflush(stdout);
        while (!go)
            usleep(1000);
        for (int k = 0; k < 10; k++)
            try {
                first(v, counter);
            } catch (long x) {
                caught = caught * 10 + x;
            }
    }
    bz_barrier();
    go = counter;
    bz_barrier();
}
";
    let guarded = Guarded::new("g++", "f.cpp", SOURCE);
    let nodes = guarded.started();
    let breaks = ["break first", "info breakpoints", "delete", "break thrown if x > 6", "set var go=1"];
    let stops = ["continue", "bt", "up", "info symbol $pc", "delete", "break f.cpp:35", "continue", "print caught"];
    let text = guarded.gdb(&["-p", nodes.first.trim_end()], &[&breaks[..], &stops[..]].concat());
    // Of a mangled name a breakpoint has a place in each version.
    assert!(text.matches("in first(long volatile*, long&) at f.cpp:14").count() >= 2, "{text}");
    assert!(
        text.contains("thrown (x=7)") && text.contains("first (v=") && text.contains("in main () at f.cpp:29"),
        "{text}"
    );
    assert!(text.contains("[clone .full]"), "{text}");
    assert!(text.contains("$1 = 789"), "{text}");
}

/// What has no rights at the program's addresses is read there all the same, also from a core file, which holds it once.
fn gdb_shows_shared_memory_of_guarded_nodes() {
    const SOURCE: &str = "#include <blizzard.h>
#include <stdio.h>
#include <unistd.h>
volatile long *shared;
int main(void) {
    shared = bz_alloc(1 << 20);
    if (bz_node() == 0) {
        for (int i = 0; i < 1 << 17; i++)
            shared[i] = 0x5eed5eed5eed5eed;
        printf(\"%d\\n\", getpid());
        fflush(stdout);
        pause();
    }
    bz_barrier();
    return 0;
}
";
    let guarded = Guarded::new("gcc", "f.c", SOURCE);
    let nodes = guarded.started();
    let look = ["print/x shared[3]", "x/gx shared+3"];
    let live = guarded.gdb(&["-p", nodes.first.trim_end()], &[look[0], look[1], "generate-core-file core"]);
    let core = guarded.gdb(&["new", "core"], &look);
    for text in [live, core] {
        assert_eq!(text.matches("0x5eed5eed5eed5eed").count(), 2, "{text}");
    }
    let core = std::fs::read(guarded.folder.path().join("core")).unwrap();
    let words = core.chunks_exact(8).filter(|w| **w == 0x5eed_5eed_5eed_5eed_u64.to_le_bytes()).count();
    // All of it, and what registers and stacks may hold.
    assert!((1 << 17..(1 << 17) + 100).contains(&words), "{words}");
}
