//! Whether a cold stub calls the right gate with the right arguments.
//!
//! Input: the state at the gate call, the access. Output: where the stub must continue, or what is wrong.
//! Source: `rt/contract/src/gates.rs` (descriptors), `rewriter/SEQUENCES.md`, "The check sequences".

use crate::decode::effects::{AccessKind, RAX, RCX, RDI, RSI, RSP, Touch, bit};
use crate::decode::insn::{Insn, NONE, REP, REPNE, WIDE};
use crate::decode::raw::{Enc, Raw};
use crate::sites::site::{Context, Proven, Site, SiteKind, TWO_TAGS};
use crate::sites::symbolic::{Lin, SymbolicState, Val};
use crate::sites::tested_address::GuardedAddress;
use blizzard_contract::{self as contract, miss_desc, string_desc};

/// The call of a gate.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    /// Where the call stands.
    pub at: u64,
    /// Which gate: the address of its pointer.
    pub address: u64,
    /// The two topmost words of the stack.
    pub top: Val,
    pub below: Val,
    /// rsp at the call, relative to the sequence's start.
    pub lowered: i64,
    pub state: SymbolicState,
}

/// Where a gate's stub must continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    Recheck,
    Access,
    Behind,
    Anywhere,
}

/// Whether the gate and its arguments fit the access.
pub(crate) fn gate_arguments(
    cx: &Context,
    access: &Insn,
    target: &GuardedAddress,
    site: &mut Site,
    g: &Gate,
) -> Result<Back, String> {
    let kind = site.kind;
    let gate = |want: u64| {
        if g.address == want { Ok(()) } else { Err(format!("the cold stub calls the wrong gate {:#x}", g.address)) }
    };
    match kind {
        SiteKind::Strip | SiteKind::StackTest => Err("the tests of a loop or of rsp are no check of an access".into()),
        SiteKind::Poll => {
            gate(contract::GATE_POLL)?;
            Ok(Back::Anywhere)
        }
        SiteKind::Check { .. } if g.address == contract::GATE_GROUP => {
            let at = lane_descriptor_va(g).ok_or("the cold stub passes no chain of ranges")?;
            let ranges = chain(cx.rodata, at)?;
            let intact = |r: u8| r == NONE || g.state.intact(r);
            if ranges.iter().any(|r| !intact(r.proven.lin.base) || !intact(r.proven.lin.index)) {
                return Err("a register that the chain of ranges names is changed at the gate".into());
            }
            asked(cx, target, site, ranges[0].proven.lin, ranges[0].desc)?;
            site.chain = Some(at);
            Ok(Back::Access)
        }
        SiteKind::Check { .. } if site.proves.is_some() => {
            gate(contract::GATE_MISS)?;
            let Val::Lin(at) = g.below else {
                return Err("the cold stub passes another address than the access's".into());
            };
            let Val::Const(desc) = g.top else { return Err("the cold stub passes no descriptor".into()) };
            asked(cx, target, site, at, desc as u32)?;
            Ok(Back::Recheck)
        }
        SiteKind::Check { .. } | SiteKind::Large => {
            gate(contract::GATE_MISS)?;
            if g.below != Val::Lin(target.lin) {
                return Err("the cold stub passes another address than the access's".into());
            }
            let Val::Const(desc) = g.top else { return Err("the cold stub passes no descriptor".into()) };
            let desc = desc as u32;
            if desc & miss_desc::SIZE_MASK != target.size {
                return Err(other_size(desc & miss_desc::SIZE_MASK, target.size));
            }
            kind_fits(cx, target, desc)?;
            Ok(if kind == SiteKind::Large { Back::Access } else { Back::Recheck })
        }
        SiteKind::String => {
            gate(contract::GATE_STRING)?;
            let Val::Const(desc) = g.top else { return Err("the cold stub passes no descriptor".into()) };
            let want = string_descriptor(cx, access);
            let both = string_desc::CHECK_LOADS | string_desc::CHECK_STORES;
            if (desc as u32 | both) != (want | both) || (desc as u32 & want & both) != want & both {
                return Err(format!("the string descriptor is {desc:#x}, the instruction needs {want:#x}"));
            }
            if (0..16).any(|r| bit(r) & access.fx.reads != 0 && !g.state.intact(r)) {
                return Err("a register of the string instruction is changed at the gate".into());
            }
            string_tail(cx, g)?;
            Ok(Back::Behind)
        }
        SiteKind::Lanes => {
            gate(contract::GATE_VSIB)?;
            let at = lane_descriptor_va(g).ok_or("the cold stub passes no lane descriptor")?;
            let bytes = (cx.rodata)(at).ok_or_else(|| format!("no lane descriptor at {at:#x}"))?;
            let code = (cx.rodata)(access.va).ok_or("the access is not in the file")?;
            lanes_descriptor(access, g, &bytes, &code)?;
            Ok(Back::Access)
        }
    }
}

