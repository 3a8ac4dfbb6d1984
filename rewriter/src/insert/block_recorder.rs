//! Emission -> `.blizzard.blocks`: what each counted basic block contains, so that counts of blocks become counts of accesses.
//!
//! A rewrite that counts blocks (`--count-blocks`) increments one counter per emitted block and changes nothing else: checks and polls are
//! byte for byte those of the rewrite that does not count. Everything else follows from the table that this module writes into the file
//! and reads back: how many instructions a block has, which of them access memory, what was inserted for each.
//!
//! Input: [`Recorder`], filled in the order of emission. Output: the section's bytes; [`block_table::Table`] when read. Addresses are the input's.
//! **Invariant**: counter `k` belongs to the `k`th block of the table. A block that is emitted twice has two entries.

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::graph::cfg::Cfg;
use crate::insert::block_table;
use crate::insert::site_class::Class;
use crate::plan::decide::{Action, Exempt, is_big};
use std::collections::BTreeMap;

/// Name of the section.
pub const SECTION: &str = ".blizzard.blocks";

/// Marks among which that of an instruction of a short block is found.
const RECENT: usize = 512;

/// What was inserted in front of an instruction, or why nothing was.
#[derive(Clone, Copy, Debug)]
struct Mark {
    insn: InsnId,
    class: Class,
    inserted: u32,
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
    blocks: Vec<Emitted>,
    marks: Vec<Mark>,
}

impl Recorder {
    /// A block of `insns` instructions of the program begins; the number of its counter. Inserted code that does not run as often as what
    /// it stands for is a block of none.
    pub fn begin(&mut self, first: InsnId, insns: u32) -> u32 {
        self.blocks.push(Emitted { first, insns, marks: self.marks.len() as u32 });
        self.blocks.len() as u32 - 1
    }

    /// `inserted` instructions stand in front of `insn`, for what `class` says. Belongs to the block that began last.
    pub fn mark(&mut self, insn: InsnId, class: Class, inserted: u32) {
        self.marks.push(Mark { insn, class, inserted });
    }

    /// [`Recorder::mark`], where blocks are counted.
    pub fn mark_if(&mut self, counted: bool, insn: InsnId, class: Class, inserted: u32) {
        if counted {
            self.mark(insn, class, inserted);
        }
    }

    /// What was said last of an instruction of a short block that has just been emitted.
    pub fn last(&self, insn: InsnId) -> Option<(Class, u32)> {
        self.marks.iter().rev().take(RECENT).find(|m| m.insn == insn).map(|m| (m.class, m.inserted))
    }

    /// As [`Recorder::mark`], for a planned action.
    pub fn action(&mut self, insn: InsnId, action: &Action, inserted: u32) {
        let check = |store| if store { Class::Store } else { Class::Load };
        match action {
            Action::Nothing => {}
            Action::Covered => self.mark(insn, Class::Merged, inserted),
            Action::Exempt(why) => self.mark(
                insn,
                match why {
                    Exempt::Stack => Class::Stack,
                    Exempt::Global => Class::Global,
                    Exempt::Tls => Class::Tls,
                    Exempt::ImplicitStack => Class::ImplicitStack,
                    Exempt::Addr32 => Class::Addr32,
                    Exempt::NotRequested => Class::NotRequested,
                },
                inserted,
            ),
            Action::Check(p) if is_big(p) => self.mark(insn, Class::Range, inserted),
            Action::Check(p) => self.mark(insn, check(p.store), inserted),
            Action::CheckTwo(a, b) => {
                self.mark(insn, check(a.store), inserted - inserted / 2);
                self.mark(insn, check(b.store), inserted / 2);
            }
            Action::String { .. } => self.mark(insn, Class::String, inserted),
            Action::Vsib(_) => self.mark(insn, Class::Lanes, inserted),
        }
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
        let mut table = block_table::Writer::new(
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
