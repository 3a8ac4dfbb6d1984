//! Debuggers and backtraces find in a rewritten program what they find in the original: lines, locals, libraries.

use blizzard::base::options::{Access, Options};
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
    let rewritten = pipeline::rewrite(&std::fs::read(&old).unwrap(), "old", &Options::default()).unwrap();
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
    let tests = Options { access: Access::Tests, ..Options::default() };
    let other = pipeline::rewrite(&old, "f", &tests).unwrap();
    assert!(id(&old) != id(&new) && id(&new) != id(&other.bytes));
    assert_eq!(id(&new), id(&pipeline::rewrite(&old, "f", &Options::default()).unwrap().bytes));
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
