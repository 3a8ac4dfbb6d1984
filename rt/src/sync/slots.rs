//! Publish slots: how nodes tell each other where shared data is.
//!
//! Purpose: node 0 keeps the slots. A lookup of an empty slot waits in a set and is answered by the publish.
//! **Invariant**: a wait that can never end because a node has exited ends the run: see [`crate::sync::state`].

use crate::kernel::own_memory::KernelTable;
use crate::kernel::sys;
use crate::links::links::Links;
use crate::messages::kinds::{id, is_publish_slot};
use crate::sync::sets::{Has, Waits};
use crate::transport::message::Message;
use blizzard_contract::{Counter, PUBLISH_SLOTS};
use blizzard_protocol::ids::{NodeId, NodeSet};

/// The slots, used on node 0.
pub struct Slots {
    values: KernelTable<u64>,
    /// By slot, 1 when it is published, and who waits until it is.
    published: KernelTable<u64>,
    waiters: KernelTable<NodeSet>,
}

impl Slots {
    pub fn new() -> sys::Result<Slots> {
        let slots = PUBLISH_SLOTS.into();
        Ok(Slots {
            values: KernelTable::new(slots)?,
            published: KernelTable::new(slots)?,
            waiters: KernelTable::new(slots)?,
        })
    }
}

/// `args`: slot, pointer. Answered when it is done.
pub fn on_publish(slots: &mut Slots, links: &mut Links, from: NodeId, message: &Message) {
    let [slot, value, _] = message.args;
    if !is_publish_slot(slot) {
        return links.count(Counter::MessagesRejected);
    }
    let waiters = slots.waiters.get(slot);
    slots.values.set(slot, value);
    slots.waiters.set(slot, NodeSet::EMPTY);
    slots.published.set(slot, 1);
    for to in waiters.iter() {
        answer_lookup(links, to, slot, value);
    }
    links.post(from, Message { handler: id::PUBLISHED, key: slot, ..Message::default() });
}

/// `args[0]`: slot. Answered when it is published: `args[0]`: its pointer.
pub fn on_lookup(slots: &mut Slots, links: &mut Links, from: NodeId, message: &Message) {
    let slot = message.args[0];
    if !is_publish_slot(slot) {
        return links.count(Counter::MessagesRejected);
    }
    if slots.published.get(slot) != 0 {
        let value = slots.values.get(slot);
        answer_lookup(links, from, slot, value);
    } else {
        let waiters = slots.waiters.get(slot);
        slots.waiters.set(slot, waiters.with(from));
        check_waiters(slots, links, slot);
    }
}

fn answer_lookup(links: &mut Links, to: NodeId, slot: u64, value: u64) {
    links.post(to, Message { handler: id::LOOKED_UP, args: [value, 0, 0], key: slot, ..Message::default() });
}

fn check_waiters(slots: &Slots, links: &Links, slot: u64) {
    let waiters = slots.waiters.get(slot);
    let exited = links.members.exited;
    let waits = !waiters.is_empty() && !exited.is_empty();
    if waits && waiters.union(exited).len() == links.participants() as usize {
        links.fail(format_args!(
            "{} in bz_lookup for slot {slot}, but {} exited: nobody is left to publish it",
            Waits(waiters),
            Has(exited)
        ));
    }
}

/// After an exit: a wait that can never end, ends the run.
pub fn check_slots(slots: &Slots, links: &Links) {
    if links.me == links.manager() {
        for slot in 0..PUBLISH_SLOTS.into() {
            check_waiters(slots, links, slot);
        }
    }
}
