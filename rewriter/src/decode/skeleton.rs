//! An instruction without its numbers: prefix, opcode and operand bytes, and where displacement and immediate stand.
//!
//! Purpose: programs have millions of instructions, but few thousand skeletons. What a full decoding says of one holds for all instructions of
//! that skeleton, save the values of displacements and immediates; so it is kept ([`Memo`]) and asked for again by the skeleton alone.
//! Input: bytes. Output: [`Skeleton`]; `None` for whatever is not in the two small opcode maps, has other prefixes, or stands at the
//! very end of a section. Invariant: two instructions with equal keys are both valid or both not, have the same length and the
//! same [`Shape`](crate::facts::kinds::Shape). Source: SDM volume 2, chapter 2 and appendix A.

/// Longest instruction, in bytes (SDM volume 2, section 2.3.11).
pub const LONGEST: usize = 15;

/// What is known without decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skeleton {
    /// Everything but displacement and immediate; of these what a [`Shape`](crate::facts::kinds::Shape) depends on. Never 0.
    pub key: u64,
    pub len: u8,
    /// Where a displacement or relative target of four bytes begins; 0: there is none.
    pub disp32: u8,
    /// The same of an immediate of four bytes.
    pub imm32: u8,
    /// The displacement counts from the instruction's end.
    pub ip_relative: bool,
}

/// What follows an opcode. Two flags and an immediate.
const NONE: u8 = 0;
const MODRM: u8 = 1;
const BYTE: u8 = 2;
/// Two bytes with prefix 66 and without REX.W, else four.
const WORD: u8 = 4;
const FULL: u8 = 8;
/// A displacement relative to the end, of one byte or four.
const REL8: u8 = 16;
const REL32: u8 = 32;
/// Of the immediate, one byte belongs to the key.
const KEYED: u8 = 64;
/// Left to a full decoding.
const OTHER: u8 = 128;

const fn one_byte() -> [u8; 256] {
    let mut t = [OTHER; 256];
    let mut op = 0;
    while op < 256 {
        t[op] = match op {
            0x00..=0x3f => match op & 7 {
                0..=3 => MODRM,
                4 => BYTE,
                5 => WORD,
                _ => OTHER,
            },
            0x50..=0x5f | 0x90..=0x99 | 0xa4..=0xa7 | 0xaa..=0xaf | 0xc3 | 0xcc | 0xf4 | 0xf5 | 0xf8..=0xfd => NONE,
            0x63 | 0x84..=0x8b | 0x8d | 0xd0..=0xd3 | 0xd8..=0xdf | 0xf6 | 0xf7 | 0xfe | 0xff => MODRM,
            0x68 | 0xa9 => WORD,
            0x69 | 0x81 | 0xc7 => MODRM | WORD,
            0x6a | 0xa8 | 0xb0..=0xb7 | 0xcd => BYTE,
            0x6b | 0x80 | 0xc6 => MODRM | BYTE,
            // The sign of a mask matters, and the counts of shifts.
            0x83 | 0xc0 | 0xc1 => MODRM | BYTE | KEYED,
            0xb8..=0xbf => FULL,
            0x70..=0x7f | 0xe0..=0xe3 | 0xeb => REL8,
            0xe8 | 0xe9 => REL32,
            _ => OTHER,
        };
        op += 1;
    }
    t
}

const fn two_byte() -> [u8; 256] {
    let mut t = [OTHER; 256];
    let mut op = 0;
    while op < 256 {
        t[op] = match op {
            0x05 | 0x0b | 0x31 | 0x77 | 0xa0..=0xa2 | 0xa8 | 0xa9 | 0xc8..=0xcf => NONE,
            0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x40..=0x6f | 0x74..=0x76 | 0x7c..=0x7f | 0x90..=0x9f => MODRM,
            0xa3 | 0xa5 | 0xab | 0xad..=0xb1 | 0xb3 | 0xb6..=0xb8 | 0xbb..=0xc1 | 0xc3 | 0xc7 | 0xd0..=0xfe => MODRM,
            0x70..=0x73 | 0xba | 0xc2 | 0xc4..=0xc6 => MODRM | BYTE,
            0xa4 | 0xac => MODRM | BYTE | KEYED,
            0x80..=0x8f => REL32,
            _ => OTHER,
        };
        op += 1;
    }
    t
}

