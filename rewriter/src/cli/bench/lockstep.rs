//! Nodes that are executed step by step, one at a time, so that what each of them executes can be counted exactly.
//!
//! Purpose: run `bench-apps/workload/marked.c` and count the instructions of each node between two marks. Input: the rewritten program and the
//! options of the run. Output: [`Miss`]es.
//!
//! A node keeps its turn until it waits: until it comes to a `pause` instruction. Then the next node has its turn. So a message has always
//! arrived before its receiver looks for it. The turns depend on nothing but the program: each run is the same. Nodes are stepped from a miss's begin to
//! its end; in between they run until they come to a trap ([`with_traps`]).
//!
//! | what | how it is treated |
//! |---|---|
//! | a part from one `pause` to the next in which the node neither sends nor receives | it waits: not counted |
//! | any other part | counted, with the look that finds a message and the one behind it that finds none |
//! | the time-stamp counter | stands still: nothing that the runtime learns from times changes what it does |
//! | a repeated string instruction | one instruction, however long it is |
//!
//! **Invariant**: of the runtime nothing is known but its counters of messages in the shared context page, and that it waits by `pause`.

use crate::base::error::{Error, Result};
use crate::cli::bench::ptrace::{TraceStop, Traced, TracedRegisters, traced_by_parent};
use crate::launch::options::LaunchOptions;
use crate::launch::region::RegionFile;
use crate::launch::sys;
use crate::write::runtime_blob::{Blob, BlobSegment};
use blizzard_contract::{BOOT_ENV, Counter, EXE_ENV};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};

/// The marks of the program: the number is the lowest byte of the moved constant. In front of each but the end there is a trap.
const MARKS: u32 = 0x4d49_5300;
mod mark {
    /// In front of an access. Its kind is in rsi.
    pub const BEGIN: u8 = 1;
    pub const END: u8 = 2;
    /// The other nodes are to wait for a while before this one goes on.
    pub const SETTLE: u8 = 3;
    pub const FINISHED: u8 = 4;
}
/// Kinds from here on are not counted: with these accesses the nodes get going.
const WARM_UP: u64 = 128;

/// A breakpoint instruction. What stands behind it says what for.
const TRAP: u8 = 0xcc;
/// In the flags: the processor stops after each instruction.
const TRAP_FLAG: u64 = 1 << 8;
/// Behind a trap in place of `pause`, and of `rdtsc`: no instruction begins like that.
const FOR_PAUSE: u8 = 0x0e;
const FOR_CLOCK: u8 = 0x06;

/// A node that has found nothing so often in a row has settled: peers see that it looks at its rings by itself.
const SETTLED: u32 = 200;
/// When no node has found anything so often in a row, everything that belongs to a miss has been done.
const QUIET: u32 = 3;
/// More steps and turns than any run has: something goes round in circles.
const LIMIT: u64 = 20_000_000;
/// What the time-stamp counter says.
const CLOCK: u64 = 1 << 40;

/// What one access has taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Miss {
    /// As the program numbers it.
    pub kind: u64,
    /// Instructions by node.
    pub executed: Vec<u64>,
}

/// The runtime with traps in place of the instructions that nodes are not to execute by themselves.
///
/// # Errors
/// There is no such instruction.
pub fn with_traps(mut blob: Blob) -> Result<Blob> {
    let functions = blob.functions().to_vec();
    let mut found = [0; 2];
    for function in &functions {
        let end = function.offset + function.bytes;
        let holds = |s: &&mut BlobSegment| s.offset <= function.offset && end <= s.offset + s.bytes.len() as u64;
        let Some(segment) = blob.segments.iter_mut().find(holds) else { continue };
        let at = (function.offset - segment.offset) as usize;
        let code = &mut segment.bytes[at..at + function.bytes as usize];
        let original = code.to_vec();
        for instruction in &mut Decoder::new(64, &original, DecoderOptions::NONE) {
            let (what, mark) = match instruction.mnemonic() {
                Mnemonic::Pause => (0, FOR_PAUSE),
                Mnemonic::Rdtsc => (1, FOR_CLOCK),
                _ => continue,
            };
            found[what] += 1;
            code[instruction.ip() as usize..][..2].copy_from_slice(&[TRAP, mark]);
        }
    }
    if found.contains(&0) { Err(Error::new("the runtime does not wait as it is known to")) } else { Ok(blob) }
}

/// What is special about an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Special {
    None,
    Pause,
    Clock,
    SystemCall,
    Repeated,
    Mark(u8),
}

