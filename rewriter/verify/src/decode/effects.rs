//! What an instruction does to memory, general registers, status flags and control flow, derived from its encoding.
//!
//! Input: [`Raw`] and the operands Capstone found. Output: [`Touch`], [`Effects`], [`Flow`]. The errors allowed are one-sided:
//! a read too many, a kill too few. Source: Intel SDM volume 2, instruction pages ("Flags affected", operand encoding).

use crate::decode::raw::{Enc, PP_66, PP_F2, PP_F3, Raw};

pub const RAX: u8 = 0;
pub const RCX: u8 = 1;
pub const RDX: u8 = 2;
pub const RBX: u8 = 3;
pub const RSP: u8 = 4;
pub const RBP: u8 = 5;
pub const RSI: u8 = 6;
pub const RDI: u8 = 7;

pub const CF: u8 = 1;
pub const PF: u8 = 2;
pub const ZF: u8 = 8;
pub const SF: u8 = 16;
pub const OF: u8 = 32;
pub const ALL_FLAGS: u8 = 63;

/// Bit of a general register in a register set.
pub const fn bit(r: u8) -> u16 {
    1 << r
}

/// Registers that a call preserves, rsp included (psABI figure 3.4).
pub const CALLEE_SAVED: u16 = bit(RBX) | bit(RBP) | bit(RSP) | 0xf000;

/// Kind of a data access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    Load,
    Store,
    /// Read and write of the same bytes, conditional writes included.
    Rmw,
}

impl AccessKind {
    pub fn writes(self) -> bool {
        self != AccessKind::Load
    }
    pub fn reads(self) -> bool {
        self != AccessKind::Store
    }
}

/// Memory that an instruction touches besides the implicit stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touch {
    None,
    /// The explicit operand, all of it within its size.
    Mem(AccessKind),
    /// `bt`-family with a register bit offset: also outside the operand's size.
    BitString(AccessKind),
    /// movs stos lods scas cmps ins outs.
    String {
        reads_si: bool,
        reads_di: bool,
        writes_di: bool,
    },
    /// VSIB operand.
    Lanes(AccessKind),
    /// `xlat`: [rbx + al].
    Xlat,
    /// maskmovq, maskmovdqu: store to [rdi].
    MaskMov,
    /// clzero: 64-byte store at [rax].
    ZeroLine,
    /// movdir64b, enqcmd: load of the operand and 64-byte store at the address in a register.
    Move64,
    /// The area XCR0 describes.
    Xsave(AccessKind),
    /// Touches memory in a way this audit does not model.
    Opaque,
}

/// Where control goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Next,
    /// Falls through or goes to the target.
    Cond,
    Jump,
    JumpInd,
    Call,
    CallInd,
    Ret,
    /// Does not continue.
    Stop,
}

/// Register and flag use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// General registers that may be read.
    pub reads: u16,
    /// Fully overwritten on every execution.
    pub kills: u16,
    /// May be written, in part or whole.
    pub writes: u16,
    pub flag_reads: u8,
    /// Overwritten or left undefined on every execution.
    pub flag_kills: u8,
}

/// An operand as far as effects need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectOperand {
    Gpr { reg: u8, bytes: u8 },
    Imm(i64),
    Mem,
    Other,
}

/// How control continues.
pub fn flow(r: &Raw) -> Flow {
    match (r.enc, r.map, r.op) {
        (Enc::Legacy, 0, 0x70..=0x7f | 0xe0..=0xe3) | (Enc::Legacy, 1, 0x80..=0x8f) => Flow::Cond,
        (Enc::Legacy, 0, 0xc7) if r.modrm == Some(0xf8) => Flow::Cond, // xbegin
        (Enc::Legacy, 0, 0xe8) => Flow::Call,
        (Enc::Legacy, 0, 0xe9 | 0xeb) => Flow::Jump,
        (Enc::Legacy, 0, 0xff) => match r.reg() {
            2 | 3 => Flow::CallInd,
            4 | 5 => Flow::JumpInd,
            _ => Flow::Next,
        },
        (Enc::Legacy, 0, 0xc2 | 0xc3 | 0xca | 0xcb | 0xcf) => Flow::Ret,
        (Enc::Legacy, 0, 0xf4) | (Enc::Legacy, 1, 0x0b | 0xb9 | 0xff) => Flow::Stop,
        _ => Flow::Next,
    }
}

