//! The builder: from the input's frames and the code map to the three sections that programs unwind by, and `.debug_frame` for the calls of stubs.
//!
//! Input: the frames of the input, a [`CodeMap`]. Output: [`NewFrames`]. **Invariant**: what stands apart has frames for debuggers alone; ranges of two frames do not
//! overlap.
//!
//! Order: read all units; map each unit's rows and write its LSDAs (sizes of LSDAs depend on new offsets, and FDEs hold
//! their addresses, so LSDAs come first); sort the pieces; write `.eh_frame` through gimli; index it.

use crate::base::addresses::Vaddr;
use crate::base::error::{Error, Result};
use crate::read::eh_frame::{FrameInput, RefusedFrames};
use crate::read::fde::{self, Fde};
use crate::read::lsda::{self, CallSite, Lsda};
use crate::write::frames::cfi::{self, CfiStep, RspRules};
use crate::write::frames::pieces::{self, ApartCall, CodeMap, FdePart};
use crate::write::frames::{eh_frame_hdr, lsda_write};

use gimli::write::{
    Address, CallFrameInstruction, CieId, CommonInformationEntry, DebugFrame, EhFrame, EndianVec,
    FrameDescriptionEntry, FrameTable,
};
use gimli::{DW_EH_PE_absptr, DwEhPe, LittleEndian, X86_64};
use std::collections::HashMap;

/// An FDE with its LSDA.
struct Unit<'a> {
    fde: Fde<'a>,
    lsda: Option<Lsda<'a>>,
}

/// One FDE of the output.
struct Piece {
    unit: usize,
    start: Vaddr,
    end: Vaddr,
    lsda: Option<Vaddr>,
    /// Steps with their offsets from `start`.
    steps: Vec<(u32, gimli::write::CallFrameInstruction)>,
}

/// What one pass over the units gives.
#[derive(Default)]
struct Mapped {
    pieces: Vec<Piece>,
    /// For debuggers alone: programs are led past stubs.
    stubs: Vec<Piece>,
    gcc_except_table: Vec<u8>,
    report: FramesReport,
    refused: RefusedFrames,
    /// Steps repeated at the beginnings of further pieces.
    repeats: usize,
}

/// Steps that may be repeated at the beginnings of further pieces, in all. Only a map that scatters every instruction of
/// a large program comes near.
const MAX_REPEATS: usize = 1 << 22;

/// Builds the frames of the new code, of each version, to be placed at `at` (rounded up to 8). `tails`: where calls of what stubs share end, and how many bytes
/// lie between rsp there and the address to return to. `others`: how many frames stand elsewhere that the search table leads to as well.
///
/// # Errors
/// Every record that cannot be understood or whose code went where tables cannot follow, as refusals of one error.
pub fn build(
    input: &FrameInput,
    maps: &[&dyn CodeMap],
    tails: &[(Vaddr, u32)],
    others: usize,
    at: Vaddr,
) -> Result<NewFrames> {
    let mut first = FramesReport::default();
    let mut refused = RefusedFrames::default();
    let units = read(input, &mut first, &mut refused);
    refused.into_result("unwind tables that cannot be read")?;
    let at = Vaddr(at.0.next_multiple_of(8));

    let mut mapped = map_units(input, &units, maps, at);
    mapped.pieces.sort_by_key(|p| p.start);
    for pair in mapped.pieces.windows(2).filter(|pair| pair[0].end > pair[1].start) {
        let fde = &units[pair[1].unit].fde;
        let reason = format!("its new code overlaps that of {}", units[pair[0].unit].fde.start);
        mapped.refused.add(fde.record, format!("frame of the code at {}", fde.start), reason);
    }
    let Mapped { pieces, stubs, gcc_except_table, mut report, refused, .. } = mapped;
    refused.into_result("unwind tables that cannot be moved")?;
    report.fdes = first.fdes;
    report.dropped.extend(first.dropped);
    report.fdes_written = pieces.len();

    let hdr_at = Vaddr((at + gcc_except_table.len() as u64).0.next_multiple_of(8));
    let eh_frame_at = Vaddr((hdr_at + eh_frame_hdr::bytes(pieces.len() + others) as u64).0.next_multiple_of(8));
    let starts: Vec<_> = pieces.iter().map(|p| p.start).collect();
    let moved = |at: Vaddr| maps.first().and_then(|map| map.begin(at)).unwrap_or(at);
    let eh_frame = write_frames(input, &units, pieces, eh_frame_at, &moved)?;
    let records = fde::offsets(&eh_frame).map_err(|e| Error::new(format!("the new .eh_frame: {e}")))?;
    debug_assert_eq!(records.len(), starts.len());
    let entries: Vec<_> = starts.into_iter().zip(records).map(|(s, r)| (s, eh_frame_at + r as u64)).collect();
    Ok(NewFrames {
        stubs: frames_of_stubs(input, &units, stubs, tails)?,
        search_table: SearchTable { at: hdr_at, entries, others },
        eh_frame: (eh_frame_at, eh_frame),
        gcc_except_table: (at, gcc_except_table),
        report,
    })
}

