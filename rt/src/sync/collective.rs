//! What all nodes do together: barriers, reductions, broadcasts.
//!
//! Purpose: [`Node::collective`] returns when every node has called it, with the combination of all values. Input: a [`Collective`] and up
//! to [`VECTOR_WORDS`] words from each node; output: the same words on all. Longer vectors and broadcasts are several collectives.
//!
//! Arrivals go up a tree and the result comes down it. Up to [`FLAT_NODES`] nodes all send to node 0; more form a tree in which node `i`
//! has the children `4i + 1 ..= 4i + 4`. A node that node 0 creates after the homes are dealt out is a child of node 0.
//!
//! **Invariants**
//! * Values are combined in a fixed order, which depends on the number of nodes alone: a node's own, then those of its children in ascending
//!   order. All nodes get the result that node 0 computed.
//! * A node that has exited arrives nowhere: whoever waits for its arrival, or for its answer, ends the run and names it.
//!
//! Source: Mellor-Crummey and Scott, Algorithms for Scalable Synchronization, 1991, section 3.3 (tree barriers).

use super::op::Reduction;
use super::{Has, Names, Waits, bit};
use crate::messages::id;
use crate::node::Node;
use crate::node::stats::Wait;
use crate::transport::message::Message;
use blizzard_contract::{Counter, MAX_NODES};
use blizzard_protocol::ids::NodeId;

/// Most words that one collective combines.
pub const VECTOR_WORDS: usize = 8;
/// Up to so many nodes, node 0 is everybody's parent.
pub const FLAT_NODES: u32 = 8;
/// Children of a node of the tree.
const FAN_OUT: u32 = 4;
/// Most bytes of one broadcast of the runtime; the client library makes longer ones of several.
pub const BROADCAST_BYTES: u64 = 8192;
/// Bytes of one message of a broadcast.
const CHUNK_BYTES: u64 = 64;

/// What the nodes do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    Barrier,
    Reduce(Reduction),
    /// All get ready to receive from this node; the value is the number of bytes.
    Broadcast(NodeId),
}

const BROADCAST_NUMBER: u64 = 16;

impl Collective {
    const fn number(self) -> u64 {
        match self {
            Collective::Barrier => 0,
            Collective::Reduce(reduction) => 1 + reduction.number(),
            Collective::Broadcast(root) => BROADCAST_NUMBER + root.index() as u64,
        }
    }

    fn from_number(number: u64) -> Option<Collective> {
        match number {
            0 => Some(Collective::Barrier),
            1..BROADCAST_NUMBER => Reduction::from_number(number - 1).map(Collective::Reduce),
            _ => {
                let root = u32::try_from(number - BROADCAST_NUMBER).ok().filter(|root| *root < MAX_NODES as u32)?;
                NodeId::new(root).map(Collective::Broadcast)
            }
        }
    }

    /// The function that the program calls.
    const fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "bz_barrier",
            Collective::Reduce(reduction) => reduction.name(),
            Collective::Broadcast(_) => "bz_broadcast",
        }
    }

    fn apply(self, a: u64, b: u64) -> u64 {
        match self {
            Collective::Barrier => 0,
            Collective::Reduce(reduction) => reduction.apply(a, b),
            // Everybody must expect the same number of bytes.
            Collective::Broadcast(_) if a == b => a,
            Collective::Broadcast(_) => u64::MAX,
        }
    }
}

/// The tree over nodes `0..size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    pub size: u32,
}

impl Tree {
    /// Where node `node` sends its arrival; `None` for node 0. A node outside is node 0's child.
    pub const fn parent(self, node: u32) -> Option<u32> {
        match node {
            0 => None,
            _ if self.size <= FLAT_NODES || node >= self.size => Some(0),
            _ => Some((node - 1) / FAN_OUT),
        }
    }

    /// The children of `node` among `0..all`, as a set.
    pub fn children(self, node: u32, all: u32) -> u64 {
        (1..all).filter(|&child| self.parent(child) == Some(node)).fold(0, |set, child| set | 1 << child)
    }
}

