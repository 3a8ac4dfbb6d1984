//! One node's end of everything between it and the others.
//!
//! Purpose: [`Transport`] sends without ever blocking, and receives from whoever has something. Input: messages. Output: messages, and which peer they are from.
//! How they travel is a wire's business ([`crate::transport::wires`]). When a peer is told of one: [`crate::transport::interface`].
//!
//! **Invariants**
//! * Messages from one node to another arrive in the order of sending. What a wire does not take waits in the sender's own queue, and while that queue is not
//!   empty everything for that wire goes through it. Whoever begins such a queue tells the peer, because nobody may have told it of what fills the wire; whoever
//!   moves some of it into the wire tells it again.
//! * A node that leaves the runtime has its doorbell set unless every wire was seen empty after it had said that it runs.

use crate::kernel::own_memory::{KernelQueue, Slice};
use crate::kernel::sys;
use crate::memory::region::{ContextPage, Region};
use crate::transport::control;
use crate::transport::interface::{NO_PROCESSOR, Station, Urgency, Wire};
use crate::transport::message::{LINE_BYTES, Message, Traffic, ends_of_head};
use crate::transport::patience::Looking;
use crate::transport::peers::company::Company;
use crate::transport::peers::watch::{Attention, PeerWatch, Silent};
use crate::transport::settings::{Attempts, Spins, WaitSettings};
use crate::transport::stage::{self, Look};
use crate::transport::wires::{Stations, Wires};
use blizzard_contract::{BLOCK_BYTES, Counter};
use blizzard_protocol::ids::{Data, NodeId};

/// One other node.
pub(super) struct Peer {
    pub(super) wire: Wires,
    pub(super) watch: PeerWatch,
    /// What did not fit into the wire.
    overflow: KernelQueue<Message>,
}

/// Bits of a set of peers. Those whose numbers differ by as much share one.
const BITS: usize = u64::BITS as usize;

/// The bit of a peer.
#[inline(always)]
const fn bit_of(peer: NodeId) -> u64 {
    1 << (peer.index() % BITS)
}

/// Whether somebody without a processor of its own carries what goes to that peer.
fn is_carried(wire: &Wires) -> bool {
    wire.state().processor == NO_PROCESSOR
}

/// One node's end of all wires.
pub struct Transport {
    pub(super) me: NodeId,
    pub(super) region: Region,
    own: ContextPage,
    pub(super) station: Stations,
    /// By number; `None` at this node's own.
    pub(super) peers: Slice<Option<Peer>>,
    /// Where the search for the next message begins: at the node that sent the last one.
    turn: usize,
    /// Messages in all overflow queues.
    pub(super) buffered: u64,
    /// The last message from or to another node was not about a block.
    pub(super) is_talking: bool,
    /// Peers that got a message and whose state was looked at without a fence, and may be others, too; those of them that got more than answers.
    pub(super) unsure: u64,
    pub(super) unsure_calls: u64,
    /// A peer was told of a message that is no answer.
    pub(super) has_told: bool,
    /// The bits that no two peers share.
    unshared: u64,
    pub(super) waiting: WaitSettings,
    pub(super) spins: Spins,
    pub(super) yields: Attempts,
    /// Spins that go on while the peers run.
    pub(super) long_spins: Attempts,
    /// Moves to another processor.
    pub(super) moves: Attempts,
    pub(super) looking: Looking,
    /// Found by a look at the peers; the node reports it.
    pub(super) silent: Option<Silent>,
    /// The peer to or from which a wire holds what neither end can have written.
    pub(super) damaged: Option<NodeId>,
    /// How long the peers have been looked at.
    pub(super) attention: Attention,
    /// Yields since the last look.
    pub(super) unwatched: u32,
    /// Whether the peers run.
    pub(super) company: Company,
    /// When this node last gave its processor to a carrier.
    pub(super) gave_way: u64,
}

