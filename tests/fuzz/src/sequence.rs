//! Random sequences of instructions, original and rewritten.
//!
//! Input: bytes from a fuzzer, from which [`Sequence`] is made: straight code, skips, a loop, and a state to begin with. [`check`] rewrites the
//! sequence, audits the output, runs both and compares registers, flags and memory. It panics with a listing when they differ.
//! Flags that the last instructions leave undefined are not compared, and no instruction reads them (SDM volume 1, appendix A).

use crate::instruction::{self, INDICES, Roles};
use crate::machine::{self, End, HIGH, PRIVATE, REGION, SHARED, STACK_TOP, State};
use arbitrary::{Arbitrary, Result, Unstructured};
use blizzard::options::{Checks, Options, Poll};
use blizzard::pipeline;
use blizzard::verify::{self, Finding};
use blizzard_rt::abi;
use iced_x86::{Decoder, DecoderOptions, EncodingKind, Formatter, IntelFormatter, RflagsBits};
use std::path::PathBuf;
use std::{fmt, fs};

/// What the audit says of instructions that Capstone does not know, or not in this encoding.
const NOT_READ: [&str; 3] = ["do not decode", "no check form is known", "access that the audit does not know"];
const LONGEST: usize = 24;
const STATUS: u64 = 0x8d5;

/// One test.
#[derive(Clone)]
pub struct Sequence {
    pub code: Vec<u8>,
    state: State,
    /// Status flags that are undefined at the end.
    undefined: u32,
    options: Options,
    red_zone: bool,
}

/// What became of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both ran to the end, and agree.
    Same,
    /// Both were ended by the same signal.
    SameSignal,
    /// As [`Verdict::Same`], but the audit could not read the output.
    SameNotAudited,
    /// The rewriter refuses the sequence.
    Refused,
}

impl<'a> Arbitrary<'a> for Sequence {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Sequence> {
        let roles = roles(u)?;
        let state = state(u, &roles)?;
        let mut options = Options {
            checks: *u.choose(&[Checks::All, Checks::All, Checks::All, Checks::Loads, Checks::Stores, Checks::None])?,
            poll: *u.choose(&[Poll::Backedge, Poll::Backedge, Poll::None])?,
            ..Options::default()
        };
        let mut code = Vec::new();
        let mut undefined = 0;
        // A jump behind the next instructions: its displacement's place, and how many they are.
        let mut skip: Option<(usize, u32)> = None;
        let mut head = None;
        for _ in 0..u.int_in_range(1..=LONGEST)? {
            if skip.is_none() && u.ratio(1, 10)? {
                let condition = u.int_in_range(0..=15u8)?;
                // Parity, overflow, ...: each reads some flags.
                if undefined == 0 {
                    code.extend([0x70 | condition, 0]);
                    skip = Some((code.len(), u.int_in_range(1..=4)?));
                }
            }
            if head.is_none() && skip.is_none() && u.ratio(1, 12)? {
                head = Some(code.len());
            }
            let (at, before) = (machine::sequence_at() + code.len() as u64, undefined);
            if let Some(bytes) = instruction::make(u, &roles, at, &mut undefined)? {
                code.extend(bytes);
            }
            // Where several paths meet, what one of them leaves undefined is.
            if skip.is_some() || head.is_some() {
                undefined |= before;
            }
            if let Some((at, left)) = &mut skip {
                *left -= 1;
                if *left == 0 {
                    code[*at - 1] = (code.len() - *at) as u8;
                    skip = None;
                }
            }
            if let Some(to) = head
                && skip.is_none()
                && u.ratio(1, 4)?
                && undefined == 0
            {
                close_loop(&mut code, to, roles.counter);
                head = None;
                // sub defines all status flags.
                undefined = 0;
                if u.arbitrary()? {
                    break;
                }
            }
        }
        if let Some((at, _)) = skip {
            code[at - 1] = (code.len() - at) as u8;
        }
        options.screens = !u.arbitrary::<bool>()?;
        Ok(Sequence { code, state, undefined, options, red_zone: roles.red_zone })
    }
}

/// `sub counter, 1 ; jg head`, which a counter that is not positive leaves at once.
fn close_loop(code: &mut Vec<u8>, head: usize, counter: u8) {
    code.extend([0x48 | counter >> 3, 0x83, 0xe8 | counter & 7, 1]);
    let distance = head as i64 - (code.len() as i64 + 6);
    code.extend([0x0f, 0x8f]);
    code.extend((distance as i32).to_le_bytes());
}

