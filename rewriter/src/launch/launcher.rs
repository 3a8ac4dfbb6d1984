//! The launcher: runs a program as N node processes and watches over them.
//!
//! Input: an executable, its arguments, [`LaunchOptions`]. Output: an [`RunOutcome`]: exit status, what failed, and what
//! each node counted. The nodes share one region ([`crate::launch::region`]) that has no name in any file system.
//!
//! **Invariants**
//! * Nothing is left behind: two processes guard the run, and either ends all that is below it when the other is killed ([`guard`],
//!   [`leftovers`]).
//! * The first failure ends the run within a second ([`supervise`]).
//! * With one node the launcher is transparent: standard streams are inherited, signals are passed on.
//!
//! Any executable can be launched; only a rewritten one uses the region.

use crate::base::error::{Error, Result};
use crate::base::messages;
use crate::launch::crashes::core_files;
use crate::launch::crashes::crash::Crash;
use crate::launch::options::LaunchOptions;
use crate::launch::output::{NodeStream, SharedOutput, forward};
use crate::launch::region::{Matched, NodeReport, RegionFile};
use crate::launch::spawn::{self, SpawnedNode, describe, shell_status};
use crate::launch::watching::stuck::{StuckNode, StuckWatch};
use crate::launch::watching::supervise::{self, RunStop, Seen};
use crate::launch::{guard, leftovers, sys};
use blizzard_contract::{self as contract, LearntPlace, node_phase};
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// How one node ended.
#[derive(Debug)]
pub struct NodeEnd {
    pub status: ExitStatus,
    pub report: NodeReport,
}

/// What a host of several has sent to the others, and got from them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostTraffic {
    pub host: String,
    pub first_node: u16,
    pub nodes: u16,
    pub messages_sent: u64,
    pub messages_received: u64,
    /// What they travelled in.
    pub batches_sent: u64,
    pub batches_received: u64,
}

/// What another host says of the node that has ended the run.
#[derive(Debug, Default)]
pub struct Told {
    /// How it died, or where.
    pub lines: Vec<String>,
    /// Where its core file is, if the user wants one.
    pub core: Option<String>,
}

/// How a run ended.
#[derive(Debug)]
pub struct RunOutcome {
    /// What the launcher is to exit with: 0, the first failing node's status, or 128 plus a signal's number.
    pub exit_status: i32,
    /// What to tell the user; none for a run that succeeded, nor for a lone program's own exit status.
    pub failure: Option<Error>,
    pub nodes: Vec<NodeEnd>,
    /// What the nodes waited for, if the run was ended because they all waited for each other.
    pub stuck: Vec<StuckNode>,
    /// How the node died that ended the run, or where it did that, if it could be looked at.
    pub crash: Option<Crash>,
    /// The same where another host has looked: what it says.
    pub told: Told,
    /// What they have learnt together, however they ended.
    pub learnt: Vec<LearntPlace>,
    /// What the rules of allocations have matched.
    pub matched: Matched,
    /// By host, if all of several have said it.
    pub traffic: Vec<HostTraffic>,
    /// From before the first node started until after the last ended.
    pub wall: Duration,
}

