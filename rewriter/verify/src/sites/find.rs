//! Recognising inserted sequences: checks, range tests of string and large accesses, lane tests and polls.
//!
//! Input: the decoded text and cold code. Output: [`Sites`]. A site runs from the first inserted instruction to the access
//! it guards (or, for a poll, to the instruction behind it). Both ways through it, hot and cold, are executed
//! symbolically; what they leave changed is recorded for the liveness test. Invariant: sites do not overlap.
//! Source: `rewriter/SEQUENCES.md`, "The check sequences".

use crate::decode::effects::{ALL_FLAGS, Flow, RAX, bit};
use crate::decode::insn::{Insn, NONE};
use crate::sites::gates::{self, Back, gate_arguments, string_results};
use crate::sites::site::{Context, Hot, Proven, Site, SiteKind, Sites, TWO_TAGS, set};
use crate::sites::symbolic::{Cond, Lin, is_taken_back};
use crate::sites::tested_address::{GuardedAddress, required_mask, spread, string_pointers, targets_of};
use crate::sites::walk::{Exit, LONGEST, walk_cold, walk_hot};
use crate::sites::{alias, stack_test, strips};
use blizzard_contract as contract;

/// Finds all sites.
pub fn find(cx: &Context) -> Sites {
    let n = cx.text.insns.len();
    let mut sites = Sites {
        list: Vec::new(),
        inserted: vec![0; n / 64 + 1],
        protected: vec![0; n / 64 + 1],
        claimed: vec![0; cx.cold.insns.len() / 64 + 1],
    };
    let mut free_from = 0;
    let mut i = 0;
    while i < n {
        if !is_probe(cx, &cx.text.insns[i], &cx.text.insns[i + 1..]) {
            i += 1;
            continue;
        }
        let site = if strips::compared(&cx.text.insns[i]).is_some() {
            let mut used = Vec::new();
            let site = strips::recognise(cx, i, free_from, &mut used);
            used.iter().for_each(|&k| set(&mut sites.claimed, k));
            site
        } else {
            recognise(cx, i, free_from, &mut sites.claimed)
        };
        let last = site.access.max(i + 1);
        // A refused site counts as inserted too where its extent is known: its problem is reported once.
        if site.problem.is_none() || site.start < site.access.saturating_sub(1) {
            for k in site.start..site.access {
                set(&mut sites.inserted, k);
            }
            let protected_to = if site.kind.is_about_access() { site.access + 1 } else { site.access };
            for k in site.start + 1..protected_to {
                set(&mut sites.protected, k);
            }
            free_from = site.access;
        }
        i = last;
        sites.list.push(site);
    }
    sites
}

/// Instructions that only inserted code contains: they decide a check or poll.
fn is_probe(cx: &Context, i: &Insn, next: &[Insn]) -> bool {
    // The program may test bits of addresses, too, but its branches lead into no stubs.
    let to_stub = |n: Option<&Insn>| n.is_some_and(|n| n.flow == Flow::Cond && cx.cold.contains(n.target));
    match (i.op, &i.mem) {
        (0xe8, None) => cx.guard && cx.cold.contains(i.target),
        (0x1ba, None) => i.ext == 4 && i.imm == i64::from(contract::PRIVATE_BIT) && to_stub(next.first()),
        (0x3b, Some(_)) => strips::compared(i).is_some(),
        (0xf6 | 0xf7, Some(m)) => {
            i.ext == 0 && m.base < 16 && m.disp as u64 == contract::TAG_TABLE_BASE && m.index == NONE
        }
        (0x80, Some(m)) => {
            let tag = m.base < 16 && m.disp as u64 == contract::TAG_TABLE_BASE && m.index == NONE;
            cx.guard && i.ext == 7 && tag && to_stub(next.first())
        }
        (0x83, Some(m)) => {
            m.base == NONE && m.index == NONE && matches!(m.disp as u64, contract::POLL_WORD | contract::CTX_NODES)
        }
        (0xc1, None) => {
            i.ext == 5
                && i.imm == i64::from(contract::SEGMENT_SHIFT)
                && next.first().is_some_and(|n| {
                    matches!(n.op, 0x81 | 0x83)
                        && n.ext == 7
                        && n.r0 == i.r0
                        && n.imm == (contract::SEGMENT_BASE >> contract::SEGMENT_SHIFT) as i64
                })
                && to_stub(next.get(1))
        }
        _ => false,
    }
}

