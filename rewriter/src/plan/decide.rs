//! Facts -> [`Decisions`]: for every instruction, whether and how it is checked, or why it needs no check.
//!
//! Input: instructions, their facts, stack addresses, options. Output: one decision for each instruction; the passes take checks away from there.
//! The exempt classes and their proofs stand in DESIGN.md. **Invariant**: what is neither checked nor exempt is refused.

use crate::base::options::{self, Options};
use crate::decode::classify::is_far;
use crate::decode::reader::Reader;
use crate::decode::regs::RegSet;
use crate::facts::access::{AddressForm, InsnAccess, PlainAccess, access_of};
use crate::facts::kinds::InsnKind;
use crate::facts::rsp::RspSource;
use crate::plan::checks::PassInput;
use crate::plan::decision::{Decision, Decisions, Reason};
use blizzard_contract::{self as contract, string_desc};
use iced_x86::{Code, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic, OpKind, Register};

/// What is decided for all instructions of a kind.
#[derive(Clone, Copy, Debug)]
struct OfKind {
    /// Registers that decide whether the operand is on the stack.
    base: RegSet,
    /// Indices into [`Decisions::distinct`]: where the base holds a stack address, and elsewhere.
    on_stack: u32,
    elsewhere: u32,
    rsp_from: RspSource,
}

/// [`OfKind::elsewhere`], where the numbers of each instruction matter.
const BY_INSTRUCTION: u32 = u32::MAX;

/// Decides everything, once.
pub fn decide(input: &PassInput) -> Decisions {
    let PassInput { image, insns, cfg, facts, stack, options, .. } = *input;
    let mut out = Decisions::with_capacity(insns.len());
    let kinds: Vec<OfKind> = facts.kinds().iter().map(|k| of_kind(k, options, &mut out)).collect();
    // In guarded code a stack in shared memory faults.
    let tests_stack = options.checks != options::Checks::None && options.access == options::AccessMode::Tests;
    let mut reader = Reader::new(image, insns);
    let mut insn = Instruction::default();
    let mut factory = InstructionInfoFactory::new();
    for b in cfg.ids() {
        stack.walk(cfg, facts, b, |id, on_stack| {
            let of = &kinds[facts.kind(id).ix()];
            let mut index = if on_stack.meets(of.base) { of.on_stack } else { of.elsewhere };
            if index == BY_INSTRUCTION {
                reader.decode(id, &mut insn);
                index = out.index(one(&insn, &mut factory, options));
            }
            out.push(index, tests_stack && of.rsp_from.is_tested(on_stack));
        });
    }
    out
}

/// Decides for one instruction, of which no register matters.
fn one(insn: &Instruction, factory: &mut InstructionInfoFactory, options: &Options) -> Decision {
    let info = factory.info_options(insn, InstructionInfoOptions::NO_REGISTER_USAGE);
    decision(insn, &access_of(insn, info), RegSet::NONE, options)
}

/// Decides for a kind, if its instructions' numbers do not matter.
fn of_kind(kind: &InsnKind, options: &Options, out: &mut Decisions) -> OfKind {
    let (insn, rsp_from) = (&kind.sample, kind.rsp_from);
    let memory = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Memory);
    let constant = memory && insn.memory_base() == Register::None && insn.memory_index() == Register::None;
    if constant || insn.is_vsib() || insn.code() == Code::Int_imm8 {
        return OfKind { base: RegSet::NONE, on_stack: BY_INSTRUCTION, elsewhere: BY_INSTRUCTION, rsp_from };
    }
    // Only the base decides whether an operand is on the stack.
    let base = RegSet::of(insn.memory_base());
    let mut index = |on_stack| out.index(decision(insn, &kind.access, on_stack, options));
    OfKind { base, on_stack: index(base), elsewhere: index(RegSet::NONE), rsp_from }
}

