//! DWARF at new addresses, so that debuggers, profilers and backtraces find source lines, variables and inlined functions.
//!
//! Input: the input's debug sections and an [`AddressMap`]. Output: patches of the output's copy of them, and new contents for the
//! sections whose encodings change size (`.debug_line`, and of version 5 `.debug_rnglists` and `.debug_loclists`).
//! Everything with a fixed width is patched where it stands: addresses, lengths, offsets, and all of `.debug_aranges`,
//! `.debug_addr`, `.debug_ranges` and `.debug_loc`. New lists stand in one unit behind the old ones, whose index tables lead there.
//!
//! Invariant: what is not understood stays as it was; debug information is never a reason to refuse a program.
//! Not rewritten: compressed sections, split DWARF (`.dwo`), 64-bit DWARF, call-frame sections of debug files.
//! Source: DWARF 4 and 5, sections 2.17, 6.1.2, 6.2, 7.7.3, 7.26 to 7.29.

mod fixed;
mod line;
mod lists;

use super::output::{Output, Window};
use crate::ids::Vaddr;
use crate::image::Image;
use gimli::{
    AttributeValue, DebugLineOffset, Dwarf, EndianSlice, LittleEndian, SectionId, Unit, UnitHeader, constants as c,
};
use lists::NewLists;
use object::elf::{FileHeader64, SHF_COMPRESSED, SHT_NOBITS, SectionHeader64};
use object::read::elf::{FileHeader, SectionHeader};
use object::{LittleEndian as LE, SectionIndex};
use std::collections::HashMap;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

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
}

/// New contents of a section.
pub struct Replaced {
    /// Index in the input's section-header table.
    pub section: usize,
    pub bytes: Vec<u8>,
}

/// A range at its new place; one that is no code of the module stays.
fn range(map: &dyn AddressMap, from: u64, to: u64) -> (u64, u64) {
    match (map.begin(Vaddr(from)), map.end(Vaddr(to))) {
        (Some(begin), Some(end)) if from < to => (begin.0, end.0.max(begin.0)),
        (Some(begin), _) => (begin.0, begin.0 + (to.wrapping_sub(from))),
        _ => (from, to),
    }
}

/// The debug sections of the input, by identity: header index, file offset, bytes.
struct Sections<'a>(HashMap<SectionId, (usize, usize, &'a [u8])>);

impl<'a> Sections<'a> {
    fn find(image: &Image<'a>) -> Option<Sections<'a>> {
        let header = FileHeader64::<LE>::parse(image.data).ok()?;
        let table = header.sections(LE, image.data).ok()?;
        let mut found = HashMap::new();
        for (index, section) in table.enumerate() {
            let name = table.section_name(LE, section).unwrap_or(&[]);
            let Some(id) = std::str::from_utf8(name).ok().and_then(by_name) else { continue };
            if !usable(section) {
                continue;
            }
            let SectionIndex(index) = index;
            let bytes = section.data(LE, image.data).ok()?;
            found.insert(id, (index, section.sh_offset.get(LE) as usize, bytes));
        }
        (found.contains_key(&SectionId::DebugInfo) && found.contains_key(&SectionId::DebugAbbrev))
            .then_some(Sections(found))
    }

    fn bytes(&self, id: SectionId) -> &'a [u8] {
        self.0.get(&id).map_or(&[], |s| s.2)
    }
}

/// The output's copy of the input's debug sections, with the part of each that was patched last.
struct Patches<'x, 'o> {
    out: &'x mut Output<'o>,
    windows: HashMap<SectionId, Window>,
}

impl Patches<'_, '_> {
    /// Overwrites bytes of a section.
    fn patch(&mut self, sections: &Sections, id: SectionId, at: usize, bytes: &[u8]) {
        if let Some(&(_, off, old)) = sections.0.get(&id)
            && at.checked_add(bytes.len()).is_some_and(|end| end <= old.len())
        {
            let window = self.windows.entry(id).or_insert_with(|| Window::up_to((off + old.len()) as u64));
            self.out.patch_through(window, (off + at) as u64, bytes);
        }
    }

    fn close(mut self) {
        self.windows.values_mut().for_each(|window| self.out.close(window));
    }
}

/// Most bytes that are made of a section: lists and programs that overlap, in a file that is none of a compiler's, would be
/// copied again and again.
fn limit(old: usize) -> usize {
    old.saturating_mul(16).saturating_add(1 << 16)
}

fn usable(section: &SectionHeader64<LE>) -> bool {
    let compressed = section.sh_flags.get(LE).0 & SHF_COMPRESSED.0 != 0;
    section.sh_type.get(LE) != SHT_NOBITS && !compressed
}

