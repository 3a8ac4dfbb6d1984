//! ELF -> [`Image`]: what the later stages need to know of the input, checked once.
//!
//! Input: the bytes of a file. Output: segments, executable sections, function symbols and *code pointers* (addresses
//! of code that data or the dynamic linker may hand out). Invariants of an [`Image`]: x86-64, little endian, ET_EXEC or
//! ET_DYN; every executable section lies wholly in the file and in one loadable segment; segments are sorted.
//! Source: System V gABI chapters 4-5, psABI for x86-64 section 4.4 (relocations).

use crate::base::addresses::{FileOff, Vaddr};
use crate::base::memory::InputBytes;

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    pub va: Vaddr,
    pub mem_bytes: u64,
    pub off: FileOff,
    pub file_bytes: u64,
    pub executable: bool,
    pub writable: bool,
}

/// A section that holds code.
#[derive(Clone, Debug)]
pub struct ExecSection {
    pub name: String,
    pub va: Vaddr,
    pub off: FileOff,
    pub bytes: u64,
}

/// A named function or code label.
#[derive(Clone, Debug)]
pub struct FuncSymbol {
    pub va: Vaddr,
    pub bytes: u64,
    /// The symbol says that it names a function; a label of assembly may as well name data.
    pub typed: bool,
    pub name: String,
}

/// What kind of program this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    /// Needs a dynamic loader (its path's file range is in [`Image::interp`]).
    Dynamic,
    /// Starts by itself.
    Static,
    /// A shared library, or the dynamic loader: loaded into a program that holds the runtime.
    Library,
}

/// The input as the stages see it.
#[derive(Debug)]
pub struct Image<'a> {
    pub data: &'a [u8],
    /// The file's last bytes, which none of its ELF structures names.
    pub attached: &'a [u8],
    pub(super) source: InputBytes<'a>,
    /// The separate file that holds the program's symbols and debug information.
    pub debug_file: Option<&'a [u8]>,
    pub name: String,
    pub kind: ProgramKind,
    /// ET_DYN: loaded at an address chosen at run time.
    pub pie: bool,
    pub entry: Vaddr,
    /// Lowest address of a loadable segment; offsets of [`crate::decode::insn_list::Insn`] count from here.
    pub base: Vaddr,
    /// Page-aligned end of the highest loadable segment.
    pub end: Vaddr,
    /// Bytes that new segments take in front of `base`; 0: they stand behind `end`.
    pub in_front: u64,
    pub segments: Vec<Segment>,
    pub exec: Vec<ExecSection>,
    /// Sorted by address; one name for each address.
    pub functions: Vec<FuncSymbol>,
    /// Addresses in executable sections that relocations, dynamic entries or data words name.
    pub code_pointers: Vec<Vaddr>,
    pub exports: Exports,
    /// Path of the dynamic loader.
    pub interp: Option<String>,
    /// `.eh_frame`, by address and size; the size may be too large where no section header tells it.
    pub eh_frame: Option<(Vaddr, u64)>,
    pub got: Option<Vaddr>,
    /// GOT slots of imported functions that never return.
    pub noreturn_slots: std::collections::HashSet<Vaddr>,
    /// Words that hold the address of this file's own code from the dynamic loader's work on: (place, address), sorted.
    pub fixed_slots: Vec<(Vaddr, Vaddr)>,
    /// What the dynamic loader makes read-only when it has relocated it.
    pub(super) protected: Protected,
}

impl<'a> Image<'a> {
    /// Gives back the memory of what stages have read of the file: called where a stage ends that has read much of it.
    pub fn give_back(&self) {
        self.source.give_back();
    }

    /// The index of the executable section that contains `va`.
    #[inline]
    pub fn exec_at(&self, va: Vaddr) -> Option<usize> {
        let i = self.exec.partition_point(|s| s.va <= va).checked_sub(1)?;
        (va - self.exec[i].va < self.exec[i].bytes).then_some(i)
    }

