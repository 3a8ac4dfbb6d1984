//! How the rewriter holds large things: inputs are mapped, and given back when a stage has read them; large blocks go back to the kernel
//! when they are freed.
//!
//! Invariant: the only `unsafe` of the stages is here.

#![allow(unsafe_code)]

use memmap2::{Mmap, UncheckedAdvice};
use std::fs::File;
use std::io;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;

/// The bytes of a file, mapped: the kernel can take their memory back at any time.
///
/// Whoever changes the file meanwhile changes what is read, so what was made of it counts only if [`Mapped::is_unchanged`] says so behind it;
/// whoever truncates it ends this process (SIGBUS) before it has given an output its name.
#[derive(Debug)]
pub struct Mapped {
    map: Option<Mmap>,
    file: File,
    before: State,
}

/// What a change of a file changes: its size, and when it was written and when anything of it was changed, in seconds and nanoseconds.
type State = (u64, [i64; 4]);

fn state(file: &File) -> io::Result<State> {
    let m = file.metadata()?;
    Ok((m.size(), [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()]))
}

impl Mapped {
    /// Maps all of `file`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(file: &File) -> io::Result<Mapped> {
        let before = state(file)?;
        let own = file.try_clone()?;
        if before.0 == 0 {
            return Ok(Mapped { map: None, file: own, before });
        }
        // SAFETY: the mapping is private and read-only, and lives as long as what borrows it. What is read are bytes, of which every value is
        // one; nothing relies on reading the same twice, because all that is believed of an input is checked where it is used
        // (bounds are those of the mapping, which do not change).
        unsafe { Mmap::map(file) }.map(|map| Mapped { map: Some(map), file: own, before })
    }

    /// Gives back the memory of what has been read. What is read again comes from the file again.
    pub fn give_back(&self) {
        if let Some(map) = &self.map {
            // SAFETY: the mapping is private and has never been written to, so the kernel may drop its pages whenever it likes, asked or
            // not: a read behind that brings the same byte of the file back, or, where somebody has changed the file, another one, which
            // is no worse than what `of` says of every read.
            // That it fails is of no interest: then the pages stay.
            let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    }

    /// Whether nobody has written to the file since it was mapped.
    pub fn is_unchanged(&self) -> bool {
        state(&self.file).is_ok_and(|now| now == self.before)
    }
}

impl Deref for Mapped {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

/// The bytes of an input, wherever they are.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    pub all: &'a [u8],
    mapped: Option<&'a Mapped>,
}

impl Bytes<'_> {
    /// Gives back the memory of those that have been read, if they can be read again.
    pub fn give_back(self) {
        self.mapped.inspect(|mapped| mapped.give_back());
    }
}

impl<'a> From<&'a Mapped> for Bytes<'a> {
    fn from(mapped: &'a Mapped) -> Self {
        Bytes { all: mapped, mapped: Some(mapped) }
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    fn from(all: &'a [u8]) -> Self {
        Bytes { all, mapped: None }
    }
}

impl<'a> From<&'a Vec<u8>> for Bytes<'a> {
    fn from(all: &'a Vec<u8>) -> Self {
        Bytes { all, mapped: None }
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
    use std::io::Write;

    #[test]
    fn a_file_is_seen_whole_and_an_empty_one_as_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        for bytes in [&b""[..], b"x", &[7; 10_000]] {
            std::fs::write(&path, bytes).unwrap();
            let mapped = Mapped::of(&File::open(&path).unwrap()).unwrap();
            assert_eq!(&mapped[..], bytes);
            assert!(mapped.is_unchanged());
            // What was given back is there again.
            Bytes::from(&mapped).give_back();
            assert_eq!(Bytes::from(&mapped).all, bytes);
            std::fs::OpenOptions::new().append(true).open(&path).and_then(|mut f| f.write_all(b"more")).unwrap();
            assert!(!mapped.is_unchanged());
        }
    }
}
