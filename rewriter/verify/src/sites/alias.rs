//! Tests of full versions of guarded code, which have three answers: the access goes on at the alias, or behind the prefix as the program has it, or the gate
//! makes it possible. They stand in line, or are called.
//!
//! Input: the hot way of a test that has been walked. Output: its [`Site`]. **Invariant**: who comes to an instruction with the prefix has an address of shared
//! memory whose tag allows the access; what has tag 0 is private, and goes behind the prefix. That what stands there are the bytes of plain code is proven where
//! both versions are compared (`judge/versions`).
//! Source: `rewriter/SEQUENCES.md`, "Guarded code".

use crate::decode::effects::{ALL_FLAGS, Flow, bit};
use crate::decode::insn::{GS, Insn};
use crate::sites::gates::gate_arguments;
use crate::sites::site::{Context, Hot, Proven, Site, SiteKind};
use crate::sites::symbolic::Cond;
use crate::sites::tested_address::{GuardedAddress, has_prefix, required_mask};
use crate::sites::walk::{Exit, walk_cold};
use blizzard_contract::{self as contract, guard_tags as tags};

/// Judges a test of one access, or of an area of more than 64 bytes.
pub(crate) fn judge(
    cx: &Context,
    start: usize,
    hot: &Hot,
    kind: SiteKind,
    target: &GuardedAddress,
    used: &mut Vec<usize>,
) -> Result<Site, String> {
    let access = &cx.text.insns[hot.access];
    let mut site = Site {
        dirty: hot.state.dirty(),
        dirty_flags: ALL_FLAGS & !hot.state.clean,
        touched: hot.touched,
        red_zone: hot.state.uses_red_zone(),
        ..Site::of_kind(kind, start, hot.access)
    };
    let [(state, to, test, from)] = hot.colds.as_slice() else {
        return Err("the tests in front of the access do not fit it".into());
    };
    if !cx.cold.contains(*to) {
        return Err(format!("branch at {from:#x} does not lead to a cold stub"));
    }
    let called = *test == Cond::Called;
    let mut store = required_mask(cx, target.access) == u32::from(contract::TAG_NO_STORE);
    if !called {
        store |= cx.check_stores && asks_to_store(test);
        test_fits(test, target, kind, store)?;
    }
    let large = kind == SiteKind::Large;
    if has_prefix(cx, access, GS) == large {
        return Err(if large {
            "the area is accessed at the alias"
        } else {
            "a test in front of an access without the prefix"
        }
        .into());
    }
    let mut exits = walk_cold(cx, large.then_some(access), state.clone(), *to, used)?;
    if called {
        // A load may be tested as the store that follows it; that one does is asked where all code is known.
        store |= cx.check_stores && exits.iter().any(|exit| exit.path.first().is_some_and(|(c, _)| asks_to_store(c)));
        returned(&mut exits, access, |test| test_fits(test, target, kind, store))?;
    }
    if !large {
        // What the gate is asked for is compared with this.
        site.proves = Some(Proven { lin: target.lin, bytes: target.size, store });
    }
    let (mut private, mut gates) = (0, 0);
    for exit in &exits {
        let ready = (0..16).all(|r| access.fx.reads & bit(r) == 0 || exit.state.intact(r));
        if exit.state.rsp() != Some(0) || exit.state.undo_pending() || exit.state.limit.is_some() || !ready {
            return Err(format!("cold stub leaves registers changed at {:#x}", exit.from));
        }
        site.dirty |= exit.state.dirty();
        site.dirty_flags |= ALL_FLAGS & !exit.state.clean;
        site.red_zone |= exit.state.uses_red_zone();
        if let Some(g) = &exit.gate {
            gates += 1;
            gate_arguments(cx, access, target, &mut site, g)?;
        }
        if large {
            let right = exit.gate.is_some();
            site.performed.push(performed(cx, access, exit).filter(|_| right).ok_or_else(|| {
                format!("cold stub does not make the access as the program has it at {:#x}", exit.from)
            })?);
            continue;
        }
        if called && exit.path.is_empty() {
            // Its first test allowed the access.
        } else if leads_to_private(exit, target)? {
            private += 1;
            if exit.gate.is_some() || exit.path.len() != 1 || exit.to != behind_prefix(access) {
                return Err(format!("cold stub does not make the access as the program has it at {:#x}", exit.from));
            }
            site.own_edges.push((exit.from, exit.to));
            continue;
        } else if exit.gate.is_none() {
            if !is_allowed(exit, target, store) {
                return Err(format!("cold stub leaves at {:#x} without a gate call", exit.from));
            }
            // A loop of plain code may have no other place where it sees that a peer has rung.
            if !exit.path.contains(&(Cond::Poll, false)) {
                return Err(format!("cold stub leaves at {:#x} without a look at the doorbell", exit.from));
            }
        }
        if exit.to != access.va {
            return Err(format!("cold stub returns to the wrong place {:#x} at {:#x}", exit.to, exit.from));
        }
        site.own_edges.push((exit.from, exit.to));
    }
    if private != u32::from(!large) || gates == 0 {
        return Err("the cold stub does not have one way for each answer".into());
    }
    if !large {
        site.kind = SiteKind::Check { straddle: target.size > 1 };
    }
    Ok(site)
}

