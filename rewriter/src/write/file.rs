//! Placed -> the output file.
//!
//! A byte-preserving patch of the input: its bytes stay where they are (old code overwritten by [`crate::write::old_code`]), new load
//! segments, program headers and section headers are appended. Two program-header tables are written, as DESIGN.md explains:
//! the kernel's, without PT_INTERP, and the one that the dynamic loader is shown.
//! Source: gABI chapters 4 and 5.

use crate::base::addresses::{FileOff, Vaddr};
use crate::base::error::{Error, Result};
use crate::base::learnt::Object;
use crate::base::options::{AccessMode, Options, Poll};
use crate::base::output_file::OutputSink;
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::graph::computed_targets::Computed;
use crate::insert::block_recorder;
use crate::read::accesses;
use crate::read::eh_frame;
use crate::read::image::{Image, ProgramKind};
use crate::write::debug::{address_map, rewrite};
use crate::write::dynamic_symbols::{self, Longer};
use crate::write::frames::build::{self, NewFrames};
use crate::write::frames::debug_frame;
use crate::write::frames::pieces::{ApartCall, CodeMap, MAX_PADDING, StackMove};
use crate::write::headers::{self, NewSection, NewSegment, PhdrPlan, SectionKind};
use crate::write::new_addresses::{self, NewAddresses};
use crate::write::new_code::hot_parts::{HotPart, hot_parts};
use crate::write::new_code::layout::{NewCode, PlacedCode, copied_part};
use crate::write::notes;
use crate::write::old_code::springboards;
use crate::write::output::Output;
use crate::write::probes;
use crate::write::runtime_blob::{self, Blob, PlacedSegment, module_info_bytes};
use crate::write::tables::{self, ReadOnly, WrittenTable as Table};
use blizzard_contract::{self as contract, ModuleInfo, TrapEntry, module_flags};
use sha2::{Digest, Sha256};
use std::ops::Range;

/// What reports say of the output.
#[derive(Debug)]
pub struct OutputFigures {
    pub file_bytes: u64,
    pub springboards: usize,
    /// Of these, those of two jumps.
    pub short: usize,
    /// Roots without room for a springboard: reached through traps.
    pub crowded: usize,
    pub frames_dropped: Vec<build::DroppedFde>,
    /// Bytes of addresses that the new segments take, whole pages.
    pub new_span: u64,
}

/// Old to new addresses for the frame tables.
#[derive(Clone, Copy)]
struct Map<'x> {
    image: &'x Image<'x>,
    insns: &'x Insns,
    placed: &'x PlacedCode,
    /// To full versions, where there are any.
    full: bool,
}

impl Map<'_> {
    fn last_before(&self, old_end: Vaddr) -> Option<InsnId> {
        self.insns.main_before(old_end).checked_sub(1).map(|i| InsnId(i as u32))
    }

    /// Its label in the version that the map is of.
    fn label(&self, id: InsnId) -> InsnId {
        if self.full { self.placed.versions.full(id) } else { id }
    }
}

