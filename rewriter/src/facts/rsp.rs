//! What an instruction does with rsp: what it makes it from, and whether it reaches below it.
//!
//! Input: an instruction, what it does to registers. Output: whether the new rsp is a stack address whenever the old one is ([`RspSource`]). Where it is not, a
//! test stands behind the instruction, because accesses through rsp are not checked. And how it uses rsp ([`RspUse`]).
//! **Invariant**: with [`RspSource::Stack`], rsp moves by a constant, is rounded down, or is what pushes, pops, calls and returns make of it. The segment has
//! [`blizzard_contract::PRIVATE_REACH`] bytes of nothing on both sides of its window: no such step of a program that uses its stack leads across.
//! Source: SDM volume 2; `DESIGN.md`, "What the private stack rests on".

use crate::decode::regs::{RegSet, is_written};
use iced_x86::{Instruction, InstructionInfo, Mnemonic, OpKind, Register};

/// Where rsp comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RspSource {
    /// It is not changed, or stays on its stack.
    Stack,
    /// This register and a constant: it stays on the stack if the register holds a stack address.
    Register(RegSet),
    /// Anything else.
    Unknown,
}

impl RspSource {
    /// What `insn` does.
    pub fn of(insn: &Instruction, info: &InstructionInfo) -> RspSource {
        let stack = |r: Register| r.full_register() == Register::RSP;
        if !info.used_registers().iter().any(|u| stack(u.register()) && is_written(u.access())) {
            return RspSource::Stack;
        }
        let named = |n: u32| insn.op_kind(n) == OpKind::Register && stack(insn.op_register(n));
        let first = named(0);
        let constant = insn.op_count() == 2
            && !matches!(insn.op1_kind(), OpKind::Register | OpKind::Memory)
            && insn.op0_register() == Register::RSP;
        match insn.mnemonic() {
            // The frame pointer of before.
            Mnemonic::Leave => RspSource::Register(RegSet::of(Register::RBP)),
            // pop rsp takes it from memory.
            Mnemonic::Pop if first => RspSource::Unknown,
            _ if insn.is_stack_instruction() => RspSource::Stack,
            Mnemonic::Add | Mnemonic::Sub | Mnemonic::And if constant => RspSource::Stack,
            Mnemonic::Inc | Mnemonic::Dec if insn.op0_register() == Register::RSP => RspSource::Stack,
            Mnemonic::Lea if insn.op0_register() == Register::RSP && insn.memory_index() == Register::None => {
                match insn.memory_base() {
                    Register::RSP => RspSource::Stack,
                    base if base.is_gpr64() => RspSource::Register(RegSet::of(base)),
                    _ => RspSource::Unknown,
                }
            }
            Mnemonic::Mov if insn.op0_register() == Register::RSP && insn.op1_kind() == OpKind::Register => {
                RspSource::Register(RegSet::of(insn.op1_register()))
            }
            _ => RspSource::Unknown,
        }
    }

    /// Whether rsp must be tested behind the instruction; `on_stack`: registers that hold stack addresses in front of it.
    #[inline]
    pub fn is_tested(self, on_stack: RegSet) -> bool {
        match self {
            RspSource::Stack => false,
            RspSource::Register(r) => !on_stack.contains(r),
            RspSource::Unknown => true,
        }
    }
}

/// How an instruction uses rsp, apart from what pushes, calls and returns do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RspUse {
    /// It names a place below.
    Named,
    /// What it reads, writes or makes may lie below.
    Below,
    /// It makes an address on the stack at or above rsp, copies rsp to a register, or stores at an address with an index.
    Address,
    /// It lowers rsp, and writes nothing to what lies above it then.
    Lowers,
}

/// Whether an instruction that differs from `insn` in its displacement only may use rsp.
pub fn may_use(insn: &Instruction) -> bool {
    let stack = |r: Register| r.full_register() == Register::RSP;
    let named = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Register && stack(insn.op_register(n)));
    named || stack(insn.memory_base()) || insn.mnemonic() == Mnemonic::Enter
}

/// The use that `insn` makes of rsp.
pub fn use_of(insn: &Instruction) -> Option<RspUse> {
    let stack = |r: Register| r.full_register() == Register::RSP;
    let named = (0..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Register && stack(insn.op_register(n)));
    let based = stack(insn.memory_base());
    if !named && !based {
        return (insn.mnemonic() == Mnemonic::Enter).then_some(RspUse::Below);
    }
    let lea = insn.mnemonic() == Mnemonic::Lea;
    let copies =
        insn.mnemonic() == Mnemonic::Mov && insn.op1_kind() == OpKind::Register && insn.op1_register() == Register::RSP;
    if copies && insn.op0_kind() == OpKind::Register {
        return Some(RspUse::Address);
    }
    let moves = insn.op0_kind() == OpKind::Register && insn.op0_register() == Register::RSP;
    let below = based && insn.memory_index() == Register::None && (insn.memory_displacement64() as i64) < 0;
    let far = based && (insn.memory_index() != Register::None || (insn.memory_displacement64() as i64) < 0);
    // `lock or [rsp-64], 0`: a fence, whatever lies there.
    if below
        && insn.has_lock_prefix()
        && insn.mnemonic() == Mnemonic::Or
        && insn.op1_kind() != OpKind::Register
        && insn.immediate(1) == 0
    {
        return None;
    }
    if named {
        let source = (1..insn.op_count()).any(|n| insn.op_kind(n) == OpKind::Register && stack(insn.op_register(n)));
        let by_itself =
            matches!(insn.mnemonic(), Mnemonic::Mov | Mnemonic::Add | Mnemonic::Sub | Mnemonic::And) && !far;
        let steps = lea && insn.memory_index() == Register::None;
        if !moves || source || !by_itself && !steps {
            return Some(RspUse::Below);
        }
        // By a register: it may be negative.
        let by_register = matches!(insn.mnemonic(), Mnemonic::Add) && insn.op1_kind() == OpKind::Register;
        return (by_register || step_of(insn) == Some(RspStep::Down)).then_some(RspUse::Lowers);
    }
    match (far, lea) {
        _ if below => Some(RspUse::Named),
        // A bit number in a register reaches to both sides.
        _ if based && insn.op1_kind() == OpKind::Register && is_bit_test(insn) => Some(RspUse::Below),
        // The constant part is below, whatever the index is.
        (true, _) if (insn.memory_displacement64() as i64) < 0 => Some(RspUse::Below),
        (false, false) => None,
        _ => Some(RspUse::Address),
    }
}

