//! What all nodes do together: barriers, reductions, broadcasts.
//!
//! Purpose: `Node::collective` returns when every node has called it, with the combination of all values. Input: a [`Collective`] and up
//! to [`VECTOR_WORDS`] words from each node; output: the same words on all. Longer vectors and broadcasts are several collectives.
//!
//! Arrivals go up a [tree](crate::sync::tree) and the result comes down it.
//!
//! **Invariants**
//! * Values are combined in a fixed order, which depends on the numbers of nodes of each host alone: a node's own, then those of its children in
//!   ascending order. All nodes get the result that node 0 computed.
//! * A node that has exited arrives nowhere: whoever waits for its arrival, or for its answer, ends the run and names it.

use crate::kernel::own_memory::Slice;
use crate::kernel::sys;
use crate::links::bugs::has_bug;
use crate::links::links::Links;
use crate::messages::kinds::id;
use crate::sync::op::Reduction;
use crate::sync::sets::{Has, Names, Waits};
use crate::sync::tree::Tree;
use crate::transport::message::Message;
use blizzard_contract::Counter;
use blizzard_protocol::ids::{NodeId, NodeSet};

/// Most words that one collective combines.
pub const VECTOR_WORDS: usize = 8;
/// Most bytes of one broadcast of the runtime; the client library makes longer ones of several.
pub const BROADCAST_BYTES: u64 = 8192;
/// Bytes of one message of a broadcast.
pub const CHUNK_BYTES: u64 = 64;

/// What the nodes do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    Barrier,
    Reduce(Reduction),
    /// All wait at a barrier for some nodes; the value is its handle.
    Group,
    /// All get ready to receive from this node; the value is the number of bytes.
    Broadcast(NodeId),
}

const GROUP_NUMBER: u64 = 15;
const BROADCAST_NUMBER: u64 = 16;

impl Collective {
    const fn number(self) -> u64 {
        match self {
            Collective::Barrier => 0,
            Collective::Reduce(reduction) => 1 + reduction.number(),
            Collective::Group => GROUP_NUMBER,
            Collective::Broadcast(root) => BROADCAST_NUMBER + root.index() as u64,
        }
    }

    fn from_number(number: u64, nodes: u32) -> Option<Collective> {
        match number {
            0 => Some(Collective::Barrier),
            GROUP_NUMBER => Some(Collective::Group),
            1..GROUP_NUMBER => Reduction::from_number(number - 1).map(Collective::Reduce),
            _ => {
                let root = u32::try_from(number - BROADCAST_NUMBER).ok().filter(|&root| root < nodes)?;
                NodeId::new(root).map(Collective::Broadcast)
            }
        }
    }

    /// The function that the program calls.
    const fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "bz_barrier",
            Collective::Reduce(reduction) => reduction.name(),
            Collective::Group => "bz_barrier_wait",
            Collective::Broadcast(_) => "bz_broadcast",
        }
    }

    fn apply(self, a: u64, b: u64) -> u64 {
        match self {
            Collective::Barrier => 0,
            Collective::Reduce(reduction) => reduction.apply(a, b),
            // Everybody must mean the same barrier, or expect the same number of bytes.
            Collective::Group | Collective::Broadcast(_) if a == b => a,
            Collective::Group | Collective::Broadcast(_) => u64::MAX,
        }
    }
}

/// What one collective combines.
pub type Words = [u64; VECTOR_WORDS];

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
    arrived: NodeSet,
    kind: Collective,
    count: u64,
    /// By node.
    values: Slice<Words>,
    result: Words,
    incoming: Option<Incoming>,
}

impl Collectives {
    /// # Errors
    /// The kernel's, when it gives no memory.
    pub fn new(nodes: u32) -> sys::Result<Collectives> {
        Ok(Collectives {
            entered: 0,
            completed: 0,
            arrived: NodeSet::EMPTY,
            kind: Collective::Barrier,
            count: 0,
            values: Slice::new(nodes as usize, |_| [0; VECTOR_WORDS])?,
            result: [0; VECTOR_WORDS],
            incoming: None,
        })
    }

    /// A created node begins where node 0 was when it created it.
    pub fn continue_from(&mut self, parent: u64) {
        (self.entered, self.completed) = (parent, parent);
    }

