//! Which registers certainly hold a stack address (rsp plus a constant).
//!
//! A forward must-analysis within each component. At roots and function entries only rsp is known; likewise at one block of a circle that nothing
//! leads into, and at every instruction, not only those that begin blocks, where an unresolved jump may lead: anywhere in a component that has one, and to
//! computed targets (loops that are unrolled in full are entered in their middle). Behind a call, the callee-saved registers keep what they held (psABI 3.2.1).

use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::facts::kinds::Facts;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::graph::computed::Computed;
use crate::read::image::Image;
use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register};

/// How one instruction changes the set: `(set & keep) | (copies the source's membership to the destination)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackEffect {
    keep: u16,
    /// Destination and source register, 16 = none.
    dst: u8,
    src: u8,
}

impl StackEffect {
    /// What `insn` does.
    pub fn of(insn: &Instruction, info: &InstructionInfo) -> StackEffect {
        let mut written = RegSet::NONE;
        if insn.mnemonic() == Mnemonic::Syscall {
            // iced tells what the processor writes; the kernel writes its result, too.
            written |= RegSet::RAX;
        }
        for u in info.used_registers() {
            if !matches!(u.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess) {
                written |= RegSet::of(u.register());
            }
        }
        let (mut dst, mut src) = (16, 16);
        let number = |r: Register| r.number() as u8;
        if insn.op_count() == 2 && insn.op0_kind() == OpKind::Register && insn.op0_register().is_gpr64() {
            let to = number(insn.op0_register());
            match insn.mnemonic() {
                Mnemonic::Mov if insn.op1_kind() == OpKind::Register && insn.op1_register().is_gpr64() => {
                    (dst, src) = (to, number(insn.op1_register()));
                }
                Mnemonic::Lea
                    if insn.memory_index() == Register::None
                        && insn.memory_base().is_gpr64()
                        && insn.segment_prefix() == Register::None =>
                {
                    (dst, src) = (to, number(insn.memory_base()));
                }
                Mnemonic::Add | Mnemonic::Sub
                    if insn.op1_kind() != OpKind::Register && insn.op1_kind() != OpKind::Memory =>
                {
                    (dst, src) = (to, to)
                }
                // Realignment: clears low bits.
                Mnemonic::And
                    if insn.op1_kind() == OpKind::Immediate8to64
                        && insn.immediate(1) as i64 >= -128
                        && (insn.immediate(1) as i64) < 0 =>
                {
                    (dst, src) = (to, to);
                }
                _ => {}
            }
        }
        if insn.mnemonic() == Mnemonic::Enter {
            (dst, src) = (number(Register::RBP), number(Register::RSP));
        }
        StackEffect { keep: !(written.0 as u16) | RegSet::RSP.0 as u16, dst, src }
    }

    /// Registers that the instruction may change, rsp aside.
    #[inline]
    pub fn written(self) -> RegSet {
        RegSet(u32::from(!self.keep))
    }

    #[inline]
    fn apply(self, set: u16) -> u16 {
        let copied = self.dst < 16 && set >> self.src & 1 != 0;
        (set & self.keep) | if copied { 1 << self.dst } else { 0 }
    }
}

const ONLY_RSP: u16 = RegSet::RSP.0 as u16;

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
