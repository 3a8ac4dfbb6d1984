//! The gate of a run of one node whose program uses `tempest.h`.
//!
//! Purpose: there blocks can be inaccessible, and handlers of the program take them away. So what holds with several nodes holds here for the thread
//! that uses the interface, from its start on: asynchronous handlers run at polls and system calls only ([`signals`]), each call passes the
//! gate, and what it touches in user-managed memory is made accessible first. Input: the registers that the gate saved; `rt_sigaction` of any thread.
//! Output: changed registers; actions.
//!
//! Other threads may not touch user-managed memory, and processes made from this one have no part in it: their signals are delivered at once, and
//! their calls made as before ([`alone`]), but that the wrapper stands in for each handler of the process.
//! **Invariants**
//! * A call is made at a stub, which looks for signals that were put off, so none waits behind a call that blocks. Calls whose child continues on
//!   another stack are the program's own: a signal that arrives at their very `syscall` sends the program back to the gate, and is delivered.
//! * What the kernel says of an action counts: [`signals::ACTIONS`] holds what the program sees in place of the wrapper, and nothing else.
//! * Handlers return through the program's own restorer, and so through the gate, which makes accessible again what the interrupted code relies on
//!   ([`resume`]).
//! * Only SIGTRAP is the runtime's, as in all runs of one node.
//!
//! Source: as [`signals`]; Linux `kernel/signal.c` (`do_sigaction`).

use super::actions::DEFAULT;
use super::direct::{arguments, finish, stack_pointer};
use super::signals::{self, ACTIONS, bit, installed, is_function, is_wrapper};
use super::stubs::{self, Stub};
use super::table::Shared;
use super::{
    Caller, Outcome, alone, keep_stack_private, loading, lock_all, make_accessible, own_path, segv, sent_traps, waits,
};
use crate::gates::entries::{Frame, RAX};
use crate::gates::resume;
use crate::gates::trap::{REG_RIP, Ucontext};
use crate::kernel::limits;
use crate::kernel::sys::{self, Errno, KernelSigaction};
use crate::libraries::closure::source;
use crate::libraries::modules::MODULES;
use crate::process::process;
use crate::start;
use crate::tempest::faults;
use crate::tempest::owner;
use blizzard_contract as contract;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

/// The one signal that must reach the runtime.
pub const RESERVED: u64 = bit(libc::SIGTRAP);
/// What nobody can handle.
const FIXED: u64 = bit(libc::SIGKILL) | bit(libc::SIGSTOP);

static ACTIVE: AtomicBool = AtomicBool::new(false);
/// The process that [`activate`] ran in.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether the program has started `tempest.h` in a run of one node, and is guarded.
#[inline]
pub fn is_active() -> bool {
    ACTIVE.load(Ordering::Relaxed)
}

/// Whether the caller is the thread that uses `tempest.h` in a run of one node.
pub(super) fn is_here() -> bool {
    is_active() && owner::is_own_thread()
}

/// Guards the calling thread from here on. Once, when it starts `tempest.h`. Not where the C library's calls do not pass the gate: what is put off
/// would wait behind them, and its handlers would be installed past the wrapper.
pub fn activate() {
    if start::module_info().interp_va != 0 && !source::active() {
        return;
    }
    PROCESS.store(sys::getpid(), Ordering::Relaxed);
    stubs::lead_to_the_gate();
    ACTIONS.locked(|| {
        for signal in (1..=super::actions::SIGNAL_MAX as i32).filter(|&s| bit(s) & (FIXED | RESERVED) == 0) {
            let Ok(action) = current(signal) else { continue };
            if is_function(&action) && !is_wrapper(&action) {
                ACTIONS.set(signal as u64, &action);
                // SAFETY: the wrapper may run anywhere.
                let _ = unsafe { sys::rt_sigaction(signal, &installed(signal, &action, RESERVED)) };
            }
        }
        ACTIVE.store(true, Ordering::Relaxed);
        alone::take_all();
    });
}

/// The kernel's action.
fn current(signal: i32) -> sys::Result<KernelSigaction> {
    let mut action = KernelSigaction::default();
    let args = [signal as u64, 0, &raw mut action as u64, 8, 0, 0];
    // SAFETY: the kernel fills the structure.
    unsafe { sys::call(libc::SYS_rt_sigaction, args) }.map(|_| action)
}

