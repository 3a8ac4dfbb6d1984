//! The old executable sections, byte by byte, and the trap map.
//!
//! Input: module, decoded text, sites, perhaps the original. Output: springboards, trap entries, counts, findings. Each byte is part of a
//! springboard (`jmp rel32` to the begin of a new instruction, or a chain of `jmp rel8` to such a jump; or a `ret` whose new code is no more), a trap byte, or untouched; nothing that is known to be
//! executed may be untouched. A `jmp rel32` whose five bytes are the original's was not written: its bytes are untouched. Source: `rewriter/DESIGN.md`,
//! "Where things go in the output".

use crate::audit::{Audit, OldCode};
use crate::decode::decoder::Code;
use crate::decode::effects::Flow;
use crate::file::module::Module;
use crate::judge::old_code::original::Original;
use crate::sites::site::{Sites, get};
use blizzard_contract::{SPRINGBOARD_JUMPS, TrapEntry};

const TRAP: u8 = 0xcc;
const JMP: u8 = 0xe9;
const JMP_SHORT: u8 = 0xeb;
const RET: u8 = 0xc3;

/// What stands at an old address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    Springboard(u64),
    Trap,
    Untouched,
    /// Not in an old code section.
    Elsewhere,
}

/// Ways from old addresses to new code.
#[derive(Debug, Default)]
pub struct Old {
    /// (old, new), sorted.
    pub springboards: Vec<(u64, u64)>,
    /// Their jumps: address and bytes, sorted. A springboard consists of one jump, or of short ones to another.
    pub pieces: Vec<(u64, u64)>,
    pub traps: Vec<TrapEntry>,
}

impl Old {
    /// The new address for an old one, by springboard or trap map.
    pub fn new_address(&self, m: &Module, old: u64) -> Option<u64> {
        if let Ok(k) = self.springboards.binary_search_by_key(&old, |s| s.0) {
            return Some(self.springboards[k].1);
        }
        self.row(m, old)
    }

    /// The new address that the trap map has for an old one.
    fn row(&self, m: &Module, old: u64) -> Option<u64> {
        let key = u32::try_from(old.wrapping_sub(m.info.old_base_va)).ok()?;
        let k = self.traps.binary_search_by_key(&key, |t| t.old).ok()?;
        Some(m.info.new_base_va + u64::from(self.traps[k].new))
    }

    /// An old address of a section with code, or behind its last byte, that nothing relates to a new one.
    pub fn is_no_instruction(&self, m: &Module, old: u64) -> bool {
        m.old_code().any(|s| (s.va..=s.va + s.data.len() as u64).contains(&old)) && self.new_address(m, old).is_none()
    }

    /// A jump of a springboard covers the old address.
    pub fn in_springboard(&self, old: u64) -> bool {
        let k = self.pieces.partition_point(|p| p.0 <= old);
        self.pieces[..k].last().is_some_and(|p| old < p.0 + p.1)
    }

    /// All pairs of an old address and the new one it leads to.
    pub fn all(&self, m: &Module) -> impl Iterator<Item = (u64, u64)> {
        let (old_base, new_base) = (m.info.old_base_va, m.info.new_base_va);
        let traps = self.traps.iter().map(move |t| (old_base + u64::from(t.old), new_base + u64::from(t.new)));
        self.springboards.iter().copied().chain(traps)
    }

    /// What stands at `old`.
    pub fn at(&self, m: &Module, old: u64) -> At {
        if let Ok(k) = self.springboards.binary_search_by_key(&old, |s| s.0) {
            return At::Springboard(self.springboards[k].1);
        }
        if self.in_springboard(old) {
            return At::Untouched;
        }
        let Some(s) = m.old_code().find(|s| old.wrapping_sub(s.va) < s.data.len() as u64) else { return At::Elsewhere };
        if s.data[(old - s.va) as usize] == TRAP { At::Trap } else { At::Untouched }
    }
}

