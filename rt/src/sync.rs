//! Barriers, reductions, locks and publish slots among the nodes.
//!
//! Purpose: the program's synchronisation, by messages to a manager, never through shared memory. Node 0 manages barriers,
//! reductions and publish slots; the node that made a lock manages it. Input: calls of the program and messages; output: answers
//! that end the callers' waits.
//!
//! * *Collectives*: each node sends its arrival with a value. When all have arrived, the manager combines the values in the order of the
//!   node numbers and sends the one result to everybody, so all nodes get the same bits.
//! * *Locks*: the manager keeps the holder and a queue of waiting nodes, and hands the lock over directly.
//! * *Publish slots*: a lookup of an empty slot waits in a bit set and is answered by the publish.
//!
//! **Invariant**: a wait that can never end because a node has exited ends the run with an error that names the nodes.
//! Such a wait is found at its manager, when it begins or when the exit is announced.

use crate::abi::{Counter, MAX_NODES, PUBLISH_SLOTS};
use crate::buffer::{Queue, Table, Zeroed};
use crate::msg::{id, is_publish_slot};
use crate::node::Node;
use crate::protocol::NodeId;
use crate::stats::Wait;
use crate::sys;
use crate::transport::Message;
use core::fmt;

/// What the nodes do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    Barrier = 0,
    SumU64,
    SumF64,
}

impl Collective {
    const fn from_number(number: u64) -> Option<Collective> {
        match number {
            0 => Some(Collective::Barrier),
            1 => Some(Collective::SumU64),
            2 => Some(Collective::SumF64),
            _ => None,
        }
    }

    /// The function that the program calls.
    const fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "bz_barrier",
            Collective::SumU64 => "bz_reduce_sum_u64",
            Collective::SumF64 => "bz_reduce_sum_f64",
        }
    }

    /// The result of all nodes' values in the order of their numbers.
    fn combine(self, values: &[u64]) -> u64 {
        match self {
            Collective::Barrier => 0,
            Collective::SumU64 => values.iter().fold(0, |sum, value| sum.wrapping_add(*value)),
            Collective::SumF64 => {
                // From the first value on, not from 0.0: the sum of one -0.0 is -0.0.
                let mut values = values.iter().map(|bits| f64::from_bits(*bits));
                let first = values.next().unwrap_or(0.0);
                values.fold(first, |sum, value| sum + value).to_bits()
            }
        }
    }
}

/// A set of nodes that prints as `node 1` or `nodes 0, 2`.
pub struct Names(pub u64);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.count_ones() == 1 { "node" } else { "nodes" })?;
        let mut separator = " ";
        for number in (0..MAX_NODES).filter(|number| self.0 >> number & 1 == 1) {
            write!(f, "{separator}{number}")?;
            separator = ", ";
        }
        Ok(())
    }
}

fn bit(node: NodeId) -> u64 {
    1 << node.index()
}

/// A lock at its manager.
#[derive(Clone, Copy)]
struct Lock {
    /// Node number + 1; 0: free.
    holder: u8,
    waiting: u8,
    /// Node numbers, first come first.
    queue: [u8; MAX_NODES],
}

// SAFETY: integers; zero is a free lock.
unsafe impl Zeroed for Lock {}

impl Lock {
    fn holder(&self) -> Option<NodeId> {
        NodeId::new(u32::from(self.holder).checked_sub(1)?)
    }

    fn waiters(&self) -> u64 {
        self.queue.iter().take(self.waiting.into()).fold(0, |set, number| set | 1 << number)
    }
}

/// A lock as programs hold it: a number that looks like a pointer and is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockHandle {
    pub home: NodeId,
    pub index: u64,
}

/// Upper 16 bits of every handle: a non-canonical address, so that using it as a pointer fails at once.
const HANDLE_MARK: u64 = 0xb12c << 48;
const HANDLE_HOME_SHIFT: u32 = 40;

