//! What exploration has found, as the list of instructions.
//!
//! Input: the marks, roots and references of an [`Explorer`]. Output: [`Insns`]. **Invariant**: the main run comes first, by rising address, then what overlaps
//! it; what may be both code and constants is listed as contested.

use crate::base::addresses::Vaddr;
use crate::decode::address_index::AddressIndex;
use crate::decode::explore::{Explorer, HeldAddress, code_start};
use crate::decode::insn::{Flow, InsnId, Label};
use crate::decode::insn_list::List;
use crate::decode::insns::Insns;
use crate::decode::marks::{Mark, Marks};
use std::collections::BTreeSet;

impl Explorer<'_, '_> {
    /// The instructions found so far.
    pub fn finish(&self) -> Insns {
        let base = self.image.base;
        let count: usize = self.maps.iter().map(|m| m.starts).sum();
        let mut list = List::with_capacity(count);
        // Where direct branches lead.
        let mut branches: Vec<u32> = Vec::new();
        let mut overlapped = Vec::new();
        let mut index = AddressIndex::default();
        let mut undecoded = 0;
        let mut falls = vec![0u64; count.div_ceil(64)];
        // Where control may go on behind the last instruction of the list.
        let mut goes_on_at = None;
        let mut add = |va: Vaddr, mark: Mark, bytes: &[u8], list: &mut List| {
            if mark.branches() {
                // A module spans less than 2^32 bytes; what leads out of it stays outside.
                let target = mark.target(va + bytes.len() as u64, bytes).expect("a branch has one");
                branches.push(u32::try_from(target - base).unwrap_or(u32::MAX));
            }
            list.push((va - base) as u32, mark);
        };
        for (s, m) in self.maps.iter().enumerate() {
            let (bytes, marks) = (self.image.exec_bytes(s), &m.list[..]);
            let mut starts = vec![0u64; marks.len().div_ceil(64)];
            let mut at = 0;
            while at < marks.len() {
                let mark = marks[at];
                let Some(len) = mark.len() else {
                    undecoded += u64::from(mark == Mark::UNKNOWN);
                    at += 1;
                    continue;
                };
                let (va, end) = (m.va + at as u64, (at + len).min(marks.len()));
                starts[at / 64] |= 1 << (at % 64);
                if goes_on_at == Some(va) {
                    let before = list.len() - 1;
                    falls[before / 64] |= 1 << (before % 64);
                }
                goes_on_at = mark.may_go_on().then_some(va + len as u64);
                add(va, mark, &bytes[at..end], &mut list);
                let inner = marks[at + 1..end].iter().zip(at + 1..);
                overlapped.extend(inner.filter(|(m, _)| m.len().is_some()).map(|(_, at)| (s, at)));
                at = end;
            }
            index.add_section(m.va, marks.len(), starts);
        }
        let main = list.len();
        let mut overlapping = Vec::new();
        for (s, at) in overlapped {
            let Marks { va, list: marks, .. } = &self.maps[s];
            let (va, mark) = (*va + at as u64, marks[at]);
            overlapping.push((va, InsnId(list.len() as u32)));
            add(va, mark, &self.image.exec_bytes(s)[at..at + usize::from(mark.bytes())], &mut list);
        }
        index.set_overlapping(overlapping);
        let (roots, starts, fragments, labels) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let contested = self.run_refs.intersection(&self.data_refs).chain(&self.doubtful).copied();
        let contested: BTreeSet<Vaddr> = contested.filter(|&va| self.is_unknown(va)).collect();
        let mut out = Insns {
            base,
            list,
            main,
            roots,
            starts,
            fragments,
            labels,
            contested: contested.into_iter().collect(),
            data: self.data_refs.union(&self.refused).copied().collect(),
            read_code: Vec::new(),
            undecoded_bytes: undecoded,
            index,
            falls,
        };
        out.list.set_targets(branches.iter().map(|t| out.index.at(base + u64::from(*t))));
        let ids = |vas: &[Vaddr]| {
            let mut ids: Vec<InsnId> = vas.iter().filter_map(|&va| out.at(va)).collect();
            ids.sort();
            ids.dedup();
            ids
        };
        let (roots, starts) = (ids(&self.roots), ids(&self.starts));
        let label = |n: &HeldAddress| Some(Label { at: out.at(n.at)?, by: out.at(n.by)? });
        let mut labels: Vec<Label> = self.named.iter().filter_map(label).collect();
        labels.retain(|l| starts.binary_search(&l.at).is_err());
        labels.sort();
        labels.dedup();
        let decoded = |&&(_, va): &&(Vaddr, Vaddr)| self.mark(va).is_some_and(|m| m != Mark::UNKNOWN);
        let read_code = self.fixed_reads.iter().filter(decoded).filter_map(|(from, _)| out.at(*from)).collect();
        let fragments = self.fragments(&out);
        Insns { roots, starts, fragments, labels, read_code, ..out }
    }

    /// Starts of frames in the middle of functions, as far as nothing else says that a function begins there.
    fn fragments(&self, insns: &Insns) -> Vec<InsnId> {
        let functions = &self.image.functions;
        let is_symbol = |va: Vaddr| {
            let f = functions.partition_point(|f| f.va < va);
            // Compilers name the parts, too.
            functions[f..].iter().take_while(|f| f.va == va).any(|f| f.typed && !f.name.contains(".cold"))
        };
        let pads = self.frames.landing_pads();
        let mut ids: BTreeSet<InsnId> = (self.frames.fdes.iter().filter(|f| f.fragment).map(code_start))
            .filter(|va| *va != self.image.entry && !self.wanted.contains(va) && !is_symbol(*va))
            .filter(|va| pads.binary_search(va).is_err())
            .filter_map(|va| insns.at(va))
            .collect();
        if !ids.is_empty() {
            for (_, callee) in insns.branches().filter(|(from, _)| insns.flow(*from) == Flow::Call) {
                ids.remove(&callee);
            }
        }
        ids.into_iter().collect()
    }
}
