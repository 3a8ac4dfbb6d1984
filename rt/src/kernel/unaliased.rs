//! Words that are looked at each time the runtime is entered or left, away from where messages are written.
//!
//! Purpose: a processor that has just stored compares only the low twelve bits of addresses before it lets a later load go ahead (Intel's manuals call it 4K
//! aliasing). A message is written to a line that belongs to another processor, so what waits for such a store waits for that line. Which words
//! were at the wrong addresses was a matter of how large the runtime's data happened to be: a request and its reply took 185 or 260 ns where the
//! processors are threads of one core, 300 or 420 ns on two cores. Input and output: a value.
//! **Invariant**: the head lines of rings, of their slots and of shuttles begin at multiples of 128 (`crate::transport::ring`); an [`Unaliased`] value begins 64
//! bytes behind one. Larger objects begin at a page, so that their place does not depend on the others.

use core::ops::Deref;

/// Bytes in front of the value: assembly names an [`Unaliased`] by its first one.
pub const OFFSET_BYTES: usize = 64;

/// A value in the second half of 128 bytes.
#[repr(C, align(128))]
pub struct Unaliased<T> {
    _first_line: [u64; 8],
    value: T,
}

impl<T> Unaliased<T> {
    pub const fn new(value: T) -> Unaliased<T> {
        Unaliased { _first_line: [0; 8], value }
    }
}

impl<T> Deref for Unaliased<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_contract::{RING_HEADER_BYTES, SLOT_BYTES};
    use core::sync::atomic::AtomicU64;

    #[test]
    fn values_are_not_where_messages_begin() {
        static WORD: Unaliased<AtomicU64> = Unaliased::new(AtomicU64::new(0));
        assert_eq!((&raw const *WORD) as usize, (&raw const WORD) as usize + OFFSET_BYTES);
        assert_eq!((&raw const *WORD) as u64 % 128, 64);
        assert_eq!((RING_HEADER_BYTES % 128, SLOT_BYTES % 128), (0, 0));
    }
}
