//! Where the runtime's text lies, and what a context relies on that was stopped there or in rewritten code.
//!
//! Input: its bounds, told once at the start. Output: these bounds, and whether a context that was stopped at an address may rely on a tag that it has tested.

use crate::kernel::owned::PerProcess;
use crate::libraries::modules::MODULES;
use crate::system_calls::execution::stubs;
use core::sync::atomic::{AtomicU64, Ordering};

/// Run-time range of the runtime's text.
static RUNTIME: PerProcess<[AtomicU64; 2]> = PerProcess::new([AtomicU64::new(0), AtomicU64::new(0)]);

/// Tells where the runtime's text is.
pub fn set(text: u64, bytes: u64) {
    RUNTIME[0].store(text, Ordering::Relaxed);
    RUNTIME[1].store(text.wrapping_add(bytes), Ordering::Relaxed);
}

/// Start and bytes of the runtime's text.
pub fn range() -> (u64, u64) {
    let (text, end) = (RUNTIME[0].load(Ordering::Relaxed), RUNTIME[1].load(Ordering::Relaxed));
    (text, end - text)
}

/// Whether a context stopped at `at` may rely on a block without having finished the access.
pub fn relies_on_tags(at: u64) -> bool {
    let runtime = RUNTIME[0].load(Ordering::Relaxed)..RUNTIME[1].load(Ordering::Relaxed);
    MODULES.in_tested_code(at) || runtime.contains(&at) && !stubs::contains(at)
}
