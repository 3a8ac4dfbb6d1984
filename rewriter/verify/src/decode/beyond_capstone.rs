//! Instructions that Capstone does not know.
//!
//! Input: the bytes of one instruction. Output: its record. Vector extensions of recent processors (AVX-IFMA, AVX-VNNI and its 8- and 16-bit
//! forms, AVX-NE-CONVERT, SM3, SM4, CMPccXADD, AVX512-BF16, AVX512-FP16) are described here by opcode; of what is not,
//! and of PadLock's instructions, the encoding tells the length, and the rest counts as unknown. So is MOVSXD without REX.W, which moves 32 or 16 bits: no
//! compiler writes it, but what is out of step with a program's instructions may be one.
//!
//! **Invariant:** what is not described here may touch anything ([`Touch::Opaque`]) and change every register.
//! Source: SDM volume 2, sections 2.3 (VEX), 2.7 (EVEX) and the instructions' pages.

use crate::decode::effects::{EffectOperand, Touch, bit};
use crate::decode::insn::{Insn, Mem, NONE, RIP, record};
use crate::decode::raw::{Enc, PP_66, PP_F2, PP_F3, Raw};

/// One instruction; `None` where it is none of a vector extension or of PadLock.
pub fn decode(b: &[u8], va: u64) -> Option<Insn> {
    let raw = Raw::parse(b)?;
    let plausible = match raw.enc {
        Enc::Vex => matches!(raw.map, 1..=3),
        Enc::Evex => matches!(raw.map, 1..=6) && raw.map != 4,
        Enc::Legacy if raw.legacy0() == Some(0x63) => !raw.w,
        Enc::Legacy => raw.map == 1 && matches!(raw.op, 0xa6 | 0xa7) && raw.reg_form(),
        Enc::Xop => false,
    };
    if !plausible {
        return None;
    }
    let imm8 = raw.map == 3 || (raw.map == 1 && matches!(raw.op, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6));
    let len = raw.bytes_before_imm(b)? + usize::from(imm8);
    if len > b.len() {
        return None;
    }
    if raw.legacy0() == Some(0x63) {
        return narrow_movsxd(&raw, b, va, len);
    }
    let known = operand_bytes(&raw);
    if let Some(size) = known
        && raw.reg_form()
    {
        let ops = general_operands(&raw, b)?;
        return Some(record(&raw, va, len as u8, &ops, None, size, 0, 0));
    }
    if let Some(size) = known {
        let mem = memory(&raw, b, va + len as u64, size)?;
        let address = [mem.base, mem.index].into_iter().filter(|&r| r < 16).fold(0, |all, r| all | bit(r));
        let mut ops = vec![EffectOperand::Other, EffectOperand::Mem];
        if adds_conditionally(&raw) {
            let bytes = size as u8;
            let register = |reg| EffectOperand::Gpr { reg, bytes };
            let (reg, other) = registers(&raw, b)?;
            ops = vec![register(reg), EffectOperand::Mem, register(other)];
        } else if general(&raw) == Some(Role::Destination) && raw.op != 0x7e {
            ops = general_operands(&raw, b)?;
            ops.truncate(1);
            ops.push(EffectOperand::Mem);
        }
        return Some(record(&raw, va, len as u8, &ops, Some(mem), size, address, 0));
    }
    let mut i = record(&raw, va, len as u8, &[], None, 0, 0xffff, 0);
    i.fx.writes = 0xffff;
    if raw.modrm.is_some() && !raw.reg_form() {
        i.touch = Touch::Opaque;
    }
    Some(i)
}

/// MOVSXD without REX.W, `len` bytes long: the destination's first 32 or 16 bits become the source's.
fn narrow_movsxd(raw: &Raw, b: &[u8], va: u64, len: usize) -> Option<Insn> {
    let bytes = if raw.opsize { 2 } else { 4 };
    let rex = rex(raw, b);
    let register = |number, high: u8| EffectOperand::Gpr { reg: number | (high & 1) << 3, bytes };
    let destination = register(raw.reg(), rex >> 2);
    if raw.reg_form() {
        let ops = [destination, register(raw.modrm? & 7, rex)];
        return Some(record(raw, va, len as u8, &ops, None, u16::from(bytes), 0, 0));
    }
    let mem = memory(raw, b, va + len as u64, bytes.into())?;
    let address = [mem.base, mem.index].into_iter().filter(|&r| r < 16).fold(0, |all, r| all | bit(r));
    Some(record(raw, va, len as u8, &[destination, EffectOperand::Mem], Some(mem), bytes.into(), address, 0))
}

/// The prefix REX of an instruction with an opcode of one byte; 0 where it has none.
fn rex(raw: &Raw, b: &[u8]) -> u8 {
    let before = usize::from(raw.after_op).checked_sub(2).and_then(|at| b.get(at)).copied();
    before.filter(|rex| rex & 0xf0 == 0x40).unwrap_or(0)
}

