//! The program's signal handlers where they must not run anywhere: in runs of several nodes, and on the thread that uses `tempest.h` in a
//! run of one ([`guarded`]).
//!
//! Purpose: a handler is program code with checks and polls: if it ran between a check and its access, or inside the runtime, it could
//! lose the block that the interrupted code relies on, or enter the protocol twice. So an asynchronous signal that arrives there is
//! put off to the next safe point: a poll or a system call. Anywhere else (libraries without checks, a blocked call) it is
//! delivered at once. Input: `rt_sigaction` of the program. Output: [`entry`] installed in place of each of its handlers, which
//! jumps to the handler with the frame that the kernel built.
//! **Invariants**
//! * One thread (the only one, or the one that uses `tempest.h`) puts signals off, so the statics need no lock; signal masks order their use.
//! * In runs of several nodes SIGSYS, SIGTRAP and [`CALL_SIGNAL`] belong to the runtime: their actions are recorded for the program and never installed, and
//!   no mask blocks them. The program's handler of SIGTRAP gets what is no trap byte's from [`trap`].
//! * A put-off signal is queued again with its information and blocked in the interrupted context, so it is neither lost nor
//!   doubled.
//! * [`PUT_OFF`] names what is blocked in the context that runs and not by the program's wish; what a handler interrupts blocks none of it any more when it goes
//!   on, since nobody would let it in there.
//!
//! Source: design section 5 (atomicity: asynchronous signals); Linux `kernel/signal.c`; `sigaction(2)`.

use super::actions::{Actions, DEFAULT, SIGNAL_MAX};
use super::stubs::{self, Stage};
use super::{guarded, segv, sent_traps, waits};
use crate::gates::resume;
use crate::gates::strings;
use crate::gates::trap::{self, REG_RIP, Ucontext, restorer};
use crate::kernel::sys::{self, Errno, KernelSigaction};
use crate::kernel::unaliased::Unaliased;
use crate::libraries::modules::MODULES;
use crate::process::process;
use crate::process::tags;
use crate::tempest::owner;
use blizzard_contract::{self as contract, CALL_SIGNAL};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The handler values that are not addresses.
const SIG_DFL: u64 = 0;
const SIG_IGN: u64 = 1;

/// The bit of a signal in a mask.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Signals that must reach the runtime whenever the program runs, with several nodes.
pub const RESERVED: u64 = bit(libc::SIGSYS) | bit(libc::SIGTRAP) | bit(CALL_SIGNAL);
/// Signals that an instruction raises: never put off when it did.
pub(super) const SYNCHRONOUS: u64 =
    bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGFPE) | bit(libc::SIGILL) | RESERVED;
/// What is blocked while the runtime's own handlers run.
pub const BLOCK_ALL: u64 = !SYNCHRONOUS;

/// The actions as the program set them.
pub(super) static ACTIONS: Actions = Actions::new();
/// Put-off signals: queued again and blocked until the next safe point.
pub(super) static PUT_OFF: Unaliased<AtomicU64> = Unaliased::new(AtomicU64::new(0));
/// Signals are being let in at a safe point.
pub(super) static AT_SAFE_POINT: AtomicBool = AtomicBool::new(false);
/// Run-time range of the runtime's text.
static RUNTIME: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Tells where the runtime's text is.
pub fn set_runtime(text: u64, bytes: u64) {
    RUNTIME[0].store(text, Ordering::Relaxed);
    RUNTIME[1].store(text.wrapping_add(bytes), Ordering::Relaxed);
}

/// Start and bytes of the runtime's text.
pub fn runtime() -> (u64, u64) {
    let (text, end) = (RUNTIME[0].load(Ordering::Relaxed), RUNTIME[1].load(Ordering::Relaxed));
    (text, end - text)
}

/// Whether a context stopped at `at` may rely on a block without having finished the access.
pub(super) fn relies_on_tags(at: u64) -> bool {
    let runtime = RUNTIME[0].load(Ordering::Relaxed)..RUNTIME[1].load(Ordering::Relaxed);
    MODULES.in_new_code(at) || runtime.contains(&at) && !stubs::contains(at)
}

/// Calls of code that is not rewritten are dispatched, as in all runs of several nodes.
static DISPATCHED: AtomicBool = AtomicBool::new(false);

/// Notes that they are.
pub(super) fn dispatched() {
    DISPATCHED.store(true, Ordering::Relaxed);
}