/// The input's frames, ascending by old address, those left out that no unwinder finds.
fn read<'a>(input: &FrameInput<'a>, report: &mut FramesReport, refused: &mut RefusedFrames) -> Vec<Unit<'a>> {
    let mut units = Vec::new();
    let mut budget = lsda::MAX_CALL_SITES;
    fde::each(input, refused, |fde, refused| {
        report.fdes += 1;
        if !fde.has_code(input) {
            return report.drop(&fde, "there is no code at its address");
        }
        let lsda = fde.lsda.and_then(|at| match Lsda::parse(input, at, fde.start, &mut budget) {
            Ok(lsda) => Some(lsda),
            Err(reason) => {
                refused.add(at, format!("LSDA of the code at {}", fde.start), reason);
                None
            }
        });
        units.push(Unit { fde, lsda });
    });
    units.sort_by_key(|u| (u.fde.start, u.fde.record));
    let mut end = Vaddr(0);
    units.retain(|unit| {
        let free = unit.fde.start >= end;
        if free {
            end = unit.fde.end;
        } else {
            report.drop(&unit.fde, "another frame describes the same code");
        }
        free
    });
    units
}

fn map_units(input: &FrameInput, units: &[Unit], maps: &[&dyn CodeMap], tables_at: Vaddr) -> Mapped {
    let mut out = Mapped::default();
    let mut steps = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        steps.clear();
        let mut maps = maps.iter().filter(|map| map.has(unit.fde.start..unit.fde.end));
        let done = cfi::steps(input, &unit.fde, &mut steps)
            .and_then(|()| maps.try_for_each(|map| map_unit(input, index, unit, &steps, *map, tables_at, &mut out)));
        if let Err(reason) = done {
            out.refused.add(unit.fde.record, format!("frame of the code at {}", unit.fde.start), reason);
        }
        if out.repeats > MAX_REPEATS {
            break;
        }
    }
    out
}

/// Adds the pieces of one unit.
fn map_unit(
    input: &FrameInput,
    index: usize,
    unit: &Unit,
    steps: &[CfiStep],
    map: &dyn CodeMap,
    tables_at: Vaddr,
    out: &mut Mapped,
) -> std::result::Result<(), String> {
    let fde = &unit.fde;
    let runs = pieces::runs(fde.start..fde.end, steps, map)?;
    if runs.is_empty() {
        out.report.drop(fde, "none of its code was relocated");
        return Ok(());
    }
    let parts = pieces::pieces(&runs);
    let calls = map.calls_apart(fde.start..fde.end);
    // Most functions have no code that moves rsp.
    let moved = !calls.is_empty() || runs.iter().any(|run| !map.stack_moves(run.new.clone()).is_empty());
    let rules = if moved { Some(RspRules::initial(input, fde)?) } else { None };
    if let Some(rules) = &rules {
        add_stubs(index, steps, &calls, rules, out);
    }
    out.report.split += usize::from(parts.len() > 1);
    let tables = unit.lsda.as_ref().map(|lsda| Ok::<_, String>((lsda, lsda.tables()?))).transpose()?;
    let mut first = true;
    for part in parts {
        let runs = &runs[part];
        let (start, end) = (runs[0].new.start, runs[runs.len() - 1].new.end);
        let mut lsda = None;
        if let Some((old, tables)) = &tables {
            let sites = call_sites(&old.call_sites, runs, map)?;
            out.report.lsdas += 1;
            out.report.call_sites += sites.len();
            lsda = Some(lsda_write::write(&mut out.gcc_except_table, tables_at, start, &sites, tables)?);
        }
        let placed = place(steps, runs, map, rules.clone())?;
        if !std::mem::take(&mut first) {
            out.repeats += runs[0].steps;
            if out.repeats > MAX_REPEATS {
                return Err("its new code lies in too many places for unwind tables".to_string());
            }
        }
        out.report.rows += runs.len();
        out.pieces.push(Piece { unit: index, start, end, lsda, steps: placed });
    }
    for (old, new) in map.copies(fde.start..fde.end) {
        let done = steps.iter().take_while(|s| s.at <= old).count();
        let (start, end) = (new.start, new.end);
        let placed = place(steps, &[FdePart { old: old..old + 1, new, steps: done }], map, rules.clone())?;
        out.repeats += done;
        out.report.rows += 1;
        out.pieces.push(Piece { unit: index, start, end, lsda: None, steps: placed });
    }
    if fde.signal {
        // A signal handler returns to the trampoline's address as the program knows it, that is, its old one.
        let all = FdePart { old: fde.start..fde.end, new: fde.start..fde.end, steps: steps.len() };
        let steps = steps.iter().map(|s| Ok((offset(s.at - all.new.start)?, s.op.clone())));
        let steps = steps.collect::<std::result::Result<_, String>>()?;
        out.pieces.push(Piece { unit: index, start: all.new.start, end: all.new.end, lsda: None, steps });
    }
    Ok(())
}

