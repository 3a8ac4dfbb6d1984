//! What one instruction reads and certainly overwrites, as [`RegSet`]s.
//!
//! `reads` may be too large and `kills` too small, never the other way round. Partial writes (8 and 16 bit), conditional
//! writes and flag changes that depend on a count kill nothing. Source: SDM volume 2, through iced-x86's tables.

use crate::decode::regs::RegSet;
use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind, Register, RflagsBits};

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
