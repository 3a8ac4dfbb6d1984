//! The directory of a home: eight bytes per block, and a table for the few blocks that need more.
//!
//! Purpose: [`DirState`] is what a home knows about a block, [`DirEntry`] the eight bytes in which it stores that, and [`Directory`]
//! the array of entries with the table behind it. Input and output: states by block number. Source: Reinhardt 1996, section 2.3: two bytes of
//! state and six one-byte node pointers, which become a bit vector when more than six nodes share the block; more nodes than fit a
//! vector take dynamically allocated entries.
//!
//! ```text
//! byte 0      bits 0-3: kind (0 Idle); bits 4-5: form
//! byte 1      requester: 0 none, 255 the home itself, else node number + 1
//! bytes 2-7   form 0, pointers: node number + 1 in ascending order, then zeros
//!             form 1, vector: a bit for each of nodes 0 to 47, little-endian
//!             form 2, elsewhere: bytes 2-5 index into the table of larger records, bytes 6-7 and byte 1 zero
//! ```
//!
//! A record of the table holds a bit for each node of the largest run and the requester, 16 bits. Form 0 is taken for at most six nodes,
//! form 1 for more when all are below 48, form 2 for the rest, and whenever a number does not fit a byte.
//!
//! **Invariant:** each state has exactly one encoding (but for the index) and eight zero bytes are Idle, so that a directory page fresh
//! from the kernel is a correct one. `decode` accepts nothing else. A record belongs to one entry, or to the list of free ones.

use crate::ids::{NAMED_NODES, NodeId, NodeSet, RUN_WORDS};
use crate::storage::{Queue, Storage, Table, Zeroed};
use crate::tag::Tag;

/// On whose behalf the home makes other nodes give up their copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Requester {
    /// The home's own program.
    Home,
    Node(NodeId),
}

/// What the home knows about a block.
///
/// **Invariant:** the set of a `Shared` or `AwaitAcks` state is not empty, and never contains the requester or the home.
/// `Shared` may name nodes that have silently dropped their copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DirState<const WORDS: usize = RUN_WORDS> {
    /// No remote copy; the home may store.
    Idle,
    /// ReadOnly copies at the home and at (a subset of) these nodes.
    Shared(NodeSet<WORDS>),
    /// The only copy is Writable and at that node, or on its way to it, or on its way back.
    Exclusive(NodeId),
    /// `Invalidate` sent to each of `waiting`, not yet acknowledged; then `requester` may store. `upgrade`: it has the data.
    AwaitAcks { waiting: NodeSet<WORDS>, requester: Requester, upgrade: bool },
    /// `RecallRead` sent to `owner`; then `requester` may load.
    RecallRead { owner: NodeId, requester: Requester },
    /// `RecallWrite` sent to `owner`; then `requester` may store.
    RecallWrite { owner: NodeId, requester: Requester },
}

impl<const WORDS: usize> DirState<WORDS> {
    /// Whether requests must be deferred.
    pub const fn is_busy(self) -> bool {
        !matches!(self, DirState::Idle | DirState::Shared(_) | DirState::Exclusive(_))
    }

    /// The tag that the home's own copy has in this state. The home keeps reading its copy until the moment it grants a
    /// remote store, because the store cannot happen before that.
    pub const fn home_tag(self) -> Tag {
        match self {
            DirState::Idle => Tag::Writable,
            DirState::Shared(_) => Tag::ReadOnly,
            DirState::Exclusive(_) => Tag::Invalid,
            DirState::AwaitAcks { requester: Requester::Home, .. }
            | DirState::RecallRead { requester: Requester::Home, .. }
            | DirState::RecallWrite { requester: Requester::Home, .. } => Tag::Busy,
            DirState::AwaitAcks { requester: Requester::Node(_), .. } => Tag::ReadOnly,
            DirState::RecallRead { requester: Requester::Node(_), .. }
            | DirState::RecallWrite { requester: Requester::Node(_), .. } => Tag::Invalid,
        }
    }
}

/// Node pointers of an entry before it switches to a bit vector.
pub const POINTERS: usize = 6;
/// Nodes of the bit vector.
pub const VECTOR_NODES: usize = 48;

/// The stored form of a [`DirState`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C, align(8))]
pub struct DirEntry {
    kind: u8,
    requester: u8,
    nodes: [u8; POINTERS],
}

