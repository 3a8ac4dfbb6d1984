//! The shared context page of a node: what its peers, the launcher and inserted code read and write.
//!
//! Input: the addresses of the page and the numbers of arenas. Output: [`SharedContext`], the addresses of its words that inserted code names, and the values
//! of its words. **Invariants**: one writer, or one group of writers, for each cache line of the first four; each field says who writes it.

use crate::addresses::{CONTEXT_BYTES, CONTEXT_SHARED};
use crate::limits::LOWER_ARENAS;

/// The doorbell (u32): nonzero when a peer wants this node to run handlers. Polls test it.
pub const POLL_WORD: u64 = CONTEXT_SHARED;
/// How far the loop that is running may go on before it must test tags again (u64): while the loop's counting register is below this
/// one's value, tests have been made for the iteration that begins. For loops that count up; 0: no iteration has been tested.
/// Written by inserted code: where such a loop is entered, by its tests, and behind each entry into the runtime from within the loop.
/// The runtime writes [`NO_LIMITS`] where a context continues that something else has run in the middle of.
pub const LIMIT_UP: u64 = CONTEXT_SHARED + core::mem::offset_of!(SharedContext, limits) as u64;
/// The same for loops that count down: the register is above it; `u64::MAX`: no iteration has been tested.
pub const LIMIT_DOWN: u64 = LIMIT_UP + 8;
/// [`LIMIT_UP`] and [`LIMIT_DOWN`] when nothing has been tested.
pub const NO_LIMITS: [u64; 2] = [0, u64::MAX];
/// u64 counters incremented by inserted code in a counting rewrite (`--count`); also in the shared context page, so that
/// the launcher reads them after the node has ended. Index with [`Counter`].
pub const COUNTERS: u64 = CONTEXT_SHARED + offset_of_counters();

/// [`SharedContext::full_code`] of the own context page.
pub const FULL_CODE_WORD: u64 = CONTEXT_SHARED + core::mem::offset_of!(SharedContext, full_code) as u64;

const fn offset_of_counters() -> u64 {
    core::mem::offset_of!(SharedContext, counters) as u64
}

/// Counters of the shared context page, by index.
#[repr(usize)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Checks of loads executed (counting rewrite).
    LoadChecks = 0,
    /// Checks of stores and read-modify-writes executed (counting rewrite).
    StoreChecks,
    /// Polls executed (counting rewrite).
    Polls,
    /// Gate calls by reason (always counted by the runtime).
    ReadMisses,
    WriteMisses,
    Upgrades,
    /// Gate entries that found the access legal (straddle not real, tag raised meanwhile).
    FalseMisses,
    PollsTaken,
    StringCalls,
    VsibCalls,
    MessagesSent,
    BytesSent,
    MessagesReceived,
    /// Messages dropped because they did not validate.
    MessagesRejected,
    /// Sends that found the ring full and were buffered.
    SendsBuffered,
    /// Jumps to an old code address that a trap byte redirected.
    Traps,
    Barriers,
    LockAcquires,
    Allocations,
    AllocatedBytes,
    /// System calls that passed the gate.
    Syscalls,
    InvalidationsReceived,
    WriteBacks,
    /// Nanoseconds spent waiting inside misses, barriers and locks.
    MissWaitNs,
    BarrierWaitNs,
    LockWaitNs,
    /// Mappings of executable memory that come from no rewritten file: generated code, libraries that something other than the
    /// dynamic loader loads.
    UncheckedCode,
    /// Signals by which peers called this node: out of a system call, or because it left its doorbell unanswered.
    KernelCalls,
    /// Pages whose copies were given back to make room, blocks given back (replacement and check-in), and misses for which no page could
    /// be replaced.
    PagesReplaced,
    BlocksEvicted,
    StacheOverruns,
    /// Blocks asked for without a wait.
    Prefetches,
    /// Of the rejected messages, those of another run, and those that no sender of this run can have sent here: source, handler, length, address
    /// or direction are wrong. The others did not fit the receiver's state.
    RejectedIncarnation,
    RejectedForm,
    /// Pages of first-touch memory whose home this node has become, and questions for the home of one.
    PagesHomed,
    HomeQueries,
    /// Faults on user-managed pages (Tempest 1.2.1, sections 3.1.4 and 3.2.7).
    UserFaults,
    /// Messages whose handler of the program has run (section 3.3).
    UserMessages,
    /// Timer handlers that have run (section 3.5).
    UserTimers,
    /// Bytes that arrived through bulk channels (section 3.4).
    BulkBytes,
    /// Tag changes that table 2 does not allow; looked for in runs with `tempest_flags::DEBUG`.
    BadTagChanges,
    /// Blocks asked for before they were missed, because the misses before them were as before (`engine::miss_history` of the protocols).
    AskedAhead,
    /// Of the mappings of [`Counter::UncheckedCode`], those of code that the program makes itself, or maps from what is no library.
    GeneratedCode,
    /// Accesses to shared memory that faulted in plain code and went on in full code.
    UntestedAccesses,
    /// Calls of `bz_prefetch`, `bz_check_out` and `bz_check_in`, with several nodes.
    PrefetchCalls,
    CheckOutCalls,
    CheckInCalls,
    /// Blocks that a hint had asked for, and that were missed: before their copy had come; or after it had been taken away again, used or not.
    HintsLate,
    HintsLost,
    /// Copies that `bz_check_in` has given back.
    BlocksCheckedIn,
    /// Minimum blocks whose data went to nodes that have copies (protocol update).
    BlocksPushed,
}

