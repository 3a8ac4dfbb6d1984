//! One byte for each byte of code: what is known of it while code is sought.
//!
//! Purpose: [`crate::decode::explore::Explorer`] decodes each instruction once; what its list needs of it (length, how control leaves it, where a direct
//! branch leads) is kept here, so that no instruction is decoded again for the list. A branch's target is read from its last bytes.
//! Invariant: a byte where an instruction starts keeps its mark; a byte inside one may become the start of another one (code
//! that overlaps). Source: SDM volume 2, appendix A (relative branches end with their displacement).

use crate::base::addresses::Vaddr;
use crate::decode::classify::{direct_target, flow_of};
use crate::decode::insn::Flow;
use iced_x86::Instruction;

/// What is known of one byte. Low half: the length of the instruction that starts here; high half: how it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mark(u8);

/// How an instruction ends, with the width of its branch displacement: index into this is the upper half of a [`Mark`]. The widest first: in
/// front of a narrow one stand bytes that no wide one that leads to the same place has.
const ENDS: [(Flow, Displacement); 12] = [
    (Flow::Next, Displacement::None),
    (Flow::Cond, Displacement::Word),
    (Flow::Cond, Displacement::Byte),
    (Flow::Cond, Displacement::Half),
    (Flow::Jmp, Displacement::None),
    (Flow::Jmp, Displacement::Word),
    (Flow::Jmp, Displacement::Byte),
    (Flow::Call, Displacement::Word),
    (Flow::IndirectJmp, Displacement::None),
    (Flow::IndirectCall, Displacement::None),
    (Flow::Ret, Displacement::None),
    (Flow::Stop, Displacement::None),
];

/// A bit for each of [`ENDS`] behind which control may go on.
const GOES_ON: u16 = {
    let (mut bits, mut k) = (0, 0);
    while k < ENDS.len() {
        if matches!(ENDS[k].0, Flow::Next | Flow::Cond | Flow::Call | Flow::IndirectCall) {
            bits |= 1 << k;
        }
        k += 1;
    }
    bits
};
const _: () = assert!(matches!(ENDS[0], (Flow::Next, Displacement::None)));

/// Of a direct branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Displacement {
    None,
    /// 8 bits.
    Byte,
    /// 16 bits: `xbegin` with an operand-size prefix.
    Half,
    /// 32 bits.
    Word,
}

impl Mark {
    /// Not known to be code.
    pub const UNKNOWN: Mark = Mark(0);
    /// Inside an instruction.
    pub const INSIDE: Mark = Mark(0xff);

    /// `insn`, whose bytes are `bytes`, starts here.
    pub fn start(insn: &Instruction, bytes: &[u8]) -> Mark {
        let flow = flow_of(insn);
        if flow == Flow::Next {
            return Mark(insn.len() as u8);
        }
        let target = direct_target(insn);
        let next = Vaddr(insn.next_ip());
        let kind = ENDS.iter().position(|e| e.0 == flow && displaced(e.1, next, bytes) == target);
        Mark((kind.expect("64-bit code has no other branches") as u8) << 4 | insn.len() as u8)
    }

    /// The length of the instruction that starts here, if one does.
    #[inline]
    pub fn len(self) -> Option<usize> {
        (self != Mark::UNKNOWN && self != Mark::INSIDE).then_some(usize::from(self.0 & 15))
    }

    /// The same of what is known to be a start.
    #[inline]
    pub fn bytes(self) -> u8 {
        self.0 & 15
    }

    /// How control leaves the instruction that starts here.
    #[inline]
    pub fn flow(self) -> Flow {
        ENDS[usize::from(self.0 >> 4)].0
    }

    /// Whether control only ever goes on behind the instruction that starts here: [`Flow::Next`].
    #[inline]
    pub fn only_goes_on(self) -> bool {
        self.0 < 1 << 4
    }

    /// Whether control may go on behind it.
    #[inline]
    pub fn may_go_on(self) -> bool {
        GOES_ON >> (self.0 >> 4) & 1 != 0
    }

    /// Where the instruction that starts here branches directly. `next`: the address behind it; `bytes` end there.
    #[inline]
    pub fn target(self, next: Vaddr, bytes: &[u8]) -> Option<Vaddr> {
        displaced(ENDS[usize::from(self.0 >> 4)].1, next, bytes)
    }

    /// Whether [`Mark::target`] may give one.
    #[inline]
    pub fn branches(self) -> bool {
        ENDS[usize::from(self.0 >> 4)].1 != Displacement::None
    }
}

#[inline]
fn displaced(width: Displacement, next: Vaddr, bytes: &[u8]) -> Option<Vaddr> {
    match width {
        Displacement::None => None,
        Displacement::Byte => bytes.last().map(|b| next + i64::from(*b as i8) as u64),
        Displacement::Half => bytes.last_chunk().map(|b| next + i64::from(i16::from_le_bytes(*b)) as u64),
        Displacement::Word => bytes.last_chunk().map(|b| next + i64::from(i32::from_le_bytes(*b)) as u64),
    }
}

