//! Old to new addresses, as debug information needs them.
//!
//! Input: an [`AddressMap`]. Output: new ranges for old ones. **Invariant**: a range that is no code of the module stays.

use crate::base::addresses::Vaddr;
use gimli::{EndianSlice, LittleEndian};

pub(super) type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Where old code went.
pub trait AddressMap {
    /// New address of what begins at an old code address, or of the first code behind it. None: no code of the module.
    fn begin(&self, old: Vaddr) -> Option<Vaddr>;
    /// New address behind the last code before an old address.
    fn end(&self, old: Vaddr) -> Option<Vaddr>;
    /// Further places of instructions: loops whose first instruction begins in the range have copies. Old addresses and new code, by rising
    /// new address.
    fn copied(&self, _old: std::ops::Range<Vaddr>) -> Vec<(Vaddr, std::ops::Range<Vaddr>)> {
        Vec::new()
    }
    /// Likewise the full versions of the instructions in the range, which follow each other.
    fn full(&self, _old: std::ops::Range<Vaddr>) -> Vec<(Vaddr, std::ops::Range<Vaddr>)> {
        Vec::new()
    }
}

/// A range at its new place; one that is no code of the module stays.
pub(super) fn range(map: &dyn AddressMap, from: u64, to: u64) -> (u64, u64) {
    match (map.begin(Vaddr(from)), map.end(Vaddr(to))) {
        (Some(begin), Some(end)) if from < to => (begin.0, end.0.max(begin.0)),
        (Some(begin), _) => (begin.0, begin.0 + (to.wrapping_sub(from))),
        _ => (from, to),
    }
}

/// Most bytes that are made of a section: lists and programs that overlap, in a file that is none of a compiler's, would be
/// copied again and again.
pub(super) fn limit(old: usize) -> usize {
    old.saturating_mul(16).saturating_add(1 << 16)
}