/// Adds pieces for calls that stand apart, which the old code's rows describe: one, if the calls stand in the old order and no tail between them. A row is new
/// where something differs.
fn add_stubs(unit: usize, steps: &[CfiStep], mut calls: &[ApartCall], initial: &RspRules, out: &mut Mapped) {
    while let Some(first) = calls.first() {
        let start = first.end.0 - 1;
        let (mut rules, mut placed, mut done, mut lower, mut taken) = (initial.clone(), Vec::new(), 0, 0, 0);
        for call in calls {
            let hold = steps.partition_point(|step| step.at <= call.old);
            if hold < done || call.begins_anew && taken > 0 {
                break;
            }
            let at = (call.end.0 - 1 - start) as u32;
            let mut lowered = |rules: &RspRules, by| {
                let changes = lower != by;
                lower = by;
                rules.lowered(by).into_iter().filter(move |_| changes).map(move |op| (at, op))
            };
            if hold > done {
                placed.extend(lowered(&rules, 0));
            }
            for step in &steps[done..hold] {
                rules.apply(&step.op, step.expression.as_deref());
                placed.push((at, step.op.clone()));
            }
            placed.extend(lowered(&rules, call.lower_by));
            (done, taken) = (hold, taken + 1);
        }
        let end = calls[taken - 1].end;
        out.stubs.push(Piece { unit, start: Vaddr(start), end, lsda: None, steps: placed });
        calls = &calls[taken..];
    }
}

/// `.debug_frame` for calls that stand apart and for tails; empty: there are none.
fn frames_of_stubs(input: &FrameInput, units: &[Unit], stubs: Vec<Piece>, tails: &[(Vaddr, u32)]) -> Result<Vec<u8>> {
    if stubs.is_empty() && tails.is_empty() {
        return Ok(Vec::new());
    }
    let mut table = table(input, units, stubs, Vaddr(0), DW_EH_PE_absptr, &|at| at)?;
    let encoding = gimli::Encoding { format: gimli::Format::Dwarf32, version: 1, address_size: 8 };
    let mut cie = CommonInformationEntry::new(encoding, 1, -8, X86_64::RA);
    cie.add_instruction(CallFrameInstruction::Cfa(X86_64::RSP, 8));
    cie.add_instruction(CallFrameInstruction::Offset(X86_64::RA, -8));
    let cie = table.add_cie(cie);
    for (end, below) in tails {
        let mut tail = FrameDescriptionEntry::new(Address::Constant(end.0 - 1), 1);
        tail.add_instruction(0, CallFrameInstruction::CfaOffset(8 + *below as i32));
        table.add_fde(cie, tail);
    }
    written(&table)
}

