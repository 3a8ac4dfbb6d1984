//! Calls that start processes and threads.
//!
//! Input: the call. Output: the stub that makes it, whose child finds its way back.
//! **Invariant**: with several nodes no thread starts, and no stack lies in shared memory.

use crate::memory::access_control::program;
use crate::process::accesses;
use crate::process::creation;
use crate::process::process;
use crate::system_calls::execution::call::{Call, CallOutcome};
use crate::system_calls::execution::interruptions;
use crate::system_calls::execution::situation;
use crate::system_calls::execution::stubs::{RED_ZONE, Stub, VFORK_RETURN};
use crate::system_calls::gate::caller;
use crate::system_calls::table::copies::COPIED;
use crate::system_calls::table::row::GateAction;
use crate::system_calls::table::visitor::{Shared, keep_stack_out};
use crate::tempest::owner;
use core::sync::atomic::Ordering;

/// `vfork`, or `clone` like it: the child borrows memory, perhaps the stack, until it executes or exits; it takes no part in the run, and the parent waits.
/// The call may be taken back: the arguments are the program's. `rip`: behind it.
pub fn vfork(rip: u64, args: [u64; 6]) -> CallOutcome {
    situation::expect_vfork_child();
    VFORK_RETURN.store(rip, Ordering::Relaxed);
    CallOutcome::Run(Stub::Vfork, args, 0)
}

/// `fork`, or `clone` like it: a copy of the process, which is a node of the run if one has been announced, and else none.
pub fn fork(args: [u64; 6]) -> CallOutcome {
    match creation::created_call(args) {
        Some(args) => CallOutcome::Run(Stub::Create, args, 0),
        None => forked(args),
    }
}

/// The call of [`Stub::Fork`], its child's memory prepared.
fn forked(args: [u64; 6]) -> CallOutcome {
    match program::prepare_fork() {
        Ok(()) => CallOutcome::Run(Stub::Fork, args, 0),
        Err(e) => CallOutcome::error(e.0),
    }
}

/// `clone`: a process, not a thread.
pub fn clone(call: &Call) -> CallOutcome {
    let mut args = call.args;
    let has = |flag: i32| call.args[0] & flag as u32 as u64 != 0;
    if has(libc::CLONE_THREAD) || has(libc::CLONE_VM) && !has(libc::CLONE_VFORK) {
        const REST: &str = "in a run of several nodes each node has one thread\n  help: let the nodes share the work (bz_node and bz_nodes instead of \
                            thread numbers), or run it on one node, where it may have threads";
        match caller::of(call) {
            Some(place) => {
                process::fail(format_args!("the program starts a second thread, started by {place}: {REST}"))
            }
            None => process::fail(format_args!("the program starts a second thread: {REST}")),
        }
    }
    // Of a call that was taken back it may be the kernel's.
    let told = if COPIED { program::program_address(args[2]) } else { args[2] };
    if (has(libc::CLONE_PARENT_SETTID) || has(libc::CLONE_PIDFD)) && program::in_segment(told) {
        accesses::require(told, 4, true, false);
        args[2] = program::kernel_address(told);
    }
    if args[1] != 0 {
        keep_stack_out(args[1] - 8, Shared::Segment, call.rip, "a new process gets a stack at");
    }
    if has(libc::CLONE_VM) {
        return vfork(call.rip, args);
    }
    if args[1] == 0 {
        return fork(args);
    }
    // The child starts with the stub's frame on its own stack, so that the stub's `ret` finds its way and gives it back. This stub is not taken back.
    args[1] -= RED_ZONE + 8;
    // SAFETY: the program passes the top of a stack for the child, which is free below.
    unsafe { (args[1] as *mut u64).write(call.rip) };
    forked(args)
}

/// `clone3`, for which the C library then uses [`clone`]: who asks for a stack in shared memory is told here, too.
pub fn keep_stack_private(call: &Call) {
    let args = &call.args;
    /// Where `struct clone_args` has the stack's lowest address.
    const STACK_AT: u64 = 40;
    let mut stack = [0; 8];
    let is_there = args[1] >= STACK_AT + 8 && !program::in_segment(args[0]);
    if is_there && program::read(args[0].wrapping_add(STACK_AT), &mut stack).is_ok() {
        keep_stack_out(u64::from_ne_bytes(stack), Shared::Segment, call.rip, "a new process gets a stack at");
    }
}

/// The program's own `syscall`, on the thread of `tempest.h`. Its registers hold what the kernel is given.
///
/// # Safety
/// The program's call, its memory accessible.
pub unsafe fn own(call: &Call) -> CallOutcome {
    // SAFETY: passed on from the caller.
    let args = unsafe { call.kernel_arguments() };
    if args[0] != call.args[0] {
        // A structure, whose copy would not last: C libraries then use `clone`.
        return CallOutcome::error(libc::ENOSYS);
    }
    CallOutcome::Run(Stub::Own, args, 0)
}

/// A call in a child of `vfork`: the program makes it. Where the kernel is given something else a stub does, if no other process may come out of it: a
/// signal that interrupts the call is delivered at once, with the mask that the call sets while it waits.
///
/// # Safety
/// As [`own`].
pub unsafe fn in_vfork_child(call: &Call) -> CallOutcome {
    if matches!(call.row.several, GateAction::Clone | GateAction::RefuseClone(_)) {
        // SAFETY: passed on from the caller.
        return CallOutcome::Run(Stub::Own, unsafe { call.kernel_arguments() }, 0);
    }
    // SAFETY: passed on from the caller.
    unsafe { interruptions::changed_in_child(call) }.unwrap_or(CallOutcome::Run(Stub::Own, call.args, 0))
}

/// Notes that a `clone` or `clone3` makes a thread, if it does.
pub fn note_thread(call: &Call) {
    let flags = match call.row.one {
        GateAction::NoteThread => Some(call.args[0]),
        GateAction::NoteThreadAt => read_word(call.args[0]),
        _ => None,
    };
    if flags.is_some_and(|flags| flags & (libc::CLONE_VM | libc::CLONE_VFORK) as u64 == libc::CLONE_VM as u64) {
        owner::note_thread();
    }
}

/// The word at `at`, if it is mapped: the kernel answers EFAULT where a load would end the process.
fn read_word(at: u64) -> Option<u64> {
    let mut word = [0; 8];
    program::read(at, &mut word).ok().map(|()| u64::from_ne_bytes(word))
}
