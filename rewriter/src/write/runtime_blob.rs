//! The runtime blob as the rewriter links it into an output file.
//!
//! Purpose: parse the embedded freestanding runtime (built by `build.rs` from `rt`) and place its segments. Input: the blob, an ELF
//! file linked at address 0. Output: page-aligned segments at a link-time address of the caller's choice, with the
//! [`ModuleInfo`] written in.
//!
//! How to use it:
//! ```text
//! let blob = Blob::embedded()?;          // blob.segments.len() load segments will be needed
//! let at = Vaddr(0x40_0000);             // page aligned; blob.span_bytes() bytes must be free from here
//! let mut info = blizzard_contract::ModuleInfo::ZERO;
//! info.rt_base_va = at.0;                // ... and every other field
//! let placed = blob.place(at, &runtime_blob::module_info_bytes(&info));
//! for segment in &placed.segments {
//!     // one PT_LOAD each: segment.va, segment.bytes (p_filesz), segment.mem_bytes (p_memsz), segment.flags (p_flags)
//!     assert!(segment.va.0 % 4096 == 0 && segment.bytes.len() as u64 <= segment.mem_bytes);
//! }
//! let e_entry = placed.entry;
//! ```
//! The file offset of each segment must be page aligned. All segments keep their distances (the blob's code addresses its data
//! relative to RIP). No relocation of the output is needed: the blob applies its own at start.
//!
//! **Invariants** (checked by [`Blob::parse`]): position independent, only R_X86_64_RELATIVE relocations, all of them in the
//! writable segment; no interpreter, no needed library, no thread-local storage; no two segments share a page; the first segment
//! holds the blob's ELF header and program headers, which the runtime reads at run time.
//! Source: ELF gABI chapter 5; `rt/src/main.rs` (self-relocation), `rt/contract` ([`ModuleInfo`]).

use crate::base::addresses::Vaddr;
use crate::base::error::{Error, Result};
use crate::base::options::{AccessMode, Options};
use crate::read::eh_frame::{FrameInput, Section};
use crate::write::frames::debug_frame;
use blizzard_contract::{self as contract, ModuleInfo};
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};
use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela, SectionHeader, Sym};
use std::fmt;

/// The blob's file bytes.
static BLOB: &[u8] = include_bytes!(env!("BLIZZARD_RT_BLOB"));
/// The files of all runtimes that this rewriter puts into programs.
pub static FILES: [RuntimeFile; 6] = [
    RuntimeFile { access: AccessMode::Tests, many_nodes: false, bytes: BLOB },
    RuntimeFile { access: AccessMode::Tests, many_nodes: true, bytes: BLOB_MANY },
    RuntimeFile { access: AccessMode::Tests, many_nodes: false, bytes: BLOB_INSTRUMENTS },
    RuntimeFile { access: AccessMode::Guard, many_nodes: false, bytes: BLOB_GUARD },
    RuntimeFile { access: AccessMode::Guard, many_nodes: true, bytes: BLOB_GUARD_MANY },
    RuntimeFile { access: AccessMode::Guard, many_nodes: false, bytes: BLOB_GUARD_INSTRUMENTS },
];

/// A runtime, and the programs that it serves.
#[derive(Debug)]
pub struct RuntimeFile {
    pub access: AccessMode,
    /// More than 64 nodes.
    pub many_nodes: bool,
    pub bytes: &'static [u8],
}

/// That of guarded code.
static BLOB_GUARD: &[u8] = include_bytes!(env!("BLIZZARD_RT_BLOB_GUARD"));
/// Both for more than 64 nodes.
static BLOB_MANY: &[u8] = include_bytes!(env!("BLIZZARD_RT_BLOB_MANY"));
static BLOB_GUARD_MANY: &[u8] = include_bytes!(env!("BLIZZARD_RT_BLOB_GUARD_MANY"));
/// Both with the feature `instruments`.
static BLOB_INSTRUMENTS: &[u8] = include_bytes!(env!("BLIZZARD_RT_BLOB_INSTRUMENTS"));
static BLOB_GUARD_INSTRUMENTS: &[u8] = include_bytes!(env!("BLIZZARD_RT_BLOB_GUARD_INSTRUMENTS"));

