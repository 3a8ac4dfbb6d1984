//! How much bytes look like code: evidence in bits.
//!
//! Input: bytes that stay where they were, and what is known around them. Output: [`Suspect`]s: chains of instructions that are more probably code
//! than data. The evidence of a chain is the binary logarithm of how much more often compilers and assembly programmers write such instructions
//! than evenly distributed bytes would contain them; under even bytes a chain of B bits begins at an address with a probability of at most
//! 2^-B. Only prefixes, opcodes and where an instruction leads count; registers and numbers do not.
//!
//! A chain ends in a return, a jump, a trap, a call that may not return, or in code that moved. What user programs do not contain, what leads into the middle
//! of an instruction that moved, or names an address outside the file, is in no chain.
//!
//! [`ONE_BYTE`] and [`TWO_BYTES`] were measured: shares of opcodes among 3.5 million instructions of bash, python3.11, libstdc++, libcrypto, libc,
//! libavcodec and ripgrep, each file weighing the same. **Invariant**: independent of how the rewriter finds code.
//! Instructions are read from their encoding alone ([`Raw`]), a twentieth of what Capstone takes: one may begin at each byte.
//! Source: SDM volume 2, appendix A (opcode maps).

use crate::decode::effects::{Flow, flow};
use crate::decode::raw::{Enc, PP_F3, Raw};
use std::ops::Range;

/// From so much evidence on a chain is a suspect. Measured: no data in the code of libcrypto (183 KB of them), libgcrypt, nettle, freebl, dav1d, x264 or GMP has
/// more than 16 bits; 300 KB of Free Pascal's compiler that nothing had found were chains of 24 to 1,400 bits, and so was what nothing calls in libavcodec and gnutls.
const SUSPECT_BITS: i32 = 24;
/// The same for a chain that fills all that stands between padding or code that moved: data rarely ends where a return does.
const FILLING_BITS: i32 = 8;
/// Chains with at most so many bytes between them are one suspect.
const GAP_BYTES: u64 = 16;
/// Not in any chain.
const NEVER: i32 = i32::MIN / 2;
/// What may stand in either.
const NEUTRAL: i32 = 0;
/// endbr64: all of its four bytes are given.
const ENDBR_BITS: i32 = 20;
/// Of legal instructions that are rare: without a table, by map.
const RARE_ONE_BYTE: i32 = -5;
const RARE_TWO_BYTES: i32 = 1;
const THREE_BYTES: i32 = 8;
const VEX: i32 = 4;
const EVEX: i32 = 3;
/// A prefix REX with W, another one, none.
const REX_W: i32 = 4;
const REX: i32 = 2;
const NO_REX: i32 = -1;
/// A legacy prefix that says nothing about the operands' kind.
const ODD_PREFIX: i32 = -4;
/// A branch with a distance of one byte that leads to where an instruction may begin, and one of four bytes that leads into other bytes that did not move.
const SHORT_BRANCH: i32 = 1;
const BRANCH_TO_UNMOVED: i32 = 8;

/// Opcodes of one byte: bits, and those that have them.
const ONE_BYTE: [(i8, &[u8]); 10] = [
    (5, &[0x89, 0x8b]),
    (4, &[0x83, 0x8d, 0xe8]),
    (3, &[0x31, 0x74, 0x85, 0xe9]),
    (2, &[0x39, 0x75, 0xc1, 0xc3, 0xc7, 0xeb, 0xff]),
    (1, &[0x01, 0x29, 0x53, 0x55, 0x5b, 0x5d, 0x63, 0x80, 0x81, 0xb8, 0xba, 0xbe, 0xbf]),
    (0, &[0x54, 0x56, 0x5c, 0x5e, 0x5f, 0x84, 0x88, 0xb9, 0xc6, 0xd3, 0xf6, 0xf7]),
    (-1, &[0x03, 0x09, 0x21, 0x2b, 0x3b, 0x3c, 0x3d, 0x57, 0x6a, 0x72, 0x73, 0x7e, 0x7f]),
    (-2, &[0x38, 0x50, 0x5a, 0x69, 0x76, 0x77, 0x78, 0x8a, 0x98, 0xa8, 0xb0, 0xbb, 0xbd, 0xd1]),
    (-3, &[0x00, 0x19, 0x25, 0x33, 0x51, 0x58, 0x59, 0x79, 0x7c, 0x7d, 0xbc, 0xc0]),
    (-4, &[0x05, 0x08, 0x0b, 0x11, 0x20, 0x3a, 0x52, 0x6b, 0x87, 0x99, 0xa9, 0xab]),
];

