//! Gives the dynamic loader the rewritten form of what it opens.
//!
//! Input: a path, or a descriptor of an original. Output: a descriptor of the rewritten file.
//! **Invariant**: when libraries are rewritten, one that cannot be had rewritten is not opened at all, and one line says why.

use crate::kernel::owned::PerProcess;
use crate::kernel::print;
use crate::kernel::sys::{self, Errno};
use crate::libraries::closure::entries::{cached, entry_of, touch};
use crate::libraries::closure::file_kind::{FileKind, kind_of};
use crate::libraries::closure::opened_by_libc::{LIBGCC, OPENED, identity, stat_of_original};
use crate::libraries::closure::own_cache;
use crate::libraries::closure::paths::{Fd, Path, open, path_ends_with, path_of};
use crate::libraries::closure::rewriting::make;
use crate::libraries::closure::source::{LibrarySource, active, state};
use blizzard_contract as contract;
use core::ffi::CStr;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

/// The program's own file.
const EXE: &CStr = c"/proc/self/exe";

/// How often a library is rewritten when the result is gone before it is opened.
const MAKE_AT_MOST: usize = 8;

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
        LibrarySource::Bundle { .. } => Path::new().read_link(EXE),
        _ => Ok(()),
    }
}

/// The file of the bundle that stands for `path`; `None` when there is no bundle, or nothing of that name in it, or where the loader guesses in vain.
pub fn in_bundle(path: &CStr) -> Option<Result<Fd, Errno>> {
    let LibrarySource::Bundle { folder } = state().source else {
        return None;
    };
    if is_guess(path) && matches!(open(path), Err(Errno(libc::ENOENT | libc::ENOTDIR))) {
        return None;
    }
    let found = open_beside_program(folder, last_part(path));
    let found = found.or_else(|e| if path_ends_with(path, LIBGCC) { OPENED.open().ok_or(e) } else { Err(e) });
    match found {
        Err(Errno(libc::ENOENT)) => None,
        found => Some(found),
    }
}

/// What stands behind the last slash.
fn last_part(path: &CStr) -> &CStr {
    let bytes = path.to_bytes_with_nul();
    let from = bytes.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
    CStr::from_bytes_until_nul(&bytes[from..]).unwrap_or_default()
}

/// Whether the loader only tries a folder for some kinds of processors, in front of the one that it searches. `path` is what it opens: whatever is opened there is what the
/// program then knows the library by.
fn is_guess(path: &CStr) -> bool {
    static LAST: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));
    let Some(Guess { folder, name, is_sure }) = Guess::of(path.to_bytes()) else { return false };
    // FNV-1a, of the path as it is without the guess.
    let hash = folder
        .iter()
        .chain(b"/")
        .chain(name)
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3));
    let last = LAST.swap(hash, Ordering::Relaxed);
    is_sure || last == hash
}

/// A path in a folder that glibc tries for some kinds of processors (`dl-hwcaps.c`; to 2.36 also the older names).
#[derive(Debug, PartialEq, Eq)]
struct Guess<'a> {
    /// The folder that is searched, and the file's name.
    folder: &'a [u8],
    name: &'a [u8],
    /// Else folders of such a name may be anybody's: then it is a guess behind another one only.
    is_sure: bool,
}

impl Guess<'_> {
    fn of(path: &[u8]) -> Option<Guess<'_>> {
        let cut = |path: &'_ [u8]| path.iter().rposition(|&b| b == b'/');
        let slash = cut(path)?;
        let (mut folder, name) = (&path[..slash], &path[slash + 1..]);
        let parent = &folder[..cut(folder)?];
        if let Some(folder) = parent.strip_suffix(b"/glibc-hwcaps") {
            return Some(Guess { folder, name, is_sure: true });
        }
        let mut parts = 0;
        for of in [&[&b"/x86_64"[..]][..], &[b"/avx512_1"], &[b"/haswell", b"/xeon_phi", b"/x86_64"], &[b"/tls"]] {
            if let Some(rest) = of.iter().find_map(|part| folder.strip_suffix(*part)) {
                (folder, parts) = (rest, parts + 1);
            }
        }
        let is_sure = parts > 1 || !path[..slash].ends_with(b"/x86_64");
        (parts > 0).then_some(Guess { folder, name, is_sure })
    }
}

