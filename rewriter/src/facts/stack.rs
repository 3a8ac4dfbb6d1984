//! Which registers certainly hold a stack address (rsp plus a constant).
//!
//! Input: graph, facts, computed targets. Output: [`StackRegs`], by block.
//!
//! A forward must-analysis within each component. At roots and function entries only rsp is known; likewise at one block of a circle that nothing
//! leads into, and at every instruction, not only those that begin blocks, where an unresolved jump may lead: anywhere in a component that has one, and to
//! computed targets (loops that are unrolled in full are entered in their middle). Behind a call, the callee-saved registers keep what they held (psABI 3.2.1).

use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::facts::effects::{ONLY_RSP, StackEffect};
use crate::facts::kinds::Facts;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::graph::computed_targets::Computed;
use crate::read::image::Image;
use iced_x86::OpKind;

/// The result: the set at each block's start.
#[derive(Debug)]
pub struct StackRegs {
    start: Vec<u16>,
    /// By block: control may enter it in its middle.
    loose: Vec<bool>,
}

impl StackRegs {
    /// Solves the equations.
    pub fn solve(cfg: &Cfg, facts: &Facts, computed: &Computed) -> StackRegs {
        let n = cfg.blocks.len();
        let wild = cfg.wild();
        let loose = cfg.loose(&wild, computed);
        // Entered from somewhere that the graph does not show: only rsp is certain.
        let mut open = cfg.entries(&wild);
        open.iter_mut().zip(&loose).for_each(|(open, loose)| *open |= loose);
        cfg.enter_circles(&mut open);
        let mut start: Vec<u16> = open.iter().map(|o| if *o { ONLY_RSP } else { 0xffff }).collect();
        let mut work: Vec<u32> = (0..n as u32).rev().collect();
        let mut queued = vec![true; n];
        while let Some(b) = work.pop() {
            queued[b as usize] = false;
            let id = BlockId(b);
            let mut set = start[id.ix()];
            if !loose[id.ix()] {
                for i in cfg.blocks[id.ix()].first.0..cfg.blocks[id.ix()].stop.0 {
                    set = facts.stack(InsnId(i)).apply(set);
                }
            }
            if matches!(cfg.blocks[id.ix()].end(), End::Call(_) | End::UnknownCall | End::DescriptorCall) {
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
        StackRegs { start, loose }
    }

    /// What is certain without looking.
    pub fn least(cfg: &Cfg) -> StackRegs {
        StackRegs { start: vec![ONLY_RSP; cfg.blocks.len()], loose: vec![true; cfg.blocks.len()] }
    }

    /// The set at the start of `b`.
    #[inline]
    pub fn at_start(&self, b: BlockId) -> RegSet {
        RegSet(u32::from(self.start[b.ix()]))
    }

    /// The set behind an instruction of `b` that does this, from the one before it.
    #[inline]
    pub fn behind(&self, b: BlockId, effect: StackEffect, set: RegSet) -> RegSet {
        if self.loose[b.ix()] { set } else { RegSet(u32::from(effect.apply(set.0 as u16))) }
    }

    /// Calls `each` with the set before every instruction of `b`.
    pub fn walk(&self, cfg: &Cfg, facts: &Facts, b: BlockId, mut each: impl FnMut(InsnId, RegSet)) {
        let block = &cfg.blocks[b.ix()];
        let mut set = self.at_start(b);
        for i in block.first.0..block.stop.0 {
            each(InsnId(i), set);
            set = self.behind(b, facts.stack(InsnId(i)), set);
        }
    }
}

/// Whether an indirect jump goes through a constant address: a PLT entry or a tail call through the GOT, never a table.
pub fn is_got_jump(image: &Image, insns: &Insns, id: InsnId) -> bool {
    let insn = insns.decode(image, id);
    insn.op0_kind() == OpKind::Memory && insn.is_ip_rel_memory_operand()
}