    pub const fn entered(&self) -> u64 {
        self.entered
    }

    /// A node enters its next collective with these words; which one that is.
    pub fn enter(&mut self) -> u64 {
        self.entered += 1;
        self.entered - 1
    }

    /// Whether the collective with that number is complete.
    pub fn is_complete(&self, number: u64) -> bool {
        self.completed > number
    }

    /// What the last one came to.
    pub fn result(&self) -> Words {
        self.result
    }

    /// From here on the bytes of a broadcast go to private memory at `at`.
    ///
    /// # Safety
    /// That memory is writable, and nobody else's, until [`Collectives::is_receiving`] says no.
    pub unsafe fn receive(&mut self, at: u64, bytes: u64) {
        self.incoming = Some(Incoming { at, bytes, received: 0 });
    }

    /// Whether bytes of a broadcast are still to come.
    pub fn is_receiving(&self) -> bool {
        self.incoming.is_some()
    }

    /// This node or one of its children has entered the collective in progress.
    pub fn arrive(&mut self, links: &mut Links, from: NodeId, kind: Collective, count: u64, words: &Words) {
        if self.arrived.is_empty() {
            (self.kind, self.count) = (kind, count);
        } else if self.kind != kind {
            let (others, theirs) = (Names(self.arrived), self.kind.name());
            links.fail(format_args!(
                "node {} calls {} while {others} waits in {theirs}: all nodes must call the same one",
                from.index(),
                kind.name()
            ));
        } else if self.count != count {
            let (others, theirs) = (Names(self.arrived), self.count);
            links.fail(format_args!(
                "node {} reduces {count} words while {others} reduces {theirs}: all nodes must give the same number",
                from.index()
            ));
        }
        self.arrived = self.arrived.with(from);
        self.values[from.index()] = *words;
        let expected = children(links).with(links.me);
        if self.arrived != expected {
            return check_collective(self, links);
        }
        let combined = self.combined(expected);
        match parent(links) {
            None => self.complete(links, combined),
            Some(parent) => {
                let handlers = [id::COLLECTIVE_ARRIVE, id::VECTOR_ARRIVE];
                self.send_words(links, parent, handlers, &combined);
                if has_bug!(links, BarrierEndsOnHost) {
                    return self.complete(links, combined);
                }
                check_collective(self, links);
            }
        }
    }

    /// The values of a set of nodes in one, in ascending order.
    fn combined(&self, nodes: NodeSet) -> Words {
        let mut present = nodes.iter().map(|node| self.values[node.index()]);
        let mut all = present.next().unwrap_or_default();
        for words in present {
            for (a, b) in all.iter_mut().zip(words).take(self.count as usize) {
                *a = self.kind.apply(*a, b);
            }
        }
        all
    }

    /// Sends words with the current collective's number as the key: in one line if there is one at most, else in two.
    fn send_words(&self, links: &mut Links, to: NodeId, handlers: [u16; 2], words: &Words) {
        let args = [self.kind.number(), words[0], self.count];
        let short = Message { handler: handlers[0], args, key: self.completed, ..Message::default() };
        let message = if self.count <= 1 {
            short
        } else {
            Message { handler: handlers[1], length: CHUNK_BYTES as u8, data: *words, ..short }
        };
        links.post(to, message);
    }

    /// The collective is over: tells the children and lets this node go on.
    fn complete(&mut self, links: &mut Links, result: Words) {
        for to in children(links).iter() {
            self.send_words(links, to, [id::COLLECTIVE_DONE, id::VECTOR_DONE], &result);
        }
        self.arrived = NodeSet::EMPTY;
        self.completed += 1;
        self.result = result;
    }
}

fn tree(links: &Links) -> Tree {
    Tree { hosts: links.hosts, size: links.homes.present() }
}

/// Whose arrivals this node waits for before it sends its own.
fn children(links: &Links) -> NodeSet {
    let all = if links.me == links.manager() { links.participants() } else { links.homes.present() };
    tree(links).children(links.me.index() as u32, all)
}

fn parent(links: &Links) -> Option<NodeId> {
    tree(links).parent(links.me.index() as u32).and_then(NodeId::new)
}

