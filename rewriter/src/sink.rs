//! Where an output file goes: memory, or a file that appears whole or not at all.
//!
//! Purpose: the output of a large program is several times its code, so it is written in pieces as the last stages make them, and is never
//! in memory as a whole. Input: bytes and where they stand in the file. What has been written can be read and overwritten.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file while it is written.
pub trait Sink {
    /// Puts `bytes` at offset `at`; what lies between the end so far and `at` becomes zeros.
    ///
    /// # Errors
    /// The file system's.
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Reads what has been written at offset `at`.
    ///
    /// # Errors
    /// The file system's; not so much has been written.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()>;
}

impl Sink for Vec<u8> {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let at = at as usize;
        if self.len() < at {
            self.resize(at, 0);
        }
        let over = (self.len() - at).min(bytes.len());
        self[at..at + over].copy_from_slice(&bytes[..over]);
        self.extend_from_slice(&bytes[over..]);
        Ok(())
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let held = self.get(at as usize..).and_then(|tail| tail.get(..into.len()));
        into.copy_from_slice(held.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

/// A file that is written under a temporary name in its folder and renamed at the end: whoever looks sees all its bytes, or no such file.
/// Nothing is made before the first byte is written.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    mode: u32,
    /// Permission bits of the folder, where it may have to be made.
    folder_mode: Option<u32>,
    file: Option<NamedTempFile>,
    failure: Option<io::Error>,
}

impl AtomicFile {
    /// A file with these permission bits.
    pub fn new(path: impl Into<PathBuf>, mode: u32) -> AtomicFile {
        AtomicFile { path: path.into(), mode, folder_mode: None, file: None, failure: None }
    }

    /// Lets the first write make the folder, too.
    pub fn in_new_folder(mut self, mode: u32) -> AtomicFile {
        self.folder_mode = Some(mode);
        self
    }

    /// Why writing failed, if it did: the first time.
    pub fn failure(&mut self) -> Option<io::Error> {
        self.failure.take()
    }

    fn folder(&self) -> &Path {
        self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }

    fn open(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            if let Some(mode) = self.folder_mode {
                fs::DirBuilder::new().recursive(true).mode(mode).create(self.folder())?;
            }
            let mut prefix = OsString::from(".");
            prefix.push(self.path.file_name().unwrap_or_default());
            prefix.push(".");
            self.file = Some(tempfile::Builder::new().prefix(&prefix).tempfile_in(self.folder())?);
        }
        Ok(self.file.as_ref().expect("opened above").as_file())
    }

    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        result.inspect_err(|e| {
            let again =
                e.raw_os_error().map_or_else(|| io::Error::new(e.kind(), e.to_string()), io::Error::from_raw_os_error);
            self.failure.get_or_insert(again);
        })
    }

    /// Gives the file its name. Without this it is gone when `self` is.
    ///
    /// # Errors
    /// The file system's.
    pub fn finish(mut self) -> io::Result<()> {
        let mode = self.mode;
        let file = self.open()?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_data()?;
        // Closed before it gets its name: a file that is open for writing cannot be executed.
        let file = self.file.take().expect("opened above");
        file.into_temp_path().persist(&self.path).map_err(|e| e.error)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // The folder goes, too, if it was made in vain: only an empty one can be removed.
        if self.file.take().is_some() && self.folder_mode.is_some() {
            let _ = fs::remove_dir(self.folder());
        }
    }
}

impl Sink for AtomicFile {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let done = self.open().and_then(|file| file.write_all_at(bytes, at));
        self.note(done)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
        file.as_file().read_exact_at(into, at)
    }
}

/// Writes `path` under a temporary name in its folder and renames it: it appears with all its bytes, or not at all.
///
/// # Errors
/// The file system's; the temporary file is gone then.
pub fn write_atomically(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut file = AtomicFile::new(path, mode);
    file.write_at(0, bytes)?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut all: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        all.sort();
        all
    }

    /// Pieces in any order, overlapping, with a hole.
    fn fill(sink: &mut dyn Sink) -> Vec<u8> {
        sink.write_at(6, b"gh").unwrap();
        sink.write_at(0, b"abXX").unwrap();
        sink.write_at(2, b"cd").unwrap();
        sink.write_at(7, b"hij").unwrap();
        let mut all = vec![0; 10];
        sink.read_at(0, &mut all).unwrap();
        assert!(sink.read_at(5, &mut [0; 6]).is_err());
        all
    }

    #[test]
    fn memory_and_files_take_the_same_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let mut memory = Vec::new();
        assert_eq!(fill(&mut memory), b"abcd\0\0ghij");
        assert_eq!(memory, b"abcd\0\0ghij");
        let mut file = AtomicFile::new(&path, 0o640);
        assert_eq!(fill(&mut file), b"abcd\0\0ghij");
        assert!(!path.exists());
        file.finish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"abcd\0\0ghij");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn what_is_not_finished_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = AtomicFile::new(folder.path().join("sub/f"), 0o600).in_new_folder(0o700);
        drop(AtomicFile::new(folder.path().join("sub/f"), 0o600).in_new_folder(0o700));
        assert_eq!(names(folder.path()), [""; 0]);
        file.write_at(0, b"x").unwrap();
        assert_eq!(names(folder.path()), ["sub"]);
        drop(file);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn a_failed_write_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("taken")).unwrap();
        assert!(write_atomically(&folder.path().join("taken"), b"x", 0o755).is_err());
        assert_eq!(names(folder.path()), ["taken"]);
    }

    #[test]
    fn the_reason_of_a_failure_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = AtomicFile::new(folder.path().join("absent/f"), 0o600);
        assert!(file.write_at(0, b"x").is_err());
        assert_eq!(file.failure().unwrap().kind(), io::ErrorKind::NotFound);
        assert!(file.failure().is_none());
    }
}