/// The same behind 0F.
const TWO_BYTES: [(i8, &[u8]); 8] = [
    (11, &[0x84]),
    (10, &[0x85]),
    (9, &[0xb6]),
    (8, &[0x10, 0x11, 0x1e, 0x1f, 0x29, 0x6f]),
    (7, &[0x0b, 0x28, 0x82, 0x83, 0x87, 0x88, 0x8e, 0x8f, 0x94, 0xaf, 0xb7, 0xef]),
    (6, &[0x44, 0x45, 0x47, 0x59, 0x6e, 0x86, 0x95, 0xbe, 0xbf]),
    (5, &[0x46, 0x4f, 0x58, 0x6c, 0x74, 0x7e, 0x7f, 0x89, 0x8c, 0x8d, 0xbc, 0xc8, 0xd7, 0xfc]),
    (4, &[0x05, 0x2a, 0x42, 0x48, 0x4e, 0x57, 0x5c, 0x70, 0x72, 0x73, 0x9f, 0xb1, 0xc1, 0xca, 0xdb, 0xdf, 0xeb, 0xfe]),
];

/// A stretch of bytes that stay where they were.
pub struct Run<'a> {
    pub va: u64,
    pub bytes: &'a [u8],
    /// Addresses in it that code certainly reads, ascending.
    pub read: Vec<Range<u64>>,
}

/// What is known around such stretches.
pub struct Around<'x> {
    /// Addresses that the file has in memory.
    pub mapped: Range<u64>,
    /// Whether an instruction that moved begins at an address.
    pub begins: &'x dyn Fn(u64) -> bool,
    /// How many do.
    pub moved: u64,
}

/// Bytes that stay where they were and read as code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    pub va: u64,
    pub bytes: u64,
    /// Bits of evidence.
    pub bits: u32,
}

/// Bytes between code that are never executed, or do nothing.
pub fn is_filler(byte: u8) -> bool {
    matches!(byte, 0 | 0x90 | 0xcc)
}

/// The suspects in `runs`, which ascend.
pub fn suspects(runs: &[Run], around: &Around) -> Vec<Suspect> {
    let tables = Tables::new();
    let unmoved = |va: u64| {
        let k = runs.partition_point(|r| r.va <= va);
        runs[..k].last().is_some_and(|r| va - r.va < r.bytes.len() as u64)
    };
    let mut all: Vec<Suspect> = Vec::new();
    for run in runs.iter().filter(|r| r.bytes.iter().any(|&b| !is_filler(b))) {
        let chains = Chains::of(run, around, &tables, &unmoved);
        for s in chains.suspects(run) {
            match all.last_mut() {
                Some(last) if s.va - (last.va + last.bytes) <= GAP_BYTES && last.va >= run.va => {
                    last.bytes = s.va + s.bytes - last.va;
                    last.bits = last.bits.saturating_add(s.bits);
                }
                _ => all.push(s),
            }
        }
    }
    all
}

/// The bits of each opcode.
struct Tables {
    one: [i8; 256],
    two: [i8; 256],
}

impl Tables {
    fn new() -> Tables {
        let mut tables = Tables { one: [RARE_ONE_BYTE as i8; 256], two: [RARE_TWO_BYTES as i8; 256] };
        for (table, list) in [(&mut tables.one, &ONE_BYTE[..]), (&mut tables.two, &TWO_BYTES[..])] {
            for &(bits, opcodes) in list {
                opcodes.iter().for_each(|&op| table[usize::from(op)] = bits);
            }
        }
        tables
    }
}

/// The best chain from each byte of a run on.
struct Chains {
    /// By offset: bits, and the offset behind its last instruction.
    best: Vec<(i32, usize)>,
}

