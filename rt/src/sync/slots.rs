//! Publish slots: how nodes tell each other where shared data is.
//!
//! Purpose: node 0 keeps the slots. A lookup of an empty slot waits in a bit set and is answered by the publish.
//! **Invariant**: see the parent module's.

use super::{Has, Waits, bit, members};
use crate::kernel::own_memory::Table;
use crate::kernel::sys;
use crate::messages::{id, is_publish_slot};
use crate::node::Node;
use crate::node::stats::Wait;
use crate::transport::message::Message;
use blizzard_contract::{Counter, PUBLISH_SLOTS};
use blizzard_protocol::ids::NodeId;

/// The slots, used on node 0.
pub struct Slots {
    values: Table<u64>,
    /// By slot, 1 when it is published, and who waits until it is.
    published: Table<u64>,
    waiters: Table<u64>,
}

impl Slots {
    pub fn new() -> sys::Result<Slots> {
        let table = || Table::new(PUBLISH_SLOTS.into());
        Ok(Slots { values: table()?, published: table()?, waiters: table()? })
    }
}

/// Calls of the program.
impl Node {
    /// Stores a pointer in a slot, for those who wait for it too. Returns when node 0 has done it: a node that hears of it from this one, by
    /// whatever way, finds this pointer and none from before.
    pub fn publish(&mut self, slot: u64, value: u64) {
        self.check_slot("bz_publish", slot);
        let manager = self.manager();
        let put = Message { handler: id::PUBLISH, args: [slot, value, 0], key: slot, ..Message::default() };
        self.call(manager, put, id::PUBLISHED, Wait::Other);
    }

    /// Waits until the slot has been published; returns its pointer.
    pub fn lookup(&mut self, slot: u64) -> u64 {
        self.check_slot("bz_lookup", slot);
        let manager = self.manager();
        let ask = Message { handler: id::LOOKUP, args: [slot, 0, 0], key: slot, ..Message::default() };
        self.call(manager, ask, id::LOOKED_UP, Wait::Other).args[0]
    }

    fn check_slot(&self, function: &str, slot: u64) {
        if !is_publish_slot(slot) {
            self.fail(format_args!("{function}: slot {slot} is not below {PUBLISH_SLOTS}"));
        }
    }
}

/// `args`: slot, pointer. Answered when it is done.
pub fn on_publish(node: &mut Node, from: NodeId, message: &Message) {
    let [slot, value, _] = message.args;
    if !is_publish_slot(slot) {
        return node.count(Counter::MessagesRejected);
    }
    let waiters = node.sync.slots.waiters.get(slot);
    node.sync.slots.values.set(slot, value);
    node.sync.slots.waiters.set(slot, 0);
    node.sync.slots.published.set(slot, 1);
    for to in members(waiters) {
        answer_lookup(node, to, slot, value);
    }
    node.send(from, Message { handler: id::PUBLISHED, key: slot, ..Message::default() });
}

/// `args[0]`: slot. Answered when it is published: `args[0]`: its pointer.
pub fn on_lookup(node: &mut Node, from: NodeId, message: &Message) {
    let slot = message.args[0];
    if !is_publish_slot(slot) {
        return node.count(Counter::MessagesRejected);
    }
    if node.sync.slots.published.get(slot) != 0 {
        let value = node.sync.slots.values.get(slot);
        answer_lookup(node, from, slot, value);
    } else {
        let waiters = node.sync.slots.waiters.get(slot);
        node.sync.slots.waiters.set(slot, waiters | bit(from));
        check_waiters(node, slot);
    }
}

fn answer_lookup(node: &mut Node, to: NodeId, slot: u64, value: u64) {
    node.send(to, Message { handler: id::LOOKED_UP, args: [value, 0, 0], key: slot, ..Message::default() });
}

fn check_waiters(node: &Node, slot: u64) {
    let waiters = node.sync.slots.waiters.get(slot);
    let exited = node.sync.exited;
    if waiters != 0 && exited != 0 && (waiters | exited).count_ones() == node.participants() {
        node.fail(format_args!(
            "{} in bz_lookup for slot {slot}, but {} exited: nobody is left to publish it",
            Waits(waiters),
            Has(exited)
        ));
    }
}

/// After an exit: a wait that can never end, ends the run.
pub fn check_slots(node: &Node) {
    if node.me == node.manager() {
        for slot in 0..PUBLISH_SLOTS.into() {
            check_waiters(node, slot);
        }
    }
}