/// Runs `program` as `options.nodes` processes and waits for them.
///
/// **Returns in a child of the calling process** (see [`guard::split`]); the caller's own process ends with the exit status of that child
/// and runs nothing more. To be called once, from the main thread of a process without other children and without busy threads: it
/// takes over the process's signals, and ends all children of the process at the end.
///
/// # Errors
/// When the run cannot be started. A run that fails later is an [`RunOutcome`].
pub fn run(program: &Path, args: &[OsString], options: &LaunchOptions) -> Result<RunOutcome> {
    if options.nodes == 0 || options.nodes as usize > contract::MAX_NODES {
        return Err(Error::new(format!("a run has 1 to {} nodes, not {}", contract::MAX_NODES, options.nodes)));
    }
    expect_address_space(getrlimit(Resource::As).maximum)?;
    if options.cores {
        core_files::allow()?;
    }
    let mut guard = guard::split()?;
    let region = RegionFile::create(options)?;
    if options.nodes > 1
        && let Err(e) = sys::disable_randomisation()
    {
        messages::warning(&format!(
            "address-space randomisation stays on ({e}): addresses of code and private data differ \
             between nodes"
        ));
    }
    region.await_crashes(0..options.nodes);
    let begin = Instant::now();
    let mut nodes = spawn::start(program, args, &region, guard.group, options)?;
    let forwarders = match Forwarders::start(&mut nodes, options) {
        Ok(forwarders) => forwarders,
        Err(e) => {
            leftovers::end_all(leftovers::LIMIT);
            return Err(e);
        }
    };
    let (mut watch, mut seen) = (StuckWatch::new(nodes.len(), options.stuck_timeout), Seen::default());
    let stop = supervise::until_all_ended(&mut nodes, options, &region, &mut guard, &mut watch, &mut seen);
    let wall = begin.elapsed();
    // Nobody waits any more when the launcher is gone: then it may take long.
    let gone = stop == Some(RunStop::LauncherGone);
    leftovers::end_all(if gone { leftovers::LIMIT_ALONE } else { leftovers::LIMIT });
    let written = if guard.end_with_launcher() { forwarders.finish() } else { WrittenOutput::default() };
    let nodes: Vec<NodeEnd> = (0u32..)
        .zip(nodes)
        .map(|(number, node)| NodeEnd {
            // A node that was never created has not failed.
            status: node.ended.unwrap_or_default(),
            report: region.report(number),
        })
        .collect();
    let (exit_status, mut failure) = verdict(stop, &nodes, written);
    if let (Some(debugger), Some(RunStop::Node(number))) = (&options.debugger, stop)
        && let NodeEnd { status, report } = &nodes[number as usize]
        && (debugger.node, &report.message) == (number, &None)
        && (status.success() || status.signal().is_some())
    {
        let told = if let Some(signal) = status.signal() {
            Error::new(format!("node {number}, or its debugger, was killed by signal {signal}"))
        } else if report.phase == node_phase::STARTING {
            let told = Error::new(format!("the debugger of node {number} has ended, and its program has never run"));
            told.help("`run` at gdb's prompt starts the program")
        } else {
            Error::new(format!("the debugger of node {number} has ended, and the node with it"))
        };
        failure = Some(told);
    }
    let Seen { stuck, crashes } = seen;
    let ended_by = |node: u32| {
        let NodeEnd { status, report } = &nodes[node as usize];
        crashes.into_iter().find(|crash| crash.is_of(node, *status, report.message.is_some()))
    };
    let crash = match stop {
        Some(RunStop::Node(node)) => ended_by(node),
        _ => None,
    };
    let (learnt, matched, told, traffic) = (region.learnt(), region.matched(), Told::default(), Vec::new());
    Ok(RunOutcome { exit_status, failure, nodes, stuck, crash, told, learnt, matched, traffic, wall })
}

/// Looks whether nodes can map what they need; else each of them would say the same. `most`: the hard limit, in bytes. Soft ones are raised.
pub(super) fn expect_address_space(most: Option<u64>) -> Result<()> {
    match most {
        Some(most) if most < contract::TAG_TABLE_BYTES => Err(Error::new(format!(
            "no node can start: the limit of address space is {} MiB here, and each node maps more than {} TiB, hardly any of it used",
            most >> 20,
            contract::TAG_TABLE_BYTES >> 40
        ))
        .help("`ulimit -v unlimited`; a shell that refuses it was started with that limit")),
        _ => Ok(()),
    }
}

/// What became of the nodes' output.
#[derive(Debug, Default)]
pub(super) struct WrittenOutput {
    /// Whoever read it has gone away (`| head`), and nodes get SIGPIPE for that.
    reader_left: bool,
    /// Why some of it was lost otherwise; nodes get SIGPIPE for that, too.
    lost: Option<Error>,
}

impl WrittenOutput {
    /// What became of what went to these.
    pub(super) fn of(out: &SharedOutput<io::Stdout>, err: &SharedOutput<io::Stderr>) -> WrittenOutput {
        let lost = |name: &str, e: io::Error| Error::new(format!("cannot write the nodes' {name}")).because(e);
        WrittenOutput {
            reader_left: out.is_closed() || err.is_closed(),
            lost: (out.lost().map(|e| lost("standard output", e)))
                .or_else(|| err.lost().map(|e| lost("standard error", e))),
        }
    }
}

/// The run's exit status and what to say about it.
pub(super) fn verdict(stop: Option<RunStop>, nodes: &[NodeEnd], written: WrittenOutput) -> (i32, Option<Error>) {
    verdict_on(stop, nodes, |number| format!("node {number}"), written)
}

/// The same. `name`: what a node is called.
pub(super) fn verdict_on(
    stop: Option<RunStop>,
    nodes: &[NodeEnd],
    name: impl Fn(u32) -> String,
    written: WrittenOutput,
) -> (i32, Option<Error>) {
    let WrittenOutput { reader_left, lost } = written;
    let (status, failure) = verdict_on_nodes(stop, nodes, name, reader_left);
    match lost {
        None => (status, failure),
        // What a node does that can write no more is a consequence.
        Some(lost) => (
            if status == 0 { libc::EXIT_FAILURE } else { status },
            Some(failure.into_iter().fold(lost, |lost, failure| lost.because(failure.what))),
        ),
    }
}

