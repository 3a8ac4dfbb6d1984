//! The debug sections of a file, uncompressed, and their copies in the output.
//!
//! Input: the section headers of the input, or of the separate debug file that was given for it. Output: bytes to read, patches of the output's
//! copy, and the headers of sections that stand elsewhere than in the input. A section that is already in the output as it must be read
//! (uncompressed, of the input itself) is patched there; another one is appended when it is first patched.
//!
//! Invariant: what a hostile file makes of compressed data is bounded by [`limit`]; what is larger, or damaged, stays as it is.
//! Source: gABI chapter 4 (`SHF_COMPRESSED`); GNU ld `--compress-debug-sections=zlib-gnu` (`.zdebug_*`).

use crate::read::image::Image;
use crate::write::output::{Output, Window};
use object::elf::{self, FileHeader64, SHF_COMPRESSED, SHT_NOBITS, SectionHeader64};
use object::read::elf::{FileHeader, SectionHeader};
use object::read::{CompressedData, CompressionFormat};
use object::{LittleEndian as LE, SectionIndex, U32, U64};
use std::borrow::Cow;
use std::collections::HashMap;

type Shdr = SectionHeader64<LE>;

/// A section that is read: what else there is need not be uncompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadSection {
    Abbrev,
    Addr,
    Aranges,
    Frame,
    Info,
    Line,
    Loc,
    LocLists,
    Macro,
    Ranges,
    RngLists,
    Types,
    GdbIndex,
    AltLink,
}

const READ: [(ReadSection, &str); 14] = [
    (ReadSection::Abbrev, ".debug_abbrev"),
    (ReadSection::Addr, ".debug_addr"),
    (ReadSection::Aranges, ".debug_aranges"),
    (ReadSection::Frame, ".debug_frame"),
    (ReadSection::Info, ".debug_info"),
    (ReadSection::Line, ".debug_line"),
    (ReadSection::Loc, ".debug_loc"),
    (ReadSection::LocLists, ".debug_loclists"),
    (ReadSection::Macro, ".debug_macro"),
    (ReadSection::Ranges, ".debug_ranges"),
    (ReadSection::RngLists, ".debug_rnglists"),
    (ReadSection::Types, ".debug_types"),
    (ReadSection::GdbIndex, ".gdb_index"),
    (ReadSection::AltLink, ".gnu_debugaltlink"),
];

impl ReadSection {
    /// The section of this name, if it is read.
    pub fn named(name: &str) -> Option<ReadSection> {
        READ.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }
}

/// Most bytes that are made of a section's: real compressed ones have a tenth of it.
fn limit(compressed: usize) -> u64 {
    compressed as u64 * 256 + (1 << 16)
}

/// A section of the output with a header of its own.
pub struct Moved {
    /// Index in the input's section-header table; None: the input has no such section.
    pub section: Option<usize>,
    pub name: String,
    /// All but the name.
    pub header: Shdr,
}

/// A debug section.
struct Section<'a> {
    /// Index in the input's section-header table; None: of a separate file, so the output must be given a copy.
    index: Option<usize>,
    name: String,
    /// As the output will have it.
    header: Shdr,
    /// Uncompressed where it is read, else as it is.
    bytes: Cow<'a, [u8]>,
    /// Where the output's copy stands, if it has one that can be patched.
    at: Option<u64>,
}

/// All of a file.
pub struct Sections<'a> {
    read: [Option<Section<'a>>; READ.len()],
    others: Vec<Section<'a>>,
}

impl<'a> Sections<'a> {
    /// None: there is no debug information.
    pub fn find(image: &Image<'a>) -> Option<Sections<'a>> {
        let data = image.debug_file.unwrap_or(image.data);
        let own = image.debug_file.is_none();
        let header = FileHeader64::<LE>::parse(data).ok()?;
        let table = header.sections(LE, data).ok()?;
        let mut found = Sections { read: [const { None }; READ.len()], others: Vec::new() };
        for (SectionIndex(index), header) in table.enumerate() {
            let name = table.section_name(LE, header).ok().and_then(|n| std::str::from_utf8(n).ok()).unwrap_or("");
            let plain = name.strip_prefix(".zdebug_").map(|rest| format!(".debug_{rest}"));
            let id = ReadSection::named(plain.as_deref().unwrap_or(name));
            if id.is_none() && (own || !name.contains("debug_")) || header.sh_type.get(LE) == SHT_NOBITS {
                continue;
            }
            let Ok(bytes) = header.data(LE, data) else { continue };
            let mut section = Section {
                index: own.then_some(index),
                name: name.to_owned(),
                header: *header,
                bytes: Cow::Borrowed(bytes),
                at: own.then(|| header.sh_offset.get(LE)),
            };
            if !own {
                (section.header.sh_link, section.header.sh_info) = (U32::new(LE, 0), U32::new(LE, 0));
            }
            let Some(id) = id else {
                found.others.push(section);
                continue;
            };
            if section.uncompress(data) {
                section.name = plain.unwrap_or(section.name);
                found.read[id as usize] = Some(section);
            }
        }
        (found.get(ReadSection::Info).is_some() && found.get(ReadSection::Abbrev).is_some()).then_some(found)
    }

    fn get(&self, id: ReadSection) -> Option<&Section<'a>> {
        self.read[id as usize].as_ref()
    }

