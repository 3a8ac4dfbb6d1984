//! Accesses to shared memory that faulted because nothing had tested them.
//!
//! Purpose: plain code goes on in its full version, where the access has a test. Input: the context of a fault at an address of shared memory. Output: the
//! context of the same instruction in full code. **Invariant**: registers, flags and stack are those of the fault: both versions have the same where an
//! instruction begins. Source: design section 9.

use crate::kernel::ucontext::{REG_RIP, Ucontext};
use crate::libraries::modules::MODULES;
use crate::process::tags;
use blizzard_contract::Counter;

/// Lets the context go on in full code, if it stopped at an access that has a full version.
pub fn go_on(context: &mut Ucontext) -> bool {
    let Some(full) = MODULES.full_of(context.gregs[REG_RIP]) else { return false };
    tags::count(Counter::UntestedAccesses);
    context.gregs[REG_RIP] = full;
    true
}
