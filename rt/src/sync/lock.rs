//! Locks: a queue at the lock's home, and direct hand-over.
//!
//! Purpose: [`Lock`] is the algorithm, without messages; the rest sends and receives. The node that made a lock is its home. An acquire
//! is one message and its answer; a release is one message, which the home turns into the grant for the node that waits longest. On several hosts, whoever
//! waits longest on the host of the node that releases comes first: what the lock protects is there.
//! **Invariants**: each node waits for one lock at most, so one place for each node has room for the queues of all locks. At most [`PASSES`] grants
//! pass the node that waits longest.
//! Source: Dice, Marathe, Shavit, Lock Cohorting, 2012 (a bounded number of hand-overs stays near).

use crate::kernel::own_memory::{KernelQueue, Slice, Zeroed};
use crate::kernel::sys;
use crate::links::links::Links;
use crate::messages::kinds::id;
use crate::sync::sets::Waits;
use crate::transport::message::Message;
use blizzard_contract::Counter;
use blizzard_protocol::ids::{NodeId, NodeSet};

/// A lock at its home. The nodes that wait for it are a list: the first and the last are here, the others in a [`WaitLine`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lock {
    /// Node number + 1; 0: nobody.
    holder: u16,
    first: u16,
    last: u16,
    /// How often in a row another one was granted the lock than the first.
    passed: u16,
}

/// So often another node may be granted a lock than the one that waits longest.
pub const PASSES: u16 = 16;

// SAFETY: integers; zero is a free lock.
unsafe impl Zeroed for Lock {}

/// By node that waits for any lock of this home: number + 1 of the one behind it, or [`LAST`]; 0: the node does not wait.
pub type WaitLine = [u16];

const LAST: u16 = u16::MAX;

/// What an acquire led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquired {
    Granted,
    Queued,
    /// The caller holds it.
    Already,
    /// The caller waits already, for this or another lock.
    Waits,
}

/// Why a release was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHeld {
    Free,
    By(NodeId),
}

impl Lock {
    pub fn holder(&self) -> Option<NodeId> {
        node(self.holder)
    }

    /// The waiting nodes, as a set.
    pub fn waiters(&self, line: &WaitLine) -> NodeSet {
        self.in_order(line).collect()
    }

    fn in_order(&self, line: &WaitLine) -> impl Iterator<Item = NodeId> {
        core::iter::successors(node(self.first), move |before| node(line[before.index()]))
    }

    /// Takes a waiting node out of the list.
    fn take_out(&mut self, line: &mut WaitLine, taken: NodeId) {
        let before = self.in_order(line).find(|before| line[before.index()] == name(taken));
        let behind = core::mem::take(&mut line[taken.index()]);
        match before {
            Some(before) => line[before.index()] = behind,
            None => self.first = if behind == LAST { 0 } else { behind },
        }
        if behind == LAST {
            self.last = before.map_or(0, name);
        }
    }

    /// `from` wants the lock, and waits for it unless it is granted.
    pub fn acquire(&mut self, line: &mut WaitLine, from: NodeId) -> Acquired {
        match self.holder() {
            None => {
                self.holder = name(from);
                Acquired::Granted
            }
            Some(holder) if holder == from => Acquired::Already,
            Some(_) if line[from.index()] != 0 => Acquired::Waits,
            Some(_) => {
                line[from.index()] = LAST;
                match node(self.last) {
                    None => self.first = name(from),
                    Some(last) => line[last.index()] = name(from),
                }
                self.last = name(from);
                Acquired::Queued
            }
        }
    }

    /// Takes the lock if it is free.
    pub fn try_acquire(&mut self, from: NodeId) -> bool {
        let is_free = self.holder == 0;
        if is_free {
            self.holder = name(from);
        }
        is_free
    }

