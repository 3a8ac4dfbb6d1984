//! Sequences that test no access: polls, and counters of blocks.
//!
//! Input: the instruction in front of which one stands. Output: bytes in the hot and the cold buffer. **Invariant**: what is live, flags too, stays as it is.

use crate::decode::regs::RegSet;
use crate::insert::asm::{self, MemOperand, RAX, RSP};
use crate::insert::code::{EmittedCode, FixupTarget};
use crate::insert::site::{RED_ZONE, ScratchRegisters, Site, count, open, save_flags};
use blizzard_contract as contract;
use blizzard_contract::Counter;

/// Emits a poll before the instruction.
pub fn poll(code: &mut EmittedCode, site: &Site) {
    code.sites.polls += 1;
    let ScratchRegisters { saved, .. } = open(code, site, RegSet::NONE, 0);
    save_flags(code, &saved);
    count(&mut code.hot.bytes, site.count, Counter::Polls);
    asm::cmp_mem32(&mut code.hot.bytes, MemOperand::absolute(contract::POLL_WORD), 0);
    let rung = asm::jcc32(&mut code.hot.bytes, asm::CC_NE);
    let tail = (saved.is_empty()).then(|| poll_tail(code));
    let cold = code.cold.pos();
    code.hot.fix(rung, FixupTarget::Cold(cold));
    saved.undo_hot(code, site);
    let behind = code.hot.pos() - site.begin;
    saved.undo_cold(code);
    match tail {
        Some(tail) => {
            asm::add_rsp(&mut code.cold.bytes, -RED_ZONE as i8);
            code.stub_tail(tail, site.id, RED_ZONE);
        }
        None => {
            asm::lea(&mut code.cold.bytes, RSP, MemOperand::base(RSP, -RED_ZONE));
            code.stub_gate(contract::GATE_POLL, site.id, (RED_ZONE, 0));
            asm::lea(&mut code.cold.bytes, RSP, MemOperand::base(RSP, RED_ZONE));
        }
    }
    let cold = &mut code.cold;
    let back = asm::jmp32(&mut cold.bytes);
    cold.fix(back, FixupTarget::Insn { id: site.id, delta: behind });
}

/// Counts the block that begins with the instruction; what is live, flags too, stays as it is.
pub fn count_block(code: &mut EmittedCode, site: &Site, counter: u32) {
    let flags_live = site.live.meets(RegSet::FLAGS);
    let EmittedCode { hot, stack, .. } = code;
    let mut moved = |out: &[u8], lower_by| stack.push(site.stack_place(out.len(), lower_by));
    if flags_live {
        asm::lea(&mut hot.bytes, RSP, MemOperand::base(RSP, -RED_ZONE));
        moved(&hot.bytes, RED_ZONE);
        asm::push(&mut hot.bytes, RAX);
        moved(&hot.bytes, RED_ZONE + 8);
        asm::save_flags(&mut hot.bytes);
    }
    // Threads and forked children count in the same place.
    let at = asm::lock_inc64_rip(&mut hot.bytes);
    hot.fix(at, FixupTarget::Counter(counter));
    if flags_live {
        asm::restore_flags(&mut hot.bytes);
        asm::pop(&mut hot.bytes, RAX);
        moved(&hot.bytes, RED_ZONE);
        asm::lea(&mut hot.bytes, RSP, MemOperand::base(RSP, RED_ZONE));
        moved(&hot.bytes, 0);
    }
}

/// The shared tail of polls, as [`crate::insert::stubs::shared_tail`].
fn poll_tail(code: &mut EmittedCode) -> u32 {
    if let Some(at) = code.poll_tail {
        return at;
    }
    let at = code.cold.pos();
    code.tail_gate(contract::GATE_POLL, 0);
    asm::ret_pop(&mut code.cold.bytes, RED_ZONE as u16);
    code.poll_tail = Some(at);
    code.shared.push((at, code.cold.pos()));
    at
}
