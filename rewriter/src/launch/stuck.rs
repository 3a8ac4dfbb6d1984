//! Whether a run is stuck: every node waits for the others, and none is told anything.
//!
//! Purpose: a deadlock is said, with what each node waits for, instead of hanging without a word. Input: the nodes' context pages, again and again.
//! Output: [`StuckNode`]s, when nothing has changed for long enough.
//!
//! **Invariant**: a run that could go on is never taken for stuck. Each node sleeps in the runtime until a message comes; no doorbell is rung, so no message
//! is on its way to a sleeper; no timer of the program is running. A node that computes, or that waits in a system call for the outside world, does not
//! sleep in the runtime. How long that must have been so is the user's choice, and not what makes it true.

use crate::launch::crashes::process_memory::ProcessMemory;
use crate::launch::crashes::unwind;
use crate::launch::region::{Region, Waiting};
use crate::launch::spawn::Node;
use blizzard_contract::{activity, waits};
use rustix::process::Pid;
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

/// A node of a run that is stuck.
#[derive(Debug, Clone)]
pub struct StuckNode {
    pub node: u32,
    pub waiting: Waiting,
    /// How long it has waited.
    pub since: Duration,
    /// What has probably called the runtime, and its callers: files as they are mapped, and places in them behind calls.
    pub callers: Vec<(PathBuf, u64)>,
}

/// Watches a run.
#[derive(Debug)]
pub struct Watch {
    /// None: nobody wants to know.
    limit: Option<Duration>,
    /// What each node waited for when it was last seen to wait, and since when.
    seen: Vec<Option<(Waiting, Instant)>>,
    /// Since when all nodes have waited and none has been told anything.
    quiet: Instant,
}

impl Watch {
    /// Of so many nodes. One alone has nobody to wait for.
    pub fn new(nodes: usize, limit: Duration) -> Watch {
        Watch {
            limit: Some(limit).filter(|limit| nodes > 1 && !limit.is_zero()),
            seen: vec![None; nodes],
            quiet: Instant::now(),
        }
    }

    /// How long the launcher may sleep until the next look.
    pub fn look_again(&self) -> Option<Duration> {
        self.limit.map(|limit| (limit / 4).max(Duration::from_millis(10)))
    }

    /// A look at all nodes. What they wait for, if the run is stuck.
    pub fn look(&mut self, nodes: &[Node], region: &Region) -> Option<Vec<StuckNode>> {
        let limit = self.limit?;
        let now = Instant::now();
        let (mut stuck, mut all_wait, mut is_quiet) = (Vec::new(), true, true);
        for (number, node) in (0u32..).zip(nodes) {
            let Some(pid) = node.pid.filter(|_| node.ended.is_none()) else { continue };
            // Behind one that is awake it matters only since when.
            let Some(waiting) = asleep(region, number, if all_wait { LOOKS } else { 1 }) else {
                all_wait = false;
                continue;
            };
            let seen = &mut self.seen[number as usize];
            let before = seen.take().filter(|(before, _)| waiting.goes_on_since(before));
            is_quiet &= before.as_ref().is_some_and(|(before, _)| *before == waiting);
            let since = before.map_or(now, |(_, since)| since);
            *seen = Some((waiting.clone(), since));
            stuck.push((number, pid, waiting, now.duration_since(since)));
        }
        if !all_wait || !is_quiet {
            self.quiet = now;
        }
        if stuck.is_empty() || now.duration_since(self.quiet) < limit {
            return None;
        }
        let described = stuck.into_iter().map(|(node, pid, waiting, since)| {
            let callers = callers(pid, waiting.stack_top).unwrap_or_default();
            StuckNode { node, waiting, since, callers }
        });
        Some(described.collect())
    }
}

/// What a node waits for, if it sleeps in the runtime and nobody has rung, at one of so many looks.
fn asleep(region: &Region, number: u32, looks: u32) -> Option<Waiting> {
    for look in 0..looks {
        let waiting = region.waiting(number);
        if matches!(waiting.activity, activity::RUNNING | activity::KERNEL | activity::CALLED) {
            return None;
        }
        if waiting.activity == activity::SLEEPING && !waiting.is_rung {
            return (waiting.what != waits::UNKNOWN).then_some(waiting);
        }
        if look + 1 < looks {
            std::thread::sleep(BETWEEN);
        }
    }
    None
}

/// Places behind calls on the program's stack, the innermost first: the node's own stack begins with where that one was, and from there on frame information
/// finds them. Behind them stands what else reads as one, for frames that are found by a register that is not known.
fn callers(pid: Pid, top: u64) -> Option<Vec<(PathBuf, u64)>> {
    let memory = ProcessMemory::of(pid)?;
    let here = memory.word(top.checked_sub(KEPT_BEFORE_END)?)?;
    let stack_end = memory.mapping(here)?.end;
    let found = memory.words(here, STACK_BYTES.min(stack_end - here))?;
    let is_behind_call = |at: u64| {
        let mut code = [0; 8];
        if memory.read(at.wrapping_sub(8), &mut code).is_none() {
            return false;
        }
        // SDM volume 2, CALL: direct, or through a register or memory.
        let is_indirect = |length: usize| code[8 - length] == 0xff && code[9 - length] >> 3 & 7 == 2;
        code[3] == 0xe8 || (2..=7).any(is_indirect)
    };
    let place = |at: u64| memory.file_at(at).filter(|_| is_behind_call(at));
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
