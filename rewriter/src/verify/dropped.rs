//! Callees that take their return address off the stack, so that they return to their callers' callers.
//!
//! Input: [`Graph`], decoded text. Output: a bitmap of entries. Inserted instructions are skipped: they leave rsp as it was.
//! Followed are the first instructions behind an entry, as long as the distance from its stack pointer is a known number.

use super::decode::{Code, Insn, NONE, WIDE};
use super::effects::{Flow, RSP, bit};
use super::graph::{End, Graph};
use super::sites::{Sites, get};

/// The program's own instructions looked at behind an entry.
const DEPTH: usize = 64;

/// Looks at all direct callees.
pub fn find(g: &Graph, text: &Code, sites: &Sites) -> Vec<u64> {
    let mut callees: Vec<u32> = g.ends.iter().filter_map(|e| if let End::Call(c) = e { *c } else { None }).collect();
    callees.sort_unstable();
    callees.dedup();
    let mut found = vec![0u64; g.starts.len() / 64 + 1];
    for c in callees.into_iter().filter(|&c| rises_above(g, text, sites, c)) {
        found[c as usize / 64] |= 1 << (c % 64);
    }
    found
}

/// Whether rsp comes to lie above the return address.
fn rises_above(g: &Graph, text: &Code, sites: &Sites, entry: u32) -> bool {
    let mut ways = vec![(entry, 0i64)];
    let mut known = vec![entry];
    let mut budget = DEPTH;
    while let Some((b, mut above)) = ways.pop() {
        let mut lost = false;
        for k in g.range(b as usize, text).filter(|&k| !get(&sites.inserted, k)) {
            if budget == 0 {
                return false;
            }
            budget -= 1;
            let i = &text.insns[k];
            if i.flow != Flow::Next || i.fx.writes & bit(RSP) == 0 {
                continue;
            }
            match step(i) {
                Some(by) => above += by,
                None => {
                    lost = true;
                    break;
                }
            }
            if above > 0 {
                return true;
            }
        }
        if lost {
            continue;
        }
        for &s in g.succ(b as usize) {
            if !known.contains(&s) {
                known.push(s);
                ways.push((s, above));
            }
        }
    }
    false
}

/// By how many bytes rsp rises; `None` where no number says so.
fn step(i: &Insn) -> Option<i64> {
    let wide = i.has(WIDE);
    match (i.op, &i.mem) {
        (0x50..=0x57 | 0x68 | 0x6a | 0x9c, _) => Some(-8),
        (0x58..=0x5f, _) if i.r0 != RSP => Some(8),
        (0x9d, _) => Some(8),
        (0x8f, Some(_)) => Some(8),
        (0xff, _) if i.ext == 6 => Some(-8),
        (0x81 | 0x83, None) if wide && i.ext == 0 => Some(i.imm),
        (0x81 | 0x83, None) if wide && i.ext == 5 => Some(-i.imm),
        (0x8d, Some(m)) if wide && m.base == RSP && m.index == NONE && m.seg == 0 => Some(m.disp),
        _ => None,
    }
}
