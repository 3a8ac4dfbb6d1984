//! How nodes die by signals, or end the run: what the launcher sees of a node before it is gone.
//!
//! Input: the records that dying nodes leave in their context pages, and wait over. Output: [`Crash`]es. **Invariant**: a node that waits is let go,
//! whatever could be seen.
//!
//! The node tells of a signal that it expects to die by. Whether it did, its exit status says ([`Crash::is_of`]).

use crate::launch::crashes::allocations::{self, Allocation};
use crate::launch::crashes::process_memory::ProcessMemory;
use crate::launch::crashes::unwind::{self, StackFrame};
use crate::launch::region::RegionFile;
use crate::launch::spawn::SpawnedNode;
use blizzard_contract::{self as contract, CrashRecord};
use iced_x86::{Decoder, DecoderOptions};
use rustix::process::Pid;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;

/// Where these stand among the registers (Linux `arch/x86/include/uapi/asm/sigcontext.h`).
const RSP: usize = 15;
const RIP: usize = 16;
const ERROR_CODE: usize = 19;
/// SDM volume 3, 4.7: bits of a page fault's error code.
const IS_WRITE: u64 = 1 << 1;
const IS_FETCH: u64 = 1 << 4;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
/// Nodes that are looked at each time. A look takes some hundredths of a second, and nodes wait ten seconds for it.
const LOOKED_AT: usize = 8;

/// How a node has died.
#[derive(Debug, Clone)]
pub struct Crash {
    pub node: u32,
    /// 0: the node itself has ended the run, with a message.
    pub signal: i32,
    /// Of a fault of memory.
    pub fault: Option<MemoryFault>,
    /// An address in shared memory that it was about, and the allocation that it lies in or behind. Of a node that has called `abort`: what it has given to the
    /// C library.
    pub allocation: Option<(u64, Allocation)>,
    /// The node whose store this one should not have met, and where that store is.
    pub storer: Option<(u32, StackFrame)>,
    /// The innermost first.
    pub frames: Vec<StackFrame>,
    /// The process, and the folder that it ran in.
    pub process: Option<(Pid, PathBuf)>,
}

/// A fault of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFault {
    pub access: FaultAccess,
    pub address: u64,
    pub place: FaultPlace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultAccess {
    Read,
    Write,
    Execute,
}

/// What is at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultPlace {
    /// Nothing is mapped there.
    Nothing,
    /// Below the stack, which is full.
    BelowStack,
    /// The processor does not say which address it was: it is not canonical, or not aligned as the instruction wants it.
    Unknown,
    /// None: an instruction that only the kernel may use.
    Privileged { instruction: String },
    /// Shared memory, with its tag.
    Shared { tag: Option<u8> },
    /// Something that may not be accessed so: its rights, its name, and the offset in the file.
    Mapped { rights: String, name: String, offset: u64 },
}

impl Crash {
    /// Whether a node that has ended so has ended by this. `has_failed`: it has ended the run.
    pub fn is_of(&self, node: u32, status: ExitStatus, has_failed: bool) -> bool {
        self.node == node && if self.signal == 0 { has_failed } else { status.signal() == Some(self.signal) }
    }
}

/// What is to be said of a crash; whether the program is guarded code.
pub type Describe = fn(&Crash, bool) -> Vec<String>;

/// The nodes that this process has started, and the number of the first.
#[derive(Clone, Copy)]
pub struct OwnNodes<'x> {
    pub nodes: &'x [SpawnedNode],
    pub first: u32,
}

impl OwnNodes<'_> {
    fn numbers(&self) -> impl Iterator<Item = u32> + use<> {
        self.first..self.first + self.nodes.len() as u32
    }

    /// The process of a node that has not ended.
    fn living(&self, region: &RegionFile, number: u32) -> Option<Pid> {
        let node = &self.nodes[(number - self.first) as usize];
        region.created_pid(number).or(node.pid).filter(|_| node.ended.is_none())
    }
}

/// Looks at nodes that die, and lets them go. Where many die together, the first ends the run: the others wait until then. `is_over`: it has ended, and how others
/// die matters no more.
pub fn look(own: OwnNodes, region: &RegionFile, crashes: &mut Vec<Crash>, is_over: bool) {
    let dying = own.numbers().filter_map(|number| Some((number, region.crash(number)?)));
    if is_over {
        return dying.for_each(|(number, _)| region.let_go(number));
    }
    for (number, record) in dying.take(LOOKED_AT) {
        // A debugger's child is not the launcher's.
        let pid = own.living(region, number);
        let memory = pid.and_then(ProcessMemory::of);
        let frames = memory.as_ref().map(|memory| unwind::frames(memory, &record.registers)).unwrap_or_default();
        let fault = memory.as_ref().and_then(|memory| fault(memory, &record));
        let allocation = match (record.signal, &memory) {
            (libc::SIGABRT, Some(memory)) => given(memory, &record, &frames, |at| allocation(own, region, at)),
            _ => allocation(own, region, record.address),
        };
        let storer = storer(own, region, number);
        let folder = |pid: Pid| std::fs::read_link(format!("/proc/{}/cwd", pid.as_raw_nonzero())).ok();
        let process = pid.and_then(|pid| Some((pid, folder(pid)?)));
        crashes.push(Crash { node: number, signal: record.signal, fault, allocation, storer, frames, process });
        region.let_go(number);
    }
}