    /// The bytes of an executable section.
    #[inline]
    pub fn exec_bytes(&self, i: usize) -> &'a [u8] {
        let s = &self.exec[i];
        &self.data[s.off.0 as usize..(s.off.0 + s.bytes) as usize]
    }

    /// Up to `len` file-backed bytes at `va`; shorter where the segment's file part ends. None: nothing is loaded there from the file.
    pub fn bytes_at(&self, va: Vaddr, len: usize) -> Option<&'a [u8]> {
        let s = self.segments.iter().find(|s| va >= s.va && va - s.va < s.file_bytes)?;
        let start = (s.off.0 + (va - s.va)) as usize;
        let stop = start.saturating_add(len).min((s.off.0 + s.file_bytes) as usize);
        self.data.get(start..stop)
    }

    /// Up to `len` bytes at `va` that are in memory what they are in the file, as long as the program runs: nothing can write to them, and no
    /// relocation fills them. None: there are none.
    pub fn constant_bytes(&self, va: Vaddr, len: usize) -> Option<&'a [u8]> {
        let bytes = self.bytes_at(va, len)?;
        let constant = if self.is_writable(va) { self.protected.constant_from(va)? } else { u64::MAX };
        Some(&bytes[..bytes.len().min(usize::try_from(constant).unwrap_or(usize::MAX))])
    }

    /// Reads a little-endian u64 of initialised data.
    pub fn word_at(&self, va: Vaddr) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes_at(va, 8)?.try_into().ok()?))
    }

    /// Whether the program may write to `va`.
    pub fn is_writable(&self, va: Vaddr) -> bool {
        self.segments.iter().any(|s| s.writable && va >= s.va && va - s.va < s.mem_bytes)
    }

    /// The file offset of `va`.
    pub fn offset_of(&self, va: Vaddr) -> Option<FileOff> {
        let s = self.segments.iter().find(|s| va >= s.va && va - s.va < s.file_bytes)?;
        Some(FileOff(s.off.0 + (va - s.va)))
    }

    /// `function+0x12`, or the section's name and offset: how messages name a place.
    pub fn place(&self, va: Vaddr) -> String {
        let i = self.functions.partition_point(|f| f.va <= va);
        if let Some(f) = i.checked_sub(1).map(|i| &self.functions[i])
            && (va - f.va < f.bytes || f.bytes == 0)
        {
            return format!("{}+{:#x}", f.name, va - f.va);
        }
        match self.exec_at(va) {
            Some(s) => format!("{}+{:#x}", self.exec[s].name, va - self.exec[s].va),
            None => "outside code".to_owned(),
        }
    }
}

/// See the module's description.
#[derive(Debug, Default)]
pub struct Exports {
    /// Where the dynamic symbol table stands.
    pub at: FileOff,
    /// Functions and the indices of their entries, sorted.
    pub list: Vec<(Vaddr, u32)>,
    /// Addresses, of functions and of labels in them, and where in the file a number says that a word holds them; sorted.
    pub words: Vec<(Vaddr, FileOff)>,
}

/// What the dynamic loader makes read-only when it has relocated it (PT_GNU_RELRO), as far as it is whole pages.
#[derive(Debug, Default)]
pub(super) struct Protected {
    pub(super) range: std::ops::Range<u64>,
    /// The places inside of it that the loader fills, ascending; each has at most eight bytes.
    pub(super) relocated: Vec<u64>,
}

impl Protected {
    /// How many bytes from `va` on nobody writes to, the loader included.
    pub(super) fn constant_from(&self, va: Vaddr) -> Option<u64> {
        if !self.range.contains(&va.0) {
            return None;
        }
        let next = self.relocated.partition_point(|place| place.saturating_add(8) <= va.0);
        let end = self.relocated.get(next).map_or(self.range.end, |place| self.range.end.min(*place));
        end.checked_sub(va.0).filter(|n| *n > 0)
    }
}
