//! What is known of a form of instruction: bytes and direction of its memory operand, bytes behind it.
//!
//! Input: the parts of an encoding that tell forms apart. Output: [`CarriedForm`], from a word of [`TABLE`]. **Invariant**: the table has all
//! forms with an explicit memory operand of ModRM that a program may execute, but those that [`crate::system_calls::signals::carried::decode`] knows by
//! itself. A test compares it with the tables of another decoder.
//! Source: SDM volume 2, appendix A.

use crate::system_calls::signals::carried::table::TABLE;

/// Encodings.
pub const LEGACY: u8 = 0;
pub const VEX: u8 = 1;
pub const EVEX: u8 = 2;
/// Any prefix, any ModRM.reg.
pub const ANY_PREFIX: u8 = 4;
pub const ANY_REG: u8 = 8;
/// Places in a word: `encoding map opcode prefix reg . immediate masked access size`.
const MAP: u32 = 15 + INFO;
const ENCODING: u32 = 18 + INFO;
const OPCODE: u32 = 7 + INFO;
const PREFIX: u32 = 4 + INFO;
const REG: u32 = INFO;
/// Bits that tell no forms apart.
const INFO: u32 = 12;
const IMMEDIATE: u32 = 9;
const MASKED: u32 = 8;
const ACCESS: u32 = 6;
const SIZE_MASK: u32 = 0x3f;

/// What tells forms apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FormKey {
    /// [`LEGACY`], [`VEX`], [`EVEX`].
    pub encoding: u8,
    /// Of opcodes: 0 none, 1 0F, 2 0F38, 3 0F3A; EVEX has more.
    pub map: u8,
    pub opcode: u8,
    /// 0 none, 1 66, 2 F3, 3 F2.
    pub prefix: u8,
    /// ModRM.reg.
    pub reg: u8,
}

/// What else the number of bytes depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Widths {
    /// A prefix 66.
    pub short: bool,
    pub w: bool,
    /// log2 of the vector's bytes, less 4.
    pub l: u8,
    /// EVEX.b: one element for all lanes.
    pub broadcast: bool,
}

/// Bytes of the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Bytes(u16),
    /// 2, 4 or 8, as of a general register; so many of them.
    General,
    /// Without and with W.
    ByW(u8, u8),
    /// Without and with a prefix 66 that no W overrides.
    ByShort(u8, u8),
    /// That part of a vector (as a shift), or an element of so many bytes, 0: 4 or 8 by W.
    Vector(u8, u8),
    /// Half a vector, with W a whole one, or an element of 4 or 8.
    Widened,
    /// `movddup`.
    Double,
    /// What the processor's enabled state takes.
    State,
}

/// All of them; a word has the place in this list.
pub const SIZES: [Size; 44] = [
    Size::Bytes(0),
    Size::Bytes(1),
    Size::Bytes(2),
    Size::Bytes(4),
    Size::Bytes(8),
    Size::Bytes(10),
    Size::Bytes(16),
    Size::Bytes(32),
    Size::Bytes(48),
    Size::Bytes(64),
    Size::Bytes(512),
    Size::General,
    Size::ByW(4, 8),
    Size::ByW(8, 16),
    Size::ByW(2, 8),
    Size::ByW(1, 4),
    Size::ByW(1, 2),
    Size::ByW(2, 4),
    Size::ByShort(8, 2),
    Size::ByShort(4, 2),
    Size::ByShort(28, 14),
    Size::ByShort(108, 94),
    Size::Vector(0, 2),
    Size::Vector(0, 4),
    Size::Vector(0, 8),
    Size::Vector(0, 0),
    Size::Vector(1, 2),
    Size::Vector(1, 4),
    Size::Vector(1, 8),
    Size::Vector(1, 0),
    Size::Vector(2, 2),
    Size::Vector(2, 4),
    Size::Vector(2, 8),
    Size::Vector(2, 0),
    Size::Vector(3, 2),
    Size::Vector(3, 4),
    Size::Vector(3, 8),
    Size::Vector(3, 0),
    Size::Widened,
    Size::Double,
    Size::State,
    Size::Bytes(384),
    Size::Bytes(6),
    Size::Bytes(14),
];

impl Size {
    /// `state`: bytes of [`Size::State`].
    pub fn bytes(self, widths: Widths, state: u64) -> u64 {
        let Widths { short, w, l, broadcast } = widths;
        match self {
            Size::Bytes(n) => n.into(),
            Size::General => general_bytes(widths),
            Size::ByW(a, b) => (if w { b } else { a }).into(),
            Size::ByShort(a, b) => (if short && !w { b } else { a }).into(),
            Size::Vector(_, element) if broadcast => match (element, w) {
                (0, false) => 4,
                (0, true) => 8,
                (n, _) => n.into(),
            },
            Size::Vector(shift, _) => 16u64 << l >> shift,
            Size::Widened if broadcast => 4 << u8::from(w),
            Size::Widened => 8u64 << l << u8::from(w),
            Size::Double => [8, 32, 64][usize::from(l.min(2))],
            Size::State => state,
        }
    }
}

/// Bytes of a general register as an operand.
pub fn general_bytes(widths: Widths) -> u64 {
    match (widths.w, widths.short) {
        (true, _) => 8,
        (false, true) => 2,
        (false, false) => 4,
    }
}

/// Bytes behind the operand: 0 or 1, or 2: a word of the operand's size, 4 bytes at most.
pub type Immediate = u8;

/// A form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedForm {
    pub size: Size,
    pub load: bool,
    pub store: bool,
    /// Some of the bytes may stay untouched.
    pub masked: bool,
    pub immediate: Immediate,
}

/// The word of a form. (A test makes the table of these.)
pub const fn word(key: FormKey, size_at: u32, load: bool, store: bool, masked: bool, immediate: Immediate) -> u32 {
    (key.encoding as u32) << ENCODING
        | (key.map as u32) << MAP
        | (key.opcode as u32) << OPCODE
        | (key.prefix as u32) << PREFIX
        | (key.reg as u32) << REG
        | (immediate as u32) << IMMEDIATE
        | (masked as u32) << MASKED
        | (load as u32 | (store as u32) << 1) << ACCESS
        | size_at
}

fn form_of(word: u32) -> CarriedForm {
    CarriedForm {
        size: SIZES[(word & SIZE_MASK) as usize % SIZES.len()],
        load: word >> ACCESS & 1 != 0,
        store: word >> ACCESS & 2 != 0,
        masked: word >> MASKED & 1 != 0,
        immediate: (word >> IMMEDIATE & 3) as Immediate,
    }
}

/// The form, if the table has it.
pub fn find(key: FormKey) -> Option<CarriedForm> {
    let first = word(FormKey { prefix: 0, reg: 0, ..key }, 0, false, false, false, 0) >> OPCODE;
    let from = TABLE.partition_point(|word| word >> OPCODE < first);
    let mut forms = TABLE[from..].iter().take_while(|word| **word >> OPCODE == first);
    let is = |of: u32, any: u8, value: u8| of == u32::from(any) || of == u32::from(value);
    forms
        .find(|word| is(**word >> PREFIX & 7, ANY_PREFIX, key.prefix) && is(**word >> REG & 15, ANY_REG, key.reg))
        .map(|word| form_of(*word))
}
