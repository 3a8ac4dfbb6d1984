//! The program's rewritten libraries: where they are, and how missing ones are made.
//!
//! Purpose: the dynamic loader opens original files; the runtime gives it the rewritten ones instead. Input: what the rewriter left
//! at [`ModuleInfo::closure_va`] (see [`closure_strings`]) and a descriptor of an original. Output: a descriptor of the rewritten file.
//! An original is known by device, inode, size and time of change, so that nothing has to be read; the entry of that name in the
//! cache's folder is a link to the rewritten file. What has no entry is rewritten at that moment, by a process of its own. A process that
//! cannot write to the cache has a second one, of its user's own ([`own_root`]); one that is about to give up its rights keeps what it will need
//! ([`keep`]).
//! **Invariant**: when the closure is active, a library that cannot be had rewritten is not opened at all, and one line says why.
//! Source: design sections 2 (closure) and 3.2; ELF gABI chapter 5.

use crate::kernel::elf::{Ehdr, PT_LOAD, Phdr};
use crate::kernel::print;
use crate::kernel::sys::{self, Errno, KernelSigaction};
use blizzard_contract::{self as contract, ModuleInfo, closure_strings};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicU64, Ordering};
use kept::KEPT;

mod kept;
mod own;

pub use kept::{LIBC, OPENED_BY_LIBC, keep, note_opened};
pub use own::root as own_root;

/// Words of the command that rewrites a library, in front of the library's name.
const COMMAND_WORDS: usize = 8;
/// Longest path, with its NUL.
const PATH_BYTES: usize = 4096;
/// Program headers looked at in a library.
const MAX_PHDRS: usize = 64;
const PAGE_BYTES: u64 = 4096;
/// The program's own file.
const EXE: &CStr = c"/proc/self/exe";

/// Whether `path` leads to a file of this name.
fn path_ends_with(path: &CStr, name: &CStr) -> bool {
    path.to_bytes().strip_suffix(name.to_bytes()).is_some_and(|folder| folder.is_empty() || folder.ends_with(b"/"))
}

/// A path under construction, NUL-terminated, of less than N bytes.
struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

/// One at a time: threads may have small stacks.
type Path = Text<PATH_BYTES>;
/// `/proc/self/fd/<number>`.
type Link = Text<32>;

impl<const N: usize> Text<N> {
    fn new() -> Self {
        Text { bytes: [0; N], len: 0 }
    }

    fn push(&mut self, text: &[u8]) -> Result<(), Errno> {
        if self.len + text.len() >= N {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
        Ok(())
    }

    fn as_cstr(&self) -> &CStr {
        // The bytes behind `len` are zero.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }

    /// Becomes what the symbolic link `link` says. It was empty.
    fn read_link(&mut self, link: &CStr) -> Result<(), Errno> {
        let args = [link.as_ptr() as u64, self.bytes.as_mut_ptr() as u64, N as u64 - 1, 0, 0, 0];
        // SAFETY: the kernel reads a string and writes at most the bytes it is given.
        self.len = unsafe { sys::call(libc::SYS_readlink, args) }? as usize;
        Ok(())
    }

    /// Leaves the folder, with its slash.
    fn cut_name(&mut self) {
        let slash = self.bytes[..self.len].iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        self.bytes[slash..self.len].fill(0);
        self.len = slash;
    }
}

impl<const N: usize> Write for Text<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes()).map_err(|_| fmt::Error)
    }
}

/// Where rewritten libraries come from.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// Libraries are not rewritten.
    Off,
    /// From this folder, relative to the program's.
    Bundle {
        folder: &'static CStr,
    },
    Cache {
        folder: &'static CStr,
        root: &'static CStr,
        key: &'static CStr,
        tool: &'static CStr,
    },
}

struct State {
    source: Source,
    /// The process has rights that whoever started it has not.
    secure: bool,
}

struct StateCell(UnsafeCell<State>);

// SAFETY: written by `init` while the process has one thread and runs no program code, only read afterwards.
unsafe impl Sync for StateCell {}

static STATE: StateCell = StateCell(UnsafeCell::new(State { source: Source::Off, secure: false }));

fn state() -> &'static State {
    // SAFETY: see `StateCell`.
    unsafe { &*STATE.0.get() }
}

