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
use crate::judge::old_code::original::{self, Original};
use crate::judge::old_code::{complete, leftover, springboards};
use crate::judge::unwinding::cfi;
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
    for (bit, word) in [
        (module_flags::CHECK_LOADS, "loads"),
        (module_flags::CHECK_STORES, "stores"),
        (module_flags::POLLS, "polls"),
        (module_flags::COUNTING, "counting"),
    ] {
        if m.info.flags & bit != 0 {
            audit.requested.push(word.to_string());
        }
    }
    headers::judge(&m, original.map(Original::file), &mut audit);
    notes::judge(&m, &mut audit);
    runtime::judge(&m, runtimes, &mut audit);
    unless_settled!();
    let hints: Vec<u64> = m.functions.iter().map(|f| f.0).collect();
    let mut text = decoder::decode(m.text.data, m.text.va, &hints);
    let in_cold = |va: &u64| va.wrapping_sub(m.cold.va) < m.cold.data.len() as u64;
    let mut stubs: Vec<u64> = text.insns.iter().map(|i| i.target).filter(in_cold).collect();
    stubs.sort_unstable();
    let cold = decoder::decode(m.cold.data, m.cold.va, &stubs);
    audit.text_bytes = text.bytes;
    audit.cold_bytes = cold.bytes;
    audit.instructions = text.insns.len() as u64;
    audit.functions = m.functions.len() as u64;
    for (code, what) in [(&text, "text"), (&cold, "cold code")] {
        for u in &code.undecoded {
            audit.finding(u.va, m.place(u.va), format!("{} bytes of {what} do not decode", u.bytes));
        }
    }
    let gated = syscalls::admit(&m, &mut text, &mut audit);
    audit.system_calls = gated.len() as u64;
    let cx = site::Context {
        text: &text,
        cold: &cold,
        check_loads: m.info.flags & module_flags::CHECK_LOADS != 0,
        check_stores: m.info.flags & module_flags::CHECK_STORES != 0,
        polls: m.info.flags & module_flags::POLLS != 0,
        rodata: &|va| m.bytes_at(va, 16).and_then(|b| b.try_into().ok()),
    };
    let mut sites = find::find(&cx);
    syscalls::mark(&gated, &mut sites);
    for s in &sites.list {
        if let Some(problem) = &s.problem {
            let va = text.insns[s.access.min(text.insns.len() - 1)].va;
            audit.finding(va, m.place(va), problem.clone());
        }
    }
    cold_is_stubs(&m, &cold, &sites, &mut audit);
    restarts::compare(&m, &cx, &sites, &mut audit);
    unless_settled!();
    let old = springboards::scan(&m, &text, &mut audit);
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
    let tables = tables::find(&m, &text, &sites, &returns, &entries, &descriptors);
    for (va, problem) in &tables.problems {
        audit.finding(*va, m.place(*va), problem.clone());
    }
    let (pairs, undefined) = match original {
        Some(original) => {
            let compared = original::compare(&m, &text, &sites, &tables, &old, original, &mut audit);
            (compared.pairs, Some(compared.undefined))
        }
        None => (old.all(&m).collect::<std::collections::BTreeMap<_, _>>().into_iter().collect(), None),
    };
    unless_settled!();
    // Where the original is entered; a library need not have a place.
    let entry = original.map(|o| memory::number(&o.file()[24..32]));
    let entry = entry.map(|va| pairs.binary_search_by_key(&va, |p| p.0).map_or(va, |k| pairs[k].1));
    info::judge(&m, &text, &sites, entry, &mut audit);
    if let Some(original) = original {
        complete::compare(&m, &old, original.file(), &pairs, &mut audit);
    }
    leftover::classify(&m, &text, &sites, &old, &tables.list, &pairs, &mut audit);
    padding(&m, &text, &sites, &returns, &pairs, &mut audit);
    cfi::compare(&m, (&text, &cold), &sites, &pairs, original, &mut audit);
    unless_settled!();
    let g = blocks::build(&m, &text, &sites, &returns, &indirect, tables);
    audit.jump_tables = g.tables.len() as u64;
    landings(&m, &text, &cold, &sites, &g, &old, &indirect, &mut audit);
    unless_settled!();
    let covered = covered::prove(&m, &cx, &sites, &g, &pairs, &mut audit);
    screens::check(&m, &g, cx.text, &sites, &mut audit);
    accesses(&m, &cx, &sites, &g, &covered, &mut audit);
    unless_settled!();
    red_zone::judge(&m, &text, &sites, &g, &mut audit);
    let depths = Depths::new(&m, &text, &sites, &g, undefined.as_deref());
    liveness(&m, &text, &sites, &old, &g, &depths, &mut audit);
    if cx.polls {
        polls::prove(&m, &text, &sites, &g, &depths, &mut audit);
    }
    Ok(audit)
}
