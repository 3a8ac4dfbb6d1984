//! Nodes that die by signals: what the launcher says of them; nodes under a debugger.

use crate::sources::{self, SharedProgram, finished, said};
use blizzard_test_harness::needs::{need_system, send_signal};
use blizzard_test_harness::tool;
use object::{Object, ObjectSymbol};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

blizzard_test_harness::module! {
    the_starter_of_a_thread_is_a_function_of_the_program,
    a_node_that_dies_says_where_and_by_what,
    a_stripped_program_has_the_addresses_of_its_file,
    a_node_that_ends_the_run_says_where,
    what_programs_see_of_faults_stays_as_it_was,
    a_node_runs_under_gdb,
    gdb_sees_a_waiting_node_from_main_down,
    gdb_reads_the_core_file_of_a_node,
    a_separate_debug_file_names_functions_of_a_library,
    many_nodes_that_die_together_are_told_once,
    what_the_c_library_cannot_free_is_told,
}

const PROGRAM: &str = r#"
#include <blizzard.h>
#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/wait.h>
static const int table[16] = {1, 2, 3};
static volatile int zero;
struct item { long key; struct item *next; };
static inline __attribute__((always_inline)) long sum_of(struct item *i) {
    return i->key + i->next->key;
}
__attribute__((noinline)) static long walk(struct item *i) {
    return sum_of(i) + 1;
}
__attribute__((noinline)) static int deep(int n) {
    if (n == 0) abort();
    return deep(n - 1) + 1;
}
static int compare(const void *a, const void *b) {
    (void)a, (void)b;
    *(volatile int *)8 = 1;
    return 0;
}
static void on_usr1(int s) {
    (void)s;
    *(volatile int *)24 = 1;
}
/* Adds distances of labels: where that leads is not found, so the old code there has trap bytes. */
__attribute__((noinline)) static int pick(int n) {
    static const int far[] = {&&a - &&a, &&b - &&a, &&c - &&a};
    volatile long way = far[n];
    goto *((char *)&&a + way);
a:
    return 10;
b:
    return 20;
c:
    return 30;
}
static int order(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}
__attribute__((noinline)) static long total(const long *at) {
    long sum = 0;
    for (int n = 0; n < 100000; n++) sum += at[n];
    return sum;
}
__attribute__((noinline)) static int over(int n) {
    volatile char room[1000];
    room[0] = (char)n;
    return over(n + 1) + room[0];
}
static void *idle(void *x) { return x; } static int is_stopped(long p) { char s[300] = ""; sprintf(s, "/proc/%ld/stat", p); FILE *f = fopen(s, "r"); s[fread(s, 1, 299, f)] = 0; fclose(f); return strstr(s, ") T ") != 0; }
static void say_number(void) {
    printf("%u %d\n", bz_node(), (int)getpid());
    fflush(stdout);
}
int main(int argc, char **argv) {
    const char *how = argv[argc - 1];
    if (bz_node() == 0) {
        struct item *i = bz_alloc(sizeof *i);
        i->key = 1, i->next = strcmp(how, "miss") ? 0 : i;
        bz_publish(0, i);
    }
    struct item *i = bz_lookup(0);
    bz_barrier();
    int is_looked_at = !strcmp(how, "wait") || !strcmp(how, "miss"); long other = (long)bz_reduce_sum_u64(bz_node() ? 0 : getpid());
    if (bz_node() == bz_nodes() - 1) {
        if (!strcmp(how, "null")) return walk(i) > 100;
        if (!strcmp(how, "abort")) return deep(2);
        if (!strcmp(how, "divide")) return 7 / zero;
        if (!strcmp(how, "const")) *(volatile int *)&table[2] = 5;
        if (!strcmp(how, "code")) ((void (*)(void))i)();
        if (!strcmp(how, "qsort")) { int v[4] = {3, 2, 1, 0}; qsort(v, 4, sizeof *v, compare); }
        if (!strcmp(how, "handler")) { signal(SIGUSR1, on_usr1); raise(SIGUSR1); }
        if (!strcmp(how, "child")) {
            int status = 0;
            pid_t child = fork();
            if (child == 0) abort();
            waitpid(child, &status, 0);
            printf("child %d\n", WIFSIGNALED(status) ? WTERMSIG(status) : -1);
        }
        if (!strcmp(how, "debug")) {
            int v[4] = {3, 2, 1, 0}, sum = 0;
            for (int n = 0; n < 3; n++) sum += pick((n + argc) % 3);
            qsort(v, 4, sizeof *v, order);
            i->next = i;
            printf("%d %d %ld\n", sum, v[0], walk(i));
        }
        if (!strcmp(how, "own")) {
            signal(SIGFPE, SIG_IGN);
            struct sigaction fpe, ill;
            sigaction(SIGFPE, 0, &fpe);
            sigaction(SIGILL, 0, &ill);
            printf("%d %d\n", fpe.sa_handler == SIG_IGN, ill.sa_handler == SIG_DFL);
        }
        if (!strcmp(how, "misuse")) bz_free((char *)i + 8);
        struct item *wild = (void *)((char *)i + 100000);
        if (!strcmp(how, "wild")) return walk(wild) > 100;
        if (!strcmp(how, "wild string")) memset(wild, 1, 20000);
        if (!strcmp(how, "wild loop")) return total((long *)wild) > 100;
        if (!strcmp(how, "overflow")) return over(1);
        if (!strcmp(how, "none")) { void (*volatile none)(void) = 0; none(); }
        if (is_looked_at) say_number();
        if (!strcmp(how, "miss")) { while (!is_stopped(other)) {} i->key = walk(i); }
        if (!strcmp(how, "thread")) { pthread_t t; pthread_create(&t, 0, idle, 0); }
    }
    char c;
    if (is_looked_at && bz_node() == 0) {
        say_number();
        if (!strcmp(how, "miss")) raise(SIGSTOP);
        else while (read(0, &c, 1) == 1) {}
    }
    bz_barrier();
    return 0;
}
"#;