impl Special {
    /// By the instruction's first bytes (SDM volume 2).
    fn of(bytes: &[u8]) -> Special {
        let mark = |bytes: &[u8]| match *bytes {
            [0xb8..=0xbf, a, b, c, d, ..] if u32::from_le_bytes([0, b, c, d]) == MARKS => Some(a),
            _ => None,
        };
        match *bytes {
            [TRAP, FOR_PAUSE, ..] => Special::Pause,
            [TRAP, FOR_CLOCK, ..] => Special::Clock,
            [TRAP, ref behind @ ..] => mark(behind).map_or(Special::None, Special::Mark),
            [0x0f, 0x05, ..] => Special::SystemCall,
            [0xf2 | 0xf3, ref rest @ ..] => {
                let operation = rest.iter().find(|byte| !matches!(byte, 0x66 | 0x67 | 0x40..=0x4f));
                let repeats = matches!(operation, Some(0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf));
                if repeats { Special::Repeated } else { Special::None }
            }
            _ => mark(bytes).filter(|&number| number == mark::END).map_or(Special::None, Special::Mark),
        }
    }
}

/// Why a node's turn is over.
enum Event {
    Waits,
    /// Its number, and the kind of access in front of one.
    Mark(u8, u64),
    /// It has stopped itself.
    Stopped,
}

/// What has been done in place of an instruction.
enum StoodIn {
    /// Nothing: the node is to execute it.
    Not,
    GoesOn,
    Over(Event),
}

/// One node.
struct Stepped {
    process: Traced,
    /// By address. Code that has been executed does not change.
    known: HashMap<u64, Special>,
    /// Goes to the node when it runs on.
    signal: i32,
}

impl Stepped {
    fn special(&mut self, at: u64) -> io::Result<Special> {
        if let Some(&special) = self.known.get(&at) {
            return Ok(special);
        }
        let mut bytes = [0; 8];
        let read = self.process.read(at, &mut bytes)?;
        let special = Special::of(&bytes[..read]);
        self.known.insert(at, special);
        Ok(special)
    }

    /// The node has come to a special instruction at `at`: does in its place what it is to do.
    fn stand_in(&mut self, special: Special, at: u64, mut registers: TracedRegisters) -> io::Result<StoodIn> {
        let (bytes, done) = match special {
            Special::Pause => (2, StoodIn::Over(Event::Waits)),
            Special::Clock => {
                (registers.rax, registers.rdx) = (CLOCK & 0xffff_ffff, CLOCK >> 32);
                (2, StoodIn::GoesOn)
            }
            // What a mark moves, nobody reads. In front of all but one there is a trap.
            Special::Mark(number) => {
                (if number == mark::END { 5 } else { 6 }, StoodIn::Over(Event::Mark(number, registers.rsi)))
            }
            Special::None | Special::SystemCall | Special::Repeated => return Ok(StoodIn::Not),
        };
        registers.rip = at + bytes;
        // A gate that is stepped saves the flags, the kernel's trap flag with them, and sets it when it restores them.
        registers.eflags &= !TRAP_FLAG;
        self.process.set_registers(&registers)?;
        Ok(done)
    }

    /// Executes what comes next up to a wait or a mark, step by step; how many instructions that were.
    fn step(&mut self, budget: &mut u64) -> Result<(u64, Event)> {
        let mut executed = 0;
        loop {
            *budget = budget.checked_sub(1).ok_or_else(endless)?;
            let registers = self.process.registers().map_err(lost)?;
            let at = registers.rip;
            let special = self.special(at).map_err(lost)?;
            match self.stand_in(special, at, registers).map_err(lost)? {
                StoodIn::Over(event) => return Ok((executed, event)),
                StoodIn::GoesOn => {
                    executed += 1;
                    continue;
                }
                StoodIn::Not => {}
            }
            if special == Special::SystemCall && sleeps(registers.rax, &registers) {
                return Err(slept());
            }
            match self.process.step(std::mem::take(&mut self.signal)).map_err(lost)? {
                TraceStop::Signal(libc::SIGTRAP) => {}
                TraceStop::Signal(signal) => self.signal = signal,
                TraceStop::SystemCall => {}
                TraceStop::Ended(status) => return Err(Error::new(format!("a node ended early: {status}"))),
            }
            let goes_on = special == Special::Repeated && self.process.registers().map_err(lost)?.rip == at;
            executed += u64::from(!goes_on);
        }
    }

