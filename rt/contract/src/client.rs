//! What client libraries find in a process, and the notes by which programs say what they use. `include/blizzard.h` mirrors the C-visible part.

use crate::tempest;

/// `a_type` of the auxiliary-vector entry that the runtime adds: its value is the address of a [`BzApi`].
/// Client libraries find the runtime with `getauxval(AT_BLIZZARD)`; 0 means "not rewritten: plain single node".
pub const AT_BLIZZARD: u64 = 0x425a_0001;
/// [`BzApi::version`] of this runtime.
pub const API_VERSION: u32 = 2;

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
    /// The process's next `fork` creates the next node; gives its number. Node 0 of a run with `RegionHeader::forks` only.
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
    /// Operation (`sync::op::Op` of the runtime), counter, value, expected value.
    pub counter_op: extern "C" fn(u32, *mut BzObject, u64, u64) -> u64,
    /// The same on an aligned word.
    pub fetch_op: extern "C" fn(u32, *mut u64, u64, u64) -> u64,
    /// `sync::op::Reduction` of at most `VECTOR_WORDS` words of private memory, in place.
    pub reduce: extern "C" fn(u32, *mut u64, u32),
    /// Root, private memory, bytes: at most `BROADCAST_BYTES`.
    pub broadcast: extern "C" fn(u32, *mut u8, usize),
    /// Node, where to, where from (private memory), bytes.
    pub remote_write: extern "C" fn(u32, *mut u8, *const u8, usize),
    pub remote_fence: extern "C" fn(),
    /// The functions of `tempest.h`.
    pub tempest: &'static tempest::TempestApi,
    /// Bytes; block size in bytes or 0; [`alloc_homes`]; the node that [`alloc_homes::NODE`] means.
    pub alloc_with: extern "C" fn(usize, u32, u32, u32, u32) -> *mut u8,
}

/// Where an allocation's pages have their homes: values of `bz_attr_t::homes`.
pub mod alloc_homes {
    pub const DEFAULT: u32 = 0;
    pub const ROUND_ROBIN: u32 = 1;
    pub const FIRST_TOUCH: u32 = 2;
    pub const NODE: u32 = 3;
    pub const SLICES: u32 = 4;
}

/// Name and type of the ELF note by which a program says that its node 0 creates the others. The client library has it beside
/// `bz_create`, so every program that can create nodes carries it.
pub const FORK_NOTE_NAME: &str = "Blizzard";
pub const FORK_NOTE_TYPE: u32 = 1;
/// Type of the note, of the same name, by which a program says that it uses `tempest.h`. The client library has it beside that interface.
pub const TEMPEST_NOTE_TYPE: u32 = 2;
/// Number of publish slots.
pub const PUBLISH_SLOTS: u32 = 1024;
