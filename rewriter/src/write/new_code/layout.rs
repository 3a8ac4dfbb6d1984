//! Code -> [`PlacedCode`] and [`NewCode`]: sizes and addresses decided, fields filled in.
//!
//! Branches start short and grow until all reach (they never shrink, so this ends). The new code begins at the page
//! behind the input's last segment: hot code, then cold stubs; read-only tables follow on the next page.
//! Invariant: everything lies within a rel32 of everything else, because all together spans less than 2 GiB.

use crate::base::addresses::Vaddr;
use crate::base::collections::compact_offsets::CompactOffsets;
use crate::base::error::{Error, Result};
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::graph::jump_table::JumpTable;
use crate::insert::code::{
    Buffer, COLD_ALIGN, EmittedCode, EmittedRestarts, Fixup, FixupTarget, HotItem, ItemKind, StubCall, TailCall,
};
use crate::insert::strip;
use crate::plan::checks;
use crate::write::frames::pieces::StackMove;
use crate::write::new_code::versions::Versions;
use blizzard_contract::restarts::Restart;
use blizzard_contract::{Claim, CodeRegion, GroupRange, TrapEntry, VsibDesc};
use std::collections::HashMap;
use std::ops::Range;

/// Where everything is, and the tables.
#[derive(Debug)]
pub struct PlacedCode {
    pub code_va: Vaddr,
    /// Bytes of the new code: hot code, padding, cold code.
    pub code_bytes: u64,
    /// Offset of the cold code in it.
    pub cold_at: u32,
    pub rodata_va: Vaddr,
    pub rodata: Vec<u8>,
    pub claims: Vec<Claim>,
    pub regions: Vec<CodeRegion>,
    restarts: EmittedRestarts,
    /// Copies of loops' blocks: a place in the old code that they belong to, and the new code. Ascending.
    pub copies: Vec<(InsnId, std::ops::Range<Vaddr>)>,
    /// Their instructions.
    pub moved: Vec<(InsnId, std::ops::Range<Vaddr>)>,
    /// Moves of rsp by inserted code, ascending.
    pub stack: Vec<StackMove>,
    /// By instruction.
    stub_calls: Vec<StubCall>,
    pub tail_calls: Vec<TailCall>,
    /// Bytes of the blocks' counters, in pages of their own in front of the code.
    pub counter_bytes: u64,
    /// Which code exists twice.
    pub versions: Versions,
    /// From accesses of plain code to full code, relative to the new code's beginning, ascending.
    pub to_full: Vec<TrapEntry>,
    /// Functions of plain code that may be entered in their full versions: from where they begin to those, likewise.
    pub redirected: Vec<TrapEntry>,
    /// The section that says what the blocks contain.
    pub blocks: Vec<u8>,
    /// The old address of each row of `to_full`: distances from the one before, in unsigned LEB128.
    pub accesses: Vec<u8>,
    /// Offset from `code_va` of each instruction's new code; one more for the end of the hot code.
    begin: CompactOffsets,
    /// (instruction, bytes of padding in front of it), sorted.
    padding: Vec<(InsnId, u32)>,
    /// Where the cold code of each function begins, in the cold code.
    cold_starts: Vec<(InsnId, u32)>,
    /// Where that of each instruction begins, in the cold code; it ends where the next begins.
    cold_parts: Vec<(InsnId, u32)>,
    /// What others of the cold code call, ascending: from where to where in it.
    shared: Vec<(u32, u32)>,
    /// Where hot code leads into cold code, ascending, and by how much rsp is lower there.
    entries: Vec<(u32, u32)>,
}

/// The new code, its fields filled in, to be brought to its final size while it is written.
pub struct NewCode {
    hot: Vec<u8>,
    cold: Vec<u8>,
    items: Vec<HotItem>,
    /// Which items have their long form.
    long: Vec<bool>,
    /// Bytes by which the items in front of each have grown.
    shift: Vec<u32>,
    cold_at: u32,
}

