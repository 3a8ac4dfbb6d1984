//! Memory that faults, and tags that full code tests.
//!
//! Purpose: code that touches no shared memory pays nothing. At the program's addresses shared memory has no rights; runtime, kernel and tested accesses use a
//! second mapping of the same pages, [`ALIAS_DISTANCE`] higher, which is the base of `%gs`. Plain code that faults goes on in full code. Input and output: as in
//! [`crate::memory::access_control::interface`]. In a run of one node nothing is ever inaccessible: until [`AccessControl::invalidate`] there is no alias, and the
//! program's mapping is private and has all rights. Pages with an alias are shared with a child of `fork`, so it gets copies
//! ([`crate::memory::access_control::fork_copies`]).
//! **Invariants**: a tag says what holds for its own block, and what holds for it and the next ([`guard_tags`]); private memory has tag 0.
//! Source: design section 9.

use crate::kernel::limits;
use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::memory::access_control::interface::{AccessControl, Fault};
use crate::memory::segment::{self, CONTEXTS, InvalidTags, MapError, TABLE};
use blizzard_contract::{self as contract, ALIAS_DISTANCE, BLOCK_BYTES, BLOCK_SHIFT, SEGMENT_BASE, guard_tags as tags};
use blizzard_protocol::tag::Tag;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Where the tag table is: at its alias alone.
pub(super) const TAGS: u64 = contract::TAG_TABLE_BASE + ALIAS_DISTANCE;
/// Mapped ranges begin at multiples of this: the first block of one has no block in front.
const RANGE_ALIGN: u64 = contract::USER_BASE & contract::USER_BASE.wrapping_neg();
const _: () = assert!(SEGMENT_BASE.is_multiple_of(RANGE_ALIGN));

/// Access control by memory that faults.
#[derive(Clone, Copy, Debug)]
pub struct Guard {
    /// Where the tag of address 0 would lie.
    tags: u64,
}

impl Guard {
    /// The program's.
    pub const PROGRAM: Guard = Guard { tags: TAGS };

    /// The program's shared memory, the tags of the segment and of the block behind it at `tags`.
    pub const fn with_tags_at(tags: u64) -> Guard {
        Guard { tags: tags - (SEGMENT_BASE >> BLOCK_SHIFT) }
    }

    #[inline]
    fn cell(&self, addr: u64) -> &'static AtomicU8 {
        let at = self.tags + (addr >> BLOCK_SHIFT);
        // SAFETY: the table covers all addresses that programs have; where tags lie apart, `with_tags_at`'s caller asks for those of the segment alone.
        unsafe { AtomicU8::from_ptr(at as *mut u8) }
    }

    #[inline]
    fn byte(&self, addr: u64) -> u8 {
        self.cell(addr).load(Ordering::Relaxed)
    }

    /// What holds for a block with this tag, and for one with that tag behind it.
    fn both(own: u8, next: u8) -> u8 {
        let allows = |tag: u8, store: bool| tag == 0 || tag & allowing(store) != 0;
        let both = |store: bool, bit: u8| if allows(own, store) && allows(next, store) { bit } else { 0 };
        both(false, tags::BOTH_READABLE) | both(true, tags::BOTH_WRITABLE)
    }
}

/// The bits of the own block's tag that allow an access.
#[inline]
fn allowing(store: bool) -> u8 {
    if store { tags::WRITABLE } else { tags::READONLY | tags::WRITABLE }
}

/// The own block's part of a tag.
const OWN: u8 = !(tags::BOTH_READABLE | tags::BOTH_WRITABLE);

#[inline]
fn own(tag: Tag) -> u8 {
    match tag {
        Tag::Writable => tags::WRITABLE,
        Tag::ReadOnly => tags::READONLY,
        Tag::Invalid => tags::INVALID,
        Tag::Busy => tags::BUSY,
    }
}

/// Maps the pages of a new shared mapping at `addr`, in place of what is there, and at its alias.
///
/// # Safety
/// Nothing relies on what lies at either.
pub(super) unsafe fn map_twice(addr: u64, bytes: u64) -> sys::Result<()> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    // SAFETY: passed on from the caller.
    unsafe {
        sys::mmap(addr, bytes, segment::RW, flags, -1, 0)?;
        // Both: what is shown is shown at the program's addresses.
        let _ = sys::madvise(addr, bytes, libc::MADV_DONTDUMP);
        alias(addr, bytes)
    }
}

/// Gives a shared mapping at `addr` its alias, and takes its own rights.
///
/// # Safety
/// As [`map_twice`].
unsafe fn alias(addr: u64, bytes: u64) -> sys::Result<()> {
    // SAFETY: passed on from the caller.
    unsafe {
        // Before its limit is looked at, and not, as with others, afterwards (Linux `mm/mremap.c`).
        sys::munmap(addr + ALIAS_DISTANCE, bytes)?;
        sys::remap_shared(addr, bytes, addr + ALIAS_DISTANCE)?;
        sys::mprotect(addr, bytes, libc::PROT_NONE)
    }
}

/// The ranges that have an alias: where each begins, and its bytes; 0: it has none. In order: the segment, the user-managed one.
static ALIASED: PerProcess<[AtomicU64; 2]> = PerProcess::new([const { AtomicU64::new(0) }; 2]);
const RANGES: [u64; 2] = [SEGMENT_BASE, contract::USER_BASE];

