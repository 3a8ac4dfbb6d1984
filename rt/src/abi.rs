//! The contract between rewritten code, the runtime, the launcher and client libraries.
//!
//! Purpose: every address, offset, bit and structure that two of those parties must agree on stands here and only
//! here. The rewriter depends on this module as a library; the runtime is built from it; `include/blizzard.h`
//! mirrors the C-visible part. Nothing in this module executes.
//!
//! Source: design section 4 (address space) and 5 (checks); Tempest 1.2.1, table 1 (meaning of the tags).
//!
//! # Register contract of the gates
//!
//! Rewritten code reaches the runtime through 8-byte pointers in the *private context page*, with
//! `call qword ptr [disp32]`, so that no register is needed and any module at any load address can do it. A gate
//! * runs on the caller's stack, which the caller has first moved below the red zone (`lea rsp,[rsp-128]`);
//! * preserves every general register, the direction flag, all status flags, x87 and all vector and mask registers
//!   (the runtime is compiled for baseline SSE2, so saving xmm0-15 with legacy moves keeps upper halves intact);
//! * pops its own stack arguments (`ret 8*n`);
//! * assumes nothing about stack alignment or the direction flag.
//!
//! [`GATE_STRING`] is the exception: it *performs* the string instruction, so rsi, rdi, rcx, rax and the status flags
//! change exactly as that instruction changes them; or it sends the program to the instruction itself, when all of it may be executed there.

mod module;
pub mod tempest;

pub use module::*;

use crate::partition::LOWER_ARENAS;

/// Base of the tag table: the tag of address `a` is the byte at `TAG_TABLE_BASE + (a >> BLOCK_SHIFT)`.
/// Fits a sign-extended disp32, so the check needs no base register.
pub const TAG_TABLE_BASE: u64 = 0x7fff_8000;
/// Bytes of the tag table: one for each minimum block of the 47-bit user address space.
pub const TAG_TABLE_BYTES: u64 = 1 << 41;
/// log2 of the minimum block size in bytes.
pub const BLOCK_SHIFT: u32 = 6;
/// The minimum block size in bytes.
pub const BLOCK_BYTES: u64 = 1 << BLOCK_SHIFT;

/// The largest block in bytes: a page.
pub const BLOCK_MAX_BYTES: u64 = 4096;

/// Tag byte values. Bit 0: stores fault. Bit 1: loads fault. Private memory reads 0 from the zero page.
pub const TAG_WRITABLE: u8 = 0;
pub const TAG_READONLY: u8 = 1;
pub const TAG_INVALID: u8 = 3;
pub const TAG_BUSY: u8 = 7;
/// Tag bit that makes a load fault.
pub const TAG_NO_LOAD: u8 = 2;
/// Tag bit that makes a store fault.
pub const TAG_NO_STORE: u8 = 1;

/// Base of the user-managed virtual segment, the same on every node.
pub const SEGMENT_BASE: u64 = 0x2000_0000_0000;
/// `addr >> SEGMENT_SHIFT == SEGMENT_BASE >> SEGMENT_SHIFT` exactly for addresses that may lie in the segment.
pub const SEGMENT_SHIFT: u32 = 40;
/// Bytes of the addresses that [`SEGMENT_SHIFT`] tells from all others: the shared segment and the user-managed one.
pub const SEGMENT_WINDOW_BYTES: u64 = 1 << SEGMENT_SHIFT;
/// Largest segment in bytes.
pub const SEGMENT_MAX_BYTES: u64 = SEGMENT_WINDOW_BYTES / 2;
/// Segment size in bytes unless the launcher says otherwise.
pub const SEGMENT_DEFAULT_BYTES: u64 = 64 << 30;

/// A bit of an address that is clear in [`SEGMENT_WINDOW_BYTES`], and set wherever the kernel places stacks, libraries, mappings, and
/// programs that may lie anywhere.
pub const PRIVATE_BIT: u32 = 46;
/// What is less than so many bytes from an address with [`PRIVATE_BIT`] set lies outside the window, whatever that address's other bits are.
pub const PRIVATE_REACH: u64 = 1 << 40;

