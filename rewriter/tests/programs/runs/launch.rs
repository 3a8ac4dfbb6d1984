//! The launcher with ordinary programs: how runs end, and that nothing is left behind.
//!
//! Each launch happens in a process of its own, as in real use (the launcher owns the process's signals and children): this test
//! executable starts itself again with [`CONFIG_ENV`] set, and then is the launcher.

use crate::sources::finished;
use blizzard::launch::launcher;
use blizzard::launch::options::LaunchOptions;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

blizzard_test_harness::module! {
    every_node_knows_its_number_and_has_the_region,
    lines_are_tagged_on_demand,
    lines_written_in_pieces_are_not_mixed,
    input_goes_to_node_0,
    one_node_passes_bytes_and_status_unchanged,
    the_first_failing_node_gives_the_status_and_ends_the_others,
    a_node_killed_by_a_signal_is_named_with_it,
    a_node_that_ignores_polite_signals_is_ended_too,
    what_nodes_started_ends_with_the_run,
    signals_that_ask_to_stop_end_everything,
    orphans_that_end_are_waited_for_during_the_run,
    nothing_is_left_when_the_launcher_is_killed,
    nothing_is_left_when_the_supervisor_is_killed,
    nothing_is_left_when_the_whole_process_group_is_killed,
    a_process_that_runs_away_from_its_number_is_caught,
    a_lone_program_decides_what_a_signal_means,
    a_reader_that_goes_away_ends_endless_output,
    the_shared_memory_has_no_name,
    addresses_are_the_same_on_all_nodes,
    a_wrong_number_of_nodes_and_a_missing_program_are_errors,
    streams_that_are_closed_stay_closed,
    nodes_begin_with_the_signal_mask_of_the_launcher,
}

/// `<nodes> <tag: 0 or 1>`; the program and its arguments follow in [`COMMAND_ENV`], separated by newlines.
const CONFIG_ENV: &str = "BLIZZARD_TEST_LAUNCH";
const COMMAND_ENV: &str = "BLIZZARD_TEST_COMMAND";

/// Whether this process is a launcher that a test of this file has started.
pub fn is_launcher() -> bool {
    std::env::var_os(CONFIG_ENV).is_some()
}

/// The launcher that the tests of this file start.
pub fn launcher_process() -> ! {
    let config = std::env::var(CONFIG_ENV).unwrap();
    let (nodes, tag) = config.split_once(' ').unwrap();
    let command = std::env::var(COMMAND_ENV).unwrap();
    let mut words = command.split('\n').map(OsString::from);
    let program = words.next().unwrap();
    let options = LaunchOptions {
        nodes: nodes.parse().unwrap(),
        tag_output: tag == "1",
        arg0: Some(program.clone()),
        ..LaunchOptions::default()
    };
    let outcome = launcher::run(Path::new(&program), &words.collect::<Vec<_>>(), &options).unwrap();
    if let Some(failure) = outcome.failure {
        eprintln!("blizzard: error: {failure}");
    }
    std::process::exit(outcome.exit_status);
}