/// What the optimiser's passes say of the code.
pub struct Proofs<'x> {
    pub ranges: &'x [GroupRange],
    pub claims: &'x [checks::PlannedClaim],
    pub regions: &'x [checks::PlannedRegion],
}

impl PlacedCode {
    /// Where the checks of accesses begin, relative to the new code's beginning.
    pub fn restarts(&self) -> impl Iterator<Item = Restart> {
        self.restarts.all().map(|(id, from, bytes)| {
            let check = self.begin.get(id.ix()) + from;
            Restart { check, access: check + bytes }
        })
    }

    /// Where an instruction's new code begins, inserted checks included.
    #[inline]
    pub fn begin(&self, id: InsnId) -> Vaddr {
        self.code_va + u64::from(self.begin.get(id.ix()))
    }

    /// The calls of stubs that go on in the new code of instructions in `[first, stop)`.
    pub fn stub_calls(&self, first: InsnId, stop: InsnId) -> &[StubCall] {
        let place = |id: InsnId| self.stub_calls.partition_point(|call| call.id < id);
        &self.stub_calls[place(first)..place(stop)]
    }

    /// The address of a place in the cold code.
    pub fn cold_va(&self, at: u32) -> Vaddr {
        self.code_va + u64::from(self.cold_at + at)
    }

    /// Where the counters of blocks are; none if blocks are not counted.
    pub fn counters_va(&self) -> Option<Vaddr> {
        let pages = self.counter_bytes.next_multiple_of(PAGE_BYTES);
        (pages > 0).then(|| Vaddr(self.code_va.0 - pages))
    }

    /// The address behind everything emitted for an instruction (padding of the next one not included).
    #[inline]
    pub fn end(&self, id: InsnId) -> Vaddr {
        let next = InsnId(id.0 + 1);
        let pad = self.padding.binary_search_by_key(&next, |p| p.0).map_or(0, |i| self.padding[i].1);
        self.code_va + u64::from(self.begin.get(next.ix()) - pad)
    }

    /// The cold code of the functions that begin in `[first, stop)`, of which one begins at `first`.
    pub fn cold(&self, first: InsnId, stop: InsnId) -> Option<Range<Vaddr>> {
        let place = |id: InsnId| self.cold_starts.partition_point(|s| s.0 < id);
        let (from, to) = (self.cold_starts.get(place(first))?, self.cold_starts.get(place(stop)));
        let end = to.map_or(self.code_va + self.code_bytes, |s| self.cold_va(s.1));
        (from.0 == first).then(|| self.cold_va(from.1)..end)
    }

    /// The cold code of the instructions in `[first, stop)`, ascending. The copies of a loop are part of its last instruction's.
    pub fn cold_parts(&self, first: InsnId, stop: InsnId) -> impl Iterator<Item = (InsnId, Range<Vaddr>)> {
        let place = |id: InsnId| self.cold_parts.partition_point(|p| p.0 < id);
        let parts = &self.cold_parts;
        (place(first)..place(stop)).map(move |k| {
            let end = parts.get(k + 1).map_or(self.code_va + self.code_bytes, |p| self.cold_va(p.1));
            (parts[k].0, self.cold_va(parts[k].1)..end)
        })
    }

    /// The cold code that other cold code calls, as far as it lies in a stretch of it.
    pub fn shared(&self, within: Range<Vaddr>) -> impl Iterator<Item = Range<Vaddr>> {
        let first = self.shared.partition_point(|part| self.cold_va(part.0) < within.start);
        let all = self.shared[first..].iter().map(|part| self.cold_va(part.0)..self.cold_va(part.1));
        all.take_while(move |part| part.start < within.end)
    }

    /// Where hot code leads into a stretch of cold code, and by how much rsp is lower there than the program's.
    pub fn entries(&self, into: Range<Vaddr>) -> impl Iterator<Item = (Vaddr, u32)> {
        let first = self.entries.partition_point(|entry| self.cold_va(entry.0) < into.start);
        let all = self.entries[first..].iter().map(|entry| (self.cold_va(entry.0), entry.1));
        all.take_while(move |entry| entry.0 < into.end)
    }

