//! Recognising a file that Blizzard has written.
//!
//! Input: the bytes of any file. Output: whether it carries the section [`INFO_SECTION`], and the options it was
//! rewritten with, read from the copy of [`ModuleInfo`] in that section. Damaged files are "not rewritten"; what is wrong
//! with them is for the loader to say. Also: whether a program, rewritten or not, creates its nodes by itself, and
//! with which options it is best rewritten.

use crate::base::options::Options;
use blizzard_contract as contract;
use blizzard_contract::trap_map::TrapMap;
use blizzard_contract::{
    AT_BLIZZARD, FORK_NOTE_NAME, FORK_NOTE_TYPE, INFO_SECTION, MODULE_MAGIC, ModuleInfo, TEMPEST_NOTE_TYPE, TrapEntry,
    TrapHead, module_flags,
};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{LittleEndian as LE, Object, ObjectSection, ObjectSegment};
use serde::Serialize;
use std::ffi::OsStr;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The options of a rewrite, as the output records them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ModuleFlags {
    /// Shared memory faults; without: each access is tested.
    pub guard: bool,
    pub check_loads: bool,
    pub check_stores: bool,
    pub polls: bool,
    pub counting: bool,
    /// Basic blocks are counted.
    pub blocks: bool,
    /// It has the runtime for more than 64 nodes.
    pub many_nodes: bool,
    /// Its libraries are rewritten, too, or it has none.
    pub libraries: bool,
}

impl From<u64> for ModuleFlags {
    fn from(bits: u64) -> Self {
        ModuleFlags {
            guard: bits & module_flags::GUARD != 0,
            check_loads: bits & module_flags::CHECK_LOADS != 0,
            check_stores: bits & module_flags::CHECK_STORES != 0,
            polls: bits & module_flags::POLLS != 0,
            counting: bits & module_flags::COUNTING != 0,
            blocks: bits & module_flags::BLOCKS != 0,
            many_nodes: bits & module_flags::MANY_NODES != 0,
            libraries: true,
        }
    }
}

/// The options `file` was rewritten with; none if it is not an output of Blizzard.
pub fn rewritten_with(file: &[u8]) -> Option<ModuleFlags> {
    let flags = field(file, offset_of!(ModuleInfo, flags)).map(ModuleFlags::from)?;
    let is_set = |at: usize| field(file, at).is_some_and(|va| va != 0);
    let libraries = !is_set(offset_of!(ModuleInfo, interp_va)) || is_set(offset_of!(ModuleInfo, closure_va));
    Some(ModuleFlags { libraries, ..flags })
}

/// Bytes of new code, hot and cold, in `file`; none if it is not an output of Blizzard.
pub fn new_code_bytes(file: &[u8]) -> Option<u64> {
    field(file, offset_of!(ModuleInfo, code_bytes))
}

/// Where the rewritten libraries of a rewritten program are; none if they are not rewritten.
pub fn libraries_folder(program: &Path) -> Option<PathBuf> {
    let file = std::fs::read(program).ok()?;
    let [va, bytes] =
        [offset_of!(ModuleInfo, closure_va), offset_of!(ModuleInfo, closure_bytes)].map(|at| field(&file, at));
    let record = loaded(&file, va?, bytes?)?;
    let mut strings = record.split(|byte| *byte == 0);
    let (form, folder) = (strings.next()?, Path::new(OsStr::from_bytes(strings.next()?)));
    let bundle = form == contract::closure_strings::BUNDLE.as_bytes();
    (!record.is_empty())
        .then(|| if bundle { program.parent().unwrap_or(program).join(folder) } else { folder.to_owned() })
}

/// A rewritten program and its rewritten libraries, where these are.
pub fn files_of(program: &Path) -> Vec<PathBuf> {
    let libraries = libraries_folder(program).and_then(|folder| std::fs::read_dir(folder).ok());
    let libraries = libraries.into_iter().flatten().flatten().map(|entry| entry.path());
    std::iter::once(program.to_owned()).chain(libraries).collect()
}

