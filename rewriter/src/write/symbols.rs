//! Symbols at new addresses, so that debuggers, profilers and backtraces name the code that runs.
//!
//! Input: the symbol tables of the input and of its debug file, where instructions have got to. Output: a symbol table.
//!
//! A file with a symbol table gets a copy in which every symbol of relocated code has its new address; a stripped one gets that of its separate
//! debug file, or a new table with the names that its dynamic symbols still give. Each function with cold code has a symbol more,
//! `NAME.blizzard_cold` or, of a mangled name, `blizzard_cold.NAME`, so that profilers tell whose it is; its full version is `NAME.full`. The dynamic symbol table is another matter: what
//! it exports are the program's function pointers, most of them old addresses ([`crate::write::new_addresses`]).
//!
//! Invariant: symbols are appended only, for relocations that a linker kept (`--emit-relocs`) name the others by number. So all new ones are
//! global, as symbols behind the first global one must be (gABI chapter 4, "Symbol Table").

use crate::base::addresses::Vaddr;
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::read::exports::SYM_BYTES;
use crate::read::image::Image;
use crate::write::new_code::layout::PlacedCode;
use crate::write::runtime_blob::RtFunction;
use object::LittleEndian as LE;
use object::elf::{FileHeader64, SHF_ALLOC, SHN_ABS, SHT_DYNSYM, SHT_SYMTAB, SectionHeader64, Sym64};
use object::read::elf::{FileHeader, SectionHeader, Sym};
use std::collections::{BTreeMap, HashMap, HashSet};

const STT_OBJECT: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const STB_GLOBAL: u8 = 1;
/// What a function's full version is called. Demanglers take the ending for a clone of the function, where gdb breaks, too: it is one.
fn full_name(function: &[u8]) -> Vec<u8> {
    [function, b".full"].concat()
}

/// What cold code in front of that of all functions is called.
const COLD: &[u8] = b"blizzard_cold";

/// What cold code is called that others of it call.
const SHARED: &[u8] = b"blizzard_cold.shared";

/// What a function's cold code is called. Demanglers take an ending for a clone of the function, where gdb then breaks, too; they leave a
/// mangled name in the middle alone.
fn cold_name(function: &[u8]) -> Vec<u8> {
    match function {
        [b'_', b'Z' | b'R', ..] => [b"blizzard_cold.", function].concat(),
        _ => [function, b".blizzard_cold"].concat(),
    }
}

/// New address and size of the code that stood at `[va, va + bytes)`.
pub(super) fn moved(insns: &Insns, placed: &PlacedCode, va: Vaddr, bytes: u64) -> Option<(Vaddr, u64)> {
    let id = insns.at(va)?;
    let start = placed.begin(id);
    if bytes == 0 {
        return Some((start, 0));
    }
    let last = InsnId(insns.main_before(Vaddr(va.0.checked_add(bytes)?)).checked_sub(1)? as u32);
    let end = placed.end(last);
    Some((start, if end > start { end - start } else { 0 }))
}

/// Address and size of the full version of the function at `[va, va + bytes)`, if it has one.
pub(super) fn full_version(insns: &Insns, placed: &PlacedCode, va: Vaddr, bytes: u64) -> Option<(Vaddr, u64)> {
    let first = insns.at(va)?;
    let last = InsnId(insns.main_before(Vaddr(va.0.checked_add(bytes)?)).checked_sub(1)? as u32);
    let versions = &placed.versions;
    if last < first || !versions.has_full(first) || !versions.has_full(last) {
        return None;
    }
    let (start, end) = (placed.begin(versions.full_label(first)), placed.end(versions.full_label(last)));
    Some((start, end - start))
}

/// Names, addresses and sizes of the functions in the dynamic symbol table.
fn exported<'a>(image: &Image<'a>) -> Option<Vec<(&'a [u8], Vaddr, u64)>> {
    let data: &'a [u8] = image.data;
    let sections = FileHeader64::<LE>::parse(data).ok()?.sections(LE, data).ok()?;
    let table = sections.symbols(LE, data, SHT_DYNSYM).ok()?;
    let function = |s: &&Sym64<LE>| s.st_type().0 == STT_FUNC && s.st_shndx(LE).0 != 0;
    let named = |s: &Sym64<LE>| Some((s.name(LE, table.strings()).ok()?, Vaddr(s.st_value.get(LE)), s.st_size.get(LE)));
    Some(table.iter().filter(function).filter_map(named).collect())
}

/// Data in the dynamic symbol table.
struct ExportedData<'a> {
    name: &'a [u8],
    va: Vaddr,
    bytes: u64,
    /// The number of its section.
    section: u16,
}

