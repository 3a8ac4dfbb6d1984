//! Program headers and section headers of the output.
//!
//! Input: segments and sections of the input, and those that are added. Output: both program-header tables, the section headers.
//!
//! Program-header tables cannot grow where they stand, so both new ones lie in the new read-only segment. Section
//! headers go to the end of the file; old sections keep their indices. Old frame sections are renamed, because
//! debuggers look frames up by section name. Structures and constants: `object::elf`.

use crate::base::addresses::Vaddr;
use crate::base::error::{Error, Result};
use crate::decode::insns::Insns;
use crate::read::exports::SYM_BYTES;
use crate::read::image::Image;
use crate::write::debug::sections::{Moved, append};
use crate::write::new_code::layout::PlacedCode;
use crate::write::new_code::linkage;
use crate::write::output::Output;
use crate::write::runtime_blob::RtFunction;
use crate::write::symbols::{SectionNumbers, SymbolTable};
use blizzard_contract::{DEBUGGER_DYNAMIC_BYTES, ModuleInfo, PT_BLIZZARD};
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::{LittleEndian as LE, U16, U32, U64, pod};

type Phdr = ProgramHeader64<LE>;
type Shdr = SectionHeader64<LE>;

const NO_FLAGS: elf::SectionFlags = elf::SectionFlags(0);

/// A load segment to add.
#[derive(Clone, Copy, Debug)]
pub struct NewSegment {
    pub va: Vaddr,
    pub mem_bytes: u64,
    pub file_bytes: u64,
    pub flags: u32,
}

/// What a new section holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionKind {
    Code,
    ReadOnly,
    Data,
}

/// A section to describe.
#[derive(Clone, Debug)]
pub struct NewSection {
    pub name: String,
    pub kind: SectionKind,
    pub va: Vaddr,
    pub off: u64,
    pub bytes: u64,
}

/// Addresses that the tables refer to.
pub struct TablePlaces {
    pub kernel: Vaddr,
    pub loader: Vaddr,
    /// Path of the dynamic loader in the new read-only segment, and its bytes.
    pub interp: Option<(Vaddr, u64)>,
    pub eh_frame_hdr: Option<(Vaddr, u64)>,
    /// The module info.
    pub info: Vaddr,
}

/// The program headers of the input, and room for more.
pub struct PhdrPlan {
    old: Vec<Phdr>,
    added: usize,
    had_phdr: bool,
    had_interp: bool,
    /// There will be new frames, and the input has no header that leads to its own.
    adds_frames: bool,
}

/// Both rendered tables.
pub struct PhdrTables {
    pub kernel: Vec<u8>,
    pub loader: Vec<u8>,
}

impl PhdrPlan {
    /// `added`: load segments to come. `frames`: whether there will be frames for the new code.
    pub fn new(image: &Image, added: usize, frames: bool) -> Result<PhdrPlan> {
        let damaged = || Error::new(format!("{}: the program headers are damaged", image.name));
        let (header, _) = pod::from_bytes::<FileHeader64<LE>>(image.data).map_err(|()| damaged())?;
        let off = header.e_phoff.get(LE) as usize;
        let count = usize::from(header.e_phnum.get(LE));
        let bytes = image.data.get(off..).ok_or_else(damaged)?;
        if usize::from(header.e_phentsize.get(LE)) != size_of::<Phdr>() {
            return Err(damaged());
        }
        let (old, _) = pod::slice_from_bytes::<Phdr>(bytes, count).map_err(|()| damaged())?;
        let has = |t| old.iter().any(|p| p.p_type.get(LE) == t);
        Ok(PhdrPlan {
            old: old.to_vec(),
            added,
            had_phdr: has(elf::PT_PHDR),
            had_interp: has(elf::PT_INTERP),
            adds_frames: frames && !has(elf::PT_GNU_EH_FRAME),
        })
    }

    /// The input's.
    pub fn old(&self) -> &[Phdr] {
        &self.old
    }

    pub fn kernel_count(&self) -> usize {
        self.old.len() + self.added + 1 - usize::from(self.had_interp) + usize::from(self.adds_frames)
    }

    pub fn loader_count(&self) -> usize {
        // Without PT_PHDR the loader could not tell where a position-independent file was loaded.
        self.old.len() + self.added + 1 + usize::from(!self.had_phdr) + usize::from(self.adds_frames)
    }