/// Whether the instruction pushes or pops.
pub fn implicit_stack(r: &Raw) -> bool {
    match (r.legacy0(), r.reg()) {
        (Some(0x50..=0x5f | 0x68 | 0x6a | 0x9c | 0x9d | 0xc2 | 0xc3 | 0xc8..=0xcb | 0xe8), _) => true,
        (Some(0x8f), _) => true,
        (Some(0xff), 2 | 3 | 6) => true,
        (None, _) => r.enc == Enc::Legacy && r.map == 1 && matches!(r.op, 0xa0 | 0xa1 | 0xa8 | 0xa9),
        _ => false,
    }
}

/// What the instruction touches; `has_mem` says whether Capstone found a memory operand.
pub fn touch(r: &Raw, has_mem: bool) -> Touch {
    use AccessKind::{Load, Rmw, Store};
    let m = Touch::Mem;
    if r.enc == Enc::Legacy && r.map == 0 {
        match r.op {
            0xa4 | 0xa5 => return Touch::String { reads_si: true, reads_di: false, writes_di: true },
            0xa6 | 0xa7 => return Touch::String { reads_si: true, reads_di: true, writes_di: false },
            0xaa | 0xab => return Touch::String { reads_si: false, reads_di: false, writes_di: true },
            0xac | 0xad => return Touch::String { reads_si: true, reads_di: false, writes_di: false },
            0xae | 0xaf => return Touch::String { reads_si: false, reads_di: true, writes_di: false },
            0x6c..=0x6f => return Touch::Opaque,
            0xd7 => return Touch::Xlat,
            _ => {}
        }
    }
    let maskmov = r.op == 0xf7 && r.map == 1 && matches!(r.enc, Enc::Legacy | Enc::Vex);
    if maskmov && r.reg_form() {
        return Touch::MaskMov;
    }
    if r.enc == Enc::Legacy && r.map == 1 && r.op == 0x01 && r.modrm == Some(0xfc) {
        return Touch::ZeroLine;
    }
    if r.enc == Enc::Legacy && r.map == 1 && matches!(r.op, 0xa6 | 0xa7) {
        // PadLock: what the registers point to.
        return Touch::Opaque;
    }
    if !has_mem {
        return Touch::None;
    }
    match (r.enc, r.map) {
        (Enc::Legacy, 0) => match r.op {
            0x00..=0x3f if r.op & 7 < 2 => m(if r.op >> 3 == 7 { Load } else { Rmw }),
            0x80..=0x83 => m(if r.reg() == 7 { Load } else { Rmw }),
            0x86 | 0x87 | 0xc0 | 0xc1 | 0xd0..=0xd3 => m(Rmw),
            0x88 | 0x89 | 0x8c | 0x8f | 0xa2 | 0xa3 | 0xc6 | 0xc7 => m(Store),
            0x8d => Touch::None,
            0xd9 | 0xdd if r.reg() == 2 || r.reg() == 3 || r.reg() >= 6 => m(Store),
            0xdd if r.reg() == 1 => m(Store),
            0xdb if matches!(r.reg(), 1..=3 | 7) => m(Store),
            0xdf if matches!(r.reg(), 1..=3 | 6 | 7) => m(Store),
            0xf6 | 0xf7 => m(if matches!(r.reg(), 2 | 3) { Rmw } else { Load }),
            0xfe => m(Rmw),
            0xff if r.reg() < 2 => m(Rmw),
            0xff if matches!(r.reg(), 3 | 5) => Touch::Opaque,
            _ => m(Load),
        },
        (Enc::Legacy, 1) => match r.op {
            0x00 => m(if r.reg() < 2 { Store } else { Load }),
            0x01 => match r.reg() {
                0 | 1 | 4 => m(Store),
                5 => m(Rmw),
                7 => Touch::None,
                _ => m(Load),
            },
            0x0d | 0x18..=0x1f => Touch::None,
            0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7f | 0xc3 | 0xd6 | 0xe7 => m(Store),
            0x7e => m(if r.pp == PP_F3 { Load } else { Store }),
            0x90..=0x9f => m(Store),
            0xa3 => Touch::BitString(Load),
            0xab | 0xb3 | 0xbb => Touch::BitString(Rmw),
            0xba => m(if r.reg() == 4 { Load } else { Rmw }),
            0xa4 | 0xa5 | 0xac | 0xad | 0xb0 | 0xb1 | 0xc0 | 0xc1 => m(Rmw),
            0xae => match (r.pp, r.reg()) {
                (0, 0 | 3) => m(Store),
                (0, 1 | 2) => m(Load),
                (0, 4 | 6) => Touch::Xsave(Rmw),
                (0, 5) => Touch::Xsave(Load),
                (PP_F3, 4) => m(Load), // ptwrite
                (PP_F3, 6) => m(Rmw),  // clrssbsy
                _ => Touch::None,      // clflush, clflushopt, clwb
            },
            0xc7 => match r.reg() {
                1 => m(Rmw),
                3 => Touch::Xsave(Load),
                // xsavec, xsaves: they read nothing of the area (SDM volume 1, 13.10, 13.11).
                4 | 5 => Touch::Xsave(Store),
                7 => m(Store),
                _ => m(Load),
            },
            0x05..=0x09 | 0x31 => Touch::None,
            0x78 => m(Store),
            _ => m(Load),
        },
        (Enc::Legacy, 2) => match (r.op, r.pp) {
            (0xf1, 0 | PP_66) => m(Store),
            (0xf5, _) | (0xf6, 0) | (0xf9, _) => m(Store),
            (0xf8, _) => Touch::Move64,
            (0xfc, _) => m(Rmw), // aadd, aand, aor, axor
            _ => m(Load),
        },
        (Enc::Legacy, _) => m(if matches!(r.op, 0x14..=0x17) { Store } else { Load }),
        (Enc::Vex, 1) => match r.op {
            0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7f | 0x91 | 0xd6 | 0xe7 => m(Store),
            0x7e => m(if r.pp == PP_F3 { Load } else { Store }),
            0xae => m(if r.reg() == 3 { Store } else { Load }),
            _ => m(Load),
        },
        (Enc::Vex, 2) => match r.op {
            0x2e | 0x2f | 0x8e => m(Store),
            0x90..=0x93 => Touch::Lanes(Load),
            0x49 | 0x4b => Touch::Opaque,
            0xe0..=0xef => m(Rmw),
            _ => m(Load),
        },
        (Enc::Vex, _) => m(if matches!(r.op, 0x14..=0x17 | 0x19 | 0x1d | 0x39) { Store } else { Load }),
        (Enc::Evex, 1) => match r.op {
            0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7f | 0xd6 | 0xe7 => m(Store),
            0x7e => m(if r.pp == PP_F3 { Load } else { Store }),
            _ => m(Load),
        },
        (Enc::Evex, 2) => match (r.op, r.pp) {
            (0x10..=0x15 | 0x20..=0x25 | 0x30..=0x35, PP_F3) => m(Store),
            (0x63 | 0x8a | 0x8b, PP_66) => m(Store),
            (0x90..=0x93, _) => Touch::Lanes(Load),
            (0xa0..=0xa3, _) => Touch::Lanes(Store),
            (0xc6 | 0xc7, _) => Touch::None,
            _ => m(Load),
        },
        (Enc::Evex, 3) => m(if matches!(r.op, 0x14..=0x17 | 0x19 | 0x1b | 0x1d | 0x39 | 0x3b) { Store } else { Load }),
        (Enc::Evex, 5) => m(if matches!(r.op, 0x11 | 0x7e) { Store } else { Load }),
        _ => m(Load),
    }
}

