//! The output compared with the input: where each byte of old code went.
//!
//! Input: module, decoded new code, sites, the original file. Output: [`ByteCounts`], the complete map from old to new
//! addresses, findings. Each instruction of the input that the trap map or a springboard names is decoded at its old address; the
//! new code there must be inserted code, then the same instruction: the same bytes, but for distances, which must lead to the
//! same data, and to the new code of the same target. Behind it stands the new code of the next instruction, or a jump to it.
//!
//! **Invariant:** each new instruction is inserted code of a recognised site, the one copy of one old instruction, a jump to what follows
//! an old instruction, or padding; each old byte is part of an instruction (and now a springboard or a trap), padding, or as it
//! was. All else of the input's segments is as it was, headers and two bits of its property note apart. Source: `rewriter/DESIGN.md`.

use crate::audit::{Audit, ByteCounts};
use crate::decode::decoder::{self, Code};
use crate::decode::effects::{Flow, RAX, RSP};
use crate::decode::insn::{ADDR32, FS, GS, Insn, NO_TARGET, RIP, WIDE};
use crate::decode::raw::{Raw, prefixes, without_segments};
use crate::error::{Error, Result};
use crate::facts::exempt::names_memory_of_runtime;
use crate::file::dynamic::relr_places;
use crate::file::eh_frame_hdr;
use crate::file::frames::Frames;
use crate::file::memory::{HEADER_BYTES, kernel_table};
use crate::file::module::{Module, Section, Segment};
use crate::graph::tables::{Ends, Tables};
use crate::judge::file::notes;
use crate::judge::old_code::dynamic_symbols;
use crate::judge::old_code::springboards::Old;
use crate::sites::site::{Kind, Sites, get};
use blizzard_contract as contract;
use foldhash::{HashMap, HashMapExt};
use gimli::BaseAddresses;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection, SectionFlags, elf};
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};

const TRAP: u8 = 0xcc;
const HLT: u16 = 0xf4;

/// The file before it was rewritten.
pub struct Original<'a> {
    file: &'a [u8],
    segments: Vec<Segment>,
    exec: Vec<Section<'a>>,
    /// Bytes of the file that hold debug information, outside the segments: it follows the code, partly in place.
    pub(crate) debug: Vec<Range<u64>>,
    /// Where its build id stands in the file.
    id: Range<u64>,
    /// Bytes of the file that hold notes.
    notes: Vec<Range<u64>>,
    /// Values of dynamic symbols of functions, and numbers that the dynamic loader adds the file's address to: where they stand in the file, ascending,
    /// and what they are.
    values: Vec<(u64, u64)>,
    /// Where the values of these symbols stand, ascending; the sizes stand behind them.
    functions: Vec<u64>,
    /// The whole pages that the dynamic loader makes read-only when it has relocated them, and the places that it fills, ascending.
    protected: Range<u64>,
    relocated: Vec<u64>,
    /// Where `.eh_frame` is.
    frames_va: Option<u64>,
    /// The file's last bytes, behind all that its headers name.
    attached: &'a [u8],
}