    /// `from` gives the lock up; who holds it now, and must be told. `is_near`: whether a node is on the host of `from`.
    pub fn release(
        &mut self,
        line: &mut WaitLine,
        from: NodeId,
        is_near: impl Fn(NodeId) -> bool,
    ) -> Result<Option<NodeId>, NotHeld> {
        match self.holder() {
            Some(holder) if holder == from => {}
            Some(holder) => return Err(NotHeld::By(holder)),
            None => return Err(NotHeld::Free),
        }
        let first = node(self.first);
        let near = if self.passed < PASSES { self.in_order(line).find(|node| is_near(*node)) } else { None };
        let next = near.or(first);
        self.passed = if next == first { 0 } else { self.passed + 1 };
        self.holder = next.map_or(0, name);
        if let Some(next) = next {
            self.take_out(line, next);
        }
        Ok(next)
    }
}

/// A node's number where 0 means nobody.
fn name(node: NodeId) -> u16 {
    node.index() as u16 + 1
}

/// `None`: nobody, or the end of a line.
fn node(name: u16) -> Option<NodeId> {
    NodeId::new(u32::from(name).checked_sub(1)?)
}

/// The locks that one node manages.
pub struct Locks {
    all: KernelQueue<Lock>,
    line: Slice<u16>,
}

impl Locks {
    /// # Errors
    /// The kernel's, when it gives no memory.
    pub fn new(nodes: u32) -> sys::Result<Locks> {
        Ok(Locks { all: KernelQueue::new(), line: Slice::new(nodes as usize, |_| 0)? })
    }

