//! Tags of this process as the gates see them, and the counters that the gates keep.
//!
//! Input: addresses. Output: whether an access may go on; nothing changes.

use crate::kernel::owned::PerProcess;
use crate::memory::access_control::interface::AccessControl;
use crate::memory::access_control::program::{self, PROGRAM, in_segment};
use blizzard_contract::{self as contract, Counter};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

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

/// Whether the block that holds `addr` allows the access now. Addresses outside the segment are private: always.
pub fn block_accessible(addr: u64, store: bool) -> bool {
    !in_segment(addr) || program::allows(addr, store)
}

/// [`block_accessible`] where the tags that hold are those that code tests.
pub fn code_allows(addr: u64, store: bool) -> bool {
    !in_segment(addr) || PROGRAM.allows(addr, store)
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