/// CMPccXADD.
fn adds_conditionally(r: &Raw) -> bool {
    (r.enc, r.map, r.pp) == (Enc::Vex, 2, PP_66) && matches!(r.op, 0xe0..=0xef) && !r.reg_form()
}

/// What a general register is in an instruction of AVX512-FP16.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Destination,
    Source,
}

/// VMOVW, and conversions between an integer and one element.
fn general(r: &Raw) -> Option<Role> {
    match (r.enc, r.map, r.op, r.pp) {
        (Enc::Evex, 5, 0x2c | 0x2d | 0x78 | 0x79, PP_F3) | (Enc::Evex, 5, 0x7e, PP_66) => Some(Role::Destination),
        (Enc::Evex, 5, 0x2a | 0x7b, PP_F3) | (Enc::Evex, 5, 0x6e, PP_66) => Some(Role::Source),
        _ => None,
    }
}

/// The operands of an instruction in its register form, or the register of a conversion to an integer.
fn general_operands(r: &Raw, b: &[u8]) -> Option<Vec<EffectOperand>> {
    let Some(role) = general(r) else { return Some(Vec::new()) };
    let first = *b.get(usize::from(r.after_op).checked_sub(4)?)?;
    // It is the one that may be memory, but for conversions to an integer.
    let is_second = role == Role::Source || r.op == 0x7e;
    let reg = if is_second { (r.modrm? & 7) | (!first >> 5 & 1) << 3 } else { r.reg() | (!first >> 7 & 1) << 3 };
    let general = EffectOperand::Gpr { reg, bytes: if r.w && r.op != 0x7e { 8 } else { 4 } };
    Some(if role == Role::Destination { vec![general] } else { vec![EffectOperand::Other, general] })
}

/// The same as [`operand_bytes`], of moves and conversions of AVX512-FP16.
fn converted_bytes(r: &Raw) -> Option<u16> {
    let vector = 16u16 << r.l;
    let part = |parts: u16, element: u16| Some(if r.bcast { element } else { vector / parts });
    let integer = Some(if r.w { 8 } else { 4 });
    match (r.map, r.op, r.pp, r.w) {
        (5, 0x1d, 0, false) => Some(4),
        (5, 0x1d, PP_66, false) => part(1, 4),
        (6, 0x13, 0, false) => Some(2),
        (6, 0x13, PP_66, false) => part(2, 2),
        (5, 0x5a, 0, false) => part(4, 2),
        (5, 0x5a, PP_66, true) => part(1, 8),
        (5, 0x5a, PP_F3, false) => Some(2),
        (5, 0x5a, PP_F2, true) => Some(8),
        (5, 0x5b, 0, wide) => part(1, if wide { 8 } else { 4 }),
        (5, 0x5b, PP_66 | PP_F3, false) | (5, 0x78 | 0x79, 0, false) => part(2, 2),
        (5, 0x78..=0x7b, PP_66, false) => part(4, 2),
        (5, 0x7a, PP_F2, wide) => part(1, if wide { 8 } else { 4 }),
        (5, 0x7c, 0 | PP_66, false) | (5, 0x7d, _, false) => part(1, 2),
        (5, 0x2a | 0x7b, PP_F3, _) => integer,
        (5, 0x2c | 0x2d | 0x78 | 0x79, PP_F3, _) | (5, 0x6e | 0x7e, PP_66, _) => Some(2),
        _ => None,
    }
}

