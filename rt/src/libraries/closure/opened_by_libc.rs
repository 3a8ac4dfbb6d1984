//! What glibc opens by itself, kept for a process that is about to give up its rights.
//!
//! glibc opens libgcc_s when a thread is cancelled or ends before its function returns. A server that has become another user by then
//! cannot read the cache any more. Input: the calls by which a process gives up rights, and where the C library was found. Output: one
//! descriptor of a rewritten file, of a high number. A file, not a folder: an open folder would lead a process out of its root directory.
//! **Invariant**: the descriptor is used only while it is of the file that was kept: the program may close it, and use the number for something else.
//! Source: glibc `misc/unwind-link.c`.

use crate::kernel::owned::PerProcess;
use crate::kernel::sys::{self, Errno};
use crate::libraries::closure::paths::{Fd, Path, link_of, open, path_ends_with};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// The C library, and what it opens by itself, in the same folder.
pub const LIBC: &CStr = c"libc.so.6";
pub const LIBGCC: &CStr = c"libgcc_s.so.1";

/// Longest folder of the C library, with a slash.
const FOLDER_BYTES: usize = 256;
/// Numbers of the descriptor, where it is out of the program's way: the first that the limits allow.
const NUMBERS: [u64; 3] = [1000, 200, 3];

/// The folder that the C library was found in.
struct LibcFolder {
    taken: AtomicBool,
    /// Bytes; 0 until they have been written.
    len: AtomicU64,
    bytes: UnsafeCell<[u8; FOLDER_BYTES]>,
}

// SAFETY: the bytes are written once, by who finds `taken` false, and read only after `len` has been set.
unsafe impl Sync for LibcFolder {}

static LIBC_FOLDER: PerProcess<LibcFolder> = PerProcess::new(LibcFolder {
    taken: AtomicBool::new(false),
    len: AtomicU64::new(0),
    bytes: UnsafeCell::new([0; FOLDER_BYTES]),
});

/// Takes notice of a library that the loader has opened.
pub fn note_opened(path: &CStr) {
    if !path_ends_with(path, LIBC) {
        return;
    }
    let folder = &path.to_bytes()[..path.count_bytes() - LIBC.count_bytes()];
    if folder.len() <= FOLDER_BYTES && !LIBC_FOLDER.taken.swap(true, Ordering::Relaxed) {
        // SAFETY: see `LibcFolder`.
        unsafe { (&mut *LIBC_FOLDER.bytes.get())[..folder.len()].copy_from_slice(folder) };
        LIBC_FOLDER.len.store(folder.len() as u64, Ordering::Release);
    }
}

/// Writes the path of the original that the C library would open.
fn write_original(to: &mut Path) -> Result<(), Errno> {
    let len = LIBC_FOLDER.len.load(Ordering::Acquire) as usize;
    if len == 0 {
        return Err(Errno(libc::ENOENT));
    }
    // SAFETY: see `LibcFolder`.
    to.push(unsafe { &(&*LIBC_FOLDER.bytes.get())[..len] })?;
    to.push(LIBGCC.to_bytes())
}

/// What tells a version of a file from all others; see [`crate::libraries::closure::entries::entry_name`].
pub fn identity(stat: &libc::stat) -> [u64; 5] {
    [stat.st_dev, stat.st_ino, stat.st_size as u64, stat.st_ctime as u64, stat.st_ctime_nsec as u64]
}

fn load(words: &[AtomicU64; 5]) -> [u64; 5] {
    words.each_ref().map(|word| word.load(Ordering::Relaxed))
}

fn store(words: &[AtomicU64; 5], values: [u64; 5]) {
    for (word, value) in words.iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}

/// A rewritten file, open.
pub struct OpenedByLibc {
    fd: AtomicI32,
    file: [AtomicU64; 5],
    original: [AtomicU64; 5],
}

/// Values of [`OpenedByLibc::fd`] that are no descriptors: nothing is kept, and a thread of process P is at work (a copy of the process, made meanwhile, has no
/// such thread).
const NONE: i32 = -1;
const fn in_work(process: i32) -> i32 {
    -1 - process
}

pub static OPENED: PerProcess<OpenedByLibc> = PerProcess::new(OpenedByLibc {
    fd: AtomicI32::new(NONE),
    file: [const { AtomicU64::new(0) }; 5],
    original: [const { AtomicU64::new(0) }; 5],
});

impl OpenedByLibc {
    /// The descriptor, if the program has left it alone.
    pub fn get(&self) -> Option<i32> {
        let fd = self.fd.load(Ordering::Acquire);
        let stat = if fd < 0 { None } else { sys::fstat(fd).ok() }?;
        (identity(&stat)[..2] == load(&self.file)[..2]).then_some(fd)
    }

    /// Whether this is the rewritten form of the file that `stat` describes.
    pub fn stands_for(&self, stat: &libc::stat) -> bool {
        self.fd.load(Ordering::Acquire) >= 0 && identity(stat) == load(&self.original)
    }

