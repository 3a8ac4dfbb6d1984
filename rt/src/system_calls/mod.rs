//! The system-call gate of runs of several nodes.
//!
//! Purpose: every system call of the program and of its libraries passes here. Rewritten code enters [`direct`] in place of each
//! `syscall`; for what is not rewritten, Syscall User Dispatch turns each `syscall` outside the runtime's text into SIGSYS. Both
//! make the call's memory accessible, replace calls that would harm the run, and let the program continue at a stub that executes
//! the call (see [`stubs`]). In a run of one node nothing is inaccessible, and [`alone`] takes part in few calls, unless the program uses `tempest.h`: then
//! [`guarded`] does for its thread what is done with several nodes.
//! Input: the call's registers. Output: its result, or changed registers.
//! **Invariants**
//! * A system call is a safe point: no check of the program is pending, so handlers of the protocol may run ([`node::miss`]).
//! * Asynchronous signals are blocked while the SIGSYS handler runs, and put off while [`direct`] does; SIGSYS and SIGTRAP are never blocked while the program runs, or the
//!   kernel would kill it.
//! * `fork` and `execve` end the dispatch by themselves; a forked child also leaves the run ([`on_fork_child`]).
//!
//! Source: Linux `Documentation/admin-guide/syscall-user-dispatch.rst`, `kernel/entry/syscall_user_dispatch.c`; Reinhardt 1996, 4.2.4.

mod actions;
pub mod alone;
pub mod direct;
mod futex;
pub mod guarded;
pub mod loading;
pub mod own_path;
mod partial;
pub mod pins;
pub mod segv;
pub mod sent_traps;
pub mod signals;
mod stubs;
pub mod table;
mod waits;

use crate::gates::resume;
use crate::gates::trap;
use crate::gates::trap::{
    REG_R8, REG_R9, REG_R10, REG_R11, REG_RAX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP, Ucontext, restorer,
};
use crate::gates::{access, shared_stack};
use crate::kernel::elf::{Ehdr, PF_X, PT_LOAD, Phdr};
use crate::kernel::limits;
use crate::kernel::sys::{self, KernelSigaction};
use crate::node;
use crate::node::forks;
use blizzard_contract::{self as contract, Counter};
use core::sync::atomic::Ordering;
use stubs::{RED_ZONE, Stub};
use table::Shared;

const PR_SET_SYSCALL_USER_DISPATCH: i32 = 59;
const PR_SYS_DISPATCH_ON: u64 = 1;
/// `si_code` of a dispatched call.
const SYS_USER_DISPATCH: i32 = 2;
/// Bytes below the interrupted stack pointer where a mask stub puts the mask, and the pair of `pselect6`.
const MASK_BELOW: u64 = RED_ZONE + 8;
const PAIR_BELOW: u64 = RED_ZONE + 24;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// Done here, with this result.
    Done(i64),
    /// Executed at a stub, with these arguments; the word goes into r11.
    Run(Stub, [u64; 6], u64),
}

/// Installs the SIGSYS handler and arms the dispatch.
///
/// # Errors
/// The kernel's: it lacks Syscall User Dispatch (before Linux 5.11), or a filter forbids it.
///
/// # Safety
/// Called once, before the program runs, by its only thread, after [`note_text`].
pub unsafe fn enable() -> sys::Result<()> {
    let (text, bytes) = signals::runtime();
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
    signals::set_runtime(text, bytes);
}