impl<'a> Original<'a> {
    /// The file.
    pub fn file(&self) -> &'a [u8] {
        self.file
    }

    /// Reads the original.
    ///
    /// # Errors
    /// It is no ELF file for x86-64.
    pub fn read(file: &'a [u8], name: &str) -> Result<Original<'a>> {
        let bad = |e: object::read::Error| Error::new(format!("{name}: not a 64-bit ELF file")).because(e);
        let elf = ElfFile64::<Endianness>::parse(file).map_err(bad)?;
        let endian = elf.endian();
        let mut segments = Vec::new();
        for p in elf.elf_program_headers().iter().filter(|p| p.p_type(endian) == elf::PT_LOAD) {
            segments.push(Segment {
                va: p.p_vaddr(endian),
                file_off: p.p_offset(endian),
                file_bytes: p.p_filesz(endian),
                flags: p.p_flags(endian).0,
            });
        }
        let notes = elf.elf_program_headers().iter().filter(|p| p.p_type(endian) == elf::PT_NOTE);
        let notes = notes.map(|p| p.p_offset(endian)..p.p_offset(endian).saturating_add(p.p_filesz(endian))).collect();
        let (mut exec, mut debug) = (Vec::new(), Vec::new());
        for s in elf.sections() {
            let SectionFlags::Elf { sh_flags, .. } = s.flags() else { continue };
            let is_debug =
                |name: &str| name.starts_with(".debug_") || name.starts_with(".zdebug_") || name == ".gdb_index";
            if sh_flags.0 & elf::SHF_ALLOC.0 == 0 && s.name().is_ok_and(is_debug) {
                debug.extend(s.file_range().map(|(off, bytes)| off..off.saturating_add(bytes)));
            }
            let both = elf::SHF_ALLOC.0 | elf::SHF_EXECINSTR.0;
            if sh_flags.0 & both == both {
                exec.push(Section {
                    name: s.name().unwrap_or("?").to_string(),
                    va: s.address(),
                    data: s.data().unwrap_or(&[]),
                    exec: true,
                });
            }
        }
        if elf.elf_section_table().is_empty() {
            let mapped = |s: &Segment| file.get(s.file_off as usize..)?.get(..s.file_bytes as usize);
            let code = segments.iter().filter(|s| s.flags & elf::PF_X.0 != 0 && s.file_bytes != 0);
            exec.extend(code.filter_map(|s| {
                Some(Section { name: format!("segment {:#x}", s.va), va: s.va, data: mapped(s)?, exec: true })
            }));
        }
        exec.sort_by_key(|s| s.va);
        let symbols = elf.elf_dynamic_symbol_table().symbols();
        let value_at =
            |s: &elf::Sym64<Endianness>| (std::ptr::from_ref(&s.st_value) as u64).saturating_sub(file.as_ptr() as u64);
        let function =
            |s: &&elf::Sym64<Endianness>| s.st_type() == elf::STT_FUNC && s.st_shndx.get(endian) != elf::SHN_UNDEF;
        let mut values: Vec<(u64, u64)> =
            symbols.iter().filter(function).map(|s| (value_at(s), s.st_value.get(endian))).collect();
        let mut functions: Vec<u64> = values.iter().map(|v| v.0).collect();
        functions.sort_unstable();
        values.extend(relative_numbers(&elf, file, &segments));
        values.sort_unstable();
        values.dedup();
        // Another file has another build id.
        let id = build_id(&elf, file).unwrap_or(&[]);
        let id_at = (id.as_ptr() as u64).saturating_sub(file.as_ptr() as u64);
        let id = if id.is_empty() { 0..0 } else { id_at..id_at + id.len() as u64 };
        let relro = elf.elf_program_headers().iter().find(|p| p.p_type(endian) == elf::PT_GNU_RELRO);
        let protected =
            relro.map_or(0..0, |p| p.p_vaddr(endian)..p.p_vaddr(endian).saturating_add(p.p_memsz(endian)) & !0xfff);
        let mut relocated: Vec<u64> = elf.dynamic_relocations().into_iter().flatten().map(|(place, _)| place).collect();
        if let Some(relr) = elf.section_by_name(".relr.dyn") {
            relocated.extend(relr_places(relr.data().unwrap_or(&[])));
        }
        relocated.sort_unstable();
        let attached = behind_structures(&elf, file);
        let tail = |va| tail(file, &segments, va);
        // Unwinders find it by PT_GNU_EH_FRAME. The start-up code of some static programs tells them, and so does that of files whose table has another form.
        let named = eh_frame_hdr::read(&kernel_table(file).unwrap_or_default(), &tail)
            .ok()
            .flatten()
            .filter(|index| !index.rows.is_empty());
        let section = || elf.section_by_name(".eh_frame").filter(|s| s.size() > 0).map(|s| s.address());
        let frames_va = named.map(|index| index.frames).or_else(section);
        Ok(Original {
            file,
            segments,
            exec,
            debug,
            id,
            notes,
            values,
            functions,
            protected,
            relocated,
            frames_va,
            attached,
        })
    }

    /// Whether at `off` stand the features that the file says it works with (IBT and SHSTK), and only these two were taken back.
    fn takes_back_features(&self, off: u64, was: u8, is: u8) -> bool {
        const PROPERTY: [u8; 8] = [0x02, 0, 0, 0xc0, 4, 0, 0, 0];
        let noted = self.notes.iter().any(|n| n.contains(&off));
        let at = off as usize;
        noted && is == was & !3 && at >= 8 && self.file.get(at - 8..at) == Some(&PROPERTY[..])
    }

    /// Whether `n` bytes are in memory what they are in the file, as long as the program runs.
    fn is_constant(&self, va: u64, n: u64) -> bool {
        let end = va.saturating_add(n);
        let writable =
            |s: &&Segment| va < s.va.saturating_add(s.file_bytes) && end > s.va && s.flags & elf::PF_W.0 != 0;
        if !self.segments.iter().any(|s| writable(&s)) {
            return true;
        }
        let next = self.relocated.partition_point(|place| place.saturating_add(8) <= va);
        let filled = self.relocated.get(next).is_some_and(|place| *place < end);
        self.protected.start <= va && end <= self.protected.end && !filled
    }

    /// The frames of the old code.
    pub fn frames(&self, bases: BaseAddresses) -> std::result::Result<Frames<'a>, String> {
        let tail = |va| tail(self.file, &self.segments, va);
        let Some(va) = self.frames_va else { return Ok(Frames::default()) };
        let bytes = tail(va).ok_or_else(|| format!("its frames should be at {va:#x}, outside the file"))?;
        Frames::read(bytes, va, bases, &tail).map_err(|why| format!("the original: {why}"))
    }

    fn section(&self, va: u64) -> Option<&Section<'a>> {
        self.exec.iter().find(|s| va.wrapping_sub(s.va) < s.data.len() as u64)
    }

    fn bytes_at(&self, va: u64, n: usize) -> Option<&'a [u8]> {
        let s = self.segments.iter().find(|s| va.wrapping_sub(s.va) < s.file_bytes)?;
        let off = (s.file_off + (va - s.va)) as usize;
        self.file.get(off..off.checked_add(n)?)
    }
}

/// The build id, as who reads the mapped file finds it: by PT_NOTE.
fn build_id<'a>(elf: &ElfFile64<'a, Endianness>, file: &'a [u8]) -> Option<&'a [u8]> {
    let endian = elf.endian();
    let mut notes = elf.elf_program_headers().iter().filter_map(|p| p.notes(endian, file).ok().flatten());
    notes.find_map(|mut notes| {
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc());
            }
        }
        None
    })
}

/// The bytes that are mapped from `va` to the end of its segment's part of the file.
fn tail<'a>(file: &'a [u8], segments: &[Segment], va: u64) -> Option<&'a [u8]> {
    let s = segments.iter().find(|s| va.wrapping_sub(s.va) < s.file_bytes)?;
    let end = s.file_off.checked_add(s.file_bytes)?;
    file.get(usize::try_from(s.file_off + (va - s.va)).ok()?..usize::try_from(end).ok()?)
}