/// Bytes of the explicit operand where Capstone's figure is wrong, else `capstone`.
pub fn size(r: &Raw, capstone: u16) -> u16 {
    match (r.enc, r.map, r.op) {
        (Enc::Legacy, 0, 0xdd) if matches!(r.reg(), 4 | 6) => {
            if r.opsize && !r.w {
                94
            } else {
                108
            }
        }
        (Enc::Legacy, 0, 0xd9) if matches!(r.reg(), 4 | 6) && r.opsize => {
            if r.w {
                28
            } else {
                14
            }
        }
        (Enc::Legacy, 0, 0x8f | 0xff) if r.w => 8,
        (Enc::Legacy, 1, 0xae) if r.pp == 0 && r.reg() < 2 => 512,
        (Enc::Legacy, 1, 0xae) if r.pp == PP_F3 && r.reg() == 6 => 8,
        (Enc::Legacy, 1, 0xbc | 0xbd) if r.w => 8,
        (Enc::Legacy, 1, 0x2f) if r.pp == PP_66 => 8,
        (Enc::Legacy, 1, 0xb2 | 0xb4 | 0xb5) => {
            2 + if r.w {
                8
            } else if r.opsize {
                2
            } else {
                4
            }
        }
        (Enc::Legacy, 2, 0xf0) if r.pp == PP_F2 => 1,
        (Enc::Legacy, 2, 0xf0 | 0xf1) if r.w => 8,
        (Enc::Evex, 3, 0xce | 0xcf) if r.bcast => 8,
        _ => capstone,
    }
}

