//! What one instruction does to registers, from its encoding alone.
//!
//! Input: an instruction, and what iced-x86 says of its registers. Output: what it reads and certainly overwrites ([`Effects`]), and what it does to stack
//! addresses ([`StackEffect`]) and to numbers of 32 bits ([`DwordEffect`]).
//! **Invariants.**
//! `reads` may be too large and `kills` too small, never the other way round. Partial writes (8 and 16 bit), conditional
//! writes and flag changes that depend on a count kill nothing. Source: SDM volume 2, through iced-x86's tables.

use crate::decode::classify::is_conditional_move;
use crate::decode::regs::{RegSet, written_by};
use iced_x86::{FlowControl, Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register, RflagsBits};

/// Effects of one instruction on general registers and status flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effects {
    pub reads: RegSet,
    pub kills: RegSet,
}

/// Computes them.
pub fn effects(insn: &Instruction, info: &InstructionInfo) -> Effects {
    let mut reads = RegSet(flag_bits(insn.rflags_read()));
    let mut kills = RegSet::NONE;
    for u in info.used_registers() {
        let set = RegSet::of(u.register());
        if set == RegSet::NONE {
            continue;
        }
        let wide = u.register().is_gpr64() || u.register().is_gpr32();
        match u.access() {
            OpAccess::Write if wide && writes_always(insn) => kills |= set,
            OpAccess::None | OpAccess::NoMemAccess => {}
            OpAccess::ReadWrite => {
                reads |= set;
                if wide {
                    kills |= set;
                }
            }
            // Partial and conditional writes keep part of the old value.
            _ => reads |= set,
        }
    }
    // Address registers of operands that access no memory (lea and hints) are read all the same.
    for op in 0..insn.op_count() {
        if insn.op_kind(op) == OpKind::Memory {
            reads |= RegSet::of(insn.memory_base()) | RegSet::of(insn.memory_index());
        }
    }
    if flags_change_always(insn) {
        // Whether fcomi and its relatives clear OF, SF and AF depends on the manual.
        let unsure = match insn.mnemonic() {
            Mnemonic::Fcomi | Mnemonic::Fcomip | Mnemonic::Fucomi | Mnemonic::Fucomip => {
                RflagsBits::OF | RflagsBits::SF | RflagsBits::AF
            }
            // What the manuals call undefined, processors leave as it was (after multiplications those of AMD).
            Mnemonic::Mul
            | Mnemonic::Imul
            | Mnemonic::Div
            | Mnemonic::Idiv
            | Mnemonic::Bsf
            | Mnemonic::Bsr
            | Mnemonic::Tzcnt
            | Mnemonic::Lzcnt
            | Mnemonic::Bt
            | Mnemonic::Bts
            | Mnemonic::Btr
            | Mnemonic::Btc => insn.rflags_undefined(),
            _ => RflagsBits::NONE,
        };
        kills |= RegSet(flag_bits(insn.rflags_modified() & !unsure));
    }
    if matches!(insn.mnemonic(), Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Int | Mnemonic::Int3) {
        reads |= RegSet::GPRS;
    }
    Effects { reads, kills }
}

/// The registers whose values decide something for sure: what an instruction reads, but not what it keeps of a register that it writes in part,
/// saves on the stack, or names although its result is a number.
pub fn uses(insn: &Instruction, info: &InstructionInfo) -> RegSet {
    let same = insn.op_count() >= 2
        && insn.op0_kind() == OpKind::Register
        && insn.op1_kind() == OpKind::Register
        && insn.op0_register() == insn.op1_register();
    let by_number = insn.op_count() == 2 && !matches!(insn.op1_kind(), OpKind::Register | OpKind::Memory);
    match insn.mnemonic() {
        Mnemonic::Push if insn.op0_kind() == OpKind::Register => return RegSet::NONE,
        Mnemonic::Nop | Mnemonic::Syscall => return RegSet::NONE,
        // The last needs the carry flag only. `or` with all ones and `and` with zero are short forms of `mov`.
        Mnemonic::Xor | Mnemonic::Sub | Mnemonic::Sbb if same => return RegSet::NONE,
        Mnemonic::Or | Mnemonic::And if by_number && insn.op0_kind() == OpKind::Register => return RegSet::NONE,
        _ => {}
    }
    let read =
        |access| matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite);
    info.used_registers()
        .iter()
        .filter(|u| read(u.access()))
        .fold(RegSet::NONE, |all, u| all | RegSet::of(u.register()))
}

