//! The launcher's calls into the kernel that safe crates do not offer; the only `unsafe` of the launcher.
//!
//! What lives here: `fork` and the signal mask around it, what a child does between `fork` and `exec`, waiting for a child with what it has
//! used, which streams were closed from the start, switching address-space randomisation off, and 32-bit words that are shared with the nodes (needed as
//! real memory for `futex`; everything else of the region is read and written through its file descriptor).

#![allow(unsafe_code)]

use memmap2::MmapRaw;
use rustix::process::Pid;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

/// Which signals are held back.
#[derive(Clone, Copy)]
pub struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Holds back every signal for this thread; the mask from before.
    pub fn block_all() -> Self {
        // SAFETY: sigset_t is a plain array of words, for which all zeroes is a value; both sets are alive during the calls.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&mut all);
            // Fails only for an unknown operation.
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            SignalMask(before)
        }
    }

    /// Makes this the mask of this thread, but SIGTTOU is held back: a process out of the terminal's foreground may write to it, whatever `stty tostop` says.
    pub fn restore_for_output(mut self) {
        // SAFETY: the set is alive, and the signal is one.
        let was_held = unsafe { libc::sigismember(&self.0, libc::SIGTTOU) == 1 };
        HOLDS_TTOU.store(!was_held, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { libc::sigaddset(&mut self.0, libc::SIGTTOU) };
        self.restore();
    }

    /// Makes this the mask of this thread, and of the threads that it starts from now on.
    pub fn restore(self) {
        // SAFETY: the set is alive; a null pointer asks for nothing back.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// SIGTTOU is held back in this process, which was not started so.
static HOLDS_TTOU: AtomicBool = AtomicBool::new(false);

/// Lets the child of `command` begin with the signal mask that this process was started with.
pub fn leave_mask(command: &mut Command) {
    let hook = || {
        // SAFETY: the set is alive; sigprocmask is async-signal-safe, and nothing is asked back. See `block_all`.
        unsafe {
            let mut ttou: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut ttou, libc::SIGTTOU);
            libc::sigprocmask(libc::SIG_UNBLOCK, &ttou, std::ptr::null_mut());
        }
        Ok(())
    };
    if HOLDS_TTOU.load(Ordering::Relaxed) {
        // SAFETY: the hook only makes async-signal-safe calls, see there.
        unsafe { command.pre_exec(hook) };
    }
}

/// Splits this process: gives the child's number in the parent, nothing in the child.
///
/// Only the calling thread exists in the child. The caller sees to it that other threads of the process hold no lock that the child
/// needs: there are none, or they are idle.
///
/// # Errors
/// The kernel's, when there are too many processes or too little memory.
pub fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the child runs with the C library's own locks put right by its fork handlers; about others see above.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid)),
    }
}

/// Makes the child of `command` end when this process ends, however that happens (also by `kill -9`), and
/// keeps the file descriptors `inherit` open across `exec` under the same numbers.
///
/// The kernel ties this to the *thread* that starts the child, so that thread must live as long as the child shall.
pub fn tie_to_parent(command: &mut Command, inherit: &[RawFd]) {
    let parent = std::process::id();
    let inherit = inherit.to_vec();
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
            for &fd in &inherit {
                if libc::fcntl(fd, libc::F_SETFD, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
        }
        Ok(())
    };
    // SAFETY: the hook only makes async-signal-safe calls, see there.
    unsafe { command.pre_exec(hook) };
}

/// The standard streams that were closed when this process began, one bit each. Rust's start-up code puts `/dev/null` there.
static CLOSED_AT_START: AtomicU8 = AtomicU8::new(0);

/// Runs before Rust's start-up code does (gABI, "Initialization and Termination Functions").
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_CLOSED: extern "C" fn() = note_closed;

extern "C" fn note_closed() {
    // SAFETY: F_GETFD takes a number and gives one back.
    let closed = (0..3).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1).fold(0, |all, fd| all | 1 << fd);
    CLOSED_AT_START.store(closed, Ordering::Relaxed);
}

/// Lets the child of `command` begin without those standard streams that this process began without: a program tells a closed one from `/dev/null`.
pub fn leave_closed(command: &mut Command) {
    let closed = CLOSED_AT_START.load(Ordering::Relaxed);
    let hook = move || {
        for fd in (0..3).filter(|fd| closed & 1 << fd != 0) {
            // SAFETY: close takes a number and is async-signal-safe; between here and exec nothing uses these three.
            unsafe { libc::close(fd) };
        }
        Ok(())
    };
    if closed != 0 {
        // SAFETY: the hook only makes async-signal-safe calls, see there.
        unsafe { command.pre_exec(hook) };
    }
}

/// Makes the child of `command` the leader of a session of its own, so that no job control reaches it. Its controlling terminal is
/// `terminal`, or none.
pub fn own_session(command: &mut Command, terminal: Option<RawFd>) {
    let hook = move || {
        // SAFETY: setsid takes nothing, TIOCSCTTY an integer; both are async-signal-safe. setsid fails only for the leader of a process
        // group, which a new child is not.
        let done =
            unsafe { libc::setsid() != -1 && terminal.is_none_or(|fd| libc::ioctl(fd, libc::TIOCSCTTY, 0) != -1) };
        if done { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the hook only makes async-signal-safe calls, see there.
    unsafe { command.pre_exec(hook) };
}

/// How a process ended, and what it and the descendants that it has waited for have used.
#[derive(Clone, Copy, Debug)]
pub struct EndedProcess {
    pub status: ExitStatus,
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

/// Looks whether child `pid` has ended; then it is gone, and its number with it.
///
/// # Errors
/// The kernel's, when there is no such child.
pub fn wait_usage(pid: Pid) -> io::Result<Option<EndedProcess>> {
    let mut status = 0;
    // SAFETY: rusage consists of integers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both places are alive and writable.
    match unsafe { libc::wait4(pid.as_raw_nonzero().get(), &mut status, libc::WNOHANG, &mut usage) } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(None),
        _ => {
            let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
            let status = ExitStatus::from_raw(status);
            Ok(Some(EndedProcess { status, user: time(usage.ru_utime), system: time(usage.ru_stime) }))
        }
    }
}

/// Changes an environment variable of this process.
///
/// To be called while the process has one thread.
pub fn set_variable(name: &std::ffi::OsStr, value: &std::ffi::OsStr) {
    // SAFETY: no other thread reads the environment: there is none.
    unsafe { std::env::set_var(name, value) };
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