/// Whether the instruction may leave some bytes of its operand alone without faulting on them.
pub fn masked(r: &Raw) -> bool {
    match (r.enc, r.map) {
        (Enc::Vex, 2) => matches!(r.op, 0x2c..=0x2f | 0x8c | 0x8e),
        (Enc::Evex, _) => r.aaa != 0,
        _ => r.map == 1 && r.op == 0xf7,
    }
}

/// How many leading operands are written without being read.
fn pure_destinations(r: &Raw) -> usize {
    let pure = match (r.enc, r.map) {
        (Enc::Legacy, 0) => {
            matches!(
                r.op,
                0x58..=0x5f | 0x63 | 0x69 | 0x6b | 0x88..=0x8d | 0x8f | 0xa0 | 0xa1 | 0xb0..=0xbf | 0xc6 | 0xc7 | 0xe4 | 0xe5 | 0xec | 0xed
            ) || (r.op == 0xdf && r.modrm == Some(0xe0))
        } // fnstsw ax
        (Enc::Legacy, 1) => match r.op {
            0x2c | 0x2d => matches!(r.pp, PP_F2 | PP_F3),
            0x50 | 0x90..=0x9f | 0xb6 | 0xb7 | 0xbe | 0xbf | 0xc5 | 0xd7 => true,
            0x7e => r.pp != PP_F3,
            0xb8 | 0xbc | 0xbd => r.pp == PP_F3,
            // rdrand, rdseed; rdpid. sldt, str; smsw.
            0xc7 => r.reg_form() && (matches!(r.reg(), 6 | 7) && r.pp != PP_F3 || r.reg() == 7),
            0x00 => r.reg_form() && r.reg() < 2,
            0x01 => r.reg_form() && r.reg() == 4,
            0xae => r.reg_form() && r.pp == PP_F3 && r.reg() < 2,
            _ => false,
        },
        (Enc::Legacy, 2) => r.op == 0xf0 && matches!(r.pp, 0 | PP_66),
        (Enc::Legacy, _) => matches!(r.op, 0x14..=0x17),
        (Enc::Vex, 1) => matches!(r.op, 0x2c | 0x2d | 0x50 | 0x7e | 0x93 | 0xc5 | 0xd7),
        (Enc::Vex, 2) => match r.op {
            0xf6 if r.pp == PP_F2 => return 2, // mulx
            0xf2 | 0xf3 | 0xf5 | 0xf7 => true,
            _ => false,
        },
        (Enc::Vex, 3) => matches!(r.op, 0xf0 | 0x14..=0x17),
        (Enc::Evex, 1 | 5) => matches!(r.op, 0x2c | 0x2d | 0x78 | 0x79 | 0x7e | 0xc5),
        (Enc::Evex, 3) => matches!(r.op, 0x14..=0x17),
        _ => false,
    };
    usize::from(pure)
}

/// The first operand is read only.
fn first_is_source(r: &Raw) -> bool {
    match (r.enc, r.map, r.op) {
        (Enc::Legacy, 0, 0x38..=0x3d | 0x50..=0x57 | 0x84 | 0x85 | 0xa8 | 0xa9) => true,
        (Enc::Legacy, 0, 0x80..=0x83) => r.reg() == 7,
        (Enc::Legacy, 0, 0xf6 | 0xf7) => !matches!(r.reg(), 2 | 3),
        (Enc::Legacy, 0, 0xff) => r.reg() >= 2,
        (Enc::Legacy, 1, 0xa3) => true,
        (Enc::Legacy, 1, 0xba) => r.reg() == 4,
        _ => false,
    }
}

