//! The rewritten file as the audit sees it: sections, segments, symbols, relocations, module info, frames.
//!
//! Input: the file's bytes. Output: [`Module`]. Read with the `object` and `gimli` crates only. Source: gABI, psABI,
//! LSB core (`.eh_frame`), Itanium C++ ABI (LSDA).

use crate::error::{Error, Result};
use crate::never_return::never_returns;
use blizzard_rt::abi::{self, Claim, ModuleInfo, RestartHead, TrapEntry, TrapHead};
use blizzard_rt::restarts::Restarts;
use blizzard_rt::trap_map::TrapMap;
use gimli::{BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, UnwindContext, UnwindSection};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol, RelocationFlags, SectionFlags, elf};
use std::ops::Range;

/// A section with its contents.
#[derive(Clone, Debug)]
pub struct Section<'a> {
    pub name: String,
    pub va: u64,
    pub data: &'a [u8],
    pub exec: bool,
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

/// A row of an LSDA's call-site table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallSite {
    pub from: u64,
    pub to: u64,
    /// 0: none.
    pub pad: u64,
    pub action: u64,
}

/// Everything read from the file.
pub struct Module<'a> {
    pub file: &'a [u8],
    pub entry: u64,
    /// Loaded at its link-time addresses (ET_EXEC).
    pub fixed: bool,
    pub program_headers: Vec<(u32, u32)>,
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
    /// As written: [`Claim`]s at their addresses, and [`abi::Region`]s as start, end, chain.
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

