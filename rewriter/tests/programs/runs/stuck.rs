//! Runs in which every node waits for another one, and runs that only look so.

use crate::sources::{SharedProgram, blizzard, finished};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

blizzard_test_harness::module! {
    a_deadlock_is_told_with_what_each_node_waits_for_and_where,
    a_created_node_says_where_it_waits,
    handlers_that_never_come_are_told_and_timers_are_waited_for,
    a_run_that_computes_or_waits_for_the_world_is_not_stuck,
    whoever_does_not_want_to_know_is_not_told,
    a_number_of_nodes_behind_the_program_is_told,
    the_machine_is_looked_at,
}

const PROGRAM: &str = r#"
#include <blizzard.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
struct all { bz_lock_t *locks[4]; bz_event_t *event; bz_barrier_t *some; };
__attribute__((noinline)) static void second_lock(bz_lock_t *lock) {
    bz_lock(lock); /* line 10 */
    puts("not reached");
}
static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
/* bz_broadcast has thousands of bytes of its own below what has called it. */
__attribute__((noinline)) static void deep(unsigned me) {
    bz_broadcast(0, &me, sizeof me);
    puts("not reached");
}
/* The call of the system enters the runtime farther down the stack than the lock that comes behind it. */
__attribute__((always_inline)) static inline void rested_lock(bz_lock_t *lock) {
    usleep(1000);
    bz_lock(lock);
    puts("not reached");
}
int main(int argc, char **argv) {
    unsigned me = bz_node(), n = bz_nodes();
    const char *how = argv[argc - 1];
    if (me == 0) {
        struct all *made = bz_alloc(sizeof *made);
        for (unsigned k = 0; k < n; k++) made->locks[k] = bz_lock_new();
        made->event = bz_event_new();
        made->some = bz_barrier_new();
        bz_publish(0, made);
    }
    struct all *all = bz_lookup(0);
    bz_barrier();
    if (!strcmp(how, "locks") || !strcmp(how, "rested")) {
        bz_lock(all->locks[me]);
        bz_barrier();
        if (!strcmp(how, "rested")) rested_lock(all->locks[(me + 1) % n]);
        second_lock(all->locks[(me + 1) % n]);
    } else if (!strcmp(how, "late")) {
        bz_lock(all->locks[me]);
        bz_barrier();
        if (me == 1) {
            double end = seconds() + 3;
            while (seconds() < end) ;
        }
        bz_lock(all->locks[(me + 1) % n]);
    } else if (!strcmp(how, "mixed")) {
        if (me == 0) bz_event_wait(all->event);
        else if (me == 1) bz_lookup(77);
        else if (me == 2) bz_barrier_wait(all->some, 2);
        else deep(me);
    } else if (me == 0) {
        double end = seconds() + 3;
        volatile long sum = 0;
        char c;
        if (!strcmp(how, "computes")) while (seconds() < end) sum++;
        else if (!strcmp(how, "sleeps")) sleep(3);
        else if (!strcmp(how, "reads")) while (read(0, &c, 1) == 1) sum++;
    }
    bz_barrier();
    if (me == 0) puts("done");
    return 0;
}
"#;

fn row(err: &str, node: u32) -> String {
    let row = err.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{node}  ")));
    row.unwrap_or_else(|| panic!("no node {node}: {err}")).split_whitespace().collect::<Vec<_>>().join(" ")
}

