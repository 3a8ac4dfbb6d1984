//! Whether those run whom a node may be waiting for.
//!
//! Purpose: a node that spins while its peers run gets the answer soonest, and takes a processor from nobody. One that spins while a peer waits for a processor
//! makes it wait longer. So a wait that has been in vain for a while looks, with longer and longer pauses: [`Company::look`]. Input: what the peers do, and how much
//! processor time they and this node have had since the look before. Output: whether to go on.
//!
//! * A peer that sleeps, is in the kernel or has gone has nothing to do: it will say nothing.
//! * A peer that waits by looking beats ([`PeerState::beat`]): no system call.
//! * A peer that computes is asked for by its processor time, one system call. What this node has had itself is the measure: so it is seen, too, when this
//!   node had to wait for its processor, which then somebody else needs.
//!
//! **Invariant**: nothing but time depends on it.

use crate::kernel::own_memory::Slice;
use crate::kernel::sys;
use crate::transport::interface::PeerState;
use blizzard_contract::activity;

/// Peers whose processor time is asked for in one look: a look is to be short.
const MOST_ASKED: u32 = 4;
/// Two clocks are read one after the other.
const SLACK_NS: u64 = 1_500;
/// A peer that was just woken has so much of this node's processor time to come to its processor.
const WAKING_NS: u64 = 50_000;

/// What was seen of a peer, or of this node.
#[derive(Clone, Copy, Default)]
struct Seen {
    beat: u32,
    time_ns: u64,
    /// The wait whose look that was.
    wait: u32,
}

/// What one node knows of the others.
pub struct Company {
    own_ns: u64,
    began_ns: u64,
    wait: u32,
    seen: Slice<Seen>,
}

/// What one look has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeersSeen {
    /// Who has something to do runs, as far as can be seen.
    Runs,
    /// A peer has something to do and no processor, or this node had none, or nobody has anything to do.
    Waits,
}

impl Company {
    /// For so many nodes.
    ///
    /// # Errors
    /// The kernel's, when it gives no memory.
    pub fn new(nodes: usize) -> sys::Result<Company> {
        Ok(Company { own_ns: 0, began_ns: 0, wait: 0, seen: Slice::new(nodes, |_| Seen::default())? })
    }

    /// A look at the peers: their numbers and what they show. `first`: of this wait.
    pub fn look(&mut self, first: bool, peers: impl Iterator<Item = (usize, PeerState)>) -> PeersSeen {
        let own_ns = sys::processor_time_ns(sys::OWN_PROCESS).unwrap_or(0);
        self.judge(first, own_ns, peers, sys::processor_time_ns)
    }

    fn judge(
        &mut self,
        first: bool,
        own_ns: u64,
        peers: impl Iterator<Item = (usize, PeerState)>,
        time_of: impl Fn(u32) -> Option<u64>,
    ) -> PeersSeen {
        if first {
            self.wait = self.wait.wrapping_add(1);
            self.began_ns = own_ns;
        }
        let own = own_ns.saturating_sub(core::mem::replace(&mut self.own_ns, own_ns));
        let (mut busy, mut asked) = (0, 0);
        for (number, peer) in peers {
            match peer.doing {
                activity::RUNNING | activity::SPINNING => {}
                // Its process comes to its processor soon, or somebody else has it.
                activity::SLEEPING if peer.is_rung && own_ns.saturating_sub(self.began_ns) < WAKING_NS => {
                    busy += 1;
                    continue;
                }
                _ => continue,
            }
            busy += 1;
            let before = self.seen[number];
            let seen = &mut self.seen[number];
            (seen.beat, seen.wait) = (peer.beat, self.wait);
            if peer.beat != before.beat && before.wait == self.wait {
                continue;
            }
            if asked == MOST_ASKED {
                continue;
            }
            asked += 1;
            let Some(time_ns) = Some(peer.pid).filter(|&pid| pid != sys::OWN_PROCESS).and_then(&time_of) else {
                return PeersSeen::Waits;
            };
            seen.time_ns = time_ns;
            if first || before.wait != self.wait || before.time_ns == 0 {
                continue;
            }
            let its = time_ns.saturating_sub(before.time_ns);
            if !is_like(own, its) {
                return PeersSeen::Waits;
            }
        }
        if busy == 0 { PeersSeen::Waits } else { PeersSeen::Runs }
    }
}