struct Comparison<'x, 'a> {
    m: &'x Module<'a>,
    text: &'x Code,
    sites: &'x Sites,
    original: &'x Original<'a>,
    /// Instructions of plain code with a full version, and that; ascending.
    twice: &'x [(u64, Range<u64>)],
    tables: &'x Tables,
    /// Reads of tables: the table by the instruction's index.
    reads: HashMap<usize, usize>,
    map: HashMap<u64, u64>,
    /// Where the own jumps of loops lead that test for several iterations: the beginning of the loop's new code.
    entered: HashMap<u64, u64>,
    /// Old instructions by address.
    insns: HashMap<u64, Insn>,
    /// Bitmap of new instructions accounted for.
    used: Vec<u64>,
    undefined: Vec<u64>,
}

/// What the comparison knows of all instructions.
pub struct Compared {
    /// Old addresses, ascending, and where the new code begins, inserted code included.
    pub pairs: Vec<(u64, u64)>,
    /// New addresses, ascending, of what is undefined or privileged now and was not: instructions of other processors, stores into the runtime's memory.
    pub undefined: Vec<u64>,
}

/// Compares. `twice`: instructions of plain code with a full version, and that; ascending.
pub fn compare(
    m: &Module,
    text: &Code,
    sites: &Sites,
    tables: &Tables,
    old: &Old,
    (original, twice): (&Original, &[(u64, Range<u64>)]),
    audit: &mut Audit,
) -> Compared {
    let named: Vec<(u64, u64)> = old.all(m).collect();
    let mut c = Comparison {
        m,
        text,
        sites,
        original,
        twice,
        tables,
        reads: tables.reads.iter().map(|&(load, table)| (load, table)).collect(),
        map: named.iter().copied().collect(),
        entered: sites
            .list
            .iter()
            .flat_map(|s| s.strip.iter().map(|strip| (text.insns[strip.inner].va, text.insns[s.start].va)))
            .collect(),
        insns: HashMap::with_capacity(named.len()),
        used: vec![0; text.insns.len() / 64 + 1],
        undefined: Vec::new(),
    };
    let mut addresses: Vec<u64> = named.iter().map(|p| p.0).collect();
    addresses.sort_unstable();
    addresses.dedup();
    for s in &original.exec {
        let from = addresses.partition_point(|&a| a < s.va);
        let to = addresses.partition_point(|&a| a < s.va + s.data.len() as u64);
        c.insns.extend(decoder::decode_at(s.data, s.va, &addresses[from..to]).into_iter().map(|i| (i.va, i)));
    }
    c.covered(old);
    let mut list: Vec<(u64, u64)> = c.map.iter().map(|(&a, &b)| (a, b)).collect();
    list.sort_unstable();
    for &(from, to) in &list {
        if let Err(why) = c.instruction(from, to) {
            audit.finding(from, m.place(to), why);
        }
    }
    c.surplus(audit);
    c.tables_match(audit);
    c.bytes(old, &list, audit);
    c.elsewhere(audit);
    c.undefined.sort_unstable();
    Compared { pairs: list, undefined: c.undefined }
}

impl Comparison<'_, '_> {
    fn old_insn(&mut self, va: u64) -> Option<Insn> {
        if let Some(i) = self.insns.get(&va) {
            return Some(*i);
        }
        let s = self.original.section(va)?;
        let i = decoder::decode_at(s.data, s.va, &[va]).pop()?;
        self.insns.insert(va, i);
        Some(i)
    }

    /// Completes the map: the trap map leaves out instructions that begin under a springboard. In the new code they follow the
    /// instruction that was in front of them, or stand where a branch leads that led to them. A jump may be the copy of a jump or lead to it:
    /// where neither leads to the right place for sure, what else leads there has its say first.
    fn covered(&mut self, old: &Old) {
        let mut work: Vec<u64> = self.map.keys().copied().collect();
        let mut doubtful: BTreeSet<u64> = BTreeSet::new();
        loop {
            let (at, is_last) = match work.pop() {
                Some(at) => (at, false),
                None => match doubtful.pop_first() {
                    Some(at) => (at, true),
                    None => return,
                },
            };
            for (from, places) in self.leads_to(at, old) {
                if self.map.contains_key(&from) {
                    continue;
                }
                let Some(o) = self.old_insn(from) else { continue };
                let is_copy = |to: &u64, loose| self.text.at(*to).and_then(|k| self.copy_of(&o, k, loose)).is_some();
                let loose: Vec<u64> = places.into_iter().filter(|to| is_copy(to, true)).collect();
                let exact = loose.iter().copied().find(|to| is_copy(to, false));
                match exact.or_else(|| loose.first().copied().filter(|_| is_last || loose.len() == 1)) {
                    Some(to) => {
                        self.map.insert(from, to);
                        work.push(from);
                    }
                    None if !loose.is_empty() => _ = doubtful.insert(at),
                    None => {}
                }
            }
        }
    }

    /// The instructions under springboards that an old one leads to, each with where its new code may stand.
    fn leads_to(&mut self, at: u64, old: &Old) -> Vec<(u64, Vec<u64>)> {
        let Some(o) = self.old_insn(at) else { return Vec::new() };
        let is_missing = |va: u64| old.in_springboard(va) && !self.map.contains_key(&va);
        let (behind, target) = (is_missing(o.end()), o.target != NO_TARGET && is_missing(o.target));
        if !behind && !target {
            return Vec::new();
        }
        let new = self.map.get(&at).and_then(|&n| self.text.at(n));
        let Some((first, n)) = new.and_then(|k| self.copy_of(&o, k, true)) else { return Vec::new() };
        let mut found = Vec::new();
        let follows = self.sites.behind_stack_test(first + n).unwrap_or(first + n);
        if let Some(next) = self.text.insns.get(follows).filter(|_| behind) {
            let mut places = vec![next.va];
            // What overlaps other instructions may end with a jump to what follows.
            places.extend((next.flow == Flow::Jump).then_some(next.target));
            found.push((o.end(), places));
        }
        if target && n == 1 {
            let branch = &self.text.insns[first];
            let leads = self.entered.get(&branch.target).copied().unwrap_or(branch.target);
            found.push((o.target, vec![leads]));
        }
        found
    }

