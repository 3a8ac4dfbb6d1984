//! Which code exists twice, and how its labels are numbered.
//!
//! Guarded code has two versions of each function that accesses memory: the plain one, as the program has it, and the full one, in which each access is
//! tested. Input: functions, frames, decisions. Output: [`Versions`]. **Invariants**: code that one frame describes is in both versions or in one; registers
//! are equal in both where an instruction begins, so one may go on in the other there. Source: design section 9.
//!
//! A *label* is a place in the new code: of the plain version (and of code that exists once) the number of its instruction, of the full version that number
//! behind those of all instructions.

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;

/// Which instructions have a full version.
#[derive(Debug, Default)]
pub struct Versions {
    count: u32,
    /// One bit for each instruction; empty: none has.
    full: Vec<u64>,
    /// One bit for each instruction of a loop of at most [`LOOP`] instructions: time matters there more than size.
    loops: Vec<u64>,
}

/// A longer loop does more than access memory.
const LOOP: u32 = 16;

impl Versions {
    /// Every instruction exists once.
    pub fn one(insns: &Insns) -> Versions {
        Versions { count: insns.len() as u32, ..Versions::default() }
    }

    /// Both versions of the functions in which something `is_tested`; `frames`: where frames begin and end. Overlapping instructions exist once.
    pub fn two(insns: &Insns, frames: &[(Vaddr, Vaddr)], is_tested: impl Fn(InsnId) -> bool) -> Versions {
        let starts = &insns.starts;
        let stretch = |id: usize| starts.partition_point(|s| s.ix() <= id);
        let mut tested = vec![false; starts.len() + 1];
        for id in 0..insns.main {
            tested[stretch(id)] |= is_tested(InsnId(id as u32));
        }
        // What shares a frame shares its versions.
        let mut groups: Vec<(usize, usize)> = Vec::new();
        for &(from, to) in frames {
            let ids = insns.main_before(from)..insns.main_before(to);
            if ids.is_empty() {
                continue;
            }
            let (first, last) = (stretch(ids.start), stretch(ids.end - 1));
            match groups.last_mut() {
                Some(group) if first <= group.1 => group.1 = group.1.max(last),
                _ => groups.push((first, last)),
            }
        }
        for (first, last) in groups {
            let any = tested[first..=last].contains(&true);
            tested[first..=last].fill(any);
        }
        let mut full = vec![0; insns.len().div_ceil(64)];
        for id in (0..insns.main).filter(|&id| tested[stretch(id)]) {
            full[id / 64] |= 1 << (id % 64);
        }
        let mut loops = vec![0; full.len()];
        let back = insns.branches().filter(|&(from, to)| to <= from && from.0 - to.0 < LOOP);
        let is_loop =
            |&(from, to): &(InsnId, InsnId)| insns.flow(from) != Flow::Call && stretch(from.ix()) == stretch(to.ix());
        for (from, to) in back.filter(is_loop) {
            (to.ix()..=from.ix()).for_each(|id| loops[id / 64] |= 1 << (id % 64));
        }
        Versions { count: insns.len() as u32, full, loops }
    }

    /// Whether any code exists twice.
    pub fn are_two(&self) -> bool {
        !self.full.is_empty()
    }

    /// How many labels there are.
    pub fn labels(&self) -> usize {
        self.count as usize * if self.are_two() { 2 } else { 1 }
    }

    #[inline]
    pub fn has_full(&self, id: InsnId) -> bool {
        self.full.get(id.ix() / 64).is_some_and(|bits| bits >> (id.ix() % 64) & 1 != 0)
    }

    #[inline]
    pub fn in_short_loop(&self, id: InsnId) -> bool {
        self.loops.get(id.ix() / 64).is_some_and(|bits| bits >> (id.ix() % 64) & 1 != 0)
    }

    /// The label in the full version, if there is one; else the only one.
    #[inline]
    pub fn full(&self, id: InsnId) -> InsnId {
        if self.has_full(id) { self.full_label(id) } else { id }
    }

    /// The label where the full version is, or would be.
    #[inline]
    pub fn full_label(&self, id: InsnId) -> InsnId {
        InsnId(self.count + id.0)
    }
}
