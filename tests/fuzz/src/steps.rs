//! A signal at each instruction of a sequence, original and rewritten.
//!
//! Input: a sequence. A process is executed step by step up to each instruction of the sequence, inserted ones included, and then gets a signal, whose handler
//! writes down what it finds. Output: how many there were; a panic where a handler of the rewritten form finds what none of the original does.
//!
//! In plain code of guarded code, and in made code, a handler must find exactly what it finds in the original at the same instruction. In other code the signal comes
//! in at a safe point. There the context is the runtime's (`rt/PROCESS.md`), and the handler must find memory as the original has it at some instruction that is
//! not in front of those before; where the context is the sequence's, all else as well, as at a fault ([`crate::compare`]).
//! Source: ptrace(2).

use crate::compare::{Compared, difference_at_signal, memory_difference};
use crate::machine::{self, End, MARK, Prepared};
use crate::sequence::Sequence;
use blizzard::cli::bench::ptrace::{TraceStop, Traced, traced_by_parent};
use blizzard_contract::{INFO_SECTION, ModuleInfo};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use object::{Object, ObjectSection};
use std::io;
use std::ops::Range;

const SIGNAL: i32 = libc::SIGUSR1;
const TRAP_FLAG: u64 = 1 << 8;
const PREFIX: u8 = 0x65;
/// What the harness executes in front of the sequence (the load of r15), behind it, and when everything is about to be written.
const IN_FRONT: [u8; 8] = [0x4c, 0x8b, 0x3c, 0x25, 0x78, 0x40, 0, 0x10];
const BEHIND: [u8; 8] = [0x48, 0x89, 0x04, 0x25, 0, 0x60, 0, 0x10];
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// More steps than any sequence has.
const LIMIT: u32 = 1_000_000;
/// rcx and r11, which a system call changes.
const CHANGED_BY_CALLS: [usize; 2] = [1, 11];

/// What a handler has found.
struct Found {
    /// Where the signal came.
    at: u64,
    end: End,
    /// Where the sequence was entered.
    begin: u64,
    /// The code there, as it was executed.
    code: Vec<u8>,
    is_call: bool,
}

/// How often signals came where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions that the original executes.
    pub original: usize,
    /// Signals in code that must be as the original is, and in other code.
    pub exact: usize,
    pub other: usize,
}

/// A program, and where its own code lies.
struct Program {
    elf: Vec<u8>,
    guarded: bool,
    code: Range<u64>,
    /// Code that it makes.
    own: Range<u64>,
    /// Code of the harness behind the sequence that the original's harness does not execute.
    copies: Vec<Range<u64>>,
    bytes: usize,
}

impl Program {
    fn holds(&self, at: u64) -> bool {
        self.code.contains(&at) || self.own.contains(&at)
    }

    /// Lets the signal come so many stops behind the sequence's first; `None`: that is behind the first one that has these bytes.
    fn interrupt(&self, number: usize, last: &[u8]) -> io::Result<Option<Found>> {
        let mut prepared = Prepared::new(&self.elf, self.guarded)?;
        traced_by_parent(&mut prepared.command);
        let mut traced = Traced::new(prepared.command.spawn()?)?;
        let ended = |what: &str| io::Error::other(format!("the process ends {what}"));
        let (mut signal, mut marks) = (0, 0);
        while marks < 2 {
            signal = match traced.run(signal)? {
                TraceStop::SystemCall => {
                    marks += u32::from(traced.registers()?.orig_rax == MARK);
                    0
                }
                TraceStop::Signal(other) => other,
                TraceStop::Ended(status) => return Err(ended(&format!("too early: {status}"))),
            }
        }
        let (mut is_next, mut begin, mut stops) = (false, None, 0);
        for _ in 0..LIMIT {
            signal = match traced.step(signal)? {
                TraceStop::Signal(libc::SIGTRAP) => 0,
                TraceStop::Signal(other) => other,
                TraceStop::SystemCall => 0,
                TraceStop::Ended(status) => return Err(ended(&format!("in the sequence: {status}"))),
            };
            let rip = traced.registers()?.rip;
            if signal != 0 || !self.holds(rip) {
                continue;
            }
            let mut bytes = [0; 16];
            let known = traced.read(rip, &mut bytes)?;
            let is = |what: &[u8]| {
                let bytes = &bytes[..known];
                bytes.starts_with(what) || bytes.strip_prefix(&[PREFIX]).is_some_and(|bytes| bytes.starts_with(what))
            };
            if begin.is_none() {
                if is_next && !is(&IN_FRONT) && (self.own.is_empty() || self.own.contains(&rip)) {
                    begin = Some(rip);
                } else {
                    is_next |= is(&IN_FRONT);
                    continue;
                }
            }
            if stops < number {
                if is(last) {
                    return Ok(None);
                }
                stops += 1;
                continue;
            }
            let is_call = is(&SYSCALL);
            let begin = begin.expect("found above");
            let mut code = vec![0; self.bytes];
            traced.read(begin, &mut code)?;
            // What the process has pushed while it was stepped, and popped again.
            let mut registers = traced.registers()?;
            registers.eflags &= !TRAP_FLAG;
            traced.set_registers(&registers)?;
            let mut pass = SIGNAL;
            let status = loop {
                pass = match traced.run(pass)? {
                    TraceStop::SystemCall => 0,
                    TraceStop::Signal(other) => other,
                    TraceStop::Ended(status) => break status,
                };
            };
            return Ok(Some(Found { at: rip, end: prepared.end(status)?, begin, code, is_call }));
        }
        Err(io::Error::other("the sequence does not end"))
    }
}

