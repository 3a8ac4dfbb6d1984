//! Where control lands: no branch leads between a check and its access, where no instruction begins, into a stub, or back to old code.
//!
//! Input: module, decoded text and cold code, sites, graph, what stands at old addresses. Output: findings.

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::file::module::Module;
use crate::graph::blocks::Graph;
use crate::graph::tables::TableEnds;
use crate::judge::old_code::springboards::{At, Old};
use crate::sites::site::{Sites, get};
use foldhash::{HashMap, HashMapExt};

/// Every cold instruction belongs to a stub that was walked.
pub(crate) fn cold_is_stubs(m: &Module, cold: &Code, versions: &[&Sites], audit: &mut Audit) {
    let mut run = false;
    for (k, i) in cold.insns.iter().enumerate() {
        let stray = versions.iter().all(|sites| !get(&sites.claimed, k)) && !i.is_nop() && !i.is_int3();
        if stray && !run {
            audit.finding(i.va, m.place(i.va), "cold code that belongs to no recognised check");
        }
        run = stray;
    }
}

/// No branch lands between a check and its access, or where no instruction begins.
#[allow(clippy::too_many_arguments)]
pub(crate) fn landings(
    m: &Module,
    text: &Code,
    cold: &Code,
    sites: &Sites,
    g: &Graph,
    old: &Old,
    indirect: &[u64],
    audit: &mut Audit,
) {
    let mut own: HashMap<(u64, u64), ()> = HashMap::new();
    for s in &sites.list {
        own.extend(s.own_edges.iter().map(|&e| (e, ())));
    }
    let mut land = |from: u64, to: u64, how: &str| match text.at(to) {
        Some(i) if get(&sites.protected, i) && !own.contains_key(&(from, to)) => {
            audit.finding(from, m.place(from), format!("{how} lands between a check and its access at {to:#x}"));
        }
        None if text.contains(to) && !own.contains_key(&(from, to)) => {
            audit.finding(from, m.place(from), format!("{how} lands at {to:#x}, where no instruction begins"));
        }
        _ => {}
    };
    // Cold code that belongs to no check is a finding of its own.
    let claimed = cold.insns.iter().enumerate().filter(|(k, _)| get(&sites.claimed, *k)).map(|(_, i)| i);
    for i in text.insns.iter().chain(claimed) {
        if matches!(i.flow, Flow::Cond | Flow::Jump | Flow::Call) {
            land(i.va, i.target, "branch");
        }
    }
    for &va in indirect {
        land(va, va, "indirect entry");
    }
    for &(from, _) in &m.functions {
        land(from, from, "function entry");
    }
    for p in &m.pads {
        land(p.pad, p.pad, "landing pad");
    }
    let (mut outside, mut behind, mut nowhere) = (Vec::new(), 0, 0);
    let ends = TableEnds::new(&g.tables);
    for table in &g.tables {
        let end = ends.of(table.form);
        for (k, &t) in table.targets.iter().enumerate() {
            if text.contains(t) {
                land(table.va, t, "jump-table entry");
            } else if end.is_some_and(|end| k as u64 >= end) && old.new_address(m, t).is_some() {
                behind += 1;
            } else if old.is_no_instruction(m, t) {
                nowhere += 1;
            } else {
                let why = format!("jump-table entry leads to {t:#x}, which is no new code");
                outside.push((table.va, why));
            }
        }
    }
    audit.trust("jump-table entries that lead to old addresses: the program's next table begins there", behind);
    audit.trust(
        "jump-table entries that lead to old addresses where no instruction is, as those of the original",
        nowhere,
    );
    for (at, why) in outside {
        audit.finding(at, m.place(at), why);
    }
    // A branch of the program itself into cold code would run a stub on foreign state.
    for (k, i) in text.insns.iter().enumerate() {
        let direct = matches!(i.flow, Flow::Cond | Flow::Jump | Flow::Call);
        if direct && !get(&sites.inserted, k) && cold.contains(i.target) {
            audit.finding(i.va, m.place(i.va), "branch to cold code that is no part of a check");
        }
        if !direct || text.contains(i.target) {
            continue;
        }
        match old.at(m, i.target) {
            // Data that was taken for code branches into instructions; the runtime ends a run that gets there.
            At::Trap if old.new_address(m, i.target).is_none() => audit.dead_ends += 1,
            At::Elsewhere => {}
            _ => audit.finding(i.va, m.place(i.va), format!("branch back to old code at {:#x}", i.target)),
        }
    }
}