impl CodeMap for Map<'_> {
    fn begin(&self, old: Vaddr) -> Option<Vaddr> {
        // Overlapping instructions are emitted behind everything else, outside their frame's new range.
        self.insns.at(old).filter(|id| id.ix() < self.insns.main).map(|id| self.placed.begin(self.label(id)))
    }

    fn end(&self, old_end: Vaddr) -> Option<Vaddr> {
        self.last_before(old_end).map(|id| self.placed.end(self.label(id)))
    }

    fn in_order(&self, _from: Vaddr, _to: Vaddr) -> bool {
        // The main run is emitted in address order, with padding only at function starts.
        const { assert!(MAX_PADDING >= 15) };
        true
    }

    fn has(&self, old: Range<Vaddr>) -> bool {
        !self.full
            || (old.start.0..old.end.0)
                .find_map(|a| self.insns.at(Vaddr(a)))
                .is_some_and(|id| self.placed.versions.has_full(id))
    }

    fn copies(&self, old: Range<Vaddr>) -> Vec<(Vaddr, Range<Vaddr>)> {
        if self.full {
            return Vec::new();
        }
        let copies = &self.placed.copies;
        let place = |va: Vaddr| copies.partition_point(|c| self.insns.va(c.0) < va);
        copies[place(old.start)..place(old.end)].iter().map(|c| (self.insns.va(c.0), c.1.clone())).collect()
    }

    fn calls_apart(&self, old: Range<Vaddr>) -> Vec<ApartCall> {
        let [first, stop] = [old.start, old.end].map(|va| InsnId(self.insns.main_before(va) as u32));
        let labels = |id: InsnId| if self.full { self.placed.versions.full_label(id) } else { id };
        let calls = self.placed.stub_calls(labels(first), labels(stop)).iter().flat_map(|call| {
            let old = self.insns.va(InsnId(call.id.0 - labels(InsnId(0)).0));
            let end = self.placed.cold_va(call.end);
            let row = |end: Vaddr, lower_by: u32| ApartCall { old, end, lower_by, begins_anew: false };
            // Unwinders look one byte in front of where a call returns to; who has returned stands there.
            [row(end, call.lower_by), row(end + 1, call.behind)]
        });
        // Where a debugger that steps comes into cold code.
        let parts = self.placed.cold_parts(labels(first), labels(stop));
        let entries = parts.flat_map(|(id, part)| {
            let old = self.insns.va(InsnId(id.0 - labels(InsnId(0)).0));
            let entry =
                move |(at, lower_by): (Vaddr, u32)| ApartCall { old, end: at + 1, lower_by, begins_anew: false };
            self.placed.entries(part).map(entry)
        });
        let mut calls: Vec<ApartCall> = calls.chain(entries).collect();
        calls.sort_by_key(|call| call.end);
        let tails = |end: Vaddr| self.placed.tail_calls.partition_point(|tail| self.placed.cold_va(tail.end) < end);
        let copies = self.copies(old);
        for k in 1..calls.len() {
            let (from, to) = (calls[k - 1].end, calls[k].end);
            let has_copy = copies.iter().any(|(_, copy)| from <= copy.start && copy.start < to);
            calls[k].begins_anew = has_copy || tails(from) < tails(to);
        }
        calls
    }

    fn stack_moves(&self, new: Range<Vaddr>) -> &[StackMove] {
        let moves = &self.placed.stack;
        let place = |va: Vaddr| moves.partition_point(|m| m.at < va);
        &moves[place(new.start)..place(new.end)]
    }
}

impl address_map::AddressMap for Map<'_> {
    fn begin(&self, old: Vaddr) -> Option<Vaddr> {
        self.image.exec_at(old)?;
        if let Some(inside) = self.inside(old) {
            return Some(inside);
        }
        let id = InsnId(self.insns.main_before(old) as u32);
        (id.ix() < self.insns.main).then(|| self.placed.begin(id))
    }

    fn end(&self, old: Vaddr) -> Option<Vaddr> {
        self.image.exec_at(Vaddr(old.0.wrapping_sub(1)))?;
        self.inside(old).or_else(|| CodeMap::end(self, old))
    }

    fn copied(&self, old: Range<Vaddr>) -> Vec<(Vaddr, Range<Vaddr>)> {
        let copies = self.copies(old);
        let moved = &self.placed.moved;
        let of = |part: &Range<Vaddr>| {
            let place = |va: Vaddr| moved.partition_point(|m| m.1.start < va);
            moved[place(part.start)..place(part.end)].iter().map(|m| (self.insns.va(m.0), m.1.clone()))
        };
        copies.iter().flat_map(|c| of(&c.1)).collect()
    }

    fn full(&self, old: Range<Vaddr>) -> Vec<(Vaddr, Range<Vaddr>)> {
        let versions = &self.placed.versions;
        let ids = self.insns.main_before(old.start)..self.insns.main_before(old.end);
        let twice = ids.map(|id| InsnId(id as u32)).filter(|&id| versions.has_full(id));
        let place = |label| self.placed.begin(label)..self.placed.end(label);
        twice.map(|id| (self.insns.va(id), place(versions.full_label(id)))).collect()
    }

    fn cold(&self, old: Range<Vaddr>) -> Vec<(Vaddr, Range<Vaddr>)> {
        let PlacedCode { versions, copies, .. } = self.placed;
        let [first, stop] = [old.start, old.end].map(|va| InsnId(self.insns.main_before(va) as u32));
        let mut all = Vec::new();
        for full in [false, true].into_iter().take(1 + usize::from(versions.are_two())) {
            let label = |id: InsnId| if full { versions.full_label(id) } else { id };
            for (id, part) in self.placed.cold_parts(label(first), label(stop)) {
                let va = self.insns.va(InsnId(id.0 - label(InsnId(0)).0));
                let mut from = part.start;
                let within = copies.partition_point(|c| c.1.start < part.start);
                let copies = copies[within..].iter().take_while(|c| c.1.start < part.end);
                let mut others: Vec<_> =
                    copies.map(|c| copied_part(&c.1)).chain(self.placed.shared(part.clone())).collect();
                others.sort_by_key(|other| other.start);
                for other in others {
                    all.push((va, from..other.start));
                    from = other.end;
                }
                all.push((va, from..part.end));
            }
        }
        all.retain(|(_, part)| part.start < part.end);
        all
    }
}

