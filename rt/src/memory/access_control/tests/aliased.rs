//! Tags, and memory that faults.
//!
//! Purpose: shows that the interface carries another kind. The bytes are a file that is mapped twice: where the program has them, a page has the rights
//! that the tags of all its blocks allow; runtime, kernel and tested accesses use the other mapping.

use crate::kernel::sys;
use crate::memory::access_control::interface::{AccessControl, Fault};
use crate::memory::access_control::tag_tests::TagTests;
use crate::memory::segment::{self, GUARD_BYTES, InvalidTags, MapError};
use blizzard_contract::BLOCK_BYTES;
use blizzard_protocol::tag::Tag;

const PAGE: u64 = 4096;
const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// Access control by tags and rights of pages.
#[derive(Clone, Copy, Debug)]
pub struct Aliased {
    /// The tags, and where the second mapping is.
    tests: TagTests,
    base: u64,
    bytes: u64,
}

impl Aliased {
    /// The program's `bytes` bytes from `base` on have tags and second mapping as `tests` says.
    pub fn new(tests: TagTests, base: u64, bytes: u64) -> Aliased {
        Aliased { tests, base, bytes }
    }

    fn set_rights(&self, page: u64) -> sys::Result<()> {
        let blocks = || (page..page + PAGE).step_by(BLOCK_BYTES as usize);
        let rights = match [false, true].map(|store| blocks().all(|block| self.allows(block, store))) {
            [true, true] => RW,
            [true, false] => libc::PROT_READ,
            _ => libc::PROT_NONE,
        };
        // SAFETY: the program's mapping, which the runtime does not use.
        unsafe { sys::mprotect(page, PAGE, rights) }
    }
}

impl AccessControl for Aliased {
    unsafe fn start(&self) -> Result<(), MapError> {
        // SAFETY: passed on from the caller.
        unsafe { self.tests.start() }
    }

    unsafe fn map(&self, what: &'static str, base: u64, bytes: u64) -> Result<(), MapError> {
        let alias = self.runtime_address(base);
        let error = |errno| MapError::new(what, base, bytes, errno);
        let fd = sys::memfd(c"blizzard-aliased").map_err(error)?;
        // SAFETY: a file of the caller's own; only this node uses the mappings.
        unsafe {
            assert_eq!(libc::ftruncate(fd, bytes as i64), 0);
            for at in [base, alias] {
                segment::place(what, at, bytes, RW, libc::MAP_SHARED, Some((fd, 0)))?;
                for guard in [at - GUARD_BYTES, at + bytes] {
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    segment::place(what, guard, GUARD_BYTES, libc::PROT_NONE, flags, None)?;
                }
            }
        }
        sys::close(fd).map_err(error)
    }

    unsafe fn invalidate(&self, base: u64, bytes: u64, tags: InvalidTags) -> Result<(), MapError> {
        // SAFETY: passed on from the caller; the program's mapping.
        unsafe {
            self.tests.invalidate(base, bytes, tags)?;
            sys::mprotect(base, bytes, libc::PROT_NONE).map_err(|errno| MapError::new("rights", base, bytes, errno))
        }
    }

    unsafe fn discard(&self, addr: u64, bytes: u64) -> sys::Result<()> {
        // SAFETY: the file's pages; passed on from the caller.
        unsafe { sys::madvise(self.runtime_address(addr), bytes, libc::MADV_REMOVE) }
    }

    unsafe fn forget(&self, base: u64, bytes: u64) -> sys::Result<()> {
        // SAFETY: passed on from the caller; the program's mapping.
        unsafe {
            self.discard(base, bytes)?;
            self.tests.forget(base, bytes)?;
            sys::mprotect(base, bytes, libc::PROT_NONE)
        }
    }

    fn runtime_address(&self, addr: u64) -> u64 {
        self.tests.runtime_address(addr)
    }

    fn kernel_address(&self, addr: u64) -> u64 {
        self.tests.kernel_address(addr)
    }

    fn program_address(&self, at: u64) -> u64 {
        let addr = self.tests.program_address(at);
        if addr.wrapping_sub(self.base) <= self.bytes { addr } else { at }
    }

    fn tag(&self, addr: u64) -> Option<Tag> {
        self.tests.tag(addr)
    }

    fn allows(&self, addr: u64, store: bool) -> bool {
        self.tests.allows(addr, store)
    }

    fn set_tags(&self, addr: u64, bytes: u64, tag: Tag) {
        self.tests.set_tags(addr, bytes, tag);
        for page in (addr & !(PAGE - 1)..addr + bytes).step_by(PAGE as usize) {
            self.set_rights(page).unwrap();
        }
    }

    fn meaning_of_fault(&self, addr: u64) -> Fault {
        let shared = self.base..self.base + self.bytes;
        if shared.contains(&addr) { Fault::NotTested } else { self.tests.meaning_of_fault(addr) }
    }
}
