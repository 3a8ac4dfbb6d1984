//! Insns -> [`Facts`]: what each instruction reads, overwrites, accesses and does to stack addresses.
//!
//! Programs have millions of instructions, but few kinds: what the analyses ask of one follows from its [`Shape`], which is everything of it
//! but displacements and wide immediates. So iced's tables are asked once for each kind, later stages decide once for each kind, and
//! an instruction is decoded again only where its numbers matter.

use crate::base::collections::compact_ids::CompactIds;
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::decode::reader::Reader;
use crate::decode::regs::RegSet;
use crate::decode::skeleton::{Memo, skeleton};
use crate::facts::access::{InsnAccess, access_of};
use crate::facts::effects::{DwordEffect, Effects, StackEffect, effects, switches_stack, uses};
use crate::facts::rsp::{RspSource, RspUse, may_use, use_of};
use crate::read::image::Image;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use std::collections::HashMap;

/// Everything of an instruction that decides which registers, flags and memory it uses, and how. Displacements and immediates of more
/// than eight bits decide nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Shape(u64, u64);

impl Shape {
    /// The shape of `insn`.
    pub fn of(insn: &Instruction) -> Shape {
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
        let kinds = kinds.iter().fold(0, |packed, k| packed << 5 | *k as u64);
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
        Shape((insn.code() as u64) << 48 | regs, kinds | small_number(insn) << 20 | prefixes << 32)
    }

    #[inline]
    fn slot(self, slots: usize) -> usize {
        let mixed = (self.0 ^ self.1.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 40) as usize & (slots - 1)
    }
}

/// What matters of an immediate: counts of shifts, nesting of frames, whether a mask clears low bits only.
fn small_number(insn: &Instruction) -> u64 {
    use Mnemonic as M;
    match insn.mnemonic() {
        M::Shl | M::Sal | M::Shr | M::Sar | M::Rol | M::Ror | M::Rcl | M::Rcr => match insn.op1_kind() {
            OpKind::Immediate8 => insn.immediate8().into(),
            _ => 0,
        },
        M::Shld | M::Shrd => match insn.op2_kind() {
            OpKind::Immediate8 => insn.immediate8().into(),
            _ => 0,
        },
        M::Enter => insn.immediate8_2nd().into(),
        M::And if insn.op1_kind() == OpKind::Immediate8to64 => u64::from(insn.immediate8to64() < 0),
        _ => 0,
    }
}

/// Slots of the cache; small enough for the cache.
const SLOTS: usize = 1 << 13;

/// Numbers shapes. The last ones are found without the map.
struct ShapeNumbers {
    last: Vec<(Shape, u32)>,
    all: HashMap<Shape, u32>,
}

impl ShapeNumbers {
    fn new() -> ShapeNumbers {
        // No instruction has the default shape: its code would be invalid.
        ShapeNumbers { last: vec![(Shape::default(), 0); SLOTS], all: HashMap::new() }
    }

    /// The number of a shape, and whether it is new.
    #[inline]
    fn number(&mut self, shape: Shape) -> (u32, bool) {
        let slot = &mut self.last[shape.slot(SLOTS)];
        if slot.0 == shape {
            return (slot.1, false);
        }
        let fresh = self.all.len() as u32;
        let number = *self.all.entry(shape).or_insert(fresh);
        *slot = (shape, number);
        (number, number == fresh)
    }
}

/// Index of a kind of instruction: those of one [`Shape`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KindId(u32);

impl KindId {
    /// As a slice index.
    #[inline]
    pub fn ix(self) -> usize {
        self.0 as usize
    }
}

/// What is the same for all instructions of one shape.
#[derive(Clone, Debug)]
pub struct InsnKind {
    /// What they access; a gather's or scatter's displacement is that of `sample`.
    pub access: InsnAccess,
    /// What they make rsp from.
    pub rsp_from: RspSource,
    /// The first of them.
    pub sample: Instruction,
}

/// What one pass over the instructions gathers for the analyses.
#[derive(Debug, Default)]
pub struct Facts {
    kinds: Vec<InsnKind>,
    /// By kind, apart from the rest because the analyses want these again and again.
    flows: Vec<(Effects, StackEffect)>,
    /// By kind: the registers whose values decide something for sure.
    uses: Vec<RegSet>,
    /// By kind: what they do to numbers of 32 bits.
    dwords: Vec<DwordEffect>,
    /// By instruction: its kind.
    of: CompactIds,
    /// Instructions that load rsp from another context.
    pub switches: Vec<InsnId>,
    /// Instructions that may reach below rsp.
    pub rsp_uses: Vec<(InsnId, RspUse)>,
}

impl Facts {
    /// What an instruction does to registers and flags.
    #[inline]
    pub fn effects(&self, id: InsnId) -> Effects {
        self.flows[self.kind(id).ix()].0
    }

    /// The registers whose values decide something for sure.
    #[inline]
    pub fn uses(&self, id: InsnId) -> RegSet {
        self.uses[self.kind(id).ix()]
    }

    /// What it does to stack addresses.
    #[inline]
    pub fn stack(&self, id: InsnId) -> StackEffect {
        self.flows[self.kind(id).ix()].1
    }