/// Where the harness of guarded code copies the tags, in each version: up to the call behind it, registers hold what it copies with.
fn copies_of_tags(elf: &[u8], code: &Range<u64>) -> Vec<Range<u64>> {
    let file = object::File::parse(elf).expect("the rewriter writes ELF files");
    let mut copies = Vec::new();
    for section in file.sections().filter(|section| code.contains(&section.address())) {
        let bytes = section.data().expect("it is in the file");
        let next = |what: &[u8], from: usize| {
            bytes[from..].windows(what.len()).position(|bytes| bytes == what).map(|at| from + at)
        };
        let mut from = 0;
        while let Some(at) = next(&machine::COPIES_TAGS, from) {
            let end = next(&SYSCALL, at).expect("everything is written behind it");
            copies.push(section.address() + at as u64..section.address() + end as u64);
            from = end;
        }
    }
    copies
}

/// The code of the rewritten file.
fn new_code(elf: &[u8]) -> Range<u64> {
    let file = object::File::parse(elf).expect("the rewriter writes ELF files");
    let section = file.section_by_name(INFO_SECTION).expect("rewritten files have one");
    let bytes = section.data().expect("it is in the file");
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect();
    let info = ModuleInfo::from_words(*words.first_chunk().expect("all words"));
    info.code_va..info.code_va + info.code_bytes
}

fn instructions(code: &[u8], begin: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, code, begin, DecoderOptions::NONE).into_iter().collect()
}

/// Whether the code that begins with `news` is plain: the same instructions. Those that are in step with it have no prefix of their own.
fn is_copy(olds: &[Instruction], news: &[Instruction]) -> bool {
    news.len() >= olds.len()
        && olds.iter().zip(news).all(|(old, new)| {
            // Jumps may have become shorter.
            let jumps = old.flow_control() != FlowControl::Next;
            old.mnemonic() == new.mnemonic()
                && (jumps || old == new && old.segment_prefix() == new.segment_prefix() && old.len() == new.len())
        })
}

/// Interrupts original and rewritten form everywhere, and compares.
///
/// # Errors
/// Processes cannot be traced.
pub fn check(sequence: &Sequence) -> io::Result<Counts> {
    let original = sequence.program();
    let rewritten = sequence.rewrite(&original).expect("a sequence that is not refused");
    let own = sequence.made_code();
    let code = new_code(&rewritten);
    // Jumps may have become longer.
    let bytes = sequence.code.len() + 64;
    let guarded = sequence.is_guarded();
    let copies = copies_of_tags(&rewritten, &code);
    assert!(!copies.is_empty(), "each version has the harness");
    let original =
        Program { elf: original, guarded: false, code: machine::code(), own: own.clone(), copies: Vec::new(), bytes };
    let rewritten = Program { elf: rewritten, guarded, code, own, copies, bytes };

    let mut expected = Vec::new();
    while let Some(found) = original.interrupt(expected.len(), &BEHIND)? {
        expected.push(found);
    }
    let mut counts = Counts { original: expected.len(), ..Counts::default() };
    let olds = instructions(&sequence.code, sequence.at());

    let mut least = 0;
    for number in 0.. {
        let Some(found) = rewritten.interrupt(number, &BEHIND)? else { break };
        assert!(
            found.end.is_complete() && found.end.said.is_none(),
            "signal {number} at {:#x}: {}\n{sequence:?}",
            found.at,
            found.end.summary()
        );
        // Code that is as the original is, if the sequence was entered in such code.
        let news = instructions(&found.code, found.begin);
        let exact =
            if is_copy(&olds, &news) { news[..olds.len()].iter().position(|new| new.ip() == found.at) } else { None };
        let compared = Compared { as_it_is: exact.is_some(), ..sequence.compared() };
        let differs = |other: &Found| {
            if let Some(n) = exact
                && (found.end.interrupted_at() != found.at || other.at != olds[n].ip())
            {
                return Some(format!("it is interrupted at {:#x}", found.end.interrupted_at()));
            }
            let at = found.end.interrupted_at();
            if !rewritten.holds(at) || rewritten.copies.iter().any(|copy| copy.contains(&at)) {
                return memory_difference(&other.end, &found.end);
            }
            let left_out = if other.is_call { &CHANGED_BY_CALLS[..] } else { &[] };
            difference_at_signal(&other.end, &found.end.with_registers_of(&other.end, left_out), &compared)
        };
        let mut said = Vec::new();
        for k in least.. {
            if k == expected.len() {
                // The harness's own instructions behind the sequence are seldom needed.
                match original.interrupt(k, &SYSCALL)? {
                    Some(found) => expected.push(found),
                    None => panic!(
                        "signal {number} at {:#x}: {}: the handler finds no state of the original: {said:?}\n{sequence:?}",
                        found.at,
                        found.end.summary(),
                    ),
                }
            }
            match differs(&expected[k]) {
                None if exact.is_some() => least = k,
                None => {}
                Some(what) => {
                    said.push((k, what));
                    continue;
                }
            }
            break;
        }
        if exact.is_some() { counts.exact += 1 } else { counts.other += 1 }
    }
    Ok(counts)
}
