//! Cold stubs: what runs where a tag test fails.
//!
//! Input: the place of a check, and the register that holds the address. Output: bytes in the cold buffer. **Invariant**: a stub restores the program's state,
//! enters a gate, and goes on to the access, which is possible then.

use crate::decode::insn::InsnId;
use crate::decode::regs::RegSet;
use crate::facts::access::{AddressForm, PlainAccess, XSAVE_BYTES};
use crate::insert::asm::{self, MemOperand, RAX, RSP};
use crate::insert::code::{Buffer, EmittedCode, FixupTarget};
use crate::insert::site::{Done, RED_ZONE, Saved, Site, address, bit_offset, bit_word, place_regs};
use crate::plan::loop_tests::Limit;
use blizzard_contract as contract;
use blizzard_contract::miss_desc;
use iced_x86::Register;

/// Says that no iteration has been tested.
pub fn take_back(out: &mut Vec<u8>, limit: Limit) {
    let (at, none) = word(limit);
    asm::store64_imm(out, at, none);
}

/// The cold stub where a register and the flags are free: it puts the address into the register, and a tail that all such stubs
/// of a module share does the rest.
pub(super) fn short_stub(code: &mut EmittedCode, site: &Site, p: &PlainAccess, s: u8, tail: u32, access: u32) -> Done {
    asm::add_rsp(&mut code.cold.bytes, -RED_ZONE as i8);
    address(&mut code.cold, site, p.at, s, RED_ZONE)?;
    code.stub_tail(tail, site.id, RED_ZONE);
    let back = asm::jmp32(&mut code.cold.bytes);
    code.cold.fix(back, FixupTarget::Insn { id: site.id, delta: access });
    Ok(())
}

/// The cold stub of a check in front of which others still count: what they cover is acquired together with its own range.
pub(super) fn chained_stub(
    code: &mut EmittedCode,
    site: &Site,
    p: &PlainAccess,
    s: u8,
    (chain, limit): (u32, Option<Limit>),
    access: u32,
) -> Done {
    if p.bytes > 1 {
        straddle_test(code, site, p, s, access)?;
    }
    group_call(code, site.id, Some(s), chain);
    if let Some(limit) = limit {
        take_back(&mut code.cold.bytes, limit);
    }
    let cold = &mut code.cold;
    let back = asm::jmp32(&mut cold.bytes);
    cold.fix(back, FixupTarget::Insn { id: site.id, delta: access });
    Ok(())
}

/// In a cold stub that goes on at `id`: acquires a chain of ranges; `s` is changed. Without one, no register is.
pub(super) fn group_call(code: &mut EmittedCode, id: InsnId, s: Option<u8>, chain: u32) {
    let cold = &mut code.cold;
    asm::lea(&mut cold.bytes, RSP, MemOperand::base(RSP, -RED_ZONE));
    match s {
        Some(s) => {
            let at = asm::lea_rip(&mut cold.bytes, s);
            cold.fix(at, FixupTarget::Range(chain));
            asm::push(&mut cold.bytes, s);
        }
        None => {
            asm::push(&mut cold.bytes, RAX);
            let at = asm::lea_rip(&mut cold.bytes, RAX);
            cold.fix(at, FixupTarget::Range(chain));
            asm::xchg_rsp_rax(&mut cold.bytes);
        }
    }
    code.stub_gate(contract::GATE_GROUP, id, (RED_ZONE, 8));
    asm::lea(&mut code.cold.bytes, RSP, MemOperand::base(RSP, RED_ZONE));
}

