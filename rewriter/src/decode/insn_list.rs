//! The instructions of a module in few bytes each: programs have millions.
//!
//! Input: offsets and marks in order, then the targets of the branches. Output: what is known of an instruction, by index.
//!
//! Address, length and flow of each by index; the targets of direct branches, which every fourth has, apart, with a bit for each
//! instruction and running counts to find them.

use crate::base::collections::compact_offsets::CompactOffsets;
use crate::base::collections::ranked_bits::RankedBits;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::marks::Mark;

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub struct Insn {
    pub flow: Flow,
    target: Option<InsnId>,
}

impl Insn {
    /// Target of a direct branch, where it is decoded code.
    #[inline]
    pub fn target(&self) -> Option<InsnId> {
        self.target
    }
}

/// Many.
#[derive(Debug, Default)]
pub struct List {
    at: CompactOffsets,
    marks: Vec<Mark>,
    branches: RankedBits,
    /// By branch; [`NO_TARGET`] where it leads to nothing decoded.
    targets: Vec<u32>,
}

const NO_TARGET: u32 = u32::MAX;

impl List {
    /// An empty list with room for `count`.
    pub fn with_capacity(count: usize) -> List {
        List { at: CompactOffsets::with_capacity(count), marks: Vec::with_capacity(count), ..List::default() }
    }

    /// Adds an instruction without a target.
    #[inline]
    pub fn push(&mut self, at: u32, mark: Mark) {
        self.at.push(at);
        self.marks.push(mark);
    }

    /// Sets the targets of the instructions that branch, in order.
    pub fn set_targets(&mut self, targets: impl Iterator<Item = Option<InsnId>>) {
        self.branches = RankedBits::of(self.marks.iter().map(|m| m.branches()));
        self.targets = targets.map(|t| t.map_or(NO_TARGET, |t| t.0)).collect();
        debug_assert_eq!(self.targets.len(), self.branches.before(self.len()) as usize);
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.at.len()
    }

    #[inline]
    pub fn at(&self, id: InsnId) -> u32 {
        self.at.get(id.ix())
    }

    #[inline]
    pub fn length(&self, id: InsnId) -> u8 {
        self.marks[id.ix()].bytes()
    }

    #[inline]
    pub fn flow(&self, id: InsnId) -> Flow {
        self.marks[id.ix()].flow()
    }

    #[inline]
    pub fn target(&self, id: InsnId) -> Option<InsnId> {
        if !self.marks[id.ix()].branches() {
            return None;
        }
        decoded(self.targets[self.branches.before(id.ix()) as usize])
    }

    /// What is known of each besides where it stands.
    #[inline]
    pub fn marks(&self) -> &[Mark] {
        &self.marks
    }

    /// Those that branch directly to decoded code, in order, and where to.
    #[inline]
    pub fn branches(&self) -> impl Iterator<Item = (InsnId, InsnId)> {
        let ids = self.branches.iter().map(|i| InsnId(i as u32));
        ids.zip(&self.targets).filter_map(|(id, to)| Some((id, decoded(*to)?)))
    }

    /// All of them, in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Insn> {
        let mut targets = self.targets.iter();
        self.marks.iter().map(move |mark| {
            let target = if mark.branches() { targets.next().copied().and_then(decoded) } else { None };
            Insn { flow: mark.flow(), target }
        })
    }
}

#[inline]
fn decoded(target: u32) -> Option<InsnId> {
    (target != NO_TARGET).then_some(InsnId(target))
}
