//! The actions for signals as the program set them, where the kernel has the runtime's wrapper.
//!
//! Purpose: the wrapper asks for the program's handler, on any thread and without a lock, since it interrupts whatever it likes. Input and output: actions.
//! **Invariants**
//! * One writer at a time: the one thread there is, or whoever is in [`SignalActions::locked`].
//! * A reader sees an action as a whole: each has a version, odd while it is being written. The writer has signals blocked, so no reader ever waits for the
//!   code that it has interrupted.
//!
//! Source: Boehm, Can seqlocks get along with programming language memory models?, 2012.

use crate::kernel::owned::PerProcess;
use crate::kernel::sys::{self, KernelSigaction};
use crate::memory::access_control::program;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// Highest signal number.
pub const SIGNAL_MAX: usize = 64;
/// Handler, flags, restorer and mask of the default action.
pub const DEFAULT: KernelSigaction = KernelSigaction { handler: 0, flags: 0, restorer: 0, mask: 0 };

/// The handler values that are not addresses.
pub const SIG_DFL: u64 = 0;
pub const SIG_IGN: u64 = 1;

/// The actions as the program set them.
pub static ACTIONS: PerProcess<SignalActions> = PerProcess::new(SignalActions::new());

/// Whether an action is a function of the program.
pub fn is_function(action: &KernelSigaction) -> bool {
    !matches!(action.handler, SIG_DFL | SIG_IGN)
}

/// The action at an address of the program's, or EFAULT.
pub fn read(at: u64) -> Result<KernelSigaction, i64> {
    let mut words = [[0; 8]; 4];
    if program::read(at, words.as_flattened_mut()).is_err() {
        return Err(-i64::from(libc::EFAULT));
    }
    let [handler, flags, restorer, mask] = words.map(u64::from_ne_bytes);
    Ok(KernelSigaction { handler, flags, restorer, mask })
}

/// Writes an action where the program wants to have it, if it does; the result of the program's call.
///
/// # Safety
/// `at` is the program's.
pub unsafe fn write(at: u64, action: &KernelSigaction) -> i64 {
    let words = [action.handler, action.flags, action.restorer, action.mask].map(u64::to_ne_bytes);
    // SAFETY: the program says that it may be written there.
    if at != 0 && unsafe { program::write(at, words.as_flattened()) }.is_err() {
        return -i64::from(libc::EFAULT);
    }
    0
}

struct Slot {
    version: AtomicU32,
    words: [AtomicU64; 4],
}

impl Slot {
    #[expect(clippy::declare_interior_mutable_const, reason = "what a static begins with")]
    const DEFAULT: Slot = Slot { version: AtomicU32::new(0), words: [const { AtomicU64::new(0) }; 4] };
}

/// An action for each signal; at first the default.
pub struct SignalActions {
    slots: [Slot; SIGNAL_MAX + 1],
    writing: AtomicBool,
}

impl SignalActions {
    const fn new() -> SignalActions {
        SignalActions { slots: [const { Slot::DEFAULT }; SIGNAL_MAX + 1], writing: AtomicBool::new(false) }
    }

    /// Numbers beyond the last signal's count as that.
    fn slot(&self, signal: u64) -> &Slot {
        &self.slots[(signal as usize).min(SIGNAL_MAX)]
    }

    pub fn get(&self, signal: u64) -> KernelSigaction {
        let slot = self.slot(signal);
        loop {
            let version = slot.version.load(Ordering::Acquire);
            let [handler, flags, restorer, mask] = [0, 1, 2, 3].map(|i: usize| slot.words[i].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && slot.version.load(Ordering::Relaxed) == version {
                return KernelSigaction { handler, flags, restorer, mask };
            }
            spin_loop();
        }
    }

    pub fn set(&self, signal: u64, action: &KernelSigaction) {
        let slot = self.slot(signal);
        let version = slot.version.load(Ordering::Relaxed);
        slot.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in slot.words.iter().zip([action.handler, action.flags, action.restorer, action.mask]) {
            word.store(value, Ordering::Relaxed);
        }
        slot.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Runs `change` alone among the process's threads, with all signals blocked.
    pub fn locked<R>(&self, change: impl FnOnce() -> R) -> R {
        self.locked_with_mask(|_| change())
    }

    /// The same; `change` may change the mask that the thread has afterwards.
    pub fn locked_with_mask<R>(&self, change: impl FnOnce(&mut u64) -> R) -> R {
        let mut mask = sys::set_signal_mask(u64::MAX);
        while self.writing.swap(true, Ordering::Acquire) {
            spin_loop();
        }
        let result = change(&mut mask);
        self.writing.store(false, Ordering::Release);
        sys::set_signal_mask(mask);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_seen_as_a_whole() {
        static ACTIONS: SignalActions = SignalActions::new();
        let of = |n: u64| KernelSigaction { handler: n, flags: n, restorer: n, mask: n };
        assert_eq!(ACTIONS.get(9), DEFAULT);
        let writers: Vec<_> = (0..2u64)
            .map(|odd| {
                std::thread::spawn(move || {
                    for n in 0..20_000 {
                        ACTIONS.locked(|| ACTIONS.set(9, &of(2 * n + odd)));
                    }
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            let seen = ACTIONS.get(9);
            assert_eq!(seen, of(seen.handler));
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!((ACTIONS.get(8), ACTIONS.get(10)), (DEFAULT, DEFAULT));
    }
}