fn is_dispatched() -> bool {
    DISPATCHED.load(Ordering::Relaxed)
}

/// Whether this thread's asynchronous signals wait for safe points.
pub fn are_put_off() -> bool {
    if process::nodes() > 1 { !tags::detached() } else { guarded::is_here() }
}

/// Takes the put-off signals: the caller lets them in.
pub fn take_put_off() -> u64 {
    PUT_OFF.swap(0, Ordering::Relaxed)
}

/// In a child, which has no pending signals: what was put off on the parent's way into the call is not blocked in the child either.
pub fn unblock_in_child() {
    sent_traps::forget();
    sys::unblock_signals(take_put_off() & !RESERVED);
}

/// Lets put-off signals in. Called where the program may run a handler: at the end of a poll.
pub fn safe_point() {
    // Other threads than that of `tempest.h` put nothing off.
    if PUT_OFF.load(Ordering::Relaxed) == 0 && !sent_traps::is_waiting()
        || guarded::is_active() && !owner::is_own_thread()
    {
        return;
    }
    let put_off = take_put_off();
    // The kernel delivers them before the call returns.
    letting_in(|| sys::unblock_signals(put_off));
    sent_traps::let_in();
}

/// Blocks what is not raised by instructions, and returns the mask as the program knows it: without what is put off.
pub fn hold() -> u64 {
    let reserved = if guarded::is_active() { guarded::RESERVED } else { RESERVED };
    let mask = sys::set_signal_mask(!(SYNCHRONOUS & !RESERVED | reserved));
    // A SIGTRAP that waits is not in the mask.
    mask & !PUT_OFF.fetch_and(bit(libc::SIGTRAP), Ordering::Relaxed)
}

/// Replaces the mask at a safe point: what it no longer blocks comes in before this returns.
pub fn set_mask(mask: u64) {
    letting_in(|| {
        sys::set_signal_mask(mask);
    });
}

pub(super) fn letting_in(call: impl FnOnce()) {
    AT_SAFE_POINT.store(true, Ordering::Relaxed);
    call();
    AT_SAFE_POINT.store(false, Ordering::Relaxed);
}

/// Rings this node's own doorbell again when a signal waits: a miss in between may have answered the first ring.
pub fn keep_ringing() {
    if PUT_OFF.load(Ordering::Relaxed) != 0 {
        ring();
    }
}

/// A peer has called at a moment when nothing can be served: the next poll or system call does it.
pub(super) fn call_put_off() {
    PUT_OFF.fetch_or(bit(CALL_SIGNAL), Ordering::Relaxed);
    ring();
}