/// The original of this program, as the launcher would say it, if that file is there, in another folder than this one's.
pub fn original_elsewhere() -> Option<&'static CStr> {
    let LibrarySource::Cache { original, .. } = state().source else { return None };
    let name = original.to_bytes_with_nul().get(contract::EXE_ENV.len() + 1..)?;
    let name = CStr::from_bytes_with_nul(name).ok()?;
    let mut own = Path::new();
    own.read_link(EXE).ok()?;
    own.cut_name();
    let mut folder = Path::new();
    folder.push(name.to_bytes()).ok()?;
    folder.cut_name();
    if own.as_cstr() == folder.as_cstr() {
        return None;
    }
    // Whoever may execute it need not be able to read it.
    sys::open(name, libc::O_PATH | libc::O_CLOEXEC).map(Fd).ok().map(|_| original)
}

/// Whether what the program was called by, with a folder or found in PATH, ends in the name of its file. A link to it, or any name, may say more than where the file is.
pub fn names_own_file(name: &CStr) -> bool {
    let mut own = Path::new();
    own.read_link(EXE).is_ok() && last_part(own.as_cstr()) == last_part(name)
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
        LibrarySource::Off => Ok(original),
        LibrarySource::Bundle { .. } => {
            refuse(
                original.0,
                format_args!("it is not in this program's bundle; make the bundle again with --add FILE"),
            );
            Err(Errno(libc::EPERM))
        }
        LibrarySource::Cache { folder, root, key, tool, .. } => {
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
                let or_own = if own_cache::is_allowed() { c"--or-own" } else { c"--" };
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

/// Says why the library behind `fd` is not loaded; once, though the loader may try it by several paths.
fn refuse(fd: i32, why: fmt::Arguments<'_>) {
    static LAST: PerProcess<[AtomicU64; 2]> = PerProcess::new([const { AtomicU64::new(0) }; 2]);
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

/// Opens what the C library will open, before the process becomes another user or changes its root directory. What is not there cannot be kept:
/// then a later attempt to open it says what is wrong.
#[inline(never)]
pub fn keep() {
    if !active() || OPENED.get().is_some() {
        return;
    }
    let found = match state().source {
        LibrarySource::Off => return,
        LibrarySource::Bundle { .. } => match in_bundle(LIBGCC) {
            Some(found) => found.map(|file| (file, [0; 5])),
            None => return,
        },
        LibrarySource::Cache { folder, .. } => {
            stat_of_original().and_then(|stat| Ok((cached(&stat, folder)?, identity(&stat))))
        }
    };
    let _ = found.and_then(|(file, original)| OPENED.set(&file, original));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loaders_guesses_are_known() {
        let guess = |folder, is_sure| Some(Guess { folder, name: b"libm.so.6", is_sure });
        for (path, expected) in [
            (&b"/lib/libm.so.6"[..], None),
            (b"libm.so.6", None),
            (b"/lib/x86_64-linux-gnu/libm.so.6", None),
            (b"/lib/glibc-hwcaps/x86-64-v3/libm.so.6", guess(b"/lib", true)),
            (b"/lib/tls/haswell/avx512_1/x86_64/libm.so.6", guess(b"/lib", true)),
            (b"/lib/xeon_phi/x86_64/libm.so.6", guess(b"/lib", true)),
            // A processor without a name of its own.
            (b"/lib/tls/x86_64/x86_64/libm.so.6", guess(b"/lib", true)),
            (b"/lib/x86_64/x86_64/libm.so.6", guess(b"/lib", true)),
            (b"/lib/tls/libm.so.6", guess(b"/lib", true)),
            (b"/lib/x86_64/libm.so.6", guess(b"/lib", false)),
        ] {
            assert_eq!(Guess::of(path), expected, "{}", path.escape_ascii());
        }
    }

    /// Folders of this name are those of programs, too.
    #[test]
    fn a_common_name_is_a_guess_behind_a_guess_only() {
        assert!(!is_guess(c"/opt/x86_64/libm.so.6"));
        assert!(is_guess(c"/lib/tls/libm.so.6") && is_guess(c"/lib/x86_64/libm.so.6"));
        assert!(!is_guess(c"/lib/libm.so.6") && !is_guess(c"/opt/x86_64/libm.so.6"));
    }
}