/// Installs the handler and dispatches every call outside the range.
///
/// # Errors
/// As [`enable`].
///
/// # Safety
/// The process has one thread; the runtime's text lies in the range.
unsafe fn arm(text: u64, bytes: u64) -> sys::Result<()> {
    let action = KernelSigaction {
        handler: on_sigsys as *const () as u64,
        flags: libc::SA_SIGINFO as u64 | sys::SA_RESTORER,
        restorer: restorer as *const () as u64,
        mask: signals::BLOCK_ALL,
    };
    // SAFETY: the handler is made for any instruction of the program.
    unsafe { sys::rt_sigaction(libc::SIGSYS, &action) }?;
    waits::connect();
    signals::dispatched();
    // SAFETY: as above.
    unsafe { sys::rt_sigaction(contract::CALL_SIGNAL, &waits::action()) }?;
    // A mask inherited from the launcher must not block what the runtime needs.
    sys::unblock_signals(signals::RESERVED);
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
        trap::default_action(signal);
        return;
    }
    access::count(Counter::Syscalls);
    // What was put off comes in when this handler returns, in front of the call.
    let put_off = signals::take_put_off();
    context.sigmask &= !(put_off | signals::RESERVED);
    let g = &context.gregs;
    let nr = i64::from(g[REG_RAX] as i32);
    let args = [g[REG_RDI], g[REG_RSI], g[REG_RDX], g[REG_R10], g[REG_R8], g[REG_R9]];
    let caller = Caller { rip: g[REG_RIP], rsp: g[REG_RSP] };
    waits::left_kernel();
    // SAFETY: the arguments are the program's own call.
    let outcome = waits::announced(nr, &args, caller, || unsafe { dispatch(nr, args, caller, &mut context.sigmask) });
    // Nothing of the program runs from here on until then.
    if sent_traps::let_in_on_return() && nr == libc::SYS_rt_sigreturn {
        // It is the program's context that lets it in.
        context.sigmask |= signals::bit(libc::SIGTRAP);
    }
    match outcome {
        Outcome::Done(result) => context.gregs[REG_RAX] = result as u64,
        Outcome::Run(stub, args, word) => {
            let g = &mut context.gregs;
            [g[REG_RDI], g[REG_RSI], g[REG_RDX], g[REG_R10], g[REG_R8], g[REG_R9]] = args;
            g[REG_RCX] = g[REG_RIP];
            g[REG_R11] = word;
            g[REG_RIP] = stub.address();
        }
    }
}

/// Where a call comes from.
#[derive(Clone, Copy, Debug)]
struct Caller {
    /// Address behind the `syscall` instruction.
    rip: u64,
    rsp: u64,
}

/// Decides what becomes of a call and prepares its memory. `mask`: the signal mask that the program will continue with.
///
/// # Safety
/// `nr` and `args` are the program's call at `caller`.
unsafe fn dispatch(nr: i64, args: [u64; 6], caller: Caller, mask: &mut u64) -> Outcome {
    limits::restore_if_lowered();
    if forks::is_holding() {
        node::before_call(!PROMPT.contains(&nr));
    }
    let plain = Outcome::Run(Stub::Plain, args, 0);
    match nr {
        libc::SYS_exit | libc::SYS_exit_group => {
            let status = args[0] as i32;
            node::exiting(status);
            sys::exit_group(status)
        }
        libc::SYS_rt_sigreturn => {
            // The program's frame starts with its context; a mask that it put there must not block what the runtime needs.
            // SAFETY: the stack pointer is where the kernel will read the context from.
            let frame = unsafe { &mut *(caller.rsp as *mut Ucontext) };
            keep_stack_private(frame, Shared::Segment);
            sent_traps::returns(frame);
            frame.sigmask &= !signals::RESERVED;
            // The context may continue behind a check that counts on still being right. No handler may run from here to there.
            resume::reestablish(frame);
            *mask |= signals::BLOCK_ALL;
            return Outcome::Run(Stub::Sigreturn, args, 0);
        }
        libc::SYS_clone3 => return clone3(&args, caller),
        nr if table::ABSENT.contains(&nr) => return Outcome::Done(-i64::from(libc::ENOSYS)),
        libc::SYS_fork => return fork([0; 6]),
        libc::SYS_vfork => return vfork(args, caller),
        libc::SYS_clone => return clone(args, caller),
        libc::SYS_futex if access::in_segment(args[0]) => return Outcome::Done(futex::on_shared_word(&args)),
        libc::SYS_prctl if args[0] == PR_SET_SYSCALL_USER_DISPATCH as u64 => {
            return Outcome::Done(-i64::from(libc::EINVAL));
        }
        libc::SYS_mlockall => return Outcome::Done(lock_all(args)),
        _ => {}
    }
    // SAFETY: passed on from the caller.
    unsafe { make_accessible(nr, &args, Shared::Segment) };
    // SAFETY: the program's call, its memory accessible.
    if let Some(result) = unsafe { loading::call(nr, &args, caller.rip).or_else(|| own_path::read_link(nr, &args)) } {
        return Outcome::Done(result);
    }
    match nr {
        libc::SYS_rt_sigaction => {
            // SAFETY: the program's pointers, accessible now.
            Outcome::Done(unsafe { signals::sigaction(args[0], args[1], args[2], args[3]) })
        }
        libc::SYS_rt_sigprocmask => {
            // SAFETY: the program's pointers, accessible now.
            Outcome::Done(unsafe { signals::sigprocmask(mask, args, signals::RESERVED & !signals::bit(libc::SIGTRAP)) })
        }
        libc::SYS_getrlimit | libc::SYS_setrlimit | libc::SYS_prlimit64 => {
            // SAFETY: the program's pointers, accessible now.
            unsafe { limits::call(nr, &args) }.map_or(plain, Outcome::Done)
        }
        libc::SYS_execve | libc::SYS_execveat if limits::are_finite() => {
            limits::lower();
            plain
        }
        // SAFETY: the program's call, its memory accessible.
        _ => unsafe { waits::changed(nr, &args, caller) }.unwrap_or(plain),
    }
}