fn by_name(name: &str) -> Option<SectionId> {
    const IDS: [SectionId; 14] = [
        SectionId::DebugAbbrev,
        SectionId::DebugAddr,
        SectionId::DebugAranges,
        SectionId::DebugInfo,
        SectionId::DebugLine,
        SectionId::DebugLineStr,
        SectionId::DebugLoc,
        SectionId::DebugLocLists,
        SectionId::DebugRanges,
        SectionId::DebugRngLists,
        SectionId::DebugStr,
        SectionId::DebugStrOffsets,
        SectionId::DebugTypes,
        SectionId::DebugCuIndex,
    ];
    IDS.into_iter().find(|id| id.name() == name)
}

/// Patches `out`, which begins with a copy of the input, and returns the sections with new contents.
pub fn rewrite(out: &mut Output, image: &Image, map: &dyn AddressMap) -> Vec<Replaced> {
    let Some(sections) = Sections::find(image) else { return Vec::new() };
    let load = |id: SectionId| Ok::<_, gimli::Error>(EndianSlice::new(sections.bytes(id), LittleEndian));
    let Ok(dwarf) = Dwarf::load(load) else { return Vec::new() };
    let mut work = Rewrite {
        out: Patches { out, windows: HashMap::new() },
        map,
        dwarf: &dwarf,
        sections: &sections,
        lines: Vec::new(),
        programs: HashMap::new(),
        ranges: NewLists::new(sections.bytes(SectionId::DebugRngLists)),
        locations: NewLists::new(sections.bytes(SectionId::DebugLocLists)),
        done: Default::default(),
        budget: limit(sections.bytes(SectionId::DebugRanges).len() + sections.bytes(SectionId::DebugLoc).len()),
    };
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        // A damaged unit is left as far as it was read.
        let _ = work.unit(header, SectionId::DebugInfo);
    }
    let mut units = dwarf.type_units();
    while let Ok(Some(header)) = units.next() {
        let _ = work.unit(header, SectionId::DebugTypes);
    }
    let Rewrite { mut out, lines, ranges, locations, .. } = work;
    fixed::aranges(&mut out, &sections, map);
    fixed::addresses(&mut out, &sections, map);
    out.close();
    let new = [
        (SectionId::DebugLine, (!lines.is_empty()).then_some(lines)),
        (SectionId::DebugRngLists, ranges.finish()),
        (SectionId::DebugLocLists, locations.finish()),
    ];
    new.into_iter()
        .filter_map(|(id, bytes)| Some(Replaced { section: sections.0.get(&id)?.0, bytes: bytes? }))
        .collect()
}

struct Rewrite<'x, 'o, 'a> {
    out: Patches<'x, 'o>,
    map: &'x dyn AddressMap,
    dwarf: &'x Dwarf<Slice<'a>>,
    sections: &'x Sections<'a>,
    /// The new `.debug_line`.
    lines: Vec<u8>,
    /// New offsets of its programs by old ones.
    programs: HashMap<usize, usize>,
    ranges: NewLists,
    locations: NewLists,
    /// Lists of version 4 that have been patched.
    done: std::collections::HashSet<(SectionId, usize)>,
    /// How many of their entries may still be visited.
    budget: usize,
}

/// What the attributes of one entry say of its extent.
#[derive(Default)]
struct Extent {
    low: Option<u64>,
    /// Place, bytes and value of a high_pc that is a length; its form is a ULEB128.
    length: Option<(usize, usize, u64, bool)>,
}

impl<'a> Rewrite<'_, '_, 'a> {
    fn unit(&mut self, header: UnitHeader<Slice<'a>>, section: SectionId) -> gimli::Result<()> {
        let start = header.offset().0;
        let unit = self.dwarf.unit(header)?;
        if unit.encoding().address_size != 8 || unit.encoding().format != gimli::Format::Dwarf32 {
            return Ok(());
        }
        let abbreviations = unit.abbreviations.clone();
        let mut raw = unit.header.entries_raw(&abbreviations, None)?;
        while !raw.is_empty() {
            let Some(abbreviation) = raw.read_abbreviation()? else { continue };
            let mut extent = Extent::default();
            for spec in abbreviation.attributes() {
                let at = start + raw.next_offset().0;
                let attribute = raw.read_attribute(*spec)?;
                let bytes = start + raw.next_offset().0 - at;
                self.attribute(&unit, section, (at, bytes), spec.form(), &attribute, &mut extent)?;
            }
            self.length(section, &extent);
        }
        Ok(())
    }