const PAGE_BYTES: u64 = 4096;
const PF_R: u32 = elf::PF_R.0;
const PF_W: u32 = elf::PF_W.0;
const PF_X: u32 = elf::PF_X.0;
/// Bytes of a [`ModuleInfo`] in the file.
pub const MODULE_INFO_BYTES: usize = size_of::<ModuleInfo>();

type Header = elf::FileHeader64<LE>;

/// One load segment of the blob, relative to the blob's base.
#[derive(Clone)]
pub struct BlobSegment {
    /// Page aligned.
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub mem_bytes: u64,
    pub flags: u32,
}

/// A function of the blob: for the output's symbol table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtFunction {
    /// Mangled name.
    pub name: String,
    /// Offset from the blob's base.
    pub offset: u64,
    pub bytes: u64,
}

/// The parsed blob.
#[derive(Debug, Clone)]
pub struct Blob {
    /// By ascending offset.
    pub segments: Vec<BlobSegment>,
    entry: u64,
    info: u64,
    /// Where its dynamic section for debuggers begins.
    debugger_dynamic: u64,
    /// Which segment holds the module info.
    info_segment: usize,
    functions: Vec<RtFunction>,
    /// Where `.eh_frame` begins, and its bytes.
    frames: (u64, Vec<u8>),
    /// Of its FDEs: where the code begins, and where the FDE stands.
    frame_rows: Vec<(u64, u64)>,
}

/// A segment of the output: becomes one PT_LOAD.
#[derive(Clone)]
pub struct PlacedSegment {
    /// Page aligned.
    pub va: Vaddr,
    /// The file's part; starts at `va`.
    pub bytes: Vec<u8>,
    /// Bytes in memory; what `bytes` does not cover is zero.
    pub mem_bytes: u64,
    /// `p_flags`: PF_R, PF_W, PF_X.
    pub flags: u32,
}

/// The blob at its place in an output.
#[derive(Debug, Clone)]
pub struct PlacedBlob {
    /// By ascending address.
    pub segments: Vec<PlacedSegment>,
    /// The output's entry point.
    pub entry: Vaddr,
}

impl fmt::Debug for BlobSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x} ({} bytes, flags {})", self.offset, self.mem_bytes, self.bytes.len(), self.flags)
    }
}

impl fmt::Debug for PlacedSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x} ({} bytes, flags {})", self.va, self.mem_bytes, self.bytes.len(), self.flags)
    }
}

impl Blob {
    /// The runtime that this rewriter was built with.
    ///
    /// # Errors
    /// The blob breaks an invariant: a defect of the build.
    pub fn embedded() -> Result<Self> {
        Blob::parse(BLOB)
    }

    /// The runtime of code that accesses shared memory so.
    ///
    /// # Errors
    /// As [`Blob::embedded`].
    pub fn of(access: AccessMode) -> Result<Self> {
        Blob::parse(match access {
            AccessMode::Tests => BLOB,
            AccessMode::Guard => BLOB_GUARD,
        })
    }

    /// The runtime that a rewrite with these options puts into its output.
    ///
    /// # Errors
    /// As [`Blob::embedded`].
    pub fn asked_for(options: &Options) -> Result<Self> {
        match (options.many_nodes, options.access) {
            (false, access) => Blob::of(access),
            (true, AccessMode::Tests) => Blob::parse(BLOB_MANY),
            (true, AccessMode::Guard) => Blob::parse(BLOB_GUARD_MANY),
        }
    }