    pub fn kernel_bytes(&self) -> usize {
        self.kernel_count() * size_of::<Phdr>()
    }

    pub fn loader_bytes(&self) -> usize {
        self.loader_count() * size_of::<Phdr>()
    }

    /// How much higher the kernel's table says that everything stands: `in_front`, in whole units of the alignment of each segment.
    pub fn shift(&self, in_front: u64) -> u64 {
        let aligns = self.old.iter().filter(|p| p.p_type.get(LE) == elf::PT_LOAD).map(|p| p.p_align.get(LE));
        in_front.next_multiple_of(aligns.max().unwrap_or(1).max(4096))
    }

    /// Fills both tables in. The read-only segment `(ro_va, ro_off)` holds them. `shift`: what [`PhdrPlan::shift`] says.
    pub fn render(
        &self,
        new: &[NewSegment],
        offsets: &[u64],
        at: &TablePlaces,
        (ro_va, ro_off): (Vaddr, u64),
        shift: u64,
    ) -> PhdrTables {
        let table = |own: Vaddr, bytes: usize, loader: bool| {
            let me = phdr(elf::PT_PHDR, elf::PF_R, ro_off + (own - ro_va), own, bytes as u64, bytes as u64, 8);
            let mut out = Vec::new();
            if loader && !self.had_phdr {
                out.push(me);
            }
            for p in &self.old {
                match p.p_type.get(LE) {
                    elf::PT_PHDR => out.push(me),
                    elf::PT_INTERP => {
                        if let (true, Some((va, len))) = (loader, at.interp) {
                            out.push(phdr(elf::PT_INTERP, elf::PF_R, ro_off + (va - ro_va), va, len, len, 1));
                        }
                    }
                    elf::PT_GNU_EH_FRAME => match at.eh_frame_hdr {
                        Some((va, len)) => {
                            out.push(phdr(elf::PT_GNU_EH_FRAME, elf::PF_R, ro_off + (va - ro_va), va, len, len, 4))
                        }
                        None => out.push(phdr(elf::PT_NULL, elf::ProgramFlags(0), 0, Vaddr(0), 0, 0, 1)),
                    },
                    _ => out.push(*p),
                }
            }
            // A static program's start-up code tells the unwinder where the old frames are; the new ones it finds here.
            if let (true, Some((va, len))) = (self.adds_frames, at.eh_frame_hdr) {
                out.push(phdr(elf::PT_GNU_EH_FRAME, elf::PF_R, ro_off + (va - ro_va), va, len, len, 4));
            }
            // Load segments stand in ascending order: behind the last old one.
            let last = out.iter().rposition(|p| p.p_type.get(LE) == elf::PT_LOAD).map_or(out.len(), |i| i + 1);
            for (k, (s, &off)) in new.iter().zip(offsets).enumerate() {
                out.insert(
                    last + k,
                    phdr(elf::PT_LOAD, elf::ProgramFlags(s.flags), off, s.va, s.file_bytes, s.mem_bytes, 4096),
                );
            }
            let bytes = 8 * ModuleInfo::WORDS as u64;
            let kind = elf::ProgramType(PT_BLIZZARD);
            out.push(phdr(kind, elf::PF_R, ro_off + (at.info - ro_va), at.info, bytes, bytes, 8));
            out
        };
        PhdrTables {
            kernel: shifted(&table(at.kernel, self.kernel_bytes(), false), new.len(), shift),
            loader: pod::bytes_of_slice(&table(at.loader, self.loader_bytes(), true)).to_vec(),
        }
    }
}

/// The kernel's table of a program with new segments in front: all of it higher, and they, the last `new` load segments, first of these.
fn shifted(table: &[Phdr], new: usize, shift: u64) -> Vec<u8> {
    let mut table = table.to_vec();
    if shift > 0 {
        for p in table.iter_mut().filter(|p| p.p_memsz.get(LE) > 0) {
            p.p_vaddr = U64::new(LE, p.p_vaddr.get(LE).wrapping_add(shift));
            p.p_paddr = U64::new(LE, p.p_paddr.get(LE).wrapping_add(shift));
        }
        let is_load = |p: &Phdr| p.p_type.get(LE) == elf::PT_LOAD;
        if let (Some(first), Some(last)) = (table.iter().position(is_load), table.iter().rposition(is_load)) {
            table[first..=last].rotate_right(new);
        }
    }
    pod::bytes_of_slice(&table).to_vec()
}

