//! Locks: a queue at the lock's home, and direct hand-over.
//!
//! Purpose: [`Lock`] is the algorithm, without messages; the rest sends and receives. The node that made a lock is its home. An acquire
//! is one message and its answer; a release is one message, which the home turns into the grant for the node that waits longest.
//! **Invariant**: each node waits for one lock at most, so a queue of all nodes has room.

use crate::kernel::own_memory::{Queue, Zeroed};
use crate::links::links::Links;
use crate::messages::kinds::id;
use crate::sync::sets::{Waits, bit};
use crate::transport::message::Message;
use blizzard_contract::MAX_NODES;
use blizzard_protocol::ids::NodeId;

/// A lock at its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lock {
    /// Node number + 1; 0: free.
    holder: u8,
    waiting: u8,
    /// Node numbers, first come first.
    queue: [u8; MAX_NODES],
}

// SAFETY: integers; zero is a free lock.
unsafe impl Zeroed for Lock {}

/// What an acquire led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    Granted,
    Queued,
    /// The caller holds it.
    Already,
}

/// Why a release was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    Free,
    By(NodeId),
}

impl Lock {
    pub const FREE: Lock = Lock { holder: 0, waiting: 0, queue: [0; MAX_NODES] };

    pub fn holder(&self) -> Option<NodeId> {
        NodeId::new(u32::from(self.holder).checked_sub(1)?)
    }

    /// The waiting nodes, as a set.
    pub fn waiters(&self) -> u64 {
        self.queue.iter().take(self.waiting.into()).fold(0, |set, number| set | 1 << number)
    }

    /// `from` wants the lock, and waits for it unless it is granted.
    pub fn acquire(&mut self, from: NodeId) -> Acquired {
        match self.holder() {
            None => {
                self.holder = from.index() as u8 + 1;
                Acquired::Granted
            }
            Some(holder) if holder == from => Acquired::Already,
            Some(_) => {
                self.queue[usize::from(self.waiting)] = from.index() as u8;
                self.waiting += 1;
                Acquired::Queued
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_acquire(&mut self, from: NodeId) -> bool {
        self.holder().is_none() && self.acquire(from) == Acquired::Granted
    }

    /// `from` gives the lock up; who holds it now, and must be told.
    pub fn release(&mut self, from: NodeId) -> Result<Option<NodeId>, NotHeld> {
        match self.holder() {
            Some(holder) if holder == from => {}
            Some(holder) => return Err(NotHeld::By(holder)),
            None => return Err(NotHeld::Free),
        }
        if self.waiting == 0 {
            self.holder = 0;
            return Ok(None);
        }
        let next = self.queue[0];
        self.queue.copy_within(1.., 0);
        self.waiting -= 1;
        self.holder = next + 1;
        Ok(NodeId::new(next.into()))
    }
}

/// The locks that one node manages.
pub struct Locks {
    all: Queue<Lock>,
}

impl Locks {
    pub const fn new() -> Locks {
        Locks { all: Queue::new() }
    }

    /// The number of a new, free lock; `None` when there is no memory.
    pub fn make(&mut self) -> Option<u64> {
        self.all.push(Lock::FREE).ok()?;
        Some(self.all.len() - 1)
    }
}

/// The lock of a message, or the end of the run.
fn lock_of(locks: &Locks, links: &Links, from: NodeId, index: u64) -> Lock {
    match locks.all.get(index) {
        Some(lock) => lock,
        None => links.fail(format_args!("node {} uses a lock that was never made", from.index())),
    }
}

/// `args[0]`: number of the lock. Answered when the node holds it.
pub fn on_acquire(locks: &mut Locks, links: &mut Links, from: NodeId, message: &Message) {
    let index = message.args[0];
    let mut lock = lock_of(locks, links, from, index);
    let acquired = lock.acquire(from);
    locks.all.set(index, lock);
    match acquired {
        Acquired::Granted => grant(links, from, index),
        Acquired::Queued => check_lock(links, &lock),
        Acquired::Already => {
            links.fail(format_args!("bz_lock: node {} already holds the lock", from.index()));
        }
    }
}

fn grant(links: &mut Links, to: NodeId, index: u64) {
    links.post(to, Message { handler: id::LOCK_GRANTED, key: index, ..Message::default() });
}

fn check_lock(links: &Links, lock: &Lock) {
    if let Some(holder) = lock.holder().filter(|&holder| links.members.exited & bit(holder) != 0 && lock.waiting != 0) {
        links.fail(format_args!(
            "{} for a lock, but node {} has exited without unlocking it",
            Waits(lock.waiters()),
            holder.index()
        ));
    }
}

/// After an exit: a lock that the node has taken with it ends the run.
pub fn check_locks(locks: &Locks, links: &Links) {
    for index in 0..locks.all.len() {
        if let Some(lock) = locks.all.get(index) {
            check_lock(links, &lock);
        }
    }
}

/// `args[0]`: number of the lock. Answer: `args[0]`: 1 if the node holds it now.
pub fn on_try(locks: &mut Locks, links: &mut Links, from: NodeId, message: &Message) {
    let index = message.args[0];
    let mut lock = lock_of(locks, links, from, index);
    let got = lock.try_acquire(from);
    locks.all.set(index, lock);
    links.post(from, Message { handler: id::LOCK_TRIED, args: [got.into(), 0, 0], ..*message });
}

/// `args[0]`: number of the lock. Not answered.
pub fn on_release(locks: &mut Locks, links: &mut Links, from: NodeId, message: &Message) {
    let index = message.args[0];
    let mut lock = lock_of(locks, links, from, index);
    let next = match lock.release(from) {
        Ok(next) => next,
        Err(NotHeld::By(holder)) => links.fail(format_args!(
            "bz_unlock: node {} unlocks a lock that node {} holds",
            from.index(),
            holder.index()
        )),
        Err(NotHeld::Free) => {
            links.fail(format_args!("bz_unlock: node {} unlocks a lock that nobody holds", from.index()))
        }
    };
    locks.all.set(index, lock);
    if let Some(next) = next {
        grant(links, next, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_nodes_get_the_lock_in_the_order_of_their_requests() {
        let node = |number| NodeId::new(number).unwrap();
        let mut lock = Lock::FREE;
        assert_eq!(lock.acquire(node(3)), Acquired::Granted);
        assert_eq!(lock.acquire(node(3)), Acquired::Already);
        for number in (0..MAX_NODES as u32).rev().filter(|&number| number != 3) {
            assert_eq!(lock.acquire(node(number)), Acquired::Queued);
        }
        assert!(!lock.try_acquire(node(3)));
        assert_eq!(lock.release(node(5)), Err(NotHeld::By(node(3))));
        let mut holder = 3;
        for number in (0..MAX_NODES as u32).rev().filter(|&number| number != 3) {
            assert_eq!(lock.release(node(holder)), Ok(Some(node(number))));
            holder = number;
        }
        assert_eq!(lock.release(node(holder)), Ok(None));
        assert_eq!(lock, Lock { queue: lock.queue, ..Lock::FREE });
        assert_eq!(lock.release(node(holder)), Err(NotHeld::Free));
        assert!(lock.try_acquire(node(1)));
    }
}
