//! A call of the program, and what becomes of it.

use crate::kernel::ucontext::{REG_R8, REG_R9, REG_R10, REG_RDI, REG_RDX, REG_RSI, Ucontext};
use crate::memory::access_control::program;
use crate::system_calls::execution::stubs::Stub;
use crate::system_calls::table::calls::row;
use crate::system_calls::table::row::{Arg, Row};

/// A call as the program makes it.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub row: &'static Row,
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

    /// Its arguments as the kernel is given them.
    pub fn kernel_arguments(&self) -> [u64; 6] {
        kernel_arguments(self.row, &self.args, program::kernel_address)
    }

    /// The program makes it, at the plain stub.
    pub fn plain(&self) -> Outcome {
        Outcome::Run(Stub::Plain, self.args, 0)
    }
}

/// The registers that hold the arguments, in order.
pub const ARGUMENTS: [usize; 6] = [REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9];

/// The arguments of the call that a context makes.
pub fn arguments(context: &Ucontext) -> [u64; 6] {
    ARGUMENTS.map(|register| context.gregs[register])
}

/// The arguments that the kernel is given: of pointers into shared memory, what `of` says. Pointers inside structures stay.
pub fn kernel_arguments(row: &Row, args: &[u64; 6], of: impl Fn(u64) -> u64) -> [u64; 6] {
    let is_pointer = |i: usize| !matches!(row.args[i], Arg::Num | Arg::Never | Arg::Mapped(..));
    core::array::from_fn(|i| if is_pointer(i) { of(args[i]) } else { args[i] })
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done here, with this result.
    Done(i64),
    /// Executed at a stub, with these arguments; the word goes into r11.
    Run(Stub, [u64; 6], u64),
}

impl Outcome {
    /// The result is an error.
    pub fn error(number: i32) -> Outcome {
        Outcome::Done(-i64::from(number))
    }
}
