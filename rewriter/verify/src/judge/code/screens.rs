//! Screens that ask the base alone lean on an index that has no more than 32 bits.
//!
//! Input: sites, the registers that hold numbers of 32 bits ([`crate::facts::dwords`]). Output: findings for sites whose index may be larger.
//! Source: `rewriter/SEQUENCES.md`, "The check sequences".

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::bit;
use crate::facts::dwords::{behind, solve};
use crate::file::module::Module;
use crate::graph::blocks::Graph;
use crate::sites::site::Sites;

/// Finds the screens that leave out an index which may lead anywhere.
pub(crate) fn check(m: &Module, g: &Graph, text: &Code, sites: &Sites, audit: &mut Audit) {
    if sites.list.iter().all(|s| s.leans.is_none()) {
        return;
    }
    let at_start = solve(g, text, sites);
    for s in sites.list.iter().filter(|s| s.problem.is_none()) {
        let Some(index) = s.leans else { continue };
        let block = g.block_of(s.access);
        let set = behind(g, text, sites, block, g.range(block, text).start..s.start, at_start[block]);
        if set & bit(index) == 0 {
            let va = text.insns[s.access].va;
            let why = "the screen asks the base alone, and the index may have more than 32 bits";
            audit.finding(va, m.place(va), why);
        }
    }
}