/// `mlockall`, which would fill the tag table and the segment with terabytes of zeros before it locks them: pages are locked when they are first used.
fn lock_all(mut args: [u64; 6]) -> i64 {
    const MCL_ONFAULT: u64 = 4;
    if args[0] & (libc::MCL_CURRENT | libc::MCL_FUTURE) as u64 != 0 {
        args[0] |= MCL_ONFAULT;
    }
    // SAFETY: no memory is read or written.
    unsafe { sys::raw(libc::SYS_mlockall, args) }
}

/// With one node: calls that replace the signal mask while they wait get a copy of the program's without the `reserved` signals, on the
/// calling thread's stack; `None` for all other calls.
///
/// # Safety
/// `nr` and `args` are the program's call, which may be made.
unsafe fn masked(nr: i64, mut args: [u64; 6], rsp: u64, reserved: u64) -> Option<Outcome> {
    let index = match nr {
        libc::SYS_rt_sigsuspend => 0,
        libc::SYS_ppoll => 3,
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => 4,
        libc::SYS_pselect6 if args[5] != 0 => {
            // SAFETY: the program passes a pair of a mask's address and its bytes, accessible now.
            let [mask, bytes] = unsafe { (args[5] as *const [u64; 2]).read_unaligned() };
            if mask == 0 || bytes != 8 {
                return None;
            }
            // SAFETY: the program's mask.
            let mask = unsafe { (mask as *const u64).read_unaligned() } & !reserved;
            args[5] = rsp - PAIR_BELOW;
            return Some(Outcome::Run(Stub::Pselect, args, mask));
        }
        _ => return None,
    };
    if args[index] == 0 {
        return None;
    }
    // SAFETY: the program passes a mask's address.
    let mask = unsafe { (args[index] as *const u64).read_unaligned() } & !reserved;
    args[index] = rsp - MASK_BELOW;
    Some(Outcome::Run(Stub::Mask, args, mask))
}

/// `vfork`: the child borrows memory and stack until it executes or exits; it takes no part in the run, and the parent waits.
fn vfork(args: [u64; 6], caller: Caller) -> Outcome {
    direct::expect_vfork_child();
    stubs::VFORK_RETURN.store(caller.rip, Ordering::Relaxed);
    Outcome::Run(Stub::Vfork, args, 0)
}

/// `fork`, or `clone` like it: a copy of the process, which is a node of the run if one has been announced, and else none.
fn fork(args: [u64; 6]) -> Outcome {
    match forks::created_call(args) {
        Some(args) => Outcome::Run(Stub::Create, args, 0),
        None => Outcome::Run(Stub::Fork, args, 0),
    }
}

