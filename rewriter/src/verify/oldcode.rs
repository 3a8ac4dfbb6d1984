//! The old executable sections, byte by byte, and the trap map.
//!
//! Input: module, decoded text, sites. Output: springboards, trap entries, counts, findings. Each byte is part of a
//! springboard (`jmp rel32` to the begin of a new instruction, or `jmp rel8` to such a jump), a trap byte, or untouched; nothing that is known to be
//! executed may be untouched. Source: `rewriter/DESIGN.md`, "Where things go in the output".

use super::audit::{Audit, OldCode};
use super::decode::Code;
use super::module::Module;
use super::sites::{Sites, get};
use crate::ids::Vaddr;
use blizzard_rt::abi::TrapEntry;

const TRAP: u8 = 0xcc;
const JMP: u8 = 0xe9;
const JMP_SHORT: u8 = 0xeb;

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
    pub traps: Vec<TrapEntry>,
}

impl Old {
    /// The new address for an old one, by springboard or trap map.
    pub fn new_address(&self, m: &Module, old: u64) -> Option<u64> {
        if let Ok(k) = self.springboards.binary_search_by_key(&old, |s| s.0) {
            return Some(self.springboards[k].1);
        }
        let key = u32::try_from(old.wrapping_sub(m.info.old_base_va)).ok()?;
        let k = self.traps.binary_search_by_key(&key, |t| t.old).ok()?;
        Some(m.info.new_base_va + u64::from(self.traps[k].new))
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
        let k = self.springboards.partition_point(|s| s.0 <= old);
        if self.springboards[..k].last().is_some_and(|s| old < s.0 + 5) {
            return At::Untouched;
        }
        let Some(s) = m.old_code().find(|s| old.wrapping_sub(s.va) < s.data.len() as u64) else { return At::Elsewhere };
        if s.data[(old - s.va) as usize] == TRAP { At::Trap } else { At::Untouched }
    }
}

/// Scans the old sections.
pub fn scan(m: &Module, text: &Code, audit: &mut Audit) -> Old {
    let mut old = Old::default();
    for s in m.old_code() {
        let mut o = OldCode { section: s.name.clone(), bytes: s.data.len() as u64, ..OldCode::default() };
        let mut k = 0;
        let mut run = false;
        while k < s.data.len() {
            let va = s.va + k as u64;
            let long = |k: usize| match s.data.get(k..k + 5) {
                Some([JMP, d @ ..]) => {
                    let d = i32::from_le_bytes([d[0], d[1], d[2], d[3]]);
                    Some((s.va + k as u64).wrapping_add(5).wrapping_add(d as u64)).filter(|&t| text.contains(t))
                }
                _ => None,
            };
            let target = match s.data[k..] {
                [JMP, ..] => long(k).map(|t| (t, 5)),
                // A displacement that is a trap byte serves as one, too.
                [JMP_SHORT, d, ..] => {
                    let pad = (k + 2).checked_add_signed(isize::from(d as i8)).and_then(long);
                    pad.map(|t| (t, if d == TRAP { 1 } else { 2 }))
                }
                _ => None,
            };
            if let Some((t, bytes)) = target {
                old.springboards.push((va, t));
                o.springboards += 1;
                (k, run) = (k + bytes, false);
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
    old.springboards.sort_unstable();
    match m.traps() {
        Some(t) => old.traps = t,
        None => audit.finding(Vaddr(m.info.trap_map_va), "trap map".into(), "the trap map is not in the file"),
    }
    audit.trap_entries = old.traps.len() as u64;
    old
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
            audit.finding(Vaddr(from), m.place(from), format!("springboard to {to:#x} {why}"));
        }
    }
    let mut before = None;
    for t in &old.traps {
        let (from, to) = (m.info.old_base_va + u64::from(t.old), m.info.new_base_va + u64::from(t.new));
        if before.is_some_and(|b| b >= t.old) {
            audit.finding(Vaddr(from), m.place(from), "the trap map is not sorted");
        }
        before = Some(t.old);
        if let Some(why) = landing(to) {
            audit.finding(Vaddr(from), m.place(from), format!("trap-map entry for it, {to:#x}, {why}"));
            continue;
        }
        match old.at(m, from) {
            At::Untouched => {
                // Inside a springboard no trap can happen.
                let k = old.springboards.partition_point(|s| s.0 <= from);
                if old.springboards[..k].last().is_none_or(|s| from >= s.0 + 5) {
                    audit.finding(Vaddr(from), m.place(from), "old code that the trap map names is still there");
                }
            }
            At::Springboard(s) if s != to => {
                audit.finding(Vaddr(from), m.place(from), "springboard and trap map disagree");
            }
            At::Elsewhere => audit.finding(Vaddr(from), m.place(from), "trap-map entry outside old code"),
            _ => {}
        }
    }
    for s in &m.exported {
        if old.at(m, s.va) == At::Untouched {
            audit.finding(Vaddr(s.va), s.name.clone(), "exported function whose old code is still there");
        }
    }
    if m.functions.is_empty() && !text.insns.is_empty() {
        audit.trust("new code has no frame table: function bounds from symbols", 1);
    }
}
