//! Facts -> [`Plan`]: for every instruction, whether and how it is checked, or why it needs no check.
//!
//! The exempt classes and their proofs stand in DESIGN.md. What is neither checked nor exempt is refused; all
//! refusals of a module are collected and reported together.

use crate::base::error::Refusal;
use crate::base::options::Options;
use crate::decode::classify::is_far;
use crate::decode::insns::Insns;
use crate::decode::reader::Reader;
use crate::decode::regs::RegSet;
use crate::facts::access::{Access, Place, Plain, XSAVE_BYTES, access_of};
use crate::facts::kinds::{Facts, Kind, KindId};
use crate::facts::stack::StackRegs;
use crate::graph::cfg::Cfg;
use crate::read::image::Image;
use blizzard_contract::{self as contract, VsibDesc, string_desc};
use iced_x86::{Code, Instruction, InstructionInfoFactory, InstructionInfoOptions, OpKind, Register};
use serde::Serialize;

/// Why an access is not checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exempt {
    /// rsp, or a register that holds rsp plus a constant on every path; no index.
    Stack,
    /// A constant address outside the segment.
    Global,
    /// fs or gs override.
    Tls,
    /// push, pop, call, ret, leave, enter.
    ImplicitStack,
    /// 32-bit address size: below 4 GiB.
    Addr32,
    /// The options ask for no check of this direction.
    NotRequested,
}

/// What is inserted before an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It accesses no memory.
    Nothing,
    Exempt(Exempt),
    /// Nothing: another check covers it, as a pass of the optimiser found.
    Covered,
    /// One tag test before the instruction.
    Check(Plain),
    CheckTwo(Plain, Plain),
    /// The string gate; the check bits of the descriptor are set.
    String {
        desc: u32,
        rsi: bool,
        rdi: bool,
    },
    Vsib(VsibDesc),
}

/// One action for each instruction, and the refusals.
#[derive(Debug)]
pub struct Plan {
    pub actions: Vec<Action>,
    pub refusals: Vec<Refusal>,
}

/// Decides for kinds of instructions, and for one instruction at a time.
pub struct Planner {
    options: Options,
    decider: Decider,
    /// By kind.
    decisions: Vec<Decision>,
    quiet: Vec<Quiet>,
}

/// Whether nothing is inserted before instructions of a kind: those whose base holds a stack address, and others.
#[derive(Clone, Copy, Debug)]
struct Quiet {
    base: RegSet,
    on_stack: bool,
    elsewhere: bool,
}

impl Quiet {
    fn of(decision: &Decision) -> Quiet {
        let quiet = |d: &Decided| matches!(d, Ok(Action::Nothing | Action::Exempt(_)));
        match decision {
            Decision::Always(decided) => {
                let quiet = quiet(decided);
                Quiet { base: RegSet::NONE, on_stack: quiet, elsewhere: quiet }
            }
            Decision::Based { base, on_stack, elsewhere } => {
                Quiet { base: *base, on_stack: quiet(on_stack), elsewhere: quiet(elsewhere) }
            }
            Decision::ByInstruction => Quiet { base: RegSet::NONE, on_stack: false, elsewhere: false },
        }
    }
}

/// Decides for one instruction.
pub struct Decider(InstructionInfoFactory);

impl Default for Decider {
    fn default() -> Self {
        Decider(InstructionInfoFactory::new())
    }
}

impl Decider {
    /// What is inserted before `insn`; `on_stack`: registers that hold a stack address before it. The error is the reason of a refusal.
    pub fn decide(&mut self, insn: &Instruction, on_stack: RegSet, options: &Options) -> Decided {
        let info = self.0.info_options(insn, InstructionInfoOptions::NO_REGISTER_USAGE);
        decide_access(insn, &access_of(insn, info), on_stack, options)
    }
}

/// What is inserted before an instruction, or why it is refused.
pub type Decided = Result<Action, &'static str>;

/// What is inserted before all instructions of a kind.
#[derive(Clone, Copy, Debug)]
enum Decision {
    Always(Decided),
    /// One or the other, as the register holds a stack address or not.
    Based {
        base: RegSet,
        on_stack: Decided,
        elsewhere: Decided,
    },
    /// Its numbers matter.
    ByInstruction,
}

impl Planner {
    /// Decides as `options` ask, for instructions that `facts` describe.
    pub fn new(options: &Options, facts: &Facts) -> Self {
        let decisions: Vec<Decision> = facts.kinds().iter().map(|k| decision(k, options)).collect();
        let quiet = decisions.iter().map(Quiet::of).collect();
        Planner { options: *options, decider: Decider::default(), decisions, quiet }
    }