/// Base of the user-managed virtual segment of `tempest.h`, the same on every node. It exists in programs that use that interface.
/// Source: Tempest 1.2.1, section 3.1.
pub const USER_BASE: u64 = SEGMENT_BASE + SEGMENT_WINDOW_BYTES / 4 * 3;
/// Bytes of the user-managed virtual segment.
pub const USER_BYTES: u64 = 16 << 30;

/// The shared context page: in a run of several nodes, the node's own context page of the shared region; else anonymous.
/// Below 2 GiB, so that inserted code reaches it by absolute disp32.
pub const CONTEXT_SHARED: u64 = 0x7fff_0000;
/// The private context page: gate pointers and identity. Read-only once the runtime has started.
pub const CONTEXT_PRIVATE: u64 = 0x7fff_1000;
/// Bytes of each context page.
pub const CONTEXT_BYTES: u64 = 4096;

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

const fn offset_of_counters() -> u64 {
    core::mem::offset_of!(SharedContext, counters) as u64
}

/// Gate pointers in the private context page.
pub const GATE_MISS: u64 = CONTEXT_PRIVATE;
/// See [`GATE_MISS`]. No arguments.
pub const GATE_POLL: u64 = CONTEXT_PRIVATE + 8;
/// Performs a string instruction. One stack argument: [`string_desc`] bits. Behind the call stand the bytes of [`STRING_TAIL`] and a rel32, which lead behind the instruction.
pub const GATE_STRING: u64 = CONTEXT_PRIVATE + 16;
/// Makes the blocks of all active lanes of a gather or scatter accessible. One stack argument: address of a [`VsibDesc`].
pub const GATE_VSIB: u64 = CONTEXT_PRIVATE + 24;
/// Executes the program's system call. Entered by a jump, not a call, with rcx = the address behind the `syscall` instruction that
/// the program shall continue at, and everything else as that instruction expects it. As `syscall` does, it clobbers rcx and
/// r11 and returns its result in rax; no flag and nothing on the stack changes. The bytes before the continuation address are the
/// `syscall` instruction itself, which the runtime may send the program to.
pub const GATE_SYSCALL: u64 = CONTEXT_PRIVATE + 32;
/// Makes several ranges accessible at once: the miss of a check behind which others still count. One stack argument: address of the
/// first [`GroupRange`] of a chain.
pub const GATE_GROUP: u64 = CONTEXT_PRIVATE + 40;
/// Ends the run because rsp leads into the window of the segment. Entered by a jump, with rax = an address in the new code of the function
/// that has set it so. Nothing lies on that stack.
pub const GATE_STACK: u64 = CONTEXT_PRIVATE + 48;
/// u32: 1 where nothing is ever inaccessible, so that gathers and scatters need no look: in a run of one node (or not launched) whose program has not started
/// `tempest.h`; else 2 or more.
pub const CTX_NODES: u64 = CONTEXT_PRIVATE + 64;
/// u32: this node's number.
pub const CTX_NODE: u64 = CONTEXT_PRIVATE + 68;

/// The descriptor of [`GATE_MISS`], pushed as a sign-extended imm32 *after* the address:
/// at gate entry `[rsp]` = return address, `[rsp+8]` = descriptor, `[rsp+16]` = address of the first byte accessed.
/// On return every block of `[addr, addr+size)` has a tag that allows the access. `ret 16`.
pub mod miss_desc {
    /// Bits 0..16: bytes accessed. 0xffff: the XSAVE area that XCR0 describes.
    pub const SIZE_MASK: u32 = 0xffff;
    pub const SIZE_XSAVE: u32 = 0xffff;
    pub const LOAD: u32 = 1 << 16;
    pub const STORE: u32 = 1 << 17;
    /// The instruction may leave some of the bytes alone (vmaskmov, masked AVX-512, maskmovdqu): a block outside
    /// allocated shared memory is then not an error.
    pub const MASKED: u32 = 1 << 18;
}

