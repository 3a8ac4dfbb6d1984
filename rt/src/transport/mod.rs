//! Messages between the nodes of a run, and waiting for them.
//!
//! Purpose: [`Transport`] is one node's end of all its rings. It sends without ever blocking, receives, and waits for the next
//! message without wasting a processor that somebody else needs. Source: design section 6; Reinhardt 1996, 2.2.1 (a
//! handler must be able to send).
//!
//! * [`message`]: what travels. * [`ring`], [`shuttle`]: how it travels; [`link`] chooses. * [`doorbell`]: how a receiver learns of it.
//! * `wait`: how a node waits for it; `first_look`: when it looks first. * `watch`: what a node that waits sees of its peers.
//!
//! # Who rings the doorbell
//!
//! What a receiver does stands in the word `activity` of its context page ([`activity`]). A sender first publishes its
//! message, then looks at the word: a *running* receiver gets its doorbell set, so that its next poll is taken; a *spinning* one looks
//! at the rings anyway and gets nothing; a *sleeping* one gets the doorbell and a futex wake-up; one *in the kernel* the doorbell and, once, the signal
//! that brings it out. An *answer* to the receiver's own request ([`Urgency`]) only wakes a sleeper: who runs comes to its rings when it needs the
//! answer. A receiver that changes its state writes the word
//! first and then looks at all rings. Both sides have a full fence between the two steps, so at least one of them sees the other
//! and no message is left lying. **Invariant**: a node that leaves the runtime has its doorbell set unless every ring was seen empty after it
//! had said that it runs.
//!
//! Fences are not in the way of a miss. A sender that finds a spinning receiver, or a running one that waits for the answer, believes it for the moment and looks
//! again behind a fence ([`Transport::make_sure`]) when it has waited in vain for a while, or before it sleeps or leaves the runtime; not at all if the
//! peer's next message acknowledges everything (`taken`). A wait that is soon over does not say that it is one (`wait`): the node has
//! said all the time that it runs, so at its end there is nothing to take back.
//!
//! **Invariant**: messages from one node to another arrive in the order of sending. What does not fit into a ring waits in the
//! sender's own queue, and while that queue is not empty everything for that ring goes through it. Whoever begins such a queue rings, because
//! nobody may have rung for what fills the ring; whoever moves some of it into the ring rings again.

pub mod doorbell;
mod first_look;
pub mod link;
pub mod message;
#[cfg(test)]
mod models;
pub mod ring;
pub mod settings;
pub mod shuttle;
mod wait;
mod watch;

#[cfg(test)]
use crate::kernel::explored::Look;
use crate::kernel::own_memory::Queue;
use crate::kernel::sys;
use crate::memory::region::{Context, Region};
use crate::messages::kinds;
use crate::transport::settings::{Spins, Waiting, Yields};
use blizzard_contract::{BLOCK_BYTES, CALL_SIGNAL, Counter, MAX_NODES};
use blizzard_protocol::ids::BLOCK_WORDS;
use blizzard_protocol::ids::NodeId;
use core::sync::atomic::{AtomicU32, Ordering};
pub use doorbell::Urgency;
use doorbell::{Doorbell, Word};
use link::Link;
pub use message::{LINE_BYTES, Message};
use wait::Looking;
pub use wait::Patience;
pub use watch::Silent;
use watch::{Attention, Watch};

/// One other node.
struct Peer {
    watch: Watch,
    link: Link,
    /// What did not fit into `out`.
    overflow: Queue<Message>,
    context: Context,
}

/// One node's end of all rings.
pub struct Transport {
    me: NodeId,
    nodes: usize,
    region: Region,
    own: Context,
    /// By number; the first `nodes` without this one's own.
    peers: [Option<Peer>; MAX_NODES],
    /// Where the search for the next message begins: at the node that sent the last one.
    turn: usize,
    /// Messages in all overflow queues.
    buffered: u64,
    /// The last message from or to another node was none of the coherence protocol.
    is_talking: bool,
    /// Peers that got a message and whose state was looked at without a fence, a bit each; those of them that got more than answers.
    unsure: u64,
    unsure_calls: u64,
    waiting: Waiting,
    spins: Spins,
    yields: Yields,
    looking: Looking,
    /// Found by a look at the peers; the node reports it.
    silent: Option<Silent>,
    /// The peer to or from which a ring holds what neither end can have written.
    damaged: Option<NodeId>,
    /// How long the peers have been looked at.
    attention: Attention,
    /// Yields since the last look.
    unwatched: u32,
}

