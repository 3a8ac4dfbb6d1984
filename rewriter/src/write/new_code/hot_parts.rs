//! Sections of the hot code: entries of procedure linkage tables have their own.
//!
//! Purpose: disassemblers, profilers and debuggers make symbols of a table's entries, `NAME@plt`, from the name of its section, its code and the relocations.
//! Where gdb finds these, `step` leads through a call to the function. Input: executable sections, placed code. Output: [`HotPart`]s.
//! **Invariant**: parts follow each other, begin where the hot code begins and end where it ends; between them there is padding at most.
//!
//! The names are those of tables that need no first entry, which has a poll here. gdb takes `.plt` and `.plt.sec` for code to be stepped through, up to the function;
//! at the first call that leads into the dynamic loader, where gdb gets lost. Under other names it asks the symbol where an entry leads.
//! Source: `elf_x86_64_get_synthetic_symtab` of binutils; gdb's `process_event_stop_test`, `in_plt_section`.

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::read::image::Image;
use crate::write::new_code::layout::PlacedCode;
use crate::write::new_code::linkage::{entries_of, tables};
use std::ops::Range;

/// Tables of `jmp *NAME@GOT`, and of entries with something in front of it.
const JUMPS: &str = ".plt.got";
const MARKED: &str = ".plt.bnd";

/// Most of the hot code, and what else there is.
const TEXT: &str = ".blizzard.text";
const REST: &str = ".blizzard.rest";

/// A section of hot code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPart {
    pub name: &'static str,
    pub range: Range<Vaddr>,
}

/// All of the hot code, the largest part first.
pub fn hot_parts(image: &Image, insns: &Insns, placed: &PlacedCode) -> Vec<HotPart> {
    let mut found: Vec<(HotPart, usize)> = Vec::new();
    for section in tables(image) {
        let stop = insns.main_before(section.va + section.bytes);
        let Some(first) = entries_of(section, insns).find(|&entry| is_as_it_was(insns, placed, entry)) else {
            continue;
        };
        let name = if insns.flow(first) == Flow::IndirectJmp { JUMPS } else { MARKED };
        let range = placed.begin(first)..placed.end(InsnId(stop as u32 - 1));
        match found.iter_mut().find(|(part, _)| part.name == name) {
            // Whoever looks for a section by its name finds one.
            Some((part, end)) if *end == first.ix() => (part.range.end, *end) = (range.end, stop),
            Some(_) => {}
            None => found.push((HotPart { name, range }, stop)),
        }
    }
    split(placed.code_va..placed.hot_end(), found.into_iter().map(|(part, _)| part).collect())
}

/// Whether nothing is inserted in an entry up to its jump: tools know a table by what its first entry looks like.
fn is_as_it_was(insns: &Insns, placed: &PlacedCode, entry: InsnId) -> bool {
    let jump = if insns.flow(entry) == Flow::IndirectJmp { entry } else { InsnId(entry.0 + 1) };
    placed.end(jump) - placed.begin(entry) == insns.end(jump) - insns.va(entry)
}

/// Hot code with these parts in it, which ascend.
fn split(all: Range<Vaddr>, tables: Vec<HotPart>) -> Vec<HotPart> {
    /// Less is padding.
    const LEAST: u64 = 16;
    let mut parts = Vec::new();
    let mut from = all.start;
    for table in tables.into_iter().filter(|table| table.range.start < table.range.end) {
        if table.range.start < from || table.range.end > all.end {
            continue;
        }
        if from == all.start && from < table.range.start || table.range.start - from >= LEAST {
            parts.push(HotPart { name: REST, range: from..table.range.start });
        }
        from = table.range.end;
        parts.push(table);
    }
    if from < all.end {
        parts.push(HotPart { name: REST, range: from..all.end });
    }
    let bytes = |part: &HotPart| part.range.end - part.range.start;
    match parts.iter_mut().filter(|part| part.name == REST).max_by_key(|part| bytes(part)) {
        Some(most) => most.name = TEXT,
        // Nothing but tables.
        None => return vec![HotPart { name: TEXT, range: all }],
    }
    parts.sort_by_key(|part| part.name != TEXT);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &'static str, from: u64, to: u64) -> HotPart {
        HotPart { name, range: Vaddr(from)..Vaddr(to) }
    }

    fn split_of(tables: &[HotPart]) -> Vec<HotPart> {
        split(Vaddr(0x1000)..Vaddr(0x2000), tables.to_vec())
    }

    #[test]
    fn all_of_the_code_is_in_a_part() {
        assert_eq!(split_of(&[]), [part(TEXT, 0x1000, 0x2000)]);
        let usual = [part(".plt", 0x1020, 0x1060), part(".plt.got", 0x1060, 0x1070)];
        assert_eq!(
            split_of(&usual),
            [part(TEXT, 0x1070, 0x2000), part(REST, 0x1000, 0x1020), usual[0].clone(), usual[1].clone()]
        );
        let last = part(".plt", 0x1f00, 0x2000);
        assert_eq!(split_of(std::slice::from_ref(&last)), [part(TEXT, 0x1000, 0x1f00), last]);
        let first = part(".plt", 0x1000, 0x1010);
        assert_eq!(split_of(std::slice::from_ref(&first)), [part(TEXT, 0x1010, 0x2000), first]);
    }

    #[test]
    fn padding_is_no_part() {
        let both = [part(".plt", 0x1000, 0x103d), part(".plt.sec", 0x1040, 0x1060)];
        assert_eq!(split_of(&both), [part(TEXT, 0x1060, 0x2000), both[0].clone(), both[1].clone()]);
    }

    #[test]
    fn a_file_of_tables_alone_has_one_part() {
        assert_eq!(split_of(&[part(".plt", 0x1000, 0x2000)]), [part(TEXT, 0x1000, 0x2000)]);
    }
}