impl Transport {
    /// The ends of node `me` in `region`.
    ///
    /// # Errors
    /// The kernel's, when it gives no memory.
    ///
    /// # Safety
    /// `me` is a node of the region, nobody else is that node, and the region stays mapped.
    pub unsafe fn new(region: Region, me: NodeId) -> sys::Result<Transport> {
        let header = *region.header();
        let peers = Slice::new(header.nodes as usize, |number| {
            let other = NodeId::new(number as u32).filter(|&other| other != me)?;
            // SAFETY: passed on from the caller; each end is made once.
            let wire = unsafe { Wires::open(&region, me, other) };
            Some(Peer { wire, watch: PeerWatch::default(), overflow: KernelQueue::new() })
        })?;
        let waiting = WaitSettings::new(header.nodes, header.cpus);
        let carried = peers.iter().flatten().filter(|peer: &&Peer| is_carried(&peer.wire)).count();
        let waiting = if carried > 0 { waiting.beside_carrier(carried == peers.len() - 1) } else { waiting };
        Ok(Transport {
            me,
            region,
            own: region.context(me),
            station: Stations::open(&region, me),
            peers,
            turn: 0,
            buffered: 0,
            is_talking: false,
            unsure: 0,
            unsure_calls: 0,
            has_told: false,
            unshared: if header.nodes as usize <= BITS { u64::MAX } else { 0 },
            waiting,
            spins: Spins::new(&waiting),
            yields: Attempts::FRESH,
            long_spins: Attempts::FRESH,
            moves: Attempts::FRESH,
            looking: Looking::default(),
            silent: None,
            damaged: None,
            attention: Attention::default(),
            unwatched: 0,
            company: Company::new(header.nodes as usize)?,
            gave_way: 0,
        })
    }

    /// Sends to another node; never blocks. `kind` says whether the receiver must be told. Fails only when the kernel has no memory for the
    /// queue. Panics when `to` is this node or none of the run: callers handle these.
    #[inline]
    pub fn send(&mut self, to: NodeId, mut message: Message, kind: Urgency) -> sys::Result<()> {
        let peer = self.peers[to.index()].as_mut().expect("messages go to other nodes of the run");
        message.incarnation = self.region.header().incarnation;
        message.source = self.me.index() as u16;
        message.taken = peer.wire.taken();
        self.looking.sent(to);
        self.is_talking = message.traffic() == Traffic::Other;
        self.own.add_unlocked(Counter::MessagesSent, 1);
        self.own.add_unlocked(Counter::BytesSent, message.wire_bytes());
        if peer.overflow.is_empty() && put(&mut peer.wire, &message) {
            if peer.wire.announce(kind) {
                self.note_unsure(to, kind);
            }
            self.note_told(kind);
            return Ok(());
        }
        self.own.add_unlocked(Counter::SendsBuffered, 1);
        self.buffered += 1;
        if peer.overflow.is_empty() {
            // Nobody may have told it of what fills the wire, and what waits behind it may be a call.
            self.station.fence();
            peer.wire.tell(Urgency::Call);
        }
        peer.overflow.push(message)
    }

    /// [`Transport::send`] of a message without data, given by its parts; none about a block. False, and nothing is sent, when it would
    /// have to wait in this node's memory.
    #[inline]
    pub fn send_line(&mut self, to: NodeId, handler: u16, addr: u64, words: [u64; 4], kind: Urgency) -> bool {
        self.send_parts(Traffic::Other, to, (handler, addr, words), None, kind)
    }

    /// [`Transport::send`] of a message about a block, given by its parts. False, and nothing is sent, when it would have to wait in this
    /// node's memory.
    #[inline]
    pub fn send_block(&mut self, to: NodeId, parts: (u16, u64, [u64; 4]), data: Option<&Data>, kind: Urgency) -> bool {
        self.send_parts(Traffic::Blocks, to, parts, data, kind)
    }