/// Signals have their default actions in it: who starts tests in the background, or under nohup, lets them inherit ignored ones.
fn launcher(nodes: u32, tag: bool, command: &[&str]) -> Command {
    let mut launcher = Command::new("env");
    launcher
        .arg("--default-signal")
        .arg(std::env::current_exe().unwrap())
        .env(CONFIG_ENV, format!("{nodes} {}", u8::from(tag)))
        .env(COMMAND_ENV, command.join("\n"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    launcher
}

fn launch(nodes: u32, command: &[&str]) -> (String, String, i32) {
    finished(launcher(nodes, false, command).output().unwrap())
}

/// A shell script that every node runs; `$me` is the node's number.
fn script(text: &str) -> String {
    format!("me=${{BLIZZARD_BOOT##*node=}}; {text}")
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Waits until `condition` holds; the tests' only use of time, and only as an upper limit.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn exists(pid: &str) -> bool {
    // A zombie has ended, it only waits to be noticed by its parent.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat[stat.rfind(')').unwrap()..].starts_with(") Z"))
}

fn send(pid: Pid, signal: i32) {
    kill_process(pid, Signal::from_named_raw(signal).unwrap()).unwrap();
}

/// Starts a launcher whose nodes each print one line of process numbers; gives the launcher and those numbers.
fn start_and_collect(nodes: u32, text: &str) -> (Child, BufReader<ChildStdout>, Vec<String>) {
    collect(&mut launcher(nodes, false, &["/bin/sh", "-c", text]), nodes)
}

fn collect(launcher: &mut Command, nodes: u32) -> (Child, BufReader<ChildStdout>, Vec<String>) {
    let mut child = launcher.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut pids = Vec::new();
    for _ in 0..nodes {
        line.clear();
        lines.read_line(&mut line).unwrap();
        pids.extend(line.split_whitespace().map(str::to_owned));
    }
    assert!(pids.iter().all(|pid| exists(pid)), "{pids:?}");
    (child, lines, pids)
}

/// A node that starts a child, and a daemon that has left its session, prints the three process numbers, and sleeps.
fn family(folder: &Path) -> String {
    blizzard_test_harness::need("setsid");
    let file = folder.join("daemon.").display().to_string();
    script(&format!(
        "f={file}$me; sleep 1000 & child=$!; (setsid sh -c 'echo $$ > $0.new; mv $0.new $0; exec sleep 1000' $f &); \
         while ! [ -e $f ]; do sleep 0.01; done; echo $$ $child $(cat $f); exec sleep 1000"
    ))
}

fn every_node_knows_its_number_and_has_the_region() {
    let text = script("fd=${BLIZZARD_BOOT#fd=}; test -e /dev/fd/${fd%%,*} && echo $me");
    let (out, err, status) = launch(3, &["/bin/sh", "-c", &text]);
    assert_eq!((sorted(&out), err.as_str(), status), (vec!["0", "1", "2"], "", 0));
}

fn lines_are_tagged_on_demand() {
    let launcher = launcher(2, true, &["/bin/sh", "-c", "echo out; echo err >&2"]).output().unwrap();
    let (out, err, status) = finished(launcher);
    assert_eq!(sorted(&out), ["[node 0] out", "[node 1] out"]);
    assert_eq!(sorted(&err), ["[node 0] err", "[node 1] err"]);
    assert_eq!(status, 0);
}

fn lines_written_in_pieces_are_not_mixed() {
    let text = script(
        "i=0; while [ $i -lt 200 ]; do for k in 1 2 3 4; do printf \"$me$me$me$me\"; done; echo; i=$((i+1)); done",
    );
    let (out, _, status) = launch(4, &["/bin/sh", "-c", &text]);
    assert_eq!(status, 0);
    assert_eq!(out.lines().count(), 800);
    for line in out.lines() {
        assert_eq!(line, line[..1].repeat(16));
    }
}

fn input_goes_to_node_0() {
    let command = script("echo $me:$(cat)");
    let mut child = launcher(3, false, &["/bin/sh", "-c", &command]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let (out, _, status) = finished(child.wait_with_output().unwrap());
    assert_eq!((sorted(&out), status), (vec!["0:hello", "1:", "2:"], 0));
}

fn one_node_passes_bytes_and_status_unchanged() {
    let (out, err, status) = launch(1, &["/bin/sh", "-c", "printf 'no newline'; exit 7"]);
    assert_eq!((out.as_str(), err.as_str(), status), ("no newline", "", 7));
}

fn the_first_failing_node_gives_the_status_and_ends_the_others() {
    let text = script("[ $me = 1 ] && exit 9; exec sleep 1000");
    let begin = Instant::now();
    let (_, err, status) = launch(3, &["/bin/sh", "-c", &text]);
    assert_eq!(status, 9);
    assert_eq!(err, "blizzard: error: node 1 exited with status 9\n");
    // Users are promised one second; the rest is for a busy test machine.
    assert!(begin.elapsed() < Duration::from_secs(10));
}

fn a_node_killed_by_a_signal_is_named_with_it() {
    let text = script("[ $me = 2 ] && kill -SEGV $$; exec sleep 1000");
    let (_, err, status) = launch(3, &["/bin/sh", "-c", &text]);
    assert_eq!(status, 128 + 11);
    assert_eq!(err, "blizzard: error: node 2 was killed by signal 11 (SIGSEGV)\n");
}

fn a_node_that_ignores_polite_signals_is_ended_too() {
    let text = script("trap '' TERM INT HUP; [ $me = 0 ] && exit 4; while :; do sleep 1000; done");
    let (_, _, status) = launch(2, &["/bin/sh", "-c", &text]);
    assert_eq!(status, 4);
}

fn what_nodes_started_ends_with_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut rest, pids) = start_and_collect(2, &family(folder.path()));
    assert_eq!(pids.len(), 6, "{pids:?}");
    // The first number is that of a node: its death ends the run.
    send(Pid::from_raw(pids[0].parse().unwrap()).unwrap(), libc::SIGKILL);
    assert_eq!(child.wait().unwrap().code(), Some(128 + 9));
    for pid in &pids {
        assert!(!exists(pid), "process {pid} is left");
    }
    rest.read_to_end(&mut Vec::new()).unwrap();
}

fn signals_that_ask_to_stop_end_everything() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, _rest, pids) = start_and_collect(2, &family(folder.path()));
        send(Pid::from_child(&child), signal);
        assert_eq!(child.wait().unwrap().code(), Some(128 + signal));
        for pid in &pids {
            assert!(!exists(pid), "signal {signal}: process {pid} is left");
        }
    }
}

