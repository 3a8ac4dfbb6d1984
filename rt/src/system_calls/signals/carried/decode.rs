//! Decodes an instruction that accesses memory, as far as its access goes.
//!
//! Input: the bytes from its first on. Output: [`CarriedInsn`]: its length, what it accesses and how the address is formed; or why it is refused. **Invariant**: bytes
//! that no processor has executed up to a fault of an access may be decoded as anything.
//! Source: SDM volume 2, chapter 2 and appendix A; AMD APM volume 3, chapter 1.

use crate::system_calls::signals::carried::forms::{self, CarriedForm, EVEX, FormKey, LEGACY, VEX, Widths};
use crate::system_calls::signals::carried::refused::CarryRefused;
use blizzard_contract::{VsibDesc, string_desc};

/// Longest instruction.
pub const LONGEST: usize = 15;
/// No register.
pub const NONE: u8 = 16;
const RBX: u8 = 3;
const RSP: u8 = 4;
const RDI: u8 = 7;

/// An address: base + index * scale + disp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressOperand {
    /// General registers in encoding order, or [`NONE`].
    pub base: u8,
    pub index: u8,
    pub scale: u8,
    pub disp: i64,
}

impl AddressOperand {
    const fn register(base: u8) -> AddressOperand {
        AddressOperand { base, index: NONE, scale: 1, disp: 0 }
    }
}

/// An access to the operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperandAccess {
    pub operand: AddressOperand,
    pub bytes: u64,
    pub load: bool,
    pub store: bool,
    /// Some of the bytes may stay untouched.
    pub masked: bool,
}

/// What is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarriedAccess {
    Plain(OperandAccess),
    /// The word of `bytes` bytes that a bit number selects, which is in this register.
    BitString {
        word: OperandAccess,
        offset: u8,
    },
    /// `xlat`: the index is al.
    Table(OperandAccess),
    /// A call of what the operand holds.
    Call(OperandAccess),
    /// Bits of [`string_desc`], without those that say what is checked.
    String(u32),
    Lanes(VsibDesc),
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarriedInsn {
    /// Bytes.
    pub len: usize,
    /// Bytes of legacy prefixes in front of all else.
    pub prefixes: usize,
    pub access: CarriedAccess,
}

/// Reads bytes in order.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, CarryRefused> {
        let byte = *self.bytes.get(self.at).ok_or(CarryRefused::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    fn peek(&self) -> Result<u8, CarryRefused> {
        self.bytes.get(self.at).copied().ok_or(CarryRefused::Truncated)
    }

    fn skip(&mut self, n: usize) -> Result<(), CarryRefused> {
        self.at += n;
        if self.at > self.bytes.len() { Err(CarryRefused::Truncated) } else { Ok(()) }
    }

    /// Sign-extended.
    fn number(&mut self, n: usize) -> Result<i64, CarryRefused> {
        let from = self.at;
        self.skip(n)?;
        let mut word = [0; 8];
        word[..n].copy_from_slice(&self.bytes[from..self.at]);
        let unused = 64 - 8 * n as u32;
        Ok(i64::from_le_bytes(word) << unused >> unused)
    }
}

/// Prefixes and the bits that extend register numbers.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    /// 66, 67, and F2 or F3, whichever comes last.
    short: bool,
    address32: bool,
    repeat: u8,
    base: bool,
    /// Extensions of ModRM.reg, index and base, each 0 or 8, and of the index of lanes, 0 or 16.
    r: u8,
    x: u8,
    b: u8,
    v: u8,
    w: bool,
    l: u8,
    /// EVEX.b; EVEX.aaa; VEX.vvvv.
    broadcast: bool,
    mask: u8,
    source: u8,
}

impl Prefixes {
    fn widths(&self) -> Widths {
        Widths { short: self.short, w: self.w, l: self.l, broadcast: self.broadcast }
    }
}