impl Transport {
    /// The ends of node `me` in `region`.
    ///
    /// # Safety
    /// `me` is a node of the region, nobody else is that node, and the region stays mapped.
    pub unsafe fn new(region: Region, me: NodeId) -> Transport {
        let header = *region.header();
        let mut peers = [const { None }; MAX_NODES];
        for (number, peer) in peers.iter_mut().enumerate().take(header.nodes as usize) {
            let Some(other) = NodeId::new(number as u32).filter(|&other| other != me) else { continue };
            // SAFETY: the region's rings, each used by this node at the one end that is its own.
            let link = unsafe {
                Link::new(region.ring(me, other), region.ring(other, me), header.ring_slots, me.index() < other.index())
            };
            *peer =
                Some(Peer { watch: Watch::default(), link, overflow: Queue::new(), context: region.context(other) });
        }
        let waiting = Waiting::new(header.nodes, header.cpus);
        Transport {
            me,
            nodes: header.nodes as usize,
            region,
            own: region.context(me),
            peers,
            turn: 0,
            buffered: 0,
            is_talking: false,
            unsure: 0,
            unsure_calls: 0,
            waiting,
            spins: Spins::new(&waiting),
            yields: Yields::FRESH,
            looking: Looking::new(),
            silent: None,
            damaged: None,
            attention: Attention::default(),
            unwatched: 0,
        }
    }

    /// Sends to another node; never blocks. `kind` says whether the receiver must be told. Fails only when the kernel has no memory for the
    /// queue. Panics when `to` is this node or none of the run: callers handle these.
    #[inline]
    pub fn send(&mut self, to: NodeId, mut message: Message, kind: Urgency) -> sys::Result<()> {
        let peer = self.peers[to.index()].as_mut().expect("messages go to other nodes of the run");
        message.incarnation = self.region.header().incarnation;
        message.source = self.me.index() as u8;
        message.taken = peer.link.taken();
        self.looking.sent(to);
        self.is_talking = !kinds::is_coherence(message.handler);
        self.own.add_alone(Counter::MessagesSent, 1);
        self.own.add_alone(Counter::BytesSent, message.wire_bytes());
        if peer.overflow.is_empty() && peer.link.send(&message) {
            if announce(&peer.context, kind) {
                self.note_unsure(to, kind);
            }
            return Ok(());
        }
        self.own.add_alone(Counter::SendsBuffered, 1);
        self.buffered += 1;
        if peer.overflow.is_empty() {
            // Nobody may have rung for what fills the ring, and what waits behind it may be a call.
            wake(&peer.context);
        }
        peer.overflow.push(message)
    }

    /// [`Transport::send`] of a message without data, given by its parts; none of the coherence protocol. False, and nothing is sent, when it would
    /// have to wait in this node's memory.
    #[inline]
    pub fn send_line(&mut self, to: NodeId, handler: u16, addr: u64, words: [u64; 4], kind: Urgency) -> bool {
        self.send_parts(to, (handler, addr, words), None, kind, true)
    }

    /// [`Transport::send`] of a message of the coherence protocol, given by its parts. False, and nothing is sent, when it would have to wait in this
    /// node's memory.
    #[inline]
    pub fn send_block(
        &mut self,
        to: NodeId,
        parts: (u16, u64, [u64; 4]),
        data: Option<&[u64; BLOCK_WORDS]>,
        kind: Urgency,
    ) -> bool {
        self.send_parts(to, parts, data, kind, false)
    }