    /// One old instruction and its new code.
    fn instruction(&mut self, from: u64, to: u64) -> std::result::Result<(), String> {
        let o = self.old_insn(from).ok_or("the trap map names no instruction of the original")?;
        let k = self.text.at(to).ok_or("its new address begins no instruction")?;
        let (first, n) = self
            .copy_of(&o, k, false)
            .ok_or_else(|| format!("the new code at {to:#x} is not the instruction of the original"))?;
        let mut used = |k: usize| self.used[k / 64] |= 1 << (k % 64);
        (first..first + n).for_each(&mut used);
        // A breakpoint in front of padding need not go on.
        let ends = matches!(o.flow, Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop);
        let stops = self.text.insns[first].flow == Flow::Stop;
        if stops && o.flow == Flow::Next {
            self.undefined.push(self.text.insns[first].va);
        }
        if ends || stops || (o.is_int3() && !self.map.contains_key(&o.end())) {
            return Ok(());
        }
        // What runs next.
        let next = self.map.get(&o.end()).copied();
        let mut at = first + n;
        loop {
            if let Some(behind) = self.sites.behind_stack_test(at) {
                at = behind;
            }
            let Some(i) = self.text.insns.get(at) else { return Err("the new code ends behind it".into()) };
            match next {
                Some(n) if i.va == n => return Ok(()),
                Some(n) if i.flow == Flow::Jump && i.target == n => {
                    used(at);
                    return Ok(());
                }
                None if i.flow == Flow::Stop => {
                    used(at);
                    return Ok(());
                }
                // A redirection's jump leads to the full version of the function that follows.
                _ if o.is_int3() && i.flow == Flow::Jump && get(&self.sites.inserted, at) => at += 1,
                // Breakpoints between functions.
                _ if o.is_int3() && i.is_int3() => at += 1,
                _ if i.is_nop() && !get(&self.sites.inserted, at) => {
                    if next.is_some_and(|n| is_stray(self.m, i, n)) {
                        return Err(format!(
                            "behind it stands a nop at {:#x} that is neither the program's nor padding",
                            i.va
                        ));
                    }
                    at += 1;
                }
                _ => return Err(format!("what follows it in the new code at {:#x} is not what followed it", i.va)),
            }
        }
    }

    /// Finds the copy of `o` in the new code that begins at instruction `k`: index and number of instructions. `loose`: branch
    /// targets are not compared, because the map is not complete yet.
    fn copy_of(&self, o: &Insn, k: usize, loose: bool) -> Option<(usize, usize)> {
        let inserted = (k..).take_while(|&i| get(&self.sites.inserted, i)).count();
        // Behind what is inserted; or earlier, where an instruction of the program was taken for inserted code.
        (k..=k + inserted).rev().find_map(|at| Some((at, self.same(o, at, loose)?)))
    }

    /// How many instructions from `k` on are the new form of `o`.
    fn same(&self, o: &Insn, k: usize, loose: bool) -> Option<usize> {
        let n = self.text.insns.get(k)?;
        let entered = |target: u64| self.entered.get(&target).copied().unwrap_or(target);
        let goes = |target: u64| loose || entered(target) == self.map.get(&o.target).copied().unwrap_or(o.target);
        match o.flow {
            Flow::Jump => (n.flow == Flow::Jump && goes(n.target)).then_some(1),
            Flow::Call if o.target == o.end() => {
                let i = self.text.insns.get(k..k + 3)?;
                let address = i[1].mem.is_some_and(|m| m.base == RIP && m.disp as u64 == o.end());
                let forms = i[0].op == 0x50
                    && i[0].r0 == RAX
                    && i[1].op == 0x8d
                    && i[1].r0 == RAX
                    && i[1].has(WIDE)
                    && !i[1].has(ADDR32);
                let top = i[2].mem.is_some_and(|m| m.base == RSP && m.disp == 0);
                (address && forms && top && i[2].op == 0x87 && i[2].has(WIDE)).then_some(3)
            }
            Flow::Call => (n.flow == Flow::Call && goes(n.target)).then_some(1),
            Flow::Cond if matches!(o.op, 0x70..=0x7f | 0x180..=0x18f) => {
                let condition = matches!(n.op, 0x70..=0x7f | 0x180..=0x18f) && n.op & 15 == o.op & 15;
                (n.flow == Flow::Cond && condition && goes(n.target)).then_some(1)
            }
            Flow::Cond if o.op == 0xc7 => (n.flow == Flow::Cond && n.op == o.op && goes(n.target)).then_some(1),
            Flow::Cond => {
                // loop and jrcxz: over a jump over a long jump.
                let i = self.text.insns.get(k..k + 3)?;
                let prefix = o.bits == n.bits && o.op == n.op;
                let over = i[0].target == i[2].va && i[1].flow == Flow::Jump && i[1].target == i[2].end();
                (prefix && over && i[2].flow == Flow::Jump && goes(i[2].target)).then_some(3)
            }
            // Instructions of other processors, which the processors that this is for do not have.
            Flow::Next if matches!(o.op, 0x1a6 | 0x1a7) && n.op == 0x10b => Some(1),
            // Stores into the runtime's memory, where a program has none, fail.
            Flow::Next if n.op == HLT && matches!(o.op, 0xa2 | 0xa3) && names_memory_of_runtime(o) => Some(1),
            _ => self.same_bytes(o, n, k).then_some(1),
        }
    }