impl<'a> Module<'a> {
    /// Reads what the audit needs.
    ///
    /// # Errors
    /// The file is no ELF file for x86-64, or has no `.blizzard.info`.
    pub fn read(file: &'a [u8], name: &str) -> Result<Module<'a>> {
        let elf =
            ElfFile64::<Endianness>::parse(file).map_err(|e| missing(name, "not a 64-bit ELF file").because(e))?;
        let header = elf.elf_header();
        if header.e_machine(elf.endian()) != elf::EM_X86_64 {
            return Err(missing(name, "not an x86-64 file"));
        }
        let mut sections = Vec::new();
        for s in elf.sections() {
            let SectionFlags::Elf { sh_flags, .. } = s.flags() else { continue };
            let has = |f: elf::SectionFlags| sh_flags.0 & f.0 != 0;
            if !has(elf::SHF_ALLOC) && s.name() != Ok(abi::INFO_SECTION) {
                continue;
            }
            sections.push(Section {
                name: s.name().unwrap_or("?").to_string(),
                va: s.address(),
                data: s.data().unwrap_or(&[]),
                exec: has(elf::SHF_EXECINSTR),
            });
        }
        let find = |n: &str| sections.iter().find(|s| s.name == n).cloned();
        let info_section =
            find(abi::INFO_SECTION).ok_or_else(|| missing(name, "not a rewritten file: it has no .blizzard.info"))?;
        let info = module_info(info_section.data)
            .ok_or_else(|| missing(name, "its .blizzard.info is damaged: wrong size or magic"))?;
        let text = find(".blizzard.text").ok_or_else(|| missing(name, "it has no .blizzard.text"))?;
        let cold = find(".blizzard.cold").unwrap_or(Section {
            name: ".blizzard.cold".into(),
            va: text.va + text.data.len() as u64,
            data: &[],
            exec: true,
        });
        let endian = elf.endian();
        let mut program_headers = Vec::new();
        let mut segments = Vec::new();
        for p in elf.elf_program_headers() {
            program_headers.push((p.p_type(endian).0, p.p_flags(endian).0));
            if p.p_type(endian) == elf::PT_LOAD {
                segments.push(Segment {
                    va: p.p_vaddr(endian),
                    file_off: p.p_offset(endian),
                    file_bytes: p.p_filesz(endian),
                    flags: p.p_flags(endian).0,
                });
            }
        }
        let in_code = |va: u64| va.wrapping_sub(text.va) < text.data.len() as u64;
        let mut symbols: Vec<Symbol> = elf
            .symbols()
            .filter(|s| in_code(s.address()) && s.is_definition())
            .map(|s| Symbol {
                va: s.address(),
                bytes: s.size(),
                name: s.name().unwrap_or("?").to_string(),
                function: s.kind() == object::SymbolKind::Text,
            })
            .collect();
        symbols.sort_by_key(|s| (s.va, std::cmp::Reverse(s.bytes)));
        let is_old = |va: u64| {
            let old = sections.iter().filter(|s| s.exec && !s.name.starts_with(".blizzard"));
            old.clone().any(|s| va.wrapping_sub(s.va) < s.data.len() as u64)
        };
        let left = elf.symbols().filter(|s| s.is_definition() && is_old(s.address()));
        let left = left.filter(|s| s.name().is_ok_and(|name| !name.is_empty())).map(|s| Symbol {
            va: s.address(),
            bytes: s.size(),
            name: s.name().unwrap_or("?").to_string(),
            function: s.kind() == object::SymbolKind::Text,
        });
        let mut left: Vec<Symbol> = left.collect();
        left.sort_by_key(|s| (s.va, std::cmp::Reverse(s.bytes)));
        let exported = elf
            .dynamic_symbols()
            .filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Text)
            .map(|s| Symbol {
                va: s.address(),
                bytes: s.size(),
                name: s.name().unwrap_or("?").to_string(),
                function: s.kind() == object::SymbolKind::Text,
            })
            .collect();
        let objects = elf
            .symbols()
            .chain(elf.dynamic_symbols())
            .filter(|s| s.is_definition() && s.kind() == object::SymbolKind::Data)
            .map(|s| s.address())
            .collect();
        let (mut pointers, mut displaced, mut renewed) = (Vec::new(), Vec::new(), Vec::new());
        // Places whose contents the dynamic loader relocates: lazy GOT slots, RELR.
        let mut slots = Vec::new();
        let mut never_return_slots = Vec::new();
        let mut fixed_slots = Vec::new();
        let relro = elf.elf_program_headers().iter().find(|p| p.p_type(endian) == elf::PT_GNU_RELRO);
        let relro = relro.map_or(0..0, |p| p.p_vaddr(endian)..p.p_vaddr(endian).saturating_add(p.p_memsz(endian)));
        let mut called = Vec::new();
        if let Some(relocations) = elf.dynamic_relocations() {
            for (place, r) in relocations {
                slots.push(place);
                if matches!(r.flags(), RelocationFlags::Elf { r_type } if r_type == elf::R_X86_64_IRELATIVE) {
                    called.push(r.addend() as u64);
                }
                let relative = matches!(r.flags(), RelocationFlags::Elf { r_type } if r_type == elf::R_X86_64_RELATIVE);
                if relative {
                    renewed.push(r.addend() as u64);
                }
                if relative && relro.contains(&place) {
                    fixed_slots.push((place, r.addend() as u64));
                }
                let symbol = match r.target() {
                    object::RelocationTarget::Symbol(i) => {
                        elf.dynamic_symbol_table().and_then(|t| object::ObjectSymbolTable::symbol_by_index(&t, i).ok())
                    }
                    _ => None,
                };
                if symbol.as_ref().is_some_and(|s| s.name().is_ok_and(never_returns)) {
                    never_return_slots.push(place);
                }
                let symbol = symbol.filter(|s| s.is_definition()).map_or(0, |s| s.address());
                pointers.push(symbol.wrapping_add(r.addend() as u64));
                if r.addend() != 0 && symbol.wrapping_sub(text.va) < text.data.len() as u64 {
                    displaced.push(place);
                }
            }
        }
        never_return_slots.sort_unstable();
        fixed_slots.sort_unstable();
        let mut module = Module {
            file,
            entry: elf.entry(),
            fixed: header.e_type(endian) == elf::ET_EXEC,
            program_headers,
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
            claims: Vec::new(),
            regions: Vec::new(),
            moved: Vec::new(),
            regions_ascend: true,
        };
        module.rodata = module.sections.iter().find(|s| s.name == ".blizzard.rodata").cloned();
        if let Some(relr) = module.sections.iter().find(|s| s.name == ".relr.dyn") {
            slots.extend(relr_places(relr.data));
        }
        module.linked_words(relro, &mut slots);
        let words: Vec<u64> =
            slots.iter().filter_map(|&va| module.bytes_at(va, 8)?.try_into().ok().map(u64::from_le_bytes)).collect();
        renewed.extend(&words);
        renewed.retain(|va| va.wrapping_sub(module.text.va) < module.text.data.len() as u64);
        renewed.sort_unstable();
        renewed.dedup();
        module.renewed = renewed;
        module.pointers.extend(words);
        module.called_by_loader(&slots);
        module.data_pointers();
        module.frames();
        module.claims().ok_or_else(|| missing(name, "its claims lie outside the file"))?;
        Ok(module)
    }

