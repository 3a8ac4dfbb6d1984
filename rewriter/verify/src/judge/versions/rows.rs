//! The version table leads from each access that may fault in plain code to the same instruction in full code, and from nowhere else.
//!
//! Input: pairs, rows, the accesses of plain code that need a test. Output: findings. **Invariant**: an access of a checked class has a full version and a row;
//! it is tested there, or of a kind that full code leaves to faults. Instructions that overlap others exist once, and fault.
//! Source: `rewriter/SEQUENCES.md`, "Guarded code".

use crate::audit::Audit;
use crate::decode::effects::Touch;
use crate::decode::insn::Insn;
use crate::decode::raw::without_segments;
use crate::file::module::Module;
use crate::judge::unwinding::cfi::overlapping;
use crate::judge::versions::pairs::{Versions, bytes};
use foldhash::HashSet;
use std::collections::BTreeSet;

/// Longest instruction (SDM volume 2, section 2.3.11).
const LONGEST: usize = 15;

/// The rows that the accesses of plain code need.
pub(crate) struct Needed<'x> {
    versions: &'x Versions<'x>,
    /// Index of each access with a row.
    rows: BTreeSet<usize>,
    used: BTreeSet<usize>,
    /// Reads of jump tables.
    reads: &'x [usize],
    /// Addresses of instructions that overlap others.
    overlapping: HashSet<u64>,
}

impl<'x> Needed<'x> {
    /// `pairs`: old and new addresses, in the order of the old ones.
    pub(crate) fn new(versions: &'x Versions<'x>, reads: &'x [usize], pairs: &[(u64, u64)]) -> Needed<'x> {
        let behind = overlapping(pairs);
        let overlapping = pairs.iter().zip(behind).filter(|(_, is)| *is).map(|(pair, _)| pair.1).collect();
        let rows = versions.rows.iter().filter_map(|row| versions.plain.code.at(row.0)).collect();
        Needed { versions, rows, used: BTreeSet::new(), reads, overlapping }
    }

    /// An access that full code tests.
    pub(crate) fn tested(&mut self, m: &Module, k: usize, audit: &mut Audit) {
        self.used.insert(k);
        self.row(m, k, audit);
    }

    /// An access of a checked class without a test. Whether it may be without.
    pub(crate) fn untested(&mut self, m: &Module, k: usize, audit: &mut Audit) -> bool {
        let i = self.versions.plain.insn(k);
        if self.overlapping.contains(&i.va) && !self.rows.contains(&k) {
            return true;
        }
        if !is_left_to_faults(i, bytes(m, i)) && !self.reads.contains(&k) {
            return false;
        }
        self.used.insert(k);
        self.row(m, k, audit);
        true
    }

    fn row(&self, m: &Module, k: usize, audit: &mut Audit) {
        if !self.rows.contains(&k) {
            let va = self.versions.plain.insn(k).va;
            audit.finding(va, m.place(va), "the version table has no row for this access");
        }
    }

    /// Rows of no use.
    pub(crate) fn rest(self, m: &Module, audit: &mut Audit) {
        for &k in self.rows.difference(&self.used) {
            let va = self.versions.plain.insn(k).va;
            audit.finding(va, m.place(va), "the version table has a row for what needs no test");
        }
    }
}

/// What full code does not test: what takes no prefix, or has no room for it.
fn is_left_to_faults(i: &Insn, bytes: &[u8]) -> bool {
    matches!(i.touch, Touch::Lanes(_) | Touch::Move64 | Touch::ZeroLine) || without_segments(bytes).len() + 1 > LONGEST
}
