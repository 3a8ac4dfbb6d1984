//! Which memory a call touches.
//!
//! Purpose: the kernel does not look at tags, so what a call reads or writes in shared memory must be made accessible before it. Input: a
//! call's number and arguments. Output: the ranges in the segment that it touches, through a visitor.
//! **Invariants**
//! * A call that is not in the table, or a pointer whose layout is not known, is an error as soon as the pointer leads into the segment; it is
//!   never let through unchecked. In guarded code that is the call's error, EFAULT, where the kernel's own would be ([`crate::system_calls::gate::own_memory`]). Calls that take fewer arguments than six are in the table even if they take no pointer: what their
//!   unused registers hold means nothing.
//! * Memory that the kernel would keep after the call (asynchronous transfers, robust lists, a new thread's stack) must not be
//!   shared: it could lose its access at any time.
//! * A bad pointer of the program stays the kernel's business: structures outside the segment are read in a way that cannot fault.
//!
//! Source: Reinhardt 1996, 4.2.4; the rows of the table.

use crate::memory::access_control::program::in_segment;
use crate::system_calls::table::by_command::ARCH_SET_GS;
use crate::system_calls::table::calls::row;
use crate::system_calls::table::copies::{self, Given};
use crate::system_calls::table::row::{Arg, CallRow};
use crate::system_calls::table::visitor::{CallRange, LookResult, LookStop, Shared, Visitor, keep_pages_out};
use core::fmt;

/// A pointer into the segment that the gate cannot prepare, or to pages of the runtime that the call would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    pub nr: i64,
    /// 0..6.
    pub argument: usize,
    /// The pointer: the argument's value, or found behind it.
    pub addr: u64,
    /// Of a call with commands.
    pub command: Option<u64>,
    /// No error can be the call's result: see [`LookStop::Kept`].
    pub is_kept: bool,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unsupported { nr, argument, addr, command, .. } = *self;
        write!(f, "system call {nr} ({})", row(nr).name)?;
        if let Some(command) = command {
            write!(f, ", command {command:#x},")?;
        }
        let argument = argument + 1;
        if nr == libc::SYS_arch_prctl && command == Some(ARCH_SET_GS) {
            return write!(
                f,
                " sets the base of %gs to {addr:#x}, which checks take for zero in a run of several nodes"
            );
        }
        if !in_segment(addr) {
            return write!(f, " would change pages that the runtime needs at {addr:#x} (argument {argument})");
        }
        write!(
            f,
            " has a pointer into shared memory ({addr:#x}) in argument {argument}, which the gate does not know how to prepare"
        )
    }
}

impl Visitor<'_> {
    /// What the kernel is given for the argument.
    fn argument(&mut self, i: usize, kind: Arg) -> LookResult<u64> {
        let addr = self.args[i];
        Ok(match kind {
            Arg::Num => addr,
            Arg::Never => self.keep_out(addr)?,
            Arg::Kept => self.keep_out_for_good(addr)?,
            Arg::Mapped(bytes, condition, bits) => {
                // Without the flag it is a hint: the kernel finds another place.
                let is_hint = bits != 0 && self.args[usize::from(condition)] & u64::from(bits) == 0;
                if !is_hint {
                    self.keep_out_for_good(addr)?;
                    if self.shared == Shared::Segment {
                        keep_pages_out(addr, self.args[usize::from(bytes)]).map_err(LookStop::Kept)?;
                    }
                }
                addr
            }
            Arg::In(len) | Arg::Out(len) => {
                let bytes = self.length(len)?;
                self.put(addr, bytes, matches!(kind, Arg::Out(_)))
            }
            Arg::Str => self.string(addr),
            Arg::When(flags, bits, then) => {
                if self.args[usize::from(flags)] & u64::from(bits) == 0 {
                    return Ok(addr);
                }
                self.argument(i, *then)?
            }
            Arg::Layout(layout) => self.structure(i, layout)?,
        })
    }
}

/// Calls `visit` with each range of `shared` memory that the call touches. When `visit` returns, the range must be accessible:
/// nested structures are read through it.
///
/// # Errors
/// The pointer that is not supported.
///
/// # Safety
/// What `visit` was given and lies in the segment can be read when it returns.
pub unsafe fn visit(
    row: &'static CallRow,
    nr: i64,
    args: &[u64; 6],
    shared: Shared,
    visit: &mut dyn FnMut(CallRange),
) -> Result<(), Unsupported> {
    let mut visitor = Visitor { row, args, shared, found: visit, given: None };
    for (argument, kind) in row.args.iter().enumerate() {
        let (addr, is_kept) = match visitor.argument(argument, *kind) {
            Err(LookStop::At(addr)) => (addr, false),
            Err(LookStop::Kept(addr)) => (addr, true),
            // A call that the kernel refuses may have been given access to more than it uses; no harm is done.
            Ok(_) | Err(LookStop::Refused | LookStop::TooLarge) => continue,
        };
        return Err(Unsupported { nr, argument, addr, command: row.command(args), is_kept });
    }
    Ok(())
}

/// The arguments that the kernel is given: of pointers into shared memory, what `given` says, those inside structures included.
///
/// # Errors
/// The argument whose structures are too large to be copied.
///
/// # Safety
/// All that the call touches in the segment can be read.
pub unsafe fn kernel_arguments(
    row: &'static CallRow,
    nr: i64,
    args: &[u64; 6],
    shared: Shared,
    given: Given<'_>,
) -> Result<[u64; 6], TooLarge> {
    given.copies.clear();
    let mut new = *args;
    let mut visitor = Visitor { row, args, shared, found: &mut |_| (), given: Some(given) };
    for (argument, kind) in row.args.iter().enumerate() {
        new[argument] = match visitor.argument(argument, *kind) {
            Ok(kernel) => kernel,
            // Whatever the pointer leads to, the kernel refuses it.
            Err(LookStop::Refused) => visitor.kernel(args[argument]),
            // A number, or no business of this look.
            Err(LookStop::At(_) | LookStop::Kept(_)) => args[argument],
            Err(LookStop::TooLarge) => return Err(TooLarge { nr, argument }),
        };
    }
    Ok(new)
}

/// Structures that lead to shared memory and are larger than what can be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge {
    pub nr: i64,
    /// 0..6.
    pub argument: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (nr, argument) = (self.nr, self.argument + 1);
        write!(
            f,
            "system call {nr} ({}) has pointers into shared memory in structures of more than {} bytes (argument {argument}), which the gate does not copy",
            row(nr).name,
            copies::BYTES
        )
    }
}
