//! The tests of guarded code, in full versions and where plain code has learnt: three answers instead of two.
//!
//! Input: as [`crate::insert::sequences::check`]. Output: in the hot buffer a test of the tag, or the call of one, behind which the access goes to the alias
//! (`%gs`); in the cold one what is tested of private memory, and the call of the gate. **Invariant**: who comes from the test to the access with the prefix
//! has an address of shared memory that allows it. Who comes with a private one goes behind the prefix, which is the access as the program has it. What has no
//! test has no prefix: in shared memory it faults.
//! Source: design section 9.

use crate::decode::insn::Flow;
use crate::decode::regs::RegSet;
use crate::facts::access::{AddressForm, PlainAccess};
use crate::insert::asm::{self, MemOperand, RSP};
use crate::insert::code::{EmittedCode, FixupTarget, TailCall};
use crate::insert::sequences::{in_segment, string};
use crate::insert::site::{
    Done, RED_ZONE, ScratchRegisters, Site, address, bit_offset, bit_word, check_counter, count, in_red_zone, open,
    place_regs, save_flags,
};
use crate::insert::stubs::{bit_string, miss_call, miss_descriptor, shared_tail, short_stub, spilled_straddle_test};
use crate::plan::decision::{Decision, is_big};
use blizzard_contract::{self as contract, guard_tags as tags};
use iced_x86::{Instruction, Mnemonic, Register};

/// `%gs:`
const GS: u8 = 0x65;
/// Longest instruction (SDM volume 2, 2.3.11).
const LONGEST: usize = 15;

/// Whether full code reaches what the instruction accesses by the alias, behind a test of tags.
pub fn is_aliased(insn: &Instruction, decision: &Decision, table: Option<u32>, bytes: &[u8]) -> bool {
    matches!(decision, Decision::Check(p) if !is_big(p)) && takes_prefix(insn) && table.is_none() && has_room(bytes)
}

/// Whether a prefix reaches the operand that is checked. (That of `clzero` is not described as one of a segment.)
fn takes_prefix(insn: &Instruction) -> bool {
    insn.mnemonic() != Mnemonic::Clzero && !matches!(insn.memory_base(), Register::RIP | Register::EIP)
}

fn has_room(bytes: &[u8]) -> bool {
    prefixed(bytes).len() <= LONGEST
}

/// The instruction with the prefix, which takes the place of other ones for segments.
pub fn prefixed(bytes: &[u8]) -> Vec<u8> {
    let is_prefix = |b: &u8| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = bytes.iter().take_while(|b| is_prefix(b)).count();
    let segment = |b: &u8| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65);
    let kept = bytes[..prefixes].iter().filter(|b| !segment(b)).copied();
    [GS].into_iter().chain(kept).chain(bytes[prefixes..].iter().copied()).collect()
}

/// Whether plain code may test the access, if it has learnt of it. The stub of a call leads to plain code, which does not test it.
pub fn is_learnable(decision: &Decision, flow: Flow) -> bool {
    matches!(decision, Decision::Check(_) | Decision::String { .. }) && flow != Flow::IndirectCall
}

/// Emits what is decided for the access of the instruction.
pub(super) fn check(code: &mut EmittedCode, site: &Site, decision: &Decision) -> Done {
    match decision {
        Decision::Refused(reason) => Err(reason),
        Decision::Check(p) if is_aliased(site.insn, decision, site.table, site.bytes) => access(code, site, p),
        Decision::Check(p) if is_big(p) && has_room(site.bytes) => big(code, site, p),
        Decision::String { desc, rsi, rdi } => string(code, site, *desc, *rsi, *rdi),
        _ => Ok(()),
    }
}