/// How many counters there are.
pub const COUNTER_COUNT: usize = 51;
/// Their names in statistics files, by index.
pub const COUNTER_NAMES: [&str; COUNTER_COUNT] = [
    "load_checks",
    "store_checks",
    "polls",
    "read_misses",
    "write_misses",
    "upgrades",
    "false_misses",
    "polls_taken",
    "string_calls",
    "vsib_calls",
    "messages_sent",
    "bytes_sent",
    "messages_received",
    "messages_rejected",
    "sends_buffered",
    "traps",
    "barriers",
    "lock_acquires",
    "allocations",
    "allocated_bytes",
    "syscalls",
    "invalidations_received",
    "write_backs",
    "miss_wait_ns",
    "barrier_wait_ns",
    "lock_wait_ns",
    "unchecked_code",
    "kernel_calls",
    "pages_replaced",
    "blocks_evicted",
    "stache_overruns",
    "prefetches",
    "rejected_incarnation",
    "rejected_form",
    "pages_homed",
    "home_queries",
    "user_faults",
    "user_messages",
    "user_timers",
    "bulk_bytes",
    "bad_tag_changes",
    "asked_ahead",
    "generated_code",
    "untested_accesses",
    "prefetch_calls",
    "check_out_calls",
    "check_in_calls",
    "hints_late",
    "hints_lost",
    "blocks_checked_in",
    "blocks_pushed",
];

/// Layout of the shared context page. One writer group per cache line.
#[repr(C, align(4096))]
pub struct SharedContext {
    /// Written 1 by peers, cleared by the owner: the doorbell.
    pub poll: u32,
    _line0: [u32; 15],
    /// What the owner does, see [`activity`]. Written by the owner; a peer that calls it out of the kernel changes `KERNEL` to `CALLED`.
    pub activity: u32,
    /// Written by the owner: see [`node_phase`].
    pub phase: u32,
    /// Written by the owner: its exit status, valid in `phase` DONE and FAILED.
    pub exit_status: u32,
    /// Written by the owner before it runs, in a run whose nodes node 0 creates also by node 0: the process's number.
    pub pid: u32,
    _line1: [u32; 12],
    /// Written by the owner: grows with each look at its rings. Whoever waits for the owner sees by it that the owner lives.
    pub beat: u32,
    /// Written by the owner where a wait takes long: the processor that it ran on then, plus 1; 0 before that.
    pub processor: u32,
    /// Whether a fault has taken the program into full code: see [`full_code`]. Written by the owner and the launcher.
    pub full_code: u32,
    _line2: [u32; 13],
    /// Written by the owner alone: [`LIMIT_UP`], [`LIMIT_DOWN`].
    pub limits: [u64; 2],
    _line3: [u64; 6],
    /// NUL-terminated text that the launcher prints when the node stops with `phase` FAILED.
    pub message: [u8; 1024],
    /// Written by the owner's program and by a runtime with instruments: see [`instrument`].
    pub instruments: [u64; INSTRUMENT_WORDS],
    /// Written by the owner (and by inserted code in a counting rewrite).
    pub counters: [u64; COUNTER_COUNT],
    /// Written by the owner, in a run of several nodes.
    pub wait: WaitRecord,
    /// Written by the owner when it dies, but for its state.
    pub crash: CrashRecord,
    /// Written by the owner before its program runs: where, in its own memory, an [`ArenaRecord`] for each of its [`OWN_ARENAS`] arenas is; 0: nowhere.
    pub arenas: u64,
    /// Written by the owner, in a run that watches promises: how many of its flushes are over.
    pub flushes: u64,
    /// Written by the owner and by its children: where trap bytes were hit.
    pub traps: [TrapPlace; TRAP_PLACES],
}

/// Values of [`SharedContext::full_code`].
pub mod full_code {
    /// Plain code has not faulted since.
    pub const NOT: u32 = 0;
    /// Written by the owner: plain code has faulted, and goes on in full code.
    pub const ENTERED: u32 = 1;
    /// Written by the launcher before it rings: plain code may be tried again.
    pub const LEAVE: u32 = 2;
}

