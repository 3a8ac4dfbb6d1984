//! Rings and doorbells under loom: every interleaving, and every value that a load may see under C11's memory model.
//!
//! Purpose: the code of [`crate::transport::rings::ring`] and [`crate::transport::rings::doorbell`] itself, over loom's atomics, with few messages and slots. Each
//! model also runs with planted bugs, orders and fences left out one at a time, and must find each of them.
//! **Limits**: loom executes loads and stores of a thread in program order, so it cannot see a store that overtakes an earlier load (the
//! release of a slot); futexes have no time limit here, so a lost wake-up is a deadlock, which loom reports.

use crate::transport::interface::Urgency;
use crate::transport::message::{FIRST_OTHER, HEAD_WORDS, LINE_BYTES, Message};
use crate::transport::rings::doorbell::{Doorbell, Word};
use crate::transport::rings::link::Link;
use crate::transport::rings::ring::{Consumer, Producer, RingMemory};
use crate::transport::rings::shuttle::HEAD_LINE;
use blizzard_contract::{RING_HEADER_BYTES, SLOT_BYTES, activity};
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::vec::Vec;

/// What is left out of the code under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// The sequence number does not publish the words before it.
    PublishRelaxed,
    /// The receiver's look at it does not order the loads behind it.
    LookRelaxed,
    /// The sender believes that all slots have been consumed.
    NeverFull,
    /// The sequence number is written before the words.
    PublishFirst,
    /// A message does not say what went the other way before it.
    NoCount,
    /// The sender looks at the receiver's state before its message is sure to be visible.
    NoSenderFence,
    /// The receiver looks at the rings before its state is sure to be visible.
    NoReceiverFence,
    /// The sender takes a sleeper for a spinner.
    NoWake,
    /// The sender does not look a second time at a receiver that seemed to need nothing.
    NoLaterLook,
}

/// A ring's memory: the words that messages without data use.
struct Words {
    small: BTreeMap<u64, AtomicU32>,
    large: BTreeMap<u64, AtomicU64>,
    bug: Bug,
    slots: u64,
    /// What the sender has published, known to it alone.
    published: std::sync::atomic::AtomicU64,
}

#[derive(Clone)]
struct Shared(Arc<Words>);

impl Shared {
    fn ring(slots: u64, bug: Bug) -> Shared {
        let (mut small, mut large) = (BTreeMap::new(), BTreeMap::new());
        large.insert(0, AtomicU64::new(0));
        let heads = (0..slots).map(|slot| RING_HEADER_BYTES + slot * SLOT_BYTES);
        for slot in heads.chain([HEAD_LINE]) {
            small.extend([0, 4].map(|offset| (slot + offset, AtomicU32::new(0))));
            large.extend((1..8).map(|word| (slot + 8 * word, AtomicU64::new(0))));
        }
        Shared(Arc::new(Words { small, large, bug, slots, published: std::sync::atomic::AtomicU64::new(0) }))
    }
}

impl RingMemory for Shared {
    fn load_u32(&self, offset: u64, order: Ordering) -> u32 {
        let order = if self.0.bug == Bug::LookRelaxed { Ordering::Relaxed } else { order };
        self.0.small[&offset].load(order)
    }

    fn store_u32(&self, offset: u64, value: u32, order: Ordering) {
        let order = if self.0.bug == Bug::PublishRelaxed { Ordering::Relaxed } else { order };
        if self.0.bug == Bug::PublishFirst && offset % SLOT_BYTES == 4 && offset >= RING_HEADER_BYTES {
            // The sequence number that will follow, ahead of everything.
            let sequence = &self.0.small[&(offset - 4)];
            // SAFETY: the sequence number is written by this thread only.
            let before = unsafe { sequence.unsync_load() };
            let first = (offset - 4 - RING_HEADER_BYTES) / SLOT_BYTES + 1;
            sequence.store(if before == 0 { first as u32 } else { before + self.0.slots as u32 }, Ordering::Release);
        }
        self.0.small[&offset].store(value, order);
        self.0
            .published
            .fetch_add(u64::from(offset.is_multiple_of(SLOT_BYTES) && offset != HEAD_LINE), Ordering::Relaxed);
    }