/// Reads what the rewriter said. Errors with the text that makes no sense.
///
/// # Errors
/// The first string, when it is not one of [`closure_strings`] with its arguments.
///
/// # Safety
/// Called once, before the program runs; `info` and `bias` describe the loaded program.
pub unsafe fn init(info: &ModuleInfo, bias: u64, secure: bool) -> Result<(), &'static CStr> {
    let bytes: &'static [u8] = if info.closure_va == 0 {
        &[]
    } else {
        // SAFETY: the rewriter stores that many bytes there.
        unsafe {
            core::slice::from_raw_parts(info.closure_va.wrapping_add(bias) as *const u8, info.closure_bytes as usize)
        }
    };
    let source = parse(bytes)?;
    // SAFETY: see `StateCell`.
    unsafe { *STATE.0.get() = State { source, secure } };
    Ok(())
}

fn parse(mut bytes: &'static [u8]) -> Result<Source, &'static CStr> {
    if bytes.is_empty() {
        return Ok(Source::Off);
    }
    let mut next = || {
        let text = CStr::from_bytes_until_nul(bytes).unwrap_or_default();
        bytes = bytes.get(text.to_bytes_with_nul().len()..).unwrap_or_default();
        text
    };
    let kind = next();
    let source = if kind.to_bytes() == closure_strings::BUNDLE.as_bytes() {
        Source::Bundle { folder: next() }
    } else if kind.to_bytes() == closure_strings::CACHE.as_bytes() {
        Source::Cache { folder: next(), root: next(), key: next(), tool: next() }
    } else {
        return Err(kind);
    };
    Ok(source)
}

/// Whether libraries are rewritten.
pub fn active() -> bool {
    !matches!(state().source, Source::Off)
}

/// Whether libraries are beside the program.
pub fn is_bundle() -> bool {
    matches!(state().source, Source::Bundle { .. })
}

/// How often a library is rewritten when the result is gone before it is opened.
const MAKE_AT_MOST: usize = 8;

/// Name of a file's entry in the cache's folder.
pub fn entry_name(to: &mut impl Write, st_dev: u64, st_ino: u64, bytes: u64, ctime: i64, ctime_ns: i64) -> fmt::Result {
    write!(to, "{st_dev:x}-{st_ino:x}-{bytes:x}-{ctime:x}.{ctime_ns:x}")
}

/// A descriptor that is closed when it goes out of scope.
pub struct Fd(pub i32);

impl Fd {
    /// Leaves the descriptor open.
    pub fn keep(self) -> i32 {
        let fd = self.0;
        core::mem::forget(self);
        fd
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        let _ = sys::close(self.0);
    }
}

fn open(path: &CStr) -> Result<Fd, Errno> {
    sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC).map(Fd)
}

/// What the runtime needs to know of a file that the loader opens or maps.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, on the stack, and nothing to allocate it with")]
pub enum FileKind {
    /// Not something that the dynamic loader could load here.
    Other,
    /// A shared object, not rewritten.
    Original,
    /// Rewritten: its description, its lowest page's link-time address, and its bytes in memory.
    Rewritten { info: ModuleInfo, low: u64, bytes: u64 },
}

/// How many program headers are read with one call: a start-up reads those of each library several times.
const PHDRS_AT_ONCE: usize = 20;

/// Looks at the file's headers.
pub fn kind_of(fd: i32) -> FileKind {
    // SAFETY: integers only.
    let Some(ehdr) = (unsafe { read_at::<Ehdr>(fd, 0) }) else {
        return FileKind::Other;
    };
    if !ehdr.is_shared_object() {
        return FileKind::Other;
    }
    let (mut low, mut end, mut info) = (u64::MAX, 0, None);
    let count = usize::from(ehdr.phnum).min(MAX_PHDRS);
    let mut headers = [Phdr::ZERO; PHDRS_AT_ONCE];
    for first in (0..count).step_by(PHDRS_AT_ONCE) {
        let headers = &mut headers[..PHDRS_AT_ONCE.min(count - first)];
        let at = ehdr.phoff.saturating_add((first * size_of::<Phdr>()) as u64);
        // SAFETY: integers only.
        if !unsafe { read_slice_at(fd, headers, at) } {
            return FileKind::Other;
        }
        for p in headers {
            if p.p_type == contract::PT_BLIZZARD {
                // SAFETY: integers only.
                info = unsafe { read_at::<[u64; ModuleInfo::WORDS]>(fd, p.offset) }.map(ModuleInfo::from_words);
            } else if p.p_type == PT_LOAD {
                low = low.min(p.vaddr & !(PAGE_BYTES - 1));
                end = end.max(p.vaddr.saturating_add(p.memsz));
            }
        }
    }
    match info {
        Some(info) if info.magic == contract::MODULE_MAGIC && low < end => {
            FileKind::Rewritten { info, low, bytes: (end - low).next_multiple_of(PAGE_BYTES) }
        }
        _ => FileKind::Original,
    }
}