fn recognise(cx: &Context, probe: usize, free_from: usize, claimed: &mut [u64]) -> Site {
    let lowest = free_from.max(probe.saturating_sub(LONGEST));
    let mut first_problem = None;
    let mut best: Option<(u32, Site, Vec<usize>)> = None;
    let claimed_start = claimed_start(cx, probe).filter(|&s| s >= lowest && s <= probe && may_start(&cx.text.insns[s]));
    let behind = (lowest..=probe).rev().take_while(|&k| k == probe || may_be_inserted(&cx.text.insns[k]));
    for start in claimed_start.into_iter().chain(behind.filter(|&k| may_begin(&cx.text.insns[k]))) {
        let mut used = Vec::new();
        if stack_test::may_follow(cx.text, start)
            && let Some(hot) = walk_hot(cx, start, probe, true)
            && let Ok(site) = stack_test::judge(cx, start, &hot, &mut used)
        {
            used.iter().for_each(|&k| set(claimed, k));
            return site;
        }
        let Some(hot) = walk_hot(cx, start, probe, false) else { continue };
        used.clear();
        match judge(cx, start, &hot, &mut used) {
            Ok(site) => {
                let changes = site.dirty_flags.count_ones() + site.dirty_after_flags.count_ones();
                let changes = changes * 32 + (site.dirty | site.dirty_after).count_ones();
                // Between two that change as much, the one that keeps rax or counts itself is the whole sequence.
                let first = &cx.text.insns[start];
                // A copy of rax is part of it where rax comes back from it; else it is the program's.
                let copies_rax = matches!(first.op, 0x89 | 0x8b) && first.r1 == RAX && first.mem.is_none();
                let lost = |site: &Site| site.dirty & bit(RAX) != 0;
                let keeps_rax = copies_rax && !lost(&site) && best.as_ref().is_some_and(|b| lost(&b.1));
                let counts = first.op == 0xff && first.ext == 0 && first.mem.is_some();
                if best.as_ref().is_none_or(|b| changes < b.0 || (changes == b.0 && (keeps_rax || counts))) {
                    best = Some((changes, site, used));
                }
            }
            Err(problem) => {
                first_problem.get_or_insert((start, hot.access, problem, used));
            }
        }
        if claimed_start == Some(start) && best.is_some() {
            break;
        }
    }
    if let Some((_, site, used)) = best {
        used.iter().for_each(|&k| set(claimed, k));
        return site;
    }
    let (start, access, problem, used) = first_problem
        .unwrap_or_else(|| (probe, probe + 1, "no check sequence leads to this test".to_string(), Vec::new()));
    used.iter().for_each(|&k| set(claimed, k));
    Site { problem: Some(problem), ..Site::of_kind(SiteKind::Check { straddle: false }, start, access) }
}

/// Where the cold stub behind a probe says the check begins.
fn claimed_start(cx: &Context, probe: usize) -> Option<usize> {
    let branch = cx.text.insns[probe..].iter().take(4).find(|i| i.flow == Flow::Cond)?;
    let at = cx.cold.at(branch.target)?;
    let jump = cx.cold.insns[at..].iter().take(LONGEST).find(|i| i.flow == Flow::Jump)?;
    cx.text.at(jump.target)
}

/// Opcodes that inserted code may contain in front of a probe.
fn may_be_inserted(i: &Insn) -> bool {
    i.flow == Flow::Next
        && (i.is_nop()
            || matches!(i.op, 0x8d | 0x89 | 0x8b | 0x9f | 0x190 | 0x50..=0x57 | 0x83 | 0xc1 | 0x63 | 0x1bf | 0x1b6)
            || (i.op == 0xff && i.ext == 0))
}

/// A check begins with what a sequence begins with, or with spills, or with the padding in front of it.
fn may_start(i: &Insn) -> bool {
    may_begin(i) || i.is_nop() || matches!(i.op, 0x50..=0x57)
}

/// Opcodes an inserted sequence begins with.
fn may_begin(i: &Insn) -> bool {
    matches!(i.op, 0x8d | 0x89 | 0x8b | 0x9f | 0x190 | 0x1b6 | 0x1ba)
        || (matches!(i.op, 0x63 | 0x1bf) && i.mem.is_none())
        || (matches!(i.op, 0x83 | 0xff) && i.mem.is_some())
}

