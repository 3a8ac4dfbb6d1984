//! Which old instruction addresses a program may compute.
//!
//! Purpose: a springboard overwrites up to five bytes; an instruction that starts inside them must not be where an indirect
//! branch can lead. Addresses that the program *names* are roots already. What is left are addresses that it computes: from a
//! label and an index, or from tables of differences that were not recognised as jump tables.
//!
//! Input: instructions, graph, frames. Output: [`Computed`]. An instruction may be a computed target if
//! * its function has an unresolved indirect jump, or a return to an address that was just pushed;
//! * such a jump stands outside every frame, and so does the instruction, in the same section;
//! * its function holds a *label*: an address that code names, and that no function begins at;
//! * its function's address is taken in a function that computes the target of an unresolved jump.
//!
//! A function is a frame with all frames that share code with it by branches: a branch into the middle of another frame, or a
//! conditional one, is no tail call. Outside frames it is what jumps join.
//!
//! Not covered: code that adds a number to a function pointer it was handed, and calls the sum.

use super::{Block, Cfg, Components, End};
use crate::disasm::{Flow, InsnId, Insns};
use crate::ids::Vaddr;
use crate::image::Image;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};

/// Most instructions between the load of a pointer and a jump to it.
const MAX_BACK: usize = 8;

/// One bit for each instruction.
#[derive(Debug)]
pub struct Computed(Vec<bool>);

impl Computed {
    /// Whether a computed jump may lead to `id`.
    pub fn may_reach(&self, id: InsnId) -> bool {
        self.0[id.ix()]
    }

    /// Solves for a module. `frames`: `[start, end)`, sorted.
    pub fn solve(image: &Image, insns: &Insns, cfg: &Cfg, frames: &[(Vaddr, Vaddr)]) -> Computed {
        let mut parts = join_parts(insns, cfg, frames);
        let function: Vec<u32> = (0..frames.len() as u32).map(|f| parts.find(f)).collect();
        let mut marked = vec![false; frames.len()];
        let mut out = vec![false; insns.list.len()];
        let entered = entered(insns, cfg);
        // By section.
        let mut unframed = vec![false; image.exec.len()];
        let mut mark = |id: InsnId, marked: &mut [bool]| match frame_of(frames, insns.va(id)) {
            Some(f) => marked[function[f] as usize] = true,
            None => {
                let c = cfg.component[cfg.block_of(id).ix()];
                for b in cfg.ids().filter(|b| cfg.component[b.ix()] == c) {
                    let Block { first, stop, .. } = cfg.blocks[b.ix()];
                    if frame_of(frames, insns.va(first)).is_none() {
                        out[first.ix()..stop.ix()].fill(true);
                    }
                }
            }
        };
        for b in cfg.ids() {
            let block = &cfg.blocks[b.ix()];
            let last = InsnId(block.stop.0 - 1);
            let flow = insns.list[last.ix()].flow;
            let jump = matches!(flow, Flow::IndirectJmp | Flow::Ret);
            if !jump || !matches!(block.end, End::FramedJmp | End::UnknownJmp) {
                continue;
            }
            if loads_pointer(image, insns, &entered, last) {
                continue;
            }
            let Some(f) = frame_of(frames, insns.va(last)) else {
                unframed[image.exec_at(insns.va(last)).expect("code lies in a section")] = true;
                continue;
            };
            marked[function[f] as usize] = true;
            if flow == Flow::Ret || computes(image, insns, block) {
                let (from, to) = frames[f];
                for callee in taken_functions(image, insns, from, to) {
                    mark(callee, &mut marked);
                }
            }
        }
        for &label in &insns.labels {
            mark(label, &mut marked);
        }
        for (f, &(from, to)) in frames.iter().enumerate() {
            if marked[function[f] as usize] {
                out[insns.main_range(from, to)].fill(true);
            }
        }
        let any_unframed = unframed.contains(&true);
        let first = if any_unframed { 0 } else { insns.main };
        for (i, out) in out.iter_mut().enumerate().skip(first) {
            let va = insns.va(InsnId(i as u32));
            *out |= match frame_of(frames, va) {
                Some(f) => marked[function[f] as usize],
                None => unframed[image.exec_at(va).expect("code lies in a section")],
            };
        }
        Computed(out)
    }
}

/// Instructions that something but the one before them leads to.
fn entered(insns: &Insns, cfg: &Cfg) -> Vec<bool> {
    let mut out = vec![false; insns.list.len()];
    let tables = cfg.tables.iter().flat_map(|t| &t.targets);
    for id in insns.roots.iter().chain(tables).copied().chain(insns.list.iter().filter_map(|i| i.target)) {
        out[id.ix()] = true;
    }
    out
}

