//! What the nodes of a run do to agree: the program's synchronisation, by messages, never through shared memory.
//!
//! Purpose: this module has what the parts share: sets of nodes, the end of a node's computation. Input: calls of the
//! program and messages; output: answers that end the callers' waits.
//!
//! * [`collective`]: barriers of all nodes, reductions, broadcasts. * [`lock`]: locks.
//! * [`group`]: barriers of some nodes, events. * [`remote`]: fetch-and-op, counters, remote writes. * [`slots`]: publish and lookup.
//! * [`op`]: what is computed. * [`handle`]: how programs hold an object.
//!
//! **Invariant**: a wait that can never end because a node has exited ends the run with an error that names the nodes. Such
//! a wait is found by whoever would end it, when it begins or when the exit is announced.

pub mod collective;
pub mod group;
pub mod handle;
pub mod lock;
#[cfg(test)]
mod models;
pub mod op;
pub mod remote;
pub mod slots;

use crate::kernel::own_memory::Queue;
use crate::kernel::sys;
use crate::messages::id;
use crate::node::Node;
use crate::node::stats::Wait;
use crate::transport::message::Message;
use blizzard_contract::MAX_NODES;
use blizzard_protocol::ids::NodeId;
pub use collective::Collective;
use collective::Collectives;
use core::fmt;
use group::{Event, GroupBarrier};
use lock::Lock;
use slots::Slots;

/// A set of nodes that prints as `node 1` or `nodes 0, 2`.
pub struct Names(pub u64);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.count_ones() == 1 { "node" } else { "nodes" })?;
        let mut separator = " ";
        for number in (0..MAX_NODES).filter(|number| self.0 >> number & 1 == 1) {
            write!(f, "{separator}{number}")?;
            separator = ", ";
        }
        Ok(())
    }
}

fn bit(node: NodeId) -> u64 {
    1 << node.index()
}

/// The nodes of a set, in ascending order.
fn members(nodes: u64) -> impl Iterator<Item = NodeId> {
    (0..MAX_NODES as u32).filter(move |number| nodes >> number & 1 != 0).filter_map(NodeId::new)
}

/// Prints as `node 1 waits` or `nodes 0, 2 wait`.
struct Waits(u64);

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Names(self.0), if self.0.count_ones() == 1 { "waits" } else { "wait" })
    }
}

/// Prints as `node 1 has` or `nodes 0, 2 have`.
struct Has(u64);

impl fmt::Display for Has {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Names(self.0), if self.0.count_ones() == 1 { "has" } else { "have" })
    }
}

/// The synchronisation state of one node.
pub struct Sync {
    pub collectives: Collectives,
    /// Objects that this node manages.
    locks: Queue<Lock>,
    barriers: Queue<GroupBarrier>,
    events: Queue<Event>,
    counters: Queue<u64>,
    /// Nodes that this one has written to since its last fence.
    written: u64,
    slots: Slots,
    /// Nodes that have exited.
    pub exited: u64,
    /// All nodes that will have exited in the end, once it is known.
    everyone: Option<u64>,
}

impl Sync {
    pub fn new() -> sys::Result<Sync> {
        Ok(Sync {
            collectives: Collectives::new(),
            locks: Queue::new(),
            barriers: Queue::new(),
            events: Queue::new(),
            counters: Queue::new(),
            written: 0,
            slots: Slots::new()?,
            exited: 0,
            everyone: None,
        })
    }

    /// Whether every node of the run has exited.
    fn all_exited(&self) -> bool {
        self.everyone.is_some_and(|everyone| self.exited & everyone == everyone)
    }

    /// How many nodes other than node 0 have exited.
    pub fn ended(&self) -> u32 {
        (self.exited & !1).count_ones()
    }
}

impl Node {
    /// Tells all nodes that this one computes no more, and serves them until they say the same. Node 0 also tells how many nodes there are:
    /// once it has exited, no more are created.
    ///
    /// First it waits for the blocks that it has asked for ahead: whoever still had to send them when this node had gone could not, and would wait
    /// for ever for room in a ring that nobody reads.
    pub fn finish(&mut self) {
        self.wait(Wait::Other, |node| !node.engine.has_outstanding());
        let participants = u64::from(self.participants());
        for to in (0..self.homes.nodes()).filter_map(NodeId::new) {
            self.send(to, Message { handler: id::EXITED, args: [participants, 0, 0], ..Message::default() });
        }
        self.wait(Wait::Other, |node| node.sync.all_exited() && node.transport.is_drained());
    }
}

/// The sender computes no more. `args[0]`, from node 0: how many nodes there are.
pub fn on_exited(node: &mut Node, from: NodeId, message: &Message) {
    node.sync.exited |= bit(from);
    if from == node.manager() {
        let all = u64::MAX >> (64 - message.args[0].clamp(1, MAX_NODES as u64));
        node.sync.everyone = Some(all);
    }
    collective::check_collective(node);
    lock::check_locks(node);
    group::check_groups(node);
    slots::check_slots(node);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_nodes_read_well() {
        assert_eq!(Waits(2).to_string(), "node 1 waits");
        assert_eq!(Has(0x8000_0000_0000_0005).to_string(), "nodes 0, 2, 63 have");
    }
}