static ONE_BYTE: [u8; 256] = one_byte();
static TWO_BYTE: [u8; 256] = two_byte();

/// Reads one at the beginning of `bytes`.
#[inline]
pub fn skeleton(bytes: &[u8]) -> Option<Skeleton> {
    let bytes: &[u8; LONGEST] = bytes.first_chunk()?;
    // What stands in front of displacement and immediate has at most six bytes; those that have been read are shifted out.
    let mut front = u64::from_le_bytes(*bytes.first_chunk().expect("eight of fifteen"));
    let mut at = 0;
    let mut next = || {
        let byte = front as u8;
        front >>= 8;
        at += 1;
        byte
    };
    let mut op = next();
    let prefix = match op {
        0x66 => 1,
        0xf2 => 2,
        0xf3 => 3,
        _ => 0u64,
    };
    if prefix != 0 {
        op = next();
    }
    let mut rex = 0;
    if op & 0xf0 == 0x40 {
        rex = op;
        op = next();
    }
    let two = op == 0x0f;
    let what = if two {
        op = next();
        TWO_BYTE[usize::from(op)]
    } else {
        ONE_BYTE[usize::from(op)]
    };
    if what & OTHER != 0 || what & (REL8 | REL32) != 0 && prefix != 0 {
        return None;
    }
    let mut out = Skeleton { key: 0, len: 0, disp32: 0, imm32: 0, ip_relative: false };
    let (mut modrm, mut sib) = (0, 0);
    let mut what = what;
    if what & MODRM != 0 {
        modrm = next();
        let (form, rm) = (modrm >> 6, modrm & 7);
        if form != 3 && rm == 4 {
            sib = next();
        }
        let disp = match form {
            0 if rm == 5 => {
                out.ip_relative = true;
                4
            }
            0 if rm == 4 && sib & 7 == 5 => 4,
            1 => 1,
            2 => 4,
            _ => 0,
        };
        if disp == 4 {
            out.disp32 = at as u8;
        }
        at += disp;
        // Of group 3 only the tests have an immediate.
        if !two && modrm & 0x30 == 0 {
            what |= match op {
                0xf6 => BYTE,
                0xf7 => WORD,
                _ => 0,
            };
        }
    }
    let mut keyed = 0;
    let wide = rex & 8 != 0;
    let immediate = match what & (BYTE | WORD | FULL | REL8 | REL32) {
        0 => 0,
        BYTE | REL8 => 1,
        // A wide one may be any address.
        FULL if wide => return None,
        REL32 => {
            out.disp32 = at as u8;
            out.ip_relative = true;
            4
        }
        _ if prefix == 1 && !wide => 2,
        _ => 4,
    };
    if what & KEYED != 0 {
        keyed = if two || op != 0x83 { bytes[at] } else { bytes[at] & 0x80 };
    }
    if immediate == 4 && what & REL32 == 0 {
        out.imm32 = at as u8;
    }
    at += immediate;
    // With all parts at their longest, one would be longer than the processor takes.
    if at > LONGEST {
        return None;
    }
    out.len = at as u8;
    let parts = [rex, op, modrm, sib, keyed];
    out.key = parts.iter().fold(1 << 3 | prefix << 1 | u64::from(two), |key, part| key << 8 | u64::from(*part));
    Some(out)
}

/// What was learnt of the skeletons met last.
#[derive(Debug)]
pub struct Memo<T>(Vec<(u64, T)>);

/// Entries of a memo: small enough for the cache.
const SLOTS: usize = 1 << 13;

/// Nothing is known.
impl<T: Copy + Default> Default for Memo<T> {
    fn default() -> Self {
        Memo(vec![(0, T::default()); SLOTS])
    }
}

