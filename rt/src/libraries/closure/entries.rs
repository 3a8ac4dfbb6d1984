//! The caches' entries: the rewritten form of a file, by what tells a version of a file from all others.
//!
//! Input: what the kernel says of a file, and the folder. Output: the descriptor of its rewritten form, or that there is none.
//! **Invariant**: a file that was changed has another entry, so no form of an older version is taken for it.

use crate::kernel::sys::{self, Errno};
use crate::libraries::closure::opened_by_libc::OPENED;
use crate::libraries::closure::own_cache;
use crate::libraries::closure::paths::{Fd, Path};
use crate::libraries::closure::source::state;
use core::ffi::CStr;
use core::fmt::{self, Write};

/// Name of a file's entry in the cache's folder.
pub fn entry_name(to: &mut impl Write, st_dev: u64, st_ino: u64, bytes: u64, ctime: i64, ctime_ns: i64) -> fmt::Result {
    write!(to, "{st_dev:x}-{st_ino:x}-{bytes:x}-{ctime:x}.{ctime_ns:x}")
}

/// The rewritten form of the file that `stat` describes: from the cache, as it has been kept open, or from the user's own cache.
pub fn entry_of(stat: &libc::stat, folder: &CStr, key: &CStr) -> Result<Fd, Errno> {
    cached(stat, folder).or_else(|e| {
        if OPENED.stands_for(stat)
            && let Some(kept) = OPENED.open()
        {
            return Ok(kept);
        }
        let own = own_cache::folder().map_err(|_| e)?;
        open_entry(own.0, &[b"libraries-", key.to_bytes(), b"/"], stat).map_err(|_| e)
    })
}

/// The rewritten form of the file that `stat` describes, from the cache that the program was rewritten with.
pub fn cached(stat: &libc::stat, folder: &CStr) -> Result<Fd, Errno> {
    let found = open_entry(libc::AT_FDCWD, &[folder.to_bytes(), b"/"], stat)?;
    // The cache may lie in a folder that the caller can rename.
    if state().secure && !own_cache::is_trusted(&sys::fstat(found.0)?) {
        return Err(Errno(libc::EPERM));
    }
    Ok(found)
}

/// Opens the entry for a file in the folder of libraries at the path of `parts`, which begins at the open folder.
#[inline(never)]
fn open_entry(from: i32, parts: &[&[u8]], stat: &libc::stat) -> Result<Fd, Errno> {
    let mut path = Path::new();
    parts.iter().try_for_each(|part| path.push(part))?;
    entry_name(&mut path, stat.st_dev, stat.st_ino, stat.st_size as u64, stat.st_ctime, stat.st_ctime_nsec)
        .map_err(|fmt::Error| Errno(libc::ENAMETOOLONG))?;
    sys::openat(from, path.as_cstr(), libc::O_RDONLY | libc::O_CLOEXEC).map(Fd)
}

/// Marks a file of the cache as used, so that it is not cleaned away. Not allowed in somebody else's cache.
pub fn touch(fd: i32) {
    // SAFETY: no memory is touched: no path, no times (now).
    let _ = unsafe { sys::call(libc::SYS_utimensat, [fd as u64, 0, 0, 0, 0, 0]) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_named_by_what_changes_with_the_file() {
        let mut name = String::new();
        entry_name(&mut name, 0xfe00, 0x123, 4096, 0x66, 999_999_999).unwrap();
        assert_eq!(name, "fe00-123-1000-66.3b9ac9ff");
    }
}
