//! Accesses to shared memory that faulted because nothing had tested them.
//!
//! Purpose: plain code goes on in its full version, where the access has a test. A function that has faulted [`FAULTS`] times is entered in its full version
//! from then on. A loop that has gone on there tries plain code again after a while ([`plain_again`]). Where somebody wants to learn of the accesses, the first fault of each is carried out, and plain code goes on: so it comes to the next one.
//! Input: the context of a fault at an address of shared memory. Output: the context of the same instruction in full code. **Invariants**: registers,
//! flags and stack are those of the fault: both versions have the same where an instruction begins. What is changed of code is one instruction, of two bytes, at
//! the beginning of a function: whoever is in front of it or behind goes on as before. Source: design section 9.

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::kernel::ucontext::{REG_RIP, Ucontext};
use crate::libraries::modules::MODULES;
use crate::process::tags;
use crate::process::trap_bytes::filters;
use crate::system_calls::signals::{learnt, plain_again};
use blizzard_contract::{Counter, REDIRECTABLE, REDIRECTED};
use core::sync::atomic::{AtomicU64, Ordering};

/// So many faults of a function are taken before it is entered in its full version.
const FAULTS: u64 = 3;
/// Functions whose faults are counted at a time.
const COUNTED: usize = 1024;
const PAGE: u64 = 4096;

/// Where a function begins, which is less than 2^47, and in the upper bits how often it has faulted.
static COUNTS: PerProcess<[AtomicU64; COUNTED]> = PerProcess::new([const { AtomicU64::new(0) }; COUNTED]);
const COUNT_SHIFT: u32 = 48;

/// An access of plain code that faulted.
#[derive(Clone, Copy, Debug)]
pub struct Untested {
    at: u64,
    /// Where it begins in full code.
    full: u64,
    /// Nobody has learnt of it yet, and this is the thread that carries accesses out.
    pub is_first: bool,
}

/// The access that the context stopped at, if it is one of plain code; it is counted.
pub fn find(context: &Ucontext) -> Option<Untested> {
    let untested = of(context)?;
    tags::count(Counter::UntestedAccesses);
    let is_first = MODULES.access_at(untested.at).is_some_and(learnt::is_first)
        && sys::gettid() == sys::getpid()
        && !filters::is_asked_for();
    Some(Untested { is_first, ..untested })
}

/// [`find`] of an access that has been counted.
pub fn of(context: &Ucontext) -> Option<Untested> {
    let at = context.gregs[REG_RIP];
    Some(Untested { at, full: MODULES.full_of(at)?, is_first: false })
}

impl Untested {
    /// Lets the context go on in full code.
    pub fn go_on(self, context: &mut Ucontext) {
        context.gregs[REG_RIP] = self.full;
        plain_again::entered();
        if let Some(function) = MODULES.redirectable(self.at)
            && count(function) == FAULTS
            && !filters::is_asked_for()
        {
            redirect(function);
        }
    }
}

/// Counts a fault of a function; how many there are. Of two that share a place, each forgets the other's.
fn count(function: u64) -> u64 {
    let place = &COUNTS[(function >> 4) as usize % COUNTED];
    let before = place.load(Ordering::Relaxed);
    let count = if before << (64 - COUNT_SHIFT) >> (64 - COUNT_SHIFT) == function { before >> COUNT_SHIFT } else { 0 };
    let count = (count + 1).min(FAULTS + 1);
    place.store(function | count << COUNT_SHIFT, Ordering::Relaxed);
    count
}

/// Lets a function be entered in its full version. A refusal costs speed only.
fn redirect(function: u64) {
    let from = function & !(PAGE - 1);
    let bytes = (function + 2 - from).next_multiple_of(PAGE);
    let rx = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: code of a module, in the process's own copy; others may execute it meanwhile.
    unsafe {
        if (function as *const [u8; 4]).read_unaligned() != REDIRECTABLE
            || sys::mprotect(from, bytes, rx | libc::PROT_WRITE).is_err()
        {
            return;
        }
        (function as *mut [u8; 2]).write_unaligned(REDIRECTED);
        let _ = sys::mprotect(from, bytes, rx);
    }
}