/// Arenas of one node at most.
pub const OWN_ARENAS: usize = 2 * LOWER_ARENAS;

/// An arena of shared memory, as its owner keeps it, for the launcher, which looks up what an address belongs to.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaRecord {
    /// Its first address; 0: there is none.
    pub base: u64,
    /// Of 64 bytes.
    pub units: u64,
    /// Where an [`ArenaUnit`] for each is, in the owner's memory.
    pub table: u64,
}

/// What begins or ends at a unit of an arena.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ArenaUnit {
    /// See [`arena_unit`].
    pub kind: u32,
    /// Units of the chunk (USED, FREE, FREE_END).
    pub size: u32,
    /// FREE: neighbours in the bin, as unit number + 1. USED: the place in the program's code behind the call that allocated it, lower half first.
    pub next: u32,
    pub prev: u32,
}

/// Values of [`ArenaUnit::kind`].
pub mod arena_unit {
    pub const INTERIOR: u32 = 0;
    pub const USED: u32 = 1;
    pub const FREE: u32 = 2;
    /// Last unit of a free chunk of more than one unit.
    pub const FREE_END: u32 = 3;
    /// As USED and FREE; its pages have their homes in slices, so it is used again as a whole only. FREE_SLICED: `next` is the next such chunk, as unit number + 1.
    pub const SLICED: u32 = 4;
    pub const FREE_SLICED: u32 = 5;
}

/// A trap byte that was hit. A place that is hit seldom may be taken by another one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrapPlace {
    /// [`ModuleInfo::number`](crate::ModuleInfo::number) of the file in the upper half, in the lower [`TrapEntry::old`](crate::TrapEntry::old); 0: a free place.
    pub name: u64,
    /// [`TrapEntry::new`](crate::TrapEntry::new).
    pub new: u32,
    /// How often; with [`TrapPlace::JUMP`].
    pub hits: u32,
}

impl TrapPlace {
    /// In [`TrapPlace::hits`]: a jump has taken the place of the trap byte.
    pub const JUMP: u32 = 1 << 31;
    /// There: the number of the [`TrapKept`] that says why none has; 0: nobody has tried.
    pub const KEPT: u32 = 7 << Self::KEPT_SHIFT;
    /// There: how often, no more being counted where that is full.
    pub const HITS: u32 = (1 << Self::KEPT_SHIFT) - 1;
    const KEPT_SHIFT: u32 = 28;
}

/// Why a trap byte that is hit often stays.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TrapKept {
    /// Data that look like trap bytes may follow.
    Data = 1,
    /// The program has asked for a filter of system calls.
    Filter,
    /// The code relies on a check in front of it.
    Check,
    /// No jump fits between the beginnings of instructions and other jumps that leads to an address.
    Room,
    /// No memory can be had where a jump would lead.
    Memory,
    /// There are as many jumps as there may be.
    Many,
}

impl TrapKept {
    const NAMES: [&str; 6] = ["data", "filter", "check", "room", "memory", "many"];

    /// In [`TrapPlace::hits`].
    pub const fn bits(self) -> u32 {
        (self as u32) << TrapPlace::KEPT_SHIFT
    }

    /// The word that says what [`TrapPlace::hits`] has.
    pub fn name(hits: u32) -> Option<&'static str> {
        let number = (hits & TrapPlace::KEPT) >> TrapPlace::KEPT_SHIFT;
        Self::NAMES.get((number as usize).checked_sub(1)?).copied()
    }
}

/// How many places there are.
pub const TRAP_PLACES: usize = 32;

/// How a node dies by a signal, or where it ends the run, for a launcher that looks at it before it is gone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CrashRecord {
    /// See [`crash_state`].
    pub state: u32,
    /// 0: the node ends the run, and has left a message, which may be about `address`.
    pub signal: i32,
    /// `si_code` of the signal.
    pub code: i32,
    /// The thread's number.
    pub thread: u32,
    /// `si_addr` of the signal, if an instruction has raised it; else 0.
    pub address: u64,
    /// The program's registers, in the order of the kernel's `sigcontext`: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags, segments, error
    /// code, number of the exception, mask, cr2.
    pub registers: [u64; 23],
}

/// Values of [`CrashRecord::state`].
pub mod crash_state {
    /// Nobody looks: the node dies at once.
    pub const NOBODY: u32 = 0;
    /// Written by the launcher before the node starts: it will look.
    pub const AWAITED: u32 = 1;
    /// Written by a thread of the node: it writes the record.
    pub const WRITING: u32 = 2;
    /// Written by that thread: it waits for [`READ`], though not for ever.
    pub const TOLD: u32 = 3;
    /// Written by the launcher: it has seen enough.
    pub const READ: u32 = 4;
}

