//! How the rewriter holds large things: inputs are mapped, and given back when a stage has read them; large blocks go back to the kernel
//! when they are freed.
//!
//! Input: open files. Output: their bytes ([`MappedFile`], [`InputBytes`]).
//!
//! Invariant: the only `unsafe` of the stages is here.

#![allow(unsafe_code)]

use crate::base::error::{Error, Result};
use memmap2::{Mmap, UncheckedAdvice};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::{Deref, Range};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// The bytes of a file, mapped: the kernel can take their memory back at any time.
///
/// Whoever changes the file meanwhile changes what is read, so what was made of it counts only if [`MappedFile::is_unchanged`] says so behind it.
/// Where a part of it cannot be read any more, because the file was truncated or its disk fails, the process says so and ends with status 1.
#[derive(Debug)]
pub struct MappedFile {
    bytes: Held,
    file: File,
    before: State,
}

#[derive(Debug)]
enum Held {
    /// Watched for as long as it is mapped: fields are dropped in this order.
    Mapped { _watch: Watch, map: Mmap },
    /// Where the kernel maps nothing, or too many files are mapped already.
    Read(Vec<u8>),
}

/// What a change of a file changes: its size, and when it was written and when anything of it was changed, in seconds and nanoseconds.
type State = (u64, [i64; 4]);

fn state(file: &File) -> io::Result<State> {
    let m = file.metadata()?;
    Ok((m.size(), [m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()]))
}

impl MappedFile {
    /// Maps all of `file`, which messages call `name`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(file: &File, name: &str) -> io::Result<MappedFile> {
        let before = state(file)?;
        let own = file.try_clone()?;
        let read = || {
            let mut bytes = Vec::new();
            (&own).rewind()?;
            (&own).read_to_end(&mut bytes)?;
            Ok::<_, io::Error>(Held::Read(bytes))
        };
        let bytes = if before.0 == 0 {
            Held::Read(Vec::new())
        } else {
            // SAFETY: the mapping is private and read-only, and lives as long as what borrows it. What is read are bytes, of which every value is
            // one; nothing relies on reading the same twice, because all that is believed of an input is checked where it is used
            // (bounds are those of the mapping, which do not change). No reading returns from a page that has disappeared (`on_bus_error`).
            let map = unsafe { Mmap::map(file) }?;
            match watch(map.as_ptr_range(), name) {
                Some(watch) => Held::Mapped { _watch: watch, map },
                None => read()?,
            }
        };
        Ok(MappedFile { bytes, file: own, before })
    }

    /// Gives back the memory of what has been read. What is read again comes from the file again.
    pub fn give_back(&self) {
        if let Held::Mapped { map, .. } = &self.bytes {
            // SAFETY: the mapping is private and has never been written to, so the kernel may drop its pages whenever it likes, asked or
            // not: a read behind that brings the same byte of the file back, or, where somebody has changed the file, another one, which
            // is no worse than what `of` says of every read.
            // That it fails is of no interest: then the pages stay.
            let _ = unsafe { map.unchecked_advise(UncheckedAdvice::DontNeed) };
        }
    }

    /// Whether nobody has written to the file since it was mapped.
    pub fn is_unchanged(&self) -> bool {
        self.len() as u64 == self.before.0 && state(&self.file).is_ok_and(|now| now == self.before)
    }

    /// To be asked before anything that was made of the file is used, errors included: nothing of that counts if the file was changed meanwhile.
    ///
    /// # Errors
    /// It was.
    pub fn expect_unchanged(&self, name: &str) -> Result<()> {
        if self.is_unchanged() {
            return Ok(());
        }
        Err(has_changed(name))
    }
}

fn has_changed(name: &str) -> Error {
    Error::new(format!("{name}: has changed while it was read")).help("try again when nothing writes to it")
}

impl Deref for MappedFile {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Held::Mapped { map, .. } => map,
            Held::Read(bytes) => bytes,
        }
    }
}

/// A range of addresses where a page that cannot be read ends the process.
#[derive(Debug)]
struct Slot {
    /// [`FREE`], or [`TAKEN`] while the other fields are set.
    start: AtomicUsize,
    end: AtomicUsize,
    /// What is said then.
    message: AtomicPtr<u8>,
    message_bytes: AtomicUsize,
}

const FREE: usize = 0;
const TAKEN: usize = 1;
/// A program and the libraries that are rewritten at once, and more.
static SLOTS: [Slot; 256] = [const {
    Slot {
        start: AtomicUsize::new(FREE),
        end: AtomicUsize::new(0),
        message: AtomicPtr::new(std::ptr::null_mut()),
        message_bytes: AtomicUsize::new(0),
    }
}; 256];
/// What the process did about SIGBUS before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Keeps a slot, and what it leads to.
#[derive(Debug)]
struct Watch {
    slot: &'static Slot,
    message: Box<[u8]>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Before the addresses can be something else's.
        self.slot.start.store(FREE, Ordering::Release);
    }
}