    /// The runtime with instruments ([`blizzard_rt::links::instruments`]) that this rewriter was built with.
    ///
    /// # Errors
    /// As [`Blob::embedded`].
    pub fn with_instruments(access: AccessMode) -> Result<Self> {
        Blob::parse(match access {
            AccessMode::Tests => BLOB_INSTRUMENTS,
            AccessMode::Guard => BLOB_GUARD_INSTRUMENTS,
        })
    }

    /// Parses a blob.
    ///
    /// # Errors
    /// It is malformed or breaks an invariant of the module.
    pub fn parse(data: &[u8]) -> Result<Self> {
        parse(data).map_err(|cause| Error::new("the embedded runtime is unusable").because(cause))
    }

    /// Address space that the blob needs from its base on, a multiple of the page size.
    pub fn span_bytes(&self) -> u64 {
        let last = self.segments.last().map_or(0, |s| s.offset + s.mem_bytes);
        last.next_multiple_of(PAGE_BYTES)
    }

    /// The blob's functions, by ascending offset.
    pub fn functions(&self) -> &[RtFunction] {
        &self.functions
    }

    /// Where the runtime's dynamic section for debuggers is, with the blob at `at`; it has [`contract::DEBUGGER_DYNAMIC_BYTES`].
    pub fn debugger_dynamic(&self, at: Vaddr) -> Vaddr {
        at + self.debugger_dynamic
    }

    /// Call-frame information of the blob at link-time address `at`: a section `.debug_frame`. None: it is not understood, or there is none.
    pub fn frames(&self, at: Vaddr) -> Option<Vec<u8>> {
        let behind = |s: &BlobSegment, va: Vaddr| va.0.checked_sub(s.offset).filter(|&far| far < s.bytes.len() as u64);
        let tail = |va| self.segments.iter().find_map(|s| Some(&s.bytes[behind(s, va)? as usize..]));
        let eh_frame = Section { at: Vaddr(self.frames.0), bytes: &self.frames.1 };
        debug_frame::of_moved(&FrameInput { eh_frame, tail: &tail, text: None, got: None }, at.0)
    }

    /// Of the blob's FDEs at link-time address `at`: first address of the code, address of the FDE.
    pub fn frame_rows(&self, at: Vaddr) -> Vec<(Vaddr, Vaddr)> {
        self.frame_rows.iter().map(|&(code, fde)| (at + code, at + fde)).collect()
    }

    /// The blob's segments at link-time address `at`, with the module info written in.
    ///
    /// # Panics
    /// `at` is not page aligned, or `info` is not the file image of a module info (see [`module_info_bytes`]).
    pub fn place(&self, at: Vaddr, info: &[u8]) -> PlacedBlob {
        assert!(at.0.is_multiple_of(PAGE_BYTES), "the runtime must be placed at a page boundary");
        let mut segments: Vec<_> = self
            .segments
            .iter()
            .map(|s| PlacedSegment {
                va: at + s.offset,
                bytes: s.bytes.clone(),
                mem_bytes: s.mem_bytes,
                flags: s.flags,
            })
            .collect();
        let holder = &mut segments[self.info_segment];
        let slot = (at + self.info - holder.va) as usize;
        holder.bytes[slot..slot + MODULE_INFO_BYTES].copy_from_slice(info);
        PlacedBlob { segments, entry: at + self.entry }
    }
}

/// The module info as it stands in files: its fields in order, little endian.
pub fn module_info_bytes(info: &ModuleInfo) -> [u8; MODULE_INFO_BYTES] {
    let mut out = [0; MODULE_INFO_BYTES];
    for (slot, word) in out.chunks_exact_mut(8).zip(info.words()) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    out
}

type Parsed<T> = std::result::Result<T, String>;

