//! DWARF at new addresses, so that debuggers, profilers and backtraces find source lines, variables and inlined functions.
//!
//! Input: the debug sections of the input or of its separate debug file, and an [`AddressMap`]. Output: patches of the output's copy of them, and
//! new contents for the sections whose encodings change size (`.debug_line`, `.debug_frame`, and of version 5 `.debug_rnglists` and
//! `.debug_loclists`). Everything with a fixed width is patched where it stands: addresses, lengths, offsets, and all of `.debug_aranges`,
//! `.debug_addr`, `.debug_ranges`, `.debug_loc` and `.gdb_index`. New lists stand in one unit behind the old ones, whose index tables lead there.
//! Compressed sections that change are written uncompressed, behind everything else.
//!
//! Split DWARF: the part in the program follows the code. The parts in other files (`.dwo`, `.dwp`) hold lengths and lists of old
//! code, so they are left behind: the units' identities are changed, and a debugger says that it misses them instead of believing them.
//!
//! Invariant: what is not understood stays as it was; debug information is never a reason to refuse a program.
//! Source: DWARF 5 (and 2 to 4 where they differ), sections 2.17, 6.1.2, 6.2, 7.3.2, 7.5.1, 7.7.3, 7.26 to 7.29; GNU's split DWARF 4.

use crate::base::addresses::Vaddr;
use crate::read::image::Image;
use crate::write::debug::address_map::{AddressMap, DebugSlice, limit, range};
use crate::write::debug::lists::NewLists;
use crate::write::debug::sections::{Moved, Patches, ReadSection, Sections};
use crate::write::debug::{fixed, line};
use crate::write::frames::{debug_frame, pieces};
use crate::write::output::Output;
use gimli::{
    Abbreviation, AttributeValue, DebugLineOffset, Dwarf, EndianSlice, LittleEndian, Reader, SectionId, Unit,
    UnitHeader, UnitType, constants as c,
};
use std::collections::{HashMap, HashSet};

/// Patches `out`, which begins with a copy of the input, and appends to it what changes size; returns the sections that are now elsewhere.
pub fn rewrite(out: &mut Output, image: &Image, map: &(impl AddressMap + pieces::CodeMap)) -> Vec<Moved> {
    let Some(sections) = Sections::find(image) else { return Vec::new() };
    let load = |id: SectionId| {
        let bytes = ReadSection::named(id.name()).map_or(&[][..], |id| sections.bytes(id));
        Ok::<_, gimli::Error>(EndianSlice::new(bytes, LittleEndian))
    };
    let Ok(dwarf) = Dwarf::load(load) else { return Vec::new() };
    let mut out = Patches::new(out);
    let mut work = Rewrite {
        out: &mut out,
        map,
        dwarf: &dwarf,
        sections: &sections,
        lines: Vec::new(),
        programs: HashMap::new(),
        ranges: NewLists::new(sections.bytes(ReadSection::RngLists)),
        locations: NewLists::new(sections.bytes(ReadSection::LocLists)),
        done: Default::default(),
        budget: limit(sections.bytes(ReadSection::Ranges).len() + sections.bytes(ReadSection::Loc).len()),
    };
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        // A damaged unit is left as far as it was read.
        let _ = work.unit(header, ReadSection::Info);
    }
    let mut units = dwarf.type_units();
    while let Ok(Some(header)) = units.next() {
        let _ = work.unit(header, ReadSection::Types);
    }
    let Rewrite { lines, ranges, locations, .. } = work;
    let aranges = fixed::aranges(&mut out, &sections, map);
    fixed::addresses(&mut out, &sections, map);
    fixed::gdb_index(&mut out, &sections, map);
    let tail = |va: Vaddr| image.bytes_at(va, usize::MAX);
    let new = [
        (ReadSection::Aranges, aranges),
        (ReadSection::Frame, debug_frame::build_debug(sections.bytes(ReadSection::Frame), &tail, map)),
        (ReadSection::Line, (!lines.is_empty()).then_some(lines)),
        (ReadSection::RngLists, ranges.finish()),
        (ReadSection::LocLists, locations.finish()),
    ];
    let new = new.into_iter().filter_map(|(id, bytes)| Some((id, bytes?))).collect();
    drop(dwarf);
    out.finish(sections, new)
}