    /// Where calls in shared cold code end, and where that begins, with the bytes between rsp and the address to return to.
    pub fn tails(&self) -> Vec<(Vaddr, u32)> {
        let calls = self.tail_calls.iter().map(|call| (self.cold_va(call.end), call.below));
        // The first byte alone.
        calls.chain(self.shared.iter().map(|part| (self.cold_va(part.0 + 1), 0))).collect()
    }

    /// Where the full versions begin in the hot code; none if no code exists twice.
    pub fn full_at(&self) -> Option<u32> {
        self.versions.are_two().then(|| self.begin.get(self.versions.full_label(InsnId(0)).ix()))
    }

    /// End of the hot code.
    pub fn hot_end(&self) -> Vaddr {
        self.code_va + u64::from(self.begin.last().expect("one more than instructions"))
    }
}

/// Bytes by which the items grow in front of each item, for one choice of branch sizes; one more for the end.
fn grown(hot: &[u8], items: &[HotItem], long: &[bool], out: &mut Vec<u32>) {
    out.clear();
    let mut grown = 0u32;
    for (item, long) in items.iter().zip(long) {
        out.push(grown);
        grown += growth(item.kind(hot), *long, item.pos + grown);
    }
    out.push(grown);
}

/// A branch that may keep its short form.
struct Near {
    item: u32,
    /// Bytes to its target before anything grows: of what follows the branch, or of what leads to it from behind.
    reach: i32,
    /// How many items stand in front of the target.
    before_target: u32,
}

/// Which branches need their long forms, and the bytes by which the items in front of each item have grown then; one more for the end.
fn relax(code: &EmittedCode) -> (Vec<bool>, Vec<u32>) {
    let EmittedCode { hot, items, begin, .. } = code;
    let mut long = vec![false; items.len()];
    // Nothing ever shrinks but padding, and no distance falls below what it is without any growth: most are decided by that.
    let mut near = Vec::new();
    for (k, item) in items.iter().enumerate() {
        let ItemKind::Branch { to, delta, .. } = item.kind(&hot.bytes) else { continue };
        let begin = begin.get(to.ix());
        let reach = i64::from(begin) + i64::from(delta) - i64::from(item.pos);
        if i8::try_from(reach - 2).is_err() {
            long[k] = true;
            continue;
        }
        let before = |i: &&HotItem| i.pos < begin || i.pos == begin && i.is_align();
        let before_target = if begin > item.pos {
            k + items[k..].iter().take_while(before).count()
        } else {
            k - items[..k].iter().rev().take_while(|i| !before(i)).count()
        };
        near.push(Near { item: k as u32, reach: reach as i32, before_target: before_target as u32 });
    }
    let mut shift = Vec::with_capacity(items.len() + 1);
    // The first time as if none had grown: what padding takes depends on it.
    grown(&hot.bytes, items, &vec![false; items.len()], &mut shift);
    let mut first = true;
    loop {
        let before = near.len();
        near.retain(|n| {
            let moved = i64::from(shift[n.before_target as usize]) - i64::from(shift[n.item as usize]);
            let short = i8::try_from(i64::from(n.reach) + moved - 2).is_ok();
            long[n.item as usize] |= !short;
            short
        });
        if near.len() == before && !first {
            return (long, shift);
        }
        first = false;
        grown(&hot.bytes, items, &long, &mut shift);
    }
}

/// Where each instruction's new code begins, one more for the end, and the padding in front of it; `shift`: bytes by which the items in front of each
/// item have grown. Takes the old places away.
fn settle(code: &mut EmittedCode, shift: &[u32]) -> (CompactOffsets, Vec<(InsnId, u32)>) {
    let old = std::mem::take(&mut code.begin);
    let (mut begin, mut padding) = (CompactOffsets::with_capacity(old.len()), Vec::new());
    let mut done = 0;
    for (i, at) in old.iter().enumerate() {
        let mut aligned = None;
        while let Some(item) = code.items.get(done).filter(|i| i.pos < at || i.pos == at && i.is_align()) {
            if item.is_align() {
                aligned = Some(item.pos + shift[done]);
            }
            done += 1;
        }
        let new = at + shift[done];
        begin.push(new);
        padding.extend(aligned.map(|from| (InsnId(i as u32), new - from)));
    }
    (begin, padding)
}