fn phdr(
    kind: elf::ProgramType,
    flags: elf::ProgramFlags,
    off: u64,
    va: Vaddr,
    file: u64,
    mem: u64,
    align: u64,
) -> Phdr {
    Phdr {
        p_type: U32::new(LE, kind),
        p_flags: U32::new(LE, flags),
        p_offset: U64::new(LE, off),
        p_vaddr: U64::new(LE, va.0),
        p_paddr: U64::new(LE, va.0),
        p_filesz: U64::new(LE, file),
        p_memsz: U64::new(LE, mem),
        p_align: U64::new(LE, align),
    }
}

/// Bytes of an ELF header.
pub type Header = [u8; size_of::<FileHeader64<LE>>()];

/// Sets entry point and program-header table of the ELF header.
pub fn patch_header(out: &mut Header, entry: Vaddr, phoff: u64, phnum: usize) {
    let (header, _) = pod::from_bytes_mut::<FileHeader64<LE>>(out).expect("it is as long as one");
    header.e_entry.set(LE, entry.0);
    header.e_phoff.set(LE, phoff);
    header.e_phnum = U16::new(LE, phnum as u16);
}

/// What has symbols and is none of the input's.
pub struct Added<'a> {
    /// Where the dynamic loader enters the program.
    pub loaded: Option<Vaddr>,
    /// The runtime's functions, and where it begins.
    pub runtime: (&'a [RtFunction], Vaddr),
    /// Debuggers find the libraries by a dynamic section of the runtime's.
    pub has_list: bool,
    /// What debuggers unwind the runtime by. Of an input with a `.debug_frame` of its own they know no second one.
    pub frames: Option<Vec<u8>>,
}

/// What stands in front of the name of a section of the input whose name another one has now.
const OLD: &str = ".blizzard.old";

/// The section of the runtime's code.
pub const RUNTIME_TEXT: &str = ".blizzard.rt.text";

/// The section by which debuggers find the list of libraries.
const DYNAMIC: &str = ".dynamic";

/// Takes the dynamic section for debuggers, which begins at `at`, out of the section that it lies in.
pub fn insert_dynamic(sections: &mut Vec<NewSection>, at: Vaddr) {
    let around = |s: &NewSection| s.kind == SectionKind::Data && at - s.va < s.bytes;
    let Some(k) = sections.iter().position(around) else { return };
    let whole = sections[k].clone();
    let (before, bytes) = (at - whole.va, DEBUGGER_DYNAMIC_BYTES);
    let part = |name: &str, from: u64, bytes: u64| NewSection {
        name: name.to_owned(),
        va: whole.va + from,
        off: whole.off + from,
        bytes,
        ..whole.clone()
    };
    let behind = before + bytes;
    let parts = [
        part(&whole.name, 0, before),
        part(DYNAMIC, before, bytes),
        part(&whole.name, behind, whole.bytes.saturating_sub(behind)),
    ];
    sections.splice(k..=k, parts.into_iter().filter(|part| part.bytes > 0));
}

