//! All orders in which a few real nodes can receive messages.
//!
//! Purpose: the models of `rt/protocol/tests/steps` run the protocols' step functions; here the [`Node`](super::Node) itself runs, with its drivers, rings, tables and
//! allocators, and only the order is chosen: who runs next, and whose message it takes. So it covers what lives in the drivers: replacement, requests
//! ahead, homes by first touch, blocks in parts, bulk transfers, nodes that are created, memory of system calls.
//! Input: a [`Model`]: how many nodes, what they have allocated, and a script of few [`Op`]s each. Output: a [`Report`], or what was [`Found`].
//!
//! # How it works
//!
//! Each node runs on a [`fiber`]. Wherever it looks for a message ([`at_receive`]) it pauses, and the search chooses: one of the peers whose message is there, or,
//! where the node does not wait, none. A node's state cannot be copied, so the search goes back by starting again and repeating the choices (stateless
//! search). A state is named by the choices that each node has made (a node does the same when it gets the same messages, and channels keep the order), and by the
//! values of the variables. Choices of different nodes that do not influence each other thus lead to the same state, which is explored once.
//!
//! # What is looked for
//!
//! After each step: no node has failed or rejected a message; who may load from a variable finds the latest value; nobody may do so beside one who may
//! store; the kernel uses no memory that its node has not got. At each end: nobody waits, and nothing is left to do.
//! Source: Godefroid, Model Checking for Programming Languages using VeriSoft, 1997.
//!
//! **Invariants**: nothing that an explored node does depends on time or on addresses of this process: where time counts, the search chooses
//! ([`has_time_passed`]). What a node reads of memory that others write, besides its rings, is added to its history ([`note`]).

pub mod fiber;
mod models;
mod search;
mod tests;
mod world;

use crate::tempest;
use blizzard_protocol::ids::NodeId;
use core::cell::Cell;
use world::{Choice, Status, World};

thread_local! {
    /// The nodes that this thread explores.
    static WORLD: Cell<*const World> = const { Cell::new(core::ptr::null()) };
    /// The next look for a message need not find one.
    static OPTIONAL: Cell<bool> = const { Cell::new(false) };
}

/// The nodes that this thread explores, if it does.
fn world<'a>() -> Option<&'a World> {
    // SAFETY: `World::enter` sets it to a world that stays where it is until it is set again.
    unsafe { WORLD.get().as_ref() }
}

/// Whether this thread explores.
pub fn is_active() -> bool {
    !WORLD.get().is_null()
}

/// Where a node is to look for a message.
pub enum Look {
    /// Wherever it likes: nothing is explored.
    Anywhere,
    At(NodeId),
    /// It finds nothing.
    Nowhere,
}

/// The next look of this node is one that may find nothing: it does not wait.
pub fn look_is_optional() {
    OPTIONAL.set(true);
}

/// Node `me` looks for a message.
pub fn at_receive(me: NodeId) -> Look {
    let optional = OPTIONAL.replace(false);
    let Some(world) = world() else { return Look::Anywhere };
    match world.pause(me, if optional { Status::Looks } else { Status::Waits }) {
        Choice::Take(from) => Look::At(from),
        _ => Look::Nowhere,
    }
}

/// Adds something that node `me` has read, besides messages, to its history.
pub fn note(me: NodeId, what: u64) {
    if let Some(world) = world() {
        world.note(me, what);
    }
}

/// The state of `tempest.h` on the node that runs now, if nodes are explored that use it.
pub fn tempest<'a>() -> Option<&'a mut tempest::State> {
    world()?.tempest()
}

/// Whether as much time has passed as the node that runs now waits before it does something else; `None` where nothing is explored.
pub fn has_time_passed() -> Option<bool> {
    Some(world()?.has_time_passed())
}
