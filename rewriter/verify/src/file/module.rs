//! The rewritten file as the audit sees it: sections, segments, symbols, relocations, module info, frames.
//!
//! Input: the file's bytes. Output: [`Module`]. Read with the `object` and `gimli` crates only. Source: gABI, psABI.

use crate::error::{Error, Result};
use crate::file::dynamic::{Dynamic, Relocation};
use crate::file::eh_frame_hdr::{self, Index};
use crate::file::frames::{self, Cfa, Frames};
use crate::file::memory::{self, PF_W, PF_X, PHDR_BYTES, Phdr};
use blizzard_contract::restarts::Restarts;
use blizzard_contract::trap_map::TrapMap;
use blizzard_contract::{self as contract, Claim, ModuleInfo, PT_BLIZZARD, RestartHead, TrapEntry, TrapHead};
use blizzard_never_return::never_returns;
use gimli::{BaseAddresses, X86_64};
use object::read::elf::{ElfFile64, FileHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationFlags, SectionFlags, elf};
use std::ops::Range;

/// The sections of hot and of cold code.
const TEXT: &str = ".blizzard.text";
const COLD: &str = ".blizzard.cold";

/// A section with its contents.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    pub name: String,
    pub va: u64,
    pub data: &'a [u8],
    pub exec: bool,
}

impl Section<'_> {
    /// Whether the rewriter added it, or gave it a new name: the frames' sections have the names of the input's, which have others now.
    fn is_added(&self) -> bool {
        let frames = [".eh_frame", ".eh_frame_hdr", ".gcc_except_table"];
        self.name.starts_with(".blizzard") || frames.contains(&self.name.as_str())
    }
}

/// A load segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub va: u64,
    pub file_off: u64,
    pub file_bytes: u64,
    pub flags: u32,
}

/// A named function in the new code.
#[derive(Clone, Debug)]
pub struct Symbol {
    pub va: u64,
    pub bytes: u64,
    pub name: String,
    pub function: bool,
}

/// A call-site range of the new code and its landing pad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pad {
    pub from: u64,
    pub to: u64,
    pub pad: u64,
}

/// Everything read from the file.
pub struct Module<'a> {
    pub file: &'a [u8],
    pub entry: u64,
    /// Loaded at its link-time addresses (ET_EXEC).
    pub fixed: bool,
    /// The program headers that the kernel maps by, as they stand in the file, and how much higher their addresses are than all others ([`memory::shift`]).
    pub raw_kernel: Vec<Phdr>,
    pub shift: u64,
    /// Program headers: those that the kernel maps by, with the loader's addresses, and those that the dynamic loader is shown.
    pub kernel: Vec<Phdr>,
    pub loader: Vec<Phdr>,
    pub segments: Vec<Segment>,
    pub sections: Vec<Section<'a>>,
    pub info: ModuleInfo,
    pub text: Section<'a>,
    pub cold: Section<'a>,
    pub rodata: Option<Section<'a>>,
    /// Symbols of functions, sorted by address.
    pub symbols: Vec<Symbol>,
    /// Symbols in the sections of old code: what did not move keeps its own. Sorted by address.
    pub left: Vec<Symbol>,
    /// Defined dynamic symbols of functions: old addresses, and new ones of functions that nothing else names.
    pub exported: Vec<Symbol>,
    /// Addresses of variables and tables, as symbols say.
    pub objects: Vec<u64>,
    /// New addresses that words of data name, sorted.
    pub renewed: Vec<u64>,
    /// What relocations add to new addresses of such functions, if anything: the places.
    pub displaced: Vec<u64>,
    /// Words that the dynamic loader writes and that hold addresses of this module.
    pub pointers: Vec<u64>,
    /// Functions that the dynamic loader calls: DT_INIT, DT_FINI, the arrays' entries, resolvers of IFUNC.
    pub called: Vec<u64>,
    /// GOT slots of imported functions that never return, sorted.
    pub never_return_slots: Vec<u64>,
    /// Words that hold an address of this module as long as the program runs: (place, address), sorted.
    pub fixed_slots: Vec<(u64, u64)>,
    /// Function ranges of the new code, sorted.
    pub functions: Vec<(u64, u64)>,
    /// Those that begin in the middle of a function, as the stack there shows: rare parts that compilers put elsewhere. Sorted.
    pub parts: Vec<u64>,
    pub pads: Vec<Pad>,
    /// The frames that unwinders find, the table that leads there, and why they cannot be read.
    pub frames: Frames<'a>,
    pub index: Option<Index>,
    pub frames_problem: Option<String>,
    /// As written: [`Claim`]s at their addresses, and [`contract::CodeRegion`]s as start, end, chain.
    pub claims: Vec<Claimed>,
    pub regions: Vec<(u64, u64, u64)>,
    /// Of the regions, those that say where to go on: start, end, that place.
    pub moved: Vec<(u64, u64, u64)>,
    /// All of them are sorted and do not overlap: whoever looks for one searches by halves.
    pub regions_ascend: bool,
}