/// The second operand is written, too: xchg, xadd.
fn exchanges(r: &Raw) -> bool {
    matches!((r.enc, r.map, r.op), (Enc::Legacy, 0, 0x86 | 0x87 | 0x90..=0x97) | (Enc::Legacy, 1, 0xc0 | 0xc1))
}

/// The result does not depend on the destination's old value: `xor r,r`, `sub r,r`, `sbb r,r`, `and r,0`, `or r,-1`.
fn constant_result(r: &Raw, ops: &[EffectOperand]) -> bool {
    match (r.legacy0(), ops) {
        (
            Some(0x31 | 0x33 | 0x29 | 0x2b | 0x19 | 0x1b),
            [EffectOperand::Gpr { reg: a, .. }, EffectOperand::Gpr { reg: b, .. }],
        ) => a == b,
        (Some(0x81 | 0x83), [EffectOperand::Gpr { .. }, EffectOperand::Imm(0)]) => r.reg() == 4,
        (Some(0x81 | 0x83), [EffectOperand::Gpr { .. }, EffectOperand::Imm(-1)]) => r.reg() == 1,
        _ => false,
    }
}

/// Encodings whose operands are vectors and masks only; Capstone takes some for instructions on general registers (`kxnorb` for cmov, say).
/// Source: SDM volume 2, the opcode maps of VEX and EVEX. Maps that are not listed may have general registers anywhere.
fn has_no_gpr(r: &Raw) -> bool {
    let has = match (r.enc, r.map) {
        (Enc::Vex, 1) => {
            matches!(r.op, 0x2a | 0x2c | 0x2d | 0x50 | 0x6e | 0x7e | 0x92 | 0x93 | 0xae | 0xc4 | 0xc5 | 0xd7)
        }
        (Enc::Vex, 2) => matches!(r.op, 0xe0..=0xff),
        (Enc::Vex, 3) => matches!(r.op, 0x14..=0x17 | 0x20 | 0x22 | 0xf0),
        (Enc::Evex, 1 | 5) => matches!(r.op, 0x2a | 0x2c | 0x2d | 0x6e | 0x78 | 0x79 | 0x7b | 0x7e | 0xc4 | 0xc5),
        (Enc::Evex, 2) => matches!(r.op, 0x7a..=0x7c | 0xe0..=0xff),
        (Enc::Evex, 3) => matches!(r.op, 0x14..=0x17 | 0x20 | 0x22 | 0xf0),
        _ => true,
    };
    !has
}

/// Register and flag effects. `address` holds the base and index registers of the memory operand, `implicit` the
/// registers that Capstone reports as read besides the operands.
pub fn effects(r: &Raw, ops: &[EffectOperand], address: u16, implicit: u16) -> Effects {
    // A no-operation forms no address and reads no register; the reserved ones neither.
    let reserved = matches!(r.op, 0x18 | 0x19 | 0x1c | 0x1d) && r.reg_form();
    let pause = r.legacy0() == Some(0x90) && r.pp == PP_F3 && ops.is_empty();
    let nop = pause || r.enc == Enc::Legacy && r.map == 1 && (r.op == 0x1f || reserved);
    // Capstone lists what string instructions use as operands: a lods would read rax. [`implicit_registers`] knows.
    let string = matches!(r.legacy0(), Some(0xa4..=0xa7 | 0xaa..=0xaf));
    let skipped = nop || string || has_no_gpr(r);
    let mut e = Effects { reads: if nop { 0 } else { address | implicit }, ..Effects::default() };
    let constant = constant_result(r, ops);
    let pure = if constant { 1 } else { pure_destinations(r) };
    for (i, op) in ops.iter().enumerate() {
        let EffectOperand::Gpr { reg, bytes } = *op else { continue };
        if skipped {
            continue;
        }
        if i < pure {
            e.writes |= bit(reg);
            if bytes >= 4 {
                e.kills |= bit(reg);
            }
        } else {
            e.reads |= bit(reg);
            if (i == 0 && !first_is_source(r)) || (i == 1 && exchanges(r)) {
                e.writes |= bit(reg);
            }
        }
    }
    if constant {
        // The second operand is the same register; its value does not matter.
        e.reads &= !e.kills;
    }
    implicit_registers(r, &mut e);
    e.flag_reads = flag_reads(r);
    e.flag_kills = flag_kills(r, ops);
    e.writes |= e.kills;
    e
}