    fn attribute(
        &mut self,
        unit: &Unit<Slice<'a>>,
        section: SectionId,
        (at, bytes): (usize, usize),
        form: c::DwForm,
        attribute: &gimli::Attribute<Slice<'a>>,
        extent: &mut Extent,
    ) -> gimli::Result<()> {
        let name = attribute.name();
        match attribute.value() {
            AttributeValue::Addr(old) => {
                if name == c::DW_AT_low_pc {
                    extent.low = Some(old);
                }
                let new = match name {
                    c::DW_AT_high_pc => self.map.end(Vaddr(old)),
                    _ => self.map.begin(Vaddr(old)),
                };
                if let Some(new) = new {
                    self.out.patch(self.sections, section, at, &new.0.to_le_bytes());
                }
            }
            // The address stands in .debug_addr.
            AttributeValue::DebugAddrIndex(index) if name == c::DW_AT_low_pc => {
                extent.low = Some(self.dwarf.address(unit, index)?);
            }
            AttributeValue::DebugLineRef(offset) if name == c::DW_AT_stmt_list => {
                if let Some(new) = self.program(unit, offset) {
                    self.out.patch(self.sections, section, at, &(new as u32).to_le_bytes());
                }
            }
            value if name == c::DW_AT_high_pc => {
                if let Some(length) = value.udata_value() {
                    extent.length = Some((at, bytes, length, form == c::DW_FORM_udata));
                }
            }
            value if name == c::DW_AT_ranges => {
                if let Some(offset) = self.dwarf.attr_ranges_offset(unit, value)? {
                    let indexed = match value {
                        AttributeValue::DebugRngListsIndex(i) => {
                            Some(unit.rnglists_base.0.wrapping_add(i.0.wrapping_mul(4)))
                        }
                        _ => None,
                    };
                    if unit.encoding().version < 5 {
                        if self.done.insert((SectionId::DebugRanges, offset.0)) {
                            fixed::ranges(
                                &mut self.out,
                                self.sections,
                                self.map,
                                offset.0,
                                unit.low_pc,
                                &mut self.budget,
                            );
                        }
                    } else {
                        let new = self.ranges.ranges(self.dwarf, unit, offset, self.map)?;
                        match indexed {
                            Some(slot) => self.ranges.index(slot, new.wrapping_sub(unit.rnglists_base.0)),
                            None => self.out.patch(self.sections, section, at, &(new as u32).to_le_bytes()),
                        }
                    }
                }
            }
            value => {
                if let Some(offset) = self.dwarf.attr_locations_offset(unit, value)? {
                    let indexed = match value {
                        AttributeValue::DebugLocListsIndex(i) => {
                            Some(unit.loclists_base.0.wrapping_add(i.0.wrapping_mul(4)))
                        }
                        _ => None,
                    };
                    // The view numbers of GNU stand in the same section and name no address.
                    if name == c::DW_AT_GNU_locviews {
                        return Ok(());
                    }
                    if unit.encoding().version < 5 {
                        if self.done.insert((SectionId::DebugLoc, offset.0)) {
                            fixed::locations(
                                &mut self.out,
                                self.sections,
                                self.map,
                                offset.0,
                                unit.low_pc,
                                &mut self.budget,
                            );
                        }
                    } else {
                        let new = self.locations.locations(self.dwarf, unit, offset, self.map)?;
                        match indexed {
                            Some(slot) => self.locations.index(slot, new.wrapping_sub(unit.loclists_base.0)),
                            None => self.out.patch(self.sections, section, at, &(new as u32).to_le_bytes()),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// A high_pc that is a length: the new one, as far as its field holds it.
    fn length(&mut self, section: SectionId, extent: &Extent) {
        let (Some(low), Some((at, bytes, length, uleb))) = (extent.low, extent.length) else { return };
        if self.map.begin(Vaddr(low)).is_none() {
            return;
        }
        let (begin, end) = range(self.map, low, low.wrapping_add(length));
        let new = end - begin;
        let bits = bytes as u32 * if uleb { 7 } else { 8 };
        let new = if bits < 64 { new.min((1 << bits) - 1) } else { new };
        let field: Vec<u8> = match uleb {
            true => {
                let last = bytes - 1;
                (0..bytes).map(|k| (new >> (7 * k) & 0x7f) as u8 | if k < last { 0x80 } else { 0 }).collect()
            }
            false => new.to_le_bytes()[..bytes.min(8)].to_vec(),
        };
        self.out.patch(self.sections, section, at, &field);
    }

    /// The new offset of a line program, which is written when it is first named.
    fn program(&mut self, unit: &Unit<Slice<'a>>, old: DebugLineOffset) -> Option<usize> {
        if let Some(new) = self.programs.get(&old.0) {
            return Some(*new);
        }
        let program = unit.line_program.clone().filter(|p| p.header().offset() == old)?;
        let at = self.lines.len();
        if at > limit(self.sections.bytes(SectionId::DebugLine).len()) {
            return None;
        }
        line::rewrite(self.sections.bytes(SectionId::DebugLine), program, self.map, &mut self.lines)?;
        self.programs.insert(old.0, at);
        Some(at)
    }
}