/// Makes the next poll enter the runtime.
pub(super) fn ring() {
    // SAFETY: the shared context page is mapped for the whole run.
    unsafe { AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.store(1, Ordering::Relaxed);
}

/// `rt_sigaction` as the program calls it. A pointer that leads nowhere is told of as the kernel does.
///
/// # Safety
/// `act` and `old` are the program's.
pub unsafe fn sigaction(signal: u64, act: u64, old: u64, mask_bytes: u64) -> i64 {
    let fixed = signal == libc::SIGKILL as u64 || signal == libc::SIGSTOP as u64;
    if mask_bytes != 8 || signal == 0 || signal > SIGNAL_MAX as u64 || fixed && act != 0 {
        return -i64::from(libc::EINVAL);
    }
    let before = ACTIONS.get(signal);
    if act != 0 {
        let mut words = [[0; 8]; 4];
        if sys::read_own_memory(act, words.as_flattened_mut()).is_err() {
            return -i64::from(libc::EFAULT);
        }
        let [handler, flags, restorer, mask] = words.map(u64::from_ne_bytes);
        let wanted = KernelSigaction { handler, flags, restorer, mask };
        if bit(signal as i32) & RESERVED == 0 {
            let action = installed(signal as i32, &wanted, RESERVED);
            // SAFETY: the wrapper may run anywhere; SIG_DFL and SIG_IGN run no code.
            if let Err(Errno(e)) = unsafe { sys::rt_sigaction(signal as i32, &action) } {
                return -i64::from(e);
            }
        }
        ACTIONS.set(signal, &wanted);
        if signal == libc::SIGTRAP as u64 {
            trap::set_own_action(&wanted);
        }
    }
    let words = [before.handler, before.flags, before.restorer, before.mask].map(u64::to_ne_bytes);
    // SAFETY: the program says that it may be written there.
    if old != 0 && unsafe { sys::write_own_memory(old, words.as_flattened()) }.is_err() {
        return -i64::from(libc::EFAULT);
    }
    0
}

/// `rt_sigaction` of a child that borrows this memory: the kernel has actions of the child's own, those that it has inherited from the wrapper apart.
///
/// # Safety
/// The program's own call, its memory accessible.
pub(super) unsafe fn sigaction_in_child(args: [u64; 6]) -> i64 {
    // SAFETY: passed on from the caller.
    let result = unsafe { sys::raw(libc::SYS_rt_sigaction, args) };
    let [signal, _, old, ..] = args;
    if result == 0 && old != 0 {
        // SAFETY: the kernel has just written there.
        unsafe {
            let old = old as *mut KernelSigaction;
            if is_wrapper(&old.read_unaligned()) {
                old.write_unaligned(ACTIONS.get(signal));
            }
        }
    }
    result
}

/// Whether an action is a function of the program.
pub fn is_function(action: &KernelSigaction) -> bool {
    !matches!(action.handler, SIG_DFL | SIG_IGN)
}

/// Whether the kernel's action is the wrapper.
pub(super) fn is_wrapper(action: &KernelSigaction) -> bool {
    action.handler == entry as *const () as u64
}

/// What the kernel gets for an action of the program, which never blocks the reserved signals. The default for a fault is the wrapper's to take, too ([`segv`]).
pub(super) fn installed(signal: i32, wanted: &KernelSigaction, reserved: u64) -> KernelSigaction {
    if wanted.handler == SIG_DFL && segv::keeps(signal as u64) {
        return KernelSigaction {
            handler: entry as *const () as u64,
            flags: (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART) as u64 | sys::SA_RESTORER,
            restorer: restorer as *const () as u64,
            mask: 0,
        };
    }
    if !is_function(wanted) {
        return KernelSigaction { mask: wanted.mask & !reserved, ..*wanted };
    }
    // SA_NODEFER and SA_RESETHAND are done by the wrapper: a signal that is put off must neither nest nor lose its action.
    let kept = (libc::SA_ONSTACK | libc::SA_RESTART | libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT) as u64;
    KernelSigaction {
        handler: entry as *const () as u64,
        flags: wanted.flags & kept | libc::SA_SIGINFO as u64 | sys::SA_RESTORER,
        restorer: restorer as *const () as u64,
        mask: wanted.mask & !reserved,
    }
}

/// `rt_sigprocmask` as the program calls it, on the mask that it continues with. A pointer that leads nowhere is told of as the kernel does.
///
/// # Safety
/// The arguments are the program's.
pub unsafe fn sigprocmask(current: &mut u64, [how, set, old, mask_bytes, ..]: [u64; 6], reserved: u64) -> i64 {
    if mask_bytes != 8 {
        return -i64::from(libc::EINVAL);
    }
    let mut wanted = [0; 8];
    if set != 0 && sys::read_own_memory(set, &mut wanted).is_err() {
        return -i64::from(libc::EFAULT);
    }
    let wanted = u64::from_ne_bytes(wanted);
    let unblockable = reserved | bit(libc::SIGKILL) | bit(libc::SIGSTOP);
    let replaced = sent_traps::with_mask(current, |mask| {
        let before = *mask;
        if set != 0 {
            *mask = !unblockable
                & match how as i32 {
                    libc::SIG_BLOCK => before | wanted,
                    libc::SIG_UNBLOCK => before & !wanted,
                    libc::SIG_SETMASK => wanted,
                    _ => return None,
                };
        }
        Some(before)
    });
    let Some(before) = replaced else { return -i64::from(libc::EINVAL) };
    // SAFETY: the program says that it may be written there.
    if old != 0 && unsafe { sys::write_own_memory(old, &before.to_ne_bytes()) }.is_err() {
        return -i64::from(libc::EFAULT);
    }
    0
}

/// The handler that stands in for each of the program's. Leaves the kernel's frame as it is, so unwinders see an ordinary signal frame.
///
/// # Safety
/// Entered by the kernel only: edi signal, rsi information, rdx context.
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "call {decide}",  // rsp is 8 off 16 at handler entry, aligned after three pushes
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "test rax, rax",
        "jz 2f",
        "jmp rax",        // the program's handler, as if the kernel had called it
        "2: ret",         // put off or ignored: to the restorer
        decide = sym decide,
    )
}

