//! Checks that ask first, by one bit of the address, whether it can be shared memory at all, as DESIGN.md lists them.
//!
//! Input: as [`crate::insert::sequences::check`]. Output: in the hot buffer the test of the bit; in the cold one the tag test, for addresses without it,
//! and the check's stub. **Invariant**: an access whose address has [`contract::PRIVATE_BIT`], or is formed from a register that has it and a displacement,
//! is private: neither tags nor protocols know such addresses ([`contract::PRIVATE_REACH`]). Source: SDM volume 1, 3.3.7.1 (canonical addresses).

use crate::decode::regs::RegSet;
use crate::facts::access::{AddressForm, PlainAccess};
use crate::insert::asm::{self, MemOperand, RSP};
use crate::insert::code::{EmittedCode, FixupTarget};
use crate::insert::site::{RED_ZONE, Saved, Site, address, check_counter, count, in_red_zone, place_regs};
use crate::insert::stubs::{chained_stub, denies, miss_call, shared_tail, short_stub, test_tag};
use blizzard_contract as contract;
use iced_x86::Register;

/// Emits a check of one tag test with a screen in front; says whether one could be had.
pub(super) fn access(code: &mut EmittedCode, site: &Site, p: &PlainAccess) -> Result<bool, &'static str> {
    if site.live.meets(RegSet::FLAGS) {
        return Ok(false);
    }
    let free = RegSet::GPRS.without(site.live).without(RegSet::RSP).gprs().next();
    let (screened, formed) = match (pointer(site, p.at), free) {
        (Some(register), _) => (register, false),
        (None, Some(s)) if !matches!(p.at, AddressForm::BitString { .. }) => (s, true),
        _ => return Ok(false),
    };
    if !code.fuel.take() {
        return Ok(false);
    }
    code.sites.screens += 1;
    count(&mut code.hot.bytes, site.count, check_counter(p.store));
    if formed {
        address(&mut code.hot, site, p.at, screened, 0)?;
    }
    asm::bt(&mut code.hot.bytes, screened, contract::PRIVATE_BIT as u8);
    let shared = asm::jcc32(&mut code.hot.bytes, asm::CC_AE);
    let behind = code.hot.pos() - site.begin;
    let chain = site.planned.and_then(|p| p.chain);
    let limit = site.planned.and_then(|p| p.limit);
    let Some(s) = free else {
        debug_assert!(chain.is_none(), "checks that spill end what others cover");
        code.hot.fix(shared, FixupTarget::Cold(code.cold.pos()));
        spilled(code, site, p, behind)?;
        return Ok(true);
    };
    let tail = chain.is_none().then(|| shared_tail(code, s, p, |out| denies(out, s, p)));
    code.hot.fix(shared, FixupTarget::Cold(code.cold.pos()));
    if !formed {
        address(&mut code.cold, site, p.at, s, 0)?;
    }
    tag_test(code, s, p);
    back_if_accessible(code, site, behind);
    match (chain, tail) {
        (Some(chain), _) => chained_stub(code, site, p, s, (chain, limit), behind)?,
        (None, Some(tail)) => short_stub(code, site, p, s, tail, behind)?,
        (None, None) => unreachable!("without a chain there is a tail"),
    }
    Ok(true)
}

/// The register that alone says where the access is, but for a displacement and a small index.
fn pointer(site: &Site, place: AddressForm) -> Option<u8> {
    match place {
        AddressForm::Register(r) => Some(r.number() as u8),
        AddressForm::Operand => {
            let base = site.insn.memory_base();
            let alone = site.insn.memory_index() == Register::None && base.is_gpr64() && base != Register::RSP;
            let register = if alone { Some(base) } else { site.anchor };
            register.filter(|_| site.table.is_none()).map(|r| r.number() as u8)
        }
        AddressForm::Xlat | AddressForm::BitString { .. } => None,
    }
}

/// Where no register is free, the cold code saves one: hardly any address comes there.
fn spilled(code: &mut EmittedCode, site: &Site, p: &PlainAccess, behind: u32) -> Result<(), &'static str> {
    let avoid = place_regs(site.insn, p.at) | RegSet::RSP;
    let s = RegSet::GPRS.without(avoid).gprs().next().expect("an operand names at most two of sixteen registers");
    let saved = Saved { spilled: vec![s], red_zone: site.red_zone, ..Saved::default() };
    let out = &mut code.cold.bytes;
    if site.red_zone {
        asm::store64(out, in_red_zone(0), s);
    } else {
        asm::lea(out, RSP, MemOperand::base(RSP, -RED_ZONE));
        asm::push(out, s);
    }
    address(&mut code.cold, site, p.at, s, saved.rsp_moved())?;
    tag_test(code, s, p);
    saved.undo_cold(code);
    back_if_accessible(code, site, behind);
    miss_call(code, site, p)?;
    let back = asm::jmp32(&mut code.cold.bytes);
    code.cold.fix(back, FixupTarget::Insn { id: site.id, delta: behind });
    Ok(())
}

/// Tests the tags of the address in `s`.
fn tag_test(code: &mut EmittedCode, s: u8, p: &PlainAccess) {
    asm::shr(&mut code.cold.bytes, s, contract::BLOCK_SHIFT as u8);
    test_tag(&mut code.cold.bytes, s, p);
}

/// Goes on at the access, `behind` bytes behind the site's beginning, when the tags allow it.
fn back_if_accessible(code: &mut EmittedCode, site: &Site, behind: u32) {
    let back = asm::jcc32(&mut code.cold.bytes, asm::CC_E);
    code.cold.fix(back, FixupTarget::Insn { id: site.id, delta: behind });
}