fn roles(u: &mut Unstructured) -> Result<Roles> {
    let mut order: Vec<u8> = (0..16).filter(|r| *r != 4).collect();
    for at in 0..7 {
        let other = u.int_in_range(at..=order.len() - 1)?;
        order.swap(at, other);
    }
    let mut roles = Roles {
        pointers: [order[0], order[1], order[2], order[3]],
        low: u.int_in_range(0..=4)?,
        high: u.int_in_range(0..=2)?,
        small: [order[4], order[5]],
        counter: order[6],
        red_zone: u.arbitrary()?,
    };
    // String instructions need these.
    if u.ratio(1, 3)? {
        let place = |order: &mut Vec<u8>, at: usize, r: u8| {
            let from = order.iter().position(|o| *o == r).expect("all but rsp");
            order.swap(at, from);
        };
        place(&mut order, 0, 6);
        place(&mut order, 1, 7);
        place(&mut order, 4, 1);
        roles.pointers = [order[0], order[1], order[2], order[3]];
        (roles.small, roles.counter) = ([order[4], order[5]], order[6]);
    }
    Ok(roles)
}

/// SplitMix64: fills what no choice of the fuzzer need decide.
struct Filler(u64);

impl Filler {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn state(u: &mut Unstructured, roles: &Roles) -> Result<State> {
    let mut filler = Filler(u.arbitrary()?);
    let mut gprs = [0; 16];
    for (n, gpr) in gprs.iter_mut().enumerate() {
        *gpr = match roles.pointers.iter().position(|p| usize::from(*p) == n) {
            Some(at) => {
                let region = match at {
                    _ if at < roles.low => PRIVATE,
                    _ if at >= roles.pointers.len() - roles.high => HIGH,
                    _ => SHARED,
                };
                let middle = region + REGION as u64 / 2;
                // Aligned to blocks, near the end of one, or anywhere.
                middle
                    + match u.int_in_range(0..=2)? {
                        0 => 0,
                        1 => u.int_in_range(48..=64u64)?,
                        _ => u.int_in_range(0..=255u64)?,
                    }
            }
            None if roles.small.iter().any(|s| usize::from(*s) == n) => u.int_in_range(0..=16)?,
            None if usize::from(roles.counter) == n => u.int_in_range(0..=4)?,
            None if n == 4 => STACK_TOP - 0x1000 - 8 * u.int_in_range(0..=32)?,
            None => filler.next() >> (filler.next() % 64),
        };
    }
    let mut vectors = [[0; 64]; 32];
    for (n, vector) in vectors.iter_mut().enumerate() {
        for at in (0..64).step_by(8) {
            let value = if INDICES.contains(&(n as u8)) { filler.next() % 128 } else { filler.next() };
            vector[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let mut tags = [[0; REGION / 64]; 2];
    let missing = u.int_in_range(0..=4u64)?;
    for tag in tags.iter_mut().flatten() {
        let raw = filler.next();
        if raw % 4 < missing {
            *tag = [abi::TAG_READONLY, abi::TAG_INVALID, abi::TAG_INVALID, abi::TAG_BUSY][(raw >> 8) as usize % 4];
        }
    }
    Ok(State {
        gprs,
        // The direction flag is set now and then.
        flags: filler.next() & STATUS | u64::from(u.ratio(1, 8)?) << 10 | 0x202,
        vectors,
        masks: std::array::from_fn(|_| filler.next()),
        memory: (0..REGION / 8).flat_map(|_| (filler.next() >> (filler.next() % 64)).to_le_bytes()).collect(),
        tags,
        doorbell: u.arbitrary()?,
    })
}

impl Sequence {
    /// A sequence that was found before. r8 and rsi point into private memory, r9 and rdi into the segment, rax, rcx, rdx and rbp hold small numbers.
    /// The status flags count at the end.
    pub fn known(code: &[u8]) -> Sequence {
        let roles = Roles { pointers: [8, 6, 9, 7], low: 2, high: 0, small: [1, 2], counter: 5, red_zone: false };
        let mut u = Unstructured::new(&[0x5a; 4096]);
        let mut state = state(&mut u, &roles).expect("the bytes suffice");
        (state.gprs[0], state.gprs[5]) = (7, 3);
        Sequence { code: code.to_vec(), state, undefined: 0, options: Options::default(), red_zone: false }
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}, doorbell {}", self.options, self.state.doorbell)?;
        let mut formatter = IntelFormatter::new();
        let at = machine::sequence_at();
        for insn in &mut Decoder::with_ip(64, &self.code, at, DecoderOptions::NONE) {
            let mut text = String::new();
            formatter.format(&insn, &mut text);
            let from = (insn.ip() - at) as usize;
            let bytes: String = self.code[from..from + insn.len()].iter().map(|b| format!("{b:02x}")).collect();
            writeln!(f, "{:#x} {bytes:30} {text}", insn.ip())?;
        }
        write!(f, "{:x?}", self.state.gprs)
    }
}

/// Rewrites, audits, runs and compares. The variable `BLIZZARD_FUZZ_KEEP` names a folder for the files `original` and `rewritten`.
pub fn check(sequence: &Sequence) -> Verdict {
    let original = machine::program(&sequence.code, &sequence.state);
    let rewritten = match pipeline::rewrite(&original, "sequence", &sequence.options) {
        Ok(rewritten) => rewritten.bytes,
        Err(e) if !e.refusals.is_empty() => return Verdict::Refused,
        Err(e) => panic!("{}\n{sequence:?}", e.what),
    };
    if let Some(folder) = std::env::var_os("BLIZZARD_FUZZ_KEEP").map(PathBuf::from) {
        let kept = fs::write(folder.join("original"), &original)
            .and_then(|()| fs::write(folder.join("rewritten"), &rewritten));
        kept.expect("the files can be kept");
    }
    let audited = match verify::verify_with(&rewritten, "sequence", Some(&original)) {
        Ok(audit) if !is_known(&audit.open, &sequence.code) => panic!("{:#?}\n{sequence:?}", audit.open),
        Ok(audit) => audit.open.is_empty(),
        Err(e) => panic!("{}\n{sequence:?}", e.what),
    };
    let ran = |elf: &[u8]| machine::run(elf).expect("processes can be started");
    let (expected, found) = (ran(&original), ran(&rewritten));
    assert_eq!(expected.status, found.status, "{sequence:?}");
    if !expected.is_complete() {
        return Verdict::SameSignal;
    }
    assert!(found.is_complete(), "no result\n{sequence:?}");
    if let Some(what) = difference(&expected, &found, sequence) {
        panic!("{what}\n{sequence:?}");
    }
    if audited { Verdict::Same } else { Verdict::SameNotAudited }
}

/// Whether the audit is known to say this of right output: of what Capstone does not read, with all that follows from it; and of a general
/// register that Capstone has a vector instruction read (vrndscalesd).
fn is_known(open: &[Finding], code: &[u8]) -> bool {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let vectors = decoder.iter().any(|i| matches!(i.encoding(), EncodingKind::VEX | EncodingKind::EVEX));
    open.iter().any(|f| NOT_READ.iter().any(|n| f.reason.contains(n)))
        || open
            .iter()
            .all(|f| vectors && f.reason.starts_with("inserted code changes r") && f.reason.ends_with(", live here"))
}

fn difference(expected: &End, found: &End, sequence: &Sequence) -> Option<String> {
    const NAMES: [&str; 16] =
        ["rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
    for (n, name) in NAMES.iter().enumerate() {
        if expected.gpr(n) != found.gpr(n) {
            return Some(format!("{name} is {:#x} instead of {:#x}", found.gpr(n), expected.gpr(n)));
        }
    }
    let mask = !undefined_flags(sequence.undefined);
    if (expected.flags() ^ found.flags()) & mask != 0 {
        return Some(format!("flags are {:#x} instead of {:#x}", found.flags(), expected.flags()));
    }
    if let Some(at) = first_difference(expected.vectors(), found.vectors()) {
        return Some(format!("vector register {} differs in byte {}", at / 64, at % 64));
    }
    let below = if sequence.red_zone { 128 } else { 0 };
    let (a, b) = (expected.memory(below), found.memory(below));
    for (name, (a, b)) in ["private", "shared", "stack"].iter().zip(a.into_iter().zip(b)) {
        if let Some(at) = first_difference(a, b) {
            return Some(format!("{name} memory differs at {at:#x}: {:#x} instead of {:#x}", b[at], a[at]));
        }
    }
    None
}

fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    a.iter().zip(b).position(|(a, b)| a != b)
}

/// iced's flag bits as those of the flags register.
fn undefined_flags(bits: u32) -> u64 {
    const MAP: [(u32, u64); 6] = [
        (RflagsBits::CF, 1),
        (RflagsBits::PF, 4),
        (RflagsBits::AF, 0x10),
        (RflagsBits::ZF, 0x40),
        (RflagsBits::SF, 0x80),
        (RflagsBits::OF, 0x800),
    ];
    MAP.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, flag)| flag).sum()
}