/// The steps of the piece that `runs` form. The first run repeats all steps before it. `rules` are those at the function's
/// entry, where inserted code moves rsp.
fn place(
    steps: &[CfiStep],
    runs: &[FdePart],
    map: &dyn CodeMap,
    mut rules: Option<RspRules>,
) -> std::result::Result<Vec<(u32, gimli::write::CallFrameInstruction)>, String> {
    let start = runs[0].new.start;
    let mut placed = Vec::with_capacity(runs[runs.len() - 1].steps);
    let mut done = 0;
    for run in runs {
        let at = offset(run.new.start - start)?;
        for step in &steps[done..run.steps] {
            if let Some(rules) = &mut rules {
                rules.apply(&step.op, step.expression.as_deref());
            }
            placed.push((at, step.op.clone()));
        }
        done = run.steps;
        let Some(rules) = &rules else { continue };
        for m in map.stack_moves(run.new.clone()) {
            let at = offset(m.at - start)?;
            placed.extend(rules.lowered(m.lower_by).into_iter().map(|op| (at, op)));
        }
    }
    Ok(placed)
}

fn offset(bytes: u64) -> std::result::Result<u32, String> {
    i32::try_from(bytes).map(|b| b as u32).map_err(|_| format!("its new code spans {bytes:#x} bytes"))
}

/// The call sites of the piece that `runs` form, at new addresses and ascending.
fn call_sites(old: &[CallSite], runs: &[FdePart], map: &dyn CodeMap) -> std::result::Result<Vec<CallSite>, String> {
    let mut sites: Vec<CallSite> = Vec::with_capacity(old.len());
    let mut before = Vaddr(0);
    let mut next_run = 0;
    for site in old {
        if site.start < before {
            return Err(format!("its call sites are not sorted at {}", site.start));
        }
        before = site.end;
        let pad = site.pad.map(|p| map.begin(p).ok_or_else(|| format!("the landing pad at {p} was not relocated")));
        let pad = pad.transpose()?;
        while runs.get(next_run).is_some_and(|r| r.old.end <= site.start) {
            next_run += 1;
        }
        let mut extends: Option<usize> = None;
        for run in runs[next_run..].iter().take_while(|r| r.old.start < site.end) {
            let (from, to) = (run.old.start.max(site.start), run.old.end.min(site.end));
            let start = if from == run.old.start { Some(run.new.start) } else { map.first(from, to) };
            let Some(start) = start else { continue };
            let end = if to == run.old.end { Some(run.new.end) } else { map.end(to) };
            let end = end.filter(|&e| e >= start && e <= run.new.end && start >= run.new.start);
            let end = end.ok_or_else(|| format!("the new code of the call site at {} is scattered", site.start))?;
            match extends {
                Some(i) => sites[i].end = end,
                None => {
                    extends = Some(sites.len());
                    sites.push(CallSite { start, end, pad, action: site.action });
                }
            }
        }
    }
    Ok(sites)
}

/// Builds the contents of `.debug_frame`; `input` holds the old ones in the form of `.eh_frame`.
pub(crate) fn build_debug(input: &FrameInput, map: &dyn CodeMap) -> Result<Vec<u8>> {
    let mut refused = RefusedFrames::default();
    let units = read(input, &mut FramesReport::default(), &mut refused);
    refused.into_result("call-frame information that cannot be read")?;
    let mut mapped = map_units(input, &units, &[map], Vaddr(0));
    mapped.refused.into_result("call-frame information that cannot be moved")?;
    mapped.pieces.sort_by_key(|p| p.start);
    written(&table(input, &units, mapped.pieces, Vaddr(0), DW_EH_PE_absptr, &|at| at)?)
}

/// As `.debug_frame`.
fn written(table: &FrameTable) -> Result<Vec<u8>> {
    let mut section = DebugFrame::from(EndianVec::new(LittleEndian));
    table.write_debug_frame(&mut section).map_err(|e| Error::new("the new .debug_frame").because(e))?;
    Ok(section.0.into_vec())
}

fn write_frames(
    input: &FrameInput,
    units: &[Unit],
    pieces: Vec<Piece>,
    at: Vaddr,
    moved: &dyn Fn(Vaddr) -> Vaddr,
) -> Result<Vec<u8>> {
    let table = table(input, units, pieces, at, cfi::PCREL4, moved)?;
    let mut section = EhFrame::from(EndianVec::new(LittleEndian));
    let written = table.write_eh_frame(&mut section);
    written.map_err(|e| Error::new(format!("the new .eh_frame at {at}")).because(e))?;
    let mut bytes = section.0.into_vec();
    bytes.extend([0; 4]);
    Ok(bytes)
}

