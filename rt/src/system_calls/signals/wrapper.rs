//! The program's signal handlers where they must not run anywhere: in runs of several nodes, and on the thread that uses `tempest.h` in a
//! run of one.
//!
//! Purpose: a handler is program code with checks and polls: if it ran between a check and its access, or inside the runtime, it could
//! lose the block that the interrupted code relies on, or enter the protocol twice. So an asynchronous signal that arrives there is
//! put off to the next safe point ([`crate::system_calls::signals::safe_points`]). Anywhere else (libraries without checks, a blocked call) it is
//! delivered at once; a test in plain code begins again then. Input: actions of the program. Output: [`entry`] installed in place of each of its handlers, which
//! jumps to the handler with the frame that the kernel built.
//! **Invariants**
//! * In runs of several nodes SIGSYS, SIGTRAP and [`CALL_SIGNAL`] belong to the runtime: their actions are recorded for the program and never installed, and
//!   no mask blocks them. The program's handler of SIGTRAP gets what is no trap byte's from [`crate::gates::trap`].
//! * What is put off keeps the rules of [`put_off`].
//!
//! Source: design section 5 (atomicity: asynchronous signals); Linux `kernel/signal.c`; `sigaction(2)`.

use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::{REG_RAX, REG_RIP, Ucontext, default_action, restorer};
use crate::libraries::modules::MODULES;
use crate::node::nudge;
use crate::process::own_stack;
use crate::process::process;
use crate::process::resume;
use crate::process::string_piece;
use crate::process::tags;
use crate::process::trap_bytes::debugged;
use crate::system_calls::execution::given;
use crate::system_calls::execution::interruptions;
use crate::system_calls::execution::put_off::{self, AT_SAFE_POINT, PUT_OFF};
use crate::system_calls::execution::runtime_text::relies_on_tags;
use crate::system_calls::execution::signal_sets::{
    BLOCK_ALL, HELD, RESERVED, SYNCHRONOUS, UNBLOCKED, UNBLOCKED_ALONE, bit, has_guard,
};
use crate::system_calls::execution::situation;
use crate::system_calls::execution::stubs::{self, CallStage};
use crate::system_calls::signals::actions::{ACTIONS, DEFAULT, SIG_DFL, SIG_IGN, SIGNAL_MAX, is_function};
use crate::system_calls::signals::alternate_stack::{self, Settled, handler_entry};
use crate::system_calls::signals::called;
use crate::system_calls::signals::carried::carry_out::{SlotExit, leave};
use crate::system_calls::signals::dying;
use crate::system_calls::signals::memory_faults;
use crate::system_calls::signals::sent;
use blizzard_contract::CALL_SIGNAL;
use core::sync::atomic::Ordering;

/// Whether the kernel's action is the wrapper.
pub fn is_wrapper(action: &KernelSigaction) -> bool {
    action.handler == entry as *const () as u64
}

/// What the kernel gets for an action of the program, which never blocks the reserved signals. The default for a fault is the wrapper's to take, too ([`memory_faults`]).
pub fn installed(signal: i32, wanted: &KernelSigaction, reserved: u64) -> KernelSigaction {
    let is_ignored = wanted.handler == SIG_IGN && has_guard(bit(signal)) && faults_by_guard();
    if (wanted.handler == SIG_DFL || is_ignored) && memory_faults::keeps(signal as u64) {
        return KernelSigaction {
            handler: entry as *const () as u64,
            flags: (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART) as u64 | sys::SA_RESTORER,
            restorer: restorer(),
            // The program's handlers come behind it: they may meet such a fault themselves.
            mask: BLOCK_ALL & !reserved,
        };
    }
    if !is_function(wanted) && keeps_call(signal) {
        return KernelSigaction {
            handler: entry as *const () as u64,
            flags: (libc::SA_SIGINFO | libc::SA_RESTART) as u64 | sys::SA_RESTORER,
            restorer: restorer(),
            mask: 0,
        };
    }
    if !is_function(wanted) {
        return KernelSigaction { mask: wanted.mask & !reserved, ..*wanted };
    }
    // SA_NODEFER and SA_RESETHAND are done by the wrapper: a signal that is put off must neither nest nor lose its action.
    // A handler for a fault may touch shared memory itself, or come to what stands in place of a trap byte.
    let is_trap = signal == libc::SIGILL && debugged::is_watched();
    // Faults of plain code take nothing of the stack that they interrupt.
    let apart = if has_guard(bit(signal)) && faults_by_guard() { libc::SA_ONSTACK as u64 } else { 0 };
    let nests = if is_trap || bit(signal) & UNBLOCKED & !RESERVED != 0 { libc::SA_NODEFER as u64 } else { 0 };
    let kept = (libc::SA_ONSTACK | libc::SA_RESTART | libc::SA_NOCLDSTOP | libc::SA_NOCLDWAIT) as u64;
    KernelSigaction {
        handler: entry as *const () as u64,
        flags: wanted.flags & kept | apart | nests | libc::SA_SIGINFO as u64 | sys::SA_RESTORER,
        restorer: restorer(),
        mask: wanted.mask & !reserved,
    }
}

