//! A call of the program, and what becomes of it.
//!
//! Input: number, arguments, and the place behind the call. Output: [`CallOutcome`]: what the program gets, or how it goes on.

use crate::kernel::ucontext::{REG_R8, REG_R9, REG_R10, REG_RDI, REG_RDX, REG_RSI, Ucontext};
use crate::system_calls::execution::given;
use crate::system_calls::execution::stubs::Stub;
use crate::system_calls::table::calls::row;
use crate::system_calls::table::row::CallRow;

/// A call as the program makes it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub row: &'static CallRow,
    pub nr: i64,
    pub args: [u64; 6],
    /// Address behind the `syscall` instruction.
    pub rip: u64,
    /// The program's stack pointer.
    pub rsp: u64,
}

impl Call {
    /// `rax`: the register with the number, of which the kernel looks at the lower half.
    pub fn new(rax: u64, args: [u64; 6], rip: u64, rsp: u64) -> Call {
        let nr = i64::from(rax as i32);
        Call { row: row(nr), nr, args, rip, rsp }
    }

    /// Its arguments as the kernel is given them: see [`given`].
    ///
    /// # Safety
    /// The program's call, its memory accessible.
    pub unsafe fn kernel_arguments(&self) -> [u64; 6] {
        // SAFETY: passed on from the caller.
        unsafe { given::kernel_arguments(self.row, self.nr, &self.args) }
    }

    /// The program makes it, at the plain stub.
    pub fn plain(&self) -> CallOutcome {
        CallOutcome::Run(Stub::Plain, self.args, 0)
    }
}

/// The registers that hold the arguments, in order.
pub const ARGUMENTS: [usize; 6] = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9];

/// The arguments of the call that a context makes.
pub fn arguments(context: &Ucontext) -> [u64; 6] {
    ARGUMENTS.map(|register| context.gregs[register])
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// Done here, with this result.
    Done(i64),
    /// Executed at a stub, with these arguments; the word goes into r11.
    Run(Stub, [u64; 6], u64),
}

impl CallOutcome {
    /// The result is an error.
    pub fn error(number: i32) -> CallOutcome {
        CallOutcome::Done(-i64::from(number))
    }
}
