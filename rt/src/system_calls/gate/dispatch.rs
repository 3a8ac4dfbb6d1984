//! System calls of code that is not rewritten, in a run of several nodes.
//!
//! Purpose: Syscall User Dispatch turns each `syscall` outside the runtime's text into SIGSYS, whose handler does what the gate does for rewritten code.
//! Input: the signal. Output: a context that continues with the result, or at a stub.
//! **Invariants**
//! * Asynchronous signals are blocked while the handler runs; SIGSYS and SIGTRAP are never blocked while the program runs, or the
//!   kernel would kill it.
//! * `fork` and `execve` end the dispatch by themselves; a forked child also leaves the run ([`on_fork_child`]).
//!
//! Source: Linux `Documentation/admin-guide/syscall-user-dispatch.rst`, `kernel/entry/syscall_user_dispatch.c`.

use crate::kernel::elf::{Ehdr, PF_X, PT_LOAD, Phdr};
use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::{self, REG_R11, REG_RAX, REG_RCX, REG_RIP, REG_RSP, Ucontext, restorer};
use crate::memory::access_control::program;
use crate::process::creation;
use crate::process::process;
use crate::process::resume;
use crate::process::tags;
use crate::system_calls::execution::call::{ARGUMENTS, Call, CallOutcome, arguments};
use crate::system_calls::execution::interruptions;
use crate::system_calls::execution::put_off::take_put_off;
use crate::system_calls::execution::runtime_text;
use crate::system_calls::execution::signal_sets::{BLOCK_ALL, UNBLOCKED};
use crate::system_calls::execution::situation;
use crate::system_calls::gate::own_memory;
use crate::system_calls::gate::several_nodes::{self, PR_SET_SYSCALL_USER_DISPATCH};
use crate::system_calls::signals::{alternate_stack, called, calls, safe_points, sent};
use crate::system_calls::table::row::GateAction;
use blizzard_contract::{self as contract, Counter};

const PR_SYS_DISPATCH_ON: u64 = 1;
/// `si_code` of a dispatched call.
const SYS_USER_DISPATCH: i32 = 2;

/// Installs the SIGSYS handler and arms the dispatch.
///
/// # Errors
/// The kernel's: it lacks Syscall User Dispatch (before Linux 5.11), or a filter forbids it.
///
/// # Safety
/// Called once, before the program runs, by its only thread, after [`note_text`].
pub unsafe fn enable() -> sys::Result<()> {
    let (text, bytes) = runtime_text::range();
    // SAFETY: passed on from the caller.
    unsafe {
        resume::prepare()?;
        arm(text, bytes)
    }
}

/// Tells the handlers of signals where the runtime's text is.
///
/// # Safety
/// `base` is the address of the blob's ELF header.
pub unsafe fn note_text(base: u64) {
    // SAFETY: passed on from the caller.
    let (text, bytes) = unsafe { own_text(base) };
    runtime_text::set(text, bytes);
}

/// Installs the handler and dispatches every call outside the range.
///
/// # Errors
/// As [`enable`].
///
/// # Safety
/// The process has one thread; the runtime's text lies in the range.
pub unsafe fn arm(text: u64, bytes: u64) -> sys::Result<()> {
    let action = KernelSigaction {
        handler: on_sigsys as *const () as u64,
        flags: libc::SA_SIGINFO as u64 | sys::SA_RESTORER,
        restorer: restorer(),
        mask: BLOCK_ALL,
    };
    // SAFETY: the handler is made for any instruction of the program.
    unsafe { sys::rt_sigaction(libc::SIGSYS, &action) }?;
    interruptions::connect();
    situation::note_dispatch();
    // SAFETY: as above.
    unsafe { sys::rt_sigaction(contract::CALL_SIGNAL, &called::action()) }?;
    // A mask inherited from the launcher must not block what the runtime needs.
    sys::unblock_signals(UNBLOCKED);
    // SAFETY: affects this thread's system calls outside the range only.
    unsafe { sys::prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, text, bytes, 0) }.map(drop)
}

/// Start and bytes of the runtime's executable segment.
///
/// # Safety
/// `base` is the address of the blob's ELF header, whose program headers follow in the same mapping.
unsafe fn own_text(base: u64) -> (u64, u64) {
    // SAFETY: the linker put the header and the table there; the rewriter checks that they are loaded.
    let phdrs = unsafe {
        let header = &*(base as *const Ehdr);
        core::slice::from_raw_parts((base + header.phoff) as *const Phdr, header.phnum.into())
    };
    let text = phdrs.iter().find(|p| p.p_type == PT_LOAD && p.flags & PF_X != 0);
    text.map_or((base, 0), |p| (base + p.vaddr, p.memsz))
}

/// The SIGSYS handler.
extern "C" fn on_sigsys(signal: i32, info: &libc::siginfo_t, context: &mut Ucontext) {
    if info.si_code != SYS_USER_DISPATCH {
        // A seccomp filter, or a signal that somebody sent: what it does without a handler.
        ucontext::default_action(signal);
        return;
    }
    tags::count(Counter::Syscalls);
    // What was put off comes in when this handler returns, in front of the call.
    let put_off = take_put_off();
    context.sigmask &= !(put_off | UNBLOCKED);
    let g = &context.gregs;
    let call = Call::new(g[REG_RAX], arguments(context), g[REG_RIP], g[REG_RSP]);
    interruptions::left_kernel();
    // SAFETY: the program's own call.
    let outcome = own_memory::until_made(&call, || unsafe { several_nodes::decide(&call, &mut context.sigmask) });
    // Nothing of the program runs from here on until then.
    let let_in = sent::let_in_on_return();
    if call.row.several == GateAction::SignalReturn {
        // It is the program's context that lets them in.
        context.sigmask |= let_in;
    }
    match outcome {
        CallOutcome::Done(result) => context.gregs[REG_RAX] = result as u64,
        CallOutcome::Run(stub, args, word) => {
            let g = &mut context.gregs;
            ARGUMENTS.into_iter().zip(args).for_each(|(register, value)| g[register] = value);
            g[REG_RCX] = g[REG_RIP];
            g[REG_R11] = word;
            g[REG_RIP] = stub.address();
        }
    }
}

/// Runs in a forked child before the program does: the child has a copy of the node's memory and no part in the protocol, and gets a
/// context page of its own, so that no peer rings its doorbell.
pub fn on_fork_child() {
    if let Err(e) = program::own_memory_in_child() {
        process::fail(format_args!("cannot give a forked process memory of its own: {e}"));
    }
    tags::detach();
    process::detach_child();
    alternate_stack::give_up();
    calls::leave_ignored();
    safe_points::unblock_in_child();
}

/// Runs in a forked child that is the next node, before the program does. Returns when the node may compute.
pub fn on_created_child() {
    safe_points::unblock_in_child();
    creation::become_node();
    let (text, bytes) = runtime_text::range();
    // SAFETY: one thread; the range is the one of `enable`. The handler is inherited, the dispatch is not.
    if let Err(e) = unsafe { arm(text, bytes) } {
        process::fail(format_args!("cannot intercept the system calls of a created node: {e}"));
    }
}
