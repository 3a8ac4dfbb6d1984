//! ELF -> [`Image`]: what the later stages need to know of the input, checked once.
//!
//! Input: the bytes of a file. Output: segments, executable sections, function symbols and *code pointers* (addresses
//! of code that data or the dynamic linker may hand out). Invariants of an [`Image`]: x86-64, little endian, ET_EXEC or
//! ET_DYN; every executable section lies wholly in the file and in one loadable segment; segments are sorted.
//! Source: System V gABI chapters 4-5, psABI for x86-64 section 4.4 (relocations).

use crate::base::error::{Error, Result};
use crate::base::ids::{FileOff, Vaddr};
use crate::base::memory::Bytes;
use crate::read::{attached, exports, foreign, pointers};
use goblin::elf::{Elf, program_header as ph, section_header as sh};

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
pub enum Kind {
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
    source: Bytes<'a>,
    /// The separate file that holds the program's symbols and debug information.
    pub debug_file: Option<&'a [u8]>,
    pub name: String,
    pub kind: Kind,
    /// ET_DYN: loaded at an address chosen at run time.
    pub pie: bool,
    pub entry: Vaddr,
    /// Lowest address of a loadable segment; offsets of [`crate::decode::list::Insn`] count from here.
    pub base: Vaddr,
    /// Page-aligned end of the highest loadable segment.
    pub end: Vaddr,
    pub segments: Vec<Segment>,
    pub exec: Vec<ExecSection>,
    /// Sorted by address; one name for each address.
    pub functions: Vec<FuncSymbol>,
    /// Addresses in executable sections that relocations, dynamic entries or data words name.
    pub code_pointers: Vec<Vaddr>,
    pub exports: exports::Exports,
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
    protected: pointers::Protected,
}

/// Most bytes of code that one module may have: new code must stay within reach of a rel32.
const MAX_SPAN: u64 = 1 << 30;

impl<'a> Image<'a> {
    /// Reads and checks `data`.
    ///
    /// # Errors
    /// Says what kind of file it is when it is not an x86-64 Linux executable that can be rewritten.
    pub fn parse(input: impl Into<Bytes<'a>>, name: &str) -> Result<Image<'a>> {
        let source = input.into();
        let data = source.all;
        let elf = read_elf(data, name)?;
        let segments = load_segments(&elf, data, name)?;
        let base = Vaddr(segments[0].va.0 & !0xfff);
        let end = segments.iter().map(|s| s.va.0 + s.mem_bytes).max().unwrap_or(0).next_multiple_of(4096);
        if end - base.0 > MAX_SPAN {
            return Err(Error::new(format!(
                "{name}: its segments span {} MiB; at most {} are supported",
                (end - base.0) >> 20,
                MAX_SPAN >> 20
            )));
        }
        let pie = elf.header.e_type == goblin::elf::header::ET_DYN;
        if !pie && end >= blizzard_contract::CONTEXT_SHARED - (256 << 20) {
            return Err(Error::new(format!("{name}: it is linked at {}, where the tag table must be", base))
                .help("link it below 1.7 GiB, or as PIE"));
        }
        let exec = exec_sections(&elf, data, &segments, name)?;
        let interp = elf.interpreter.map(str::to_owned);
        let dynamic = has_dynamic(&elf);
        if let Some(d) = &elf.dynamic
            && (d.info.textrel || d.info.flags & goblin::elf::dynamic::DF_TEXTREL != 0)
        {
            return Err(Error::new(format!("{name}: has relocations in its code (DT_TEXTREL), which cannot be moved"))
                .help("build it with -fPIC"));
        }
        let mut image = Image {
            data,
            attached: attached::attached(&elf, data),
            source,
            debug_file: None,
            name: name.to_owned(),
            kind: kind_of(&elf),
            pie,
            entry: Vaddr(elf.header.e_entry),
            base,
            end: Vaddr(end),
            segments,
            exec,
            functions: Vec::new(),
            code_pointers: Vec::new(),
            exports: exports::Exports::default(),
            interp,
            eh_frame: None,
            got: None,
            noreturn_slots: pointers::noreturn_slots(&elf),
            fixed_slots: Vec::new(),
            protected: pointers::Protected::default(),
        };
        if image.kind == Kind::Static && dynamic && !pie {
            return Err(Error::new(format!("{name}: has a dynamic section but names no dynamic loader")));
        }
        for section in &elf.section_headers {
            match elf.shdr_strtab.get_at(section.sh_name) {
                Some(".eh_frame")
                    if section.sh_type != sh::SHT_NOBITS && section.sh_flags & u64::from(sh::SHF_ALLOC) != 0 =>
                {
                    image.eh_frame = Some((Vaddr(section.sh_addr), section.sh_size));
                }
                Some(".got") => image.got = Some(Vaddr(section.sh_addr)),
                _ => {}
            }
        }
        if image.eh_frame.is_none() {
            image.eh_frame = frames_by_header(&elf, &image);
        }
        if image.kind != Kind::Library && image.exec_at(image.entry).is_none() {
            return Err(Error::new(format!("{name}: its entry point {} is not in executable code", image.entry)));
        }
        image.functions = pointers::functions(&elf, &image);
        let named = pointers::code_pointers(&elf, &image);
        image.exports = exports::find(&elf, &image, &named);
        image.code_pointers = named.all;
        image.fixed_slots = pointers::fixed_slots(&elf, &image);
        image.protected = pointers::protected(&elf, &image);
        Ok(image)
    }

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

/// What kind of program `data` is, by its headers alone.
///
/// # Errors
/// Says what kind of file it is when it is not an x86-64 Linux executable.
pub fn identify(data: &[u8], name: &str) -> Result<Kind> {
    read_elf(data, name).map(|elf| kind_of(&elf))
}

/// `.eh_frame` of a file whose section headers do not tell: where unwinders find it, up to the end of its segment. It ends with a terminator of its own.
fn frames_by_header(elf: &Elf, image: &Image) -> Option<(Vaddr, u64)> {
    // Version 1, and a distance of four bytes from itself (LSB core 10.6.2).
    const FORM: [u8; 2] = [1, 0x1b];
    let header = elf.program_headers.iter().find(|p| p.p_type == ph::PT_GNU_EH_FRAME)?;
    let head = image.bytes_at(Vaddr(header.p_vaddr), 8).filter(|head| head.len() == 8 && head[..2] == FORM)?;
    let distance = i32::from_le_bytes(head[4..].try_into().ok()?);
    let at = Vaddr(header.p_vaddr.wrapping_add(4).wrapping_add(distance as u64));
    Some((at, image.bytes_at(at, usize::MAX)?.len() as u64))
}

fn read_elf<'a>(data: &'a [u8], name: &str) -> Result<Elf<'a>> {
    check_identity(data, name)?;
    let elf = Elf::parse(data).map_err(|e| {
        Error::new(format!("{name}: the ELF structures are damaged")).because(e).help("check that the file is complete")
    })?;
    if is_go(&elf, data) {
        return Err(Error::new(format!("{name}: is a Go program, which cannot be rewritten"))
            .because("Go's runtime looks return addresses up in tables of its own (.gopclntab)")
            .help("programs that gccgo compiled can be"));
    }
    foreign::check(&elf, data, name)?;
    Ok(elf)
}

