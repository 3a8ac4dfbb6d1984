//! Entries of procedure linkage tables.
//!
//! Purpose: disassemblers, profilers and debuggers make symbols of the entries, `NAME@plt`, where these are as far apart as linkers put them: each begins at a
//! multiple of 16 in the new code. Input: executable sections, instructions. Output: the entries' first instructions, ascending.
//! Source: psABI for x86-64 section 5.2 and 13.2; `elf_x86_64_get_synthetic_symtab` of binutils.

use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::read::image::{ExecSection, Image};

/// Names of sections with linkage tables.
pub const TABLES: [&str; 4] = [".plt", ".plt.got", ".plt.sec", ".plt.bnd"];
/// Bytes of `endbr64`.
const ENDBR: u8 = 4;

/// The table's entries that jump through the GOT at once.
pub fn entries_of<'x>(section: &'x ExecSection, insns: &'x Insns) -> impl Iterator<Item = InsnId> + 'x {
    let step = if section.name == ".plt.got" { 8 } else { 16 };
    let ids = insns.main_before(section.va)..insns.main_before(section.va + section.bytes);
    let end = ids.end;
    let jumps = move |id: InsnId| insns.flow(id) == Flow::IndirectJmp;
    let begins = move |id: &InsnId| {
        let behind = InsnId(id.0 + 1);
        let marked = insns.length(*id) == ENDBR && behind.ix() < end && jumps(behind);
        (insns.va(*id) - section.va).is_multiple_of(step) && (jumps(*id) || marked)
    };
    ids.map(|id| InsnId(id as u32)).filter(begins)
}

/// The sections of linkage tables.
pub fn tables<'x>(image: &'x Image) -> impl Iterator<Item = &'x ExecSection> {
    image.exec.iter().filter(|s| TABLES.contains(&s.name.as_str()))
}

/// Those of all tables.
pub fn entries(image: &Image, insns: &Insns) -> Vec<InsnId> {
    tables(image).flat_map(|section| entries_of(section, insns)).collect()
}