/// bsf and bsr leave their destination alone when the source is zero.
fn writes_always(insn: &Instruction) -> bool {
    !matches!(insn.mnemonic(), Mnemonic::Bsf | Mnemonic::Bsr) && !insn.has_rep_prefix() && !insn.has_repne_prefix()
}

/// Shifts and rotates by a count of zero, and repeated string instructions with rcx = 0, leave the flags alone.
fn flags_change_always(insn: &Instruction) -> bool {
    if insn.is_string_instruction() && (insn.has_rep_prefix() || insn.has_repne_prefix()) {
        return false;
    }
    match insn.mnemonic() {
        Mnemonic::Shl
        | Mnemonic::Sal
        | Mnemonic::Shr
        | Mnemonic::Sar
        | Mnemonic::Rol
        | Mnemonic::Ror
        | Mnemonic::Rcl
        | Mnemonic::Rcr => count_is_nonzero(insn, 1),
        Mnemonic::Shld | Mnemonic::Shrd => count_is_nonzero(insn, 2),
        _ => true,
    }
}

fn count_is_nonzero(insn: &Instruction, op: u32) -> bool {
    if insn.op_count() <= op || insn.op_kind(op) != OpKind::Immediate8 {
        // The short form shifts by one.
        return insn.op_kind(op) != OpKind::Register || insn.op_register(op) != Register::CL;
    }
    let wide = insn.op0_register().is_gpr64() || insn.memory_size().size() == 8;
    insn.immediate8() & (if wide { 63 } else { 31 }) != 0
}

fn flag_bits(rflags: u32) -> u32 {
    const MAP: [(u32, u32); 6] = [
        (RflagsBits::CF, 16),
        (RflagsBits::PF, 17),
        (RflagsBits::AF, 18),
        (RflagsBits::ZF, 19),
        (RflagsBits::SF, 20),
        (RflagsBits::OF, 21),
    ];
    MAP.iter().filter(|(f, _)| rflags & f != 0).map(|(_, bit)| 1 << bit).sum()
}

/// Whether an instruction loads rsp from memory that is not the frame's.
/// [`crate::facts::stack_depth`] finds such returns, too, but not behind a call on the new stack where other ways lead, since it takes it for a call that
/// never comes back.
pub fn switches_stack(insn: &Instruction) -> bool {
    insn.mnemonic() == Mnemonic::Mov
        && insn.op0_kind() == OpKind::Register
        && insn.op0_register() == Register::RSP
        && insn.op1_kind() == OpKind::Memory
        && !matches!(insn.memory_base(), Register::RSP | Register::RBP)
}

/// How one instruction changes the set: `(set & keep) | made | (copies the source's membership to the destination)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DwordEffect {
    keep: u16,
    made: u16,
    /// Destination and source register, 16 = none.
    dst: u8,
    src: u8,
}

impl DwordEffect {
    /// What `insn` does.
    pub fn of(insn: &Instruction, info: &InstructionInfo) -> DwordEffect {
        let mut out = DwordEffect { keep: 0, made: 0, dst: 16, src: 16 };
        // What a call leaves is known behind its block. The kernel, or whoever else runs meanwhile, may leave anything.
        if insn.is_call_near() || insn.is_call_near_indirect() {
            return DwordEffect { keep: u16::MAX, ..out };
        }
        if !matches!(
            insn.flow_control(),
            FlowControl::Next
                | FlowControl::ConditionalBranch
                | FlowControl::UnconditionalBranch
                | FlowControl::IndirectBranch
        ) {
            return out;
        }
        out.keep = !(written_by(info).0 as u16);
        let to = insn.op0_register();
        let number = |r: Register| r.full_register().number() as u8;
        if insn.mnemonic() == Mnemonic::Cdqe {
            out.made = 1;
        } else if insn.op0_kind() == OpKind::Register && leaves_32_bits(insn) {
            out.made = 1 << number(to);
        } else if insn.mnemonic() == Mnemonic::Mov
            && insn.op0_kind() == OpKind::Register
            && insn.op1_kind() == OpKind::Register
            && to.is_gpr64()
            && insn.op1_register().is_gpr64()
        {
            (out.dst, out.src) = (number(to), number(insn.op1_register()));
        }
        out
    }

