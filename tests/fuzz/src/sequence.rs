//! Random sequences of instructions, original and rewritten.
//!
//! Input: bytes from a fuzzer, from which [`Sequence`] is made: straight code, skips, a loop, and a state to begin with; in guarded code also how the sequence is
//! entered, and which instructions runs have learnt of. [`check`] rewrites the sequence, audits the output, runs both and compares where they end ([`crate::compare`]). It panics with a listing when they differ.
//! Flags that the last instructions leave undefined are not compared, and no instruction reads them (SDM volume 1, appendix A).

use crate::audited;
use crate::compare::{Compared, difference};
use crate::instruction::{self, INDICES, Roles};
use crate::machine::{self, Entry, HIGH, PRIVATE, REGION, SHARED, STACK_TOP, State, UNMAPPED};
use arbitrary::{Arbitrary, Result, Unstructured};
use blizzard::base::addresses::Vaddr;
use blizzard::base::learnt::{Knowledge, Object};
use blizzard::base::options::{AccessMode, Checks, Options, Poll};
use blizzard::base::output_file::OutputSink;
use blizzard::pipeline::{self, Request};
use blizzard::write::file::LibraryRecord;
use blizzard_contract as contract;
use iced_x86::{Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter};
use std::ops::Range;
use std::path::PathBuf;
use std::{fmt, fs};

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
    /// Bit N: runs have learnt of instruction N.
    learnt: u32,
}

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both ran to the end, and agree.
    Same,
    /// Both were ended by the same fault, and agree as far as is promised there.
    SameSignal,
    /// Both were ended by the same signal that is no fault: there is nothing to compare.
    Killed,
    /// As [`Verdict::Same`], but there is something in the output that the audit cannot read.
    SameNotAudited,
    /// The rewriter refuses the sequence.
    Refused,
    /// The runtime refuses to carry out an instruction that the rewriter was not shown, for this reason.
    NotCarriedOut(String),
}

