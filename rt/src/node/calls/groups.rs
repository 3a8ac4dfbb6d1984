//! Barriers of some nodes, and events: the calls of the program, which wait. [`crate::sync::group`] has the home's part.
//!
//! Input: a handle, and how many nodes take part. Output: when to go on. Each call may handle messages and run handlers of the program.

use crate::messages::kinds::id;
use crate::node::node::Node;
use crate::sync::collective::Collective;
use crate::sync::handle::{Handle, HandleKind};
use crate::transport::message::Message;
use crate::transport::patience::Wait;
use blizzard_contract::Counter;

impl Node {
    /// A new barrier that this node manages.
    pub fn barrier_new(&mut self) -> u64 {
        let index = self.sync.groups.make_barrier();
        self.new_handle("bz_barrier_new", HandleKind::Barrier, index)
    }

    /// Waits until `count` nodes wait at the barrier; true for one of them, the last.
    pub fn barrier_wait(&mut self, value: u64, count: u32) -> bool {
        let handle = self.object_handle("bz_barrier_wait", HandleKind::Barrier, value);
        if count == 0 || count > self.homes.nodes() {
            self.fail(format_args!(
                "bz_barrier_wait: a barrier for {count} nodes in a run of {} can never complete",
                self.homes.nodes()
            ));
        }
        self.flush();
        self.count(Counter::Barriers);
        if count == self.homes.nodes() && self.hosts.count() > 1 {
            return self.wait_of_all(handle);
        }
        let key = handle.index;
        let args = [handle.index, count.into(), 0];
        let arrive = Message { handler: id::BARRIER_ARRIVE, args, key, ..Message::default() };
        self.ask(handle.home, arrive, id::BARRIER_DONE, Wait::Barrier).args[0] == self.me.index() as u64
    }

    /// Waits until all nodes wait at the barrier; true for one of them. On several hosts: the barrier's home would get a message from each node.
    fn wait_of_all(&mut self, handle: Handle) -> bool {
        if handle.home == self.me && !self.sync.groups.has_barrier(handle.index) {
            self.fail(format_args!("node {} uses a barrier that was never made", self.me.index()));
        }
        let mut which = [handle.encode()];
        self.meet(Collective::Group, &mut which);
        if which != [handle.encode()] {
            self.fail(format_args!("bz_barrier_wait: all nodes wait, but not at the same barrier"));
        }
        self.me == self.manager()
    }

    /// A new event that this node manages, not set.
    pub fn event_new(&mut self) -> u64 {
        let index = self.sync.groups.make_event();
        self.new_handle("bz_event_new", HandleKind::Event, index)
    }

    /// Sets or clears the event. Returns when the home has done it: a node that hears of it from this one, by whatever way, finds it done.
    pub fn event_set(&mut self, value: u64, on: bool) {
        let handle = self.object_handle(if on { "bz_event_set" } else { "bz_event_clear" }, HandleKind::Event, value);
        self.flush();
        let (args, key) = ([handle.index, on.into(), 0], handle.index);
        let set = Message { handler: id::EVENT_SET, args, key, ..Message::default() };
        self.ask(handle.home, set, id::EVENT_DONE, Wait::Lock);
    }

    /// Waits until the event is set.
    pub fn event_wait(&mut self, value: u64) {
        let handle = self.object_handle("bz_event_wait", HandleKind::Event, value);
        let key = handle.index;
        let wait = Message { handler: id::EVENT_WAIT, args: [handle.index, 0, 0], key, ..Message::default() };
        self.ask(handle.home, wait, id::EVENT_DONE, Wait::Lock);
    }
}
