//! What the program is told of its own file.
//!
//! Purpose: the launcher runs a rewritten file out of a cache. Programs look at `/proc/self/exe` to find what belongs to them, and execute
//! it to start themselves again. Input: the original's path, from the environment ([`contract::EXE_ENV`]), and the program's call.
//! Output: its result, or changed arguments.
//! **Invariants**
//! * `readlink` of the own `exe` link answers with the original's path. So does the first argument where it names the file that runs: it says where the program is, too.
//! * Executing that link or that path runs the rewritten file again, which is told the path again (one node; in a run of several nodes a program that
//!   a node executes is no node, and its calls are its own).
//! * Opening the link gives the rewritten file: whoever looks its own addresses up there needs those of the code that runs. So does opening the answer
//!   to read it, once the link has been asked for (Rust's backtraces of fixed-address programs), but for the loader and for glibc's start-up code. A program that knows its path otherwise opens the original.
//!   What the original's file has stands in the rewritten one where it stood.
//!
//! Source: proc_pid_exe(5), execveat(2), readlink(2).

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::memory::access_control::program::{self, runtime_address};
use crate::process::process;
use crate::system_calls::execution::call::Call;
use blizzard_contract as contract;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The environment string `BLIZZARD_EXE=path`, which stays where the kernel put it; null where the program runs from its own place.
static VARIABLE: PerProcess<AtomicPtr<c_char>> = PerProcess::new(AtomicPtr::new(core::ptr::null_mut()));

/// The program has asked where its link leads.
static TOLD: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));
/// A program without a loader has asked before it protected anything: glibc's start-up code asks on behalf of `$ORIGIN`, and then protects what it has relocated.
static TOLD_EARLY: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// Something was made read-only.
static PROTECTED: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// The link of the calling process, as everybody names it.
const LINK: &CStr = c"/proc/self/exe";
const PAGE_BYTES: u64 = 4096;

/// Remembers what the launcher said.
pub fn set(variable: &'static CStr) {
    VARIABLE.store(variable.as_ptr().cast_mut(), Ordering::Relaxed);
}

/// The original's path, if the program does not run from there.
pub fn path() -> Option<&'static CStr> {
    let variable = VARIABLE.load(Ordering::Relaxed);
    if variable.is_null() {
        return None;
    }
    // SAFETY: `set` got a string that lives as long as the process; the path follows the name and `=`.
    Some(unsafe { CStr::from_ptr(variable.add(contract::EXE_ENV.len() + 1)) })
}

/// The address of a copy of the original's path that the program may write to, as to all of its arguments; 0 if there is none.
pub fn name_for_program() -> u64 {
    let Some(path) = path() else { return 0 };
    let bytes = path.to_bytes_with_nul();
    let bits = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping, with room for the string.
    unsafe {
        let Ok(copy) = sys::mmap(0, bytes.len() as u64, bits.0, bits.1, -1, 0) else { return 0 };
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), copy as *mut u8, bytes.len());
        copy
    }
}

/// The result of a `readlink` of the program's own link; `None`: it is the kernel's call. `name`: the argument with the link; buffer and bytes follow.
///
/// # Safety
/// The program's call, which may be made.
pub unsafe fn read_link(args: &[u64; 6], name: u8) -> Option<i64> {
    let name = usize::from(name);
    let (name, buffer, bytes) = (args[name], args[name + 1], args[name + 2] as i32);
    let path = path()?.to_bytes();
    if !is_own_link(name) {
        return None;
    }
    let Some(room) = usize::try_from(bytes).ok().filter(|room| *room > 0) else {
        return Some(-i64::from(libc::EINVAL));
    };
    let length = path.len().min(room);
    // SAFETY: the program says that it may be written there.
    let written = unsafe { program::write(buffer, &path[..length]) };
    Some(written.map_or_else(|e| -i64::from(e.0), |()| length as i64))
}

/// The program itself has asked where its link leads, and was told. `early`: it has no loader, and may still be at its start.
pub fn note_told(early: bool) {
    let told = if early && !PROTECTED.load(Ordering::Relaxed) { &TOLD_EARLY } else { &TOLD };
    told.store(true, Ordering::Relaxed);
}

/// The program makes memory read-only: the start-up code of a program without a loader is over.
pub fn note_protected() {
    if !PROTECTED.swap(true, Ordering::Relaxed) {
        TOLD_EARLY.store(false, Ordering::Relaxed);
    }
}

/// The result of opening what the program was told to be its own file, in order to read it; `None`: another file, or it has not been told. `name`: the argument
/// with the path; flags are the next.
///
/// # Safety
/// The program's call, which may be made.
pub unsafe fn open(call: &Call, name: u8) -> Option<i64> {
    let path = path().filter(|_| [&TOLD, &TOLD_EARLY].iter().any(|told| told.load(Ordering::Relaxed)))?;
    let name = usize::from(name);
    let other = (libc::O_ACCMODE | libc::O_PATH | libc::O_DIRECTORY | libc::O_TRUNC) as u64;
    if call.args[name + 1] & other != libc::O_RDONLY as u64 || !is(call.args[name], path) {
        return None;
    }
    // SAFETY: passed on from the caller.
    let mut args = unsafe { call.kernel_arguments() };
    args[name] = LINK.as_ptr() as u64;
    args[name + 1] &= !(libc::O_NOFOLLOW as u64);
    // SAFETY: passed on from the caller; the path is the runtime's.
    Some(unsafe { sys::raw(call.nr, args) })
}