fn access(code: &mut EmittedCode, site: &Site, p: &PlainAccess) -> Done {
    code.sites.checks += 1;
    let bits = bit_string(p);
    if site.compact && bits.is_none() && !site.live.meets(RegSet::FLAGS) {
        return called(code, site, p);
    }
    let ScratchRegisters { saved, s, t } =
        open(code, site, place_regs(site.insn, p.at), if bits.is_some() { 2 } else { 1 });
    if let Some((offset, word)) = bits {
        bit_offset(&mut code.hot.bytes, offset, word, t);
    }
    address(&mut code.hot, site, p.at, s, saved.rsp_moved())?;
    // The short ways form the address in one register.
    let short = saved.is_empty() && bits.is_none();
    save_flags(code, &saved);
    let out = &mut code.hot.bytes;
    if let Some((_, word)) = bits {
        bit_word(out, word, s, t);
    }
    asm::shr(out, s, contract::BLOCK_SHIFT as u8);
    count(out, site.count, check_counter(p.store));
    let denied = test(out, s, p);
    let away = asm::jcc32(out, denied);
    let tail = short.then(|| shared_tail(code, s, p, |out| denies(out, s, p)));
    code.hot.fix(away, FixupTarget::Cold(code.cold.pos()));
    saved.undo_hot(code, site);
    let behind = code.hot.pos() - site.begin;

    compare_tag(&mut code.cold.bytes, s, 0);
    let private = FixupTarget::Insn { id: site.id, delta: behind + 1 };
    if saved.is_empty() {
        let without_prefix = asm::jcc32(&mut code.cold.bytes, asm::CC_E);
        code.cold.fix(without_prefix, private);
    } else {
        let shared = asm::jcc8(&mut code.cold.bytes, asm::CC_NE);
        saved.undo_cold(code);
        let without_prefix = asm::jmp32(&mut code.cold.bytes);
        code.cold.fix(without_prefix, private);
        asm::land8(&mut code.cold.bytes, shared);
    }
    if let Some(tail) = tail {
        return short_stub(code, site, p, s, tail, behind);
    }
    // Flags are kept in rax, so that an operand that needs it has no address here.
    let has_address = saved.flags.is_none() || !place_regs(site.insn, p.at).meets(RegSet::RAX);
    if p.bytes > 1 && bits.is_none() && has_address {
        spilled_straddle_test(code, site, p, (s, &saved), behind, |out| denies(out, s, p))?;
    }
    saved.undo_cold(code);
    miss_call(code, site, p)?;
    let back = asm::jmp32(&mut code.cold.bytes);
    code.cold.fix(back, FixupTarget::Insn { id: site.id, delta: behind });
    Ok(())
}

/// A test that is called: where size matters more than time.
fn called(code: &mut EmittedCode, site: &Site, p: &PlainAccess) -> Done {
    let avoid = place_regs(site.insn, p.at) | RegSet::RSP;
    let free = RegSet::GPRS.without(site.live).without(RegSet::RSP).gprs().next();
    let s =
        free.or(RegSet::GPRS.without(avoid).gprs().next()).expect("an operand names at most two of sixteen registers");
    let mut moved = 0;
    if free.is_none() || !site.red_zone {
        asm::lea(&mut code.hot.bytes, RSP, MemOperand::base(RSP, -RED_ZONE));
        moved = RED_ZONE;
        code.stack.push(site.stack_place(code.hot.bytes.len(), moved));
    }
    if free.is_none() {
        asm::push(&mut code.hot.bytes, s);
        moved += 8;
        code.stack.push(site.stack_place(code.hot.bytes.len(), moved));
    }
    address(&mut code.hot, site, p.at, s, moved)?;
    count(&mut code.hot.bytes, site.count, check_counter(p.store));
    let test = shared_test(code, s, p, moved);
    let call = asm::call32(&mut code.hot.bytes);
    code.hot.fix(call, FixupTarget::Cold(test));
    if moved > 0 {
        code.stack.push(site.stack_place(code.hot.bytes.len(), 0));
    }
    code.hot.bytes.extend(asm::JC_OVER_A_BYTE);
    Ok(())
}

/// The test for accesses like `p` whose address is in `s`, emitted where it is first needed. It returns with the carry flag set where the memory is private; else
/// the access is possible at the alias. `moved`: by how much rsp is lower than the program's when it is called, which it puts back: by the red zone, unless that
/// is free, and by `s` if that has been pushed; else `s` is changed.
fn shared_test(code: &mut EmittedCode, s: u8, p: &PlainAccess, moved: i32) -> u32 {
    let known = &code.tests[usize::from(s)];
    let desc = miss_descriptor(p);
    if let Some(t) = known.iter().find(|t| (t.0, t.1) == (desc, moved)) {
        return t.2;
    }
    let tail = shared_tail(code, s, p, |out| denies(out, s, p));
    let at = code.cold.pos();
    code.tests[usize::from(s)].push((desc, moved, at));
    let out = &mut code.cold.bytes;
    let back = |out: &mut Vec<u8>| {
        if moved > RED_ZONE {
            asm::load64(out, s, MemOperand::base(RSP, 8));
        }
        if moved > 0 { asm::ret_pop(out, moved as u16) } else { asm::ret(out) }
    };
    asm::store64(out, in_red_zone(0), s);
    asm::shr(out, s, contract::BLOCK_SHIFT as u8);
    let denied = test(out, s, p);
    let denied = asm::jcc8(out, denied);
    back(out);
    asm::land8(out, denied);
    compare_tag(out, s, 0);
    let shared = asm::jcc8(out, asm::CC_NE);
    out.push(asm::STC);
    back(out);
    asm::land8(out, shared);
    asm::load64(out, s, in_red_zone(0));
    asm::add_rsp(out, -RED_ZONE as i8);
    let call = asm::call32(out);
    code.cold.fix(call, FixupTarget::Cold(tail));
    code.tail_calls.push(TailCall { end: code.cold.pos(), below: RED_ZONE as u32 });
    code.cold.bytes.push(asm::CLC);
    back(&mut code.cold.bytes);
    code.shared.push((at, code.cold.pos()));
    at
}