impl Chains {
    fn of(run: &Run, around: &Around, tables: &Tables, unmoved: &dyn Fn(u64) -> bool) -> Chains {
        let n = run.bytes.len();
        let mut best = vec![(NEVER, 0); n + 1];
        for at in (0..n).rev() {
            let va = run.va + at as u64;
            let Some(i) = Piece::read(&run.bytes[at..], va, tables) else { continue };
            let end = at + i.bytes;
            let behind_va = run.va + end as u64;
            if run.read.iter().any(|r| r.start < behind_va && va < r.end) {
                continue;
            }
            let leads = match i.target {
                None | Some(0) => NEUTRAL,
                Some(t) if (around.begins)(t) => around.branch_bits(i.bytes),
                // What is farther on in the run has been judged.
                Some(t) if (va + 1..run.va + n as u64).contains(&t) && best[(t - run.va) as usize].0 == NEVER => {
                    continue;
                }
                Some(t) if unmoved(t) => {
                    if i.bytes > 4 {
                        BRANCH_TO_UNMOVED
                    } else {
                        SHORT_BRANCH
                    }
                }
                Some(_) => continue,
            };
            let names = match i.names {
                Some(place) if !around.mapped.contains(&place) => continue,
                Some(_) => 32 - bits_of(around.mapped.end - around.mapped.start),
                None => NEUTRAL,
            };
            let own = i.bits + leads + names;
            let behind = best[end];
            let goes_on = match i.flow {
                Flow::Jump | Flow::JumpInd | Flow::Ret | Flow::Stop => Some((0, end)),
                _ if behind.0 != NEVER => Some(behind),
                Flow::Call | Flow::CallInd => Some((0, end)),
                _ if end == n && (around.begins)(behind_va) => Some((0, end)),
                _ => None,
            };
            best[at] = goes_on.map_or((NEVER, 0), |(bits, to)| (own + bits, to));
        }
        best.pop();
        Chains { best }
    }

    /// Chains with enough evidence that do not overlap, the best ones first to choose, by rising address.
    fn suspects(&self, run: &Run) -> Vec<Suspect> {
        let filler = |b: &u8| is_filler(*b);
        let first = run.bytes.iter().take_while(|b| filler(b)).count();
        let last = run.bytes.len() - run.bytes.iter().rev().take_while(|b| filler(b)).count();
        let enough = |at: usize| {
            let (bits, end) = self.best[at];
            bits >= SUSPECT_BITS || (bits >= FILLING_BITS && at <= first && end >= last)
        };
        let mut order: Vec<usize> = (0..self.best.len()).filter(|&at| enough(at)).collect();
        order.sort_by_key(|&at| (std::cmp::Reverse(self.best[at].0), at));
        let mut taken = vec![false; self.best.len()];
        let mut chosen = Vec::new();
        for at in order {
            let (bits, end) = self.best[at];
            if taken[at..end].contains(&true) {
                continue;
            }
            taken[at..end].fill(true);
            chosen.push(Suspect { va: run.va + at as u64, bytes: (end - at) as u64, bits: bits.unsigned_abs() });
        }
        chosen.sort_by_key(|s| s.va);
        chosen
    }
}

impl Around<'_> {
    /// What a branch of so many bytes to where an instruction begins says: how seldom an even distance would lead to one.
    fn branch_bits(&self, bytes: usize) -> i32 {
        if bytes > 4 { 32 - bits_of(self.moved.max(1)) } else { SHORT_BRANCH }
    }
}

/// The binary logarithm, rounded up.
fn bits_of(n: u64) -> i32 {
    (64 - n.saturating_sub(1).leading_zeros()) as i32
}

/// What counts of an instruction.
struct Piece {
    bytes: usize,
    bits: i32,
    flow: Flow,
    /// Where a direct branch leads.
    target: Option<u64>,
    /// The address that it names relative to rip.
    names: Option<u64>,
}

impl Piece {
    /// The instruction that `b` begins with, which stands at `va`; none where that is no instruction of user programs.
    fn read(b: &[u8], va: u64, tables: &Tables) -> Option<Piece> {
        let raw = Raw::parse(b)?;
        let before = raw.bytes_before_imm(b)?;
        let bytes = before + immediate_bytes(&raw);
        let own = b.get(..bytes).filter(|own| own.len() <= 15 && *own != [0, 0])?;
        if is_odd(&raw) {
            return None;
        }
        let behind = va + bytes as u64;
        let flow = flow(&raw);
        let direct = matches!(flow, Flow::Cond | Flow::Jump | Flow::Call);
        let distance = |from: usize, to: usize| match own[from..to] {
            [d] => d as i8 as u64,
            [a, b, c, d] => i32::from_le_bytes([a, b, c, d]) as u64,
            _ => 0,
        };
        let relative = raw.modrm.is_some_and(|m| m & 0xc7 == 5) && !raw.addr32;
        Some(Piece {
            bytes,
            bits: tables.bits(own, &raw),
            flow,
            target: direct.then(|| behind.wrapping_add(distance(before, bytes))),
            names: relative.then(|| behind.wrapping_add(distance(before - 4, before))),
        })
    }
}