/// The numbers in a set, in ascending order.
fn members(mut set: u64) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        let lowest = (set != 0).then(|| set.trailing_zeros());
        set &= set.wrapping_sub(1);
        lowest
    })
}

type Words = [u64; VECTOR_WORDS];

/// Where the bytes of the broadcast in progress go.
#[derive(Clone, Copy, Debug)]
struct Incoming {
    at: u64,
    bytes: u64,
    received: u64,
}

/// The collectives of one node.
pub struct Collectives {
    /// That this node has entered, and those that are complete.
    entered: u64,
    completed: u64,
    /// The next one: who has arrived here (this node, its children), at what, with how many words and which.
    arrived: u64,
    kind: Collective,
    count: u64,
    values: [Words; MAX_NODES],
    result: Words,
    incoming: Option<Incoming>,
}

impl Collectives {
    pub(super) const fn new() -> Collectives {
        Collectives {
            entered: 0,
            completed: 0,
            arrived: 0,
            kind: Collective::Barrier,
            count: 0,
            values: [[0; VECTOR_WORDS]; MAX_NODES],
            result: [0; VECTOR_WORDS],
            incoming: None,
        }
    }

    /// A created node begins where node 0 was when it created it.
    pub fn continue_from(&mut self, parent: u64) {
        (self.entered, self.completed) = (parent, parent);
    }

    pub const fn entered(&self) -> u64 {
        self.entered
    }
}

impl Node {
    /// Waits until every node is in its next collective, which must be the same one; replaces the words by the result.
    pub fn collective(&mut self, kind: Collective, words: &mut [u64]) {
        let epoch = self.sync.collectives.entered;
        self.sync.collectives.entered += 1;
        if kind == Collective::Barrier {
            self.count(Counter::Barriers);
        }
        let mut all = [0; VECTOR_WORDS];
        all[..words.len()].copy_from_slice(words);
        self.arrive(self.me, kind, words.len() as u64, &all);
        self.wait(Wait::Barrier, |node| node.sync.collectives.completed > epoch);
        let result = self.sync.collectives.result;
        words.copy_from_slice(&result[..words.len()]);
    }

    /// One word.
    pub fn collective_word(&mut self, kind: Collective, value: u64) -> u64 {
        let mut word = [value];
        self.collective(kind, &mut word);
        word[0]
    }

    fn tree(&self) -> Tree {
        Tree { size: self.homes.present() }
    }

    /// Whose arrivals this node waits for before it sends its own.
    fn children(&self) -> u64 {
        let all = if self.me == self.manager() { self.participants() } else { self.homes.present() };
        self.tree().children(self.me.index() as u32, all)
    }

    fn parent(&self) -> Option<NodeId> {
        self.tree().parent(self.me.index() as u32).and_then(NodeId::new)
    }

    fn arrive(&mut self, from: NodeId, kind: Collective, count: u64, words: &Words) {
        let state = &mut self.sync.collectives;
        if state.arrived == 0 {
            (state.kind, state.count) = (kind, count);
        } else if state.kind != kind {
            let (others, theirs) = (Names(state.arrived), state.kind.name());
            self.fail(format_args!(
                "node {} calls {} while {others} waits in {theirs}: all nodes must call the same one",
                from.index(),
                kind.name()
            ));
        } else if state.count != count {
            let (others, theirs) = (Names(state.arrived), state.count);
            self.fail(format_args!(
                "node {} reduces {count} words while {others} reduces {theirs}: all nodes must give the same number",
                from.index()
            ));
        }
        state.arrived |= bit(from);
        state.values[from.index()] = *words;
        let expected = self.children() | bit(self.me);
        if self.sync.collectives.arrived != expected {
            return check_collective(self);
        }
        let combined = self.combined(expected);
        match self.parent() {
            None => self.complete(combined),
            Some(parent) => {
                self.send_words(parent, [id::COLLECTIVE_ARRIVE, id::VECTOR_ARRIVE], kind.number(), count, &combined);
                check_collective(self);
            }
        }
    }

