//! The mappings of the user-managed segment.
//!
//! Purpose: reserve the segment at [`USER_BASE`] and make its tags Invalid, in every kind of run. Input: none. Output: mappings.
//! **Invariant**: done once, before the program can reach the segment; only programs that use `tempest.h` pay for it.

use crate::kernel::sys;
use crate::memory::access_control::interface::AccessControl;
use crate::memory::access_control::program::PROGRAM;
use crate::memory::segment::{InvalidTags, MapError};
use blizzard_contract::{self as contract, BLOCK_SHIFT, TAG_INVALID, USER_BASE, USER_BYTES};

/// Bytes of the file that is mapped over the tags again and again.
const FILL_BYTES: u64 = 1 << 20;

/// Maps the segment between guards, its tags all Invalid.
///
/// # Safety
/// Called once per process, after [`AccessControl::start`].
pub unsafe fn map() -> Result<(), MapError> {
    // SAFETY: passed on from the caller.
    unsafe {
        PROGRAM.map("user-managed segment", USER_BASE, USER_BYTES)?;
        let made = invalid_file();
        let fd = made.map_err(|errno| MapError::new("user-managed segment's tags", USER_BASE, FILL_BYTES, errno))?;
        let result = PROGRAM.invalidate(USER_BASE, USER_BYTES, InvalidTags { fd, offset: 0, bytes: FILL_BYTES });
        // The mappings hold the memory.
        let _ = sys::close(fd);
        result
    }
}

/// A file of [`FILL_BYTES`] bytes [`TAG_INVALID`].
fn invalid_file() -> sys::Result<i32> {
    let fd = sys::memfd(c"blizzard-user-tags")?;
    let bytes = [TAG_INVALID; 4096];
    for _ in 0..FILL_BYTES / bytes.len() as u64 {
        // A short write cannot happen in memory: there is room or ENOMEM.
        if let Err(e) = sys::write(fd, &bytes) {
            let _ = sys::close(fd);
            return Err(e);
        }
    }
    Ok(fd)
}

const _: () =
    assert!((USER_BYTES >> BLOCK_SHIFT).is_multiple_of(FILL_BYTES) && contract::USER_BASE.is_multiple_of(1 << 20));
