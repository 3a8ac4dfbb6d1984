//! No control falls into the trap bytes between functions.
//!
//! Input: module, decoded text, sites, which calls come back, pairs of old and new addresses. Output: findings. **Invariant**: what goes on
//! into trap bytes is a finding, unless it is a call that is known not to come back.

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::file::module::Module;
use crate::graph::returns::Returns;
use crate::sites::site::{Sites, get};
use foldhash::HashSet;

/// No control falls into the trap bytes between functions.
pub(crate) fn padding(
    m: &Module,
    text: &Code,
    sites: &Sites,
    returns: &Returns,
    pairs: &[(u64, u64)],
    audit: &mut Audit,
) {
    let begins: HashSet<u64> = pairs.iter().map(|p| p.1).collect();
    for (k, w) in text.insns.windows(2).enumerate() {
        let [i, trap] = w else { continue };
        if !trap.is_int3() || i.is_int3() || i.end() != trap.va || begins.contains(&trap.va) {
            continue;
        }
        // It ends where an aligned function begins, or what stands in front of it; elsewhere it is a breakpoint of the program, under a springboard.
        let next = (k + 1..text.insns.len()).find(|&k| !text.insns[k].is_int3());
        let redirection = next.is_some_and(|k| text.insns[k].flow == Flow::Jump && get(&sites.inserted, k));
        let end = next.map_or(m.cold.va, |k| text.insns[k].va);
        if !end.is_multiple_of(16) && !redirection {
            continue;
        }
        // The padding of the input in front of it is not reached either, unless something leads there.
        let back = (0..=k).rev().find(|&b| !text.insns[b].is_nop()).unwrap_or(k);
        let i = &text.insns[back];
        let goes_on = match i.flow {
            Flow::Next | Flow::Cond => true,
            Flow::Call | Flow::CallInd => !returns.never(back),
            Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop => false,
        };
        if goes_on || get(&sites.inserted, back) {
            audit.finding(i.va, m.place(i.va), "goes on into the padding between functions");
        }
    }
}