    fn load_u64(&self, offset: u64, order: Ordering) -> u64 {
        if self.0.bug == Bug::NeverFull && offset == 0 {
            return self.0.published.load(Ordering::Relaxed);
        }
        self.0.large[&offset].load(order)
    }

    fn store_u64(&self, offset: u64, value: u64, order: Ordering) {
        let value = if self.0.bug == Bug::NoCount && offset % LINE_BYTES == 8 * HEAD_WORDS as u64 { 0 } else { value };
        self.0.large[&offset].store(value, order);
    }
}

fn message(n: u64) -> Message {
    Message {
        incarnation: 7 + n as u32,
        handler: FIRST_OTHER + n as u16,
        args: [n, !n, n << 7],
        key: n + 100,
        ..Message::default()
    }
}

/// Explores everything with at most so many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Whether the model fails, without its message.
fn is_found(model: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(model)).is_err()
}

/// A sender of `count` messages through a ring, and a receiver that wants each of them whole and in order.
fn ring(count: u64, bug: Bug) {
    ring_of(2, count, 3, bug);
}

fn ring_of(slots: u32, count: u64, preemptions: usize, bug: Bug) {
    explore(preemptions, move || {
        let memory = Shared::ring(slots.into(), bug);
        let mut into = Consumer::over(memory.clone(), slots);
        let sender = loom::thread::spawn(move || {
            let mut out = Producer::over(memory, slots);
            for n in 0..count {
                while !out.send_message(&message(n)) {
                    loom::thread::yield_now();
                }
            }
        });
        for n in 0..count {
            let got = loop {
                match into.receive() {
                    Some(got) => break got,
                    None => loom::thread::yield_now(),
                }
            };
            assert_eq!(got, message(n));
        }
        assert!(into.receive().is_none());
        sender.join().unwrap();
    });
}

#[test]
fn messages_arrive_whole_and_in_order() {
    ring(3, Bug::None);
}

/// With eight slots the consumer publishes every second index only.
#[test]
fn a_sender_gets_the_room_that_is_not_told_of_each_time() {
    ring_of(8, 10, 1, Bug::None);
}

#[test]
fn planted_bugs_of_the_ring_are_found() {
    for bug in [Bug::PublishRelaxed, Bug::LookRelaxed, Bug::NeverFull, Bug::PublishFirst] {
        assert!(is_found(|| ring(3, bug)), "{bug:?}");
    }
}

/// Two nodes that send to each other, by the shuttle and by rings of two slots, and take what comes in the order in which it was sent. The first one's
/// messages go by the shuttle, the ring, the shuttle and the ring; the other one answers the first of them.
fn link(bug: Bug, preemptions: usize) {
    explore(preemptions, move || {
        let memories = [Shared::ring(2, bug), Shared::ring(2, bug)];
        let ends = memories.clone();
        let [forth, back] = memories;
        let other = loom::thread::spawn(move || {
            let [forth, back] = ends;
            let mut end = Link::over(back, forth, 2, false);
            for n in 0..4 {
                assert_eq!(next(&mut end), message(n));
                if n == 0 {
                    assert!(end.send_message(&message(9)), "it is the turn of whoever has taken a message");
                }
            }
        });
        let mut end = Link::over(forth, back, 2, true);
        assert!(end.send_message(&message(0)) && end.send_message(&message(1)));
        assert_eq!(next(&mut end), message(9));
        for n in 2..4 {
            while !end.send_message(&message(n)) {
                loom::thread::yield_now();
            }
        }
        other.join().unwrap();
    });
}

