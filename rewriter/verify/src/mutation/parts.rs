//! The parts of an output: each byte of the file belongs to one.
//!
//! Input: the output, read and decoded, and the original. Output: a list of [`Part`]s. A byte of the input's that stands where it stood belongs to the part
//! that is a copy, unless it is one that loaders read and the rewriter changes elsewhere in: headers, notes, symbols, relocations, the dynamic section.

use crate::error::{Error, Result};
use crate::mutation::code::Decoded;
use crate::mutation::places::Places;
use crate::sites::site::get;
use object::read::elf::{ElfFile64, FileHeader, SectionHeader};
use object::{Endianness, elf};
use std::collections::BTreeMap;
use std::ops::Range;

/// A part of the output.
#[derive(Clone, Debug)]
pub struct Part {
    pub name: &'static str,
    /// Offsets in the file, ascending.
    pub places: Vec<usize>,
}

pub const OWN: &str = "own instructions";
pub const INSERTED: &str = "inserted code";
pub const OWN_FULL: &str = "own instructions, full code";
pub const INSERTED_FULL: &str = "inserted code, full code";
pub const COLD: &str = "cold stubs";
pub const FILLING: &str = "padding of code";
pub const OLD: &str = "old code";
pub const COPY: &str = "copied from the input";
pub const CHANGED: &str = "changed words of data";
pub const BETWEEN: &str = "between the parts";
pub const ELF_HEADER: &str = "ELF header";
pub const KERNELS: &str = "program headers, kernel's";
pub const LOADERS: &str = "program headers, loader's";
pub const SECTIONS: &str = "section headers";
pub const SYMBOLS: &str = "symbols (.symtab)";
pub const NAMES: &str = "names (.strtab, .shstrtab)";
pub const DEBUG: &str = "debug information";
pub const STRINGS: &str = "paths of loader and libraries";
pub const TRAPS: &str = "trap map";
pub const RESTARTS: &str = "restart table";
pub const VERSIONS: &str = "versions and redirections";
pub const CLAIMS: &str = "claims and regions";
pub const DYNSYM: &str = "dynamic symbols";
pub const RODATA: &str = "rodata (tables, descriptors)";
pub const INFO: &str = "module info";
pub const NOT_LOADED: &str = "other sections not loaded";

impl Part {
    /// Whether its bytes are instructions of the new code.
    pub fn is_code(&self) -> bool {
        matches!(self.name, OWN | INSERTED | OWN_FULL | INSERTED_FULL | COLD | FILLING)
    }
}

/// The part of a section of the output; `None`: it is a copy, or told apart byte by byte.
fn of_section(name: &str, loaded: bool, is_new: bool) -> Option<&'static str> {
    Some(match name {
        ".blizzard.rodata" => RODATA,
        ".blizzard.info" => INFO,
        ".blizzard.traps" => TRAPS,
        ".blizzard.restarts" => RESTARTS,
        ".blizzard.claims" => CLAIMS,
        ".blizzard.blocks" => "block counts",
        ".blizzard.accesses" => "record of accesses",
        ".blizzard.rt.rodata" => "runtime, R",
        ".blizzard.rt.text" => "runtime, RX",
        ".blizzard.rt.data" => "runtime, RW",
        ".eh_frame_hdr" if is_new => ".eh_frame_hdr",
        ".eh_frame" if is_new => ".eh_frame",
        ".gcc_except_table" if is_new => ".gcc_except_table",
        ".dynamic" => "dynamic section",
        ".dynsym" | ".blizzard.dynsym" => DYNSYM,
        ".symtab" => SYMBOLS,
        ".strtab" | ".shstrtab" => NAMES,
        _ if name.starts_with(".rela.") || name == ".relr.dyn" => "relocations",
        _ if name.starts_with(".note") => "notes",
        _ if name.starts_with(".debug_") || name.starts_with(".zdebug_") || name == ".gdb_index" => DEBUG,
        _ if !loaded && is_new => NOT_LOADED,
        _ => return None,
    })
}