/// Decodes. `state`: what an `xsave` accesses.
///
/// # Errors
/// [`CarryRefused`].
pub fn decode(bytes: &[u8], state: u64) -> Result<CarriedInsn, CarryRefused> {
    let mut r = Reader { bytes: &bytes[..bytes.len().min(LONGEST)], at: 0 };
    let mut p = Prefixes::default();
    loop {
        match r.peek()? {
            0x66 => p.short = true,
            0x67 => p.address32 = true,
            byte @ (0xf2 | 0xf3) => p.repeat = byte,
            0x64 | 0x65 => p.base = true,
            0x26 | 0x2e | 0x36 | 0x3e | 0xf0 => {}
            _ => break,
        }
        r.at += 1;
    }
    let prefixes = r.at;
    let (encoding, map) = opcode_map(&mut r, &mut p)?;
    let opcode = r.byte()?;
    let prefix = match (p.repeat, p.short) {
        (0xf3, _) => 2,
        (0xf2, _) => 3,
        (_, true) => 1,
        _ => 0,
    };
    let key = FormKey { encoding, map, opcode, prefix, reg: 0 };
    let access = match implicit(&mut r, &p, key)? {
        Some(access) => access,
        None => explicit(&mut r, &p, key, state)?,
    };
    if p.base {
        return Err(CarryRefused::SegmentBase);
    }
    if p.address32 {
        return Err(CarryRefused::ShortAddress);
    }
    Ok(CarriedInsn { len: r.at, prefixes, access })
}

/// Reads up to the opcode: encoding, and map of opcodes.
fn opcode_map(r: &mut Reader, p: &mut Prefixes) -> Result<(u8, u8), CarryRefused> {
    let bit = |byte: u8, n: u8| byte >> n & 1;
    let pp = |p: &mut Prefixes, byte: u8| {
        (p.short, p.repeat) = (byte & 3 == 1, [0, 0, 0xf3, 0xf2][usize::from(byte & 3)]);
    };
    match r.peek()? {
        first @ 0x40..=0x4f => {
            r.at += 1;
            p.w = bit(first, 3) != 0;
            (p.r, p.x, p.b) = (bit(first, 2) << 3, bit(first, 1) << 3, bit(first, 0) << 3);
        }
        0xc5 => {
            r.at += 1;
            let byte = r.byte()?;
            p.r = bit(!byte, 7) << 3;
            (p.source, p.l) = (!byte >> 3 & 15, bit(byte, 2));
            pp(p, byte);
            return Ok((VEX, 1));
        }
        0xc4 => {
            r.at += 1;
            let (one, two) = (r.byte()?, r.byte()?);
            (p.r, p.x, p.b) = (bit(!one, 7) << 3, bit(!one, 6) << 3, bit(!one, 5) << 3);
            (p.w, p.source, p.l) = (bit(two, 7) != 0, !two >> 3 & 15, bit(two, 2));
            pp(p, two);
            // The table has three bits for a map, and no form in one beyond.
            return if one & 31 > 7 { Err(CarryRefused::Unknown) } else { Ok((VEX, one & 31)) };
        }
        0x62 => {
            r.at += 1;
            let (one, two, three) = (r.byte()?, r.byte()?, r.byte()?);
            (p.r, p.x, p.b) = (bit(!one, 7) << 3, bit(!one, 6) << 3, bit(!one, 5) << 3);
            (p.w, p.source) = (bit(two, 7) != 0, !two >> 3 & 15);
            (p.l, p.broadcast) = (three >> 5 & 3, bit(three, 4) != 0);
            (p.v, p.mask) = (bit(!three, 3) << 4, three & 7);
            pp(p, two);
            return Ok((EVEX, one & 7));
        }
        _ => {}
    }
    match r.peek()? {
        0x0f => r.at += 1,
        // XOP, of processors that are not made any more, or a pop.
        0x8f if r.bytes.get(r.at + 1).ok_or(CarryRefused::Truncated)? & 31 >= 8 => return Err(CarryRefused::Unknown),
        _ => return Ok((LEGACY, 0)),
    }
    let map = match r.peek()? {
        0x38 => 2,
        0x3a => 3,
        _ => return Ok((LEGACY, 1)),
    };
    r.at += 1;
    Ok((LEGACY, map))
}