fn a_node_that_dies_says_where_and_by_what() {
    let program = SharedProgram::new(PROGRAM.trim_start(), &[]);
    // What is said, one behind the other; the last is the last line.
    let cases: [(&str, i32, &[&str]); 13] = [
        (
            "null",
            128 + libc::SIGSEGV,
            &["it read 0x0: a null pointer", "at sum_of (prog.c:14)", "by walk (prog.c:17)", "by main (prog.c:73)"],
        ),
        (
            "abort",
            128 + libc::SIGABRT,
            &["by abort in libc", "by deep (prog.c:20)", "by deep (prog.c:21)", "by main (prog.c:74)"],
        ),
        ("divide", 128 + libc::SIGFPE, &["at main (prog.c:75)"]),
        (
            "const",
            128 + libc::SIGSEGV,
            &["it wrote to 0x", " (table + 8, of 64 bytes), which is read-only", "at main (prog.c:76)"],
        ),
        (
            "code",
            128 + libc::SIGSEGV,
            &[
                "it went on at 0x2",
                ": shared memory, which is no code",
                " is at the beginning of an allocation of up to 64 bytes",
                ", made by main (prog.c:65)",
                "by main (prog.c:77)",
            ],
        ),
        (
            "qsort",
            128 + libc::SIGSEGV,
            &["it wrote to 0x8: 8 bytes", "at compare (prog.c:25)", "by qsort", "by main (prog.c:78)"],
        ),
        (
            "handler",
            128 + libc::SIGSEGV,
            &["it wrote to 0x18", "at on_usr1 (prog.c:30)", "by the kernel", "by raise in libc", "by main (prog.c:79)"],
        ),
        (
            "wild",
            1,
            &[
                "shared memory that was never allocated",
                " bytes behind the end of an allocation of up to 64 bytes at 0x20",
                ", made by main (prog.c:65)",
                "at sum_of (prog.c:14)",
                "by walk (prog.c:17)",
                "by main (prog.c:103)",
            ],
        ),
        ("wild string", 1, &["never allocated", "libc.so.6", "by main (prog.c:104)"]),
        ("wild loop", 1, &["never allocated", "at total (prog.c:49)", "by main (prog.c:105)"]),
        (
            "overflow",
            128 + libc::SIGSEGV,
            &[
                "its stack was full: it wrote to 0x",
                ", below it\n",
                "at over (prog.c:",
                " calls more",
                "by over (prog.c:",
            ],
        ),
        (
            "none",
            128 + libc::SIGSEGV,
            &["it went on at 0x0: a null pointer", "at 0x0, where no file is mapped", "by main (prog.c:107)"],
        ),
        (
            "thread",
            1,
            &[
                "the program starts a second thread, started by main",
                "help: let the nodes share the work",
                "main (prog.c:",
            ],
        ),
    ];
    for (nodes, access) in [("1", "tests"), ("1", "guard"), ("2", "tests"), ("2", "guard")] {
        // Alone, a node may use all of the segment, and have threads.
        let fails = |how: &str| nodes != "1" || !(how.starts_with("wild") || how == "thread");
        for (how, status, says) in cases.into_iter().filter(|case| fails(case.0)) {
            let (out, err, seen) = program.run(&["-n", nodes, "--access", access], how);
            assert_eq!((out.as_str(), seen), ("", status), "{how}, {nodes} nodes, {access}: {err}");
            let mut rest = err.as_str();
            for part in says {
                let at = rest.find(part);
                rest = &rest[at.unwrap_or_else(|| panic!("{how}, {nodes} nodes, {access}: no {part:?}: {err}"))..];
            }
            // Of a recursion without an end the launcher looks at the innermost calls alone.
            assert!(how == "overflow" || rest.lines().count() == 1, "{err}");
            assert!(!err.contains("blizzard_cold") && !err.contains(".full") && !err.contains("??"), "{err}");
        }
    }
}

