//! Which registers certainly hold what, on all ways: a stack address (rsp plus a constant), or a number of 32 bits (the upper half is all zeros, or all
//! ones).
//!
//! Input: graph, facts, computed targets. Output: [`StackRegs`] and [`DwordRegs`], by block.
//!
//! A forward must-analysis within each component. Nothing but what is certain anywhere is known at roots and function entries, where an unresolved jump may
//! lead (anywhere in a component that has one), and in all of a block that control may enter in its middle (computed targets: loops that are unrolled in
//! full). Behind a call, the callee-saved registers keep what they held (psABI 3.2.1).
//!
//! An index of 32 bits leads less than [`FARTHEST`] bytes away from its base, so the base alone says whether the sum can be shared memory
//! ([`blizzard_contract::PRIVATE_REACH`]). Source: SDM volume 1, 3.4.1.1 (results of 32 bits clear the upper half).

use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::facts::effects::{DwordEffect, ONLY_RSP, StackEffect};
use crate::facts::kinds::Facts;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::graph::computed_targets::Computed;
use crate::read::image::Image;
use blizzard_contract as contract;
use iced_x86::OpKind;

/// Largest scale times 2^32, and a displacement.
const FARTHEST: u64 = (8 << 32) + (1 << 31);
const _: () = assert!(FARTHEST < contract::PRIVATE_REACH / 4);

/// Sets of registers at each block's start.
#[derive(Debug)]
struct Held {
    start: Vec<u16>,
    /// By block: control may enter it in its middle.
    loose: Vec<bool>,
}

impl Held {
    /// Solves the equations. `certain`: what is known anywhere. `enter` adds entries of circles that nothing is known to lead into. `apply`: an
    /// instruction's effect on a set.
    fn solve(
        cfg: &Cfg,
        computed: &Computed,
        certain: u16,
        enter: impl FnOnce(&mut [bool]),
        apply: impl Fn(InsnId, u16) -> u16,
    ) -> Held {
        let n = cfg.blocks.len();
        let wild = cfg.wild();
        let loose = cfg.loose(&wild, computed);
        // Entered from somewhere that the graph does not show.
        let mut open = cfg.entries(&wild);
        open.iter_mut().zip(&loose).for_each(|(open, loose)| *open |= loose);
        enter(&mut open);
        let mut start: Vec<u16> = open.iter().map(|o| if *o { certain } else { 0xffff }).collect();
        let mut work: Vec<u32> = (0..n as u32).rev().collect();
        let mut queued = vec![true; n];
        while let Some(b) = work.pop() {
            queued[b as usize] = false;
            let id = BlockId(b);
            let block = &cfg.blocks[id.ix()];
            let mut set = start[id.ix()];
            if !loose[id.ix()] {
                set = (block.first.0..block.stop.0).fold(set, |set, i| apply(InsnId(i), set));
            }
            if matches!(block.end(), End::Call(_) | End::UnknownCall | End::DescriptorCall) {
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
        Held { start, loose }
    }

    /// What is certain without looking.
    fn least(cfg: &Cfg, certain: u16) -> Held {
        Held { start: vec![certain; cfg.blocks.len()], loose: vec![true; cfg.blocks.len()] }
    }

    #[inline]
    fn at_start(&self, b: BlockId) -> RegSet {
        RegSet(u32::from(self.start[b.ix()]))
    }

    #[inline]
    fn behind(&self, b: BlockId, set: RegSet, apply: impl FnOnce(u16) -> u16) -> RegSet {
        if self.loose[b.ix()] { set } else { RegSet(u32::from(apply(set.0 as u16))) }
    }
}

/// Which registers hold a stack address.
#[derive(Debug)]
pub struct StackRegs(Held);

impl StackRegs {
    /// Solves the equations. One block of a circle that nothing leads into is entered.
    pub fn solve(cfg: &Cfg, facts: &Facts, computed: &Computed) -> StackRegs {
        let enter = |open: &mut [bool]| cfg.enter_circles(open);
        StackRegs(Held::solve(cfg, computed, ONLY_RSP, enter, |id, set| facts.stack(id).apply(set)))
    }

    /// What is certain without looking.
    pub fn least(cfg: &Cfg) -> StackRegs {
        StackRegs(Held::least(cfg, ONLY_RSP))
    }

    /// Calls `each` with the set before every instruction of `b`.
    pub fn walk(&self, cfg: &Cfg, facts: &Facts, b: BlockId, mut each: impl FnMut(InsnId, RegSet)) {
        let block = &cfg.blocks[b.ix()];
        let mut set = self.0.at_start(b);
        for id in (block.first.0..block.stop.0).map(InsnId) {
            each(id, set);
            let effect: StackEffect = facts.stack(id);
            set = self.0.behind(b, set, |set| effect.apply(set));
        }
    }
}

/// Which registers hold a number of 32 bits.
#[derive(Debug)]
pub struct DwordRegs(Held);

impl DwordRegs {
    /// Solves the equations. Circles that nothing is known to lead into are entered anywhere.
    pub fn solve(cfg: &Cfg, facts: &Facts, computed: &Computed) -> DwordRegs {
        let enter = |open: &mut [bool]| {
            let reached = cfg.reached(open);
            open.iter_mut().zip(reached).for_each(|(open, reached)| *open |= !reached);
        };
        DwordRegs(Held::solve(cfg, computed, 0, enter, |id, set| facts.dwords(id).apply(set)))
    }

    /// What is certain without looking.
    pub fn least(cfg: &Cfg) -> DwordRegs {
        DwordRegs(Held::least(cfg, 0))
    }

    /// The set at the start of `b`.
    #[inline]
    pub fn at_start(&self, b: BlockId) -> RegSet {
        self.0.at_start(b)
    }

    /// The set behind an instruction of `b` that does this, from the one before it.
    #[inline]
    pub fn behind(&self, b: BlockId, effect: DwordEffect, set: RegSet) -> RegSet {
        self.0.behind(b, set, |set| effect.apply(set))
    }
}

/// Whether an indirect jump goes through a constant address: a PLT entry or a tail call through the GOT, never a table.
pub fn is_got_jump(image: &Image, insns: &Insns, id: InsnId) -> bool {
    let insn = insns.decode(image, id);
    insn.op0_kind() == OpKind::Memory && insn.is_ip_rel_memory_operand()
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