/// Whether the actions that are recorded are another process's: what this one sets is its own.
fn is_apart(signal: i32) -> bool {
    if segv::keeps(signal as u64) {
        segv::memory_is_borrowed()
    } else {
        sys::getpid() != PROCESS.load(Ordering::Relaxed)
    }
}

/// `rt_sigaction` of any thread, but for SIGTRAP, where the wrapper stands in for handlers.
///
/// # Safety
/// `args` are the program's.
#[inline(never)]
pub(super) unsafe fn sigaction(args: [u64; 6]) -> i64 {
    let [signal, act, old, mask_bytes, ..] = args;
    let fixed = (1..=64).contains(&signal) && bit(signal as i32) & FIXED != 0;
    if !(1..=64).contains(&signal) || fixed && act != 0 || mask_bytes != 8 {
        // SAFETY: the program's own call, which the kernel refuses.
        return unsafe { sys::raw(libc::SYS_rt_sigaction, args) };
    }
    let number = signal as i32;
    let mut wanted = None;
    if act != 0 {
        let mut words = [[0; 8]; 4];
        if sys::read_own_memory(act, words.as_flattened_mut()).is_err() {
            return -i64::from(libc::EFAULT);
        }
        let [handler, flags, restorer, mask] = words.map(u64::from_ne_bytes);
        wanted = Some(KernelSigaction { handler, flags, restorer, mask: mask & !(FIXED | RESERVED) });
    }
    let exchanged = match &wanted {
        None => current(number).map(|kernel| (kernel, ACTIONS.get(signal))),
        // Made from this process, perhaps with its memory: what it sets is its own.
        Some(wanted) if is_apart(number) => {
            // SAFETY: the program's action.
            unsafe { sys::rt_sigaction(number, wanted) }.map(|kernel| (kernel, ACTIONS.get(signal)))
        }
        Some(wanted) => ACTIONS.locked(|| exchange(number, wanted)),
    };
    let (kernel, recorded) = match exchanged {
        Ok(before) => before,
        Err(Errno(e)) => return -i64::from(e),
    };
    let before = if is_wrapper(&kernel) { recorded } else { kernel };
    let words = [before.handler, before.flags, before.restorer, before.mask].map(u64::to_ne_bytes);
    // SAFETY: the program says that it may be written there.
    if old != 0 && unsafe { sys::write_own_memory(old, words.as_flattened()) }.is_err() {
        return -i64::from(libc::EFAULT);
    }
    0
}

/// Installs an action; what the kernel had, and what was recorded. The record comes first: the wrapper may run at once, on another thread.
fn exchange(signal: i32, wanted: &KernelSigaction) -> sys::Result<(KernelSigaction, KernelSigaction)> {
    let recorded = ACTIONS.get(signal as u64);
    let installed = installed(signal, wanted, RESERVED);
    if is_wrapper(&installed) {
        ACTIONS.set(signal as u64, wanted);
    }
    // SAFETY: the wrapper may run anywhere; SIG_DFL and SIG_IGN run no code.
    let done = unsafe { sys::rt_sigaction(signal, &installed) };
    if done.is_err() {
        ACTIONS.set(signal as u64, &recorded);
    }
    done.map(|kernel| (kernel, recorded))
}

/// SA_RESETHAND: a handler with this action begins.
pub(super) fn reset(signal: i32, action: &KernelSigaction) {
    if is_apart(signal) {
        return signals::set_default(signal);
    }
    ACTIONS.locked(|| {
        // Another thread may have set the next one.
        if ACTIONS.get(signal as u64) == *action {
            if segv::keeps(signal as u64) {
                ACTIONS.set(signal as u64, &DEFAULT);
            }
            signals::set_default(signal);
        }
    });
}