    /// No branch: the bytes are the same, except a distance, which leads to the same place.
    fn same_bytes(&self, o: &Insn, n: &Insn, k: usize) -> bool {
        let old = self.original.section(o.va).map_or(&[][..], |s| &s.data[(o.va - s.va) as usize..]);
        let new = &self.m.text.data[(n.va - self.text.base) as usize..];
        let (Some(old), Some(new)) = (old.get(..o.len.into()), new.get(..n.len.into())) else { return false };
        if old == new {
            return o.mem.is_none_or(|m| m.base != RIP) || o.mem == n.mem;
        }
        if self.m.is_guarded() && without_segments(old) == without_segments(new) {
            // It has the prefix for the alias, behind a test, in place of one that does nothing.
            let tested = self.sites.test_of(k).is_some_and(|s| matches!(s.kind, Kind::Check { .. }));
            return tested && !prefixes(old).contains(&FS) && prefixes(new).contains(&GS);
        }
        if self.reads.contains_key(&k) {
            // Of a table's read the distance changes, and may grow.
            let but_for_distance = |i: &Insn| {
                let m = i.mem.map(|m| (m.base, m.index, m.scale, m.seg));
                (i.op, i.ext, i.bits, i.size, i.r0, i.r1, m, i.imm)
            };
            return but_for_distance(o) == but_for_distance(n) && o.flow == n.flow;
        }
        let rip = o.mem.is_some_and(|m| m.base == RIP) && o.mem == n.mem && o.len == n.len;
        let Some(at) = Raw::parse(old).filter(|_| rip).map(|r| usize::from(r.after_op) + 1) else { return false };
        old.len() >= at + 4 && old[..at] == new[..at] && old[at + 4..] == new[at + 4..]
    }

    /// New code that no old instruction became.
    fn surplus(&self, audit: &mut Audit) {
        let mut run = false;
        for (k, i) in self.text.insns.iter().enumerate() {
            let known = get(&self.used, k) || get(&self.sites.inserted, k) || i.is_nop() || i.is_int3();
            if !known && !run {
                let why = "new code that no instruction of the original became";
                audit.finding(i.va, self.m.place(i.va), why);
            }
            run = !known;
        }
    }

    /// New tables are the old ones, entry by entry.
    fn tables_match(&self, audit: &mut Audit) {
        let new_to_old: HashMap<u64, u64> = self.map.iter().map(|(&a, &b)| (b, a)).collect();
        let mut starts: Vec<u64> = self.insns.keys().copied().collect();
        starts.sort_unstable();
        let ends = Ends::new(&self.tables.list);
        for (&load, &t) in &self.reads {
            let table = &self.tables.list[t];
            let n = &self.text.insns[load];
            let begin = (0..=load).rev().find_map(|k| new_to_old.get(&self.text.insns[k].va));
            let o = begin.and_then(|old| self.insns.get(old));
            let (Some(o), Some(new_mem)) = (o, n.mem) else {
                audit.finding(n.va, self.m.place(n.va), "the read of a jump table has no original");
                continue;
            };
            let Some(old_mem) = o.mem else { continue };
            let at = table.va.wrapping_sub(new_mem.disp as u64).wrapping_add(old_mem.disp as u64);
            let width = table.form.width();
            if !self.original.is_constant(at, (table.targets.len() * width) as u64) {
                let why = format!("the jump table of the original at {at:#x} may change");
                audit.finding(n.va, self.m.place(n.va), why);
            }
            for (k, &target) in table.targets.iter().enumerate() {
                let entry = self.original.bytes_at(at.wrapping_add((k * width) as u64), width);
                let old_target = entry.map(|e| table.form.target(e));
                // What stands behind the table's own end keeps leading to the old address.
                let is_same = old_target == Some(target) || old_target.and_then(|t| self.map.get(&t)) == Some(&target);
                if !is_same {
                    let why = format!("entry {k} of the jump table leads to {target:#x}, in the original elsewhere");
                    audit.finding(table.va, self.m.place(table.va), why);
                }
            }
            // Where the next word could be an entry, too, the program's bound must say that it is none.
            let next = self.original.bytes_at(at.wrapping_add((table.targets.len() * width) as u64), width);
            let entries = table.targets.len() as u64;
            if !next.is_some_and(|e| self.may_be_a_case(table.form.target(e), &starts)) {
                continue;
            }
            match self.tables.bounds.get(&load) {
                Some(bound) if *bound <= entries => audit.proven_tables += 1,
                _ if ends.of(table.form).is_some_and(|end| end <= entries) => {
                    audit.trust("jump tables that end where the program's next table begins", 1);
                }
                // Without a frame description the rewriter believes the nearest comparison in front of the jump.
                _ if self.m.function_at(n.va).is_none() => {
                    audit.trust(
                        "jump tables of code without a frame, as long as a comparison in front of the jump says",
                        1,
                    );
                }
                bound => {
                    let known = bound.map_or(String::new(), |b| format!(" ({b} are possible)"));
                    let why = format!("nothing proves that its jump table ends behind {entries} entries{known}");
                    audit.finding(n.va, self.m.place(n.va), why);
                }
            }
        }
    }

    /// Whether an entry of a table may lead there: to an instruction, or to where none is, as cases do that cannot happen.
    fn may_be_a_case(&self, to: u64, starts: &[u64]) -> bool {
        let before = starts[..starts.partition_point(|s| *s < to)].last();
        let inside = before.and_then(|s| self.insns.get(s)).is_some_and(|i| to < i.end());
        let code = |va: u64| self.original.section(va).is_some();
        self.map.contains_key(&to) || (!inside && (code(to) || code(to.wrapping_sub(1))))
    }