/// Whether two processes have had about as much processor time.
fn is_like(one: u64, other: u64) -> bool {
    let (least, most) = if one < other { (one, other) } else { (other, one) };
    least + most / 4 + SLACK_NS >= most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(beat: u32) -> PeerState {
        PeerState { doing: activity::RUNNING, is_rung: false, beat, pid: 7, processor: 0 }
    }

    /// Looks at one peer after the times of the first and the second; what the last look says.
    fn last(looks: &[(u64, u64, PeerState)]) -> PeersSeen {
        let mut company = Company::new(2).unwrap();
        let mut found = PeersSeen::Waits;
        for (at, &(own, its, peer)) in looks.iter().enumerate() {
            found = company.judge(at == 0, own, [(1, peer)].into_iter(), |_| Some(its));
        }
        found
    }

    #[test]
    fn a_peer_that_computes_beside_this_node_runs() {
        let looks = [(1_000_000, 5_000_000, running(3)), (1_012_000, 5_012_000, running(3))];
        assert_eq!(last(&looks[..1]), PeersSeen::Runs, "nothing is known yet");
        assert_eq!(last(&looks), PeersSeen::Runs);
    }

    #[test]
    fn a_peer_without_a_processor_waits() {
        assert_eq!(last(&[(1_000_000, 5_000_000, running(3)), (1_012_000, 5_000_000, running(3))]), PeersSeen::Waits);
        let spinning = PeerState { doing: activity::SPINNING, ..running(3) };
        assert_eq!(last(&[(1_000_000, 5_000_000, spinning), (1_012_000, 5_000_100, spinning)]), PeersSeen::Waits);
    }

    #[test]
    fn a_node_that_lost_its_processor_sees_it_by_its_peers() {
        assert_eq!(last(&[(1_000_000, 5_000_000, running(3)), (1_012_000, 8_000_000, running(3))]), PeersSeen::Waits);
    }

    #[test]
    fn a_peer_that_looks_is_seen_by_its_beat() {
        let spinning = |beat| PeerState { doing: activity::SPINNING, ..running(beat) };
        assert_eq!(last(&[(1_000_000, 5_000_000, spinning(3)), (1_012_000, 5_000_000, spinning(9))]), PeersSeen::Runs);
    }

    #[test]
    fn sleepers_say_nothing_but_one_that_was_woken() {
        let asleep = |is_rung| PeerState { doing: activity::SLEEPING, is_rung, ..running(3) };
        assert_eq!(last(&[(1_000_000, 0, asleep(false))]), PeersSeen::Waits);
        assert_eq!(last(&[(1_000_000, 0, asleep(true)), (1_012_000, 0, asleep(true))]), PeersSeen::Runs);
        assert_eq!(last(&[(1_000_000, 0, asleep(true)), (1_200_000, 0, asleep(true))]), PeersSeen::Waits);
    }

    #[test]
    fn what_was_seen_in_another_wait_counts_for_nothing() {
        let mut company = Company::new(2).unwrap();
        let mut look = |first, own, its| company.judge(first, own, [(1, running(3))].into_iter(), |_| Some(its));
        assert_eq!(look(true, 1_000_000, 1_000_000), PeersSeen::Runs);
        // It slept for a second, and this node computed.
        assert_eq!(look(true, 900_000_000, 1_000_500), PeersSeen::Runs);
        assert_eq!(look(false, 900_012_000, 1_012_500), PeersSeen::Runs);
    }
}
