//! The audit itself: what is judged, in order.
//!
//! Input: the bytes of a rewritten file, the original, the runtimes that are known. Output: [`Audit`]. **Invariant**: a stage reads what the stages before it
//! derived, and changes only the result.

use crate::audit::Audit;
use crate::decode::decoder;
use crate::error::Result;
use crate::facts::stack_depth::Depths;
use crate::file::memory;
use crate::file::module::Module;
use crate::graph::returns::Returns;
use crate::graph::{blocks, tables};
use crate::judge::code::accesses::accesses;
use crate::judge::code::landings::{cold_is_stubs, landings};
use crate::judge::code::liveness::liveness;
use crate::judge::code::padding::padding;
use crate::judge::code::{covered, polls, red_zone, screens, syscalls};
use crate::judge::file::runtime::{self, Runtime};
use crate::judge::file::{headers, info, notes, restarts};
use crate::judge::old_code::indirect::indirect_targets;
use crate::judge::old_code::{comparison, original::Original};
use crate::judge::old_code::{complete, leftover, springboards};
use crate::judge::unwinding::cfi;
use crate::judge::versions::pairs::{Version, Versions};
use crate::judge::versions::rows::Needed;
use crate::judge::versions::{flow, pairs, probes, records, redirects, sequences};
use crate::sites::{find, site};
use blizzard_contract::module_flags;