/// The runtime's own errors.
/// `walk` was "a function without a name". Where a pointer leads (`on_usr1`), the old address holds a springboard, and no row of the trap map.
fn a_stripped_program_has_the_addresses_of_its_file() {
    for kind in ["-pie", "-no-pie"] {
        let program = SharedProgram::new(PROGRAM.trim_start(), &[kind]);
        program.compile("bare", &[kind, "-s"]);
        let file = fs::read(program.folder.path().join("prog")).unwrap();
        let file = object::File::parse(&*file).unwrap();
        let range = |name: &str| file.symbol_by_name(name).map(|s| s.address()..s.address() + s.size()).unwrap();
        for (how, functions) in [("null", &["walk", "main"][..]), ("handler", &["on_usr1"])] {
            let mut run = program.blizzard();
            let (_, err, _) = finished(run.args(["run", "-n", "2", "--", "./bare", how]).output().unwrap());
            let places = err.lines().filter_map(|line| line.trim_start().split_once(" bare+0x"));
            let places: Vec<u64> = places.map(|(_, at)| u64::from_str_radix(at, 16).unwrap()).collect();
            assert!(places.len() >= functions.len(), "{kind} {how}: {err}");
            for (function, at) in functions.iter().zip(&places) {
                assert!(range(function).contains(at), "{kind} {how}: {at:#x} is not in {function}: {err}");
            }
            if how == "handler" {
                assert_eq!(places[0], range("on_usr1").start, "{kind}: {err}");
            }
        }
    }
}

fn a_node_that_ends_the_run_says_where() {
    let program = SharedProgram::new(PROGRAM.trim_start(), &[]);
    let source = fs::read_to_string(program.folder.path().join("prog.c")).unwrap();
    let line = 1 + source.lines().position(|line| line.contains("\"misuse\"")).unwrap();
    let (out, err, status) = program.run(&["-n", "2"], "misuse");
    assert_eq!((out.as_str(), status), ("", 1), "{err}");
    assert!(err.starts_with("blizzard: error: node 1: ") && err.contains("is not the start of an allocation"), "{err}");
    assert!(err.ends_with(&format!(" main (prog.c:{line})\n")), "{line}: {err}");
}

fn what_programs_see_of_faults_stays_as_it_was() {
    let program = SharedProgram::new(PROGRAM.trim_start(), &[]);
    for nodes in ["1", "2"] {
        // A process that a node has made is not waited over, and its signal is its parent's business.
        let (out, err, status) = program.run(&["-n", nodes], "child");
        assert_eq!((out.as_str(), err.as_str(), status), ("child 6\n", "", 0));
        // The program does not see that the runtime looks at faults first.
        let (out, err, status) = program.run(&["-n", nodes], "own");
        assert_eq!((out.as_str(), err.as_str(), status), ("1 1\n", "", 0));
    }
}

