//! The skeleton of an instruction's encoding: prefixes, opcode map, opcode, ModR/M.
//!
//! Input: the bytes of one instruction. Output: [`Raw`]. Capstone says how long an instruction is and what its operands
//! are; what it says about read or written memory, register and flag use is incomplete, so [`crate::decode::effects`] derives
//! these from the encoding instead. Source: Intel SDM volume 2, chapter 2 and appendix A.

/// How the opcode is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enc {
    Legacy,
    Vex,
    Evex,
    Xop,
}

/// Mandatory or size-changing prefix in VEX numbering.
pub const PP_66: u8 = 1;
pub const PP_F3: u8 = 2;
pub const PP_F2: u8 = 3;

/// Prefixes and opcode of one instruction.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    pub enc: Enc,
    /// Legacy: 0 one byte, 1 0F, 2 0F38, 3 0F3A. VEX, EVEX, XOP: the map field.
    pub map: u8,
    pub op: u8,
    /// 0 none, [`PP_66`], [`PP_F3`], [`PP_F2`] (the last wins over 66 in legacy encodings).
    pub pp: u8,
    /// 66 prefix of a legacy encoding.
    pub opsize: bool,
    pub lock: bool,
    pub addr32: bool,
    /// Segment override that has an effect in 64-bit mode: 0x64 fs, 0x65 gs, else 0.
    pub seg: u8,
    pub w: bool,
    /// VEX.L or EVEX.L'L.
    pub l: u8,
    /// EVEX.aaa.
    pub aaa: u8,
    /// EVEX.b.
    pub bcast: bool,
    pub modrm: Option<u8>,
    /// Offset of ModR/M (or of the byte after the opcode where there is none).
    pub after_op: u8,
}

/// The prefixes of the old form that an instruction begins with.
pub fn prefixes(b: &[u8]) -> &[u8] {
    let is_prefix = |b: &u8| matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    &b[..b.iter().position(|b| !is_prefix(b)).unwrap_or(b.len())]
}

/// The bytes of an instruction without prefixes for segments.
pub fn without_segments(b: &[u8]) -> Vec<u8> {
    let (prefixes, rest) = b.split_at(prefixes(b).len());
    let kept = prefixes.iter().filter(|b| !matches!(b, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65));
    kept.chain(rest).copied().collect()
}

impl Raw {
    /// Parses as much as there is; `None` when the bytes end early or no opcode is reached.
    pub fn parse(b: &[u8]) -> Option<Raw> {
        let mut r = Raw {
            enc: Enc::Legacy,
            map: 0,
            op: 0,
            pp: 0,
            opsize: false,
            lock: false,
            addr32: false,
            seg: 0,
            w: false,
            l: 0,
            aaa: 0,
            bcast: false,
            modrm: None,
            after_op: 0,
        };
        let mut i = 0;
        let mut rep = 0;
        loop {
            match *b.get(i)? {
                0x66 => r.opsize = true,
                0x67 => r.addr32 = true,
                0xf0 => r.lock = true,
                0xf2 => rep = PP_F2,
                0xf3 => rep = PP_F3,
                s @ (0x64 | 0x65) => r.seg = s,
                0x26 | 0x2e | 0x36 | 0x3e => {}
                _ => break,
            }
            i += 1;
        }
        r.pp = if rep != 0 { rep } else { u8::from(r.opsize) * PP_66 };
        let first = *b.get(i)?;
        if first & 0xf0 == 0x40 {
            r.w = first & 8 != 0;
            i += 1;
        }
        match *b.get(i)? {
            0xc5 => {
                let p = *b.get(i + 1)?;
                (r.enc, r.map, r.l, r.pp, r.op) = (Enc::Vex, 1, p >> 2 & 1, p & 3, *b.get(i + 2)?);
                i += 3;
            }
            0xc4 => {
                let (p0, p1) = (*b.get(i + 1)?, *b.get(i + 2)?);
                (r.enc, r.map, r.w, r.l, r.pp) = (Enc::Vex, p0 & 0x1f, p1 & 0x80 != 0, p1 >> 2 & 1, p1 & 3);
                r.op = *b.get(i + 3)?;
                i += 4;
            }
            0x62 => {
                let (p0, p1, p2) = (*b.get(i + 1)?, *b.get(i + 2)?, *b.get(i + 3)?);
                (r.enc, r.map, r.w, r.pp) = (Enc::Evex, p0 & 7, p1 & 0x80 != 0, p1 & 3);
                (r.l, r.aaa, r.bcast) = (p2 >> 5 & 3, p2 & 7, p2 & 0x10 != 0);
                r.op = *b.get(i + 4)?;
                i += 5;
            }
            0x8f if b.get(i + 1)? & 0x1f >= 8 => {
                let (p0, p1) = (*b.get(i + 1)?, *b.get(i + 2)?);
                (r.enc, r.map, r.w, r.l, r.pp) = (Enc::Xop, p0 & 0x1f, p1 & 0x80 != 0, p1 >> 2 & 1, p1 & 3);
                r.op = *b.get(i + 3)?;
                i += 4;
            }
            0x0f => match *b.get(i + 1)? {
                m @ (0x38 | 0x3a) => {
                    (r.map, r.op) = (2 + u8::from(m == 0x3a), *b.get(i + 2)?);
                    i += 3;
                }
                op => {
                    (r.map, r.op) = (1, op);
                    i += 2;
                }
            },
            op => {
                r.op = op;
                i += 1;
            }
        }
        r.after_op = i as u8;
        if r.has_modrm() {
            r.modrm = Some(*b.get(i)?);
        }
        Some(r)
    }

    fn has_modrm(&self) -> bool {
        match (self.enc, self.map) {
            (Enc::Legacy, 0) => match self.op {
                0x00..=0x3f => self.op & 7 < 4,
                0x63 | 0x69 | 0x6b | 0x80..=0x8f | 0xc0 | 0xc1 | 0xc6 | 0xc7 => true,
                0xd0..=0xd3 | 0xd8..=0xdf | 0xf6 | 0xf7 | 0xfe | 0xff => true,
                _ => false,
            },
            (Enc::Legacy, 1) => !matches!(
                self.op,
                0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0x80..=0x8f | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf
            ),
            (Enc::Vex, 1) => self.op != 0x77,
            _ => true,
        }
    }

    /// ModR/M.reg without extension bits: the opcode extension of group opcodes.
    pub fn reg(&self) -> u8 {
        self.modrm.map_or(0, |m| m >> 3 & 7)
    }

    /// ModR/M names a register, not memory.
    pub fn reg_form(&self) -> bool {
        self.modrm.is_some_and(|m| m >> 6 == 3)
    }

    /// Opcode of the one-byte map.
    pub fn legacy0(&self) -> Option<u8> {
        (self.enc == Enc::Legacy && self.map == 0).then_some(self.op)
    }

    /// Bytes of the whole instruction up to the immediate, from ModR/M, SIB and displacement alone.
    pub fn bytes_before_imm(&self, b: &[u8]) -> Option<usize> {
        let at = self.after_op as usize;
        let Some(m) = self.modrm else { return Some(at) };
        let (md, rm) = (m >> 6, m & 7);
        let sib = md != 3 && rm == 4;
        let disp = match md {
            0 if rm == 5 => 4,
            0 if sib && *b.get(at + 1)? & 7 == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        let n = at + 1 + usize::from(sib) + disp;
        (n <= b.len()).then_some(n)
    }
}