impl LockHandle {
    pub const fn encode(self) -> u64 {
        HANDLE_MARK | (self.home.index() as u64) << HANDLE_HOME_SHIFT | self.index
    }

    /// `None` when the value is no handle.
    pub const fn decode(value: u64) -> Option<LockHandle> {
        if value & (0xffff << 48) != HANDLE_MARK {
            return None;
        }
        match NodeId::new((value >> HANDLE_HOME_SHIFT & 0xff) as u32) {
            Some(home) if home.index() < MAX_NODES => {
                Some(LockHandle { home, index: value & ((1 << HANDLE_HOME_SHIFT) - 1) })
            }
            _ => None,
        }
    }
}

/// The synchronisation state of one node.
pub struct Sync {
    /// Collectives that this node has entered.
    entered: u64,
    /// Manager: collectives that are complete.
    completed: u64,
    /// Manager: who has arrived at the next one, at what, and with which values.
    arrived: u64,
    kind: Collective,
    values: [u64; MAX_NODES],
    /// Locks that this node manages.
    locks: Queue<Lock>,
    /// Manager: by slot, the published value.
    slots: Table<u64>,
    /// Manager: by slot, 1 when it is published, and who waits until it is.
    published: Table<u64>,
    waiters: Table<u64>,
    /// Nodes that have exited.
    pub exited: u64,
    /// All nodes that will have exited in the end, once it is known.
    everyone: Option<u64>,
}

impl Sync {
    pub fn new() -> sys::Result<Sync> {
        Ok(Sync {
            entered: 0,
            completed: 0,
            arrived: 0,
            kind: Collective::Barrier,
            values: [0; MAX_NODES],
            locks: Queue::new(),
            slots: Table::new(PUBLISH_SLOTS.into())?,
            published: Table::new(PUBLISH_SLOTS.into())?,
            waiters: Table::new(PUBLISH_SLOTS.into())?,
            exited: 0,
            everyone: None,
        })
    }
}

impl Sync {
    /// Whether every node of the run has exited.
    fn all_exited(&self) -> bool {
        self.everyone.is_some_and(|everyone| self.exited & everyone == everyone)
    }

    /// How many nodes other than node 0 have exited.
    pub fn ended(&self) -> u32 {
        (self.exited & !1).count_ones()
    }
}

/// Calls of the program.
impl Node {
    /// Waits until every node is in its next collective, which must be the same one; returns its result.
    pub fn collective(&mut self, kind: Collective, value: u64) -> u64 {
        let epoch = self.sync.entered;
        self.sync.entered += 1;
        if kind == Collective::Barrier {
            self.count(Counter::Barriers);
        }
        let args = [kind as u64, value, 0];
        let arrive = Message { handler: id::COLLECTIVE_ARRIVE, args, key: epoch, ..Message::default() };
        let manager = self.manager();
        self.call(manager, arrive, id::COLLECTIVE_DONE, Wait::Barrier).args[0]
    }

    /// A new, free lock that this node manages.
    pub fn lock_new(&mut self) -> u64 {
        let index = self.sync.locks.len();
        let free = Lock { holder: 0, waiting: 0, queue: [0; MAX_NODES] };
        if self.sync.locks.push(free).is_err() {
            self.fail(format_args!("bz_lock_new: no memory"));
        }
        LockHandle { home: self.me, index }.encode()
    }

    fn lock_handle(&self, function: &str, value: u64) -> LockHandle {
        match LockHandle::decode(value).filter(|handle| (handle.home.index() as u32) < self.homes.nodes()) {
            Some(handle) => handle,
            None => self.fail(format_args!("{function}: {value:#x} is not a lock")),
        }
    }

    /// Waits until this node holds the lock.
    pub fn lock(&mut self, value: u64) {
        let handle = self.lock_handle("bz_lock", value);
        self.count(Counter::LockAcquires);
        let key = handle.index;
        let acquire = Message { handler: id::LOCK_ACQUIRE, args: [handle.index, 0, 0], key, ..Message::default() };
        self.call(handle.home, acquire, id::LOCK_GRANTED, Wait::Lock);
    }

