//! Resuming and suspending the computation thread (Tempest 1.2.1, section 3.6; Reinhardt 1996, A.2.6).
//!
//! Purpose: `TPPI_resume_va`, and the semaphores on which a thread waits for its own handlers. Input: blocks, semaphores in the
//! program's private memory. Output: a thread that runs on.
//! **Invariant**: a handler never sleeps.

use crate::memory::access_control::program;
use crate::node::user_handlers::{in_handler, running};
use crate::process::host::CallHost;
use crate::process::process;
use crate::tempest::events::{Awaited, wait};
use crate::tempest::faults::FAULTS;
use crate::tempest::pages::blocks::BlockSpec;
use core::sync::atomic::{AtomicI32, Ordering};

/// `TPPI_resume_va`.
pub fn resume(va: u64, len: i32) {
    let Some(block) = BlockSpec::new(va, len) else {
        process::fail(format_args!("TPPI_resume_va: {len} bytes are not the length of a block"));
    };
    FAULTS.with(|faults| faults.resume(block));
}

/// The program's semaphore.
fn semaphore(function: &str, sem: *mut i32) -> &'static AtomicI32 {
    if sem.is_null() || !sem.is_aligned() || program::in_segment(sem as u64) {
        process::fail(format_args!("{function}: {:#x} is not an aligned int in private memory", sem as u64));
    }
    // SAFETY: the program's own word, which it touches through here.
    unsafe { AtomicI32::from_ptr(sem) }
}

/// Adds to a semaphore. In a run of several nodes the process has one thread, on which handlers run, too, so nothing comes in between.
fn add(sem: &AtomicI32, by: i32) {
    if process::nodes() == 1 {
        sem.fetch_add(by, Ordering::SeqCst);
    } else {
        sem.store(sem.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }
}

/// `TPPI_sleep`: increments; waits while the value is greater than zero.
pub fn sleep(host: &mut CallHost<'_>, sem: *mut i32) {
    let sem = semaphore("TPPI_sleep", sem);
    if in_handler() {
        process::fail(format_args!("TPPI_sleep in the {}: a handler must not wait", running()));
    }
    add(sem, 1);
    wait(
        host,
        Awaited::Wakeup(sem.as_ptr() as u64),
        || sem.load(Ordering::SeqCst) <= 0,
        format_args!("TPPI_sleep waits for TPPI_wakeup"),
    );
}

/// `TPPI_wakeup`: decrements; at zero the sleeper runs on.
pub fn wakeup(sem: *mut i32) {
    add(semaphore("TPPI_wakeup", sem), -1);
}

/// `TPPI_atomic_incr`.
pub fn increment(sem: *mut i32) {
    add(semaphore("TPPI_atomic_incr", sem), 1);
}
