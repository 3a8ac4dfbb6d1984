//! Barriers for some of the nodes, and events that nodes wait for.
//!
//! Purpose: what programs need that do not synchronise all nodes at once, such as those written for the PARMACS macros: a barrier whose
//! callers say how many it takes, and a flag that nodes sleep on. [`GroupBarrier`] and [`Event`] are the algorithms, without messages; the
//! rest sends and receives. Their home is the node that made them.
//! **Invariant**: each node waits for one object at most.

use crate::kernel::own_memory::{KernelQueue, Zeroed};
use crate::links::links::Links;
use crate::messages::kinds::id;
use crate::sync::sets::{Has, Waits};
use crate::transport::message::Message;
use blizzard_protocol::ids::{NodeId, NodeSet};

/// A barrier at its home: who waits, and how many it takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupBarrier {
    waiting: NodeSet,
    count: u64,
}

// SAFETY: a set and an integer; zero is a barrier that nobody waits at.
unsafe impl Zeroed for GroupBarrier {}

/// What an arrival led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The caller waits.
    Waits,
    /// These nodes, the caller among them, may go on.
    Complete(NodeSet),
    /// Those who wait have named another number.
    OtherCount(u64),
}

impl GroupBarrier {
    /// Node `from` arrives at a barrier for `count` nodes.
    pub fn arrive(&mut self, from: NodeId, count: u64) -> Arrival {
        if self.waiting.is_empty() {
            self.count = count;
        } else if self.count != count {
            return Arrival::OtherCount(self.count);
        }
        self.waiting = self.waiting.with(from);
        if (self.waiting.len() as u64) < count {
            return Arrival::Waits;
        }
        Arrival::Complete(core::mem::take(&mut self.waiting))
    }
}

/// An event at its home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Event {
    is_set: u64,
    waiting: NodeSet,
}

// SAFETY: an integer and a set; zero is an event that is not set.
unsafe impl Zeroed for Event {}

impl Event {
    /// Whether `from` may go on; else it waits.
    pub fn wait(&mut self, from: NodeId) -> bool {
        if self.is_set == 0 {
            self.waiting = self.waiting.with(from);
        }
        self.is_set != 0
    }

    /// Sets or clears it; the nodes that may go on.
    pub fn set(&mut self, on: bool) -> NodeSet {
        self.is_set = on.into();
        if on { core::mem::take(&mut self.waiting) } else { NodeSet::EMPTY }
    }
}

/// The barriers and events that one node manages.
pub struct Groups {
    barriers: KernelQueue<GroupBarrier>,
    events: KernelQueue<Event>,
}

impl Groups {
    pub const fn new() -> Groups {
        Groups { barriers: KernelQueue::new(), events: KernelQueue::new() }
    }

    /// The number of a new barrier; `None` when there is no memory.
    pub fn make_barrier(&mut self) -> Option<u64> {
        self.barriers.push(GroupBarrier::default()).ok()?;
        Some(self.barriers.len() - 1)
    }

    pub fn has_barrier(&self, index: u64) -> bool {
        index < self.barriers.len()
    }

    /// The number of a new event, which is not set; `None` when there is no memory.
    pub fn make_event(&mut self) -> Option<u64> {
        self.events.push(Event::default()).ok()?;
        Some(self.events.len() - 1)
    }
}

/// `args`: number of the barrier, how many nodes it takes. Answered when they are there: `args[0]`: the last one.
pub fn on_barrier_arrive(groups: &mut Groups, links: &mut Links, from: NodeId, message: &Message) {
    let [index, count, _] = message.args;
    let Some(mut barrier) = groups.barriers.get(index) else {
        links.fail(format_args!("node {} uses a barrier that was never made", from.index()));
    };
    let arrival = barrier.arrive(from, count);
    groups.barriers.set(index, barrier);
    match arrival {
        Arrival::Waits => check_barrier(links, &barrier),
        Arrival::Complete(nodes) => {
            for to in nodes.iter() {
                let args = [from.index() as u64, 0, 0];
                links.post(to, Message { handler: id::BARRIER_DONE, args, key: index, ..Message::default() });
            }
        }
        Arrival::OtherCount(other) => links.fail(format_args!(
            "bz_barrier_wait: node {} waits for {count} nodes at a barrier at which others wait for {other}",
            from.index()
        )),
    }
}

/// `args`: number of the event, 1 to set it or 0 to clear it. Answered when it is done.
pub fn on_event_set(groups: &mut Groups, links: &mut Links, from: NodeId, message: &Message) {
    let [index, on, _] = message.args;
    let mut event = event_of(groups, links, from, index);
    let woken = event.set(on != 0);
    groups.events.set(index, event);
    for to in woken.iter() {
        go_on(links, to, index);
    }
    go_on(links, from, index);
}

/// `args[0]`: number of the event. Answered when it is set.
pub fn on_event_wait(groups: &mut Groups, links: &mut Links, from: NodeId, message: &Message) {
    let index = message.args[0];
    let mut event = event_of(groups, links, from, index);
    let is_set = event.wait(from);
    groups.events.set(index, event);
    if is_set {
        go_on(links, from, index);
    } else {
        check_event(links, &event);
    }
}

fn go_on(links: &mut Links, to: NodeId, index: u64) {
    links.post(to, Message { handler: id::EVENT_DONE, key: index, ..Message::default() });
}

fn event_of(groups: &Groups, links: &Links, from: NodeId, index: u64) -> Event {
    match groups.events.get(index) {
        Some(event) => event,
        None => links.fail(format_args!("node {} uses an event that was never made", from.index())),
    }
}

fn check_barrier(links: &Links, barrier: &GroupBarrier) {
    let can_come = links.participants() as usize - links.members.exited.len();
    if !barrier.waiting.is_empty() && (can_come as u64) < barrier.count {
        links.fail(format_args!(
            "{} at a barrier for {} nodes, but {} exited: it can never complete",
            Waits(barrier.waiting),
            barrier.count,
            Has(links.members.exited)
        ));
    }
}

fn check_event(links: &Links, event: &Event) {
    let exited = links.members.exited;
    let waits = !event.waiting.is_empty() && !exited.is_empty();
    if waits && event.waiting.union(exited).len() == links.participants() as usize {
        links.fail(format_args!(
            "{} for an event, but {} exited: nobody is left to set it",
            Waits(event.waiting),
            Has(exited)
        ));
    }
}

/// After an exit: a wait that can never end, ends the run.
pub fn check_groups(groups: &Groups, links: &Links) {
    for index in 0..groups.barriers.len() {
        if let Some(barrier) = groups.barriers.get(index) {
            check_barrier(links, &barrier);
        }
    }
    for index in 0..groups.events.len() {
        if let Some(event) = groups.events.get(index) {
            check_event(links, &event);
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
            assert_eq!(barrier.arrive(node(9), 3), Arrival::Complete([5, round, 9].map(node).into_iter().collect()));
        }
        assert_eq!(barrier.arrive(node(9), 1), Arrival::Complete(NodeSet::of(node(9))));
    }

    #[test]
    fn an_event_lets_go_who_waits_and_who_comes_while_it_is_set() {
        let mut event = Event::default();
        assert!(!event.wait(node(1)) && !event.wait(node(63)));
        assert_eq!(event.set(false), NodeSet::EMPTY);
        assert_eq!(event.set(true), NodeSet::of(node(1)).with(node(63)));
        assert!(event.wait(node(2)));
        assert_eq!(event.set(false), NodeSet::EMPTY);
        assert!(!event.wait(node(2)));
        assert_eq!(event.set(true), NodeSet::of(node(2)));
    }
}
