//! Watching the nodes until all have ended.
//!
//! The loop sleeps until a signal arrives: SIGCHLD when a node ends, or one that asks the launcher or the supervisor to stop. The first
//! node that fails ends the run: the others are told through the region, have [`GRACE`] to stop by themselves, and are then
//! killed. A run of one node is transparent instead: signals are passed on and the program decides what they mean.
//!
//! **Invariant:** after the first failure or stop request of a run of several nodes, the loop ends within `GRACE` plus the
//! time the kernel needs to remove killed processes. When the launcher is gone, without `GRACE`.

use crate::base::error::{Error, Result};
use crate::launch::guard::Guard;
use crate::launch::region::Region;
use crate::launch::spawn::{Node, Reaper};
use blizzard_contract::node_phase;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::fmt;
use std::io::PipeReader;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long the remaining nodes may take to stop by themselves.
const GRACE: Duration = Duration::from_millis(200);
/// How often to look for ended nodes although no signal announced one.
const RECHECK: Duration = Duration::from_secs(1);

/// Why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// This node failed first.
    Node(u32),
    /// The launcher got this signal.
    Signal(i32),
    /// The launcher has been killed.
    LauncherGone,
}

/// What can wake the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A signal to the launcher or the supervisor. `from_kernel`: the kernel itself sent it, as a terminal's Ctrl-C, which the nodes have
    /// received too.
    Signal {
        signal: i32,
        from_kernel: bool,
    },
    LauncherGone,
}

/// The signals that the process receives from now on.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl Signals {
    /// Begins to listen. A signal that was ignored when the process started (as under `nohup`) stays ignored.
    ///
    /// # Errors
    /// When the kernel refuses a handler.
    pub fn listen() -> Result<Self> {
        let ignored = ignored_signals();
        let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2]
            .into_iter()
            .filter(|signal| ignored & (1 << (signal - 1)) == 0)
            .chain([SIGCHLD]);
        UnixStream::pair()
            .and_then(|(read, write)| SignalDelivery::with_pipe(read, write, WithOrigin::default(), wanted))
            .map(|delivery| Signals { delivery })
            .map_err(|e| Error::new("cannot listen for signals").because(e))
    }

    /// Sleeps until a signal arrives, there is something to read from `pipe`, or `timeout` has passed; the signals, each with
    /// whether the kernel itself sent it.
    pub fn wait(&mut self, pipe: Option<&PipeReader>, timeout: Duration) -> Vec<(i32, bool)> {
        let limit = Timespec::try_from(timeout).expect("timeouts are short");
        let mut fds = vec![PollFd::new(self.delivery.get_read(), PollFlags::IN)];
        fds.extend(pipe.map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        // An interrupted poll means that a signal has arrived; other errors end in the same look around.
        let _ = poll(&mut fds, Some(&limit));
        drop(fds);
        self.delivery.pending().map(|origin| (origin.signal, matches!(origin.cause, Cause::Kernel))).collect()
    }
}

/// Bit `s - 1` is set for each signal `s` that this process ignores.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}

/// Waits until every node has ended; says why the run stopped early, if it did.
pub fn until_all_ended(nodes: &mut [Node], region: &Region, guard: &mut Guard) -> Option<Stop> {
    let alone = nodes.len() == 1;
    let mut stop = None;
    let mut deadline: Option<Instant> = None;
    let mut reaper = Reaper::default();
    loop {
        let mut failed = None;
        for number in reaper.reap(nodes, region) {
            if failed.is_none() && has_failed(&nodes[number], region, number as u32, alone) {
                failed = Some(number as u32);
            }
        }
        // Node 0 creates nodes, and none after it has ended.
        if nodes[0].ended.is_some() && nodes.iter().all(|node| node.ended.is_some() || node.pid.is_none()) {
            return stop.or(failed.map(|first| Stop::Node(culprit(nodes, region, first))));
        }
        if let (Some(first), None) = (failed, stop) {
            stop = Some(Stop::Node(culprit(nodes, region, first)));
            region.abort();
            deadline = Some(Instant::now() + GRACE);
        }
        if deadline.is_some_and(|at| at <= Instant::now()) {
            nodes.iter().for_each(|node| node.signal(libc::SIGKILL));
            deadline = None;
        }
        let timeout = deadline.map_or(RECHECK, |at| at.saturating_duration_since(Instant::now()));
        for event in guard.wait(timeout) {
            let (signal, from_kernel) = match event {
                Event::Signal { signal: SIGCHLD, .. } => continue,
                Event::Signal { signal, from_kernel } => (signal, from_kernel),
                Event::LauncherGone => {
                    stop = Some(Stop::LauncherGone);
                    deadline = Some(Instant::now());
                    continue;
                }
            };
            if !from_kernel {
                nodes.iter().for_each(|node| node.signal(signal));
            }
            let ends_the_run = !alone && signal != SIGUSR1 && signal != SIGUSR2;
            if ends_the_run && stop.is_none() {
                stop = Some(Stop::Signal(signal));
                deadline = Some(Instant::now() + GRACE);
            }
        }
    }
}

/// Whether an ended node makes the run fail. A node that ran the runtime and vanished with status 0 without taking its leave
/// has taken its blocks with it: the others, if there are any, could wait for them for ever.
fn has_failed(node: &Node, region: &Region, number: u32, alone: bool) -> bool {
    let succeeded = node.ended.is_some_and(|status| status.success());
    !succeeded || (!alone && region.report(number).phase == node_phase::RUNNING)
}

/// The node to blame. A node that stops the run says so in its context page before it wakes the others, and
/// these may end sooner than it does: so its own word goes before the order of the endings.
fn culprit(nodes: &[Node], region: &Region, first: u32) -> u32 {
    let says_so = |number: u32| region.report(number).phase == node_phase::FAILED;
    if nodes.len() == 1 || says_so(first) {
        first
    } else {
        (0..nodes.len() as u32).find(|&n| says_so(n)).unwrap_or(first)
    }
}
