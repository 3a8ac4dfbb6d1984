//! Which pages of a private mapping of a file this process has written.
//!
//! Purpose: a large mapping of which little has been written need not be read as a whole. Input: a range of addresses. Output: the pages that may differ from the
//! file. Source: Linux `Documentation/admin-guide/mm/pagemap.rst`.
//! **Invariant**: a page that has been written is among them: it is memory of the process's own then, in memory or swapped out.
//! Where the kernel does not say, all are.

use crate::kernel::sys;

const PAGE: u64 = 4096;
/// Entries of `/proc/self/pagemap` that are read at once.
const ENTRIES: usize = 512;
const IN_MEMORY: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
/// It is the file's, or it is shared.
const OF_FILE: u64 = 1 << 61;

/// Whether the page with this entry may have been written.
fn may_be_own(entry: u64) -> bool {
    entry & SWAPPED != 0 || entry & (IN_MEMORY | OF_FILE) == IN_MEMORY
}

/// Calls `with` with the address of each page of `bytes` bytes at `at` that this process may have written, until it fails.
///
/// # Errors
/// Those of `with`.
pub fn each_written_page(at: u64, bytes: u64, mut with: impl FnMut(u64) -> sys::Result<()>) -> sys::Result<()> {
    let map = sys::open(c"/proc/self/pagemap", libc::O_RDONLY | libc::O_CLOEXEC).ok();
    let done = look(map, at / PAGE, (at + bytes).div_ceil(PAGE), &mut with);
    if let Some(map) = map {
        let _ = sys::close(map);
    }
    done
}

/// The same for pages by their numbers; `map`: the open file.
fn look(map: Option<i32>, first: u64, end: u64, with: &mut impl FnMut(u64) -> sys::Result<()>) -> sys::Result<()> {
    let mut entries = [0u8; ENTRIES * 8];
    let mut at = first;
    while at < end {
        let wanted = (end - at).min(ENTRIES as u64) as usize;
        let bytes = &mut entries[..wanted * 8];
        let is_known = map.is_some_and(|map| sys::pread(map, bytes, at * 8) == Ok(bytes.len()));
        for (page, entry) in (at..).zip(bytes.as_chunks().0) {
            if !is_known || may_be_own(u64::from_ne_bytes(*entry)) {
                with(page * PAGE)?;
            }
        }
        at += wanted as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;

    fn written(map: Option<i32>, at: u64, bytes: u64) -> Vec<u64> {
        let mut found = Vec::new();
        let mut with = |page| {
            found.push((page - at) / PAGE);
            Ok(())
        };
        match map {
            Some(_) => each_written_page(at, bytes, with).unwrap(),
            None => look(None, at / PAGE, (at + bytes) / PAGE, &mut with).unwrap(),
        }
        found
    }

    #[test]
    fn pages_that_were_written_are_found_and_where_nobody_says_all() {
        const PAGES: u64 = 600;
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(file.metadata().unwrap().len() > PAGES * PAGE);
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file, used below.
        let at = unsafe { sys::mmap(0, PAGES * PAGE, rights, libc::MAP_PRIVATE, file.as_raw_fd(), 0) }.unwrap();
        let page = |number: u64| (at + number * PAGE) as *mut u8;
        // SAFETY: within the mapping.
        unsafe {
            for read in [1, 512, 590] {
                page(read).read_volatile();
            }
            for write in [0, 3, 511, 513, 599] {
                page(write).write_volatile(1);
            }
        }
        let found = written(Some(0), at, PAGES * PAGE);
        assert!([0, 3, 511, 513, 599].iter().all(|page| found.contains(page)), "{found:?}");
        if std::path::Path::new("/proc/self/pagemap").exists() {
            assert_eq!(found, [0, 3, 511, 513, 599]);
        }
        assert_eq!(written(None, at, PAGES * PAGE), (0..PAGES).collect::<Vec<_>>());
        let mut calls = 0;
        let refused = each_written_page(at, PAGES * PAGE, |_| {
            calls += 1;
            Err(sys::Errno(libc::ENOMEM))
        });
        assert!(refused.is_err() && calls == 1);
        // SAFETY: mapped above, and not used again.
        unsafe { sys::munmap(at, PAGES * PAGE) }.unwrap();
    }
}