fn has_dynamic(elf: &Elf) -> bool {
    elf.program_headers.iter().any(|p| p.p_type == ph::PT_DYNAMIC)
}

fn kind_of(elf: &Elf) -> Kind {
    let pie = elf.header.e_type == goblin::elf::header::ET_DYN;
    let interp = elf.interpreter.is_some();
    let library = pie && !is_pie_flagged(elf) && (!interp && has_dynamic(elf) || elf.soname.is_some());
    match (library, interp) {
        (true, _) => Kind::Library,
        (false, true) => Kind::Dynamic,
        (false, false) => Kind::Static,
    }
}

/// Says in one line what a file is that cannot be rewritten.
fn check_identity(data: &[u8], name: &str) -> Result<()> {
    let no = |what: &str, help: &str| Err(Error::new(format!("{name}: {what}")).help(help));
    const WANT: &str = "give an x86-64 Linux executable";
    if data.is_empty() {
        return no("the file is empty", WANT);
    }
    if data.starts_with(b"#!") {
        return no(
            "is a script, not an ELF program",
            "give the interpreter's path as the program, and the script as its argument",
        );
    }
    if data.starts_with(b"!<arch>") {
        return no("is a static library, not a program", "link it into a program first");
    }
    if !data.starts_with(b"\x7fELF") {
        return no("is not an ELF file", WANT);
    }
    if data.len() < 64 {
        return no("the ELF header is cut off", "check that the file is complete");
    }
    if data[4] != 2 {
        return no("is a 32-bit program; only 64-bit ones are supported", "build it with -m64");
    }
    if data[5] != 1 {
        return no("is a big-endian program; only x86-64 is supported", WANT);
    }
    let half = |at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
    if half(18) != goblin::elf::header::EM_X86_64 {
        let arch = goblin::elf::header::machine_to_str(half(18));
        return no(&format!("is for another processor ({arch}); only x86-64 is supported"), WANT);
    }
    match half(16) {
        goblin::elf::header::ET_EXEC | goblin::elf::header::ET_DYN => Ok(()),
        goblin::elf::header::ET_REL => no("is a relocatable object file, not a program", "link it first"),
        goblin::elf::header::ET_CORE => no("is a core dump, not a program", "give the program that dumped it"),
        other => no(&format!("has the unknown ELF type {other}"), WANT),
    }
}