    /// Opens the file once more: nobody else reads at this descriptor's position.
    pub fn open(&self) -> Option<Fd> {
        let fd = self.get()?;
        let by_link = link_of(fd).and_then(|link| open(link.as_cstr()));
        // Below a root directory without /proc.
        by_link.or_else(|_| copy_of_file(fd)).ok()
    }

    pub fn set(&self, file: &Fd, original: [u64; 5]) -> Result<(), Errno> {
        let (before, working) = (self.fd.load(Ordering::Relaxed), in_work(sys::getpid()));
        // Any number of threads may be here; one is enough.
        if before == working || self.fd.compare_exchange(before, working, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return Ok(());
        }
        let kept = sys::fstat(file.0).and_then(|stat| {
            store(&self.file, identity(&stat));
            store(&self.original, original);
            let mut copies = NUMBERS.into_iter().map(|from| copy(file.0, from));
            copies.find(Result::is_ok).unwrap_or(Err(Errno(libc::EMFILE)))
        });
        let (fd, result) = kept.map_or_else(|e| (NONE, Err(e)), |copy| (copy.keep(), Ok(())));
        self.fd.store(fd, Ordering::Release);
        result
    }
}

/// A copy of the descriptor with the first free number at or above `from`.
fn copy(fd: i32, from: u64) -> Result<Fd, Errno> {
    let args = [fd as u64, libc::F_DUPFD_CLOEXEC as u64, from, 0, 0, 0];
    // SAFETY: no memory is touched.
    unsafe { sys::call(libc::SYS_fcntl, args) }.map(|fd| Fd(fd as i32))
}

/// A file in memory with the contents of the file behind `fd`.
fn copy_of_file(fd: i32) -> Result<Fd, Errno> {
    let mut bytes = sys::fstat(fd)?.st_size as u64;
    let to = sys::memfd(LIBGCC).map(Fd)?;
    let mut offset = 0u64;
    while bytes > 0 {
        let args = [to.0 as u64, fd as u64, &raw mut offset as u64, bytes, 0, 0];
        // SAFETY: the kernel reads and writes the offset.
        match unsafe { sys::call(libc::SYS_sendfile, args) }? {
            0 => return Err(Errno(libc::EIO)),
            copied => bytes -= copied,
        }
    }
    // SAFETY: no memory is touched.
    unsafe { sys::call(libc::SYS_lseek, [to.0 as u64, 0, libc::SEEK_SET as u64, 0, 0, 0]) }?;
    Ok(to)
}

#[inline(never)]
pub fn stat_of_original() -> Result<libc::stat, Errno> {
    let mut path = Path::new();
    write_original(&mut path)?;
    let original = open(path.as_cstr())?;
    sys::fstat(original.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libgcc_is_looked_for_beside_the_c_library() {
        let mut path = Path::new();
        assert!(write_original(&mut path).is_err());
        note_opened(c"/lib/libother.so.6");
        note_opened(c"/lib/notlibc.so.6");
        assert!(write_original(&mut path).is_err());
        note_opened(c"/a/lib/libc.so.6");
        note_opened(c"/b/lib/libc.so.6");
        write_original(&mut path).unwrap();
        assert_eq!(path.as_cstr(), c"/a/lib/libgcc_s.so.1");
    }

    #[test]
    fn a_kept_file_is_known_from_others_of_its_number() {
        let kept = OpenedByLibc {
            fd: AtomicI32::new(NONE),
            file: OPENED.file.each_ref().map(|_| AtomicU64::new(0)),
            original: Default::default(),
        };
        assert!(kept.open().is_none());
        let file = open(c"/proc/self/exe").unwrap();
        let stat = sys::fstat(file.0).unwrap();
        kept.set(&file, identity(&stat)).unwrap();
        assert!(kept.stands_for(&stat));
        let again = kept.open().unwrap();
        assert_eq!(identity(&sys::fstat(again.0).unwrap()), identity(&stat));
        // The program uses its number.
        let (number, other) = (kept.get().unwrap(), open(c"/dev/null").unwrap());
        // SAFETY: the number is this test's own.
        unsafe { sys::call(libc::SYS_dup2, [other.0 as u64, number as u64, 0, 0, 0, 0]) }.unwrap();
        assert!(kept.open().is_none());
        // It is kept anew.
        kept.set(&file, identity(&stat)).unwrap();
        assert!(kept.open().is_some());
        let copy = copy_of_file(kept.get().unwrap()).unwrap();
        assert_eq!(sys::fstat(copy.0).unwrap().st_size, stat.st_size);
        let (mut first, mut copied) = ([0; 4096], [0; 4096]);
        sys::pread(file.0, &mut first, 0).unwrap();
        sys::read(copy.0, &mut copied).unwrap();
        assert_eq!(first, copied);
        drop((Fd(number), Fd(kept.get().unwrap())));
        assert!(kept.open().is_none());
    }
}