const _: () = assert!(size_of::<DirEntry>() == 8 && align_of::<DirEntry>() == 8);
// SAFETY: eight bytes; all zero is the Idle entry.
unsafe impl Zeroed for DirEntry {}

const IDLE: u8 = 0;
const SHARED: u8 = 1;
const EXCLUSIVE: u8 = 2;
const AWAIT_ACKS: u8 = 3;
const AWAIT_ACKS_UPGRADE: u8 = 4;
const RECALL_READ: u8 = 5;
const RECALL_WRITE: u8 = 6;
const KIND: u8 = 0x0f;

const VECTOR: u8 = 0x10;
const ELSEWHERE: u8 = 0x20;

const NO_REQUESTER: u16 = 0;
const HOME_REQUESTER: u16 = 0xffff;
/// The same in an entry's byte.
const HOME_REQUESTER_BYTE: u8 = 0xff;

/// What does not fit an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record<const WORDS: usize> {
    set: [u64; WORDS],
    /// 0 none, [`HOME_REQUESTER`], else node number + 1; in a free record the number of the next free one + 1.
    requester: u64,
}

// SAFETY: integers.
unsafe impl<const WORDS: usize> Zeroed for Record<WORDS> {}

/// A state taken apart.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Parts<const WORDS: usize> {
    kind: u8,
    requester: u16,
    set: NodeSet<WORDS>,
}

impl<const WORDS: usize> Parts<WORDS> {
    fn of(state: DirState<WORDS>) -> Self {
        let (kind, requester, set) = match state {
            DirState::Idle => (IDLE, None, NodeSet::EMPTY),
            DirState::Shared(set) => (SHARED, None, set),
            DirState::Exclusive(owner) => (EXCLUSIVE, None, NodeSet::of(owner)),
            DirState::AwaitAcks { waiting, requester, upgrade: false } => (AWAIT_ACKS, Some(requester), waiting),
            DirState::AwaitAcks { waiting, requester, upgrade: true } => (AWAIT_ACKS_UPGRADE, Some(requester), waiting),
            DirState::RecallRead { owner, requester } => (RECALL_READ, Some(requester), NodeSet::of(owner)),
            DirState::RecallWrite { owner, requester } => (RECALL_WRITE, Some(requester), NodeSet::of(owner)),
        };
        let requester = match requester {
            None => NO_REQUESTER,
            Some(Requester::Home) => HOME_REQUESTER,
            Some(Requester::Node(node)) => node.index() as u16 + 1,
        };
        Parts { kind, requester, set }
    }

    /// `None` if no state that keeps [`DirState`]'s invariant has these parts.
    fn state(self) -> Option<DirState<WORDS>> {
        let set = self.set;
        let requester = match self.requester {
            NO_REQUESTER => None,
            HOME_REQUESTER => Some(Requester::Home),
            node => {
                let node = NodeId::new(u32::from(node) - 1).filter(|node| node.index() < NodeSet::<WORDS>::CAPACITY)?;
                Some(Requester::Node(node))
            }
        };
        if matches!(requester, Some(Requester::Node(node)) if set.contains(node)) {
            return None;
        }
        Some(match (self.kind, requester) {
            (IDLE, None) if set.is_empty() => DirState::Idle,
            (SHARED, None) if !set.is_empty() => DirState::Shared(set),
            (EXCLUSIVE, None) => DirState::Exclusive(set.only()?),
            (AWAIT_ACKS, Some(requester)) if !set.is_empty() => {
                DirState::AwaitAcks { waiting: set, requester, upgrade: false }
            }
            (AWAIT_ACKS_UPGRADE, Some(requester @ Requester::Node(_))) if !set.is_empty() => {
                DirState::AwaitAcks { waiting: set, requester, upgrade: true }
            }
            (RECALL_READ, Some(requester)) => DirState::RecallRead { owner: set.only()?, requester },
            (RECALL_WRITE, Some(requester)) => DirState::RecallWrite { owner: set.only()?, requester },
            _ => return None,
        })
    }

    /// The entry; `None` when they need a record.
    fn entry(self) -> Option<DirEntry> {
        let requester = match self.requester {
            HOME_REQUESTER => HOME_REQUESTER_BYTE,
            // 255 stands for the home.
            node => u8::try_from(node).ok().filter(|&byte| byte != HOME_REQUESTER_BYTE)?,
        };
        let mut nodes = [0; POINTERS];
        if self.set.len() <= POINTERS {
            for (pointer, node) in nodes.iter_mut().zip(self.set.iter()) {
                *pointer = u8::try_from(node.index() + 1).ok()?;
            }
            return Some(DirEntry { kind: self.kind, requester, nodes });
        }
        let [vector, rest @ ..] = self.set.0.as_slice() else { return None };
        if vector >> VECTOR_NODES != 0 || rest.iter().any(|&word| word != 0) {
            return None;
        }
        nodes.copy_from_slice(&vector.to_le_bytes()[..POINTERS]);
        Some(DirEntry { kind: self.kind | VECTOR, requester, nodes })
    }
}