/// All records; their addresses are relative to `at`, in this encoding. `moved`: where the code of personality routines is now.
fn table(
    input: &FrameInput,
    units: &[Unit],
    pieces: Vec<Piece>,
    at: Vaddr,
    encoding: DwEhPe,
    moved: &dyn Fn(Vaddr) -> Vaddr,
) -> Result<FrameTable> {
    let mut table = FrameTable::default();
    let mut cies: HashMap<(usize, bool), CieId> = HashMap::new();
    let relative = |to: Vaddr| Address::Constant(to - at);
    for piece in pieces {
        let fde = &units[piece.unit].fde;
        let key = (fde.raw.cie().offset(), piece.lsda.is_some());
        let cie = match cies.get(&key) {
            Some(&cie) => cie,
            None => {
                let cie = cfi::cie(input, fde, key.1, at, moved);
                let at = input.eh_frame.at + key.0 as u64;
                let mut cie = cie.map_err(|e| Error::new(format!("the CIE at {at}: {e}")))?;
                cie.fde_address_encoding = encoding;
                // Debuggers call no personality routine.
                cie.personality = cie.personality.filter(|_| encoding != DW_EH_PE_absptr);
                let cie = table.add_cie(cie);
                cies.insert(key, cie);
                cie
            }
        };
        let mut out = FrameDescriptionEntry::new(relative(piece.start), (piece.end - piece.start) as u32);
        out.lsda = piece.lsda.map(relative);
        for (offset, op) in piece.steps {
            out.add_instruction(offset, op);
        }
        table.add_fde(cie, out);
    }
    Ok(table)
}

impl FramesReport {
    fn drop(&mut self, fde: &Fde, reason: &'static str) {
        self.dropped.push(DroppedFde { record: fde.record, start: fde.start, end: fde.end, reason });
    }
}

/// The new sections with their addresses. They lie one behind the other from the address asked for, each aligned to 8.
#[derive(Debug)]
pub struct NewFrames {
    pub search_table: SearchTable,
    /// Ends with the zero terminator.
    pub eh_frame: (Vaddr, Vec<u8>),
    /// May be empty.
    pub gcc_except_table: (Vaddr, Vec<u8>),
    /// `.debug_frame` for the calls of stubs. May be empty.
    pub stubs: Vec<u8>,
    pub report: FramesReport,
}

/// The section `.eh_frame_hdr` to be.
#[derive(Debug)]
pub struct SearchTable {
    pub at: Vaddr,
    /// First address of the code, address of the FDE.
    entries: Vec<(Vaddr, Vaddr)>,
    /// How many there are besides.
    others: usize,
}

impl SearchTable {
    /// Of the section.
    pub fn bytes(&self) -> usize {
        eh_frame_hdr::bytes(self.entries.len() + self.others)
    }

    /// The section, with the other frames that it leads to: first address of the code, address of the FDE. `eh_frame`: where the frames of this file stand.
    ///
    /// # Errors
    /// Something is out of its reach.
    pub fn write(&self, eh_frame: Vaddr, others: &[(Vaddr, Vaddr)]) -> Result<Vec<u8>> {
        debug_assert_eq!(others.len(), self.others);
        eh_frame_hdr::write(self.at, eh_frame, [&self.entries, others].concat())
    }
}

/// What became of the input's frames.
#[derive(Debug, Default)]
pub struct FramesReport {
    /// FDEs of the input.
    pub fdes: usize,
    /// FDEs of the output: one for each piece of new code.
    pub fdes_written: usize,
    /// FDEs of the input whose new code lies in several pieces.
    pub split: usize,
    /// Unwind rows of the output.
    pub rows: usize,
    pub lsdas: usize,
    pub call_sites: usize,
    pub dropped: Vec<DroppedFde>,
}

/// An FDE of the input that the output does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DroppedFde {
    /// Address of the record in `.eh_frame`.
    pub record: Vaddr,
    pub start: Vaddr,
    pub end: Vaddr,
    pub reason: &'static str,
}