    /// `parts`: handler, address, arguments and key.
    #[inline(always)]
    fn send_parts(
        &mut self,
        traffic: Traffic,
        to: NodeId,
        (handler, addr, [first, second, third, key]): (u16, u64, [u64; 4]),
        data: Option<&Data>,
        kind: Urgency,
    ) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(to.index()) else { return false };
        let length = if data.is_some() { BLOCK_BYTES } else { 0 };
        let [small, last] = ends_of_head(handler, self.me, length, peer.wire.taken());
        let head = [small, addr, first, second, third, key, last];
        let incarnation = self.region.header().incarnation;
        if !peer.overflow.is_empty() || !peer.wire.send(traffic, incarnation, head, data) {
            return false;
        }
        let unsure = peer.wire.announce(kind);
        self.is_talking = traffic == Traffic::Other;
        self.looking.sent(to);
        self.own.add_unlocked(Counter::MessagesSent, 1);
        self.own.add_unlocked(Counter::BytesSent, LINE_BYTES + length);
        if unsure {
            self.note_unsure(to, kind);
        }
        self.note_told(kind);
        true
    }

    #[inline(always)]
    fn note_told(&mut self, kind: Urgency) {
        if cfg!(feature = "guard") {
            self.has_told |= kind != Urgency::Answer;
        }
    }

    /// The receiver's state was looked at without a fence.
    #[inline]
    fn note_unsure(&mut self, to: NodeId, kind: Urgency) {
        let bit = bit_of(to);
        self.unsure |= bit;
        self.unsure_calls |= if kind == Urgency::Answer { 0 } else { bit };
    }

    /// A valid message says how many of this node's messages its sender had taken out.
    #[inline]
    pub fn note_taken(&mut self, from: NodeId, taken: u32) {
        let bit = bit_of(from) & self.unshared;
        if self.unsure & bit != 0 && self.peers[from.index()].as_ref().is_some_and(|peer| peer.wire.is_all_taken(taken))
        {
            self.unsure &= !bit;
            self.unsure_calls &= !bit;
        }
    }

    /// Looks again, behind a fence, at the peers whose state was looked at without one. Before this node sleeps, waits in the kernel or goes back
    /// to the program, and soon after it has nothing else to do.
    #[inline]
    pub fn make_sure(&mut self) {
        if self.unsure != 0 {
            self.look_again();
        }
    }

    #[inline(never)]
    fn look_again(&mut self) {
        let (mut unsure, calls) = (self.unsure, self.unsure_calls);
        (self.unsure, self.unsure_calls) = (0, 0);
        self.station.fence();
        let mut carried = 0;
        while unsure != 0 {
            let first = unsure.trailing_zeros() as usize;
            unsure &= unsure - 1;
            let kind = if calls >> first & 1 == 1 { Urgency::Call } else { Urgency::Answer };
            if let Some(Some(peer)) = self.peers.get(first) {
                peer.wire.tell(kind);
                if self.waiting.is_crowded() && is_carried(&peer.wire) {
                    carried |= 1 << first;
                }
            }
            if self.unshared == 0 {
                self.tell_others(first, kind);
            }
        }
        if carried != 0 {
            self.give_way_to_carrier(carried, calls);
        }
    }

    /// Tells those who share a peer's bit.
    #[cold]
    fn tell_others(&self, first: usize, kind: Urgency) {
        for peer in self.peers.iter().skip(first).step_by(BITS).skip(1).flatten() {
            peer.wire.tell(kind);
        }
    }

    /// Moves what waits in the overflow queues into the wires, as far as there is room.
    #[inline]
    pub fn drain(&mut self) {
        if self.buffered != 0 {
            self.drain_queues();
        }
    }

    #[inline(never)]
    fn drain_queues(&mut self) {
        for peer in self.peers.iter_mut().flatten() {
            let before = self.buffered;
            while let Some(message) = peer.overflow.get(0)
                && put(&mut peer.wire, &message)
            {
                peer.overflow.pop();
                self.buffered -= 1;
            }
            if self.buffered != before {
                self.station.fence();
                peer.wire.tell(Urgency::Call);
            }
        }
    }

    /// Whether everything sent has reached a wire.
    pub fn is_drained(&self) -> bool {
        self.buffered == 0
    }

    /// Messages that wait in this node's own memory.
    pub fn buffered(&self) -> u64 {
        self.buffered
    }

    /// Takes the next message and says which peer it is from. Data that does not travel stays what it was.
    #[inline]
    pub fn receive_into(&mut self, message: &mut Message) -> Option<NodeId> {
        match stage::look(self.me) {
            Look::Anywhere => {}
            Look::At(from) => self.turn = from.index(),
            Look::Nowhere => return None,
        }
        let mut number = self.turn;
        let peers = &mut *self.peers;
        for _ in 0..peers.len() {
            if let Some(Some(peer)) = peers.get_mut(number)
                && peer.wire.receive_into(message)
            {
                self.turn = number;
                self.looking.received();
                self.is_talking = message.traffic() == Traffic::Other;
                peer.wire.expect_to_send(message);
                return NodeId::new(number as u32);
            }
            number += 1;
            if number == peers.len() {
                number = 0;
            }
        }
        None
    }

    /// Whether a message of that node is there.
    #[cfg(test)]
    pub fn is_ready_from(&self, from: NodeId) -> bool {
        self.peers[from.index()].as_ref().is_some_and(|peer| peer.wire.is_ready())
    }

    /// [`Transport::receive_into`] for tests.
    #[cfg(test)]
    pub fn receive(&mut self) -> Option<(NodeId, Message)> {
        let mut message = Message::default();
        self.receive_into(&mut message).map(|from| (from, message))
    }

    /// Gives the next search to the next node, so that a busy peer cannot starve the others.
    pub fn next_turn(&mut self) {
        let after = |number| if number + 1 >= self.peers.len() { 0 } else { number + 1 };
        let next = after(self.turn);
        self.turn = if next == self.me.index() { after(next) } else { next };
    }

    #[inline]
    pub(super) fn any_ready(&self) -> bool {
        self.peers.iter().flatten().any(|peer| peer.wire.is_ready())
    }

    /// Whether somebody has ended the run.
    pub fn is_aborted(&self) -> bool {
        control::is_aborted(&self.region)
    }
}