fn next(end: &mut Link<Shared>) -> Message {
    let mut message = Message::default();
    while !end.receive_into(&mut message) {
        loom::thread::yield_now();
    }
    message
}

#[test]
fn messages_of_both_ways_keep_their_order() {
    link(Bug::None, 3);
}

#[test]
fn planted_bugs_of_the_link_are_found() {
    for bug in [Bug::PublishRelaxed, Bug::LookRelaxed, Bug::NoCount] {
        assert!(is_found(|| link(bug, 3)), "{bug:?}");
    }
}

/// A word of the context page with its futex.
struct Cell {
    word: AtomicU32,
    asleep: Mutex<()>,
    woken: Condvar,
    bug: Bug,
}

impl Cell {
    fn new(value: u32, bug: Bug) -> Cell {
        Cell { word: AtomicU32::new(value), asleep: Mutex::new(()), woken: Condvar::new(), bug }
    }
}

loom::lazy_static! {
    /// What the fence of the sender is, in the execution under way.
    static ref FENCED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(true);
}

impl Word for Cell {
    fn load(&self) -> u32 {
        let value = self.word.load(Ordering::Relaxed);
        if self.bug == Bug::NoWake && value == activity::SLEEPING { activity::SPINNING } else { value }
    }

    fn store(&self, value: u32) {
        self.word.store(value, Ordering::Release);
    }

    fn exchange(&self, value: u32) -> u32 {
        // What a locked instruction is: loom gives a sequentially consistent exchange no more than acquire and release.
        let ordered = self.bug != Bug::NoReceiverFence;
        if ordered {
            fence(Ordering::SeqCst);
        }
        let old = self.word.swap(value, if ordered { Ordering::AcqRel } else { Ordering::Relaxed });
        if ordered {
            fence(Ordering::SeqCst);
        }
        old
    }

