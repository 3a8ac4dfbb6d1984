//! The stack that the node works on.
//!
//! Purpose: the program may be near the end of its stack when it enters the runtime. A fault of the stack in the middle of the protocol would leave the node half-way
//! when the program's handler of SIGSEGV goes on elsewhere (`siglongjmp`), so the node has a stack of its own; what a gate needs before that
//! overflows where nothing has been changed, as a frame of the program would. Input: what is to be run. Output: its result.
//! **Invariants**: one call at a time runs on it: the node has one thread, and is never entered twice. While it is in use, and the caller's frames are on the
//! program's alternate stack, no handler begins there: the kernel would find that stack free and begin at its top, over those frames. Signals wait, and what an instruction
//! raises begins elsewhere. The stack for faults has frames only of the fault that is being settled: nobody begins at its end while the program's code runs inside the runtime.
//! Source: `sigaltstack(2)`; Linux `include/linux/sched/signal.h` (`sas_ss_flags`).

use crate::kernel::limits;
use crate::kernel::owned::per_thread;
use crate::kernel::sys;
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the stack: handlers of the program (`tempest.h`) run on it, too. Untouched pages cost nothing.
const BYTES: u64 = 8 << 20;
/// Bytes above it, for the handler of the signal by which peers call: its frame, which may hold 11 KiB of vector state (AMX), and what it needs before it works on the
/// stack itself.
const CALLS_BYTES: u64 = 1 << 16;
/// Bytes above that, for handlers of what instructions raise while the program's alternate stack is in use.
const INNER_BYTES: u64 = 1 << 20;
/// Bytes above that, for faults of the program's code that need the node: a frame, those of all signals that may come meanwhile, and what is done before the node
/// works on the stack itself.
const FAULT_BYTES: u64 = 1 << 20;
/// Bytes without access below it, and below that for faults.
const GUARD_BYTES: u64 = 1 << 16;
/// Bytes between the end of the stack and that of the one for faults.
const TO_FAULTS: u64 = CALLS_BYTES + INNER_BYTES + GUARD_BYTES + FAULT_BYTES;

per_thread! {
    /// Its end; 0: there is none.
    static TOP: AtomicU64 = AtomicU64::new(0);
    /// Where the program's alternate stack begins, as the last handler has found it, and its bytes.
    static ALTERNATE: AtomicU64 = AtomicU64::new(0);
    static ALTERNATE_BYTES: AtomicU64 = AtomicU64::new(0);
}

const ALL: u64 = !0;
/// The signals that wait: all but those that instructions raise.
const WAIT: u64 = {
    let signals = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    let (mut not, mut k) = (0, 0);
    while k < signals.len() {
        not |= 1 << (signals[k] - 1);
        k += 1;
    }
    !not
};

/// Every handler that may run on the alternate stack tells what the kernel says of that in its context: where it begins, flags, bytes.
pub fn note_alternate([begin, _, bytes]: [u64; 3]) {
    ALTERNATE.store(begin, Ordering::Relaxed);
    ALTERNATE_BYTES.store(bytes, Ordering::Relaxed);
}

/// Whether the caller runs on the alternate stack.
fn is_on_alternate() -> bool {
    let here = 0u8;
    let here = core::hint::black_box(&raw const here as u64);
    here.wrapping_sub(ALTERNATE.load(Ordering::Relaxed)) < ALTERNATE_BYTES.load(Ordering::Relaxed)
}

/// Makes the stack; before the program runs. Gives its end.
///
/// # Errors
/// There is no memory for it.
pub fn prepare() -> sys::Result<u64> {
    let bytes = GUARD_BYTES + BYTES + TO_FAULTS;
    limits::make_room(bytes, true);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: new anonymous memory; nothing uses the pages below the stacks.
    unsafe {
        let at = sys::mmap(0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
        for below in [at, at + bytes - FAULT_BYTES - GUARD_BYTES] {
            sys::mprotect(below, GUARD_BYTES, libc::PROT_NONE)?;
        }
        TOP.store(at + GUARD_BYTES + BYTES, Ordering::Relaxed);
    }
    Ok(top())
}

/// The end of the stack.
pub fn top() -> u64 {
    TOP.load(Ordering::Relaxed)
}

/// The end of the stack of the handler of peers' calls, if there is one.
pub fn top_for_calls() -> Option<u64> {
    (top() != 0).then(|| top() + CALLS_BYTES)
}

/// Whether `at` lies in that one.
pub fn is_for_calls(at: u64) -> bool {
    top() != 0 && at.wrapping_sub(top()) < CALLS_BYTES
}

/// The end of the stack for faults, if there is one; `rsp`: the stack pointer where the program's code has faulted. `None` on a stack of this module, where the program's code
/// has been called by what may have come here from that one.
pub fn top_for_faults(rsp: u64) -> Option<u64> {
    let end = top() + TO_FAULTS;
    (top() != 0 && end.wrapping_sub(rsp) > BYTES + TO_FAULTS).then_some(end)
}

/// Runs `run` on the stack, if there is one.
#[inline]
pub fn on_it<R>(run: impl FnOnce() -> R) -> R {
    let top = TOP.load(Ordering::Relaxed);
    if top == 0 {
        return run();
    }
    if !is_on_alternate() {
        return call(top, run);
    }
    // On the way there and back nothing may come at all: the kernel still has the stack that is in use.
    let before = !sys::block_signals(ALL);
    let mut behind = 0;
    let result = call(top, || {
        beside_alternate(|| {
            sys::unblock_signals(before & !WAIT);
            let result = run();
            behind = !sys::block_signals(ALL);
            result
        })
    });
    sys::unblock_signals(behind | before & WAIT);
    result
}

/// Runs `run` on the stack that ends at `top`.
#[inline]
fn call<R>(top: u64, run: impl FnOnce() -> R) -> R {
    let mut job = Job { run: Some(run), result: None };
    // SAFETY: the job's own function; nobody else is on the stack.
    unsafe { call_on(top, job.function(), (&raw mut job).cast()) };
    job.result.unwrap_or_else(|| unreachable!("the job is done"))
}

/// Runs `run` while the kernel has another alternate stack than the program's, which is in use. The caller is on neither.
fn beside_alternate<R>(run: impl FnOnce() -> R) -> R {
    let inner = [top() + CALLS_BYTES, 0, INNER_BYTES];
    let mut programs = [0u64; 3];
    // SAFETY: the kernel reads one description and writes the other; no handler has frames on the new stack: nobody enters twice.
    let set =
        |new: &[u64; 3], old: u64| unsafe { sys::raw(libc::SYS_sigaltstack, [new.as_ptr() as u64, old, 0, 0, 0, 0]) };
    let is_set = set(&inner, programs.as_mut_ptr() as u64) == 0;
    let result = run();
    if is_set {
        // What the kernel says of use is no flag that it takes.
        programs[1] &= !(libc::SS_ONSTACK as u64);
        set(&programs, 0);
    }
    result
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
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa rsp, 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp", // debuggers find the caller's stack
        "mov rsp, rdi",
        "push rbp", // the launcher finds the caller's stack here: where the program is when the node waits
        "push rbp",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
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
        let faults = top_for_faults(&raw const called as u64);
        assert_eq!(faults, Some(top + TO_FAULTS), "of code on any other stack");
        for within in [top - BYTES, top, top + CALLS_BYTES, top + TO_FAULTS - FAULT_BYTES, top + TO_FAULTS - 1] {
            assert_eq!(top_for_faults(within), None);
        }
        TOP.store(0, Ordering::Relaxed);
    }
}