fn growth(kind: ItemKind, long: bool, at: u32) -> u32 {
    match kind {
        ItemKind::Branch { cc: Some(_), .. } => {
            if long {
                4
            } else {
                0
            }
        }
        ItemKind::Branch { cc: None, .. } => {
            if long {
                3
            } else {
                0
            }
        }
        ItemKind::Align { place, .. } => place.gap(at),
    }
}

const PAGE_BYTES: u64 = 4096;
const TRAP: u8 = 0xcc;

/// Places everything; `at` is the page where the code shall begin, behind the counters of blocks if there are any, and `lowest` where the file begins.
/// New code may stand in front of it, at addresses below zero, modulo 2^64. Then what it names may be out of reach, and is looked at.
///
/// # Errors
/// When the new code would not fit into the reach of a rel32.
pub fn place(
    mut code: EmittedCode,
    insns: &Insns,
    versions: Versions,
    tables: &[JumpTable],
    proofs: &Proofs,
    (lowest, at): (Vaddr, Vaddr),
) -> Result<(PlacedCode, NewCode)> {
    let too_large = || {
        Error::new("the new code would be larger than 1 GiB").help("rewrite with --checks none or split the program")
    };
    if code.hot.bytes.len() + code.cold.bytes.len() > 1 << 30 {
        return Err(too_large());
    }
    let full = full_tables(&versions, tables);
    let tables = &[tables, &full].concat()[..];
    let counter_bytes = code.recorder.counter_bytes();
    let counters_at = at;
    let at = at + counter_bytes.next_multiple_of(PAGE_BYTES);
    let (long, shift) = relax(&code);
    let (begin, padding) = settle(&mut code, &shift);
    let hot_bytes = begin.last().expect("one more than instructions");
    let cold_at = hot_bytes.next_multiple_of(COLD_ALIGN);
    let code_bytes = u64::from(cold_at) + code.cold.bytes.len() as u64;
    let rodata_va = Vaddr((at.0 + code_bytes).next_multiple_of(4096));
    let vsib_bytes = code.vsib.len() as u64 * 16;
    let range_bytes = proofs.ranges.len() as u64 * 16;
    let ranges_va = rodata_va + vsib_bytes;
    let (table_at, next) = place_tables(tables, ranges_va + range_bytes);
    if next - at > 1 << 30 {
        return Err(too_large());
    }
    // Frames and the trap map follow, which are no larger than the code.
    let is_in_front = (next - lowest) as i64 <= 0;
    if !is_in_front && next - lowest + (next - at) > i32::MAX as u64 {
        return Err(Error::new("its segments and the new code would span more than 2 GiB")
            .help("allocate large arrays (malloc, bz_alloc), or rewrite with --checks none"));
    }
    let out_of_reach = std::cell::Cell::new(None);
    let begin_of = |id: InsnId| at + u64::from(begin.get(id.ix()));
    let value = |f: &Fixup, target: FixupTarget, here: Vaddr| -> i32 {
        let ip = here + 4 + u64::from(f.tail);
        let to = match target {
            FixupTarget::Old(va) => va,
            FixupTarget::Insn { id, delta } => begin_of(id) + u64::from(delta),
            FixupTarget::Cold(pos) => at + u64::from(cold_at) + u64::from(pos),
            FixupTarget::Counter(k) => counters_at + 8 * u64::from(k),
            FixupTarget::Vsib(i) => rodata_va + 16 * u64::from(i),
            FixupTarget::Range(i) => ranges_va + 16 * u64::from(i),
            FixupTarget::TableDelta { table, disp } => {
                let t = table as usize;
                return disp.wrapping_add((table_at[t] - tables[t].at) as i64 as i32);
            }
        };
        let distance = (to - ip) as i64;
        if i32::try_from(distance).is_err() {
            out_of_reach.set(Some(to));
        }
        distance as i32
    };
    let EmittedCode {
        mut hot,
        mut cold,
        cold_starts,
        cold_parts,
        shared,
        items,
        vsib,
        stack,
        guarded,
        restarts,
        moved,
        accesses,
        ..
    } = code;
    let (mut stub_calls, tail_calls) = (code.stub_calls, code.tail_calls);
    // A loop's stubs are emitted where it ends.
    stub_calls.sort_by_key(|call| call.id);
    let into_cold = |f: &Fixup| match hot.target(f) {
        FixupTarget::Cold(to) => Some((f.pos, to)),
        _ => None,
    };
    let into_cold: Vec<(u32, u32)> = hot.fixups.iter().filter_map(into_cold).collect();
    let mut passed = 0;
    fill(
        &mut hot,
        |pos| {
            passed += items[passed..].iter().take_while(|i| i.pos <= pos).count();
            at + u64::from(pos + shift[passed])
        },
        &value,
    );
    fill(&mut cold, |pos| at + u64::from(cold_at + pos), &value);
    if let (true, Some(to)) = (is_in_front, out_of_reach.get()) {
        return Err(Error::new(format!("an instruction names {to}, which is more than 2 GiB from its new place"))
            .help("allocate large arrays (malloc, bz_alloc), or compile with -mcmodel=medium"));
    }
    let leads = |t: &JumpTable| t.words(begin_of, |id| insns.va(id));
    let rodata = rodata(&vsib, proofs.ranges, tables, &table_at, rodata_va, next, leads);
    let (claims, mut regions) = proven(&guarded, proofs, &begin, (ranges_va - at) as u32);
    regions.extend(moved.iter().map(|&(from, to, id)| CodeRegion {
        start: cold_at + from,
        end: cold_at + to,
        group: CodeRegion::MOVED | begin.get(id.ix()),
    }));
    let stretch = |part: std::ops::Range<u32>| at + u64::from(cold_at + part.start)..at + u64::from(cold_at + part.end);
    let copies = copies(&moved).map(|(id, part)| (id, stretch(part))).collect();
    let moved = moved.iter().map(|&(from, to, id)| (id, stretch(from..to))).collect();
    let stack = stack.iter().map(|s| StackMove { at: begin_of(s.id) + u64::from(s.delta), lower_by: s.lower_by });
    let stack: Vec<StackMove> = stack.collect();
    let lower_by = |pos: u32| {
        let here = at + u64::from(pos + shift[items.partition_point(|item| item.pos <= pos)]);
        stack[..stack.partition_point(|moved| moved.at <= here)].last().map_or(0, |moved| moved.lower_by)
    };
    let is_shared = |to: u32| shared.binary_search_by_key(&to, |part| part.0).is_ok();
    let mut entries: Vec<(u32, u32)> =
        into_cold.into_iter().filter(|e| !is_shared(e.1)).map(|(from, to)| (to, lower_by(from))).collect();
    entries.sort_unstable();
    entries.dedup_by_key(|entry| entry.0);
    let to_full = accesses.all().map(|(id, behind)| TrapEntry {
        old: begin.get(id.ix()) + behind,
        new: begin.get(versions.full_label(id).ix()),
    });
    let to_full = to_full.collect();
    let old_addresses = accesses.old_addresses(insns);
    let both = |id: &InsnId| TrapEntry { old: begin.get(id.ix()), new: begin.get(versions.full_label(*id).ix()) };
    let redirected = accesses.redirected.iter().map(both).collect();
    debug_assert!(versions.labels() + 1 == begin.len());
    let new = NewCode { hot: hot.bytes, cold: cold.bytes, items, long, shift, cold_at };
    let placed = PlacedCode {
        code_va: at,
        code_bytes,
        cold_at,
        rodata_va,
        rodata,
        claims,
        regions,
        restarts,
        copies,
        moved,
        stack,
        stub_calls,
        tail_calls,
        counter_bytes,
        versions,
        to_full,
        redirected,
        blocks: Vec::new(),
        accesses: old_addresses,
        begin,
        padding,
        cold_starts,
        cold_parts,
        shared,
        entries,
    };
    Ok((placed, new))
}

