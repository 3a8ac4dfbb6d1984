//! Recognising a file that Blizzard has written.
//!
//! Input: the bytes of any file. Output: whether it carries the section [`INFO_SECTION`], and the options it was
//! rewritten with, read from the copy of [`ModuleInfo`] in that section. Damaged files are "not rewritten"; what is wrong
//! with them is for the loader to say. Also: whether a program, rewritten or not, creates its nodes by itself.

use blizzard_rt::abi::{FORK_NOTE_NAME, FORK_NOTE_TYPE, INFO_SECTION, MODULE_MAGIC, ModuleInfo, module_flags};
use object::{Object, ObjectSection};
use serde::Serialize;
use std::mem::offset_of;

/// The options of a rewrite, as the output records them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ModuleFlags {
    pub check_loads: bool,
    pub check_stores: bool,
    pub polls: bool,
    pub counting: bool,
    /// Basic blocks are counted.
    pub blocks: bool,
}

impl From<u64> for ModuleFlags {
    fn from(bits: u64) -> Self {
        ModuleFlags {
            check_loads: bits & module_flags::CHECK_LOADS != 0,
            check_stores: bits & module_flags::CHECK_STORES != 0,
            polls: bits & module_flags::POLLS != 0,
            counting: bits & module_flags::COUNTING != 0,
            blocks: bits & module_flags::BLOCKS != 0,
        }
    }
}

/// The options `file` was rewritten with; none if it is not an output of Blizzard.
pub fn rewritten_with(file: &[u8]) -> Option<ModuleFlags> {
    field(file, offset_of!(ModuleInfo, flags)).map(ModuleFlags::from)
}

/// Bytes of new code, hot and cold, in `file`; none if it is not an output of Blizzard.
pub fn new_code_bytes(file: &[u8]) -> Option<u64> {
    field(file, offset_of!(ModuleInfo, code_bytes))
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
    use object::LittleEndian as LE;
    use object::read::elf::{FileHeader, ProgramHeader};
    let Ok(header) = object::elf::FileHeader64::<LE>::parse(file) else { return false };
    let Ok(segments) = header.program_headers(LE, file) else { return false };
    segments.iter().any(|segment| {
        let Ok(Some(mut notes)) = segment.notes(LE, file) else { return false };
        // A damaged note ends the list: what is wrong with the file is for the loader to say.
        core::iter::from_fn(|| notes.next().ok().flatten())
            .any(|note| note.name() == FORK_NOTE_NAME.as_bytes() && note.n_type(LE).0 == FORK_NOTE_TYPE)
    })
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
        info.extend((module_flags::CHECK_STORES | module_flags::COUNTING).to_ne_bytes());
        let flags = rewritten_with(&with_section(INFO_SECTION, &info)).unwrap();
        assert_eq!(
            flags,
            ModuleFlags { check_loads: false, check_stores: true, polls: false, counting: true, blocks: false }
        );
    }

    #[test]
    fn other_and_damaged_files_are_not_rewritten_ones() {
        assert_eq!(rewritten_with(b""), None);
        assert_eq!(rewritten_with(b"\x7fELF"), None);
        assert_eq!(rewritten_with(&with_section(".data.other", &[0; 64])), None);
        assert_eq!(rewritten_with(&with_section(INFO_SECTION, &[0; 64])), None);
        assert_eq!(rewritten_with(&with_section(INFO_SECTION, &MODULE_MAGIC.to_ne_bytes())), None);
        let whole = std::fs::read("/proc/self/exe").unwrap();
        assert_eq!(rewritten_with(&whole), None);
        assert_eq!(rewritten_with(&whole[..whole.len() / 2]), None);
    }
}
