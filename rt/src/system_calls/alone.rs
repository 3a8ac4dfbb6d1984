//! The system calls that the runtime takes part in when there is one node.
//!
//! Purpose: everything is accessible, so the program makes its calls itself, but for a few: those by which libraries are loaded
//! ([`loading`]), those that ask for the program's own file ([`own_path`]), those that would take SIGTRAP from the trap handler, those that
//! start threads, which a program that uses `tempest.h` may not, those by which it gives up its rights, `mlockall`, which would fill the runtime's mappings, and those that deal with
//! limits towards which these count ([`limits`]). Once the program uses `tempest.h` all calls come here, and those of the thread that does are
//! [`guarded`]'s. Input: the registers that the gate saved. Output: changed ones.
//! **Invariants**: no state but what other modules guard: any number of threads may be here; no call is refused that the kernel would allow,
//! except that a library cannot be loaded as it is.
//! Source: as the parent module's.

use super::direct::{arguments, finish, set_arguments, stack_pointer};
use super::signals::bit;
use super::{Outcome, guarded, loading, lock_all, masked, own_path, segv};
use crate::gates::entries::{Frame, RAX};
use crate::gates::resume;
use crate::gates::trap::{self, Ucontext};
use crate::kernel::limits;
use crate::kernel::sys::{self, KernelSigaction};
use crate::process::tags;
use crate::tempest::owner;
use blizzard_contract::Counter;
use core::sync::atomic::{AtomicU32, Ordering};

/// Numbers below this one are looked up in [`OURS`].
pub const LIMIT: i32 = 512;
/// The one signal that must reach the runtime.
const RESERVED: u64 = bit(libc::SIGTRAP);
/// Bytes of the `syscall` instruction.
pub(super) const SYSCALL_BYTES: u64 = 2;

/// One bit for each call that comes here.
pub static OURS: [AtomicU32; LIMIT as usize / 32] = set_of(&[
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_pkey_mprotect,
    libc::SYS_shmat,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_mlockall,
    libc::SYS_getrlimit,
    libc::SYS_setrlimit,
    libc::SYS_prlimit64,
    libc::SYS_setuid,
    libc::SYS_setreuid,
    libc::SYS_setresuid,
    libc::SYS_chroot,
    libc::SYS_pivot_root,
]);

const fn set_of(calls: &[i64]) -> [AtomicU32; LIMIT as usize / 32] {
    let mut set = [0; LIMIT as usize / 32];
    let mut i = 0;
    while i < calls.len() {
        let nr = calls[i] as usize;
        set[nr / 32] |= 1 << (nr % 32);
        i += 1;
    }
    let mut words = [const { AtomicU32::new(0) }; LIMIT as usize / 32];
    let mut i = 0;
    while i < words.len() {
        words[i] = AtomicU32::new(set[i]);
        i += 1;
    }
    words
}

/// From here on all calls come here.
pub fn take_all() {
    OURS.iter().for_each(|word| word.store(u32::MAX, Ordering::Relaxed));
}

/// The Rust half of the gate.
pub extern "C" fn on_syscall(frame: &mut Frame) {
    tags::count(Counter::Syscalls);
    if guarded::is_here() {
        return guarded::on_syscall(frame);
    }
    let nr = i64::from(frame.gpr[RAX] as i32);
    let mut args = arguments(frame);
    let rsp = stack_pointer(frame);
    // SAFETY: the program's own call.
    unsafe { own_path::execute(nr, &mut args) };
    // SAFETY: the program's own call.
    match unsafe { decide(nr, args, frame.return_address, rsp) } {
        Some(outcome) => finish(frame, outcome),
        // The program executes its own `syscall`.
        None => {
            set_arguments(frame, args);
            frame.return_address -= SYSCALL_BYTES;
        }
    }
}

/// What becomes of a call; `None`: the program makes it.
///
/// # Safety
/// `nr` and `args` are the program's call at `rip`, its stack pointer `rsp`.
unsafe fn decide(nr: i64, args: [u64; 6], rip: u64, rsp: u64) -> Option<Outcome> {
    match nr {
        libc::SYS_rt_sigaction => {
            // SAFETY: the program's pointers.
            Some(Outcome::Done(unsafe { sigaction(args) }))
        }
        libc::SYS_rt_sigprocmask => {
            // Unblocking takes nothing away; a mask of another size is the kernel's to refuse.
            if args[1] == 0 || args[3] != 8 || args[0] == libc::SIG_UNBLOCK as u64 {
                return None;
            }
            let set = read_word(args[1])? & !RESERVED;
            // SAFETY: a copy of the program's mask; the kernel writes the old one where the program says.
            let result = unsafe { sys::raw(nr, [args[0], &raw const set as u64, args[2], 8, 0, 0]) };
            Some(Outcome::Done(result))
        }
        libc::SYS_rt_sigreturn => {
            // SAFETY: `rsp` is where the kernel will read the context from: the program's frame starts with it.
            unsafe { (*(rsp as *mut Ucontext)).sigmask &= !RESERVED };
            // User-managed blocks can be inaccessible in a run of one node, too.
            resume::forget_limits();
            None
        }
        libc::SYS_clone | libc::SYS_clone3 => {
            note_clone(nr, &args);
            None
        }
        libc::SYS_mlockall => Some(Outcome::Done(lock_all(args))),
        libc::SYS_getrlimit | libc::SYS_setrlimit | libc::SYS_prlimit64 => {
            // SAFETY: the program's call.
            unsafe { limits::call(nr, &args) }.map(Outcome::Done)
        }
        libc::SYS_execve | libc::SYS_execveat if limits::are_finite() => {
            limits::lower();
            // SAFETY: the program's call: it comes back if it fails.
            let result = unsafe { sys::raw(nr, args) };
            limits::restore();
            Some(Outcome::Done(result))
        }
        // SAFETY: passed on from the caller.
        _ => unsafe {
            let made = loading::call(nr, &args, rip).or_else(|| own_path::read_link(nr, &args));
            made.map(Outcome::Done).or_else(|| masked(nr, args, rsp, RESERVED))
        },
    }
}

