//! Indirect calls and jumps that may know more of their callees than the ABI.
//!
//! Purpose: a compiler that knows whom it calls through a register may keep values in whatever that function leaves alone (gcc's
//! `-fipa-ra`), as over a direct call. gcc calls so in the large code model (psABI 3.5), where a function's address is a number of 64 bits, or
//! the GOT's address plus one, and with `-mforce-indirect-call`. And the type of a pointer may name a convention of its own. Input: the graph and the
//! decoded instructions. Output: blocks that end in such a call or jump, and whom it may lead to.
//!
//! * A target that is one address of code on all ways may be that function.
//! * A register's value that comes out of memory other than the stack, or from the caller, is a pointer. In a module in which any
//!   target is seen to come from a number of 64 bits, what is not known to be a pointer may be any function that can be entered so.
//! * In a module whose callers keep what the ABI gives up ([`crate::facts::ipa_ra`]), pointers may, too.

use crate::base::addresses::Vaddr;
use crate::decode::insn::{Flow, InsnId};
use crate::decode::insns::Insns;
use crate::decode::regs::RegSet;
use crate::facts::ipa_ra;
use crate::facts::kinds::Facts;
use crate::graph::cfg::{BlockId, Cfg, End};
use crate::read::image::Image;
use iced_x86::{Instruction, Mnemonic, OpKind, Register};
use std::collections::HashSet;

/// Most ways into blocks that are followed for one target.
const MAX_WAYS: usize = 256;
/// No function lies lower (Linux: `vm.mmap_min_addr`).
const LOWEST_CODE: u64 = 0x10000;

/// Where a register's value comes from.
enum Origin {
    Register(Register),
    /// Of these two.
    Sum(Register, Register),
    Pointer,
    /// A number of 64 bits.
    Number,
    /// An address of code, by a shorter number or a distance.
    Code(Vaddr),
    Unknown,
}

/// What is known of a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Pointer,
    Unknown,
    Number,
    /// This on all ways.
    One(Vaddr),
}

/// The blocks that end in such calls or jumps, ascending.
#[derive(Debug, Default)]
pub struct Callees {
    /// To any function that can be entered from elsewhere.
    pub to_any: Vec<BlockId>,
    one: Vec<(BlockId, BlockId)>,
}

impl Callees {
    /// To one function: with the block that it begins with.
    pub fn to_one(&self) -> impl Iterator<Item = (BlockId, BlockId)> + Clone {
        self.one.iter().copied()
    }
}

/// Looks at all indirect calls and unresolved jumps.
pub fn find(image: &Image, insns: &Insns, cfg: &Cfg, facts: &Facts) -> Callees {
    let mut found: Vec<(BlockId, Target)> = Vec::new();
    for b in cfg.ids() {
        let last = InsnId(cfg.blocks[b.ix()].stop.0 - 1);
        let indirect = matches!(insns.flow(last), Flow::IndirectCall | Flow::IndirectJmp);
        if !indirect || !matches!(cfg.blocks[b.ix()].end(), End::UnknownCall | End::FramedJmp | End::UnknownJmp) {
            continue;
        }
        let insn = insns.decode(image, last);
        let target = match insn.op0_kind() {
            OpKind::Register => target(image, insns, cfg, facts, b, insn.op0_register()),
            _ if on_stack(&insn) => Target::Unknown,
            _ => Target::Pointer,
        };
        found.push((b, target));
    }
    let least = if ipa_ra::is_any(cfg, facts) {
        Some(Target::Pointer)
    } else {
        found.iter().any(|f| f.1 == Target::Number).then_some(Target::Unknown)
    };
    let mut named = Callees::default();
    for (b, target) in found {
        let begin = match target {
            Target::One(va) => insns.at(va).map(|id| (id, cfg.block_of(id))),
            _ => None,
        };
        let begin = begin.filter(|(id, c)| cfg.root[c.ix()] && cfg.blocks[c.ix()].first == *id);
        match begin {
            Some((_, callee)) => named.one.push((b, callee)),
            None if least.is_some_and(|least| target >= least) => named.to_any.push(b),
            None => {}
        }
    }
    named
}