/// What has no ModRM operand, or one that tells less than the opcode.
fn implicit(r: &mut Reader, p: &Prefixes, key: FormKey) -> Result<Option<CarriedAccess>, CarryRefused> {
    let FormKey { encoding, map, opcode, prefix, .. } = key;
    let plain = |operand, bytes, load| OperandAccess { operand, bytes, load, store: !load, masked: false };
    let wide = if opcode & 1 == 0 { 1 } else { forms::general_bytes(p.widths()) };
    let access = match (encoding, map, opcode) {
        (LEGACY, 0, 0xa0..=0xa3) => {
            let disp = r.number(if p.address32 { 4 } else { 8 })?;
            CarriedAccess::Plain(plain(AddressOperand { disp, ..AddressOperand::register(NONE) }, wide, opcode < 0xa2))
        }
        (LEGACY, 0, 0xd7) => CarriedAccess::Table(plain(AddressOperand::register(RBX), 1, true)),
        (LEGACY, 0, 0xa4..=0xa7 | 0xaa..=0xaf) => {
            let op = match opcode & !1 {
                0xa4 => string_desc::MOVS,
                0xa6 => string_desc::CMPS,
                0xaa => string_desc::STOS,
                0xac => string_desc::LODS,
                _ => string_desc::SCAS,
            };
            let repeat = match p.repeat {
                0xf3 => 1,
                0xf2 => 2,
                _ => 0,
            };
            CarriedAccess::String(
                op | wide.trailing_zeros() << string_desc::SIZE_SHIFT | repeat << string_desc::REP_SHIFT,
            )
        }
        // Pushes and pops, calls and returns, enter and leave.
        (LEGACY, 0, 0x50..=0x5f | 0x68 | 0x6a | 0x9c | 0x9d | 0xc2 | 0xc3 | 0xc8..=0xcb | 0xcf | 0xe8)
        | (LEGACY, 1, 0xa0 | 0xa1 | 0xa8 | 0xa9) => return Err(CarryRefused::Stack),
        (LEGACY, 2, 0xf8) if prefix != 0 => return Err(CarryRefused::Implicit64),
        (LEGACY, 1, 0x01) if r.peek()? == 0xfc => return Err(CarryRefused::Implicit64),
        (LEGACY | VEX, 1, 0xf7) => {
            r.skip(1)?;
            let bytes = if prefix == 1 { 16 } else { 8 };
            CarriedAccess::Plain(OperandAccess { masked: true, ..plain(AddressOperand::register(RDI), bytes, false) })
        }
        _ => return Ok(None),
    };
    Ok(Some(access))
}

/// What has a ModRM operand.
fn explicit(r: &mut Reader, p: &Prefixes, key: FormKey, state: u64) -> Result<CarriedAccess, CarryRefused> {
    let modrm = r.byte()?;
    let key = FormKey { reg: modrm >> 3 & 7, ..key };
    let FormKey { encoding, map, opcode, reg, .. } = key;
    if modrm >> 6 == 3 {
        let is_call = (encoding, map, opcode, reg) == (LEGACY, 0, 0xff, 2);
        return Err(if is_call { CarryRefused::Stack } else { CarryRefused::NoOperand });
    }
    match (encoding, map, opcode, reg) {
        (LEGACY, 0, 0x8e, 4 | 5) | (LEGACY, 1, 0xb2 | 0xb4 | 0xb5, _) => return Err(CarryRefused::SegmentRegister),
        (LEGACY, 0, 0xff, 3 | 5) => return Err(CarryRefused::FarTransfer),
        (LEGACY, 1, 0x00, 0 | 1) | (LEGACY, 1, 0x01, 0 | 1 | 4) => return Err(CarryRefused::SystemRegister),
        (VEX, 2, 0x4b, _) => return Err(CarryRefused::Tile),
        _ => {}
    }
    let lanes = encoding != LEGACY && map == 2 && matches!(opcode, 0x90..=0x93 | 0xa0..=0xa3);
    if lanes {
        return vector_operand(r, p, key, modrm);
    }
    let form = forms::find(key).ok_or(CarryRefused::Unknown)?;
    let plain = plain(r, p, key, form, modrm, state)?;
    Ok(match (encoding, map, opcode, reg) {
        (LEGACY, 0, 0xff, 2) => CarriedAccess::Call(plain),
        (LEGACY, 1, 0xa3 | 0xab | 0xb3 | 0xbb, _) => CarriedAccess::BitString { word: plain, offset: reg | p.r },
        _ => CarriedAccess::Plain(plain),
    })
}

