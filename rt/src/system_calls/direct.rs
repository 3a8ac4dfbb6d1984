//! System calls of rewritten code in a run of several nodes.
//!
//! Purpose: what the SIGSYS handler does, without the signal: about a tenth of its cost. Input: the registers that the gate saved. Output: changed
//! ones, with the address at which the gate continues in [`Frame::return_address`].
//! **Invariant**: a signal that arrives while this runs is put off, because it arrives in the runtime's text; the plain stub looks for that
//! before it executes the call (see [`stubs`]), so none waits behind a call that blocks.
//! Source: as the parent module's.

use super::table::Shared;
use super::{Caller, Outcome, alone, dispatch, make_accessible, sent_traps, signals, stubs, waits};
use crate::gates::entries::{Frame, R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI};
use crate::kernel::limits;
use crate::kernel::sys;
use crate::process::tags;
use blizzard_contract::Counter;
use core::sync::atomic::{AtomicI32, Ordering};

/// The call's arguments, in order.
pub(super) fn arguments(frame: &Frame) -> [u64; 6] {
    let g = &frame.gpr;
    [g[RDI], g[RSI], g[RDX], g[R10], g[R8], g[R9]]
}

/// The program's stack pointer: above the frame, its return address and the red zone.
pub(super) fn stack_pointer(frame: &Frame) -> u64 {
    &raw const frame.args as u64 + stubs::RED_ZONE
}

/// Makes the gate continue with the outcome.
pub(super) fn finish(frame: &mut Frame, outcome: Outcome) {
    match outcome {
        Outcome::Done(result) => frame.gpr[RAX] = result as u64,
        Outcome::Run(stub, args, word) => {
            frame.gpr[RCX] = frame.return_address;
            frame.gpr[R11] = word;
            frame.return_address = stub.address();
            set_arguments(frame, args);
        }
    }
}

pub(super) fn set_arguments(frame: &mut Frame, args: [u64; 6]) {
    let g = &mut frame.gpr;
    [g[RDI], g[RSI], g[RDX], g[R10], g[R8], g[R9]] = args;
}

/// The node's process number while a `vfork` child may be using its memory, else 0.
static LENDER: AtomicI32 = AtomicI32::new(0);

/// Notes that the call which follows makes a child that shares this memory.
pub(super) fn expect_vfork_child() {
    LENDER.store(sys::getpid(), Ordering::Relaxed);
}

/// The same, where the parent may be about to make the call.
pub(super) fn is_in_vfork_child() -> bool {
    let lender = LENDER.load(Ordering::Relaxed);
    lender != 0 && lender != sys::getpid()
}

/// Whether this is the child. The parent runs again only when the child has executed another program or is gone.
fn is_vfork_child() -> bool {
    let lender = LENDER.load(Ordering::Relaxed);
    if lender == 0 {
        return false;
    }
    let child = lender != sys::getpid();
    if !child {
        LENDER.store(0, Ordering::Relaxed);
    }
    child
}

/// The Rust half of the gate.
pub extern "C" fn on_syscall(frame: &mut Frame) {
    // Processes made from a node take no part in the run, and nothing dispatches their calls.
    if is_vfork_child() {
        // The kernel reads and writes the borrowed memory as it would for the node, which waits until the child is gone: nobody else runs the
        // protocol meanwhile, and nothing does between here and the call.
        let (nr, args) = (i64::from(frame.gpr[RAX] as i32), arguments(frame));
        // SAFETY: the program's own call.
        unsafe { make_accessible(nr, &args, Shared::Segment) };
        match nr {
            libc::SYS_rt_sigaction => {
                // SAFETY: the program's own call, its memory accessible.
                let result = unsafe { signals::sigaction_in_child(args) };
                return finish(frame, Outcome::Done(result));
            }
            libc::SYS_execve | libc::SYS_execveat if limits::are_finite() => limits::lower(),
            _ => {}
        }
        frame.return_address -= alone::SYSCALL_BYTES;
        return;
    }
    if tags::detached() {
        alone::on_syscall(frame);
        return;
    }
    tags::count(Counter::Syscalls);
    let nr = i64::from(frame.gpr[RAX] as i32);
    let args = arguments(frame);
    let caller = Caller { rip: frame.return_address, rsp: stack_pointer(frame) };
    // A system call is a safe point.
    waits::let_in_before(nr, caller, signals::safe_point);
    let masks = nr == libc::SYS_rt_sigprocmask;
    let mut mask = if masks { signals::hold() } else { 0 };
    // SAFETY: the arguments are the program's own call.
    let outcome = waits::announced(nr, &args, caller, || unsafe { dispatch(nr, args, caller, &mut mask) });
    finish(frame, outcome);
    if masks {
        signals::set_mask(mask);
        sent_traps::let_in();
    }
    if nr == libc::SYS_rt_sigreturn {
        // Nothing may lose what the context relies on; the call replaces the mask.
        sys::set_signal_mask(signals::BLOCK_ALL);
        sent_traps::let_in_on_return();
    }
}