/// Whether the runtime finds the string instruction by what stands behind the call; where the `jmp` leads is judged with the stub's other ways out.
fn string_tail(cx: &Context, g: &Gate) -> Result<(), String> {
    /// `call qword ptr [disp32]`.
    const CALL_BYTES: usize = 7;
    let found = (cx.rodata)(g.at).is_some_and(|bytes| bytes[CALL_BYTES..] == contract::STRING_TAIL);
    if found {
        Ok(())
    } else {
        Err("the gate does not find the string instruction by what stands behind its call".into())
    }
}

fn other_size(says: u32, has: u32) -> String {
    format!("the descriptor says {says} bytes, the access has {has}")
}

/// Whether a miss descriptor's kind and masking are those of the access.
fn kind_fits(cx: &Context, target: &GuardedAddress, desc: u32) -> Result<(), String> {
    let kinds = desc & (miss_desc::LOAD | miss_desc::STORE);
    let fits = match target.access {
        AccessKind::Load => kinds == miss_desc::LOAD,
        AccessKind::Store => kinds == miss_desc::STORE,
        AccessKind::Rmw if cx.check_stores || !cx.check_loads => kinds & miss_desc::STORE != 0,
        AccessKind::Rmw => kinds != 0,
    };
    if !fits {
        return Err(format!("the descriptor's kind {kinds:#x} does not fit the access"));
    }
    let known = miss_desc::SIZE_MASK | miss_desc::LOAD | miss_desc::STORE | miss_desc::MASKED;
    if desc & !known != 0 || (desc & miss_desc::MASKED != 0) != target.masked {
        return Err(format!("the descriptor {desc:#x} does not fit the access's masking"));
    }
    Ok(())
}

/// The gate is asked for what was tested, and that is enough for the access. Notes how much it is.
fn asked(cx: &Context, target: &GuardedAddress, site: &mut Site, at: Lin, desc: u32) -> Result<(), String> {
    let tested = site.proves.ok_or("a chain of ranges behind a test of two addresses")?;
    if at != tested.lin {
        return Err("the cold stub passes another address than the access's".into());
    }
    let bytes = desc & miss_desc::SIZE_MASK;
    // One tag tells of one byte. A stub may call a gate on several ways: what one of them does not ask for is not accessible behind it.
    if bytes > tested.bytes || tested.bytes < TWO_TAGS && bytes != tested.bytes {
        return Err(other_size(bytes, tested.bytes));
    }
    let before = target.lin.disp - at.disp;
    if before + i64::from(target.size) > i64::from(bytes) || bytes > 64 {
        return Err(other_size(bytes, target.size));
    }
    let store = desc & miss_desc::STORE != 0;
    if before == 0 && bytes == target.size && store == target.access.writes() {
        kind_fits(cx, target, desc)?;
    } else if target.masked || desc & !(miss_desc::SIZE_MASK | miss_desc::LOAD | miss_desc::STORE) != 0 {
        return Err(format!("the descriptor {desc:#x} does not fit the access's masking"));
    }
    if tested.store != store || !store && desc & miss_desc::LOAD == 0 {
        return Err(format!("the descriptor's kind {:#x} does not fit the test", desc >> 16));
    }
    site.proves = Some(Proven { bytes, ..tested });
    Ok(())
}

/// One range of a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranged {
    pub proven: Proven,
    pub desc: u32,
}

/// Reads the chain of ranges at `at`; there is at least one.
pub(crate) fn chain(rodata: &dyn Fn(u64) -> Option<[u8; 16]>, at: u64) -> Result<Vec<Ranged>, String> {
    let mut list = Vec::new();
    for k in 0..contract::GROUP_RANGES as u64 {
        let d = rodata(at.wrapping_add(16 * k)).ok_or_else(|| format!("no chain of ranges at {at:#x}"))?;
        let word = |k: usize| u32::from_le_bytes([d[k], d[k + 1], d[k + 2], d[k + 3]]);
        let (desc, bytes) = (word(4), word(4) & miss_desc::SIZE_MASK);
        let register = |r: u8| match r {
            16 => Some(NONE),
            r if r < 16 && r != RSP => Some(r),
            _ => None,
        };
        // Nothing is hidden in what the runtime does not read.
        let (Some(base), Some(index), scale @ (1 | 2 | 4 | 8), more @ (0 | 1), 0) =
            (register(d[8]), register(d[9]), d[10], d[11], word(12))
        else {
            return Err(format!("the chain of ranges at {at:#x} is damaged"));
        };
        if index == NONE && scale != 1 {
            return Err(format!("the chain of ranges at {at:#x} is damaged: a scale without an index"));
        }
        // Only the access that has missed may be a masked one.
        if k > 0 && desc & miss_desc::MASKED != 0 {
            return Err(format!("the chain of ranges at {at:#x} is damaged: range {k} is masked"));
        }
        if desc >> 19 != 0 || !(1..=64).contains(&bytes) || desc & (miss_desc::LOAD | miss_desc::STORE) == 0 {
            return Err(format!("the chain of ranges at {at:#x} is damaged: descriptor {desc:#x}"));
        }
        let lin = Lin { base, index, scale, disp: i64::from(word(0) as i32), word: None }.canonical();
        list.push(Ranged { proven: Proven { lin, bytes, store: desc & miss_desc::STORE != 0 }, desc });
        if more == 0 {
            return Ok(list);
        }
    }
    Err(format!("the chain of ranges at {at:#x} has no end"))
}

