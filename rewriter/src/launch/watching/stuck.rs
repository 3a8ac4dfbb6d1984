//! Whether a run is stuck: every node waits for the others, and none is told anything.
//!
//! Purpose: a deadlock is said, with what each node waits for, instead of hanging without a word. Input: the nodes' context pages, again and again.
//! Output: [`StuckNode`]s, when nothing has changed for long enough. What is seen on one host is a [`Sight`]; a [`StuckWatch`] judges those of all hosts.
//!
//! **Invariant**: a run that could go on is never taken for stuck. Each node sleeps in the runtime until a message comes; no doorbell is rung, so no message
//! is on its way to a sleeper; no timer of the program is scheduled. A node that computes, or that waits in a system call for the outside world, does not
//! sleep in the runtime. How long that must have been so is the user's choice, and not what makes it true. Whether messages are under way between hosts is
//! judged in [`rounds`](crate::launch::hosts::rounds).

use crate::launch::crashes::crash::OwnNodes;
use crate::launch::crashes::process_memory::ProcessMemory;
use crate::launch::crashes::unwind;
use crate::launch::region::{NodeWait, RegionFile};
use blizzard_contract::{activity, waits};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A node that sleeps wakes now and then to look at its peers: it is looked at so often before it counts as awake.
const LOOKS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(1);
/// Where the program's stack is kept, from the end of a node's own stack.
const KEPT_BEFORE_END: u64 = 8;
/// Bytes of the program's stack in which callers are looked for.
const STACK_BYTES: u64 = 64 << 10;
/// Callers that are kept of a node.
const CALLERS: usize = 96;

/// What has probably called the runtime, and its callers: files as they are mapped, and places in them behind calls.
pub type Callers = Vec<(PathBuf, u64)>;

/// Names the places where nodes wait, by their callers.
pub type Locate = fn(&[Callers]) -> Vec<Option<String>>;

/// The same of whoever knows more.
pub type Locator<'x> = &'x dyn Fn(&[Callers]) -> Vec<Option<String>>;

/// A node that sleeps in the runtime.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sleeper {
    pub node: u32,
    pub waiting: NodeWait,
    /// Where in the program, if another host has looked.
    pub place: Option<String>,
}

/// What is seen of the nodes of a host. Those that have ended are left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Sight {
    pub sleepers: Vec<Sleeper>,
    pub awake: Option<u32>,
}

impl Sight {
    /// Looks at the nodes that this process has started.
    pub fn of(own: OwnNodes, region: &RegionFile) -> Sight {
        let mut sight = Sight::default();
        let running = (own.first..).zip(own.nodes).filter(|(_, node)| node.pid.is_some() && node.ended.is_none());
        for (node, _) in running {
            // Behind one that is awake it matters only since when.
            match asleep(region, node, if sight.awake.is_none() { LOOKS } else { 1 }) {
                Some(waiting) => sight.sleepers.push(Sleeper { node, waiting, place: None }),
                None => sight.awake = sight.awake.or(Some(node)),
            }
        }
        sight
    }
}

/// A node of a run that is stuck.
#[derive(Debug, Clone)]
pub struct StuckNode {
    pub node: u32,
    /// Its host, in a run on several.
    pub host: Option<String>,
    pub waiting: NodeWait,
    /// How long it has waited.
    pub since: Duration,
    pub callers: Callers,
    /// Where in the program, if that is known already.
    pub place: Option<String>,
}

/// Watches a run.
#[derive(Debug)]
pub struct StuckWatch {
    /// None: nobody wants to know.
    limit: Option<Duration>,
    /// What each node waited for when it was last seen to wait, and since when.
    seen: Vec<Option<(NodeWait, Instant)>>,
    /// Since when all nodes have waited and none has been told anything.
    quiet: Instant,
}

impl StuckWatch {
    /// Of so many nodes. One alone has nobody to wait for.
    pub fn new(nodes: usize, limit: Duration) -> StuckWatch {
        StuckWatch {
            limit: Some(limit).filter(|limit| nodes > 1 && !limit.is_zero()),
            seen: vec![None; nodes],
            quiet: Instant::now(),
        }
    }

