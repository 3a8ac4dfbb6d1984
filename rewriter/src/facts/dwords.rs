//! Which registers certainly hold a number of 32 bits: the upper half is all zeros, or all ones.
//!
//! Input: graph, facts, computed targets. Output: [`DwordRegs`], by block.
//!
//! Purpose: an index of 32 bits leads less than [`FARTHEST`] bytes away from its base, so the base alone says whether the sum can be shared memory
//! ([`blizzard_contract::PRIVATE_REACH`]). A forward must-analysis within each component, as [`crate::facts::stack`]: nothing is known where control may come
//! from elsewhere, nor in all of a block that it may enter in its middle; behind a call, the callee-saved registers keep what they held (psABI 3.2.1).
//! Source: SDM volume 1, 3.4.1.1 (results of 32 bits clear the upper half).

use crate::decode::insn::InsnId;
use crate::decode::regs::RegSet;
use crate::facts::effects::DwordEffect;
use crate::facts::kinds::Facts;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::graph::computed_targets::Computed;
use blizzard_contract as contract;

/// Largest scale times 2^32, and a displacement.
const FARTHEST: u64 = (8 << 32) + (1 << 31);
const _: () = assert!(FARTHEST < contract::PRIVATE_REACH / 4);

/// The result: the set at each block's start.
#[derive(Debug)]
pub struct DwordRegs {
    start: Vec<u16>,
    /// By block: control may enter it in its middle.
    loose: Vec<bool>,
}

impl DwordRegs {
    /// Solves the equations.
    pub fn solve(cfg: &Cfg, facts: &Facts, computed: &Computed) -> DwordRegs {
        let n = cfg.blocks.len();
        let wild = cfg.wild();
        let loose = cfg.loose(&wild, computed);
        let mut open = cfg.entries(&wild);
        open.iter_mut().zip(&loose).for_each(|(open, loose)| *open |= loose);
        // Circles that nothing is known to lead into are entered anywhere.
        let reached = cfg.reached(&open);
        open.iter_mut().zip(reached).for_each(|(open, reached)| *open |= !reached);
        let mut start: Vec<u16> = open.iter().map(|o| if *o { 0 } else { 0xffff }).collect();
        let mut work: Vec<u32> = (0..n as u32).rev().collect();
        let mut queued = vec![true; n];
        while let Some(b) = work.pop() {
            queued[b as usize] = false;
            let id = BlockId(b);
            let block = &cfg.blocks[id.ix()];
            let call = matches!(block.end(), End::Call(_) | End::UnknownCall | End::DescriptorCall);
            let stop = block.stop.0 - u32::from(call);
            let mut set = start[id.ix()];
            if !loose[id.ix()] {
                set = (block.first.0..stop).fold(set, |set, i| facts.dwords(InsnId(i)).apply(set));
            }
            if call {
                set &= RegSet::CALLEE_SAVED.0 as u16;
            }
            for s in cfg.succ(id) {
                let met = start[s.ix()] & set;
                if met != start[s.ix()] && !open[s.ix()] {
                    start[s.ix()] = met;
                    if !std::mem::replace(&mut queued[s.ix()], true) {
                        work.push(s.0);
                    }
                }
            }
        }
        DwordRegs { start, loose }
    }

    /// What is certain without looking.
    pub fn least(cfg: &Cfg) -> DwordRegs {
        DwordRegs { start: vec![0; cfg.blocks.len()], loose: vec![true; cfg.blocks.len()] }
    }

    /// The set at the start of `b`.
    #[inline]
    pub fn at_start(&self, b: BlockId) -> RegSet {
        RegSet(u32::from(self.start[b.ix()]))
    }

    /// The set behind an instruction of `b` that does this, from the one before it.
    #[inline]
    pub fn behind(&self, b: BlockId, effect: DwordEffect, set: RegSet) -> RegSet {
        if self.loose[b.ix()] { set } else { RegSet(u32::from(effect.apply(set.0 as u16))) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    /// The set behind the code, from one with rcx alone.
    fn behind(code: &[u8]) -> RegSet {
        let mut factory = InstructionInfoFactory::new();
        let mut effect = |insn| DwordEffect::of(&insn, factory.info(&insn));
        let set = Decoder::new(64, code, DecoderOptions::NONE).into_iter().fold(1 << 1, |set, i| effect(i).apply(set));
        RegSet(u32::from(set))
    }

    #[test]
    fn knows_what_leaves_32_bits() {
        const RCX: u32 = 1 << 1;
        const RAX: u32 = 1;
        let cases: [(&[u8], u32); 21] = [
            // mov eax, esi; mov rax, rsi; mov rax, rcx; mov al, cl; mov eax, [rsi]
            (&[0x89, 0xf0], RCX | RAX),
            (&[0x48, 0x89, 0xf0], RCX),
            (&[0x48, 0x89, 0xc8], RCX | RAX),
            (&[0x88, 0xc8], RCX),
            (&[0x8b, 0x06], RCX | RAX),
            // mov cl, 1; add rcx, 1; add ecx, 1
            (&[0xb1, 1], 0),
            (&[0x48, 0x83, 0xc1, 1], 0),
            (&[0x83, 0xc1, 1], RCX),
            // movsxd rax, esi; cdqe; cwde; movzx eax, sil
            (&[0x48, 0x63, 0xc6], RCX | RAX),
            (&[0x48, 0x98], RCX | RAX),
            (&[0x98], RCX),
            (&[0x40, 0x0f, 0xb6, 0xc6], RCX | RAX),
            // mov rax, -1; mov rax, imm64
            (&[0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff], RCX | RAX),
            (&[0x48, 0xb8, 0, 0, 0, 0, 1, 0, 0, 0], RCX),
            // cmovs eax, esi; bsf eax, esi; shr eax, cl; shr eax, 1; mov eax, ds
            (&[0x0f, 0x48, 0xc6], RCX | RAX),
            (&[0x0f, 0xbc, 0xc6], RCX),
            (&[0xd3, 0xe8], RCX),
            (&[0xd1, 0xe8], RCX | RAX),
            (&[0x8c, 0xd8], RCX),
            // mul esi; syscall
            (&[0xf7, 0xe6], RCX),
            (&[0x0f, 0x05], 0),
        ];
        for (code, set) in cases {
            assert_eq!(behind(code), RegSet(set), "{code:x?}");
        }
    }
}