    /// Every old byte.
    fn bytes(&self, old: &Old, list: &[(u64, u64)], audit: &mut Audit) {
        let mut counts = ByteCounts::default();
        for s in &self.original.exec {
            let Some(now) = self.m.bytes_at(s.va, s.data.len()) else {
                audit.finding(s.va, s.name.clone(), "the section is not in the output");
                continue;
            };
            let n = s.data.len();
            let (mut code, mut board) = (vec![false; n], vec![false; n]);
            let end = s.va + n as u64;
            let within =
                |list: &[(u64, u64)]| list.partition_point(|p| p.0 < s.va)..list.partition_point(|p| p.0 < end);
            for &(va, _) in &list[within(list)] {
                let at = (va - s.va) as usize;
                let len = self.insns.get(&va).map_or(1, |i| usize::from(i.len));
                code[at..(at + len).min(n)].fill(true);
                counts.instructions += 1;
            }
            for &(va, bytes) in &old.pieces[within(&old.pieces)] {
                let at = (va - s.va) as usize;
                board[at..(at + bytes as usize).min(n)].fill(true);
            }
            if self.m.info.flags & contract::module_flags::JUMPS != 0
                && let Some(va) = mixed(s.va, now, &code, &board, &list[within(list)])
            {
                let why = "a byte of data looks like a trap byte right behind an instruction, where the runtime may write a jump";
                audit.finding(va, self.m.place(va), why);
            }
            let mut k = 0;
            while k < n {
                let from = k;
                let gone = |k: usize| board[k] || now[k] == TRAP;
                if code[k] {
                    while k < n && code[k] {
                        counts.springboard += u64::from(board[k]);
                        counts.trap += u64::from(!board[k] && now[k] == TRAP);
                        if !gone(k) {
                            let va = s.va + k as u64;
                            audit.finding(va, self.m.place(va), "a byte of a relocated instruction is still there");
                        }
                        k += 1;
                    }
                    continue;
                }
                if now[k] == s.data[k] && !board[k] {
                    while k < n && !code[k] && !board[k] && now[k] == s.data[k] {
                        k += 1;
                    }
                    counts.kept += (k - from) as u64;
                    counts.kept_runs += 1;
                    continue;
                }
                while k < n && !code[k] && (board[k] || now[k] != s.data[k] || now[k] == TRAP) {
                    k += 1;
                }
                counts.padding += (k - from) as u64;
                if let Some(other) = (from..k).find(|&k| !gone(k)) {
                    let va = s.va + other as u64;
                    let why = "a byte of padding became neither a trap byte nor a part of a springboard";
                    audit.finding(va, self.m.place(va), why);
                }
                // What stands behind the last instruction up to the end of the run must be padding, as a whole.
                if !is_padding(&s.data[from..k], s.va + from as u64) {
                    let va = s.va + from as u64;
                    let why = format!("{} bytes that belong to no relocated instruction were overwritten", k - from);
                    audit.finding(va, self.m.place(va), why);
                }
            }
        }
        audit.bytes = Some(counts);
    }

    /// Whether at `off` in the file stands the value of a function's dynamic symbol or a word's, which leads to the new code of what stood at its old
    /// one; where the value begins.
    fn leads_to_new_code(&self, off: u64) -> Option<u64> {
        let values = &self.original.values;
        let k = values.partition_point(|e| e.0 <= off).checked_sub(1)?;
        let (at, was) = values[k];
        let segment = self.original.segments.iter().find(|s| at.wrapping_sub(s.file_off) < s.file_bytes)?;
        let now = self.m.bytes_at(segment.va + (at - segment.file_off), 8)?;
        let now = u64::from_le_bytes(now.try_into().ok()?);
        (off < at + 8 && self.map.get(&was) == Some(&now)).then_some(at)
    }

    /// Whether at `off` in the file stands the size of a function's dynamic symbol which leads to new code now, and ends behind the function's last
    /// instruction, before anything else of the program; where the size begins. `begins` are the new addresses, ascending.
    fn is_size_of_new_code(&self, off: u64, begins: &[u64]) -> Option<u64> {
        let functions = &self.original.functions;
        let at = functions[functions.partition_point(|at| at + 8 <= off).checked_sub(1)?];
        let value = self.leads_to_new_code(at).filter(|value| *value == at && off < at + 16)?;
        let segment = self.original.segments.iter().find(|s| value.wrapping_sub(s.file_off) < s.file_bytes)?;
        let both = |bytes: &[u8]| [0, 8].map(|k| u64::from_le_bytes(bytes[k..k + 8].try_into().expect("eight bytes")));
        let at_value = segment.va + (value - segment.file_off);
        let [start, bytes] = both(self.m.bytes_at(at_value, 16)?);
        let [was, was_bytes] = both(self.original.bytes_at(at_value, 16)?);
        let end = start.checked_add(bytes)?;
        self.ends_of(was, was_bytes, begins)?.iter().any(|ends| ends.contains(&end)).then_some(at + 8)
    }

    /// Where the new code may end of the function of `was_bytes` bytes at `was`: behind its last instruction, before anything else of the program. There are
    /// several ranges where instructions overlap. `begins` are the new addresses, ascending.
    fn ends_of(&self, was: u64, was_bytes: u64, begins: &[u64]) -> Option<Vec<RangeInclusive<u64>>> {
        let was_end = was.checked_add(was_bytes)?;
        // Behind the last instruction there may be data. Instructions that overlap others may begin between; the longest has 15 bytes. A size may say
        // anything, so only what the file holds is looked at.
        let last_of = |s: &Section| {
            let range = was.max(s.va)..was_end.min(s.va.saturating_add(s.data.len() as u64));
            range.rev().find(|va| self.insns.contains_key(va) && self.map.contains_key(va))
        };
        let last = self.original.exec.iter().filter_map(last_of).max()?;
        let near = was.max(last.saturating_sub(15))..was_end.min(last + 15);
        let is_last = |va: u64, o: &Insn| va == last || va + u64::from(o.len) >= was_end;
        let ends = near.filter_map(|va| {
            let copy = |(o, new): (&Insn, &u64)| self.copy_of(o, self.text.at(*new)?, true);
            let o = self.insns.get(&va).filter(|o| is_last(va, o));
            let found = o.zip(self.map.get(&va)).and_then(copy);
            let behind = found.map(|(first, n)| self.text.insns[first + n - 1].end());
            // Behind the last one of all the other versions follow, or the cold code.
            let stop = self.m.text.va + self.m.plain_bytes() as u64;
            let next = |from: u64| begins.get(begins.partition_point(|b| *b < from)).copied().unwrap_or(stop);
            behind.map(|from| from..=next(from))
        });
        Some(ends.collect())
    }