/// Debuggers look there for what the C library says of threads.
fn exported_data<'a>(image: &Image<'a>) -> Option<Vec<ExportedData<'a>>> {
    let data: &'a [u8] = image.data;
    let sections = FileHeader64::<LE>::parse(data).ok()?.sections(LE, data).ok()?;
    let table = sections.symbols(LE, data, SHT_DYNSYM).ok()?;
    let numbered = |s: &&Sym64<LE>| (1..0xff00).contains(&s.st_shndx(LE).0);
    let object = |s: &&Sym64<LE>| s.st_type().0 == STT_OBJECT && numbered(s);
    let named = |s: &Sym64<LE>| {
        let name = s.name(LE, table.strings()).ok()?;
        let (va, bytes, section) = (Vaddr(s.st_value.get(LE)), s.st_size.get(LE), s.st_shndx(LE).0);
        Some(ExportedData { name, va, bytes, section })
    };
    Some(table.iter().filter(object).filter_map(named).collect())
}

/// A symbol table.
pub struct SymbolTable {
    /// Entries.
    pub table: Vec<u8>,
    /// Their names. None: nothing can be added to them.
    pub names: Option<Vec<u8>>,
}

/// Numbers of the sections of new code.
pub struct SectionNumbers(Vec<(Vaddr, u64, u16)>);

impl SectionNumbers {
    /// Of sections: address, bytes, number.
    pub fn new(sections: impl Iterator<Item = (Vaddr, u64, u16)>) -> SectionNumbers {
        let mut all: Vec<_> = sections.collect();
        all.sort_by_key(|s| s.0);
        SectionNumbers(all)
    }

    /// Of the section at an address, or that which ends there or in front of it.
    fn at(&self, va: Vaddr) -> u16 {
        self.0[..self.0.partition_point(|s| s.0 <= va)].last().map_or(SHN_ABS.0, |s| s.2)
    }
}