/// The allocation of an address in shared memory: some node keeps account of it.
fn allocation(own: OwnNodes, region: &RegionFile, address: u64) -> Option<(u64, Allocation)> {
    if !is_shared(address) {
        return None;
    }
    own.numbers().find_map(|number| {
        let records = region.arenas(number)?;
        let memory = own.living(region, number).and_then(ProcessMemory::of)?;
        Some((address, allocations::around(&memory, records, address)?))
    })
}

/// What a node that aborts has given to the C library, if that is shared. The library takes it for a chunk of its own, whose address is on the stack then, up to
/// where the program has called it. Whether it was to be freed, the names of the calls say.
fn given(
    memory: &ProcessMemory,
    record: &CrashRecord,
    frames: &[StackFrame],
    allocation: impl Fn(u64) -> Option<(u64, Allocation)>,
) -> Option<(u64, Allocation)> {
    /// What `abort`, and what prints its message, have on the stack at most.
    const BYTES: u64 = 8192;
    const PIECE: u64 = 64;
    /// Of a chunk's head (glibc, `malloc.c`).
    const HEAD: u64 = 16;
    let library = frames.first()?.file.as_ref()?;
    let caller = frames.iter().find(|frame| frame.file.as_ref().is_none_or(|(path, _)| *path != library.0))?;
    // The stack may end before.
    let piece = |at| memory.words(record.registers[RSP].wrapping_add(at), PIECE);
    let stack: Vec<u64> = (0..BYTES).step_by(PIECE as usize).map_while(piece).flatten().collect();
    let own = stack.iter().take_while(|word| **word != caller.address);
    let chunks = record.registers[..RSP].iter().chain(own).map(|word| word.wrapping_add(HEAD));
    let mut places: Vec<u64> = chunks.filter(|&at| is_shared(at) && at.is_multiple_of(HEAD)).collect();
    places.sort_unstable();
    places.dedup();
    // A unit may hold several small ones.
    let is_one = |(at, a): &(u64, Allocation)| !a.is_free && (a.start == *at || a.bytes == contract::BLOCK_BYTES);
    places.into_iter().filter_map(allocation).find(is_one)
}

/// The store that a node should not have met.
fn storer(own: OwnNodes, region: &RegionFile, by: u32) -> Option<(u32, StackFrame)> {
    let broken = region.broken_promise(by)?;
    let number = own.numbers().find(|&number| u64::from(number) == broken.storer)?;
    let memory = own.living(region, number).and_then(ProcessMemory::of)?;
    // Its stack is what it is now: only the way out of inserted code is of use.
    let frames = unwind::frames_of_call(&memory, broken.place, contract::CONTEXT_SHARED);
    Some((number, frames.into_iter().next()?))
}

fn is_shared(address: u64) -> bool {
    address >> contract::SEGMENT_SHIFT == contract::SEGMENT_BASE >> contract::SEGMENT_SHIFT
}

/// What the fault of a record was about.
fn fault(memory: &ProcessMemory, record: &CrashRecord) -> Option<MemoryFault> {
    if ![libc::SIGSEGV, libc::SIGBUS].contains(&record.signal) || record.code <= 0 {
        return None;
    }
    let (error, address) = (record.registers[ERROR_CODE], record.address);
    let access = match error {
        _ if error & IS_FETCH != 0 => FaultAccess::Execute,
        _ if error & IS_WRITE != 0 => FaultAccess::Write,
        _ => FaultAccess::Read,
    };
    let place = if is_shared(address) {
        let at = contract::TAG_TABLE_BASE + (address >> contract::BLOCK_SHIFT);
        let tag = |at: u64| {
            let mut tag = [0];
            memory.read(at, &mut tag).map(|()| tag[0])
        };
        // Of guarded code the second.
        FaultPlace::Shared { tag: tag(at).or_else(|| tag(at + contract::ALIAS_DISTANCE)) }
    } else {
        match memory.mapping(address) {
            // A general protection fault, say: the kernel has no address.
            _ if record.signal == libc::SIGSEGV && ![SEGV_MAPERR, SEGV_ACCERR].contains(&record.code) => {
                let instruction = privileged(memory, record.registers[RIP]);
                instruction.map_or(FaultPlace::Unknown, |instruction| FaultPlace::Privileged { instruction })
            }
            _ if is_below_stack(memory, record.registers[RSP], address) => FaultPlace::BelowStack,
            // The runtime's own pages are nothing to the program.
            _ if record.code == SEGV_MAPERR => FaultPlace::Nothing,
            None => FaultPlace::Nothing,
            Some(m) => FaultPlace::Mapped {
                rights: m.rights.clone(),
                name: m.name.clone(),
                offset: address - m.start + m.offset,
            },
        }
    };
    Some(MemoryFault { access, address, place })
}

