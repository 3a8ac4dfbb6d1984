//! Continuing between a check and what it covers.
//!
//! Purpose: whoever continues there without having come from the check must not rely on it: a handler of the program for a signal that an instruction
//! raised (SIGSEGV of a guard page) runs in the middle, with polls of its own, and returns there, perhaps with other registers; a jump to an address
//! that nobody foresaw is redirected by a trap byte. Input: where a context continues, and its registers. Output: accessible blocks, and where it goes on.
//! * At an access with a check of its own it goes back to that check ([`blizzard_contract::restarts`]).
//! * One check may cover several accesses: what those that follow rely on is made accessible again ([`contract::CodeRegion`]).
//! * Where what is relied upon cannot be named (a table's element of which the index is not known yet), the code stands in a copy of a loop, and the
//!   context goes on in the loop itself ([`contract::CodeRegion::MOVED`]).
//!
//! **Invariants**: nothing handles messages between [`reestablish`] and the first instruction of the context: what leads there is a return
//! from a signal handler with asynchronous signals blocked. Handlers for raised signals return through [`RETURN`], whose system call
//! raises SIGSYS like any of the program's. With one node, in a program that uses `tempest.h`, all handlers return through the program's own
//! restorer, whose call passes the gate.
//! Source: design section 5 (atomicity); Linux `arch/x86/kernel/signal_64.c` (the return address lies below the context).

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::kernel::ucontext::{GREGS, REG_RIP, Ucontext};
use crate::libraries::modules::MODULES;
use crate::node::user_handlers;
use crate::process::groups::require_group;
use crate::process::process;
use blizzard_contract as contract;
use core::sync::atomic::{AtomicU64, Ordering};

/// Where handlers for raised signals return to; 0: nowhere of its own.
static RETURN: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));

/// `nop; mov rax, 15; syscall; ud2`: `rt_sigreturn`, in the bytes by which unwinders know a signal frame, and one in front, where they look for another. Outside
/// the runtime's text, so that the call is dispatched.
const CODE: [u8; 12] = [0x90, 0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b];

/// Makes the place that handlers for raised signals return to.
///
/// # Errors
/// There is no memory for it.
pub fn prepare() -> sys::Result<()> {
    const PAGE: u64 = 4096;
    // SAFETY: new anonymous memory; the code fits.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let page = sys::mmap(0, PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
        (page as *mut [u8; CODE.len()]).write(CODE);
        sys::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC)?;
        RETURN.store(page + 1, Ordering::Relaxed);
    }
    Ok(())
}

/// Lets the handler whose frame holds `context` return through [`RETURN`].
///
/// # Safety
/// `context` is in the frame that the kernel built for a handler that has not begun.
pub unsafe fn return_here(context: &mut Ucontext) {
    let to = RETURN.load(Ordering::Relaxed);
    if to != 0 {
        // SAFETY: passed on from the caller.
        unsafe { return_to(context, to) };
    }
}

/// Lets the handler whose frame holds `context` return to `to`, which makes the call that ends it.
///
/// # Safety
/// As [`return_here`].
pub unsafe fn return_to(context: &mut Ucontext, to: u64) {
    // SAFETY: the kernel puts the return address right below the context.
    unsafe { (context as *mut Ucontext).cast::<u64>().sub(1).write(to) };
}

/// Makes the loop that is running test tags before its next iteration: other loops may have run since its last tests, or messages been handled.
pub fn forget_limits() {
    for (at, none) in [contract::LIMIT_UP, contract::LIMIT_DOWN].into_iter().zip(contract::NO_LIMITS) {
        // SAFETY: the context page is mapped before anything of the program runs, and only this thread's code looks at the limits.
        unsafe { (at as *mut u64).write_volatile(none) };
    }
}

/// Makes accessible what code at the context's address relies on, or lets the context go on in code that relies on nothing.
pub fn reestablish(context: &mut Ucontext) {
    forget_limits();
    if let Some(to) = MODULES.moved_from(context.gregs[REG_RIP]) {
        context.gregs[REG_RIP] = to;
    }
    if process::nodes() == 1 && !user_handlers::is_active() {
        return;
    }
    if let Some(check) = MODULES.check_of(context.gregs[REG_RIP]) {
        context.gregs[REG_RIP] = check;
    }
    if let Some(chain) = MODULES.chain_at(context.gregs[REG_RIP]) {
        let register = |r: u8| GREGS.get(usize::from(r)).map_or(0, |&place| context.gregs[place]);
        // SAFETY: the rewriter wrote a chain there.
        unsafe { require_group(chain, register) };
    }
}

/// Whether code at `at` relies on blocks that [`reestablish`] would make accessible.
pub fn relies_on_group(at: u64) -> bool {
    if process::nodes() == 1 && !user_handlers::is_active() {
        return false;
    }
    let at = MODULES.moved_from(at).unwrap_or(at);
    MODULES.chain_at(MODULES.check_of(at).unwrap_or(at)).is_some()
}

const _: () = assert!(contract::GROUP_RANGES > 1);