/// What `reg` may hold at the end of `b`, on any way there.
fn target(image: &Image, insns: &Insns, cfg: &Cfg, facts: &Facts, b: BlockId, reg: Register) -> Target {
    let mut found = Target::Pointer;
    // The address of code that all ways so far lead to, and whether any leads to something else.
    let (mut code, mut others) = (None, false);
    // A register in front of the `u32`th instruction.
    let mut work = vec![(b, cfg.blocks[b.ix()].stop.0, reg)];
    let mut seen = HashSet::new();
    while let Some((b, before, reg)) = work.pop() {
        let first = cfg.blocks[b.ix()].first.0;
        let writes = |i: &u32| facts.stack(InsnId(*i)).written().meets(RegSet::of(reg));
        let Some(at) = (first..before).rev().find(writes) else {
            let ways = cfg.preds(b).filter(|p| seen.insert((*p, reg)));
            work.extend(ways.map(|p| (p, cfg.blocks[p.ix()].stop.0, reg)));
            if seen.len() > MAX_WAYS {
                return found.max(Target::Unknown);
            }
            continue;
        };
        match origin(image, &insns.decode(image, InsnId(at)), reg) {
            Origin::Register(from) => work.push((b, at, from)),
            Origin::Sum(x, y) => work.extend([(b, at, x), (b, at, y)]),
            Origin::Pointer => others = true,
            Origin::Unknown => (found, others) = (Target::Unknown, true),
            Origin::Code(va) => {
                (found, others) = (Target::Unknown, others || code.is_some_and(|c| c != va));
                code = Some(va);
            }
            Origin::Number => return Target::Number,
        }
    }
    code.filter(|_| !others).map_or(found, Target::One)
}

/// What an instruction puts into `reg`.
fn origin(image: &Image, insn: &Instruction, reg: Register) -> Origin {
    let (to, from) = (insn.op0_register(), insn.op1_register());
    if insn.mnemonic() == Mnemonic::Syscall {
        return Origin::Pointer;
    }
    if insn.op_count() != 2 || insn.op0_kind() != OpKind::Register || to.full_register() != reg {
        return Origin::Unknown;
    }
    let named = |va| if image.exec_at(Vaddr(va)).is_some() { Origin::Code(Vaddr(va)) } else { Origin::Unknown };
    match (insn.mnemonic(), insn.op1_kind()) {
        (Mnemonic::Mov, OpKind::Register) if to.is_gpr64() => Origin::Register(from),
        (Mnemonic::Mov, OpKind::Memory) if !on_stack(insn) => Origin::Pointer,
        (Mnemonic::Mov, OpKind::Immediate64) => Origin::Number,
        (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64) if insn.immediate(1) < LOWEST_CODE => {
            Origin::Pointer
        }
        (Mnemonic::Mov, OpKind::Immediate32 | OpKind::Immediate32to64) => named(insn.immediate(1)),
        (Mnemonic::Lea, _) if insn.memory_index() == Register::None && has_no_base(insn) => {
            named(insn.memory_displacement64())
        }
        (Mnemonic::Add, OpKind::Register) if to.is_gpr64() => Origin::Sum(to, from),
        (Mnemonic::Lea, _) if insn.memory_base().is_gpr64() && insn.memory_index().is_gpr64() => {
            Origin::Sum(insn.memory_base(), insn.memory_index())
        }
        (Mnemonic::Xor, OpKind::Register) if from == to => Origin::Pointer,
        _ => Origin::Unknown,
    }
}

/// Whether the operand in memory has an address that is a number or a distance.
fn has_no_base(insn: &Instruction) -> bool {
    matches!(insn.memory_base(), Register::None | Register::RIP)
}

/// Whether the operand in memory is a place of the stack, where a register may have been kept.
fn on_stack(insn: &Instruction) -> bool {
    matches!(insn.memory_base(), Register::RSP | Register::RBP) && insn.memory_index() == Register::None
}