    /// Takes the lock if it is free.
    pub fn trylock(&mut self, value: u64) -> bool {
        let handle = self.lock_handle("bz_trylock", value);
        let key = self.fresh_key();
        let attempt = Message { handler: id::LOCK_TRY, args: [handle.index, 0, 0], key, ..Message::default() };
        let got = self.call(handle.home, attempt, id::LOCK_TRIED, Wait::Lock).args[0] != 0;
        if got {
            self.count(Counter::LockAcquires);
        }
        got
    }

    /// Releases the lock; does not wait.
    pub fn unlock(&mut self, value: u64) {
        let handle = self.lock_handle("bz_unlock", value);
        let release = Message { handler: id::LOCK_RELEASE, args: [handle.index, 0, 0], ..Message::default() };
        self.send(handle.home, release);
    }

    /// Stores a pointer in a slot and answers those who wait for it; does not wait.
    pub fn publish(&mut self, slot: u64, value: u64) {
        self.check_slot("bz_publish", slot);
        let manager = self.manager();
        self.send(manager, Message { handler: id::PUBLISH, args: [slot, value, 0], ..Message::default() });
    }

    /// Waits until the slot has been published; returns its pointer.
    pub fn lookup(&mut self, slot: u64) -> u64 {
        self.check_slot("bz_lookup", slot);
        let manager = self.manager();
        let ask = Message { handler: id::LOOKUP, args: [slot, 0, 0], key: slot, ..Message::default() };
        self.call(manager, ask, id::LOOKED_UP, Wait::Other).args[0]
    }

    fn check_slot(&self, function: &str, slot: u64) {
        if !is_publish_slot(slot) {
            self.fail(format_args!("{function}: slot {slot} is not below {PUBLISH_SLOTS}"));
        }
    }

    /// Tells all nodes that this one computes no more, and serves them until they say the same. Node 0 also tells how many nodes there are:
    /// once it has exited, no more are created.
    pub fn finish(&mut self) {
        let participants = u64::from(self.participants());
        for to in (0..self.homes.nodes()).filter_map(NodeId::new) {
            self.send(to, Message { handler: id::EXITED, args: [participants, 0, 0], ..Message::default() });
        }
        self.wait(Wait::Other, |node| node.sync.all_exited() && node.transport.is_drained());
    }
}

/// `args`: kind, value; key: how many collectives the sender has completed.
pub fn on_collective_arrive(node: &mut Node, from: NodeId, message: &Message) {
    let [kind, value, _] = message.args;
    let epoch = message.key;
    let sync = &mut node.sync;
    let Some(kind) = Collective::from_number(kind).filter(|_| epoch == sync.completed && sync.arrived & bit(from) == 0)
    else {
        return node.count(Counter::MessagesRejected);
    };
    if sync.arrived == 0 {
        sync.kind = kind;
    } else if sync.kind != kind {
        let (others, theirs) = (Names(sync.arrived), sync.kind.name());
        node.fail(format_args!(
            "node {} calls {} while {others} waits in {theirs}: all nodes must call the same one",
            from.index(),
            kind.name()
        ));
    }
    sync.arrived |= bit(from);
    sync.values[from.index()] = value;
    let nodes = node.participants();
    let sync = &mut node.sync;
    if sync.arrived.count_ones() == nodes {
        let result = kind.combine(&sync.values[..nodes as usize]);
        sync.arrived = 0;
        sync.completed += 1;
        for to in (0..nodes).filter_map(NodeId::new) {
            let done = Message { handler: id::COLLECTIVE_DONE, args: [result, 0, 0], key: epoch, ..Message::default() };
            node.send(to, done);
        }
    } else {
        check_collective(node);
    }
}

