//! Tests of a stack pointer that was taken from something else, as DESIGN.md lists them.
//!
//! Input: an instruction of [`crate::facts::rsp`] that has just been emitted. Output: in the hot buffer one bit of rsp is tested; the cold stub
//! goes back where rsp lies outside the segment's window, or where nothing is ever inaccessible, and else ends the run.
//! **Invariant**: neither memory at rsp is touched, nor a register changed, unless flags are live and no register is free to keep them. Source: SDM volume
//! 2, BT.

use crate::decode::regs::RegSet;
use crate::insert::asm::{self, MemOperand, RAX, RSP};
use crate::insert::code::{EmittedCode, FixupTarget};
use crate::insert::site::{Saved, ScratchRegisters, Site, open, save_flags};
use blizzard_contract as contract;

/// The bits of an address that tell the window, and whether they are set there; the first is tested in the hot code. Those above are clear in all
/// addresses that programs may use.
const BITS: [(u32, bool); 7] = {
    let mut bits = [(0, false); 7];
    let mut k = 0;
    while k < bits.len() {
        let bit = contract::PRIVATE_BIT - k as u32;
        bits[k] = (bit, contract::SEGMENT_BASE >> bit & 1 == 1);
        k += 1;
    }
    bits
};
const _: () = assert!(BITS[6].0 == contract::SEGMENT_SHIFT && !BITS[0].1);

/// Emits the test behind the instruction.
pub fn insert(code: &mut EmittedCode, site: &Site) {
    code.sites.stack_tests += 1;
    let ScratchRegisters { saved, .. } = open(code, site, RegSet::NONE, 0);
    save_flags(code, &saved);
    asm::bt(&mut code.hot.bytes, RSP, contract::PRIVATE_BIT as u8);
    let doubtful = asm::jcc32(&mut code.hot.bytes, asm::CC_AE);
    let behind = FixupTarget::Insn { id: site.id, delta: code.hot.pos() - site.begin };
    let cold = code.cold.pos();
    code.hot.fix(doubtful, FixupTarget::Cold(cold));
    saved.undo_hot(code, site);
    let cold = &mut code.cold;
    for (bit, set) in &BITS[1..] {
        asm::bt(&mut cold.bytes, RSP, *bit as u8);
        let back = asm::jcc32(&mut cold.bytes, if *set { asm::CC_AE } else { asm::CC_B });
        cold.fix(back, behind);
    }
    asm::cmp_mem32(&mut cold.bytes, MemOperand::absolute(contract::CTX_NODES), 1);
    let back = asm::jcc32(&mut cold.bytes, asm::CC_E);
    cold.fix(back, behind);
    give_up(code, &saved, behind);
}

/// Ends the run; `place`: an address of the function.
fn give_up(code: &mut EmittedCode, saved: &Saved, place: FixupTarget) {
    let cold = &mut code.cold;
    if saved.rsp_moved() != 0 {
        asm::lea(&mut cold.bytes, RSP, MemOperand::base(RSP, saved.rsp_moved()));
    }
    let at = asm::lea_rip(&mut cold.bytes, RAX);
    cold.fix(at, place);
    asm::jmp_abs(&mut cold.bytes, contract::GATE_STACK);
}