impl DirEntry {
    /// No remote copies: eight zero bytes.
    pub const IDLE: DirEntry = DirEntry { kind: IDLE, requester: 0, nodes: [0; POINTERS] };

    /// The state of the entries that nearly all blocks have: no copy, or one; and of a request that has to do with one copy.
    #[inline]
    fn common<const WORDS: usize>(self) -> Option<DirState<WORDS>> {
        let DirEntry { kind, requester, nodes: [first, 0, 0, 0, 0, 0] } = self else { return None };
        let node = |number: Option<u8>| {
            let number = number.filter(|&number| usize::from(number) < NodeSet::<WORDS>::CAPACITY)?;
            NodeId::new(number.into())
        };
        if first == 0 {
            return (kind == IDLE && requester == 0).then_some(DirState::Idle);
        }
        let copy = node(first.checked_sub(1))?;
        let for_whom = match requester {
            0 => {
                return match kind {
                    SHARED => Some(DirState::Shared(NodeSet::of(copy))),
                    EXCLUSIVE => Some(DirState::Exclusive(copy)),
                    _ => None,
                };
            }
            HOME_REQUESTER_BYTE => Requester::Home,
            number => Requester::Node(node(number.checked_sub(1)).filter(|&other| other != copy)?),
        };
        match kind {
            AWAIT_ACKS => Some(DirState::AwaitAcks { waiting: NodeSet::of(copy), requester: for_whom, upgrade: false }),
            RECALL_READ => Some(DirState::RecallRead { owner: copy, requester: for_whom }),
            RECALL_WRITE => Some(DirState::RecallWrite { owner: copy, requester: for_whom }),
            _ => None,
        }
    }

    /// The entry that [`DirEntry::common`] understands, if the state has one.
    #[inline]
    fn of_common<const WORDS: usize>(state: DirState<WORDS>) -> Option<DirEntry> {
        let (kind, requester, copy) = match state {
            DirState::Idle => return Some(DirEntry::IDLE),
            DirState::Shared(set) => (SHARED, None, set.only()?),
            DirState::Exclusive(owner) => (EXCLUSIVE, None, owner),
            DirState::AwaitAcks { waiting, requester, upgrade: false } => {
                (AWAIT_ACKS, Some(requester), waiting.only()?)
            }
            DirState::AwaitAcks { upgrade: true, .. } => return None,
            DirState::RecallRead { owner, requester } => (RECALL_READ, Some(requester), owner),
            DirState::RecallWrite { owner, requester } => (RECALL_WRITE, Some(requester), owner),
        };
        // 255 stands for the home, and is no pointer here.
        let byte = |node: NodeId| if node.index() < 254 { Some(node.index() as u8 + 1) } else { None };
        let requester = match requester {
            None => 0,
            Some(Requester::Home) => HOME_REQUESTER_BYTE,
            Some(Requester::Node(node)) => byte(node)?,
        };
        Some(DirEntry { kind, requester, nodes: [byte(copy)?, 0, 0, 0, 0, 0] })
    }

    /// The record's index, if the entry is nothing else; `None` when it holds everything itself.
    #[inline]
    fn elsewhere(self) -> Option<u32> {
        let [a, b, c, d, 0, 0] = self.nodes else { return None };
        (self.kind & !KIND == ELSEWHERE && self.requester == 0).then_some(u32::from_le_bytes([a, b, c, d]))
    }

    /// The parts, if they are written in the one way in which [`Parts::entry`] writes them.
    fn parts<const WORDS: usize>(self) -> Option<Parts<WORDS>> {
        let requester = match self.requester {
            HOME_REQUESTER_BYTE => HOME_REQUESTER,
            node => node.into(),
        };
        let mut set = NodeSet::EMPTY;
        if self.kind & !KIND == VECTOR {
            let [a, b, c, d, e, f] = self.nodes;
            set.0[0] = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
        } else {
            for pointer in self.nodes.into_iter().filter(|&pointer| pointer != 0) {
                set = set.with(
                    NodeId::new(u32::from(pointer) - 1).filter(|node| node.index() < NodeSet::<WORDS>::CAPACITY)?,
                );
            }
        }
        let parts = Parts { kind: self.kind & KIND, requester, set };
        (parts.entry() == Some(self)).then_some(parts)
    }
}