/// An access that the file says is covered by other checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub access: u64,
    /// `None`: several.
    pub cover: Option<u64>,
    pub reason: u32,
}

/// The file does not contain what an audit needs.
fn missing(name: &str, what: impl std::fmt::Display) -> Error {
    Error::new(format!("{name}: {what}")).help("`blizzard verify` audits the output of `blizzard rewrite`")
}

/// The sections that are mapped, by their headers. `mapped` finds bytes.
fn mapped_sections<'a>(
    elf: &ElfFile64<Endianness>,
    mapped: &impl Fn(u64, usize) -> Option<&'a [u8]>,
) -> Vec<Section<'a>> {
    let mut sections = Vec::new();
    for s in elf.sections() {
        let SectionFlags::Elf { sh_flags, .. } = s.flags() else { continue };
        let has = |f: elf::SectionFlags| sh_flags.0 & f.0 != 0;
        if !has(elf::SHF_ALLOC) {
            continue;
        }
        // What the header says of the place in the file is not asked.
        let in_file = s.kind() != object::SectionKind::UninitializedData && s.file_range().is_some();
        let bytes = if in_file { usize::try_from(s.size()).unwrap_or(usize::MAX) } else { 0 };
        let (name, exec) = (s.name().unwrap_or("?"), has(elf::SHF_EXECINSTR));
        sections.push(Section {
            // That which the input has, unless that of the new frames is told from it by its name.
            name: name
                .strip_prefix(".blizzard.old")
                .filter(|old| exec || *old == ".dynamic")
                .unwrap_or(name)
                .to_string(),
            va: s.address(),
            data: mapped(s.address(), bytes).unwrap_or(&[]),
            exec,
        });
    }
    sections
}

/// The symbols with a definition, by address, the longest first. `is_wanted` is told address and name.
fn defined_symbols(elf: &ElfFile64<Endianness>, is_wanted: impl Fn(u64, Option<&str>) -> bool) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = elf
        .symbols()
        .filter(|s| s.is_definition() && is_wanted(s.address(), s.name().ok()))
        .map(|s| Symbol {
            va: s.address(),
            bytes: s.size(),
            name: s.name().unwrap_or("?").to_string(),
            function: s.kind() == object::SymbolKind::Text,
        })
        .collect();
    symbols.sort_by_key(|s| (s.va, std::cmp::Reverse(s.bytes)));
    symbols
}

/// What relocations say: fields of [`Module`] with these names.
#[derive(Default)]
struct Relocated {
    /// Places whose contents the dynamic loader relocates: lazy GOT slots.
    slots: Vec<u64>,
    pointers: Vec<u64>,
    displaced: Vec<u64>,
    /// Addends of relative relocations.
    renewed: Vec<u64>,
    called: Vec<u64>,
    never_return_slots: Vec<u64>,
    fixed_slots: Vec<(u64, u64)>,
}

/// Sorts relocations by what they say. `relro`: what the loader protects; `in_code`: whether new code stands there.
fn relocated(dynamic: &Dynamic, relro: &Range<u64>, in_code: impl Fn(u64) -> bool) -> Relocated {
    let mut all = Relocated::default();
    for r in &dynamic.relocations {
        all.slots.push(r.place);
        if r.kind == elf::R_X86_64_IRELATIVE.0 {
            all.called.push(r.addend);
        }
        if r.kind == elf::R_X86_64_RELATIVE.0 {
            all.renewed.push(r.addend);
            if relro.contains(&r.place) {
                all.fixed_slots.push((r.place, r.addend));
            }
        }
        let symbol = dynamic.symbol(r);
        if symbol.is_some_and(|s| never_returns(s.name)) {
            all.never_return_slots.push(r.place);
        }
        let symbol = symbol.filter(|s| s.defined).map_or(0, |s| s.value);
        all.pointers.push(symbol.wrapping_add(r.addend));
        if r.addend != 0 && in_code(symbol) {
            all.displaced.push(r.place);
        }
    }
    all.never_return_slots.sort_unstable();
    all.fixed_slots.sort_unstable();
    all
}