/// Scans the old sections.
pub fn scan(m: &Module, text: &Code, original: Option<&Original>, audit: &mut Audit) -> Old {
    let mut old = Old::default();
    match m.traps() {
        Some(t) => old.traps = t,
        None => audit.finding(
            m.info.trap_codes_va,
            "trap map".into(),
            "the trap map is not in the file, or its parts contradict each other",
        ),
    }
    audit.trap_entries = old.traps.len() as u64;
    let (mut springboards, mut pieces, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
    for s in m.old_code() {
        let mut o = OldCode { section: s.name.clone(), bytes: s.data.len() as u64, ..OldCode::default() };
        let mut k = 0;
        let mut run = false;
        // No jump of the original leads to new code. Bytes of data may read as one that does.
        let was_there = |k: usize| original.is_some_and(|o| o.bytes_at(s.va + k as u64, 5) == s.data.get(k..k + 5));
        let long = |k: usize| match s.data.get(k..k + 5) {
            Some([JMP, d @ ..]) if !was_there(k) => {
                let d = i32::from_le_bytes([d[0], d[1], d[2], d[3]]);
                let target = (s.va + k as u64).wrapping_add(5).wrapping_add(d as u64);
                Some(target).filter(|t| t.wrapping_sub(m.text.va) < m.text.data.len() as u64)
            }
            _ => None,
        };
        let step = |k: usize| match s.data.get(k..k + 2) {
            Some(&[JMP_SHORT, d]) => (k + 2).checked_add_signed(isize::from(d as i8)),
            _ => None,
        };
        // Over further jumps, where there is no room for five bytes.
        let over = |k: usize| {
            let second = step(k)?;
            let mut jumps = std::iter::successors(Some(second), |&k| step(k)).take(SPRINGBOARD_JUMPS - 1);
            jumps.find_map(long).map(|t| (second, t))
        };
        // What may stay, because its new code is the same.
        let ret = |k: usize| {
            let va = s.va + k as u64;
            let new = old.row(m, va).filter(|_| s.data.get(k) == Some(&RET))?;
            let same = text.at(new).is_some_and(|i| text.insns[i].flow == Flow::Ret && text.insns[i].len == 1);
            same.then_some(new)
        };
        let short = |k: usize| {
            let (second, t) = over(k)?;
            // A displacement that is a trap byte serves as one, too, and one that is a springboard's first byte as that.
            let other = s.data[k + 1] == TRAP || long(k + 1).is_some() || over(k + 1).is_some() || ret(k + 1).is_some();
            Some((second, t, if other { 1 } else { 2 }))
        };
        while k < s.data.len() {
            let va = s.va + k as u64;
            let jump = long(k).map(|t| (t, 5)).or_else(|| {
                let (second, t, bytes) = short(k)?;
                seconds.push(s.va + second as u64);
                Some((t, bytes))
            });
            if let Some((t, bytes)) = jump.or_else(|| Some((ret(k)?, 1))) {
                springboards.push((va, t));
                pieces.push((va, bytes));
                (k, run) = (k + bytes as usize, false);
                continue;
            }
            if s.data[k] == TRAP {
                o.trap_bytes += 1;
                run = false;
            } else {
                o.untouched_bytes += 1;
                o.untouched_runs += u64::from(!run);
                run = true;
            }
            k += 1;
        }
        audit.old_code.push(o);
    }
    springboards.sort_unstable();
    pieces.sort_unstable();
    (old.springboards, old.pieces) = (springboards, pieces);
    // A second jump is no springboard of its own address.
    seconds.sort_unstable();
    old.springboards.retain(|b| seconds.binary_search(&b.0).is_err());
    for o in &mut audit.old_code {
        let Some(s) = m.old_code().find(|s| s.name == o.section) else { continue };
        let end = s.va + s.data.len() as u64;
        let n = old.springboards.partition_point(|b| b.0 < end) - old.springboards.partition_point(|b| b.0 < s.va);
        o.springboards = n as u64;
    }
    old
}

/// Counts the ways from every old address that data, symbols or instructions name.
pub fn targets(m: &Module, old: &Old, named: impl Iterator<Item = u64>, audit: &mut Audit) {
    let exported = m.exported.iter().map(|s| s.va);
    let mut all: Vec<u64> =
        m.pointers.iter().copied().chain(m.called.iter().copied()).chain(exported).chain(named).collect();
    all.sort_unstable();
    all.dedup();
    for va in all {
        match (old.at(m, va), old.new_address(m, va)) {
            (At::Elsewhere, _) => {}
            (At::Springboard(_), _) => audit.targets.springboards += 1,
            (_, Some(_)) => audit.targets.traps += 1,
            (At::Untouched, None) => audit.targets.data += 1,
            (At::Trap, None) => audit.targets.inside += 1,
        }
    }
}

/// Each function, and each label, has one address: nothing leads to the old one of what symbols or words of data name by its new address. `named`: old
/// addresses that instructions name, sorted.
pub fn renewed(m: &Module, text: &Code, old: &Old, named: &[u64], audit: &mut Audit) {
    let mut new: Vec<u64> = m.exported.iter().map(|s| s.va).filter(|&va| text.contains(va)).collect();
    new.sort_unstable();
    new.dedup();
    audit.targets.direct = new.len() as u64;
    audit.targets.words = m.renewed.len() as u64;
    new.extend(&m.renewed);
    new.sort_unstable();
    new.dedup();
    let mut found = vec![false; new.len()];
    for (from, to) in old.all(m) {
        let Ok(k) = new.binary_search(&to) else { continue };
        found[k] = true;
        let other = m.exported.iter().any(|s| s.va == from);
        if other || m.pointers.binary_search(&from).is_ok() || named.binary_search(&from).is_ok() {
            audit.finding(from, m.place(to), format!("what stands here is known by its new address {to:#x}, too"));
        }
    }
    for (&va, _) in new.iter().zip(found).filter(|(_, found)| !found) {
        audit.finding(va, m.place(va), "a symbol or a word names a place where none of the old code leads");
    }
    for &place in &m.displaced {
        audit.finding(place, "relocation".into(), "leads to a distance from a function's new address");
    }
}

/// Judges springboards, trap map and what is known to be executed at old addresses.
pub fn judge(m: &Module, text: &Code, sites: &Sites, old: &Old, audit: &mut Audit) {
    let landing = |va: u64| match text.at(va) {
        None => Some("leads to no instruction of the new code"),
        Some(i) if get(&sites.protected, i) => Some("leads between a check and its access"),
        Some(_) => None,
    };
    for &(from, to) in &old.springboards {
        if let Some(why) = landing(to) {
            audit.finding(from, m.place(from), format!("springboard to {to:#x} {why}"));
        }
    }
    let mut before = None;
    for t in &old.traps {
        let (from, to) = (m.info.old_base_va + u64::from(t.old), m.info.new_base_va + u64::from(t.new));
        if before.is_some_and(|b| b >= t.old) {
            audit.finding(from, m.place(from), "the trap map is not sorted");
        }
        before = Some(t.old);
        if let Some(why) = landing(to) {
            audit.finding(from, m.place(from), format!("trap-map entry for it, {to:#x}, {why}"));
            continue;
        }
        match old.at(m, from) {
            // Inside a springboard no trap can happen.
            At::Untouched if !old.in_springboard(from) => {
                audit.finding(from, m.place(from), "old code that the trap map names is still there");
            }
            At::Springboard(s) if s != to => {
                audit.finding(from, m.place(from), "springboard and trap map disagree");
            }
            At::Elsewhere => audit.finding(from, m.place(from), "trap-map entry outside old code"),
            _ => {}
        }
    }
    for s in &m.exported {
        if old.at(m, s.va) != At::Elsewhere && old.new_address(m, s.va).is_none() {
            audit.finding(s.va, s.name.clone(), "exported function without a way to its new code");
        }
    }
    for &va in &m.called {
        if old.at(m, va) != At::Elsewhere && old.new_address(m, va).is_none() {
            let why = "function that the dynamic loader calls without a way to its new code";
            audit.finding(va, m.place(va), why);
        }
    }
    if m.functions.is_empty() && !text.insns.is_empty() {
        audit.trust("new code has no frame table: function bounds from symbols", 1);
    }
}
