//! The address space of a node: tags, shared segment, context pages, and the values of tags.
//!
//! **Invariant**: none of these ranges overlaps another, or what the kernel gives a program (asserted below).
//! Source: design section 4; Tempest 1.2.1, table 1 (meaning of the tags).

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
/// Segment size in bytes unless somebody says otherwise, at least: see [`usual_segment_bytes`].
pub const SEGMENT_DEFAULT_BYTES: u64 = 64 << 30;

/// Segment size in bytes on a machine with so much memory: more than a quarter is what one allocation can have, and that is all of the memory. A program that a node
/// executes, which has no launcher, maps no more than the node: a hard limit that the node has set leaves no room for more.
pub const fn usual_segment_bytes(memory_bytes: u64) -> u64 {
    match memory_bytes.saturating_mul(4).checked_next_power_of_two() {
        Some(least) if least < SEGMENT_DEFAULT_BYTES => SEGMENT_DEFAULT_BYTES,
        Some(least) if least < SEGMENT_MAX_BYTES => least,
        _ => SEGMENT_MAX_BYTES,
    }
}

const _: () = {
    assert!(usual_segment_bytes(0) == SEGMENT_DEFAULT_BYTES && usual_segment_bytes(24 << 30) == 128 << 30);
    assert!(usual_segment_bytes(100 << 30) == SEGMENT_MAX_BYTES && usual_segment_bytes(u64::MAX) == SEGMENT_MAX_BYTES);
};

/// A bit of an address that is clear in [`SEGMENT_WINDOW_BYTES`], and set wherever the kernel places stacks, libraries, mappings, and
/// programs that may lie anywhere.
pub const PRIVATE_BIT: u32 = 46;
/// What is less than so many bytes from an address with [`PRIVATE_BIT`] set lies outside the window, whatever that address's other bits are.
pub const PRIVATE_REACH: u64 = 1 << 40;
/// Guarded code: what a program knows at an address of the window is mapped there without any rights, and readable and writable so many bytes
/// higher. This is the base of `%gs`.
pub const ALIAS_DISTANCE: u64 = 1 << 44;
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

const _: () = {
    assert!(TAG_TABLE_BASE < 1 << 31 && CONTEXT_PRIVATE + CONTEXT_BYTES <= TAG_TABLE_BASE);
    assert!(TAG_TABLE_BASE + TAG_TABLE_BYTES < SEGMENT_BASE);
    assert!(SEGMENT_BASE.is_multiple_of(SEGMENT_WINDOW_BYTES));
    // Modulo twice the bit, addresses with the bit set are those from the bit on. The window ends so far below it, and begins so far above 0.
    assert!(SEGMENT_BASE + SEGMENT_WINDOW_BYTES + PRIVATE_REACH <= 1 << PRIVATE_BIT && PRIVATE_REACH <= SEGMENT_BASE);
    assert!(USER_BASE >= SEGMENT_BASE + SEGMENT_MAX_BYTES + USER_BYTES);
    assert!(USER_BASE + USER_BYTES < SEGMENT_BASE + SEGMENT_WINDOW_BYTES);
    assert!(SEGMENT_BASE + ALIAS_DISTANCE + SEGMENT_WINDOW_BYTES + PRIVATE_REACH <= 1 << PRIVATE_BIT);
};

/// Tags of guarded code. A tag tells what holds for its own block, and what holds for it and the block behind it: so one comparison does for an access that
/// may touch two. Private memory reads 0 from the zero page.
pub mod guard_tags {
    /// Own block: nobody may use it.
    pub const INVALID: u8 = crate::addresses::TAG_INVALID;
    /// Own block: a request is on its way.
    pub const BUSY: u8 = 2;
    /// Own block: loads may go on.
    pub const READONLY: u8 = 4;
    /// Own block: all may.
    pub const WRITABLE: u8 = 8;
    /// Own block and the next: loads may go on. Not less than this: loads may.
    pub const BOTH_READABLE: u8 = 0x40;
    /// Own block and the next: all may; with [`BOTH_READABLE`]. Not less than this: stores may.
    pub const BOTH_WRITABLE: u8 = 0x80;
}
