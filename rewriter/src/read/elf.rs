//! ELF -> [`Image`]: what the later stages need to know of the input, checked once.
//!
//! Input: the bytes of a file. Output: an [`Image`], or what the file is instead. **Invariant**: nothing of the file is believed.
//! Source: System V gABI chapters 4-5, psABI for x86-64 section 4.4 (relocations).

use crate::base::addresses::{FileOff, Vaddr};
use crate::base::error::{Error, Result};
use crate::base::memory::InputBytes;
use crate::read::foreign::{self, is_go};
use crate::read::identity::{check_identity, has_dynamic, kind_of};
use crate::read::image::{ExecSection, Exports, Image, ProgramKind, Protected, Segment};
use crate::read::{attached, eh_frame, exports, pointers};
use goblin::elf::{Elf, program_header as ph, section_header as sh};

/// Most bytes of addresses that one module may have: new code behind them must be within reach of a rel32.
const MAX_SPAN: u64 = (2 << 30) - (256 << 20);

/// Most bytes of a program whose new code stands in front of it.
const MAX_LARGE_SPAN: u64 = 66 << 30;

/// Where the executable segments of such a program must end: its new code is at most [`MAX_FRONT`] in front of them.
const MAX_LARGE_CODE_END: u64 = 512 << 20;

/// Most bytes of new segments in front of a program.
pub const MAX_FRONT: u64 = 1 << 30;

/// What is kept in front of a program that is too large for new code behind it, until it is known what its new segments take.
fn front(elf: &Elf, (base, end): (u64, u64), segments: &[Segment], name: &str) -> Result<u64> {
    let largest = segments.iter().max_by_key(|s| s.mem_bytes).map_or(Vaddr(0), |s| s.va);
    let refused = |why: &str, help: &str| {
        let mib = (end - base) >> 20;
        Err(Error::new(format!("{name}: its segments span {mib} MiB, the largest begins at {largest}: {why}"))
            .help(help))
    };
    let allocate = "allocate large arrays (malloc, bz_alloc)";
    if elf.header.e_type != goblin::elf::header::ET_DYN {
        let why =
            format!("a program of a fixed address may span {} MiB, and behind 2 GiB is the tag table", MAX_SPAN >> 20);
        return refused(&why, "link it as PIE (-fpie -pie), or allocate large arrays (malloc, bz_alloc)");
    }
    if kind_of(elf) != ProgramKind::Dynamic {
        let why =
            format!("a library or static program may span {} MiB, because new code stands behind it", MAX_SPAN >> 20);
        return refused(&why, allocate);
    }
    if end - base > MAX_LARGE_SPAN {
        return refused(&format!("at most {} GiB are supported", MAX_LARGE_SPAN >> 30), allocate);
    }
    if base != 0 {
        return refused(
            "new code must stand in front of it, but it is not linked at 0",
            "link it without an image base",
        );
    }
    if elf.interpreter.is_some_and(|path| path.contains("ld-musl")) {
        return refused("musl's dynamic loader cannot tell where such a program begins", allocate);
    }
    let code_end = segments.iter().filter(|s| s.executable).map(|s| s.va.0 + s.mem_bytes).max().unwrap_or(0);
    if code_end > MAX_LARGE_CODE_END {
        let why = format!("its code ends at {code_end:#x}, too far from new code in front of it");
        return refused(&why, "put large data behind the code (-mcmodel=medium)");
    }
    Ok(MAX_FRONT)
}

/// Reads and checks `data`.
///
/// # Errors
/// Says what kind of file it is when it is not an x86-64 Linux executable that can be rewritten.
pub fn read<'a>(input: impl Into<InputBytes<'a>>, name: &str) -> Result<Image<'a>> {
    let source = input.into();
    let data = source.all;
    let elf = read_elf(data, name)?;
    let segments = load_segments(&elf, data, name)?;
    let base = Vaddr(segments[0].va.0 & !0xfff);
    let end = segments.iter().map(|s| s.va.0 + s.mem_bytes).max().unwrap_or(0).next_multiple_of(4096);
    let pie = elf.header.e_type == goblin::elf::header::ET_DYN;
    let in_front = if end - base.0 > MAX_SPAN { front(&elf, (base.0, end), &segments, name)? } else { 0 };
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
        in_front,
        segments,
        exec,
        functions: Vec::new(),
        code_pointers: Vec::new(),
        exports: Exports::default(),
        interp,
        eh_frame: None,
        got: None,
        noreturn_slots: pointers::noreturn_slots(&elf),
        fixed_slots: Vec::new(),
        protected: Protected::default(),
    };
    if image.kind == ProgramKind::Static && dynamic && !pie {
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
    if image.eh_frame.is_none() && image.kind == ProgramKind::Static && elf.section_headers.is_empty() {
        image.eh_frame = eh_frame::search(&image);
    }
    if image.kind != ProgramKind::Library && image.exec_at(image.entry).is_none() {
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

/// What kind of program `data` is, by its headers alone.
///
/// # Errors
/// Says what kind of file it is when it is not an x86-64 Linux executable.
pub fn identify(data: &[u8], name: &str) -> Result<ProgramKind> {
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