/// Judges one site with its hot way walked.
fn judge(cx: &Context, start: usize, hot: &Hot, used: &mut Vec<usize>) -> Result<Site, String> {
    let access = &cx.text.insns[hot.access];
    let start_va = cx.text.insns[start].va;
    let (kind, targets) = targets_of(cx, access, &hot.state, hot.passed[0])?;
    if let (true, SiteKind::Check { .. } | SiteKind::Large, [target]) = (cx.guard, kind, &targets[..]) {
        return alias::judge(cx, start, hot, kind, target, used);
    }
    let mut site = Site {
        kind,
        start,
        access: hot.access,
        dirty: hot.state.dirty(),
        dirty_flags: ALL_FLAGS & !hot.state.clean,
        dirty_after: 0,
        dirty_after_flags: 0,
        own_edges: Vec::new(),
        descriptor: None,
        proves: None,
        chain: None,
        touched: hot.touched,
        takes_back: None,
        strip: None,
        leans: None,
        performed: Vec::new(),
        red_zone: hot.state.uses_red_zone(),
        problem: None,
    };
    // Which target each test is about.
    let mut about = vec![0; hot.passed.len()];
    match (kind, hot.passed.as_slice()) {
        (SiteKind::Poll, [Cond::Poll]) | (SiteKind::Lanes, [Cond::Nodes { with: 1 }]) => {}
        (SiteKind::Large, [Cond::Range { lin, with }]) => range_is(&[(*lin, *with)], &[targets[0].lin])?,
        (SiteKind::String, ranges) => {
            let mut tested = Vec::new();
            for c in ranges {
                let Cond::Range { lin, with } = c else { return Err("string access behind another test".into()) };
                tested.push((*lin, *with));
            }
            range_is(&tested, &string_pointers(cx, access)?)?;
        }
        // What it proves stands in the cold code.
        (SiteKind::Check { .. }, [Cond::Private { lin }]) if targets.len() == 1 => {
            site.leans = tells_of(lin, &targets[0])?;
        }
        (SiteKind::Check { .. }, [test]) if targets.len() == 1 => {
            site.proves = Some(wide_test(cx, access, &targets[0], test, &mut site.kind)?);
        }
        (SiteKind::Check { .. }, tests) => {
            if tests.len() != targets.len() {
                return Err("the tests in front of the access do not fit it".into());
            }
            for (k, test) in tests.iter().enumerate() {
                about[k] = tag_test_fits(cx, access, &targets, test, &mut site.kind)?;
            }
            if (0..targets.len()).any(|t| !about.contains(&t)) {
                return Err(format!("one of the addresses accessed at {:#x} is not checked", access.va));
            }
        }
        _ => return Err("the tests in front of the access do not fit it".into()),
    }
    // Bytes that the stub finds to lie in one block.
    let mut quick = None;
    // Limits taken back behind gates, on all ways.
    let mut taken_back: Vec<Option<u64>> = Vec::new();
    for (k, (state, to, cond, from)) in hot.colds.iter().enumerate() {
        if !cx.cold.contains(*to) {
            return Err(format!("branch at {from:#x} does not lead to a cold stub"));
        }
        let target = &targets[about[k]];
        let exits = walk_cold(cx, None, state.clone(), *to, used)?;
        let mut test = *cond;
        let screened = matches!(cond, Cond::Private { .. });
        if screened {
            test = first_test(&exits)?;
            site.proves = Some(wide_test(cx, access, target, &test, &mut site.kind)?);
        }
        for exit in exits {
            site.touched |= if screened { exit.touched } else { 0 };
            // A stub may continue behind its own test when more tests follow, with what they need unchanged.
            let ready = (0..16).all(|r| access.fx.reads & bit(r) == 0 || exit.state.intact(r));
            let at_next = hot.joins.contains(&(exit.to, k + 1)) && ready && !exit.state.undo_pending();
            let at_access = exit.to == access.va && k + 1 == hot.passed.len().max(1);
            let on = at_access || (at_next && k + 1 < hot.passed.len());
            let behind = exit.to == access.end();
            site.red_zone |= exit.state.uses_red_zone();
            let dirty = exit.state.dirty();
            let dirty_flags = ALL_FLAGS & !exit.state.clean;
            if exit.state.rsp() != Some(0) {
                return Err(format!("cold stub leaves rsp changed at {:#x}", exit.from));
            }
            if exit.state.limit.is_some_and(|l| !is_taken_back(l)) {
                return Err(format!("cold stub sets the limit of a loop at {:#x}", exit.from));
            }
            taken_back.extend(exit.gate.is_some().then_some(exit.state.limit.map(|l| l.0)));
            match &exit.gate {
                None => {
                    let resolved = match &site.proves {
                        // The tags, which the screen stood in front of, allow what is tested.
                        Some(_) if screened && exit.path[..] == [(test, true)] => true,
                        Some(proven) => quick_exit(&exit.path, target, test, proven, &mut quick),
                        None => straddle_resolved(cx, &exit.path, target, *cond),
                    };
                    if !on || !resolved {
                        return Err(format!("cold stub leaves at {:#x} without a gate call", exit.from));
                    }
                }
                Some(g) => {
                    let want = gate_arguments(cx, access, target, &mut site, g)?;
                    if site.kind == SiteKind::Lanes {
                        site.descriptor = gates::lane_descriptor_va(g);
                    }
                    let back = match want {
                        Back::Recheck if targets.len() > 1 => exit.to == start_va,
                        Back::Access => exit.to == access.va,
                        Back::Behind => behind,
                        Back::Recheck | Back::Anywhere => exit.to == start_va || exit.to == access.va,
                    };
                    if !back {
                        return Err(format!("cold stub returns to the wrong place {:#x} at {:#x}", exit.to, exit.from));
                    }
                    if want == Back::Recheck && exit.to == start_va && target.size > 1 {
                        progress(&exit.path, target, &site)?;
                    }
                }
            }
            if behind && exit.to != access.va && exit.to != start_va {
                let own = string_results(access);
                site.dirty_after |= dirty & !own;
                site.dirty_after_flags |= dirty_flags & !access.fx.flag_kills;
            } else {
                site.dirty |= dirty;
                site.dirty_flags |= dirty_flags;
            }
            if exit.to != start_va && !behind {
                site.own_edges.push((exit.from, exit.to));
            }
        }
    }
    if let Some(&first) = taken_back.first()
        && taken_back.iter().all(|&b| b == first)
    {
        site.takes_back = first;
    }
    if let (Some(quick), Some(proven)) = (quick, site.proves)
        && quick != proven.bytes
    {
        let asked = proven.bytes;
        return Err(format!(
            "the cold stub leaves without a gate call for {quick} bytes, and asks the gate for {asked}"
        ));
    }
    Ok(site)
}

