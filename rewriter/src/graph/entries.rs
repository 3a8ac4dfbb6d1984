//! Where control may enter blocks from places that the graph does not show, and where it cannot.
//!
//! Input: a [`Cfg`] with its landing pads. Output: by block, whether nothing is known of what ran before it; the graph without edges from padding.
//! **Invariants**: with [`Cfg::enter_circles`], each block but padding has a way from an entry; an edge is taken out only where nothing leads to its
//! source. Source: `DESIGN.md`, "Exempt accesses". Callers rely on it for exemptions and for checks left out across blocks.

use crate::base::collections::compact_offsets::CompactOffsets;
use crate::base::collections::grouped::group;
use crate::decode::insn::InsnId;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::graph::computed_targets::Computed;

impl Cfg {
    /// By component: a jump may lead to any of its blocks. That is so where it has an unresolved jump, or where a part of the same function
    /// has one, which only exceptions connect with it.
    pub fn wild(&self) -> Vec<bool> {
        let mut wild = self.unresolved.clone();
        let mut more = true;
        while std::mem::take(&mut more) {
            for pads in &self.pads {
                let parts = || pads.from.iter().chain(&pads.to).map(|b| self.component[b.ix()] as usize);
                let (any, all) = (parts().any(|c| wild[c]), parts().all(|c| wild[c]));
                if any && !all {
                    parts().for_each(|c| wild[c] = true);
                    more = true;
                }
            }
        }
        wild
    }

    /// Blocks that control may enter in their middle: an unresolved jump may lead there, or a computed one does (loops that are unrolled in full).
    pub fn loose(&self, wild: &[bool], computed: &Computed) -> Vec<bool> {
        let reached = |b: BlockId| {
            let block = &self.blocks[b.ix()];
            wild[self.component[b.ix()] as usize]
                || (block.first.0..block.stop.0).any(|i| computed.may_reach(InsnId(i)))
        };
        self.ids().map(reached).collect()
    }

    /// Blocks where nothing is known of what ran before.
    pub fn entries(&self, wild: &[bool]) -> Vec<bool> {
        let mut entry = self.entered(wild);
        for b in self.ids() {
            entry[b.ix()] |= self.preds(b).len() == 0;
        }
        entry
    }

    /// Blocks that something other than an edge may lead to.
    fn entered(&self, wild: &[bool]) -> Vec<bool> {
        let mut entered = self.root.clone();
        for b in self.ids() {
            match self.blocks[b.ix()].end() {
                End::Call(callee) => entered[callee.ix()] = true,
                End::Plain
                | End::UnknownCall
                | End::DescriptorCall
                | End::Ret
                | End::GotJmp
                | End::FramedJmp
                | End::UnknownJmp
                | End::Stop => {}
            }
            entered[b.ix()] |= wild[self.component[b.ix()] as usize];
        }
        self.pads.iter().flat_map(|p| &p.to).for_each(|pad| entered[pad.ix()] = true);
        entered
    }

    /// Takes out the edges from padding, which fills the room behind a jump or a return, in front of an aligned target: blocks of nothing but
    /// `is_nop` that nothing leads to. No control comes that way, so what is known at the target, a loop's head often, must not depend on it.
    /// What stands behind `ud2` and `hlt` stays: a signal's handler may step over them.
    pub fn leave_padding_out(&mut self, is_nop: impl Fn(InsnId) -> bool) {
        let n = self.blocks.len();
        let entered = self.entered(&self.wild());
        let mut padding = vec![false; n];
        for b in self.ids().filter(|b| !entered[b.ix()]) {
            let block = &self.blocks[b.ix()];
            let trapped = b.ix().checked_sub(1).is_some_and(|before| self.blocks[before].end() == End::Stop);
            padding[b.ix()] = !trapped
                && self.preds(b).all(|p| padding[p.ix()])
                && (block.first.0..block.stop.0).all(|i| is_nop(InsnId(i)));
        }
        let mut succ = Vec::with_capacity(self.succ.len());
        let mut succ_from = CompactOffsets::with_capacity(n + 1);
        succ_from.push(0);
        for b in self.ids() {
            if !padding[b.ix()] {
                succ.extend(self.succ(b));
            }
            succ_from.push(succ.len() as u32);
        }
        (self.succ, self.succ_from) = (succ, succ_from);
        let edges = || self.ids().flat_map(|b| self.succ(b).iter().map(move |s| (s.0, b.0)));
        let (preds_from, preds) = group(n, edges);
        (self.preds_from, self.preds) = (preds_from.into_iter().collect(), preds);
    }

    /// Blocks that no way from an entry leads to: circles, entered in a way that is not known. Adds one block of each to the entries.
    pub fn enter_circles(&self, entry: &mut [bool]) {
        let mut reached = self.reached(entry);
        let mut rest = self.ids();
        while let Some(b) = rest.find(|b| !reached[b.ix()]) {
            (reached[b.ix()], entry[b.ix()]) = (true, true);
            self.reach(&mut reached, vec![b]);
        }
    }

    /// Blocks that a way from one of `entry` leads to, these included.
    pub fn reached(&self, entry: &[bool]) -> Vec<bool> {
        let mut reached = entry.to_vec();
        self.reach(&mut reached, self.ids().filter(|b| entry[b.ix()]).collect());
        reached
    }

    /// Adds what ways from `work` lead to.
    fn reach(&self, reached: &mut [bool], mut work: Vec<BlockId>) {
        while let Some(b) = work.pop() {
            for s in self.succ(b) {
                if !std::mem::replace(&mut reached[s.ix()], true) {
                    work.push(*s);
                }
            }
        }
    }
}
