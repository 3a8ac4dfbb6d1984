//! What a guarded instruction accesses, and so what the tests in front of it must be about.
//!
//! Input: the instruction, and the symbolic state when control reaches it. Output: [`GuardedAddress`]s, the mask each needs, the pointers
//! of a string instruction. Source: `rewriter/SEQUENCES.md`, "The check sequences".

use crate::decode::effects::{AccessKind, RAX, RBX, RDI, RSI, RSP, Touch, bit};
use crate::decode::insn::{GS, Insn, MASKED, Mem, NONE, PREFIXED};
use crate::decode::raw::prefixes;
use crate::sites::site::{Context, SiteKind};
use crate::sites::symbolic::{Cond, Lin, SymbolicState};
use blizzard_contract::{self as contract, miss_desc};

/// The mask that must be tested for an access, given what is checked.
pub(crate) fn required_mask(cx: &Context, access: AccessKind) -> u32 {
    if access.writes() && (cx.check_stores || !cx.check_loads || !access.reads()) {
        u32::from(contract::TAG_NO_STORE)
    } else {
        u32::from(contract::TAG_NO_LOAD)
    }
}

pub(crate) fn spread(mask: u32, bytes: u8) -> u32 {
    if bytes == 1 { mask } else { mask | mask << 8 }
}

/// What the guarded instruction accesses at one address.
pub(crate) struct GuardedAddress {
    pub lin: Lin,
    pub size: u32,
    pub access: AccessKind,
    pub masked: bool,
}

const NOWHERE: Lin = Lin::reg(NONE);

const CHECK: SiteKind = SiteKind::Check { straddle: false };

pub(crate) fn targets_of(
    cx: &Context,
    access: &Insn,
    state: &SymbolicState,
    first: Cond,
) -> Result<(SiteKind, Vec<GuardedAddress>), String> {
    let one = |kind, lin, size, access, masked| Ok((kind, vec![GuardedAddress { lin, size, access, masked }]));
    if first == Cond::Poll {
        return one(SiteKind::Poll, NOWHERE, 0, AccessKind::Load, false);
    }
    let operand = || {
        let m = access.mem.as_ref().ok_or("the guarded instruction has no memory operand")?;
        // The base of %gs is zero where other nodes run.
        let m = Mem { seg: if m.seg == GS { 0 } else { m.seg }, ..*m };
        state.address(&m).ok_or("the access uses a register that the check has changed")
    };
    let register = |r: u8| {
        if r < 16 && state.intact(r) {
            Ok(Lin::reg(r))
        } else {
            Err("the check changed a register that the access uses")
        }
    };
    let bytes = u32::from(access.size);
    match access.touch {
        // In full code %gs is how shared memory is reached behind a test.
        Touch::Mem(a) if access.size <= 64 && (cx.guard || access.mem.is_none_or(|m| m.seg != GS)) => {
            let mut lin = operand()?;
            if access.op == 0x8f && access.mem.is_some_and(|m| m.base == RSP) {
                // pop forms its address after it has moved rsp.
                lin.disp += i64::from(bytes);
            }
            one(CHECK, lin, bytes, a, access.has(MASKED))
        }
        Touch::Mem(a) => one(SiteKind::Large, operand()?, bytes, a, false),
        Touch::Xsave(a) => one(SiteKind::Large, operand()?, miss_desc::SIZE_XSAVE, a, false),
        Touch::BitString(a) => {
            register(access.r1)?;
            let lin = Lin { word: Some((access.r1, access.size as u8)), ..operand()? };
            one(CHECK, lin, bytes, a, false)
        }
        Touch::Xlat => {
            register(RAX)?;
            one(CHECK, Lin { word: Some((RAX, 1)), ..register(RBX)? }, 1, AccessKind::Load, false)
        }
        Touch::ZeroLine => one(CHECK, register(RAX)?, 64, AccessKind::Store, false),
        Touch::Move64 => {
            let mut v = Vec::new();
            if cx.check_loads {
                v.push(GuardedAddress { lin: operand()?, size: 64, access: AccessKind::Load, masked: false });
            }
            if cx.check_stores {
                // One byte: the line is aligned, else the instruction faults (SDM, MOVDIR64B and ENQCMD), so its first tag speaks for all of it.
                v.push(GuardedAddress { lin: register(access.r0)?, size: 1, access: AccessKind::Store, masked: false });
            }
            Ok((CHECK, v))
        }
        Touch::String { .. } => {
            if (0..16).any(|r| bit(r) & access.fx.reads != 0 && !state.intact(r)) {
                return Err("the range test changed a register of the string instruction".into());
            }
            one(SiteKind::String, NOWHERE, bytes, AccessKind::Load, false)
        }
        Touch::Lanes(a) => one(SiteKind::Lanes, NOWHERE, bytes, a, true),
        Touch::MaskMov => {
            let wide = if cx.guard { has_prefix(cx, access, 0x66) } else { access.has(PREFIXED) };
            let size = if access.op >> 8 == 1 && !wide { 8 } else { 16 };
            one(CHECK, register(RDI)?, size, AccessKind::Store, true)
        }
        Touch::None | Touch::Opaque => Err(format!("no check form is known for the access at {:#x}", access.va)),
    }
}

/// Whether a prefix of the old form stands in front of an instruction.
pub(crate) fn has_prefix(cx: &Context, i: &Insn, prefix: u8) -> bool {
    (cx.rodata)(i.va).is_some_and(|bytes| prefixes(&bytes).contains(&prefix))
}

/// The pointer registers of a string instruction whose range must be tested.
pub(crate) fn string_pointers(cx: &Context, access: &Insn) -> Result<Vec<Lin>, String> {
    let Touch::String { reads_si, reads_di, writes_di } = access.touch else {
        return Err("not a string instruction".into());
    };
    let mut need = Vec::new();
    if (reads_di && cx.check_loads) || (writes_di && cx.check_stores) {
        need.push(Lin::reg(RDI));
    }
    if reads_si && cx.check_loads {
        need.push(Lin::reg(RSI));
    }
    Ok(need)
}
