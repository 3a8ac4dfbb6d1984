//! A node that dies by a signal tells the launcher ([`crate::links::last_words`]).
//!
//! Input: the signal and the program's registers. Output: the record, and the pause.
//! **Invariant**: what is told may be wrong: a signal that the program sends to itself may be blocked. The launcher believes the record of a node that has
//! died so.

use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::{GREGS, REG_RIP, REG_RSP, Ucontext};
use crate::links::last_words;
use crate::memory::region::ContextPage;
use crate::process::frame::Frame;
use crate::system_calls::execution::call::Call;
use crate::system_calls::signals::actions::SIG_DFL;
use blizzard_contract::{CONTEXT_SHARED, CrashRecord};

/// An instruction has raised `signal`, or somebody has sent it, and it ends the process as soon as its handler returns.
pub fn by_handler(signal: i32, info: &libc::siginfo_t, context: &Ucontext) {
    // SAFETY: signals that are sent have something else there, which is not looked at.
    let address = if info.si_code > 0 { unsafe { info.si_addr() as u64 } } else { 0 };
    last_words::tell(
        &own(),
        CrashRecord { state: 0, signal, code: info.si_code, thread: 0, address, registers: context.gregs },
    );
}

/// A call of the program that sends a signal, perhaps the one that ends it: `abort` does.
pub fn by_call(call: &Call, signal: u64, frame: &Frame) {
    // A program's first thread has the process's number.
    let target = call.args[0] as i32;
    if signal as i32 != libc::SIGABRT
        || !last_words::is_awaited(&own())
        || ![sys::getpid(), sys::gettid()].contains(&target)
    {
        return;
    }
    let mut action = KernelSigaction::default();
    let args = [signal, 0, &raw mut action as u64, 8, 0, 0];
    // SAFETY: the kernel fills the structure.
    let known = unsafe { sys::call(libc::SYS_rt_sigaction, args) };
    if known.is_err() || action.handler != SIG_DFL {
        return;
    }
    let mut registers = [0; 23];
    for (place, value) in GREGS.into_iter().zip(frame.gpr) {
        registers[place] = value;
    }
    (registers[REG_RIP], registers[REG_RSP]) = (call.rip, call.rsp);
    last_words::tell(
        &own(),
        CrashRecord { state: 0, signal: signal as i32, code: libc::SI_TKILL, thread: 0, address: 0, registers },
    );
}

/// The own context page.
fn own() -> ContextPage {
    // SAFETY: mapped before the program runs, for the process's life.
    unsafe { ContextPage::at(CONTEXT_SHARED) }
}