fn parse(data: &[u8]) -> Parsed<Blob> {
    let text = |e: object::read::Error| e.to_string();
    let header = Header::parse(data).map_err(text)?;
    if header.e_type(LE) != elf::ET_DYN || header.e_machine(LE) != elf::EM_X86_64 {
        return Err("not a position-independent x86-64 file".into());
    }
    let phdrs = header.program_headers(LE, data).map_err(text)?;
    let mut segments: Vec<BlobSegment> = Vec::new();
    for p in phdrs {
        match p.p_type(LE) {
            elf::PT_INTERP => return Err("it has an interpreter".into()),
            elf::PT_TLS => return Err("it uses thread-local storage".into()),
            elf::PT_LOAD => segments.push(segment(p, data, segments.last())?),
            _ => {}
        }
    }
    let first = segments.first().ok_or("it has no load segment")?;
    let headers_end = header.e_phoff(LE) + u64::from(header.e_phnum(LE)) * u64::from(header.e_phentsize(LE));
    if first.offset != 0 || headers_end > first.bytes.len() as u64 {
        return Err("its first segment does not hold its headers".into());
    }
    check_dynamic(phdrs, data, &segments)?;

    let sections = header.sections(LE, data).map_err(text)?;
    let symbols = sections.symbols(LE, data, elf::SHT_SYMTAB).map_err(text)?;
    let (mut entry, mut info, mut debugger_dynamic, mut functions) = (None, None, None, Vec::new());
    for symbol in symbols.iter() {
        let name = symbol.name(LE, symbols.strings()).map_err(text)?;
        let name = std::str::from_utf8(name).map_err(|e| e.to_string())?;
        let value = symbol.st_value(LE);
        // The code that executes the program's system calls.
        let is_stub = name.strip_prefix("blizzard_stub_").is_some_and(|stub| !stub.contains('_'));
        if (symbol.st_type() == elf::STT_FUNC || is_stub) && !symbol.is_undefined(LE) {
            functions.push(RtFunction { name: name.to_owned(), offset: value, bytes: symbol.st_size(LE) });
        }
        match name {
            contract::RT_ENTRY_SYMBOL => entry = Some(value),
            contract::MODULE_INFO_SYMBOL => info = Some(value),
            contract::DEBUGGER_DYNAMIC_SYMBOL => debugger_dynamic = Some(value),
            _ => {}
        }
    }
    functions.sort_by_key(|f| f.offset);
    for at in 1..functions.len() {
        let end = functions[at].offset;
        let before = &mut functions[at - 1];
        if before.bytes == 0 {
            before.bytes = end - before.offset;
        }
    }
    let entry = entry.ok_or("it has no entry symbol")?;
    let info = info.ok_or("it has no module info symbol")?;
    let debugger_dynamic = debugger_dynamic.ok_or("it has no symbol of its dynamic section for debuggers")?;
    let holder = |at: u64, bytes: u64| {
        let holds =
            |s: &BlobSegment| s.flags & PF_W != 0 && at >= s.offset && at + bytes <= s.offset + s.bytes.len() as u64;
        segments.iter().position(holds)
    };
    let info_segment = holder(info, MODULE_INFO_BYTES as u64).ok_or("its module info has no bytes in the file")?;
    holder(debugger_dynamic, contract::DEBUGGER_DYNAMIC_BYTES)
        .ok_or("its dynamic section for debuggers has no bytes in the file")?;
    if sections.section_by_name(LE, b".text").is_none_or(|(_, s)| entry < s.sh_addr(LE)) {
        return Err("its entry point is not in .text".into());
    }
    let frames =
        sections.section_by_name(LE, b".eh_frame").map(|(_, s)| Ok((s.sh_addr(LE), s.data(LE, data)?.to_vec())));
    let frames: (u64, Vec<u8>) = frames.transpose().map_err(text)?.unwrap_or_default();
    let frame_rows = frame_rows(frames.0, &frames.1).map_err(|e| format!("its .eh_frame: {e}"))?;
    Ok(Blob { segments, entry, info, debugger_dynamic, info_segment, functions, frames, frame_rows })
}