/// Bits of the descriptor of [`GATE_STRING`].
pub mod string_desc {
    pub const OP_MASK: u32 = 7;
    pub const MOVS: u32 = 0;
    pub const STOS: u32 = 1;
    pub const LODS: u32 = 2;
    pub const SCAS: u32 = 3;
    pub const CMPS: u32 = 4;
    /// Bits 3..5: log2 of the element's bytes.
    pub const SIZE_SHIFT: u32 = 3;
    /// Bits 5..7: 0 no prefix, 1 rep/repe, 2 repne.
    pub const REP_SHIFT: u32 = 5;
    /// Check the tags of what is read / written (cleared by `--checks stores` / `loads`).
    pub const CHECK_LOADS: u32 = 1 << 7;
    pub const CHECK_STORES: u32 = 1 << 8;
}

/// What [`GATE_VSIB`] needs to compute the lanes' addresses: `base + sext(index[lane]) * scale + disp`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VsibDesc {
    pub disp: i32,
    /// General register number 0..15 in encoding order (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8..); 16: none.
    /// When it is rsp, its value is the one before the stub moved rsp, that is, [`VsibDesc::rsp_moved`] bytes higher than at the push.
    pub base: u8,
    /// Vector register number 0..31.
    pub index: u8,
    /// Bytes of one index element: 4 or 8.
    pub index_bytes: u8,
    /// Bytes moved for one lane: 4 or 8.
    pub elem_bytes: u8,
    pub lanes: u8,
    /// 1, 2, 4, 8.
    pub scale: u8,
    /// 0: sign bits of the elements (of `elem_bytes`) of vector register `mask`; 1: bits of mask register `mask`; 2: all lanes.
    pub mask_kind: u8,
    pub mask: u8,
    /// 1 load, 2 store.
    pub access: u8,
    /// Bytes by which the stub lowered rsp before the gate was called, arguments and return address not counted.
    pub rsp_moved: u8,
    pub _pad: [u8; 2],
}

/// One range of a chain that [`GATE_GROUP`] makes accessible: `base + index * scale + disp` with the program's register values.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupRange {
    pub disp: i32,
    /// As [`miss_desc`]; the size is at most 64 bytes.
    pub desc: u32,
    /// General register numbers in encoding order, never rsp; `index` 16: none.
    pub base: u8,
    pub index: u8,
    /// 1, 2, 4, 8.
    pub scale: u8,
    /// 1: another range follows.
    pub more: u8,
    pub _pad: u32,
}

/// What stands behind the call of [`GATE_STRING`]: `lea rsp, [rsp + 128]`, and a `jmp` but for its rel32.
pub const STRING_TAIL: [u8; 9] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, 0xe9];

/// Most ranges of one chain.
pub const GROUP_RANGES: usize = 16;

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
    /// Tag changes that table 2 does not allow; looked for in runs with [`tempest_flags::DEBUG`].
    BadTagChanges,
    /// Blocks asked for before they were missed, because the misses before them were as before ([`crate::coherence::trail`]).
    AskedAhead,
    /// Of the mappings of [`Counter::UncheckedCode`], those of code that the program makes itself, or maps from what is no library.
    GeneratedCode,
}
/// How many counters there are.
pub const COUNTER_COUNT: usize = 43;
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
    _line2: [u32; 15],
    /// Written by the owner alone: [`LIMIT_UP`], [`LIMIT_DOWN`].
    pub limits: [u64; 2],
    _line3: [u64; 6],
    /// NUL-terminated text that the launcher prints when the node stops with `phase` FAILED.
    pub message: [u8; 1024],
    /// Written by the owner's program and by a runtime with instruments: see [`instrument`].
    pub instruments: [u64; INSTRUMENT_WORDS],
    /// Written by the owner (and by inserted code in a counting rewrite).
    pub counters: [u64; COUNTER_COUNT],
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
    /// Time-stamp counter at the end of each step of the last miss: [`crate::instruments::Step`].
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

