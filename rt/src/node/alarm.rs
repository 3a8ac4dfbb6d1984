//! Whether the time of one of the program's timers has come.
//!
//! Input: the thread that watches the clock. Output: what makes a node that waits go on.

use crate::kernel::owned::PerProcess;
use crate::kernel::unaliased::Unaliased;
use core::sync::atomic::{AtomicBool, Ordering};

static DUE: PerProcess<Unaliased<AtomicBool>> = PerProcess::new(Unaliased::new(AtomicBool::new(false)));

/// Whether it has.
#[inline]
pub fn is_due() -> bool {
    DUE.load(Ordering::SeqCst)
}

/// Says whether it has.
pub fn set_due(is_due: bool) {
    DUE.store(is_due, Ordering::SeqCst);
}
