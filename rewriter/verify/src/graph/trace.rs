//! The way back from an instruction, inserted code left out: what may run before it, and what last wrote a register.
//!
//! Input: decoded text, sites, places that control may enter from outside; the edges of the jump tables that are known so far ([`crate::graph::tables`]).
//! Output: instructions. **Invariant**: where something unknown may come in between, there is no answer.

use crate::decode::decoder::Code;
use crate::decode::effects::{CALLEE_SAVED, Flow, bit};
use crate::decode::insn::{Insn, NO_TARGET};
use crate::file::module::Module;
use crate::graph::returns::Returns;
use crate::sites::site::{Sites, get};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

/// Most instructions that one search visits.
const STEPS: usize = 20_000;

/// What may have run before an instruction.
pub(crate) struct Finder<'x> {
    pub(crate) m: &'x Module<'x>,
    pub(crate) text: &'x Code,
    pub(crate) sites: &'x Sites,
    returns: &'x Returns,
    /// Bitmap of instructions that control may enter from where this search does not look.
    pub(crate) entries: Vec<u64>,
    /// (target, source) of direct branches, sorted.
    branches: Vec<(u32, u32)>,
    /// The same of table jumps.
    pub(crate) edges: Vec<(u32, u32)>,
    /// Targets of table jumps by the jump.
    pub(crate) targets: HashMap<u32, Vec<u32>>,
}

impl<'x> Finder<'x> {
    pub(crate) fn new(
        m: &'x Module<'x>,
        text: &'x Code,
        sites: &'x Sites,
        returns: &'x Returns,
        entry_vas: &[u64],
    ) -> Finder<'x> {
        let n = text.insns.len();
        let mut entries = vec![0u64; n / 64 + 1];
        let mut branches = Vec::new();
        let mut enter = |k: usize| entries[k / 64] |= 1 << (k % 64);
        entry_vas.iter().filter_map(|&va| text.at(va)).for_each(&mut enter);
        for (k, i) in text.insns.iter().enumerate() {
            if i.target == NO_TARGET || get(&sites.inserted, k) {
                continue;
            }
            let Some(to) = text.at(i.target) else { continue };
            if i.flow == Flow::Call {
                enter(to);
            } else {
                branches.push((to as u32, k as u32));
            }
        }
        branches.sort_unstable();
        Finder { m, text, sites, returns, entries, branches, edges: Vec::new(), targets: HashMap::new() }
    }

    /// The instructions whose writes to `r` reach the front of `at`; `None` when something unknown may have written it.
    pub(crate) fn definitions(&self, at: usize, r: u8) -> Option<Vec<usize>> {
        let mut seen = HashSet::new();
        let mut work = vec![at];
        let mut found = Vec::new();
        while let Some(k) = work.pop() {
            if !seen.insert(k) {
                continue;
            }
            if seen.len() > STEPS || get(&self.entries, k) {
                return None;
            }
            for p in self.before(k) {
                let i = &self.text.insns[p];
                if get(&self.sites.inserted, p) {
                    work.push(p);
                } else if matches!(i.flow, Flow::Call | Flow::CallInd) {
                    if bit(r) & CALLEE_SAVED == 0 && !self.spares(i, r) {
                        return None;
                    }
                    work.push(p);
                } else if i.fx.writes & bit(r) != 0 {
                    found.push(p);
                } else {
                    work.push(p);
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    /// What may run right before an instruction that is no entry.
    pub(crate) fn before(&self, k: usize) -> Vec<usize> {
        let mut list = Vec::new();
        if k > 0 && self.continues(k - 1) {
            list.push(k - 1);
        }
        for edges in [&self.branches, &self.edges] {
            let from = edges.partition_point(|e| (e.0 as usize) < k);
            list.extend(edges[from..].iter().take_while(|e| e.0 as usize == k).map(|e| e.1 as usize));
        }
        list
    }

    /// Control may go from an instruction to the one behind it.
    fn continues(&self, k: usize) -> bool {
        let i = &self.text.insns[k];
        let next = self.text.insns.get(k + 1).is_some_and(|n| n.va == i.end());
        let goes_on = match i.flow {
            Flow::Next | Flow::Cond => true,
            Flow::Call | Flow::CallInd => !self.returns.never(k),
            Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop => false,
        };
        next && (goes_on || self.sites.goes_on(self.text, k))
    }

    /// The callee of a direct call leaves a register alone, as callers compiled with `-fipa-ra` rely on.
    fn spares(&self, call: &Insn, r: u8) -> bool {
        let Some(entry) = self.text.at(call.target) else { return false };
        let mut seen = HashSet::new();
        let mut work = vec![entry];
        while let Some(k) = work.pop() {
            if !seen.insert(k) {
                continue;
            }
            let i = &self.text.insns[k];
            let inserted = get(&self.sites.inserted, k);
            if !inserted {
                let leaves = i.flow == Flow::CallInd
                    || (i.flow == Flow::JumpInd && !self.targets.contains_key(&(k as u32)))
                    || (i.target != NO_TARGET && self.text.at(i.target).is_none());
                if leaves || i.fx.writes & bit(r) != 0 {
                    return false;
                }
                work.extend(self.text.at(i.target).filter(|_| i.target != NO_TARGET));
                work.extend(self.targets.get(&(k as u32)).into_iter().flatten().map(|&to| to as usize));
            }
            if seen.len() > STEPS / 4 {
                return false;
            }
            if self.continues(k) {
                work.push(k + 1);
            }
        }
        true
    }
}
