//! What a single instruction is, from its encoding alone.
//!
//! Purpose: exploration asks where an instruction leads, and whether it looks like data that was decoded by mistake; passes behind it ask for
//! instructions that they treat apart. Input: decoded instructions. Output: answers; nothing is kept. **Invariant**: an answer
//! depends on the instruction alone, never on its address or neighbours. Source: SDM volume 2; VIA's PadLock programming guide for what
//! [`is_padlock`] names, which no other maker's processor executes.

use crate::base::addresses::Vaddr;
use crate::decode::insn::Flow;
use iced_x86::{Code, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// The target of a direct branch or call.
pub fn direct_target(insn: &Instruction) -> Option<Vaddr> {
    match insn.op0_kind() {
        OpKind::NearBranch64 if insn.op_count() > 0 => Some(Vaddr(insn.near_branch64())),
        _ => None,
    }
}

/// How control leaves `insn`.
pub fn flow_of(insn: &Instruction) -> Flow {
    match insn.flow_control() {
        FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend if direct_target(insn).is_some() => Flow::Cond,
        FlowControl::UnconditionalBranch => Flow::Jmp,
        FlowControl::IndirectBranch => Flow::IndirectJmp,
        FlowControl::Return => Flow::Ret,
        FlowControl::Call if direct_target(insn).is_some() => Flow::Call,
        FlowControl::IndirectCall => Flow::IndirectCall,
        FlowControl::Exception => Flow::Stop,
        _ if insn.code() == Code::Hlt => Flow::Stop,
        _ => Flow::Next,
    }
}

/// Instructions that user programs do not contain: where they show up, what is being decoded is data.
pub(super) fn odd_in_programs(insn: &Instruction) -> bool {
    matches!(
        insn.mnemonic(),
        Mnemonic::In
            | Mnemonic::Out
            | Mnemonic::Insb
            | Mnemonic::Insd
            | Mnemonic::Insw
            | Mnemonic::Outsb
            | Mnemonic::Outsd
            | Mnemonic::Outsw
            | Mnemonic::Retf
            | Mnemonic::Iret
            | Mnemonic::Iretd
            | Mnemonic::Iretq
            | Mnemonic::Int
            | Mnemonic::Int1
    ) || matches!(insn.flow_control(), FlowControl::IndirectBranch | FlowControl::IndirectCall) && is_far(insn)
        || is_nested(insn)
        || is_zeros(insn)
        || is_narrow_movsxd(insn)
}

/// `enter` that copies frame pointers of procedures around its own. Compilers that have such procedures do without it.
pub fn is_nested(insn: &Instruction) -> bool {
    insn.mnemonic() == Mnemonic::Enter && insn.immediate8_2nd() & 31 > 1
}

/// `add [rax], al`, two zero bytes: adds a part of an address to what is there, which no program does; small numbers in
/// tables look like it.
fn is_zeros(insn: &Instruction) -> bool {
    insn.code() == Code::Add_rm8_r8
        && insn.len() == 2
        && insn.memory_base() == Register::RAX
        && insn.op1_register() == Register::AL
}

/// `movsxd` without REX.W extends nothing: a `mov` that compilers do not write. The byte 63 in the middle of a real one looks like it.
fn is_narrow_movsxd(insn: &Instruction) -> bool {
    matches!(insn.code(), Code::Movsxd_r16_rm16 | Code::Movsxd_r32_rm32)
}

/// VIA's and Zhaoxin's PadLock. Programs ask for these processors before they use it; on all others it is undefined.
pub fn is_padlock(insn: &Instruction) -> bool {
    use iced_x86::CpuidFeature as F;
    insn.op_count() == 0
        && insn.cpuid_features().iter().any(|f| {
            matches!(
                f,
                F::PADLOCK_ACE | F::PADLOCK_PHE | F::PADLOCK_PMM | F::PADLOCK_RNG | F::PADLOCK_GMI | F::PADLOCK_UNDOC
            )
        })
}

/// Moves of the accumulator to a constant address of 64 bits.
pub fn is_constant_store(insn: &Instruction) -> bool {
    matches!(insn.code(), Code::Mov_moffs8_AL | Code::Mov_moffs16_AX | Code::Mov_moffs32_EAX | Code::Mov_moffs64_RAX)
}

/// Far jumps and calls through memory.
pub fn is_far(insn: &Instruction) -> bool {
    matches!(
        insn.code(),
        Code::Jmp_m1616 | Code::Jmp_m1632 | Code::Jmp_m1664 | Code::Call_m1616 | Code::Call_m1632 | Code::Call_m1664
    )
}

/// What it takes to emit an instruction elsewhere. All of a kind have one form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmitForm {
    /// It is copied as it is, wherever it stands.
    Plain,
    /// A jump, a call or an operand relative to the instruction itself.
    Distance,
    /// It is replaced, or its distance has no long form.
    Other,
}

impl EmitForm {
    pub(crate) fn of(insn: &Instruction) -> EmitForm {
        if insn.mnemonic() == Mnemonic::Syscall || is_padlock(insn) || is_constant_store(insn) {
            return EmitForm::Other;
        }
        if direct_target(insn).is_some() {
            let long = insn.is_jcc_short_or_near() || insn.is_jmp_short_or_near() || insn.is_call_near();
            return if long { EmitForm::Distance } else { EmitForm::Other };
        }
        match insn.is_ip_rel_memory_operand() {
            false => EmitForm::Plain,
            true if insn.memory_base() == Register::RIP => EmitForm::Distance,
            true => EmitForm::Other,
        }
    }
}

/// Whether an instruction is copied as it is, wherever it stands.
pub fn is_plain(insn: &Instruction) -> bool {
    EmitForm::of(insn) == EmitForm::Plain
}

pub(crate) fn is_conditional_move(m: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(
        m,
        M::Cmova
            | M::Cmovae
            | M::Cmovb
            | M::Cmovbe
            | M::Cmove
            | M::Cmovne
            | M::Cmovg
            | M::Cmovge
            | M::Cmovl
            | M::Cmovle
            | M::Cmovno
            | M::Cmovnp
            | M::Cmovns
            | M::Cmovo
            | M::Cmovp
            | M::Cmovs
    )
}

/// An immediate that may be an address.
pub(crate) fn is_wide_immediate(kind: OpKind) -> bool {
    matches!(kind, OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64)
}