/// Decides; `on_stack`: registers that hold a stack address before the instruction.
fn decision(insn: &Instruction, access: &InsnAccess, on_stack: RegSet, options: &Options) -> Decision {
    if options.access == options::AccessMode::Guard && insn.mnemonic() == Mnemonic::Rdgsbase {
        return Decision::Refused(
            "reads the base of %gs, by which guarded code reaches shared memory: use --access tests",
        );
    }
    if matches!(access, InsnAccess::None) {
        // int 0x80 is the only instruction that programs contain which touches no memory and cannot be relocated.
        let refused = insn.code() == Code::Int_imm8 && insn.immediate8() == 0x80;
        return if refused { Decision::Refused("32-bit system call (int 0x80)") } else { Decision::Nothing };
    }
    if is_far(insn) {
        return Decision::Refused("far jump or call");
    }
    // The base of %gs leads to the alias, whatever is tested.
    if options.access == options::AccessMode::Guard && insn.segment_prefix() == Register::GS {
        return Decision::Refused(
            "an operand with %gs, by which guarded code reaches shared memory: use --access tests",
        );
    }
    let (loads, stores) = (options.checks.loads(), options.checks.stores());
    if (loads || stores) && names_shared_memory(insn) {
        return Decision::Refused(
            "access to shared memory at a constant 64-bit address: keep the address in a variable",
        );
    }
    let wanted = |p: &PlainAccess| p.load && loads || p.store && stores;
    let not_requested = Decision::Unchecked(Reason::NotRequested);
    match *access {
        InsnAccess::None => Decision::Nothing,
        InsnAccess::ImplicitStack => Decision::Unchecked(Reason::ImplicitStack),
        // Whatever it touches, nothing is to be inserted for it.
        InsnAccess::Unknown(_) if !loads && !stores => not_requested,
        InsnAccess::Unknown(reason) => Decision::Refused(reason),
        InsnAccess::One(p) => match exempt(insn, &p, on_stack) {
            Some(why) => Decision::Unchecked(why),
            None if !wanted(&p) => not_requested,
            None => Decision::Check(requested(p, loads, stores)),
        },
        InsnAccess::Two(a, b) => {
            let a = (exempt(insn, &a, on_stack).is_none() && wanted(&a)).then_some(requested(a, loads, stores));
            let b = (exempt(insn, &b, on_stack).is_none() && wanted(&b)).then_some(requested(b, loads, stores));
            match (a, b) {
                (Some(a), Some(b)) => Decision::CheckTwo(a, b),
                (Some(p), None) | (None, Some(p)) => Decision::Check(p),
                (None, None) => not_requested,
            }
        }
        InsnAccess::String { desc, reads_rsi, uses_rdi } => {
            let op = desc & string_desc::OP_MASK;
            let rdi_stored = matches!(op, string_desc::MOVS | string_desc::STOS);
            let rsi = reads_rsi && loads;
            let rdi = uses_rdi && if rdi_stored { stores } else { loads };
            if !rsi && !rdi {
                not_requested
            } else {
                let bits = if loads { string_desc::CHECK_LOADS } else { 0 }
                    | if stores { string_desc::CHECK_STORES } else { 0 };
                Decision::String { desc: desc | bits, rsi, rdi }
            }
        }
        InsnAccess::Vsib(d) => {
            if insn.segment_prefix() == Register::FS {
                Decision::Unchecked(Reason::Tls)
            } else if d.access == 1 && !loads || d.access == 2 && !stores {
                not_requested
            } else {
                Decision::Vsib(d)
            }
        }
    }
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
fn requested(p: PlainAccess, loads: bool, stores: bool) -> PlainAccess {
    PlainAccess { load: p.load && loads, store: p.store && stores, ..p }
}

/// The reason why an ordinary access needs no check, if there is one.
fn exempt(insn: &Instruction, p: &PlainAccess, on_stack: RegSet) -> Option<Reason> {
    let fs = insn.segment_prefix() == Register::FS;
    match p.at {
        AddressForm::Register(r) => (!r.is_gpr64()).then_some(Reason::Addr32).or(fs.then_some(Reason::Tls)),
        AddressForm::Xlat => fs.then_some(Reason::Tls),
        AddressForm::Operand | AddressForm::BitString { .. } => {
            let (base, index) = (insn.memory_base(), insn.memory_index());
            if base.is_gpr32() || index.is_gpr32() || base == Register::EIP {
                return Some(Reason::Addr32);
            }
            if fs {
                return Some(Reason::Tls);
            }
            if matches!(p.at, AddressForm::BitString { .. }) || index != Register::None {
                return None;
            }
            if base == Register::RIP || base == Register::None {
                return Some(Reason::Global);
            }
            // pop [rsp+d] computes its address after the pop; it stays on the stack.
            on_stack.contains(RegSet::of(base)).then_some(Reason::Stack)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// No class is exempt: a constant address and a 32-bit one would lead to the alias, too.
    #[test]
    fn guarded_code_has_no_operand_with_gs() {
        let gs = |bytes: &[u8]| {
            let all: Vec<u8> = [0x65].iter().chain(bytes).copied().collect();
            let insn = Decoder::new(64, &all, DecoderOptions::NONE).decode();
            let of = |options| matches!(one(&insn, &mut InstructionInfoFactory::new(), &options), Decision::Refused(_));
            let bare = Options { checks: options::Checks::None, ..Options::tests() };
            let guard = |options| Options { access: options::AccessMode::Guard, ..options };
            (of(Options::tests()) || of(bare), of(guard(Options::tests())) && of(guard(bare)))
        };
        let (constant, low, base) = (&[0x8b, 0x04, 0x25, 0x10, 0, 0, 0], &[0x67, 0x8b, 0x00], &[0x8b, 0x00]);
        for access in [&constant[..], low, base] {
            assert_eq!(gs(access), (false, true), "{access:x?}");
        }
        // rdgsbase rax
        let reads = Decoder::new(64, &[0xf3, 0x48, 0x0f, 0xae, 0xc8], DecoderOptions::NONE).decode();
        let of = |access| one(&reads, &mut InstructionInfoFactory::new(), &Options { access, ..Options::tests() });
        assert!(matches!(of(options::AccessMode::Guard), Decision::Refused(_)));
        assert!(matches!(of(options::AccessMode::Tests), Decision::Nothing));
        // lea and nop touch nothing.
        assert_eq!(gs(&[0x48, 0x8d, 0x00]), (false, false));
        assert_eq!(gs(&[0x0f, 0x1f, 0x00]), (false, false));
    }

    /// Compilers turn a constant pointer to user-managed memory into a move with a 64-bit address. It counted as a global variable
    /// and was not checked.
    #[test]
    fn a_constant_address_of_shared_memory_is_no_global() {
        let decide = |at: u64| {
            let mut bytes = vec![0xa1];
            bytes.extend(at.to_le_bytes());
            let insn = Decoder::new(64, &bytes, DecoderOptions::NONE).decode();
            one(&insn, &mut InstructionInfoFactory::new(), &Options::tests())
        };
        for at in [contract::SEGMENT_BASE, contract::USER_BASE, contract::USER_BASE + contract::USER_BYTES - 1] {
            assert!(matches!(decide(at), Decision::Refused(_)), "{at:#x}");
        }
        for at in [0, contract::SEGMENT_BASE - 1, contract::SEGMENT_BASE + contract::SEGMENT_WINDOW_BYTES] {
            assert_eq!(decide(at), Decision::Unchecked(Reason::Global), "{at:#x}");
        }
    }
}