    /// Whether code at `is` is the full version of the function at `was`, both (address, bytes): of all its instructions that have one, and of nothing else.
    fn is_full_version(&self, was: (u64, u64), is: (u64, u64), begins: &[u64]) -> Option<bool> {
        let from = *self.map.get(&was.0)?;
        let end = is.0.checked_add(is.1)?;
        let text_end = self.m.text.va + self.m.text.data.len() as u64;
        let full_from = self.m.text.va + self.m.plain_bytes() as u64;
        let place = |plain: u64| self.twice.partition_point(|(va, _)| *va < plain);
        Some(self.ends_of(was.0, was.1, begins)?.iter().any(|ends| {
            let (first, stop) = (place(from), place(*ends.start()));
            let own = self.twice.get(first..stop).unwrap_or(&[]);
            let (Some((_, begin)), Some((_, last))) = (own.first(), own.last()) else { return false };
            let before = first.checked_sub(1).map_or(full_from, |k| self.twice[k].1.end);
            // Between them there is padding at most.
            let next = self.twice.get(place(*ends.end())).map_or(text_end, |(_, next)| next.start);
            (before..=begin.start).contains(&is.0) && (last.end..=next).contains(&end)
        }))
    }

    /// Where the values of tags stand in the file that lead to longer tables of symbols; these are judged.
    fn longer_symbols(&self, begins: &[u64], audit: &mut Audit) -> Vec<u64> {
        let is_moved = |was: (u64, u64), is: (u64, u64)| {
            let end = is.0.saturating_add(is.1);
            let ends =
                || self.ends_of(was.0, was.1, begins).is_some_and(|all| all.iter().any(|ends| ends.contains(&end)));
            self.map.get(&was.0) == Some(&is.0) && is.1 > 0 && ends()
        };
        let is_full = |was: (u64, u64), is: (u64, u64)| self.is_full_version(was, is, begins) == Some(true);
        let bytes_at = |va, n| self.m.bytes_at(va, n);
        let files = dynamic_symbols::Files {
            was: self.original.file,
            bytes_at: &bytes_at,
            is_moved: &is_moved,
            is_full: &is_full,
        };
        dynamic_symbols::judge(&files).unwrap_or_else(|why| {
            audit.finding(0, "dynamic symbols".into(), why);
            Vec::new()
        })
    }

    /// What no segment maps stands where it stood: programs that read their own file find it.
    fn outside_segments(&self, audit: &mut Audit) {
        let was = self.original.file;
        let mut ranges: Vec<(u64, u64)> = self.original.segments.iter().map(|s| (s.file_off, s.file_bytes)).collect();
        let elf_header = 0..HEADER_BYTES as u64;
        let others = self.original.debug.iter().chain([&elf_header, &self.original.id]);
        ranges.extend(others.map(|h| (h.start, h.end.saturating_sub(h.start))));
        ranges.push((was.len() as u64, 0));
        ranges.sort_unstable();
        let mut at = 0;
        for (off, bytes) in ranges {
            let off = off.min(was.len() as u64);
            if at < off {
                let range = at as usize..off as usize;
                let is = self.m.file.get(range.clone());
                let same = |is: &[u8]| was[range.clone()].iter().zip(is).position(|(a, b)| a != b);
                if let Some(k) = is.map_or(Some(0), same) {
                    let why = format!("byte {:#x} of the original's file was changed", range.start + k);
                    audit.finding(0, "outside the segments".into(), why);
                }
            }
            at = at.max(off.saturating_add(bytes));
        }
    }

    /// The build id is the one that follows from the original's.
    fn build_id(&self, audit: &mut Audit) {
        let (from, to) = (self.original.id.start as usize, self.original.id.end as usize);
        let Some(was) = self.original.file.get(from..to).filter(|id| !id.is_empty()) else { return };
        let is = self.m.file.get(from..to);
        if is.is_none() || is != notes::build_id(self.m, was).as_deref() {
            audit.finding(0, "notes".into(), "the build id does not follow from the new code and the original's");
        }
    }

    /// Outside of old code and the ELF header ([`crate::judge::file::headers`]) nothing has changed.
    fn elsewhere(&self, audit: &mut Audit) {
        self.build_id(audit);
        if !self.m.file.ends_with(self.original.attached) {
            audit.finding(
                0,
                "end of the file".into(),
                "what is attached to the original is not at the end of the output",
            );
        }
        self.outside_segments(audit);
        let mut begins: Vec<u64> = self.map.values().copied().collect();
        begins.sort_unstable();
        let tags = self.longer_symbols(&begins, audit);
        // A segment without a part in the file has nothing to compare.
        for s in self.original.segments.iter().filter(|s| s.file_bytes > 0) {
            let (Some(was), Some(is)) =
                (self.original.bytes_at(s.va, s.file_bytes as usize), self.m.bytes_at(s.va, s.file_bytes as usize))
            else {
                audit.finding(s.va, "segment".into(), "the segment of the original is not in the output");
                continue;
            };
            let mut k = 0;
            while let Some(d) = was[k..].iter().zip(&is[k..]).position(|(a, b)| a != b) {
                let (va, off) = (s.va + (k + d) as u64, s.file_off + (k + d) as u64);
                k += d + 1;
                if let Some(exec) = self.original.section(va) {
                    k = (exec.va + exec.data.len() as u64 - s.va) as usize;
                    k = k.min(was.len());
                } else if off < HEADER_BYTES as u64 || self.original.id.contains(&off) {
                    // Judged elsewhere.
                } else if let Some(at) = tags.iter().find(|at| (**at..**at + 8).contains(&off)) {
                    k = ((at + 8 - s.file_off) as usize).min(was.len());
                } else if let Some(at) = self.leads_to_new_code(off).or_else(|| self.is_size_of_new_code(off, &begins))
                {
                    k = ((at + 8 - s.file_off) as usize).min(was.len());
                } else if !self.original.takes_back_features(off, was[k - 1], is[k - 1]) {
                    audit.finding(va, self.m.place(va), "data of the original was changed");
                    break;
                }
            }
        }
    }
}