    /// Bytes of the file that are mapped at `[va, va + n)`.
    pub fn bytes_at(&self, va: u64, n: usize) -> Option<&'a [u8]> {
        let s = self.segments.iter().find(|s| va.wrapping_sub(s.va) < s.file_bytes)?;
        let off = (s.file_off + (va - s.va)) as usize;
        let end = off.checked_add(n)?;
        (end as u64 <= s.file_off + s.file_bytes).then(|| self.file.get(off..end)).flatten()
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
        self.sections.iter().filter(|s| s.exec && !s.name.starts_with(".blizzard"))
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
        let leads = |r: &&[u32; 3]| r[2] & abi::Region::MOVED != 0;
        let row = |&[start, end, group]: &[u32; 3]| (at(start), at(end), at(group & !abi::Region::MOVED));
        self.moved = regions.iter().filter(leads).map(row).collect();
        self.regions = regions.iter().filter(|r| !leads(r)).map(row).collect();
        Some(())
    }

    /// The function whose frame description covers a new address.
    pub fn function_at(&self, va: u64) -> Option<(u64, u64)> {
        let at = self.functions.partition_point(|f| f.0 <= va);
        self.functions[..at].last().copied().filter(|f| va < f.1)
    }

    /// The first rows of the trap map's groups.
    pub fn trap_heads(&self) -> Option<Vec<TrapHead>> {
        let groups = TrapMap::groups(usize::try_from(self.info.trap_count).ok()?);
        let heads = self.words_at(self.info.trap_heads_va, groups)?;
        Some(heads.into_iter().map(|[old, new, at]| TrapHead { old, new, at }).collect())
    }

    /// The trap map with these heads.
    pub fn trap_map<'h>(&self, heads: &'h [TrapHead]) -> Option<TrapMap<'h>>
    where
        'a: 'h,
    {
        let codes = self.bytes_at(self.info.trap_codes_va, usize::try_from(self.info.trap_code_bytes).ok()?)?;
        Some(TrapMap { heads, codes, rows: usize::try_from(self.info.trap_count).ok()? })
    }

    /// Where it stands.
    pub fn trap_map_range(&self) -> Range<u64> {
        let groups = TrapMap::groups(self.info.trap_count as usize) as u64;
        self.info.trap_codes_va..self.info.trap_heads_va.saturating_add(groups * size_of::<TrapHead>() as u64)
    }

    /// The rows of the trap map; `None` where its parts are not in the file, or contradict each other.
    pub fn traps(&self) -> Option<Vec<TrapEntry>> {
        let heads = self.trap_heads()?;
        let map = self.trap_map(&heads)?;
        let (rows, codes) = (map.rows, map.codes);
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
        if !self.fixed || !self.program_headers.iter().any(|p| p.0 == elf::PT_DYNAMIC.0) {
            return;
        }
        slots.sort_unstable();
        for va in (relro.start.next_multiple_of(8)..relro.end & !0xfff).step_by(8) {
            let relocated =
                slots.get(slots.partition_point(|s| s.saturating_add(8) <= va)).is_some_and(|s| *s < va + 8);
            let word = self.bytes_at(va, 8).filter(|_| !relocated).and_then(|b| b.try_into().ok());
            self.fixed_slots.extend(word.map(|word| (va, u64::from_le_bytes(word))));
        }
        self.fixed_slots.sort_unstable();
    }

    /// Adds what the dynamic section and the arrays of initialisers name. `slots` are the places that are relocated.
    fn called_by_loader(&mut self, slots: &[u64]) {
        const DT_INIT: u64 = 12;
        const DT_FINI: u64 = 13;
        let word = |c: &[u8]| c.try_into().map_or(0, u64::from_le_bytes);
        if let Some(s) = self.sections.iter().find(|s| s.name == ".dynamic") {
            let functions = s.data.chunks_exact(16).filter(|e| matches!(word(&e[..8]), DT_INIT | DT_FINI));
            self.called.extend(functions.map(|e| word(&e[8..])));
        }
        // Relocated entries are in `pointers`, with what the relocation adds.
        for s in self.sections.iter().filter(|s| s.name.ends_with("_array")) {
            let fixed = s.data.chunks_exact(8).zip((s.va..).step_by(8)).filter(|(_, va)| !slots.contains(va));
            self.called.extend(fixed.map(|(c, _)| word(c)));
        }
        self.called.retain(|&v| v != 0 && v != u64::MAX);
        self.pointers.extend(&self.called);
    }

    /// Adds the code pointers that stand in data as they are: in a fixed-address file any aligned word may be one, else
    /// only those of the arrays of initialisers. Keeps only what leads to old code.
    fn data_pointers(&mut self) {
        let old: Vec<(u64, u64)> = self.old_code().map(|s| (s.va, s.va + s.data.len() as u64)).collect();
        let code = |v: u64| old.iter().any(|r| r.0 <= v && v < r.1);
        let mut found = Vec::new();
        for s in self.sections.iter().filter(|s| !s.exec && !s.name.starts_with(".blizzard") && s.va % 8 == 0) {
            let frames = matches!(s.name.as_str(), ".eh_frame" | ".eh_frame_hdr" | ".gcc_except_table" | ".dynsym");
            if frames || s.name.starts_with(".rel") || !(self.fixed || s.name.ends_with("_array")) {
                continue;
            }
            found.extend(
                s.data.chunks_exact(8).filter_map(|c| c.try_into().ok().map(u64::from_le_bytes)).filter(|&v| code(v)),
            );
        }
        self.pointers.append(&mut found);
        self.pointers.retain(|&v| code(v));
        self.pointers.sort_unstable();
        self.pointers.dedup();
    }

    /// Function ranges and landing pads from the new `.eh_frame`.
    fn frames(&mut self) {
        // The input's own table, which describes the old code, has another name in the output.
        let Some(section) = self.sections.iter().find(|s| s.name == ".eh_frame").cloned() else { return };
        let (data, va) = (section.data, section.va);
        let eh = EhFrame::new(data, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(va).set_text(self.text.va);
        let mut entries = eh.entries(&bases);
        let mut cx = UnwindContext::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(fde) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let (from, to) = (fde.initial_address(), fde.initial_address() + fde.len());
            if from.wrapping_sub(self.text.va) >= self.text.data.len() as u64 {
                continue;
            }
            self.functions.push((from, to));
            let row = fde.unwind_info_for_address(&eh, &bases, &mut cx, from);
            // Callers leave their return address on the stack, and nothing else.
            let called = |cfa: &CfaRule<usize>| match cfa {
                CfaRule::RegisterAndOffset { register, offset } => (register.0, *offset) == (7, 8),
                CfaRule::Expression(_) => true,
            };
            if row.is_ok_and(|row| !called(row.cfa())) {
                self.parts.push(from);
            }
            if let Some(gimli::Pointer::Direct(lsda)) = fde.lsda() {
                let calls = self.call_sites(lsda, from).unwrap_or_default();
                let pads = calls.iter().filter(|c| c.pad != 0);
                self.pads.extend(pads.map(|c| Pad { from: c.from, to: c.to, pad: c.pad }));
            }
        }
        self.functions.sort_unstable();
        self.parts.sort_unstable();
    }

    /// The call-site table of an LSDA.
    pub fn call_sites(&self, lsda: u64, function: u64) -> Option<Vec<CallSite>> {
        let mut c = Cursor { m: self, va: lsda };
        let head = c.lsda_head()?;
        let (base, encoding, end) = (head.0.unwrap_or(function), head.2, head.3);
        let mut calls = Vec::new();
        while c.va < end {
            // LLVM gives the pieces of a function one behind the other, whose tables all claim to reach to the end of the last one's.
            // Up to three zero bytes may stand between.
            let zeros = (0..3).take_while(|i| self.bytes_at(c.va + i, 1) == Some(&[0])).count() as u64;
            let begins = |i: u64| Cursor { m: self, va: c.va + i }.lsda_head() == Some(head);
            if head.0.is_some() && (0..=zeros).any(begins) {
                break;
            }
            let (start, len) = (c.value(encoding)?, c.value(encoding)?);
            let pad = c.value(encoding)?;
            let action = c.uleb()?;
            let pad = if pad == 0 { 0 } else { base + pad };
            calls.push(CallSite { from: function + start, to: function + start + len, pad, action });
        }
        Some(calls)
    }
}