/// Tests whether tags allow the access whose shifted address is in `s`; the condition on which they do not. Where they do, the carry flag is clear.
fn test(out: &mut Vec<u8>, s: u8, p: &PlainAccess) -> u8 {
    if p.bytes == 1 {
        test_tag(out, s, allowing(p.store));
        asm::CC_E
    } else {
        compare_tag(out, s, if p.store { tags::BOTH_WRITABLE } else { tags::BOTH_READABLE });
        asm::CC_B
    }
}

/// A test of the tag of the access's own block, and short jumps where it denies the access, or a peer has rung: a loop of plain code has no poll, and may always
/// come here, because the next block is not accessible.
fn denies(out: &mut Vec<u8>, s: u8, p: &PlainAccess) -> [usize; 2] {
    test_tag(out, s, allowing(p.store));
    let denied = asm::jcc8(out, asm::CC_E);
    asm::cmp_mem32(out, MemOperand::absolute(contract::POLL_WORD), 0);
    [denied, asm::jcc8(out, asm::CC_NE)]
}

/// Tests what may be done with a block and the next, counted from the one whose number is in `s`; the branch that is taken where that is not enough.
pub(super) fn test_two(out: &mut Vec<u8>, s: u8, tag: u8, store: bool) -> usize {
    compare_tag_at(out, s, tag, if store { tags::BOTH_WRITABLE } else { tags::BOTH_READABLE });
    asm::jcc32(out, asm::CC_B)
}

/// The bits of the own block's tag that allow an access.
fn allowing(store: bool) -> u8 {
    if store { tags::WRITABLE } else { tags::READONLY | tags::WRITABLE }
}

/// `test byte gs:[s + T], bits`
fn test_tag(out: &mut Vec<u8>, s: u8, bits: u8) {
    out.push(GS);
    asm::test8(out, MemOperand::base(s, contract::TAG_TABLE_BASE as i32), bits);
}

/// `cmp byte gs:[s + T], number`
fn compare_tag(out: &mut Vec<u8>, s: u8, number: u8) {
    compare_tag_at(out, s, 0, number);
}

/// `cmp byte gs:[s + T + further], number`
fn compare_tag_at(out: &mut Vec<u8>, s: u8, further: u8, number: u8) {
    out.push(GS);
    asm::cmp8(out, MemOperand::base(s, contract::TAG_TABLE_BASE as i32 + i32::from(further)), number);
}

/// More than 64 bytes: if the area is in shared memory, the gate makes all of it accessible, and the stub accesses it.
fn big(code: &mut EmittedCode, site: &Site, p: &PlainAccess) -> Done {
    if !matches!(p.at, AddressForm::Operand) {
        return Ok(());
    }
    code.sites.checks += 1;
    let ScratchRegisters { saved, s, .. } = open(code, site, place_regs(site.insn, p.at), 1);
    address(&mut code.hot, site, p.at, s, saved.rsp_moved())?;
    save_flags(code, &saved);
    count(&mut code.hot.bytes, site.count, check_counter(p.store));
    let found = in_segment(code, s);
    code.hot.fix(found, FixupTarget::Cold(code.cold.pos()));
    saved.undo_hot(code, site);
    saved.undo_cold(code);
    miss_call(code, site, p)?;
    code.cold.bytes.extend(prefixed(site.bytes));
    let back = asm::jmp32(&mut code.cold.bytes);
    code.cold.fix(back, FixupTarget::Insn { id: site.id, delta: 0 });
    code.behind.push(code.cold.fixups.len() - 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_takes_the_place_of_other_segments() {
        assert_eq!(prefixed(&[0x48, 0x8b, 0x07]), [0x65, 0x48, 0x8b, 0x07]);
        assert_eq!(prefixed(&[0xf0, 0x3e, 0x66, 0x0f, 0xb1, 0x0f]), [0x65, 0xf0, 0x66, 0x0f, 0xb1, 0x0f]);
        assert_eq!(prefixed(&[0xc5, 0xf8, 0x10, 0x07]), [0x65, 0xc5, 0xf8, 0x10, 0x07]);
    }
}