    /// `parts`: handler, address, arguments and key. `may_shuttle`: it is no message of the coherence protocol.
    #[inline(always)]
    fn send_parts(
        &mut self,
        to: NodeId,
        (handler, addr, [first, second, third, key]): (u16, u64, [u64; 4]),
        data: Option<&[u64; BLOCK_WORDS]>,
        kind: Urgency,
        may_shuttle: bool,
    ) -> bool {
        let Some(Some(peer)) = self.peers.get_mut(to.index()) else { return false };
        let length = if data.is_some() { BLOCK_BYTES } else { 0 };
        let small =
            u64::from(handler) | (self.me.index() as u64) << 16 | length << 24 | u64::from(peer.link.taken()) << 32;
        let head = [small, addr, first, second, third, key, 0];
        let incarnation = self.region.header().incarnation;
        if !peer.overflow.is_empty() {
            return false;
        }
        let sent = if may_shuttle {
            peer.link.send_head(incarnation, head, data)
        } else {
            peer.link.send_by_ring(incarnation, head, data)
        };
        if !sent {
            return false;
        }
        let unsure = announce(&peer.context, kind);
        self.is_talking = may_shuttle;
        self.looking.sent(to);
        self.own.add_alone(Counter::MessagesSent, 1);
        self.own.add_alone(Counter::BytesSent, LINE_BYTES + length);
        if unsure {
            self.note_unsure(to, kind);
        }
        true
    }

    /// The receiver's state was looked at without a fence.
    #[inline]
    fn note_unsure(&mut self, to: NodeId, kind: Urgency) {
        let bit = 1 << to.index();
        self.unsure |= bit;
        self.unsure_calls |= if kind == Urgency::Answer { 0 } else { bit };
    }

    /// A valid message says how many of this node's messages its sender had taken out.
    #[inline]
    pub fn note_taken(&mut self, from: NodeId, taken: u32) {
        let bit = 1 << from.index();
        if self.unsure & bit != 0 && self.peers[from.index()].as_ref().is_some_and(|peer| peer.link.is_all_taken(taken))
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
        AtomicU32::full_fence();
        while unsure != 0 {
            let number = unsure.trailing_zeros();
            unsure &= unsure - 1;
            let kind = if calls >> number & 1 == 1 { Urgency::Call } else { Urgency::Answer };
            if let Some(peer) = &self.peers[number as usize] {
                doorbell_of(&peer.context).ring_behind_fence(kind, || call(peer.context.pid().load(Ordering::Relaxed)));
            }
        }
    }

    /// Moves what waits in the overflow queues into the rings, as far as there is room.
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
                && peer.link.send(&message)
            {
                peer.overflow.pop();
                self.buffered -= 1;
            }
            if self.buffered != before {
                wake(&peer.context);
            }
        }
    }

    /// Whether everything sent has reached a ring.
    pub fn is_drained(&self) -> bool {
        self.buffered == 0
    }

    /// Messages that wait in this node's own memory.
    pub fn buffered(&self) -> u64 {
        self.buffered
    }

    /// Takes the next message and says whose ring it was in. Data that does not travel stays what it was.
    #[inline]
    pub fn receive_into(&mut self, message: &mut Message) -> Option<NodeId> {
        #[cfg(test)]
        match crate::kernel::explored::at_receive(self.me) {
            Look::Anywhere => {}
            Look::At(from) => self.turn = from.index(),
            Look::Nowhere => return None,
        }
        let mut number = self.turn;
        for _ in 0..self.nodes {
            if let Some(peer) = &mut self.peers[number]
                && peer.link.receive_into(message)
            {
                self.turn = number;
                self.looking.received();
                self.is_talking = !kinds::is_coherence(message.handler);
                peer.link.expect_to_send(message);
                return NodeId::new(number as u32);
            }
            number = if number + 1 == self.nodes { 0 } else { number + 1 };
        }
        None
    }

    /// Whether a message of that node is there.
    #[cfg(test)]
    pub fn is_ready_from(&self, from: NodeId) -> bool {
        self.peers[from.index()].as_ref().is_some_and(|peer| peer.link.is_ready())
    }

    /// [`Transport::receive_into`] for tests.
    #[cfg(test)]
    pub fn receive(&mut self) -> Option<(NodeId, Message)> {
        let mut message = Message::default();
        self.receive_into(&mut message).map(|from| (from, message))
    }

    /// Gives the next search to the next node, so that a busy peer cannot starve the others.
    pub fn next_turn(&mut self) {
        let after = |number| if number + 1 >= self.nodes { 0 } else { number + 1 };
        let next = after(self.turn);
        self.turn = if next == self.me.index() { after(next) } else { next };
    }

    #[inline]
    fn any_ready(&self) -> bool {
        self.peers[..self.nodes].iter().flatten().any(|peer| peer.link.is_ready())
    }

    /// Whether somebody has ended the run.
    pub fn is_aborted(&self) -> bool {
        self.region.abort().load(Ordering::Relaxed) != 0
    }
}