/// Breakpoints in the program and in a rewritten library; frames, arguments, stepping; trap bytes on the way there are not seen.
fn a_node_runs_under_gdb() {
    tool("gdb");
    let program = SharedProgram::new(PROGRAM.trim_start(), &[]);
    let session = [
        // In a library that gdb does not know yet: at the program's entry of the linkage table until then.
        ("break qsort", "Breakpoint 1 at"),
        ("run", "Breakpoint 1, "),
        ("bt", "in main ("),
        ("tbreak order", ""),
        ("continue", "order ("),
        ("bt", "in qsort_r ("),
        ("finish", "Value returned"),
        // A function of the library without a name.
        ("up", "#1  0x"),
        ("delete", ""),
        ("break walk", ""),
        ("continue", "walk (i="),
        ("print *i", "{key = 1, next = 0x2"),
        ("step", "sum_of (i="),
        ("up", "#1  walk (i="),
        ("finish", "Value returned"),
        ("info locals", "sum = 60"),
        ("next", "\"own\""),
        ("continue", "60 0 3"),
    ];
    let commands = session.iter().flat_map(|(line, _)| ["-ex", line]);
    let gdb_args = ["-nx", "-batch"].into_iter().chain(commands).map(|arg| format!("--gdb-arg={arg}"));
    let mut command = program.blizzard();
    command.args(["run", "-n", "2", "--gdb", "1"]).args(gdb_args).args(["--", "./prog", "debug"]);
    let (out, err, status) = finished(command.output().unwrap());
    let mut rest = out.as_str();
    for (line, says) in session {
        let at = rest.find(says);
        rest = &rest[at.unwrap_or_else(|| panic!("{line}: no {says:?}: {out}{err}"))..];
    }
    assert!(out.contains("exited normally") && status == 0, "{status} {out}{err}");
    assert!(!out.contains("SIGTRAP") && !out.contains("SIGILL"), "{out}");
    for (options, says) in [(["--gdb", "2"], "the run has 2 node(s)"), (["--gdb", "x"], "invalid value")] {
        let (_, err, status) = program.run(&[&["-n", "2"], &options[..]].concat(), "own");
        assert!(status != 0 && err.contains(says), "{err}");
    }
}

/// With nothing told to gdb but the process; in a call of the runtime, and in an access to a block that does not come.
fn gdb_sees_a_waiting_node_from_main_down() {
    tool("gdb");
    let program = SharedProgram::new(PROGRAM.trim_start(), &[]);
    program.compile("fixed", &["-no-pie"]);
    program.compile("static", &["-static"]);
    for (name, how) in [("prog", "wait"), ("fixed", "wait"), ("static", "wait"), ("prog", "miss")] {
        let mut command = program.blizzard();
        command.args(["run", "-n", "2", "--", &format!("./{name}"), how]);
        let mut run = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(run.stdout.take().unwrap()).lines();
        // Both say their numbers; it begins with the node's.
        let mut processes: Vec<_> = lines.take(2).map(Result::unwrap).collect();
        processes.sort_unstable();
        let [other, node] = [0, 1].map(|n: usize| processes[n][2..].to_owned());
        // It waits soon.
        let gdb = || {
            let mut gdb = tool("gdb");
            gdb.current_dir(&program.folder).args(["-nx", "-batch", "-p", &node, "-ex", "bt"]);
            said(&gdb.output().unwrap())
        };
        let seen = (0..50).map(|_| gdb()).find(|seen| seen.contains("blizzard_rt::")).unwrap();
        // The other node reads until its input ends, or is stopped.
        drop(run.stdin.take());
        assert!(how != "miss" || send_signal("CONT", other.parse().unwrap()));
        assert!(run.wait().unwrap().success());
        let frames: Vec<&str> = seen.lines().filter(|line| line.starts_with('#')).collect();
        let main = frames.iter().position(|line| line.contains(" main ("));
        let main = main.unwrap_or_else(|| panic!("{name} {how}: {seen}"));
        assert!(main > 5 && frames[..main].iter().all(|line| !line.contains("??")), "{name} {how}: {seen}");
        assert!(how != "miss" || frames[main - 1].contains(" walk.blizzard_cold "), "{name} {how}: {seen}");
    }
}