    /// Lets the node run up to a wait or a mark, or until it stops itself.
    fn run(&mut self) -> Result<Event> {
        loop {
            match self.process.run(std::mem::take(&mut self.signal)).map_err(lost)? {
                TraceStop::Signal(libc::SIGTRAP) => {
                    let registers = self.process.registers().map_err(lost)?;
                    let at = registers.rip - 1;
                    let special = self.special(at).map_err(lost)?;
                    match self.stand_in(special, at, registers).map_err(lost)? {
                        StoodIn::Over(event) => return Ok(event),
                        StoodIn::GoesOn => {}
                        // Another trap is the program's own.
                        StoodIn::Not => self.signal = libc::SIGTRAP,
                    }
                }
                TraceStop::Signal(libc::SIGSTOP) => return Ok(Event::Stopped),
                TraceStop::Signal(signal) => self.signal = signal,
                TraceStop::SystemCall => {
                    let registers = self.process.registers().map_err(lost)?;
                    if sleeps(registers.orig_rax, &registers) {
                        return Err(slept());
                    }
                }
                TraceStop::Ended(status) => return Err(Error::new(format!("a node ended early: {status}"))),
            }
        }
    }
}

fn lost(error: io::Error) -> Error {
    Error::new("cannot execute a node step by step").because(error)
}

fn endless() -> Error {
    Error::new("the nodes do not come to an end")
}

fn slept() -> Error {
    Error::new("a node goes to sleep: it has waited for too long")
}

/// Whether a node that makes this system call has waited so long that it lets others run.
fn sleeps(number: u64, registers: &TracedRegisters) -> bool {
    let operation = registers.rsi as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let waits = matches!(operation, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET);
    number == libc::SYS_sched_yield as u64 || number == libc::SYS_futex as u64 && waits
}

/// Runs the program on the nodes of `options` and counts what each access between two marks takes.
///
/// # Errors
/// The system does not permit tracing; a node fails.
pub fn run(program: &Path, arguments: &[OsString], options: &LaunchOptions) -> Result<Vec<Miss>> {
    // As many processors as nodes: what nodes do when they have to share does not depend on the machine either.
    let region = RegionFile::create_for(options, options.nodes)?;
    let mut errors = tempfile::tempfile().map_err(|e| Error::new("cannot start a run").because(e))?;
    let result = start(program, arguments, options, &region, &errors).and_then(|nodes| take_turns(nodes, &region));
    result.map_err(|error| explain(error, options, &region, &mut errors))
}

/// Adds what the nodes have said themselves.
fn explain(error: Error, options: &LaunchOptions, region: &RegionFile, errors: &mut File) -> Error {
    let mut text = String::new();
    // What cannot be read is not shown.
    let _ = errors.rewind().and_then(|()| errors.read_to_string(&mut text));
    let messages = (0..options.nodes).filter_map(|node| Some(format!("node {node}: {}", region.report(node).message?)));
    let said = text.lines().map(str::to_owned).chain(messages);
    said.fold(error, |error, line| error.because(line))
}

/// Starts the nodes and lets each run until it stops itself.
fn start(
    program: &Path,
    arguments: &[OsString],
    options: &LaunchOptions,
    region: &RegionFile,
    errors: &File,
) -> Result<Vec<Stepped>> {
    // Where that is not possible, the addresses of code and private data differ. No number depends on them.
    let _ = sys::disable_randomisation();
    one_processor();
    let mut nodes = Vec::new();
    for node in 0..options.nodes {
        let mut command = Command::new(program);
        command.args(arguments).env(BOOT_ENV, format!("fd={},node={node}", region.fd())).env_remove(EXE_ENV);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(errors.try_clone().map_err(|e| Error::new("cannot start a run").because(e))?);
        sys::tie_to_parent(&mut command, &[region.fd()]);
        traced_by_parent(&mut command);
        let process = command.spawn().and_then(Traced::new).map_err(|e| refused(node, &e))?;
        nodes.push(Stepped { process, known: HashMap::new(), signal: 0 });
    }
    for node in &mut nodes {
        while !matches!(node.run()?, Event::Stopped) {}
    }
    Ok(nodes)
}

/// Keeps this thread, and what it starts, on the processor where it runs: to wake another one for each step takes several times as long. Where that is
/// not permitted it takes longer.
fn one_processor() {
    let mut set = rustix::thread::CpuSet::new();
    set.set(rustix::thread::sched_getcpu());
    let _ = rustix::thread::sched_setaffinity(None, &set);
}

/// A node was not started, or may not be traced.
fn refused(node: u32, error: &io::Error) -> Error {
    match error.raw_os_error() {
        // What execve fails with is another number.
        Some(libc::EPERM | libc::ENOSYS | libc::EIO) => {
            Error::new("this system does not permit processes to be traced").because(format!("ptrace: {error}")).help(
                "instructions are counted by single steps of ptrace. A container must allow that call (docker run --cap-add=SYS_PTRACE), \
                 kernel.yama.ptrace_scope must be less than 2, and no debugger may trace this command",
            )
        }
        _ => Error::new(format!("cannot start node {node}")).because(error),
    }
}