/// Reads a structure of integers; `None` when the file ends before it does.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
unsafe fn read_at<T: Copy>(fd: i32, offset: u64) -> Option<T> {
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: the storage of `value`, zero-initialised: the caller says every bit pattern is valid.
    let slice = unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr(), 1) };
    // SAFETY: as the caller says.
    let read = unsafe { read_slice_at(fd, slice, offset) };
    // SAFETY: as above.
    read.then(|| unsafe { value.assume_init() })
}

/// Fills structures of integers; false when the file ends before they do.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
unsafe fn read_slice_at<T: Copy>(fd: i32, to: &mut [T], offset: u64) -> bool {
    // SAFETY: the storage of `to`.
    let bytes = unsafe { core::slice::from_raw_parts_mut(to.as_mut_ptr().cast::<u8>(), size_of_val(to)) };
    sys::pread(fd, bytes, offset) == Ok(bytes.len())
}

/// Opens the rewritten form of the dynamic loader `path`, or the original when libraries are not rewritten.
///
/// # Errors
/// The file system's, or EPERM when there is no rewritten form and none could be made; then a line has said why.
pub fn open_loader(path: &CStr) -> Result<Fd, Errno> {
    if let Some(found) = in_bundle(path) {
        return found;
    }
    let original = open(path)?;
    redirect(original)
}

/// Whether the program's folder, and so its bundle, can be found; true of a program without a bundle.
///
/// # Errors
/// What the kernel says of [`EXE`].
pub fn find_bundle() -> Result<(), Errno> {
    match state().source {
        Source::Bundle { .. } => Path::new().read_link(EXE),
        _ => Ok(()),
    }
}

/// The file of the bundle that stands for `path`; `None` when there is no bundle, or nothing of that name in it.
pub fn in_bundle(path: &CStr) -> Option<Result<Fd, Errno>> {
    let Source::Bundle { folder } = state().source else {
        return None;
    };
    let bytes = path.to_bytes_with_nul();
    let name = &bytes[bytes.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1)..];
    let found = open_beside_program(folder, CStr::from_bytes_until_nul(name).unwrap_or_default());
    let found = found.or_else(|e| if path_ends_with(path, OPENED_BY_LIBC) { KEPT.open().ok_or(e) } else { Err(e) });
    match found {
        Err(Errno(libc::ENOENT)) => None,
        found => Some(found),
    }
}

/// Opens a file of the folder `folder` that is beside the program's file.
#[inline(never)]
fn open_beside_program(folder: &CStr, name: &CStr) -> Result<Fd, Errno> {
    let mut path = Path::new();
    path.read_link(EXE)?;
    path.cut_name();
    for part in [folder, c"/", name] {
        path.push(part.to_bytes())?;
    }
    open(path.as_cstr())
}

/// Gives the rewritten form of a library that has been opened; anything else, and a rewritten file, is given back.
///
/// # Errors
/// As [`open_loader`].
pub fn redirect(original: Fd) -> Result<Fd, Errno> {
    if !active() || !matches!(kind_of(original.0), FileKind::Original) {
        return Ok(original);
    }
    match state().source {
        Source::Off => Ok(original),
        Source::Bundle { .. } => {
            refuse(
                original.0,
                format_args!("it is not in this program's bundle; make the bundle again with --add FILE"),
            );
            Err(Errno(libc::EPERM))
        }
        Source::Cache { folder, root, key, tool } => {
            let stat = sys::fstat(original.0)?;
            // Somebody may clean the cache at any moment, also before what has been made is opened.
            for made in 0..MAKE_AT_MOST {
                match entry_of(&stat, folder, key) {
                    Ok(found) => {
                        touch(found.0);
                        return Ok(found);
                    }
                    Err(Errno(e)) if made > 0 && e != libc::ENOENT => break,
                    Err(_) => {}
                }
                let or_own = if own::is_allowed() { c"--or-own" } else { c"--" };
                match make(original.0, [tool, c"cache", c"add", c"--root", root, c"--key", key, or_own]) {
                    Ok(0) => {}
                    Ok(status) => {
                        refuse(original.0, format_args!("it could not be rewritten (status {status})"));
                        return Err(Errno(libc::EPERM));
                    }
                    Err(e) => {
                        refuse(
                            original.0,
                            format_args!("it has not been rewritten yet, and {tool:?} cannot be run to do that: {e}"),
                        );
                        return Err(Errno(libc::EPERM));
                    }
                }
            }
            entry_of(&stat, folder, key).inspect_err(|e| {
                refuse(original.0, format_args!("its rewritten form cannot be opened: {e}"));
            })
        }
    }
}

