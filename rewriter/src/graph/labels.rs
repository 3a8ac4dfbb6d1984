//! What becomes of labels: addresses that code puts into registers, and that no frame and no symbol calls a function.
//!
//! Purpose: tell starts of functions, and labels that are only ever jumped to as they are, from labels that a program may add to.
//! Input: instructions, graph, labels. Output: [`looks_like_start`], [`in_jump_buffer`], [`only_jumped_to`], [`Frameless`].
//! Source: psABI 3.2.3 (arguments); gcc's documentation of `__builtin_setjmp`.

use crate::base::addresses::Vaddr;
use crate::decode::classify::is_wide_immediate;
use crate::decode::insn::{Flow, InsnId, Label};
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::read::image::Image;

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::collections::{HashMap, HashSet};

/// Most blocks through which one label is followed.
const MAX_FOLLOWED: usize = 512;

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

/// The labels of which nothing becomes but jumps to them, and these jumps: hand-written loops keep the place of their next step in a register.
/// Nobody adds anything to such a label, and control comes to it by these jumps, and as branches show.
pub(super) fn only_jumped_to(image: &Image, insns: &Insns, cfg: &Cfg) -> HashMap<InsnId, Vec<InsnId>> {
    let pads: HashSet<BlockId> = cfg.pads.iter().flat_map(|p| p.to.iter().copied()).collect();
    let called = insns.branches().filter(|(from, _)| insns.flow(*from) == Flow::Call).map(|(_, to)| to);
    let called: HashSet<InsnId> = if insns.labels.is_empty() { HashSet::new() } else { called.collect() };
    let mut jumps: HashMap<InsnId, Option<Vec<InsnId>>> = HashMap::new();
    for &label in &insns.labels {
        let all = jumps.entry(label.at).or_insert_with(|| {
            let named = image.code_pointers.binary_search(&insns.va(label.at)).is_ok();
            let block = cfg.block_of(label.at);
            let entered = named || pads.contains(&block) || called.contains(&label.at);
            (!entered && cfg.blocks[block.ix()].first == label.at).then(Vec::new)
        });
        if let Some(list) = all {
            match follow(image, insns, cfg, label) {
                Some(more) => list.extend(more),
                None => *all = None,
            }
        }
    }
    jumps.into_iter().filter_map(|(at, list)| Some((at, list.filter(|l| !l.is_empty())?))).collect()
}

/// The jumps that a label gets to in registers. None: it may be stored, added to, passed on, returned, or lost sight of.
fn follow(image: &Image, insns: &Insns, cfg: &Cfg, label: Label) -> Option<Vec<InsnId>> {
    let named = insns.decode(image, label.by);
    let behind = InsnId(label.by.0 + 1);
    if !named.op0_register().is_gpr64() || insns.next(label.by) != Some(behind) {
        return None;
    }
    let mut factory = InstructionInfoFactory::new();
    let mut jumps = Vec::new();
    let mut seen = HashSet::new();
    // Where to go on, and the registers that hold the label there.
    let mut work = vec![(behind, RegSet::of(named.op0_register()))];
    while let Some((from, held)) = work.pop() {
        if !seen.insert((from, held)) {
            continue;
        }
        if seen.len() > MAX_FOLLOWED {
            return None;
        }
        let block = cfg.block_of(from);
        let mut held = held;
        let mut jumped = false;
        for i in from.0..cfg.blocks[block.ix()].stop.0 {
            let insn = insns.decode(image, InsnId(i));
            match use_of(&mut factory, &insn, held) {
                Use::None { written } => held = held.without(written),
                Use::Copy(to) => held |= to,
                Use::Jump => {
                    jumps.push(InsnId(i));
                    work.push((label.at, held));
                    jumped = true;
                }
                Use::Other => return None,
            }
            if held == RegSet::NONE {
                break;
            }
        }
        if jumped || held == RegSet::NONE {
            continue;
        }
        match cfg.blocks[block.ix()].end() {
            End::Plain => work.extend(cfg.succ(block).iter().map(|s| (cfg.blocks[s.ix()].first, held))),
            End::Stop => {}
            _ => return None,
        }
    }
    Some(jumps)
}

/// What an instruction does with registers that hold a label.
enum Use {
    /// Nothing, but for writing other values into some of them.
    None {
        written: RegSet,
    },
    /// One more register holds it.
    Copy(RegSet),
    /// Jumps to it.
    Jump,
    Other,
}

fn use_of(factory: &mut InstructionInfoFactory, insn: &Instruction, held: RegSet) -> Use {
    let mut written = RegSet::NONE;
    let mut reads = false;
    for u in factory.info(insn).used_registers() {
        let reg = RegSet::of(u.register());
        if !held.contains(reg) || reg == RegSet::NONE {
            continue;
        }
        match u.access() {
            // A 32-bit register's upper half becomes zero.
            OpAccess::Write if u.register().size() >= 4 => written |= reg,
            OpAccess::None | OpAccess::NoMemAccess => {}
            _ => reads = true,
        }
    }
    if !reads {
        return Use::None { written };
    }
    let one = |r: Register| r.is_gpr64() && held.contains(RegSet::of(r));
    let copies = insn.mnemonic() == Mnemonic::Mov && insn.op0_kind() == OpKind::Register;
    if copies && insn.op1_kind() == OpKind::Register && insn.op0_register().is_gpr64() && one(insn.op1_register()) {
        return Use::Copy(RegSet::of(insn.op0_register()));
    }
    if insn.is_jmp_near_indirect() && insn.op0_kind() == OpKind::Register && one(insn.op0_register()) {
        return Use::Jump;
    }
    Use::Other
}

/// psABI section 3.2.3: where integer arguments are passed.
pub(super) fn is_argument(reg: Register) -> bool {
    matches!(reg, Register::RDI | Register::RSI | Register::RDX | Register::RCX | Register::R8 | Register::R9)
}

/// The instructions whose addresses those in `[from, to)` name.
pub(super) fn taken_labels(image: &Image, insns: &Insns, from: Vaddr, to: Vaddr) -> Vec<InsnId> {
    let named = |insn: &Instruction| {
        if insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand() {
            return Some(Vaddr(insn.ip_rel_memory_address()));
        }
        let immediate = insn.mnemonic() == Mnemonic::Mov && is_wide_immediate(insn.op1_kind());
        (immediate && !image.pie).then(|| Vaddr(insn.immediate(1)))
    };
    insns
        .main_range(from, to)
        .filter_map(|i| named(&insns.decode(image, InsnId(i as u32))))
        .filter_map(|va| insns.at(va))
        .collect()
}
