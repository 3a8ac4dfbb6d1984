//! Which registers certainly hold a number of 32 bits.
//!
//! Input: [`Graph`], decoded text, sites. Output: the registers, by block. A forward must-analysis as [`crate::facts::stack`], over
//! the program's own instructions: nothing is known at entries and indirect targets, nor at any instruction of a part with an unresolved jump: it may lead
//! into the middle of a block.
//! Source: SDM volume 1, 3.4.1.1 (results of 32 bits clear the upper half); volume 2 (movsx, movsxd, cdqe, cmov).

use crate::decode::decoder::Code;
use crate::decode::effects::{CALLEE_SAVED, Flow, RAX, bit};
use crate::decode::insn::{Insn, PREFIXED, WIDE};
use crate::graph::blocks::Graph;
use crate::sites::site::{Sites, get};

/// The registers with numbers of 32 bits at each block's start.
pub(crate) fn solve(g: &Graph, text: &Code, sites: &Sites) -> Vec<u16> {
    let n = g.starts.len();
    let mut state = vec![0xffffu16; n];
    let mut open = g.open();
    let continues = g.continues(text, &open);
    // Code that no known way reaches may be entered from anywhere.
    let mut known = open.clone();
    (0..n).filter(|&b| continues[b]).for_each(|b| known[b + 1] = true);
    let reached = g.reached(&known);
    open.iter_mut().zip(reached).for_each(|(open, reached)| *open |= !reached);
    (0..n).filter(|&b| open[b]).for_each(|b| state[b] = 0);
    let mut queued = vec![true; n];
    let mut work: Vec<u32> = (0..n as u32).rev().collect();
    while let Some(b) = work.pop() {
        let b = b as usize;
        queued[b] = false;
        let set = behind(g, text, sites, b, g.range(b, text), state[b]);
        let behind_call = continues[b].then_some(b + 1);
        for t in g.succ(b).iter().map(|&t| t as usize).chain(behind_call) {
            let met = state[t] & set;
            if met != state[t] && !open[t] {
                state[t] = met;
                if !std::mem::replace(&mut queued[t], true) {
                    work.push(t as u32);
                }
            }
        }
    }
    state
}

/// The set behind instructions of `block`, from its beginning.
pub(crate) fn behind(
    g: &Graph,
    text: &Code,
    sites: &Sites,
    block: usize,
    range: std::ops::Range<usize>,
    set: u16,
) -> u16 {
    if is_wild(g, block) {
        return 0;
    }
    range.filter(|&k| !get(&sites.inserted, k)).fold(set, |set, k| step(set, &text.insns[k]))
}

/// Whether an unresolved jump may lead to any instruction of a block.
fn is_wild(g: &Graph, block: usize) -> bool {
    g.wild[g.component[block] as usize]
}

/// The set behind an instruction of the program.
fn step(set: u16, i: &Insn) -> u16 {
    match i.flow {
        Flow::Next | Flow::Cond | Flow::Jump | Flow::JumpInd => {}
        // The convention keeps these over calls.
        Flow::Call | Flow::CallInd => return set & CALLEE_SAVED,
        _ => return 0,
    }
    // The kernel's results.
    if matches!(i.op, 0x105 | 0x134 | 0xcd) {
        return 0;
    }
    let left = set & !i.fx.writes;
    match (i.op, &i.mem) {
        (0x89 | 0x8b, None) if i.has(WIDE) && i.r0 < 16 && i.r1 < 16 => {
            if set & bit(i.r1) != 0 {
                left | bit(i.r0)
            } else {
                left
            }
        }
        _ => left | leaves_32_bits(i),
    }
}

/// The register that an instruction leaves with a number of 32 bits, whatever its operands hold.
pub(crate) fn leaves_32_bits(i: &Insn) -> u16 {
    match i.op {
        // cdqe.
        0x98 if i.has(WIDE) => return bit(RAX),
        // add, or, and, sub, xor of eax and a constant; mov of eax from a constant address.
        0x05 | 0x0d | 0x25 | 0x2d | 0x35 | 0xa1 if !i.has(WIDE) && !i.has(PREFIXED) => return bit(RAX),
        _ => {}
    }
    if i.r0 >= 16 {
        return 0;
    }
    let dword = i.r0_bytes == 4;
    let to_register = i.mem.is_none();
    let yes = match i.op {
        // movsxd, movzx, movsx.
        0x63 | 0x1b6 | 0x1b7 | 0x1be | 0x1bf => i.r0_bytes >= 4,
        // mov, lea; mov of a constant.
        0x8b | 0x8d => dword,
        0x89 => dword && to_register,
        0xb8..=0xbf => dword,
        0xc7 => to_register && i.r0_bytes >= 4 && i.ext == 0,
        // add, or, and, sub, xor: into the register, or with it as the first operand.
        0x03 | 0x0b | 0x23 | 0x2b | 0x33 => dword,
        0x01 | 0x09 | 0x21 | 0x29 | 0x31 => dword && to_register,
        0x81 | 0x83 => dword && to_register && matches!(i.ext, 0 | 1 | 4 | 5 | 6),
        // inc, dec; not, neg.
        0xff => dword && to_register && i.ext < 2,
        0xf7 => dword && to_register && matches!(i.ext, 2 | 3),
        // imul with two or three operands.
        0x69 | 0x6b | 0x1af => dword,
        // shl, shr, sar by a constant.
        0xc1 => dword && to_register && matches!(i.ext, 4 | 5 | 7) && i.imm & 31 != 0,
        0xd1 => dword && to_register && matches!(i.ext, 4 | 5 | 7),
        // cmov clears the upper half whatever its condition.
        0x140..=0x14f => dword,
        _ => false,
    };
    if yes { bit(i.r0) } else { 0 }
}
