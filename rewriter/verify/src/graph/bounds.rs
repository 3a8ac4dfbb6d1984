//! How many entries of a jump table a jump can read, proven from the new code alone.
//!
//! Input: the way back ([`Finder`]), the instruction that reads the table. Output: a number that the index is always below. The way back to the
//! read is followed as long as there is only one, inserted code left out: what the index is copied from, masks, loads of narrow values,
//! both values of a conditional move, sums with a constant, and the comparison (`cmp i, n; ja default`) that has to be passed. Nothing is taken over from the rewriter, which believes the same
//! forms. **Invariant**: without a proof there is no number. Source: SDM volume 2 (flags and zero extension of each instruction), `DESIGN.md`, "Jump tables".

use crate::decode::effects::{AccessKind, Flow, Touch, bit};
use crate::decode::insn::{ADDR32, GS, Insn, Mem, NONE, REP, RIP, VECTOR, WIDE};
use crate::graph::trace::Finder;
use crate::sites::site::get;

/// Most instructions between the read and the proof, inserted ones included.
const DISTANCE: usize = 400;

/// Most conditional moves and sums on the way.
const SPLITS: u32 = 4;

/// What holds the index.
#[derive(Clone, Copy)]
enum Holder {
    Register(u8),
    Memory(Mem),
}

/// What an instruction puts into the register that holds the index.
enum Source {
    /// So many low bits of something.
    Of(Holder, u32),
    /// Less than this.
    Below(u64),
    /// What it held, or what this register does.
    Either(u8),
    /// A register and a number below 2^31.
    Sum(u8, u64),
}

impl Finder<'_> {
    /// A number of entries that the index of `read` is below, where the entries have `width` bytes.
    pub(crate) fn bound(&self, read: usize, width: usize) -> Option<u64> {
        let m = self.text.insns[read].mem?;
        if m.index >= 16 || usize::from(m.scale) != width {
            return None;
        }
        self.bound_before(read, m.index, SPLITS)
    }

    /// A number that a register is below before an instruction.
    fn bound_before(&self, read: usize, register: u8, splits: u32) -> Option<u64> {
        let mut holder = Holder::Register(register);
        let mut bits = 64;
        let mut limit: Option<u64> = None;
        let least = |limit: Option<u64>, n: u64| Some(limit.map_or(n, |l| l.min(n)));
        // A condition that only holds when what was compared is below the immediate plus this.
        let mut passed: Option<u64> = None;
        let mut here = read;
        for _ in 0..DISTANCE {
            let before = self.before(here);
            let &[at] = before.as_slice() else { return limit };
            if get(&self.entries, here) {
                return limit;
            }
            let i = &self.text.insns[at];
            let from = std::mem::replace(&mut here, at);
            if get(&self.sites.inserted, at) {
                continue;
            }
            match i.flow {
                Flow::Cond => {
                    let taken = i.target == self.text.insns[from].va;
                    if taken && i.end() == i.target {
                        return limit;
                    }
                    passed = match (i.op & 15, taken, matches!(i.op, 0x70..=0x7f | 0x180..=0x18f)) {
                        (0x7, false, true) | (0x6, true, true) => Some(1),
                        (0x3, false, true) | (0x2, true, true) => Some(0),
                        _ => passed,
                    };
                    continue;
                }
                Flow::Jump | Flow::Next => {}
                Flow::JumpInd | Flow::Call | Flow::CallInd | Flow::Ret | Flow::Stop => return limit,
            }
            if let Some(more) = passed
                && may_write_flags(i)
            {
                if let Some(n) = self.compared(at, holder, bits) {
                    return least(limit, n.checked_add(more)?);
                }
                passed = None;
            }
            match holder {
                Holder::Register(r) if i.fx.writes & bit(r) != 0 => {
                    let of;
                    (holder, of) = match source(i, r, self.m.is_guarded()) {
                        Some(Source::Of(h, of)) => (h, of),
                        Some(Source::Below(n)) => return least(limit, n),
                        Some(Source::Either(other)) => {
                            let of = |r| self.bound_before(at, r, splits.checked_sub(1)?);
                            let both = of(r).and_then(|n| Some(n.max(of(other)?)));
                            return both.map_or(limit, |n| least(limit, n));
                        }
                        Some(Source::Sum(base, more)) => {
                            let n = splits.checked_sub(1).and_then(|left| self.bound_before(at, base, left));
                            return n.and_then(|n| n.checked_add(more)).map_or(limit, |n| least(limit, n));
                        }
                        None => return limit,
                    };
                    bits = of.min(bits);
                    if bits < 32 {
                        limit = least(limit, 1 << bits);
                    }
                }
                Holder::Memory(m) if may_change(i, &m) => return limit,
                _ => {}
            }
        }
        limit
    }

    /// The number that the low `bits` bits of the holder are compared with.
    fn compared(&self, at: usize, holder: Holder, bits: u32) -> Option<u64> {
        let i = &self.text.insns[at];
        let compares = matches!(i.op, 0x3c | 0x3d) || (matches!(i.op, 0x80 | 0x81 | 0x83) && i.ext == 7);
        let width = match (holder, &i.mem) {
            (Holder::Register(r), None) if i.r0 == r => 8 * u32::from(i.r0_bytes),
            (Holder::Memory(m), Some(n)) if m == self.of_program(*n) => 8 * u32::from(i.size),
            _ => return None,
        };
        if !compares || !matches!(width, 8 | 16 | 32 | 64) {
            return None;
        }
        let all = bits <= width
            || match holder {
                Holder::Register(r) => self.is_zero_above(at, r, width),
                Holder::Memory(_) => false,
            };
        all.then(|| i.imm as u64 & (u64::MAX >> (64 - width)))
    }

    /// Memory as the program names it: guarded code tests what it reaches by the alias.
    fn of_program(&self, m: Mem) -> Mem {
        if self.m.is_guarded() && m.seg == GS { Mem { seg: 0, ..m } } else { m }
    }

    /// Whether the bits from `width` on are zero in a register, whatever wrote it.
    fn is_zero_above(&self, at: usize, r: u8, width: u32) -> bool {
        self.definitions(at, r).is_some_and(|defs| {
            !defs.is_empty()
                && defs.iter().all(|&d| {
                    let i = &self.text.insns[d];
                    let bytes = match i.op {
                        0x1b6 => 1,
                        0x1b7 => 2,
                        // Exchanges write what they name second, or write only sometimes; `lar`, `lsl`, `bsf` and `bsr` do not always write.
                        0x86 | 0x87 | 0x90..=0x97 | 0x102 | 0x103 | 0x1b0 | 0x1b1 | 0x1bc | 0x1bd | 0x1c0 | 0x1c1 => {
                            return false;
                        }
                        _ => 4,
                    };
                    i.r0 == r && i.r0_bytes == 4 && 8 * bytes <= width
                })
        })
    }
}