impl<'a> Module<'a> {
    /// Reads what the audit needs.
    ///
    /// # Errors
    /// The file is no ELF file for x86-64, or has no `.blizzard.info`.
    pub fn read(file: &'a [u8], name: &str) -> Result<Module<'a>> {
        if !file.starts_with(&elf::ELFMAG) {
            return Err(missing(name, "is not an ELF file"));
        }
        let elf =
            ElfFile64::<Endianness>::parse(file).map_err(|e| missing(name, "not a 64-bit ELF file").because(e))?;
        let header = elf.elf_header();
        if header.e_machine(elf.endian()) != elf::EM_X86_64 {
            return Err(missing(name, "not an x86-64 file"));
        }
        let raw_kernel =
            memory::kernel_table(file).ok_or_else(|| missing(name, "its program headers are not in the file"))?;
        let info = raw_kernel.iter().find(|p| p.kind == PT_BLIZZARD);
        let info = info.ok_or_else(|| missing(name, "not a rewritten file: it has no PT_BLIZZARD"))?;
        let info = memory::bytes_at(file, &raw_kernel, info.va, size_of::<ModuleInfo>()).and_then(module_info);
        let info = info.ok_or_else(|| missing(name, "its module info is damaged: not mapped, or without its magic"))?;
        let shift = memory::shift(&raw_kernel, info.code_va);
        let kernel = memory::unshifted(&raw_kernel, shift);
        let mapped = |va: u64, n: usize| memory::bytes_at(file, &kernel, va, n);
        let loader = usize::try_from(info.phdr_count).unwrap_or(usize::MAX).checked_mul(PHDR_BYTES);
        let loader = loader.and_then(|bytes| mapped(info.phdr_va, bytes)).map(memory::phdrs);
        let loader = loader.ok_or_else(|| missing(name, "the loader's program headers are not in the file"))?;
        let mut sections = mapped_sections(&elf, &mapped);
        // The one by which debuggers find libraries is the runtime's.
        let own = |s: &&mut Section| info.rt_base_va != 0 && s.va >= info.rt_base_va && s.name == ".dynamic";
        sections.iter_mut().filter(own).for_each(|s| s.name = ".blizzard.rt.dynamic".into());
        if sections.iter().all(|s| s.is_added() || is_new_code(s, &info)) {
            sections.extend(unnamed_code(file, &kernel, &info));
        }
        let cold = sections.iter().find(|s| s.name == COLD).cloned();
        let text = new_text(&sections, &info, &mapped).ok_or_else(|| missing(name, "it has no .blizzard.text"))?;
        let cold =
            cold.unwrap_or(Section { name: COLD.into(), va: text.va + text.data.len() as u64, data: &[], exec: true });
        let endian = elf.endian();
        let load = |p: &&Phdr| p.kind == memory::PT_LOAD;
        let segment = |p: &Phdr| Segment { va: p.va, file_off: p.off, file_bytes: p.file, flags: p.flags };
        let segments: Vec<Segment> = kernel.iter().filter(load).map(segment).collect();
        let dynamic = match kernel.iter().find(|p| p.kind == memory::PT_DYNAMIC) {
            Some(p) => Dynamic::read(p.va, p.mem, &mapped).map_err(|why| missing(name, why))?,
            None => Dynamic { relocations: of_static_program(&elf), ..Dynamic::default() },
        };
        let in_code = |va: u64| va.wrapping_sub(text.va) < text.data.len() as u64;
        let symbols = defined_symbols(&elf, |va, _| in_code(va));
        let is_old = |va: u64| {
            let old = sections.iter().filter(|s| is_old_code(s, &info));
            old.clone().any(|s| va.wrapping_sub(s.va) < s.data.len() as u64)
        };
        let left = defined_symbols(&elf, |va, name| is_old(va) && name.is_some_and(|name| !name.is_empty()));
        let exported = dynamic.symbols.iter().filter(|s| s.is_export()).map(|s| Symbol {
            va: s.value,
            bytes: s.bytes,
            name: s.name.to_string(),
            function: true,
        });
        let exported = exported.collect();
        let data = elf.symbols().filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Data);
        let objects = dynamic.symbols.iter().filter(|s| s.is_object()).map(|s| s.value);
        let objects = data.map(|s| s.address()).chain(objects).collect();
        let relro = kernel.iter().find(|p| p.kind == memory::PT_GNU_RELRO).map_or(0..0, |p| p.va..p.end());
        let Relocated { mut slots, pointers, displaced, mut renewed, called, never_return_slots, fixed_slots } =
            relocated(&dynamic, &relro, in_code);
        let mut module = Module {
            file,
            entry: elf.entry().wrapping_sub(shift),
            fixed: header.e_type(endian) == elf::ET_EXEC,
            raw_kernel,
            shift,
            kernel,
            loader,
            segments,
            sections,
            info,
            text,
            cold,
            rodata: None,
            symbols,
            left,
            exported,
            objects,
            renewed: Vec::new(),
            displaced,
            pointers,
            called,
            never_return_slots,
            fixed_slots,
            functions: Vec::new(),
            parts: Vec::new(),
            pads: Vec::new(),
            frames: Frames::default(),
            index: None,
            frames_problem: None,
            claims: Vec::new(),
            regions: Vec::new(),
            moved: Vec::new(),
            regions_ascend: true,
        };
        module.rodata = module.sections.iter().find(|s| s.name == ".blizzard.rodata").cloned();
        slots.extend(&dynamic.relr);
        module.linked_words(relro, &mut slots);
        let words: Vec<u64> =
            slots.iter().filter_map(|&va| module.bytes_at(va, 8)?.try_into().ok().map(u64::from_le_bytes)).collect();
        renewed.extend(&words);
        renewed.retain(|va| va.wrapping_sub(module.text.va) < module.text.data.len() as u64);
        renewed.sort_unstable();
        renewed.dedup();
        module.renewed = renewed;
        module.pointers.extend(words);
        module.called_by_loader(&dynamic, &slots);
        module.data_pointers();
        module.frames();
        module.claims().ok_or_else(|| missing(name, "its claims lie outside the file"))?;
        Ok(module)
    }