/// Environment variable by which the launcher tells a node who it is: `fd=<region fd>,node=<number>`, and where blocks are counted
/// `,blocks=<fd of a file as [`BlocksHeader`] describes it>`. The runtime removes it before the program sees its environment.
pub const BOOT_ENV: &str = "BLIZZARD_BOOT";

/// Environment variable by which the launcher names the original of a program that it runs out of the cache: an absolute path. The
/// runtime takes it out of the program's environment.
pub const EXE_ENV: &str = "BLIZZARD_EXE";

/// First bytes of the shared region ("BLZREGN6").
pub const REGION_MAGIC: u64 = u64::from_le_bytes(*b"BLZREGN6");
/// Most nodes of one run.
pub const MAX_NODES: usize = 64;

/// Values of [`RegionHeader::protocol`]: the coherence protocol of the run.
pub mod protocol_number {
    pub const STACHE: u32 = 1;
    /// After the M-Machine.
    pub const MCM: u32 = 2;
}

/// Values of [`RegionHeader::homes`]: where the pages of `bz_alloc` have their homes.
pub mod home_policy {
    /// Page by page over all nodes.
    pub const ROUND_ROBIN: u32 = 0;
    /// At the node that uses the page first.
    pub const FIRST_TOUCH: u32 = 1;
}

/// Header of the shared region (a memfd that the launcher creates, fills and passes on); all offsets in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionHeader {
    pub magic: u64,
    pub total_bytes: u64,
    /// Differs from run to run; every message carries it (PPE seed, section 4.1).
    pub incarnation: u32,
    pub nodes: u32,
    /// Processors the launcher may use: how long to spin depends on it.
    pub cpus: u32,
    /// Slots of one ring, a power of two.
    pub ring_slots: u32,
    pub segment_bytes: u64,
    /// `nodes` shared context pages.
    pub contexts_off: u64,
    /// `nodes * nodes` rings; ring (src, dst) at index `src * nodes + dst`.
    pub rings_off: u64,
    pub ring_bytes: u64,
    /// `fill_bytes` bytes of [`TAG_INVALID`], mapped privately over the segment's part of the tag table, so that
    /// untouched shared memory starts Invalid without a write per tag.
    pub fill_off: u64,
    pub fill_bytes: u64,
    /// Written 1 by whoever ends the run: every waiting node stops at once.
    pub abort: u32,
    /// See [`protocol_number`].
    pub protocol: u32,
    /// 1: the launcher starts node 0 only, which creates the others by `fork` (see [`crate::forks`]).
    pub forks: u32,
    /// Such a run only. Written once by node 0, after `fork_limits`: how many nodes are homes. 0: node 0 still runs alone.
    pub fork_homes: u32,
    /// Such a run only, by arena of the lower half ([`crate::partition::ArenaId`]): its first address that had not been handed out when
    /// `fork_homes` was written.
    pub fork_limits: [u64; LOWER_ARENAS],
    /// Milliseconds after which a node that does not answer ends the run; 0: never.
    pub peer_timeout_ms: u32,
    /// Most pages of other homes that a node has copies of; 0: any number.
    pub stache_pages: u32,
    /// Bytes that change hands together where an allocation does not choose: a power of two from [`BLOCK_BYTES`] to [`BLOCK_MAX_BYTES`].
    pub block_bytes: u32,
    /// See [`home_policy`].
    pub homes: u32,
    /// [`tempest_flags`].
    pub tempest_flags: u64,
    /// Most bytes of the program's messages that one node buffers because their receivers do not take them.
    pub tempest_buffer_bytes: u64,
    /// Most user-managed pages of one node.
    pub tempest_pages: u64,
    /// `nodes` staging areas of [`STAGE_BYTES`], through which bulk data goes; pages of them that are not used cost no memory.
    pub stage_off: u64,
    /// Most blocks that a node asks for at a time before they are missed; 0: none.
    pub look_ahead: u32,
    pub _pad: u32,
}