/// The children of a process, ended ones included.
fn children(pid: &str) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let lists = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap());
    lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// The supervisor below a launcher: its only child.
fn supervisor(launcher: &Child) -> String {
    let all = children(&launcher.id().to_string());
    assert_eq!(all.len(), 1, "{all:?}");
    let name = std::fs::read_to_string(format!("/proc/{}/comm", all[0])).unwrap();
    assert_eq!(name, "bz-supervisor\n");
    all[0].clone()
}

/// Processes that a node has left behind and that end during the run stayed as zombies until its end.
fn orphans_that_end_are_waited_for_during_the_run() {
    let text = "i=0; while [ $i -lt 30 ]; do (sleep 0.01 &); i=$((i+1)); done; echo $$; exec sleep 1000";
    let (mut child, _rest, pids) = start_and_collect(2, text);
    let supervisor = supervisor(&child);
    eventually("only the nodes are left", || {
        let mut left = children(&supervisor);
        left.sort();
        let mut nodes = pids.clone();
        nodes.sort();
        left == nodes
    });
    send(Pid::from_child(&child), libc::SIGTERM);
    child.wait().unwrap();
}

/// With the launcher dead, nobody had been left to end what the nodes had started by themselves: children and daemons lived on.
fn nothing_is_left_when_the_launcher_is_killed() {
    for nodes in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, _rest, mut pids) = start_and_collect(nodes, &family(folder.path()));
        pids.push(supervisor(&child));
        send(Pid::from_child(&child), libc::SIGKILL);
        child.wait().unwrap();
        for pid in &pids {
            eventually("all ends with the launcher", || !exists(pid));
        }
    }
}

fn nothing_is_left_when_the_supervisor_is_killed() {
    for nodes in [1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, _rest, pids) = start_and_collect(nodes, &family(folder.path()));
        send(Pid::from_raw(supervisor(&child).parse().unwrap()).unwrap(), libc::SIGKILL);
        assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGKILL));
        for pid in &pids {
            assert!(!exists(pid), "process {pid} is left");
        }
        let mut err = String::new();
        child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert_eq!(err, "blizzard: error: the process that watches over the run was killed by signal 9 (SIGKILL)\n");
    }
}

/// `kill -9 -- -GROUP`, as shells and test harnesses do it, reaches launcher and nodes in one blow, and must not reach the supervisor.
fn nothing_is_left_when_the_whole_process_group_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let text = family(folder.path());
    let mut command = launcher(2, false, &["/bin/sh", "-c", &text]);
    let (mut child, _rest, mut pids) = collect(command.process_group(0), 2);
    pids.push(supervisor(&child));
    rustix::process::kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    for pid in &pids {
        eventually("all ends with the group", || !exists(pid));
    }
}

/// A process that lives only until it has started its successor can be gone by the time that it has been found.
fn a_process_that_runs_away_from_its_number_is_caught() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("runner.c");
    let text = r#"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (fork() == 0) {
        setsid();
        // Ends by itself in the end, should the test fail.
        for (time_t end = time(0) + 60; time(0) < end;) if (fork() > 0) _exit(0);
        _exit(0);
    }
    printf("%d\n", (int)getpid());
    fflush(stdout);
    if (argc > 1) { sleep(1); return 3; }
    pause();
}
"#;
    std::fs::write(&source, text).unwrap();
    let runner = folder.path().join("runner");
    assert!(Command::new("cc").arg("-O1").arg(&source).arg("-o").arg(&runner).status().unwrap().success());
    let runner = runner.to_str().unwrap();
    let running = || {
        let links = std::fs::read_dir("/proc").unwrap().flatten().map(|e| std::fs::read_link(e.path().join("exe")));
        links.flatten().any(|exe| exe == Path::new(runner))
    };
    // The launcher killed; a node that ends.
    let (mut child, _rest, _) = collect(&mut launcher(1, false, &[runner]), 1);
    send(Pid::from_child(&child), libc::SIGKILL);
    child.wait().unwrap();
    // A look can miss it too: several in a row do not.
    eventually("the runner ends with the launcher", || (0..20).all(|_| !running()));
    let (_, err, status) = launch(1, &[runner, "end"]);
    assert_eq!((err.as_str(), status), ("", 3));
    assert!((0..20).all(|_| !running()));
}