/// Where a byte stands that looks like a trap byte and may be one of data, so near behind the beginning of an instruction that a `jmp rel32` there would have it.
/// `code`: bytes of instructions, `board`: those of springboards; `begins`: where instructions begin, ascending. What looks like trap bytes up to the next code, or
/// up to the next multiple of eight, is padding.
fn mixed(from: u64, now: &[u8], code: &[bool], board: &[bool], begins: &[(u64, u64)]) -> Option<u64> {
    begins.iter().find_map(|&(va, _)| {
        let at = (va - from) as usize;
        let is_trap = |k: &usize| now[*k] == TRAP && !board[*k];
        // Behind other bytes than trap bytes nothing is written.
        let end = (at..(at + 5).min(now.len())).find(|k| !is_trap(k) || !code[*k])?;
        if !is_trap(&end) {
            return None;
        }
        let padding_ends = (end..now.len()).find(|k| code[*k] || !is_trap(k)).unwrap_or(now.len());
        let at_code = padding_ends == now.len() || code[padding_ends] || board[padding_ends];
        let certain = ((from + end as u64).next_multiple_of(8) - from) as usize;
        (!at_code && certain < padding_ends.min(at + 5)).then_some(from + certain as u64)
    })
}

/// The bytes of the file behind its segments, its sections and its tables of headers.
fn behind_structures<'a>(elf: &ElfFile64<Endianness>, file: &'a [u8]) -> &'a [u8] {
    let endian = elf.endian();
    let h = elf.elf_header();
    let (phdrs, shdrs) = (elf.elf_program_headers(), elf.elf_section_table());
    let mut end = 64.max(h.e_phoff(endian).saturating_add(size_of_val(phdrs) as u64));
    end = end.max(h.e_shoff(endian).saturating_add(64 * shdrs.len() as u64));
    for (off, bytes) in
        phdrs.iter().map(|p| p.file_range(endian)).chain(shdrs.iter().filter_map(|s| s.file_range(endian)))
    {
        end = end.max(off.saturating_add(bytes));
    }
    usize::try_from(end).ok().and_then(|end| file.get(end..)).unwrap_or(&[])
}

/// The numbers in the file that relocations without a symbol add the load address to: where they stand, and what they are. The copies that linkers leave
/// where the words will be count as well.
fn relative_numbers(elf: &ElfFile64<Endianness>, file: &[u8], segments: &[Segment]) -> Vec<(u64, u64)> {
    let endian = elf.endian();
    let offset = |va: u64| {
        let s = segments.iter().find(|s| va.wrapping_sub(s.va) < s.file_bytes)?;
        Some(s.file_off + (va - s.va))
    };
    let word_at = |at: u64| {
        let at = usize::try_from(at).ok()?;
        Some(u64::from_le_bytes(file.get(at..at.checked_add(8)?)?.try_into().ok()?))
    };
    let mut numbers = Vec::new();
    for s in elf.elf_section_table().iter().filter(|s| s.sh_flags(endian) & elf::SHF_ALLOC == elf::SHF_ALLOC) {
        if let Ok(Some((list, _))) = s.rela(endian, file) {
            for r in list.iter().filter(|r| r.r_type(endian, false) == elf::R_X86_64_RELATIVE) {
                let number = r.r_addend.get(endian) as u64;
                numbers.push((std::ptr::from_ref(&r.r_addend) as u64 - file.as_ptr() as u64, number));
                let copy = offset(r.r_offset.get(endian)).filter(|&at| word_at(at) == Some(number));
                numbers.extend(copy.map(|at| (at, number)));
            }
        }
        if s.sh_type(endian) == elf::SHT_RELR {
            let places = relr_places(s.data(endian, file).unwrap_or(&[]));
            numbers.extend(places.into_iter().filter_map(|va| Some((offset(va)?, word_at(offset(va)?)?))));
        }
    }
    numbers
}

/// Bytes that decode as no-operations and breakpoints.
fn is_padding(bytes: &[u8], va: u64) -> bool {
    let code = decoder::decode(bytes, va, &[]);
    code.undecoded.is_empty()
        && code.insns.iter().all(|i| i.is_nop() || i.is_int3())
        && code.insns.last().is_none_or(|i| i.end() == va + bytes.len() as u64 && i.target == NO_TARGET)
}

/// Whether a nop in front of the next instruction's new code is that of a redirection, and no padding of a function that is run into.
fn is_stray(m: &Module, nop: &Insn, next: u64) -> bool {
    let bytes = m.bytes_at(nop.va, usize::from(nop.len));
    let begins = next.is_multiple_of(16) || m.functions.binary_search_by_key(&next, |f| f.0).is_ok();
    m.is_guarded() && bytes == Some(&contract::REDIRECTABLE) && !begins
}
