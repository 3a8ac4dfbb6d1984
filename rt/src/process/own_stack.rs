//! The stack that the node works on.
//!
//! Purpose: the program may be near the end of its stack when it enters the runtime. A fault of the stack in the middle of the protocol would leave the node half-way
//! when the program's handler of SIGSEGV goes on elsewhere (`siglongjmp`), so the node has a stack of its own; what a gate needs before that
//! overflows where nothing has been changed, as a frame of the program would. Input: what is to be run. Output: its result.
//! **Invariant**: one call at a time runs on it: the node has one thread, and is never entered twice.

use crate::kernel::limits;
use crate::kernel::owned::per_thread;
use crate::kernel::sys;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the stack: handlers of the program (`tempest.h`) run on it, too. Untouched pages cost nothing.
const BYTES: u64 = 8 << 20;
/// Bytes without access below it.
const GUARD_BYTES: u64 = 1 << 16;

per_thread! {
    /// Its end; 0: there is none.
    static TOP: AtomicU64 = AtomicU64::new(0);
}

/// Makes the stack; before the program runs.
///
/// # Errors
/// There is no memory for it.
pub fn prepare() -> sys::Result<()> {
    limits::make_room(BYTES + GUARD_BYTES, true);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: new anonymous memory, whose lowest pages nothing uses.
    unsafe {
        let at = sys::mmap(0, BYTES + GUARD_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
        sys::mprotect(at, GUARD_BYTES, libc::PROT_NONE)?;
        TOP.store(at + GUARD_BYTES + BYTES, Ordering::Relaxed);
    }
    Ok(())
}

/// Whether `at` lies in it.
pub fn contains(at: u64) -> bool {
    let top = TOP.load(Ordering::Relaxed);
    at < top && at >= top - BYTES
}

/// Runs `run` on the stack, if there is one.
#[inline]
pub fn on_it<R>(run: impl FnOnce() -> R) -> R {
    let top = TOP.load(Ordering::Relaxed);
    if top == 0 {
        return run();
    }
    let mut job = Job { run: Some(run), result: None };
    // SAFETY: the job's own function; nobody else is on the stack.
    unsafe { call_on(top, job.function(), (&raw mut job).cast()) };
    job.result.unwrap_or_else(|| unreachable!("the job is done"))
}

struct Job<R, F> {
    run: Option<F>,
    result: Option<R>,
}

impl<R, F: FnOnce() -> R> Job<R, F> {
    fn function(&self) -> unsafe extern "C" fn(*mut u8) {
        start::<R, F>
    }
}

/// # Safety
/// `job` points to a [`Job`] of these types.
unsafe extern "C" fn start<R, F: FnOnce() -> R>(job: *mut u8) {
    // SAFETY: passed on from the caller.
    let job = unsafe { &mut *job.cast::<Job<R, F>>() };
    job.result = job.run.take().map(|run| run());
}

/// Calls `function` with `argument` on another stack.
///
/// # Safety
/// `top` is the end of a stack that nobody uses, a multiple of 16; as `function` says of its argument.
#[unsafe(naked)]
unsafe extern "C" fn call_on(top: u64, function: unsafe extern "C" fn(*mut u8), argument: *mut u8) {
    naked_asm!("push rbp", "mov rbp, rsp", "mov rsp, rdi", "mov rdi, rdx", "call rsi", "mov rsp, rbp", "pop rbp", "ret",)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_there_does_not_use_the_callers_stack() {
        assert_eq!(on_it(|| 7), 7, "without one, where the caller is");
        prepare().unwrap();
        let top = TOP.load(Ordering::Relaxed);
        let mut called = 0;
        for round in 1..=3u64 {
            let there = on_it(|| {
                let local = round;
                called += 1;
                core::hint::black_box(&raw const local as u64)
            });
            assert!((top - BYTES..top).contains(&there));
        }
        assert_eq!(called, 3);
        TOP.store(0, Ordering::Relaxed);
    }
}
