//! Tags of this process as the gates see them, and the counters that the gates keep.
//!
//! Input: addresses. Output: whether an access may go on; nothing changes.

use crate::kernel::owned::PerProcess;
use blizzard_contract::{self as contract, Counter};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

static COUNTERS_READY: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
static DETACHED: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// The context pages are mapped: from here on events are counted.
pub fn enable_counters() {
    COUNTERS_READY.store(true, Ordering::Relaxed);
}

/// Whether [`enable_counters`] has run.
pub fn counters_enabled() -> bool {
    COUNTERS_READY.load(Ordering::Relaxed)
}

/// Adds one to a counter of the shared context page.
pub fn count(counter: Counter) {
    if counters_enabled() {
        let at = (contract::COUNTERS as *mut u64).wrapping_add(counter as usize);
        // SAFETY: the page is mapped for the whole run; several threads of a one-node run may count at once.
        unsafe { AtomicU64::from_ptr(at) }.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether this process is a fork of a node, without a part in the protocol.
pub fn detached() -> bool {
    DETACHED.load(Ordering::Relaxed)
}

/// Marks this process as a fork of a node.
pub fn detach() {
    DETACHED.store(true, Ordering::Relaxed);
}

/// Whether `addr` lies where only shared memory can lie.
pub fn in_segment(addr: u64) -> bool {
    addr >> contract::SEGMENT_SHIFT == contract::SEGMENT_BASE >> contract::SEGMENT_SHIFT
}

/// Whether the block that holds `addr` allows the access now. Addresses outside the segment are private: always.
pub fn block_accessible(addr: u64, store: bool) -> bool {
    if !in_segment(addr) {
        return true;
    }
    let at = contract::TAG_TABLE_BASE + (addr >> contract::BLOCK_SHIFT);
    // SAFETY: the table covers the whole user address space and stays mapped.
    let tag = unsafe { AtomicU8::from_ptr(at as *mut u8) }.load(Ordering::Relaxed);
    tag & if store { contract::TAG_NO_STORE } else { contract::TAG_NO_LOAD } == 0
}

/// Whether every block of the range allows the access now.
pub fn accessible(addr: u64, bytes: u64, store: bool) -> bool {
    if bytes == 0 {
        return true;
    }
    let last = addr.saturating_add(bytes - 1);
    let mut at = addr;
    loop {
        if !block_accessible(at, store) {
            return false;
        }
        match (at | (contract::BLOCK_BYTES - 1)).checked_add(1) {
            Some(next) if next <= last => at = next,
            _ => return true,
        }
    }
}