/// What a node waits for, for the launcher, which looks whether the run is stuck. Valid while [`SharedContext::activity`] is `SLEEPING`.
#[repr(C)]
pub struct WaitRecord {
    /// See [`waits`].
    pub what: u64,
    /// What is waited for: the number of an object at its home, or a slot.
    pub object: u64,
    /// The object's home; 0 for what all nodes do.
    pub home: u64,
    /// The end of the stack that the node works on. The last word of that stack says where the program's is.
    pub stack_top: u64,
    /// Another number is another wait. Misses of shared memory have the number of what came before.
    pub number: u64,
    /// Timers of the program (`tempest.h`) that are scheduled: each may end any wait.
    pub timers: u64,
    /// The locks that the node holds, home in the upper half, number in the lower one, plus 1; 0: a free place. Of more locks than there are places some are left out.
    pub held: [u64; HELD_LOCKS],
}

/// Locks of a node that its [`WaitRecord`] can name.
pub const HELD_LOCKS: usize = 16;

/// Values of [`WaitRecord::what`].
pub mod waits {
    /// The node has not said anything yet.
    pub const UNKNOWN: u64 = 0;
    pub const MEMORY: u64 = 1;
    pub const LOCK: u64 = 2;
    /// Of as many nodes as its users say.
    pub const BARRIER: u64 = 3;
    pub const EVENT: u64 = 4;
    /// A slot that somebody publishes.
    pub const SLOT: u64 = 5;
    /// A barrier, reduction or broadcast of all nodes.
    pub const ALL: u64 = 6;
    /// The other nodes' end.
    pub const END: u64 = 7;
    pub const ANSWER: u64 = 8;
    /// `TPPI_sleep`: a handler of the program that calls `TPPI_wakeup`.
    pub const WAKEUP: u64 = 9;
    /// A handler of the program that resumes the access to this address.
    pub const RESUMPTION: u64 = 10;
}

/// Address of [`SharedContext::instruments`] in each node.
pub const INSTRUMENTS: u64 = CONTEXT_SHARED + core::mem::offset_of!(SharedContext, instruments) as u64;
/// Number of instrument words.
pub const INSTRUMENT_WORDS: usize = 32;

/// Words of [`SharedContext::instruments`], by index. Only a runtime built with the feature `instruments` looks at them; the workloads of
/// `blizzard stress` and `blizzard bench` write the first ones and read the others.
pub mod instrument {
    /// State of the random numbers that delays are drawn from; 0: no delays.
    pub const RANDOM: usize = 0;
    /// A delay at one in so many message boundaries.
    pub const ONE_IN: usize = 1;
    /// Longest delay, in `pause` instructions; one delay in four is a yield instead.
    pub const LONGEST_PAUSES: usize = 2;
    /// Number of a planted bug, for the runtime that tests build with the feature `planted`; 0: none.
    pub const PLANTED: usize = 3;
    /// Time-stamp counter at the end of each step of the last miss: `MissStep` of the runtime's instruments.
    pub const STEPS: usize = 8;
}

/// Values of [`SharedContext::activity`].
pub mod activity {
    /// In the program, or about to return to it: looks at its doorbell.
    pub const RUNNING: u32 = 0;
    /// In a futex on the doorbell, or about to be.
    pub const SLEEPING: u32 = 1;
    /// In the runtime, looking at its rings again and again.
    pub const SPINNING: u32 = 2;
    /// In a system call that may wait: comes out when it gets [`super::CALL_SIGNAL`].
    pub const KERNEL: u32 = 3;
    /// The same, and the signal is on its way.
    pub const CALLED: u32 = 4;
    /// Has served everybody and takes no more part in the run.
    pub const GONE: u32 = 5;
}

/// The signal by which a node calls another one out of the kernel. C libraries keep it for the cancellation or the user numbers of threads
/// and hide it from programs; a node has one thread.
pub const CALL_SIGNAL: i32 = 33;

/// Values of [`SharedContext::phase`].
pub mod node_phase {
    pub const STARTING: u32 = 0;
    pub const RUNNING: u32 = 1;
    /// The program has exited with status 0; the node still serves its blocks until all are DONE.
    pub const DONE: u32 = 2;
    /// The node stops the run; `message` says why.
    pub const FAILED: u32 = 3;
}

const _: () = {
    assert!(size_of::<SharedContext>() == CONTEXT_BYTES as usize);
    assert!(Counter::BlocksPushed as usize + 1 == COUNTER_COUNT);
    assert!(core::mem::offset_of!(SharedContext, activity) == 64);
};