/// Tells the parts apart.
pub fn of(read: &Decoded, places: &Places, original: &[u8], output: &[u8]) -> Result<Vec<Part>> {
    let bad = |e: object::read::Error| Error::new("not a 64-bit ELF file").because(e);
    let elf = ElfFile64::<Endianness>::parse(output).map_err(bad)?;
    let endian = elf.endian();
    let m = &read.m;
    let mut label: Vec<&'static str> = (0..output.len())
        .map(|k| match original.get(k) {
            Some(b) if *b == output[k] => COPY,
            Some(_) => CHANGED,
            None => BETWEEN,
        })
        .collect();
    let mut set = |range: Range<usize>, name: &'static str, over: &dyn Fn(&'static str) -> bool| {
        for l in label.get_mut(range).unwrap_or_default().iter_mut().filter(|l| over(l)) {
            *l = name;
        }
    };
    let any = |_: &'static str| true;
    let range_at = |va: u64, bytes: u64| {
        let data = m.bytes_at(va, usize::try_from(bytes).ok()?)?;
        let at = data.as_ptr() as usize - output.as_ptr() as usize;
        Some(at..at + data.len())
    };
    for s in elf.elf_section_table().iter() {
        let Some((off, bytes)) = s.file_range(endian) else { continue };
        let name = elf.elf_section_table().section_name(endian, s).unwrap_or(&[]);
        let name = String::from_utf8_lossy(name);
        let flags = s.sh_flags(endian);
        let range = off as usize..off.saturating_add(bytes) as usize;
        let (loaded, exec) =
            (flags & elf::SHF_ALLOC == elf::SHF_ALLOC, flags & elf::SHF_EXECINSTR == elf::SHF_EXECINSTR);
        let is_new = range.start >= original.len();
        if exec && !is_new {
            set(range, OLD, &|l| l == CHANGED);
        } else if let Some(part) = of_section(&name, loaded, is_new) {
            set(range, part, &any);
        }
    }
    let full_va = match m.info.full_at {
        0 => u64::MAX,
        offset => m.info.new_base_va + offset,
    };
    for (code, map, names) in [
        (&read.text, &read.sites.inserted, [[INSERTED, OWN], [INSERTED_FULL, OWN_FULL]]),
        (&read.cold, &read.sites.claimed, [[COLD; 2]; 2]),
    ] {
        let Some(all) = range_at(code.base, code.bytes) else { continue };
        set(all.clone(), FILLING, &any);
        for (k, i) in code.insns.iter().enumerate() {
            let at = all.start + (i.va - code.base) as usize;
            let [inserted, own] = names[usize::from(i.va >= full_va)];
            if get(map, k) {
                set(at..at + usize::from(i.len), inserted, &any);
            } else if !i.is_int3() && !i.is_nop() {
                set(at..at + usize::from(i.len), own, &any);
            }
        }
    }
    let info = &m.info;
    for range in places.versions.iter().cloned() {
        set(range, VERSIONS, &any);
    }
    set(range_at(info.closure_va, info.closure_bytes).unwrap_or_default(), STRINGS, &any);
    let path = m.bytes_at(info.interp_va, 1).map(|b| b.as_ptr() as usize - output.as_ptr() as usize);
    if let Some(at) = path.filter(|at| *at >= original.len()) {
        let bytes = output[at..].iter().position(|b| *b == 0).map_or(0, |n| n + 1);
        set(at..at + bytes, STRINGS, &any);
    }
    set(range_at(info.phdr_va, 56 * info.phdr_count).unwrap_or_default(), LOADERS, &any);
    let header = elf.elf_header();
    let table = |off: u64, count: u16, bytes: usize| off as usize..off as usize + usize::from(count) * bytes;
    set(table(header.e_shoff(endian), header.e_shnum(endian), 64), SECTIONS, &any);
    set(table(header.e_phoff(endian), header.e_phnum(endian), 56), KERNELS, &any);
    set(0..64, ELF_HEADER, &any);
    let mut parts: BTreeMap<&'static str, Vec<usize>> = BTreeMap::new();
    for (at, name) in label.iter().enumerate() {
        parts.entry(name).or_default().push(at);
    }
    Ok(parts.into_iter().map(|(name, places)| Part { name, places }).collect())
}