/// The shared tail for accesses like `p` whose address is in `s`, emitted where it is first needed. It is called with rsp below the red
/// zone, may change `s` and the flags, and gives the red zone back. Then the access is possible. `own_block`: a test of the tag of the block that the shifted
/// address in `s` names, and short jumps to the gate.
pub(super) fn shared_tail<const N: usize>(
    code: &mut EmittedCode,
    s: u8,
    p: &PlainAccess,
    own_block: impl Fn(&mut Vec<u8>) -> [usize; N],
) -> u32 {
    let desc = miss_descriptor(p);
    let known = &code.tails[usize::from(s)];
    if let Some(t) = known.iter().find(|t| t.0 == desc) {
        return t.1;
    }
    let at = code.cold.pos();
    code.tails[usize::from(s)].push((desc, at));
    let out = &mut code.cold.bytes;
    asm::push(out, s);
    if p.bytes > 1 {
        asm::and32(out, s, 63);
        asm::cmp32(out, s, (contract::BLOCK_BYTES - u64::from(p.bytes)) as i8);
        let straddles = asm::jcc8(out, asm::CC_A);
        asm::pop(out, s);
        asm::push(out, s);
        asm::shr(out, s, contract::BLOCK_SHIFT as u8);
        let to_gate = own_block(out);
        asm::pop(out, s);
        asm::ret_pop(out, RED_ZONE as u16);
        for jump in [straddles].into_iter().chain(to_gate) {
            asm::land8(out, jump);
        }
    }
    asm::push_imm(out, desc);
    code.tail_gate(contract::GATE_MISS, 16);
    asm::ret_pop(&mut code.cold.bytes, RED_ZONE as u16);
    code.shared.push((at, code.cold.pos()));
    at
}

/// Of [`shared_tail`]: that of accesses that are tested always.
pub(super) fn denies(out: &mut Vec<u8>, s: u8, p: &PlainAccess) -> [usize; 1] {
    asm::test8(out, MemOperand::base(s, contract::TAG_TABLE_BASE as i32), tag_bit(p));
    [asm::jcc8(out, asm::CC_NE)]
}

fn tag_bit(p: &PlainAccess) -> u8 {
    if p.store { contract::TAG_NO_STORE } else { contract::TAG_NO_LOAD }
}

/// Tests the tag of one block, or of the two that an access of several bytes may touch.
pub(super) fn test_tag(out: &mut Vec<u8>, s: u8, p: &PlainAccess) {
    let table = MemOperand::base(s, contract::TAG_TABLE_BASE as i32);
    let bit = tag_bit(p);
    if p.bytes == 1 {
        asm::test8(out, table, bit);
    } else {
        asm::test32(out, table, u32::from(bit) * 0x0101);
    }
}

/// The second block's tag may be why the test failed though the access does not reach it: then goes on at the access.
pub(super) fn straddle_test(code: &mut EmittedCode, site: &Site, p: &PlainAccess, s: u8, access: u32) -> Done {
    let real = reaches_on(code, site, p, s, 0)?;
    let cold = &mut code.cold;
    asm::test8(&mut cold.bytes, MemOperand::base(s, contract::TAG_TABLE_BASE as i32), tag_bit(p));
    let back = asm::jcc32(&mut cold.bytes, asm::CC_E);
    cold.fix(back, FixupTarget::Insn { id: site.id, delta: access });
    asm::land8(&mut cold.bytes, real);
    Ok(())
}

/// [`straddle_test`] where registers are spilled: they are the program's again at the access, and still spilled behind the test. `own_block`: as in
/// [`shared_tail`].
pub(super) fn spilled_straddle_test<const N: usize>(
    code: &mut EmittedCode,
    site: &Site,
    p: &PlainAccess,
    (s, saved): (u8, &Saved),
    access: u32,
    own_block: impl Fn(&mut Vec<u8>) -> [usize; N],
) -> Done {
    let real = reaches_on(code, site, p, s, saved.rsp_moved())?;
    let denied = own_block(&mut code.cold.bytes);
    saved.undo_cold(code);
    let cold = &mut code.cold;
    let back = asm::jmp32(&mut cold.bytes);
    cold.fix(back, FixupTarget::Insn { id: site.id, delta: access });
    for jump in [real].into_iter().chain(denied) {
        asm::land8(&mut cold.bytes, jump);
    }
    Ok(())
}

