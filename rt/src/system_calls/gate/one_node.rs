//! The calls of a run of one node.
//!
//! Purpose: everything is accessible, so the program makes its calls itself, but for those that the column of one node names. Once the program uses
//! `tempest.h` all calls come here, and those of the thread that does are [`tempest_thread`]'s. Processes that are made from a node of several come here,
//! too. Input: the registers that the gate saved. Output: changed ones.
//! **Invariants**: no state but what other modules guard: any number of threads may be here; no call is refused that the kernel would allow,
//! except that a library cannot be loaded as it is.
//! Source: as the parent module's.

use crate::kernel::limits;
use crate::kernel::sys;
use crate::kernel::ucontext::Ucontext;
use crate::process::frame::Frame;
use crate::process::resume;
use crate::process::tags;
use crate::system_calls::execution::call::{Call, CallOutcome};
use crate::system_calls::execution::masks;
use crate::system_calls::execution::signal_sets::RESERVED_ALONE;
use crate::system_calls::execution::situation;
use crate::system_calls::gate::{alike, frame, own_file, processes, tempest_thread};
use crate::system_calls::signals::{calls, dying, sent};
use crate::system_calls::table::row::GateAction;
use blizzard_contract::Counter;

/// The Rust half of the gate.
pub extern "C" fn on_syscall(frame: &mut Frame) {
    tags::count(Counter::Syscalls);
    if situation::is_tempest_thread() {
        return tempest_thread::on_syscall(frame);
    }
    let mut call = frame::call_of(frame);
    if let GateAction::SendSignal(signal) = call.row.one {
        dying::by_call(&call, call.args[usize::from(signal)], frame);
    }
    // SAFETY: the program's own call.
    match unsafe { decide(&mut call) } {
        Some(outcome) => frame::finish(frame, outcome),
        None => frame::own_syscall(frame, call.args),
    }
}

/// What becomes of a call; `None`: the program makes it.
///
/// # Safety
/// The program's call.
unsafe fn decide(call: &mut Call) -> Option<CallOutcome> {
    match call.row.one {
        // SAFETY: the program's pointers.
        GateAction::SignalAction => Some(CallOutcome::Done(unsafe { calls::sigaction_alone(call.args) })),
        // SAFETY: the program's pointers.
        GateAction::SignalMask => unsafe { calls::sigprocmask_alone(call.args) }.map(CallOutcome::Done),
        GateAction::SignalReturn => {
            // SAFETY: the stack pointer is where the kernel will read the context from: the program's frame starts with it.
            let context = unsafe { &mut *(call.rsp as *mut Ucontext) };
            sent::returns_alone(context);
            context.sigmask &= !RESERVED_ALONE;
            // User-managed blocks can be inaccessible in a run of one node, too.
            resume::forget_limits();
            None
        }
        GateAction::NoteThread | GateAction::NoteThreadAt => {
            processes::note_thread(call);
            None
        }
        GateAction::Execute(name) => {
            // SAFETY: passed on from the caller.
            unsafe { own_file::execute(&mut call.args, name) };
            if !limits::are_finite() {
                return None;
            }
            limits::lower();
            // SAFETY: the program's call: it comes back if it fails.
            let result = unsafe { sys::raw(call.nr, call.kernel_arguments()) };
            limits::restore();
            Some(CallOutcome::Done(result))
        }
        // SAFETY: passed on from the caller.
        GateAction::CopyMask => unsafe { masks::on_own_stack(call) },
        // SAFETY: passed on from the caller.
        action => unsafe { alike::result(action, call) }.map(CallOutcome::Done),
    }
}
