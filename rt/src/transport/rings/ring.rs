//! One ring: single producer, single consumer, fixed slots of two cache lines.
//!
//! Purpose: move messages from one node to another. Input of [`Producer::send`] and output of [`Consumer::receive_into`]: a
//! [`Message`]. Source: design section 6 (transport).
//!
//! ```text
//! line 0   consumer index (u64), written by the consumer after it has copied slots out: a quarter of a lap, or all there were
//! line 1   unused: lines 0 and 1 may move together
//! line 2   in the ring of the node with the lower number: the shuttle between the two, see [`crate::transport::rings::shuttle`]
//! line 3   its data
//! line 4   slot 0: sequence number (u32), header        written by the producer, the sequence number last
//! line 5   slot 0: data of one block, when there is any
//! line 6   slot 1 ...
//! ```
//!
//! The sequence number of the slot for message `i` (counted from 0) becomes `i + 1` when the message is complete. So a receiver that
//! waits looks at the one line that will bring the message, and the producer looks at the consumer's line only when the ring seems full.
//! **Invariants**: a slot is rewritten only after the consumer's index has passed it; indexes only grow. A consumer index that is not
//! between the producer's own - slots and the producer's own is treated as a full ring.

use crate::transport::interface::Head;
use crate::transport::message::{HEAD_WORDS, Message};
use blizzard_contract::{RING_HEADER_BYTES, SLOT_BYTES};
use blizzard_protocol::ids::Data;
use core::arch::asm;
use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const CONSUMER_LINE: u64 = 0;
/// The consumer publishes its index after such a part of a lap, or when it finds the ring empty.
const PUBLISHED_PARTS: u64 = 4;
/// A sender gets the line for the message after so many others in advance: the one for the next may be watched by the receiver, who would only take it
/// back.
const AHEAD: u64 = 6;
/// A receiver gets the line of the message after so many others in advance.
const EARLY: u64 = 4;
/// The first word of a slot's second line.
const DATA_WORD: u64 = 8;

/// The memory of a ring: words at byte offsets, each always used with the same size.
///
/// A trait, so that the code below also runs in a model checker (`tests`).
pub trait RingMemory {
    fn load_u32(&self, offset: u64, order: Ordering) -> u32;
    fn store_u32(&self, offset: u64, value: u32, order: Ordering);
    fn load_u64(&self, offset: u64, order: Ordering) -> u64;
    fn store_u64(&self, offset: u64, value: u64, order: Ordering);
    /// The line will be written soon.
    fn prefetch_for_store(&self, _offset: u64) {}
    /// The line will be read soon.
    fn prefetch_for_load(&self, _offset: u64) {}
    /// The line has been written, and another processor will read it next: it had better be where both find it.
    fn demote(&self, _offset: u64) {}
}

/// The region's memory.
#[derive(Clone, Copy, Debug)]
pub struct MappedRing {
    base: u64,
}

impl MappedRing {
    /// The ring at `base`.
    ///
    /// # Safety
    /// Its memory stays mapped while this is used.
    pub unsafe fn new(base: *mut u8) -> MappedRing {
        MappedRing { base: base as u64 }
    }

    #[inline(always)]
    fn u32_at(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the creator vouched for the ring's memory, and the ring's mask keeps offsets inside. Atomic, since a faulty peer may
        // write meanwhile.
        unsafe { AtomicU32::from_ptr((self.base + offset) as *mut u32) }
    }

    #[inline(always)]
    fn u64_at(&self, offset: u64) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr((self.base + offset) as *mut u64) }
    }
}

impl RingMemory for MappedRing {
    #[inline(always)]
    fn load_u32(&self, offset: u64, order: Ordering) -> u32 {
        self.u32_at(offset).load(order)
    }

    #[inline(always)]
    fn store_u32(&self, offset: u64, value: u32, order: Ordering) {
        self.u32_at(offset).store(value, order);
    }

    #[inline(always)]
    fn load_u64(&self, offset: u64, order: Ordering) -> u64 {
        self.u64_at(offset).load(order)
    }

    #[inline(always)]
    fn store_u64(&self, offset: u64, value: u64, order: Ordering) {
        self.u64_at(offset).store(value, order);
    }

