//! Instruments of the runtime's own tests: random delays at message boundaries, and the times of a miss's steps.
//!
//! Purpose: `blizzard stress` wants messages to meet nodes in as many moments as possible, and `blizzard bench` wants to know where the time
//! of a miss goes. Both use a second runtime, built with the feature `instruments`; in the runtime that programs get, every function
//! here is empty. Input: the words `contract::instrument` of the node's own context page, which the stress or bench program itself
//! writes. Output: delays; the time-stamp counter at each [`MissStep`] of the last miss, in the same words.
//! **Invariant**: nothing here decides anything of a protocol; a delay only takes time.
//! Source: gem5's Ruby tester (random delays); Reinhardt 1996, tables 3.1 and 4.1 (steps of a miss).

/// The steps of a read miss of a block whose home is another node, in order. The time of a step is stamped when it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum MissStep {
    /// The gate has saved the registers.
    Entered = 0,
    /// Tag and home have been looked up, the protocol has stepped.
    LookedUp,
    /// The request is in the ring.
    Sent,
    /// The home has taken the request out of the ring. Stamped by the home; travels in the answer.
    AtHome,
    /// The home's handler has stepped the protocol and read the block. Stamped by the home; travels in the answer.
    Handled,
    /// The answer has been taken out of the ring.
    Answered,
    /// The block's data are in place.
    Copied,
    /// The tag is raised.
    Tagged,
    /// The protocol is done; the gate will restore the registers.
    Leaving,
}

/// How many steps there are.
pub const STEPS: usize = MissStep::Leaving as usize + 1;

#[cfg(feature = "instruments")]
mod enabled {
    use crate::kernel::sys;
    use crate::links::instruments::MissStep;
    use crate::memory::region::ContextPage;
    use crate::transport::message::Message;
    use blizzard_contract::instrument;
    use core::sync::atomic::Ordering;

    /// A moment at which a message is about to be sent or handled, or a wait is over: delays the node by chance.
    pub fn boundary(context: &ContextPage) {
        let mut random = context.instrument(instrument::RANDOM).load(Ordering::Relaxed);
        if random == 0 {
            return;
        }
        // Marsaglia's xorshift: never zero again once it is not.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        context.instrument(instrument::RANDOM).store(random, Ordering::Relaxed);
        let one_in = context.instrument(instrument::ONE_IN).load(Ordering::Relaxed).max(1);
        if !(random >> 40).is_multiple_of(one_in) {
            return;
        }
        let longest = context.instrument(instrument::LONGEST_PAUSES).load(Ordering::Relaxed).max(1);
        if random & 3 == 0 {
            sys::sched_yield();
        } else {
            for _ in 0..(random >> 8 & 0xffff_ffff) % longest {
                core::hint::spin_loop();
            }
        }
    }

    /// Notes the time of a step.
    #[inline]
    pub fn stamp(context: &ContextPage, step: MissStep) {
        context.instrument(instrument::STEPS + step as usize).store(now(), Ordering::Relaxed);
    }

    /// Puts the home's times into the arguments of an answer.
    #[inline]
    pub fn stamp_answer(context: &ContextPage, args: &mut [u64; 4]) {
        args[0] = context.instrument(instrument::STEPS + MissStep::AtHome as usize).load(Ordering::Relaxed);
        args[1] = now();
    }

    /// A message was taken out of a ring: notes when, and what it says about the home's steps.
    #[inline]
    pub fn stamp_received(context: &ContextPage, message: &Message) {
        // In a read miss the answer is the one message with data.
        if message.length != 0 {
            stamp(context, MissStep::Answered);
            context.instrument(instrument::STEPS + MissStep::AtHome as usize).store(message.args[0], Ordering::Relaxed);
            context
                .instrument(instrument::STEPS + MissStep::Handled as usize)
                .store(message.args[1], Ordering::Relaxed);
        } else {
            stamp(context, MissStep::AtHome);
        }
    }

    /// The time-stamp counter, after everything before has been done.
    fn now() -> u64 {
        // SAFETY: both exist on every x86-64 processor and touch no memory.
        unsafe {
            core::arch::x86_64::_mm_lfence();
            core::arch::x86_64::_rdtsc()
        }
    }
}

#[cfg(feature = "instruments")]
pub use enabled::{boundary, stamp, stamp_answer, stamp_received};

#[cfg(not(feature = "instruments"))]
mod disabled {
    use crate::links::instruments::MissStep;
    use crate::memory::region::ContextPage;
    use crate::transport::message::Message;

    /// Does nothing in this build.
    #[inline(always)]
    pub fn boundary(_: &ContextPage) {}

    /// Does nothing in this build.
    #[inline(always)]
    pub fn stamp(_: &ContextPage, _: MissStep) {}

    /// Does nothing in this build.
    #[inline(always)]
    pub fn stamp_answer(_: &ContextPage, _: &mut [u64; 4]) {}

    /// Does nothing in this build.
    #[inline(always)]
    pub fn stamp_received(_: &ContextPage, _: &Message) {}
}

#[cfg(not(feature = "instruments"))]
pub use disabled::{boundary, stamp, stamp_answer, stamp_received};