    /// Bytes of the file that are mapped at `[va, va + n)`.
    pub fn bytes_at(&self, va: u64, n: usize) -> Option<&'a [u8]> {
        memory::bytes_at(self.file, &self.kernel, va, n)
    }

    /// `count` rows of 32-bit words at an address.
    fn words_at<const N: usize>(&self, va: u64, count: usize) -> Option<Vec<[u32; N]>> {
        if count == 0 {
            return Some(Vec::new());
        }
        let bytes = self.bytes_at(va, count.checked_mul(4 * N)?)?;
        let row = |row: &[[u8; 4]; N]| row.map(u32::from_le_bytes);
        Some(bytes.as_chunks::<4>().0.as_chunks::<N>().0.iter().map(row).collect())
    }

    /// Sections with old code: executable ones that are not part of what the rewriter added.
    pub fn old_code(&self) -> impl Iterator<Item = &Section<'a>> {
        self.sections.iter().filter(|s| is_old_code(s, &self.info))
    }

    /// Reads claims and regions.
    fn claims(&mut self) -> Option<()> {
        let base = self.info.new_base_va;
        let rows = |va: u64, count: u64| self.words_at::<3>(va, usize::try_from(count).ok()?);
        let at = |offset: u32| base.wrapping_add(offset.into());
        let claims = rows(self.info.claims_va, self.info.claim_count)?;
        let regions = rows(self.info.regions_va, self.info.region_count)?;
        self.claims = claims
            .iter()
            .map(|&[access, cover, reason]| Claimed {
                access: at(access),
                cover: (cover != Claim::SEVERAL).then(|| at(cover)),
                reason,
            })
            .collect();
        self.regions_ascend =
            regions.iter().all(|r| r[0] < r[1]) && regions.windows(2).all(|pair| pair[0][1] <= pair[1][0]);
        let leads = |r: &&[u32; 3]| r[2] & contract::CodeRegion::MOVED != 0;
        let row = |&[start, end, group]: &[u32; 3]| (at(start), at(end), at(group & !contract::CodeRegion::MOVED));
        self.moved = regions.iter().filter(leads).map(row).collect();
        self.regions = regions.iter().filter(|r| !leads(r)).map(row).collect();
        Some(())
    }

    /// The function whose frame description covers a new address.
    pub fn function_at(&self, va: u64) -> Option<(u64, u64)> {
        let at = self.functions.partition_point(|f| f.0 <= va);
        self.functions[..at].last().copied().filter(|f| va < f.1)
    }

    /// The rows of the trap map; `None` where its parts are not in the file, or contradict each other.
    pub fn traps(&self) -> Option<Vec<TrapEntry>> {
        let info = &self.info;
        self.rows(info.trap_codes_va, info.trap_code_bytes, info.trap_heads_va, info.trap_count)
    }

    /// The rows of the version table, as addresses: an access in plain code, and where it begins in full code. `None` as for the trap map.
    pub fn versions(&self) -> Option<Vec<(u64, u64)>> {
        let info = &self.info;
        self.to_full(info.version_codes_va, info.version_code_bytes, info.version_heads_va, info.version_count)
    }

    /// The rows of the table of redirections, as addresses: where a function begins in plain code, and in full code. `None` as for the trap map.
    pub fn redirects(&self) -> Option<Vec<(u64, u64)>> {
        let info = &self.info;
        self.to_full(info.redirect_codes_va, info.redirect_code_bytes, info.redirect_heads_va, info.redirect_count)
    }

    /// The rows of a table that leads from new code to new code.
    fn to_full(&self, codes_va: u64, code_bytes: u64, heads_va: u64, rows: u64) -> Option<Vec<(u64, u64)>> {
        let rows = self.rows(codes_va, code_bytes, heads_va, rows)?;
        let at = |offset: u32| self.info.new_base_va.wrapping_add(offset.into());
        Some(rows.iter().map(|row| (at(row.old), at(row.new))).collect())
    }

    /// The rows of a table of the trap map's form.
    fn rows(&self, codes_va: u64, code_bytes: u64, heads_va: u64, rows: u64) -> Option<Vec<TrapEntry>> {
        let rows = usize::try_from(rows).ok()?;
        let heads = self.heads(heads_va, rows)?;
        let map = self.table(codes_va, code_bytes, &heads, rows)?;
        let codes = map.codes;
        let mut all = Vec::new();
        let mut read = 0;
        for (k, head) in heads.iter().enumerate() {
            // Each group's codes begin where those of the one before end: nothing is hidden between them.
            if head.at as usize != read {
                return None;
            }
            let mut group = map.group(k);
            all.extend(&mut group);
            read = codes.len() - group.rest().len();
        }
        (read == codes.len() && all.len() == rows).then_some(all)
    }

    /// The first rows of the groups of such a table.
    fn heads(&self, va: u64, rows: usize) -> Option<Vec<TrapHead>> {
        let heads = self.words_at(va, TrapMap::groups(rows))?;
        Some(heads.into_iter().map(|[old, new, at]| TrapHead { old, new, at }).collect())
    }

    /// A table with these heads.
    fn table<'h>(&self, codes_va: u64, code_bytes: u64, heads: &'h [TrapHead], rows: usize) -> Option<TrapMap<'h>>
    where
        'a: 'h,
    {
        let bytes = usize::try_from(code_bytes).ok()?;
        let codes = if bytes == 0 { &[] } else { self.bytes_at(codes_va, bytes)? };
        Some(TrapMap { heads, codes, rows })
    }

    /// The first rows of the trap map's groups.
    #[cfg(test)]
    pub fn trap_heads(&self) -> Option<Vec<TrapHead>> {
        self.heads(self.info.trap_heads_va, usize::try_from(self.info.trap_count).ok()?)
    }

    /// The trap map with these heads.
    #[cfg(test)]
    pub fn trap_map<'h>(&self, heads: &'h [TrapHead]) -> Option<TrapMap<'h>>
    where
        'a: 'h,
    {
        let rows = usize::try_from(self.info.trap_count).ok()?;
        self.table(self.info.trap_codes_va, self.info.trap_code_bytes, heads, rows)
    }

    /// Where the trap map stands.
    pub fn trap_map_range(&self) -> Range<u64> {
        let groups = TrapMap::groups(self.info.trap_count as usize) as u64;
        self.info.trap_codes_va..self.info.trap_heads_va.saturating_add(groups * size_of::<TrapHead>() as u64)
    }

    /// Bytes of plain code, in front of full code: all of the text, where accesses are tested.
    pub fn plain_bytes(&self) -> usize {
        let bytes = self.text.data.len();
        let full = self.info.new_base_va.wrapping_add(self.info.full_at).wrapping_sub(self.text.va);
        if self.is_guarded() { usize::try_from(full).unwrap_or(bytes).min(bytes) } else { bytes }
    }

    pub fn is_guarded(&self) -> bool {
        self.info.flags & contract::module_flags::GUARD != 0
    }

    /// The rows of the restart table: where a check begins, and the access that ends it. `None` where its parts are not in the file, or contradict each other.
    pub fn restarts(&self) -> Option<Vec<(u64, u64)>> {
        let number = |n: u64| usize::try_from(n).ok();
        let rows = number(self.info.restart_count)?;
        if rows == 0 {
            return Some(Vec::new());
        }
        let heads = self.words_at(self.info.restart_heads_va, Restarts::groups(rows))?;
        let heads: Vec<RestartHead> = heads.into_iter().map(|[check, at]| RestartHead { check, at }).collect();
        let codes = self.bytes_at(self.info.restart_codes_va, number(self.info.restart_code_bytes)?)?;
        let table = Restarts { heads: &heads, codes, rows };
        let (mut all, mut read) = (Vec::new(), 0);
        for (k, head) in heads.iter().enumerate() {
            // Nothing is hidden between the groups.
            if head.at as usize != read {
                return None;
            }
            let mut group = table.group(k);
            all.extend(&mut group);
            read = codes.len() - group.rest().len();
        }
        let base = self.info.new_base_va;
        let ascend = all.iter().all(|row| row.check < row.access) && all.windows(2).all(|p| p[0].access < p[1].check);
        let whole = read == codes.len() && all.len() == rows && ascend;
        whole.then(|| all.iter().map(|row| (base + u64::from(row.check), base + u64::from(row.access))).collect())
    }

    /// The function that contains `va`, as `name+0x12`.
    pub fn place(&self, va: u64) -> String {
        let at = self.symbols.partition_point(|s| s.va <= va);
        match self.symbols[..at].last() {
            Some(s) if s.bytes == 0 || va < s.va + s.bytes => format!("{}+{:#x}", s.name, va - s.va),
            _ => match self.sections.iter().find(|s| va.wrapping_sub(s.va) < s.data.len() as u64) {
                Some(s) => format!("{}+{:#x}", s.name, va - s.va),
                None => "?".into(),
            },
        }
    }

    /// The same of an address in old code.
    pub fn old_place(&self, va: u64) -> String {
        let at = self.left.partition_point(|s| s.va <= va);
        match self.left[..at].last() {
            Some(s) if va < s.va + s.bytes.max(1) => format!("{}+{:#x}", s.name, va - s.va),
            _ => self.place(va),
        }
    }

    /// Adds the words that a linker filled with final addresses, in a program at fixed addresses, and that nobody writes to: those of pages that the
    /// dynamic loader protects (PT_GNU_RELRO), but for what it relocates (`slots`, which this sorts).
    fn linked_words(&mut self, relro: std::ops::Range<u64>, slots: &mut [u64]) {
        if !self.fixed || !self.kernel.iter().any(|p| p.kind == memory::PT_DYNAMIC) {
            return;
        }
        slots.sort_unstable();
        // Only what is in the file: the header may claim any size.
        let most = self.file.len() as u64;
        let in_file = |s: &Segment| {
            let end = s.va.saturating_add(s.file_bytes.min(most)).min(relro.end & !0xfff);
            (relro.start.max(s.va).checked_next_multiple_of(8).unwrap_or(end)..end).step_by(8)
        };
        let places: Vec<u64> = self.segments.iter().flat_map(in_file).collect();
        for va in places {
            let relocated =
                slots.get(slots.partition_point(|s| s.saturating_add(8) <= va)).is_some_and(|s| *s < va + 8);
            let word = self.bytes_at(va, 8).filter(|_| !relocated).and_then(|b| b.try_into().ok());
            self.fixed_slots.extend(word.map(|word| (va, u64::from_le_bytes(word))));
        }
        self.fixed_slots.sort_unstable();
    }

    /// Adds what the dynamic section and the arrays of initialisers name. `slots` are the places that are relocated.
    fn called_by_loader(&mut self, dynamic: &Dynamic, slots: &[u64]) {
        self.called.extend([elf::DT_INIT, elf::DT_FINI].iter().filter_map(|tag| dynamic.value(tag.0)));
        let named = [
            (elf::DT_PREINIT_ARRAY, elf::DT_PREINIT_ARRAYSZ),
            (elf::DT_INIT_ARRAY, elf::DT_INIT_ARRAYSZ),
            (elf::DT_FINI_ARRAY, elf::DT_FINI_ARRAYSZ),
        ];
        let named = named.iter().filter_map(|(at, bytes)| Some((dynamic.value(at.0)?, dynamic.value(bytes.0)?)));
        let mut arrays: Vec<(u64, &[u8])> =
            named.filter_map(|(va, bytes)| Some((va, self.bytes_at(va, usize::try_from(bytes).ok()?)?))).collect();
        // Those of a static program its own start-up code finds.
        arrays.extend(self.sections.iter().filter(|s| s.name.ends_with("_array")).map(|s| (s.va, s.data)));
        // Relocated entries are in `pointers`, with what the relocation adds.
        for (va, data) in arrays {
            let fixed = data.chunks_exact(8).zip((va..).step_by(8)).filter(|(_, va)| !slots.contains(va));
            self.called.extend(fixed.map(|(c, _)| memory::number(c)));
        }
        self.called.retain(|&v| v != 0 && v != u64::MAX);
        self.called.sort_unstable();
        self.called.dedup();
        self.pointers.extend(&self.called);
    }

    /// Adds the code pointers that stand in data as they are: in a fixed-address file any aligned word may be one, else
    /// only those of the arrays of initialisers. Keeps only what leads to old code.
    fn data_pointers(&mut self) {
        let old: Vec<(u64, u64)> = self.old_code().map(|s| (s.va, s.va + s.data.len() as u64)).collect();
        let code = |v: u64| old.iter().any(|r| r.0 <= v && v < r.1);
        let mut found = Vec::new();
        let words = |data: &'a [u8]| data.chunks_exact(8).map(memory::number).filter(|&v| code(v));
        // Without section headers, any word of any segment that is not code.
        if self.fixed && self.sections.iter().filter(|s| !s.exec).all(Section::is_added) {
            let data = self.segments.iter().filter(|s| s.flags & memory::PF_X == 0 && s.va < self.info.code_va);
            for s in data.filter(|s| s.va % 8 == 0) {
                found.extend(self.bytes_at(s.va, s.file_bytes as usize).into_iter().flat_map(words));
            }
        }
        for s in self.sections.iter().filter(|s| !s.exec && !s.is_added() && s.va % 8 == 0) {
            if s.name == ".dynsym" || s.name.starts_with(".rel") || !(self.fixed || s.name.ends_with("_array")) {
                continue;
            }
            found.extend(words(s.data));
        }
        self.pointers.append(&mut found);
        self.pointers.retain(|&v| code(v));
        self.pointers.sort_unstable();
        self.pointers.dedup();
    }

    /// The bytes that are mapped from `va` to the end of its segment's part of the file.
    pub fn tail(&self, va: u64) -> Option<&'a [u8]> {
        let s = self.segments.iter().find(|s| va.wrapping_sub(s.va) < s.file_bytes)?;
        self.bytes_at(va, usize::try_from(s.file_bytes - (va - s.va)).ok()?)
    }

    /// The frames that unwinders find, and the table that leads there.
    fn read_frames(&self) -> std::result::Result<(Option<Index>, Frames<'a>), String> {
        let Some(index) = eh_frame_hdr::read(&self.kernel, &|va| self.tail(va))? else {
            return Ok((None, Frames::default()));
        };
        let bytes = self.tail(index.frames);
        let bytes = bytes.ok_or_else(|| format!("the frames should be at {:#x}, outside the file", index.frames))?;
        let frames = Frames::read(bytes, index.frames, BaseAddresses::default(), &|va| self.tail(va))?;
        Ok((Some(index), frames))
    }

    /// The runtime's own frames: what describes its code, as it stands in its bytes.
    ///
    /// # Errors
    /// There are none, or they are not understood.
    pub fn runtime_frames(&self) -> std::result::Result<Frames<'a>, String> {
        if self.info.rt_base_va == 0 {
            return Ok(Frames::default());
        }
        let parts = memory::loads_from(&self.kernel, self.info.rt_base_va);
        let is_code = |va: u64| parts.iter().any(|p| p.flags & PF_X != 0 && va.wrapping_sub(p.va) < p.mem);
        let found = parts.iter().filter(|p| p.flags & (PF_X | PF_W) == 0).find_map(|p| {
            let bytes = self.bytes_at(p.va, p.file as usize)?;
            let at = frames::search(bytes, p.va, &is_code)?;
            Some((&bytes[(at - p.va) as usize..], at))
        });
        let (bytes, at) = found.ok_or("the runtime has no frames")?;
        Frames::read(bytes, at, BaseAddresses::default(), &|va| self.tail(va))
    }

    /// Reads the frames, and takes function ranges and landing pads from them.
    fn frames(&mut self) {
        match self.read_frames() {
            Ok((index, frames)) => (self.index, self.frames) = (index, frames),
            Err(why) => self.frames_problem = Some(why),
        }
        for f in &self.frames.list {
            if f.from.wrapping_sub(self.text.va) >= self.text.data.len() as u64 {
                continue;
            }
            self.functions.push((f.from, f.to));
            // Callers leave their return address on the stack, and nothing else.
            let called = |cfa: &Cfa| *cfa == Cfa::Register(X86_64::RSP, 8) || matches!(cfa, Cfa::Expression(_));
            if f.rows.first().is_some_and(|row| !called(&row.cfa)) {
                self.parts.push(f.from);
            }
            let calls = f.lsda.iter().flat_map(|l| &l.calls).filter(|c| c.pad != 0);
            self.pads.extend(calls.map(|c| Pad { from: c.from, to: c.to, pad: c.pad }));
        }
        self.functions.sort_unstable();
        self.parts.sort_unstable();
    }
}

