//! Function symbols, and the code addresses that a file's data names.
//!
//! A position-independent file can only hold a code address where a relocation says so (psABI 4.4), or in the PLT's
//! part of the GOT, whose lazy entries the loader relocates in place. A fixed-address file may hold one in any word.

use crate::base::addresses::{FileOff, Vaddr};
use crate::read::image::{FuncSymbol, Image, ProgramKind, Protected};
use blizzard_never_return::never_returns;
use goblin::elf::program_header::PT_GNU_RELRO;
use goblin::elf::{Elf, reloc, section_header as sh, sym};

/// Bytes of an `Elf64_Rela`, and where in it the addend stands.
const RELA_BYTES: u64 = 24;
const ADDEND_AT: u64 = 16;

/// Named code addresses, one name each, sorted.
pub(super) fn functions(elf: &Elf, image: &Image) -> Vec<FuncSymbol> {
    let mut out = Vec::new();
    for (table, names) in [(&elf.syms, &elf.strtab), (&elf.dynsyms, &elf.dynstrtab)] {
        for s in table.iter() {
            let kind = matches!(s.st_type(), sym::STT_FUNC | sym::STT_GNU_IFUNC | sym::STT_NOTYPE);
            if !kind || s.st_shndx == 0 || image.exec_at(Vaddr(s.st_value)).is_none() {
                continue;
            }
            let Some(name) = names.get_at(s.st_name).filter(|n| !n.is_empty()) else { continue };
            let typed = s.st_type() != sym::STT_NOTYPE;
            out.push(FuncSymbol { va: Vaddr(s.st_value), bytes: s.st_size, typed, name: name.to_owned() });
        }
    }
    out.sort_by(|a, b| (a.va, !a.typed, &a.name).cmp(&(b.va, !b.typed, &b.name)));
    out.dedup_by(|b, a| a.va == b.va);
    out
}

/// The code addresses that the data of a file name.
pub(super) struct NamedCode {
    /// By a relocation, the dynamic section or (in a fixed-address file) a data word. Sorted.
    pub all: Vec<Vaddr>,
    /// Those of them that are named otherwise than as the value of a symbol or by one of `words`. Sorted.
    pub otherwise: Vec<Vaddr>,
    /// Words that the dynamic loader makes from a number in the file: what they name, and where the number stands. Sorted.
    pub words: Vec<(Vaddr, FileOff)>,
}