/// The path of the open file `fd`, for people to read; empty when it is unknown.
pub fn path_of<T>(fd: i32, then: impl FnOnce(&[u8]) -> T) -> T {
    let mut path = Path::new();
    let known = link_of(fd).and_then(|link| path.read_link(link.as_cstr()));
    then(if known.is_ok() { &path.bytes[..path.len] } else { b"" })
}

/// Says why the library behind `fd` is not loaded; once, though the loader may try it by several paths.
fn refuse(fd: i32, why: fmt::Arguments<'_>) {
    static LAST: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
    if let Ok(stat) = sys::fstat(fd) {
        let [dev, ino] = [stat.st_dev, stat.st_ino].map(u64::from);
        if LAST[0].swap(dev, Ordering::Relaxed) == dev && LAST[1].swap(ino, Ordering::Relaxed) == ino {
            return;
        }
        LAST[1].store(ino, Ordering::Relaxed);
    }
    path_of(fd, |name| match name {
        b"" => print::error(format_args!("a library is not loaded: {why}")),
        _ => print::error(format_args!("\"{}\" is not loaded: {why}", name.escape_ascii())),
    });
}

/// The link to the open file `fd`.
fn link_of(fd: i32) -> Result<Link, Errno> {
    let mut link = Link::new();
    write!(link, "/proc/self/fd/{fd}").map_err(|fmt::Error| Errno(libc::ENAMETOOLONG))?;
    Ok(link)
}

/// The rewritten form of the file that `stat` describes: from the cache, as it has been kept open, or from the user's own cache.
fn entry_of(stat: &libc::stat, folder: &CStr, key: &CStr) -> Result<Fd, Errno> {
    cached(stat, folder).or_else(|e| {
        if KEPT.stands_for(stat)
            && let Some(kept) = KEPT.open()
        {
            return Ok(kept);
        }
        let own = own::folder().map_err(|_| e)?;
        open_entry(own.0, &[b"libraries-", key.to_bytes(), b"/"], stat).map_err(|_| e)
    })
}

