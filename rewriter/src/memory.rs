//! How the rewriter holds large things: inputs are mapped, and large blocks go back to the kernel when they are freed.
//!
//! Invariant: the only `unsafe` of the stages is here.

#![allow(unsafe_code)]

use memmap2::Mmap;
use std::fs::File;
use std::io;
use std::ops::Deref;

/// The bytes of a file, mapped: the kernel can take their memory back at any time.
///
/// Whoever changes the file meanwhile changes what is read, as with any other way to read it in several steps; whoever truncates it ends this
/// process (SIGBUS) before it has given an output its name.
#[derive(Debug)]
pub struct Mapped(Option<Mmap>);

impl Mapped {
    /// Maps all of `file`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(file: &File) -> io::Result<Mapped> {
        if file.metadata()?.len() == 0 {
            return Ok(Mapped(None));
        }
        // SAFETY: the mapping is private and read-only, and lives as long as what borrows it. What is read are bytes, of which every value is
        // one; nothing relies on reading the same twice, because all that is believed of an input is checked where it is used
        // (bounds are those of the mapping, which do not change).
        unsafe { Mmap::map(file) }.map(|map| Mapped(Some(map)))
    }
}

impl Deref for Mapped {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}

/// Blocks of so many bytes are mapped each by itself, so they do not stay with the process when they are freed, and grow without being copied.
/// (Left to itself, glibc raises its limit to the size of what is freed: a quarter more memory for large programs.)
const LARGE_BYTES: i32 = 256 << 10;

/// Makes it so, for the whole process. Only glibc's allocator can be told.
pub fn give_back_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call changes a setting of the allocator, under the allocator's own lock; any value in the documented range is allowed.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_seen_whole_and_an_empty_one_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        for bytes in [&b""[..], b"x", &[7; 10_000]] {
            std::fs::write(&path, bytes).unwrap();
            let mapped = Mapped::of(&File::open(&path).unwrap()).unwrap();
            assert_eq!(&mapped[..], bytes);
        }
    }
}