    /// What is read of a section.
    pub fn bytes(&self, id: ReadSection) -> &[u8] {
        self.get(id).map_or(&[], |s| &s.bytes)
    }
}

impl Section<'_> {
    /// Whether it can be read.
    fn uncompress(&mut self, data: &[u8]) -> bool {
        let Ok(found) = self.header.compression(LE, data) else { return false };
        let (format, compressed, size, align) = match found {
            Some((header, offset, bytes)) => {
                let format = match header.ch_type.get(LE) {
                    elf::ELFCOMPRESS_ZLIB => CompressionFormat::Zlib,
                    elf::ELFCOMPRESS_ZSTD => CompressionFormat::Zstandard,
                    _ => return false,
                };
                let (from, bytes) = (offset as usize, bytes as usize);
                let Some(compressed) = data.get(from..).and_then(|d| d.get(..bytes)) else { return false };
                (format, Cow::Borrowed(compressed), header.ch_size.get(LE), header.ch_addralign.get(LE))
            }
            None if self.name.starts_with(".zdebug_") => {
                let Some((b"ZLIB", rest)) = self.bytes.split_first_chunk::<4>() else { return false };
                let Some((size, _)) = rest.split_first_chunk::<8>() else { return false };
                (CompressionFormat::Zlib, Cow::Owned(self.bytes[12..].to_vec()), u64::from_be_bytes(*size), 1)
            }
            None => return true,
        };
        if size > limit(compressed.len()) {
            return false;
        }
        let compressed = CompressedData { format, data: &compressed, uncompressed_size: size };
        let Ok(bytes) = compressed.decompress() else { return false };
        self.bytes = Cow::Owned(bytes.into_owned());
        let flags = self.header.sh_flags.get(LE);
        self.header.sh_flags = U64::new(LE, elf::SectionFlags(flags.0 & !SHF_COMPRESSED.0));
        self.header.sh_addralign = U64::new(LE, align);
        self.at = None;
        true
    }
}

/// The output's copies of the debug sections, with the part of each that was patched last.
pub struct Patches<'x, 'o> {
    out: &'x mut Output<'o>,
    /// Where each copy stands that was appended.
    appended: [Option<u64>; READ.len()],
    windows: [Option<Window>; READ.len()],
}

impl<'x, 'o> Patches<'x, 'o> {
    /// Of an output that begins with a copy of the input.
    pub fn new(out: &'x mut Output<'o>) -> Patches<'x, 'o> {
        Patches { out, appended: [None; READ.len()], windows: [const { None }; READ.len()] }
    }

    /// Overwrites bytes of a section.
    pub fn patch(&mut self, sections: &Sections, id: ReadSection, at: usize, bytes: &[u8]) {
        let Some(section) = sections.get(id) else { return };
        if at.checked_add(bytes.len()).is_none_or(|end| end > section.bytes.len()) {
            return;
        }
        let start = match section.at.or(self.appended[id as usize]) {
            Some(start) => start,
            None => *self.appended[id as usize].insert(append(self.out, &section.bytes)),
        };
        let end = start + section.bytes.len() as u64;
        let window = self.windows[id as usize].get_or_insert_with(|| Window::up_to(end));
        self.out.patch_through(window, start + at as u64, bytes);
    }

    /// Ends the work; `replaced` are sections with new contents.
    pub fn finish(mut self, sections: Sections, replaced: Vec<(ReadSection, Vec<u8>)>) -> Vec<Moved> {
        self.windows.iter_mut().flatten().for_each(|window| self.out.close(window));
        let mut replaced: HashMap<ReadSection, Vec<u8>> = replaced.into_iter().collect();
        let read = READ.iter().zip(sections.read).filter_map(|((id, _), section)| Some((Some(*id), section?)));
        let others = sections.others.into_iter().map(|section| (None, section));
        let mut moved = Vec::new();
        for (id, section) in read.chain(others) {
            let new = id.and_then(|id| replaced.remove(&id));
            let bytes = new.as_deref().unwrap_or(&section.bytes);
            let at = match id.and_then(|id| self.appended[id as usize]).filter(|_| new.is_none()) {
                Some(at) => at,
                None if new.is_some() || section.index.is_none() => append(self.out, bytes),
                None => continue,
            };
            let mut header = section.header;
            header.sh_offset = U64::new(LE, at);
            header.sh_size = U64::new(LE, bytes.len() as u64);
            moved.push(Moved { section: section.index, name: section.name, header });
        }
        for (id, name) in READ {
            let Some(bytes) = replaced.remove(&id) else { continue };
            let none = U64::new(LE, 0);
            let header = Shdr {
                sh_name: U32::new(LE, 0),
                sh_type: U32::new(LE, elf::SHT_PROGBITS),
                sh_flags: U64::new(LE, elf::SectionFlags(0)),
                sh_addr: none,
                sh_offset: U64::new(LE, append(self.out, &bytes)),
                sh_size: U64::new(LE, bytes.len() as u64),
                sh_link: U32::new(LE, 0),
                sh_info: U32::new(LE, 0),
                sh_addralign: U64::new(LE, 1),
                sh_entsize: none,
            };
            moved.push(Moved { section: None, name: name.to_owned(), header });
        }
        moved
    }
}

/// Appends `bytes` at a multiple of eight; where that is.
pub fn append(out: &mut Output, bytes: &[u8]) -> u64 {
    let at = out.len().next_multiple_of(8);
    out.fill_to(at);
    out.extend(bytes);
    at
}
