//! What code does with an address of an executable section that it puts into a register.
//!
//! Purpose: tell constants in code sections from code. Both may read as instructions; what tells them apart is that the
//! program loads from the one and jumps to the other. Input: the instruction that names the address, and a way to decode
//! what follows. Output: [`Uses`], found by following the register and its copies forward over branches and into direct callees, for a bounded number
//! of instructions. Nothing seen proves nothing: the address may be stored or passed on.
//! Source: psABI 3.2.1 (registers that calls preserve).

use crate::base::addresses::Vaddr;
use crate::decode::classify::{direct_target, flow_of};
use crate::decode::insn::Flow;
use crate::decode::regs::is_written;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};
use std::collections::HashSet;

/// Most instructions followed from one place.
const MAX_STEPS: usize = 400;

/// What was seen.
#[derive(Debug, Default)]
pub struct Uses {
    /// Addresses that are read or written through the register. Where an index is added, the address for index 0.
    pub reads: Vec<Vaddr>,
    /// Addresses that are called or jumped to.
    pub runs: Vec<Vaddr>,
}

/// The address in each register that holds the named one plus a constant; all others hold something else.
type Held = [Option<Vaddr>; 16];

/// Follows `at`, which instruction `from` puts into `reg`.
pub fn follow(decode: &mut dyn FnMut(Vaddr) -> Option<Instruction>, from: Vaddr, reg: Register, at: Vaddr) -> Uses {
    let mut uses = Uses::default();
    let mut held: Held = [None; 16];
    held[reg.full_register().number()] = Some(at);
    let mut work = vec![(from, held)];
    let mut seen = HashSet::new();
    let mut factory = InstructionInfoFactory::new();
    while let Some((va, mut held)) = work.pop() {
        if seen.len() >= MAX_STEPS || held.iter().all(Option::is_none) || !seen.insert(va) {
            continue;
        }
        let Some(insn) = decode(va) else { continue };
        let flow = flow_of(&insn);
        note(&insn, flow, &held, &mut uses);
        step(&mut factory, &insn, &mut held);
        if let Some(t) = direct_target(&insn) {
            work.push((t, held));
        }
        if matches!(flow, Flow::Call | Flow::IndirectCall) {
            for (k, h) in held.iter_mut().enumerate() {
                // rbx, rsp, rbp, r12-r15
                let kept = matches!(k, 3 | 4 | 5 | 12..=15);
                let callee = direct_target(&insn).filter(|_| h.is_some());
                if !kept || callee.is_some_and(|callee| changes(decode, callee, k)) {
                    *h = None;
                }
            }
        }
        if !matches!(flow, Flow::Jmp | Flow::IndirectJmp | Flow::Ret | Flow::Stop) {
            work.push((Vaddr(insn.next_ip()), held));
        }
    }
    uses
}

/// Whether a callee that calls by a convention of its own changes a register that others preserve: it writes it and never puts it away.
fn changes(decode: &mut dyn FnMut(Vaddr) -> Option<Instruction>, callee: Vaddr, number: usize) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let mut seen = HashSet::new();
    let mut work = vec![callee];
    let mut written = false;
    while let Some(va) = work.pop() {
        if seen.len() >= MAX_STEPS || !seen.insert(va) {
            continue;
        }
        let Some(insn) = decode(va) else { continue };
        let flow = flow_of(&insn);
        let is_it = |reg: Register| reg.is_gpr() && reg.full_register().number() == number;
        let stores =
            insn.mnemonic() == Mnemonic::Mov && insn.op0_kind() == OpKind::Memory && is_it(insn.op1_register());
        if stores || insn.mnemonic() == Mnemonic::Push && is_it(insn.op0_register()) {
            return false;
        }
        let writes = |access| matches!(access, OpAccess::Write | OpAccess::ReadWrite);
        written |= factory.info(&insn).used_registers().iter().any(|u| writes(u.access()) && is_it(u.register()));
        work.extend(direct_target(&insn).filter(|_| flow != Flow::Call));
        if !matches!(flow, Flow::Jmp | Flow::IndirectJmp | Flow::Ret | Flow::Stop) {
            work.push(Vaddr(insn.next_ip()));
        }
    }
    written
}

fn value(held: &Held, reg: Register) -> Option<Vaddr> {
    reg.is_gpr64().then(|| held[reg.number()]).flatten()
}