/// Whether untested accesses fault, or may from some time on.
fn faults_by_guard() -> bool {
    process::nodes() > 1 && !tags::detached() || situation::uses_tempest_alone()
}

/// Whether the runtime stands between the kernel and the program's action for the signal that interrupts plain code in a run of one node.
fn keeps_call(signal: i32) -> bool {
    cfg!(feature = "guard") && signal == CALL_SIGNAL && situation::uses_tempest_alone()
}

/// Stands in front of the program's action for that signal. Once, on the thread that uses `tempest.h` in a run of one node.
///
/// # Errors
/// The kernel's.
pub fn stand_before_calls() -> sys::Result<()> {
    let action = installed(CALL_SIGNAL, &ACTIONS.get(CALL_SIGNAL as u64), UNBLOCKED_ALONE);
    // SAFETY: the wrapper may run anywhere.
    let before = unsafe { sys::rt_sigaction(CALL_SIGNAL, &action) }?;
    if before.handler == SIG_IGN {
        ACTIONS.set(CALL_SIGNAL as u64, &before);
    }
    Ok(())
}

/// Stands in front of the program's actions for faults, those that the process has begun with first.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// Called once, before the program runs.
pub unsafe fn stand_before_faults() -> sys::Result<()> {
    // SAFETY: passed on from the caller.
    unsafe { memory_faults::prepare() }?;
    for signal in (1..=SIGNAL_MAX as i32).filter(|&signal| bit(signal) & memory_faults::KEPT != 0) {
        let action = KernelSigaction { flags: sys::SA_RESTORER, ..KernelSigaction::default() };
        // SAFETY: the wrapper may run anywhere; what the parent has made the process ignore stays ignored.
        unsafe {
            let before = sys::rt_sigaction(signal, &installed(signal, &action, UNBLOCKED))?;
            if before.handler != action.handler {
                ACTIONS.set(signal as u64, &before);
                sys::rt_sigaction(signal, &installed(signal, &before, UNBLOCKED))?;
            }
        }
    }
    Ok(())
}

/// The handler that stands in for each of the program's. Leaves the kernel's frame as it is, so unwinders see an ordinary signal frame.
///
/// # Safety
/// Entered by the kernel only: edi signal, rsi information, rdx context.
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    handler_entry!(settle, memory_faults::settle_apart, decide)
}

/// Whether the signal needs no handler, and no room on the program's stack.
extern "C" fn settle(signal: i32, info: &mut libc::siginfo_t, context: &mut Ucontext) -> Settled {
    if cfg!(feature = "guard") { memory_faults::settle(signal, info, context) } else { Settled::No }
}

/// Returns the program's handler, or 0 when the signal is put off or ignored.
extern "C" fn decide(signal: i32, info: &mut libc::siginfo_t, context: &mut Ucontext) -> u64 {
    let handler = handler_of(signal, info, context);
    alternate_stack::hide(handler, context)
}

fn handler_of(signal: i32, info: &mut libc::siginfo_t, context: &mut Ucontext) -> u64 {
    if cfg!(feature = "guard") && nudge::is_ours(signal, info) {
        called::nudged(info, context);
        return 0;
    }
    own_stack::note_alternate(context.stack);
    alternate_stack::refuse_shared_stack(context);
    // SAFETY: the kernel's frame.
    match unsafe { leave(info, context) } {
        SlotExit::End if signal == libc::SIGSEGV && info.si_code > 0 => return 0,
        SlotExit::Denied => {}
        _ if memory_faults::amend(signal, info, context) => return 0,
        _ => {}
    }
    let raised = info.si_code > 0 && bit(signal) & SYNCHRONOUS != 0;
    let waits_nowhere =
        if situation::uses_tempest_alone() { !situation::is_tempest_thread() } else { !situation::is_dispatched() };
    if waits_nowhere {
        // Relies on no tag that could change.
        return begin(signal, raised, info, context);
    }
    let at = context.gregs[REG_RIP];
    let action = ACTIONS.get(signal as u64);
    // What runs no code of the program need not wait.
    let is_held = !raised && sent::holds(signal);
    if is_held && (is_function(&action) || sent::is_blocked(signal)) && sent::put_off(signal, info, context) {
        return 0;
    }
    if is_held && action.handler == SIG_IGN {
        interruptions::goes_on(context);
        return 0;
    }
    // SAFETY: the context stopped in code.
    let behind_call = situation::is_in_vfork_child() && unsafe { stubs::is_behind_own_call(context) };
    let safe = AT_SAFE_POINT.swap(false, Ordering::Relaxed) || behind_call;
    if !safe && !raised && !is_held && !tags::detached() && relies_on_tags(at) {
        if let Some(test) = MODULES.plain_test_of(at) {
            context.gregs[REG_RIP] = test;
        // SAFETY: the context stopped there, in code.
        } else if unsafe { !stubs::rewind_own_call(context) } {
            put_off::put_off(signal, info, context);
            return 0;
        }
    }
    if raised {
        string_piece::leave(context);
        // SAFETY: the kernel's frame, for the handler that this may lead to.
        unsafe { let_return(context, &action) };
    }
    leave_call(signal, context, &action);
    begin(signal, raised, info, context)
}

