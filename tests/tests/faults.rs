//! What happens when something from outside goes wrong while nodes exchange messages: a node is killed at a random moment or stops for a while,
//! memory is short, the rings are overwritten. Each time the run ends, says what happened, and leaves nothing behind.
//!
//! `BLIZZARD_KILLS` sets the number of runs in which a node is killed; 200 is what a release is tried with.

use blizzard_contract::{CALL_SIGNAL, CONTEXT_BYTES, RegionHeader, SharedContext};
use blizzard_test_harness::needs;
use blizzard_tests::failing::{self, marker, processes_with};
use blizzard_tests::run::Ending;
use blizzard_tests::tool::{self, Mode};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::mem::offset_of;
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

blizzard_test_harness::tests! {
    a_node_killed_at_any_moment_ends_the_run_with_its_name,
    a_node_that_stops_for_a_while_delays_the_run_and_no_more,
    too_little_address_space_is_an_error_that_names_what_was_to_be_placed,
    soft_limits_of_address_space_and_data_leave_room_for_the_runtime,
    a_full_dev_shm_does_not_matter,
    a_call_that_comes_before_its_handler_waits,
    overwritten_rings_end_the_run_with_an_error_or_do_no_harm,
}

const NODES: usize = 3;
/// More than a test waits for.
const ENDLESS: &str = "1000000000000";
/// A run that is over before the test has done anything to it (the machine did not let the test run meanwhile) is made again, so many times longer,
/// at most so often.
const LONGER: u64 = 4;
const ATTEMPTS: u32 = 5;

fn program() -> &'static Path {
    failing::program(env!("CARGO_TARGET_TMPDIR"), "faults", Mode::TESTS)
}

/// The node processes: those that are not `blizzard` itself.
fn nodes_with(marker: &str) -> Vec<Pid> {
    let mut nodes: Vec<i32> = processes_with(marker)
        .into_iter()
        .filter(|(_, first)| Path::new(first) == program())
        .map(|(number, _)| number)
        .collect();
    nodes.sort_unstable();
    nodes.into_iter().filter_map(Pid::from_raw).collect()
}

/// A run that has been started.
struct Running {
    child: Child,
    marker: String,
    out: BufReader<std::process::ChildStdout>,
    errors: std::process::ChildStderr,
}

/// How a run ended.
struct Ended {
    ending: Ending,
    out: String,
    errors: String,
    /// From the call that waited.
    took: Duration,
}

