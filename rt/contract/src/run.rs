//! The shared region of a run: what the launcher tells every node.
//!
//! Purpose: [`RegionHeader`] at the region's beginning, and the environment variables that lead a node to it. Input: what the user wants of the run. Output: the layout.
//! **Invariant**: no part of the region overlaps another; the header fits into the bytes of a context page.

use crate::addresses::{BLOCK_BYTES, CONTEXT_BYTES, USER_BYTES};
use crate::limits::LOWER_ARENAS;
use crate::promises::promises_bytes;

/// Environment variable by which the launcher tells a node who it is: `fd=<region fd>,node=<number>`, and where blocks are counted
/// `,blocks=<fd of a file as [`BlocksHeader`] describes it>`. The runtime removes it before the program sees its environment.
pub const BOOT_ENV: &str = "BLIZZARD_BOOT";
/// Environment variable by which the launcher names the original of a program that it runs out of the cache: an absolute path. The
/// runtime takes it out of the program's environment.
pub const EXE_ENV: &str = "BLIZZARD_EXE";
/// First bytes of the shared region ("BLZREGNB").
pub const REGION_MAGIC: u64 = u64::from_le_bytes(*b"BLZREGNB");

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
    /// `fill_bytes` bytes of `TAG_INVALID`, mapped privately over the segment's part of the tag table, so that
    /// untouched shared memory starts Invalid without a write per tag.
    pub fill_off: u64,
    pub fill_bytes: u64,
    /// Written 1 by whoever ends the run: every waiting node stops at once.
    pub abort: u32,
    /// Number of the coherence protocol, from 1: `blizzard_protocol::list` has them.
    pub protocol: u32,
    /// 1: the launcher starts node 0 only, which creates the others by `fork` (`process::creation` of the runtime).
    pub forks: u32,
    /// Such a run only. Written once by node 0, after `fork_limits`: how many nodes are homes. 0: node 0 still runs alone.
    pub fork_homes: u32,
    /// Such a run only, by arena of the lower half (`ArenaId` of the runtime): its first address that had not been handed out when
    /// `fork_homes` was written.
    pub fork_limits: [u64; LOWER_ARENAS],
    /// Milliseconds after which a node that does not answer ends the run; 0: never.
    pub peer_timeout_ms: u32,
    /// Most pages of other homes that a node has copies of; 0: any number.
    pub stache_pages: u32,
    /// Bytes that change hands together where an allocation does not choose: a power of two from [`BLOCK_BYTES`] to [`BLOCK_MAX_BYTES`](crate::BLOCK_MAX_BYTES).
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
    /// [`LEARNT_PLACES`] of [`LearntPlace`]: what guarded code of all nodes has learnt. 0: nobody asks.
    pub learnt_off: u64,
    /// A table as [`RulesHead`](crate::RulesHead) begins it, at the region's end; 0: no allocation gets other attributes than the program asks for.
    pub rules_off: u64,
    /// A page with a [`BrokenPromise`](crate::BrokenPromise), and the records behind it; 0: nobody looks whether promises of protocols are kept.
    pub promises_off: u64,
    /// `nodes` words of 16 bits, by node: the first node of its host. A host's nodes follow each other. All zero in a run on one host.
    pub hosts_off: u64,
}

/// How often an access of plain code has faulted. All words are changed atomically, by any process of the run.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearntPlace {
    /// [`ModuleInfo::number`](crate::ModuleInfo::number) in the upper half, the access's distance from [`ModuleInfo::new_base_va`](crate::ModuleInfo::new_base_va) in
    /// the lower one. 0: the place is free.
    pub access: u64,
    pub faults: u64,
}

/// Accesses that a run learns of at most; places that nobody uses cost no memory.
pub const LEARNT_PLACES: u64 = 1 << 14;
/// An access stands in one of so many places, from the one on that [`learnt_place`] names.
pub const LEARNT_REACH: u64 = 64;

/// The first place that an access may have.
pub const fn learnt_place(access: u64) -> u64 {
    // Fibonacci hashing: Knuth, The Art of Computer Programming, volume 3, 6.4.
    access.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LEARNT_PLACES.trailing_zeros())
}

/// Bits of [`RegionHeader::tempest_flags`].
pub mod tempest_flags {
    /// Tag changes are compared with table 2 of the Tempest specification.
    pub const DEBUG: u64 = 1;
    /// Bulk data goes through staging areas alone, never by a copy out of the other process's memory.
    pub const NO_DIRECT_BULK: u64 = 2;
}