/// Returns the program's handler, or 0 when the signal is put off or ignored.
extern "C" fn decide(signal: i32, info: &mut libc::siginfo_t, context: &mut Ucontext) -> u64 {
    if segv::amend(signal, info, context) {
        return 0;
    }
    let raised = info.si_code > 0 && bit(signal) & SYNCHRONOUS != 0;
    let waits_nowhere = if guarded::is_active() { !owner::is_own_thread() } else { !is_dispatched() };
    if waits_nowhere {
        // Relies on no tag that could change.
        return begin(signal, raised, context);
    }
    let at = context.gregs[REG_RIP];
    let safe = AT_SAFE_POINT.swap(false, Ordering::Relaxed);
    if !safe && !raised && !tags::detached() && relies_on_tags(at) {
        // SAFETY: the context stopped there, in code.
        if unsafe { !guarded::rewind_own_call(context) } {
            put_off(signal, info, context);
            return 0;
        }
    }
    let action = ACTIONS.get(signal as u64);
    if raised {
        strings::leave(context);
        // SAFETY: the kernel's frame, for the handler that this may lead to.
        unsafe { let_return(context, &action) };
    }
    leave_call(signal, context, &action);
    begin(signal, raised, context)
}

/// A handler with this action, if it is one, is about to run on a context that may be in front of a call, or in it.
pub fn leave_call(signal: i32, context: &mut Ucontext, action: &KernelSigaction) {
    match stubs::stage(context.gregs[REG_RIP]) {
        // Before its call the program goes back to its own `syscall`: the handler may lose blocks that were made accessible.
        // SAFETY: the context stopped at `at`.
        Some(Stage::Before) => unsafe { stubs::rewind(context) },
        // The handler is told of the interruption, so the call is over: a peer's signal that waits behind the handler finds nothing to go on with.
        Some(Stage::After) => {
            waits::call_is_over();
            stubs::finish(context);
        }
        None => {}
    }
    waits::left_kernel();
    // The handler may let them in; and what is delivered is put off no more.
    context.sigmask &= !PUT_OFF.fetch_and(!bit(signal), Ordering::Relaxed);
    if is_function(action) {
        waits::handler_runs(context, action.flags);
    }
}

/// Lets a handler with this action return through the gate, which makes accessible again what the interrupted code relies on: from a place of the
/// runtime's that is dispatched, or where nothing is, by the program's own restorer.
///
/// # Safety
/// `context` is in the frame that the kernel built for a handler that has not begun.
pub unsafe fn let_return(context: &mut Ucontext, action: &KernelSigaction) {
    // SAFETY: passed on from the caller.
    unsafe {
        if is_dispatched() {
            resume::return_here(context);
        } else if action.flags & sys::SA_RESTORER != 0 {
            resume::return_to(context, action.restorer);
        }
    }
}

/// The program's handler, or 0 if it has none: the signal is ignored, or does what it does without.
fn begin(signal: i32, raised: bool, context: &mut Ucontext) -> u64 {
    let action = ACTIONS.get(signal as u64);
    if !is_function(&action) {
        if segv::keeps(signal as u64) && (raised || action.handler == SIG_DFL) {
            segv::default_action(signal, raised);
        }
        return 0;
    }
    if sent_traps::begins(signal, &action, context) || !is_dispatched() {
        // SAFETY: the kernel's frame, for a handler that has not begun.
        unsafe { let_return(context, &action) };
    }
    if action.flags & libc::SA_RESETHAND as u32 as u64 != 0 {
        if !is_dispatched() {
            guarded::reset(signal, &action);
        } else {
            ACTIONS.set(signal as u64, &DEFAULT);
            set_default(signal);
        }
    }
    if action.flags & libc::SA_NODEFER as u64 != 0 && action.mask & bit(signal) == 0 {
        sys::unblock_signals(bit(signal));
    }
    action.handler
}

/// Gives the kernel what stands for the default action.
pub(super) fn set_default(signal: i32) {
    let default = KernelSigaction { flags: sys::SA_RESTORER, ..DEFAULT };
    // SAFETY: the default action runs no code, and the wrapper may run anywhere.
    let _ = unsafe { sys::rt_sigaction(signal, &installed(signal, &default, RESERVED)) };
}

/// Queues the signal again, blocked until the next safe point.
fn put_off(signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) {
    // The signal is blocked while its handler runs, so this does not come back at once.
    queue(signal, info);
    context.sigmask |= bit(signal);
    PUT_OFF.fetch_or(bit(signal), Ordering::Relaxed);
    ring();
}