fn is_bit_test(insn: &Instruction) -> bool {
    matches!(insn.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc)
}

/// Where an explicit change of rsp leads it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RspStep {
    Up,
    Down,
}

/// What an instruction that is no push, call or return does to rsp. From the frame pointer or another register it is taken to come from below.
pub(super) fn step_of(insn: &Instruction) -> Option<RspStep> {
    let signed = |n: i64, up: bool| if (n > 0) == up { RspStep::Up } else { RspStep::Down };
    let immediate = matches!(insn.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
    match insn.mnemonic() {
        Mnemonic::Pop | Mnemonic::Popf | Mnemonic::Popfq | Mnemonic::Leave => Some(RspStep::Up),
        _ if insn.op0_kind() != OpKind::Register || insn.op0_register() != Register::RSP => None,
        Mnemonic::Lea if insn.memory_base() == Register::RSP => Some(signed(insn.memory_displacement64() as i64, true)),
        Mnemonic::Add if immediate => Some(signed(insn.immediate(1) as i64, true)),
        Mnemonic::Sub if immediate => Some(signed(insn.immediate(1) as i64, false)),
        Mnemonic::Sub | Mnemonic::And => Some(RspStep::Down),
        Mnemonic::Add | Mnemonic::Mov | Mnemonic::Lea => Some(RspStep::Up),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};

    #[test]
    fn what_stays_on_the_stack_is_told_from_what_leads_elsewhere() {
        let of = |code: &[u8]| {
            let insn = Decoder::new(64, code, DecoderOptions::NONE).decode();
            assert_eq!(insn.len(), code.len(), "{code:x?}");
            RspSource::of(&insn, InstructionInfoFactory::new().info(&insn))
        };
        let stack: [&[u8]; 18] = [
            // push rax; push rsp; pop rax; pop [rsp]; call rax; ret; ret 8; enter 16, 0; pushfq; popfq; push fs; pop fs
            &[0x50],
            &[0x54],
            &[0x58],
            &[0x8f, 0x04, 0x24],
            &[0xff, 0xd0],
            &[0xc3],
            &[0xc2, 8, 0],
            &[0xc8, 16, 0, 0],
            &[0x9c],
            &[0x9d],
            &[0x0f, 0xa0],
            &[0x0f, 0xa1],
            // sub rsp, 40; add rsp, 0x12345678; and rsp, -64; lea rsp, [rsp-128]; mov rax, rsp; cmp rsp, rax
            &[0x48, 0x83, 0xec, 0x28],
            &[0x48, 0x81, 0xc4, 0x78, 0x56, 0x34, 0x12],
            &[0x48, 0x83, 0xe4, 0xc0],
            &[0x48, 0x8d, 0x64, 0x24, 0x80],
            &[0x48, 0x89, 0xe0],
            &[0x48, 0x39, 0xc4],
        ];
        for code in stack {
            assert_eq!(of(code), RspSource::Stack, "{code:x?}");
        }
        let rbp = RspSource::Register(RegSet::of(Register::RBP));
        // leave; mov rsp, rbp; lea rsp, [rbp-40]
        for code in [&[0xc9][..], &[0x48, 0x89, 0xec], &[0x48, 0x8d, 0x65, 0xd8]] {
            assert_eq!(of(code), rbp, "{code:x?}");
        }
        assert!(rbp.is_tested(RegSet::RSP) && !rbp.is_tested(RegSet::of(Register::RBP) | RegSet::RSP));
        let unknown: [&[u8]; 16] = [
            // pop rsp; mov rsp, [rdi]; xchg rax, rsp; xchg rsp, [rdi]; cmovz rsp, rax; add rsp, rax; sub rsp, [rdi]; and rsp, rax
            &[0x5c],
            &[0x48, 0x8b, 0x27],
            &[0x48, 0x94],
            &[0x48, 0x87, 0x27],
            &[0x48, 0x0f, 0x44, 0xe0],
            &[0x48, 0x01, 0xc4],
            &[0x48, 0x2b, 0x27],
            &[0x48, 0x21, 0xc4],
            // lea rsp, [rsp+rax]; lea rsp, [rip]; mov rsp, 1; mov esp, eax; add esp, 8; xadd rsp, rax; movq rsp, xmm0; not rsp
            &[0x48, 0x8d, 0x24, 0x04],
            &[0x48, 0x8d, 0x25, 0, 0, 0, 0],
            &[0x48, 0xc7, 0xc4, 1, 0, 0, 0],
            &[0x89, 0xc4],
            &[0x83, 0xc4, 8],
            &[0x48, 0x0f, 0xc1, 0xc4],
            &[0x66, 0x48, 0x0f, 0x7e, 0xc4],
            &[0x48, 0xf7, 0xd4],
        ];
        for code in unknown {
            assert_eq!(of(code), RspSource::Unknown, "{code:x?}");
        }
    }
}