fn implicit_registers(r: &Raw, e: &mut Effects) {
    let wide = r.w || !r.opsize;
    let mut rw = |reads: u16, kills: u16, writes: u16| {
        e.reads |= reads;
        e.kills |= kills;
        e.writes |= kills | writes;
    };
    let (ax, cx, dx, bx, sp, bp, si, di) =
        (bit(RAX), bit(RCX), bit(RDX), bit(RBX), bit(RSP), bit(RBP), bit(RSI), bit(RDI));
    if implicit_stack(r) {
        rw(sp, 0, sp);
    }
    let rep = if matches!(r.pp, PP_F2 | PP_F3) { cx } else { 0 };
    match (r.enc, r.map, r.op) {
        (Enc::Legacy, 0, 0xf6 | 0xf7) => match r.reg() {
            4 | 5 if r.op == 0xf6 => rw(ax, 0, ax),
            4 | 5 => rw(ax, if wide { dx } else { 0 }, ax | dx),
            6 | 7 if r.op == 0xf6 => rw(ax, 0, ax),
            6 | 7 => rw(ax | dx, 0, ax | dx),
            _ => {}
        },
        (Enc::Legacy, 0, 0x91..=0x98) => rw(ax, 0, ax),
        (Enc::Legacy, 0, 0x99) => rw(ax, if wide { dx } else { 0 }, dx),
        (Enc::Legacy, 0, 0x9e) => rw(ax, 0, 0),
        (Enc::Legacy, 0, 0x9f) => rw(0, 0, ax),
        (Enc::Legacy, 0, 0xa4..=0xa7) => rw(si | di | rep, 0, si | di | rep),
        (Enc::Legacy, 0, 0xaa | 0xab | 0xae | 0xaf) => rw(ax | di | rep, 0, di | rep),
        (Enc::Legacy, 0, 0xac | 0xad) => {
            let kills = if rep == 0 && r.op == 0xad && wide { ax } else { 0 };
            rw(si | rep, kills, si | ax | rep);
        }
        (Enc::Legacy, 0, 0x6c..=0x6f) => rw(dx | si | di | rep, 0, si | di | rep),
        (Enc::Legacy, 0, 0xc8) => rw(sp | bp, 0, sp | bp),
        (Enc::Legacy, 0, 0xc9) => rw(bp, sp | if wide { bp } else { 0 }, bp),
        (Enc::Legacy, 0, 0xd2 | 0xd3) => rw(cx, 0, 0),
        (Enc::Legacy, 0, 0xd7) => rw(ax | bx, 0, ax),
        (Enc::Legacy, 0, 0xe0..=0xe3) => rw(cx, 0, cx),
        (Enc::Legacy, 0, 0xe4 | 0xe5 | 0xec | 0xed) => rw(dx, 0, ax),
        (Enc::Legacy, 0, 0xe6 | 0xe7 | 0xee | 0xef) => rw(ax | dx, 0, 0),
        (Enc::Legacy, 0, 0xc7) if r.modrm == Some(0xf8) => rw(0, 0, ax),
        (Enc::Legacy, 1, 0x01) if r.reg_form() => match r.modrm {
            Some(0xc8 | 0xfa) => rw(ax | cx | dx, 0, 0), // monitor
            Some(0xc9) => rw(ax | cx, 0, 0),             // mwait
            Some(0xd5 | 0xd6 | 0xe8) => {}               // xend, xtest, serialize
            Some(0xe0..=0xe7) => {}                      // smsw
            Some(0xee) => rw(cx, ax | dx, 0),            // rdpkru
            Some(0xef) => rw(ax | cx | dx, 0, 0),        // wrpkru
            Some(0xd0) => rw(cx, ax | dx, 0),            // xgetbv
            Some(0xf9) => rw(0, ax | cx | dx, 0),        // rdtscp
            Some(0xfc) => rw(ax, 0, 0),                  // clzero
            _ => rw(0xffff, 0, 0xffff),
        },
        (Enc::Legacy, 1, 0x05) => rw(ax | di | si | dx | 0x0700, cx | 0x0800, ax),
        (Enc::Legacy, 1, 0x30) => rw(ax | cx | dx, 0, 0),
        (Enc::Legacy, 1, 0x31) => rw(0, ax | dx, 0),
        (Enc::Legacy, 1, 0x32 | 0x33) => rw(cx, ax | dx, 0),
        (Enc::Legacy, 1, 0x34 | 0x35 | 0x37) => rw(0xffff, 0, 0xffff),
        (Enc::Legacy, 1, 0xa2) => rw(ax | cx, ax | bx | cx | dx, 0),
        (Enc::Legacy, 1, 0xa5 | 0xad) => rw(cx, 0, 0),
        // xsave, xrstor, xsaveopt: which components, in edx:eax; tpause, umwait: until when. fxsave and the others of the group
        // read neither.
        (Enc::Legacy, 1, 0xae) if matches!(r.reg(), 4..=6) && !r.reg_form() && r.pp == 0 => rw(ax | dx, 0, 0),
        (Enc::Legacy, 1, 0xae) if r.reg() == 6 && r.reg_form() && matches!(r.pp, PP_66 | PP_F2) => rw(ax | dx, 0, 0),
        (Enc::Legacy, 1, 0xb0 | 0xb1) => rw(ax, 0, ax),
        // cmpxchg8b, cmpxchg16b; xrstors, xsavec, xsaves.
        (Enc::Legacy, 1, 0xc7) if !r.reg_form() && r.reg() == 1 => rw(ax | bx | cx | dx, 0, ax | dx),
        (Enc::Legacy, 1, 0xc7) if !r.reg_form() && matches!(r.reg(), 3..=5) => rw(ax | dx, 0, 0),
        (Enc::Legacy, 1, 0xf7) | (Enc::Vex, 1, 0xf7) => rw(di, 0, 0),
        // pcmpestrm, pcmpestri, pcmpistri: lengths in rax and rdx, index to rcx.
        (Enc::Legacy | Enc::Vex, 3, 0x60) => rw(ax | dx, 0, 0),
        (Enc::Legacy | Enc::Vex, 3, 0x61) => rw(ax | dx, cx, 0),
        (Enc::Legacy | Enc::Vex, 3, 0x63) => rw(0, cx, 0),
        (Enc::Vex, 2, 0xf6) => rw(dx, 0, 0),
        _ => {}
    }
}