/// Which of [`RANGES`] an address of the window is in.
#[inline]
fn range_of(addr: u64) -> usize {
    usize::from(addr >= contract::USER_BASE)
}

/// The ranges with an alias: where each begins, and its bytes.
pub(super) fn aliased_ranges() -> impl Iterator<Item = (u64, u64)> {
    RANGES.into_iter().zip(ALIASED.iter().map(|bytes| bytes.load(Ordering::Relaxed))).filter(|(_, bytes)| *bytes != 0)
}

impl AccessControl for Guard {
    unsafe fn start(&self) -> Result<(), MapError> {
        // SAFETY: passed on from the caller. Nothing of the program runs.
        unsafe {
            segment::map_tag_table(TAGS)?;
            sys::set_gs_base(ALIAS_DISTANCE)
                .map_err(|errno| MapError::new("alias of shared memory", ALIAS_DISTANCE, 0, errno))
        }
    }

    unsafe fn map(&self, what: &'static str, base: u64, bytes: u64) -> Result<(), MapError> {
        // SAFETY: passed on from the caller.
        unsafe { segment::map_between_guards(what, base, bytes, segment::RW) }
    }

    unsafe fn invalidate(&self, base: u64, bytes: u64, tags: InvalidTags) -> Result<(), MapError> {
        let at = TAGS + (base >> BLOCK_SHIFT);
        // SAFETY: passed on from the caller; the program's mapping.
        unsafe {
            segment::repeat_over_tags(at, bytes >> BLOCK_SHIFT, tags)?;
            let what = "alias of shared memory";
            segment::map_between_guards(what, base + ALIAS_DISTANCE, bytes, libc::PROT_NONE)?;
            map_twice(base, bytes).map_err(|errno| MapError::new(what, base, bytes, errno))?;
        }
        limits::data_is_shared(bytes);
        ALIASED[range_of(base)].store(bytes, Ordering::Relaxed);
        Ok(())
    }

    unsafe fn discard(&self, addr: u64, bytes: u64) -> sys::Result<()> {
        let at = self.runtime_address(addr);
        let advice = if at == addr { libc::MADV_DONTNEED } else { libc::MADV_REMOVE };
        // SAFETY: pages of this node alone, which come back as zeros; passed on from the caller.
        unsafe { sys::madvise(at, bytes, advice) }
    }

    unsafe fn forget(&self, base: u64, bytes: u64) -> sys::Result<()> {
        // SAFETY: passed on from the caller. The pages of the other process stay its own; the tags are a private mapping of a file.
        unsafe {
            map_twice(base, bytes)?;
            sys::madvise(TAGS + (base >> BLOCK_SHIFT), bytes >> BLOCK_SHIFT, libc::MADV_DONTNEED)
        }
    }

    #[inline]
    fn runtime_address(&self, addr: u64) -> u64 {
        if ALIASED[range_of(addr)].load(Ordering::Relaxed) == 0 { addr } else { addr + ALIAS_DISTANCE }
    }

    #[inline]
    fn kernel_address(&self, addr: u64) -> u64 {
        self.runtime_address(addr)
    }

    fn dumped_address(&self, addr: u64) -> u64 {
        addr
    }

    #[inline]
    fn program_address(&self, at: u64) -> u64 {
        let alias = SEGMENT_BASE + ALIAS_DISTANCE;
        if at >> contract::SEGMENT_SHIFT == alias >> contract::SEGMENT_SHIFT { at - ALIAS_DISTANCE } else { at }
    }

    #[inline]
    fn tag(&self, addr: u64) -> Option<Tag> {
        match self.byte(addr) & OWN {
            0 | tags::WRITABLE => Some(Tag::Writable),
            tags::READONLY => Some(Tag::ReadOnly),
            tags::INVALID => Some(Tag::Invalid),
            tags::BUSY => Some(Tag::Busy),
            _ => None,
        }
    }

    #[inline]
    fn allows(&self, addr: u64, store: bool) -> bool {
        let tag = self.byte(addr);
        tag == 0 || tag & allowing(store) != 0
    }

    /// Relaxed: the program's tests run on the same thread.
    #[inline]
    fn set_tags(&self, addr: u64, bytes: u64, tag: Tag) {
        let own = own(tag);
        let last = addr + bytes - BLOCK_BYTES;
        let inner = own | Guard::both(own, own);
        for block in (addr..last).step_by(BLOCK_BYTES as usize) {
            self.cell(block).store(inner, Ordering::Relaxed);
        }
        self.cell(last).store(own | Guard::both(own, self.byte(last + BLOCK_BYTES)), Ordering::Relaxed);
        if !addr.is_multiple_of(RANGE_ALIGN) {
            let front = self.cell(addr - BLOCK_BYTES);
            let tag = front.load(Ordering::Relaxed) & OWN;
            front.store(tag | Guard::both(tag, own), Ordering::Relaxed);
        }
    }

    fn meaning_of_fault(&self, addr: u64) -> Fault {
        if TABLE.contains(&addr) {
            Fault::TagTable
        } else if segment::tag_rights(TAGS + (addr >> BLOCK_SHIFT)) == segment::RW {
            Fault::NotTested
        } else if CONTEXTS.contains(&addr) || segment::WINDOW.contains(&self.program_address(addr)) {
            Fault::Unused
        } else {
            Fault::NotOurs
        }
    }
}
