//! Newtypes for the addresses and offsets that the stages exchange.
//!
//! Input and output: numbers. **Invariant**: no stage passes a bare `u64` address.

use std::fmt;
use std::ops::{Add, Sub};

/// A link-time virtual address of the module being rewritten (input or output: both share one address space).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Vaddr(pub u64);

/// An offset in a file, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct FileOff(pub u64);

impl fmt::Debug for Vaddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Vaddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl Add<u64> for Vaddr {
    type Output = Vaddr;
    #[inline]
    fn add(self, bytes: u64) -> Vaddr {
        Vaddr(self.0.wrapping_add(bytes))
    }
}

impl Sub<Vaddr> for Vaddr {
    type Output = u64;
    #[inline]
    fn sub(self, other: Vaddr) -> u64 {
        self.0.wrapping_sub(other.0)
    }
}