fn start(mut command: Command, rounds: &str) -> Running {
    let marker = marker();
    command.arg(program()).args(["traffic", &marker, rounds]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    let errors = child.stderr.take().unwrap();
    Running { child, marker, out, errors }
}

fn launcher() -> Command {
    tool::blizzard(["run", "-n", &NODES.to_string(), "--"])
}

impl Running {
    /// Waits until the nodes compute.
    fn started(&mut self) {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        assert_eq!(line, format!("started {NODES}\n"));
    }

    /// Whether the run has ended.
    fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end, for at most `limit`; nothing may be left then.
    fn end(mut self, limit: Duration) -> Ended {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begin.elapsed() > limit {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("the run did not end within {limit:?}");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = begin.elapsed();
        let (mut out, mut errors) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.errors.read_to_string(&mut errors).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while !processes_with(&self.marker).is_empty() {
            assert!(Instant::now() < deadline, "processes left: {:?}", processes_with(&self.marker));
            std::thread::sleep(Duration::from_millis(5));
        }
        let left: Vec<_> =
            std::fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|e| e.file_name()).collect();
        assert!(left.iter().all(|name| !name.to_string_lossy().contains("blizzard")), "{left:?}");
        let ending = status.code().map_or(Ending::Signal(status.signal().unwrap_or(0)), Ending::Exit);
        Ended { ending, out, errors, took }
    }
}

impl Ended {
    /// The run failed with a message of ours that has all these words in it.
    fn says(&self, words: &[&str]) {
        assert!(matches!(self.ending, Ending::Exit(status) if status != 0), "{}: {}", self.ending, self.errors);
        for word in words.iter().chain(&["blizzard: error:"]) {
            assert!(self.errors.contains(word), "no {word:?} in: {}", self.errors);
        }
        assert!(!self.errors.contains("panicked"), "{}", self.errors);
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 16
}

fn a_node_killed_at_any_moment_ends_the_run_with_its_name() {
    let runs: u64 = std::env::var("BLIZZARD_KILLS").ok().map_or(12, |text| text.parse().unwrap());
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut slowest = Duration::ZERO;
    for run in 0..runs {
        let mut running = start(launcher(), ENDLESS);
        // Every third one while the nodes are still starting.
        if run % 3 != 0 {
            running.started();
        }
        std::thread::sleep(Duration::from_micros(random(&mut state) % 30_000));
        let deadline = Instant::now() + Duration::from_secs(20);
        let victim = loop {
            let nodes = nodes_with(&running.marker);
            if !nodes.is_empty() {
                break nodes[random(&mut state) as usize % nodes.len()];
            }
            assert!(Instant::now() < deadline, "no node process in sight");
        };
        kill_process(victim, Signal::KILL).unwrap();
        let ended = running.end(Duration::from_secs(60));
        ended.says(&["node ", "SIGKILL"]);
        slowest = slowest.max(ended.took);
    }
    println!("{runs} runs; the longest end took {slowest:?}");
}

fn a_node_that_stops_for_a_while_delays_the_run_and_no_more() {
    let rounds = (0..ATTEMPTS).map(|attempt| 200_000 * LONGER.pow(attempt));
    assert!(rounds.into_iter().any(is_stopped_for_a_while), "the runs were over before a node could be stopped");
}

/// Whether a node of the run could be stopped in time.
fn is_stopped_for_a_while(rounds: u64) -> bool {
    let mut running = start(launcher(), &rounds.to_string());
    running.started();
    let victim = nodes_with(&running.marker).get(1).copied();
    let Some(victim) = victim.filter(|&victim| kill_process(victim, Signal::STOP).is_ok()) else {
        assert_eq!(running.end(Duration::from_secs(120)).ending, Ending::Exit(0));
        return false;
    };
    std::thread::sleep(Duration::from_secs(5));
    let is_stopped = state_of(victim) == Some('T');
    let all = nodes_with(&running.marker).len();
    let may_continue = kill_process(victim, Signal::CONT).is_ok();
    let ended = running.end(Duration::from_secs(300));
    if ended.ending == Ending::Exit(0) {
        assert!(!is_stopped || (may_continue && all == NODES));
        assert_eq!(ended.out, format!("sum {}\n", NODES as u64 * rounds.div_ceil(8)));
    } else {
        ended.says(&["node 1"]);
    }
    is_stopped
}

/// A run under limits that a shell sets, and that no privilege may raise; how it ended.
fn limited(script: &str, rounds: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{script} && {}", needs::without_raising_limits()), "sh"]);
    command.arg(tool::path()).args(["run", "-n", &NODES.to_string(), "--"]);
    start(command, rounds).end(Duration::from_secs(60))
}

fn too_little_address_space_is_an_error_that_names_what_was_to_be_placed() {
    // In kilobytes: too little for the tag table, for the segment, for what comes after both.
    for limit in ["300000", "4000000", "2147500000", "2180000000"] {
        let ended = limited(&format!("ulimit -v {limit}"), "1000");
        ended.says(&["node ", "ulimit -v"]);
    }
}

fn soft_limits_of_address_space_and_data_leave_room_for_the_runtime() {
    for limit in ["ulimit -S -v 4000000", "ulimit -S -d 1000000"] {
        let ended = limited(limit, "8000");
        assert_eq!(ended.ending, Ending::Exit(0), "{limit}: {}", ended.errors);
        assert_eq!(ended.out, format!("started {NODES}\nsum {}\n", NODES * 1000), "{limit}");
    }
}

fn a_full_dev_shm_does_not_matter() {
    // The memory that nodes share has no name in any file system. The file system is filled where only this run sees it.
    let fill = "mount -t tmpfs -o size=64k none /dev/shm && { cat /dev/zero > /dev/shm/full 2> /dev/null || true; \
                test \"$(stat -c %s /dev/shm/full)\" -ge 65536; }";
    let mut command = needs::in_mount_namespace(fill, &format!("{fill} && exec \"$@\""));
    command.arg("sh");
    command.arg(tool::path()).args(["run", "-n", &NODES.to_string(), "--"]);
    let ended = start(command, "8000").end(Duration::from_secs(60));
    assert_eq!(ended.ending, Ending::Exit(0), "{}", ended.errors);
    assert_eq!(ended.out, format!("started {NODES}\nsum {}\n", NODES * 1000));
}

/// The region of a run, through the descriptor that its launcher holds; none when the run is over.
fn find_region_of(marker: &str) -> Option<File> {
    for (number, _) in processes_with(marker) {
        for entry in std::fs::read_dir(format!("/proc/{number}/fd")).into_iter().flatten().flatten() {
            if std::fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:blizzard")) {
                return OpenOptions::new().read(true).write(true).open(entry.path()).ok();
            }
        }
    }
    None
}

/// A word of the region.
fn word_at(region: &File, at: usize) -> u64 {
    let mut bytes = [0; 8];
    region.read_exact_at(&mut bytes, at as u64).unwrap();
    u64::from_le_bytes(bytes)
}

/// What `/proc/PID/status` says behind `key`.
fn status_of(process: Pid, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).ok()?;
    Some(text.lines().find_map(|line| line.strip_prefix(key))?.trim().to_owned())
}

/// The letter of the process's state.
fn state_of(process: Pid) -> Option<char> {
    status_of(process, "State:")?.chars().next()
}