/// Finds them.
pub(super) fn code_pointers(elf: &Elf, image: &Image) -> NamedCode {
    let (mut out, mut by_symbol) = (Vec::new(), Vec::new());
    let words = relative_words(elf, image);
    let code = image.exec[0].va.0..image.exec.last().map_or(0, |s| s.va.0 + s.bytes);
    let mut add = |va: u64| {
        // Most words of data are no addresses.
        if code.contains(&va) && image.exec_at(Vaddr(va)).is_some() {
            out.push(Vaddr(va));
        }
    };
    add(image.entry.0);
    let is_word = |place: u64| words.places.binary_search(&place).is_ok();
    for r in elf.dynrelas.iter().chain(elf.dynrels.iter()).chain(elf.pltrelocs.iter()) {
        let addend = r.r_addend.unwrap_or(0) as u64;
        match r.r_type {
            reloc::R_X86_64_RELATIVE if is_word(r.r_offset) => {}
            reloc::R_X86_64_RELATIVE | reloc::R_X86_64_IRELATIVE => add(addend),
            reloc::R_X86_64_64 => {
                let value = elf.dynsyms.get(r.r_sym).map_or(0, |s| s.st_value);
                if addend == 0 && value != 0 {
                    by_symbol.push(Vaddr(value));
                } else {
                    add(value.wrapping_add(addend));
                }
            }
            reloc::R_X86_64_JUMP_SLOT => {
                if let Some(word) = image.word_at(Vaddr(r.r_offset)) {
                    add(word);
                }
            }
            _ => {}
        }
    }
    if let Some(d) = &elf.dynamic {
        // Not `d.info`, which holds these as offsets into the file.
        const DT_INIT: u64 = 12;
        const DT_FINI: u64 = 13;
        d.dyns.iter().filter(|e| matches!(e.d_tag, DT_INIT | DT_FINI)).for_each(|e| add(e.d_val));
    }
    // Static programs have no dynamic section: their IRELATIVE entries are found through the section headers.
    for (_, relocs) in &elf.shdr_relocs {
        let unknown = relocs.iter().filter(|r| !is_word(r.r_offset));
        for r in unknown.filter(|r| matches!(r.r_type, reloc::R_X86_64_IRELATIVE | reloc::R_X86_64_RELATIVE)) {
            add(r.r_addend.unwrap_or(0) as u64);
        }
    }
    for place in relr_places(elf, image).into_iter().filter(|place| !is_word(place.0)) {
        if let Some(word) = image.word_at(place) {
            add(word);
        }
    }
    for s in &elf.section_headers {
        let alloc = s.sh_flags & u64::from(sh::SHF_ALLOC) != 0 && s.sh_flags & u64::from(sh::SHF_EXECINSTR) == 0;
        let pointers = match s.sh_type {
            sh::SHT_INIT_ARRAY | sh::SHT_FINI_ARRAY | sh::SHT_PREINIT_ARRAY => true,
            sh::SHT_PROGBITS => !image.pie,
            _ => false,
        };
        if !alloc || !pointers {
            continue;
        }
        let Some(bytes) = image.bytes_at(Vaddr(s.sh_addr), s.sh_size as usize) else { continue };
        // Packed structures put pointers on 4-byte boundaries.
        for at in (0..bytes.len().saturating_sub(7)).step_by(4) {
            add(u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")));
        }
    }
    if elf.section_headers.is_empty() && !image.pie {
        for s in image.segments.iter().filter(|s| !s.executable) {
            let bytes = image.bytes_at(s.va, s.file_bytes as usize).unwrap_or(&[]);
            for at in (0..bytes.len().saturating_sub(7)).step_by(4) {
                add(u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")));
            }
        }
    }
    out.sort();
    out.dedup();
    let otherwise = out.clone();
    out.extend(by_symbol.into_iter().filter(|va| image.exec_at(*va).is_some()));
    out.extend(words.list.iter().map(|w| w.0));
    out.sort();
    out.dedup();
    NamedCode { all: out, otherwise, words: words.list }
}

/// Words that hold what the file says, as a number, plus the address where the file is loaded.
#[derive(Default)]
struct RelativeWords {
    /// Where the words are, sorted.
    places: Vec<u64>,
    /// See [`NamedCode::words`].
    list: Vec<(Vaddr, FileOff)>,
}

/// Finds the words that name code. Not those in tables of frames, of which the output has its own, nor words on which several relocations work.
fn relative_words(elf: &Elf, image: &Image) -> RelativeWords {
    let Some(dynamic) = elf.dynamic.as_ref().filter(|_| image.pie) else { return RelativeWords::default() };
    let frames: Vec<_> = elf
        .section_headers
        .iter()
        .filter(|s| {
            matches!(elf.shdr_strtab.get_at(s.sh_name), Some(".eh_frame" | ".eh_frame_hdr" | ".gcc_except_table"))
        })
        .map(|s| s.vm_range())
        .collect();
    let movable = |place: u64| {
        !frames.iter().any(|f| f.contains(&(place as usize)))
            && image.segments.iter().any(|s| !s.executable && Vaddr(place) >= s.va && Vaddr(place) - s.va < s.mem_bytes)
    };
    let is_code = |va: u64| image.exec_at(Vaddr(va)).is_some();
    // (place, what it names, where the number stands)
    let mut found: Vec<(u64, Vaddr, FileOff)> = Vec::new();
    for (r, k) in elf.dynrelas.iter().zip(0u64..) {
        let addend = r.r_addend.unwrap_or(0) as u64;
        if r.r_type == reloc::R_X86_64_RELATIVE && is_code(addend) && movable(r.r_offset) {
            let number = dynamic.info.rela as u64 + k * RELA_BYTES + ADDEND_AT;
            found.push((r.r_offset, Vaddr(addend), FileOff(number)));
        }
    }
    for place in relr_places(elf, image) {
        if let (Some(word), Some(number)) = (image.word_at(place), image.offset_of(place))
            && is_code(word)
            && movable(place.0)
        {
            found.push((place.0, Vaddr(word), number));
        }
    }
    found.sort_unstable();
    let all = elf.dynrelas.iter().chain(elf.dynrels.iter()).chain(elf.pltrelocs.iter());
    let mut places: Vec<u64> = all.map(|r| r.r_offset).chain(relr_places(elf, image).iter().map(|p| p.0)).collect();
    places.sort_unstable();
    let alone = |place: u64| {
        let near = places.partition_point(|p| p + 8 <= place)..places.partition_point(|p| *p < place + 8);
        near.len() == 1
    };
    found.retain(|w| alone(w.0));
    let mut out = RelativeWords { places: found.iter().map(|w| w.0).collect(), list: Vec::new() };
    for (place, va, number) in found {
        out.list.push((va, number));
        // Linkers leave the same number where the word will be.
        let copy = image.offset_of(Vaddr(place)).filter(|at| *at != number);
        if let Some(at) = copy.filter(|_| image.word_at(Vaddr(place)) == Some(va.0)) {
            out.list.push((va, at));
        }
    }
    out.list.sort_unstable();
    out
}

/// The places that DT_RELR relocates (gABI, "Relative relocation table").
fn relr_places(elf: &Elf, image: &Image) -> Vec<Vaddr> {
    const DT_RELR: u64 = 36;
    const DT_RELRSZ: u64 = 35;
    let Some(d) = &elf.dynamic else { return Vec::new() };
    let tag = |t: u64| d.dyns.iter().find(|e| e.d_tag == t).map(|e| e.d_val);
    let (Some(at), Some(bytes)) = (tag(DT_RELR), tag(DT_RELRSZ)) else { return Vec::new() };
    let Some(table) = image.bytes_at(Vaddr(at), bytes as usize) else { return Vec::new() };
    let mut out = Vec::new();
    let mut next = 0u64;
    for word in table.chunks_exact(8).map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes"))) {
        if word & 1 == 0 {
            out.push(Vaddr(word));
            next = word.wrapping_add(8);
        } else {
            out.extend((0..63).filter(|bit| word >> (bit + 1) & 1 != 0).map(|bit| Vaddr(next.wrapping_add(8 * bit))));
            next = next.wrapping_add(63 * 8);
        }
    }
    out
}

/// GOT slots that hold the address of a function that never returns.
pub(super) fn noreturn_slots(elf: &Elf) -> std::collections::HashSet<Vaddr> {
    let relocs = elf.dynrelas.iter().chain(elf.dynrels.iter()).chain(elf.pltrelocs.iter());
    let named = relocs.filter(|r| matches!(r.r_type, reloc::R_X86_64_JUMP_SLOT | reloc::R_X86_64_GLOB_DAT));
    named
        .filter(|r| {
            let name = elf.dynsyms.get(r.r_sym).and_then(|s| elf.dynstrtab.get_at(s.st_name)).unwrap_or("");
            never_returns(name)
        })
        .map(|r| Vaddr(r.r_offset))
        .collect()
}

/// Places that a relocation fills with the address of code of this file, and that the dynamic loader then makes read-only
/// (PT_GNU_RELRO): a call through one is as good as a direct call.
pub(super) fn fixed_slots(elf: &Elf, image: &Image) -> Vec<(Vaddr, Vaddr)> {
    let Some(relro) = elf.program_headers.iter().find(|p| p.p_type == PT_GNU_RELRO).map(|p| p.vm_range()) else {
        return Vec::new();
    };
    let relative = elf.dynrelas.iter().filter(|r| r.r_type == reloc::R_X86_64_RELATIVE);
    let mut slots: Vec<(Vaddr, Vaddr)> = relative
        .filter(|r| relro.contains(&(r.r_offset as usize)))
        .map(|r| (Vaddr(r.r_offset), Vaddr(r.r_addend.unwrap_or(0) as u64)))
        .filter(|(_, to)| image.exec_at(*to).is_some())
        .collect();
    slots.sort();
    slots
}

/// Nothing of a file that is its own loader.
pub(super) fn protected(elf: &Elf, image: &Image) -> Protected {
    let relro = elf.program_headers.iter().find(|p| p.p_type == PT_GNU_RELRO);
    let Some(relro) = relro.filter(|_| image.kind != ProgramKind::Static) else {
        return Protected::default();
    };
    // The loader protects no page that it shares with other data.
    let range = relro.p_vaddr..relro.p_vaddr.saturating_add(relro.p_memsz) & !0xfff;
    let relocs = elf.dynrelas.iter().chain(elf.dynrels.iter()).chain(elf.pltrelocs.iter());
    let places = relocs.map(|r| r.r_offset).chain(relr_places(elf, image).into_iter().map(|place| place.0));
    let mut relocated: Vec<u64> = places.filter(|place| range.contains(place)).collect();
    relocated.sort_unstable();
    relocated.shrink_to_fit();
    Protected { range, relocated }
}