fn check_collective(node: &Node) {
    let sync = &node.sync;
    if sync.arrived != 0 && sync.exited != 0 {
        node.fail(format_args!(
            "{} in {}, but {} exited: it can never complete",
            Waits(sync.arrived),
            sync.kind.name(),
            Has(sync.exited)
        ));
    }
}

/// Prints as `node 1 waits` or `nodes 0, 2 wait`.
struct Waits(u64);

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Names(self.0), if self.0.count_ones() == 1 { "waits" } else { "wait" })
    }
}

/// Prints as `node 1 has` or `nodes 0, 2 have`.
struct Has(u64);

impl fmt::Display for Has {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Names(self.0), if self.0.count_ones() == 1 { "has" } else { "have" })
    }
}

/// The lock of a message, or the end of the run.
fn lock_of(node: &Node, from: NodeId, index: u64) -> Lock {
    match node.sync.locks.get(index) {
        Some(lock) => lock,
        None => node.fail(format_args!("node {} uses a lock that was never made", from.index())),
    }
}

/// `args[0]`: number of the lock. Answered when the node holds it.
pub fn on_lock_acquire(node: &mut Node, from: NodeId, message: &Message) {
    let index = message.args[0];
    let mut lock = lock_of(node, from, index);
    match lock.holder() {
        None => {
            lock.holder = from.index() as u8 + 1;
            node.sync.locks.set(index, lock);
            grant(node, from, index);
        }
        Some(holder) if holder == from => {
            node.fail(format_args!("bz_lock: node {} already holds the lock", from.index()));
        }
        Some(_) => {
            // Each node waits for one lock at most, so the queue has room.
            lock.queue[usize::from(lock.waiting)] = from.index() as u8;
            lock.waiting += 1;
            node.sync.locks.set(index, lock);
            check_lock(node, &lock);
        }
    }
}

fn grant(node: &mut Node, to: NodeId, index: u64) {
    node.send(to, Message { handler: id::LOCK_GRANTED, key: index, ..Message::default() });
}

fn check_lock(node: &Node, lock: &Lock) {
    if let Some(holder) = lock.holder().filter(|&holder| node.sync.exited & bit(holder) != 0 && lock.waiting != 0) {
        node.fail(format_args!(
            "{} for a lock, but node {} has exited without unlocking it",
            Waits(lock.waiters()),
            holder.index()
        ));
    }
}

/// `args[0]`: number of the lock. Answer: `args[0]`: 1 if the node holds it now.
pub fn on_lock_try(node: &mut Node, from: NodeId, message: &Message) {
    let index = message.args[0];
    let mut lock = lock_of(node, from, index);
    let free = lock.holder().is_none();
    if free {
        lock.holder = from.index() as u8 + 1;
        node.sync.locks.set(index, lock);
    }
    node.send(from, Message { handler: id::LOCK_TRIED, args: [free.into(), 0, 0], ..*message });
}

/// `args[0]`: number of the lock. Not answered.
pub fn on_lock_release(node: &mut Node, from: NodeId, message: &Message) {
    let index = message.args[0];
    let mut lock = lock_of(node, from, index);
    match lock.holder() {
        Some(holder) if holder == from => {}
        Some(holder) => node.fail(format_args!(
            "bz_unlock: node {} unlocks a lock that node {} holds",
            from.index(),
            holder.index()
        )),
        None => node.fail(format_args!("bz_unlock: node {} unlocks a lock that nobody holds", from.index())),
    }
    if lock.waiting == 0 {
        lock.holder = 0;
        node.sync.locks.set(index, lock);
        return;
    }
    let next = lock.queue[0];
    lock.queue.copy_within(1.., 0);
    lock.waiting -= 1;
    lock.holder = next + 1;
    node.sync.locks.set(index, lock);
    if let Some(next) = NodeId::new(next.into()) {
        grant(node, next, index);
    }
}

