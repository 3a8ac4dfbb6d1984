//! Rewrites a library that has no rewritten form yet, by a process of its own.
//!
//! Input: a descriptor and the command. Output: the command's exit status. **Invariant**: the program hears nothing of the process.

use crate::kernel::sys::{self, Errno, KernelSigaction};
use crate::libraries::closure::paths::link_of;
use core::ffi::{CStr, c_char};

/// Words of the command that rewrites a library, in front of the library's name.
const COMMAND_WORDS: usize = 8;

/// The page that the status comes back in.
const WORD_BYTES: u64 = 4096;

/// Exit statuses of the child above this one are errors of `execve`; the rewriter uses 0, 1 and 2.
const EXEC_FAILED: i32 = 100;

/// Number of the library's descriptor in the rewriter. Not one of the standard streams, which may be closed in the program.
const FILE: i32 = 3;

/// Runs the rewriter on the file behind `fd` and waits for it. Returns its exit status, or 128 plus the signal that ended it.
pub fn make(fd: i32, command: [&CStr; COMMAND_WORDS]) -> Result<i32, Errno> {
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
pub fn wait_for(pid: u64) -> Result<i32, Errno> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::libraries::closure::paths::open;

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