/// A bit of `lin` tells that the access is private only if it is near: as far as a displacement leads, and an index, which is returned, if that is
/// of 32 bits.
fn tells_of(lin: &Lin, target: &GuardedAddress) -> Result<Option<u8>, String> {
    let to = target.lin;
    let near = to.disp.wrapping_sub(lin.disp).unsigned_abs() < contract::PRIVATE_REACH / 2;
    if (Lin { disp: to.disp, ..*lin }) == to && near {
        return Ok(None);
    }
    let one = |base: u8| near && base < 16 && (Lin { disp: lin.disp, ..Lin::reg(base) }) == *lin;
    if to.word.is_none() && to.index < 16 && one(to.base) {
        return Ok(Some(to.index));
    }
    if to.word.is_none() && to.base < 16 && to.scale == 1 && one(to.index) {
        return Ok(Some(to.base));
    }
    Err("the bit that is tested is one of another address".into())
}

/// What all ways through a stub test first.
fn first_test(exits: &[Exit]) -> Result<Cond, String> {
    let mut tests = exits.iter().map(|e| e.path.first().map(|p| p.0));
    match tests.next().flatten() {
        Some(first) if tests.all(|t| t == Some(first)) => Ok(first),
        _ => Err("what is not private goes to its access without a test of its tag".into()),
    }
}

/// What the test of an access proves at most: it may begin before the access, and may be one for stores.
fn wide_test(
    cx: &Context,
    access: &Insn,
    target: &GuardedAddress,
    test: &Cond,
    kind: &mut SiteKind,
) -> Result<Proven, String> {
    let Cond::Tag { lin, bytes, mask } = test else {
        return Err("the tests in front of the access do not fit it".into());
    };
    let before = target.lin.disp.wrapping_sub(lin.disp);
    if (Lin { disp: target.lin.disp, ..*lin }) != target.lin || !(0..64).contains(&before) {
        return Err(format!("the check tests the tag of another address than the access at {:#x}", access.va));
    }
    let need = required_mask(cx, target.access);
    if *bytes != 1 && *bytes != 4 {
        return Err(format!("the check reads {bytes} tags at once"));
    }
    let for_stores = u32::from(contract::TAG_NO_STORE);
    let one = if *mask == spread(for_stores, *bytes) && cx.check_stores { for_stores } else { need };
    if *mask != spread(one, *bytes) {
        return Err(format!("the check tests mask {mask:#x}, the access needs {:#x}", spread(need, *bytes)));
    }
    if *bytes == 1 && target.size > 1 {
        return Err(format!("the check tests one tag, the access at {:#x} has {} bytes", access.va, target.size));
    }
    let reach = if *bytes == 1 { 1 } else { TWO_TAGS };
    if before as u32 + target.size > reach {
        return Err(format!("the check tests the tag of another address than the access at {:#x}", access.va));
    }
    if *bytes == 4 {
        *kind = SiteKind::Check { straddle: true };
    }
    Ok(Proven { lin: *lin, bytes: reach, store: one == for_stores })
}

