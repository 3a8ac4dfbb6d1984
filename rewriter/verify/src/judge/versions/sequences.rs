//! The prefix for the alias, and what stubs do in place of an access.
//!
//! Input: both versions, cold code. Output: findings. **Invariants**: an instruction has the prefix only behind a test that proves its address shared and
//! allowed, or as the test of a tag; what a stub does is the instruction of plain code, byte for byte; no operand is a constant address of the alias.
//! Source: `rewriter/SEQUENCES.md`, "Guarded code".

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::decode::insn::{FS, GS, Insn};
use crate::decode::raw::{prefixes, without_segments};
use crate::file::module::Module;
use crate::judge::versions::pairs::{NONE, Version, Versions, bytes};
use crate::sites::site::{Site, SiteKind, get};
use crate::sites::symbolic::is_tag_test_at_alias;
use blizzard_contract as contract;
use std::collections::BTreeSet;

/// Judges all tests, and all that has the prefix.
pub(crate) fn judge(m: &Module, v: &Versions, cold: &Code, audit: &mut Audit) {
    let mut at_alias: BTreeSet<u64> = BTreeSet::new();
    let full = |s: &Site| v.plain_of.get(v.full.own_from(s.access)).copied();
    let plain = |s: &Site| Some(v.plain.own_from(s.access) as u32);
    let tests = v.full.sites.list.iter().map(|s| (&v.full, full(s), s));
    let tests = tests.chain(v.plain.sites.list.iter().map(|s| (&v.plain, plain(s), s)));
    for (version, of, s) in tests.filter(|(_, _, s)| s.problem.is_none()) {
        if let SiteKind::Check { .. } = s.kind {
            at_alias.insert(version.insn(s.access).va);
        }
        if let SiteKind::Large = s.kind {
            at_alias.extend(&s.performed);
        }
        if matches!(s.kind, SiteKind::Check { .. } | SiteKind::Large)
            && let Err(why) = performs(m, v, version, s, of, cold)
        {
            let va = version.insn(s.access).va;
            audit.finding(va, m.place(va), why);
        }
    }
    let alias = contract::SEGMENT_BASE + contract::ALIAS_DISTANCE;
    let alias = alias..alias + contract::SEGMENT_WINDOW_BYTES;
    at_alias.extend(tag_tests(v, cold));
    // What stands in copies of loops is proven with them, of plain code alone.
    let copies = v.plain.sites.list.iter().filter_map(|s| s.strip.as_ref()?.copy.as_ref());
    at_alias.extend(copies.flat_map(|c| &c.blocks).flat_map(|b| &cold.insns[b.clone()]).map(|i| i.va));
    for s in v.full.sites.list.iter().filter(|s| s.kind == SiteKind::Strip) {
        let va = v.full.insn(s.start).va;
        audit.finding(va, m.place(va), "a loop of full code tests for several iterations");
    }
    let hot = v.plain.code.insns.iter().chain(&v.full.code.insns).map(|i| (i, bytes(m, i)));
    let mut numbers = 0;
    for (i, bytes) in hot.chain(cold.insns.iter().map(|i| (i, cold_bytes(m, i)))) {
        if prefixes(bytes).contains(&GS) && !at_alias.contains(&i.va) {
            audit.finding(i.va, m.place(i.va), "goes to the alias without a test");
        }
        if names_base_of_gs(bytes) {
            audit.finding(i.va, m.place(i.va), "reads or moves the base of %gs, which leads to the alias");
        }
        if let Some(mem) = i.mem.filter(|mem| alias.contains(&(mem.disp as u64))) {
            audit.finding(i.va, m.place(i.va), format!("accesses the address {:#x} of the alias", mem.disp));
        }
        // A program may have any number; whether it makes an address of it cannot be seen.
        numbers += u64::from(i.flow == Flow::Next && alias.contains(&(i.imm as u64)));
    }
    audit.trust("numbers in instructions that would be addresses of the alias", numbers);
}

/// `rdgsbase` or `wrgsbase` (SDM volume 2: F3 0F AE /1 and /3, a register).
fn names_base_of_gs(bytes: &[u8]) -> bool {
    let behind = |part: &[u8]| match *part {
        [0x0f, 0xae, modrm] | [0x40..=0x4f, 0x0f, 0xae, modrm] => matches!(modrm & 0xf8, 0xc8 | 0xd8),
        _ => false,
    };
    let prefixes = prefixes(bytes);
    prefixes.contains(&0xf3) && behind(&bytes[prefixes.len()..])
}

/// The tests of tags in sequences and their stubs.
fn tag_tests<'x>(v: &'x Versions, cold: &'x Code) -> impl Iterator<Item = u64> + 'x {
    let hot = [&v.plain, &v.full].into_iter().flat_map(|v| {
        let all = v.code.insns.iter().enumerate();
        all.filter(|(k, _)| get(&v.sites.inserted, *k))
    });
    let claimed = |k: usize| get(&v.plain.sites.claimed, k) || get(&v.full.sites.claimed, k);
    let stubs = cold.insns.iter().enumerate().filter(move |(k, _)| claimed(*k));
    hot.chain(stubs).map(|(_, i)| i).filter(|i| is_tag_test_at_alias(i)).map(|i| i.va)
}

/// What is private goes behind the prefix, and the stub of a large area makes the access itself: what is there is the instruction of plain code, which
/// has the prefix, too, where plain code tests it. `of`: its position in plain code.
fn performs(m: &Module, v: &Versions, version: &Version, s: &Site, of: Option<u32>, cold: &Code) -> Result<(), String> {
    let pair = of.filter(|p| *p != NONE).ok_or("the access is none of plain code")?;
    let plain = v.plain.own[pair as usize] as usize;
    let tested = v.plain.test_of(plain).is_some_and(|s| matches!(s.kind, SiteKind::Check { .. }));
    let was = bytes(m, v.plain.insn(plain));
    // A segment's prefix means something if it is one of those.
    let has_base = !tested && prefixes(was).iter().any(|p| matches!(*p, FS | GS));
    let has = |is: &[u8]| is.split_first() == Some((&GS, &without_segments(was)[..]));
    let is = match s.performed[..] {
        [] => bytes(m, version.insn(s.access)),
        [va] => cold.at(va).map(|k| cold_bytes(m, &cold.insns[k])).unwrap_or(&[]),
        _ => &[],
    };
    if has(is) && !has_base {
        Ok(())
    } else {
        Err("what is private, or a stub, does not make the access of plain code".into())
    }
}

fn cold_bytes<'a>(m: &Module<'a>, i: &Insn) -> &'a [u8] {
    let at = i.va.wrapping_sub(m.cold.va) as usize;
    m.cold.data.get(at..at + usize::from(i.len)).unwrap_or(&[])
}
