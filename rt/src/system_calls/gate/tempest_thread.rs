//! The gate of a run of one node whose program uses `tempest.h`.
//!
//! Purpose: there blocks can be inaccessible, and handlers of the program take them away. So what holds with several nodes holds here for the thread
//! that uses the interface, from its start on: asynchronous handlers run at polls and system calls only ([`crate::system_calls::signals`]), each call passes the
//! gate, and what it touches in user-managed memory is made accessible first. Input: the registers that the gate saved. Output: changed ones.
//!
//! Other threads may not touch user-managed memory, and processes made from this one have no part in it: their signals are delivered at once, and
//! their calls made as before ([`crate::system_calls::gate::one_node`]), but that the wrapper stands in for each handler of the process.
//! **Invariants**
//! * A call is made at a stub, which looks for signals that were put off, so none waits behind a call that blocks. Calls whose child continues on
//!   another stack are the program's own: a signal that arrives at their very `syscall` sends the program back to the gate, and is delivered.
//! * Handlers return through the program's own restorer, and so through the gate, which makes accessible again what the interrupted code relies on
//!   ([`returns`]).
//! * Only SIGTRAP is the runtime's, as in all runs of one node. In guarded code a signal of the runtime's comes in front of the program's handlers of
//!   [`CALL_SIGNAL`](contract::CALL_SIGNAL), and never in a call ([`nudge`]).
//!
//! Source: as [`crate::system_calls::signals::wrapper`].

use crate::kernel::limits;
use crate::node::nudge;
use crate::process::frame::Frame;
use crate::process::process;
use crate::system_calls::execution::call::{Call, CallOutcome};
use crate::system_calls::execution::interruptions;
use crate::system_calls::execution::signal_sets::UNBLOCKED_ALONE;
use crate::system_calls::execution::situation;
use crate::system_calls::execution::stubs::{self, Stub};
use crate::system_calls::gate::{alike, frame, own_file, own_memory, processes, returns};
use crate::system_calls::signals::{calls, dying, memory_faults, safe_points, sent, wrapper};
use crate::system_calls::table::row::GateAction;
use crate::system_calls::table::taken;
use crate::system_calls::table::visitor::Shared;
use crate::tempest::faults;
use blizzard_contract as contract;
use core::sync::atomic::{AtomicU32, Ordering};

/// Guards the calling thread from here on. Once, when it starts `tempest.h`. Not where the C library's calls do not pass the gate: what is put off
/// would wait behind them, and its handlers would be installed past the wrapper.
pub fn activate() {
    if !memory_faults::are_kept() {
        return;
    }
    situation::note_tempest_process();
    stubs::lead_to_the_gate();
    stubs::set_activity(nudge::in_call());
    calls::wrap_all(|mask| {
        situation::note_tempest_alone();
        taken::take_all();
        sent::begin(mask);
        calls::wrap_ignored();
        if cfg!(feature = "guard") && wrapper::stand_before_calls().is_ok() {
            nudge::start();
        }
    });
}

/// The Rust half of the gate, on the thread that uses the interface.
#[inline(never)]
pub fn on_syscall(frame: &mut Frame) {
    limits::restore_if_lowered();
    nudge::left_kernel();
    let mut call = frame::call_of(frame);
    let leaves = matches!(call.row.tempest, GateAction::SignalReturn | GateAction::End);
    // SAFETY: the context page is mapped for the whole run.
    if !leaves && unsafe { AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.load(Ordering::Relaxed) != 0 {
        // Before a call that may wait: whoever else runs looks at the same doorbell.
        process::poll();
    }
    safe_points::safe_point();
    if let GateAction::SendSignal(signal) = call.row.tempest {
        dying::by_call(&call, call.args[usize::from(signal)], frame);
    }
    faults::note_pc(frame.return_address);
    // SAFETY: the program's own call.
    let outcome = unsafe { decide(&mut call) };
    if cfg!(feature = "guard") && matches!(outcome, CallOutcome::Run(Stub::Plain | Stub::Changed, ..)) {
        nudge::enter_kernel();
    }
    frame::finish(frame, outcome);
    if call.row.tempest == GateAction::SignalReturn {
        // Nothing may lose what the context relies on; the call replaces the mask, and lets in what was put off.
        safe_points::hold();
        sent::let_in_on_return();
    }
}

/// What becomes of a call.
///
/// # Safety
/// The program's call.
unsafe fn decide(call: &mut Call) -> CallOutcome {
    match call.row.tempest {
        // SAFETY: passed on from the caller.
        GateAction::SignalReturn => return unsafe { returns::prepare(call, Shared::UserManaged, 0) },
        // SAFETY: passed on from the caller.
        GateAction::Execute(name) => unsafe { own_file::execute(&mut call.args, name) },
        _ => {}
    }
    // SAFETY: passed on from the caller.
    if let Some(refused) = unsafe { own_memory::acquire(call, Shared::UserManaged) } {
        return refused;
    }
    match call.row.tempest {
        GateAction::OwnSyscall | GateAction::NoteThread | GateAction::NoteThreadAt => {
            processes::note_thread(call);
            // SAFETY: the program's call, its memory accessible.
            unsafe { processes::own(call) }
        }
        // SAFETY: the program's pointers.
        GateAction::SignalAction => CallOutcome::Done(unsafe { calls::sigaction_alone(call.args) }),
        GateAction::SignalMask => {
            let mut mask = safe_points::hold();
            // SAFETY: the program's pointers.
            let result = unsafe { calls::sigprocmask(&mut mask, call.args, 0) };
            safe_points::set_mask(mask);
            sent::let_in();
            CallOutcome::Done(result)
        }
        // SAFETY: the program's call, its memory accessible.
        action => unsafe {
            let made = alike::result(action, call).map(CallOutcome::Done);
            made.or_else(|| interruptions::changed_alone(call, UNBLOCKED_ALONE)).unwrap_or(call.plain())
        },
    }
}
