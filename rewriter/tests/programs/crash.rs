//! Nodes that die by signals: what the launcher says of them; nodes under a debugger.

use crate::sources::{blizzard, finished};
use blizzard_test_harness::tool;
use std::fs;
use std::process::Command;
use tempfile::TempDir;

blizzard_test_harness::module! {
    a_node_that_dies_says_where_and_by_what,
    a_node_that_ends_the_run_says_where,
    what_programs_see_of_faults_stays_as_it_was,
    a_node_runs_under_gdb,
}

const PROGRAM: &str = r#"
#include <blizzard.h>
#include <assert.h>
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
int main(int argc, char **argv) {
    const char *how = argv[argc - 1];
    if (bz_node() == 0) {
        struct item *i = bz_alloc(sizeof *i);
        i->key = 1;
        bz_publish(0, i);
    }
    struct item *i = bz_lookup(0);
    bz_barrier();
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
    }
    bz_barrier();
    return 0;
}
"#;

fn built() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("prog.c"), PROGRAM.trim_start()).unwrap();
    let flags = |what: &str| finished(blizzard(folder.path()).args(["config", what]).output().unwrap()).0;
    let mut cc = Command::new("cc");
    cc.args(["-g", "-O1", "prog.c", "-o", "prog"]).args(flags("--cflags").split_whitespace());
    cc.args(flags("--libs").split_whitespace()).current_dir(folder.path());
    assert!(cc.status().unwrap().success());
    folder
}

fn run(folder: &TempDir, options: &[&str], how: &str) -> (String, String, i32) {
    let mut command = blizzard(folder.path());
    finished(command.arg("run").args(options).args(["--", "./prog", how]).output().unwrap())
}

fn a_node_that_dies_says_where_and_by_what() {
    let folder = built();
    // What is said, one behind the other; the last is the last line.
    let cases: [(&str, i32, &[&str]); 7] = [
        (
            "null",
            libc::SIGSEGV,
            &["it read 0x0: a null pointer", "at sum_of (prog.c:13)", "by walk (prog.c:16)", "by main (prog.c:56)"],
        ),
        (
            "abort",
            libc::SIGABRT,
            &["by abort in libc", "by deep (prog.c:19)", "by deep (prog.c:20)", "by main (prog.c:57)"],
        ),
        ("divide", libc::SIGFPE, &["at main (prog.c:58)"]),
        (
            "const",
            libc::SIGSEGV,
            &["it wrote to 0x", " (table + 8, of 64 bytes), which is read-only", "at main (prog.c:59)"],
        ),
        ("code", libc::SIGSEGV, &["it went on at 0x2", ": shared memory, which is no code", "by main (prog.c:60)"]),
        (
            "qsort",
            libc::SIGSEGV,
            &["it wrote to 0x8: 8 bytes", "at compare (prog.c:24)", "by qsort", "by main (prog.c:61)"],
        ),
        (
            "handler",
            libc::SIGSEGV,
            &["it wrote to 0x18", "at on_usr1 (prog.c:29)", "by the kernel", "by raise in libc", "by main (prog.c:62)"],
        ),
    ];
    for (nodes, access) in [("1", "tests"), ("2", "tests"), ("2", "guard")] {
        // Guarded code finds no instruction there, and dies at once.
        for (how, signal, says) in cases.into_iter().filter(|case| (case.0, access) != ("code", "guard")) {
            let (out, err, status) = run(&folder, &["-n", nodes, "--access", access], how);
            assert_eq!((out.as_str(), status), ("", 128 + signal), "{how}, {nodes} nodes, {access}: {err}");
            let mut rest = err.as_str();
            for part in says {
                let at = rest.find(part);
                rest = &rest[at.unwrap_or_else(|| panic!("{how}, {nodes} nodes, {access}: no {part:?}: {err}"))..];
            }
            assert_eq!(rest.lines().count(), 1, "{err}");
            assert!(!err.contains("blizzard_cold") && !err.contains(".full") && !err.contains("??"), "{err}");
        }
    }
}

/// The runtime's own errors.
fn a_node_that_ends_the_run_says_where() {
    let folder = built();
    let source = fs::read_to_string(folder.path().join("prog.c")).unwrap();
    let line = 1 + source.lines().position(|line| line.contains("\"misuse\"")).unwrap();
    let (out, err, status) = run(&folder, &["-n", "2"], "misuse");
    assert_eq!((out.as_str(), status), ("", 1), "{err}");
    assert!(err.starts_with("blizzard: error: node 1: ") && err.contains("is not the start of an allocation"), "{err}");
    assert!(err.ends_with(&format!(" main (prog.c:{line})\n")), "{line}: {err}");
}

fn what_programs_see_of_faults_stays_as_it_was() {
    let folder = built();
    for nodes in ["1", "2"] {
        // A process that a node has made is not waited over, and its signal is its parent's business.
        let (out, err, status) = run(&folder, &["-n", nodes], "child");
        assert_eq!((out.as_str(), err.as_str(), status), ("child 6\n", "", 0));
        // The program does not see that the runtime looks at faults first.
        let (out, err, status) = run(&folder, &["-n", nodes], "own");
        assert_eq!((out.as_str(), err.as_str(), status), ("1 1\n", "", 0));
    }
}

/// Breakpoints in the program and in a rewritten library; frames, arguments, stepping; and trap bytes on the way there.
fn a_node_runs_under_gdb() {
    tool("gdb");
    let folder = built();
    let session = [
        ("break qsort", ""),
        ("run", "SIGTRAP"),
        ("signal SIGTRAP", "SIGTRAP"),
        ("signal SIGTRAP", "Breakpoint 1, "),
        // Behind the trap bytes, in the library.
        ("bt", "in qsort"),
        ("tbreak order", ""),
        ("continue", "order ("),
        ("bt", "in main ("),
        ("delete", ""),
        ("break walk", ""),
        ("continue", "walk (i="),
        ("print *i", "{key = 1, next = 0x2"),
        ("step", "sum_of (i="),
        ("up", "#1  walk (i="),
        ("finish", "Value returned"),
        ("info locals", "sum = 60"),
        ("continue", "60 0 3"),
    ];
    let commands = session.iter().flat_map(|(line, _)| ["-ex", line]);
    let gdb_args = ["-nx", "-batch"].into_iter().chain(commands).map(|arg| format!("--gdb-arg={arg}"));
    let mut command = blizzard(folder.path());
    command.args(["run", "-n", "2", "--gdb", "1"]).args(gdb_args).args(["--", "./prog", "debug"]);
    let (out, err, status) = finished(command.output().unwrap());
    let mut rest = out.as_str();
    for (line, says) in session {
        let at = rest.find(says);
        rest = &rest[at.unwrap_or_else(|| panic!("{line}: no {says:?}: {out}{err}"))..];
    }
    assert!(out.contains("exited normally") && status == 0, "{status} {out}{err}");
    for (options, says) in [(["--gdb", "2"], "the run has 2 node(s)"), (["--gdb", "x"], "invalid value")] {
        let (_, err, status) = run(&folder, &[&["-n", "2"], &options[..]].concat(), "own");
        assert!(status != 0 && err.contains(says), "{err}");
    }
}
