//! The launcher's calls into the kernel that safe crates do not offer; the only `unsafe` of the launcher.
//!
//! Three things live here: what a child does between `fork` and `exec`, switching address-space randomisation off,
//! and 32-bit words that are shared with the nodes (needed as real memory for `futex`; everything else of the region is
//! read and written through its file descriptor).

#![allow(unsafe_code)]

use memmap2::MmapRaw;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::AtomicU32;

/// Makes the child of `command` end when this process ends, however that happens (also by `kill -9`), and, if
/// given, keeps file descriptor `inherit` open across `exec` under the same number.
///
/// The kernel ties this to the *thread* that starts the child, so that thread must live as long as the child shall.
pub fn tie_to_parent(command: &mut Command, inherit: Option<RawFd>) {
    let parent = std::process::id();
    let hook = move || {
        // SAFETY: prctl(PR_SET_PDEATHSIG), getppid and fcntl(F_SETFD) take integers only and are async-signal-safe;
        // `_exit` does not return. The closure allocates nothing and takes no lock, as `pre_exec` demands.
        unsafe {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before the prctl: then nobody would ever send the signal.
            if libc::getppid() as u32 != parent {
                libc::_exit(libc::EXIT_FAILURE);
            }
            if let Some(fd) = inherit
                && libc::fcntl(fd, libc::F_SETFD, 0) != 0
            {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the hook only makes async-signal-safe calls, see there.
    unsafe { command.pre_exec(hook) };
}

/// Switches address-space randomisation off for every program this process starts from now on, so that code and
/// private data have the same addresses on all nodes.
///
/// # Errors
/// The kernel's, typically EPERM under a container's system-call filter.
pub fn disable_randomisation() -> io::Result<()> {
    // SAFETY: personality takes an integer; 0xffffffff only asks for the present value.
    let old = unsafe { libc::personality(0xffff_ffff) };
    if old == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; the flag takes effect at the next exec.
    if unsafe { libc::personality(old as libc::c_ulong | libc::ADDR_NO_RANDOMIZE as libc::c_ulong) } == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// A file mapped shared, seen as 32-bit words.
#[derive(Debug)]
pub struct SharedWords {
    map: MmapRaw,
}

impl SharedWords {
    /// Maps all of `file`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn map(file: &File) -> io::Result<Self> {
        Ok(SharedWords { map: MmapRaw::map_raw(file)? })
    }

    /// The word at byte `offset`, a multiple of four inside the file.
    pub fn word(&self, offset: u64) -> &AtomicU32 {
        let offset = usize::try_from(offset).expect("offset fits the address space");
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.map.len(), "word outside the mapping");
        // SAFETY: inside the mapping (asserted), aligned (the mapping starts on a page), mapped as long as `self`
        // lives; this process touches these bytes only through atomics, as the other processes do.
        unsafe { AtomicU32::from_ptr(self.map.as_mut_ptr().add(offset).cast::<u32>()) }
    }
}