    /// The number of a new, free lock; `None` when there is no memory.
    pub fn make(&mut self) -> Option<u64> {
        self.all.push(Lock::default()).ok()?;
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
    let acquired = lock.acquire(&mut locks.line, from);
    locks.all.set(index, lock);
    match acquired {
        Acquired::Granted => grant(links, from, index),
        Acquired::Queued => check_lock(locks, links, &lock),
        Acquired::Waits => links.count(Counter::MessagesRejected),
        Acquired::Already => {
            links.fail(format_args!("bz_lock: node {} already holds the lock", from.index()));
        }
    }
}

fn grant(links: &mut Links, to: NodeId, index: u64) {
    links.post(to, Message { handler: id::LOCK_GRANTED, key: index, ..Message::default() });
}

fn check_lock(locks: &Locks, links: &Links, lock: &Lock) {
    if let Some(holder) = lock.holder().filter(|&holder| links.members.exited.contains(holder) && lock.first != 0) {
        links.fail(format_args!(
            "{} for a lock, but node {} has exited without unlocking it",
            Waits(lock.waiters(&locks.line)),
            holder.index()
        ));
    }
}

/// After an exit: a lock that the node has taken with it ends the run.
pub fn check_locks(locks: &Locks, links: &Links) {
    for index in 0..locks.all.len() {
        if let Some(lock) = locks.all.get(index) {
            check_lock(locks, links, &lock);
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
    let here = links.hosts.nodes(links.hosts.number(from.index() as u32));
    let next = match lock.release(&mut locks.line, from, |node| here.contains(&(node.index() as u32))) {
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
    use blizzard_protocol::ids::NAMED_NODES;

    const NODES: u32 = NAMED_NODES as u32;

    #[test]
    fn waiting_nodes_get_the_lock_in_the_order_of_their_requests() {
        let node = |number| NodeId::new(number).unwrap();
        let (mut lock, mut line) = (Lock::default(), [0; NAMED_NODES]);
        assert_eq!(lock.acquire(&mut line, node(3)), Acquired::Granted);
        assert_eq!(lock.acquire(&mut line, node(3)), Acquired::Already);
        for number in (0..NODES).rev().filter(|&number| number != 3) {
            assert_eq!(lock.acquire(&mut line, node(number)), Acquired::Queued);
            assert_eq!(lock.acquire(&mut line, node(number)), Acquired::Waits);
        }
        assert!(!lock.try_acquire(node(3)));
        assert_eq!(lock.release(&mut line, node(5), |_| true), Err(NotHeld::By(node(3))));
        let mut holder = 3;
        for number in (0..NODES).rev().filter(|&number| number != 3) {
            assert_eq!(lock.release(&mut line, node(holder), |_| true), Ok(Some(node(number))));
            holder = number;
        }
        assert_eq!(lock.release(&mut line, node(holder), |_| true), Ok(None));
        assert_eq!((lock, line), (Lock::default(), [0; NAMED_NODES]));
        assert_eq!(lock.release(&mut line, node(holder), |_| true), Err(NotHeld::Free));
        assert!(lock.try_acquire(node(1)));
    }

    #[test]
    fn the_queues_of_two_locks_do_not_mix() {
        let node = |number| NodeId::new(number).unwrap();
        let (mut locks, mut line) = ([Lock::default(); 2], [0; 8]);
        for number in 0..8 {
            locks[number as usize % 2].acquire(&mut line, node(number));
        }
        assert_eq!(locks[1].acquire(&mut line, node(2)), Acquired::Waits);
        for (lock, first) in locks.iter_mut().zip([0, 1]) {
            assert!(lock.waiters(&line).iter().eq([2, 4, 6].map(|more| node(first + more))));
            for holder in [0, 2, 4] {
                assert_eq!(lock.release(&mut line, node(first + holder), |_| true), Ok(Some(node(first + holder + 2))));
            }
        }
    }

    /// A node that waits again at once comes behind those that wait; two hosts of three nodes.
    #[test]
    fn a_host_keeps_a_lock_for_a_while() {
        let node = |number| NodeId::new(number).unwrap();
        let (mut lock, mut line) = (Lock::default(), [0; 6]);
        for number in [0, 3, 4, 1, 5, 2] {
            lock.acquire(&mut line, node(number));
        }
        let mut order = std::vec![];
        while order.len() < 8 * usize::from(PASSES + 2) {
            let holder = lock.holder().unwrap();
            let near = |other: NodeId| other.index() / 3 == holder.index() / 3;
            order.push(holder.index());
            lock.release(&mut line, holder, near).unwrap();
            lock.acquire(&mut line, holder);
            assert_eq!(lock.waiters(&line).len(), 5);
        }
        // Until the node that waits longest has been passed that often; those who wait behind it on its host come with it.
        let turns: std::vec::Vec<usize> = order.chunk_by(|a, b| a / 3 == b / 3).map(<[usize]>::len).collect();
        let passes = usize::from(PASSES);
        assert!(
            turns[0] == 1 + passes && turns[1..turns.len() - 1].iter().all(|turn| *turn == 3 + passes),
            "{turns:?}"
        );
        assert_eq!(order[..6], [0, 1, 2, 0, 1, 2]);
        assert_eq!(order[1 + passes..7 + passes], [3, 4, 5, 3, 4, 5]);
    }

    /// In any order of requests and releases, whoever waits longest is passed that often at most, and nobody is lost.
    #[test]
    fn nobody_is_passed_for_ever() {
        let node = |number| NodeId::new(number).unwrap();
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |limit: u64| {
            seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (seed >> 33) % limit
        };
        let (mut lock, mut line) = (Lock::default(), [0; 8]);
        let (mut waiting, mut passed) = (std::vec::Vec::<NodeId>::new(), 0);
        for _ in 0..100_000 {
            let who = node(below(8) as u32);
            match lock.holder() {
                Some(holder) if holder == who || below(3) == 0 => {
                    let near = |other: NodeId| other.index() / 4 == holder.index() / 4;
                    let next = lock.release(&mut line, holder, near).unwrap();
                    assert_eq!(next.is_none(), waiting.is_empty());
                    let Some(next) = next else { continue };
                    let at = waiting.iter().position(|waits| *waits == next).unwrap();
                    let first_near = waiting.iter().position(|waits| near(*waits));
                    let expected = if passed < PASSES { first_near.unwrap_or(0) } else { 0 };
                    assert_eq!(at, expected);
                    passed = if at == 0 { 0 } else { passed + 1 };
                    waiting.remove(at);
                }
                _ => match lock.acquire(&mut line, who) {
                    Acquired::Queued => waiting.push(who),
                    Acquired::Waits => assert!(waiting.contains(&who)),
                    Acquired::Granted | Acquired::Already => assert!(!waiting.contains(&who)),
                },
            }
            assert!(lock.in_order(&line).eq(waiting.iter().copied()));
        }
    }
}