/// A short jump where the access touches two blocks; behind it `s` holds the number of its block.
fn reaches_on(
    code: &mut EmittedCode,
    site: &Site,
    p: &PlainAccess,
    s: u8,
    rsp_moved: i32,
) -> Result<usize, &'static str> {
    let cold = &mut code.cold;
    address(cold, site, p.at, s, rsp_moved)?;
    asm::and32(&mut cold.bytes, s, 63);
    asm::cmp32(&mut cold.bytes, s, (contract::BLOCK_BYTES - u64::from(p.bytes)) as i8);
    let real = asm::jcc8(&mut cold.bytes, asm::CC_A);
    address(cold, site, p.at, s, rsp_moved)?;
    asm::shr(&mut cold.bytes, s, contract::BLOCK_SHIFT as u8);
    Ok(real)
}

pub(super) fn miss_descriptor(p: &PlainAccess) -> u32 {
    let size = if p.bytes == XSAVE_BYTES { miss_desc::SIZE_XSAVE } else { u32::from(p.bytes) };
    size | if p.load { miss_desc::LOAD } else { 0 }
        | if p.store { miss_desc::STORE } else { 0 }
        | if p.masked { miss_desc::MASKED } else { 0 }
}

/// In a cold stub, with the program's state restored: calls the miss gate; rsp is the program's again behind it.
pub(super) fn miss_call(code: &mut EmittedCode, site: &Site, p: &PlainAccess) -> Done {
    let cold = &mut code.cold;
    asm::lea(&mut cold.bytes, RSP, MemOperand::base(RSP, -RED_ZONE));
    asm::push(&mut cold.bytes, RAX);
    match bit_string(p) {
        Some(bits) => bit_string_address(cold, site, p.at, bits)?,
        None => address(cold, site, p.at, RAX, RED_ZONE + 8)?,
    }
    asm::xchg_rsp_rax(&mut cold.bytes);
    asm::push_imm(&mut cold.bytes, miss_descriptor(p));
    code.stub_gate(contract::GATE_MISS, site.id, (RED_ZONE, 16));
    asm::lea(&mut code.cold.bytes, RSP, MemOperand::base(RSP, RED_ZONE));
    Ok(())
}

/// In [`miss_call`], with rax pushed: the address of the word that holds the bit into rax; flags that are live are kept.
fn bit_string_address(cold: &mut Buffer, site: &Site, place: AddressForm, (offset, word): (Register, u8)) -> Done {
    let avoid = place_regs(site.insn, place) | RegSet::RAX | RegSet::RSP;
    let mut spare = RegSet::GPRS.without(avoid).gprs();
    let [s, t] = std::array::from_fn(|_| spare.next().expect("sixteen registers"));
    asm::push(&mut cold.bytes, s);
    asm::push(&mut cold.bytes, t);
    bit_offset(&mut cold.bytes, offset, word, t);
    address(cold, site, place, s, RED_ZONE + 24)?;
    let out = &mut cold.bytes;
    let flags_live = site.live.meets(RegSet::FLAGS);
    if flags_live {
        asm::save_flags(out);
    }
    bit_word(out, word, s, t);
    if flags_live {
        asm::restore_flags(out);
    }
    asm::mov(out, RAX, s);
    asm::pop(out, t);
    asm::pop(out, s);
    Ok(())
}

/// The register with the bit's number, and the bytes of a word.
pub(super) fn bit_string(p: &PlainAccess) -> Option<(Register, u8)> {
    match p.at {
        AddressForm::BitString { offset, word } => Some((offset, word)),
        _ => None,
    }
}

pub(super) fn word(limit: Limit) -> (MemOperand, i32) {
    match limit {
        Limit::Up => (MemOperand::absolute(contract::LIMIT_UP), contract::NO_LIMITS[0] as i32),
        Limit::Down => (MemOperand::absolute(contract::LIMIT_DOWN), contract::NO_LIMITS[1] as i32),
    }
}
