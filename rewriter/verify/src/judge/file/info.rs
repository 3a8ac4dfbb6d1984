//! The module info: each field is derived from the rest of the file, or proven by what it leads to.
//!
//! Input: module, decoded text, sites, the original's entry point if it is known. Output: findings. Read by others and proven there: the trap map
//! ([`crate::judge::old_code::springboards`], [`crate::judge::old_code::original`]), restarts ([`crate::judge::file::restarts`]), claims and regions ([`crate::judge::code::covered`]), program headers and segments
//! ([`crate::judge::file::headers`]), the runtime ([`crate::judge::file::runtime`]). **Invariant**: what no proof reaches is counted as trusted.
//!
//! Source: `blizzard_contract::ModuleInfo`.

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::{AccessKind, Touch};
use crate::decode::insn::NONE;
use crate::file::memory::{PF_W, PT_INTERP, PT_LOAD};
use crate::file::module::Module;
use crate::sites::site::{SiteKind, Sites, get};
use blizzard_contract::{self as contract, module_flags};

const KNOWN_FLAGS: u64 = module_flags::CHECK_LOADS
    | module_flags::CHECK_STORES
    | module_flags::POLLS
    | module_flags::COUNTING
    | module_flags::BLOCKS
    | module_flags::STRIPS
    | module_flags::GUARD
    | module_flags::JUMPS
    | module_flags::MANY_NODES;

/// Judges it. `both`: plain and full code with what is inserted there. `entry`: where the program's own entry point is now, as its old address says.
pub(crate) fn judge(
    m: &Module,
    text: &Code,
    sites: &Sites,
    both: [(&Code, &Sites); 2],
    entry: Option<u64>,
    audit: &mut Audit,
) {
    let info = &m.info;
    let mut open = |at: u64, why: &str| audit.finding(at, "module info".into(), why);
    // One range of new code, all of it audited.
    let behind = |s: &crate::file::module::Section| s.va + s.data.len() as u64;
    if m.text.va != info.code_va
        || behind(&m.text) > m.cold.va
        || m.cold.va - behind(&m.text) >= 64
        || behind(&m.cold) != info.code_va.wrapping_add(info.code_bytes)
    {
        open(info.code_va, "the code range is not .blizzard.text and .blizzard.cold");
    }
    // The tables, where nothing can change them.
    let tables: [(&str, u64, u64, u64); 13] = [
        ("program headers", info.phdr_va, info.phdr_count.saturating_mul(56), 8),
        ("trap map's codes", info.trap_codes_va, info.trap_code_bytes, 1),
        ("trap map's groups", info.trap_heads_va, info.trap_count.div_ceil(64).saturating_mul(12), 4),
        ("claims", info.claims_va, info.claim_count.saturating_mul(12), 4),
        ("regions", info.regions_va, info.region_count.saturating_mul(12), 4),
        ("restart table's codes", info.restart_codes_va, info.restart_code_bytes, 1),
        ("restart table's groups", info.restart_heads_va, info.restart_count.div_ceil(64).saturating_mul(8), 4),
        ("version table's codes", info.version_codes_va, info.version_code_bytes, 1),
        ("version table's groups", info.version_heads_va, info.version_count.div_ceil(64).saturating_mul(12), 4),
        ("redirections' codes", info.redirect_codes_va, info.redirect_code_bytes, 1),
        ("redirections' groups", info.redirect_heads_va, info.redirect_count.div_ceil(64).saturating_mul(12), 4),
        ("places of libraries", info.closure_va, info.closure_bytes, 1),
        ("dynamic loader's path", info.interp_va, u64::from(info.interp_va != 0), 1),
    ];
    for (what, va, bytes, align) in tables {
        let constant = |p: &crate::file::memory::Phdr| {
            p.kind == PT_LOAD && p.flags & PF_W == 0 && p.offset_of(va).is_some() && bytes <= p.file - (va - p.va)
        };
        if bytes > 0 && (va % align != 0 || !m.kernel.iter().any(constant)) {
            open(va, &format!("the {what} do not stand in a read-only segment, aligned"));
        }
    }
    let full = info.new_base_va.wrapping_add(info.full_at);
    if m.is_guarded() && !(m.text.va < full && full <= behind(&m.text)) {
        open(full, "full code does not begin in the code");
    }
    let versions = [info.version_codes_va, info.version_code_bytes, info.version_heads_va, info.version_count];
    let redirects = [info.redirect_codes_va, info.redirect_code_bytes, info.redirect_heads_va, info.redirect_count];
    if !m.is_guarded() && (info.full_at != 0 || versions != [0; 4] || redirects != [0; 4]) {
        open(full, "there is full code, and the flags do not say so");
    }
    flags(m, text, sites, both, audit);
    interp(m, audit);
    closure(m, audit);
    let mut open = |at: u64, why: &str| audit.finding(at, "module info".into(), why);
    match entry {
        Some(entry) if entry != info.entry_va => {
            open(info.entry_va, "the program is entered elsewhere than the original")
        }
        None if info.rt_base_va != 0 && text.at(info.entry_va).is_none() => {
            open(info.entry_va, "the program's entry is no instruction of the new code");
        }
        None if info.rt_base_va != 0 => audit.trust("the program's entry point (the original says which it is)", 1),
        _ => {}
    }
}