/// Whether a jump's target is a whole pointer from a variable, on the only way to the jump: no arithmetic. The start-up code's
/// `deregister_tm_clones` has such tail calls.
fn loads_pointer(image: &Image, insns: &Insns, entered: &[bool], jump: InsnId) -> bool {
    let insn = insns.decode(image, jump);
    if insn.op_count() == 0 || insn.op0_kind() != OpKind::Register {
        return false;
    }
    let target = insn.op0_register();
    let mut at = jump;
    for _ in 0..MAX_BACK {
        let Some(before) = at.0.checked_sub(1).map(InsnId) else { return false };
        if entered[at.ix()] || insns.next(before) != Some(at) {
            return false;
        }
        at = before;
        let insn = insns.decode(image, at);
        if matches!(insn.mnemonic(), Mnemonic::Test | Mnemonic::Cmp) || insns.list[at.ix()].flow == Flow::Cond {
            continue;
        }
        let constant = insn.op1_kind() == OpKind::Memory && insn.is_ip_rel_memory_operand()
            || matches!(insn.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64);
        return insn.mnemonic() == Mnemonic::Mov
            && insn.op0_kind() == OpKind::Register
            && insn.op0_register().full_register() == target
            && constant;
    }
    false
}

fn frame_of(frames: &[(Vaddr, Vaddr)], va: Vaddr) -> Option<usize> {
    let i = frames.partition_point(|f| f.0 <= va).checked_sub(1)?;
    (va < frames[i].1).then_some(i)
}

/// Joins the frames of one function.
fn join_parts(insns: &Insns, cfg: &Cfg, frames: &[(Vaddr, Vaddr)]) -> Components {
    let mut parts = Components::new(frames.len());
    let mut here = 0;
    for (i, insn) in insns.list.iter().enumerate() {
        let (Some(target), Flow::Jmp | Flow::Cond) = (insn.target, insn.flow) else { continue };
        let (va, to) = (insns.va(InsnId(i as u32)), insns.va(target));
        let inside = |f: usize, va: Vaddr| frames.get(f).is_some_and(|f| va >= f.0 && va < f.1);
        if !inside(here, va) {
            here = frame_of(frames, va).unwrap_or(frames.len());
        }
        if here == frames.len() || inside(here, to) {
            continue;
        }
        let Some(there) = frame_of(frames, to) else { continue };
        // One frame describes all of a PLT.
        let plt = cfg.blocks[cfg.block_of(target).ix()].end == End::GotJmp;
        if !plt && (insn.flow == Flow::Cond || frames[there].0 != to) {
            parts.join(here as u32, there as u32);
        }
    }
    parts
}

/// `push x; ret` and `mov [rsp], x; ret`: an indirect jump in other words.
pub fn returns_to_pushed(image: &Image, insns: &Insns, ret: InsnId) -> bool {
    let Some(before) = ret.0.checked_sub(1).map(InsnId) else { return false };
    if insns.next(before) != Some(ret) {
        return false;
    }
    let insn = insns.decode(image, before);
    match insn.mnemonic() {
        Mnemonic::Push => true,
        Mnemonic::Mov => {
            insn.op0_kind() == OpKind::Memory
                && insn.memory_base() == Register::RSP
                && insn.memory_index() == Register::None
                && insn.memory_displacement64() == 0
        }
        _ => false,
    }
}

/// Whether the target of the jump at the end of `block` comes out of arithmetic, as far as the block shows it. One that
/// comes from before the block may.
fn computes(image: &Image, insns: &Insns, block: &Block) -> bool {
    let jump = insns.decode(image, InsnId(block.stop.0 - 1));
    if jump.op0_kind() != OpKind::Register {
        return false;
    }
    let mut target = jump.op0_register();
    for i in (block.first.0..block.stop.0 - 1).rev() {
        let insn = insns.decode(image, InsnId(i));
        if insn.op_count() == 0
            || insn.op0_kind() != OpKind::Register
            || insn.op0_register().full_register() != target
            || matches!(insn.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push)
        {
            continue;
        }
        match (insn.mnemonic(), insn.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register) => target = insn.op1_register().full_register(),
            (Mnemonic::Mov, OpKind::Memory) | (Mnemonic::Pop, _) => return false,
            _ => return true,
        }
    }
    true
}

/// The functions whose addresses the instructions in `[from, to)` name.
fn taken_functions(image: &Image, insns: &Insns, from: Vaddr, to: Vaddr) -> Vec<InsnId> {
    let named = |insn: &Instruction| {
        if insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand() {
            return Some(Vaddr(insn.ip_rel_memory_address()));
        }
        let immediate = insn.mnemonic() == Mnemonic::Mov
            && matches!(insn.op1_kind(), OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64);
        (immediate && !image.pie).then(|| Vaddr(insn.immediate(1)))
    };
    insns
        .main_range(from, to)
        .filter_map(|i| named(&insns.decode(image, InsnId(i as u32))))
        .filter_map(|va| insns.at(va))
        .filter(|id| insns.starts.binary_search(id).is_ok())
        .collect()
}
