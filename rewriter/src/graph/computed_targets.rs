//! Which old instruction addresses a program may compute.
//!
//! Purpose: a springboard overwrites up to five bytes; an instruction that starts inside them must not be where an indirect
//! branch can lead. Addresses that the program *names* are roots already. What is left are addresses that it computes: from a
//! label and an index, or from tables of differences that were not recognised as jump tables.
//!
//! Input: instructions, graph, frames. Output: [`Computed`]. An instruction may be a computed target if
//! * its function has an unresolved indirect jump, or a return to an address that was just pushed;
//! * such a jump stands outside every frame, and so does the instruction, between the same two function starts (symbols, targets of calls);
//! * its function holds a *label*: an address that code names, that no function begins at, that does not go into a jump buffer, and of which something
//!   else than jumps to it may become;
//! * its function's address is taken in a function that computes the target of an unresolved jump;
//! * a word behind the end of a jump table would lead to it.
//!
//! A function is a frame with all frames that share code with it by branches: a branch into the middle of another frame, or a
//! conditional one, is no tail call. Outside frames it is what jumps join.
//!
//! Not covered: code that adds a number to a function pointer it was handed, and calls the sum.

use crate::base::addresses::Vaddr;
use crate::base::collections::ranked_bits::RankedBits;
use crate::base::collections::union_find::Components;
use crate::decode::classify::{is_conditional_move, is_wide_immediate};
use crate::decode::insn::{Flow, InsnId, Label};
use crate::decode::insns::Insns;
use crate::decode::regs::{RegSet, writes};
use crate::graph::cfg::{BasicBlock, Cfg, End};
use crate::graph::labels::{self, Frameless, in_jump_buffer, is_argument, taken_labels};
use crate::read::image::Image;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Most blocks between the loads of a pointer and a jump to it.
const MAX_BACK: usize = 256;

/// One bit for each instruction.
#[derive(Debug)]
pub struct Computed(RankedBits);

impl Computed {
    /// Whether a computed jump may lead to `id`.
    pub fn may_reach(&self, id: InsnId) -> bool {
        self.0.contains(id.ix())
    }