/// A handler with this action, if it is one, is about to run on a context that may be in front of a call, or in it.
pub fn leave_call(signal: i32, context: &mut Ucontext, action: &KernelSigaction) {
    if stubs::is_giving_back(context.gregs[REG_RIP]) {
        // The handler sees what the kernel has written, and may lose the memory that it goes to.
        // SAFETY: nothing of the program has run since the call.
        context.gregs[REG_RAX] = unsafe { given::give_back(context.gregs[REG_RAX] as i64) } as u64;
    }
    match stubs::stage(context.gregs[REG_RIP]) {
        // Before its call the program goes back to its own `syscall`: the handler may lose blocks that were made accessible.
        // SAFETY: the context stopped at `at`.
        Some(CallStage::Before) => unsafe { stubs::rewind(context) },
        // The handler is told of the interruption, so the call is over: a peer's signal that waits behind the handler finds nothing to go on with.
        Some(CallStage::After) => {
            interruptions::call_is_over();
            stubs::finish(context);
        }
        None => {}
    }
    interruptions::left_kernel();
    // The handler may let in what its action does not block; and what is delivered is put off no more.
    let blocks = if is_function(action) { action.mask & !HELD } else { 0 };
    context.sigmask &= !(PUT_OFF.fetch_and(!(bit(signal) | blocks), Ordering::Relaxed) & !HELD);
    if is_function(action) {
        interruptions::handler_runs(context, action.flags);
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
        if situation::is_dispatched() {
            resume::return_here(context);
        } else if action.flags & sys::SA_RESTORER != 0 {
            resume::return_to(context, action.restorer);
        }
    }
}

/// The program's handler, or 0 if it has none: the signal is ignored, or does what it does without.
fn begin(signal: i32, raised: bool, info: &libc::siginfo_t, context: &mut Ucontext) -> u64 {
    let action = ACTIONS.get(signal as u64);
    // The kernel asks no handler for what an instruction raises while it is blocked.
    let is_forced = raised && sent::is_blocked(signal);
    if is_forced || !is_function(&action) {
        if memory_faults::keeps(signal as u64) && (raised || action.handler == SIG_DFL) {
            dying::by_handler(signal, info, context);
            memory_faults::default_action(signal, raised);
        } else if keeps_call(signal) && action.handler == SIG_DFL {
            dying::by_handler(signal, info, context);
            default_action(signal);
        }
        return 0;
    }
    if sent::begins(signal, &action, context) || !situation::is_dispatched() {
        // SAFETY: the kernel's frame, for a handler that has not begun.
        unsafe { let_return(context, &action) };
    }
    if action.flags & libc::SA_RESETHAND as u32 as u64 != 0 {
        if !situation::is_dispatched() {
            reset(signal, &action);
        } else {
            ACTIONS.set(signal as u64, &DEFAULT);
            set_default(signal);
        }
    }
    if action.flags & libc::SA_NODEFER as u64 != 0 && action.mask & bit(signal) == 0 {
        sys::unblock_signals(bit(signal));
    }
    alternate_stack::handler(&action)
}

/// Gives the kernel what stands for the default action.
pub fn set_default(signal: i32) {
    let default = KernelSigaction { flags: sys::SA_RESTORER, ..DEFAULT };
    // SAFETY: the default action runs no code, and the wrapper may run anywhere.
    let _ = unsafe { sys::rt_sigaction(signal, &installed(signal, &default, UNBLOCKED)) };
}

/// SA_RESETHAND: a handler with this action begins.
fn reset(signal: i32, action: &KernelSigaction) {
    if is_apart(signal) {
        return set_default(signal);
    }
    ACTIONS.locked(|| {
        // Another thread may have set the next one.
        if ACTIONS.get(signal as u64) == *action {
            if memory_faults::keeps(signal as u64) {
                ACTIONS.set(signal as u64, &DEFAULT);
            }
            set_default(signal);
        }
    });
}

/// Whether the actions that are recorded are another process's: what this one sets is its own.
pub fn is_apart(signal: i32) -> bool {
    if memory_faults::keeps(signal as u64) {
        memory_faults::memory_is_borrowed()
    } else {
        !situation::is_tempest_process()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_calls::signals::actions::SIG_IGN;

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