fn gdb_reads_the_core_file_of_a_node() {
    tool("gdb");
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
    need_system(!pattern.starts_with(['|', '/']) && !pattern.contains('%'), "core files in the current folder");
    let program = SharedProgram::new(PROGRAM.trim_start(), &[]);
    let (_, err, _) = program.run(&["-n", "2", "--core"], "qsort");
    let (_, line) = err.split_once("  help: gdb -x ").unwrap_or_else(|| panic!("{err}"));
    // The folder beside it has all that gdb needs.
    assert!(program.blizzard().args(["cache", "clean"]).output().unwrap().status.success());
    let mut gdb = tool("gdb");
    gdb.current_dir(&program.folder).args(["-nx", "-batch", "-x", line.trim_end()]);
    let seen = said(&gdb.args(["-ex", "bt", "-ex", "print *i"]).output().unwrap());
    let mut rest = seen.as_str();
    for part in ["compare (", "in qsort_r (", "in main ("] {
        let at = rest.find(part);
        rest = &rest[at.unwrap_or_else(|| panic!("no {part}: {seen}"))..];
    }
}

/// In Rust a function of the standard library was named, of a stripped program a file of the cache.
fn the_starter_of_a_thread_is_a_function_of_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let thread = "fn main() { begin(); }\n#[inline(never)]\nfn begin() { std::thread::spawn(|| println!(\"no\")).join().unwrap(); }\n";
    std::fs::write(at("rust.rs"), thread).unwrap();
    for mangling in ["legacy", "v0"] {
        let mut rustc = tool("rustc");
        rustc.args(["-O", "--edition=2021", &format!("-Csymbol-mangling-version={mangling}")]);
        // The older way has to be asked for in some versions of the compiler.
        rustc.env("RUSTC_BOOTSTRAP", "1").arg("-Zunstable-options");
        let built = rustc.args(["-o", mangling, "rust.rs"]).current_dir(&folder).status().unwrap();
        assert!(built.success(), "{mangling}");
    }
    let source = "#include <pthread.h>\nstatic void *nothing(void *p) { return p; }\n\
                  int main(void) { pthread_t t; return pthread_create(&t, 0, nothing, 0); }\n";
    sources::compile(source, &at("bare"), &["-O1", "-s", "-pthread"]);
    let said = |name: &str| {
        let run =
            sources::blizzard(folder.path()).args(["run", "-n", "2", "--", &format!("./{name}")]).output().unwrap();
        let (_, err, status) = sources::finished(run);
        assert_eq!(status, 1, "{err}");
        let (_, starter) =
            err.split_once("starts a second thread, started by ").unwrap_or_else(|| panic!("{name}: {err}"));
        starter.to_owned()
    };
    for name in ["legacy", "v0"] {
        let starter = said(name);
        assert!(
            starter.starts_with(&format!("{name}::begin")) || starter.starts_with("rust::begin"),
            "{name}: {starter}"
        );
    }
    let starter = said("bare");
    let file = at("bare").canonicalize().unwrap();
    let place = starter.split_once(&format!(" of {}", file.display())).unwrap_or_else(|| panic!("{starter}")).0;
    let number = u64::from_str_radix(place.strip_prefix("code at 0x").unwrap(), 16).unwrap();
    // Behind the call, in the original's code.
    let bytes = std::fs::read(file).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let text = object::Object::section_by_name(&elf, ".text").unwrap();
    let code = object::ObjectSection::data(&text).unwrap();
    let behind = (number - object::ObjectSection::address(&text)) as usize;
    assert!(code[behind - 5] == 0xe8 || code[behind - 6..behind - 4] == [0xff, 0x15], "{starter}");
}