    /// Solves for a module. `frames`: `[start, end)`, sorted.
    pub fn solve(image: &Image, insns: &Insns, cfg: &Cfg, frames: &[(Vaddr, Vaddr)]) -> Computed {
        let mut parts = join_parts(insns, cfg, frames);
        let function: Vec<u32> = (0..frames.len() as u32).map(|f| parts.find(f)).collect();
        let mut marked = vec![false; frames.len()];
        let mut out = vec![false; insns.len()];
        let jumped_to = labels::only_jumped_to(image, insns, cfg);
        let mut paths = Paths { image, insns, cfg, frames, jumped_to: &jumped_to, frame_pointer: HashMap::new() };
        let mut unframed = Vec::new();
        // Outside frames, components are only noted here: files without frames have as many of them as labels.
        let mut components = HashSet::new();
        let mut mark = |id: InsnId, marked: &mut [bool]| match frame_of(frames, insns.va(id)) {
            Some(f) => marked[function[f] as usize] = true,
            None => _ = components.insert(cfg.component[cfg.block_of(id).ix()]),
        };
        for b in cfg.ids() {
            let block = &cfg.blocks[b.ix()];
            let last = InsnId(block.stop.0 - 1);
            let flow = insns.flow(last);
            let jump = matches!(flow, Flow::IndirectJmp | Flow::Ret);
            if !jump || !matches!(block.end(), End::FramedJmp | End::UnknownJmp) {
                continue;
            }
            if paths.loads_pointer(last) {
                continue;
            }
            let Some(f) = frame_of(frames, insns.va(last)) else {
                mark(last, &mut marked);
                unframed.push((last, flow == Flow::Ret || computes(image, insns, block)));
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
        let is_frameless = |id: InsnId| frame_of(frames, insns.va(id)).is_none();
        let looks_like_start = |l: &Label| is_frameless(l.at) && labels::looks_like_start(image, insns, cfg, *l);
        for &label in insns.labels.iter().filter(|l| !looks_like_start(l)) {
            if !jumped_to.contains_key(&label.at) && !in_jump_buffer(image, insns, cfg, label) {
                mark(label.at, &mut marked);
            }
        }
        for (f, &(from, to)) in frames.iter().enumerate() {
            if marked[function[f] as usize] {
                out[insns.main_range(from, to)].fill(true);
            }
        }
        for b in cfg.ids().filter(|b| components.contains(&cfg.component[b.ix()])) {
            let BasicBlock { first, stop, .. } = cfg.blocks[b.ix()];
            if frame_of(frames, insns.va(first)).is_none() {
                out[first.ix()..stop.ix()].fill(true);
            }
        }
        if !unframed.is_empty() {
            let mut bare: Vec<InsnId> = insns.labels.iter().filter(|l| looks_like_start(l)).map(|l| l.at).collect();
            bare.dedup();
            let functions = Frameless::new(image, insns, bare);
            // By function, not by jump: without frames and calls, one may be most of the file and hold most of its jumps.
            let mut jumping = BTreeMap::new();
            for (jump, computes) in unframed {
                *jumping.entry(functions.around(insns.va(jump))).or_insert(false) |= computes;
            }
            let mut reached: BTreeSet<_> = jumping.keys().copied().collect();
            for ((from, to), _) in jumping.into_iter().filter(|(_, computes)| *computes) {
                reached.extend(functions.taken(from, to).into_iter().map(|f| functions.around(insns.va(f))));
            }
            for i in reached.into_iter().flat_map(|(from, to)| insns.main_range(from, to)) {
                out[i] |= is_frameless(InsnId(i as u32));
            }
        }
        for t in &cfg.tables {
            t.surplus().for_each(|id| out[id.ix()] = true);
        }
        // The overlapping ones lie in the main run's.
        for i in insns.main..insns.len() {
            let va = insns.va(InsnId(i as u32));
            let over = insns.main_before(va).saturating_sub(1);
            out[i] |= out[over];
        }
        Computed(RankedBits::of(out.into_iter()))
    }
}

/// The ways back from jumps to where their targets come from.
struct Paths<'x, 'a> {
    image: &'x Image<'a>,
    insns: &'x Insns,
    cfg: &'x Cfg,
    frames: &'x [(Vaddr, Vaddr)],
    /// Labels that are only jumped to, and the jumps.
    jumped_to: &'x HashMap<InsnId, Vec<InsnId>>,
    /// By frame: whether its code makes rbp a frame pointer.
    frame_pointer: HashMap<usize, bool>,
}

impl Paths<'_, '_> {
    /// Whether a jump's target is a whole pointer from memory that is no spill slot, a constant, what a call returned, or an argument, on
    /// every way to the jump, or one of several such: no arithmetic here. What a program's data hold is named by relocations or words; what it
    /// computes elsewhere and stores, returns or passes on, it computes from a label, whose function is marked. Tail calls through
    /// objects and variables look like this, in thousands.
    fn loads_pointer(&mut self, jump: InsnId) -> bool {
        let insn = self.insns.decode(self.image, jump);
        if insn.op_count() == 0 {
            return false;
        }
        if insn.op0_kind() == OpKind::Memory {
            return self.is_no_spill_slot(jump, &insn);
        }
        if insn.op0_kind() != OpKind::Register || !insn.op0_register().is_gpr64() {
            return false;
        }
        let mut factory = InstructionInfoFactory::new();
        let mut seen = Vec::new();
        let mut work = vec![(self.cfg.block_of(jump), jump, insn.op0_register())];
        while let Some((b, mut stop, mut target)) = work.pop() {
            if seen.contains(&(b, stop, target)) {
                continue;
            }
            if seen.len() > MAX_BACK {
                return false;
            }
            seen.push((b, stop, target));
            let block = &self.cfg.blocks[b.ix()];
            let mut defined = false;
            while stop > block.first && !defined {
                stop = InsnId(stop.0 - 1);
                let insn = self.insns.decode(self.image, stop);
                if !writes(&mut factory, &insn, target) {
                    continue;
                }
                if reads_guarded_pointer(&insn) && insn.op0_register() == target {
                    continue;
                }
                if insn.op_count() < 2 || insn.op0_kind() != OpKind::Register || insn.op0_register() != target {
                    return false;
                }
                let memory = insn.op1_kind() == OpKind::Memory;
                match insn.mnemonic() {
                    Mnemonic::Lea if insn.is_ip_rel_memory_operand() => defined = true,
                    Mnemonic::Mov if memory && self.is_no_spill_slot(stop, &insn) => defined = true,
                    Mnemonic::Mov if insn.op1_kind() == OpKind::Register => target = insn.op1_register(),
                    Mnemonic::Mov if is_wide_immediate(insn.op1_kind()) => defined = true,
                    // One of two; this way is that of the one before.
                    _ if is_conditional_move(insn.mnemonic()) && insn.op1_kind() == OpKind::Register => {
                        work.push((b, stop, insn.op1_register()));
                    }
                    _ if is_conditional_move(insn.mnemonic()) && memory && self.is_no_spill_slot(stop, &insn) => {}
                    _ => return false,
                }
            }
            if defined {
                continue;
            }
            let preds = self.cfg.preds(b);
            let jumps = self.jumped_to.get(&block.first);
            for &jump in jumps.into_iter().flatten() {
                work.push((self.cfg.block_of(jump), jump, target));
            }
            let root = self.cfg.root[b.ix()] && jumps.is_none();
            if !root && preds.len() == 0 && self.is_padding(block) {
                continue;
            }
            let handed_over = root && is_argument(target) && self.insns.starts_function(block.first);
            if (root || preds.len() == 0 && jumps.is_none()) && !handed_over {
                return false;
            }
            for p in preds {
                let end = self.cfg.blocks[p.ix()].end();
                let call = matches!(end, End::Call(_) | End::UnknownCall | End::DescriptorCall);
                if call && target == Register::RAX {
                    continue;
                }
                if call && !RegSet::CALLEE_SAVED.contains(RegSet::of(target)) {
                    return false;
                }
                work.push((p, self.cfg.blocks[p.ix()].stop, target));
            }
        }
        true
    }

    /// Whether a block that nothing leads to only fills up what stands in front of an aligned one.
    fn is_padding(&self, block: &BasicBlock) -> bool {
        (block.first.0..block.stop.0)
            .all(|i| matches!(self.insns.decode(self.image, InsnId(i)).mnemonic(), Mnemonic::Nop | Mnemonic::Int3))
    }

    /// Whether the memory operand of an instruction is none of the places where compilers put what they have no register for.
    fn is_no_spill_slot(&mut self, id: InsnId, insn: &Instruction) -> bool {
        match insn.memory_base() {
            Register::RSP => false,
            Register::RBP => {
                let Some(frame) = frame_of(self.frames, self.insns.va(id)) else { return false };
                let (image, insns, frames) = (self.image, self.insns, self.frames);
                let sets = || sets_frame_pointer(image, insns, frames[frame]);
                !*self.frame_pointer.entry(frame).or_insert_with(sets)
            }
            _ => true,
        }
    }
}

/// Whether some instruction of a function makes rbp a frame pointer, or its part inherits one: a function's part has the rest elsewhere.
fn sets_frame_pointer(image: &Image, insns: &Insns, (from, to): (Vaddr, Vaddr)) -> bool {
    let sets = |i: usize| {
        let insn = insns.decode(image, InsnId(i as u32));
        match insn.mnemonic() {
            Mnemonic::Enter => true,
            Mnemonic::Mov => insn.op0_register() == Register::RBP && insn.op1_register() == Register::RSP,
            Mnemonic::Lea => insn.op0_register() == Register::RBP && insn.memory_base() == Register::RSP,
            _ => false,
        }
    };
    let part = insns.at(from).is_none_or(|start| !insns.starts_function(start));
    part || insns.main_range(from, to).any(sets)
}

/// The two instructions by which glibc gets a pointer back that it has stored as a secret (PTR_DEMANGLE): the pointer is whole.
fn reads_guarded_pointer(insn: &Instruction) -> bool {
    insn.op0_kind() == OpKind::Register
        && match insn.mnemonic() {
            Mnemonic::Ror => insn.op1_kind() == OpKind::Immediate8 && insn.immediate8() == 2 * 8 + 1,
            Mnemonic::Xor => {
                insn.op1_kind() == OpKind::Memory
                    && insn.segment_prefix() == Register::FS
                    && insn.memory_base() == Register::None
                    && insn.memory_displacement64() == 0x30
            }
            _ => false,
        }
}

fn frame_of(frames: &[(Vaddr, Vaddr)], va: Vaddr) -> Option<usize> {
    let i = frames.partition_point(|f| f.0 <= va).checked_sub(1)?;
    (va < frames[i].1).then_some(i)
}

/// Joins the frames of one function.
fn join_parts(insns: &Insns, cfg: &Cfg, frames: &[(Vaddr, Vaddr)]) -> Components {
    let mut parts = Components::new(frames.len());
    let mut here = 0;
    for (id, target) in insns.branches() {
        let flow = insns.flow(id);
        if !matches!(flow, Flow::Jmp | Flow::Cond) {
            continue;
        }
        let (va, to) = (insns.va(id), insns.va(target));
        let inside = |f: usize, va: Vaddr| frames.get(f).is_some_and(|f| va >= f.0 && va < f.1);
        if !inside(here, va) {
            here = frame_of(frames, va).unwrap_or(frames.len());
        }
        if here == frames.len() || inside(here, to) {
            continue;
        }
        let Some(there) = frame_of(frames, to) else { continue };
        // One frame describes all of a PLT.
        let plt = cfg.blocks[cfg.block_of(target).ix()].end() == End::GotJmp;
        if !plt && (flow == Flow::Cond || frames[there].0 != to) {
            parts.join(here as u32, there as u32);
        }
    }
    parts
}

/// Whether the target of the jump at the end of `block` comes out of arithmetic, as far as the block shows it. One that
/// comes from before the block may.
fn computes(image: &Image, insns: &Insns, block: &BasicBlock) -> bool {
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
    let mut taken = taken_labels(image, insns, from, to);
    taken.retain(|id| insns.starts.binary_search(id).is_ok());
    taken
}