/// The test asks for the access's own address, all its bytes, and the right that it needs.
fn test_fits(test: &Cond, target: &GuardedAddress, kind: SiteKind, store: bool) -> Result<(), String> {
    let segment = (contract::SEGMENT_BASE >> contract::SEGMENT_SHIFT) as i64;
    let fits = match (*test, kind) {
        (Cond::Range { lin, with }, SiteKind::Large) => lin == target.lin && with == segment,
        (Cond::Tag { lin, bytes: 1, mask }, SiteKind::Check { .. }) => {
            target.size == 1 && lin == target.lin && mask == u32::from(allowed(store))
        }
        (Cond::Level { lin, level }, SiteKind::Check { .. }) => {
            let both = if store { tags::BOTH_WRITABLE } else { tags::BOTH_READABLE };
            (2..=64).contains(&target.size) && lin == target.lin && level == both
        }
        _ => false,
    };
    if fits { Ok(()) } else { Err("the test in front of the access at the alias does not prove it".into()) }
}

/// Whether the test asks for the right to store.
fn asks_to_store(test: &Cond) -> bool {
    match *test {
        Cond::Tag { mask, .. } => mask == u32::from(allowed(true)),
        Cond::Level { level, .. } => level == tags::BOTH_WRITABLE,
        _ => false,
    }
}

/// Tags of the own block that allow an access.
fn allowed(store: bool) -> u8 {
    if store { tags::WRITABLE } else { tags::READONLY | tags::WRITABLE }
}

/// What a stub asks first is whether the tag is that of private memory.
fn leads_to_private(exit: &Exit, target: &GuardedAddress) -> Result<bool, String> {
    match exit.path.first() {
        Some((Cond::Level { lin, level: 0 }, shared)) if *lin == target.lin => Ok(!shared),
        _ => Err("the cold stub does not ask first whether the memory is private".into()),
    }
}

/// Where the access begins without its prefix, the first of its bytes.
fn behind_prefix(access: &Insn) -> u64 {
    access.va + 1
}

/// Of a test that was called: takes its first condition away, and makes its ways lead where the carry flag lets those go on that return.
fn returned(exits: &mut [Exit], access: &Insn, fits: impl Fn(&Cond) -> Result<(), String>) -> Result<(), String> {
    for exit in exits {
        let Some((first, allowed)) = exit.path.first().copied() else { return Err("a call of no test".into()) };
        fits(&first)?;
        exit.path.remove(0);
        exit.to = match exit.state.carry {
            Some(true) => behind_prefix(access),
            Some(false) => access.va,
            None => return Err("whether the memory is private is not said".into()),
        };
        if allowed && !exit.path.is_empty() || !allowed && exit.path.is_empty() {
            return Err("the test that is called does not do what its answer says".into());
        }
    }
    Ok(())
}

/// What does in the stub what the access does.
fn performed(cx: &Context, access: &Insn, exit: &Exit) -> Option<u64> {
    let i = exit.performed.as_ref()?;
    let goes_on = access.flow == Flow::JumpInd || exit.to == access.end();
    (goes_on && has_prefix(cx, i, GS)).then_some(i.va)
}

/// The stub found the access to lie in one block, whose tag allows it.
fn is_allowed(exit: &Exit, target: &GuardedAddress, store: bool) -> bool {
    let within = exit.path.iter().any(|(c, outcome)| {
        matches!(c, Cond::Straddle { lin, limit } if *lin == target.lin && *limit == 64 - i64::from(target.size))
            && !outcome
    });
    let open = exit.path.iter().any(|(c, outcome)| {
        matches!(c, Cond::Tag { lin, bytes: 1, mask } if *lin == target.lin && *mask == u32::from(allowed(store)))
            && *outcome
    });
    within && open && (2..=64).contains(&target.size)
}
