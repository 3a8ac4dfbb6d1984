//! Sets of general registers and status flags, and which ones an instruction names or writes.
//!
//! Input: registers as iced-x86 numbers them. Output: [`RegSet`]s. **Invariant**: a part of a register stands for all of it.
//! Source: psABI figure 3.4 (registers across calls).

use iced_x86::{Instruction, InstructionInfo, InstructionInfoFactory, OpAccess, Register};
use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// A set: bits 0..16 general registers in encoding order, bits 16..22 the status flags CF PF AF ZF SF OF.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct RegSet(pub u32);

impl RegSet {
    pub const NONE: RegSet = RegSet(0);
    pub const GPRS: RegSet = RegSet(0xffff);
    pub const FLAGS: RegSet = RegSet(0x3f << 16);
    pub const ALL: RegSet = RegSet(0x3f_ffff);
    pub const RSP: RegSet = RegSet(1 << 4);
    pub const RAX: RegSet = RegSet(1);
    /// psABI figure 3.4: preserved across calls, rsp included.
    pub const CALLEE_SAVED: RegSet = RegSet(1 << 3 | 1 << 4 | 1 << 5 | 0xf << 12);
    /// What a caller that knows only the ABI may use after a return.
    pub const RETURNED: RegSet = RegSet(Self::CALLEE_SAVED.0 | 1 << 0 | 1 << 2);
    /// What a callee known only by the ABI may use: everything but r11 (arguments, rax for variadic calls, r10 the static chain) and flags.
    pub const PASSED: RegSet = RegSet(0xffff & !(1 << 11));

    /// The set of the full register that contains `r`; empty for anything but general registers.
    #[inline]
    pub fn of(r: Register) -> RegSet {
        let full = r.full_register();
        if full.is_gpr64() { RegSet(1 << full.number()) } else { RegSet::NONE }
    }

    /// The set of the general register that DWARF gives this number; empty for others. Source: psABI figure 3.36.
    pub fn of_dwarf(number: u16) -> RegSet {
        const NUMBERS: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
        NUMBERS.get(usize::from(number)).map_or(RegSet::NONE, |r| RegSet(1 << r))
    }

    #[inline]
    pub fn contains(self, other: RegSet) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline]
    pub fn meets(self, other: RegSet) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub fn without(self, other: RegSet) -> RegSet {
        RegSet(self.0 & !other.0)
    }

    /// The general registers of the set, in encoding order.
    #[inline]
    pub fn gprs(self) -> impl Iterator<Item = u8> {
        (0..16u8).filter(move |r| self.0 >> r & 1 != 0)
    }
}

impl BitOr for RegSet {
    type Output = RegSet;
    #[inline]
    fn bitor(self, o: RegSet) -> RegSet {
        RegSet(self.0 | o.0)
    }
}

impl BitOrAssign for RegSet {
    #[inline]
    fn bitor_assign(&mut self, o: RegSet) {
        self.0 |= o.0;
    }
}

impl BitAnd for RegSet {
    type Output = RegSet;
    #[inline]
    fn bitand(self, o: RegSet) -> RegSet {
        RegSet(self.0 & o.0)
    }
}

impl Not for RegSet {
    type Output = RegSet;
    #[inline]
    fn not(self) -> RegSet {
        RegSet(!self.0 & Self::ALL.0)
    }
}

/// Registers named by a memory operand.
pub fn operand_regs(insn: &Instruction) -> RegSet {
    RegSet::of(insn.memory_base()) | RegSet::of(insn.memory_index())
}

/// The registers of which an instruction writes any part.
pub fn written_by(info: &InstructionInfo) -> RegSet {
    let used = info.used_registers().iter();
    used.filter(|u| is_written(u.access())).fold(RegSet::NONE, |set, u| set | RegSet::of(u.register()))
}

/// Whether an instruction writes any part of a 64-bit register.
pub fn writes(factory: &mut InstructionInfoFactory, insn: &Instruction, reg: Register) -> bool {
    factory.info(insn).used_registers().iter().any(|u| u.register().full_register() == reg && is_written(u.access()))
}

/// Whether it may write.
pub fn is_written(access: OpAccess) -> bool {
    !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::None | OpAccess::NoMemAccess)
}
