//! Emission -> `.blizzard.blocks`: what each counted basic block contains, so that counts of blocks become counts of accesses.
//!
//! A rewrite that counts blocks (`--count-blocks`) increments one counter per emitted block and changes nothing else: checks and polls are
//! byte for byte those of the rewrite that does not count. Everything else follows from the table that this module writes into the file
//! and reads back: how many instructions a block has, which of them access memory, what was inserted for each.
//!
//! Input: [`Recorder`], filled in the order of emission. Output: the section's bytes; [`block_table::BlockTable`] when read. Addresses are the input's.
//! **Invariant**: counter `k` belongs to the `k`th block of the table. A block that is emitted twice, as in both versions of guarded
//! code, has two entries.

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::graph::cfg::Cfg;
use crate::insert::block_table;
use crate::plan::decision::DecisionClass;
use std::collections::BTreeMap;
use std::ops::Range;

/// Name of the section.
pub const SECTION: &str = ".blizzard.blocks";

/// Marks among which that of an instruction of a short block is found.
const RECENT: usize = 512;

/// What was inserted at an instruction, or why nothing was.
#[derive(Clone, Debug)]
pub struct InsertedMark {
    pub insn: InsnId,
    pub class: DecisionClass,
    /// Instructions.
    pub inserted: u32,
    pub place: SequencePlace,
}

/// Where a sequence stands.
#[derive(Clone, Debug, Default)]
pub struct SequencePlace {
    /// Live there.
    pub live: RegSet,
    /// It asks first whether the address can be shared memory.
    pub screened: bool,
    /// In the hot and the cold buffer.
    pub hot: Range<u32>,
    pub cold: Range<u32>,
}

/// An emitted block.
#[derive(Clone, Copy, Debug)]
struct Emitted {
    first: InsnId,
    insns: u32,
    /// Marks from here on.
    marks: u32,
}

/// Fills up while code is emitted.
#[derive(Debug, Default)]
pub struct Recorder {
    /// Blocks are counted.
    counts: bool,
    /// Places are asked for.
    traces: bool,
    blocks: Vec<Emitted>,
    marks: Vec<InsertedMark>,
    /// Counters in the hot buffer, each at the instruction behind it; kept where places are asked for.
    pub counters: Vec<(InsnId, SequencePlace)>,
}

impl Recorder {
    /// `counts`: blocks are counted. `traces`: somebody asks where what is inserted stands.
    pub fn new(counts: bool, traces: bool) -> Recorder {
        Recorder { counts, traces, ..Recorder::default() }
    }

    /// Whether anybody wants to know what is inserted.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.counts || self.traces
    }

    /// A block of `insns` instructions of the program begins; the number of its counter, if it has one. Inserted code that does not run as often as
    /// what it stands for is a block of none.
    pub fn begin(&mut self, first: InsnId, insns: u32) -> Option<u32> {
        if !self.counts {
            return None;
        }
        self.blocks.push(Emitted { first, insns, marks: self.marks.len() as u32 });
        Some(self.blocks.len() as u32 - 1)
    }

    /// `inserted` instructions stand in front of `insn`, for what `class` says. Belongs to the block that began last.
    pub fn mark(&mut self, insn: InsnId, class: DecisionClass, inserted: u32) {
        self.mark_at(insn, class, inserted, SequencePlace::default());
    }

    /// The same, and where they stand.
    pub fn mark_at(&mut self, insn: InsnId, class: DecisionClass, inserted: u32, place: SequencePlace) {
        if self.is_on() {
            self.marks.push(InsertedMark { insn, class, inserted, place });
        }
    }

    /// A counter stands there, in front of `insn`.
    pub fn counter_at(&mut self, insn: InsnId, place: SequencePlace) {
        if self.traces && !place.hot.is_empty() {
            self.counters.push((insn, place));
        }
    }

    /// The number of the next mark.
    pub fn next_mark(&self) -> usize {
        self.marks.len()
    }

    /// The place of a mark, to be put right when more of it is emitted.
    pub fn place_of(&mut self, mark: usize) -> Option<&mut SequencePlace> {
        self.marks.get_mut(mark).map(|m| &mut m.place)
    }

    /// All marks of what stands in the hot buffer.
    pub fn hot_marks(&self) -> impl Iterator<Item = &InsertedMark> {
        self.marks.iter().filter(|m| !m.place.hot.is_empty())
    }

    /// What was said last of an instruction of a short block that has just been emitted.
    pub fn last(&self, insn: InsnId) -> Option<(DecisionClass, u32)> {
        self.marks.iter().rev().take(RECENT).find(|m| m.insn == insn).map(|m| (m.class, m.inserted))
    }

    /// Bytes of all counters.
    pub fn counter_bytes(&self) -> u64 {
        self.blocks.len() as u64 * 8
    }

    /// The section's bytes; empty when nothing was counted. `name`: the input's path.
    pub fn encode(&self, insns: &Insns, loops: impl FnOnce() -> Vec<(Vaddr, Vaddr)>, name: &str) -> Vec<u8> {
        if self.blocks.is_empty() {
            return Vec::new();
        }
        let mut functions: Vec<u64> = insns.starts.iter().map(|&id| insns.va(id).0).collect();
        functions.sort_unstable();
        functions.dedup();
        let mut table = block_table::BlockTableWriter::new(
            name,
            functions.into_iter(),
            loops().into_iter().map(|(head, end)| (head.0, end.0)),
        );
        for (k, block) in self.blocks.iter().enumerate() {
            let marks_to = self.blocks.get(k + 1).map_or(self.marks.len(), |next| next.marks as usize);
            let marks = &self.marks[block.marks as usize..marks_to];
            let from = insns.va(block.first).0;
            let last = block.insns.checked_sub(1).map(|n| InsnId(block.first.0 + n));
            let to = last.map_or(from, |last| insns.end(last).0);
            table.block(from, to, block.insns, marks.iter().map(|m| (insns.va(m.insn).0, m.class, m.inserted)));
        }
        table.finish()
    }
}

/// Loops as stretches of addresses: from the target of a backward branch to the end of the last branch to it. Branches to
/// other functions are among them.
pub fn loops(insns: &Insns, cfg: &Cfg) -> Vec<(Vaddr, Vaddr)> {
    let mut loops: BTreeMap<Vaddr, Vaddr> = BTreeMap::new();
    let mut note = |head: Vaddr, end: Vaddr| {
        let known = loops.entry(head).or_insert(end);
        *known = (*known).max(end);
    };
    for (i, insn) in insns.iter().enumerate() {
        let id = InsnId(i as u32);
        if let Some(to) = insn.target().filter(|to| insn.flow != Flow::Call && insns.va(*to) <= insns.va(id)) {
            note(insns.va(to), insns.end(id));
        }
    }
    for table in &cfg.tables {
        let jump = insns.va(table.jump);
        for to in table.own_targets().filter(|to| insns.va(*to) <= jump) {
            note(insns.va(to), insns.end(table.jump));
        }
    }
    loops.into_iter().collect()
}
