//! Paths and descriptors, without memory of the C library's.
//!
//! Input: paths and descriptors of the program. Output: texts in buffers of a fixed size, and descriptors that are closed when they are dropped.
//! **Invariant**: nothing is allocated; what does not fit is an error.

use crate::kernel::sys::{self, Errno};
use core::ffi::CStr;
use core::fmt::{self, Write};

/// Longest path, with its NUL.
const PATH_BYTES: usize = 4096;

/// Whether `path` leads to a file of this name.
pub fn path_ends_with(path: &CStr, name: &CStr) -> bool {
    path.to_bytes().strip_suffix(name.to_bytes()).is_some_and(|folder| folder.is_empty() || folder.ends_with(b"/"))
}

/// A path under construction, NUL-terminated, of less than N bytes.
pub struct Text<const N: usize> {
    pub bytes: [u8; N],
    pub len: usize,
}

/// One at a time: threads may have small stacks.
pub type Path = Text<PATH_BYTES>;

/// `/proc/self/fd/<number>`.
pub type FdPath = Text<32>;

impl<const N: usize> Text<N> {
    pub fn new() -> Self {
        Text { bytes: [0; N], len: 0 }
    }

    pub fn push(&mut self, text: &[u8]) -> Result<(), Errno> {
        if self.len + text.len() >= N {
            return Err(Errno(libc::ENAMETOOLONG));
        }
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
        Ok(())
    }

    pub fn as_cstr(&self) -> &CStr {
        // The bytes behind `len` are zero.
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }

    /// Becomes what the symbolic link `link` says. It was empty.
    pub fn read_link(&mut self, link: &CStr) -> Result<(), Errno> {
        let args = [link.as_ptr() as u64, self.bytes.as_mut_ptr() as u64, N as u64 - 1, 0, 0, 0];
        // SAFETY: the kernel reads a string and writes at most the bytes it is given.
        self.len = unsafe { sys::call(libc::SYS_readlink, args) }? as usize;
        Ok(())
    }

    /// Leaves the folder, with its slash.
    pub fn cut_name(&mut self) {
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

pub fn open(path: &CStr) -> Result<Fd, Errno> {
    sys::open(path, libc::O_RDONLY | libc::O_CLOEXEC).map(Fd)
}

/// The link to the open file `fd`.
pub fn link_of(fd: i32) -> Result<FdPath, Errno> {
    let mut link = FdPath::new();
    write!(link, "/proc/self/fd/{fd}").map_err(|fmt::Error| Errno(libc::ENAMETOOLONG))?;
    Ok(link)
}

/// The path of the open file `fd`, for people to read; empty when it is unknown.
pub fn path_of<T>(fd: i32, then: impl FnOnce(&[u8]) -> T) -> T {
    let mut path = Path::new();
    let known = link_of(fd).and_then(|link| path.read_link(link.as_cstr()));
    then(if known.is_ok() { &path.bytes[..path.len] } else { b"" })
}
