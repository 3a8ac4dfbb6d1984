//! The memory of this process, acquired for a call of the program.
//!
//! Input: the call. Output: all that it touches is accessible, for as long as the kernel may use it.

use crate::kernel::print;
use crate::libraries::places::FunctionPlace;
use crate::node::waiting::Entered;
use crate::process::accesses;
use crate::process::process;
use crate::process::tags;
use crate::system_calls::call_memory::{self, CallMemory};
use crate::system_calls::execution::call::{Call, CallOutcome};
use crate::system_calls::execution::interruptions;
use crate::system_calls::execution::put_off;
use crate::system_calls::gate::caller;
use crate::system_calls::table::memory;
use crate::system_calls::table::row::GateAction;
use crate::system_calls::table::visitor::{CallRange, Shared};

struct Own;

impl CallMemory for Own {
    fn is_accessible(&mut self, range: &CallRange) -> bool {
        tags::accessible(range.addr, range.bytes, range.store)
    }

    fn require(&mut self, range: &CallRange) {
        accesses::require(range.addr, range.bytes, range.store, false);
    }

    fn hold_pages(&mut self, hold: bool) {
        process::hold_pages(hold);
    }

    fn enter_kernel(&mut self) -> Entered {
        process::enter_kernel()
    }

    fn serve(&mut self) {
        interruptions::without_forgetting(process::poll);
    }
}

/// Makes everything that the call touches in such memory accessible, all of it at once. `Some`: the call is not made, and has this outcome.
///
/// # Safety
/// As [`memory::visit`].
pub unsafe fn acquire(call: &Call, shared: Shared) -> Option<CallOutcome> {
    let mut refused = None;
    call_memory::make_accessible(&mut Own, |acquire| {
        // SAFETY: passed on from the caller; `acquire` makes each range accessible.
        match unsafe { memory::visit(call.row, call.nr, &call.args, shared, acquire) } {
            // The kernel would find no memory there.
            Err(unsupported) if cfg!(feature = "guard") && !unsupported.is_kept => refused = Some(unsupported),
            Err(unsupported) => process::fail(format_args!("{unsupported}")),
            Ok(()) => {}
        }
    });
    let unsupported = refused?;
    let place = caller::of(call).unwrap_or(FunctionPlace { at: call.rip, original: None });
    print::warning(format_args!("{unsupported}, at {place}: it gets EFAULT; give it private memory"));
    Some(CallOutcome::error(libc::EFAULT))
}

/// Decides about a call until it can be made: `decide` prepares it, and prepares it again after messages were served.
pub fn until_made(call: &Call, mut decide: impl FnMut() -> CallOutcome) -> CallOutcome {
    if let Some(result) = interruptions::begin(call) {
        return CallOutcome::Done(result);
    }
    let outcome = call_memory::until_made(&mut Own, |_| {
        let outcome = decide();
        if matches!(call.row.several, GateAction::Execute(_)) {
            interruptions::leave_run();
        }
        (outcome, interruptions::prepared(call, &outcome))
    });
    // The stub looks for signals that wait.
    if put_off::is_waiting() {
        interruptions::goes_back();
    }
    outcome
}