/// Fills the fields of a buffer in; `place`: the final address of a position, asked by rising position.
fn fill(buffer: &mut Buffer, mut place: impl FnMut(u32) -> Vaddr, value: &dyn Fn(&Fixup, FixupTarget, Vaddr) -> i32) {
    for f in std::mem::take(&mut buffer.fixups) {
        let v = value(&f, buffer.target(&f), place(f.pos));
        let at = f.pos as usize;
        buffer.bytes[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }
}

/// No operations by length (SDM volume 2, "NOP").
const NOPS: [&[u8]; 9] = [
    &[0x90],
    &[0x66, 0x90],
    &[0x0f, 0x1f, 0x00],
    &[0x0f, 0x1f, 0x40, 0],
    &[0x0f, 0x1f, 0x44, 0, 0],
    &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
    &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
    &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
];

/// Bytes that are handed over at once.
const PIECE_BYTES: usize = 256 << 10;

impl NewCode {
    /// Gives hot code, padding and cold code in pieces.
    pub fn write(self, placed: &PlacedCode, mut to: impl FnMut(&[u8])) {
        let NewCode { hot, cold, items, long, shift, cold_at } = self;
        let mut out = Vec::with_capacity(PIECE_BYTES + (PIECE_BYTES >> 3));
        let mut written = 0;
        let mut done = 0usize;
        for ((item, long), shift) in items.iter().zip(long).zip(shift) {
            let at = item.pos + shift;
            out.extend_from_slice(&hot[done..item.pos as usize]);
            done = item.pos as usize;
            debug_assert_eq!(written + out.len(), at as usize);
            let kind = item.kind(&hot);
            match kind {
                ItemKind::Align { reached: false, place } => out.resize(out.len() + place.gap(at) as usize, TRAP),
                ItemKind::Align { reached: true, place } => {
                    let mut gap = place.gap(at) as usize;
                    while gap > 0 {
                        let nop = NOPS[gap.min(NOPS.len()) - 1];
                        out.extend(nop);
                        gap -= nop.len();
                    }
                }
                ItemKind::Branch { cc, to, delta } => {
                    done += 2;
                    let size = 2 + growth(kind, long, at);
                    let rel = i64::from(placed.begin.get(to.ix()) + delta) - i64::from(at) - i64::from(size);
                    match (cc, long) {
                        (Some(cc), false) => out.extend([0x70 | cc, rel as u8]),
                        (None, false) => out.extend([0xeb, rel as u8]),
                        (Some(cc), true) => {
                            out.extend([0x0f, 0x80 | cc]);
                            out.extend((rel as i32).to_le_bytes());
                        }
                        (None, true) => {
                            out.push(0xe9);
                            out.extend((rel as i32).to_le_bytes());
                        }
                    }
                }
            }
            if out.len() >= PIECE_BYTES {
                to(&out);
                written += out.len();
                out.clear();
            }
        }
        out.extend(&hot[done..]);
        out.resize(cold_at as usize - written, TRAP);
        to(&out);
        to(&cold);
    }
}

/// Copies as stretches of the cold buffer, with their comparisons and jumps: the instructions of one follow each other, jumps between its
/// blocks aside.
fn copies(moved: &[(u32, u32, InsnId)]) -> impl Iterator<Item = (InsnId, std::ops::Range<u32>)> {
    /// A jump or a counter.
    const BETWEEN: u32 = 16;
    moved.chunk_by(|a, b| b.0 - a.1 <= BETWEEN).map(|list| {
        let (from, to) = (list[0].0 - strip::COPY_HEAD_BYTES, list[list.len() - 1].1 + strip::COPY_TAIL_BYTES);
        (list[0].2, from..to)
    })
}

/// What of a copy are copied instructions, and jumps between its blocks.
pub fn copied_part(copy: &Range<Vaddr>) -> Range<Vaddr> {
    copy.start + u64::from(strip::COPY_HEAD_BYTES)..Vaddr(copy.end.0 - u64::from(strip::COPY_TAIL_BYTES))
}

/// Claims and regions at their places, relative to the new code's beginning, as are the `ranges`.
fn proven(
    guarded: &[(InsnId, u32)],
    proofs: &Proofs,
    begin: &CompactOffsets,
    ranges: u32,
) -> (Vec<Claim>, Vec<CodeRegion>) {
    let guarded = |id: InsnId| {
        let delta = guarded.binary_search_by_key(&id, |g| g.0).map_or(0, |k| guarded[k].1);
        begin.get(id.ix()) + delta
    };
    let claim = |c: &checks::PlannedClaim| Claim {
        access: guarded(c.id),
        cover: c.cover.map_or(Claim::SEVERAL, guarded),
        reason: c.reason,
    };
    let region = |r: &checks::PlannedRegion| CodeRegion {
        start: begin.get(r.first.ix()),
        end: begin.get(r.stop.ix()),
        group: ranges + 16 * r.chain,
    };
    (proofs.claims.iter().map(claim).collect(), proofs.regions.iter().map(region).collect())
}

/// The tables that full versions read, by the index of those that plain ones read: they lead to full versions. Where the load has none, an empty one.
fn full_tables(versions: &Versions, tables: &[JumpTable]) -> Vec<JumpTable> {
    if !versions.are_two() {
        return Vec::new();
    }
    let full = |t: &JumpTable| JumpTable {
        load: versions.full_label(t.load),
        targets: if versions.has_full(t.load) { t.targets_in(|id| versions.full(id)) } else { Vec::new() },
        ..t.clone()
    };
    tables.iter().map(full).collect()
}

/// Where each table goes, and where the last one ends. Jumps that share a load share its table.
fn place_tables(tables: &[JumpTable], from: Vaddr) -> (Vec<Vaddr>, Vaddr) {
    let mut of_load: HashMap<InsnId, Vaddr> = HashMap::with_capacity(tables.len());
    let mut next = from;
    let place = |t: &JumpTable| {
        *of_load.entry(t.load).or_insert_with(|| {
            let end = next + (t.targets.len() * t.entries.width()) as u64;
            std::mem::replace(&mut next, Vaddr(end.0.next_multiple_of(8)))
        })
    };
    let at = tables.iter().map(place).collect();
    (at, next)
}

/// Gather descriptors, chains of ranges, then jump tables.
fn rodata(
    vsib: &[VsibDesc],
    ranges: &[GroupRange],
    tables: &[JumpTable],
    table_at: &[Vaddr],
    va: Vaddr,
    end: Vaddr,
    leads: impl Fn(&JumpTable) -> Vec<Vaddr>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity((end - va) as usize);
    for d in vsib {
        out.extend(d.disp.to_le_bytes());
        out.extend([
            d.base,
            d.index,
            d.index_bytes,
            d.elem_bytes,
            d.lanes,
            d.scale,
            d.mask_kind,
            d.mask,
            d.access,
            d.rsp_moved,
        ]);
        out.extend(d._pad);
    }
    for r in ranges {
        out.extend(r.disp.to_le_bytes());
        out.extend(r.desc.to_le_bytes());
        out.extend([r.base, r.index, r.scale, r.more]);
        out.extend(r._pad.to_le_bytes());
    }
    for (t, &at) in tables.iter().zip(table_at) {
        // Written for another jump.
        if at - va < out.len() as u64 {
            continue;
        }
        out.resize((at - va) as usize, 0);
        for target in leads(t) {
            t.entries.write(target, &mut out);
        }
    }
    out.resize((end - va) as usize, 0);
    out
}
