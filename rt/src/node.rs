//! A run of one node: tag table, context pages and an API table of plain local memory operations.
//!
//! Purpose: what the gates, the entry and the launcher need of "the node". Input: the launcher's [`Boot`] word. In a run of
//! one node every block is Writable all the time, so a miss never waits.
//! **Invariant**: nothing here runs before [`start`], which the entry calls before any rewritten instruction.

use crate::{abi, entry, print, sys};
use core::fmt;

/// Who this node is, from [`abi::BOOT_ENV`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Boot {
    pub fd: i32,
    pub node: u32,
}

/// Maps tag table, context pages and segment.
///
/// # Safety
/// Called once, by the entry, before the program runs.
pub unsafe fn start(boot: Option<Boot>) {
    if boot.is_some() {
        fail(format_args!("this runtime serves one node"));
    }
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    let fixed = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    for (what, addr, bytes) in [
        ("tag table", abi::TAG_TABLE_BASE, abi::TAG_TABLE_BYTES),
        ("context pages", abi::CONTEXT_SHARED, 2 * abi::CONTEXT_BYTES),
    ] {
        // SAFETY: MAP_FIXED_NOREPLACE never replaces a mapping.
        match unsafe { sys::mmap(addr, bytes, rw, fixed, -1, 0) } {
            Ok(got) if got == addr => {}
            Ok(_) => fail(format_args!("cannot map the {what} at {addr:#x}: the kernel placed it elsewhere")),
            Err(e) => fail(format_args!("cannot map the {what} at {addr:#x}: {e}")),
        }
    }
    // SAFETY: the table was mapped above and is the runtime's own.
    unsafe {
        let _ = sys::madvise(abi::TAG_TABLE_BASE, abi::TAG_TABLE_BYTES, libc::MADV_DONTDUMP);
        let _ = sys::madvise(abi::TAG_TABLE_BASE, abi::TAG_TABLE_BYTES, libc::MADV_NOHUGEPAGE);
    }
    for (slot, gate) in entry::gates().into_iter().enumerate() {
        // SAFETY: the private context page was mapped above; its first words are the gate pointers.
        unsafe { (abi::CONTEXT_PRIVATE as *mut u64).add(slot).write(gate) };
    }
    // SAFETY: inside the same page.
    unsafe { (abi::CTX_NODES as *mut u32).write(1) };
    // SAFETY: nothing writes the page after this.
    let _ = unsafe { sys::mprotect(abi::CONTEXT_PRIVATE, abi::CONTEXT_BYTES, libc::PROT_READ) };
}

/// Number of nodes of this run.
pub fn nodes() -> u32 {
    1
}

/// Returns when every block of the range allows the access: at once.
pub fn miss(_addr: u64, _bytes: u64, _store: bool, _masked: bool) {}

/// As [`miss`], for all lanes at once.
pub fn miss_lanes(_lanes: &[(u64, u64)], _store: bool) {}

/// Runs what is pending after the doorbell was set.
pub fn poll() {}

/// The program exits; returns when the process may really end.
pub fn exiting(_status: i32) {}

/// Reports and ends the run.
pub fn fail(message: fmt::Arguments<'_>) -> ! {
    print::error(message);
    sys::exit_group(1)
}

/// The functions for client libraries; null: none.
pub fn api() -> *const abi::BzApi {
    core::ptr::null()
}
