//! Where an operand lies.
//!
//! Input: what [`decode`](crate::system_calls::signals::carried::decode) says, the registers of the context in front of the instruction. Output: addresses. No
//! operand has a segment with a base.

use crate::kernel::ucontext::{GREGS, Ucontext};
use crate::system_calls::signals::carried::decode::{AddressOperand, OperandAccess};

/// A general register; `decode::NONE`: 0.
pub fn register(context: &Ucontext, number: u8) -> u64 {
    GREGS.get(usize::from(number)).map_or(0, |place| context.gregs[*place])
}

/// Address of an operand.
pub fn of(operand: AddressOperand, context: &Ucontext) -> u64 {
    register(context, operand.base)
        .wrapping_add(register(context, operand.index).wrapping_mul(operand.scale.into()))
        .wrapping_add_signed(operand.disp)
}

/// Address of the word in which the bit lies that register `offset` numbers, from the operand on (SDM volume 2, BT).
pub fn of_bit(word: &OperandAccess, offset: u8, context: &Ucontext) -> u64 {
    let unused = 64 - 8 * word.bytes as u32;
    let bit = (register(context, offset) << unused) as i64 >> unused;
    of(word.operand, context).wrapping_add_signed(bit.div_euclid(8 * word.bytes as i64) * word.bytes as i64)
}