impl<'a> Arbitrary<'a> for Sequence {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Sequence> {
        let roles = roles(u)?;
        let mut state = state(u, &roles)?;
        let access = *u.choose(&[AccessMode::Tests, AccessMode::Guard])?;
        let mut learnt = 0;
        if access == AccessMode::Guard {
            state.entry = *u.choose(&[Entry::Plain, Entry::Plain, Entry::Full, Entry::Full, Entry::Made])?;
            learnt = u.arbitrary::<u32>()? & *u.choose(&[0, 0, u32::MAX])?;
        }
        let mut options = Options {
            access,
            checks: *u.choose(&[Checks::All, Checks::All, Checks::All, Checks::Loads, Checks::Stores, Checks::None])?,
            poll: *u.choose(&[Poll::Backedge, Poll::Backedge, Poll::None])?,
            ..passes(u)?
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
            if roles.swaps && u.ratio(1, 12)? {
                code.extend(swap(u, &roles)?);
            }
            let (at, before) = (machine::sequence_at(state.entry) + code.len() as u64, undefined);
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
                if roles.swaps {
                    code.extend(swap(u, &roles)?);
                }
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
        Ok(Sequence { code, state, undefined, options, red_zone: roles.red_zone, learnt })
    }
}

/// Two pointers change places: what a loop accesses is private and shared in turn.
fn swap(u: &mut Unstructured, roles: &Roles) -> Result<Vec<u8>> {
    let [a, b] = [*u.choose(&roles.pointers)?, *u.choose(&roles.pointers)?];
    Ok(vec![0x48 | a >> 3 | b >> 3 << 2, 0x87, 0xc0 | a & 7 | (b & 7) << 3])
}

/// What the rewriter does beyond checks and polls: half of the time all of it, else most of it, in any combination.
fn passes(u: &mut Unstructured) -> Result<Options> {
    if u.ratio(1, 2)? {
        return Ok(Options::default());
    }
    let (off, rare) = (u.arbitrary::<u16>()? & u.arbitrary::<u16>()?, u.arbitrary::<u8>()?);
    let on = |bit: u16| off >> bit & 1 == 0;
    Ok(Options {
        merge: on(0),
        across: on(1),
        ahead: on(2),
        red_zone: on(3),
        strips: on(4),
        copies: on(5),
        place_polls: on(6),
        exports: on(7),
        words: on(8),
        count: rare & 7 == 1,
        blocks: rare & 7 == 2,
        fuel: (rare & 7 == 3).then_some(u64::from(rare >> 3)),
        ..Options::default()
    })
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
        swaps: u.ratio(1, 2)?,
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
    // The pointer that leads nowhere, if one does.
    let nowhere = if u.ratio(1, 16)? { u.int_in_range(0..=3)? } else { usize::MAX };
    for (n, gpr) in gprs.iter_mut().enumerate() {
        *gpr = match roles.pointers.iter().position(|p| usize::from(*p) == n) {
            Some(at) => {
                let region = match at {
                    _ if at < roles.low => PRIVATE,
                    _ if at >= roles.pointers.len() - roles.high => HIGH,
                    _ => SHARED,
                };
                let region = if at == nowhere && region != SHARED { region + UNMAPPED } else { region };
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
            *tag = [contract::TAG_READONLY, contract::TAG_INVALID, contract::TAG_INVALID, contract::TAG_BUSY]
                [(raw >> 8) as usize % 4];
        }
    }
    let mut state = State {
        gprs,
        // The direction flag is set now and then.
        flags: filler.next() & STATUS | u64::from(u.ratio(1, 8)?) << 10 | 0x202,
        vectors,
        masks: std::array::from_fn(|_| filler.next()),
        memory: (0..REGION / 8).flat_map(|_| (filler.next() >> (filler.next() % 64)).to_le_bytes()).collect(),
        tags,
        doorbell: u.arbitrary()?,
        entry: Entry::Plain,
        floats: [0; 512],
    };
    state.floats = floats(&mut filler);
    Ok(state)
}

/// What `fxrstor64` reads (SDM volume 1, 10.5.1): all exceptions are masked, and so none waits, whatever the status words say.
fn floats(filler: &mut Filler) -> [u8; 512] {
    let mut out = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    let raw = filler.next();
    // Any rounding; 24, 53 or 64 bits; bit 6 is always set.
    let precision = [0, 2, 3, 3][raw as usize & 3];
    put(0, &(0x7f | precision << 8 | (raw >> 2 & 3) << 10).to_le_bytes()[..2]);
    // Exceptions, condition codes and top, but neither of the bits that say that an exception waits.
    put(2, &(raw >> 8 & 0x7f7f).to_le_bytes()[..2]);
    // Which registers are in use: all, none, or any.
    put(4, &[[0xff, 0, (raw >> 24) as u8, (raw >> 24) as u8][raw as usize >> 4 & 3]]);
    // Any rounding and exceptions, results and operands that are too small flushed or not.
    put(24, &(0x1f80 | raw >> 32 & 0xe07f).to_le_bytes()[..4]);
    for n in 0..8 {
        let (mantissa, raw) = (filler.next(), filler.next());
        let sign = raw >> 8 & 0x8000;
        let (exponent, mantissa) = match raw & 3 {
            // A number that is neither large nor small.
            0 | 1 => (0x3fff - 32 + (raw >> 32 & 63), mantissa | 1 << 63),
            // As MMX instructions leave it.
            2 => (0x7fff, mantissa),
            // Anything: not a number, no valid encoding, ...
            _ => (raw >> 32 & 0x7fff, mantissa),
        };
        put(32 + 16 * n, &mantissa.to_le_bytes());
        put(40 + 16 * n, &(sign | exponent).to_le_bytes()[..2]);
    }
    out
}

fn known_roles() -> Roles {
    Roles { pointers: [8, 6, 9, 7], low: 2, high: 0, small: [1, 2], counter: 5, red_zone: false, swaps: false }
}

impl Sequence {
    /// A sequence that was found before. r8 and rsi point into private memory, r9 and rdi into the segment, rax, rcx, rdx and rbp hold small numbers.
    /// The status flags count at the end.
    pub fn known(code: &[u8]) -> Sequence {
        let roles = known_roles();
        let mut u = Unstructured::new(&[0x5a; 4096]);
        let mut state = state(&mut u, &roles).expect("the bytes suffice");
        (state.gprs[0], state.gprs[5]) = (7, 3);
        Sequence { code: code.to_vec(), state, undefined: 0, options: Options::default(), red_zone: false, learnt: 0 }
    }

    /// All forms of instructions that access the segment, some in each sequence, from the same state as with [`Sequence::known`]: at r9 + `displacement`, and
    /// string instructions.
    pub fn of_all_forms(in_each: usize, displacement: u32) -> Vec<Sequence> {
        /// Two blocks: an access finds none that those before have been granted.
        const FURTHER: u32 = 128;
        let mut sequences = vec![Sequence::known(&[])];
        let mut instructions = 0;
        for mut bytes in instruction::forms(&known_roles(), 9) {
            let mut decoder = Decoder::new(64, &bytes, DecoderOptions::NONE);
            let insn = decoder.decode();
            let offsets = decoder.get_constant_offsets(&insn);
            let reads_undefined = |undefined| insn.rflags_read() & undefined != 0;
            if instructions == in_each || sequences.last().is_some_and(|last| reads_undefined(last.undefined)) {
                sequences.push(Sequence::known(&[]));
                instructions = 0;
            }
            if offsets.displacement_size() == 4 {
                let place = &mut bytes[offsets.displacement_offset()..][..4];
                place.copy_from_slice(&(displacement + instructions as u32 * FURTHER).to_le_bytes());
            }
            let last = sequences.last_mut().expect("there is one from the start");
            last.code.extend(bytes);
            last.undefined |= insn.rflags_undefined();
            instructions += 1;
        }
        sequences
    }

    /// Its instructions, each in a sequence of its own.
    pub fn each(&self) -> Vec<Sequence> {
        let alone = |insn: Instruction| {
            let from = insn.ip() as usize;
            Sequence { undefined: insn.rflags_undefined(), ..self.with(&self.code[from..from + insn.len()]) }
        };
        Decoder::new(64, &self.code, DecoderOptions::NONE).into_iter().map(alone).collect()
    }

    /// The same with other accesses checked.
    pub fn checking(mut self, checks: Checks) -> Sequence {
        self.options.checks = checks;
        self
    }

    /// The same in guarded code, where nobody has used the segment yet. `learnt`: bit N: runs have learnt of instruction N.
    pub fn guarded(mut self, entry: Entry, learnt: u32) -> Sequence {
        self.options.access = AccessMode::Guard;
        self.state.tags[1] = [contract::TAG_INVALID; REGION / 64];
        self.state.entry = entry;
        self.learnt = learnt;
        self
    }

    /// The same where this node has used all of the segment.
    pub fn used(mut self) -> Sequence {
        self.state.tags[1] = [0; REGION / 64];
        self
    }

    pub fn is_guarded(&self) -> bool {
        self.options.access == AccessMode::Guard
    }

    /// Which access control it has, and how it is entered.
    pub fn kind(&self) -> String {
        let learnt = if self.is_learnt() { ", learnt" } else { "" };
        if self.is_guarded() { format!("guard, {:?}{learnt}", self.state.entry) } else { "tests".to_owned() }
    }

    /// Address of its first byte.
    pub fn at(&self) -> u64 {
        machine::sequence_at(self.state.entry)
    }

    /// Where it lies, if the process makes it.
    pub fn made_code(&self) -> Range<u64> {
        let end = if self.state.entry == Entry::Made { self.at() + self.code.len() as u64 } else { self.at() };
        self.at()..end
    }

    /// Whether runs have learnt of any of its instructions.
    pub fn is_learnt(&self) -> bool {
        self.learnt != 0
    }

    /// What is known when its ends are compared.
    pub fn compared(&self) -> Compared<'_> {
        let Sequence { code, undefined, red_zone, .. } = self;
        Compared { code, undefined: *undefined, red_zone: *red_zone, as_it_is: self.state.entry == Entry::Made }
    }

    /// Other instructions, from the same state, rewritten with the same options.
    pub fn with(&self, code: &[u8]) -> Sequence {
        Sequence { code: code.to_vec(), ..self.clone() }
    }

    /// The same with nops in place of some instructions, so that distances stay as they are.
    pub fn without(&self, mut is_left_out: impl FnMut(&Instruction, &[u8]) -> bool) -> Sequence {
        let mut code = self.code.clone();
        for insn in &mut Decoder::new(64, &self.code, DecoderOptions::NONE) {
            let bytes = insn.ip() as usize..insn.next_ip() as usize;
            if is_left_out(&insn, &self.code[bytes.clone()]) {
                code[bytes].fill(0x90);
            }
        }
        self.with(&code)
    }

    /// Rewrites its program; `None` if it is refused.
    pub fn rewrite(&self, original: &[u8]) -> Option<Vec<u8>> {
        let mut knowledge = Knowledge::default();
        let object = Object::of(original);
        let instructions = Decoder::with_ip(64, &self.code, self.at(), DecoderOptions::NONE);
        for (n, at) in instructions.into_iter().map(|insn| insn.ip()).enumerate() {
            if self.learnt >> (n % 32) & 1 == 1 {
                knowledge.add(object, "sequence", Vaddr(at), 1);
            }
        }
        let request = Request { options: &self.options, learnt: knowledge.of(object) };
        let none = LibraryRecord::none();
        let rewrite = |sink: &mut dyn OutputSink| pipeline::rewrite_program(original, "sequence", request, &none, sink);
        match pipeline::in_memory(rewrite) {
            Ok(rewritten) => Some(rewritten.bytes),
            Err(e) if !e.refusals.is_empty() => None,
            Err(e) => panic!("{}\n{self:?}", e.what),
        }
    }

    /// The program that executes it, as it is.
    pub fn program(&self) -> Vec<u8> {
        machine::program(&self.code, &self.state)
    }
}

impl fmt::Debug for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (State { doorbell, entry, .. }, learnt) = (&self.state, self.learnt);
        writeln!(f, "{:?}, doorbell {doorbell}, entry {entry:?}, learnt {learnt:#x}", self.options)?;
        let mut formatter = IntelFormatter::new();
        let at = self.at();
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
    let original = sequence.program();
    let Some(rewritten) = sequence.rewrite(&original) else { return Verdict::Refused };
    if let Some(folder) = std::env::var_os("BLIZZARD_FUZZ_KEEP").map(PathBuf::from) {
        let kept = fs::write(folder.join("original"), &original)
            .and_then(|()| fs::write(folder.join("rewritten"), &rewritten));
        kept.expect("the files can be kept");
    }
    // The audit knows nothing of the counters of basic blocks.
    let audited = !sequence.options.blocks && audited::accepts(sequence, &original, &rewritten);
    let ran = |elf: &[u8], guarded: bool| machine::run(elf, guarded).expect("processes can be started");
    let (expected, found) = (ran(&original, false), ran(&rewritten, sequence.is_guarded()));
    let made = sequence.state.entry == Entry::Made;
    if let Some(said) = &found.said {
        let why = said.split_once("the runtime cannot do it: ").and_then(|(_, why)| why.split_once(" (bytes "));
        match why.filter(|_| made) {
            Some((why, _)) => return Verdict::NotCarriedOut(why.to_owned()),
            None => panic!("{said}\n{sequence:?}"),
        }
    }
    assert_eq!(expected.status, found.status, "{sequence:?}");
    assert_eq!(expected.is_complete(), found.is_complete(), "{sequence:?}");
    if !expected.is_complete() {
        return Verdict::Killed;
    }
    let compared = sequence.compared();
    if let Some(what) = difference(&expected, &found, &compared) {
        panic!("{what}\n{sequence:?}");
    }
    // The memory of a home is there whatever its tag says.
    if sequence.is_guarded()
        && let Some(block) = found.stored_without_leave(&sequence.state.memory)
    {
        panic!("block {block} of the shared region was stored to without leave\n{sequence:?}");
    }
    match (expected.fault(), audited) {
        (Some(_), _) => Verdict::SameSignal,
        (None, true) => Verdict::Same,
        (None, false) => Verdict::SameNotAudited,
    }
}
