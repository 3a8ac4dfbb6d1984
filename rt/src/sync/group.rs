//! Barriers for some of the nodes, and events that nodes wait for.
//!
//! Purpose: what programs need that do not synchronise all nodes at once, such as those written for the PARMACS macros: a barrier whose
//! callers say how many it takes, and a flag that nodes sleep on. [`GroupBarrier`] and [`Event`] are the algorithms, without messages; the
//! rest sends and receives. Their home is the node that made them.
//! **Invariant**: each node waits for one object at most.

use super::handle::{Handle, Kind};
use super::{Has, Waits, bit, members};
use crate::kernel::own_memory::Zeroed;
use crate::messages::id;
use crate::node::Node;
use crate::node::stats::Wait;
use crate::transport::message::Message;
use blizzard_contract::Counter;
use blizzard_protocol::ids::NodeId;

/// A barrier at its home: who waits, and how many it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupBarrier {
    waiting: u64,
    count: u64,
}

// SAFETY: integers; zero is a barrier that nobody waits at.
unsafe impl Zeroed for GroupBarrier {}

/// What an arrival led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The caller waits.
    Waits,
    /// These nodes, the caller among them, may go on.
    Complete(u64),
    /// Those who wait have named another number.
    OtherCount(u64),
}

impl GroupBarrier {
    /// Node `from` arrives at a barrier for `count` nodes.
    pub fn arrive(&mut self, from: NodeId, count: u64) -> Arrival {
        if self.waiting == 0 {
            self.count = count;
        } else if self.count != count {
            return Arrival::OtherCount(self.count);
        }
        self.waiting |= bit(from);
        if u64::from(self.waiting.count_ones()) < count {
            return Arrival::Waits;
        }
        let all = self.waiting;
        self.waiting = 0;
        Arrival::Complete(all)
    }
}

/// An event at its home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Event {
    is_set: u64,
    waiting: u64,
}

// SAFETY: integers; zero is an event that is not set.
unsafe impl Zeroed for Event {}

impl Event {
    /// Whether `from` may go on; else it waits.
    pub fn wait(&mut self, from: NodeId) -> bool {
        if self.is_set == 0 {
            self.waiting |= bit(from);
        }
        self.is_set != 0
    }

    /// Sets or clears it; the nodes that may go on.
    pub fn set(&mut self, on: bool) -> u64 {
        self.is_set = on.into();
        if on { core::mem::take(&mut self.waiting) } else { 0 }
    }
}

/// Calls of the program.
impl Node {
    /// A new barrier that this node manages.
    pub fn barrier_new(&mut self) -> u64 {
        let index = self.sync.barriers.len();
        if self.sync.barriers.push(GroupBarrier::default()).is_err() {
            self.fail(format_args!("bz_barrier_new: no memory"));
        }
        Handle { kind: Kind::Barrier, home: self.me, index }.encode()
    }

    /// Waits until `count` nodes wait at the barrier; true for one of them, the last.
    pub fn barrier_wait(&mut self, value: u64, count: u32) -> bool {
        let handle = self.object_handle("bz_barrier_wait", Kind::Barrier, value);
        if count == 0 || count > self.homes.nodes() {
            self.fail(format_args!(
                "bz_barrier_wait: a barrier for {count} nodes in a run of {} can never complete",
                self.homes.nodes()
            ));
        }
        self.count(Counter::Barriers);
        let key = handle.index;
        let args = [handle.index, count.into(), 0];
        let arrive = Message { handler: id::BARRIER_ARRIVE, args, key, ..Message::default() };
        self.call(handle.home, arrive, id::BARRIER_DONE, Wait::Barrier).args[0] == self.me.index() as u64
    }

    /// A new event that this node manages, not set.
    pub fn event_new(&mut self) -> u64 {
        let index = self.sync.events.len();
        if self.sync.events.push(Event::default()).is_err() {
            self.fail(format_args!("bz_event_new: no memory"));
        }
        Handle { kind: Kind::Event, home: self.me, index }.encode()
    }

    /// Sets or clears the event. Returns when the home has done it: a node that hears of it from this one, by whatever way, finds it done.
    pub fn event_set(&mut self, value: u64, on: bool) {
        let handle = self.object_handle(if on { "bz_event_set" } else { "bz_event_clear" }, Kind::Event, value);
        let (args, key) = ([handle.index, on.into(), 0], handle.index);
        let set = Message { handler: id::EVENT_SET, args, key, ..Message::default() };
        self.call(handle.home, set, id::EVENT_DONE, Wait::Lock);
    }

    /// Waits until the event is set.
    pub fn event_wait(&mut self, value: u64) {
        let handle = self.object_handle("bz_event_wait", Kind::Event, value);
        let key = handle.index;
        let wait = Message { handler: id::EVENT_WAIT, args: [handle.index, 0, 0], key, ..Message::default() };
        self.call(handle.home, wait, id::EVENT_DONE, Wait::Lock);
    }
}