    #[inline(always)]
    fn prefetch_for_store(&self, offset: u64) {
        // Written out, because the compiler takes a prefetch for reading where it is not told that there is this one; then the line comes shared,
        // and the store still has to wait for it.
        // SAFETY: a prefetch never faults; processors without this one take it as a `nop` (SDM volume 2, PREFETCHW).
        unsafe { asm!("prefetchw [{}]", in(reg) self.base + offset, options(nostack, preserves_flags, readonly)) };
    }

    #[inline(always)]
    fn prefetch_for_load(&self, offset: u64) {
        // SAFETY: SSE is part of every x86-64 processor, and a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>((self.base + offset) as *const i8) };
    }

    #[inline(always)]
    fn demote(&self, offset: u64) {
        // SAFETY: a hint; processors that do not have it take it as a `nop` (SDM volume 2, CLDEMOTE).
        unsafe { asm!("cldemote [{}]", in(reg) self.base + offset, options(nostack, preserves_flags, readonly)) };
    }
}

/// Writes the head of a slot at that offset, and publishes the slot by its sequence number.
#[inline(always)]
pub fn store_head<M: RingMemory>(memory: &M, slot: u64, incarnation: u32, head: Head, sequence: u32) {
    // Word 0 holds the sequence number and the incarnation: the upper half first, the sequence number to publish.
    memory.store_u32(slot + 4, incarnation, Ordering::Relaxed);
    for (word, value) in (1..).zip(head) {
        memory.store_u64(slot + 8 * word, value, Ordering::Relaxed);
    }
    // Release: whoever sees the number sees the message.
    memory.store_u32(slot, sequence, Ordering::Release);
}

/// Copies the head of a slot out whose sequence number has been seen.
#[inline(always)]
pub fn load_head<M: RingMemory>(memory: &M, slot: u64, message: &mut Message) {
    let incarnation = memory.load_u32(slot + 4, Ordering::Relaxed);
    let mut head = [0; HEAD_WORDS];
    for (word, value) in (1..).zip(&mut head) {
        *value = memory.load_u64(slot + 8 * word, Ordering::Relaxed);
    }
    message.set_head(incarnation, &head);
}

/// Where a ring's parts are.
#[derive(Clone, Copy)]
struct Ring<M> {
    memory: M,
    mask: u64,
}

impl<M: RingMemory> Ring<M> {
    #[inline]
    fn slot(&self, index: u64) -> u64 {
        RING_HEADER_BYTES + (index & self.mask) * SLOT_BYTES
    }

    /// Word `word` (1 to 15) of a slot.
    fn load(&self, index: u64, word: u64) -> u64 {
        self.memory.load_u64(self.slot(index) + 8 * word, Ordering::Relaxed)
    }
}

/// The sending end.
pub struct Producer<M> {
    ring: Ring<M>,
    next: u64,
    /// The consumer's index when last looked at.
    consumed: u64,
}

impl<M: RingMemory + Clone> Producer<M> {
    /// The only sending end of the fresh (zeroed) ring in that memory.
    pub fn over(memory: M, slots: u32) -> Producer<M> {
        Producer { ring: Ring { memory, mask: u64::from(slots) - 1 }, next: 0, consumed: 0 }
    }

