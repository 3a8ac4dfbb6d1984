//! The sequences in front of accesses: tests of tags, of ranges and of lanes; and what stands in place of a system call.
//!
//! Input: a [`Site`] and the [`Decision`]. Output: bytes in the hot and the cold buffer. **Invariant**: that of [`crate::insert`].

use crate::decode::regs::{RegSet, operand_regs};
use crate::facts::access::PlainAccess;
use crate::insert::asm::{self, MemOperand, RAX, RSP};
use crate::insert::code::{EmittedCode, FixupTarget};
use crate::insert::screen;
use crate::insert::site::{
    Done, RED_ZONE, ScratchRegisters, Site, address, bit_offset, bit_word, check_counter, count, open, place_regs,
    save_flags,
};
use crate::insert::stubs::{
    bit_string, chained_stub, denies, miss_call, shared_tail, short_stub, spilled_straddle_test, straddle_test,
    test_tag,
};
use crate::plan::checks::Planned;
use crate::plan::decision::{Decision, is_big};
use blizzard_contract::{self as contract, VsibDesc};

/// Emits what is decided for the access of the instruction.
pub fn check(code: &mut EmittedCode, site: &Site, decision: &Decision) -> Done {
    match decision {
        Decision::Nothing | Decision::Unchecked(_) => Ok(()),
        Decision::Refused(reason) => Err(reason),
        Decision::Check(p) => match site.planned {
            Some(&Planned { bytes, load, store, .. }) => {
                access(code, site, &PlainAccess { bytes: bytes.into(), load, store, ..*p }, None)
            }
            None => access(code, site, p, None),
        },
        Decision::CheckTwo(a, b) => {
            let start = code.hot.pos();
            access(code, site, a, Some(start))?;
            // A miss of the second may give the first block away: it starts the group again. The second is a store to an
            // aligned line (SDM, MOVDIR64B: #GP otherwise), so the tag of its first byte decides.
            access(code, site, &PlainAccess { bytes: 1, ..*b }, Some(start))
        }
        Decision::String { desc, rsi, rdi } => string(code, site, *desc, *rsi, *rdi),
        Decision::Vsib(d) => vsib(code, site, d),
    }
}

/// `restart`: where a miss leads; None: to the access, which the gate has made possible.
fn access(code: &mut EmittedCode, site: &Site, p: &PlainAccess, restart: Option<u32>) -> Done {
    if is_big(p) {
        return big(code, site, p);
    }
    code.sites.checks += 1;
    if site.screens && restart.is_none() && screen::access(code, site, p)? {
        return Ok(());
    }
    let bits = bit_string(p);
    let ScratchRegisters { saved, s, t } =
        open(code, site, place_regs(site.insn, p.at), if bits.is_some() { 2 } else { 1 });
    if let Some((offset, word)) = bits {
        bit_offset(&mut code.hot.bytes, offset, word, t);
    }
    address(&mut code.hot, site, p.at, s, saved.rsp_moved())?;
    save_flags(code, &saved);
    let out = &mut code.hot.bytes;
    if let Some((_, word)) = bits {
        bit_word(out, word, s, t);
    }
    asm::shr(out, s, contract::BLOCK_SHIFT as u8);
    count(out, site.count, check_counter(p.store));
    test_tag(out, s, p);
    let miss = asm::jcc32(out, asm::CC_NE);
    let chain = site.planned.and_then(|p| p.chain);
    // The short ways form the address in one register.
    let short = saved.is_empty() && bits.is_none();
    let tail =
        (short && restart.is_none() && chain.is_none()).then(|| shared_tail(code, s, p, |out| denies(out, s, p)));
    let cold = code.cold.pos();
    code.hot.fix(miss, FixupTarget::Cold(cold));
    saved.undo_hot(code, site);
    let behind = code.hot.pos() - site.begin;
    if let Some(chain) = chain {
        debug_assert!(saved.is_empty(), "checks that spill end what others cover");
        let limit = site.planned.and_then(|p| p.limit);
        return chained_stub(code, site, p, s, (chain, limit), behind);
    }
    if let Some(tail) = tail {
        return short_stub(code, site, p, s, tail, behind);
    }
    if short && p.bytes > 1 {
        straddle_test(code, site, p, s, behind)?;
    } else if saved.flags.is_none() && bits.is_none() && p.bytes > 1 && restart.is_none() {
        spilled_straddle_test(code, site, p, (s, &saved), behind, |out| denies(out, s, p))?;
    }
    saved.undo_cold(code);
    miss_call(code, site, p)?;
    let back = asm::jmp32(&mut code.cold.bytes);
    // A check of two blocks would fail again where only the block behind the access is missing.
    let delta = restart.map_or(behind, |group| group - site.begin);
    code.cold.fix(back, FixupTarget::Insn { id: site.id, delta });
    Ok(())
}

/// `mov/lea s, address; shr s, 40; cmp s32, 0x20; je cold`
pub(super) fn in_segment(code: &mut EmittedCode, s: u8) -> usize {
    let out = &mut code.hot.bytes;
    asm::shr(out, s, contract::SEGMENT_SHIFT as u8);
    asm::cmp32(out, s, (contract::SEGMENT_BASE >> contract::SEGMENT_SHIFT) as i8);
    asm::jcc32(out, asm::CC_E)
}

