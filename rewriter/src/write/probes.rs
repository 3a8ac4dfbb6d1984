//! Probes at their new places, so that debuggers and tracers stop at the code that runs.
//!
//! Purpose: a file says in notes where its probes are (`sys/sdt.h`; libstdc++ has those of `catch throw`). A probe is a `nop` of the program.
//! Input: the section `.note.stapsdt` of the input, where instructions have got to. Output: a copy of it behind everything else, as of a debug section: each
//! probe is where its instruction is now, and stands there twice if that has two versions. (The copy of a loop has none.)
//!
//! **Invariant**: base and semaphore are addresses of data, which stays. A section that is not understood stays as it was.
//! Source: SystemTap's `sdt.h`, version 3 of its notes; gABI chapter 5 (note sections).

use crate::base::addresses::Vaddr;
use crate::read::image::Image;
use crate::write::debug::sections::{Moved, append};
use crate::write::output::Output;
use object::elf::{FileHeader64, SHF_ALLOC, SHT_NOTE, SectionFlags};
use object::read::SectionIndex;
use object::read::elf::{FileHeader, SectionHeader};
use object::{LittleEndian as LE, U64};

const SECTION: &str = ".note.stapsdt";
const NAME: &[u8] = b"stapsdt\0";
const NT_STAPSDT: u32 = 3;
/// Of a note: sizes of name and contents, and its kind.
const HEAD_BYTES: usize = 12;

/// Appends the notes to the output; returns their section, if there are any. `places`: where the instruction at an old address is now.
pub fn write(out: &mut Output, image: &Image, places: impl Fn(Vaddr) -> Vec<Vaddr>) -> Option<Moved> {
    let data = image.data;
    let table = FileHeader64::<LE>::parse(data).ok()?.sections(LE, data).ok()?;
    let named = |header: &_| table.section_name(LE, header).is_ok_and(|name| name == SECTION.as_bytes());
    let (SectionIndex(index), header) =
        table.enumerate().find(|(_, header)| header.sh_type.get(LE) == SHT_NOTE && named(header))?;
    // Other notes have multiples of eight.
    let notes = (header.sh_addralign.get(LE) <= 4).then(|| moved(header.data(LE, data).ok()?, places))??;
    let mut header = *header;
    header.sh_offset = U64::new(LE, append(out, &notes));
    header.sh_size = U64::new(LE, notes.len() as u64);
    // The copy is not loaded.
    header.sh_addr = U64::new(LE, 0);
    header.sh_flags = U64::new(LE, SectionFlags(header.sh_flags.get(LE).0 & !SHF_ALLOC.0));
    Some(Moved { section: Some(index), name: SECTION.to_owned(), header })
}

/// The notes at their new places.
fn moved(notes: &[u8], places: impl Fn(Vaddr) -> Vec<Vaddr>) -> Option<Vec<u8>> {
    let word = |note: &[u8], at: usize| Some(u32::from_le_bytes(note.get(at..at + 4)?.try_into().ok()?));
    let mut out = Vec::with_capacity(notes.len());
    let mut rest = notes;
    while !rest.is_empty() {
        let [name_bytes, bytes] = [word(rest, 0)? as usize, word(rest, 4)? as usize];
        let at = HEAD_BYTES + name_bytes.next_multiple_of(4);
        let (note, behind) = rest.split_at_checked(at + bytes)?;
        let is_probe = word(note, 8)? == NT_STAPSDT && note[HEAD_BYTES..].starts_with(NAME) && name_bytes == NAME.len();
        let old = note.get(at..at + 8).filter(|_| is_probe && bytes >= 24);
        let old = old.map(|old| Vaddr(u64::from_le_bytes(old.try_into().expect("eight bytes"))));
        let new = old.map_or(Vec::new(), &places);
        let mut add = |parts: &[&[u8]]| {
            out.extend(parts.concat());
            out.resize(out.len().next_multiple_of(4), 0);
        };
        if new.is_empty() {
            add(&[note]);
        }
        for place in new {
            add(&[&note[..at], &place.0.to_le_bytes(), &note[at + 8..]]);
        }
        let padding = bytes.next_multiple_of(4) - bytes;
        rest = &behind[padding.min(behind.len())..];
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, at: u64, arguments: &[u8]) -> Vec<u8> {
        let contents = [&at.to_le_bytes()[..], &[1; 8], &[2; 8], b"p\0n\0", arguments, b"\0"].concat();
        let mut out: Vec<u8> =
            [name.len() as u32, contents.len() as u32, kind].iter().flat_map(|word| word.to_le_bytes()).collect();
        out.extend(name);
        out.extend(&contents);
        out.resize(out.len().next_multiple_of(4), 0);
        out
    }

    fn probe(at: u64, arguments: &[u8]) -> Vec<u8> {
        note(NAME, NT_STAPSDT, at, arguments)
    }

    fn places(old: Vaddr) -> Vec<Vaddr> {
        match old.0 {
            1 => vec![Vaddr(0x100)],
            2 => vec![Vaddr(0x200), Vaddr(0x300)],
            _ => Vec::new(),
        }
    }

    #[test]
    fn each_probe_stands_at_all_places_of_its_instruction() {
        let [other, foreign] = [note(NAME, 4, 1, b""), note(b"another\0", NT_STAPSDT, 1, b"")];
        let notes = [probe(1, b"8@%rdi"), other.clone(), probe(2, b""), foreign.clone(), probe(3, b"4@$1")].concat();
        let wanted = [probe(0x100, b"8@%rdi"), other, probe(0x200, b""), probe(0x300, b""), foreign, probe(3, b"4@$1")];
        assert_eq!(moved(&notes, places), Some(wanted.concat()));
    }

    #[test]
    fn what_is_not_understood_stays() {
        let whole = probe(1, b"8@%rdi");
        let padding = 1;
        for len in 1..whole.len() - padding {
            assert_eq!(moved(&whole[..len], places), None, "{len}");
        }
        let mut wild = whole;
        wild[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(moved(&wild, places), None);
        assert_eq!(moved(&[], places), Some(Vec::new()));
    }
}