/// Bytes of the immediate, or of a branch's distance.
fn immediate_bytes(r: &Raw) -> usize {
    let word = if r.opsize && !r.w { 2 } else { 4 };
    match (r.enc, r.map, r.op) {
        (Enc::Legacy, 0, op) => match op {
            0x00..=0x3f if op & 7 == 4 => 1,
            0x00..=0x3f if op & 7 == 5 => word,
            0x69 | 0x68 | 0x81 | 0xa9 | 0xc7 => word,
            0xb8..=0xbf if r.w => 8,
            0xb8..=0xbf => word,
            0xa0..=0xa3 if r.addr32 => 4,
            0xa0..=0xa3 => 8,
            0xf7 if r.reg() < 2 => word,
            0xe8 | 0xe9 => 4,
            0xc2 => 2,
            0xc8 => 3,
            0x6a | 0x6b | 0x70..=0x7f | 0x80 | 0x83 | 0xa8 | 0xb0..=0xb7 | 0xc0 | 0xc1 | 0xc6 | 0xcd => 1,
            0xe0..=0xe7 | 0xeb => 1,
            0xf6 if r.reg() < 2 => 1,
            _ => 0,
        },
        (Enc::Legacy, 1, 0x80..=0x8f) => 4,
        (_, 1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) => 1,
        (Enc::Legacy, 1, 0xa4 | 0xac | 0xba) => 1,
        (Enc::Legacy, 3, _) | (Enc::Vex | Enc::Evex, 3, _) => 1,
        (Enc::Xop, 8, _) => 1,
        (Enc::Xop, 10, _) => 4,
        _ => 0,
    }
}

impl Tables {
    /// The bits of an instruction by its prefixes and opcode.
    fn bits(&self, bytes: &[u8], raw: &Raw) -> i32 {
        let code = (raw.enc == Enc::Legacy).then_some((raw.map, raw.op));
        if code == Some((1, 0x1e)) && (raw.pp, raw.modrm) == (PP_F3, Some(0xfa)) {
            return ENDBR_BITS;
        }
        if matches!(code, Some((1, 0x1f) | (0, 0x90))) {
            return NEUTRAL;
        }
        let prefixes = bytes.iter().take_while(|b| is_legacy_prefix(**b));
        let odd = prefixes.clone().filter(|b| !matches!(b, 0x66 | 0xf2 | 0xf3)).count();
        let many = prefixes.count().saturating_sub(1).max(odd);
        let rex = match bytes.iter().find(|b| !is_legacy_prefix(**b)) {
            _ if code.is_none() => NEUTRAL,
            Some(0x48..=0x4f) => REX_W,
            Some(0x40..=0x47) => REX,
            _ => NO_REX,
        };
        let opcode = match (raw.enc, raw.map) {
            (Enc::Legacy, 0) => i32::from(self.one[usize::from(raw.op)]),
            (Enc::Legacy, 1) => i32::from(self.two[usize::from(raw.op)]),
            (Enc::Legacy, _) => THREE_BYTES,
            (Enc::Vex, _) => VEX,
            (Enc::Evex, _) => EVEX,
            (Enc::Xop, _) => NEUTRAL,
        };
        opcode + rex + many as i32 * ODD_PREFIX
    }
}

fn is_legacy_prefix(b: u8) -> bool {
    matches!(b, 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x64 | 0x65 | 0x26 | 0x2e | 0x36 | 0x3e)
}

/// What user programs do not contain, or what is no instruction: input and output, what is privileged, far transfers, breakpoints, a lock of what
/// changes no memory, opcodes and extensions that are not defined in 64-bit mode.
fn is_odd(raw: &Raw) -> bool {
    if raw.lock && !may_be_locked(raw) {
        return true;
    }
    match (raw.enc, raw.map) {
        (Enc::Legacy, 0) => match raw.op {
            0x6c..=0x6f | 0xe4..=0xe7 | 0xec..=0xef | 0xca..=0xcd | 0xcf | 0xf1 | 0xf4 | 0xfa | 0xfb => true,
            0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x27 | 0x2f | 0x37 | 0x3f => true,
            0x60..=0x62 | 0x82 | 0x9a | 0xc4 | 0xc5 | 0xce | 0xd4..=0xd6 | 0xea => true,
            0x63 => !raw.w,
            0x8d => raw.reg_form(),
            0x8f | 0xc6 => raw.reg() != 0,
            0xc7 => raw.reg() != 0 && raw.modrm != Some(0xf8),
            0xfe => raw.reg() > 1,
            0xff => matches!(raw.reg(), 3 | 5 | 7),
            _ => false,
        },
        (Enc::Legacy, 1) => matches!(
            raw.op,
            0x00 | 0x02..=0x04 | 0x06..=0x0a | 0x0c | 0x0e | 0x0f | 0x20..=0x27 | 0x30 | 0x32..=0x37 | 0x39 | 0x3b..=0x3f
                | 0x78 | 0x79 | 0xb9 | 0xff
        ),
        (Enc::Vex, map) => !matches!(map, 1..=3) || raw.opsize || raw.lock,
        (Enc::Evex, map) => !matches!(map, 1..=3 | 5 | 6) || raw.opsize || raw.lock,
        _ => false,
    }
}