/// The library has no symbols but those of what it exports; its file of debug information has those of the original's code.
fn a_separate_debug_file_names_functions_of_a_library() {
    tool("objcopy");
    tool("strip");
    let source = "#include <blizzard.h>\nvoid outer(void (*)(void));\n\
                  static void die(void) { *(volatile int *)8 = 1; }\nint main(void) { outer(die); return 0; }\n";
    let program = SharedProgram { folder: tempfile::tempdir().unwrap() };
    fs::write(program.folder.path().join("prog.c"), source).unwrap();
    let library = "__attribute__((noinline)) static void inner(void (*f)(void)) { f(); __asm__ volatile(\"\"); }\n\
                   void outer(void (*f)(void)) { inner(f); __asm__ volatile(\"\"); }\n";
    fs::write(program.folder.path().join("own.c"), library).unwrap();
    let mut sh = blizzard_test_harness::needs::shell_command(
        "cc -g -O1 -shared -fPIC own.c -o libown.so && objcopy --only-keep-debug libown.so libown.debug
         strip libown.so && objcopy --add-gnu-debuglink=libown.debug libown.so",
    );
    assert!(sh.current_dir(&program.folder).status().unwrap().success());
    program.compile("prog", &["-L.", "-lown", "-Wl,-rpath,$ORIGIN"]);
    let parts = ["at die (prog.c:3)", "by inner in libown.so", "by outer in libown.so", "by main (prog.c:4)"];
    let expected = parts.map(|part| format!("  {part}\n")).concat();
    let (_, err, _) = program.run(&["-n", "2"], "");
    assert!(err.ends_with(&expected), "{err}");
    // One that was rewritten before finds its libraries, too.
    let rewritten = program.blizzard().args(["rewrite", "prog", "-o", "out"]).output().unwrap();
    assert!(rewritten.status.success(), "{}", said(&rewritten));
    let (_, err, _) = finished(program.blizzard().args(["run", "-n", "2", "--", "./out"]).output().unwrap());
    assert!(err.ends_with(&expected), "{err}");
}

/// The C library said `free(): invalid pointer`, and no more.
fn what_the_c_library_cannot_free_is_told() {
    let source = "#include <blizzard.h>\n#include <stdlib.h>\nint main(int argc, char **argv) {\n    char *first = bz_alloc(100), *second = \
                  bz_alloc(200);\n    first[90] = 0;\n    if (bz_node() == 0) {\n        if (argc > 2) second = realloc(second, 400);\n        else \
                  free(argc > 1 ? malloc(8) + 16 : second);\n    }\n    bz_barrier();\n    return first == second;\n}\n";
    let program = SharedProgram::new(source, &["-w"]);
    for (nodes, access) in [("1", "tests"), ("2", "tests"), ("2", "guard")] {
        for (how, line) in [(&[][..], 8), (&["a", "b"], 7), (&["a"], 8)] {
            let mut run = program.blizzard();
            run.args(["run", "-n", nodes, "--access", access, "--", "./prog"]).args(how);
            let (_, err, status) = finished(run.output().unwrap());
            assert_eq!(status, 128 + libc::SIGABRT, "{err}");
            let told = ["an allocation of up to 256 bytes", ", made by main (prog.c:4)", "goes back by bz_free"];
            let is_private = how == ["a"];
            assert!(told.iter().all(|part| err.contains(part) != is_private), "{nodes}, {access}, {how:?}: {err}");
            assert!(err.ends_with(&format!(" main (prog.c:{line})\n")), "{nodes}, {access}, {how:?}: {err}");
        }
    }
}

/// Each of them was looked at. That took so long that the others gave up, and each said so.
fn many_nodes_that_die_together_are_told_once() {
    let source = "#include <blizzard.h>\n#include <stdlib.h>\nint main(void) { bz_barrier(); abort(); }\n";
    let program = SharedProgram::new(source, &[]);
    let (_, err, status) = program.run(&["-n", "300"], "");
    assert_eq!(status, 128 + libc::SIGABRT, "{err}");
    assert!(err.starts_with("blizzard: error: node ") && !err.contains("warning"), "{err}");
    assert!(err.matches(" was killed by ").count() == 1 && err.ends_with("by main (prog.c:3)\n"), "{err}");
}