    /// What is inserted before all instructions of `kind`; `on_stack`: registers that hold a stack address before it. `None`: it must be
    /// decoded for [`Planner::decide`].
    #[inline]
    pub fn decide_kind(&self, kind: KindId, on_stack: RegSet) -> Option<Decided> {
        match self.decisions[kind.ix()] {
            Decision::Always(decided) => Some(decided),
            Decision::Based { base, on_stack: on, elsewhere } => {
                Some(if on_stack.meets(base) { on } else { elsewhere })
            }
            Decision::ByInstruction => None,
        }
    }

    /// Whether certainly nothing is inserted before an instruction of `kind`; arguments as of [`Planner::decide_kind`].
    #[inline]
    pub fn is_quiet(&self, kind: KindId, on_stack: RegSet) -> bool {
        let Quiet { base, on_stack: on, elsewhere } = self.quiet[kind.ix()];
        if on_stack.meets(base) { on } else { elsewhere }
    }

    /// Whether what is inserted before instructions of `kind` depends on their base, and the base holds a stack address.
    #[inline]
    pub fn is_based_on(&self, kind: KindId, on_stack: RegSet) -> bool {
        matches!(self.decisions[kind.ix()], Decision::Based { base, .. } if on_stack.meets(base))
    }

    /// As [`Decider::decide`].
    pub fn decide(&mut self, insn: &Instruction, on_stack: RegSet) -> Decided {
        self.decider.decide(insn, on_stack, &self.options)
    }
}

fn decide_access(insn: &Instruction, access: &Access, on_stack: RegSet, options: &Options) -> Decided {
    match access {
        // int 0x80 is the only instruction that programs contain which touches no memory and cannot be relocated.
        Access::None if insn.code() == Code::Int_imm8 && insn.immediate8() == 0x80 => {
            Err("32-bit system call (int 0x80)")
        }
        Access::None => Ok(Action::Nothing),
        access => action(insn, access, on_stack, options),
    }
}

/// Decides for a kind, if its instructions' numbers do not matter.
fn decision(kind: &Kind, options: &Options) -> Decision {
    let insn = &kind.sample;
    let memory = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Memory);
    let constant = memory && insn.memory_base() == Register::None && insn.memory_index() == Register::None;
    if constant || insn.is_vsib() || insn.code() == Code::Int_imm8 {
        return Decision::ByInstruction;
    }
    // Only the base decides whether an operand is on the stack.
    let base = RegSet::of(insn.memory_base());
    let elsewhere = decide_access(insn, &kind.access, RegSet::NONE, options);
    let on_stack = decide_access(insn, &kind.access, base, options);
    if on_stack == elsewhere { Decision::Always(elsewhere) } else { Decision::Based { base, on_stack, elsewhere } }
}

/// Decides everything.
pub fn decide(image: &Image, insns: &Insns, cfg: &Cfg, facts: &Facts, stack: &StackRegs, options: &Options) -> Plan {
    let mut plan = Plan { actions: vec![Action::Nothing; insns.len()], refusals: Vec::new() };
    let mut planner = Planner::new(options, facts);
    let mut reader = Reader::new(image, insns);
    let mut insn = Instruction::default();
    for b in cfg.ids() {
        stack.walk(cfg, facts, b, |id, on_stack| {
            let decided = planner.decide_kind(facts.kind(id), on_stack).unwrap_or_else(|| {
                reader.decode(id, &mut insn);
                planner.decide(&insn, on_stack)
            });
            match decided {
                Ok(a) => plan.actions[id.ix()] = a,
                Err(reason) => {
                    let at = insns.va(id);
                    plan.refusals.push(Refusal { at, place: image.place(at), reason: reason.to_owned() });
                }
            }
        });
    }
    plan
}