/// As [`verdict_on`], without the output.
fn verdict_on_nodes(
    stop: Option<RunStop>,
    nodes: &[NodeEnd],
    name: impl Fn(u32) -> String,
    reader_left: bool,
) -> (i32, Option<Error>) {
    let number = match stop {
        None => return (0, None),
        Some(RunStop::Signal(signal)) => return (128 + signal, None),
        Some(RunStop::LauncherGone) => return (128 + libc::SIGKILL, None),
        Some(RunStop::Stuck) => {
            let what = "the run is stuck: all nodes wait for each other, and none can go on";
            let help = "--stuck-timeout SECONDS waits longer before it says so; 0: for ever";
            return (libc::EXIT_FAILURE, Some(Error::new(what).help(help)));
        }
        Some(RunStop::Node(number)) => number,
    };
    let NodeEnd { status, report } = &nodes[number as usize];
    if reader_left && status.signal() == Some(libc::SIGPIPE) {
        return (shell_status(*status), None);
    }
    if nodes.len() == 1 && report.message.is_none() {
        // SIGINT, SIGTERM and the like on a lone program are the user's own doing, SIGPIPE the reader's.
        let quiet = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE];
        match status.signal() {
            None => return (shell_status(*status), None),
            Some(signal) if quiet.contains(&signal) => return (shell_status(*status), None),
            Some(_) => {}
        }
    }
    let node = name(number);
    let failure = match &report.message {
        Some(message) => Error::new(format!("{node}: {message}")),
        None if status.success() => Error::new(format!(
            "{node} ended without taking its leave of the other nodes (exit status 0, but not through exit())"
        )),
        None => Error::new(format!("{node} {}", describe(*status))),
    };
    let status = if status.success() { libc::EXIT_FAILURE } else { shell_status(*status) };
    (status, Some(failure))
}

/// Stack of a thread that passes output through: it needs little, and 64 nodes have 128 of them.
const FORWARDER_STACK_BYTES: usize = 256 << 10;

/// How often to look whether anything of the nodes' output is left, when their processes have ended and a pipe has not.
const OUTPUT_LOOK: Duration = Duration::from_millis(300);

/// The threads that pass output through.
struct Forwarders {
    done: mpsc::Receiver<()>,
    running: usize,
    /// What they read; each thread holds its own until it has said that it is done.
    streams: Vec<Weak<NodeStream>>,
    out: Arc<SharedOutput<io::Stdout>>,
    err: Arc<SharedOutput<io::Stderr>>,
}