fn a_lone_program_decides_what_a_signal_means() {
    let text = "trap 'echo caught; exit 5' INT; echo $$; while :; do sleep 0.01; done";
    let (mut child, mut rest, _) = start_and_collect(1, text);
    send(Pid::from_child(&child), libc::SIGINT);
    let mut out = String::new();
    rest.read_to_string(&mut out).unwrap();
    assert_eq!((out.as_str(), child.wait().unwrap().code()), ("caught\n", Some(5)));
}

fn a_reader_that_goes_away_ends_endless_output() {
    let mut child = launcher(2, false, &["/bin/sh", "-c", "while :; do echo line; done"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while line != "line\n" {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0);
    }
    drop(lines);
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    // As quiet as the program by itself would be.
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(128 + libc::SIGPIPE), ""));
}

fn the_shared_memory_has_no_name() {
    let (mut child, _rest, pids) = start_and_collect(2, "echo $$; exec sleep 1000");
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", pids[0])).unwrap().flatten();
    let links: Vec<_> = descriptors.filter_map(|e| std::fs::read_link(e.path()).ok()).collect();
    assert!(links.iter().any(|l| l.to_string_lossy().contains("memfd:blizzard")), "{links:?}");
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    assert_eq!(entries.filter(|e| e.file_name().to_string_lossy().contains("blizzard")).count(), 0);
    send(Pid::from_child(&child), libc::SIGTERM);
    child.wait().unwrap();
}

fn addresses_are_the_same_on_all_nodes() {
    let (out, err, status) = launch(
        3,
        &[
            "/bin/sh",
            "-c",
            "while read -r line; do case $line in *'[stack]'*) echo \"$line\";; esac; done < /proc/self/maps",
        ],
    );
    // Where a container's filter forbids it, the launcher says so.
    if !err.contains("randomisation stays on") {
        let mut ends: Vec<_> = out.lines().filter_map(|l| l.split(' ').next()?.split('-').nth(1)).collect();
        assert_eq!(ends.len(), 3, "{out}");
        ends.dedup();
        assert_eq!((ends.len(), status), (1, 0), "{out}");
    }
}

fn a_wrong_number_of_nodes_and_a_missing_program_are_errors() {
    let run = |nodes| launcher::run(Path::new("/bin/true"), &[], &LaunchOptions { nodes, ..LaunchOptions::default() });
    // Neither starts anything, so no process of its own is needed.
    assert!(run(0).unwrap_err().what.contains("1 to 1024"));
    assert!(run(1025).unwrap_err().what.contains("1 to 1024"));
    let output = launcher(2, false, &["/nonexistent/program"]).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.contains("cannot start node 0: /nonexistent/program"), "{err}");
}

fn streams_that_are_closed_stay_closed() {
    // A program without standard output said that it had written everything: Rust's start-up code puts /dev/null where nothing is.
    let text = "for fd in 0 1 2; do [ -e /proc/self/fd/$fd ] && echo $fd is open >&2; done; exit 7";
    let inner = launcher(1, false, &["sh", "-c", text]);
    let mut outer = Command::new("sh");
    outer.args(["-c", "exec \"$@\" <&- >&-", "sh"]).arg(inner.get_program()).args(inner.get_args());
    outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = outer.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output().unwrap();
    assert_eq!((String::from_utf8_lossy(&output.stderr).as_ref(), output.status.code()), ("2 is open\n", Some(7)));
}

fn nodes_begin_with_the_signal_mask_of_the_launcher() {
    let text = "while read -r line; do case $line in SigBlk*) echo \"$line\";; esac; done < /proc/self/status";
    for nodes in [1, 2] {
        let run = |blocked: &[&str]| {
            let inner = launcher(nodes as u32, false, &["/bin/sh", "-c", text]);
            // Its first argument leaves no signal blocked.
            let (program, mut arguments) = (inner.get_program(), inner.get_args());
            let mut outer = Command::new(program);
            outer.args(arguments.next()).args(blocked).args(arguments);
            outer.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
            finished(outer.stdin(Stdio::null()).output().unwrap())
        };
        for (blocked, mask) in [(&["--block-signal=TTOU", "--block-signal=USR1"][..], 1 << 21 | 1 << 9), (&[], 0)] {
            let (out, err, status) = run(blocked);
            assert_eq!((out, err.as_str(), status), (format!("SigBlk:\t{mask:016x}\n").repeat(nodes), "", 0));
        }
    }
}
