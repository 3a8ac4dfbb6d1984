//! Code addresses of a position-independent file that only its dynamic symbols and words of data name.
//!
//! Input: the dynamic symbol table; the code addresses that relocations and arrays name. Output: [`Exports`], the places in the file where other
//! addresses could stand: whoever asks for such a function, this file's own data too, asks for the symbol or reads a word that the dynamic
//! loader makes from a number. What instructions name is not known yet. Empty where the symbol table has no section, or addresses do not depend on
//! where the file is loaded.
//! Source: System V gABI chapter 5 ("Dynamic Linking"), psABI for x86-64 section 4.4 (relocations).

use crate::base::addresses::{FileOff, Vaddr};
use crate::read::image::{Exports, Image};
use crate::read::pointers::NamedCode;
use goblin::elf::{Elf, reloc, section_header as sh, sym};

/// Bytes of an `Elf64_Sym`.
pub const SYM_BYTES: usize = 24;
/// Where in it the value stands, and the size behind it.
pub const VALUE_AT: usize = 8;
pub const SIZE_AT: usize = 16;

/// Finds them.
pub(super) fn find(elf: &Elf, image: &Image, named: &NamedCode) -> Exports {
    let table = elf.section_headers.iter().find(|s| s.sh_type == sh::SHT_DYNSYM);
    let at = elf.dynamic.as_ref().map_or(0, |d| d.info.symtab as u64);
    if !table.is_some_and(|s| image.pie && s.sh_offset == at) {
        return Exports::default();
    }
    let defined = |s: &sym::Sym| s.st_shndx != 0 && s.st_shndx < sh::SHN_LORESERVE as usize;
    let is_code = |s: &sym::Sym| image.exec_at(Vaddr(s.st_value)).is_some();
    let is_function = |s: &sym::Sym| s.st_type() == sym::STT_FUNC;
    // A resolver's symbol, or one that may be anything.
    let mut other: Vec<u64> =
        elf.dynsyms.iter().filter(|s| defined(s) && is_code(s) && !is_function(s)).map(|s| s.st_value).collect();
    // What stands behind a function's beginning is known by its distance.
    let relocations = elf.dynrelas.iter().chain(elf.dynrels.iter()).chain(elf.pltrelocs.iter());
    let beyond = relocations.filter(|r| r.r_addend.unwrap_or(0) != 0 && r.r_type != reloc::R_X86_64_RELATIVE);
    other.extend(beyond.filter_map(|r| elf.dynsyms.get(r.r_sym)).filter(|s| defined(s)).map(|s| s.st_value));
    other.sort_unstable();
    let alone = |va: Vaddr| named.otherwise.binary_search(&va).is_err() && other.binary_search(&va.0).is_err();
    let candidate = |s: &sym::Sym| defined(s) && is_function(s) && is_code(s) && alone(Vaddr(s.st_value));
    let entries = elf.dynsyms.iter().zip(0u32..).filter(|(s, _)| candidate(s));
    let mut list: Vec<(Vaddr, u32)> = entries.map(|(s, k)| (Vaddr(s.st_value), k)).collect();
    list.sort_unstable();
    let words = named.words.iter().copied().filter(|w| alone(w.0)).collect();
    Exports { at: FileOff(at), list, words }
}