fn action(insn: &Instruction, access: &Access, on_stack: RegSet, options: &Options) -> Decided {
    if is_far(insn) {
        return Err("far jump or call");
    }
    let (loads, stores) = (options.checks.loads(), options.checks.stores());
    if (loads || stores) && names_shared_memory(insn) {
        return Err("access to shared memory at a constant 64-bit address: keep the address in a variable");
    }
    let wanted = |p: &Plain| p.load && loads || p.store && stores;
    Ok(match *access {
        Access::None => Action::Nothing,
        Access::ImplicitStack => Action::Exempt(Exempt::ImplicitStack),
        // Whatever it touches, nothing is to be inserted for it.
        Access::Unknown(_) if !loads && !stores => Action::Exempt(Exempt::NotRequested),
        Access::Unknown(reason) => return Err(reason),
        Access::One(p) => match exempt(insn, &p, on_stack) {
            Some(why) => Action::Exempt(why),
            None if !wanted(&p) => Action::Exempt(Exempt::NotRequested),
            None => Action::Check(requested(p, loads, stores)),
        },
        Access::Two(a, b) => {
            let a = (exempt(insn, &a, on_stack).is_none() && wanted(&a)).then_some(requested(a, loads, stores));
            let b = (exempt(insn, &b, on_stack).is_none() && wanted(&b)).then_some(requested(b, loads, stores));
            match (a, b) {
                (Some(a), Some(b)) => Action::CheckTwo(a, b),
                (Some(p), None) | (None, Some(p)) => Action::Check(p),
                (None, None) => Action::Exempt(Exempt::NotRequested),
            }
        }
        Access::String { desc, reads_rsi, uses_rdi } => {
            let op = desc & string_desc::OP_MASK;
            let rdi_stored = matches!(op, string_desc::MOVS | string_desc::STOS);
            let rsi = reads_rsi && loads;
            let rdi = uses_rdi && if rdi_stored { stores } else { loads };
            if !rsi && !rdi {
                Action::Exempt(Exempt::NotRequested)
            } else {
                let bits = if loads { string_desc::CHECK_LOADS } else { 0 }
                    | if stores { string_desc::CHECK_STORES } else { 0 };
                Action::String { desc: desc | bits, rsi, rdi }
            }
        }
        Access::Vsib(d) => {
            if insn.segment_prefix() == Register::FS {
                Action::Exempt(Exempt::Tls)
            } else if d.access == 1 && !loads || d.access == 2 && !stores {
                Action::Exempt(Exempt::NotRequested)
            } else {
                Action::Vsib(d)
            }
        }
    })
}

/// Whether the operand is a constant address where shared memory can be. Only moves of the accumulator can have one; the checks' own
/// instructions cannot form it.
fn names_shared_memory(insn: &Instruction) -> bool {
    let shared = contract::SEGMENT_BASE..contract::SEGMENT_BASE + contract::SEGMENT_WINDOW_BYTES;
    (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Memory)
        && insn.memory_base() == Register::None
        && insn.memory_index() == Register::None
        && insn.segment_prefix() != Register::FS
        && shared.contains(&insn.memory_displacement64())
}

/// With only one direction asked for, a read-modify-write is checked as that direction.
fn requested(p: Plain, loads: bool, stores: bool) -> Plain {
    Plain { load: p.load && loads, store: p.store && stores, ..p }
}

/// The reason why an ordinary access needs no check, if there is one.
fn exempt(insn: &Instruction, p: &Plain, on_stack: RegSet) -> Option<Exempt> {
    let fs = insn.segment_prefix() == Register::FS;
    match p.at {
        Place::Register(r) => (!r.is_gpr64()).then_some(Exempt::Addr32).or(fs.then_some(Exempt::Tls)),
        Place::Xlat => fs.then_some(Exempt::Tls),
        Place::Operand | Place::BitString { .. } => {
            let (base, index) = (insn.memory_base(), insn.memory_index());
            if base.is_gpr32() || index.is_gpr32() || base == Register::EIP {
                return Some(Exempt::Addr32);
            }
            if fs {
                return Some(Exempt::Tls);
            }
            if matches!(p.at, Place::BitString { .. }) || index != Register::None {
                return None;
            }
            if base == Register::RIP || base == Register::None {
                return Some(Exempt::Global);
            }
            // pop [rsp+d] computes its address after the pop; it stays on the stack.
            on_stack.contains(RegSet::of(base)).then_some(Exempt::Stack)
        }
    }
}

/// Whether the access takes a test of ranges: it is too large for one of tags, or only its address may be looked at.
pub fn is_big(p: &Plain) -> bool {
    p.bytes > 64 || p.bytes == XSAVE_BYTES || p.gs
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// Compilers turn a constant pointer to user-managed memory into a move with a 64-bit address. It counted as a global variable
    /// and was not checked.
    #[test]
    fn a_constant_address_of_shared_memory_is_no_global() {
        let decide = |at: u64| {
            let mut bytes = vec![0xa1];
            bytes.extend(at.to_le_bytes());
            let insn = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
            Planner::new(&Options::default(), &Facts::default()).decide(&insn, RegSet::default())
        };
        for at in [contract::SEGMENT_BASE, contract::USER_BASE, contract::USER_BASE + contract::USER_BYTES - 1] {
            assert!(decide(at).is_err(), "{at:#x}");
        }
        for at in [0, contract::SEGMENT_BASE - 1, contract::SEGMENT_BASE + contract::SEGMENT_WINDOW_BYTES] {
            assert_eq!(decide(at), Ok(Action::Exempt(Exempt::Global)), "{at:#x}");
        }
    }
}