impl<T: Copy> Memo<T> {
    #[inline]
    fn slot(key: u64) -> usize {
        (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (SLOTS - 1)
    }

    /// What was kept for a key.
    #[inline]
    pub fn get(&self, key: u64) -> Option<T> {
        let (known, value) = self.0[Self::slot(key)];
        (known == key).then_some(value)
    }

    /// Keeps `value`, until another key needs its place.
    #[inline]
    pub fn keep(&mut self, key: u64, value: T) {
        self.0[Self::slot(key)] = (key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::marks::Mark;
    use crate::facts::kinds::Shape;
    use iced_x86::{Decoder, DecoderOptions};

    fn decoded(bytes: &[u8]) -> Option<(usize, Shape, Mark)> {
        let insn = Decoder::with_ip(64, bytes, 0x40_0000, DecoderOptions::NONE).decode();
        if insn.is_invalid() {
            return None;
        }
        Some((insn.len(), Shape::of(&insn), Mark::start(&insn, &bytes[..insn.len()])))
    }

    /// Every prefix, REX, opcode and operand byte with several displacements and immediates.
    #[test]
    fn numbers_change_nothing_that_a_skeleton_stands_for() {
        let mut seed = 0x1234_5678_9abc_def1u64;
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let mut compared = 0;
        for case in 0..4 * 7 * 512 * 256 {
            let (modrm, rest) = (case % 256, case / 256);
            let (op, rest) = (rest % 512, rest / 512);
            let (rex, prefix) = ([0, 0x40, 0x41, 0x44, 0x48, 0x4a, 0x4f][rest % 7], [0, 0x66, 0xf2, 0xf3][rest / 7]);
            let mut head: Vec<u8> = [prefix, rex].into_iter().filter(|b| *b != 0).collect();
            head.extend((op >= 256).then_some(0x0f));
            head.push(op as u8);
            let mut fill = || {
                let mut bytes = head.clone();
                bytes.extend([modrm as u8, random() as u8]);
                bytes.extend(random().to_le_bytes());
                bytes.extend(random().to_le_bytes());
                bytes
            };
            let first = fill();
            let Some(found) = skeleton(&first) else { continue };
            let wanted = decoded(&first);
            if let Some((len, _, _)) = wanted {
                assert_eq!(usize::from(found.len), len, "{first:02x?}");
            }
            // The same key with other numbers.
            let mut other = fill();
            let (numbers, end) = (other.clone(), first.len());
            other.copy_from_slice(&first);
            for field in [found.disp32, found.imm32] {
                let at = usize::from(field);
                if at != 0 {
                    other[at..at + 4].copy_from_slice(&numbers[at..at + 4]);
                }
            }
            other[usize::from(found.len)..end].copy_from_slice(&numbers[usize::from(found.len)..end]);
            assert_eq!(skeleton(&other), Some(found));
            assert_eq!(decoded(&other), wanted, "{first:02x?} {other:02x?}");
            // Small numbers that are not keyed.
            let last = usize::from(found.len) - 1;
            let mut small = first.clone();
            small[last] ^= 1 << (random() % 8);
            if skeleton(&small).is_some_and(|s| s == found) {
                assert_eq!(decoded(&small), wanted, "{first:02x?} {small:02x?}");
            }
            compared += 1;
        }
        assert!(compared > 1_000_000, "{compared}");
    }

    /// What the code of a real program is made of.
    #[test]
    fn nearly_all_instructions_have_one() {
        use object::{Object, ObjectSection};
        let file = std::fs::read("/proc/self/exe").unwrap();
        let elf = object::File::parse(&*file).unwrap();
        let text = elf.section_by_name(".text").unwrap();
        let (bytes, mut all, mut some) = (&text.data().unwrap()[..200_000], 0, 0);
        let mut decoder = Decoder::with_ip(64, bytes, 0x1000, DecoderOptions::NONE);
        while decoder.can_decode() {
            let at = decoder.position();
            let insn = decoder.decode();
            all += 1;
            if let Some(found) = skeleton(&bytes[at..]) {
                some += 1;
                assert!(insn.is_invalid() || insn.len() == usize::from(found.len), "{:02x?}", &bytes[at..at + 15]);
                if insn.is_ip_rel_memory_operand() {
                    assert!(found.ip_relative && found.disp32 != 0);
                }
            }
        }
        assert!(some * 10 > all * 9, "{some} of {all}");
    }
}