/// Notes that a `clone` or `clone3` makes a thread, if it does.
pub(super) fn note_clone(nr: i64, args: &[u64; 6]) {
    // The structure of `clone3` begins with the flags.
    let flags = if nr == libc::SYS_clone { Some(args[0]) } else { read_word(args[0]) };
    if flags.is_some_and(|flags| flags & (libc::CLONE_VM | libc::CLONE_VFORK) as u64 == libc::CLONE_VM as u64) {
        owner::note_thread();
    }
}

/// The word at `at`, if it is mapped: the kernel answers EFAULT where a load would end the process.
fn read_word(at: u64) -> Option<u64> {
    let mut word = [0; 8];
    sys::read_own_memory(at, &mut word).ok().map(|()| u64::from_ne_bytes(word))
}

/// `rt_sigaction`: the handler of SIGTRAP is kept for the program, and no handler runs with SIGTRAP blocked.
///
/// # Safety
/// `args` are the program's.
pub(super) unsafe fn sigaction(args: [u64; 6]) -> i64 {
    let [signal, act, old, mask_bytes, ..] = args;
    if (guarded::is_active() || segv::keeps(signal)) && signal != libc::SIGTRAP as u64 {
        // SAFETY: passed on from the caller.
        return unsafe { guarded::sigaction(args) };
    }
    if act == 0 && signal != libc::SIGTRAP as u64 || mask_bytes != 8 {
        // SAFETY: the program's own call.
        return unsafe { sys::raw(libc::SYS_rt_sigaction, args) };
    }
    let mut wanted = KernelSigaction::default();
    if act != 0 {
        // SAFETY: the program passes an action's address.
        wanted = unsafe { (act as *const KernelSigaction).read_unaligned() };
        wanted.mask &= !RESERVED;
    }
    if signal != libc::SIGTRAP as u64 {
        // SAFETY: the program's action, but for its mask.
        return unsafe { sys::raw(libc::SYS_rt_sigaction, [signal, &raw const wanted as u64, old, 8, 0, 0]) };
    }
    let before = trap::own_action();
    if act != 0 {
        trap::set_own_action(&wanted);
    }
    if old != 0 {
        // SAFETY: the program passes room for an action.
        unsafe { (old as *mut KernelSigaction).write_unaligned(before) };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_set_holds_what_is_listed() {
        let holds = |nr: i64| OURS[nr as usize / 32].load(Ordering::Relaxed) >> (nr % 32) & 1 == 1;
        assert!(holds(libc::SYS_mmap) && holds(libc::SYS_epoll_pwait2) && holds(libc::SYS_open));
        assert!(!holds(libc::SYS_read) && !holds(libc::SYS_vfork) && !holds(511));
        assert_eq!(OURS.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum::<u32>(), 29);
    }

    #[test]
    fn sigtrap_is_kept_for_the_program_but_not_installed() {
        let before = trap::own_action();
        let wanted = KernelSigaction { handler: 0x1234, flags: 4, restorer: 0, mask: RESERVED | 1 };
        let mut old = KernelSigaction::default();
        // SAFETY: live structures; SIGTRAP's handler stays what it is.
        unsafe {
            let set = |act: u64, old: u64| sigaction([libc::SIGTRAP as u64, act, old, 8, 0, 0]);
            assert_eq!(set(&raw const wanted as u64, 0), 0);
            assert_eq!(set(0, &raw mut old as u64), 0);
        }
        assert_eq!(old, KernelSigaction { mask: 1, ..wanted });
        trap::set_own_action(&before);
    }

    #[test]
    fn no_mask_of_the_program_blocks_sigtrap() {
        let (set, mut old) = (bit(libc::SIGTRAP) | bit(libc::SIGUSR2), 0u64);
        let call = |how: i32, set: u64, old: u64| {
            // SAFETY: live words.
            unsafe { decide(libc::SYS_rt_sigprocmask, [how as u64, set, old, 8, 0, 0], 0, 0) }
        };
        assert_eq!(call(libc::SIG_BLOCK, &raw const set as u64, 0), Some(Outcome::Done(0)));
        let mask = sys::signal_mask();
        assert_eq!(mask & set, bit(libc::SIGUSR2));
        let empty = 0u64;
        assert_eq!(call(libc::SIG_SETMASK, &raw const empty as u64, &raw mut old as u64), Some(Outcome::Done(0)));
        assert_eq!(old, mask);
        assert_eq!(call(libc::SIG_UNBLOCK, &raw const set as u64, 0), None);
        assert_eq!(call(libc::SIG_BLOCK, 8, 0), None, "the kernel refuses what is not mapped");
    }
}
