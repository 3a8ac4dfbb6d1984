//! Insns -> [`Facts`]: what each instruction reads, overwrites and does to stack addresses.
//!
//! Programs have millions of instructions, but few kinds: what the analyses ask of one follows from its [`Shape`], which is everything of it
//! but displacements and wide immediates. [`Memo`] keeps answers by shape, so that iced's tables are asked once for each, and
//! equal facts are stored once.

use super::conventions::switches_stack;
use super::effects::{Effects, effects};
use super::stack::StackEffect;
use crate::disasm::{InsnId, Insns, Reader};
use crate::image::Image;
use iced_x86::{Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// Everything of an instruction that decides which registers, flags and memory it uses, and how. Displacements and immediates of more
/// than eight bits decide nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Shape(u64, u64);

impl Shape {
    /// The shape of `insn`; `None` where a wide immediate matters.
    pub fn of(insn: &Instruction) -> Option<Shape> {
        let code = insn.code() as u64;
        if matches!(insn.mnemonic(), Mnemonic::Enter) {
            return None;
        }
        let regs = [
            insn.op0_register(),
            insn.op1_register(),
            insn.op2_register(),
            insn.op3_register(),
            insn.memory_base(),
            insn.memory_index(),
        ];
        let regs = regs.iter().fold(0, |packed, r| packed << 8 | *r as u64);
        let kinds = [insn.op0_kind(), insn.op1_kind(), insn.op2_kind(), insn.op3_kind()];
        let mut small = 0;
        let mut packed = 0;
        for kind in kinds {
            packed = packed << 5 | kind as u64;
            if matches!(
                kind,
                OpKind::Immediate8 | OpKind::Immediate8to16 | OpKind::Immediate8to32 | OpKind::Immediate8to64
            ) {
                small = 1 << 8 | u64::from(insn.immediate8());
            }
        }
        let segment = match insn.segment_prefix() {
            Register::None => 0,
            Register::FS => 1,
            Register::GS => 2,
            _ => 3,
        };
        let prefixes = u64::from(insn.has_rep_prefix())
            | u64::from(insn.has_repne_prefix()) << 1
            | u64::from(insn.is_broadcast()) << 2
            | segment << 3
            | (insn.op_mask() as u64) << 5;
        Some(Shape(code << 48 | regs, packed | small << 20 | prefixes << 32))
    }

    fn slot(self, slots: usize) -> usize {
        let mixed = (self.0 ^ self.1.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize & (slots - 1)
    }
}

/// Slots of a [`Memo`]; small enough for the cache.
const SLOTS: usize = 1 << 13;

/// The last answers by shape.
#[derive(Debug)]
pub struct Memo<T> {
    slots: Vec<(Shape, T)>,
}

impl<T: Copy + Default> Default for Memo<T> {
    fn default() -> Memo<T> {
        // No instruction has the default shape: its code would be invalid.
        Memo { slots: vec![(Shape::default(), T::default()); SLOTS] }
    }
}

impl<T: Copy> Memo<T> {
    /// What `compute` says of `insn`, or said of one of its shape.
    pub fn get(&mut self, insn: &Instruction, compute: impl FnOnce() -> T) -> T {
        let Some(shape) = Shape::of(insn) else { return compute() };
        let slot = &mut self.slots[shape.slot(SLOTS)];
        if slot.0 != shape {
            *slot = (shape, compute());
        }
        slot.1
    }
}

/// What one pass over the instructions gathers for the analyses.
#[derive(Debug, Default)]
pub struct Facts {
    /// What there is, each once.
    kinds: Vec<Kind>,
    /// By instruction: index into `kinds`.
    of: Vec<u32>,
    /// Instructions that load rsp from another context.
    pub switches: Vec<InsnId>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Kind {
    effects: Effects,
    stack: StackEffect,
}

impl Facts {
    /// What an instruction does to registers and flags.
    pub fn effects(&self, id: InsnId) -> Effects {
        self.kinds[self.of[id.ix()] as usize].effects
    }

    /// What it does to stack addresses.
    pub fn stack(&self, id: InsnId) -> StackEffect {
        self.kinds[self.of[id.ix()] as usize].stack
    }

    /// Decodes everything once.
    pub fn gather(image: &Image, insns: &Insns) -> Facts {
        let mut factory = InstructionInfoFactory::new();
        let mut facts = Facts { of: Vec::with_capacity(insns.list.len()), ..Facts::default() };
        let mut known: HashMap<Kind, u32> = HashMap::new();
        let mut memo: Memo<u32> = Memo::default();
        let mut reader = Reader::new(image, insns);
        let mut insn = Instruction::default();
        for i in 0..insns.list.len() as u32 {
            reader.decode(InsnId(i), &mut insn);
            let kind = memo.get(&insn, || {
                let info = factory.info_options(&insn, InstructionInfoOptions::NO_MEMORY_USAGE);
                let kind = Kind { effects: effects(&insn, info), stack: StackEffect::of(&insn, info) };
                *known.entry(kind).or_insert_with(|| {
                    facts.kinds.push(kind);
                    facts.kinds.len() as u32 - 1
                })
            });
            facts.of.push(kind);
            if switches_stack(&insn) {
                facts.switches.push(InsnId(i));
            }
        }
        facts
    }
}