    /// What it does to numbers of 32 bits.
    #[inline]
    pub fn dwords(&self, id: InsnId) -> DwordEffect {
        self.dwords[self.kind(id).ix()]
    }

    /// Its kind.
    #[inline]
    pub fn kind(&self, id: InsnId) -> KindId {
        KindId(self.of.get(id.ix()))
    }

    /// What instructions of each kind do to stack addresses.
    pub fn kind_stacks(&self) -> impl Iterator<Item = StackEffect> {
        self.flows.iter().map(|f| f.1)
    }

    /// Whether it does nothing at all.
    #[inline]
    pub fn is_nop(&self, id: InsnId) -> bool {
        self.kinds[self.kind(id).ix()].sample.mnemonic() == Mnemonic::Nop
    }

    /// All kinds, by number.
    pub fn kinds(&self) -> &[InsnKind] {
        &self.kinds
    }

    /// Decodes everything once.
    pub fn gather(image: &Image, insns: &Insns) -> Facts {
        let mut factory = InstructionInfoFactory::new();
        let mut facts = Facts { of: CompactIds::with_capacity(insns.len()), ..Facts::default() };
        let mut numbers = ShapeNumbers::new();
        let mut reader = Reader::new(image, insns);
        let mut insn = Instruction::default();
        // Numbers of kinds, and whether they switch stacks. How one uses rsp depends on its displacement, so those that do are looked at
        // each.
        let mut memo: Memo<(u32, bool)> = Memo::default();
        for i in 0..insns.len() as u32 {
            let quick = skeleton(reader.tail(InsnId(i)));
            if let Some(quick) = &quick
                && let Some((number, switches)) = memo.get(quick.key)
            {
                facts.of.push(number);
                if switches {
                    facts.switches.push(InsnId(i));
                }
                continue;
            }
            reader.decode(InsnId(i), &mut insn);
            let (number, new) = numbers.number(Shape::of(&insn));
            if new {
                let info = factory.info(&insn);
                facts.flows.push((effects(&insn, info), StackEffect::of(&insn, info)));
                facts.uses.push(uses(&insn, info));
                facts.dwords.push(DwordEffect::of(&insn, info));
                let (access, rsp_from) = (access_of(&insn, info), RspSource::of(&insn, info));
                facts.kinds.push(InsnKind { access, rsp_from, sample: insn });
            }
            facts.of.push(number);
            let switches = switches_stack(&insn);
            if switches {
                facts.switches.push(InsnId(i));
            }
            facts.rsp_uses.extend(use_of(&insn).map(|how| (InsnId(i), how)));
            if let Some(quick) = quick.filter(|_| !may_use(&insn)) {
                memo.keep(quick.key, (number, switches));
            }
        }
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn decoded(code: &[u8]) -> Instruction {
        Decoder::new(64, code, DecoderOptions::NONE).decode()
    }

    /// Two instructions of one shape have the same facts, whatever their displacements and immediates are.
    #[test]
    fn shapes_tell_apart_what_facts_depend_on() {
        let shape = |code: &[u8]| Shape::of(&decoded(code));
        // mov eax, imm32; lea rax, [rdi + disp8 or disp32]
        assert_eq!(shape(&[0xb8, 1, 0, 0, 0]), shape(&[0xb8, 2, 3, 4, 5]));
        assert_eq!(shape(&[0x48, 0x8d, 0x47, 1]), shape(&[0x48, 0x8d, 0x87, 1, 2, 3, 4]));
        let differ: [(&[u8], &[u8]); 9] = [
            // shl eax, 1 or 0: a count of zero leaves the flags alone.
            (&[0xc1, 0xe0, 1], &[0xc1, 0xe0, 0]),
            // shld eax, ecx, 1 or 32
            (&[0x0f, 0xa4, 0xc8, 1], &[0x0f, 0xa4, 0xc8, 32]),
            // and rsp, -16 realigns; and rsp, 16 does not.
            (&[0x48, 0x83, 0xe4, 0xf0], &[0x48, 0x83, 0xe4, 0x10]),
            // enter 0, 0 or 1
            (&[0xc8, 0, 0, 0], &[0xc8, 0, 0, 1]),
            // stosb; rep stosb
            (&[0xaa], &[0xf3, 0xaa]),
            // lodsb through rsi or esi, and with fs
            (&[0xac], &[0x67, 0xac]),
            (&[0xac], &[0x64, 0xac]),
            // mov eax, [rdi]; mov eax, [edi]
            (&[0x8b, 0x07], &[0x67, 0x8b, 0x07]),
            // mov eax, [rdi + rsi]; mov eax, [rdi + rcx]
            (&[0x8b, 0x04, 0x37], &[0x8b, 0x04, 0x0f]),
        ];
        for (a, b) in differ {
            assert_ne!(shape(a), shape(b), "{a:x?} {b:x?}");
        }
    }

    #[test]
    fn numbers_survive_the_loss_of_a_slot() {
        let mut numbers = ShapeNumbers::new();
        let shapes: Vec<Shape> = (1..100_000).map(|k| Shape(k, k)).collect();
        for (k, shape) in shapes.iter().enumerate() {
            assert_eq!(numbers.number(*shape), (k as u32, true));
        }
        for (k, shape) in shapes.iter().enumerate() {
            assert_eq!(numbers.number(*shape), (k as u32, false));
        }
    }
}
