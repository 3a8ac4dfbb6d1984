//! The calls of a run of several nodes.
//!
//! Purpose: makes the call's memory accessible, replaces calls that would harm the run, and lets the program continue at a stub that executes the call (see
//! [`crate::system_calls::execution::stubs`]). [`on_syscall`] does for rewritten code what the handler of SIGSYS
//! ([`crate::system_calls::gate::dispatch`]) does for other code, at a tenth of its cost. Input: the registers that the gate saved. Output: changed ones.
//! **Invariants**
//! * A system call is a safe point: no check of the program is pending, so handlers of the protocol may run ([`process::miss`]).
//! * A signal that arrives while this runs is put off, because it arrives in the runtime's text; the plain stub looks for that before it executes the
//!   call, so none waits behind a call that blocks.
//! * Processes made from a node take no part in the run. A forked one has one node; one of `vfork` makes its calls itself, in the memory that it borrows.
//!
//! Source: as the parent module's.

use crate::kernel::limits;
use crate::kernel::sys;
use crate::memory::access_control::program;
use crate::node::calls::creation;
use crate::process::frame::Frame;
use crate::process::process;
use crate::process::tags;
use crate::system_calls::execution::call::{Call, CallOutcome};
use crate::system_calls::execution::interruptions;
use crate::system_calls::execution::put_off;
use crate::system_calls::execution::signal_sets::{BLOCK_ALL, RESERVED, UNBLOCKED, bit};
use crate::system_calls::execution::situation;
use crate::system_calls::execution::stubs::Stub;
use crate::system_calls::gate::{alike, frame, one_node, own_memory, processes, returns, shared_futex};
use crate::system_calls::signals::{calls, dying, safe_points, sent};
use crate::system_calls::table::row::GateAction;
use crate::system_calls::table::visitor::Shared;
use blizzard_contract::Counter;

pub const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;

/// The Rust half of the gate.
pub extern "C" fn on_syscall(frame: &mut Frame) {
    let call = frame::call_of(frame);
    if situation::is_vfork_child() {
        safe_points::in_vfork_child();
        // SAFETY: the program's own call.
        return match unsafe { in_vfork_child(&call) } {
            CallOutcome::Run(Stub::Own, args, _) => frame::own_syscall(frame, args),
            outcome => frame::finish(frame, outcome),
        };
    }
    if tags::detached() {
        one_node::on_syscall(frame);
        return;
    }
    tags::count(Counter::Syscalls);
    if let GateAction::SendSignal(signal) = call.row.several {
        dying::by_call(&call, call.args[usize::from(signal)], frame);
    }
    // A system call is a safe point. Code without polls has few others.
    if program::UNTESTED_FAULTS && put_off::is_rung() {
        interruptions::without_forgetting(process::poll);
    }
    interruptions::let_in_before(&call, safe_points::safe_point);
    let masks = call.row.several == GateAction::SignalMask;
    let mut mask = if masks { safe_points::hold() } else { 0 };
    // SAFETY: the program's own call.
    let outcome = own_memory::until_made(&call, || unsafe { decide(&call, &mut mask) });
    frame::finish(frame, outcome);
    if masks {
        safe_points::set_mask(mask);
        sent::let_in();
    }
    if call.row.several == GateAction::SignalReturn {
        // Nothing may lose what the context relies on; the call replaces the mask.
        sys::set_signal_mask(BLOCK_ALL);
        sent::let_in_on_return();
    }
}

/// A child of `vfork`. The kernel reads and writes the borrowed memory as it would for the node, which waits until the child is gone: nobody else runs the
/// protocol meanwhile, and nothing does between here and the call. What becomes of the call: [`Stub::Own`] is the program's own `syscall`.
///
/// # Safety
/// The program's call.
unsafe fn in_vfork_child(call: &Call) -> CallOutcome {
    // SAFETY: passed on from the caller.
    if let Some(refused) = unsafe { own_memory::acquire(call, Shared::Segment) } {
        return refused;
    }
    match call.row.child {
        // SAFETY: the program's own call, its memory accessible.
        GateAction::SignalAction => return CallOutcome::Done(unsafe { calls::sigaction_in_child(call.args) }),
        action => {
            if matches!(action, GateAction::Execute(_)) {
                calls::leave_ignored();
            }
            // SAFETY: as above.
            if let Some(result) = unsafe { alike::result(action, call) } {
                return CallOutcome::Done(result);
            }
        }
    }
    // SAFETY: the program's own call, its memory accessible.
    unsafe { processes::in_vfork_child(call) }
}

/// Decides what becomes of a call and prepares its memory. `mask`: the signal mask that the program will continue with.
///
/// # Safety
/// The program's call.
pub unsafe fn decide(call: &Call, mask: &mut u64) -> CallOutcome {
    limits::restore_if_lowered();
    if creation::is_holding() {
        process::before_call(!call.row.prompt);
    }
    let args = call.args;
    // Those that touch no memory, or only what is prepared here.
    match call.row.several {
        GateAction::End => {
            let status = args[0] as i32;
            process::exiting(status);
            sys::exit_group(status)
        }
        GateAction::SignalReturn => {
            *mask |= BLOCK_ALL;
            // SAFETY: passed on from the caller.
            return unsafe { returns::prepare(call, Shared::Segment, UNBLOCKED) };
        }
        GateAction::RefuseClone(error) => {
            processes::keep_stack_private(call);
            return CallOutcome::error(error);
        }
        GateAction::Refuse(error) => return CallOutcome::error(error),
        GateAction::Fork => return processes::fork([0; 6]),
        GateAction::Vfork => return processes::vfork(call.rip, call.args),
        GateAction::Clone => return processes::clone(call),
        GateAction::SharedFutex if program::in_segment(args[0]) => {
            return CallOutcome::Done(shared_futex::on_shared_word(&args));
        }
        GateAction::KeepDispatch(error) if args[0] == PR_SET_SYSCALL_USER_DISPATCH as u64 => {
            return CallOutcome::error(error);
        }
        _ => {}
    }
    // SAFETY: passed on from the caller.
    if let Some(refused) = unsafe { own_memory::acquire(call, Shared::Segment) } {
        return refused;
    }
    let result = match call.row.several {
        // SAFETY: the program's pointers, accessible now.
        GateAction::SignalAction => Some(unsafe { calls::sigaction(args) }),
        // SAFETY: the program's pointers, accessible now.
        GateAction::SignalMask => Some(unsafe { calls::sigprocmask(mask, args, RESERVED & !bit(libc::SIGTRAP)) }),
        // SAFETY: the program's call, its memory accessible.
        action => unsafe { alike::result(action, call) },
    };
    match result {
        Some(result) => CallOutcome::Done(result),
        // SAFETY: the program's call, its memory accessible.
        None => unsafe { interruptions::changed(call) }.unwrap_or(call.plain()),
    }
}