/// The directory of one home.
pub struct Directory<M: Storage, const WORDS: usize = RUN_WORDS> {
    entries: M::Table<DirEntry>,
    records: Queue<Record<WORDS>, M>,
    /// Number of the first free record + 1; 0: none.
    free: u64,
    in_use: u64,
}

impl<M: Storage, const WORDS: usize> Directory<M, WORDS> {
    /// A directory of so many blocks, all Idle.
    ///
    /// # Errors
    /// There is no memory.
    pub fn new(blocks: u64) -> Result<Self, M::Error> {
        const { assert!(64 * WORDS <= NAMED_NODES) }
        Ok(Directory { entries: M::table(blocks)?, records: Queue::new(), free: 0, in_use: 0 })
    }

    /// Whether no other node has a copy. As [`Directory::get`], but at the cost of one load.
    pub fn is_idle(&self, block: u64) -> bool {
        self.entries.get(block) == DirEntry::IDLE
    }

    /// The state of a block.
    ///
    /// # Errors
    /// The entry, when it is corrupt.
    #[inline]
    pub fn get(&self, block: u64) -> Result<DirState<WORDS>, DirEntry> {
        let entry = self.entries.get(block);
        match entry.common() {
            Some(state) => Ok(state),
            None => self.decode(entry),
        }
    }

    /// [`Directory::get`] for any entry.
    #[inline(never)]
    fn decode(&self, entry: DirEntry) -> Result<DirState<WORDS>, DirEntry> {
        let parts = match entry.elsewhere() {
            None => entry.parts(),
            Some(index) => self.records.get(index.into()).and_then(|record| {
                let requester = u16::try_from(record.requester).ok()?;
                let parts = Parts { kind: entry.kind & KIND, requester, set: NodeSet(record.set) };
                // What fits an entry is never here.
                parts.entry().is_none().then_some(parts)
            }),
        };
        parts.and_then(Parts::state).ok_or(entry)
    }

    /// Stores the state of a block.
    ///
    /// # Errors
    /// There is no memory for a record.
    #[inline]
    pub fn set(&mut self, block: u64, state: DirState<WORDS>) -> Result<(), M::Error> {
        match DirEntry::of_common(state) {
            Some(entry) if self.entries.get(block).elsewhere().is_none() => {
                self.entries.set(block, entry);
                Ok(())
            }
            _ => self.set_any(block, state),
        }
    }

    /// [`Directory::set`] for any state.
    #[inline(never)]
    fn set_any(&mut self, block: u64, state: DirState<WORDS>) -> Result<(), M::Error> {
        let parts = Parts::of(state);
        let before = self.entries.get(block).elsewhere();
        let entry = match (parts.entry(), before) {
            (Some(entry), None) => entry,
            (Some(entry), Some(index)) => {
                self.records.set(index.into(), Record { set: [0; WORDS], requester: self.free });
                self.free = u64::from(index) + 1;
                self.in_use -= 1;
                entry
            }
            (None, before) => {
                let record = Record { set: parts.set.0, requester: parts.requester.into() };
                let index = match before {
                    Some(index) => index,
                    None => self.take_record()?,
                };
                self.records.set(index.into(), record);
                let [a, b, c, d] = index.to_le_bytes();
                DirEntry { kind: parts.kind | ELSEWHERE, requester: 0, nodes: [a, b, c, d, 0, 0] }
            }
        };
        self.entries.set(block, entry);
        Ok(())
    }

    #[cold]
    fn take_record(&mut self) -> Result<u32, M::Error> {
        let index = match self.free.checked_sub(1) {
            Some(index) => {
                self.free = self.records.get(index).map_or(0, |record| record.requester);
                index
            }
            None => {
                self.records.push(Record { set: [0; WORDS], requester: 0 })?;
                self.records.len() - 1
            }
        };
        self.in_use += 1;
        // Fewer records than blocks, and fewer blocks than 2^34 bytes of directory hold.
        Ok(index as u32)
    }