    /// Whether there is a free slot.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        if self.next.wrapping_sub(self.consumed) <= self.ring.mask {
            return true;
        }
        // Acquire: the consumer has copied the slot out before it moved its index.
        self.consumed = self.ring.memory.load_u64(CONSUMER_LINE, Ordering::Acquire);
        self.next.wrapping_sub(self.consumed) <= self.ring.mask
    }

    /// The next message will soon be sent: gets the lines of its slot, which the consumer read a lap ago, in advance.
    #[inline]
    pub fn expect_to_send(&self, with_data: bool) {
        let slot = self.ring.slot(self.next);
        self.ring.memory.prefetch_for_store(slot);
        if with_data {
            self.ring.memory.prefetch_for_store(slot + 8 * DATA_WORD);
        }
    }

    /// Whether the consumer has taken out everything, if it has said that it has taken so many messages (modulo 2^32).
    #[inline]
    pub fn is_all_taken(&self, taken: u32) -> bool {
        taken == self.next as u32
    }

    /// Whether the consumer's index is one that the consumer can have written.
    pub fn is_sound(&self) -> bool {
        let consumed = self.ring.memory.load_u64(CONSUMER_LINE, Ordering::Acquire);
        self.next.wrapping_sub(consumed) <= self.ring.mask + 1
    }

    /// Messages sent so far, modulo 2^32.
    #[inline]
    pub fn sent(&self) -> u32 {
        self.next as u32
    }

    /// Writes and publishes a message; false when the ring is full. `is_alone`: the receiver will look at it before more are sent.
    #[inline(always)]
    pub fn send(&mut self, incarnation: u32, head: Head, data: Option<&Data>, is_alone: bool) -> bool {
        if !self.has_room() {
            return false;
        }
        let next = self.next;
        // Of its own, because whatever is stored could change the producer as far as the compiler knows.
        let (memory, slot) = (&self.ring.memory.clone(), self.ring.slot(next));
        if let Some(data) = data {
            for (word, &value) in (DATA_WORD..).zip(data) {
                memory.store_u64(slot + 8 * word, value, Ordering::Relaxed);
            }
            if is_alone {
                memory.demote(slot + 8 * DATA_WORD);
            }
        }
        store_head(memory, slot, incarnation, head, (next as u32).wrapping_add(1));
        if is_alone {
            memory.demote(slot);
        }
        self.next = next + 1;
        memory.prefetch_for_store(self.ring.slot(next + 1 + AHEAD));
        true
    }
}

/// The receiving end.
pub struct Consumer<M> {
    ring: Ring<M>,
    next: u64,
    /// The index that the producer can see, and after how many messages it is to see another.
    published: u64,
    part: u64,
    /// Messages taken since the ring was empty last, and in the run before.
    run: u64,
    run_before: u64,
}

impl<M: RingMemory> Consumer<M> {
    /// The only receiving end of the ring in that memory.
    pub fn over(memory: M, slots: u32) -> Consumer<M> {
        let (ring, part) = (Ring { memory, mask: u64::from(slots) - 1 }, u64::from(slots).div_ceil(PUBLISHED_PARTS));
        Consumer { ring, next: 0, published: 0, part, run: 0, run_before: 0 }
    }

    /// Whether a message is there.
    #[inline]
    pub fn is_ready(&self) -> bool {
        let sequence = self.ring.memory.load_u32(self.ring.slot(self.next), Ordering::Acquire);
        sequence == (self.next as u32).wrapping_add(1)
    }

    /// Whether the next slot's sequence number is one that the producer can have written: of the next message, of the one that was in
    /// the slot before, or of none yet. (A producer that wraps around 2^32 messages leaves these same numbers.)
    pub fn is_sound(&self) -> bool {
        let slots = self.ring.mask + 1;
        let found = self.ring.memory.load_u32(self.ring.slot(self.next), Ordering::Acquire);
        let ready = (self.next as u32).wrapping_add(1);
        found == ready || found == if self.next < slots { 0 } else { ready.wrapping_sub(slots as u32) }
    }

    /// How many messages went the other way before the one that is ready, modulo 2^32.
    #[inline]
    pub fn order(&self) -> u32 {
        self.ring.load(self.next, HEAD_WORDS as u64) as u32
    }

    /// The producer gets all slots; when nothing is ready.
    #[inline]
    pub fn publish_all(&mut self) {
        if self.run != 0 {
            (self.run_before, self.run) = (self.run, 0);
            if self.published != self.next {
                self.publish();
            }
        }
    }

    /// Copies the message out that is ready, and frees its slot. Data that does not travel stays what it was; the contents are whatever the peer
    /// wrote.
    #[inline]
    pub fn receive_into(&mut self, message: &mut Message) {
        load_head(&self.ring.memory, self.ring.slot(self.next), message);
        if message.length != 0 {
            for (word, value) in (DATA_WORD..).zip(&mut message.data) {
                *value = self.ring.load(self.next, word);
            }
        }
        self.next += 1;
        self.run += 1;
        // Messages come in runs of much the same length. A line that is not written yet had better stay where it is.
        if self.run + EARLY < self.run_before {
            self.ring.memory.prefetch_for_load(self.ring.slot(self.next + EARLY));
        }
        // A producer that waits for room looks at the index, and takes its line away each time. It needs only a part of the slots, and all
        // when the ring is empty: so it never waits while every message has been taken.
        if self.next - self.published >= self.part {
            self.publish();
        }
    }

