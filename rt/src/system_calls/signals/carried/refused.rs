//! Why an access is not carried out.
//!
//! Output: one text for each reason, for the line that ends the run.

use core::fmt;

/// The reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refused {
    /// More bytes are needed to tell.
    Truncated,
    Unknown,
    NoOperand,
    OtherAddress,
    Stack,
    Code,
    SegmentBase,
    SegmentRegister,
    SystemRegister,
    RipRelative,
    ShortAddress,
    NoRoom,
    Implicit64,
    FarTransfer,
    Tile,
    Memory,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Truncated => "it does not end where the memory that holds it ends",
            Refused::Unknown => "it is of no known form",
            Refused::NoOperand => "it has no memory operand",
            Refused::OtherAddress => "its operand is not what faulted",
            Refused::Stack => "the stack is in shared memory: a stack must be private; take it from malloc or mmap",
            Refused::Code => "code in shared memory cannot be executed",
            Refused::SegmentBase => "its address is formed with %fs or %gs",
            Refused::SegmentRegister => "it loads %fs, %gs or a far pointer",
            Refused::SystemRegister => "it stores a system register",
            Refused::RipRelative => "its address is relative to the instruction",
            Refused::ShortAddress => "it has an address of 32 bits",
            Refused::NoRoom => "it has no room for another prefix",
            Refused::Implicit64 => "it stores 64 bytes at an address in a register, which takes no prefix",
            Refused::FarTransfer => "it is a far jump or call",
            Refused::Tile => "it loads or stores a tile (AMX)",
            Refused::Memory => "the kernel gives no memory to execute it in",
        })
    }
}