/// Bits of [`RegionHeader::tempest_flags`].
pub mod tempest_flags {
    /// Tag changes are compared with table 2 of the Tempest specification.
    pub const DEBUG: u64 = 1;
    /// Bulk data travels in messages, never by a copy from the other process's memory.
    pub const NO_DIRECT_BULK: u64 = 2;
}

/// [`RegionHeader::tempest_buffer_bytes`] unless the launcher says otherwise.
pub const TEMPEST_BUFFER_DEFAULT_BYTES: u64 = 256 << 20;

/// Bytes of bulk data that are copied at once through a staging area.
pub const STAGE_PIECE_BYTES: u64 = 32 << 10;
/// Pieces that a staging area has room for.
pub const STAGE_PLACES: u64 = 16;
/// Bytes of a node's staging area: a page, and the pieces.
pub const STAGE_BYTES: u64 = CONTEXT_BYTES + STAGE_PLACES * STAGE_PIECE_BYTES;

/// Bytes of one ring slot: header and one minimum block, two cache lines.
pub const SLOT_BYTES: u64 = 128;
/// Bytes in front of a ring's slots: the consumer's index, which has two cache lines for itself, and one more slot.
pub const RING_HEADER_BYTES: u64 = 256;

/// [`RegionHeader::peer_timeout_ms`] unless the launcher says otherwise.
pub const PEER_TIMEOUT_MS: u32 = 60_000;

/// Most requests that a node has outstanding besides the miss that it waits for, and [`RegionHeader::look_ahead`] unless the launcher says otherwise.
pub const LOOK_AHEAD: u32 = 63;

/// Fewest pages of a finite stache: what one string instruction or the lanes of a gather use at once, and some more.
pub const STACHE_PAGES_MIN: u32 = 16;

/// Slots of a ring in a run of `nodes` nodes: a power of two from 16 to 128, about 1024 for all rings that lead to one node. Each node so has
/// 128 KiB of slots and 256 bytes for each peer, however many there are, up to 64.
pub const fn ring_slots(nodes: u32) -> u32 {
    match nodes {
        0..=8 => 128,
        9..=64 => 1 << (1024 / nodes).ilog2(),
        _ => 16,
    }
}

impl RegionHeader {
    /// The layout for `nodes` nodes; `incarnation` must differ from run to run.
    pub const fn new(nodes: u32, cpus: u32, segment_bytes: u64, incarnation: u32) -> Self {
        let ring_slots = ring_slots(nodes);
        let ring_bytes = RING_HEADER_BYTES + ring_slots as u64 * SLOT_BYTES;
        let contexts_off = CONTEXT_BYTES;
        let rings_off = contexts_off + nodes as u64 * CONTEXT_BYTES;
        let fill_bytes: u64 = 4 << 20;
        let fill_off = (rings_off + nodes as u64 * nodes as u64 * ring_bytes).next_multiple_of(fill_bytes);
        let stage_off = fill_off + fill_bytes;
        RegionHeader {
            magic: REGION_MAGIC,
            total_bytes: stage_off + nodes as u64 * STAGE_BYTES,
            incarnation,
            nodes,
            cpus,
            ring_slots,
            segment_bytes,
            contexts_off,
            rings_off,
            ring_bytes,
            fill_off,
            fill_bytes,
            abort: 0,
            protocol: protocol_number::STACHE,
            forks: 0,
            fork_homes: 0,
            fork_limits: [0; LOWER_ARENAS],
            peer_timeout_ms: PEER_TIMEOUT_MS,
            stache_pages: 0,
            block_bytes: BLOCK_BYTES as u32,
            homes: home_policy::ROUND_ROBIN,
            tempest_flags: 0,
            tempest_buffer_bytes: TEMPEST_BUFFER_DEFAULT_BYTES,
            tempest_pages: USER_BYTES / 4096,
            stage_off,
            look_ahead: LOOK_AHEAD,
            _pad: 0,
        }
    }
}

