//! Debug sections whose encodings have fixed sizes, patched where they stand: `.debug_aranges`, `.debug_addr`, the range and
//! location lists of DWARF 2 to 4, and the addresses of `.gdb_index`.
//!
//! Input: old sections, a map of addresses. Output: patches.
//! Source: DWARF 5 sections 6.1.2, 7.21, 7.27; DWARF 4 sections 2.17.3, 2.6.2; gdb's manual, "Index Section Format".

use crate::base::addresses::Vaddr;
use crate::write::debug::address_map::{AddressMap, elsewhere, range};
use crate::write::debug::sections::{Patches, ReadSection, Sections};
use std::ops::Range;

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?)))
}

/// A unit of a section that consists of units.
struct UnitOf {
    start: usize,
    end: usize,
    /// Bytes of its length field, and of an offset.
    length: usize,
    offset: usize,
}

fn units(bytes: &[u8]) -> impl Iterator<Item = UnitOf> + '_ {
    let mut start = 0;
    std::iter::from_fn(move || {
        let (length, offset, size) = match half(bytes, start)? {
            0xffff_ffff => (12, 8, word(bytes, start + 4)?),
            size => (4, 4, size),
        };
        let end = start.checked_add(length)?.checked_add(usize::try_from(size).ok()?)?;
        if end > bytes.len() {
            return None;
        }
        let unit = UnitOf { start, end, length, offset };
        start = end;
        Some(unit)
    })
}

/// Addresses and lengths of `.debug_aranges`. The section anew where it must be longer: full versions and cold code lie elsewhere. gdb ignores a section with two sets
/// for one unit.
pub fn aranges(out: &mut Patches, sections: &Sections, map: &dyn AddressMap) -> Option<Vec<u8>> {
    let bytes = sections.bytes(ReadSection::Aranges);
    let (mut patched, mut longer) = (bytes.to_vec(), Vec::new());
    let mut done = 0;
    for unit in units(bytes) {
        // length, version 2, offset, address size 1, segment size 1; tuples are aligned to their size.
        let sizes = unit.start + unit.length + 2 + unit.offset;
        if bytes.get(sizes) != Some(&8) || bytes.get(sizes + 1) != Some(&0) {
            continue;
        }
        let first = unit.start + (sizes + 2 - unit.start).next_multiple_of(16);
        let (mut more, mut end) = (Vec::<u8>::new(), first);
        for at in (first..unit.end.saturating_sub(15)).step_by(16) {
            let (Some(from), Some(length)) = (word(bytes, at), word(bytes, at + 8)) else { break };
            if from == 0 && length == 0 {
                continue;
            }
            end = at + 16;
            let to = from.wrapping_add(length);
            let (begin, stop) = range(map, from, to);
            let tuple = [begin.to_le_bytes(), stop.wrapping_sub(begin).to_le_bytes()].concat();
            patched[at..at + 16].copy_from_slice(&tuple);
            for Range { start, end } in elsewhere(map, from, to) {
                more.extend([start.0, end - start].map(u64::to_le_bytes).as_flattened());
            }
        }
        if !more.is_empty() {
            // Sets begin at multiples of what their tuples are aligned to.
            let set = longer.len() + (unit.start - done);
            longer.extend(&patched[done..end]);
            longer.extend(more);
            // The last tuple is zero.
            longer.extend([0; 16]);
            let size = longer.len() - set - unit.length;
            longer[set + unit.length - unit.offset..set + unit.length]
                .copy_from_slice(&(size as u64).to_le_bytes()[..unit.offset]);
            done = unit.end;
        }
    }
    if done == 0 {
        out.patch(sections, ReadSection::Aranges, 0, &patched);
        return None;
    }
    longer.extend(&patched[done..]);
    Some(longer)
}

/// Code addresses in `.debug_addr`.
pub fn addresses(out: &mut Patches, sections: &Sections, map: &dyn AddressMap) {
    let bytes = sections.bytes(ReadSection::Addr);
    for unit in units(bytes) {
        // length, version 2, address size 1, segment size 1.
        let sizes = unit.start + unit.length + 2;
        if bytes.get(sizes) != Some(&8) || bytes.get(sizes + 1) != Some(&0) {
            continue;
        }
        for at in (sizes + 2..unit.end.saturating_sub(7)).step_by(8) {
            if let Some(new) = word(bytes, at).and_then(|old| map.begin(Vaddr(old))) {
                out.patch(sections, ReadSection::Addr, at, &new.0.to_le_bytes());
            }
        }
    }
}

/// The ranges of units in gdb's own index, by which it finds the unit of an address.
pub fn gdb_index(out: &mut Patches, sections: &Sections, map: &dyn AddressMap) {
    let bytes = sections.bytes(ReadSection::GdbIndex);
    // version, then offsets: units, type units, addresses, symbols, (from version 9 on: shortcuts,) strings.
    let (Some(4..), Some(from), Some(to)) = (half(bytes, 0), half(bytes, 12), half(bytes, 16)) else { return };
    for at in (from as usize..(to as usize).min(bytes.len()).saturating_sub(19)).step_by(20) {
        let (Some(low), Some(high)) = (word(bytes, at), word(bytes, at + 8)) else { return };
        let (begin, end) = range(map, low, high);
        out.patch(sections, ReadSection::GdbIndex, at, &begin.to_le_bytes());
        out.patch(sections, ReadSection::GdbIndex, at + 8, &end.to_le_bytes());
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
    walk(out, sections, ReadSection::Ranges, map, (offset, low_pc), budget, |_, _| Some(0));
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
    walk(out, sections, ReadSection::Loc, map, (offset, low_pc), budget, |bytes, at| {
        let length = bytes.get(at..at + 2)?;
        Some(2 + usize::from(u16::from_le_bytes([length[0], length[1]])))
    });
}

/// `more`: how many bytes follow a pair.
fn walk(
    out: &mut Patches,
    sections: &Sections,
    id: ReadSection,
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