impl Map<'_> {
    /// Where the instruction at an old address is now, in each version.
    fn places(&self, old: Vaddr) -> Vec<Vaddr> {
        let Some(id) = self.insns.at(old) else { return Vec::new() };
        let versions = &self.placed.versions;
        let labels = [id].into_iter().chain(versions.has_full(id).then(|| versions.full_label(id)));
        labels.map(|label| self.placed.begin(label)).collect()
    }

    /// An address in the middle of an instruction keeps its distance from the instruction's end: compilers let the locations of arguments
    /// end a byte before a call does.
    fn inside(&self, old: Vaddr) -> Option<Vaddr> {
        let last = self.last_before(old)?;
        let end = self.insns.end(last);
        (old < end).then(|| Vaddr(self.placed.end(last).0 - (end - old)))
    }
}

/// Bytes at most that are put into a library's file so that offsets are addresses. Dynamic loaders need it, whose unloaded data are small, and
/// perf up to Linux 6.2 to find lines.
const MAX_FILLING: u64 = 16 << 20;
/// The same of programs, for perf alone.
const MAX_FILLING_PROGRAM: u64 = 1 << 20;
/// Bytes of addresses at most that are left unused for the same purpose, where what is not loaded makes the file longer than the memory.
const MAX_GAP: u64 = 256 << 20;

/// Where new code begins in memory: behind everything, and, of a position-independent file, no lower than it can stand in the file.
/// Of a program that is too large for that, in front of it, at addresses below zero, modulo 2^64 (DESIGN.md, "Large programs").
pub fn new_code_at(image: &Image) -> Vaddr {
    if image.in_front > 0 {
        return Vaddr(image.base.0.wrapping_sub(image.in_front));
    }
    let in_file = image.base + (image.data.len() as u64).next_multiple_of(4096);
    let higher = image.pie && (image.end..image.end + MAX_GAP).contains(&in_file);
    if higher { in_file } else { image.end }
}

/// Appends `bytes`, loaded at `va`, at a page-aligned place with a congruent offset; returns the offset.
fn append_page(out: &mut Output, va: Vaddr, bytes: &[u8]) -> u64 {
    let at = page_for(out.len(), va);
    out.fill_to(at);
    out.extend(bytes);
    at
}

/// The first offset from `end` on for what is loaded at `va`, on pages of its own.
fn page_for(end: u64, va: Vaddr) -> u64 {
    end.next_multiple_of(4096) + (va.0 & 0xfff)
}

/// Bytes of the input that are copied at once.
const PIECE_BYTES: usize = 1 << 20;

/// What a program gets and a library does not.
pub struct Program<'x> {
    pub blob: &'x Blob,
    pub libraries: &'x LibraryRecord,
}