/// Of the FDEs of an `.eh_frame` at `at`: where the code begins, and where the FDE stands.
fn frame_rows(at: u64, bytes: &[u8]) -> std::result::Result<Vec<(u64, u64)>, gimli::Error> {
    let section = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(at);
    let (mut entries, mut rows) = (section.entries(&bases), Vec::new());
    while let Some(entry) = entries.next()? {
        let CieOrFde::Fde(fde) = entry else { continue };
        let fde = fde.parse(EhFrame::cie_from_offset)?;
        rows.push((fde.initial_address(), at + fde.offset() as u64));
    }
    Ok(rows)
}

/// A load segment, extended downwards to its page boundary.
fn segment(p: &elf::ProgramHeader64<LE>, data: &[u8], previous: Option<&BlobSegment>) -> Parsed<BlobSegment> {
    let content = p.data(LE, data).map_err(|()| "a segment lies outside the file")?;
    let offset = p.p_vaddr(LE) / PAGE_BYTES * PAGE_BYTES;
    if previous.is_some_and(|s| (s.offset + s.mem_bytes).next_multiple_of(PAGE_BYTES) > offset) {
        return Err(format!("two segments share the page at {offset:#x}"));
    }
    let flags = p.p_flags(LE).0;
    let lead = (p.p_vaddr(LE) - offset) as usize;
    // int3 in front of code, so that nothing there runs by accident.
    let filler = if flags & PF_X != 0 { 0xcc } else { 0 };
    let mut bytes = vec![filler; lead];
    bytes.extend_from_slice(content);
    Ok(BlobSegment { offset, bytes, mem_bytes: lead as u64 + p.p_memsz(LE), flags })
}

