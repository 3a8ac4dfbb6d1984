//! What a node keeps to synchronise with the others, and what becomes of it when one exits.
//!
//! Input: the announcement that a node exits. Output: [`Sync`], or the error that ends the run.
//!
//! **Invariant**: a wait that can never end because a node has exited ends the run with an error that names the nodes. Such
//! a wait is found by whoever would end it, when it begins or when the exit is announced.

use crate::kernel::sys;
use crate::links::links::Links;
use crate::sync::collective::{self, Collectives};
use crate::sync::group::{self, Groups};
use crate::sync::lock::{self, Locks};
use crate::sync::remote::ManagedCounters;
use crate::sync::slots::{self, Slots};
use crate::transport::message::Message;
use blizzard_protocol::ids::NodeId;

/// The synchronisation state of one node.
pub struct Sync {
    pub collectives: Collectives,
    pub locks: Locks,
    pub groups: Groups,
    pub counters: ManagedCounters,
    pub slots: Slots,
}

impl Sync {
    /// The state of a node of a run of so many.
    ///
    /// # Errors
    /// The kernel's, when it gives no address space.
    pub fn new(nodes: u32) -> sys::Result<Sync> {
        Ok(Sync {
            collectives: Collectives::new(nodes)?,
            locks: Locks::new(nodes)?,
            groups: Groups::new(),
            counters: ManagedCounters::new(),
            slots: Slots::new()?,
        })
    }
}

/// The sender computes no more. `args[0]`, from node 0: how many nodes there are.
pub fn on_exited(sync: &mut Sync, links: &mut Links, from: NodeId, message: &Message) {
    let everyone = (from == links.manager()).then_some(message.args[0]);
    links.members.note_exit(from, everyone);
    collective::check_collective(&sync.collectives, links);
    lock::check_locks(&sync.locks, links);
    group::check_groups(&sync.groups, links);
    slots::check_slots(&sync.slots, links);
}