/// Tells a program's runtime where it finds its rewritten libraries; see [`blizzard_contract::closure_strings`] and [`ModuleInfo::closure_va`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LibraryRecord(Vec<u8>);

impl LibraryRecord {
    /// The libraries are not rewritten.
    pub fn none() -> LibraryRecord {
        LibraryRecord::default()
    }

    /// A record of these strings, each with a zero byte behind it.
    pub fn new(strings: &[&[u8]]) -> LibraryRecord {
        LibraryRecord(strings.iter().flat_map(|s| s.iter().chain(&[0])).copied().collect())
    }

    /// As it stands in the program.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// What the parts of the output are made from.
#[derive(Clone, Copy)]
struct Sources<'x> {
    image: &'x Image<'x>,
    insns: &'x Insns,
    placed: &'x PlacedCode,
    direct: &'x NewAddresses,
}

/// Writes the output file to `sink`.
///
/// # Errors
/// When the frames cannot be rebuilt, or nothing can be written.
#[allow(clippy::too_many_arguments)]
pub fn write(
    image: &Image,
    frame_input: Option<&eh_frame::FrameInput>,
    insns: &Insns,
    computed: &Computed,
    placed: &PlacedCode,
    code: NewCode,
    program: Option<&Program>,
    direct: &NewAddresses,
    options: &Options,
    sink: &mut dyn OutputSink,
) -> Result<OutputFigures> {
    let from = Sources { image, insns, placed, direct };
    let (blob, closure) = program.map_or((None, &[][..]), |p| (Some(p.blob), p.libraries.bytes()));
    let phdrs = PhdrPlan::new(
        image,
        blob.map_or(0, |b| b.segments.len()) + 2 + usize::from(placed.counter_bytes > 0),
        frame_input.is_some(),
    )?;
    let mut file = Output::new(sink);
    copy_input(&mut file, image, placed)?;
    // The code first: it is the largest thing in memory.
    let code_off = page_for(file.len(), placed.code_va);
    file.fill_to(code_off);
    let mut hash = Sha256::new();
    code.write(placed, |piece| {
        hash.update(piece);
        file.extend(piece);
    });
    debug_assert_eq!(file.len() - code_off, placed.code_bytes);
    let left = springboards::patch(&mut file, image, insns, computed, placed);
    new_addresses::write(&mut file, image, insns, placed, direct);
    notes::correct(&mut file, image.data, phdrs.old(), &hash);

    // Programs unwind through the runtime, too.
    let runtime_frames = |at: Vaddr| blob.map_or_else(Vec::new, |blob| blob.frame_rows(at));
    let mut ro = Contents::write(&mut file, from, frame_input, runtime_frames(Vaddr(0)).len(), &phdrs, closure, &left)?;
    let entry = match insns.at(image.entry) {
        Some(id) => placed.begin(id),
        None if image.kind == ProgramKind::Library => image.entry,
        None => return Err(Error::new(format!("{}: the entry point {} does not decode", image.name, image.entry))),
    };
    // The runtime changes code, and gives its pages the rights of code.
    let takes_jumps = !left.mixed && !image.segments.iter().any(|s| s.executable && s.writable);
    let rt_va = Vaddr((ro.va + ro.bytes).0.next_multiple_of(4096));
    let info = ModuleInfo {
        flags: flags(options)
            | bit(takes_jumps, module_flags::JUMPS)
            | bit(blob.is_some() && options.many_nodes, module_flags::MANY_NODES),
        rt_base_va: blob.map_or(0, |_| rt_va.0),
        entry_va: entry.0,
        phdr_count: phdrs.loader_count() as u64,
        ..ro.module_info(from)
    };
    let info_bytes = module_info_bytes(&info);
    file.patch(ro.offset(ro.info), &info_bytes);
    dynamic_symbols::lead_to(&mut file, &ro.tags);
    if let Some(f) = &ro.frames {
        let table = f.search_table.write(f.eh_frame.0, &runtime_frames(rt_va))?;
        file.patch(ro.offset(f.search_table.at), &table);
    }

    // A library has no runtime of its own: its program's is in before any library is loaded.
    let rt = match blob {
        Some(blob) => blob.place(rt_va, &info_bytes),
        None => runtime_blob::PlacedBlob { segments: Vec::new(), entry },
    };
    let segments = new_segments(image, placed, &ro, &rt.segments);
    let new_end = segments.iter().map(|s| s.va + s.mem_bytes).max().expect("there is new code");
    let new_span = (new_end - new_code_at(image)).next_multiple_of(4096);
    if image.in_front > 0 && new_span >= image.in_front {
        return Err(Error::new(format!(
            "{}: new code and tables take {new_span:#x} bytes in front of it; at most {:#x} are supported",
            image.name, image.in_front
        )));
    }
    // Code and tables stand in the file. What has no bytes there needs an offset all the same.
    let (counters, others) = segments.split_at(usize::from(placed.counter_bytes > 0));
    let mut offsets = Vec::from_iter(counters.iter().map(|c| match c.file_bytes {
        0 => code_off,
        bytes => append_page(&mut file, c.va, &vec![0; bytes as usize]),
    }));
    offsets.extend([code_off, ro.off]);
    offsets.extend(rt.segments.iter().map(|s| append_page(&mut file, s.va, &s.bytes)));
    debug_assert_eq!(offsets.len(), counters.len() + others.len());
    let at = headers::TablePlaces {
        kernel: ro.kernel_phdrs,
        loader: ro.loader_phdrs,
        interp: ro.interp,
        eh_frame_hdr: ro.frames.as_ref().map(|f| (f.search_table.at, f.search_table.bytes() as u64)),
        info: ro.info,
    };
    let shift = phdrs.shift(image.in_front);
    let tables = phdrs.render(&segments, &offsets, &at, (ro.va, ro.off), shift);
    for (va, bytes) in [(ro.kernel_phdrs, &tables.kernel), (ro.loader_phdrs, &tables.loader)] {
        file.patch(ro.offset(va), bytes);
    }
    let hot = hot_parts(image, insns, placed);
    let mut sections = new_sections((placed, code_off), &hot, &ro, &rt.segments, &offsets[counters.len() + 2..]);
    let has_list = image.interp.is_some() && !closure.is_empty() && image.in_front == 0;
    let dynamic = blob.filter(|_| has_list).map(|blob| blob.debugger_dynamic(rt_va));
    if let Some(at) = dynamic {
        headers::insert_dynamic(&mut sections, at);
    }
    // Behind everything that is loaded: what is appended here must not move it.
    let map = Map { image, insns, placed, full: false };
    let mut debug = rewrite::rewrite(&mut file, image, &map);
    debug.extend(probes::write(&mut file, image, |old| map.places(old)));
    let stubs = ro.frames.as_mut().map(|f| std::mem::take(&mut f.stubs)).unwrap_or_default();
    let mut header = headers::write_sections(
        &mut file,
        image,
        insns,
        placed,
        &sections,
        &debug,
        headers::Added {
            loaded: image.interp.is_some().then_some(entry),
            runtime: (blob.map_or(&[], |blob| blob.functions()), rt_va),
            has_list,
            frames: debug_frame::joined(blob.and_then(|blob| blob.frames(rt_va)), stubs),
        },
    )?;
    let (table, count) = match blob {
        Some(_) => (ro.kernel_phdrs, phdrs.kernel_count()),
        None => (ro.loader_phdrs, phdrs.loader_count()),
    };
    // Behind the table of section headers, and at the file's end: where the program may look for them.
    for piece in image.attached.chunks(PIECE_BYTES) {
        file.extend(piece);
        image.give_back();
    }
    headers::patch_header(&mut header, rt.entry + shift, ro.offset(table), count);
    file.patch(0, &header);
    let file_bytes = file.len();
    file.finish()?;
    Ok(OutputFigures {
        file_bytes,
        springboards: left.springboards,
        short: left.short,
        crowded: left.crowded,
        frames_dropped: ro.frames.map_or(Vec::new(), |f| f.report.dropped),
        new_span,
    })
}