struct Rewrite<'w, 'x, 'o, 'a> {
    out: &'w mut Patches<'x, 'o>,
    map: &'w dyn AddressMap,
    dwarf: &'w Dwarf<DebugSlice<'a>>,
    sections: &'w Sections<'w>,
    /// The new `.debug_line`.
    lines: Vec<u8>,
    /// New offsets of its programs by old ones.
    programs: HashMap<usize, usize>,
    ranges: NewLists,
    locations: NewLists,
    /// Lists of version 4 that have been patched.
    done: HashSet<(ReadSection, usize)>,
    /// How many of their entries may still be visited.
    budget: usize,
}

/// What the attributes of one entry say of its extent.
#[derive(Default)]
struct Extent {
    low: Option<u64>,
    /// Place, bytes and value of a high_pc that is a length; its form is a ULEB128.
    length: Option<(usize, usize, u64, bool)>,
    /// Its low_pc is where a call returns to.
    return_site: bool,
}

/// What a unit whose other part holds old addresses is called instead.
fn other_identity(id: u64) -> u64 {
    !id
}

/// The first bytes of a number, which are all of it in a field of so many bytes.
fn field(number: usize, bytes: usize) -> Vec<u8> {
    (number as u64).to_le_bytes()[..bytes.min(8)].to_vec()
}

/// Where the `first` attribute stands in the declaration of an abbreviation; the table of these begins at `offset`. None if it and what follows, `few` in all, have
/// longer names than two bytes.
fn declaration(table: &[u8], offset: usize, wanted: &Abbreviation, first: usize, few: usize) -> Option<usize> {
    let mut rest = EndianSlice::new(table.get(offset..)?, LittleEndian);
    let here = |rest: &DebugSlice| table.len() - rest.len();
    loop {
        let code = rest.read_uleb128().ok().filter(|code| *code != 0)?;
        rest.read_uleb128().ok()?;
        rest.skip(1).ok()?;
        let mut places = vec![here(&rest)];
        loop {
            let [name, form] = [rest.read_uleb128().ok()?, rest.read_uleb128().ok()?];
            if (name, form) == (0, 0) {
                break;
            }
            if form == u64::from(c::DW_FORM_implicit_const.0) {
                rest.read_sleb128().ok()?;
            }
            places.push(here(&rest));
        }
        if code == wanted.code() {
            let (from, to) = (*places.get(first)?, *places.get(first + few)?);
            return (to == from + 2 * few).then_some(from);
        }
    }
}