fn a_deadlock_is_told_with_what_each_node_waits_for_and_where() {
    let program = SharedProgram::new(PROGRAM, &[]);
    let began = Instant::now();
    for access in ["tests", "guard"] {
        let (out, err, status) = program.run(&["-n", "2", "--stuck-timeout", "1", "--access", access], "locks");
        assert_eq!((out.as_str(), status), ("", 1), "{err}");
        assert!(err.starts_with("blizzard: error: the run is stuck: all nodes wait for each other"), "{err}");
        for node in 0..2 {
            let (row, next) = (row(&err, node), 1 - node);
            assert!(row.starts_with(&format!("lock {next} of node 0 node {next} ")), "{err}");
            assert!(row.contains("second_lock"), "{err}");
        }
        // Full versions of guarded code have lines where DWARF 5 has range lists.
        if access == "tests" {
            assert_eq!(err.matches("second_lock (prog.c:10)").count(), 2, "{err}");
        }
    }
    let (_, err, _) = program.run(&["-n", "2", "--stuck-timeout", "1", "--access", "tests"], "rested");
    assert_eq!(err.matches("rested_lock (prog.c:26)").count(), 2, "{err}");
    let (_, err, status) = program.run(&["-n", "5", "--stuck-timeout", "1", "--access", "tests"], "mixed");
    assert_eq!(status, 1, "{err}");
    for (node, says) in [
        (0, "event 0 of node 0 nobody has set it"),
        (1, "slot 77 (bz_lookup) nobody has published it"),
        (2, "barrier 0 of node 0 not there: nodes 0, 1, 3, 4"),
        (3, "a barrier or reduction of all nodes not there: nodes 0, 1, 2 "),
        (4, "a barrier or reduction of all nodes not there: nodes 0, 1, 2 "),
    ] {
        assert!(row(&err, node).starts_with(says), "{says}: {err}");
        let place = if node >= 3 { "deep (prog.c:" } else { "main (prog.c:" };
        assert!(row(&err, node).contains(place), "{err}");
    }
    // Node 1 comes last, and asks node 0, which has waited as long as node 2, for its lock.
    let (_, err, _) = program.run(&["-n", "3", "--stuck-timeout", "1", "--access", "tests"], "late");
    let since = |node| row(&err, node).split(' ').nth_back(3).and_then(|seconds| seconds.parse::<f64>().ok());
    let [first, last, third] = [0, 1, 2].map(|node| since(node).unwrap_or_else(|| panic!("{err}")));
    assert!(first.min(third) > last + 2.0, "{err}");
    assert!(began.elapsed() < Duration::from_secs(120));
}

/// It begins with a copy of node 0's stack.
fn a_created_node_says_where_it_waits() {
    let source = "#include <blizzard.h>\n\
        static void work(void) {\nif (bz_lookup(77)) bz_barrier();\n}\n\
        int main(void) {\nbz_create(work);\nbz_wait_for_end(1);\nreturn 0;\n}\n";
    let program = SharedProgram::new(source, &[]);
    let (_, err, status) = program.run(&["-n", "2", "--stuck-timeout", "1"], "");
    assert_eq!(status, 1, "{err}");
    assert!(row(&err, 1).starts_with("slot 77 (bz_lookup)"), "{err}");
    assert!(row(&err, 1).contains("work (prog.c:3)") && row(&err, 0).contains("main (prog.c:7)"), "{err}");
}

/// `tempest.h`: only a message can wake these nodes, or a timer.
const HANDLERS: &str = r#"
#include <blizzard.h>
#include <stdio.h>
#include <string.h>
#include <tempest.h>
static int woken;
static void wake(void *user) { (void)user; TPPI_wakeup(&woken); }
static void again(void *user) {
    long left = (long)user - 1;
    if (left) TPPI_schedule_timer(700 * 1000, again, (void *)left);
    else TPPI_wakeup(&woken);
}
static void begin(TPPI_NodeId source, int length) { (void)source, (void)length; again((void *)4); }
static void suspended(void *va, void *user, TPPI_NodeId home) { (void)va, (void)user, (void)home; }
int main(int argc, char **argv) {
    const char *how = argv[argc - 1];
    TPPI_register_blk_acc_fault_handler(0, TPPI_Blk_Invalid, TPPI_ReadAccess, suspended);
    bz_barrier();
    if (!strcmp(how, "sleeps")) {
        TPPI_sleep(&woken); /* line 20 */
    } else if (!strcmp(how, "faults")) {
        void *page = (char *)TPPI_SEGMENT_BASE + TPPI_PAGE_SIZE;
        TPPI_alloc_and_map(page, 0, TPPI_Blk_Invalid, 0, NULL);
        printf("%ld\n", *(volatile long *)page);
    } else if (!strcmp(how, "barrier")) {
        if (bz_node()) TPPI_sleep(&woken);
    } else if (!strcmp(how, "timers")) {
        if (bz_node() == 0) TPPI_schedule_timer(2500 * 1000, wake, NULL), TPPI_sleep(&woken);
    } else if (!strcmp(how, "chain")) {
        if (bz_node() == 0) TPPI_send(1, begin);
        else TPPI_sleep(&woken);
    }
    bz_barrier();
    if (bz_node() == 0) puts("done");
    return 0;
}
"#;