/// Sends a whole message; false when there is no room.
#[inline]
fn put(wire: &mut Wires, message: &Message) -> bool {
    let data = (message.length != 0).then_some(&message.data);
    match message.traffic() {
        Traffic::Blocks => wire.send(Traffic::Blocks, message.incarnation, message.head(), data),
        Traffic::Other => wire.send(Traffic::Other, message.incarnation, message.head(), data),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::region::testing::TestRegion;
    use crate::transport::patience::Patience;
    use blizzard_contract::activity;
    use core::sync::atomic::Ordering;

    fn pair(slots: u32, cpus: u32) -> (TestRegion, Transport, Transport) {
        let test = TestRegion::new(2, cpus, 1 << 20, slots);
        let node = |n| NodeId::new(n).unwrap();
        // SAFETY: each node exists once; the region is dropped after the transports' last use.
        let [a, b] = [0, 1].map(|n| unsafe { Transport::new(test.region, node(n)) }.unwrap());
        (test, a, b)
    }

    fn numbered(n: u64) -> Message {
        Message { handler: 7, args: [n, 0, 0], ..Message::default() }
    }

    #[test]
    fn a_full_ring_buffers_in_order_and_drains() {
        let (_test, mut a, mut b) = pair(4, 2);
        let to = NodeId::new(1).unwrap();
        let mut expected = 0;
        let mut take = |b: &mut Transport| {
            while let Some((from, message)) = b.receive() {
                assert_eq!((from.index(), message.source, message.incarnation), (0, 0, 0x1234_5678));
                assert_eq!(message.args[0], expected);
                expected += 1;
            }
            expected
        };
        for n in 0..1000 {
            a.send(to, numbered(n), Urgency::Call).unwrap();
            if n % 100 == 99 {
                // Frees the ring while messages wait: later ones must not overtake them.
                take(&mut b);
            }
        }
        assert!(!a.is_drained());
        assert!(a.own.counter(Counter::SendsBuffered) > 900);
        while take(&mut b) < 1000 {
            a.drain();
        }
        assert!(a.is_drained());
        assert_eq!(a.own.counter(Counter::MessagesSent), 1000);
    }

    /// Else the carrier has the processor when the node waits, or a time slice later: each barrier between hosts took as long as the work between two.
    #[test]
    fn a_carrier_without_a_processor_gets_the_nodes() {
        let (test, mut a, _b) = pair(16, 1);
        let to = NodeId::new(1).unwrap();
        let carrier = test.region.context(to);
        carrier.activity().store(activity::SPINNING, Ordering::Relaxed);
        a.send(to, numbered(0), Urgency::Call).unwrap();
        a.make_sure();
        assert_eq!(a.gave_way, 0, "the peer has a processor");
        carrier.processor().store(NO_PROCESSOR, Ordering::Relaxed);
        a.send(to, numbered(1), Urgency::Answer).unwrap();
        a.make_sure();
        assert_ne!(a.gave_way, 0);
        assert_eq!((a.unsure, a.own.poll().load(Ordering::Relaxed)), (0, 0));
        // It has given way just now: later.
        a.gave_way = u64::MAX;
        a.send(to, numbered(2), Urgency::Call).unwrap();
        a.make_sure();
        assert_eq!((a.unsure, a.unsure_calls, a.own.poll().load(Ordering::Relaxed)), (2, 2, 1));
        a.gave_way = 0;
        a.answer_doorbell();
        a.make_sure();
        assert_ne!(a.gave_way, 0);
        assert_eq!((a.unsure, a.own.poll().load(Ordering::Relaxed)), (0, 0));
        // One that sleeps is woken, and given the processor as well.
        carrier.activity().store(activity::SLEEPING, Ordering::Relaxed);
        a.gave_way = 0;
        a.send(to, numbered(3), Urgency::Call).unwrap();
        assert_eq!(carrier.poll().load(Ordering::Relaxed), 1);
        a.make_sure();
        assert_ne!(a.gave_way, 0);
    }

    #[test]
    fn the_doorbell_rings_for_running_nodes_only() {
        let (_test, mut a, mut b) = pair(16, 2);
        let to = NodeId::new(1).unwrap();
        a.send(to, numbered(0), Urgency::Call).unwrap();
        assert_eq!(b.own.poll().load(Ordering::Relaxed), 1);
        b.answer_doorbell();
        assert!(b.receive().is_some());
        let mut patience = Patience::default();
        b.begin_wait(&mut patience);
        a.send(to, numbered(1), Urgency::Call).unwrap();
        assert_eq!(b.own.poll().load(Ordering::Relaxed), 0);
        // Leaving with a message unread sets the own doorbell.
        b.end_wait(&patience, || false);
        assert_eq!(b.own.poll().load(Ordering::Relaxed), 1);
        b.answer_doorbell();
        assert!(b.receive().is_some());
        let mut patience = Patience::default();
        b.begin_wait(&mut patience);
        b.end_wait(&patience, || false);
        assert_eq!(b.own.poll().load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_answer_rings_no_doorbell_and_a_call_in_a_quiet_wait_does() {
        let (_test, mut a, mut b) = pair(16, 2);
        let (first, second) = (NodeId::new(0).unwrap(), NodeId::new(1).unwrap());
        a.send(second, numbered(0), Urgency::Answer).unwrap();
        assert_eq!((b.own.poll().load(Ordering::Relaxed), a.unsure), (0, 2));
        // The receiver's next message says that it has taken everything: there is nothing left to make sure of.
        assert!(b.receive().is_some());
        b.send(first, numbered(0), Urgency::Answer).unwrap();
        let (from, message) = a.receive().unwrap();
        a.note_taken(from, message.taken);
        assert_eq!(a.unsure, 0);
        // A quiet wait ends with the doorbell as it must be.
        a.send(second, numbered(1), Urgency::Call).unwrap();
        assert!(b.receive().is_some());
        b.end_wait(&Patience::default(), || false);
        assert_eq!(b.own.poll().load(Ordering::Relaxed), 0);
        a.send(second, numbered(2), Urgency::Call).unwrap();
        b.end_wait(&Patience::default(), || false);
        assert_eq!(b.own.poll().load(Ordering::Relaxed), 1, "a message is left");
    }

    /// Every message races with a receiver that falls asleep. A single lost wake-up would cost the whole timeout: a round as long as no busy machine
    /// makes one.
    #[test]
    fn no_wake_up_is_lost() {
        for (cpus, kind) in [(1, Urgency::Call), (2, Urgency::Call), (1, Urgency::Answer), (2, Urgency::Answer)] {
            let (_test, mut a, mut b) = pair(4, cpus);
            a.waiting = WaitSettings {
                spins_min: 1,
                spins_max: 1,
                spins_most: 1,
                is_shared: false,
                yields: 0,
                sleep_ns: 120_000_000_000,
            };
            b.waiting = a.waiting;
            (a.spins, b.spins) = (Spins::new(&a.waiting), Spins::new(&a.waiting));
            const ROUNDS: u64 = 20_000;
            let next = |end: &mut Transport| {
                let mut patience = Patience::default();
                let (_, message) = loop {
                    match end.receive() {
                        Some(got) => break got,
                        None => {
                            end.idle(&mut patience, u32::MAX, u64::MAX, || false);
                        }
                    }
                };
                end.end_wait(&patience, || false);
                message.args[0]
            };
            let mut longest = core::time::Duration::ZERO;
            let other = std::thread::spawn(move || {
                for n in 0..ROUNDS {
                    assert_eq!(next(&mut b), n);
                    b.send(NodeId::new(0).unwrap(), numbered(n), kind).unwrap();
                }
            });
            for n in 0..ROUNDS {
                let began = std::time::Instant::now();
                a.send(NodeId::new(1).unwrap(), numbered(n), kind).unwrap();
                assert_eq!(next(&mut a), n);
                longest = longest.max(began.elapsed());
            }
            other.join().unwrap();
            assert!(longest.as_secs() < 100, "{longest:?}");
        }
    }

    #[test]
    fn abort_wakes_a_sleeper() {
        let (test, _a, mut b) = pair(4, 1);
        b.waiting.sleep_ns = 3_600_000_000_000;
        let sleeper = std::thread::spawn(move || {
            let mut patience = Patience::default();
            b.begin_wait(&mut patience);
            while !b.is_aborted() {
                assert!(b.receive().is_none());
                b.idle(&mut patience, u32::MAX, u64::MAX, || false);
            }
        });
        let node = NodeId::new(1).unwrap();
        while test.region.context(node).activity().load(Ordering::Relaxed) != activity::SLEEPING {
            std::thread::yield_now();
        }
        control::abort(&test.region);
        sleeper.join().unwrap();
    }
}
