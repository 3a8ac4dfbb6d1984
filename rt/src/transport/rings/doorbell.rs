//! Who wakes whom: the doorbell and the word that says what its owner is doing.
//!
//! Purpose: the protocol of [`crate::transport::interface`] between the sender of a message and its receiver, on nothing but two words and a futex, so that the same
//! code runs in nodes and in a model checker (`tests`). Input: the two words, and a look at the rings. Output: a receiver that never
//! sleeps, and never computes without its doorbell set, while a message that was published before it looked lies in a ring.
//!
//! | receiver's state | sender, after publishing | receiver, when entering the state |
//! |---|---|---|
//! | running | sets the doorbell; nothing for an answer; later for a reply | writes the word, then looks at all rings; sets its own doorbell if one is not empty |
//! | spinning | nothing | looks at the rings all the time |
//! | sleeping | sets the doorbell, futex wake | clears the doorbell, writes the word, looks at the rings, sleeps while the doorbell is 0 |
//! | in the kernel | sets the doorbell, and the first sender sends a signal; nothing for an answer | writes the word, looks at the rings; makes its system call if they are empty |
//!
//! *Nothing* is what a sender may decide without a fence at first ([`Doorbell::announce`]); it looks again behind one before it stops looking at its own
//! rings. An owner that has said *running* while it handled messages may clear its doorbell ([`Doorbell::silence`]).
//!
//! Between a sender's look at the state and its doorbell the owner may have handled the message and fallen asleep over the next: so a sender that has set the doorbell
//! of one that did not sleep looks at the state once more. A doorbell is never set while its owner sleeps, but by who wakes it.
//!
//! **Invariant**: both sides have a full fence between what they write and what they look at: so at least one of them sees the other.
//! Source: Dekker's mutual exclusion; SDM volume 3, 9.2.3.9 (locked instructions order all loads and stores).

use crate::kernel::sys;
use crate::transport::interface::Urgency;
use blizzard_contract::activity;
use core::arch::asm;
use core::sync::atomic::{AtomicU32, Ordering};

/// The doorbell is set.
const RUNG: u32 = 1;
/// It is set, and its owner has been sent a signal for it, or wants none.
const INTERRUPTED: u32 = 2;

/// A shared word, with what the protocol does with it.
pub trait Word {
    fn load(&self) -> u32;
    /// Publishes nothing else.
    fn store(&self, value: u32);
    /// Replaces the value; no load or store moves across it in either direction.
    fn exchange(&self, value: u32) -> u32;
    /// Replaces one value by another if it is there.
    fn replace(&self, old: u32, new: u32) -> bool;
    /// No load or store moves across it in either direction.
    fn full_fence();
    /// Sleeps while the word is 0, for a limited time; may return early.
    fn sleep_while_zero(&self, limit_ns: u64);
    /// Wakes one sleeper.
    fn wake(&self);
}

