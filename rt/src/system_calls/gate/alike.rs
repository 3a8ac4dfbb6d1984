//! The actions that are alike in all runs.
//!
//! Input: a column's action, and the call, its memory accessible. Output: its result, if it has been made here.

use crate::kernel::limits;
use crate::kernel::sys::{self, Errno};
use crate::libraries::closure::redirect;
use crate::memory::access_control::program;
use crate::process::process;
use crate::process::trap_bytes::filters;
use crate::system_calls::execution::call::Call;
use crate::system_calls::gate::{loading, own_file};
use crate::system_calls::signals::alternate_stack;
use crate::system_calls::table::by_command::{ARCH_GET_GS, ARCH_SET_GS};
use crate::system_calls::table::row::GateAction;

/// The call's result; `None`: the program makes it.
///
/// # Safety
/// The program's call, which may be made.
pub unsafe fn result(action: GateAction, call: &Call) -> Option<i64> {
    match action {
        GateAction::LockWhenUsed => Some(lock_when_used(call.args)),
        // SAFETY: passed on from the caller.
        GateAction::Limits => unsafe { limits::call(call.nr, &call.kernel_arguments()) },
        // SAFETY: passed on from the caller.
        GateAction::OpenLibrary(path) => unsafe { loading::open(call, path).or_else(|| own_file::open(call, path)) },
        // SAFETY: passed on from the caller.
        GateAction::MapCode => unsafe { loading::map_code(call) },
        GateAction::AllowCode(rights, bits) => {
            if call.args[usize::from(rights)] & u64::from(bits) != 0 {
                loading::allow_code(call);
            } else if call.args[usize::from(rights)] == libc::PROT_READ as u64 {
                own_file::note_protected();
                loading::has_loaded(call);
            }
            None
        }
        GateAction::KeepLibraries => {
            redirect::keep();
            None
        }
        GateAction::LeaveTrapBytes | GateAction::KeepDispatch(_) => {
            if call.nr == libc::SYS_seccomp || call.args[0] == libc::PR_SET_SECCOMP as u64 {
                filters::close();
            }
            None
        }
        // SAFETY: passed on from the caller.
        GateAction::KeepGs => unsafe { keep_gs(&call.args) },
        // SAFETY: passed on from the caller.
        GateAction::KeepAlternateStack => unsafe { alternate_stack::call(call.kernel_arguments()[0], call.args[1]) },
        GateAction::Execute(_) => {
            leave_limits();
            None
        }
        GateAction::ReadOwnLink(name) => {
            // SAFETY: passed on from the caller.
            let told = unsafe { own_file::read_link(&call.args, name) };
            // The loader asks on behalf of `$ORIGIN`.
            if told.is_some() && !loading::is_loader(call.rip) {
                own_file::note_told(!loading::has_loader());
            }
            told
        }
        _ => None,
    }
}

/// `mlockall`, which would fill the tag table and the segment with terabytes of zeros before it locks them: pages are locked when they are first used.
fn lock_when_used(mut args: [u64; 6]) -> i64 {
    const MCL_ONFAULT: u64 = 4;
    if args[0] & (libc::MCL_CURRENT | libc::MCL_FUTURE) as u64 != 0 {
        args[0] |= MCL_ONFAULT;
    }
    // SAFETY: no memory is read or written.
    unsafe { sys::raw(libc::SYS_mlockall, args) }
}

/// `arch_prctl`, of the base of %gs.
///
/// # Safety
/// As [`result`].
unsafe fn keep_gs(args: &[u64; 6]) -> Option<i64> {
    match (args[0], args[1]) {
        (ARCH_SET_GS, 0) => Some(0),
        (ARCH_SET_GS, base) => process::fail(format_args!(
            "the program sets the base of %gs to {base:#x}, which guarded code needs for itself: use --access tests"
        )),
        (ARCH_GET_GS, at) => {
            // SAFETY: the program passes room for a word.
            let written = unsafe { program::write(at, &[0; 8]) };
            Some(written.map_or_else(|Errno(e)| -i64::from(e), |()| 0))
        }
        _ => None,
    }
}

/// Another program is about to be executed: with the limits that this one sees.
fn leave_limits() {
    if limits::are_finite() {
        limits::lower();
    }
}
