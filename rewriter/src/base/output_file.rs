//! Where an output file goes: memory, or a file that appears whole or not at all.
//!
//! Purpose: the output of a large program is several times its code, so it is written in pieces as the last stages make them, and is never
//! in memory as a whole. Input: bytes and where they stand in the file. What has been written can be read and overwritten.

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file while it is written.
pub trait OutputSink {
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

    /// To be asked before so many bytes are written: whether there is room for them.
    ///
    /// # Errors
    /// There is not.
    fn expect_room(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Nothing is kept: what is written is only to be measured.
#[derive(Debug)]
pub struct MeasuredOnly;

impl OutputSink for MeasuredOnly {
    fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, _: u64, into: &mut [u8]) -> io::Result<()> {
        into.fill(0);
        Ok(())
    }
}

impl OutputSink for Vec<u8> {
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

/// A file that gets its name at the end: whoever looks sees all its bytes, or no such file. Nothing is made before the first byte is written.
/// Until then it has no name at all, where the file system can make such files, so that nothing is left of a process that is killed; else a
/// temporary one in its folder.
#[derive(Debug)]
pub struct AtomicFile {
    path: PathBuf,
    mode: u32,
    /// Permission bits of the folder, where it may have to be made.
    folder_mode: Option<u32>,
    file: Option<Unfinished>,
    failure: Option<io::Error>,
}

/// A file while it is written.
#[derive(Debug)]
enum Unfinished {
    Nameless(File),
    Named(NamedTempFile),
}

impl Unfinished {
    fn file(&self) -> &File {
        match self {
            Unfinished::Nameless(file) => file,
            Unfinished::Named(file) => file.as_file(),
        }
    }
}

/// Most bytes of a file's name in its temporary name. File systems allow 255 (NAME_MAX) in all, encrypting ones as few as 143.
const PREFIX_BYTES: usize = 100;

/// Where the kernel shows a process its open files.
const OPEN_FILES: &str = "/proc/self/fd";

/// A file in `folder` without a name. None: there cannot be one, or it could not be given a name later.
fn nameless(folder: &Path) -> Option<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR).ok()?;
    Path::new(OPEN_FILES).is_dir().then(|| File::from(file))
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

    fn make_folder(&self) -> io::Result<()> {
        match self.folder_mode {
            Some(mode) => make_folder(self.folder(), mode),
            None => Ok(()),
        }
    }

    fn open(&mut self) -> io::Result<&File> {
        if self.file.is_none() {
            self.file = Some(again_if_gone(|| {
                self.make_folder()?;
                Ok(match nameless(self.folder()) {
                    Some(file) => Unfinished::Nameless(file),
                    None => Unfinished::Named(self.named()?),
                })
            })?);
        }
        Ok(self.file.as_ref().expect("opened above").file())
    }

    /// What its temporary name begins with: so much of its own that there is room for what makes it different from all others.
    fn prefix(&self) -> OsString {
        let name = self.path.file_name().unwrap_or_default().as_bytes();
        let mut prefix = OsString::from(".");
        prefix.push(OsStr::from_bytes(&name[..name.len().min(PREFIX_BYTES)]));
        prefix.push(".");
        prefix
    }

    fn named(&self) -> io::Result<NamedTempFile> {
        tempfile::Builder::new().prefix(&self.prefix()).tempfile_in(self.folder())
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
        // While the file may be read, whatever its mode will be.
        let reader = File::open(Path::new(OPEN_FILES).join(file.as_raw_fd().to_string()));
        file.set_permissions(Permissions::from_mode(mode))?;
        file.sync_data()?;
        match self.file.take().expect("opened above") {
            Unfinished::Named(file) => file.into_temp_path().persist(&self.path).map_err(|e| e.error),
            Unfinished::Nameless(file) => {
                let reader = reader?;
                // Closed before it gets its name: a file that is open for writing cannot be executed.
                drop(file);
                let open = Path::new(OPEN_FILES).join(reader.as_raw_fd().to_string());
                let link = |to: &Path| {
                    rustix::fs::linkat(CWD, &open, CWD, to, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
                };
                // In one step where nothing has that name: a file that has lost its first name gets no other. Another process that made the folder, too,
                // may have removed it.
                again_if_gone(|| {
                    self.make_folder()?;
                    match link(&self.path) {
                        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                            // A link cannot replace a file, so it gets a temporary name for a moment.
                            let at = tempfile::Builder::new().prefix(&self.prefix()).make_in(self.folder(), link)?;
                            at.into_temp_path().persist(&self.path).map_err(|e| e.error)
                        }
                        linked => linked,
                    }
                })
            }
        }
    }
}

/// Makes a folder, and those that it is in, where they are missing.
///
/// # Errors
/// The file system's; `NotFound` if another process has removed the folder meanwhile.
pub fn make_folder(folder: &Path, mode: u32) -> io::Result<()> {
    // The library looks whether what was there is a folder only when it may be gone.
    let is_taken = |place: &Path| place.symlink_metadata().is_ok() && !place.is_dir();
    match fs::DirBuilder::new().recursive(true).mode(mode).create(folder) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && !folder.ancestors().any(is_taken) => {
            Err(io::ErrorKind::NotFound.into())
        }
        made => made,
    }
}

/// How often something is done again that another process undoes.
const TRIES: usize = 8;

/// Does something in a folder that another process may remove at any moment.
///
/// # Errors
/// Those of `act`.
pub fn again_if_gone<T>(mut act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    for _ in 1..TRIES {
        match act() {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            done => return done,
        }
    }
    act()
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // The folder goes, too, if it was made in vain: only an empty one can be removed.
        if self.file.take().is_some() && self.folder_mode.is_some() {
            let _ = fs::remove_dir(self.folder());
        }
    }
}