/// Bytes of the memory operand of an instruction that is described here. The others are vectors and masks, but for CMPccXADD and [`general`].
fn operand_bytes(r: &Raw) -> Option<u16> {
    if adds_conditionally(r) {
        return Some(if r.w { 8 } else { 4 });
    }
    let vector = 16u16 << r.l;
    // An element, where each lane gets the same one.
    let full = |element: u16| if r.bcast { element } else { vector };
    match (r.enc, r.map, r.op) {
        // Of registers the length may be a way of rounding.
        _ if r.l > 2 && !(r.bcast && r.reg_form()) => None,
        // AVX-VNNI, AVX-VNNI-INT8; AVX-VNNI-INT16.
        (Enc::Vex, 2, 0x50 | 0x51) if !r.w => Some(vector),
        (Enc::Vex, 2, 0x52 | 0x53) if !r.w && r.pp == PP_66 => Some(vector),
        (Enc::Vex, 2, 0xd2 | 0xd3) if !r.w && r.pp != PP_F2 => Some(vector),
        // AVX-IFMA.
        (Enc::Vex, 2, 0xb4 | 0xb5) if r.w && r.pp == PP_66 => Some(vector),
        // AVX-NE-CONVERT.
        (Enc::Vex, 2, 0xb0) if !r.w && !r.reg_form() => Some(vector),
        (Enc::Vex, 2, 0xb1) if !r.w && matches!(r.pp, PP_66 | PP_F3) && !r.reg_form() => Some(2),
        (Enc::Vex, 2, 0x72) if !r.w && r.pp == PP_F3 => Some(vector),
        // SM3, SM4.
        (Enc::Vex, 2, 0xda) if !r.w && (r.l == 0 || matches!(r.pp, PP_F3 | PP_F2)) => Some(vector),
        (Enc::Vex, 3, 0xde) if !r.w && r.l == 0 && r.pp == PP_66 => Some(16),
        // AVX512-BF16.
        (Enc::Evex, 2, 0x52) if !r.w && r.pp == PP_F3 => Some(full(4)),
        (Enc::Evex, 2, 0x72) if !r.w && matches!(r.pp, PP_F3 | PP_F2) => Some(full(4)),
        // AVX512-FP16: sums, products, minima, roots, comparisons.
        (Enc::Evex, 5, 0x51 | 0x58 | 0x59 | 0x5c..=0x5f) if !r.w && r.pp == 0 => Some(full(2)),
        (Enc::Evex, 5, 0x51 | 0x58 | 0x59 | 0x5c..=0x5f) if !r.w && r.pp == PP_F3 => Some(2),
        (Enc::Evex, 5, 0x10 | 0x11) if !r.w && r.pp == PP_F3 && !r.reg_form() => Some(2),
        (Enc::Evex, 5, 0x2e | 0x2f) if !r.w && r.pp == 0 => Some(2),
        (Enc::Evex, 6, 0x96..=0x9f | 0xa6..=0xaf | 0xb6..=0xbf) if !r.w && r.pp == PP_66 => {
            let scalar = r.op & 0xf >= 9 && r.op & 1 == 1;
            Some(if scalar { 2 } else { full(2) })
        }
        // Complex numbers.
        (Enc::Evex, 6, 0x56 | 0xd6) if !r.w && matches!(r.pp, PP_F3 | PP_F2) => Some(full(4)),
        (Enc::Evex, 6, 0x57 | 0xd7) if !r.w && matches!(r.pp, PP_F3 | PP_F2) => Some(4),
        (Enc::Evex, 6, 0x2c | 0x42 | 0x4c | 0x4e) if !r.w && r.pp == PP_66 => Some(full(2)),
        (Enc::Evex, 6, 0x2d | 0x43 | 0x4d | 0x4f) if !r.w && r.pp == PP_66 => Some(2),
        (Enc::Evex, 3, 0x08 | 0x26 | 0x56 | 0x66 | 0xc2) if !r.w && r.pp == 0 => Some(full(2)),
        (Enc::Evex, 3, 0x0a | 0x27 | 0x57 | 0x67) if !r.w && r.pp == 0 => Some(2),
        (Enc::Evex, 3, 0xc2) if !r.w && r.pp == PP_F3 => Some(2),
        (Enc::Evex, 5 | 6, _) => converted_bytes(r),
        _ => None,
    }
}

/// The register in ModR/M and the one in VEX.vvvv.
fn registers(r: &Raw, b: &[u8]) -> Option<(u8, u8)> {
    let at = usize::from(r.after_op);
    let (p0, p1) = (*b.get(at.checked_sub(3)?)?, *b.get(at.checked_sub(2)?)?);
    Some((r.reg() | (!p0 >> 7 & 1) << 3, !p1 >> 3 & 15))
}

/// The memory operand of an instruction that ends at `end`; one-byte displacements of EVEX count `size` bytes each.
fn memory(r: &Raw, b: &[u8], end: u64, size: u16) -> Option<Mem> {
    let at = usize::from(r.after_op);
    // Bits 5 and 6 of the payload's first byte, inverted. The form of two bytes has none.
    let first = match r.enc {
        // REX has them as they are, next to each other in its lowest bits.
        Enc::Legacy => !(rex(r, b) << 5),
        Enc::Vex if b.get(at.checked_sub(3)?) == Some(&0xc5) => 0xff,
        Enc::Vex => *b.get(at.checked_sub(3)?)?,
        _ => *b.get(at.checked_sub(4)?)?,
    };
    let (high_base, high_index) = ((!first >> 5 & 1) << 3, (!first >> 6 & 1) << 3);
    let modrm = r.modrm?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let mut mem = Mem { base: rm | high_base, index: NONE, scale: 1, seg: r.seg, disp: 0 };
    let mut behind = at + 1;
    if rm == 4 {
        let sib = *b.get(behind)?;
        behind += 1;
        mem.base = (sib & 7) | high_base;
        let index = (sib >> 3 & 7) | high_index;
        if index != 4 {
            (mem.index, mem.scale) = (index, 1 << (sib >> 6));
        }
        if sib & 7 == 5 && mode == 0 {
            mem.base = NONE;
        }
    } else if rm == 5 && mode == 0 {
        mem.base = RIP;
    }
    let four = || Some(i64::from(i32::from_le_bytes(b.get(behind..behind + 4)?.try_into().ok()?)));
    mem.disp = match mode {
        1 if r.enc == Enc::Evex => i64::from(*b.get(behind)? as i8) * i64::from(size),
        1 => i64::from(*b.get(behind)? as i8),
        2 => four()?,
        _ if mem.base == RIP => four()?.wrapping_add(end as i64),
        _ if mem.base == NONE => four()?,
        _ => 0,
    };
    Some(mem)
}