/// Whether a section describes a part of the new code.
fn is_new_code(s: &Section, info: &ModuleInfo) -> bool {
    s.exec && s.va.wrapping_sub(info.code_va) < info.code_bytes
}

/// An executable one that is no part of what the rewriter added.
fn is_old_code(s: &Section, info: &ModuleInfo) -> bool {
    s.exec && !is_new_code(s, info) && !s.name.starts_with(".blizzard")
}

/// The hot code: from the first section of new code to the last. The linkage table has a section of its own in between, with the name that debuggers know.
fn new_text<'a>(
    sections: &[Section<'a>],
    info: &ModuleInfo,
    mapped: &impl Fn(u64, usize) -> Option<&'a [u8]>,
) -> Option<Section<'a>> {
    let named = sections.iter().find(|s| s.name == TEXT)?;
    let parts = || sections.iter().filter(|s| is_new_code(s, info) && s.name != COLD);
    let whole = || {
        let va = parts().map(|s| s.va.wrapping_sub(info.code_va)).min()?.wrapping_add(info.code_va);
        let bytes = parts().map(|s| s.va.wrapping_sub(va).wrapping_add(s.data.len() as u64)).max()?;
        Some(Section { name: TEXT.into(), va, data: mapped(va, usize::try_from(bytes).ok()?)?, exec: true })
    };
    Some(whole().unwrap_or_else(|| named.clone()))
}

