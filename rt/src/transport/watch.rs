//! Watching the peers while this node waits for them.
//!
//! Purpose: a node that is asleep in code without polls is called, one that is dead or stopped is found. Input: what a peer says in its context page.
//! Output: signals, and [`Transport::silent`] and [`Transport::damaged`] for the node to report.

use super::{Peer, Transport, call};
use crate::kernel::sys;
use blizzard_contract::activity;
use blizzard_protocol::ids::NodeId;
use core::sync::atomic::Ordering;

/// A node calls a peer that leaves its doorbell unanswered at most so often.
pub(super) const CALL_EVERY_NS: u64 = 2_000_000;

/// More time than this between two looks counts as so much: the node did not run for the rest, nor its machine, perhaps.
const MOST_BETWEEN_NS: u64 = 250_000_000;

/// Time in which this node can have seen its peers run.
#[derive(Clone, Copy, Default)]
pub(super) struct Attention {
    looked_ns: u64,
    sum_ns: u64,
}

impl Attention {
    /// A look at that time: how much has passed in all.
    fn look(&mut self, now_ns: u64) -> u64 {
        let between = now_ns.saturating_sub(core::mem::replace(&mut self.looked_ns, now_ns));
        self.sum_ns += between.min(MOST_BETWEEN_NS);
        self.sum_ns
    }
}

/// What this node has seen of a peer's life, in times of its [`Attention`].
#[derive(Clone, Copy, Default)]
pub(super) struct Watch {
    /// The peer's beat when last looked at, and since when it has stood there although the peer owes one.
    beat: u32,
    owed_since_ns: u64,
    called_ns: u64,
}

/// A peer that has not answered for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent {
    pub node: NodeId,
    pub pid: u32,
    pub for_ms: u64,
}

impl Transport {
    /// The peer that [`Transport::idle`] has found silent for too long.
    pub const fn silent(&self) -> Option<Silent> {
        self.silent
    }

    /// The peer to or from which [`Transport::idle`] has found a ring overwritten.
    pub const fn damaged(&self) -> Option<NodeId> {
        self.damaged
    }

    /// Looks at the peers: calls those that leave their doorbell unanswered, and notes one that has not shown a sign of life for too long
    /// although it owes one. A node owes a beat while it waits for messages itself, and while its doorbell is set. True when a peer's
    /// doorbell is unanswered: then this node looks again soon.
    #[cold]
    pub(super) fn watch(&mut self) -> bool {
        self.unwatched = 0;
        let now = self.attention.look(sys::monotonic_ns());
        let limit_ms = u64::from(self.region.header().peer_timeout_ms);
        let mut unanswered = false;
        for (number, peer) in self.peers.iter_mut().enumerate() {
            let Some(Peer { watch, context, link, .. }) = peer else { continue };
            if !link.is_sound() {
                self.damaged = NodeId::new(number as u32);
            }
            let doing = context.activity().load(Ordering::Relaxed);
            let rung = context.poll().load(Ordering::Relaxed) != 0;
            let beat = context.beat().load(Ordering::Relaxed);
            let pid = context.pid().load(Ordering::Relaxed);
            let owes = rung || matches!(doing, activity::SPINNING | activity::SLEEPING);
            if !owes || beat != watch.beat || doing == activity::GONE || pid == 0 {
                *watch = Watch { beat, owed_since_ns: now, ..*watch };
                continue;
            }
            let for_ms = now.saturating_sub(watch.owed_since_ns) / 1_000_000;
            if limit_ms != 0 && for_ms >= limit_ms {
                self.silent = NodeId::new(number as u32).map(|node| Silent { node, pid, for_ms });
            }
            if rung && matches!(doing, activity::RUNNING | activity::KERNEL | activity::CALLED) {
                unanswered = true;
                // Less and less often: a node that computes answers at its next poll in any case.
                let pause_ns = CALL_EVERY_NS.max(now.saturating_sub(watch.owed_since_ns) / 2);
                if now.saturating_sub(watch.owed_since_ns) >= CALL_EVERY_NS
                    && now.saturating_sub(watch.called_ns) >= pause_ns
                {
                    watch.called_ns = now;
                    call(pid);
                }
            }
        }
        unanswered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stops of the machine, each of nearly a second, are no second in which a peer could have answered.
    #[test]
    fn what_this_node_missed_is_not_held_against_its_peers() {
        let mut attention = Attention::default();
        let begin = attention.look(1 << 50);
        let mut now = 1 << 50;
        for _ in 0..3 {
            now += 950_000_000;
            attention.look(now);
        }
        assert_eq!(attention.look(now) - begin, 3 * MOST_BETWEEN_NS);
        for _ in 0..20 {
            now += 50_000_000;
            attention.look(now);
        }
        assert_eq!(attention.look(now) - begin, 3 * MOST_BETWEEN_NS + 1_000_000_000);
    }
}
