//! Handlers of the program that return.
//!
//! Input: `rt_sigreturn`, where handlers return through the gate. Output: a context that relies on nothing that is inaccessible.

use crate::kernel::ucontext::{REG_RIP, REG_RSP, Ucontext};
use crate::process::resume;
use crate::system_calls::execution::call::{Call, CallOutcome};
use crate::system_calls::execution::stubs::Stub;
use crate::system_calls::signals::{alternate_stack, sent};
use crate::system_calls::table::visitor::{Shared, keep_stack_out};

/// Prepares the context that the handler returns to, which the handler may have changed. Its mask must not block the reserved signals, and its stack must not lie
/// in such memory: that ends the run.
///
/// # Safety
/// The program's call.
pub unsafe fn prepare(call: &Call, shared: Shared, reserved: u64) -> CallOutcome {
    // SAFETY: the stack pointer is where the kernel will read the context from: the program's frame starts with it.
    let context = unsafe { &mut *(call.rsp as *mut Ucontext) };
    let (rsp, rip) = (context.gregs[REG_RSP], context.gregs[REG_RIP]);
    keep_stack_out(rsp, shared, rip, "a signal handler returns to a stack pointer of");
    sent::returns(context);
    alternate_stack::returns(context);
    context.sigmask &= !reserved;
    // The context may continue behind a check that counts on still being right. No handler may run from here to there.
    resume::reestablish(context);
    CallOutcome::Run(Stub::Sigreturn, call.args, 0)
}