/// The descriptor that `GATE_STRING` needs for an instruction.
fn string_descriptor(cx: &Context, i: &Insn) -> u32 {
    let op = match i.op {
        0xa4 | 0xa5 => string_desc::MOVS,
        0xaa | 0xab => string_desc::STOS,
        0xac | 0xad => string_desc::LODS,
        0xae | 0xaf => string_desc::SCAS,
        _ => string_desc::CMPS,
    };
    let rep = match (i.has(REP), i.has(REPNE)) {
        (false, _) => 0,
        (true, false) => 1,
        (true, true) => 2,
    };
    let mut d = op | i.size.max(1).trailing_zeros() << string_desc::SIZE_SHIFT | rep << string_desc::REP_SHIFT;
    if cx.check_loads && i.op & 0xfe != 0xaa {
        d |= string_desc::CHECK_LOADS;
    }
    if cx.check_stores && matches!(i.op & 0xfe, 0xa4 | 0xaa) {
        d |= string_desc::CHECK_STORES;
    }
    d
}

/// Registers whose values the string gate computes as the instruction would.
pub(crate) fn string_results(i: &Insn) -> u16 {
    let all = bit(RSI) | bit(RDI) | bit(RCX) | bit(RAX);
    all & i.fx.writes
}

/// The address of the descriptor that is passed to `GATE_VSIB`.
pub(crate) fn lane_descriptor_va(g: &Gate) -> Option<u64> {
    match g.top {
        Val::Lin(Lin { base: NONE, index: NONE, disp, word: None, .. }) => Some(disp as u64),
        Val::Const(c) => Some(c as u64),
        _ => None,
    }
}

/// What a gather's or scatter's encoding says of vector and mask registers (SDM volume 2, sections 2.3.12 and 2.7).
struct Vectors {
    index: u8,
    /// VEX: the vector register whose sign bits are the mask; EVEX: the mask register.
    mask: u8,
    /// Of the longer one of the vectors of indices and of elements.
    bytes: u8,
}

impl Vectors {
    /// `code` begins with the instruction.
    fn of(code: &[u8]) -> Option<Vectors> {
        let raw = Raw::parse(code)?;
        let at = usize::from(raw.after_op);
        let sib = *code.get(at + 1).filter(|_| raw.modrm.is_some_and(|m| m >> 6 != 3 && m & 7 == 4))?;
        // What extends registers stands inverted, in the byte behind the prefix's first.
        let (extended, upper, mask) = match raw.enc {
            Enc::Vex => (code[at - 3], 0, !code[at - 2] >> 3 & 15),
            Enc::Evex => (code[at - 4], !code[at - 2] >> 3 & 1, raw.aaa),
            Enc::Legacy | Enc::Xop => return None,
        };
        let index = sib >> 3 & 7 | (!extended >> 6 & 1) << 3 | upper << 4;
        Some(Vectors { index, mask, bytes: 16 << raw.l.min(2) })
    }
}

fn lanes_descriptor(i: &Insn, g: &Gate, d: &[u8; 16], bytes: &[u8]) -> Result<(), String> {
    let m = i.mem.as_ref().ok_or("no memory operand")?;
    let bad = |what: &str| Err(format!("the lane descriptor's {what} does not fit the access at {:#x}", i.va));
    if i64::from(i32::from_le_bytes([d[0], d[1], d[2], d[3]])) != m.disp {
        return bad("displacement");
    }
    let base = if m.base < 16 { m.base } else { 16 };
    if d[4] != base {
        return bad("base");
    }
    if m.base < 16 && m.base != RSP && !g.state.intact(m.base) {
        return bad("base register");
    }
    let elem = if i.has(WIDE) { 8 } else { 4 };
    let index_bytes = if i.op & 1 == 1 { 8 } else { 4 };
    if d[6] != index_bytes || d[7] != elem || i32::from(d[9]) != i32::from(m.scale) {
        return bad("element layout");
    }
    let access = match i.touch {
        Touch::Lanes(AccessKind::Load) => 1,
        _ => 2,
    };
    if d[12] != access {
        return bad("kind");
    }
    let evex = i.op >> 8 & 0x60 == 0x40;
    if d[10] != u8::from(evex) {
        return bad("mask kind");
    }
    let vectors = Vectors::of(bytes).ok_or("a gather or scatter in no encoding that has them")?;
    if d[5] != vectors.index {
        return bad("index register");
    }
    if d[11] != vectors.mask {
        return bad("mask register");
    }
    if d[8] != vectors.bytes / elem.max(index_bytes) {
        return bad("number of lanes");
    }
    if d[14..] != [0, 0] {
        return bad("filler");
    }
    // At the gate call one argument has been pushed.
    if i64::from(d[13]) != -(g.lowered + 8) {
        return bad("stack adjustment");
    }
    Ok(())
}