/// Whether the context stands at a `syscall` of the program's own, behind the gate: then it goes back to the gate.
///
/// # Safety
/// The context stopped in code.
pub(super) unsafe fn rewind_own_call(context: &mut Ucontext) -> bool {
    let begin = context.gregs[REG_RIP].wrapping_sub(contract::SYSCALL_SEQUENCE_BYTES - alone::SYSCALL_BYTES);
    if !is_active() || !MODULES.in_new_code(begin) || !MODULES.in_new_code(context.gregs[REG_RIP]) {
        return false;
    }
    // SAFETY: new code of one module, from the one to the other.
    let bytes = unsafe { (begin as *const [u8; contract::SYSCALL_SEQUENCE_BYTES as usize]).read_unaligned() };
    let gate = (contract::GATE_SYSCALL as u32).to_le_bytes();
    let enters = bytes[..3] == [0x48, 0x8d, 0x0d] && bytes[7..10] == [0xff, 0x24, 0x25] && bytes[10..14] == gate;
    let found = enters && bytes[14..] == [0x0f, 0x05];
    if found {
        context.gregs[REG_RIP] = begin;
    }
    found
}

/// The Rust half of the gate, on the thread that uses the interface.
#[inline(never)]
pub(super) fn on_syscall(frame: &mut Frame) {
    limits::restore_if_lowered();
    let nr = i64::from(frame.gpr[RAX] as i32);
    let leaves = matches!(nr, libc::SYS_rt_sigreturn | libc::SYS_exit | libc::SYS_exit_group);
    // SAFETY: the context page is mapped for the whole run.
    if !leaves && unsafe { AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.load(Ordering::Relaxed) != 0 {
        // Before a call that may wait: whoever else runs looks at the same doorbell.
        process::poll();
    }
    signals::safe_point();
    faults::note_pc(frame.return_address);
    let mut args = arguments(frame);
    let caller = Caller { rip: frame.return_address, rsp: stack_pointer(frame) };
    // SAFETY: the program's own call.
    let outcome = unsafe {
        own_path::execute(nr, &mut args);
        decide(nr, args, caller)
    };
    finish(frame, outcome);
    if nr == libc::SYS_rt_sigreturn {
        // Nothing may lose what the context relies on; the call replaces the mask, and lets in what was put off.
        signals::hold();
        sent_traps::let_in_on_return();
    }
}

/// What becomes of a call.
///
/// # Safety
/// `nr` and `args` are the program's call at `caller`.
unsafe fn decide(nr: i64, args: [u64; 6], caller: Caller) -> Outcome {
    if nr == libc::SYS_rt_sigreturn {
        // SAFETY: the stack pointer is where the kernel will read the context from: the program's frame starts with it.
        let context = unsafe { &mut *(caller.rsp as *mut Ucontext) };
        keep_stack_private(context, Shared::UserManaged);
        sent_traps::returns(context);
        resume::reestablish(context);
        return Outcome::Run(Stub::Sigreturn, args, 0);
    }
    // SAFETY: passed on from the caller.
    unsafe { make_accessible(nr, &args, Shared::UserManaged) };
    let plain = Outcome::Run(Stub::Plain, args, 0);
    match nr {
        libc::SYS_fork | libc::SYS_vfork => Outcome::Run(Stub::Own, args, 0),
        libc::SYS_clone | libc::SYS_clone3 => {
            alone::note_clone(nr, &args);
            Outcome::Run(Stub::Own, args, 0)
        }
        // SAFETY: the program's pointers.
        libc::SYS_rt_sigaction => Outcome::Done(unsafe { alone::sigaction(args) }),
        libc::SYS_rt_sigprocmask => {
            let mut mask = signals::hold();
            // SAFETY: the program's pointers.
            let result = unsafe { signals::sigprocmask(&mut mask, args, 0) };
            signals::set_mask(mask);
            sent_traps::let_in();
            Outcome::Done(result)
        }
        libc::SYS_mlockall => Outcome::Done(lock_all(args)),
        libc::SYS_getrlimit | libc::SYS_setrlimit | libc::SYS_prlimit64 => {
            // SAFETY: the program's call.
            unsafe { limits::call(nr, &args) }.map_or(plain, Outcome::Done)
        }
        libc::SYS_execve | libc::SYS_execveat if limits::are_finite() => {
            limits::lower();
            plain
        }
        // SAFETY: the program's call, its memory accessible.
        _ => unsafe {
            let made = loading::call(nr, &args, caller.rip).or_else(|| own_path::read_link(nr, &args));
            made.map(Outcome::Done).or_else(|| waits::with_mask(nr, &args, RESERVED)).unwrap_or(plain)
        },
    }
}