/// The flags say what the code does.
fn flags(m: &Module, text: &Code, sites: &Sites, code: [(&Code, &Sites); 2], audit: &mut Audit) {
    let flags = m.info.flags;
    let has = |flag: u64| flags & flag != 0;
    let (mut loads, mut stores, mut polls, mut strips) = (false, false, false, false);
    for s in sites.list.iter().filter(|s| s.problem.is_none()) {
        match s.kind {
            SiteKind::Poll => polls = true,
            // In guarded code the limit that counts is in a register.
            SiteKind::Strip => strips = !m.is_guarded(),
            SiteKind::StackTest => {}
            _ => {
                let touch = text.insns.get(s.access).map(|i| i.touch);
                if let Some(Touch::Mem(access)) = touch {
                    // The test of a load and store at once says for which of the two it is, unless it is one of the address alone.
                    match (access, s.proves) {
                        (AccessKind::Load, _) => loads = true,
                        (AccessKind::Store, _) => stores = true,
                        (AccessKind::Rmw, Some(proven)) if proven.store => stores = true,
                        (AccessKind::Rmw, Some(_)) => loads = true,
                        (AccessKind::Rmw, None) => {}
                    }
                }
            }
        }
    }
    let counters = contract::COUNTERS..contract::COUNTERS + 4096;
    let counts =
        |mem: crate::decode::insn::Mem| mem.base == NONE && mem.index == NONE && counters.contains(&(mem.disp as u64));
    let counting = code.iter().any(|(text, sites)| {
        let inserted = text.insns.iter().enumerate().filter(|(k, _)| get(&sites.inserted, *k));
        inserted.into_iter().any(|(_, i)| (i.op, i.ext) == (0xff, 0) && i.mem.is_some_and(counts))
    });
    let mut open = |why: &str| audit.finding(m.info.code_va, "module info".into(), why);
    if flags & !KNOWN_FLAGS != 0 {
        open("has flags that nothing here knows");
    }
    for (found, flag, what) in [
        (loads, module_flags::CHECK_LOADS, "checks of loads"),
        (stores, module_flags::CHECK_STORES, "checks of stores"),
        (polls, module_flags::POLLS, "polls"),
        (strips, module_flags::STRIPS, "loops for several iterations"),
        (counting, module_flags::COUNTING, "counted checks"),
        (m.info.blocks_va != 0, module_flags::BLOCKS, "counted blocks"),
    ] {
        if found && !has(flag) {
            open(&format!("the code has {what}, the flags do not say so"));
        }
    }
    let checks = sites.list.iter().any(|s| !matches!(s.kind, SiteKind::Strip));
    if has(module_flags::COUNTING) && checks && !counting {
        open("the flags speak of counted checks, the code has none");
    }
    if has(module_flags::BLOCKS) != (m.info.blocks_va != 0) || (m.info.blocks_va == 0) != (m.info.blocks_bytes == 0) {
        open("the flags, the place and the size of the counters of blocks contradict each other");
    }
    if has(module_flags::STRIPS) && !strips {
        audit.trust("the flag for loops for several iterations, of which there are none: it keeps to one thread", 1);
    }
}

/// The dynamic loader's path, and who names it.
fn interp(m: &Module, audit: &mut Audit) {
    let named = m.loader.iter().find(|p| p.kind == PT_INTERP);
    let mut open = |why: &str| audit.finding(m.info.interp_va, "module info".into(), why);
    match (named, m.info.interp_va) {
        (None, 0) => {}
        (None, _) => open("the table for the dynamic loader has no PT_INTERP"),
        (Some(p), va) if p.va != va => open("PT_INTERP does not lead to the path that the module info names"),
        (Some(p), va) => {
            let path = m.bytes_at(va, p.file as usize).unwrap_or(&[]);
            if path.iter().position(|b| *b == 0) != path.len().checked_sub(1) || path.first() != Some(&b'/') {
                open("the dynamic loader's path is none");
            }
        }
    }
}

/// Where rewritten libraries are looked for: well formed. The folder itself is not this file's.
fn closure(m: &Module, audit: &mut Audit) {
    if m.info.closure_bytes == 0 && m.info.closure_va == 0 {
        return;
    }
    let bytes = m.bytes_at(m.info.closure_va, m.info.closure_bytes as usize).unwrap_or(&[]);
    let mut strings = bytes.split(|b| *b == 0);
    let first = strings.next().and_then(|s| std::str::from_utf8(s).ok());
    let wanted = match first {
        Some(contract::closure_strings::BUNDLE) => 2,
        Some(contract::closure_strings::CACHE) => 6,
        _ => 0,
    };
    // Behind the last NUL there is nothing.
    if wanted == 0 || bytes.last() != Some(&0) || bytes.iter().filter(|b| **b == 0).count() != wanted {
        let why = "the places of rewritten libraries are not what the runtime understands";
        audit.finding(m.info.closure_va, "module info".into(), why);
    } else {
        audit.trust("places of rewritten libraries: whose files audits of their own prove", 1);
    }
}