    fn replace(&self, old: u32, new: u32) -> bool {
        self.word.compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    fn full_fence() {
        if FENCED.load(Ordering::Relaxed) {
            fence(Ordering::SeqCst);
        }
    }

    fn sleep_while_zero(&self, _limit_ns: u64) {
        let guard = self.asleep.lock().unwrap();
        // The kernel compares and queues under its own lock, in one step.
        if self.word.load(Ordering::SeqCst) == 0 {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn wake(&self) {
        let _guard = self.asleep.lock().unwrap();
        self.woken.notify_one();
    }
}

/// A node as its peers see it, and how many messages they have sent it.
struct Receiver {
    poll: Cell,
    state: Cell,
    sent: AtomicU32,
}

impl Receiver {
    /// One that runs.
    fn new(bug: Bug) -> Arc<Receiver> {
        FENCED.store(bug != Bug::NoSenderFence, Ordering::Relaxed);
        let (poll, state) = (Cell::new(0, bug), Cell::new(activity::RUNNING, bug));
        Arc::new(Receiver { poll, state, sent: AtomicU32::new(0) })
    }

    fn bell(&self) -> Doorbell<'_, Cell> {
        Doorbell { poll: &self.poll, state: &self.state }
    }

    /// Publishes message `n`, counted from 1.
    fn publish(&self, n: u32) {
        self.sent.store(n, Ordering::Release);
    }

    fn has(&self, n: u32) -> bool {
        self.sent.load(Ordering::Acquire) >= n
    }

    /// Publishes message `n` and looks whether the node must be told; true: without a fence.
    fn announce(&self, n: u32, kind: Urgency) -> bool {
        self.publish(n);
        self.bell().announce(kind, || unreachable!("the receiver makes no system call"))
    }

    /// The look behind a fence that follows.
    fn look_again(&self, kind: Urgency) {
        Cell::full_fence();
        self.bell().ring_behind_fence(kind, || unreachable!("the receiver makes no system call"));
    }

    /// The program computes: its polls look at the doorbell, and at nothing else.
    fn expect_rung(&self) {
        assert_eq!(self.poll.word.load(Ordering::SeqCst), 1, "a message lies in a ring, and nobody will look");
    }
}

/// A node, what one peer does to it, what it does meanwhile, and what must be so when both are done.
fn race(bug: Bug, sender: fn(&Receiver, Bug), receiver: fn(&Receiver, Bug), then: fn(&Receiver)) {
    explore(3, move || {
        let node = Receiver::new(bug);
        let peer = Arc::clone(&node);
        let peer = loom::thread::spawn(move || sender(&peer, bug));
        receiver(&node, bug);
        peer.join().unwrap();
        then(&node);
    });
}

/// A sender of two messages, and a receiver that sleeps for the first and computes, polling its doorbell, until the second.
fn doorbell(bug: Bug) {
    let sender = |node: &Receiver, _| {
        for n in 1..=2 {
            node.publish(n);
            node.bell().ring(|| unreachable!("the receiver makes no system call"));
        }
    };
    let receiver = |node: &Receiver, _| {
        let bell = node.bell();
        bell.begin_wait();
        while !node.has(1) {
            bell.sleep(|| node.has(1), 0);
        }
        bell.end_wait(|| node.has(2));
    };
    race(bug, sender, receiver, |node| {
        node.expect_rung();
        node.bell().answer();
        assert!(node.has(2));
    });
}

#[test]
fn no_wake_up_and_no_doorbell_is_lost() {
    doorbell(Bug::None);
}

#[test]
fn planted_bugs_of_the_doorbell_are_found() {
    for bug in [Bug::NoSenderFence, Bug::NoReceiverFence, Bug::NoWake] {
        assert!(is_found(|| doorbell(bug)), "{bug:?}");
    }
}

/// A sender of two messages to a node that computes, handles the first one before it has been rung for, and sleeps until the second. The doorbell of the first
/// was set behind the beginning of that sleep, and the one of the second was taken for one that had been rung already: it slept until its time limit.
#[test]
fn a_doorbell_that_comes_late_is_not_taken_for_a_wake_up() {
    let sender = |node: &Receiver, _| {
        for n in 1..=2 {
            if node.announce(n, Urgency::Call) {
                node.look_again(Urgency::Call);
            }
        }
    };
    let receiver = |node: &Receiver, _| {
        while !node.has(1) {
            loom::thread::yield_now();
        }
        let bell = node.bell();
        bell.begin_wait();
        while !node.has(2) {
            bell.sleep(|| node.has(2), 0);
        }
        bell.end_wait(|| false);
    };
    race(Bug::None, sender, receiver, |_| ());
}

/// A sender of answers, who looks at the receiver's state without a fence first and behind one later, and a receiver that waits for them: at first without
/// a word, then spinning, then asleep.
fn answers(bug: Bug) {
    let sender = |node: &Receiver, bug| {
        let mut unsure = node.announce(1, Urgency::Answer);
        unsure |= node.announce(2, Urgency::Answer);
        if unsure && bug != Bug::NoLaterLook {
            node.look_again(Urgency::Answer);
        }
    };
    let receiver = |node: &Receiver, _| {
        let bell = node.bell();
        if !node.has(2) {
            bell.begin_wait();
            while !node.has(2) {
                bell.sleep(|| node.has(2), 0);
            }
            bell.end_wait(|| false);
        }
    };
    race(bug, sender, receiver, |_| ());
}

#[test]
fn no_sleeper_waits_for_an_answer_that_is_there() {
    answers(Bug::None);
}

#[test]
fn planted_bugs_of_answers_are_found() {
    for bug in [Bug::NoSenderFence, Bug::NoReceiverFence, Bug::NoWake, Bug::NoLaterLook] {
        assert!(is_found(|| answers(bug)), "{bug:?}");
    }
}

/// A sender of a reply, who does nothing more at first if the receiver runs or spins, and a receiver that ends a wait meanwhile and then computes.
fn replies(bug: Bug) {
    let sender = |node: &Receiver, bug| {
        assert!(node.announce(1, Urgency::Reply), "neither of the two states needs anything at once");
        if bug != Bug::NoLaterLook {
            node.look_again(Urgency::Reply);
        }
    };
    let receiver = |node: &Receiver, _| {
        node.bell().begin_wait();
        node.bell().end_wait(|| node.has(1));
    };
    race(bug, sender, receiver, Receiver::expect_rung);
}

#[test]
fn a_node_that_computes_hears_of_a_reply() {
    replies(Bug::None);
}

#[test]
fn planted_bugs_of_replies_are_found() {
    for bug in [Bug::NoSenderFence, Bug::NoReceiverFence, Bug::NoLaterLook] {
        assert!(is_found(|| replies(bug)), "{bug:?}");
    }
}

/// A sender of two messages to a node that says all the time that it runs, handles the first one, and silences its doorbell.
fn silence(bug: Bug) {
    let sender = |node: &Receiver, _| {
        for n in 1..=2 {
            assert!(!node.announce(n, Urgency::Call), "the receiver runs");
        }
    };
    let receiver = |node: &Receiver, bug| {
        while !node.has(1) {
            loom::thread::yield_now();
        }
        node.bell().silence(|| bug != Bug::NoLaterLook && node.has(2));
    };
    race(bug, sender, receiver, Receiver::expect_rung);
}

#[test]
fn a_doorbell_that_was_silenced_rings_for_what_came_after() {
    silence(Bug::None);
}

#[test]
fn planted_bugs_of_silence_are_found() {
    for bug in [Bug::NoSenderFence, Bug::NoReceiverFence, Bug::NoLaterLook] {
        assert!(is_found(|| silence(bug)), "{bug:?}");
    }
}

/// A receiver that makes a system call, and two senders: it is called, once, unless it saw a message before. The signal is a flag here, and the
/// call ends when it comes.
fn kernel(bug: Bug) {
    explore(3, move || {
        let node = Receiver::new(bug);
        let calls = Arc::new(AtomicU32::new(0));
        let senders: Vec<_> = (0..2)
            .map(|n| {
                let (node, calls) = (Arc::clone(&node), Arc::clone(&calls));
                loom::thread::spawn(move || {
                    node.sent.fetch_or(1 << n, Ordering::AcqRel);
                    node.bell().ring(|| {
                        calls.fetch_add(1, Ordering::AcqRel);
                    });
                })
            })
            .collect();
        let waits = node.bell().enter_kernel(|| node.has(1));
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let calls = calls.load(Ordering::Acquire);
        assert!(!waits || calls == 1, "a node waits in the kernel, and nobody has called it");
        assert!(waits || node.has(1));
    });
}

#[test]
fn a_node_in_the_kernel_is_called_once() {
    kernel(Bug::None);
}

#[test]
fn planted_bugs_of_the_call_are_found() {
    for bug in [Bug::NoSenderFence, Bug::NoReceiverFence] {
        assert!(is_found(|| kernel(bug)), "{bug:?}");
    }
}

/// The executions that a model has, so that a change that makes it trivial is noticed.
#[test]
fn the_models_explore_more_than_a_handful() {
    let count = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let seen = std::sync::Arc::clone(&count);
    explore(2, move || {
        seen.fetch_add(1, Ordering::Relaxed);
        let memory = Shared::ring(2, Bug::None);
        let mut into = Consumer::over(memory.clone(), 2);
        let sender = loom::thread::spawn(move || assert!(Producer::over(memory, 2).send_message(&message(0))));
        let first: Vec<Message> = into.receive().into_iter().collect();
        sender.join().unwrap();
        assert_eq!(first.len() + usize::from(into.receive().is_some()), 1);
    });
    assert!(count.load(Ordering::Relaxed) >= 3, "{count:?}");
}
