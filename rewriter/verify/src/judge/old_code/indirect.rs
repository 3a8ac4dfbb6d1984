//! Where indirect jumps and calls from outside the graph may lead.
//!
//! Input: module, decoded text, sites, what stands at old addresses. Output: new addresses that something names, and all that may be reached; findings for
//! code that is named and has no way to its new place.

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::decode::insn::{NONE, RIP};
use crate::file::module::Module;
use crate::judge::old_code::springboards::{self, Old};
use crate::sites::site::{Sites, get};

/// New addresses that may be reached from outside the graph, and those of them that something names.
pub(crate) fn indirect_targets(
    m: &Module,
    text: &Code,
    sites: &Sites,
    old: &Old,
    audit: &mut Audit,
) -> (Vec<u64>, Vec<u64>) {
    let mut named_code = Vec::new();
    let mut v = vec![m.info.entry_va];
    v.extend(m.pointers.iter().chain(m.exported.iter().map(|s| &s.va)).filter_map(|&p| old.new_address(m, p)));
    let ranges: Vec<(u64, u64)> = m.old_code().map(|s| (s.va, s.va + s.data.len() as u64)).collect();
    let is_old = |va: u64| ranges.iter().any(|r| r.0 <= va && va < r.1);
    for (k, i) in text.insns.iter().enumerate() {
        if get(&sites.inserted, k) || i.flow != Flow::Next {
            continue;
        }
        // Only a fixed-address file may hold code addresses in immediates and displacements.
        let named = match &i.mem {
            Some(mem) if mem.base == RIP => mem.disp as u64,
            Some(mem) if m.fixed && mem.base == NONE => mem.disp as u64,
            _ if m.fixed => i.imm as u64,
            _ => continue,
        };
        if is_old(named) {
            named_code.push(named);
            v.extend(old.new_address(m, named));
        }
    }
    // What is known by its new address.
    v.extend(m.exported.iter().map(|s| s.va).filter(|&va| text.contains(va)));
    v.extend(&m.renewed);
    named_code.sort_unstable();
    springboards::renewed(m, text, old, &named_code, audit);
    springboards::targets(m, old, named_code.into_iter(), audit);
    v.sort_unstable();
    let named = v.clone();
    v.extend(old.springboards.iter().map(|s| s.1));
    v.sort_unstable();
    v.dedup();
    (v, named)
}