/// `args`: number of the barrier, how many nodes it takes. Answered when they are there: `args[0]`: the last one.
pub fn on_barrier_arrive(node: &mut Node, from: NodeId, message: &Message) {
    let [index, count, _] = message.args;
    let Some(mut barrier) = node.sync.barriers.get(index) else {
        node.fail(format_args!("node {} uses a barrier that was never made", from.index()));
    };
    let arrival = barrier.arrive(from, count);
    node.sync.barriers.set(index, barrier);
    match arrival {
        Arrival::Waits => check_barrier(node, &barrier),
        Arrival::Complete(nodes) => {
            for to in members(nodes) {
                let args = [from.index() as u64, 0, 0];
                node.send(to, Message { handler: id::BARRIER_DONE, args, key: index, ..Message::default() });
            }
        }
        Arrival::OtherCount(other) => node.fail(format_args!(
            "bz_barrier_wait: node {} waits for {count} nodes at a barrier at which others wait for {other}",
            from.index()
        )),
    }
}

/// `args`: number of the event, 1 to set it or 0 to clear it. Answered when it is done.
pub fn on_event_set(node: &mut Node, from: NodeId, message: &Message) {
    let [index, on, _] = message.args;
    let mut event = event_of(node, from, index);
    let woken = event.set(on != 0);
    node.sync.events.set(index, event);
    for to in members(woken) {
        go_on(node, to, index);
    }
    go_on(node, from, index);
}

/// `args[0]`: number of the event. Answered when it is set.
pub fn on_event_wait(node: &mut Node, from: NodeId, message: &Message) {
    let index = message.args[0];
    let mut event = event_of(node, from, index);
    let is_set = event.wait(from);
    node.sync.events.set(index, event);
    if is_set {
        go_on(node, from, index);
    } else {
        check_event(node, &event);
    }
}

fn go_on(node: &mut Node, to: NodeId, index: u64) {
    node.send(to, Message { handler: id::EVENT_DONE, key: index, ..Message::default() });
}

fn event_of(node: &Node, from: NodeId, index: u64) -> Event {
    match node.sync.events.get(index) {
        Some(event) => event,
        None => node.fail(format_args!("node {} uses an event that was never made", from.index())),
    }
}

fn check_barrier(node: &Node, barrier: &GroupBarrier) {
    let can_come = node.participants() - node.sync.exited.count_ones();
    if barrier.waiting != 0 && u64::from(can_come) < barrier.count {
        node.fail(format_args!(
            "{} at a barrier for {} nodes, but {} exited: it can never complete",
            Waits(barrier.waiting),
            barrier.count,
            Has(node.sync.exited)
        ));
    }
}

fn check_event(node: &Node, event: &Event) {
    let exited = node.sync.exited;
    if event.waiting != 0 && exited != 0 && (event.waiting | exited).count_ones() == node.participants() {
        node.fail(format_args!(
            "{} for an event, but {} exited: nobody is left to set it",
            Waits(event.waiting),
            Has(exited)
        ));
    }
}

/// After an exit: a wait that can never end, ends the run.
pub fn check_groups(node: &Node) {
    for index in 0..node.sync.barriers.len() {
        if let Some(barrier) = node.sync.barriers.get(index) {
            check_barrier(node, &barrier);
        }
    }
    for index in 0..node.sync.events.len() {
        if let Some(event) = node.sync.events.get(index) {
            check_event(node, &event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    #[test]
    fn a_barrier_lets_exactly_its_callers_go_and_begins_again() {
        let mut barrier = GroupBarrier::default();
        for round in 0..3 {
            assert_eq!(barrier.arrive(node(5), 3), Arrival::Waits);
            assert_eq!(barrier.arrive(node(round), 3), Arrival::Waits);
            assert_eq!(barrier.arrive(node(9), 2), Arrival::OtherCount(3));
            assert_eq!(barrier.arrive(node(9), 3), Arrival::Complete(1 << 5 | 1 << round | 1 << 9));
        }
        assert_eq!(barrier.arrive(node(9), 1), Arrival::Complete(1 << 9));
    }

    #[test]
    fn an_event_lets_go_who_waits_and_who_comes_while_it_is_set() {
        let mut event = Event::default();
        assert!(!event.wait(node(1)) && !event.wait(node(63)));
        assert_eq!(event.set(false), 0);
        assert_eq!(event.set(true), 1 << 1 | 1 << 63);
        assert!(event.wait(node(2)));
        assert_eq!(event.set(false), 0);
        assert!(!event.wait(node(2)));
        assert_eq!(event.set(true), 1 << 2);
    }
}
