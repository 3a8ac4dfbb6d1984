//! The access control of this process, and its memory as runtime and kernel find it.
//!
//! Purpose: here the kind is chosen, at compile time. Input: any addresses of the program. Output: where the bytes are; private memory is where the program
//! has it. Whoever reads or writes the program's memory at an address that may be shared asks here, or the node's [`crate::memory::tags::Space`].

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
#[cfg(feature = "guard")]
use crate::memory::access_control::guard::Guard;
use crate::memory::access_control::interface::AccessControl;
#[cfg(not(feature = "guard"))]
use crate::memory::access_control::tag_tests::TagTests;
use crate::memory::segment::{self, InvalidTags, MapError};
use blizzard_contract::{BLOCK_SHIFT, RegionHeader, SEGMENT_BASE, SEGMENT_SHIFT, USER_BASE};
use core::sync::atomic::{AtomicU64, Ordering};

/// The kind.
#[cfg(not(feature = "guard"))]
pub type Chosen = TagTests;
/// The kind.
#[cfg(feature = "guard")]
pub type Chosen = Guard;

/// The program's shared memory.
pub const PROGRAM: Chosen = Chosen::PROGRAM;

/// Code without tests faults where it touches shared memory that it may not, and its access is carried out.
pub const UNTESTED_FAULTS: bool = cfg!(feature = "guard");

/// Maps the segment. Core dumps contain of it what [`crate::memory::segment::show_in_dumps`] shows.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`AccessControl::map`].
pub unsafe fn map_segment(bytes: u64) -> Result<(), MapError> {
    // SAFETY: passed on from the caller; advice changes no contents.
    unsafe {
        PROGRAM.map("shared segment", SEGMENT_BASE, bytes)?;
        let _ = sys::madvise(PROGRAM.kernel_address(SEGMENT_BASE), bytes, libc::MADV_DONTDUMP);
    }
    Ok(())
}

/// Makes all tags of the segment Invalid; `fd`: the region with that header.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`AccessControl::invalidate`].
pub unsafe fn invalidate_segment(fd: i32, header: &RegionHeader) -> Result<(), MapError> {
    let tags = InvalidTags { fd, offset: header.fill_off, bytes: header.fill_bytes };
    // SAFETY: passed on from the caller.
    unsafe { PROGRAM.invalidate(SEGMENT_BASE, header.segment_bytes, tags) }
}

/// Where the tags of the segment lie that hold; 0: where code looks for them.
static SEPARATE_TAGS: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));

/// Lets the segment's tags lie apart from those that code tests. These stay Invalid: each access enters the runtime.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`invalidate_segment`], after it, and before anybody else has used the segment.
pub unsafe fn separate_tags(fd: i32, header: &RegionHeader) -> Result<(), MapError> {
    let fill = InvalidTags { fd, offset: header.fill_off, bytes: header.fill_bytes };
    // SAFETY: passed on from the caller.
    let at = unsafe { segment::map_separate_tags(header.segment_bytes >> BLOCK_SHIFT, fill) }?;
    SEPARATE_TAGS.store(at, Ordering::Relaxed);
    Ok(())
}

/// The segment with the tags that hold.
pub fn segment() -> Chosen {
    match SEPARATE_TAGS.load(Ordering::Relaxed) {
        0 => PROGRAM,
        tags => Chosen::with_tags_at(tags),
    }
}

/// Whether the tag of the minimum block at `addr` allows the access now; of [`in_segment`].
#[inline]
pub fn allows(addr: u64, store: bool) -> bool {
    if addr >= USER_BASE { PROGRAM.allows(addr, store) } else { segment().allows(addr, store) }
}

/// Makes the segment and its tags what they were at the start.
///
/// # Errors
/// The kernel's.
///
/// # Safety
/// As [`AccessControl::forget`].
pub unsafe fn forget_segment(bytes: u64) -> sys::Result<()> {
    // SAFETY: passed on from the caller.
    unsafe {
        PROGRAM.forget(SEGMENT_BASE, bytes)?;
        match SEPARATE_TAGS.load(Ordering::Relaxed) {
            0 => Ok(()),
            tags => sys::madvise(tags, bytes >> BLOCK_SHIFT, libc::MADV_DONTNEED),
        }
    }
}

/// Whether `addr` lies where only shared memory can lie.
#[inline]
pub fn in_segment(addr: u64) -> bool {
    addr >> SEGMENT_SHIFT == SEGMENT_BASE >> SEGMENT_SHIFT
}

/// By which address the runtime reads and writes the program's memory.
#[inline]
pub fn runtime_address(addr: u64) -> *mut u8 {
    (if in_segment(addr) { PROGRAM.runtime_address(addr) } else { addr }) as *mut u8
}

/// Which address the kernel is given.
#[inline]
pub fn kernel_address(addr: u64) -> u64 {
    if in_segment(addr) { PROGRAM.kernel_address(addr) } else { addr }
}

/// The program's address of what the runtime finds at `at`.
#[inline]
pub fn program_address(at: u64) -> u64 {
    PROGRAM.program_address(at)
}

/// Copies the program's memory without the danger of a fault.
///
/// # Errors
/// As [`sys::read_own_memory`].
pub fn read(addr: u64, bytes: &mut [u8]) -> sys::Result<()> {
    sys::read_own_memory(kernel_address(addr), bytes)
}

/// Writes to the program's memory without the danger of a fault.
///
/// # Errors
/// As [`sys::write_own_memory`].
///
/// # Safety
/// Nothing of the runtime lies there.
pub unsafe fn write(addr: u64, bytes: &[u8]) -> sys::Result<()> {
    // SAFETY: passed on from the caller.
    unsafe { sys::write_own_memory(kernel_address(addr), bytes) }
}

/// Before a `fork`: the child is to have memory of its own.
///
/// # Errors
/// The kernel's.
pub fn prepare_fork() -> sys::Result<()> {
    #[cfg(feature = "guard")]
    crate::memory::access_control::fork_copies::copy_for_child()?;
    Ok(())
}

/// In the child, before the program goes on.
///
/// # Errors
/// The kernel's.
pub fn own_memory_in_child() -> sys::Result<()> {
    #[cfg(feature = "guard")]
    crate::memory::access_control::fork_copies::adopt_copies()?;
    Ok(())
}
