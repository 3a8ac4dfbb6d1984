//! The queue of requests that found their block busy.
//!
//! Purpose: keep, at a home, the events that [`crate::protocols::stache::steps::home_step`] answered with [`crate::protocols::stache::vocabulary::Action::Defer`], and give them
//! back in the order of arrival for each block. First come, first served is what makes the protocol free of
//! starvation: an event that waits is passed by no later one. Each node has at most one outstanding miss per block, so
//! nodes x (misses a node may have outstanding at once) entries always suffice.

use crate::ids::NodeId;
use crate::protocols::stache::vocabulary::HomeEvent;
use crate::storage::{Table, Zeroed};

/// An event that waits. `block` is any number that names the block, such as its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitingEvent {
    block: u64,
    event: HomeEvent,
}

// SAFETY: an integer, and an event for which zero is a value.
unsafe impl Zeroed for WaitingEvent {}

impl WaitingEvent {
    /// Stands where nothing waits: zero bytes.
    pub const NOTHING: WaitingEvent = WaitingEvent { block: 0, event: HomeEvent::Read(NodeId::FIRST) };
}

/// Events in order of arrival, as many as the table has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Deferred<T> {
    events: T,
    len: u64,
}

/// The queue has no room: some node has more misses outstanding than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

impl<T: Table<WaitingEvent>> Deferred<T> {
    /// An empty queue in a zeroed table.
    pub const fn new(events: T) -> Self {
        Deferred { events, len: 0 }
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts an event behind all others.
    pub fn push(&mut self, block: u64, event: HomeEvent) -> Result<(), QueueFull> {
        if self.len == self.events.capacity() {
            return Err(QueueFull);
        }
        self.events.set(self.len, WaitingEvent { block, event });
        self.len += 1;
        Ok(())
    }

    /// Whether an event of that block waits. Then a new request for it must be pushed without being stepped.
    #[inline]
    pub fn is_waiting(&self, block: u64) -> bool {
        !self.is_empty() && self.position(block).is_some()
    }

    /// Takes the oldest event of that block.
    pub fn pop(&mut self, block: u64) -> Option<HomeEvent> {
        let at = self.position(block)?;
        let WaitingEvent { event, .. } = self.events.get(at);
        self.len -= 1;
        for place in at..self.len {
            self.events.set(place, self.events.get(place + 1));
        }
        self.events.set(self.len, WaitingEvent::NOTHING);
        Some(event)
    }

    /// Whether an event of that block waits that is a request of that node.
    pub fn is_waiting_for(&self, block: u64, node: NodeId) -> bool {
        (0..self.len).map(|at| self.events.get(at)).any(|each| each.block == block && each.event.is_from(node))
    }

    /// The blocks that have waiting events, oldest event first; a block appears once per event.
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        (0..self.len).map(|at| self.events.get(at).block)
    }

    /// Out of line: mostly nothing waits.
    #[inline(never)]
    fn position(&self, block: u64) -> Option<u64> {
        (0..self.len).find(|&at| self.events.get(at).block == block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_is_first_in_first_out() {
        let node = |number| NodeId::new(number).unwrap();
        let mut queue = Deferred::new([WaitingEvent::NOTHING; 4]);
        assert!(queue.is_empty() && !queue.is_waiting(7) && queue.pop(7).is_none());
        queue.push(7, HomeEvent::Read(node(1))).unwrap();
        queue.push(8, HomeEvent::LocalStore).unwrap();
        queue.push(7, HomeEvent::Write(node(2))).unwrap();
        queue.push(7, HomeEvent::Upgrade(node(3))).unwrap();
        assert_eq!(queue.push(9, HomeEvent::LocalLoad), Err(QueueFull));
        assert_eq!(queue.pop(7), Some(HomeEvent::Read(node(1))));
        queue.push(7, HomeEvent::LocalLoad).unwrap();
        assert_eq!(queue.blocks().collect::<Vec<_>>(), [8, 7, 7, 7]);
        assert_eq!(queue.pop(8), Some(HomeEvent::LocalStore));
        assert_eq!(queue.pop(8), None);
        assert_eq!(queue.pop(7), Some(HomeEvent::Write(node(2))));
        assert_eq!(queue.pop(7), Some(HomeEvent::Upgrade(node(3))));
        assert!(queue.is_waiting(7));
        assert_eq!(queue.pop(7), Some(HomeEvent::LocalLoad));
        assert_eq!(queue, Deferred::new([WaitingEvent::NOTHING; 4]));
    }
}
