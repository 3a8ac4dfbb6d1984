//! One decoded instruction, and how its record is built.
//!
//! Input: the skeleton of the encoding and the operands. Output: [`Insn`]. **Invariant**: all that a record says of memory, registers, flags and control
//! comes from [`crate::decode::effects`], whichever decoder found the operands.

use crate::decode::effects::{self, EffectOperand, Effects, Flow, Touch};
use crate::decode::raw::{Enc, PP_F2, Raw};

/// No register.
pub const NONE: u8 = 0xff;
/// rip as a base register; with [`ADDR32`] eip: what is named is then the lower half of the address.
pub const RIP: u8 = 0xfe;
/// An index register that is a vector.
pub const VECTOR: u8 = 0xfd;
/// A register the audit does not model (eiz, a 32-bit address).
pub const OTHER: u8 = 0xfc;
/// "Bytes" of ah, bh, ch, dh.
pub(crate) const HIGH: u8 = 0;
/// The override of %gs.
pub(crate) const GS: u8 = 0x65;
/// The override whose base is the thread's (psABI section 3.4.2). That of %gs is zero where other nodes run, so it tells nothing.
pub(crate) const FS: u8 = 0x64;
/// No branch target.
pub const NO_TARGET: u64 = u64::MAX;

/// Memory operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mem {
    pub base: u8,
    pub index: u8,
    pub scale: u8,
    /// 0x64 fs, 0x65 gs, 0 none.
    pub seg: u8,
    /// Displacement; where `base` is [`RIP`] the absolute address.
    pub disp: i64,
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug)]
pub struct Insn {
    pub va: u64,
    /// Direct branch target or [`NO_TARGET`].
    pub target: u64,
    /// The only immediate, or the last one; 0 when there is none.
    pub imm: i64,
    pub mem: Option<Mem>,
    pub fx: Effects,
    /// Bytes of the explicit memory operand.
    pub size: u16,
    /// Opcode as in [`Raw`]: encoding and map in the high byte.
    pub op: u16,
    pub len: u8,
    /// ModR/M.reg.
    pub ext: u8,
    /// First and second operand where they are general registers, and their bytes.
    pub r0: u8,
    pub r1: u8,
    pub r0_bytes: u8,
    pub touch: Touch,
    pub flow: Flow,
    pub bits: u8,
}

/// [`Insn::bits`].
pub const STACK: u8 = 1;
pub const ADDR32: u8 = 2;
pub const MASKED: u8 = 4;
/// A prefix that changes the instruction's meaning (66, F2, F3, F0, segment), so that it is no inserted code.
pub const PREFIXED: u8 = 8;
/// rep, repe or repne string form.
pub const REP: u8 = 16;
/// REX.W.
pub const WIDE: u8 = 32;
/// F2 instead of F3.
pub const REPNE: u8 = 64;

impl Insn {
    pub fn end(&self) -> u64 {
        self.va + u64::from(self.len)
    }
    pub fn has(&self, bit: u8) -> bool {
        self.bits & bit != 0
    }
    /// nop in any length, or endbr64.
    pub fn is_nop(&self) -> bool {
        self.touch == Touch::None
            && match self.op {
                0x90 => self.fx.writes == 0,
                0x10d | 0x118..=0x11f => true,
                _ => false,
            }
    }
    pub fn is_int3(&self) -> bool {
        self.op == 0xcc
    }
}

/// A jump through the GOT or a PLT entry.
pub fn through_constant(i: &Insn) -> bool {
    i.mem.is_some_and(|m| m.index == NONE && matches!(m.base, NONE | RIP))
}

/// Builds the record from what is known about an instruction.
#[allow(clippy::too_many_arguments)]
pub(crate) fn record(
    raw: &Raw,
    va: u64,
    len: u8,
    ops: &[EffectOperand],
    mem: Option<Mem>,
    size: u16,
    address: u16,
    implicit: u16,
) -> Insn {
    let flow = effects::flow(raw);
    let mut imm = 0;
    for op in ops {
        if let EffectOperand::Imm(v) = op {
            imm = *v;
        }
    }
    let target = match flow {
        Flow::Cond | Flow::Jump | Flow::Call => imm as u64,
        _ => NO_TARGET,
    };
    let gpr = |k: usize| match ops.get(k) {
        Some(EffectOperand::Gpr { reg, bytes }) if *bytes != HIGH => (*reg, *bytes),
        _ => (NONE, 0),
    };
    let ((r0, r0_bytes), (r1, _)) = (gpr(0), gpr(1));
    // enter with a level above 1 reads where rbp points to.
    let nested = raw.legacy0() == Some(0xc8) && imm & 31 > 1;
    let touch = if nested { Touch::Opaque } else { effects::touch(raw, mem.is_some()) };
    let mut bits = 0;
    for (on, bit) in [
        (effects::implicit_stack(raw), STACK),
        (raw.addr32, ADDR32),
        (effects::masked(raw), MASKED),
        (raw.opsize || raw.lock || raw.seg != 0 || (raw.enc == Enc::Legacy && raw.pp != 0), PREFIXED),
        (matches!(touch, Touch::String { .. }) && raw.pp > 1, REP),
        (raw.w, WIDE),
        (raw.pp == PP_F2, REPNE),
    ] {
        if on {
            bits |= bit;
        }
    }
    let enc = match raw.enc {
        Enc::Legacy => 0,
        Enc::Vex => 0x20,
        Enc::Evex => 0x40,
        Enc::Xop => 0x60,
    };
    Insn {
        va,
        target,
        imm,
        mem,
        fx: effects::effects(raw, ops, address, implicit),
        size: effects::size(raw, size),
        op: u16::from(enc | (raw.map & 0x1f)) << 8 | u16::from(raw.op),
        len,
        ext: raw.reg(),
        r0,
        r1,
        r0_bytes,
        touch,
        flow,
        bits,
    }
}