/// Whether `address` is where a stack with this pointer would go on, had it not reached its end.
fn is_below_stack(memory: &ProcessMemory, rsp: u64, address: u64) -> bool {
    /// What a function uses below its pointer or, while it makes room for itself, below the end.
    const NEAR: u64 = 64 << 10;
    /// The room that one function makes at once, of which any place may be used first.
    const ROOM: u64 = 16 << 20;
    let at = memory.mappings.partition_point(|m| m.start <= address);
    let Some(stack) = memory.mappings.get(at).filter(|m| m.rights.starts_with("rw")) else { return false };
    let is_free = memory.mapping(address).is_none_or(|m| m.rights.starts_with("---"));
    let is_near_end = rsp < stack.start.saturating_add(NEAR) && stack.start - address < ROOM;
    is_free && is_near_end && (address.saturating_sub(ROOM)..address.saturating_add(NEAR)).contains(&rsp)
}

/// The name of the instruction at `at`, if it is privileged.
fn privileged(memory: &ProcessMemory, at: u64) -> Option<String> {
    let mut code = [0; 15];
    memory.read(at, &mut code)?;
    let instruction = Decoder::with_ip(64, &code, at, DecoderOptions::NONE).decode();
    instruction.is_privileged().then(|| format!("{:?}", instruction.mnemonic()).to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(signal: i32, code: i32, address: u64, error: u64) -> CrashRecord {
        let mut registers = [0; 23];
        registers[ERROR_CODE] = error;
        CrashRecord { state: contract::crash_state::TOLD, signal, code, thread: 1, address, registers }
    }

    #[test]
    fn what_was_given_to_the_library_is_found_on_the_stack() {
        let memory = ProcessMemory::of(rustix::process::getpid()).unwrap();
        let at = contract::SEGMENT_BASE + 4096;
        let frame = |address, path: &str| StackFrame {
            address,
            is_behind_call: true,
            is_trampoline: false,
            file: Some((PathBuf::from(path), 0)),
        };
        let frames = [frame(1, "libc"), frame(2, "libc"), frame(0x7777, "prog")];
        let seen = |place: usize, word: u64, start, bytes, is_free| {
            let mut stack = [0; 1024];
            (stack[place], stack[500]) = (word, 0x7777);
            let mut record = record(libc::SIGABRT, libc::SI_TKILL, 0, 0);
            record.registers[RSP] = stack.as_ptr() as u64;
            let all = |at| Some((at, Allocation { start, bytes, is_free, by: None }));
            given(&memory, &record, &frames, all).map(|found| found.0)
        };
        assert_eq!(seen(100, at - 16, at, 4096, false), Some(at));
        assert_eq!(seen(100, at, at, 4096, false), None, "a pointer of the program's");
        assert_eq!(seen(600, at - 16, at, 4096, false), None, "on the program's stack");
        assert_eq!(seen(100, at + 64, at, 4096, false), None);
        assert_eq!(seen(100, at - 16, at, 4096, true), None);
        assert_eq!(seen(100, at + 16, at, 64, false), Some(at + 32), "a small one");
        assert_eq!(seen(100, 7, at, 4096, false), None);
    }

    #[test]
    fn a_fault_says_what_was_tried_and_where() {
        static CONSTANT: u64 = 7;
        let memory = ProcessMemory::of(rustix::process::getpid()).unwrap();
        let seen = |record| fault(&memory, &record);
        let of = |access, address, place| Some(MemoryFault { access, address, place });
        assert_eq!(seen(record(libc::SIGSEGV, SEGV_MAPERR, 16, 4)), of(FaultAccess::Read, 16, FaultPlace::Nothing));
        assert_eq!(seen(record(libc::SIGSEGV, SEGV_MAPERR, 16, 6)), of(FaultAccess::Write, 16, FaultPlace::Nothing));
        assert_eq!(seen(record(libc::SIGSEGV, 0x80, 0, 0)), of(FaultAccess::Read, 0, FaultPlace::Unknown));
        static HALTS: [u8; 16] = [0xf4; 16];
        let mut halts = record(libc::SIGSEGV, 0x80, 0, 0);
        halts.registers[RIP] = &raw const HALTS as u64;
        assert_eq!(seen(halts), of(FaultAccess::Read, 0, FaultPlace::Privileged { instruction: "hlt".into() }));
        assert_eq!(seen(record(libc::SIGFPE, 1, 16, 0)), None);
        assert_eq!(seen(record(libc::SIGSEGV, -6, 16, 0)), None, "somebody has sent it");
        let at = &raw const CONSTANT as u64;
        let found = seen(record(libc::SIGSEGV, SEGV_ACCERR, at, 7)).unwrap();
        assert!(
            matches!(found.place, FaultPlace::Mapped { rights, name, .. } if rights.starts_with("r--") && name.starts_with('/'))
        );
        let shared = seen(record(libc::SIGSEGV, SEGV_ACCERR, contract::SEGMENT_BASE + 64, 0x15)).unwrap();
        // A process that is rewritten itself has a tag there.
        assert!(matches!((shared.access, shared.place), (FaultAccess::Execute, FaultPlace::Shared { .. })));
    }
}