/// Ends the run if the program continues on a stack in shared memory when its handler of a signal returns: the handler may have changed the context.
fn keep_stack_private(context: &Ucontext, shared: Shared) {
    let (rsp, rip) = (context.gregs[REG_RSP], context.gregs[REG_RIP]);
    shared_stack::keep_out(rsp, shared, rip, "a signal handler returns to a stack pointer of");
}

/// `clone`: a process, not a thread.
fn clone(mut args: [u64; 6], caller: Caller) -> Outcome {
    let has = |flag: i32| args[0] & flag as u32 as u64 != 0;
    if has(libc::CLONE_THREAD) || has(libc::CLONE_VM) && !has(libc::CLONE_VFORK) {
        node::fail(format_args!(
            "the program starts a second thread: in a run of several nodes each node has one thread for now"
        ));
    }
    let shares_memory = has(libc::CLONE_VM);
    if args[1] == 0 {
        return if shares_memory { vfork(args, caller) } else { fork(args) };
    }
    shared_stack::keep_out(args[1] - 8, Shared::Segment, caller.rip, "a new process gets a stack at");
    // The child starts with the stub's frame on its own stack, so that the stub's `ret` finds its way and gives it back.
    args[1] -= RED_ZONE + 8;
    // SAFETY: the program passes the top of a stack for the child, which is free below.
    unsafe { (args[1] as *mut u64).write(caller.rip) };
    if shares_memory {
        direct::expect_vfork_child();
    }
    Outcome::Run(if shares_memory { Stub::Plain } else { Stub::Fork }, args, 0)
}

/// `clone3`: the C library then uses [`clone`]. Who asks for a stack in shared memory is told here, too.
fn clone3(args: &[u64; 6], caller: Caller) -> Outcome {
    /// Where `struct clone_args` has the stack's lowest address.
    const STACK_AT: u64 = 40;
    let mut stack = [0; 8];
    let is_there = args[1] >= STACK_AT + 8 && !access::in_segment(args[0]);
    if is_there && sys::read_own_memory(args[0].wrapping_add(STACK_AT), &mut stack).is_ok() {
        shared_stack::keep_out(u64::from_ne_bytes(stack), Shared::Segment, caller.rip, "a new process gets a stack at");
    }
    Outcome::Done(-i64::from(libc::ENOSYS))
}

/// Makes everything that the call touches in such memory accessible, all of it at once.
///
/// # Safety
/// As [`table::visit`].
unsafe fn make_accessible(nr: i64, args: &[u64; 6], shared: Shared) {
    pins::make_accessible(&mut pins::Own, |acquire| {
        // SAFETY: passed on from the caller; `acquire` makes each range accessible.
        if let Err(unsupported) = unsafe { table::visit(nr, args, shared, acquire) } {
            node::fail(format_args!("{unsupported}"));
        }
    });
}

/// Runs in a forked child before the program does: the child has a copy of the node's memory and no part in the protocol, and gets a
/// context page of its own, so that no peer rings its doorbell.
pub fn on_fork_child() {
    access::detach();
    node::detach_child();
    signals::unblock_in_child();
}

/// Runs in a forked child that is the next node, before the program does. Returns when the node may compute.
pub fn on_created_child() {
    signals::unblock_in_child();
    forks::become_node();
    let (text, bytes) = signals::runtime();
    // SAFETY: one thread; the range is the one of `enable`. The handler is inherited, the dispatch is not.
    if let Err(e) = unsafe { arm(text, bytes) } {
        node::fail(format_args!("cannot intercept the system calls of a created node: {e}"));
    }
}

/// System calls that return soon, and that a program makes between the creation of two nodes.
const PROMPT: [i64; 25] = [
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigreturn,
    libc::SYS_fork,
    libc::SYS_clone,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_lseek,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_getrusage,
    libc::SYS_exit_group,
];

/// Silences a doorbell that was rung before the fork.
pub fn silence_doorbell() {
    // SAFETY: the context page is mapped for the process's life.
    unsafe { core::sync::atomic::AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.store(0, Ordering::Relaxed);
}

#[cfg(test)]
pub(crate) mod tests;