/// The rewritten form of the file that `stat` describes, from the cache that the program was rewritten with.
fn cached(stat: &libc::stat, folder: &CStr) -> Result<Fd, Errno> {
    let found = open_entry(libc::AT_FDCWD, &[folder.to_bytes(), b"/"], stat)?;
    // The cache may lie in a folder that the caller can rename.
    if state().secure && !own::is_trusted(&sys::fstat(found.0)?) {
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
fn touch(fd: i32) {
    // SAFETY: no memory is touched: no path, no times (now).
    let _ = unsafe { sys::call(libc::SYS_utimensat, [fd as u64, 0, 0, 0, 0, 0]) };
}

/// Runs the rewriter on the file behind `fd` and waits for it. Returns its exit status, or 128 plus the signal that ended it.
fn make(fd: i32, command: [&CStr; COMMAND_WORDS]) -> Result<i32, Errno> {
    let mut argv = [core::ptr::null(); COMMAND_WORDS + 2];
    for (slot, word) in argv.iter_mut().zip(command) {
        *slot = word.as_ptr();
    }
    // Two copies of this process, as fork makes them. The inner one becomes the rewriter; whatever executes a program announces its end by
    // SIGCHLD, so the outer one, which does not, is the parent that gets it. The program must never hear of either.
    let bits = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping.
    let word = unsafe { sys::mmap(0, WORD_BYTES, bits.0, bits.1, -1, 0) }?;
    let status = word as *mut i32;
    let mask = set_mask(u64::MAX)?;
    // SAFETY: no CLONE_VM: the child has its own copy of all memory but that word, and does nothing but system calls. Exit signal 0.
    let pid = unsafe { sys::call(libc::SYS_clone, [0; 6]) };
    if pid == Ok(0) {
        // SAFETY: nothing returns from here; the word is mapped.
        unsafe { attend(fd, argv, mask, status) };
    }
    let ended = pid.and_then(|pid| wait_for(pid).map(drop));
    // SAFETY: the word is mapped until here, and the child that wrote it is gone.
    let status = unsafe { status.read_volatile() };
    // SAFETY: nothing else knows the mapping.
    let _ = unsafe { sys::munmap(word, WORD_BYTES) };
    let _ = set_mask(mask);
    ended?;
    match (status & 0x7f, status >> 8 & 0xff) {
        (0, code) if code > EXEC_FAILED => Err(Errno(code - EXEC_FAILED)),
        (0, code) => Ok(code),
        (signal, _) => Ok(128 + signal),
    }
}

/// The outer copy: starts the rewriter, waits for it, leaves its status in the word and ends.
///
/// The rewriter inherits the library's descriptor and is told its own name of it, which is the last argument. It could not open this process's one when
/// the program has given up its rights: such a process may not be looked into (PR_SET_DUMPABLE), by its own user neither.
///
/// # Safety
/// Arrays of strings that end in null, room for one more in `argv`; `status` can be written.
unsafe fn attend(fd: i32, mut argv: [*const c_char; COMMAND_WORDS + 2], mask: u64, status: *mut i32) -> ! {
    let default = KernelSigaction { flags: sys::SA_RESTORER, ..KernelSigaction::default() };
    // SAFETY: the default action; a program that ignores SIGCHLD would lose the status.
    let _ = unsafe { sys::rt_sigaction(libc::SIGCHLD, &default) };
    // SAFETY: as fork.
    let pid = unsafe { sys::call(libc::SYS_clone, [libc::SIGCHLD as u64, 0, 0, 0, 0, 0]) };
    let ended = match pid {
        Ok(0) => {
            let _ = set_mask(mask);
            if let Err(e) = leave_only(fd) {
                sys::exit_group(EXEC_FAILED + e.0);
            }
            let file = match link_of(FILE) {
                Ok(file) => file,
                Err(e) => sys::exit_group(EXEC_FAILED + e.0),
            };
            argv[COMMAND_WORDS] = file.as_cstr().as_ptr();
            // SAFETY: strings and null-terminated arrays; nothing returns from here.
            unsafe {
                // The rewriter has nothing to say on standard output; should it, that is not the program's.
                let _ = sys::call(libc::SYS_dup2, [2, 1, 0, 0, 0, 0]);
                // Nothing of the program's environment is meant for the rewriter.
                let env = [core::ptr::null::<c_char>()];
                let args = [argv[0] as u64, argv.as_ptr() as u64, env.as_ptr() as u64, 0, 0, 0];
                let e = sys::call(libc::SYS_execve, args).err();
                sys::exit_group(EXEC_FAILED + e.map_or(0, |e| e.0));
            }
        }
        Ok(pid) => wait_for(pid),
        Err(e) => Err(e),
    };
    // SAFETY: the caller's word.
    unsafe { status.write_volatile(ended.unwrap_or_else(|e| (EXEC_FAILED + e.0) << 8)) };
    sys::exit_group(0)
}

/// Number of the library's descriptor in the rewriter. Not one of the standard streams, which may be closed in the program.
const FILE: i32 = 3;

/// Makes `fd` the descriptor [`FILE`], and closes all others but the standard streams: what the program has open is none of the rewriter's business.
fn leave_only(fd: i32) -> Result<(), Errno> {
    let made = match fd {
        FILE => [libc::SYS_fcntl as u64, FILE as u64, libc::F_SETFD as u64],
        _ => [libc::SYS_dup2 as u64, fd as u64, FILE as u64],
    };
    // SAFETY: no memory is touched.
    unsafe {
        sys::call(made[0] as i64, [made[1], made[2], 0, 0, 0, 0])?;
        // Linux 5.9; before, they stay open.
        let _ = sys::call(libc::SYS_close_range, [FILE as u64 + 1, u32::MAX.into(), 0, 0, 0, 0]);
    }
    Ok(())
}

/// Waits for a child's end and returns its status.
fn wait_for(pid: u64) -> Result<i32, Errno> {
    let mut status = 0i32;
    loop {
        let args = [pid, &raw mut status as u64, libc::__WALL as u64, 0, 0, 0];
        // SAFETY: the kernel writes the status.
        match unsafe { sys::call(libc::SYS_wait4, args) } {
            Err(Errno(libc::EINTR)) => {}
            Err(e) => return Err(e),
            Ok(_) => return Ok(status),
        }
    }
}

/// Sets the thread's signal mask; returns the one before.
fn set_mask(mask: u64) -> Result<u64, Errno> {
    let mut old = 0u64;
    let args = [libc::SIG_SETMASK as u64, &raw const mask as u64, &raw mut old as u64, 8, 0, 0];
    // SAFETY: two words of the size that is said.
    unsafe { sys::call(libc::SYS_rt_sigprocmask, args) }?;
    Ok(old)
}

/// The page that the status comes back in.
const WORD_BYTES: u64 = 4096;

/// Exit statuses of the child above this one are errors of `execve`; the rewriter uses 0, 1 and 2.
const EXEC_FAILED: i32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strings_are_told_apart() {
        assert!(matches!(parse(b""), Ok(Source::Off)));
        assert!(matches!(parse(b"bundle\0lib\0"), Ok(Source::Bundle { folder }) if folder == c"lib"));
        let Ok(Source::Cache { folder, root, key, tool }) = parse(b"cache\0/c/i\0/c\0k\0/bin/tool\0") else {
            panic!("not a cache");
        };
        assert_eq!((folder, root, key, tool), (c"/c/i", c"/c", c"k", c"/bin/tool"));
        assert_eq!(parse(b"other\0").unwrap_err(), c"other");
        // What is cut off is empty, not something else.
        assert!(matches!(parse(b"bundle"), Err(kind) if kind.is_empty()));
    }

    #[test]
    fn entries_are_named_by_what_changes_with_the_file() {
        let mut name = String::new();
        entry_name(&mut name, 0xfe00, 0x123, 4096, 0x66, 999_999_999).unwrap();
        assert_eq!(name, "fe00-123-1000-66.3b9ac9ff");
    }

    #[test]
    fn files_are_told_apart_by_their_headers() {
        let exe = open(c"/proc/self/exe").unwrap();
        assert!(matches!(kind_of(exe.0), FileKind::Original));
        let text = open(c"/proc/self/maps").unwrap();
        assert!(matches!(kind_of(text.0), FileKind::Other));
    }

    #[test]
    fn the_child_reports_how_it_ended() {
        let fd = open(c"/dev/null").unwrap();
        let run = |script: &CStr| make(fd.0, [c"/bin/sh", c"-c", script, c"", c"", c"", c"", c""]);
        assert_eq!(run(c"exit 3"), Ok(3));
        assert_eq!(run(c"kill -9 $$"), Ok(128 + libc::SIGKILL));
        // The last argument is the file.
        assert_eq!(run(c"shift 4; test -e \"$1\""), Ok(0));
        assert_eq!(make(fd.0, [c"/no/such/tool", c"", c"", c"", c"", c"", c"", c""]), Err(Errno(libc::ENOENT)));
    }

    /// Apache's children become another user, and open libgcc_s when a thread of theirs ends.
    #[test]
    fn the_child_gets_the_file_of_a_process_without_its_rights() {
        let fd = open(c"/dev/null").unwrap();
        // SAFETY: fork; the child ends by exit_group.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: no memory is touched. Without root's rights the first two fail, and the process is shut by the third alone.
            unsafe {
                libc::setresgid(65534, 65534, 65534);
                libc::setresuid(65534, 65534, 65534);
                libc::prctl(libc::PR_SET_DUMPABLE, 0);
            }
            let opened = make(fd.0, [c"/bin/sh", c"-c", c"shift 4; exec < \"$1\"", c"", c"", c"", c"", c""]);
            sys::exit_group(i32::from(opened != Ok(0)));
        }
        assert_eq!(wait_for(pid as u64), Ok(0));
    }

    /// `ps` takes SIGCHLD for a fault of its own and ends; a process that executes a program gets SIGCHLD for its exit signal, whatever it
    /// was cloned with.
    #[test]
    fn the_program_hears_nothing_of_the_child() {
        let fd = open(c"/dev/null").unwrap();
        let run = |script: &CStr| make(fd.0, [c"/bin/sh", c"-c", script, c"", c"", c"", c"", c""]);
        let pending = || {
            let mut set = 0u64;
            // SAFETY: one word of the size that is said.
            unsafe { sys::call(libc::SYS_rt_sigpending, [&raw mut set as u64, 8, 0, 0, 0, 0]) }.unwrap();
            set & 1 << (libc::SIGCHLD - 1) != 0
        };
        // A signal for the process goes to any thread that does not block it: ask in a process of one thread.
        // SAFETY: fork; the child ends by exit_group.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let ok = set_mask(1 << (libc::SIGCHLD - 1)).is_ok() && run(c"exit 3") == Ok(3) && !pending();
            // SAFETY: no handler.
            unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
            let ignored = run(c"exit 4") == Ok(4);
            sys::exit_group(i32::from(!(ok && ignored)));
        }
        assert_eq!(wait_for(pid as u64), Ok(0));
    }
}