/// Changes the arguments of a call that executes the program's own file, so that it runs the rewritten one. `name`: the argument with the path; environment is
/// the second behind it.
///
/// # Safety
/// The program's call, which may be made.
pub unsafe fn execute(args: &mut [u64; 6], name: u8) {
    let Some(path) = path().filter(|_| process::nodes() == 1) else { return };
    let name = usize::from(name);
    let environment = name + 2;
    if !is_own_link(args[name]) && !is(args[name], path) {
        return;
    }
    // SAFETY: the caller's; an environment that the kernel would refuse is left to it.
    let Some(with_path) = (unsafe { extended(args[environment]) }) else { return };
    // An absolute path: the folder that `execveat` names is of no account.
    args[name] = LINK.as_ptr() as u64;
    args[environment] = with_path;
}

/// A copy of the environment with the variable in front. It is given up with the process's memory, or lost if the call fails.
///
/// # Safety
/// `environment` is null or an array of pointers that ends in null.
unsafe fn extended(environment: u64) -> Option<u64> {
    let old = runtime_address(environment).cast::<u64>();
    let mut count = 0;
    // SAFETY: the caller's: read up to the null.
    while !old.is_null() && unsafe { old.add(count).read_unaligned() } != 0 {
        count += 1;
    }
    let bits = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping.
    let new = unsafe { sys::mmap(0, (count as u64 + 2) * 8, bits.0, bits.1, -1, 0) }.ok()?;
    let to = new as *mut u64;
    // SAFETY: room for one word more than there are, and the null, which the fresh memory holds already.
    unsafe {
        to.write(VARIABLE.load(Ordering::Relaxed) as u64);
        if count > 0 {
            core::ptr::copy_nonoverlapping(old, to.add(1), count);
        }
    }
    Some(new)
}

/// Whether the string at `at` names the link of this process.
fn is_own_link(at: u64) -> bool {
    let mut bytes = [0; 32];
    let Some(text) = string_at(at, &mut bytes) else { return false };
    let Some(who) = text.strip_prefix(b"/proc/").and_then(|rest| rest.strip_suffix(b"/exe")) else { return false };
    let number = core::str::from_utf8(who).ok().and_then(|n| n.parse::<i32>().ok());
    who == b"self" || who == b"thread-self" || number == Some(sys::getpid())
}

/// Whether the string at `at` is `path`, compared piece by piece: the stack may be a small thread's. A shorter string may end where nothing else is mapped.
fn is(at: u64, path: &CStr) -> bool {
    let mut bytes = [0; 64];
    let mut next = at;
    path.to_bytes_with_nul().chunks(bytes.len()).all(|wanted| {
        let here = &mut bytes[..wanted.len()];
        let same = program::read(next, here).is_ok() && here == wanted;
        next += wanted.len() as u64;
        same
    })
}

/// The string at `at`, if it is mapped and fits with its end.
fn string_at(at: u64, into: &mut [u8]) -> Option<&[u8]> {
    let mut got = 0;
    while got < into.len() {
        // Page by page: behind the string's end nothing need be mapped.
        let here = at.wrapping_add(got as u64);
        let to = into.len().min(got + (PAGE_BYTES - here % PAGE_BYTES) as usize);
        program::read(here, &mut into[got..to]).ok()?;
        if let Some(end) = into[got..to].iter().position(|b| *b == 0) {
            return Some(&into[..got + end]);
        }
        got = to;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test: the path is the process's.
    #[test]
    fn the_program_finds_the_original_and_starts_the_rewritten_file() {
        let own = |name: &CStr| is_own_link(name.as_ptr() as u64);
        assert!(own(LINK) && own(c"/proc/thread-self/exe"));
        let numbered = std::ffi::CString::new(format!("/proc/{}/exe", std::process::id())).unwrap();
        assert!(own(&numbered));
        assert!(!own(c"/proc/1/exe") && !own(c"/proc/self/exes") && !own(c"exe") && !is_own_link(8));

        let mut buffer = [b'#'; 16];
        let link = |name: &CStr, buffer: &mut [u8], bytes: usize| {
            let args = [libc::AT_FDCWD as u64, name.as_ptr() as u64, buffer.as_mut_ptr() as u64, bytes as u64, 0, 0];
            // SAFETY: live strings and buffers.
            unsafe { read_link(&args, 1) }
        };
        assert_eq!(link(LINK, &mut buffer, 16), None, "nothing was said: the kernel answers");
        set(c"BLIZZARD_EXE=/opt/prog");
        assert_eq!(link(LINK, &mut buffer, 16), Some(9));
        assert_eq!(&buffer, b"/opt/prog#######");
        assert_eq!(link(LINK, &mut buffer, 4), Some(4), "cut off, as readlink does");
        assert_eq!(link(LINK, &mut buffer, 0), Some(-i64::from(libc::EINVAL)));
        assert_eq!(link(c"/etc/localtime", &mut buffer, 16), None);
        let args = [LINK.as_ptr() as u64, 8, 16, 0, 0, 0];
        // SAFETY: the buffer is not mapped, which is what is tried.
        assert_eq!(unsafe { read_link(&args, 0) }, Some(-i64::from(libc::EFAULT)));

        let environment = [c"A=1".as_ptr() as u64, 0];
        for (program, again) in [(c"/opt/prog", true), (LINK, true), (c"/opt/prog2", false), (c"/bin/true", false)] {
            let mut args = [program.as_ptr() as u64, 0, environment.as_ptr() as u64, 0, 0, 0];
            // SAFETY: live strings.
            unsafe { execute(&mut args, 0) };
            // SAFETY: as above, and null or strings in the copy.
            let (name, first) = unsafe { (CStr::from_ptr(args[0] as *const _), *(args[2] as *const *const c_char)) };
            // SAFETY: the first string of either environment.
            let first = unsafe { CStr::from_ptr(first) };
            assert_eq!(name, if again { LINK } else { program });
            assert_eq!(first, if again { c"BLIZZARD_EXE=/opt/prog" } else { c"A=1" });
        }
        VARIABLE.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}
