//! What the kernel is given for a call of the program, and what the program gets back.
//!
//! Input: a call, and its result. Output: arguments, and structures of the program's with what the kernel has written.
//! **Invariants**
//! * The copies are those of the call that was asked about last. A call that is interrupted before it is made is asked about again.
//! * What the kernel has written comes back before anything else of the program runs, and before a peer is served: the memory is the call's until then.
//!
//! Source: [`crate::system_calls::table::copies`].

use crate::kernel::owned::per_thread;
use crate::memory::access_control::program;
use crate::process::process;
use crate::system_calls::execution::situation;
use crate::system_calls::table::copies::{COPIED, CallCopies, Given};
use crate::system_calls::table::memory;
use crate::system_calls::table::row::CallRow;
use crate::system_calls::table::visitor::Shared;
use core::cell::UnsafeCell;

per_thread! {
    /// Used in the gate, and behind a call. One call is made at a time.
    static COPIES: UnsafeCell<CallCopies> = UnsafeCell::new(CallCopies::EMPTY);
}

/// The arguments as the kernel is given them; copies of structures are there until the next call is asked about.
///
/// # Safety
/// All that the call touches in shared memory can be read.
pub unsafe fn kernel_arguments(row: &'static CallRow, nr: i64, args: &[u64; 6]) -> [u64; 6] {
    if !COPIED {
        return *args;
    }
    // With one node the kernel may use what is never inaccessible where the program does. Other threads name the same futexes.
    let shared = match (process::nodes() > 1, situation::uses_tempest_alone()) {
        (true, _) => Shared::Segment,
        (false, true) => Shared::UserManaged,
        (false, false) => return *args,
    };
    let address = |addr| if shared.holds(addr) { program::kernel_address(addr) } else { addr };
    // SAFETY: see `COPIES`; the rest is passed on from the caller.
    let given = unsafe {
        let given = Given { copies: &mut *COPIES.get(), address: &address };
        memory::kernel_arguments(row, nr, args, shared, given)
    };
    given.unwrap_or_else(|large| process::fail(format_args!("{large}")))
}

/// Whether something comes back behind the call that was asked about last.
pub fn comes_back() -> bool {
    // SAFETY: see `COPIES`.
    COPIED && unsafe { (*COPIES.get()).are_written() }
}

/// Gives the program what the kernel has written into copies of its structures, once. The call's result.
///
/// # Safety
/// The call that was asked about last has just returned `result`, and what it touches is still accessible.
pub unsafe fn give_back(result: i64) -> i64 {
    if !COPIED {
        return result;
    }
    // SAFETY: see `COPIES`; the rest is passed on from the caller.
    unsafe { (*COPIES.get()).give_back(result) }
}
