//! A node's last words: it waits until the launcher has looked at it.
//!
//! Purpose: the launcher says where a node has died, or has ended the run, from its registers and memory, which are gone with the process. Input: registers.
//! Output: a record in the context page, and a pause, at most [`LIMIT_NS`].
//! **Invariant**: nobody waits where no launcher has said that it looks, nor in a process made from a node.

use crate::kernel::print;
use crate::kernel::sys;
use crate::memory::region::ContextPage;
use blizzard_contract::{CrashRecord, crash_state};
use core::sync::atomic::Ordering;

/// The launcher may be stopped, or may not be allowed to look.
const LIMIT_NS: i64 = 10_000_000_000;
const STEP_NS: u64 = 100_000_000;

/// Whether the launcher looks at how this process ends: it is the node with that context page.
pub fn is_awaited(own: &ContextPage) -> bool {
    own.crash_state().load(Ordering::Relaxed) != crash_state::NOBODY
        && own.pid().load(Ordering::Relaxed) == sys::getpid() as u32
}

/// Leaves the record, but for state and thread, and waits.
#[cold]
pub fn tell(own: &ContextPage, crash: CrashRecord) {
    if !is_awaited(own) {
        return;
    }
    let state = own.crash_state();
    let is_first =
        state.compare_exchange(crash_state::AWAITED, crash_state::WRITING, Ordering::Relaxed, Ordering::Relaxed);
    if is_first.is_ok() {
        // SAFETY: this thread has made the state so.
        unsafe { own.set_crash(&CrashRecord { thread: sys::gettid() as u32, ..crash }) };
        state.store(crash_state::TOLD, Ordering::Release);
        // It looks again and again, and at once when a child's state changes.
        // SAFETY: no memory is touched.
        let _ = unsafe { sys::call(libc::SYS_kill, [sys::getppid() as u64, libc::SIGCHLD as u64, 0, 0, 0, 0]) };
    }
    // Another thread that dies meanwhile would end the process in front of the launcher's eyes.
    let until = sys::clock_ns(libc::CLOCK_MONOTONIC.into()) + LIMIT_NS;
    loop {
        let now = state.load(Ordering::Acquire);
        if now == crash_state::READ {
            return;
        }
        if sys::clock_ns(libc::CLOCK_MONOTONIC.into()) > until {
            let seconds = LIMIT_NS / 1_000_000_000;
            return print::warning(format_args!(
                "process {} dies without its calls being told: the launcher has not looked at it for {seconds} s",
                sys::getpid()
            ));
        }
        let _ = sys::futex_wait(state, now, Some(STEP_NS));
    }
}

/// A record of the place where this stands: no signal.
#[inline(always)]
pub fn here() -> CrashRecord {
    let mut registers = [0; 23];
    // SAFETY: writes to the array alone, at the places that the record names.
    unsafe {
        core::arch::asm!(
            "lea {scratch}, [rip]",
            "mov [{to} + 8 * 16], {scratch}",
            "mov [{to} + 8 * 15], rsp",
            "mov [{to} + 8 * 10], rbp",
            "mov [{to} + 8 * 11], rbx",
            "mov [{to} + 8 * 4], r12",
            "mov [{to} + 8 * 5], r13",
            "mov [{to} + 8 * 6], r14",
            "mov [{to} + 8 * 7], r15",
            scratch = out(reg) _,
            to = in(reg) (&raw mut registers).cast::<u64>(),
            options(nostack, preserves_flags),
        );
    }
    CrashRecord { state: 0, signal: 0, code: 0, thread: 0, address: 0, registers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_leaves_the_state_alone() {
        #[repr(C, align(4096))]
        struct Page(blizzard_contract::SharedContext);
        // SAFETY: integers.
        let page: Box<Page> = Box::new(unsafe { core::mem::zeroed() });
        let at = Box::into_raw(page);
        // SAFETY: a page that lives until the end of the test.
        let context = unsafe { ContextPage::at(at as u64) };
        context.crash_state().store(crash_state::WRITING, Ordering::Relaxed);
        let registers = core::array::from_fn(|k| k as u64 + 100);
        let record = CrashRecord { state: 7, signal: 11, code: 1, thread: 5, address: 0x10, registers };
        // SAFETY: the state is what it must be; then the page is given back.
        let page = unsafe {
            context.set_crash(&record);
            Box::from_raw(at)
        };
        let crash = page.0.crash;
        assert_eq!((crash.state, crash.signal, crash.code, crash.thread), (crash_state::WRITING, 11, 1, 5));
        assert_eq!((crash.address, crash.registers), (0x10, registers));
    }
}