/// Whether the process has a handler for the signal by which peers call; none when it has ended.
fn has_handler(node: Pid) -> Option<bool> {
    let caught = status_of(node, "SigCgt:")?;
    // One that has ended and was not waited for yet has none for anything.
    let lives = !matches!(state_of(node)?, 'Z' | 'X');
    lives.then(|| u64::from_str_radix(&caught, 16).unwrap() >> (CALL_SIGNAL - 1) & 1 != 0)
}

/// A node says its process number before it has installed the handler for calls. On a busy machine it can stay between the two for longer
/// than a peer waits before it calls: the signal ended the process.
fn a_call_that_comes_before_its_handler_waits() {
    let mut early = 0;
    for _ in 0..200 {
        let mut running = start(launcher(), "8000");
        // Where the machine does not let this process run, the run may be over by now.
        early += u32::from(call_early(&mut running) == Some(true));
        running.started();
        let ended = running.end(Duration::from_secs(60));
        assert_eq!(ended.ending, Ending::Exit(0), "{}", ended.errors);
        if early == 3 {
            return;
        }
    }
    panic!("the signal never came before the handler, so nothing was tried");
}

/// Calls the last node of a run that starts; whether it had no handler yet. None when the run was over first.
fn call_early(running: &mut Running) -> Option<bool> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let region = loop {
        match find_region_of(&running.marker) {
            // The launcher writes the header before it starts a node.
            Some(region) if !nodes_with(&running.marker).is_empty() => break region,
            _ if running.is_over() => return None,
            _ => assert!(Instant::now() < deadline, "no node process in sight"),
        }
    };
    let contexts = word_at(&region, offset_of!(RegionHeader, contexts_off)) as usize;
    let last = contexts + (NODES - 1) * CONTEXT_BYTES as usize + offset_of!(SharedContext, pid);
    let number = loop {
        match word_at(&region, last) as u32 {
            0 if running.is_over() => return None,
            0 => assert!(Instant::now() < deadline, "node {} has not started", NODES - 1),
            number => break number as i32,
        }
    };
    let node = Pid::from_raw(number).unwrap();
    kill_process(node, Signal::STOP).ok()?;
    let early = has_handler(node)?;
    let sent = needs::send_signal(&CALL_SIGNAL.to_string(), number.unsigned_abs());
    // One that ended instead of stopping is gone.
    let continued = kill_process(node, Signal::CONT).is_ok();
    (sent && continued).then_some(!early)
}

/// Overwrites these bytes of every ring of a run that computes, and says how the run ended; nothing when it was over before that.
fn overwritten(range: Part, rounds: u64, state: &mut u64) -> Option<Ended> {
    let mut running = start(launcher(), &rounds.to_string());
    running.started();
    let Some(region) = find_region_of(&running.marker) else {
        assert_eq!(running.end(Duration::from_secs(180)).ending, Ending::Exit(0));
        return None;
    };
    let word = |at| word_at(&region, at);
    let (rings, ring) = (word(offset_of!(RegionHeader, rings_off)), word(offset_of!(RegionHeader, ring_bytes)));
    let noise: Vec<u8> = (0..ring).map(|_| random(state) as u8).collect();
    let range = range(noise.len());
    for index in 0..(NODES * NODES) as u64 {
        region.write_all_at(&noise[range.clone()], rings + index * ring + range.start as u64).unwrap();
    }
    drop(region);
    // A node that waits for what was overwritten is ended after a minute without an answer.
    Some(running.end(Duration::from_secs(180)))
}

/// The part of a ring of so many bytes.
type Part = fn(usize) -> std::ops::Range<usize>;

/// A ring that is empty at that moment takes no harm: the producer writes a slot as a whole, the consumer its index. So a run may also end with
/// the right result; but it does so by luck, and not every time.
fn overwritten_rings_end_the_run_with_an_error_or_do_no_harm() {
    const TRIES: usize = 12;
    let mut rounds = 40_000;
    let most = rounds * LONGER.pow(ATTEMPTS);
    let mut state = 0x1234_5678_9abc_def1;
    // All of it, the slots only, the indexes only; and whether that must be noticed in one of the tries.
    let parts: [(Part, bool); 3] = [(|ring| 0..ring, true), (|ring| 128..ring, true), (|_| 0..128, false)];
    for (range, is_noticed) in parts {
        let mut errors = 0;
        for _ in 0..if is_noticed { TRIES } else { 2 } {
            let ended = loop {
                match overwritten(range, rounds, &mut state) {
                    Some(ended) => break ended,
                    None => rounds *= LONGER,
                }
                assert!(rounds < most, "the runs were over before anything could be overwritten");
            };
            if ended.ending == Ending::Exit(0) {
                assert_eq!(ended.out, format!("sum {}\n", NODES as u64 * rounds.div_ceil(8)));
                continue;
            }
            ended.says(&["node "]);
            let reasons = ["ring", "has not answered", "protocol error", "reason"];
            assert!(reasons.iter().any(|reason| ended.errors.contains(reason)), "{}", ended.errors);
            errors += 1;
            if errors == 2 {
                break;
            }
        }
        assert!(errors > 0 || !is_noticed, "{TRIES} runs with overwritten rings, and none was ended");
    }
}
