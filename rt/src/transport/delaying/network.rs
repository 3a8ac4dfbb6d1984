//! What is under way between the nodes of a test.
//!
//! Purpose: keep each message until it is due. Input: messages, and when they are sent. Output: the same messages, when they are due. The time is that of the
//! [stage](crate::transport::stage). **Invariants**: messages of one pair keep their order, but those about blocks if the test wants that; each arrives once, but
//! those that are dropped to order.

use crate::transport::interface::{PeerState, Urgency};
use crate::transport::message::{Message, Traffic};
use crate::transport::stage;
use blizzard_protocol::ids::NodeId;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::vec::Vec;

/// What the network of a test does.
#[derive(Clone, Copy, Debug)]
pub struct NetworkSettings {
    pub seed: u64,
    /// The longest time that a message takes on a usual pair; on a slow one it takes 16 times as long.
    pub longest_ns: u64,
    /// Messages about blocks may overtake each other, also those of one pair.
    pub overtaking: bool,
    /// Messages of one pair that may be under way.
    pub room: usize,
    /// From so many messages of that node on, nothing of it arrives, and nobody sees it live.
    pub silent: Option<(NodeId, u64)>,
}

impl NetworkSettings {
    pub const fn new(seed: u64) -> NetworkSettings {
        NetworkSettings { seed, longest_ns: 20_000, overtaking: false, room: 128, silent: None }
    }
}

/// Random numbers: xorshift64*.
#[derive(Clone, Copy, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // Neighbouring seeds must give different numbers at once.
        let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            random.draw();
        }
        random
    }

    fn draw(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `limit`; 0 when that is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        (self.draw() >> 11).checked_rem(limit).unwrap_or(0)
    }
}

/// A message under way.
struct UnderWay {
    due_ns: u64,
    /// The receiver's doorbell rings for it, if it runs.
    rings: bool,
    message: Message,
}

/// From one node to another.
#[derive(Default)]
struct Pair {
    queue: VecDeque<UnderWay>,
    /// What the last message that keeps the order is due at.
    last_ns: u64,
    is_slow: bool,
    /// Messages that were sent.
    sent: u64,
}

/// All that is under way.
pub struct Network {
    settings: NetworkSettings,
    random: Random,
    nodes: usize,
    pairs: Vec<Pair>,
    /// By node: messages sent.
    sent: Vec<u64>,
    /// What the others see of the silent node.
    last_seen: Option<PeerState>,
    overtaken: u64,
}

thread_local! {
    static CURRENT: RefCell<Option<SharedNetwork>> = const { RefCell::new(None) };
}

/// A network, by all who use it.
#[derive(Clone)]
pub struct SharedNetwork(Arc<Mutex<Network>>);

impl SharedNetwork {
    /// One between so many nodes.
    pub fn new(nodes: usize, settings: NetworkSettings) -> SharedNetwork {
        let mut random = Random::new(settings.seed);
        let mut pair = || Pair { is_slow: random.below(4) == 0, ..Pair::default() };
        let pairs = (0..nodes * nodes).map(|_| pair()).collect();
        let (sent, last_seen) = (std::vec![0; nodes], None);
        SharedNetwork(Arc::new(Mutex::new(Network { settings, random, nodes, pairs, sent, last_seen, overtaken: 0 })))
    }

    pub fn lock(&self) -> MutexGuard<'_, Network> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The network of the nodes that this thread makes, if they are to have one.
pub fn current() -> Option<SharedNetwork> {
    CURRENT.with_borrow(Clone::clone)
}

/// From here on the nodes that this thread makes have that network, or none.
pub fn set_current(network: Option<SharedNetwork>) {
    CURRENT.set(network);
}

/// Whether it has arrived.
fn is_due(way: &UnderWay) -> bool {
    way.due_ns <= stage::now_ns().unwrap_or(u64::MAX)
}

impl Network {
    fn pair(&mut self, from: NodeId, to: NodeId) -> &mut Pair {
        &mut self.pairs[from.index() * self.nodes + to.index()]
    }

    fn is_silent(&self, node: NodeId) -> bool {
        self.settings.silent.is_some_and(|(silent, after)| silent == node && self.sent[node.index()] >= after)
    }

    /// Takes a message; false when too many are under way.
    pub fn send(&mut self, from: NodeId, to: NodeId, traffic: Traffic, message: Message) -> bool {
        let NetworkSettings { longest_ns, overtaking, room, .. } = self.settings;
        if self.pair(from, to).queue.len() >= room {
            return false;
        }
        let is_lost = self.is_silent(from);
        self.sent[from.index()] += 1;
        self.pair(from, to).sent += 1;
        if is_lost {
            return true;
        }
        // Most come soon, few late.
        let longest_ns = longest_ns * if self.pair(from, to).is_slow { 16 } else { 1 };
        let delay_ns = match self.random.below(8) {
            0 | 1 => 0,
            7 => self.random.below(longest_ns),
            _ => self.random.below(longest_ns / 16),
        };
        let mut due_ns = stage::now_ns().unwrap_or(0) + delay_ns;
        let pair = self.pair(from, to);
        if !(overtaking && traffic == Traffic::Blocks) {
            due_ns = due_ns.max(pair.last_ns);
            pair.last_ns = due_ns;
        }
        pair.queue.push_back(UnderWay { due_ns, rings: false, message });
        true
    }

    /// The receiver's doorbell is to ring for the messages under way.
    pub fn ring(&mut self, from: NodeId, to: NodeId, kind: Urgency) {
        let rings = kind != Urgency::Answer;
        self.pair(from, to).queue.iter_mut().for_each(|way| way.rings |= rings);
    }

    /// Whether a message is due.
    pub fn is_ready(&self, from: NodeId, to: NodeId) -> bool {
        self.pairs[from.index() * self.nodes + to.index()].queue.iter().any(is_due)
    }

    /// Takes the message out that is due first.
    pub fn receive(&mut self, from: NodeId, to: NodeId) -> Option<Message> {
        let queue = &mut self.pair(from, to).queue;
        let (at, _) =
            queue.iter().enumerate().filter(|(_, way)| is_due(way)).min_by_key(|(at, way)| (way.due_ns, *at))?;
        let way = queue.remove(at)?;
        self.overtaken += u64::from(at != 0);
        Some(way.message)
    }

    /// Whether a doorbell rings that a running node hears.
    pub fn rings(&self, to: NodeId) -> bool {
        let pairs = self.pairs.iter().skip(to.index()).step_by(self.nodes);
        pairs.flat_map(|pair| &pair.queue).any(|way| way.rings && is_due(way))
    }

    /// When the next message is due that is not yet.
    pub fn next_due_ns(&self) -> Option<u64> {
        self.pairs.iter().flat_map(|pair| &pair.queue).filter(|way| !is_due(way)).map(|way| way.due_ns).min()
    }

    /// What others see of a node that is in such a state.
    pub fn seen(&mut self, node: NodeId, state: PeerState) -> PeerState {
        if !self.is_silent(node) {
            return state;
        }
        // Whoever cannot be seen owes a sign of life.
        *self.last_seen.get_or_insert(PeerState { doing: blizzard_contract::activity::SPINNING, ..state })
    }

    /// Messages by sender and receiver.
    pub fn sent(&self) -> Vec<Vec<u64>> {
        self.pairs.chunks(self.nodes).map(|pairs| pairs.iter().map(|pair| pair.sent).collect()).collect()
    }

    /// How often a message was taken before an older one of its pair.
    pub fn overtaken(&self) -> u64 {
        self.overtaken
    }
}
