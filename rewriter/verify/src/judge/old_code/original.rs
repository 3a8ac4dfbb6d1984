//! The file before it was rewritten: what the comparison asks of it.
//!
//! Input: the original's bytes. Output: [`Original`]: its segments, its code, and the parts of the file that may follow the code. It holds nothing of the output.

use crate::error::{Error, Result};
use crate::file::dynamic::relr_places;
use crate::file::eh_frame_hdr;
use crate::file::frames::{self, Frames};
use crate::file::memory::kernel_table;
use crate::file::module::{Section, Segment};
use gimli::BaseAddresses;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection, SectionFlags, elf};
use std::ops::Range;
/// The file before it was rewritten.
pub struct Original<'a> {
    pub(super) file: &'a [u8],
    pub(super) segments: Vec<Segment>,
    pub(super) exec: Vec<Section<'a>>,
    /// Bytes of the file that hold debug information, outside the segments: it follows the code, partly in place.
    pub(crate) debug: Vec<Range<u64>>,
    /// Where its build id stands in the file.
    pub(super) id: Range<u64>,
    /// Bytes of the file that hold notes.
    pub(super) notes: Vec<Range<u64>>,
    /// Values of dynamic symbols of functions, and numbers that the dynamic loader adds the file's address to: where they stand in the file, ascending,
    /// and what they are.
    pub(super) values: Vec<(u64, u64)>,
    /// Where the values of these symbols stand, ascending; the sizes stand behind them.
    pub(super) functions: Vec<u64>,
    /// The whole pages that the dynamic loader makes read-only when it has relocated them, and the places that it fills, ascending.
    pub(super) protected: Range<u64>,
    pub(super) relocated: Vec<u64>,
    /// Where `.eh_frame` is.
    pub(super) frames_va: Option<u64>,
    /// The file's last bytes, behind all that its headers name.
    pub(super) attached: &'a [u8],
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
        if !file.starts_with(&elf::ELFMAG) {
            return Err(Error::new(format!("{name}: is not an ELF file")).help("name the file that was rewritten"));
        }
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
        let is_code = |va| exec.iter().any(|s: &Section| va >= s.va && va - s.va < s.data.len() as u64);
        // Only its start-up code knows where they are.
        let by_form = || {
            let without = elf.elf_section_table().is_empty();
            let constant = segments.iter().filter(|s| without && s.flags & elf::PF_W.0 == 0);
            constant
                .filter_map(|s| Some((s.va, tail(s.va)?)))
                .find_map(|(va, bytes)| frames::search(bytes, va, &is_code))
        };
        let frames_va = named.map(|index| index.frames).or_else(section).or_else(by_form);
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
    pub(super) fn takes_back_features(&self, off: u64, was: u8, is: u8) -> bool {
        const PROPERTY: [u8; 8] = [0x02, 0, 0, 0xc0, 4, 0, 0, 0];
        let noted = self.notes.iter().any(|n| n.contains(&off));
        let at = off as usize;
        noted && is == was & !3 && at >= 8 && self.file.get(at - 8..at) == Some(&PROPERTY[..])
    }

    /// Whether `n` bytes are in memory what they are in the file, as long as the program runs.
    pub(super) fn is_constant(&self, va: u64, n: u64) -> bool {
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

    pub(super) fn section(&self, va: u64) -> Option<&Section<'a>> {
        self.exec.iter().find(|s| va.wrapping_sub(s.va) < s.data.len() as u64)
    }

    pub(super) fn bytes_at(&self, va: u64, n: usize) -> Option<&'a [u8]> {
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