/// [`RegionHeader::tempest_buffer_bytes`] unless the launcher says otherwise.
pub const TEMPEST_BUFFER_DEFAULT_BYTES: u64 = 256 << 20;
/// Bytes of bulk data that are copied at once through a staging area.
pub const STAGE_PIECE_BYTES: u64 = 32 << 10;
/// Pieces that a staging area has room for. Between nodes of one host [`NEAR_PLACES`] are used: these fit into caches.
pub const STAGE_PLACES: u64 = 64;
/// How many of them are used in a run on one host.
pub const NEAR_PLACES: u64 = 16;
/// How many more follow for what flushes push.
pub const PUSH_PLACES: u64 = 16;
/// Bytes of a node's staging area: a page, and the pieces.
pub const STAGE_BYTES: u64 = CONTEXT_BYTES + (STAGE_PLACES + PUSH_PLACES) * STAGE_PIECE_BYTES;
/// Bytes of one ring slot: header and one minimum block, two cache lines.
pub const SLOT_BYTES: u64 = 128;
/// Bytes in front of a ring's slots: the consumer's index, which has two cache lines for itself, and one more slot.
pub const RING_HEADER_BYTES: u64 = 256;
/// [`RegionHeader::peer_timeout_ms`] unless the launcher says otherwise.
pub const PEER_TIMEOUT_MS: u32 = 60_000;
/// Bytes of what [`RegionHeader::hosts_off`] has of a node.
pub const HOST_WORD_BYTES: u64 = 2;
/// Most requests that a node has outstanding besides the miss that it waits for, and [`RegionHeader::look_ahead`] unless the launcher says otherwise.
pub const LOOK_AHEAD: u32 = 63;
/// Fewest pages of a finite stache: what one string instruction or the lanes of a gather use at once, and some more.
pub const STACHE_PAGES_MIN: u32 = 16;

/// Slots of a ring in a run of `nodes` nodes: a power of two from 16 to 128, at most 1024 for all rings that lead to one node, up to 64 nodes.
pub const fn ring_slots(nodes: u32) -> u32 {
    match nodes {
        0..=8 => 128,
        9..=64 => 1 << (1024 / nodes).ilog2(),
        _ => 16,
    }
}

/// No byte of it is padding: its fields' sizes add up.
const _: () = assert!(size_of::<RegionHeader>() == 8 * 16 + 4 * 14 + 8 * LOWER_ARENAS);

impl RegionHeader {
    /// The header as the nodes read it.
    pub const fn bytes(&self) -> [u8; size_of::<RegionHeader>()] {
        // SAFETY: the type is `repr(C)` and has no padding, as the assertion above says, so each byte is initialised.
        unsafe { core::mem::transmute(*self) }
    }

    /// The inverse of [`RegionHeader::bytes`]; whoever uses it looks whether it makes sense.
    pub const fn from_bytes(bytes: [u8; size_of::<RegionHeader>()]) -> RegionHeader {
        // SAFETY: as many bytes as the type has, which are integers: any are a value.
        unsafe { core::mem::transmute(bytes) }
    }

    /// The layout for `nodes` nodes; `incarnation` must differ from run to run.
    pub const fn new(nodes: u32, cpus: u32, segment_bytes: u64, incarnation: u32) -> Self {
        let ring_slots = ring_slots(nodes);
        let ring_bytes = RING_HEADER_BYTES + ring_slots as u64 * SLOT_BYTES;
        let contexts_off = CONTEXT_BYTES;
        let rings_off = contexts_off + nodes as u64 * CONTEXT_BYTES;
        let fill_bytes: u64 = 4 << 20;
        let fill_off = (rings_off + nodes as u64 * nodes as u64 * ring_bytes).next_multiple_of(fill_bytes);
        let stage_off = fill_off + fill_bytes;
        let learnt_off = stage_off + nodes as u64 * STAGE_BYTES;
        let hosts_off = learnt_off + LEARNT_PLACES * size_of::<LearntPlace>() as u64;
        RegionHeader {
            magic: REGION_MAGIC,
            total_bytes: hosts_off + (nodes as u64 * HOST_WORD_BYTES).next_multiple_of(64),
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
            protocol: 1,
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
            learnt_off,
            rules_off: 0,
            promises_off: 0,
            hosts_off,
        }
    }

    /// Makes room for what [`promises_off`](Self::promises_off) names. Comes before [`RegionHeader::add_rules`].
    pub const fn add_promises(&mut self) {
        self.promises_off = self.total_bytes.next_multiple_of(CONTEXT_BYTES);
        self.total_bytes = self.promises_off + promises_bytes(self.nodes, self.segment_bytes);
    }

    /// Makes room for a table of so many bytes.
    pub const fn add_rules(&mut self, bytes: u64) {
        self.rules_off = self.total_bytes.next_multiple_of(64);
        self.total_bytes = self.rules_off + bytes;
    }
}

const _: () = assert!(size_of::<RegionHeader>() <= CONTEXT_BYTES as usize);
