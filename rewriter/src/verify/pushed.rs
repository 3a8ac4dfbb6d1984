//! Returns that are jumps in other words: to an address that the code has just pushed, or on a stack that it has just chosen.
//!
//! Input: decoded text without inserted instructions, the instructions of a block that ends with a return. Output: whether the word that the
//! return takes was put there by the block. `push x; ret`, `mov [rsp], x; ret`, `sub rsp, 8; ret`, `mov rsp, x; ret`.
//! **Invariant**: an ordinary return takes a word that lies above everything that the block has pushed and not popped, and rsp comes from
//! rsp or, by `leave` and its kin, from rbp.
//! Source: SDM volume 2, RET; psABI section 3.2.2.

use super::decode::{Insn, NONE};
use super::effects::RSP;

/// The register that functions with a frame keep rsp in.
const RBP: u8 = 5;

/// Whether the return behind `body`, the block's own instructions in front of it, is a jump.
pub(super) fn leads_to_pushed<'a>(body: impl Iterator<Item = &'a Insn>) -> bool {
    // Heights are relative to rsp at the block's start.
    let mut height = 0i64;
    let mut highest = 0i64;
    let mut stored: Vec<i64> = Vec::new();
    let mut chosen = false;
    for i in body {
        if let Some(m) = i.mem.filter(|m| m.base == RSP && m.index == NONE && m.seg == 0)
            && matches!(i.op, 0x89 | 0xc7)
        {
            stored.push(height + m.disp);
        }
        match step(i) {
            Some(Step::By(n)) => height += n,
            Some(Step::Frame) => (height, highest, chosen) = (0, 0, false),
            Some(Step::Chosen) => chosen = true,
            None => {}
        }
        if matches!(step(i), Some(Step::Frame)) {
            stored.clear();
        }
        highest = highest.max(height);
    }
    chosen || height < highest || stored.contains(&height)
}

/// What an instruction does to rsp.
enum Step {
    By(i64),
    /// Takes it from the frame pointer.
    Frame,
    /// Takes it from anything else.
    Chosen,
}

fn step(i: &Insn) -> Option<Step> {
    let on_rsp = i.r0 == RSP && i.r0_bytes == 8 && i.mem.is_none();
    Some(match i.op {
        0x5c if i.r0 == RSP => Step::Chosen,
        0x50..=0x57 | 0x68 | 0x6a | 0x9c => Step::By(-8),
        0xff if i.ext == 6 => Step::By(-8),
        0x58..=0x5f | 0x9d => Step::By(8),
        0x8f => Step::By(8),
        0x81 | 0x83 if on_rsp && i.ext == 0 => Step::By(i.imm),
        0x81 | 0x83 if on_rsp && i.ext == 5 => Step::By(-i.imm),
        0xc9 => Step::Frame,
        0x8d if i.r0 == RSP => match i.mem {
            Some(m) if m.base == RSP && m.index == NONE => Step::By(m.disp),
            Some(m) if m.base == RBP && m.index == NONE => Step::Frame,
            _ => Step::Chosen,
        },
        0x89 | 0x8b if on_rsp => match i.r1 {
            RBP => Step::Frame,
            RSP => return None,
            _ => Step::Chosen,
        },
        0x8b if i.r0 == RSP => Step::Chosen,
        0x87 | 0x90..=0x97 if i.r0 == RSP || i.r1 == RSP => Step::Chosen,
        _ => return None,
    })
}