/// More than 64 bytes: the gate makes all blocks accessible at once if the area is in the segment.
fn big(code: &mut EmittedCode, site: &Site, p: &PlainAccess) -> Done {
    code.sites.checks += 1;
    let ScratchRegisters { saved, s, .. } = open(code, site, place_regs(site.insn, p.at), 1);
    address(&mut code.hot, site, p.at, s, saved.rsp_moved())?;
    save_flags(code, &saved);
    count(&mut code.hot.bytes, site.count, check_counter(p.store));
    let found = in_segment(code, s);
    let cold = code.cold.pos();
    code.hot.fix(found, FixupTarget::Cold(cold));
    saved.undo_hot(code, site);
    let access = code.hot.pos() - site.begin;
    saved.undo_cold(code);
    miss_call(code, site, p)?;
    let back = asm::jmp32(&mut code.cold.bytes);
    code.cold.fix(back, FixupTarget::Insn { id: site.id, delta: access });
    Ok(())
}

pub(super) fn string(code: &mut EmittedCode, site: &Site, desc: u32, rsi: bool, rdi: bool) -> Done {
    code.sites.strings += 1;
    const RSI: u8 = 6;
    const RDI: u8 = 7;
    // The gate performs the instruction, so its registers must hold the program's values in the stub, even those it only writes.
    let own = RegSet(1 << RSI | 1 << RDI | 1 << 1 | 1);
    let guarded = Site { live: site.live | own, ..*site };
    let ScratchRegisters { saved, s, .. } = open(code, &guarded, own, 1);
    // rdi and rsi are not rax, so the flags may be saved first, once.
    save_flags(code, &saved);
    let mut found = Vec::new();
    for (reg, wanted) in [(RDI, rdi), (RSI, rsi)] {
        if wanted {
            asm::mov(&mut code.hot.bytes, s, reg);
            count(&mut code.hot.bytes, site.count, check_counter(reg == RDI && !rsi));
            found.push(in_segment(code, s));
        }
    }
    let cold = code.cold.pos();
    for at in found {
        code.hot.fix(at, FixupTarget::Cold(cold));
    }
    saved.undo_hot(code, site);
    saved.undo_cold(code);
    let cold = &mut code.cold;
    asm::lea(&mut cold.bytes, RSP, MemOperand::base(RSP, -RED_ZONE));
    asm::push_imm(&mut cold.bytes, desc);
    code.stub_gate(contract::GATE_STRING, site.id, (RED_ZONE, 8));
    let cold = &mut code.cold;
    let tail = cold.pos() as usize;
    asm::lea(&mut cold.bytes, RSP, MemOperand::base(RSP, RED_ZONE));
    let back = asm::jmp32(&mut cold.bytes);
    debug_assert_eq!(cold.bytes[tail..back], contract::STRING_TAIL);
    cold.fix(back, FixupTarget::Insn { id: site.id, delta: 0 });
    code.behind.push(code.cold.fixups.len() - 1);
    Ok(())
}

fn vsib(code: &mut EmittedCode, site: &Site, d: &VsibDesc) -> Done {
    code.sites.vsib += 1;
    let ScratchRegisters { saved, .. } = open(code, site, operand_regs(site.insn), 0);
    save_flags(code, &saved);
    count(&mut code.hot.bytes, site.count, check_counter(d.access == 2));
    asm::cmp_mem32(&mut code.hot.bytes, MemOperand::absolute(contract::CTX_NODES), 1);
    let found = asm::jcc32(&mut code.hot.bytes, asm::CC_NE);
    let cold = code.cold.pos();
    code.hot.fix(found, FixupTarget::Cold(cold));
    saved.undo_hot(code, site);
    let access = code.hot.pos() - site.begin;
    saved.undo_cold(code);
    let cold = &mut code.cold;
    asm::lea(&mut cold.bytes, RSP, MemOperand::base(RSP, -RED_ZONE));
    asm::push(&mut cold.bytes, RAX);
    let at = asm::lea_rip(&mut cold.bytes, RAX);
    cold.fix(at, FixupTarget::Vsib(code.vsib.len() as u32));
    asm::xchg_rsp_rax(&mut cold.bytes);
    code.stub_gate(contract::GATE_VSIB, site.id, (RED_ZONE, 8));
    let cold = &mut code.cold;
    asm::lea(&mut cold.bytes, RSP, MemOperand::base(RSP, RED_ZONE));
    let back = asm::jmp32(&mut cold.bytes);
    cold.fix(back, FixupTarget::Insn { id: site.id, delta: access });
    code.vsib.push(VsibDesc { rsp_moved: RED_ZONE as u8, ..*d });
    Ok(())
}

/// From the field of [`syscall`] that must lead behind the sequence to the sequence's end: field, jump and `syscall`.
pub const SYSCALL_TO_FIELD: usize = contract::SYSCALL_SEQUENCE_BYTES as usize - 3;

/// `lea rcx, [behind]; jmp [GATE_SYSCALL]; syscall`: rcx and r11 are what `syscall` clobbers anyway, so nothing is saved. The gate
/// may send the program to the instruction itself.
pub fn syscall(out: &mut Vec<u8>) {
    const RCX: u8 = 1;
    let begin = out.len();
    asm::lea_rip(out, RCX);
    asm::jmp_abs(out, contract::GATE_SYSCALL);
    out.extend([0x0f, 0x05]);
    debug_assert_eq!(out.len() - begin, contract::SYSCALL_SEQUENCE_BYTES as usize);
}

/// Makes the stubs that skip the instruction lead to where the buffer is now.
pub fn land_behind(code: &mut EmittedCode, site: &Site) {
    let delta = code.hot.pos() - site.begin;
    for i in code.behind.drain(..) {
        code.cold.retarget(i, FixupTarget::Insn { id: site.id, delta });
    }
}