fn doorbell_of(context: &Context) -> Doorbell<'_, AtomicU32> {
    Doorbell { poll: context.poll(), state: context.activity() }
}

/// Tells a node that a message was published, unless it is one that looks at its rings or waits for just this. True: that was not looked at behind
/// a fence, see [`Transport::make_sure`].
#[inline]
fn announce(context: &Context, kind: Urgency) -> bool {
    doorbell_of(context).announce(kind, || call(context.pid().load(Ordering::Relaxed)))
}

/// Tells a node that a message was published.
#[inline]
pub(crate) fn wake(context: &Context) {
    doorbell_of(context).ring(|| call(context.pid().load(Ordering::Relaxed)));
}

/// Sends a node's process the signal that brings it out of the kernel.
#[cold]
fn call(pid: u32) {
    if pid != 0 {
        // Refused when the process is gone, which the launcher sees, or has become another user's: then it answers at its next poll.
        let _ = sys::tgkill(pid as i32, pid as i32, CALL_SIGNAL);
    }
}

/// Ends the run for everyone: sets the abort word, and wakes all who sleep.
pub fn abort(region: &Region) {
    region.abort().store(1, Ordering::SeqCst);
    for node in (0..region.header().nodes).filter_map(NodeId::new) {
        let context = region.context(node);
        let doorbell = context.poll();
        doorbell.store(1, Ordering::SeqCst);
        let _ = sys::futex_wake(doorbell, i32::MAX as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::region::testing::TestRegion;
    use blizzard_contract::activity;

    fn pair(slots: u32, cpus: u32) -> (TestRegion, Transport, Transport) {
        let test = TestRegion::new(2, cpus, 1 << 20, slots);
        let node = |n| NodeId::new(n).unwrap();
        // SAFETY: each node exists once; the region is dropped after the transports' last use.
        let (a, b) = unsafe { (Transport::new(test.region, node(0)), Transport::new(test.region, node(1))) };
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
        b.end_wait(&patience);
        assert_eq!(b.own.poll().load(Ordering::Relaxed), 1);
        b.answer_doorbell();
        assert!(b.receive().is_some());
        let mut patience = Patience::default();
        b.begin_wait(&mut patience);
        b.end_wait(&patience);
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
        b.end_wait(&Patience::default());
        assert_eq!(b.own.poll().load(Ordering::Relaxed), 0);
        a.send(second, numbered(2), Urgency::Call).unwrap();
        b.end_wait(&Patience::default());
        assert_eq!(b.own.poll().load(Ordering::Relaxed), 1, "a message is left");
    }

    /// Every message races with a receiver that falls asleep. A single lost wake-up would cost the whole timeout: a round as long as no busy machine
    /// makes one.
    #[test]
    fn no_wake_up_is_lost() {
        for (cpus, kind) in [(1, Urgency::Call), (2, Urgency::Call), (1, Urgency::Answer), (2, Urgency::Answer)] {
            let (_test, mut a, mut b) = pair(4, cpus);
            a.waiting = Waiting { spins_min: 1, spins_max: 1, yields: 0, sleep_ns: 120_000_000_000 };
            b.waiting = a.waiting;
            (a.spins, b.spins) = (Spins::new(&a.waiting), Spins::new(&a.waiting));
            const ROUNDS: u64 = 20_000;
            let next = |end: &mut Transport| {
                let mut patience = Patience::default();
                let (_, message) = loop {
                    match end.receive() {
                        Some(got) => break got,
                        None => {
                            end.idle(&mut patience, u32::MAX, u64::MAX);
                        }
                    }
                };
                end.end_wait(&patience);
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
                b.idle(&mut patience, u32::MAX, u64::MAX);
            }
        });
        let node = NodeId::new(1).unwrap();
        while test.region.context(node).activity().load(Ordering::Relaxed) != activity::SLEEPING {
            std::thread::yield_now();
        }
        abort(&test.region);
        sleeper.join().unwrap();
    }
}
