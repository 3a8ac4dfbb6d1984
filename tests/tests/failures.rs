//! What happens when a node of several ends early, dies or does what it must not: the run ends soon, says which node and why, its
//! exit status is not zero, and no process and no shared-memory object stays.

use blizzard_tests::failing::{self, marker, processes_with};
use blizzard_tests::run::{Ending, LIMIT, Outcome, run};
use blizzard_tests::tool::{self, Mode};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NODES: &str = "3";

fn program(mode: Mode) -> &'static Path {
    failing::program(env!("CARGO_TARGET_TMPDIR"), "failures", mode)
}

fn shared_memory() -> BTreeSet<String> {
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries.map(|e| e.file_name().to_string_lossy().into_owned()).filter(|n| n.contains("blizzard")).collect()
}

fn assert_nothing_left(marker: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !processes_with(marker).is_empty() {
        assert!(Instant::now() < deadline, "processes left: {:?}", processes_with(marker));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(shared_memory(), BTreeSet::new());
}

fn command(how: &str, marker: &str) -> Command {
    command_in(Mode::TESTS, how, marker)
}

fn command_in(mode: Mode, how: &str, marker: &str) -> Command {
    let mut command = tool::blizzard(["run", "-n", NODES, "--"]);
    command.arg(program(mode)).args([how, marker]);
    command
}

fn fails(mode: Mode, how: &str) -> Outcome {
    let marker = marker();
    let outcome = run(&mut command_in(mode, how, &marker), "", LIMIT).unwrap();
    assert!(matches!(outcome.ending, Ending::Exit(status) if status != 0), "{how}: {}", outcome.describe());
    assert!(outcome.stdout_text().starts_with("started 3\n"), "{how}: {}", outcome.describe());
    assert!(!outcome.stdout_text().contains("not reached"), "{how}: {}", outcome.describe());
    assert_nothing_left(&marker);
    outcome
}

fn says(how: &str, words: &[&str]) -> Outcome {
    says_in(Mode::TESTS, how, words)
}

fn says_in(mode: Mode, how: &str, words: &[&str]) -> Outcome {
    let outcome = fails(mode, how);
    let text = outcome.stderr_text();
    for word in words {
        assert!(text.contains(word), "{how}: no {word:?} in: {}", outcome.describe());
    }
    // Nobody has waited in vain until the time for answers was over.
    for words in ["panicked", "has not answered"] {
        assert!(!text.contains(words), "{how}: {}", outcome.describe());
    }
    outcome
}

#[test]
fn a_node_that_ends_first_still_serves_its_blocks() {
    let marker = marker();
    let outcome = run(&mut command("exit-early", &marker), "", LIMIT).unwrap().success().unwrap();
    assert_eq!(outcome.stdout_text(), "started 3\nsum 261632\n");
    assert_nothing_left(&marker);
}

#[test]
fn a_node_that_ends_by_itself_or_by_a_signal_gives_its_status_and_is_named() {
    for (how, status, words) in [
        ("exit-status", 7, "node 2 exited with status 7"),
        ("leave", 1, "node 2 "),
        ("segfault", 128 + 11, "node 2 was killed by signal 11 (SIGSEGV)"),
        ("abort", 128 + 6, "node 2 was killed by signal 6 (SIGABRT)"),
        ("kill", 128 + 9, "node 2 was killed by signal 9 (SIGKILL)"),
    ] {
        assert_eq!(says(how, &["blizzard: error: ", words]).ending, Ending::Exit(status), "{how}");
    }
}

#[test]
fn memory_that_nobody_allocated_is_an_error() {
    says("unallocated", &["blizzard: error:", "node 2"]);
}

#[test]
fn misuse_of_the_interface_is_an_error() {
    for how in ["double-free", "free-nonsense", "unlock", "slot"] {
        says(how, &["blizzard: error:", "node 2"]);
    }
}

/// The functions crashed in the client library's copy, and no line named them.
#[test]
fn null_pointers_are_errors_with_the_functions_name() {
    for (how, function) in [
        ("reduce-null", "bz_reduce"),
        ("broadcast-null", "bz_broadcast"),
        ("write-from-null", "bz_remote_write"),
        ("write-to-null", "bz_remote_write"),
    ] {
        says(how, &["blizzard: error:", "node 2", &format!("{function}: a null pointer")]);
    }
}

/// Accesses through rsp are not checked. A program with a stack in shared memory worked on copies of its own, and nothing was said.
#[test]
fn a_stack_in_shared_memory_is_an_error_with_its_address_and_function() {
    // Tests of rsp find it where it is set; a function of libc has no symbol. What faults is the first use.
    for (how, tested, faults) in [
        ("moved-stack", "moved_stack+0x", "moved_stack+0x"),
        ("exchanged-stack", "exchanged_stack+0x", "exchanged_stack+0x"),
        ("popped-stack", "popped_stack+0x", "popped_stack+0x"),
        ("added-stack", "added_stack+0x", "added_stack+0x"),
        ("left-stack", "left_stack+0x", "left_stack+0x"),
        ("context-stack", "swapcontext+0x", "swapcontext+0x"),
        ("jumped-stack", "code at 0x", "jumped_stack+0x"),
        ("cloned-stack", "clone", "clone"),
        ("set-context-stack", "setcontext+0x", "setcontext+0x"),
        ("clone3-stack", "syscall", "syscall"),
    ] {
        for (mode, function) in [(Mode::TESTS, tested), (Mode::GUARD, faults)] {
            says_in(mode, how, &["node 2", "stack", "0x20", "shared memory", " in ", function]);
        }
    }
    // A word of a structure that the kernel reads.
    says("signal-stack", &["node 2", "sigaltstack", "pointer into shared memory (0x20"]);
}

/// Checks take the base of %gs for zero, and accesses through %fs for thread-local ones.
#[test]
fn a_base_of_a_segment_that_checks_do_not_know_is_an_error_with_the_base() {
    says("set-gs", &["node 2", "arch_prctl", "sets the base of %gs to 0x1000"]);
    says("set-gs-shared", &["node 2", "arch_prctl", "sets the base of %gs to 0x20"]);
    says("set-fs-shared", &["node 2", "arch_prctl", "a pointer into shared memory (0x20"]);
}

/// The kernel took 16 seconds for the dump of a crashed node, a file of 77 GB, most of which is holes.
#[test]
fn core_dumps_have_the_shared_memory_that_was_allocated_and_no_more() {
    for nodes in ["1", "3"] {
        let mut command = tool::blizzard(["run", "-n", nodes, "--"]);
        command.arg(program(Mode::TESTS)).args(["dump", &marker()]);
        let outcome = run(&mut command, "", LIMIT).unwrap().success().unwrap();
        // Lines of several nodes come in any order.
        let text = outcome.stdout_text();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        let mut right = vec!["small, shared memory shown"; nodes.parse().unwrap()];
        let started = format!("started {nodes}");
        right.push(&started);
        assert_eq!(lines, right);
    }
}

/// A run of one node hung in what a run of several, or a program by itself, reports.
#[test]
fn the_only_thread_waits_for_nobody() {
    for (how, words) in [
        ("lock-twice", "is held already, and there is no other thread to release it"),
        ("event-never-set", "is not set, and there is no other thread to set it"),
        ("slot-never-published", "bz_lookup: slot 9 was not published, and there is no other thread to do it"),
    ] {
        let mut command = tool::blizzard(["run", "--"]);
        command.arg(program(Mode::TESTS)).args([how, &marker()]);
        let outcome = run(&mut command, "", LIMIT).unwrap();
        assert_eq!(outcome.ending, Ending::Exit(1), "{how}: {}", outcome.describe());
        assert!(outcome.stderr_text().contains(words), "{how}: {}", outcome.describe());
    }
    says("lock-twice", &["node 2 already holds the lock"]);
}

#[test]
fn attributes_that_there_are_not_are_errors() {
    for (how, what) in [
        ("block-size", "bz_alloc_with: blocks of 96 bytes"),
        ("block-too-large", "bz_alloc_with: blocks of 8192 bytes"),
        ("homes", "bz_alloc_with: 5 is none of the BZ_HOMES constants"),
        ("home-node", "bz_alloc_with: home 3, but the run has 3 node(s)"),
    ] {
        says(how, &["blizzard: error:", "node 2", what]);
    }
}

/// The calls gave null without a word, and most programs crash then, at some other place.
#[test]
fn more_memory_than_there_is_gives_null_and_a_line() {
    for nodes in [1, 3] {
        let marker = marker();
        let mut command = tool::blizzard(["run", "-n", &nodes.to_string(), "--segment-gib", "1", "--"]);
        command.arg(program(Mode::TESTS)).args(["too-much", &marker]);
        let outcome = run(&mut command, "", LIMIT).unwrap().success().unwrap();
        let (stdout, stderr) = (outcome.stdout_text(), outcome.stderr_text());
        // The half of the segment for allocations without a home holds one quarter GiB and most of another.
        assert_eq!(stdout.matches("got it").count(), 1, "{}", outcome.describe());
        assert_eq!(stdout.matches("NULL").count(), 4 * nodes + 2, "{}", outcome.describe());
        for (line, count) in [
            ("bz_alloc: no room for 1125899906842624 bytes", nodes),
            ("bz_alloc: no room for 18446744073709551615 bytes", nodes),
            ("bz_alloc_on: no room for 1125899906842624 bytes", nodes),
            ("bz_alloc_with: no room for 1125899906842624 bytes", nodes),
            ("bz_alloc: no room for 268435456 bytes", 2),
            (" are free in the part", 4 * nodes + 2),
            ("; no `blizzard run --segment-gib` has room for it", 4 * nodes),
            ("; `blizzard run --segment-gib 2` has room for it", 2),
        ] {
            assert_eq!(stderr.matches(line).count(), count, "{line}: {}", outcome.describe());
        }
        assert!(!stderr.contains(": 0 bytes are free"), "{}", outcome.describe());
        assert_nothing_left(&marker);
    }
}

/// The option was named without a size, and no rule of thumb leads to one.
#[test]
fn the_size_that_a_full_segment_names_is_the_least_that_is_enough() {
    let said = |segment_gib: &str| {
        let marker = marker();
        let mut command = tool::blizzard(["run", "--segment-gib", segment_gib, "--"]);
        command.arg(program(Mode::TESTS)).args(["gib-60", &marker]);
        let outcome = run(&mut command, "", LIMIT).unwrap().success().unwrap();
        assert_nothing_left(&marker);
        (outcome.stdout_text().replace("started 1\n", ""), outcome.stderr_text().to_owned())
    };
    let (out, err) = said("64");
    let named = err.split_once("--segment-gib ").and_then(|(_, text)| text.split_once('`'));
    let named: u32 = named.and_then(|(gib, _)| gib.parse().ok()).unwrap_or_else(|| panic!("{err}"));
    assert!(out == "NULL\n" && err.contains("has room for it"), "{out}{err}");
    assert_eq!(said(&named.to_string()), ("got it\n".into(), String::new()));
    assert_eq!(said(&(named - 1).to_string()).0, "NULL\n");
}

/// The largest allocation of a segment, as `run --help` names it, and one GiB more.
#[test]
fn one_allocation_has_what_the_help_says() {
    let help = tool::blizzard(["run", "--help"]).output().unwrap().stdout;
    let help = String::from_utf8(help).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, told) = help.split_once("One allocation may have a third of it: ").unwrap_or_else(|| panic!("{help}"));
    let words: Vec<&str> = told.split([' ', '.']).take(4).collect();
    let [gib, "GiB", "of", segment_gib] = words[..] else { panic!("{told}") };
    let gib: u32 = gib.parse().unwrap();
    for (gib, says) in [(gib, "got it\n"), (gib + 1, "NULL\n")] {
        let marker = marker();
        let mut command = tool::blizzard(["run", "--segment-gib", segment_gib, "--"]);
        command.arg(program(Mode::TESTS)).args([&format!("gib-{gib}"), &marker]);
        let outcome = run(&mut command, "", LIMIT).unwrap().success().unwrap();
        assert_eq!(outcome.stdout_text().trim_start_matches("started 1\n"), says, "{}", outcome.describe());
        let exact = format!("no room for {} bytes ({gib}.0 GiB) of shared memory: ", u64::from(gib) << 30);
        assert_eq!(outcome.stderr_text().contains(&exact), says == "NULL\n", "{}", outcome.describe());
        assert_nothing_left(&marker);
    }
}

