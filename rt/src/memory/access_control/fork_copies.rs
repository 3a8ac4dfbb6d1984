//! Copies of shared memory for a child of `fork`.
//!
//! Purpose: where memory faults, shared memory is a shared mapping, because it has an alias. A child of `fork` is to have memory of its own. Input: the ranges
//! with an alias, and their tags. Output: before the `fork`, copies of the pages that this node has; in the child, pages of its own at both addresses.
//! **Invariant**: a page of which a block is not Invalid is copied. Tags lie in a private mapping of Invalid ones, so pages of the table that
//! this process has not written need not be looked at.

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::memory::access_control::guard;
use crate::memory::access_control::written;
use crate::memory::segment;
use blizzard_contract::{ALIAS_DISTANCE, BLOCK_SHIFT, guard_tags};
use core::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;

/// Pages of the ranges with an alias, for a child of `fork`, which shares the pages themselves with its parent. Few of a range's pages are in use, and
/// a copy of the whole would not fit below a limit of address space.
#[repr(C, align(4096))]
struct Chunk {
    /// Where the next one is, or 0.
    next: u64,
    count: u64,
    /// Where each page belongs.
    addresses: [u64; PAGES],
    pages: [[u8; PAGE as usize]; PAGES],
}
const PAGES: usize = 510;
const _: () = assert!(size_of::<Chunk>() as u64 == PAGE * (PAGES as u64 + 1));

/// The first chunk, or 0.
static COPY: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));

/// A chunk in front of those there are.
fn add_chunk() -> sys::Result<*mut Chunk> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: new memory of zeros, which is a chunk.
    let at = unsafe { sys::mmap(0, size_of::<Chunk>() as u64, segment::RW, flags, -1, 0)? };
    let chunk = at as *mut Chunk;
    // SAFETY: as above.
    unsafe { (*chunk).next = COPY.swap(at, Ordering::Relaxed) };
    Ok(chunk)
}

/// Before a `fork`: copies what this node has of the ranges. The copies of the `fork` before are given back.
///
/// # Errors
/// The kernel's.
pub fn copy_for_child() -> sys::Result<()> {
    drop_copies();
    let mut last: *mut Chunk = core::ptr::null_mut();
    let tags_bytes = |bytes: u64| bytes >> BLOCK_SHIFT;
    for (base, bytes) in guard::aliased_ranges() {
        written::each_written_page(guard::TAGS + tags_bytes(base), tags_bytes(bytes), |page_of_tags| {
            let first = (page_of_tags - guard::TAGS) << BLOCK_SHIFT;
            let end = (first + (PAGE << BLOCK_SHIFT)).min(base + bytes);
            (first.max(base)..end)
                .step_by(PAGE as usize)
                .filter(|page| !is_invalid(*page))
                .try_for_each(|page| add(&mut last, page))
        })?;
    }
    Ok(())
}

/// Whether every block of a page of a range is Invalid: this node has nothing of it.
fn is_invalid(page: u64) -> bool {
    let tags = (guard::TAGS + (page >> BLOCK_SHIFT)) as *const [u64; 8];
    // SAFETY: the table covers all addresses; it is mapped.
    (unsafe { tags.read_volatile() }) == [u64::from_ne_bytes([guard_tags::INVALID; 8]); 8]
}

/// Copies a page of a range; `last`: the chunk that was begun last, or null.
fn add(last: &mut *mut Chunk, page: u64) -> sys::Result<()> {
    // SAFETY: a chunk that was mapped for this, and a page of a range at its alias.
    unsafe {
        if last.is_null() || (**last).count == PAGES as u64 {
            *last = add_chunk()?;
        }
        let at = (**last).count as usize;
        (**last).addresses[at] = page;
        let to = (&raw mut (**last).pages).cast::<u8>().add(at * PAGE as usize);
        core::ptr::copy_nonoverlapping((page + ALIAS_DISTANCE) as *const u8, to, PAGE as usize);
        (**last).count += 1;
    }
    Ok(())
}

/// In the child: pages of its own take the places of those that it shares with its parent.
///
/// # Errors
/// The kernel's.
pub fn adopt_copies() -> sys::Result<()> {
    for (base, bytes) in guard::aliased_ranges() {
        // SAFETY: the child's own mappings; nothing of the program runs.
        unsafe { guard::map_twice(base, bytes)? };
    }
    each_chunk(|chunk| {
        for (&page, from) in chunk.addresses.iter().zip(&chunk.pages).take(chunk.count as usize) {
            // SAFETY: a page of a range, at its alias.
            unsafe { core::ptr::copy_nonoverlapping(from.as_ptr(), (page + ALIAS_DISTANCE) as *mut u8, PAGE as usize) };
        }
    });
    drop_copies();
    Ok(())
}

fn each_chunk(mut f: impl FnMut(&Chunk)) {
    let mut at = COPY.load(Ordering::Relaxed);
    while at != 0 {
        // SAFETY: what `add_chunk` has mapped, and nobody has given back.
        let chunk = unsafe { &*(at as *const Chunk) };
        at = chunk.next;
        f(chunk);
    }
}

/// In the parent, some time after a `fork`.
pub fn drop_copies() {
    each_chunk(|chunk| {
        // SAFETY: nobody looks at it again: its successor has been read.
        let _ = unsafe { sys::munmap(core::ptr::from_ref(chunk) as u64, size_of::<Chunk>() as u64) };
    });
    COPY.store(0, Ordering::Relaxed);
}
