//! Debug sections whose encodings have fixed sizes, patched where they stand: `.debug_aranges`, `.debug_addr`, and the range and
//! location lists of DWARF 4.

use super::{AddressMap, Patches, Sections, range};
use crate::ids::Vaddr;
use gimli::SectionId;

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?)))
}

/// Start and end of each unit of a section that consists of units, and where its fields behind the length begin.
fn units(bytes: &[u8]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let length = half(bytes, at)?;
        // 64-bit DWARF is not rewritten.
        let end = at.checked_add(4)?.checked_add(length as usize)?;
        if length >= 0xffff_fff0 || end > bytes.len() {
            return None;
        }
        let unit = (at, end);
        at = end;
        Some(unit)
    })
}

/// Addresses and lengths of `.debug_aranges`.
pub fn aranges(out: &mut Patches, sections: &Sections, map: &dyn AddressMap) {
    let bytes = sections.bytes(SectionId::DebugAranges);
    for (start, end) in units(bytes) {
        // length 4, version 2, offset 4, address size 1, segment size 1; tuples are aligned to their size.
        if bytes.get(start + 10) != Some(&8) || bytes.get(start + 11) != Some(&0) {
            continue;
        }
        for at in (start + 16..end.saturating_sub(15)).step_by(16) {
            let (Some(from), Some(length)) = (word(bytes, at), word(bytes, at + 8)) else { break };
            if from == 0 && length == 0 {
                continue;
            }
            let (begin, stop) = range(map, from, from.wrapping_add(length));
            out.patch(sections, SectionId::DebugAranges, at, &begin.to_le_bytes());
            out.patch(sections, SectionId::DebugAranges, at + 8, &stop.wrapping_sub(begin).to_le_bytes());
        }
    }
}

/// Code addresses in `.debug_addr`.
pub fn addresses(out: &mut Patches, sections: &Sections, map: &dyn AddressMap) {
    let bytes = sections.bytes(SectionId::DebugAddr);
    for (start, end) in units(bytes) {
        // length 4, version 2, address size 1, segment size 1.
        if bytes.get(start + 6) != Some(&8) || bytes.get(start + 7) != Some(&0) {
            continue;
        }
        for at in (start + 8..end.saturating_sub(7)).step_by(8) {
            if let Some(new) = word(bytes, at).and_then(|old| map.begin(Vaddr(old))) {
                out.patch(sections, SectionId::DebugAddr, at, &new.0.to_le_bytes());
            }
        }
    }
}

/// The base that offsets of a list count from, old and new.
struct Base {
    old: u64,
    new: u64,
}

impl Base {
    fn at(map: &dyn AddressMap, old: u64) -> Base {
        Base { old, new: map.begin(Vaddr(old)).map_or(old, |v| v.0) }
    }

    /// A pair of offsets at its new place.
    fn pair(&self, map: &dyn AddressMap, from: u64, to: u64) -> (u64, u64) {
        let (begin, end) = range(map, self.old.wrapping_add(from), self.old.wrapping_add(to));
        (begin.wrapping_sub(self.new), end.wrapping_sub(self.new))
    }
}

/// A list of `.debug_ranges`.
pub fn ranges(
    out: &mut Patches,
    sections: &Sections,
    map: &dyn AddressMap,
    offset: usize,
    low_pc: u64,
    budget: &mut usize,
) {
    walk(out, sections, SectionId::DebugRanges, map, (offset, low_pc), budget, |_, _| Some(0));
}

/// A list of `.debug_loc`: each pair is followed by an expression with a 16-bit length.
pub fn locations(
    out: &mut Patches,
    sections: &Sections,
    map: &dyn AddressMap,
    offset: usize,
    low_pc: u64,
    budget: &mut usize,
) {
    walk(out, sections, SectionId::DebugLoc, map, (offset, low_pc), budget, |bytes, at| {
        let length = bytes.get(at..at + 2)?;
        Some(2 + usize::from(u16::from_le_bytes([length[0], length[1]])))
    });
}

/// `more`: how many bytes follow a pair.
fn walk(
    out: &mut Patches,
    sections: &Sections,
    id: SectionId,
    map: &dyn AddressMap,
    (offset, low_pc): (usize, u64),
    budget: &mut usize,
    more: impl Fn(&[u8], usize) -> Option<usize>,
) {
    let bytes = sections.bytes(id);
    let mut base = Base::at(map, low_pc);
    let mut at = offset;
    while let (Some(from), Some(to)) = (word(bytes, at), word(bytes, at + 8)) {
        if from == 0 && to == 0 || *budget == 0 {
            return;
        }
        *budget -= 1;
        if from == u64::MAX {
            base = Base::at(map, to);
            out.patch(sections, id, at + 8, &base.new.to_le_bytes());
            at += 16;
            continue;
        }
        let (begin, end) = base.pair(map, from, to);
        out.patch(sections, id, at, &begin.to_le_bytes());
        out.patch(sections, id, at + 8, &end.to_le_bytes());
        let Some(more) = more(bytes, at + 16) else { return };
        at += 16 + more;
    }
}
