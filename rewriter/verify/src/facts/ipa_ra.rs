//! Whether callers keep values over indirect calls in registers that the ABI lets a callee change, as with gcc's `-fipa-ra`.
//!
//! Input: [`Graph`], decoded text. Output: whether the module's code reads such a register behind such a call, before anything writes it.
//! What the types of pointers say of conventions (`ms_abi`, `preserve_most` and the like) shows nowhere else. The way ends at the next call, and where
//! a function begins. Inserted instructions are skipped. Compilers leave a register undefined where they prove that its value does not matter, so a read
//! on some ways only proves nothing, unless many calls have one. **Invariant**: a read that counts is one for sure; some are not known here, which makes the
//! audit more lenient, never wrong about a program that follows the ABI. Source: psABI figure 3.4 (registers across calls).

use crate::decode::decoder::Code;
use crate::decode::effects::{CALLEE_SAVED, RAX, RDX, bit};
use crate::decode::insn::Insn;
use crate::graph::blocks::{End, Graph};
use crate::sites::site::{Sites, get};

/// Registers that no caller relies on who knows only the ABI.
const VOLATILE: u16 = !(CALLEE_SAVED | bit(RAX) | bit(RDX));
/// Calls for each with such a read on some ways.
const FEW: usize = 32;

/// Looks behind all indirect calls.
pub fn find(g: &Graph, text: &Code, sites: &Sites) -> bool {
    let n = g.starts.len();
    let mut begins = vec![false; n];
    let callees = g.ends.iter().filter_map(|e| if let End::Call(c) = e { *c } else { None });
    g.entries.iter().copied().chain(callees).for_each(|b| begins[b as usize] = true);
    let calls: Vec<usize> = (0..n).filter(|&b| g.ends[b] == End::CallInd { through_rax: false }).collect();
    let (reads, writes): (Vec<u16>, Vec<u16>) = (0..n).map(|b| of_block(g, text, sites, b)).unzip();
    let kept = |all: bool| {
        let used = solve(g, &begins, &reads, &writes, all);
        calls.iter().filter(|&&c| g.succ(c).iter().any(|&s| !begins[s as usize] && used[s as usize] != 0)).count()
    };
    kept(true) > 0 || kept(false) * FEW > calls.len()
}

/// What is read behind the start of each block on all ways, or on some.
fn solve(g: &Graph, begins: &[bool], reads: &[u16], writes: &[u16], all: bool) -> Vec<u16> {
    let mut used = reads.to_vec();
    loop {
        let mut changed = false;
        for b in (0..used.len()).rev().filter(|&b| goes_on(g.ends[b])) {
            let ways = g.succ(b).iter().map(|&s| if begins[s as usize] { 0 } else { used[s as usize] });
            let behind = ways.reduce(|x, y| if all { x & y } else { x | y }).unwrap_or(0);
            let now = reads[b] | (behind & !writes[b]);
            changed |= now != used[b];
            used[b] = now;
        }
        if !changed {
            return used;
        }
    }
}

fn goes_on(end: End) -> bool {
    matches!(end, End::Fall | End::Jump(_) | End::Cond(_) | End::Table(_))
}

/// Volatile registers that a block reads before it writes them, and those that it writes.
fn of_block(g: &Graph, text: &Code, sites: &Sites, b: usize) -> (u16, u16) {
    let (mut read, mut written) = (0, 0);
    for k in g.range(b, text).filter(|&k| !get(&sites.inserted, k)) {
        read |= matters(&text.insns[k]) & !written;
        written |= text.insns[k].fx.writes;
    }
    (read & VOLATILE, written)
}

/// Registers whose values an instruction surely uses, as far as the common ones go.
fn matters(i: &Insn) -> u16 {
    if i.is_nop() {
        return 0;
    }
    let of = |reg: u8| if reg < 16 { bit(reg) } else { 0 };
    let address = i.mem.map_or(0, |m| of(m.base) | of(m.index));
    let operands = match i.op {
        // add, adc, sub, cmp, test, imul; and those whose result is a number where both operands are the same.
        0x00..=0x03 | 0x10..=0x13 | 0x38..=0x3b | 0x84 | 0x85 | 0x1af => of(i.r0) | of(i.r1),
        0x08..=0x0b | 0x20..=0x23 => of(i.r0) | of(i.r1),
        0x18..=0x1b | 0x28..=0x2b | 0x30..=0x33 if i.mem.is_some() || i.r0 != i.r1 => of(i.r0) | of(i.r1),
        // mov, movsxd, movzx, movsx
        0x88..=0x8b | 0x63 | 0x1b6 | 0x1b7 | 0x1be | 0x1bf => of(i.r1),
        // With a number; not `or` and `and`.
        0x80 | 0x81 | 0x83 if !matches!(i.ext, 1 | 4) => of(i.r0),
        _ => 0,
    };
    address | operands
}