/// The places that a table of relative relocations names (gABI, "Relative Relocation Table").
pub(super) fn relr_places(table: &[u8]) -> Vec<u64> {
    let mut places = Vec::new();
    let mut next = 0u64;
    for word in table.chunks_exact(8).filter_map(|c| c.try_into().ok().map(u64::from_le_bytes)) {
        if word & 1 == 0 {
            places.push(word);
            next = word.wrapping_add(8);
        } else {
            places.extend((0..63).filter(|bit| word >> (bit + 1) & 1 == 1).map(|bit| next.wrapping_add(8 * bit)));
            next = next.wrapping_add(63 * 8);
        }
    }
    places
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
    (info.magic == abi::MODULE_MAGIC).then_some(info)
}

/// Reads DWARF-encoded numbers at increasing addresses.
struct Cursor<'m, 'a> {
    m: &'m Module<'a>,
    va: u64,
}

impl Cursor<'_, '_> {
    /// What an LSDA begins with: what its landing pads are relative to, if it says so, where its types are, how its call sites
    /// are encoded, and where they end.
    fn lsda_head(&mut self) -> Option<(Option<u64>, Option<u64>, u8, u64)> {
        let base = match self.u8()? {
            0xff => None,
            encoding => Some(self.pointer(encoding)?),
        };
        let types = match self.u8()? {
            0xff => None,
            _ => Some(self.uleb()?).map(|distance| self.va.wrapping_add(distance)),
        };
        let encoding = self.u8()?;
        let bytes = self.uleb()?;
        Some((base, types, encoding, self.va.checked_add(bytes)?))
    }

    fn take(&mut self, n: usize) -> Option<u64> {
        let b = self.m.bytes_at(self.va, n)?;
        self.va += n as u64;
        Some(b.iter().rev().fold(0, |v, &x| v << 8 | u64::from(x)))
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|v| v as u8)
    }

    fn uleb(&mut self) -> Option<u64> {
        let mut v = 0;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            v |= u64::from(b & 0x7f) << shift;
            if b & 0x80 == 0 {
                return Some(v);
            }
        }
        None
    }

    /// DW_EH_PE value format, without application of a base.
    fn value(&mut self, encoding: u8) -> Option<u64> {
        Some(match encoding & 0xf {
            0x0 | 0x4 | 0xc => self.take(8)?,
            0x1 => self.uleb()?,
            0x2 => self.take(2)?,
            0x3 => self.take(4)?,
            0xa => self.take(2)? as i16 as u64,
            0xb => self.take(4)? as i32 as u64,
            _ => return None,
        })
    }

    fn pointer(&mut self, encoding: u8) -> Option<u64> {
        let at = self.va;
        let v = self.value(encoding)?;
        Some(if encoding & 0x70 == 0x10 { at.wrapping_add(v) } else { v })
    }
}