/// The nodes take turns until the program says that it has finished.
fn take_turns(mut nodes: Vec<Stepped>, region: &RegionFile) -> Result<Vec<Miss>> {
    let count = nodes.len();
    let mut messages = vec![[0; 2]; count];
    // Parts in a row in which a node has found nothing, while no other node has done anything either.
    let mut in_vain = vec![0; count];
    // A node that has no turn before all others have found nothing so often.
    let mut held: Option<(usize, u32)> = None;
    let mut begun: Option<Miss> = None;
    let mut misses = Vec::new();
    let mut budget = LIMIT;
    for node in (0..count).cycle() {
        if let Some((waiting, times)) = held
            && waiting == node
        {
            if (0..count).any(|other| other != node && in_vain[other] < times) {
                continue;
            }
            held = None;
            misses.extend(begun.take());
        }
        // A mark does not end the turn, unless the node is held there.
        while held.is_none_or(|(waiting, _)| waiting != node) {
            budget = budget.checked_sub(1).ok_or_else(endless)?;
            let (executed, event) = match begun {
                Some(_) => nodes[node].step(&mut budget)?,
                None => (0, nodes[node].run()?),
            };
            let mut count_them = || {
                if let Some(miss) = &mut begun {
                    miss.executed[node] += executed;
                }
            };
            match event {
                Event::Waits => {
                    let counters = region.report(node as u32).counters;
                    let now = [Counter::MessagesSent, Counter::MessagesReceived].map(|c| counters[c as usize]);
                    if std::mem::replace(&mut messages[node], now) == now {
                        in_vain[node] += 1;
                    } else {
                        in_vain.fill(0);
                        count_them();
                    }
                    break;
                }
                Event::Mark(mark::BEGIN, kind) => {
                    begun = (kind < WARM_UP).then(|| Miss { kind, executed: vec![0; count] });
                }
                Event::Mark(mark::END, _) => {
                    count_them();
                    in_vain.fill(0);
                    held = Some((node, QUIET));
                }
                Event::Mark(mark::SETTLE, _) => {
                    in_vain.fill(0);
                    held = Some((node, SETTLED));
                }
                Event::Mark(mark::FINISHED, _) => return Ok(misses),
                Event::Mark(number, _) => return Err(Error::new(format!("the program has no mark {number}"))),
                Event::Stopped => {}
            }
        }
    }
    unreachable!("a cycle of at least one node has no end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_by_their_bytes() {
        let cases: [(&[u8], Special); 12] = [
            (&[0xcc, 0x0e, 0, 0], Special::Pause),
            (&[0xf3, 0x90, 0xcc], Special::None),
            (&[0xcc, 0x06], Special::Clock),
            (&[0xcc, 0xcc, 0x06], Special::None),
            (&[0x0f, 0x05, 0xc3], Special::SystemCall),
            (&[0xcc, 0xb8, 0x01, 0x53, 0x49, 0x4d], Special::Mark(1)),
            (&[0xb8, 0x02, 0x53, 0x49, 0x4d], Special::Mark(2)),
            (&[0xb9, 0x02, 0x53, 0x49, 0x4e], Special::None),
            // rep movsb, rep movsq, repne scasw.
            (&[0xf3, 0xa4], Special::Repeated),
            (&[0xf3, 0x48, 0xa5], Special::Repeated),
            (&[0xf2, 0x66, 0xaf], Special::Repeated),
            // movss.
            (&[0xf3, 0x0f, 0x10, 0xa4], Special::None),
        ];
        for (bytes, special) in cases {
            assert_eq!(Special::of(bytes), special, "{bytes:x?}");
        }
    }

    /// As the runtime's own text, and nothing else is changed.
    #[test]
    fn waits_and_clock_readings_become_traps() {
        let original = Blob::embedded().unwrap();
        let trapped = with_traps(original.clone()).unwrap();
        let mut changed = [0; 2];
        for (old, new) in original.segments.iter().zip(&trapped.segments) {
            for at in (0..old.bytes.len()).filter(|&at| old.bytes[at..].starts_with(&[0xf3, 0x90])) {
                changed[0] += u32::from(new.bytes[at..].starts_with(&[TRAP, FOR_PAUSE]));
            }
            changed[1] += old.bytes.iter().zip(&new.bytes).filter(|(a, b)| a != b).count() as u32;
        }
        assert!(changed[0] > 2 && changed[1] > 2 * changed[0], "{changed:?}");
    }

    #[test]
    fn a_refused_trace_says_what_to_do() {
        let error = refused(0, &io::Error::from_raw_os_error(libc::EPERM));
        assert!(error.what.contains("traced") && error.help.unwrap().contains("ptrace_scope"));
        assert!(refused(1, &io::Error::from_raw_os_error(libc::EACCES)).what.contains("node 1"));
    }
}