fn handlers_that_never_come_are_told_and_timers_are_waited_for() {
    let program = SharedProgram::new(HANDLERS, &[]);
    for access in ["tests", "guard"] {
        let run = |how| program.run(&["-n", "2", "--stuck-timeout", "1", "--access", access], how);
        let barrier = "a barrier or reduction of all nodes not there: node 1";
        for (how, first, second) in [
            ("sleeps", "a handler (TPPI_sleep) no message", "a handler (TPPI_sleep) no message"),
            ("faults", "TPPI_resume_va of 0x", "TPPI_resume_va of 0x"),
            ("barrier", barrier, "a handler (TPPI_sleep) no message"),
        ] {
            let (out, err, status) = run(how);
            assert_eq!((out.as_str(), status), ("", 1), "{how}: {err}");
            for (node, says) in [(0, first), (1, second)] {
                assert!(row(&err, node).starts_with(says), "{how}, {says}: {err}");
                assert!(row(&err, node).contains("main (prog.c:"), "{how}: {err}");
            }
        }
        for how in ["timers", "chain"] {
            assert_eq!(run(how), ("done\n".into(), String::new(), 0), "{how}");
        }
    }
}

fn a_run_that_computes_or_waits_for_the_world_is_not_stuck() {
    let program = SharedProgram::new(PROGRAM, &[]);
    for how in ["computes", "sleeps"] {
        assert_eq!(
            program.run(&["-n", "2", "--stuck-timeout", "1"], how),
            ("done\n".into(), String::new(), 0),
            "{how}"
        );
    }
    let mut command = program.blizzard();
    command.args(["run", "-n", "2", "--stuck-timeout", "1", "--", "./prog", "reads"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.take();
    std::thread::sleep(Duration::from_secs(3));
    drop(input);
    assert_eq!(finished(child.wait_with_output().unwrap()), ("done\n".into(), String::new(), 0));
}

fn whoever_does_not_want_to_know_is_not_told() {
    let program = SharedProgram::new(PROGRAM, &[]);
    // Rewritten now: what waits below is the run.
    assert_eq!(program.run(&["-n", "2"], "none").2, 0);
    let mut command = program.blizzard();
    command.args(["run", "-n", "2", "--stuck-timeout", "0", "--", "./prog", "locks"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let ended = child.try_wait().unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let (_, err, status) = finished(child.wait_with_output().unwrap());
    assert_eq!((ended, err.as_str(), status), (None, "", 143));
}

fn a_number_of_nodes_behind_the_program_is_told() {
    let program = SharedProgram::new(PROGRAM, &[]);
    let err = |words: &[&str]| finished(program.blizzard().arg("run").args(words).output().unwrap()).1;
    let told = "blizzard: note: ./prog: ran on one node, and was given '-n 2'\n  help: options stand in front of the program: ";
    assert_eq!(err(&["./prog", "-n", "2"]), format!("{told}blizzard run -n 2 -- ./prog\n"));
    for others in [&["./prog", "-n", "1"][..], &["-n", "2", "./prog", "-n", "2"], &["./prog", "2"]] {
        assert_eq!(err(others), "", "{others:?}");
    }
}

fn the_machine_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let (out, err, status) = finished(blizzard(folder.path()).arg("doctor").output().unwrap());
    assert_eq!((err.as_str(), status), ("", 0), "{out}");
    for what in ["processors", "shared memory", "cache", "overcommit", "core files", "C compiler", "gdb"] {
        assert!(out.lines().any(|line| line.get(6..).is_some_and(|rest| rest.starts_with(what))), "{what}: {out}");
    }
    // What cannot work is said, and is a failure.
    let script = format!("ulimit -f 1000 && exec {} doctor", env!("CARGO_BIN_EXE_blizzard"));
    let mut limited = Command::new("sh");
    limited.args(["-c", &script]).env("BLIZZARD_CACHE", folder.path().join("cache"));
    let (out, err, status) = finished(limited.output().unwrap());
    assert_eq!((err.as_str(), status), ("", 1), "{out}");
    assert!(out.contains("BAD   file size") && out.contains("runs do not work here"), "{out}");
}
