//! Tags that inserted code tests.
//!
//! Purpose: every access of the program that may be to shared memory has a test in front of it. So the memory itself never faults, and program, runtime and
//! kernel use the same addresses. Input and output: as in [`crate::memory::access_control::interface`].
//! A test of the runtime has several nodes in one process: there the node's copy and its tags lie anywhere.

use crate::kernel::sys;
use crate::memory::access_control::interface::{AccessControl, Fault};
use crate::memory::segment::{self, CONTEXTS, InvalidTags, MapError, TABLE, WINDOW};
use blizzard_contract::{self as contract, BLOCK_SHIFT, SEGMENT_BASE};
use blizzard_protocol::tag::Tag;
use core::sync::atomic::{AtomicU8, Ordering};

/// Access control by tests of tags.
#[derive(Clone, Copy, Debug)]
pub struct TagTests {
    /// Where the copy of [`SEGMENT_BASE`] lies.
    memory: u64,
    /// Where its tag lies.
    tags: u64,
}

impl TagTests {
    /// Memory and tags at the addresses of [`blizzard_contract`].
    pub const PROGRAM: TagTests =
        TagTests { memory: SEGMENT_BASE, tags: contract::TAG_TABLE_BASE + (SEGMENT_BASE >> BLOCK_SHIFT) };

    /// `memory` and `tags`: where the copy of [`SEGMENT_BASE`] lies, and its tag.
    ///
    /// # Safety
    /// Both are mapped, for all shared memory that is asked about, and are used by one node alone.
    pub const unsafe fn at(memory: u64, tags: u64) -> TagTests {
        TagTests { memory, tags }
    }

    /// The program's shared memory, its tags at `tags`.
    pub const fn with_tags_at(tags: u64) -> TagTests {
        TagTests { tags, ..TagTests::PROGRAM }
    }

    #[inline]
    fn tag_address(self, addr: u64) -> u64 {
        // Signed: private memory has tags, too.
        self.tags.wrapping_add_signed(addr.wrapping_sub(SEGMENT_BASE) as i64 >> BLOCK_SHIFT)
    }

    #[inline]
    fn cell(&self, addr: u64) -> &AtomicU8 {
        // SAFETY: the table covers all addresses that programs have; in a test, `at`'s caller vouches for it.
        unsafe { AtomicU8::from_ptr(self.tag_address(addr) as *mut u8) }
    }
}

impl AccessControl for TagTests {
    unsafe fn start(&self) -> Result<(), MapError> {
        // SAFETY: passed on from the caller.
        unsafe { segment::map_tag_table(contract::TAG_TABLE_BASE) }
    }

    unsafe fn map(&self, what: &'static str, base: u64, bytes: u64) -> Result<(), MapError> {
        // SAFETY: passed on from the caller.
        unsafe { segment::map_between_guards(what, self.runtime_address(base), bytes, segment::RW) }
    }

    unsafe fn invalidate(&self, base: u64, bytes: u64, tags: InvalidTags) -> Result<(), MapError> {
        // SAFETY: passed on from the caller.
        unsafe { segment::repeat_over_tags(self.tag_address(base), bytes >> BLOCK_SHIFT, tags) }
    }

    unsafe fn discard(&self, addr: u64, bytes: u64) -> sys::Result<()> {
        // SAFETY: private anonymous memory, which comes back as zeros; passed on from the caller.
        unsafe { sys::madvise(self.runtime_address(addr), bytes, libc::MADV_DONTNEED) }
    }

    unsafe fn forget(&self, base: u64, bytes: u64) -> sys::Result<()> {
        // SAFETY: private mappings: pages that were written come back as zeros, and as the file's.
        unsafe {
            self.discard(base, bytes)?;
            sys::madvise(self.tag_address(base), bytes >> BLOCK_SHIFT, libc::MADV_DONTNEED)
        }
    }

    #[inline]
    fn runtime_address(&self, addr: u64) -> u64 {
        self.memory.wrapping_add(addr.wrapping_sub(SEGMENT_BASE))
    }

    #[inline]
    fn kernel_address(&self, addr: u64) -> u64 {
        self.runtime_address(addr)
    }

    #[inline]
    fn program_address(&self, at: u64) -> u64 {
        at.wrapping_sub(self.memory).wrapping_add(SEGMENT_BASE)
    }

    #[inline]
    fn tag(&self, addr: u64) -> Option<Tag> {
        Tag::from_byte(self.cell(addr).load(Ordering::Relaxed))
    }

    #[inline]
    fn allows(&self, addr: u64, store: bool) -> bool {
        let forbidden = if store { contract::TAG_NO_STORE } else { contract::TAG_NO_LOAD };
        self.cell(addr).load(Ordering::Relaxed) & forbidden == 0
    }

    /// Relaxed: the program's tests run on the same thread.
    #[inline]
    fn set_tags(&self, addr: u64, bytes: u64, tag: Tag) {
        let first = self.cell(addr);
        first.store(tag.byte(), Ordering::Relaxed);
        for part in 1..bytes as usize >> BLOCK_SHIFT {
            // SAFETY: tags of addresses that follow each other do so, too.
            unsafe { AtomicU8::from_ptr(first.as_ptr().add(part)) }.store(tag.byte(), Ordering::Relaxed);
        }
    }

    fn meaning_of_fault(&self, addr: u64) -> Fault {
        if TABLE.contains(&addr) {
            Fault::TagTable
        } else if CONTEXTS.contains(&addr) || WINDOW.contains(&addr) {
            Fault::Unused
        } else {
            Fault::NotOurs
        }
    }
}