/// Watches a mapping. None: it cannot be.
fn watch(range: Range<*const u8>, name: &str) -> Option<Watch> {
    let installed = *INSTALLED.get_or_init(install);
    let free = |s: &&Slot| s.start.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let slot = SLOTS.iter().filter(|_| installed).find(free)?;
    let message = format!("blizzard: error: {}\n", has_changed(name)).into_bytes().into_boxed_slice();
    let mut watch = Watch { slot, message };
    slot.end.store(range.end as usize, Ordering::Relaxed);
    slot.message.store(watch.message.as_mut_ptr(), Ordering::Relaxed);
    slot.message_bytes.store(watch.message.len(), Ordering::Relaxed);
    slot.start.store(range.start as usize, Ordering::Release);
    Some(watch)
}

static INSTALLED: OnceLock<bool> = OnceLock::new();

/// Sets the handler; whether that worked.
fn install() -> bool {
    // SAFETY: an action of zeros is a valid one; both pointers are to such objects, and the handler is one for SA_SIGINFO.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
            return false;
        }
        let _ = BEFORE.set(before);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) == 0
    }
}

/// The instruction is tried again when this returns.
extern "C" fn on_bus_error(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid siginfo over, and that of SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let holds = |s: &&Slot| {
        let start = s.start.load(Ordering::Acquire);
        start > TAKEN && (start..s.end.load(Ordering::Relaxed)).contains(&address)
    };
    if let Some(slot) = SLOTS.iter().find(holds) {
        let (text, bytes) = (slot.message.load(Ordering::Relaxed), slot.message_bytes.load(Ordering::Relaxed));
        // SAFETY: this thread is reading what the slot's `Watch` watches, so that lives, and its message with it. Both calls are allowed in
        // a handler (POSIX, "Signal Concepts"); nothing waits for what is not done behind them: an unfinished output has no name.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.cast(), bytes);
            libc::_exit(libc::EXIT_FAILURE);
        }
    }
    // Not ours: whoever was asked before is asked when the instruction is tried again.
    if let Some(before) = BEFORE.get() {
        // SAFETY: this is the action that the process had.
        unsafe { libc::sigaction(libc::SIGBUS, before, std::ptr::null_mut()) };
    }
}

/// The bytes of an input, wherever they are.
#[derive(Clone, Copy, Debug)]
pub struct InputBytes<'a> {
    pub all: &'a [u8],
    mapped: Option<&'a MappedFile>,
}

impl InputBytes<'_> {
    /// Gives back the memory of those that have been read, if they can be read again.
    pub fn give_back(self) {
        self.mapped.inspect(|mapped| mapped.give_back());
    }
}

impl<'a> From<&'a MappedFile> for InputBytes<'a> {
    fn from(mapped: &'a MappedFile) -> Self {
        InputBytes { all: mapped, mapped: Some(mapped) }
    }
}

impl<'a> From<&'a [u8]> for InputBytes<'a> {
    fn from(all: &'a [u8]) -> Self {
        InputBytes { all, mapped: None }
    }
}

impl<'a> From<&'a Vec<u8>> for InputBytes<'a> {
    fn from(all: &'a Vec<u8>) -> Self {
        InputBytes { all, mapped: None }
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
            let mapped = MappedFile::of(&File::open(&path).unwrap(), "f").unwrap();
            assert_eq!(&mapped[..], bytes);
            assert!(mapped.is_unchanged());
            // What was given back is there again.
            InputBytes::from(&mapped).give_back();
            assert_eq!(InputBytes::from(&mapped).all, bytes);
            std::fs::OpenOptions::new().append(true).open(&path).and_then(|mut f| f.write_all(b"more")).unwrap();
            assert!(!mapped.is_unchanged());
        }
    }

    #[test]
    fn where_no_more_files_can_be_watched_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, [7; 100]).unwrap();
        let map = || MappedFile::of(&File::open(&path).unwrap(), "f").unwrap();
        let all: Vec<MappedFile> = (0..SLOTS.len() + 2).map(|_| map()).collect();
        assert!(all.iter().all(|m| m[..] == [7; 100] && m.is_unchanged()));
        assert!(matches!(all.last().unwrap().bytes, Held::Read(_)));
        let watched = |m: &MappedFile| matches!(m.bytes, Held::Mapped { .. });
        assert!(all.iter().any(watched));
        drop(all);
        assert!(watched(&map()));
    }
}