/// `a_type` of the auxiliary-vector entry that the runtime adds: its value is the address of a [`BzApi`].
/// Client libraries find the runtime with `getauxval(AT_BLIZZARD)`; 0 means "not rewritten: plain single node".
pub const AT_BLIZZARD: u64 = 0x425a_0001;
/// [`BzApi::version`] of this runtime.
pub const API_VERSION: u32 = 1;

/// Opaque lock of `blizzard.h`.
#[repr(C)]
pub struct BzLock {
    _opaque: [u8; 0],
}

/// Opaque barrier, event or counter of `blizzard.h`.
#[repr(C)]
pub struct BzObject {
    _opaque: [u8; 0],
}

/// The runtime's functions for client libraries, called with the C calling convention on the program's stack.
/// `blizzard.h` documents each; the field order is part of the ABI (append only).
#[repr(C)]
pub struct BzApi {
    pub version: u32,
    pub bytes: u32,
    pub node: extern "C" fn() -> u32,
    pub nodes: extern "C" fn() -> u32,
    pub alloc: extern "C" fn(usize) -> *mut u8,
    pub alloc_on: extern "C" fn(u32, usize) -> *mut u8,
    pub free: extern "C" fn(*mut u8),
    pub publish: extern "C" fn(u32, *mut u8),
    pub lookup: extern "C" fn(u32) -> *mut u8,
    pub barrier: extern "C" fn(),
    pub lock_new: extern "C" fn() -> *mut BzLock,
    pub lock: extern "C" fn(*mut BzLock),
    pub trylock: extern "C" fn(*mut BzLock) -> i32,
    pub unlock: extern "C" fn(*mut BzLock),
    pub fetch_add_u64: extern "C" fn(*mut u64, u64) -> u64,
    pub reduce_sum_u64: extern "C" fn(u64) -> u64,
    pub reduce_sum_f64: extern "C" fn(f64) -> f64,
    /// The process's next `fork` creates the next node; gives its number. Node 0 of a run with [`RegionHeader::forks`] only.
    pub create_begin: extern "C" fn() -> u32,
    /// What that `fork` returned in node 0.
    pub create_end: extern "C" fn(i32),
    /// Waits until so many more created nodes have ended.
    pub wait_for_end: extern "C" fn(u32),
    pub prefetch: extern "C" fn(*const u8, usize, i32),
    pub check_out: extern "C" fn(*const u8, usize, i32),
    pub check_in: extern "C" fn(*const u8, usize),
    pub barrier_new: extern "C" fn() -> *mut BzObject,
    pub barrier_wait: extern "C" fn(*mut BzObject, u32) -> i32,
    pub event_new: extern "C" fn() -> *mut BzObject,
    /// 1 sets it, 0 clears it.
    pub event_set: extern "C" fn(*mut BzObject, i32),
    pub event_wait: extern "C" fn(*mut BzObject),
    pub counter_new: extern "C" fn(u64) -> *mut BzObject,
    /// Operation ([`crate::sync::op::Op`]), counter, value, expected value.
    pub counter_op: extern "C" fn(u32, *mut BzObject, u64, u64) -> u64,
    /// The same on an aligned word.
    pub fetch_op: extern "C" fn(u32, *mut u64, u64, u64) -> u64,
    /// [`crate::sync::op::Reduction`] of at most [`crate::sync::collective::VECTOR_WORDS`] words of private memory, in place.
    pub reduce: extern "C" fn(u32, *mut u64, u32),
    /// Root, private memory, bytes: at most [`crate::sync::collective::BROADCAST_BYTES`].
    pub broadcast: extern "C" fn(u32, *mut u8, usize),
    /// Node, where to, where from (private memory), bytes.
    pub remote_write: extern "C" fn(u32, *mut u8, *const u8, usize),
    pub remote_fence: extern "C" fn(),
    /// The functions of `tempest.h`.
    pub tempest: &'static tempest::TempestApi,
    /// Bytes; block size in bytes or 0; [`alloc_homes`]; the node that [`alloc_homes::NODE`] means.
    pub alloc_with: extern "C" fn(usize, u32, u32, u32) -> *mut u8,
}