/// The marks of one section.
#[derive(Debug)]
pub struct Marks {
    pub va: Vaddr,
    pub list: Vec<Mark>,
    /// How many instructions start in it.
    pub starts: usize,
    /// A bit for each byte: an instruction starts there that may be out of step with the code.
    soft: Vec<u64>,
}

/// Most bytes of an instruction.
const LONGEST: usize = 15;

impl Marks {
    /// Nothing known of `bytes` bytes at `va`.
    pub fn new(va: Vaddr, bytes: usize) -> Marks {
        Marks { va, list: vec![Mark::UNKNOWN; bytes], starts: 0, soft: Vec::new() }
    }

    /// Where the instruction starts that is the last of `count` in front of `at`, as far as they follow each other, and how many there are.
    pub fn back(&self, mut at: usize, count: usize) -> (usize, usize) {
        for n in 0..count {
            let before = (1..=LONGEST.min(at)).find(|len| self.list[at - len].len() == Some(*len));
            let Some(len) = before else { return (at, n) };
            at -= len;
        }
        (at, count)
    }

    /// Says that the instruction at `at` may be out of step with the code.
    pub fn set_soft(&mut self, at: usize) {
        if self.soft.is_empty() {
            self.soft = vec![0; self.list.len().div_ceil(64)];
        }
        self.soft[at / 64] |= 1 << (at % 64);
    }

    /// Whether the byte lies inside instructions, each of which may be out of step with the code.
    pub fn inside_soft(&self, at: usize) -> bool {
        let covers = |from: &usize| self.list[*from].len().is_some_and(|len| len > at - from);
        let is_soft = |from: usize| self.soft.get(from / 64).is_some_and(|word| word >> (from % 64) & 1 != 0);
        self.list[at] == Mark::INSIDE && (at.saturating_sub(LONGEST - 1)..at).filter(covers).all(is_soft)
    }

    /// Notes that an instruction with this mark starts at offset `at`, where none did before.
    #[inline]
    pub fn record(&mut self, at: usize, mark: Mark) {
        let end = at + usize::from(mark.bytes());
        self.list[at] = mark;
        self.starts += 1;
        let put = |i: usize, inside: bool, inner: &mut Mark| {
            inner.0 |= if i != 0 && inside && *inner == Mark::UNKNOWN { Mark::INSIDE.0 } else { 0 };
        };
        // As many as the longest instruction has, at once: how many it has is hard to foresee for a processor.
        match self.list[at..].first_chunk_mut::<16>() {
            Some(bytes) => bytes.iter_mut().enumerate().for_each(|(i, inner)| put(i, i < end - at, inner)),
            None => self.list[at..end].iter_mut().enumerate().for_each(|(i, inner)| put(i, true, inner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions};

    /// Each instruction's mark says what its decoding says.
    #[test]
    fn marks_say_what_decoding_says() {
        let codes: [&[u8]; 19] = [
            &[0x90],
            &[0x74, 0x10],
            &[0x2e, 0x75, 0x80],
            &[0x0f, 0x84, 0, 1, 2, 3],
            &[0xeb, 0xfe],
            &[0xf2, 0xe9, 1, 2, 3, 0xff],
            // Both displacements lead to the same place.
            &[0xe9, 0xff, 0xff, 0xff, 0xff],
            &[0xe8, 5, 0, 0, 0],
            // The operand-size prefix does not shorten it.
            &[0x66, 0xe8, 5, 0, 0, 0],
            &[0xe2, 0xf0],
            &[0xe3, 0x01],
            &[0xc7, 0xf8, 7, 0, 0, 0],
            &[0x66, 0xc7, 0xf8, 7, 0x80],
            &[0xff, 0xe0],
            &[0xff, 0x15, 1, 2, 3, 4],
            &[0xc3],
            &[0x0f, 0x0b],
            &[0x0f, 0x05],
            &[0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x02, 0x00, 0x00],
        ];
        for code in codes {
            let insn = Decoder::with_ip(64, code, 0x40_1000, DecoderOptions::NONE).decode();
            assert!(!insn.is_invalid() && insn.len() == code.len(), "{code:x?}");
            let mut marks = Marks::new(Vaddr(0x40_1000), code.len());
            marks.record(0, Mark::start(&insn, code));
            let mark = marks.list[0];
            assert_eq!(mark.len(), Some(code.len()));
            assert_eq!(mark.flow(), flow_of(&insn), "{code:x?}");
            assert_eq!(mark.target(Vaddr(insn.next_ip()), code), direct_target(&insn), "{code:x?}");
            assert_eq!(mark.branches(), direct_target(&insn).is_some());
            assert!(marks.list[1..].iter().all(|m| *m == Mark::INSIDE));
        }
    }

    /// The longest instruction with the highest kind is no byte inside an instruction.
    #[test]
    fn no_start_looks_like_another_mark() {
        for kind in 0..ENDS.len() as u8 {
            for len in 1..16 {
                let mark = Mark(kind << 4 | len);
                assert_eq!(mark.len(), Some(usize::from(len)));
            }
        }
    }
}
