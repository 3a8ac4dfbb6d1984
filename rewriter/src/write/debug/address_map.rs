//! Old to new addresses, as debug information needs them.
//!
//! Input: an [`AddressMap`]. Output: new ranges for old ones. **Invariant**: a range that is no code of the module stays.

use crate::base::addresses::Vaddr;
use gimli::{EndianSlice, LittleEndian};
use std::ops::Range;

pub(super) type DebugSlice<'a> = EndianSlice<'a, LittleEndian>;

/// Where old code went.
pub trait AddressMap {
    /// New address of what begins at an old code address, or of the first code behind it. None: no code of the module.
    fn begin(&self, old: Vaddr) -> Option<Vaddr>;
    /// New address behind the last code before an old address.
    fn end(&self, old: Vaddr) -> Option<Vaddr>;
    /// Further places of instructions: loops whose first instruction begins in the range have copies. Old addresses and new code, by rising
    /// new address.
    fn copied(&self, _old: Range<Vaddr>) -> Vec<(Vaddr, Range<Vaddr>)> {
        Vec::new()
    }
    /// Likewise the full versions of the instructions in the range, which follow each other.
    fn full(&self, _old: Range<Vaddr>) -> Vec<(Vaddr, Range<Vaddr>)> {
        Vec::new()
    }
    /// Likewise the cold code of the instructions in the range, where `copied` has none, and what several share is not of theirs. Where the end of one is not where the next begins, there is other code.
    fn cold(&self, _old: Range<Vaddr>) -> Vec<(Vaddr, Range<Vaddr>)> {
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

/// Bytes at most between copied instructions: a jump.
const COPY_GAP_BYTES: u64 = 16;

/// Where else there is code of a range: its full versions, and its cold code, copies of loops included.
pub(super) fn elsewhere(map: &dyn AddressMap, from: u64, to: u64) -> Vec<Range<Vaddr>> {
    let old = Vaddr(from)..Vaddr(to);
    let full = map.full(old.clone());
    let full = full.first().zip(full.last()).map(|(first, last)| first.1.start..last.1.end);
    let mut all = Vec::from_iter(full);
    let mut parts: Vec<Range<Vaddr>> = map.cold(old.clone()).into_iter().map(|part| part.1).collect();
    parts.extend(map.copied(old).into_iter().map(|part| part.1));
    parts.sort_by_key(|part| part.start);
    // Jumps between the blocks of a copy are nobody's.
    let joins = |before: &Range<Vaddr>, part: &Range<Vaddr>| part.start - before.end <= COPY_GAP_BYTES;
    for part in parts {
        match all.last_mut() {
            Some(last) if last.end <= part.start && joins(last, &part) => last.end = part.end,
            _ => all.push(part),
        }
    }
    all
}

/// Most bytes that are made of a section: lists and programs that overlap, in a file that is none of a compiler's, would be
/// copied again and again.
pub(super) fn limit(old: usize) -> usize {
    old.saturating_mul(16).saturating_add(1 << 16)
}