/// `args`: kind, value, number of words; key: how many collectives the sender has completed. Data: the words, if there are several.
pub fn on_arrive(state: &mut Collectives, links: &mut Links, from: NodeId, message: &Message) {
    let [kind, value, count] = message.args;
    let expected = children(links).difference(state.arrived);
    let fits = count <= 1 || message.length != 0 && count <= VECTOR_WORDS as u64;
    let is_due = message.key == state.completed && expected.contains(from) && fits;
    let Some(kind) = Collective::from_number(kind, links.homes.nodes()).filter(|_| is_due) else {
        return links.count(Counter::MessagesRejected);
    };
    let words = if count <= 1 { [value, 0, 0, 0, 0, 0, 0, 0] } else { message.data };
    state.arrive(links, from, kind, count, &words);
}

/// As [`on_arrive`], with the result.
pub fn on_done(state: &mut Collectives, links: &mut Links, from: NodeId, message: &Message) {
    if has_bug!(links, BarrierEndsOnHost) && message.key < state.completed {
        return;
    }
    let waits = state.arrived == children(links).with(links.me);
    if message.key != state.completed || Some(from) != parent(links) || !waits {
        return links.count(Counter::MessagesRejected);
    }
    let words = if message.args[2] <= 1 { [message.args[1], 0, 0, 0, 0, 0, 0, 0] } else { message.data };
    state.complete(links, words);
}

/// `args`: offset, bytes, the sender of the broadcast. Passed on down the tree; kept by everybody but the sender.
pub fn on_broadcast_data(state: &mut Collectives, links: &mut Links, from: NodeId, message: &Message) {
    let [offset, length, root] = message.args;
    if from != links.me && Some(from) != parent(links) && links.me != links.manager() {
        return links.count(Counter::MessagesRejected);
    }
    for to in children(links).iter() {
        links.post(to, *message);
    }
    if root == links.me.index() as u64 {
        return;
    }
    let Some(incoming) = &mut state.incoming else {
        return links.count(Counter::MessagesRejected);
    };
    if length > CHUNK_BYTES || offset.checked_add(length).is_none_or(|end| end > incoming.bytes) {
        return links.count(Counter::MessagesRejected);
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
        state.incoming = None;
    }
}

/// Ends the run if the collective in progress waits for a node that has exited.
pub fn check_collective(state: &Collectives, links: &Links) {
    let exited = links.members.exited;
    if state.arrived.is_empty() || exited.is_empty() {
        return;
    }
    let expected = children(links).with(links.me);
    let awaited = match parent(links) {
        Some(parent) if state.arrived == expected => NodeSet::of(parent),
        _ => expected.difference(state.arrived),
    };
    let gone = awaited.intersection(exited);
    if !gone.is_empty() {
        links.fail(format_args!(
            "{} in {}, but {} exited: it can never complete",
            Waits(state.arrived),
            state.kind.name(),
            Has(gone)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::op::{WordCombine, WordType};

    const NODES: u32 = 300;

    #[test]
    fn kinds_survive_the_wire() {
        let root = |number| NodeId::new(number).unwrap();
        let reductions = (0..9).map(|number| Collective::Reduce(Reduction::from_number(number).unwrap()));
        let broadcasts = [0, 1, NODES - 1].map(|number| Collective::Broadcast(root(number)));
        for kind in reductions.chain([Collective::Barrier, Collective::Group]).chain(broadcasts) {
            assert_eq!(Collective::from_number(kind.number(), NODES), Some(kind));
        }
        for number in [10, 14, BROADCAST_NUMBER + u64::from(NODES), u64::MAX] {
            assert_eq!(Collective::from_number(number, NODES), None, "{number}");
        }
    }

    #[test]
    fn sums_keep_the_sign_of_zero_and_wrap() {
        let sum = |of| Collective::Reduce(Reduction { combine: WordCombine::Sum, of });
        assert_eq!(sum(WordType::U64).apply(u64::MAX, 3), 2);
        let minus = (-0.0f64).to_bits();
        assert!(f64::from_bits(sum(WordType::F64).apply(minus, minus)).is_sign_negative());
    }
}