/// The audit itself. `first`: whoever asks wants to know only whether anything is open, so the first stage that finds something ends it.
pub(crate) fn audit_against(
    file: &[u8],
    name: &str,
    original: Option<&Original>,
    runtimes: &[Runtime],
    first: bool,
) -> Result<Audit> {
    let m = Module::read(file, name)?;
    let mut audit = Audit { file: name.to_string(), ..Audit::default() };
    macro_rules! unless_settled {
        () => {
            if first && !audit.is_clean() {
                return Ok(audit);
            }
        };
    }
    audit.requested = requested(m.info.flags);
    headers::judge(&m, original.map(Original::file), &mut audit);
    notes::judge(&m, &mut audit);
    runtime::judge(&m, runtimes, &mut audit);
    unless_settled!();
    let guard = m.is_guarded();
    let hints: Vec<u64> = m.functions.iter().map(|f| f.0).collect();
    let (plain, full) = m.text.data.split_at(m.plain_bytes());
    let full_va = m.text.va + plain.len() as u64;
    let cut = hints.partition_point(|&va| va < full_va);
    let mut text = decoder::decode(plain, m.text.va, &hints[..cut]);
    let mut full = if guard { decoder::decode(full, full_va, &hints[cut..]) } else { decoder::Code::default() };
    let in_cold = |va: &u64| va.wrapping_sub(m.cold.va) < m.cold.data.len() as u64;
    let mut stubs: Vec<u64> = text.insns.iter().chain(&full.insns).map(|i| i.target).filter(in_cold).collect();
    stubs.sort_unstable();
    let cold = decoder::decode(m.cold.data, m.cold.va, &stubs);
    audit.text_bytes = text.bytes + full.bytes;
    audit.cold_bytes = cold.bytes;
    audit.instructions = (text.insns.len() + full.insns.len()) as u64;
    audit.functions = m.functions.len() as u64;
    for (code, what) in [(&text, "text"), (&full, "text"), (&cold, "cold code")] {
        undecoded(&m, code, what, &mut audit);
    }
    let gated = syscalls::admit(&m, &mut text, &mut audit);
    let gated_full = syscalls::admit(&m, &mut full, &mut audit);
    audit.system_calls = (gated.len() + gated_full.len()) as u64;
    let rodata = |va| m.bytes_at(va, 16).and_then(|b| b.try_into().ok());
    let context = |text| site::Context {
        text,
        cold: &cold,
        check_loads: m.info.flags & module_flags::CHECK_LOADS != 0,
        check_stores: m.info.flags & module_flags::CHECK_STORES != 0,
        polls: m.info.flags & module_flags::POLLS != 0,
        guard,
        rodata: &rodata,
    };
    let (cx, cx_full) = (context(&text), context(&full));
    let mut sites = find::find(&cx);
    syscalls::mark(&gated, &mut sites);
    let redirects = if guard { redirects::admit(&m, &text, &mut audit) } else { Vec::new() };
    redirects::mark(&redirects, &mut sites);
    let mut sites_full = find::find(&cx_full);
    syscalls::mark(&gated_full, &mut sites_full);
    for (code, sites) in [(&text, &sites), (&full, &sites_full)] {
        problems(&m, code, sites, &mut audit);
    }
    cold_is_stubs(&m, &cold, &[&sites, &sites_full], &mut audit);
    restarts::compare(&m, &[(&text, &sites), (&full, &sites_full)], &mut audit);
    if guard {
        restarts::begin_again(&m, &text, &sites, &mut audit);
    }
    unless_settled!();
    let versions = guard.then(|| {
        let v = Versions::pair(&m, Version::new(&text, &sites), Version::new(&full, &sites_full), &mut audit);
        sequences::judge(&m, &v, &cold, &mut audit);
        audit.twice = v.count();
        audit.version_rows = v.rows.len() as u64;
        v
    });
    // What is inserted in full code stands, to plain code's liveness, where it would stand there.
    let merged = versions.as_ref().map(Versions::in_plain_code);
    let tested = merged.as_ref().unwrap_or(&sites);
    unless_settled!();
    let old = springboards::scan(&m, &text, original, &mut audit);
    springboards::judge(&m, &text, &sites, &old, &mut audit);
    unless_settled!();
    let (indirect, named) = indirect_targets(&m, &text, &sites, &old, &mut audit);
    let mut descriptors: Vec<u64> = sites.list.iter().filter_map(|s| s.descriptor).collect();
    descriptors.extend(covered::chain_places(&m, &cx, &sites));
    let mut entries = blocks::entries(&m, &indirect);
    // Only jumps of its own function lead to a function's part, unless something names it: its springboard is of no use.
    entries.retain(|va| m.parts.binary_search(va).is_err() || named.binary_search(va).is_ok());
    entries.extend(m.pads.iter().map(|p| p.pad));
    let returns = Returns::solve(&m, &text, &sites, |va| text.at(va).map(|_| va).or_else(|| old.new_address(&m, va)));
    let table_distance = |read| versions.as_ref().and_then(|v| flow::table_distance(v, read));
    let tables = tables::find(&m, &text, &sites, &returns, &entries, &descriptors, &table_distance);
    for (va, problem) in &tables.problems {
        audit.finding(*va, m.place(*va), problem.clone());
    }
    if let Some(v) = &versions {
        flow::judge(&m, v, &redirects, &returns, &mut audit);
        redirects::judge(&m, v, &redirects, &returns, &mut audit);
        flow::tables(&m, v, &tables, &mut audit);
    }
    let reads: Vec<usize> = tables.reads.iter().map(|r| r.0).collect();
    let (pairs, undefined) = match original {
        Some(original) => {
            let twice = versions.as_ref().map_or_else(Vec::new, Versions::extents);
            let compared = comparison::compare(&m, &text, &sites, &tables, &old, (original, &twice), &mut audit);
            (compared.pairs, Some(compared.undefined))
        }
        None => {
            if m.info.flags & module_flags::JUMPS != 0 {
                audit.trust("jumps in place of trap bytes: no data that look like those stand behind old code", 1);
            }
            (old.all(&m).collect::<std::collections::BTreeMap<_, _>>().into_iter().collect(), None)
        }
    };
    unless_settled!();
    // Where the original is entered; a library need not have a place.
    let entry = original.map(|o| memory::number(&o.file()[24..32]));
    let entry = entry.map(|va| pairs.binary_search_by_key(&va, |p| p.0).map_or(va, |k| pairs[k].1));
    info::judge(&m, &text, tested, [(&text, &sites), (&full, &sites_full)], entry, &mut audit);
    if let Some(original) = original {
        complete::compare(&m, &old, original.file(), &pairs, &mut audit);
        if let Some(v) = &versions {
            records::judge(&m, v, &pairs, original.file(), &mut audit);
        }
    }
    probes::judge(&m, &old, (original.map(Original::file), &pairs), versions.as_ref(), &mut audit);
    leftover::classify(&m, &text, &sites, &old, &tables.list, &pairs, &mut audit);
    padding(&m, &text, &sites, &returns, &pairs, &mut audit);
    cfi::compare(&m, (&text, &cold), &sites, &pairs, original, &mut audit);
    if let Some(v) = &versions {
        let pad = |plain, full| pairs::leads_alike(v, plain, full);
        cfi::compare_versions(&m, (&text, &full, &cold), &sites_full, &v.places(), &pad, &mut audit);
    }
    unless_settled!();
    let g = blocks::build(&m, &text, &sites, &returns, &indirect, tables);
    audit.jump_tables = g.tables.len() as u64;
    landings(&m, &text, &cold, &sites, &g, &old, &indirect, &mut audit);
    unless_settled!();
    let covered = covered::prove(&m, &cx, (&sites, tested), &g, &pairs, &mut audit);
    screens::check(&m, &g, cx.text, &sites, &mut audit);
    accesses(&m, &cx, tested, &g, &covered, versions.as_ref().map(|v| Needed::new(v, &reads, &pairs)), &mut audit);
    unless_settled!();
    red_zone::judge(&m, &text, tested, &g, &mut audit);
    let depths = Depths::new(&m, &text, &sites, &g, undefined.as_deref());
    liveness(&m, &text, tested, &old, &g, &depths, &mut audit);
    if cx.polls {
        let interruptible = |block| versions.as_ref().is_some_and(|v| v.are_once(block));
        polls::prove(&m, &text, tested, &g, &depths, interruptible, &mut audit);
    }
    Ok(audit)
}

/// What was asked for, as the flags of the module info say.
fn requested(flags: u64) -> Vec<String> {
    let all = [
        (module_flags::CHECK_LOADS, "loads"),
        (module_flags::CHECK_STORES, "stores"),
        (module_flags::POLLS, "polls"),
        (module_flags::COUNTING, "counting"),
    ];
    all.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, word)| (*word).to_owned()).collect()
}

/// Finds bytes of code that do not decode.
fn undecoded(m: &Module, code: &decoder::Code, what: &str, audit: &mut Audit) {
    for u in &code.undecoded {
        audit.finding(u.va, m.place(u.va), format!("{} bytes of {what} do not decode", u.bytes));
    }
}

/// Finds sequences with something wrong in them.
fn problems(m: &Module, code: &decoder::Code, sites: &site::Sites, audit: &mut Audit) {
    for s in &sites.list {
        if let Some(problem) = &s.problem {
            let va = code.insns[s.access.min(code.insns.len() - 1)].va;
            audit.finding(va, m.place(va), problem.clone());
        }
    }
}
