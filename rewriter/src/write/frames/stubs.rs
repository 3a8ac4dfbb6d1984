//! Frames of the stubs that enter the runtime, for debuggers.
//!
//! A debugger that looks at a node which waits for a block finds the runtime's frames, and then return addresses in stubs, which stand apart from the code that
//! they belong to. Each frame of them says what that of the program's instruction says to which the stub returns, with rsp lower. Programs do not unwind
//! through the runtime, so this goes to `.debug_frame`. Input: the stubs' code; frames of the old code. Output: the section.
//! **Invariant**: a stub of which not all is understood has no frame.
//! Source: DWARF 5, 6.4.1.

use crate::base::addresses::Vaddr;
use blizzard_contract as contract;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use std::ops::Range;

/// Instructions of a stub behind its call, at most.
const STEPS: usize = 32;

/// A call in a stub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StubCall {
    pub code: Range<Vaddr>,
    /// Where the program goes on behind it.
    pub to: Vaddr,
    /// How much lower rsp is there than at that place.
    pub lower_by: u32,
}

/// The calls of stubs.
#[derive(Debug, Default)]
pub struct Stubs {
    /// By ascending address.
    pub calls: Vec<StubCall>,
    /// Calls in what several stubs share and call: where, and how many bytes lie below the return address to the stub.
    pub tails: Vec<(Range<Vaddr>, u32)>,
}

/// Where what stands behind a call leads, and the bytes that it gives back.
enum End {
    Program(Vaddr, u32),
    /// A return, with what it pops behind the return address.
    Caller(u32, u32),
}

impl Stubs {
    /// Of the code that stands apart at `at`.
    pub fn of(cold: &[u8], at: Vaddr) -> Stubs {
        let mut stubs = Stubs::default();
        // Where tails return, and what they pop then: known when all gates have been seen.
        let (mut popped, mut near) = (Vec::new(), Vec::new());
        let mut decoder = Decoder::with_ip(64, cold, at.0, DecoderOptions::NONE);
        let mut i = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut i);
            let code = Vaddr(i.ip())..Vaddr(i.next_ip());
            if let Some(arguments) = arguments_of_gate(&i) {
                match behind(cold, at, i.next_ip(), arguments) {
                    Some(End::Program(to, lower_by)) => stubs.calls.push(StubCall { code, to, lower_by }),
                    Some(End::Caller(below, pops)) => {
                        stubs.tails.push((code, below));
                        popped.push((i.next_ip(), pops));
                    }
                    None => {}
                }
            } else if i.mnemonic() == Mnemonic::Call && i.near_branch_target() != 0 {
                near.push((code, i.near_branch_target()));
            }
        }
        for (code, tail) in near {
            // Its own gate is the next one.
            let Some(&(_, pops)) = popped.get(popped.partition_point(|(end, _)| *end <= tail)) else { continue };
            if let Some(End::Program(to, lower_by)) = behind(cold, at, code.end.0, pops) {
                stubs.calls.push(StubCall { code, to, lower_by });
            }
        }
        stubs.calls.sort_by_key(|call| call.code.start);
        stubs
    }
}

/// The bytes that a gate takes from the stack, if this calls one.
fn arguments_of_gate(i: &Instruction) -> Option<u32> {
    let is_gate = i.mnemonic() == Mnemonic::Call
        && i.op0_kind() == OpKind::Memory
        && (i.memory_base(), i.memory_index()) == (Register::None, Register::None);
    match i.memory_displacement64() {
        _ if !is_gate => None,
        contract::GATE_MISS => Some(16),
        contract::GATE_STRING | contract::GATE_VSIB | contract::GATE_GROUP => Some(8),
        contract::GATE_POLL => Some(0),
        _ => None,
    }
}

/// Follows the code from `from` on, where `given` bytes have been given back.
fn behind(cold: &[u8], at: Vaddr, from: u64, given: u32) -> Option<End> {
    let (mut ip, mut given) = (from, i64::from(given));
    for _ in 0..STEPS {
        let Some(code) = ip.checked_sub(at.0).and_then(|far| cold.get(far as usize..)).filter(|code| !code.is_empty())
        else {
            return Some(End::Program(Vaddr(ip), given.try_into().ok()?));
        };
        let i = Decoder::with_ip(64, code, ip, DecoderOptions::NONE).decode();
        let moves_stack = i.op_count() > 0 && i.op0_register() == Register::RSP;
        match i.mnemonic() {
            Mnemonic::Lea if moves_stack && i.memory_base() == Register::RSP && i.memory_index() == Register::None => {
                given += i.memory_displacement64() as i64;
            }
            Mnemonic::Pop | Mnemonic::Popfq if !moves_stack => given += 8,
            Mnemonic::Jmp if i.near_branch_target() != 0 => {
                ip = i.near_branch_target();
                continue;
            }
            Mnemonic::Ret => {
                let pops = if i.op_count() > 0 { u32::from(i.immediate16()) } else { 0 };
                return Some(End::Caller(given.try_into().ok()?, pops));
            }
            _ if moves_stack || i.is_stack_instruction() || i.flow_control() != FlowControl::Next => return None,
            _ => {}
        }
        ip = i.next_ip();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::insert::asm::{self, Mem, RSP};

    #[test]
    fn calls_lead_to_the_program_and_say_how_low_rsp_is() {
        let at = Vaddr(0x10_000);
        let mut code = Vec::new();
        let jump_out = |code: &mut Vec<u8>, to: i64| {
            let place = asm::jmp32(code);
            let distance = to - (at.0 as i64 + code.len() as i64);
            code[place..place + 4].copy_from_slice(&(distance as i32).to_le_bytes());
        };
        // A tail: two words pushed, the red zone given back by the return.
        asm::push(&mut code, 0);
        asm::push_imm(&mut code, 8);
        let gate = code.len();
        asm::call_abs(&mut code, contract::GATE_MISS);
        let tail_call = at + gate as u64..at + code.len() as u64;
        asm::ret_pop(&mut code, 128);
        // A stub that calls it.
        asm::add_rsp(&mut code, -128);
        let begins = code.len();
        let place = asm::call32(&mut code);
        let distance = -(code.len() as i32);
        code[place..place + 4].copy_from_slice(&distance.to_le_bytes());
        let near = at + begins as u64..at + code.len() as u64;
        jump_out(&mut code, 0x1234);
        // A stub with a gate of its own.
        asm::lea(&mut code, RSP, Mem::base(RSP, -128));
        asm::push(&mut code, 0);
        let begins = code.len();
        asm::call_abs(&mut code, contract::GATE_GROUP);
        let own = at + begins as u64..at + code.len() as u64;
        asm::lea(&mut code, RSP, Mem::base(RSP, 128));
        jump_out(&mut code, 0x2345);
        // One that is not understood.
        asm::call_abs(&mut code, contract::GATE_POLL);
        asm::push(&mut code, 0);
        jump_out(&mut code, 0x3456);
        let stubs = Stubs::of(&code, at);
        let call = |code, to, lower_by| StubCall { code, to: Vaddr(to), lower_by };
        assert_eq!(stubs.calls, [call(near, 0x1234, 128), call(own, 0x2345, 136)]);
        assert_eq!(stubs.tails, [(tail_call, 16)]);
    }
}