    #[inline]
    pub(super) fn apply(self, set: u16) -> u16 {
        let copied = self.dst < 16 && set >> self.src & 1 != 0;
        (set & self.keep) | self.made | if copied { 1 << self.dst } else { 0 }
    }
}

/// Whether the first operand, a register, has 32 bits or what they are extended to, whatever the instruction's operands hold.
fn leaves_32_bits(insn: &Instruction) -> bool {
    use Mnemonic as M;
    let to = insn.op0_register();
    let counted = || insn.op1_kind() == OpKind::Immediate8 && insn.immediate8() & 31 != 0;
    match insn.mnemonic() {
        M::Movsx | M::Movsxd | M::Movzx => to.is_gpr32() || to.is_gpr64(),
        M::Mov if to.is_gpr64() => insn.op1_kind() == OpKind::Immediate32to64,
        M::Mov if insn.op1_register().is_segment_register() => false,
        M::Mov | M::Lea | M::Add | M::Sub | M::And | M::Or | M::Xor | M::Inc | M::Dec | M::Neg | M::Not => {
            to.is_gpr32()
        }
        // With one operand, the result is in two others.
        M::Imul => insn.op_count() >= 2 && to.is_gpr32(),
        M::Shl | M::Sal | M::Shr | M::Sar => to.is_gpr32() && counted(),
        // SDM, CMOVcc: the upper half is cleared whatever the condition.
        mnemonic if is_conditional_move(mnemonic) => to.is_gpr32(),
        _ => false,
    }
}

/// How one instruction changes the set: `(set & keep) | (copies the source's membership to the destination)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StackEffect {
    keep: u16,
    /// Destination and source register, 16 = none.
    dst: u8,
    src: u8,
}

impl StackEffect {
    /// What `insn` does.
    pub fn of(insn: &Instruction, info: &InstructionInfo) -> StackEffect {
        let mut written = written_by(info);
        if insn.mnemonic() == Mnemonic::Syscall {
            // iced tells what the processor writes; the kernel writes its result, too.
            written |= RegSet::RAX;
        }
        let (mut dst, mut src) = (16, 16);
        let number = |r: Register| r.number() as u8;
        if insn.op_count() == 2 && insn.op0_kind() == OpKind::Register && insn.op0_register().is_gpr64() {
            let to = number(insn.op0_register());
            match insn.mnemonic() {
                Mnemonic::Mov if insn.op1_kind() == OpKind::Register && insn.op1_register().is_gpr64() => {
                    (dst, src) = (to, number(insn.op1_register()));
                }
                Mnemonic::Lea
                    if insn.memory_index() == Register::None
                        && insn.memory_base().is_gpr64()
                        && insn.segment_prefix() == Register::None =>
                {
                    (dst, src) = (to, number(insn.memory_base()));
                }
                Mnemonic::Add | Mnemonic::Sub
                    if insn.op1_kind() != OpKind::Register && insn.op1_kind() != OpKind::Memory =>
                {
                    (dst, src) = (to, to)
                }
                // Realignment: clears low bits.
                Mnemonic::And
                    if insn.op1_kind() == OpKind::Immediate8to64
                        && insn.immediate(1) as i64 >= -128
                        && (insn.immediate(1) as i64) < 0 =>
                {
                    (dst, src) = (to, to);
                }
                _ => {}
            }
        }
        if insn.mnemonic() == Mnemonic::Enter {
            (dst, src) = (number(Register::RBP), number(Register::RSP));
        }
        StackEffect { keep: !(written.0 as u16) | RegSet::RSP.0 as u16, dst, src }
    }

    /// Registers that the instruction may change, rsp aside.
    #[inline]
    pub fn written(self) -> RegSet {
        RegSet(u32::from(!self.keep))
    }

    #[inline]
    pub(super) fn apply(self, set: u16) -> u16 {
        let copied = self.dst < 16 && set >> self.src & 1 != 0;
        (set & self.keep) | if copied { 1 << self.dst } else { 0 }
    }
}

pub(super) const ONLY_RSP: u16 = RegSet::RSP.0 as u16;