/// The executable segments of a file without section headers.
fn unnamed_code<'a>(file: &'a [u8], kernel: &[Phdr], info: &ModuleInfo) -> Vec<Section<'a>> {
    let runtime = |p: &Phdr| info.rt_base_va != 0 && p.va >= info.rt_base_va;
    let old = kernel.iter().filter(|p| p.kind == memory::PT_LOAD && p.flags & memory::PF_X != 0 && p.file != 0);
    let old = old.filter(|p| p.va != info.code_va && !runtime(p));
    let section = |p: &Phdr| {
        let data = memory::bytes_at(file, kernel, p.va, usize::try_from(p.file).ok()?)?;
        Some(Section { name: format!("segment {:#x}", p.va), va: p.va, data, exec: true })
    };
    old.filter_map(section).collect()
}

/// The relocations that a static program applies to itself: only symbols and section headers lead there.
fn of_static_program(elf: &ElfFile64<Endianness>) -> Vec<Relocation> {
    let row = |(place, r): (u64, object::Relocation)| {
        let RelocationFlags::Elf { r_type } = r.flags() else { return None };
        Some(Relocation { place, kind: r_type.0, symbol: 0, addend: r.addend() as u64 })
    };
    elf.dynamic_relocations().into_iter().flatten().filter_map(row).collect()
}

fn module_info(b: &[u8]) -> Option<ModuleInfo> {
    if b.len() < size_of::<ModuleInfo>() {
        return None;
    }
    let mut words = [0; ModuleInfo::WORDS];
    for (word, c) in words.iter_mut().zip(b.chunks_exact(8)) {
        *word = u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
    }
    let info = ModuleInfo::from_words(words);
    (info.magic == contract::MODULE_MAGIC).then_some(info)
}