    /// How long the launcher may sleep until the next look.
    pub fn look_again(&self) -> Option<Duration> {
        self.limit.map(|limit| (limit / 4).max(Duration::from_millis(10)))
    }

    /// A look at all nodes of a run on one host. What they wait for, if the run is stuck.
    pub fn look(&mut self, own: OwnNodes, region: &RegionFile) -> Option<Vec<StuckNode>> {
        self.limit?;
        let stuck = self.judge([&Sight::of(own, region)])?;
        let with_callers = |node: StuckNode| StuckNode { callers: callers(own, node.node, &node.waiting), ..node };
        Some(stuck.into_iter().map(with_callers).collect())
    }

    /// What was seen at all nodes of the run, host by host. What they wait for, if each has waited for as long as it takes.
    pub fn judge<'x>(&mut self, sights: impl IntoIterator<Item = &'x Sight>) -> Option<Vec<StuckNode>> {
        let limit = self.limit?;
        let now = Instant::now();
        let (mut stuck, mut all_wait, mut is_quiet) = (Vec::new(), true, true);
        for sight in sights {
            all_wait &= sight.awake.is_none();
            for Sleeper { node, waiting, place } in &sight.sleepers {
                let seen = self.seen.get_mut(*node as usize)?;
                let before = seen.take().filter(|(before, _)| waiting.goes_on_since(before));
                is_quiet &= before.as_ref().is_some_and(|(before, _)| before == waiting);
                let since = before.map_or(now, |(_, since)| since);
                *seen = Some((waiting.clone(), since));
                let (waiting, since, place) = (waiting.clone(), now.duration_since(since), place.clone());
                stuck.push(StuckNode { node: *node, host: None, waiting, since, callers: Callers::new(), place });
            }
        }
        if !all_wait || !is_quiet {
            self.quiet = now;
        }
        (!stuck.is_empty() && now.duration_since(self.quiet) >= limit).then_some(stuck)
    }
}

/// What a node waits for, if it sleeps in the runtime and nobody has rung, at one of so many looks.
fn asleep(region: &RegionFile, number: u32, looks: u32) -> Option<NodeWait> {
    for look in 0..looks {
        let waiting = region.waiting(number);
        if matches!(waiting.activity, activity::RUNNING | activity::KERNEL | activity::CALLED) {
            return None;
        }
        if waiting.activity == activity::SLEEPING && !waiting.is_rung {
            return (waiting.what != waits::UNKNOWN && waiting.timers == 0).then_some(waiting);
        }
        if look + 1 < looks {
            std::thread::sleep(BETWEEN);
        }
    }
    None
}

/// What has called the runtime in a node that sleeps, and its callers.
pub fn callers(own: OwnNodes, number: u32, waiting: &NodeWait) -> Callers {
    let node = own.nodes.get(number.wrapping_sub(own.first) as usize);
    node.and_then(|node| callers_of(node.pid?, waiting.stack_top)).unwrap_or_default()
}

/// Places behind calls on the program's stack, the innermost first: the node's own stack begins with where that one was, and from there on frame information
/// finds them. Behind them stands what else reads as one, for frames that are found by a register that is not known.
fn callers_of(pid: Pid, top: u64) -> Option<Callers> {
    let memory = ProcessMemory::of(pid)?;
    let here = memory.word(top.checked_sub(KEPT_BEFORE_END)?)?;
    let stack_end = memory.mapping(here)?.end;
    let found = memory.words(here, STACK_BYTES.min(stack_end - here))?;
    let place = |at: u64| memory.file_at(at).filter(|_| unwind::follows_call(&memory, at));
    let frames = unwind::frames_of_frame(&memory, here).unwrap_or_default();
    Some(
        frames
            .into_iter()
            .filter_map(|frame| frame.file)
            .chain(found.iter().filter_map(|&at| place(at)))
            .take(CALLERS)
            .collect(),
    )
}
