//! Probes are where the code is: debuggers and tracers stop there.
//!
//! Input: the notes about probes (`.note.stapsdt`) of both files, old and new addresses, pairs of versions. Output: findings. **Invariant**: no probe is at
//! the old address of an instruction that has a new one. With the original: its notes are there in the same order, each with the new address of its
//! instruction, and again with that of its full version. All else of them is as it was.
//!
//! Source: SystemTap's `sdt.h`, version 3 of its notes; gABI chapter 5 (note sections).

use crate::audit::Audit;
use crate::file::memory::number;
use crate::file::module::Module;
use crate::judge::old_code::springboards::Old;
use crate::judge::versions::pairs::{NONE, Versions};
use object::Endianness;
use object::read::elf::{ElfFile64, SectionHeader};

const SECTION: &[u8] = b".note.stapsdt";
const NT_STAPSDT: u32 = 3;

#[derive(Clone, PartialEq, Eq)]
struct Note {
    name: Vec<u8>,
    kind: u32,
    contents: Vec<u8>,
}

impl Note {
    /// The address of the probe that it is about.
    fn probe(&self) -> Option<u64> {
        let is_probe = self.name == b"stapsdt" && self.kind == NT_STAPSDT && self.contents.len() >= 24;
        is_probe.then(|| number(&self.contents[..8]))
    }

    fn at(&self, address: u64) -> Note {
        let contents = [&address.to_le_bytes()[..], &self.contents[8..]].concat();
        Note { contents, ..self.clone() }
    }
}

/// The notes of a file; none where the section is damaged, or none of `sdt.h`.
fn notes(file: &[u8]) -> Option<Vec<Note>> {
    let elf = ElfFile64::<Endianness>::parse(file).ok()?;
    let (endian, table) = (elf.endian(), elf.elf_section_table());
    let section = table.iter().find(|s| table.section_name(endian, *s).is_ok_and(|name| name == SECTION))?;
    let mut list = section.notes(endian, file).ok()?.filter(|_| section.sh_addralign(endian) <= 4)?;
    let mut all = Vec::new();
    while let Some(note) = list.next().ok()? {
        all.push(Note { name: note.name().to_vec(), kind: note.n_type(endian).0, contents: note.desc().to_vec() });
    }
    Some(all)
}

/// Judges them. `pairs`: old addresses of instructions and their new ones, ascending.
pub(crate) fn judge(
    m: &Module,
    old: &Old,
    (original, pairs): (Option<&[u8]>, &[(u64, u64)]),
    versions: Option<&Versions>,
    audit: &mut Audit,
) {
    let mut open = |at: u64, why: &str| audit.finding(at, m.place(at), format!("a probe {why}"));
    let is = notes(m.file);
    for at in is.iter().flatten().filter_map(Note::probe).filter(|&at| old.new_address(m, at).is_some()) {
        open(at, "is where its instruction was, not where it is");
    }
    let Some(was) = original.map(notes) else { return };
    let (Some(was), Some(is)) = (&was, &is) else {
        if was.is_some() || is.is_some() {
            open(0, "section is there in one of the files alone, or damaged in one");
        }
        return;
    };
    let mut is = is.iter().peekable();
    for note in was {
        let at = note.probe();
        let new = at.and_then(|at| pairs.binary_search_by_key(&at, |p| p.0).ok()).map(|k| pairs[k].1);
        let wanted = new.map_or_else(|| note.clone(), |new| note.at(new));
        if is.next() != Some(&wanted) {
            return open(at.unwrap_or(0), "of the original is missing, or leads elsewhere");
        }
        let Some((v, full)) = versions.zip(new).and_then(|(v, new)| Some((v, full_of(v, new)?))) else { continue };
        let is_full = |other: &&Note| {
            let landing = other.probe().and_then(|at| v.full.landing(at));
            **other == note.at(other.probe().unwrap_or(0)) && landing.is_some_and(|to| to.at == full)
        };
        if is.next_if(is_full).is_none() {
            return open(at.unwrap_or(0), "does not stand in the full version of its function");
        }
    }
    if let Some(other) = is.next() {
        open(other.probe().unwrap_or(0), "is none of the original's");
    }
}

/// The position in full code of the instruction at a place of plain code, or of what stands behind it, if it is padding.
fn full_of(v: &Versions, plain: u64) -> Option<usize> {
    let full = *v.full_of.get(v.plain.landing(plain)?.at)?;
    (full != NONE).then_some(full as usize)
}