/// The cold stub went straight to the access: it found `quick` bytes to lie in one block, and that block's tag to permit what is tested.
fn quick_exit(
    path: &[(Cond, bool)],
    target: &GuardedAddress,
    entry: Cond,
    proven: &Proven,
    quick: &mut Option<u32>,
) -> bool {
    let Cond::Tag { bytes: 4, mask, .. } = entry else { return false };
    let within = path.iter().find_map(|(c, outcome)| match c {
        Cond::Straddle { lin, limit } if *lin == proven.lin && !outcome => u32::try_from(64 - limit).ok(),
        _ => None,
    });
    let open = path.iter().any(|(c, outcome)| {
        matches!(c, Cond::Tag { lin, bytes: 1, mask: m } if *lin == proven.lin && *m == mask & 0xff) && *outcome
    });
    let Some(bytes) = within.filter(|&b| open && b <= 64) else { return false };
    *quick = Some(bytes);
    target.lin.disp - proven.lin.disp + i64::from(target.size) <= i64::from(bytes)
}

/// Which target a tag test is about, when it is a right test for it.
fn tag_test_fits(
    cx: &Context,
    access: &Insn,
    targets: &[GuardedAddress],
    test: &Cond,
    kind: &mut SiteKind,
) -> Result<usize, String> {
    let Cond::Tag { lin, bytes, mask } = test else {
        return Err("the tests in front of the access do not fit it".into());
    };
    let Some(t) = targets.iter().position(|t| t.lin == *lin) else {
        return Err(format!("the check tests the tag of another address than the access at {:#x}", access.va));
    };
    let target = &targets[t];
    let need = required_mask(cx, target.access);
    if *bytes != 1 && *bytes != 4 {
        return Err(format!("the check reads {bytes} tags at once"));
    }
    if *mask != spread(need, *bytes) {
        return Err(format!("the check tests mask {mask:#x}, the access needs {:#x}", spread(need, *bytes)));
    }
    if *bytes == 1 && target.size > 1 {
        return Err(format!("the check tests one tag, the access at {:#x} has {} bytes", access.va, target.size));
    }
    if *bytes == 4 {
        *kind = SiteKind::Check { straddle: true };
    }
    Ok(t)
}

fn range_is(tested: &[(Lin, i64)], need: &[Lin]) -> Result<(), String> {
    let segment = (contract::SEGMENT_BASE >> contract::SEGMENT_SHIFT) as i64;
    if tested.iter().any(|t| t.1 != segment) {
        return Err("the range test compares with another range than the segment's".into());
    }
    match need.iter().find(|n| !tested.iter().any(|t| t.0 == **n)) {
        Some(_) => Err("an address of the access is not range-tested".into()),
        None => Ok(()),
    }
}

/// The cold stub went straight to the access: allowed when it found the access to lie in one block, and that
/// block's tag to permit it.
fn straddle_resolved(cx: &Context, path: &[(Cond, bool)], target: &GuardedAddress, entry: Cond) -> bool {
    let Cond::Tag { bytes: 4, .. } = entry else { return false };
    let within = path.iter().any(|(c, outcome)| {
        matches!(c, Cond::Straddle { lin, limit } if *lin == target.lin && *limit == 64 - i64::from(target.size))
            && !outcome
    });
    let mask = required_mask(cx, target.access);
    let open = path.iter().any(|(c, outcome)| {
        matches!(c, Cond::Tag { lin, bytes: 1, mask: m } if *lin == target.lin && *m == mask) && *outcome
    });
    within && open
}

/// A stub that returns to a check of two tags must have ruled out that only the second, untouched block fails: the
/// gate would not change that block's tag, and the check would never pass.
fn progress(path: &[(Cond, bool)], target: &GuardedAddress, site: &Site) -> Result<(), String> {
    if site.kind != (SiteKind::Check { straddle: true }) {
        return Ok(());
    }
    let (at, size) = site.proves.map_or((target.lin, target.size), |p| (p.lin, p.bytes));
    let tested = path
        .iter()
        .any(|(c, _)| matches!(c, Cond::Straddle { lin, limit } if *lin == at && *limit == 64 - i64::from(size)));
    if tested {
        Ok(())
    } else {
        Err("the cold stub repeats a two-block check without testing whether the access straddles".into())
    }
}