/// What an instruction that writes `r` puts into it. `guarded`: what has the prefix of the alias is the program's memory.
fn source(i: &Insn, r: u8, guarded: bool) -> Option<Source> {
    if i.op == 0x98 && i.has(WIDE) {
        return Some(Source::Of(Holder::Register(r), 32)).filter(|_| r == 0);
    }
    if i.r0 != r || i.r0_bytes < 4 || i.has(ADDR32) {
        return None;
    }
    let seg = |m: Mem| if guarded && m.seg == GS { 0 } else { m.seg };
    let read = i.mem.map(|m| Mem { seg: seg(m), ..m });
    let read = read.filter(|m| m.seg == 0 && i.touch == Touch::Mem(AccessKind::Load) && m.index != VECTOR);
    let from = |bits: u32| match read {
        Some(m) => Some(Source::Of(Holder::Memory(m), bits)),
        None => (i.mem.is_none() && i.r1 < 16).then_some(Source::Of(Holder::Register(i.r1), bits)),
    };
    match i.op {
        0x89 | 0x8b => from(8 * u32::from(i.r0_bytes)),
        0x63 => from(32),
        0x1b6 => from(8),
        0x1b7 => from(16),
        // `and`.
        0x25 | 0x81 | 0x83 if (i.op == 0x25 || i.ext == 4) && (0..1 << 31).contains(&i.imm) => {
            Some(Source::Below(i.imm as u64 + 1))
        }
        // `cmovcc` of two registers.
        0x140..=0x14f if i.mem.is_none() && i.r1 < 16 => Some(Source::Either(i.r1)),
        // `lea` of a register and a distance.
        0x8d => {
            let m = i.mem.filter(|m| m.base < 16 && m.index == NONE && (0..1 << 31).contains(&m.disp))?;
            Some(Source::Sum(m.base, m.disp as u64))
        }
        _ => None,
    }
}

/// Whether an instruction may write status flags: shifts by nothing do not.
fn may_write_flags(i: &Insn) -> bool {
    let shifts = matches!(i.op, 0xc0 | 0xc1 | 0xd2 | 0xd3 | 0x1a4 | 0x1a5 | 0x1ac | 0x1ad);
    i.fx.flag_kills != 0 || shifts || i.has(REP)
}

/// Whether an instruction may change that memory, or what its address is formed from.
fn may_change(i: &Insn, m: &Mem) -> bool {
    let stores = !matches!(i.touch, Touch::None | Touch::Mem(AccessKind::Load) | Touch::Lanes(AccessKind::Load))
        || matches!(i.op, 0x50..=0x57 | 0x68 | 0x6a | 0x9c);
    let moves = |r: u8| r != NONE && r != RIP && (r >= 16 || i.fx.writes & bit(r) != 0);
    stores || moves(m.base) || moves(m.index)
}