    /// Records in use.
    pub fn records(&self) -> u64 {
        self.in_use
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::vectors::VectorStorage;

    /// Words of the largest directory.
    const ALL: usize = NAMED_NODES / 64;

    fn node(number: u32) -> NodeId {
        NodeId::new(number).unwrap()
    }

    fn set<const W: usize>(numbers: impl IntoIterator<Item = u32>) -> NodeSet<W> {
        numbers.into_iter().fold(NodeSet::EMPTY, |set, number| set.with(node(number)))
    }

    fn bytes(entry: DirEntry) -> [u8; 8] {
        let [a, b, c, d, e, f] = entry.nodes;
        [entry.kind, entry.requester, a, b, c, d, e, f]
    }

    fn from_bytes([kind, requester, nodes @ ..]: [u8; 8]) -> DirEntry {
        DirEntry { kind, requester, nodes }
    }

    fn encode<const W: usize>(state: DirState<W>) -> Option<DirEntry> {
        Parts::of(state).entry()
    }

    /// Sets of every size, the borders between the forms included.
    fn sets<const W: usize>() -> Vec<NodeSet<W>> {
        let nodes = 64 * W as u32;
        let sizes = (1..=64).chain((65..=nodes).step_by(37)).chain([nodes]);
        sizes.flat_map(|size| [set(0..size), set(nodes - size..nodes)]).collect()
    }

    fn states<const W: usize>() -> Vec<DirState<W>> {
        let mut states = vec![DirState::Idle];
        let nodes: Vec<NodeId> = (0..64 * W as u32).step_by(if W == 1 { 1 } else { 17 }).map(node).collect();
        for set in sets() {
            states.push(DirState::Shared(set));
            states.push(DirState::AwaitAcks { waiting: set, requester: Requester::Home, upgrade: false });
            for &node in nodes.iter().filter(|&&node| !set.contains(node)) {
                for upgrade in [false, true] {
                    states.push(DirState::AwaitAcks { waiting: set, requester: Requester::Node(node), upgrade });
                }
            }
        }
        for &owner in &nodes {
            states.push(DirState::Exclusive(owner));
            let others = nodes.iter().filter(|&&node| node != owner).map(|&node| Requester::Node(node));
            for requester in others.chain([Requester::Home]) {
                states.push(DirState::RecallRead { owner, requester });
                states.push(DirState::RecallWrite { owner, requester });
            }
        }
        states.sort_unstable_by_key(|state| format!("{state:?}"));
        states.dedup();
        states
    }

    fn every_state_comes_back<const W: usize>(floor: usize) {
        let states = states::<W>();
        assert!(states.len() > floor, "{}", states.len());
        let mut directory = Directory::<VectorStorage, W>::new(states.len() as u64).unwrap();
        let mut seen = std::collections::HashSet::new();
        for (block, &state) in (0..).zip(&states) {
            directory.set(block, state).unwrap();
            if let Some(entry) = encode(state) {
                assert_eq!(directory.entries.get(block), entry);
                assert!(seen.insert(bytes(entry)), "{state:?}");
            }
        }
        let mut large = 0;
        for (block, &state) in (0..).zip(&states) {
            assert_eq!(directory.get(block), Ok(state));
            large += u64::from(encode(state).is_none());
        }
        assert!(large > 0);
        assert_eq!(directory.records(), large);
        // In another order, so that records change hands.
        for (block, &state) in (0..).zip(states.iter().rev()) {
            directory.set(block, state).unwrap();
        }
        for (block, &state) in (0..).zip(states.iter().rev()) {
            assert_eq!(directory.get(block), Ok(state));
        }
        assert_eq!(directory.records(), large);
        let made = directory.records.len();
        for block in 0..states.len() as u64 {
            directory.set(block, DirState::Idle).unwrap();
            assert!(directory.is_idle(block));
        }
        assert_eq!((directory.records(), directory.records.len()), (0, made));
    }

    #[test]
    fn every_state_of_a_run_comes_back() {
        every_state_comes_back::<1>(10_000);
    }

    #[test]
    fn every_state_of_1024_nodes_comes_back() {
        every_state_comes_back::<ALL>(10_000);
    }

    #[test]
    fn records_are_used_again() {
        let mut directory = Directory::<VectorStorage, ALL>::new(8).unwrap();
        let all = DirState::Shared(set(0..1024));
        for round in 0..1000 {
            directory.set(round % 8, all).unwrap();
            directory.set((round + 5) % 8, DirState::Exclusive(node(3))).unwrap();
        }
        assert!(directory.records.len() <= 8);
    }

    #[test]
    fn zero_bytes_are_idle() {
        assert_eq!(bytes(DirEntry::IDLE), [0; 8]);
        assert_eq!(encode::<1>(DirState::Idle), Some(DirEntry::IDLE));
        assert_eq!(Directory::<VectorStorage, 1>::new(4).unwrap().get(3), Ok(DirState::Idle));
    }

    #[test]
    fn sharers_are_pointers_then_a_vector_then_a_record() {
        let six = set::<1>([3, 4, 5, 6, 7, 9]);
        assert_eq!(bytes(encode(DirState::Shared(six)).unwrap()), [1, 0, 4, 5, 6, 7, 8, 10]);
        let seven = six.with(node(47));
        assert_eq!(bytes(encode(DirState::Shared(seven)).unwrap()), [0x11, 0, 0xf8, 0x02, 0, 0, 0, 0x80]);
        assert_eq!(encode(DirState::Shared(seven.with(node(48)))), None);
        // Six high numbers still are six pointers, as long as they fit a byte.
        let high = set::<ALL>([10, 100, 200, 252, 253, 254]);
        assert_eq!(bytes(encode(DirState::Shared(high)).unwrap()), [1, 0, 11, 101, 201, 253, 254, 255]);
        assert_eq!(encode(DirState::Shared(high.without(node(10)).with(node(255)))), None);
        assert_eq!(encode(DirState::<ALL>::Exclusive(node(700))), None);
        let asked = |by| DirState::<ALL>::RecallRead { owner: node(1), requester: Requester::Node(node(by)) };
        assert_eq!(bytes(encode(asked(253)).unwrap()), [5, 254, 2, 0, 0, 0, 0, 0]);
        assert_eq!(encode(asked(254)), None, "255 is the home");
    }

    #[test]
    fn corrupt_entries_are_refused() {
        for bad in [
            [7, 0, 0, 0, 0, 0, 0, 0],                // no such kind
            [0, 0, 1, 0, 0, 0, 0, 0],                // Idle with a sharer
            [0, 1, 0, 0, 0, 0, 0, 0],                // Idle with a requester
            [1, 0, 0, 0, 0, 0, 0, 0],                // Shared by nobody
            [1, 0, 65, 0, 0, 0, 0, 0],               // node 64
            [1, 0, 2, 1, 0, 0, 0, 0],                // not ascending
            [1, 0, 1, 1, 0, 0, 0, 0],                // repeated
            [1, 0, 0, 1, 0, 0, 0, 0],                // gap
            [2, 0, 1, 2, 0, 0, 0, 0],                // two owners
            [3, 0, 1, 0, 0, 0, 0, 0],                // nobody asked
            [3, 1, 1, 0, 0, 0, 0, 0],                // the requester must acknowledge to itself
            [4, 255, 1, 0, 0, 0, 0, 0],              // the home needs no UpgradeAck
            [5, 65, 1, 0, 0, 0, 0, 0],               // requester 64
            [0x11, 0, 1, 0, 0, 0, 0, 0],             // a vector of one
            [0x12, 0, 255, 255, 255, 255, 0, 0],     // many owners
            [0x21, 0, 0, 0, 0, 0, 0, 0],             // no such record
            [0x21, 1, 0, 0, 0, 0, 0, 0],             // a record and a requester
            [0x31, 0, 255, 255, 255, 255, 255, 255], // no such form
            [0x81, 0, 1, 0, 0, 0, 0, 0],             // nor this
        ] {
            let mut directory = Directory::<VectorStorage, 1>::new(1).unwrap();
            directory.entries.set(0, from_bytes(bad));
            assert_eq!(directory.get(0), Err(from_bytes(bad)), "{bad:?}");
        }
    }

    /// Whatever the bytes: decoding does not panic, and what is accepted encodes to the same bytes.
    #[test]
    fn only_canonical_bytes_are_accepted() {
        let mut seed: u64 = 1;
        let mut accepted = 0;
        for _ in 0..1_000_000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let mut raw = (seed >> 3 ^ seed >> 29).to_le_bytes();
            raw[0] &= 0x17;
            for byte in &mut raw[1..] {
                *byte &= 0x43;
            }
            if let Some(state) = from_bytes(raw).parts::<1>().and_then(Parts::state) {
                accepted += 1;
                assert_eq!(bytes(encode(state).unwrap()), raw);
            }
        }
        assert!(accepted > 100, "{accepted}");
    }
}
