//! Watching the nodes until all have ended.
//!
//! Input: nodes, region, guard. Output: when all nodes have ended, why the run was stopped, if it was, and what was seen on the way.
//!
//! The loop sleeps until a signal arrives: SIGCHLD when a node ends, or one that asks the launcher or the supervisor to stop. The first
//! node that fails ends the run: the others are told through the region, have [`GRACE`] to stop by themselves, and are then
//! killed. A run of one node is transparent instead: signals are passed on and the program decides what they mean.
//!
//! **Invariant:** after the first failure or stop request of a run of several nodes, the loop ends within `GRACE` plus the
//! time the kernel needs to remove killed processes. When the launcher is gone, without `GRACE`.

use crate::launch::crashes::crash::{self, Crash, OwnNodes};
use crate::launch::guard::LauncherGuard;
use crate::launch::options::LaunchOptions;
use crate::launch::region::RegionFile;
use crate::launch::signals::LaunchEvent;
use crate::launch::spawn::{Reaper, SpawnedNode};
use crate::launch::watching::plain_again;
use crate::launch::watching::stuck::{StuckNode, StuckWatch};
use blizzard_contract::node_phase;
use signal_hook::consts::signal::{SIGCHLD, SIGINT, SIGUSR1, SIGUSR2};
use std::time::{Duration, Instant};

/// How long the remaining nodes may take to stop by themselves.
pub(crate) const GRACE: Duration = Duration::from_millis(200);
/// How often to look for ended nodes although no signal announced one.
pub(crate) const RECHECK: Duration = Duration::from_secs(1);

/// Why a run ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStop {
    /// This node failed first.
    Node(u32),
    /// The launcher got this signal.
    Signal(i32),
    /// The launcher has been killed.
    LauncherGone,
    /// All nodes wait for each other.
    Stuck,
}

/// What was seen of nodes.
#[derive(Debug, Default)]
pub struct Seen {
    /// What they waited for, if they waited for each other.
    pub stuck: Vec<StuckNode>,
    /// How they died.
    pub crashes: Vec<Crash>,
}

/// Waits until every node has ended; says why the run stopped early, if it did.
pub fn until_all_ended(
    nodes: &mut [SpawnedNode],
    options: &LaunchOptions,
    region: &RegionFile,
    guard: &mut LauncherGuard,
    watch: &mut StuckWatch,
    seen: &mut Seen,
) -> Option<RunStop> {
    let alone = nodes.len() == 1;
    let is_debugged = options.debugger.is_some();
    let mut stop = None;
    let mut deadline: Option<Instant> = None;
    let mut look_at: Option<Instant> = None;
    let mut reaper = Reaper::default();
    loop {
        crash::look(OwnNodes { nodes, first: 0 }, region, &mut seen.crashes, stop.is_some());
        let mut failed = None;
        for number in reaper.reap(nodes, region) {
            let node = number as u32;
            // A debugger that has not run its program to the end is no node that the others can do without.
            let is_given_up = !alone
                && options.debugger.as_ref().is_some_and(|debugger| debugger.node == node)
                && region.report(node).phase != node_phase::DONE;
            if failed.is_none() && (is_given_up || has_failed(&nodes[number], region, node, alone)) {
                failed = Some(node);
            }
        }
        // Node 0 creates nodes, and none after it has ended.
        if nodes[0].ended.is_some() && nodes.iter().all(|node| node.ended.is_some() || node.pid.is_none()) {
            return stop.or(failed.map(|first| RunStop::Node(culprit(nodes, region, first))));
        }
        if let (Some(first), None) = (failed, stop) {
            stop = Some(RunStop::Node(culprit(nodes, region, first)));
            region.abort();
            deadline = Some(Instant::now() + GRACE);
        }
        if deadline.is_some_and(|at| at <= Instant::now()) {
            nodes.iter().for_each(|node| node.signal(libc::SIGKILL));
            deadline = None;
        }
        if stop.is_none()
            && look_at.is_none_or(|at| at <= Instant::now())
            && let Some(all) = watch.look(OwnNodes { nodes, first: 0 }, region)
        {
            seen.stuck = all;
            stop = Some(RunStop::Stuck);
            region.abort();
            deadline = Some(Instant::now() + GRACE);
        }
        let mut recheck = RECHECK;
        if let Some(again) = watch.look_again() {
            let at = look_at.filter(|at| *at > Instant::now()).unwrap_or_else(|| Instant::now() + again);
            recheck = recheck.min(at.saturating_duration_since(Instant::now()));
            look_at = Some(at);
        }
        if options.learns {
            recheck = recheck.min(plain_again::ring(OwnNodes { nodes, first: 0 }, region));
        }
        let timeout = deadline.map_or(recheck, |at| at.saturating_duration_since(Instant::now()));
        for event in guard.wait(timeout) {
            let (signal, from_kernel) = match event {
                LaunchEvent::Signal { signal: SIGCHLD, .. } => continue,
                LaunchEvent::Signal { signal, from_kernel } => (signal, from_kernel),
                LaunchEvent::LauncherGone => {
                    stop = Some(RunStop::LauncherGone);
                    deadline = Some(Instant::now());
                    continue;
                }
            };
            // The terminal's, at a debugger's prompt.
            if is_debugged && signal == SIGINT {
                continue;
            }
            if !from_kernel {
                nodes.iter().for_each(|node| node.signal(signal));
            }
            let ends_the_run = !alone && signal != SIGUSR1 && signal != SIGUSR2;
            if ends_the_run && stop.is_none() {
                stop = Some(RunStop::Signal(signal));
                deadline = Some(Instant::now() + GRACE);
            }
        }
    }
}

/// Whether an ended node makes the run fail. A node that ran the runtime and vanished with status 0 without taking its leave
/// has taken its blocks with it: the others, if there are any, could wait for them for ever.
pub(crate) fn has_failed(node: &SpawnedNode, region: &RegionFile, number: u32, alone: bool) -> bool {
    let succeeded = node.ended.is_some_and(|status| status.success());
    !succeeded || (!alone && region.report(number).phase == node_phase::RUNNING)
}

/// The node to blame. A node that stops the run says so in its context page before it wakes the others, and
/// these may end sooner than it does: so its own word goes before the order of the endings.
fn culprit(nodes: &[SpawnedNode], region: &RegionFile, first: u32) -> u32 {
    let says_so = |number: u32| region.report(number).phase == node_phase::FAILED;
    if nodes.len() == 1 || says_so(first) {
        first
    } else {
        (0..nodes.len() as u32).find(|&n| says_so(n)).unwrap_or(first)
    }
}