fn note(insn: &Instruction, flow: Flow, held: &Held, uses: &mut Uses) {
    if matches!(flow, Flow::IndirectJmp | Flow::IndirectCall) && insn.op0_kind() == OpKind::Register {
        uses.runs.extend(value(held, insn.op0_register()));
        return;
    }
    let memory = (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Memory);
    let string = |op| matches!(insn.op_kind(op), OpKind::MemorySegRSI | OpKind::MemoryESRDI | OpKind::MemorySegRDI);
    for op in 0..insn.op_count() {
        if string(op) {
            let reg = if insn.op_kind(op) == OpKind::MemorySegRSI { Register::RSI } else { Register::RDI };
            uses.reads.extend(value(held, reg));
        }
    }
    let reads = !matches!(insn.mnemonic(), Mnemonic::Lea | Mnemonic::Nop) && insn.segment_prefix() == Register::None;
    if !memory || !reads {
        return;
    }
    let (base, index) = (value(held, insn.memory_base()), value(held, insn.memory_index()));
    let through = match (base, index) {
        (Some(b), _) => Some(b),
        (None, Some(i)) if insn.memory_index_scale() == 1 => Some(i),
        _ => None,
    };
    uses.reads.extend(through.map(|b| b + insn.memory_displacement64()));
}

/// What the registers hold behind `insn`.
fn step(factory: &mut InstructionInfoFactory, insn: &Instruction, held: &mut Held) {
    let to = insn.op0_register();
    let plain = insn.op_count() == 2 && insn.op0_kind() == OpKind::Register && to.is_gpr64();
    let immediate = matches!(insn.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64);
    let new = match insn.mnemonic() {
        Mnemonic::Mov if plain && insn.op1_kind() == OpKind::Register => value(held, insn.op1_register()),
        Mnemonic::Lea if plain && insn.memory_index() == Register::None => {
            value(held, insn.memory_base()).map(|v| v + insn.memory_displacement64())
        }
        Mnemonic::Add if plain && immediate => value(held, to).map(|v| v + insn.immediate(1)),
        Mnemonic::Sub if plain && immediate => value(held, to).map(|v| v + insn.immediate(1).wrapping_neg()),
        _ => None,
    };
    for used in factory.info(insn).used_registers() {
        if is_written(used.access()) && used.register().is_gpr() {
            held[used.register().full_register().number()] = None;
        }
    }
    if plain {
        held[to.number()] = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    fn followed(code: &[u8]) -> Uses {
        let mut decode = |va: Vaddr| {
            let at = va.0.checked_sub(0x1000)? as usize;
            let insn = Decoder::with_ip(64, code.get(at..)?, va.0, DecoderOptions::NONE).decode();
            (!insn.is_invalid()).then_some(insn)
        };
        follow(&mut decode, Vaddr(0x1000), Register::RAX, Vaddr(0x5000))
    }

    #[test]
    fn loads_through_copies_and_sums_are_reads() {
        // mov rbx, rax; add rbx, 16; call next (5 bytes); movdqa xmm0, [rbx+0x20]; ret
        let code = [0x48, 0x89, 0xc3, 0x48, 0x83, 0xc3, 16, 0xe8, 0, 0, 0, 0, 0x66, 0x0f, 0x6f, 0x43, 0x20, 0xc3];
        let uses = followed(&code);
        assert_eq!((uses.reads, uses.runs), (vec![Vaddr(0x5030)], vec![]));
        // movzx ecx, byte [rax+rdx]; ret
        assert_eq!(followed(&[0x0f, 0xb6, 0x0c, 0x10, 0xc3]).reads, [Vaddr(0x5000)]);
    }

    #[test]
    fn a_callee_may_change_what_others_preserve() {
        // lea rbx, [rax]; call f; mov rcx, [rbx]; ret; f: add rbx, 0x40; ret
        let named = [0x48, 0x8d, 0x18, 0xe8, 4, 0, 0, 0, 0x48, 0x8b, 0x0b, 0xc3];
        let code = [&named[..], &[0x48, 0x83, 0xc3, 0x40, 0xc3]].concat();
        assert!(followed(&code).reads.is_empty(), "dav1d's local functions: what was read is elsewhere");
        // f: push rbx; add rbx, 0x40; pop rbx; ret
        let code = [&named[..], &[0x53, 0x48, 0x83, 0xc3, 0x40, 0x5b, 0xc3]].concat();
        assert_eq!(followed(&code).reads, [Vaddr(0x5000)]);
    }

    #[test]
    fn jumps_are_runs_and_overwritten_registers_nothing() {
        // jmp rax
        assert_eq!(followed(&[0xff, 0xe0]).runs, [Vaddr(0x5000)]);
        // xor eax, eax; mov rcx, [rax]; ret
        let uses = followed(&[0x31, 0xc0, 0x48, 0x8b, 0x08, 0xc3]);
        assert!(uses.reads.is_empty() && uses.runs.is_empty());
        // push rax (escapes); ret
        let uses = followed(&[0x50, 0xc3]);
        assert!(uses.reads.is_empty() && uses.runs.is_empty());
    }
}