fn plain(
    r: &mut Reader,
    p: &Prefixes,
    key: FormKey,
    form: CarriedForm,
    modrm: u8,
    state: u64,
) -> Result<OperandAccess, CarryRefused> {
    let FormKey { encoding, map, opcode, reg, .. } = key;
    let bytes = form.size.bytes(p.widths(), state);
    // EVEX multiplies short displacements by what is accessed, or by an element where elements are packed.
    let unit = match (encoding, map, opcode) {
        (EVEX, 2, 0x62 | 0x63) => 1 << u8::from(p.w),
        (EVEX, 2, 0x88..=0x8b) => 4 << u8::from(p.w),
        (EVEX, ..) => bytes as i64,
        _ => 1,
    };
    let mut operand = operand(r, p, modrm, unit)?;
    // A pop forms its address with what rsp is afterwards.
    if (encoding, map, opcode, reg) == (LEGACY, 0, 0x8f, 0) && operand.base == RSP {
        operand.disp += bytes as i64;
    }
    r.skip(match form.immediate {
        2 => forms::general_bytes(p.widths()).min(4) as usize,
        n => n.into(),
    })?;
    let masked = form.masked || encoding == EVEX && p.mask != 0;
    Ok(OperandAccess { operand, bytes, load: form.load, store: form.store, masked })
}

/// Reads what follows ModRM up to the displacement; `unit`: of one of a byte.
fn operand(r: &mut Reader, p: &Prefixes, modrm: u8, unit: i64) -> Result<AddressOperand, CarryRefused> {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let mut operand = AddressOperand::register(rm | p.b);
    if rm == 4 {
        let sib = r.byte()?;
        let index = sib >> 3 & 7 | p.x;
        operand.base = sib & 7 | p.b;
        operand.scale = 1 << (sib >> 6);
        operand.index = if index == RSP { NONE } else { index };
        if sib & 7 == 5 && mode == 0 {
            operand.base = NONE;
            operand.disp = r.number(4)?;
        }
    } else if rm == 5 && mode == 0 {
        return Err(CarryRefused::RipRelative);
    }
    match mode {
        1 => operand.disp = r.number(1)? * unit,
        2 => operand.disp = r.number(4)?,
        _ => {}
    }
    Ok(operand)
}

/// Gathers and scatters.
fn vector_operand(r: &mut Reader, p: &Prefixes, key: FormKey, modrm: u8) -> Result<CarriedAccess, CarryRefused> {
    if modrm & 7 != 4 {
        return Err(CarryRefused::Unknown);
    }
    let elem_bytes = 4u8 << u8::from(p.w);
    let index_bytes = 4u8 << (key.opcode & 1);
    // Of a vector register all numbers are an index.
    let index = r.bytes.get(r.at).ok_or(CarryRefused::Truncated)? >> 3 & 7 | p.x | p.v;
    let unit = if key.encoding == EVEX { elem_bytes.into() } else { 1 };
    let operand = operand(r, p, modrm, unit)?;
    let (mask_kind, mask) = if key.encoding == EVEX { (1, p.mask) } else { (0, p.source) };
    Ok(CarriedAccess::Lanes(VsibDesc {
        disp: operand.disp as i32,
        base: operand.base,
        index,
        index_bytes,
        elem_bytes,
        lanes: (16u8 << p.l.min(2)) / elem_bytes.max(index_bytes),
        scale: operand.scale,
        mask_kind,
        mask,
        access: if key.opcode >= 0xa0 { 2 } else { 1 },
        rsp_moved: 0,
        _pad: [0; 2],
    }))
}