/// Parts of a file in memory, by the addresses that sections and symbols have: offset, address, bytes. The kernel's table has others where new code stands
/// in front of a program.
pub fn parts(elf: &object::File) -> Vec<(u64, u64, u64)> {
    let raw = || elf.segments().map(|s| (s.file_range().0, s.address(), s.file_range().1));
    let shift = elf.section_by_name(INFO_SECTION).and_then(|info| {
        let (at, _) = info.file_range()?;
        let (from, va, _) = raw().find(|&(from, _, bytes)| at.wrapping_sub(from) < bytes)?;
        Some(va.wrapping_add(at - from).wrapping_sub(info.address()))
    });
    raw().map(|(from, va, bytes)| (from, va.wrapping_sub(shift.unwrap_or(0)), bytes)).collect()
}

/// The bytes of a file that are loaded at `va`, an address as sections and symbols have them.
pub fn loaded(file: &[u8], va: u64, bytes: u64) -> Option<&[u8]> {
    let parts = parts(&object::File::parse(file).ok()?);
    let &(from, begin, _) = parts.iter().find(|p| va.wrapping_sub(p.1) < p.2 && bytes <= p.2 - va.wrapping_sub(p.1))?;
    let at = usize::try_from(from + (va - begin)).ok()?;
    file.get(at..at.checked_add(usize::try_from(bytes).ok()?)?)
}

/// The rows of a table of the form of [`TrapMap`]. `codes`: address and bytes of its codes; `heads`: address of its heads, and how many rows there are.
pub fn map_rows(file: &[u8], codes: (u64, u64), heads: (u64, u64)) -> Option<Vec<TrapEntry>> {
    let rows = usize::try_from(heads.1).ok()?;
    let heads = loaded(file, heads.0, (TrapMap::groups(rows) * size_of::<TrapHead>()) as u64)?;
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    let head = |b: &[u8]| TrapHead { old: word(&b[..4]), new: word(&b[4..8]), at: word(&b[8..12]) };
    let heads: Vec<TrapHead> = heads.chunks_exact(size_of::<TrapHead>()).map(head).collect();
    Some(TrapMap { heads: &heads, codes: loaded(file, codes.0, codes.1)?, rows }.all().collect())
}

/// What the runtime is told of `file`; none if it is not an output of Blizzard.
pub fn module_info(file: &[u8]) -> Option<ModuleInfo> {
    let elf = object::File::parse(file).ok()?;
    let info = elf.section_by_name(INFO_SECTION)?.data().ok()?;
    let words = info.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).take(ModuleInfo::WORDS);
    let info = ModuleInfo::from_words(words.collect::<Vec<u64>>().try_into().ok()?);
    (info.magic == MODULE_MAGIC).then_some(info)
}

fn field(file: &[u8], at: usize) -> Option<u64> {
    if !file.starts_with(b"\x7fELF") {
        return None;
    }
    let elf = object::File::parse(file).ok()?;
    let info = elf.section_by_name(INFO_SECTION)?.data().ok()?;
    let field = |at: usize| Some(u64::from_ne_bytes(info.get(at..at + 8)?.try_into().ok()?));
    if field(offset_of!(ModuleInfo, magic))? != MODULE_MAGIC {
        return None;
    }
    field(at)
}

/// Whether the program has the note of those whose node 0 creates the other nodes.
pub fn creates_nodes(file: &[u8]) -> bool {
    has_note(file, FORK_NOTE_TYPE)
}

/// Whether the program has the note of those that use `tempest.h`: such a program takes memory away from itself, on one node, too.
pub fn manages_memory(file: &[u8]) -> bool {
    has_note(file, TEMPEST_NOTE_TYPE)
}

/// Whether the program has a note of the client library, of this type.
fn has_note(file: &[u8], kind: u32) -> bool {
    let Ok(header) = object::elf::FileHeader64::<LE>::parse(file) else { return false };
    let Ok(segments) = header.program_headers(LE, file) else { return false };
    segments.iter().any(|segment| {
        let Ok(Some(mut notes)) = segment.notes(LE, file) else { return false };
        // A damaged note ends the list: what is wrong with the file is for the loader to say.
        core::iter::from_fn(|| notes.next().ok().flatten())
            .any(|note| note.name() == FORK_NOTE_NAME.as_bytes() && note.n_type(LE).0 == kind)
    })
}