    /// The values of a set of nodes in one, in ascending order.
    fn combined(&self, nodes: u64) -> Words {
        let state = &self.sync.collectives;
        let mut present = members(nodes).map(|number| state.values[number as usize]);
        let mut all = present.next().unwrap_or_default();
        for words in present {
            for (a, b) in all.iter_mut().zip(words).take(state.count as usize) {
                *a = state.kind.apply(*a, b);
            }
        }
        all
    }

    /// Sends words with the current collective's number as the key: in one line if there is one at most, else in two.
    fn send_words(&mut self, to: NodeId, handlers: [u16; 2], kind: u64, count: u64, words: &Words) {
        let key = self.sync.collectives.completed;
        let short = Message { handler: handlers[0], args: [kind, words[0], count], key, ..Message::default() };
        let message = if count <= 1 {
            short
        } else {
            Message { handler: handlers[1], length: CHUNK_BYTES as u8, data: *words, ..short }
        };
        self.send(to, message);
    }

    /// The collective is over: tells the children and lets this node go on.
    fn complete(&mut self, result: Words) {
        let (kind, count) = (self.sync.collectives.kind.number(), self.sync.collectives.count);
        let children = self.children();
        for to in members(children).filter_map(NodeId::new) {
            self.send_words(to, [id::COLLECTIVE_DONE, id::VECTOR_DONE], kind, count, &result);
        }
        let state = &mut self.sync.collectives;
        state.arrived = 0;
        state.completed += 1;
        state.result = result;
    }

    /// Copies `bytes` bytes (at most [`BROADCAST_BYTES`]) of private memory from node `root` to the other nodes' `at`.
    ///
    /// # Safety
    /// `bytes` bytes at `at` are private memory of the caller's, readable and writable until the call returns.
    pub unsafe fn broadcast(&mut self, root: NodeId, at: u64, bytes: u64) {
        if self.me != root && bytes != 0 {
            self.sync.collectives.incoming = Some(Incoming { at, bytes, received: 0 });
        }
        if self.collective_word(Collective::Broadcast(root), bytes) != bytes {
            self.fail(format_args!("bz_broadcast: the nodes do not all expect the same number of bytes"));
        }
        if self.me == root {
            for offset in (0..bytes).step_by(CHUNK_BYTES as usize) {
                let length = CHUNK_BYTES.min(bytes - offset);
                let mut data = [0u64; VECTOR_WORDS];
                // SAFETY: the caller's memory, and as many bytes of a larger array.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        (at + offset) as *const u8,
                        data.as_mut_ptr().cast::<u8>(),
                        length as usize,
                    );
                }
                let args = [offset, length, root.index() as u64];
                let chunk = Message {
                    handler: id::BROADCAST_DATA,
                    length: CHUNK_BYTES as u8,
                    args,
                    data,
                    ..Message::default()
                };
                self.send(self.manager(), chunk);
            }
        } else {
            self.wait(Wait::Barrier, |node| node.sync.collectives.incoming.is_none());
        }
    }
}

/// `args`: kind, value, number of words; key: how many collectives the sender has completed. Data: the words, if there are several.
pub fn on_arrive(node: &mut Node, from: NodeId, message: &Message) {
    let [kind, value, count] = message.args;
    let state = &node.sync.collectives;
    let expected = node.children() & !state.arrived;
    let fits = count <= 1 || message.length != 0 && count <= VECTOR_WORDS as u64;
    let Some(kind) =
        Collective::from_number(kind).filter(|_| message.key == state.completed && expected & bit(from) != 0 && fits)
    else {
        return node.count(Counter::MessagesRejected);
    };
    let words = if count <= 1 { [value, 0, 0, 0, 0, 0, 0, 0] } else { message.data };
    node.arrive(from, kind, count, &words);
}

/// As [`on_arrive`], with the result.
pub fn on_done(node: &mut Node, from: NodeId, message: &Message) {
    let state = &node.sync.collectives;
    let waits = state.arrived == node.children() | bit(node.me);
    if message.key != state.completed || Some(from) != node.parent() || !waits {
        return node.count(Counter::MessagesRejected);
    }
    let words = if message.args[2] <= 1 { [message.args[1], 0, 0, 0, 0, 0, 0, 0] } else { message.data };
    node.complete(words);
}