/// Checks what the self-relocation relies on.
fn check_dynamic(phdrs: &[elf::ProgramHeader64<LE>], data: &[u8], segments: &[BlobSegment]) -> Parsed<()> {
    let malformed = || "its dynamic section is malformed".to_owned();
    let dynamic = phdrs
        .iter()
        .find_map(|p| p.dynamic(LE, data).transpose())
        .ok_or("it has no dynamic section")?
        .map_err(|e| e.to_string())?;
    let (mut rela, mut rela_bytes) = (0, 0);
    for d in dynamic {
        match d.d_tag(LE) {
            elf::DT_NEEDED => return Err("it needs a shared library: a function that the blob lacks was used".into()),
            elf::DT_REL | elf::DT_RELR | elf::DT_JMPREL => return Err("it has relocations other than RELA".into()),
            elf::DT_RELA => rela = d.d_val(LE),
            elf::DT_RELASZ => rela_bytes = d.d_val(LE),
            _ => {}
        }
    }
    let in_segment = |at: u64, bytes: u64, flags: u32| {
        segments.iter().find(|s| {
            s.flags & flags == flags && at >= s.offset && at.saturating_add(bytes) <= s.offset + s.bytes.len() as u64
        })
    };
    if rela_bytes == 0 {
        return Ok(());
    }
    let holder = in_segment(rela, rela_bytes, PF_R).ok_or_else(malformed)?;
    let start = (rela - holder.offset) as usize;
    let table = &holder.bytes[start..start + rela_bytes as usize];
    let relas: &[elf::Rela64<LE>] = object::slice_from_all_bytes(table).map_err(|()| malformed())?;
    for r in relas {
        let (kind, at) = (r.r_type(LE, false), r.r_offset(LE));
        if kind != elf::R_X86_64_RELATIVE {
            return Err(format!("it has a relocation of type {} at {at:#x}", kind.0));
        }
        if in_segment(at, 8, PF_W).is_none() {
            return Err(format!("it has a relocation outside its writable data, at {at:#x}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{CpuidFeature, Decoder, DecoderOptions, EncodingKind, Mnemonic, OpKind};

    /// Reads a module info from the contents of [`contract::INFO_SECTION`]; `None` when it is too short or has another magic.
    fn read_module_info(bytes: &[u8]) -> Option<ModuleInfo> {
        let mut words = [0; ModuleInfo::WORDS];
        for (word, slot) in words.iter_mut().zip(bytes.get(..MODULE_INFO_BYTES)?.chunks_exact(8)) {
            *word = u64::from_le_bytes(slot.try_into().ok()?);
        }
        Some(ModuleInfo::from_words(words)).filter(|info| info.magic == contract::MODULE_MAGIC)
    }

    fn text() -> (u64, Vec<u8>) {
        let header = Header::parse(BLOB).unwrap();
        let sections = header.sections(LE, BLOB).unwrap();
        let (_, section) = sections.section_by_name(LE, b".text").unwrap();
        (section.sh_addr(LE), section.data(LE, BLOB).unwrap().to_vec())
    }

    /// The gates save xmm0-15 with legacy moves only: every other register file must stay as it is. The gate of gathers stores what it reads.
    #[test]
    fn the_text_changes_no_avx_x87_or_mmx() {
        let (address, bytes) = text();
        let mut decoder = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE);
        let (mut decoded, mut xsaves, mut stores) = (0, 0, 0);
        for instruction in &mut decoder {
            assert!(!instruction.is_invalid(), "undecodable bytes at {:#x}", instruction.ip());
            decoded += 1;
            let code = instruction.code();
            let is_move = matches!(instruction.mnemonic(), Mnemonic::Vmovdqu | Mnemonic::Vmovdqu64 | Mnemonic::Kmovw);
            if is_move && instruction.op0_kind() == OpKind::Memory {
                stores += 1;
                continue;
            }
            assert_eq!(code.op_code().encoding(), EncodingKind::Legacy, "{instruction} at {:#x}", instruction.ip());
            for feature in code.cpuid_features() {
                assert!(
                    !matches!(
                        feature,
                        CpuidFeature::FPU | CpuidFeature::FPU287 | CpuidFeature::FPU387 | CpuidFeature::MMX
                    ),
                    "{instruction} at {:#x}",
                    instruction.ip()
                );
            }
            xsaves += usize::from(matches!(instruction.mnemonic(), Mnemonic::Xsave64 | Mnemonic::Xsavec64));
        }
        assert!(decoded > 1000, "the text was not found");
        assert_eq!(xsaves, 2, "who calls the program's handlers captures the registers, in either of two ways");
        assert_eq!(stores, 16 + 32 + 8, "of ymm, zmm and k registers");
    }

    #[test]
    fn no_thread_local_storage_is_addressed() {
        let (address, bytes) = text();
        for instruction in &mut Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE) {
            let segment = instruction.segment_prefix();
            let tls = matches!(segment, iced_x86::Register::FS | iced_x86::Register::GS);
            // A nop of several bytes may carry a cs prefix, never fs or gs.
            assert!(!tls, "{instruction} at {:#x}", instruction.ip());
        }
    }

    #[test]
    fn placing_keeps_distances_and_writes_the_module_info() {
        let blob = Blob::embedded().unwrap();
        let at = Vaddr(0x7654_3000);
        let info = ModuleInfo { magic: contract::MODULE_MAGIC, entry_va: 0x1122, code_bytes: 9, ..ModuleInfo::ZERO };
        let placed = blob.place(at, &module_info_bytes(&info));
        assert_eq!(placed.segments.len(), blob.segments.len());
        assert_eq!(&placed.segments[0].bytes[..4], b"\x7fELF");
        assert_eq!(placed.segments[0].va, at);
        for (p, s) in placed.segments.iter().zip(&blob.segments) {
            assert_eq!(p.va - at, s.offset);
            assert!(p.va.0.is_multiple_of(PAGE_BYTES));
        }
        let end = placed.segments.last().map(|p| p.va + p.mem_bytes).unwrap();
        assert!(end <= at + blob.span_bytes());
        let holds_entry =
            |p: &PlacedSegment| p.flags & PF_X != 0 && (p.va..p.va + p.bytes.len() as u64).contains(&placed.entry);
        assert!(placed.segments.iter().any(holds_entry));
        let holder = &placed.segments[blob.info_segment];
        assert_eq!(read_module_info(&holder.bytes[(at + blob.info - holder.va) as usize..]), Some(info));
    }

    #[test]
    #[should_panic(expected = "page boundary")]
    fn an_unaligned_place_is_refused() {
        Blob::embedded().unwrap().place(Vaddr(0x1008), &module_info_bytes(&ModuleInfo::ZERO));
    }

    #[test]
    fn module_info_survives_the_round_trip() {
        let words: [u64; ModuleInfo::WORDS] = std::array::from_fn(|i| 0x0101_0101_0101_0101 * (i as u64 + 1));
        let info = ModuleInfo { magic: contract::MODULE_MAGIC, ..ModuleInfo::from_words(words) };
        let bytes = module_info_bytes(&info);
        assert_eq!(read_module_info(&bytes), Some(info));
        assert_eq!(read_module_info(&bytes[..MODULE_INFO_BYTES - 1]), None);
        assert_eq!(read_module_info(&[0; MODULE_INFO_BYTES]), None);
    }

    #[test]
    fn functions_are_listed_for_the_symbol_table() {
        let blob = Blob::embedded().unwrap();
        let start = blob.functions().iter().find(|f| f.name == contract::RT_ENTRY_SYMBOL).unwrap();
        assert_eq!(blob.place(Vaddr(0), &module_info_bytes(&ModuleInfo::ZERO)).entry, Vaddr(start.offset));
        assert!(blob.functions().iter().any(|f| f.name == "memcpy"));
    }

    #[test]
    fn debuggers_find_frames_of_all_functions_that_run() {
        let blob = Blob::embedded().unwrap();
        let at = Vaddr(0x40_0000);
        let section = blob.frames(at).unwrap();
        let mut frames = gimli::DebugFrame::new(&section, gimli::LittleEndian);
        frames.set_address_size(8);
        let bases = gimli::BaseAddresses::default();
        let has_frame = |f: &RtFunction| {
            use gimli::UnwindSection;
            frames.fde_for_address(&bases, (at + f.offset).0, gimli::DebugFrame::cie_from_offset).is_ok()
        };
        let without: Vec<&str> = blob.functions().iter().filter(|f| !has_frame(f)).map(|f| f.name.as_str()).collect();
        // Those that have no caller, or whose caller is told from their instructions; C functions that call nothing.
        let known = |name: &&str| {
            [
                "_start",
                "blizzard_stub_",
                "8ucontext13restorer_code",
                "12shared_stack4gate",
                "clone_and_run",
                "mem",
                "bcmp",
                "strlen",
            ]
            .iter()
            .any(|known| name.contains(known))
        };
        let others: Vec<_> = without.into_iter().filter(|name| !known(name)).collect();
        assert!(others.is_empty(), "{others:?}");
    }

    #[test]
    fn damaged_blobs_are_refused() {
        assert!(Blob::parse(b"").is_err());
        assert!(Blob::parse(&BLOB[..200]).is_err());
        let mut executable = BLOB.to_vec();
        executable[16] = 2;
        assert!(Blob::parse(&executable).is_err());
        // Turn the first relocation into another type: the self-relocation would misread it.
        let header = Header::parse(BLOB).unwrap();
        let sections = header.sections(LE, BLOB).unwrap();
        let (_, rela) = sections.section_by_name(LE, b".rela.dyn").unwrap();
        let at = rela.sh_offset(LE) as usize + 8;
        let mut relocation = BLOB.to_vec();
        relocation[at] = 6;
        let error = Blob::parse(&relocation).unwrap_err();
        assert!(error.causes[0].contains("relocation of type 6"), "{error}");
    }
}