impl Forwarders {
    /// Starts them.
    ///
    /// # Errors
    /// When the kernel gives no more threads.
    fn start(nodes: &mut [SpawnedNode], options: &LaunchOptions) -> Result<Self> {
        let (ended, done) = mpsc::channel();
        let start = |forward: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().stack_size(FORWARDER_STACK_BYTES).spawn(forward);
            thread.map(drop).map_err(|e| {
                Error::new("cannot start a thread that passes a node's output through")
                    .because(e)
                    .help("the run needs two threads for each node: see `ulimit -u`, and the memory that is left")
            })
        };
        let mut all = Forwarders {
            done,
            running: 0,
            streams: Vec::new(),
            out: Arc::new(SharedOutput::new(io::stdout())),
            err: Arc::new(SharedOutput::new(io::stderr())),
        };
        for (number, node) in nodes.iter_mut().enumerate() {
            let prefix = if options.tag_output { format!("[node {number}] ") } else { String::new() };
            let Some(child) = &mut node.child else { continue };
            if let Some(from) = child.stdout.take() {
                let (sink, ended, prefix) = (Arc::clone(&all.out), ended.clone(), prefix.clone());
                let from = all.stream(from);
                start(Box::new(move || {
                    forward(&*from, &prefix, &sink);
                    let _ = ended.send(());
                }))?;
            }
            if let Some(from) = child.stderr.take() {
                let (sink, ended) = (Arc::clone(&all.err), ended.clone());
                let from = all.stream(from);
                start(Box::new(move || {
                    forward(&*from, &prefix, &sink);
                    let _ = ended.send(());
                }))?;
            }
        }
        Ok(all)
    }

    /// One more pipe to pass on.
    fn stream(&mut self, pipe: impl Into<OwnedFd>) -> Arc<NodeStream> {
        let stream = Arc::new(NodeStream::new(pipe));
        self.running += 1;
        self.streams.push(Arc::downgrade(&stream));
        stream
    }

    /// Waits until all output has been passed on. Whoever still holds a pipe open without writing (a process that could
    /// not be killed) is not waited for; a slow reader of the launcher's output is, and so is a thread of this process that a busy machine does
    /// not let run. Returns what became of the output.
    fn finish(self) -> WrittenOutput {
        let mut left = self.running;
        while left > 0 {
            match self.done.recv_timeout(OUTPUT_LOOK) {
                Ok(()) => left -= 1,
                Err(mpsc::RecvTimeoutError::Timeout) if self.has_more() => {}
                Err(_) => break,
            }
        }
        WrittenOutput::of(&self.out, &self.err)
    }

    /// Whether anything is left to be passed on.
    fn has_more(&self) -> bool {
        self.streams.iter().filter_map(Weak::upgrade).any(|stream| stream.has_more())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn end(raw: i32, phase: u32, message: Option<&str>) -> NodeEnd {
        let report = NodeReport {
            phase,
            message: message.map(Into::into),
            counters: [0; contract::COUNTER_COUNT],
            traps: Vec::new(),
        };
        NodeEnd { status: ExitStatus::from_raw(raw), report }
    }

    #[test]
    fn the_failing_node_is_named_with_its_signal() {
        let nodes = [end(0, 2, None), end(0, 2, None), end(libc::SIGSEGV, 1, None)];
        let (status, failure) = verdict(Some(RunStop::Node(2)), &nodes, WrittenOutput::default());
        assert_eq!(status, 128 + libc::SIGSEGV);
        assert_eq!(failure.unwrap().what, "node 2 was killed by signal 11 (SIGSEGV)");
    }

    #[test]
    fn the_runtimes_message_is_passed_on() {
        let nodes = [end(0, 2, None), end(9 << 8, 3, Some("cannot map the segment"))];
        let (status, failure) = verdict(Some(RunStop::Node(1)), &nodes, WrittenOutput::default());
        assert_eq!((status, failure.unwrap().what.as_str()), (9, "node 1: cannot map the segment"));
    }

    #[test]
    fn a_lone_programs_status_passes_without_comment_but_a_crash_is_named() {
        assert!(matches!(
            verdict(Some(RunStop::Node(0)), &[end(3 << 8, 1, None)], WrittenOutput::default()),
            (3, None)
        ));
        assert!(matches!(
            verdict(Some(RunStop::Node(0)), &[end(libc::SIGINT, 1, None)], WrittenOutput::default()),
            (130, None)
        ));
        let (status, failure) =
            verdict(Some(RunStop::Node(0)), &[end(libc::SIGABRT, 1, None)], WrittenOutput::default());
        assert_eq!(status, 134);
        assert!(failure.is_some());
    }

    /// Where a machine gave the threads no processor for 300 ms, what they had not read by then was lost, and the run succeeded.
    #[test]
    fn output_that_is_passed_on_late_is_waited_for() {
        let (ended, done) = mpsc::channel();
        let (out, err) = (Arc::new(SharedOutput::new(io::stdout())), Arc::new(SharedOutput::new(io::stderr())));
        let mut forwarders = Forwarders { done, running: 0, streams: Vec::new(), out, err };
        let (pipe, mut node) = io::pipe().unwrap();
        let stream = forwarders.stream(pipe);
        node.write_all(b"late\n").unwrap();
        drop(node);
        let written = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&written);
        std::thread::spawn(move || {
            std::thread::sleep(3 * OUTPUT_LOOK);
            forward(&*stream, "", &SharedOutput::new(io::sink()));
            seen.store(true, Ordering::SeqCst);
            let _ = ended.send(());
        });
        forwarders.finish();
        assert!(written.load(Ordering::SeqCst));
    }

    /// A process that could not be killed, say, holds its pipe for ever.
    #[test]
    fn a_pipe_that_stays_open_without_output_is_not_waited_for() {
        let (_ended, done) = mpsc::channel();
        let (out, err) = (Arc::new(SharedOutput::new(io::stdout())), Arc::new(SharedOutput::new(io::stderr())));
        let mut forwarders = Forwarders { done, running: 0, streams: Vec::new(), out, err };
        let (pipe, _node) = io::pipe().unwrap();
        let _stream = forwarders.stream(pipe);
        forwarders.finish();
    }

    #[test]
    fn lost_output_fails_a_run_and_names_what_followed_from_it() {
        let full = || WrittenOutput { reader_left: true, lost: Some(Error::new("cannot write").because("full")) };
        let (status, failure) = verdict(None, &[end(0, 2, None), end(0, 2, None)], full());
        assert_eq!((status, failure.unwrap().causes), (1, vec!["full".to_owned()]));
        let (status, failure) = verdict(Some(RunStop::Node(1)), &[end(0, 2, None), end(101 << 8, 2, None)], full());
        let failure = failure.unwrap();
        assert_eq!((status, failure.what.as_str()), (101, "cannot write"));
        assert_eq!(failure.causes, ["full", "node 1 exited with status 101"]);
    }

    #[test]
    fn a_node_that_vanishes_with_status_zero_fails_the_run() {
        let (status, failure) =
            verdict(Some(RunStop::Node(0)), &[end(0, 1, None), end(0, 2, None)], WrittenOutput::default());
        assert_eq!(status, 1);
        assert!(failure.unwrap().what.contains("without taking its leave"));
    }
}
