//! Handlers that return.

use crate::gates::shared_stack;
use crate::gates::trap::{REG_RIP, REG_RSP, Ucontext};
use crate::system_calls::table::visitor::Shared;

/// Ends the run if the program continues on a stack in shared memory when its handler of a signal returns: the handler may have changed the context.
pub fn keep_stack_private(context: &Ucontext, shared: Shared) {
    let (rsp, rip) = (context.gregs[REG_RSP], context.gregs[REG_RIP]);
    shared_stack::keep_out(rsp, shared, rip, "a signal handler returns to a stack pointer of");
}