/// Flags tested by condition code `cc`.
fn condition(cc: u8) -> u8 {
    match cc >> 1 & 7 {
        0 => OF,
        1 => CF,
        2 => ZF,
        3 => CF | ZF,
        4 => SF,
        5 => PF,
        6 => SF | OF,
        _ => ZF | SF | OF,
    }
}

fn flag_reads(r: &Raw) -> u8 {
    match (r.enc, r.map, r.op) {
        (Enc::Legacy, 0, 0x10..=0x1f) => CF,
        (Enc::Legacy, 0, 0x70..=0x7f) => condition(r.op),
        (Enc::Legacy, 0, 0x80..=0x83) if matches!(r.reg(), 2 | 3) => CF,
        (Enc::Legacy, 0, 0xc0 | 0xc1 | 0xd0..=0xd3) if matches!(r.reg(), 2 | 3) => CF,
        (Enc::Legacy, 0, 0x9c | 0xcf) => ALL_FLAGS,
        (Enc::Legacy, 0, 0x9f) => ALL_FLAGS & !OF,
        (Enc::Legacy, 0, 0xe0 | 0xe1) => ZF,
        (Enc::Legacy, 0, 0xf5) => CF,
        (Enc::Legacy, 0, 0xda | 0xdb) if r.reg_form() => match r.reg() {
            0 => CF,
            1 => ZF,
            2 => CF | ZF,
            3 => PF,
            _ => 0,
        },
        (Enc::Legacy, 1, 0x40..=0x4f | 0x80..=0x9f) => condition(r.op),
        (Enc::Legacy, 2, 0xf6) => match r.pp {
            PP_66 => CF,
            PP_F3 => OF,
            _ => 0,
        },
        _ => 0,
    }
}