/// SDM volume 2, LOCK: what changes its operand in memory.
fn may_be_locked(raw: &Raw) -> bool {
    let code = match (raw.enc, raw.map, raw.op) {
        (Enc::Legacy, 0, op @ 0x00..=0x37) => op & 7 < 2,
        (Enc::Legacy, 0, op) => matches!(op, 0x80..=0x83 | 0x86 | 0x87 | 0xf6 | 0xf7 | 0xfe | 0xff),
        (Enc::Legacy, 1, op) => matches!(op, 0xab | 0xb0 | 0xb1 | 0xb3 | 0xba | 0xbb | 0xc0 | 0xc1 | 0xc7),
        _ => false,
    };
    code && !raw.reg_form()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VA: u64 = 0x40_1000;

    fn suspects_of(bytes: &[u8], begins: &[u64]) -> Vec<Suspect> {
        let around = Around { mapped: 0x40_0000..0x41_0000, begins: &|va| begins.contains(&va), moved: 1000 };
        suspects(&[Run { va: VA, bytes, read: Vec::new() }], &around)
    }

    /// `push %rbx; mov %rdi,%rbx; call F; mov (%rbx),%rax; pop %rbx; ret`, F being 256 bytes in front.
    const FUNCTION: [u8; 14] = [0x53, 0x48, 0x89, 0xfb, 0xe8, 0xf7, 0xfe, 0xff, 0xff, 0x48, 0x8b, 0x03, 0x5b, 0xc3];

    #[test]
    fn a_function_is_found_among_zeros_and_behind_data() {
        let alone = [&[0; 8][..], &FUNCTION, &[0; 9]].concat();
        assert_eq!(suspects_of(&alone, &[VA + 8 - 0x100])[..], [Suspect { va: VA + 8, bytes: 14, bits: 44 }][..]);
        let behind = [&[0x06; 8][..], &FUNCTION, &[0x06; 9]].concat();
        assert_eq!(suspects_of(&behind, &[VA + 8 - 0x100])[..], [Suspect { va: VA + 8, bytes: 14, bits: 44 }][..]);
    }

    #[test]
    fn what_leads_between_instructions_is_no_code() {
        assert_eq!(suspects_of(&FUNCTION, &[VA - 0xff]), []);
    }

    #[test]
    fn what_code_reads_is_no_code() {
        let around = Around { mapped: 0x40_0000..0x41_0000, begins: &|va| va == VA - 0x100, moved: 1000 };
        let run = |read: Option<Range<u64>>| Run { va: VA, bytes: &FUNCTION, read: read.into_iter().collect() };
        assert_eq!(suspects(&[run(None)], &around).len(), 1);
        assert_eq!(suspects(&[run(Some(VA + 5..VA + 6))], &around), []);
    }

    /// A function of two instructions between padding, and the same bytes in a table.
    #[test]
    fn a_short_function_must_fill_its_place() {
        let short = [0x48, 0x8b, 0x47, 0x08, 0xc3];
        let alone = [&[0xcc; 3][..], &short, &[0x90; 8]].concat();
        assert_eq!(suspects_of(&alone, &[]).len(), 1);
        let table = [&[0x06, 0x07][..], &short, &[0x06; 8]].concat();
        assert_eq!(suspects_of(&table, &[]), []);
    }

    /// Round constants of SHA-256, its initial state, powers of ten, a message: data as it stands among code.
    #[test]
    fn constants_are_none() {
        let words: [u32; 24] = [
            0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
            0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0x6a09e667, 0xbb67ae85,
            0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
        ];
        let hashes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        assert_eq!(suspects_of(&hashes, &[]), []);
        let tens: Vec<u8> = (0..22).flat_map(|k| 10f64.powi(k).to_le_bytes()).collect();
        assert_eq!(suspects_of(&tens, &[]), []);
        let small: Vec<u8> = (0..64u32).flat_map(u32::to_le_bytes).collect();
        assert_eq!(suspects_of(&small, &[]), []);
        assert_eq!(suspects_of(b"Montgomery Multiplication for x86_64, written as an example of a message\0", &[]), []);
    }
}