/// Whether the Go toolchain's linker wrote the file: it leaves a build id with its own name, or its table of functions.
fn is_go(elf: &Elf, data: &[u8]) -> bool {
    let named = |s: &goblin::elf::SectionHeader| {
        matches!(elf.shdr_strtab.get_at(s.sh_name), Some(".gopclntab" | ".note.go.buildid" | ".data.rel.ro.gopclntab"))
    };
    let notes = || elf.iter_note_headers(data).into_iter().flatten().flatten();
    elf.section_headers.iter().any(named) || notes().any(|n| n.name.trim_end_matches('\0') == "Go")
}

pub(super) fn is_pie_flagged(elf: &Elf) -> bool {
    elf.dynamic.as_ref().is_some_and(|d| d.info.flags_1 & goblin::elf::dynamic::DF_1_PIE != 0)
}

fn load_segments(elf: &Elf, data: &[u8], name: &str) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for p in elf.program_headers.iter().filter(|p| p.p_type == ph::PT_LOAD && p.p_memsz != 0) {
        let in_file = p.p_offset.checked_add(p.p_filesz).is_some_and(|e| e <= data.len() as u64);
        let in_space = p.p_vaddr.checked_add(p.p_memsz).is_some_and(|e| e < 1 << 47);
        if !in_file || !in_space || p.p_filesz > p.p_memsz {
            return Err(Error::new(format!(
                "{name}: the segment at {:#x} reaches beyond the end of the file",
                p.p_vaddr
            ))
            .help("check that the file is complete"));
        }
        segments.push(Segment {
            va: Vaddr(p.p_vaddr),
            mem_bytes: p.p_memsz,
            off: FileOff(p.p_offset),
            file_bytes: p.p_filesz,
            executable: p.p_flags & ph::PF_X != 0,
            writable: p.p_flags & ph::PF_W != 0,
        });
    }
    segments.sort_by_key(|s| s.va);
    if segments.is_empty() {
        return Err(Error::new(format!("{name}: has nothing to load")));
    }
    if segments.windows(2).any(|w| w[0].va + w[0].mem_bytes > w[1].va) {
        return Err(Error::new(format!("{name}: its segments overlap")));
    }
    if let Some(s) = segments.iter().find(|s| s.executable && s.writable) {
        return Err(Error::new(format!("{name}: the segment at {} is both writable and executable", s.va))
            .help("programs that change their own code cannot be rewritten"));
    }
    Ok(segments)
}

fn exec_sections(elf: &Elf, data: &[u8], segments: &[Segment], name: &str) -> Result<Vec<ExecSection>> {
    let mut exec = Vec::new();
    let wanted = u64::from(sh::SHF_EXECINSTR | sh::SHF_ALLOC);
    for s in elf.section_headers.iter().filter(|s| s.sh_flags & wanted == wanted && s.sh_size != 0) {
        let section = elf.shdr_strtab.get_at(s.sh_name).unwrap_or("?");
        let end = s.sh_addr.saturating_add(s.sh_size);
        let held = segments.iter().any(|g| {
            g.executable
                && s.sh_addr >= g.va.0
                && end <= g.va.0 + g.file_bytes
                && s.sh_offset.wrapping_sub(g.off.0) == s.sh_addr - g.va.0
        });
        if s.sh_type != sh::SHT_PROGBITS || !held || s.sh_offset.saturating_add(s.sh_size) > data.len() as u64 {
            return Err(Error::new(format!(
                "{name}: the executable section {section} does not lie in a loaded segment"
            ))
            .help("check that the file is complete"));
        }
        exec.push(ExecSection {
            name: section.to_owned(),
            va: Vaddr(s.sh_addr),
            off: FileOff(s.sh_offset),
            bytes: s.sh_size,
        });
    }
    if exec.is_empty() {
        // No section headers: every executable segment is taken as one section.
        for g in segments.iter().filter(|g| g.executable && g.file_bytes != 0) {
            exec.push(ExecSection { name: format!("segment {}", g.va), va: g.va, off: g.off, bytes: g.file_bytes });
        }
    }
    exec.sort_by_key(|s| s.va);
    if exec.is_empty() {
        return Err(Error::new(format!("{name}: has no executable code")));
    }
    if exec.windows(2).any(|w| w[0].va + w[0].bytes > w[1].va) {
        return Err(Error::new(format!("{name}: its executable sections overlap")));
    }
    Ok(exec)
}