impl Word for AtomicU32 {
    #[inline(always)]
    fn load(&self) -> u32 {
        self.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn store(&self, value: u32) {
        self.store(value, Ordering::Release);
    }

    #[inline(always)]
    fn exchange(&self, value: u32) -> u32 {
        // A locked instruction: a full fence on this processor.
        self.swap(value, Ordering::SeqCst)
    }

    fn replace(&self, old: u32, new: u32) -> bool {
        self.compare_exchange(old, new, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    #[inline(always)]
    fn full_fence() {
        // What a sequentially consistent fence is, by a locked instruction that changes nothing: it waits for the stores before it and no more,
        // while `mfence` also holds up what is not memory (SDM volume 3, 9.2.3.9).
        // SAFETY: the word at the stack pointer is the process's own, and keeps its value.
        unsafe { asm!("lock or dword ptr [rsp], 0", options(nostack)) };
    }

    fn sleep_while_zero(&self, limit_ns: u64) {
        // Every outcome (woken, doorbell already set, timeout, signal) leads to the next look at the rings.
        let _ = sys::futex_wait(self, 0, Some(limit_ns));
    }

    fn wake(&self) {
        let _ = sys::futex_wake(self, 1);
    }
}

/// One node's doorbell.
#[derive(Debug)]
pub struct Doorbell<'a, W> {
    /// Nonzero: the owner is to look at its rings. Its polls test it.
    pub poll: &'a W,
    /// See [`activity`].
    pub state: &'a W,
}

impl<W: Word> Doorbell<'_, W> {
    /// Tells the owner that a message was published. `call` sends the signal that brings it out of the kernel.
    #[inline]
    pub fn ring(&self, call: impl FnOnce()) {
        // Between the message and the look at the receiver's state.
        W::full_fence();
        self.ring_behind_fence(Urgency::Call, call);
    }

    /// Tells the owner that a message was published, if a look without a fence says that it must be told. True: the sender must call
    /// [`Doorbell::ring_behind_fence`] behind its next fence, before it stops looking at its own rings. A sleeper was told: the sender may look what it does.
    #[inline]
    pub fn announce(&self, kind: Urgency, call: impl FnOnce()) -> bool {
        match (self.state.load(), kind) {
            (activity::SPINNING, _) | (activity::RUNNING, Urgency::Answer | Urgency::Reply) => true,
            (doing, _) => {
                W::full_fence();
                self.ring_behind_fence(kind, call);
                doing == activity::SLEEPING
            }
        }
    }

    /// [`Doorbell::ring`] for a sender that has executed a full fence since it published the message.
    #[inline]
    pub fn ring_behind_fence(&self, kind: Urgency, call: impl FnOnce()) {
        match self.state.load() {
            activity::SPINNING => {}
            activity::SLEEPING => {
                if self.poll.exchange(1) == 0 {
                    self.poll.wake();
                }
            }
            _ if kind == Urgency::Answer => {}
            activity::KERNEL => {
                self.poll.exchange(1);
                if self.state.replace(activity::KERNEL, activity::CALLED) {
                    call();
                } else {
                    self.wake_late_sleeper();
                }
            }
            _ => {
                if self.poll.load() == 0 {
                    self.poll.exchange(1);
                    self.wake_late_sleeper();
                }
            }
        }
    }

    /// Sends an owner that runs, and has not answered, the signal that interrupts it: once, until the doorbell is set again.
    pub fn interrupt(&self, call: impl FnOnce()) {
        if self.state.load() == activity::RUNNING && self.poll.load() == RUNG && self.poll.replace(RUNG, INTERRUPTED) {
            call();
        }
    }

    /// The owner wants no signal until it answers.
    pub fn hush(&self) {
        self.poll.exchange(INTERRUPTED);
    }

    /// The doorbell was set for an owner that did not sleep. If it has fallen asleep in between, it does not see that, and whoever finds the doorbell set
    /// would believe that it has been woken.
    fn wake_late_sleeper(&self) {
        if self.state.load() == activity::SLEEPING {
            self.poll.wake();
        }
    }

    /// The owner looks at its rings by itself from here on.
    #[inline]
    pub fn begin_wait(&self) {
        self.state.store(activity::SPINNING);
    }

    /// The owner goes back to the program; its doorbell is set if anything is ready.
    #[inline]
    pub fn end_wait(&self, any_ready: impl FnOnce() -> bool) {
        self.state.exchange(activity::RUNNING);
        if any_ready() {
            self.poll.store(1);
        }
    }

    /// The owner has handled messages while it said that it runs: clears its doorbell unless something is ready.
    pub fn silence(&self, any_ready: impl FnOnce() -> bool) {
        self.poll.exchange(0);
        if any_ready() {
            self.poll.store(1);
        }
    }

    /// The owner is about to make a system call that may wait. False, and it still runs, when anything is ready.
    pub fn enter_kernel(&self, any_ready: impl FnOnce() -> bool) -> bool {
        self.state.exchange(activity::KERNEL);
        let clear = !any_ready();
        if !clear {
            self.state.exchange(activity::RUNNING);
        }
        clear
    }

    /// The owner clears its doorbell, and must look at all rings then.
    #[inline]
    pub fn answer(&self) {
        self.poll.exchange(0);
    }

    /// The owner, spinning, sleeps unless anything is ready, and spins again.
    pub fn sleep(&self, any_ready: impl FnOnce() -> bool, limit_ns: u64) {
        self.poll.store(0);
        self.state.exchange(activity::SLEEPING);
        if !any_ready() {
            self.poll.sleep_while_zero(limit_ns);
        }
        // Whatever rang is looked for next; a doorbell left set would cost a poll for nothing.
        self.poll.store(0);
        self.state.store(activity::SPINNING);
    }
}