/// Where an allocation's pages have their homes: values of `bz_attributes_t::homes`.
pub mod alloc_homes {
    pub const DEFAULT: u32 = 0;
    pub const ROUND_ROBIN: u32 = 1;
    pub const FIRST_TOUCH: u32 = 2;
    pub const NODE: u32 = 3;
}

/// Name and type of the ELF note by which a program says that its node 0 creates the others. The client library has it beside
/// `bz_create`, so every program that can create nodes carries it.
pub const FORK_NOTE_NAME: &str = "Blizzard";
pub const FORK_NOTE_TYPE: u32 = 1;
/// Type of the note, of the same name, by which a program says that it uses `tempest.h`. The client library has it beside that interface.
pub const TEMPEST_NOTE_TYPE: u32 = 2;

/// First bytes of a [`BlocksHeader`] ("BLZBLKS1").
pub const BLOCKS_MAGIC: u64 = u64::from_le_bytes(*b"BLZBLKS1");
/// Bytes of the header, and of what stands in front of each module's counters: a page.
pub const BLOCKS_PAGE_BYTES: u64 = 4096;

/// Beginning of the file in which basic blocks are counted. The launcher makes it, sparse, and all processes of a run map it shared: a
/// forked child goes on with the counters of its parent, and nothing is lost however a process ends.
///
/// Behind it stand [`BlocksRecord`]s up to `next`, each in front of its module's counters, padded to whole pages.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BlocksHeader {
    pub magic: u64,
    pub total_bytes: u64,
    /// Offset of the first free byte; atomically increased by whoever loads a module.
    pub next: u64,
}

/// One module that was loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BlocksRecord {
    /// Bytes of the counters behind this page.
    pub bytes: u64,
    /// 1: the module counts here. 0: it was registered, but its counters were never mapped.
    pub attached: u64,
    /// The rewritten file, NUL-terminated; empty for the program itself.
    pub path: [u8; BLOCKS_PAGE_BYTES as usize - 16],
}

/// Bytes of the sequence that enters [`GATE_SYSCALL`]: `lea rcx, [behind]`, `jmp [GATE_SYSCALL]`, `syscall`. The program goes back to its
/// beginning where a call is prepared again.
pub const SYSCALL_SEQUENCE_BYTES: u64 = 7 + 7 + 2;

/// Number of publish slots.
pub const PUBLISH_SLOTS: u32 = 1024;

const _: () = {
    assert!(TAG_TABLE_BASE < 1 << 31 && CONTEXT_PRIVATE + CONTEXT_BYTES <= TAG_TABLE_BASE);
    assert!(TAG_TABLE_BASE + TAG_TABLE_BYTES < SEGMENT_BASE);
    assert!(SEGMENT_BASE.is_multiple_of(SEGMENT_WINDOW_BYTES));
    // Modulo twice the bit, addresses with the bit set are those from the bit on. The window ends so far below it, and begins so far above 0.
    assert!(SEGMENT_BASE + SEGMENT_WINDOW_BYTES + PRIVATE_REACH <= 1 << PRIVATE_BIT && PRIVATE_REACH <= SEGMENT_BASE);
    assert!(USER_BASE >= SEGMENT_BASE + SEGMENT_MAX_BYTES + USER_BYTES);
    assert!(USER_BASE + USER_BYTES < SEGMENT_BASE + SEGMENT_WINDOW_BYTES);
    assert!(core::mem::size_of::<SharedContext>() == CONTEXT_BYTES as usize);
    assert!(core::mem::size_of::<RegionHeader>() <= CONTEXT_BYTES as usize);
    assert!(core::mem::size_of::<VsibDesc>() == 16);
    assert!(core::mem::size_of::<BlocksRecord>() == BLOCKS_PAGE_BYTES as usize);
    assert!(core::mem::size_of::<GroupRange>() == 16);
    assert!(Counter::GeneratedCode as usize + 1 == COUNTER_COUNT);
    assert!(core::mem::offset_of!(SharedContext, activity) == 64);
};
