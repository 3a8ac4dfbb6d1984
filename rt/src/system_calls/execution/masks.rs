//! Signal masks that a call sets while it waits.
//!
//! Purpose: the kernel must not block what the runtime needs. Input: a call with such a mask. Output: a copy without those signals.
//! Source: ppoll(2), `pselect6` in select(2).

use crate::memory::access_control::program::runtime_address;
use crate::system_calls::execution::call::{Call, CallOutcome};
use crate::system_calls::execution::signal_sets::RESERVED_ALONE;
use crate::system_calls::execution::stubs::{RED_ZONE, Stub};
use crate::system_calls::table::row::Mask;

/// Bytes below the interrupted stack pointer where a mask stub puts the mask, and the pair of `pselect6`.
const MASK_BELOW: u64 = RED_ZONE + 8;
const PAIR_BELOW: u64 = RED_ZONE + 24;

/// The argument that leads to the call's mask, and the mask, if it has one.
///
/// # Safety
/// The program's call, its memory accessible.
pub unsafe fn mask_of(call: &Call) -> Option<(usize, u64)> {
    let (index, is_pair) = match call.row.mask {
        Mask::None => return None,
        Mask::At(i) => (usize::from(i), false),
        Mask::Pair(i) => (usize::from(i), true),
    };
    let mut at = call.args[index];
    if is_pair && at != 0 {
        // SAFETY: the program passes a pair of a mask's address and its bytes.
        let [mask, bytes] = unsafe { runtime_address(at).cast::<[u64; 2]>().read_unaligned() };
        at = if bytes == 8 { mask } else { 0 };
    }
    // SAFETY: the program passes a mask's address.
    (at != 0).then(|| (index, unsafe { runtime_address(at).cast::<u64>().read_unaligned() }))
}

/// With one node, where threads exist: the copy lies on the calling thread's stack. `None` if the call has no mask.
///
/// # Safety
/// As [`mask_of`].
pub unsafe fn on_own_stack(call: &Call) -> Option<CallOutcome> {
    // SAFETY: passed on from the caller.
    let (index, mask) = unsafe { mask_of(call) }?;
    let mut args = call.args;
    let (stub, below) = match call.row.mask {
        Mask::Pair(_) => (Stub::Pselect, PAIR_BELOW),
        _ => (Stub::Mask, MASK_BELOW),
    };
    args[index] = call.rsp - below;
    Some(CallOutcome::Run(stub, args, mask & !RESERVED_ALONE))
}