/// Appends symbols, section names and section headers; returns the input's ELF header, pointed at them. `moved`: debug sections that
/// stand elsewhere than in the input.
pub fn write_sections(
    out: &mut Output,
    image: &Image,
    insns: &Insns,
    placed: &PlacedCode,
    new: &[NewSection],
    moved: &[Moved],
    Added { loaded, runtime, has_list, frames }: Added<'_>,
) -> Result<Header> {
    let damaged = || Error::new(format!("{}: the section headers are damaged", image.name));
    let (header, _) = pod::from_bytes::<FileHeader64<LE>>(image.data).map_err(|()| damaged())?;
    let (shoff, shnum, shstrndx) = (
        header.e_shoff.get(LE) as usize,
        usize::from(header.e_shnum.get(LE)),
        usize::from(header.e_shstrndx.get(LE).0),
    );
    let mut sections: Vec<Shdr> = Vec::new();
    let mut names = vec![0u8];
    if shoff != 0 && shnum != 0 {
        let bytes = image.data.get(shoff..).ok_or_else(damaged)?;
        sections = pod::slice_from_bytes::<Shdr>(bytes, shnum).map_err(|()| damaged())?.0.to_vec();
        let s = sections.get(shstrndx).ok_or_else(damaged)?;
        let (off, len) = (s.sh_offset.get(LE) as usize, s.sh_size.get(LE) as usize);
        names = image.data.get(off..).and_then(|b| b.get(..len)).ok_or_else(damaged)?.to_vec();
    } else {
        sections.push(shdr(0, elf::SHT_NULL, NO_FLAGS, Vaddr(0), 0, 0, 0));
    }
    let old_count = sections.len();
    if old_count + new.len() + moved.len() + 4 >= 0xff00 {
        return Err(Error::new(format!("{}: has too many sections ({old_count})", image.name)));
    }
    let rt_text = new.iter().position(|s| s.name == RUNTIME_TEXT).map_or(elf::SHN_ABS.0, |k| (old_count + k) as u16);
    let code = new.iter().zip(old_count as u16..);
    let code = code.filter(|(s, _)| s.kind == SectionKind::Code && s.name != RUNTIME_TEXT);
    let numbers = SectionNumbers::new(code.map(|(s, number)| (s.va, s.bytes, number)));
    for s in &mut sections[1..] {
        let name = name_at(&names, s.sh_name.get(LE) as usize);
        // gdb takes .interp for the word of the kernel, which maps no dynamic loader here, and then looks for libraries in vain.
        let interp = loaded.is_some() && name == ".interp";
        // A debugger that followed these would find old addresses: the separate file is checked for its own contents only.
        let separate = matches!(name.as_str(), ".gnu_debuglink" | ".gnu_debugdata");
        // The list that this one leads to has the names of the originals.
        let dynamic = has_list && name == DYNAMIC;
        // Who looks for these finds those of the new code.
        let table = s.sh_flags.get(LE).contains(elf::SHF_EXECINSTR) && linkage::TABLES.contains(&name.as_str());
        if interp
            || separate
            || dynamic
            || table
            || matches!(name.as_str(), ".eh_frame" | ".eh_frame_hdr" | ".gcc_except_table")
        {
            s.sh_name = U32::new(LE, add_name(&mut names, &format!("{OLD}{name}")));
        }
    }
    let symtab = sections.iter().position(|s| s.sh_type.get(LE) == elf::SHT_SYMTAB);
    for s in new {
        let flags = match s.kind {
            SectionKind::Code => elf::SHF_ALLOC | elf::SHF_EXECINSTR,
            SectionKind::ReadOnly => elf::SHF_ALLOC,
            SectionKind::Data => elf::SHF_ALLOC | elf::SHF_WRITE,
        };
        let name = add_name(&mut names, &s.name);
        sections.push(shdr(name, elf::SHT_PROGBITS, flags, s.va, s.off, s.bytes, 16));
    }
    for m in moved {
        let mut header = m.header;
        if m.section.is_none() || name_at(&names, header.sh_name.get(LE) as usize) != m.name {
            header.sh_name = U32::new(LE, add_name(&mut names, &m.name));
        }
        match m.section {
            Some(index) => sections[index] = header,
            None => sections.push(header),
        }
    }
    let has_frames = sections.iter().any(|s| name_at(&names, s.sh_name.get(LE) as usize) == ".debug_frame");
    if let Some(frames) = frames.filter(|_| !has_frames) {
        let at = append(out, &frames);
        let name = add_name(&mut names, ".debug_frame");
        sections.push(shdr(name, elf::SHT_PROGBITS, NO_FLAGS, Vaddr(0), at, frames.len() as u64, 8));
    }
    match symtab {
        Some(i) => {
            let part = |s: &Shdr| {
                let (off, len) = (s.sh_offset.get(LE) as usize, s.sh_size.get(LE) as usize);
                image.data.get(off..).and_then(|b| b.get(..len)).ok_or_else(damaged)
            };
            let linked = sections[i].sh_link.get(LE) as usize;
            // Section names are no place for names of symbols.
            let strings = sections.get(linked).filter(|_| linked != shstrndx && linked != 0).map(part).transpose()?;
            let mut table = SymbolTable { table: part(&sections[i])?.to_vec(), names: strings.map(<[u8]>::to_vec) };
            table.relocate(image, insns, placed, &numbers, loaded);
            table.add_runtime(runtime, rt_text);
            if let Some(names) = table.names.as_ref().filter(|n| n.len() > strings.map_or(0, <[u8]>::len)) {
                let at = append(out, names);
                sections[linked].sh_offset = U64::new(LE, at);
                sections[linked].sh_size = U64::new(LE, names.len() as u64);
            }
            let at = append(out, &table.table);
            sections[i].sh_offset = U64::new(LE, at);
            sections[i].sh_size = U64::new(LE, table.table.len() as u64);
        }
        None => {
            let (mut symbols, locals) = SymbolTable::of_debug_file(image, &sections[..old_count], |at| {
                let name = name_at(&names, at);
                name.strip_prefix(OLD).map(str::to_owned).unwrap_or(name)
            })
            .unwrap_or_else(|| (SymbolTable::of_exports(image, insns), 1));
            symbols.relocate(image, insns, placed, &numbers, loaded);
            symbols.add_runtime(runtime, rt_text);
            let strings = symbols.names.unwrap_or_default();
            let (table_len, strings_len) = (symbols.table.len() as u64, strings.len() as u64);
            let table_at = append(out, &symbols.table);
            let strings_at = append(out, &strings);
            let name = add_name(&mut names, ".symtab");
            let mut s = shdr(name, elf::SHT_SYMTAB, NO_FLAGS, Vaddr(0), table_at, table_len, 8);
            s.sh_link = U32::new(LE, sections.len() as u32 + 1);
            s.sh_info = U32::new(LE, locals);
            s.sh_entsize = U64::new(LE, SYM_BYTES as u64);
            sections.push(s);
            let name = add_name(&mut names, ".strtab");
            sections.push(shdr(name, elf::SHT_STRTAB, NO_FLAGS, Vaddr(0), strings_at, strings_len, 1));
        }
    }
    let strndx = if old_count > 1 {
        shstrndx
    } else {
        let name = add_name(&mut names, ".shstrtab");
        sections.push(shdr(name, elf::SHT_STRTAB, NO_FLAGS, Vaddr(0), 0, 0, 1));
        sections.len() - 1
    };
    let names_at = append(out, &names);
    sections[strndx].sh_offset = U64::new(LE, names_at);
    sections[strndx].sh_size = U64::new(LE, names.len() as u64);
    let table_at = append(out, pod::bytes_of_slice(&sections));
    let mut bytes = *image.data.first_chunk::<{ size_of::<FileHeader64<LE>>() }>().ok_or_else(damaged)?;
    let (header, _) = pod::from_bytes_mut::<FileHeader64<LE>>(&mut bytes).expect("it is as long as one");
    header.e_shoff = U64::new(LE, table_at);
    header.e_shnum = U16::new(LE, sections.len() as u16);
    header.e_shentsize = U16::new(LE, size_of::<Shdr>() as u16);
    header.e_shstrndx = U16::new(LE, elf::SymbolSection(strndx as u16));
    Ok(bytes)
}

fn shdr(
    name: u32,
    kind: elf::SectionType,
    flags: elf::SectionFlags,
    va: Vaddr,
    off: u64,
    bytes: u64,
    align: u64,
) -> Shdr {
    Shdr {
        sh_name: U32::new(LE, name),
        sh_type: U32::new(LE, kind),
        sh_flags: U64::new(LE, flags),
        sh_addr: U64::new(LE, va.0),
        sh_offset: U64::new(LE, off),
        sh_size: U64::new(LE, bytes),
        sh_link: U32::new(LE, 0),
        sh_info: U32::new(LE, 0),
        sh_addralign: U64::new(LE, align),
        sh_entsize: U64::new(LE, 0),
    }
}

fn add_name(names: &mut Vec<u8>, name: &str) -> u32 {
    let at = names.len() as u32;
    names.extend(name.as_bytes());
    names.push(0);
    at
}

fn name_at(names: &[u8], at: usize) -> String {
    let tail = names.get(at..).unwrap_or(&[]);
    let len = tail.iter().position(|b| *b == 0).unwrap_or(tail.len());
    String::from_utf8_lossy(&tail[..len]).into_owned()
}