fn half(bytes: &[u8]) -> u16 {
    u16::from_le_bytes([bytes[0], bytes[1]])
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

impl SymbolTable {
    /// The functions that a stripped file exports, at old addresses and by all their names, and its data.
    pub fn of_exports(image: &Image, insns: &Insns) -> SymbolTable {
        let mut all = SymbolTable { table: vec![0; SYM_BYTES], names: Some(vec![0]) };
        let mut named = HashSet::new();
        for (name, va, bytes) in exported(image).unwrap_or_default() {
            if insns.at(va).is_some() {
                // Any section: what is in code gets the new one.
                all.append(name, STT_FUNC, 1, va, bytes);
                named.insert(va);
            }
        }
        for f in image.functions.iter().filter(|f| !named.contains(&f.va) && insns.at(f.va).is_some()) {
            all.append(f.name.as_bytes(), STT_FUNC, 1, f.va, f.bytes);
        }
        for ExportedData { name, va, bytes, section } in exported_data(image).unwrap_or_default() {
            all.append(name, STT_OBJECT, section, va, bytes);
        }
        all
    }

    /// Those of the separate debug file, at old addresses, and how many are local. `sections`, `name`: the input's.
    pub fn of_debug_file(
        image: &Image,
        sections: &[SectionHeader64<LE>],
        name: impl Fn(usize) -> String,
    ) -> Option<(SymbolTable, u32)> {
        let data = image.debug_file?;
        let all = FileHeader64::<LE>::parse(data).ok()?.sections(LE, data).ok()?;
        let symtab = all.iter().find(|s| s.sh_type.get(LE) == SHT_SYMTAB)?;
        let strings = all.iter().nth(symtab.sh_link.get(LE) as usize)?;
        let mut table = symtab.data(LE, data).ok()?.to_vec();
        table.truncate(table.len() / SYM_BYTES * SYM_BYTES);
        // Sections have the same names and addresses in both files, but not always the same numbers.
        let own: HashMap<(String, u64), u16> = sections
            .iter()
            .zip(0u16..)
            .skip(1)
            .map(|(s, k)| ((name(s.sh_name.get(LE) as usize), s.sh_addr.get(LE)), k))
            .collect();
        let number = |s: &SectionHeader64<LE>| {
            let name = all.section_name(LE, s).ok().map(|n| String::from_utf8_lossy(n).into_owned())?;
            own.get(&(name, s.sh_addr.get(LE))).copied().filter(|_| s.sh_flags.get(LE).contains(SHF_ALLOC))
        };
        let numbers: Vec<u16> = all.iter().map(|s| number(s).unwrap_or(SHN_ABS.0)).collect();
        for sym in table.chunks_exact_mut(SYM_BYTES) {
            let section = half(&sym[6..]);
            if section != 0 && section < 0xff00 {
                let new = numbers.get(usize::from(section)).copied().unwrap_or(SHN_ABS.0);
                sym[6..8].copy_from_slice(&new.to_le_bytes());
            }
        }
        let names = Some(strings.data(LE, data).ok()?.to_vec());
        Some((SymbolTable { table, names }, symtab.sh_info.get(LE)))
    }

    fn append(&mut self, name: &[u8], kind: u8, section: u16, va: Vaddr, bytes: u64) {
        let Some(names) = &mut self.names else { return };
        let table = &mut self.table;
        table.extend((names.len() as u32).to_le_bytes());
        table.extend([STB_GLOBAL << 4 | kind, 0]);
        table.extend(section.to_le_bytes());
        table.extend(va.0.to_le_bytes());
        table.extend(bytes.to_le_bytes());
        names.extend(name);
        names.push(0);
    }

    /// Moves the symbols of code, and adds those of cold code and, at `loaded`, where the dynamic loader enters the program, the one at which gdb
    /// looks for shared libraries in a program without PT_INTERP (`solib_break_names` in its `solib-svr4.c`): all initial libraries
    /// are there. `numbers`: of the sections of new code.
    pub fn relocate(
        &mut self,
        image: &Image,
        insns: &Insns,
        placed: &PlacedCode,
        numbers: &SectionNumbers,
        loaded: Option<Vaddr>,
    ) {
        // One name for each function.
        let mut cold: BTreeMap<Vaddr, (u32, u64)> = BTreeMap::new();
        for sym in self.table.chunks_exact_mut(SYM_BYTES) {
            let kind = sym[4] & 15;
            let section = half(&sym[6..]);
            let (value, bytes) = (Vaddr(word(&sym[8..])), word(&sym[16..]));
            let code = kind != STT_OBJECT && (kind <= STT_FUNC || kind == STT_GNU_IFUNC);
            if section == 0 || section >= 0xff00 || !code || image.exec_at(value).is_none() {
                continue;
            }
            if let Some((va, new_bytes)) = moved(insns, placed, value, bytes) {
                if kind == STT_FUNC && bytes > 0 {
                    let name = u32::from_le_bytes([sym[0], sym[1], sym[2], sym[3]]);
                    cold.entry(value).or_insert((name, bytes));
                }
                sym[6..8].copy_from_slice(&numbers.at(va).to_le_bytes());
                sym[8..16].copy_from_slice(&va.0.to_le_bytes());
                sym[16..24].copy_from_slice(&new_bytes.to_le_bytes());
            }
        }
        let begin = placed.code_va + u64::from(placed.cold_at);
        let cold_number = numbers.at(begin);
        let mut named_from = placed.code_va + placed.code_bytes;
        for (va, (name, bytes)) in cold {
            let Some(first) = insns.at(va) else { continue };
            let stop = InsnId(insns.main_before(va + bytes) as u32);
            let name = self.names.as_deref().and_then(|names| names.get(name as usize..)).unwrap_or(&[]);
            let name = name.split(|b| *b == 0).next().unwrap_or(&[]).to_vec();
            if let Some((start, full_bytes)) = full_version(insns, placed, va, bytes) {
                self.append(&full_name(&name), STT_FUNC, numbers.at(start), start, full_bytes);
            }
            if let Some(range) = placed.cold(first, stop).filter(|r| r.start < r.end) {
                // Who steps through the function's cold code steps over what it calls.
                let mut from = range.start;
                for shared in placed.shared(range.clone()).chain([range.end..range.end]) {
                    if from < shared.start {
                        self.append(&cold_name(&name), STT_FUNC, cold_number, from, shared.start - from);
                    }
                    if shared.start < shared.end {
                        self.append(SHARED, STT_FUNC, cold_number, shared.start, shared.end - shared.start);
                    }
                    from = shared.end;
                }
                named_from = named_from.min(range.start);
            }
        }
        // Of the procedure linkage table, say, and shared by all.
        if named_from < placed.code_va + placed.code_bytes && begin < named_from {
            self.append(COLD, STT_FUNC, cold_number, begin, named_from - begin);
        }
        if let Some(va) = loaded {
            self.append(b"_dl_debug_state", 0, numbers.at(va), va, 0);
        }
    }

    /// Adds the functions of the runtime, so that debuggers and profilers name them. What has the name of a function of C libraries gets another one:
    /// a breakpoint there is not meant for the runtime.
    pub fn add_runtime(&mut self, (functions, at): (&[RtFunction], Vaddr), section: u16) {
        // gdb knows where a handler returns to by its instructions, if that has no name.
        for f in functions.iter().filter(|f| !f.name.contains("8ucontext8restorer")) {
            let is_mangled = f.name.starts_with("_Z") || f.name.starts_with("_R");
            let prefix: &[u8] = if is_mangled { b"" } else { b"blizzard_rt." };
            self.append(&[prefix, f.name.as_bytes()].concat(), STT_FUNC, section, at + f.offset, f.bytes);
        }
    }
}