/// Starts the run and waits until its nodes compute.
fn computing(how: &str, marker: &str) -> Child {
    let mut child = command(how, marker).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "started 3\n");
    let least = if how == "daemon" { 8 } else { 5 };
    assert!(processes_with(marker).len() >= least, "launcher, supervisor, nodes and their daemons carry the marker");
    child
}

#[test]
fn an_interrupt_ends_nodes_that_compute_and_what_they_have_started() {
    for how in ["compute", "daemon"] {
        let marker = marker();
        let mut child = computing(how, &marker);
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_nothing_left(&marker);
    }
}

/// What nodes had started by themselves lived on after the launcher had been killed.
#[test]
fn nodes_that_compute_and_what_they_have_started_end_when_the_launcher_is_killed() {
    for how in ["compute", "daemon"] {
        let marker = marker();
        let mut child = computing(how, &marker);
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        assert!(!child.wait().unwrap().success());
        assert_nothing_left(&marker);
    }
}

/// The stopped process of a run.
fn stopped(marker: &str) -> Pid {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        for (number, _) in processes_with(marker) {
            let stat = std::fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
            if stat.rsplit(')').next().unwrap_or_default().starts_with(" T") {
                return Pid::from_raw(number).unwrap();
            }
        }
        assert!(Instant::now() < deadline, "no process has stopped");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The others wait for its blocks for so long, and get them.
#[test]
fn a_node_that_is_stopped_for_five_seconds_is_waited_for() {
    let marker = marker();
    let child = command("stop", &marker).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let node = stopped(&marker);
    std::thread::sleep(Duration::from_secs(5));
    kill_process(node, Signal::CONT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "started 3\nsum 130816\n");
    assert_nothing_left(&marker);
}

/// The limit is longer than a machine may stand still: a node that runs must not be taken for the one that does not.
#[test]
fn a_node_that_never_answers_is_named() {
    const LIMIT_S: f64 = 4.0;
    let marker = marker();
    let mut command = tool::blizzard(["run", "-n", NODES, "--peer-timeout", &LIMIT_S.to_string(), "--"]);
    command.arg(program(Mode::TESTS)).args(["stop", &marker]);
    let outcome = run(&mut command, "", LIMIT).unwrap();
    assert_ne!(outcome.ending, Ending::Exit(0));
    let text = outcome.stderr_text();
    let silent = text.split_once("node 2 has not answered for ").and_then(|(_, rest)| rest.split_once(" s: "));
    let Some((seconds, what)) = silent else { panic!("{}", outcome.describe()) };
    // Who watches for the limit may himself stand still at its end, but not for a multiple of it.
    let seconds: f64 = seconds.parse().unwrap();
    assert!((LIMIT_S..3.0 * LIMIT_S).contains(&seconds) && what.contains("is stopped by a signal"), "{text}");
    assert_nothing_left(&marker);
}