/// The options with which `program` and its libraries are rewritten, when these are asked for. Screens cost where the address is shared, or
/// where private memory lies so low that its addresses do not show that they are private: in a program that asks for the runtime, as
/// everybody must who allocates shared memory, and in one of fixed addresses.
pub fn fitting(program: &[u8], options: Options) -> Options {
    Options { screens: options.screens && is_movable(program) && !asks_for_runtime(program), ..options }
}

/// Whether the kernel chooses where a program lies.
fn is_movable(program: &[u8]) -> bool {
    object::elf::FileHeader64::<LE>::parse(program).is_ok_and(|h| h.e_type(LE) == object::elf::ET_DYN)
}

/// Whether the program's code has the number by which client libraries find the runtime.
fn asks_for_runtime(program: &[u8]) -> bool {
    let number = (AT_BLIZZARD as u32).to_le_bytes();
    let Ok(header) = object::elf::FileHeader64::<LE>::parse(program) else { return false };
    let Ok(segments) = header.program_headers(LE, program) else { return false };
    let code = segments.iter().filter(|s| s.p_flags(LE).0 & object::elf::PF_X.0 != 0);
    let mut code = code.filter_map(|s| s.data(LE, program).ok());
    code.any(|bytes| memchr::memmem::find(bytes, &number).is_some())
}

/// Whether a file is the output of a rewrite.
pub fn is_rewritten(data: &[u8]) -> bool {
    use object::{Object, ObjectSection};
    object::read::elf::ElfFile64::<object::LittleEndian>::parse(data)
        .is_ok_and(|f| f.sections().any(|s| s.name() == Ok(contract::INFO_SECTION)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::write::{Object as Writer, StandardSegment};
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};

    fn with_section(name: &str, data: &[u8]) -> Vec<u8> {
        let mut elf = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let segment = elf.segment_name(StandardSegment::Data).to_vec();
        let section = elf.add_section(segment, name.into(), SectionKind::ReadOnlyData);
        elf.append_section_data(section, data, 8);
        elf.write().unwrap()
    }

    #[test]
    fn options_are_read_back() {
        let mut info = MODULE_MAGIC.to_ne_bytes().to_vec();
        info.extend((module_flags::CHECK_STORES | module_flags::COUNTING | module_flags::MANY_NODES).to_ne_bytes());
        let flags = rewritten_with(&with_section(INFO_SECTION, &info)).unwrap();
        let expected = ModuleFlags {
            guard: false,
            check_loads: false,
            check_stores: true,
            polls: false,
            counting: true,
            blocks: false,
            many_nodes: true,
            libraries: true,
        };
        assert_eq!(flags, expected);
    }

    #[test]
    fn a_dynamic_program_without_a_record_of_libraries_has_left_them_as_they_are() {
        for (interp, closure, libraries) in [(0, 0, true), (0x1000, 0, false), (0x1000, 0x2000, true)] {
            let mut info = vec![0; size_of::<ModuleInfo>()];
            let mut put = |at: usize, value: u64| info[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            put(offset_of!(ModuleInfo, magic), MODULE_MAGIC);
            put(offset_of!(ModuleInfo, interp_va), interp);
            put(offset_of!(ModuleInfo, closure_va), closure);
            let flags = rewritten_with(&with_section(INFO_SECTION, &info)).unwrap();
            assert_eq!(flags.libraries, libraries, "{interp:#x} {closure:#x}");
        }
    }

    #[test]
    fn other_and_damaged_files_are_not_rewritten_ones() {
        assert_eq!(rewritten_with(b""), None);
        assert_eq!(rewritten_with(b"\x7fELF"), None);
        assert_eq!(rewritten_with(&with_section(".data.other", &[0; 64])), None);
        assert_eq!(rewritten_with(&with_section(INFO_SECTION, &[0; 64])), None);
        assert_eq!(rewritten_with(&with_section(INFO_SECTION, &MODULE_MAGIC.to_ne_bytes())), None);
        let whole = std::fs::read("/usr/bin/env").unwrap();
        assert_eq!(rewritten_with(&whole), None);
        assert_eq!(rewritten_with(&whole[..whole.len() / 2]), None);
    }
}