/// The input's bytes, and what makes offsets addresses.
fn copy_input(file: &mut Output, image: &Image, placed: &PlacedCode) -> Result<()> {
    file.expect_room((image.data.len() + image.attached.len()) as u64)?;
    for piece in image.data.chunks(PIECE_BYTES) {
        file.extend(piece);
        image.give_back();
    }
    if image.pie && image.in_front == 0 {
        // A dynamic loader finds a library's program headers, which are behind the code, at its load address plus e_phoff, so their place in the
        // file must be that in memory.
        let most = if image.kind == ProgramKind::Library { MAX_FILLING } else { MAX_FILLING_PROGRAM };
        let wanted = placed.code_va - image.base;
        if (file.len()..file.len() + most).contains(&wanted) {
            file.fill_to(wanted);
        }
    }
    Ok(())
}

/// The new read-only segment, and where in it each thing stands. Program headers and module info are room, to be filled in.
struct Contents {
    va: Vaddr,
    off: u64,
    bytes: u64,
    interp: Option<(Vaddr, u64)>,
    kernel_phdrs: Vaddr,
    loader_phdrs: Vaddr,
    info: Vaddr,
    closure: (Vaddr, u64),
    traps: Table,
    restarts: Table,
    versions: Table,
    redirects: Table,
    claims: Vaddr,
    regions: Vaddr,
    frames: Option<NewFrames>,
    dynamic_symbols: Option<(Vaddr, u64)>,
    /// What leads to these: new values, and where they stand in the file.
    tags: Vec<(FileOff, Vaddr)>,
    /// Sections for Blizzard's own commands.
    records: [Option<(&'static str, (Vaddr, u64))>; 2],
}

impl Contents {
    fn write(
        file: &mut Output,
        from: Sources,
        frame_input: Option<&eh_frame::FrameInput>,
        runtime_frames: usize,
        phdrs: &PhdrPlan,
        closure: &[u8],
        left: &springboards::LeftBehind,
    ) -> Result<Contents> {
        let Sources { image, insns, placed, direct } = from;
        let has_versions = placed.versions.are_two();
        let off = append_page(file, placed.rodata_va, &placed.rodata);
        let mut ro = ReadOnly { va: placed.rodata_va, start: off, file };
        let interp = image.interp.as_ref().map(|path| {
            let bytes = [path.as_bytes(), &[0]].concat();
            (ro.push(8, &bytes), bytes.len() as u64)
        });
        let kernel_phdrs = ro.reserve(8, phdrs.kernel_bytes());
        let loader_phdrs = ro.reserve(8, phdrs.loader_bytes());
        let info = ro.reserve(8, size_of::<ModuleInfo>());
        let closure_va = if closure.is_empty() { Vaddr(0) } else { ro.push(1, closure) };
        let blocks = (!placed.blocks.is_empty()).then(|| (ro.push(1, &placed.blocks), placed.blocks.len() as u64));
        let accesses = has_versions.then(|| {
            let codes = [&Object::of(image.data).0, &placed.accesses[..]].concat();
            (ro.push(1, &codes), codes.len() as u64)
        });
        let traps = tables::write_trap_map(&mut ro, left.traps(insns, placed));
        debug_assert_eq!(traps.rows, left.trap_count(insns) as u64);
        let restarts = tables::write_restarts(&mut ro, placed.restarts());
        let mut version_table = |rows: &[TrapEntry]| match has_versions {
            true => tables::write_trap_map(&mut ro, rows.iter().copied()),
            false => Table::none(),
        };
        let versions = version_table(&placed.to_full);
        let redirects = version_table(&placed.redirected);
        let claims = ro.reserve(4, 0);
        for c in &placed.claims {
            [c.access, c.cover, c.reason].iter().for_each(|w| ro.file.extend(&w.to_le_bytes()));
        }
        let regions = ro.next(4);
        for r in &placed.regions {
            [r.start, r.end, r.group].iter().for_each(|w| ro.file.extend(&w.to_le_bytes()));
        }
        let map = Map { image, insns, placed, full: false };
        let full = Map { full: true, ..map };
        let maps: &[&dyn CodeMap] = if has_versions { &[&map, &full] } else { &[&map] };
        let tails = placed.tails();
        let frames =
            frame_input.map(|input| build::build(input, maps, &tails, runtime_frames, ro.next(16))).transpose()?;
        if let Some(f) = &frames {
            // The runtime's place is not known yet.
            let search_table = (f.search_table.at, vec![0; f.search_table.bytes()]);
            for (va, bytes) in [&search_table, &f.eh_frame, &f.gcc_except_table] {
                ro.put(*va, bytes);
            }
        }
        let longer = Longer::new(image, insns, placed, direct).map(|longer| longer.place(&mut ro));
        let (dynamic_symbols, tags) = longer.map_or((None, Vec::new()), |(symbols, tags)| (Some(symbols), tags));
        Ok(Contents {
            va: ro.va,
            off,
            bytes: ro.next(1) - ro.va,
            interp,
            kernel_phdrs,
            loader_phdrs,
            info,
            closure: (closure_va, closure.len() as u64),
            traps,
            restarts,
            versions,
            redirects,
            claims,
            regions,
            frames,
            dynamic_symbols,
            tags,
            records: [blocks.map(|b| (block_recorder::SECTION, b)), accesses.map(|r| (accesses::SECTION, r))],
        })
    }

    /// Where an address of the segment is in the file.
    fn offset(&self, va: Vaddr) -> u64 {
        self.off + (va - self.va)
    }

    /// What the runtime is told of new code and tables; the rest is zero.
    fn module_info(&self, from: Sources) -> ModuleInfo {
        let Sources { insns, placed, .. } = from;
        ModuleInfo {
            magic: contract::MODULE_MAGIC,
            flags: 0,
            rt_base_va: 0,
            entry_va: 0,
            phdr_va: self.loader_phdrs.0,
            phdr_count: 0,
            interp_va: self.interp.map_or(0, |(va, _)| va.0),
            trap_codes_va: self.traps.codes.0,
            trap_code_bytes: self.traps.code_bytes,
            trap_heads_va: self.traps.heads.0,
            trap_count: self.traps.rows,
            old_base_va: insns.base.0,
            new_base_va: placed.code_va.0,
            code_va: placed.code_va.0,
            code_bytes: placed.code_bytes,
            closure_va: self.closure.0.0,
            closure_bytes: self.closure.1,
            blocks_va: placed.counters_va().map_or(0, |va| va.0),
            blocks_bytes: placed.counter_bytes,
            claims_va: self.claims.0,
            claim_count: placed.claims.len() as u64,
            regions_va: self.regions.0,
            region_count: placed.regions.len() as u64,
            restart_codes_va: self.restarts.codes.0,
            restart_code_bytes: self.restarts.code_bytes,
            restart_heads_va: self.restarts.heads.0,
            restart_count: self.restarts.rows,
            full_at: placed.full_at().map_or(0, u64::from),
            version_codes_va: self.versions.codes.0,
            version_code_bytes: self.versions.code_bytes,
            version_heads_va: self.versions.heads.0,
            version_count: self.versions.rows,
            redirect_codes_va: self.redirects.codes.0,
            redirect_code_bytes: self.redirects.code_bytes,
            redirect_heads_va: self.redirects.heads.0,
            redirect_count: self.redirects.rows,
        }
    }
}

/// Counters of blocks, if there are any, then code, tables, runtime.
fn new_segments(image: &Image, placed: &PlacedCode, ro: &Contents, rt: &[PlacedSegment]) -> Vec<NewSegment> {
    let counters = placed.counters_va().map(|va| NewSegment {
        va,
        mem_bytes: placed.counter_bytes,
        // In front of a program they come first, and the kernel decides by the first part of the file where all is loaded.
        file_bytes: if image.in_front > 0 { placed.counter_bytes } else { 0 },
        flags: 6,
    });
    let mut segments = Vec::from_iter(counters);
    segments.extend([
        NewSegment { va: placed.code_va, mem_bytes: placed.code_bytes, file_bytes: placed.code_bytes, flags: 5 },
        NewSegment { va: ro.va, mem_bytes: ro.bytes, file_bytes: ro.bytes, flags: 4 },
    ]);
    segments.extend(rt.iter().map(|s| NewSegment {
        va: s.va,
        mem_bytes: s.mem_bytes,
        file_bytes: s.bytes.len() as u64,
        flags: s.flags,
    }));
    segments
}

fn bit(on: bool, bit: u64) -> u64 {
    if on { bit } else { 0 }
}

fn flags(o: &Options) -> u64 {
    bit(o.checks.loads(), module_flags::CHECK_LOADS)
        | bit(o.checks.stores(), module_flags::CHECK_STORES)
        | bit(o.poll == Poll::Backedge, module_flags::POLLS)
        | bit(o.count, module_flags::COUNTING)
        | bit(o.blocks, module_flags::BLOCKS)
        | bit(o.strips && o.access == AccessMode::Tests, module_flags::STRIPS)
        | bit(o.access == AccessMode::Guard, module_flags::GUARD)
}

fn new_sections(
    (placed, code_off): (&PlacedCode, u64),
    hot: &[HotPart],
    ro: &Contents,
    rt: &[PlacedSegment],
    rt_offsets: &[u64],
) -> Vec<NewSection> {
    let in_ro = |name: &str, va: Vaddr, bytes: u64| NewSection {
        name: name.to_owned(),
        kind: SectionKind::ReadOnly,
        va,
        off: ro.offset(va),
        bytes,
    };
    let of_table = |name: &str, table: &Table| in_ro(name, table.codes, table.end - table.codes);
    let code = |name: &str, range: Range<Vaddr>| NewSection {
        name: name.to_owned(),
        kind: SectionKind::Code,
        va: range.start,
        off: code_off + (range.start - placed.code_va),
        bytes: range.end - range.start,
    };
    let all_cold = placed.code_va + u64::from(placed.cold_at)..placed.code_va + placed.code_bytes;
    let (most, others) = hot.split_first().expect("there is code");
    let mut out = vec![
        code(most.name, most.range.clone()),
        code(".blizzard.cold", all_cold),
        in_ro(".blizzard.rodata", placed.rodata_va, placed.rodata.len() as u64),
        in_ro(contract::INFO_SECTION, ro.info, size_of::<ModuleInfo>() as u64),
        of_table(".blizzard.traps", &ro.traps),
    ];
    out.extend(others.iter().map(|part| code(part.name, part.range.clone())));
    if ro.restarts.rows > 0 {
        out.push(of_table(tables::RESTARTS, &ro.restarts));
    }
    if !placed.claims.is_empty() {
        let bytes = 12 * (placed.claims.len() + placed.regions.len()) as u64;
        out.push(in_ro(contract::CLAIMS_SECTION, ro.claims, bytes));
    }
    if let Some(f) = &ro.frames {
        out.push(in_ro(".eh_frame_hdr", f.search_table.at, f.search_table.bytes() as u64));
        for (name, (va, bytes)) in [(".eh_frame", &f.eh_frame), (".gcc_except_table", &f.gcc_except_table)] {
            out.push(in_ro(name, *va, bytes.len() as u64));
        }
    }
    let symbols = ro.dynamic_symbols.map(|symbols| (dynamic_symbols::SECTION, symbols));
    let records = ro.records.into_iter().flatten().chain(symbols);
    out.extend(records.map(|(name, (va, bytes))| in_ro(name, va, bytes)));
    for (s, &off) in rt.iter().zip(rt_offsets) {
        let (name, kind) = match s.flags {
            5 => (headers::RUNTIME_TEXT, SectionKind::Code),
            6 => (".blizzard.rt.data", SectionKind::Data),
            _ => (".blizzard.rt.rodata", SectionKind::ReadOnly),
        };
        out.push(NewSection { name: name.into(), kind, va: s.va, off, bytes: s.bytes.len() as u64 });
    }
    out
}