/// `args`: offset, bytes, the sender of the broadcast. Passed on down the tree; kept by everybody but the sender.
pub fn on_broadcast_data(node: &mut Node, from: NodeId, message: &Message) {
    let [offset, length, root] = message.args;
    if from != node.me && Some(from) != node.parent() && node.me != node.manager() {
        return node.count(Counter::MessagesRejected);
    }
    let children = node.children();
    for to in members(children).filter_map(NodeId::new) {
        node.send(to, *message);
    }
    if root == node.me.index() as u64 {
        return;
    }
    let Some(incoming) = &mut node.sync.collectives.incoming else {
        return node.count(Counter::MessagesRejected);
    };
    if length > CHUNK_BYTES || offset.checked_add(length).is_none_or(|end| end > incoming.bytes) {
        return node.count(Counter::MessagesRejected);
    }
    // SAFETY: inside the memory that the waiting caller of `broadcast` vouched for.
    unsafe {
        core::ptr::copy_nonoverlapping(
            message.data.as_ptr().cast::<u8>(),
            (incoming.at + offset) as *mut u8,
            length as usize,
        );
    }
    incoming.received += length;
    if incoming.received == incoming.bytes {
        node.sync.collectives.incoming = None;
    }
}

/// Ends the run if the collective in progress waits for a node that has exited.
pub fn check_collective(node: &Node) {
    let (state, exited) = (&node.sync.collectives, node.sync.exited);
    if state.arrived == 0 || exited == 0 {
        return;
    }
    let expected = node.children() | bit(node.me);
    let missing = expected & !state.arrived & exited;
    let parent = node.parent().map_or(0, bit);
    let gone = if missing != 0 {
        missing
    } else if state.arrived == expected {
        parent & exited
    } else {
        0
    };
    if gone != 0 {
        node.fail(format_args!(
            "{} in {}, but {} exited: it can never complete",
            Waits(state.arrived),
            state.kind.name(),
            Has(gone)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::op::{Combine, Type};
    use super::*;

    #[test]
    fn kinds_survive_the_wire() {
        let root = |number| NodeId::new(number).unwrap();
        let reductions = (0..9).map(|number| Collective::Reduce(Reduction::from_number(number).unwrap()));
        let broadcasts = [0, 1, MAX_NODES as u32 - 1].map(|number| Collective::Broadcast(root(number)));
        for kind in reductions.chain([Collective::Barrier]).chain(broadcasts) {
            assert_eq!(Collective::from_number(kind.number()), Some(kind));
        }
        for number in [10, 15, BROADCAST_NUMBER + MAX_NODES as u64, u64::MAX] {
            assert_eq!(Collective::from_number(number), None, "{number}");
        }
    }

    #[test]
    fn every_node_has_one_parent_and_is_its_child() {
        for size in 1..=MAX_NODES as u32 {
            for late in [0, 3] {
                let all = (size + late).min(MAX_NODES as u32);
                let tree = Tree { size };
                let mut seen = 1u64;
                for node in 0..all {
                    let children = tree.children(node, all);
                    assert_eq!(seen & children, 0, "a child of two");
                    assert!(size > FLAT_NODES || node == 0 || children == 0);
                    let own = if node == 0 { late } else { 0 };
                    assert!(size <= FLAT_NODES || children.count_ones() <= FAN_OUT + own);
                    seen |= children;
                }
                assert_eq!(seen, u64::MAX >> (64 - all), "{size} nodes and {late} later ones");
            }
        }
    }

    #[test]
    fn sums_keep_the_sign_of_zero_and_wrap() {
        let sum = |of| Collective::Reduce(Reduction { combine: Combine::Sum, of });
        assert_eq!(sum(Type::U64).apply(u64::MAX, 3), 2);
        let minus = (-0.0f64).to_bits();
        assert!(f64::from_bits(sum(Type::F64).apply(minus, minus)).is_sign_negative());
    }
}