impl OutputSink for AtomicFile {
    fn write_at(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let done = self.open().and_then(|file| file.write_all_at(bytes, at));
        self.note(done)
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::UnexpectedEof)?;
        file.file().read_exact_at(into, at)
    }

    fn expect_room(&mut self, bytes: u64) -> io::Result<()> {
        let room = self.open().and_then(|file| Ok(rustix::fs::fstatvfs(file)?));
        // A file system without a limit says that it has no blocks.
        let room =
            room.map(|room| if room.f_blocks == 0 { u64::MAX } else { room.f_bavail.saturating_mul(room.f_frsize) });
        let enough = room.and_then(|room| match bytes > room {
            false => Ok(()),
            true => {
                let text = format!(
                    "No space left on device: {} MiB are needed, {} MiB are free",
                    bytes.div_ceil(1 << 20),
                    room >> 20
                );
                Err(io::Error::new(io::ErrorKind::StorageFull, text))
            }
        });
        self.note(enough)
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

/// Writes a report where the user wants it: a pipe, a terminal or a device stays what it is, a link too, and a file is replaced by a whole one.
pub fn write_report(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => OpenOptions::new().write(true).open(path)?.write_all(bytes),
        _ => write_atomically(&path.canonicalize().unwrap_or_else(|_| path.to_owned()), bytes, 0o644),
    }
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

    #[test]
    fn a_report_takes_the_place_of_no_pipe_and_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        write_report(&at("link"), b"new").unwrap();
        assert!(at("link").is_symlink() && fs::read(at("file")).unwrap() == b"new");
        write_report(&at("other"), b"text").unwrap();
        assert_eq!(fs::read(at("other")).unwrap(), b"text");
        rustix::fs::mknodat(CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reader = std::thread::spawn({
            let pipe = at("pipe");
            move || fs::read(pipe).unwrap()
        });
        write_report(&at("pipe"), b"text").unwrap();
        assert_eq!(reader.join().unwrap(), b"text");
        assert_eq!(names(folder.path()), ["file", "link", "other", "pipe"]);
    }

    #[test]
    fn a_folder_that_goes_away_meanwhile_is_only_missing() {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().join("a/b");
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = fs::remove_dir(&at);
                    let _ = fs::remove_dir(folder.path().join("a"));
                }
            });
            let made = || make_folder(&at, 0o700).map_err(|e| e.kind());
            let tries: Vec<_> = std::iter::repeat_with(made).take(20_000).collect();
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(tries.iter().all(|made| matches!(made, Ok(()) | Err(io::ErrorKind::NotFound))));
        });
        make_folder(&at, 0o700).unwrap();
        fs::write(at.join("file"), "").unwrap();
        std::os::unix::fs::symlink("nothing", at.join("link")).unwrap();
        for taken in ["file", "link"] {
            assert_eq!(make_folder(&at.join(taken), 0o700).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
    }

    /// Pieces in any order, overlapping, with a hole.
    fn fill(sink: &mut dyn OutputSink) -> Vec<u8> {
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
    fn a_file_has_no_name_until_it_is_finished() {
        // A process that is killed cannot remove anything.
        let folder = tempfile::tempdir().unwrap();
        let mut file = AtomicFile::new(folder.path().join("f"), 0o755);
        file.write_at(0, b"x").unwrap();
        if matches!(file.file, Some(Unfinished::Nameless(_))) {
            assert_eq!(names(folder.path()), [""; 0]);
        } else {
            eprintln!("the file system has no files without names");
        }
        file.finish().unwrap();
        assert_eq!(names(folder.path()), ["f"]);
    }

    #[test]
    fn a_named_temporary_file_does_as_well() {
        let folder = tempfile::tempdir().unwrap();
        for old in [None, Some(b"old")] {
            old.inspect(|old| fs::write(folder.path().join("f"), old).unwrap());
            let mut file = AtomicFile::new(folder.path().join("f"), 0o755);
            file.file = Some(Unfinished::Named(file.named().unwrap()));
            file.write_at(0, b"x").unwrap();
            file.finish().unwrap();
            assert_eq!(names(folder.path()), ["f"]);
            assert_eq!(fs::read(folder.path().join("f")).unwrap(), b"x");
        }
    }

    /// The temporary name next to it was longer than a name may be.
    #[test]
    fn a_name_may_be_as_long_as_the_file_system_allows() {
        let folder = tempfile::tempdir().unwrap();
        // Two bytes each: the temporary name ends in the middle of one.
        let name = "\u{e4}".repeat(127) + "f";
        write_atomically(&folder.path().join(&name), b"x", 0o755).unwrap();
        assert_eq!(names(folder.path()), std::slice::from_ref(&name));
        let mut file = AtomicFile::new(folder.path().join(&name), 0o755);
        file.file = Some(Unfinished::Named(file.named().unwrap()));
        file.finish().unwrap();
        let longer = write_atomically(&folder.path().join(name + "f"), b"x", 0o755).unwrap_err();
        assert_eq!(longer.kind(), io::ErrorKind::InvalidFilename);
        assert_eq!(names(folder.path()).len(), 1);
    }

    #[test]
    fn what_has_no_room_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = AtomicFile::new(folder.path().join("f"), 0o755);
        file.expect_room(1).unwrap();
        assert!(file.expect_room(1 << 60).is_err());
        assert_eq!(file.failure().unwrap().kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_folder_that_another_process_removes_is_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let open = || AtomicFile::new(folder.path().join("sub/f"), 0o600).in_new_folder(0o700);
        let (mut good, mut failed) = (open(), open());
        good.write_at(0, b"x").unwrap();
        failed.write_at(0, b"y").unwrap();
        drop(failed);
        good.finish().unwrap();
        assert_eq!(names(&folder.path().join("sub")), ["f"]);
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