impl<'a> Rewrite<'_, '_, '_, 'a> {
    fn unit(&mut self, header: UnitHeader<DebugSlice<'a>>, section: ReadSection) -> gimli::Result<()> {
        let start = header.offset().0;
        let unit = self.dwarf.unit(header)?;
        if unit.encoding().address_size != 8 {
            return Ok(());
        }
        if let UnitType::Skeleton(id) = unit.header.type_() {
            // Behind length, version, unit type, address size and offset of the abbreviations.
            let format = unit.encoding().format;
            let at = start + usize::from(format.initial_length_size()) + 4 + usize::from(format.word_size());
            self.out.patch(self.sections, section, at, &other_identity(id.0).to_le_bytes());
            self.stand_alone(unit.header.debug_abbrev_offset().0);
        }
        let abbreviations = unit.abbreviations.clone();
        let mut raw = unit.header.entries_raw(&abbreviations, None)?;
        let mut is_root = true;
        while !raw.is_empty() {
            let Some(abbreviation) = raw.read_abbreviation()? else { continue };
            let mut low_at = None;
            let mut extent = Extent { return_site: abbreviation.tag() == c::DW_TAG_GNU_call_site, ..Extent::default() };
            for spec in abbreviation.attributes() {
                let at = start + raw.next_offset().0;
                let attribute = raw.read_attribute(*spec)?;
                let bytes = start + raw.next_offset().0 - at;
                low_at = low_at.or((spec.name() == c::DW_AT_low_pc).then_some(at));
                self.attribute(&unit, section, (at, bytes), spec.form(), &attribute, &mut extent)?;
            }
            let is_unit = std::mem::take(&mut is_root) && section == ReadSection::Info;
            if !is_unit || self.spread(&unit, abbreviation, low_at, &extent).is_none() {
                self.length(section, &extent);
            }
        }
        Ok(())
    }

    /// Gives a unit of one range a list of ranges: its full versions and its cold code lie elsewhere, and gdb shows lines only where the unit says that its code is. The
    /// list's offset stands in place of what were both bounds, or the length alone; so entries keep their sizes. None: the unit is another one. Whether it is depends on
    /// its abbreviation alone, which several may share.
    fn spread(
        &mut self,
        unit: &Unit<DebugSlice<'a>>,
        abbreviation: &Abbreviation,
        low_at: Option<usize>,
        extent: &Extent,
    ) -> Option<()> {
        /// How a list of ranges is named; and what fills the rest of two addresses: a block that says its length, of an attribute that units have not.
        const LIST: [u8; 2] = [c::DW_AT_ranges.0 as u8, c::DW_FORM_sec_offset.0 as u8];
        const FILLING: [u8; 2] = [c::DW_AT_const_value.0 as u8, c::DW_FORM_block1.0 as u8];
        const LIST_BYTES: usize = 4;
        let encoding = unit.encoding();
        if encoding.version != 5
            || encoding.format != gimli::Format::Dwarf32
            || abbreviation.tag() != c::DW_TAG_compile_unit
        {
            return None;
        }
        let specs = abbreviation.attributes();
        let place = |name| specs.iter().position(|spec| spec.name() == name);
        let (low, high) = (place(c::DW_AT_low_pc)?, place(c::DW_AT_high_pc)?);
        let (length_at, _, length, _) = extent.length?;
        let (from, at, names, filling) = match (specs[low].form(), specs[high].form()) {
            (c::DW_FORM_addr, c::DW_FORM_data8) if high == low + 1 => {
                (low, low_at?, [LIST, FILLING].concat(), 16 - LIST_BYTES)
            }
            (_, c::DW_FORM_data4) => (high, length_at, LIST.to_vec(), 0),
            _ => return None,
        };
        let (table, table_at) = (self.sections.bytes(ReadSection::Abbrev), unit.header.debug_abbrev_offset().0);
        let declared = declaration(table, table_at, abbreviation, from, names.len() / 2)?;
        let low_pc = extent.low?;
        let list = self.ranges.of_unit(low_pc, low_pc.wrapping_add(length), self.map);
        let mut field = (list as u32).to_le_bytes().to_vec();
        if filling > 0 {
            field.push(filling as u8 - 1);
            field.resize(LIST_BYTES + filling, 0);
        }
        self.out.patch(self.sections, ReadSection::Info, at, &field);
        self.out.patch(self.sections, ReadSection::Abbrev, declared, &names);
        Some(())
    }

    /// Makes the tag of a skeleton unit, whose abbreviations stand at `offset`, that of a whole one: without the other part gdb refuses a skeleton
    /// of version 5, and then shows no lines.
    fn stand_alone(&mut self, offset: usize) {
        const SKELETON: u8 = c::DW_TAG_skeleton_unit.0 as u8;
        // The first abbreviation is that of the first entry, as all compilers number them.
        if let Some([1, SKELETON]) = self.sections.bytes(ReadSection::Abbrev).get(offset..offset.saturating_add(2)) {
            self.out.patch(self.sections, ReadSection::Abbrev, offset + 1, &[c::DW_TAG_compile_unit.0 as u8]);
        }
    }

    fn attribute(
        &mut self,
        unit: &Unit<DebugSlice<'a>>,
        section: ReadSection,
        (at, bytes): (usize, usize),
        form: c::DwForm,
        attribute: &gimli::Attribute<DebugSlice<'a>>,
        extent: &mut Extent,
    ) -> gimli::Result<()> {
        let name = attribute.name();
        let width = usize::from(unit.encoding().format.word_size());
        match attribute.value() {
            AttributeValue::Addr(old) => {
                if name == c::DW_AT_low_pc {
                    extent.low = Some(old);
                }
                let new = match name {
                    // A call returns to where its own new code ends; the next function's may begin behind padding.
                    c::DW_AT_high_pc | c::DW_AT_call_return_pc => self.map.end(Vaddr(old)),
                    c::DW_AT_low_pc if extent.return_site => self.map.end(Vaddr(old)),
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
                    self.out.patch(self.sections, section, at, &field(new, bytes));
                }
            }
            AttributeValue::DebugMacroRef(offset) => self.macros(unit, offset.0),
            AttributeValue::SecOffset(offset) if name == c::DW_AT_GNU_macros => self.macros(unit, offset),
            AttributeValue::DwoId(id) => {
                self.out.patch(self.sections, section, at, &other_identity(id.0).to_le_bytes());
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
                            Some(unit.rnglists_base.0.wrapping_add(i.0.wrapping_mul(width)))
                        }
                        _ => None,
                    };
                    if unit.encoding().version < 5 {
                        if self.done.insert((ReadSection::Ranges, offset.0)) {
                            fixed::ranges(self.out, self.sections, self.map, offset.0, unit.low_pc, &mut self.budget);
                        }
                    } else {
                        let new = self.ranges.ranges(self.dwarf, unit, offset, self.map)?;
                        match indexed {
                            Some(slot) => self.ranges.index(slot, width, new.wrapping_sub(unit.rnglists_base.0)),
                            None => self.out.patch(self.sections, section, at, &field(new, bytes)),
                        }
                    }
                }
            }
            value => {
                if let Some(offset) = self.dwarf.attr_locations_offset(unit, value)? {
                    let indexed = match value {
                        AttributeValue::DebugLocListsIndex(i) => {
                            Some(unit.loclists_base.0.wrapping_add(i.0.wrapping_mul(width)))
                        }
                        _ => None,
                    };
                    // The view numbers of GNU stand in the same section and name no address.
                    if name == c::DW_AT_GNU_locviews {
                        return Ok(());
                    }
                    if unit.encoding().version < 5 {
                        if self.done.insert((ReadSection::Loc, offset.0)) {
                            fixed::locations(
                                self.out,
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
                            Some(slot) => self.locations.index(slot, width, new.wrapping_sub(unit.loclists_base.0)),
                            None => self.out.patch(self.sections, section, at, &field(new, bytes)),
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// A high_pc that is a length: the new one, as far as its field holds it.
    fn length(&mut self, section: ReadSection, extent: &Extent) {
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

    /// The line program that a unit's macros name their files by. Units of macros that these import name none.
    fn macros(&mut self, unit: &Unit<DebugSlice<'a>>, offset: usize) {
        // version 2, flags 1: the format is 64-bit, a line offset follows.
        let field_at = offset.saturating_add(3);
        let bytes = self.sections.bytes(ReadSection::Macro).get(offset..).unwrap_or(&[]);
        let [4 | 5, 0, flags, rest @ ..] = bytes else { return };
        let width = if flags & 1 != 0 { 8 } else { 4 };
        let Some(old) = rest.get(..width).filter(|_| flags & 2 != 0) else { return };
        let old = old.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b));
        if let Some(new) = self.program(unit, DebugLineOffset(old)) {
            self.out.patch(self.sections, ReadSection::Macro, field_at, &field(new, width));
        }
    }

    /// The new offset of a line program, which is written when it is first named.
    fn program(&mut self, unit: &Unit<DebugSlice<'a>>, old: DebugLineOffset) -> Option<usize> {
        if let Some(new) = self.programs.get(&old.0) {
            return Some(*new);
        }
        let program = unit.line_program.clone().filter(|p| p.header().offset() == old)?;
        let at = self.lines.len();
        if at > limit(self.sections.bytes(ReadSection::Line).len()) {
            return None;
        }
        line::rewrite(self.sections.bytes(ReadSection::Line), program, self.map, &mut self.lines)?;
        self.programs.insert(old.0, at);
        Some(at)
    }
}
