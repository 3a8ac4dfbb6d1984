//! Functions that take their return address off the stack.
//!
//! Purpose: a return behind that leads to the caller's caller, so what that one uses is live there, and the caller's own return site is
//! not where the call continues. Return thunks are such functions (gcc's `-mfunction-return=thunk`): every function of the program then
//! ends in a jump to code that calls the next few instructions. Input: the graph and the decoded instructions. Output: entries.
//!
//! Followed are the first [`MAX_INSNS`] instructions behind the entry, as long as the distance of rsp from the entry's is a known number.
//! Finding too many is safe: liveness adds what the caller's callers use to what the caller uses.

use super::facts::Facts;
use super::regs::RegSet;
use crate::cfg::{BlockId, Cfg, End};
use crate::disasm::{Flow, InsnId, Insns};
use crate::image::Image;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Instructions followed behind one entry.
const MAX_INSNS: usize = 64;

/// Entries of directly called functions that may take their return address off, ascending.
pub fn find(image: &Image, insns: &Insns, cfg: &Cfg, facts: &Facts) -> Vec<BlockId> {
    let mut called = vec![false; cfg.blocks.len()];
    for b in cfg.ids() {
        if let End::Call(callee) = cfg.blocks[b.ix()].end() {
            called[callee.ix()] = true;
        }
    }
    cfg.ids().filter(|b| called[b.ix()] && drops(image, insns, cfg, facts, *b)).collect()
}

fn drops(image: &Image, insns: &Insns, cfg: &Cfg, facts: &Facts, entry: BlockId) -> bool {
    // Blocks, and bytes that rsp is above its value at the entry.
    let mut work = vec![(entry, 0i64)];
    let mut seen = vec![entry];
    let mut left = MAX_INSNS;
    'blocks: while let Some((b, mut height)) = work.pop() {
        let block = &cfg.blocks[b.ix()];
        for id in (block.first.0..block.stop.0).map(InsnId) {
            if left == 0 {
                return false;
            }
            left -= 1;
            // A call puts its return address back.
            let moves = matches!(insns.flow(id), Flow::Next) && facts.effects(id).kills.meets(RegSet::RSP);
            if moves {
                let Some(by) = rises(&insns.decode(image, id)) else { continue 'blocks };
                height += by;
                if height > 0 {
                    return true;
                }
            }
        }
        for &s in cfg.succ(b) {
            if !seen.contains(&s) {
                seen.push(s);
                work.push((s, height));
            }
        }
    }
    false
}

/// By how many bytes an instruction raises rsp; `None`: not by a number.
fn rises(insn: &Instruction) -> Option<i64> {
    let to_rsp = insn.op_count() == 2 && insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP;
    let by_number = to_rsp && !matches!(insn.op1_kind(), OpKind::Register | OpKind::Memory);
    match insn.mnemonic() {
        Mnemonic::Add if by_number => Some(insn.immediate(1) as i64),
        Mnemonic::Sub if by_number => Some((insn.immediate(1) as i64).wrapping_neg()),
        Mnemonic::Lea if to_rsp && insn.memory_base() == Register::RSP && insn.memory_index() == Register::None => {
            Some(insn.memory_displacement64() as i64)
        }
        Mnemonic::Pop if insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP => None,
        Mnemonic::Push | Mnemonic::Pop | Mnemonic::Pushfq | Mnemonic::Popfq => {
            Some(insn.stack_pointer_increment().into())
        }
        _ => None,
    }
}
