//! Why an access is not carried out.
//!
//! Output: one text for each reason, for the line that ends the run.

use core::fmt;

/// The reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CarryRefused {
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

impl fmt::Display for CarryRefused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CarryRefused::Truncated => "it does not end where the memory that holds it ends",
            CarryRefused::Unknown => "it is of no known form",
            CarryRefused::NoOperand => "it has no memory operand",
            CarryRefused::OtherAddress => "its operand is not what faulted",
            CarryRefused::Stack => {
                "the stack is in shared memory: a stack must be private; take it from malloc or mmap"
            }
            CarryRefused::Code => "code in shared memory cannot be executed",
            CarryRefused::SegmentBase => "its address is formed with %fs or %gs",
            CarryRefused::SegmentRegister => "it loads %fs, %gs or a far pointer",
            CarryRefused::SystemRegister => "it stores a system register",
            CarryRefused::RipRelative => "its address is relative to the instruction",
            CarryRefused::ShortAddress => "it has an address of 32 bits",
            CarryRefused::NoRoom => "it has no room for another prefix",
            CarryRefused::Implicit64 => "it stores 64 bytes at an address in a register, which takes no prefix",
            CarryRefused::FarTransfer => "it is a far jump or call",
            CarryRefused::Tile => "it loads or stores a tile (AMX)",
            CarryRefused::Memory => "the kernel gives no memory to execute it in",
        })
    }
}
