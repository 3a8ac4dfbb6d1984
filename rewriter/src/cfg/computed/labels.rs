//! What becomes of labels: addresses that code puts into registers, and that no frame and no symbol calls a function.
//!
//! Purpose: tell starts of functions, and labels that are only ever jumped to as they are, from labels that a program may add to.
//! Input: instructions, graph, labels. Output: [`looks_like_start`], [`in_jump_buffer`], [`Frameless`].
//! Source: psABI 3.2.3 (arguments); gcc's documentation of `__builtin_setjmp`.

use super::{is_argument, taken_labels};
use crate::analysis::regs::RegSet;
use crate::cfg::Cfg;
use crate::disasm::{Flow, InsnId, Insns, Label};
use crate::ids::Vaddr;
use crate::image::Image;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

/// Functions as far as they can be told without frames: symbols, targets of calls, aligned labels behind something that does not
/// go on.
pub(super) struct Frameless<'x, 'a> {
    image: &'x Image<'a>,
    insns: &'x Insns,
    /// Sorted.
    bare: Vec<InsnId>,
    starts: Vec<Vaddr>,
}

impl<'x, 'a> Frameless<'x, 'a> {
    /// `bare`: labels that look like starts, sorted.
    pub(super) fn new(image: &'x Image<'a>, insns: &'x Insns, bare: Vec<InsnId>) -> Self {
        let called = insns.branches().filter(|(from, _)| insns.flow(*from) == Flow::Call).map(|(_, to)| to);
        let all = insns.starts.iter().chain(&bare).copied().chain(called);
        let mut starts: Vec<Vaddr> = all.map(|id| insns.va(id)).collect();
        starts.sort();
        Frameless { image, insns, bare, starts }
    }

    /// From the start before `va` to the next one, as far as the section goes.
    pub(super) fn around(&self, va: Vaddr) -> (Vaddr, Vaddr) {
        let section = &self.image.exec[self.image.exec_at(va).expect("code lies in a section")];
        let next = self.starts.partition_point(|s| *s <= va);
        let from = next.checked_sub(1).map_or(section.va, |k| self.starts[k].max(section.va));
        let end = section.va + section.bytes;
        (from, self.starts.get(next).map_or(end, |s| (*s).min(end)))
    }

    /// The functions whose addresses the instructions in `[from, to)` name.
    pub(super) fn taken(&self, from: Vaddr, to: Vaddr) -> Vec<InsnId> {
        let mut taken = taken_labels(self.image, self.insns, from, to);
        taken.retain(|id| self.insns.starts.binary_search(id).is_ok() || self.bare.binary_search(id).is_ok());
        taken
    }
}

/// Whether a label looks like the start of a function: what stands before it does not go on, and it is aligned, or begins like a function and
/// its address is put away or passed on as it is (code for size is not aligned).
pub(super) fn looks_like_start(image: &Image, insns: &Insns, cfg: &Cfg, label: Label) -> bool {
    let mut at = label.at;
    while let Some(before) = at.0.checked_sub(1).map(InsnId) {
        // A call may be the last of a function that does not return from it.
        if insns.next(before) != Some(at) || insns.flow(before) == Flow::Call {
            break;
        }
        if insns.decode(image, before).mnemonic() != Mnemonic::Nop {
            return false;
        }
        at = before;
    }
    insns.va(label.at).0.is_multiple_of(16)
        || at == label.at && begins_like_function(image, insns, at) && is_handed_over(image, insns, cfg, label)
}

/// Whether an instruction is one that functions save registers with.
fn begins_like_function(image: &Image, insns: &Insns, id: InsnId) -> bool {
    let insn = insns.decode(image, id);
    match insn.mnemonic() {
        Mnemonic::Endbr64 => true,
        Mnemonic::Push => {
            let reg = insn.op0_register();
            reg.is_gpr64() && RegSet::CALLEE_SAVED.contains(RegSet::of(reg))
        }
        Mnemonic::Sub => insn.op0_register() == Register::RSP && is_immediate8_or_32(insn.op1_kind()),
        _ => false,
    }
}

fn is_immediate8_or_32(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate8to64 | OpKind::Immediate32to64)
}

/// Whether the first thing that the block does with a label is to store it, or to pass it as an argument.
fn is_handed_over(image: &Image, insns: &Insns, cfg: &Cfg, label: Label) -> bool {
    let reg = insns.decode(image, label.by).op0_register();
    let mut factory = InstructionInfoFactory::new();
    for i in label.by.0 + 1..cfg.blocks[cfg.block_of(label.by).ix()].stop.0 {
        let insn = insns.decode(image, InsnId(i));
        if matches!(insns.flow(InsnId(i)), Flow::Call | Flow::IndirectCall) {
            return is_argument(reg);
        }
        let is_it = |r: Register| r.full_register() == reg;
        if factory.info(&insn).used_registers().iter().any(|u| is_it(u.register())) {
            let stores = insn.mnemonic() == Mnemonic::Mov && insn.op0_kind() == OpKind::Memory;
            return stores && insn.op1_register() == reg && !is_it(insn.memory_base()) && !is_it(insn.memory_index());
        }
    }
    false
}

/// Whether the block that names a label stores it as the second word of a buffer whose third is the stack pointer: what compilers make of
/// `__builtin_setjmp`. The program itself never holds such a label, and `__builtin_longjmp` jumps to it as it is.
pub(super) fn in_jump_buffer(image: &Image, insns: &Insns, cfg: &Cfg, label: Label) -> bool {
    let named = insns.decode(image, label.by).op0_register();
    let block = &cfg.blocks[cfg.block_of(label.by).ix()];
    let stores: Vec<Instruction> = (block.first.0..block.stop.0)
        .map(|i| insns.decode(image, InsnId(i)))
        .filter(|i| i.mnemonic() == Mnemonic::Mov && i.op0_kind() == OpKind::Memory)
        .filter(|i| i.memory_index() == Register::None && [named, Register::RSP].contains(&i.op1_register()))
        .collect();
    let third = |label: &Instruction| {
        let displacement = label.memory_displacement64().wrapping_add(8);
        let is_third = |i: &Instruction| {
            i.op1_register() == Register::RSP
                && i.memory_base() == label.memory_base()
                && i.memory_displacement64() == displacement
        };
        stores.iter().any(is_third)
    };
    let behind = insns.va(label.by).0;
    named.is_gpr64() && stores.iter().any(|i| i.ip() > behind && i.op1_register() == named && third(i))
}