/// `args`: slot, pointer.
pub fn on_publish(node: &mut Node, _from: NodeId, message: &Message) {
    let [slot, value, _] = message.args;
    if !is_publish_slot(slot) {
        return node.count(Counter::MessagesRejected);
    }
    let waiters = node.sync.waiters.get(slot);
    node.sync.slots.set(slot, value);
    node.sync.waiters.set(slot, 0);
    node.sync.published.set(slot, 1);
    for to in (0..node.homes.nodes()).filter_map(NodeId::new).filter(|&to| waiters & bit(to) != 0) {
        answer_lookup(node, to, slot, value);
    }
}

/// `args[0]`: slot. Answered when it is published: `args[0]`: its pointer.
pub fn on_lookup(node: &mut Node, from: NodeId, message: &Message) {
    let slot = message.args[0];
    if !is_publish_slot(slot) {
        return node.count(Counter::MessagesRejected);
    }
    if node.sync.published.get(slot) != 0 {
        let value = node.sync.slots.get(slot);
        answer_lookup(node, from, slot, value);
    } else {
        let waiters = node.sync.waiters.get(slot);
        node.sync.waiters.set(slot, waiters | bit(from));
        check_slot(node, slot);
    }
}

fn answer_lookup(node: &mut Node, to: NodeId, slot: u64, value: u64) {
    node.send(to, Message { handler: id::LOOKED_UP, args: [value, 0, 0], key: slot, ..Message::default() });
}

fn check_slot(node: &Node, slot: u64) {
    let waiters = node.sync.waiters.get(slot);
    let exited = node.sync.exited;
    if waiters != 0 && exited != 0 && (waiters | exited).count_ones() == node.participants() {
        node.fail(format_args!(
            "{} in bz_lookup for slot {slot}, but {} exited: nobody is left to publish it",
            Waits(waiters),
            Has(exited)
        ));
    }
}

/// The sender computes no more. `args[0]`, from node 0: how many nodes there are.
pub fn on_exited(node: &mut Node, from: NodeId, message: &Message) {
    node.sync.exited |= bit(from);
    if from == node.manager() {
        let all = u64::MAX >> (64 - message.args[0].clamp(1, MAX_NODES as u64));
        node.sync.everyone = Some(all);
    }
    check_collective(node);
    for index in 0..node.sync.locks.len() {
        if let Some(lock) = node.sync.locks.get(index) {
            check_lock(node, &lock);
        }
    }
    if node.me == node.manager() {
        for slot in 0..PUBLISH_SLOTS.into() {
            check_slot(node, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_recognised() {
        let handle = LockHandle { home: NodeId::new(63).unwrap(), index: (1 << 40) - 1 };
        assert_eq!(LockHandle::decode(handle.encode()), Some(handle));
        let first = LockHandle { home: NodeId::new(0).unwrap(), index: 0 };
        assert_eq!(LockHandle::decode(first.encode()), Some(first));
        for other in [0, 1, 0x2000_0000_0000, 0x7fff_ffff_f000, u64::MAX, first.encode() | 64 << 40] {
            assert_eq!(LockHandle::decode(other), None, "{other:#x}");
        }
    }

    #[test]
    fn sums_follow_the_node_order() {
        let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let sum = |values: &[f64]| f64::from_bits(Collective::SumF64.combine(&bits(values)));
        assert_eq!(sum(&[1e16, 1.0, -1e16]), 0.0);
        assert_eq!(sum(&[1e16, -1e16, 1.0]), 1.0);
        assert!(sum(&[-0.0]).is_sign_negative());
        assert_eq!(Collective::SumU64.combine(&[u64::MAX, 3]), 2);
    }

    #[test]
    fn sets_of_nodes_read_well() {
        assert_eq!(Waits(2).to_string(), "node 1 waits");
        assert_eq!(Has(0x8000_0000_0000_0005).to_string(), "nodes 0, 2, 63 have");
    }
}
