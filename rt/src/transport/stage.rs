//! Who decides when a node goes on: its thread or, in tests, a director.
//!
//! Purpose: a test that runs several nodes on one thread, each on a stack of its own, chooses who runs next and what it finds. So the same choices give the same run.
//! Input: where a node looks for a message, and where it waits. Output: where it is to look, and time. **Invariant**: outside tests nothing is left of this.

use blizzard_protocol::ids::NodeId;

/// Where a node is to look for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Wherever it likes.
    Anywhere,
    At(NodeId),
    /// It finds nothing.
    Nowhere,
}

#[cfg(test)]
pub use directed::*;

#[cfg(test)]
mod directed {
    use crate::transport::stage::Look;
    use blizzard_protocol::ids::NodeId;
    use std::cell::Cell;

    /// What directs the nodes of a thread.
    pub trait Director {
        /// Node `me` looks for a message. It may find none and go on, or it waits for one.
        fn look(&self, me: NodeId, is_optional: bool) -> Look;

        /// Node `me` has found nothing and waits until there is something, for at most so long.
        fn rest(&self, _me: NodeId, _longest_ns: u64, _is_ready: &dyn Fn() -> bool) {}

        /// Node `me` goes on, and others may before it does.
        fn pass(&self, _me: NodeId) {}

        /// The time, if it passes by itself.
        fn now_ns(&self) -> Option<u64> {
            None
        }

        /// Whether as much time has passed as the node that runs now waits before it does something else.
        fn has_time_passed(&self) -> bool;

        /// Node `me` has read something of memory that others write, besides messages.
        fn note(&self, _me: NodeId, _what: u64) {}
    }

    thread_local! {
        static DIRECTOR: Cell<Option<*const dyn Director>> = const { Cell::new(None) };
        /// The next look for a message need not find one.
        static OPTIONAL: Cell<bool> = const { Cell::new(false) };
    }

    fn director<'a>() -> Option<&'a dyn Director> {
        // SAFETY: whoever has set it keeps it where it is until it is set again.
        DIRECTOR.get().map(|director| unsafe { &*director })
    }

    /// From here on it directs this thread.
    ///
    /// # Safety
    /// It stays where it is until this is called again.
    pub unsafe fn set_director(director: Option<*const dyn Director>) {
        DIRECTOR.set(director);
    }

    pub fn is_directed() -> bool {
        director().is_some()
    }

    /// The next look of this node is one that may find nothing: it does not wait.
    pub fn look_is_optional() {
        OPTIONAL.set(true);
    }

    pub fn look(me: NodeId) -> Look {
        let is_optional = OPTIONAL.replace(false);
        director().map_or(Look::Anywhere, |director| director.look(me, is_optional))
    }

    pub fn rest(me: NodeId, longest_ns: u64, is_ready: &dyn Fn() -> bool) {
        if let Some(director) = director() {
            director.rest(me, longest_ns, is_ready);
        }
    }

    pub fn pass(me: NodeId) {
        if let Some(director) = director() {
            director.pass(me);
        }
    }

    pub fn now_ns() -> Option<u64> {
        director()?.now_ns()
    }

    pub fn has_time_passed() -> Option<bool> {
        Some(director()?.has_time_passed())
    }

    pub fn note(me: NodeId, what: u64) {
        if let Some(director) = director() {
            director.note(me, what);
        }
    }
}

#[cfg(not(test))]
pub use undirected::*;

#[cfg(not(test))]
mod undirected {
    use crate::transport::stage::Look;
    use blizzard_protocol::ids::NodeId;

    /// Whether a test decides who goes on.
    #[inline(always)]
    pub fn is_directed() -> bool {
        false
    }

    /// The next look of this node is one that may find nothing: it does not wait.
    #[inline(always)]
    pub fn look_is_optional() {}

    /// Node `me` looks for a message.
    #[inline(always)]
    pub fn look(_me: NodeId) -> Look {
        Look::Anywhere
    }

    /// Node `me` has found nothing and waits until there is something, for at most so long.
    #[inline(always)]
    pub fn rest(_me: NodeId, _longest_ns: u64, _is_ready: &dyn Fn() -> bool) {}

    /// The time, where it is a test's.
    #[inline(always)]
    pub fn now_ns() -> Option<u64> {
        None
    }

    /// Whether as much time has passed as the node waits before it does something else, where a test decides.
    #[inline(always)]
    pub fn has_time_passed() -> Option<bool> {
        None
    }

    /// Node `me` has read something of memory that others write, besides messages.
    #[inline(always)]
    pub fn note(_me: NodeId, _what: u64) {}
}
