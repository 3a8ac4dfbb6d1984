//! What stands in a file behind all that its ELF structures name: the archive of a self-extracting program, the scripts of one that holds its
//! own interpreter.
//!
//! Input: the parsed file and its bytes. Output: the bytes behind the last structure. Programs find them in three ways: from the end of the
//! file, behind the table of section headers, and by their offset. The output ends with the table and them, and the input's bytes stay where they
//! are; so all three lead to them. Source: gABI chapters 4 and 5; PKWARE's APPNOTE, section 4.3.16 (what stands at a zip file's end).

use goblin::elf::{Elf, section_header as sh};

/// The bytes of `data` that belong to no header, segment or section of `elf`; none where a structure reaches beyond the file.
pub fn attached<'a>(elf: &Elf, data: &'a [u8]) -> &'a [u8] {
    let h = &elf.header;
    let table = |off: u64, entry: u16, count: usize| off.saturating_add(u64::from(entry) * count as u64);
    let headers = [
        u64::from(h.e_ehsize),
        table(h.e_phoff, h.e_phentsize, elf.program_headers.len()),
        table(h.e_shoff, h.e_shentsize, elf.section_headers.len()),
    ];
    let segments = elf.program_headers.iter().map(|p| p.p_offset.saturating_add(p.p_filesz));
    let filled = elf.section_headers.iter().filter(|s| s.sh_type != sh::SHT_NOBITS && s.sh_type != sh::SHT_NULL);
    let sections = filled.map(|s| s.sh_offset.saturating_add(s.sh_size));
    let end = headers.into_iter().chain(segments).chain(sections).max().unwrap_or(0);
    usize::try_from(end).ok().and_then(|end| data.get(end..)).unwrap_or(&[])
}