/// Sends this thread a signal with its information.
pub(super) fn queue(signal: i32, info: &libc::siginfo_t) {
    let args = [sys::getpid() as u64, sys::gettid() as u64, signal as u64, info as *const _ as u64, 0, 0];
    // SAFETY: the kernel copies the information, which it has built itself.
    let queued = unsafe { sys::call(libc::SYS_rt_tgsigqueueinfo, args) };
    if queued.is_err() {
        // The queue is full (RLIMIT_SIGPENDING): without its information, but not lost.
        let _ = sys::tgkill(sys::getpid(), sys::gettid(), signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_never_block_the_runtimes_signals() {
        let mut mask = 0x10;
        let (set, mut old) = (u64::MAX, 0u64);
        let (set_at, old_at) = (&raw const set as u64, &raw mut old as u64);
        // SAFETY: live words, and addresses where nothing is.
        let call = |mask: &mut u64, how: i32, set: u64, old: u64, bytes: u64| unsafe {
            sigprocmask(mask, [how as u64, set, old, bytes, 0, 0], RESERVED)
        };
        assert_eq!(call(&mut mask, libc::SIG_SETMASK, set_at, old_at, 8), 0);
        assert_eq!(old, 0x10);
        assert_eq!(mask & (RESERVED | bit(libc::SIGKILL)), 0);
        assert_ne!(mask & bit(libc::SIGINT), 0);
        assert_eq!(call(&mut mask, libc::SIG_UNBLOCK, set_at, 0, 8), 0);
        assert_eq!(mask, 0);
        assert_eq!(call(&mut mask, 77, set_at, 0, 8), -i64::from(libc::EINVAL));
        assert_eq!(call(&mut mask, 0, 0, old_at, 16), -i64::from(libc::EINVAL));
        assert_eq!(call(&mut mask, 77, 0, old_at, 8), 0, "only asked: the operation does not matter");
        // As the kernel: nothing is changed where the new mask cannot be read, and all of it where the old one cannot be written.
        assert_eq!(call(&mut mask, libc::SIG_SETMASK, 8, old_at, 8), -i64::from(libc::EFAULT));
        assert_eq!(mask, 0);
        assert_eq!(call(&mut mask, libc::SIG_SETMASK, set_at, 8, 8), -i64::from(libc::EFAULT));
        assert_ne!(mask & bit(libc::SIGINT), 0);
    }

    #[test]
    fn reserved_signals_are_recorded_but_not_installed() {
        let ours = KernelSigaction::default();
        // SAFETY: queries only, then an action that only the table sees.
        unsafe {
            let mut before = ours;
            let wanted = KernelSigaction { handler: 0x1234, flags: 4, restorer: 0, mask: RESERVED | 1 };
            let sigsys = libc::SIGSYS as u64;
            assert_eq!(sigaction(sigsys, &raw const wanted as u64, &raw mut before as u64, 8), 0);
            assert_eq!(before.handler, SIG_DFL);
            assert_eq!(sigaction(sigsys, 0, &raw mut before as u64, 8), 0);
            assert_eq!(before, wanted, "the program reads back what it set");
            assert_eq!(sigaction(65, 0, 0, 8), -i64::from(libc::EINVAL));
            assert_eq!(sigaction(libc::SIGKILL as u64, &raw const wanted as u64, 0, 8), -i64::from(libc::EINVAL));
        }
    }

    #[test]
    fn handlers_are_wrapped_and_defaults_are_not() {
        let wanted = KernelSigaction {
            handler: 0x5000,
            flags: (libc::SA_NODEFER | libc::SA_RESTART | libc::SA_ONSTACK) as u64 | libc::SA_RESETHAND as u32 as u64,
            restorer: 0x6000,
            mask: u64::MAX,
        };
        let kernel = installed(libc::SIGUSR1, &wanted, RESERVED);
        assert_eq!(kernel.handler, entry as *const () as u64);
        assert_eq!(kernel.mask & RESERVED, 0);
        let expected = (libc::SA_RESTART | libc::SA_ONSTACK | libc::SA_SIGINFO) as u64 | sys::SA_RESTORER;
        assert_eq!(kernel.flags, expected);
        let ignored = KernelSigaction { handler: SIG_IGN, ..wanted };
        assert_eq!(installed(libc::SIGSEGV, &ignored, RESERVED).handler, SIG_IGN);
    }
}
