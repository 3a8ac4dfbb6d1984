//! The file in which the basic blocks of a counting rewrite are counted.
//!
//! Written by the nodes of a program that was rewritten to count; read by `blizzard overhead` when it has ended.

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

const _: () = assert!(size_of::<BlocksRecord>() == BLOCKS_PAGE_BYTES as usize);
