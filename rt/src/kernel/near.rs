//! Addresses near the program and its libraries, for code that the runtime makes later.
//!
//! Purpose: a jump of five bytes reaches two gigabytes, and which of them is not always free to choose. What the kernel maps next would lie there.
//! Input: nothing. Output: pages without rights, of which each is taken once; a gap between them and the program, in which the kernel maps libraries.
//! **Invariant**: whoever takes pages is alone in doing so.

use crate::kernel::limits;
use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use core::sync::atomic::{AtomicU64, Ordering};

const BYTES: u64 = 1 << 30;
/// Kept free of the runtime's own mappings.
const GAP: u64 = 256 << 20;
/// How many stretches can be taken.
pub const MOST: usize = 64;
const PAGE: u64 = 4096;

/// Where they begin; 0: there are none.
static BASE: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));
/// Stretches that are taken, of two pages at most; 0: none.
static TAKEN: PerProcess<[AtomicU64; MOST]> = PerProcess::new([const { AtomicU64::new(0) }; MOST]);

/// Keeps them. Before anything else is mapped that is large: the kernel maps what comes next below the program.
pub fn reserve() {
    limits::make_room(BYTES, false);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let Ok(at) = (unsafe { sys::mmap(0, BYTES + GAP, libc::PROT_NONE, flags, -1, 0) }) else { return };
    // SAFETY: changes what a core dump contains, nothing else.
    let _ = unsafe { sys::madvise(at, BYTES, libc::MADV_DONTDUMP) };
    BASE.store(at, Ordering::Relaxed);
}

/// The runtime has mapped what is large: libraries and the program's own mappings come into the gap next.
pub fn open_gap() {
    let base = BASE.load(Ordering::Relaxed);
    if base != 0 {
        // SAFETY: pages that nobody uses.
        let _ = unsafe { sys::munmap(base + BYTES, GAP) };
    }
}

/// Takes the pages of `[page, page + bytes)`, two at most, which are mapped without rights.
pub fn take(page: u64, bytes: u64) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    let inside = base != 0 && page >= base && page + bytes <= base + BYTES;
    let is_taken = |taken: &AtomicU64| taken.load(Ordering::Relaxed).abs_diff(page) < 2 * PAGE;
    if !inside || TAKEN.iter().any(is_taken) {
        return false;
    }
    let free = TAKEN.iter().find(|taken| taken.load(Ordering::Relaxed) == 0);
    free.is_some_and(|taken| {
        taken.store(page, Ordering::Relaxed);
        true
    })
}