fn flag_kills(r: &Raw, ops: &[EffectOperand]) -> u8 {
    let imm = ops.iter().rev().find_map(|o| if let EffectOperand::Imm(i) = o { Some(*i) } else { None });
    let count = imm.map_or(1, |i| i & if r.w { 0x3f } else { 0x1f });
    match (r.enc, r.map, r.op) {
        (Enc::Legacy, 0, 0x00..=0x3f) if r.op & 7 < 6 => ALL_FLAGS,
        (Enc::Legacy, 0, 0x80..=0x85 | 0xa8 | 0xa9 | 0x9d) => ALL_FLAGS,
        (Enc::Legacy, 0, 0xc0 | 0xc1 | 0xd0 | 0xd1) if count != 0 => match r.reg() {
            0..=3 => CF | OF,
            _ => ALL_FLAGS,
        },
        // What the manuals call undefined behind multiplications (on AMD), divisions, bit scans and bit tests, processors leave as it was.
        (Enc::Legacy, 0, 0x69 | 0x6b) | (Enc::Legacy, 1, 0xaf) => CF | OF,
        (Enc::Legacy, 0, 0xf6 | 0xf7) => match r.reg() {
            0 | 1 | 3 => ALL_FLAGS,
            4 | 5 => CF | OF,
            _ => 0,
        },
        (Enc::Legacy, 0, 0xfe | 0xff) if r.reg() < 2 => ALL_FLAGS & !CF,
        (Enc::Legacy, 0, 0x9e) => ALL_FLAGS & !OF,
        (Enc::Legacy, 0, 0xf5 | 0xf8 | 0xf9) => CF,
        (Enc::Legacy, 0, 0xa6 | 0xa7 | 0xae | 0xaf) if r.pp & PP_F3 == 0 => ALL_FLAGS,
        (Enc::Legacy, 0, 0xdb | 0xdf) if r.reg_form() && matches!(r.reg(), 5 | 6) => {
            // fucomi, fcomi and their popping forms; df e8.. included.
            ZF | PF | CF
        }
        (Enc::Legacy | Enc::Vex | Enc::Evex, 1, 0x2e | 0x2f) | (Enc::Evex, 5, 0x2e | 0x2f) => ALL_FLAGS,
        (Enc::Legacy, 1, 0x01) if r.modrm == Some(0xd6) => ALL_FLAGS, // xtest
        (Enc::Legacy, 1, 0x00) if matches!(r.reg(), 4 | 5) => ZF,     // verr, verw
        (Enc::Legacy, 1, 0x02 | 0x03) => ZF,                          // lar, lsl
        (Enc::Legacy, 1, 0xae) if r.reg() == 6 && r.reg_form() && matches!(r.pp, PP_66 | PP_F2) => ALL_FLAGS, // tpause, umwait
        (Enc::Vex, 2, 0xe0..=0xef) => ALL_FLAGS, // cmpccxadd
        (Enc::Legacy, 1, 0xa3 | 0xab | 0xb3 | 0xbb | 0xba) => CF,
        (Enc::Legacy, 1, 0xa4 | 0xac) if count != 0 => ALL_FLAGS,
        (Enc::Legacy, 1, 0xbc | 0xbd) if r.pp == PP_F3 => CF | ZF,
        (Enc::Legacy, 1, 0xbc | 0xbd) => ZF,
        (Enc::Legacy, 1, 0xb0 | 0xb1 | 0xc0 | 0xc1) => ALL_FLAGS,
        (Enc::Legacy, 1, 0xb8) if r.pp == PP_F3 => ALL_FLAGS,
        (Enc::Legacy, 1, 0xc7) if r.reg_form() && r.reg() >= 6 && r.pp != PP_F3 => ALL_FLAGS,
        (Enc::Legacy, 1, 0xc7) if r.reg() == 1 => ZF,
        (Enc::Legacy | Enc::Vex, 2, 0x17) | (Enc::Vex, 2, 0x0e | 0x0f) => ALL_FLAGS,
        (Enc::Legacy, 2, 0xf6) => match r.pp {
            PP_66 => CF,
            PP_F3 => OF,
            _ => 0,
        },
        (Enc::Legacy | Enc::Vex, 3, 0x60..=0x63) => ALL_FLAGS,
        (Enc::Vex, 1, 0x98 | 0x99) => ALL_FLAGS,
        (Enc::Vex, 2, 0xf2 | 0xf3) => ALL_FLAGS,
        (Enc::Vex, 2, 0xf5 | 0xf7) if r.pp == 0 => ALL_FLAGS,
        _ => 0,
    }
}
