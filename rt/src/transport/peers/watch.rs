//! What a node that waits sees of its peers.
//!
//! Purpose: a node that is asleep in code without polls is called, one that is dead or stopped is found. Input: what a peer shows of its life ([`PeerState`]), again
//! and again. Output: a [`PeerVerdict`].

use crate::transport::interface::PeerState;
use blizzard_contract::activity;
use blizzard_protocol::ids::NodeId;

/// A node calls a peer that leaves its doorbell unanswered at most so often. In guarded code it has interrupted the peer before ([`crate::transport::waiting`]);
/// where that was too early it tries again.
pub const CALL_EVERY_NS: u64 = if cfg!(feature = "guard") { 50_000 } else { 2_000_000 };

/// More time than this between two looks counts as so much: the node did not run for the rest, nor its machine, perhaps.
const MOST_BETWEEN_NS: u64 = 250_000_000;

/// Time in which this node can have seen its peers run.
#[derive(Clone, Copy, Default)]
pub struct Attention {
    looked_ns: u64,
    sum_ns: u64,
}

impl Attention {
    /// A look at that time: how much has passed in all.
    pub fn look(&mut self, now_ns: u64) -> u64 {
        let between = now_ns.saturating_sub(core::mem::replace(&mut self.looked_ns, now_ns));
        self.sum_ns += between.min(MOST_BETWEEN_NS);
        self.sum_ns
    }
}

/// A peer that has not answered for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silent {
    pub node: NodeId,
    pub pid: u32,
    pub for_ms: u64,
}

/// What is to be done about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerVerdict {
    Nothing,
    /// Its doorbell is unanswered: look again after so long and, if that is said, call it.
    Unanswered {
        call: bool,
        again_ns: u64,
    },
    /// It has not shown a sign of life for so long although it owes one.
    Silent {
        for_ms: u64,
    },
}

/// What this node has seen of a peer's life, in times of its [`Attention`].
#[derive(Clone, Copy, Default)]
pub struct PeerWatch {
    /// The peer's beat when last looked at, and since when it has stood there although the peer owes one.
    beat: u32,
    owed_since_ns: u64,
    called_ns: u64,
}

impl PeerWatch {
    /// A look at the peer. A node owes a beat while it waits for messages itself, and while its doorbell is set. `limit_ms`: 0 for none.
    pub fn look(&mut self, peer: PeerState, now: u64, limit_ms: u64) -> PeerVerdict {
        let PeerState { doing, is_rung, beat, pid, .. } = peer;
        let owes = is_rung || matches!(doing, activity::SPINNING | activity::SLEEPING);
        if !owes || beat != self.beat || doing == activity::GONE || pid == 0 {
            *self = PeerWatch { beat, owed_since_ns: now, ..*self };
            return PeerVerdict::Nothing;
        }
        let owed_for = now.saturating_sub(self.owed_since_ns);
        if limit_ms != 0 && owed_for / 1_000_000 >= limit_ms {
            return PeerVerdict::Silent { for_ms: owed_for / 1_000_000 };
        }
        if !is_rung || !matches!(doing, activity::RUNNING | activity::KERNEL | activity::CALLED) {
            return PeerVerdict::Nothing;
        }
        // Less and less often: a node that computes answers at its next poll in any case.
        let pause_ns = CALL_EVERY_NS.max(owed_for / 2);
        let call = owed_for >= CALL_EVERY_NS && now.saturating_sub(self.called_ns) >= pause_ns;
        if call {
            self.called_ns = now;
        }
        PeerVerdict::Unanswered { call, again_ns: if cfg!(feature = "guard") { pause_ns } else { CALL_EVERY_NS } }
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