    #[inline]
    fn publish(&mut self) {
        self.published = self.next;
        // Release: the copies are complete before the producer may write the slots again.
        self.ring.memory.store_u64(CONSUMER_LINE, self.next, Ordering::Release);
    }

    /// Messages taken out so far, modulo 2^32.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.next as u32
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Whole messages through one ring alone.

    use super::*;

    impl<M: RingMemory + Clone> Producer<M> {
        pub fn send_message(&mut self, message: &Message) -> bool {
            self.send(message.incarnation, message.head(), (message.length != 0).then_some(&message.data), false)
        }
    }

    impl<M: RingMemory> Consumer<M> {
        pub fn receive(&mut self) -> Option<Message> {
            if !self.is_ready() {
                self.publish_all();
                return None;
            }
            let mut message = Message::default();
            self.receive_into(&mut message);
            Some(message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_contract::BLOCK_BYTES;

    fn ring(slots: u32) -> (Producer<MappedRing>, Consumer<MappedRing>, Vec<[u64; 16]>) {
        let mut memory = vec![[0u64; 16]; 2 + slots as usize];
        // SAFETY: the vector is returned too, and its storage does not move.
        let mapped = unsafe { MappedRing::new(memory.as_mut_ptr().cast::<u8>()) };
        (Producer::over(mapped, slots), Consumer::over(mapped, slots), memory)
    }

    fn message(n: u64) -> Message {
        let mut m = Message { addr: n, args: [n + 1, n + 2, n + 3], handler: n as u16, ..Message::default() };
        if n.is_multiple_of(2) {
            m.length = BLOCK_BYTES as u8;
            m.data = [n; 8];
        }
        m
    }

    #[test]
    fn a_full_ring_refuses_and_recovers() {
        let (mut out, mut into, _memory) = ring(4);
        assert!(into.receive().is_none());
        for n in 0..4 {
            assert!(out.send_message(&message(n)));
        }
        assert!(!out.has_room() && !out.send_message(&message(4)));
        for n in 0..4 {
            assert_eq!(into.receive(), Some(message(n)));
            assert!(out.send_message(&message(n + 4)), "slot {n} is free again");
        }
        for n in 4..8 {
            assert_eq!(into.receive(), Some(message(n)));
        }
        assert!(!into.is_ready());
    }

    #[test]
    fn the_index_is_published_in_parts_and_when_the_ring_is_empty() {
        let (mut out, mut into, memory) = ring(16);
        (0..16).for_each(|n| assert!(out.send_message(&message(n))));
        for n in 0..7 {
            assert_eq!(into.receive(), Some(message(n)));
        }
        assert_eq!(memory[0][0], 4);
        assert!((16..20).all(|n| out.send_message(&message(n))) && !out.send_message(&message(20)));
        (7..20).for_each(|n| assert_eq!(into.receive(), Some(message(n))));
        assert!(into.receive().is_none());
        assert_eq!(memory[0][0], 20);
    }

    #[test]
    fn a_wild_consumer_index_only_stops_the_sender() {
        let (mut out, _into, mut memory) = ring(2);
        assert!(out.send_message(&message(0)) && out.send_message(&message(1)));
        assert!(out.is_sound());
        memory[0][0] = 1 << 60;
        assert!(!out.send_message(&message(2)));
        assert!(!out.is_sound());
    }

    #[test]
    fn an_overwritten_slot_is_noticed_by_the_one_who_waits() {
        let (mut out, mut into, mut memory) = ring(2);
        for n in 0..5 {
            assert!(into.is_sound());
            assert!(out.send_message(&message(n)));
            assert!(into.is_sound());
            assert_eq!(into.receive(), Some(message(n)));
        }
        // The slot of message 5 is the second one.
        memory[3][0] = 77;
        assert!(!into.is_sound() && into.receive().is_none());
    }

    #[test]
    fn messages_pass_between_threads_in_order_and_whole() {
        const COUNT: u64 = 200_000;
        let (mut out, mut into, memory) = ring(8);
        let sender = std::thread::spawn(move || {
            for n in 0..COUNT {
                while !out.send_message(&message(n)) {
                    std::thread::yield_now();
                }
            }
        });
        for n in 0..COUNT {
            let got = loop {
                match into.receive() {
                    Some(got) => break got,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(got, message(n));
        }
        sender.join().unwrap();
        drop(memory);
    }
}
