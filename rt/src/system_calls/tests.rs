//! The decisions of the gate, and the real dispatch in a child process.

use crate::kernel::sys;
use crate::kernel::ucontext::{REG_RSP, Ucontext};
use crate::process::tags;
use crate::system_calls::execution::call::{Call, CallOutcome};
use crate::system_calls::execution::signal_sets::{RESERVED, UNBLOCKED};
use crate::system_calls::execution::stubs::{NEW_ARGUMENTS, Stub};
use crate::system_calls::gate::dispatch::arm;
use crate::system_calls::gate::{processes, several_nodes};
use crate::system_calls::signals::safe_points;
use blizzard_contract as contract;
use core::sync::atomic::Ordering;

/// A context as the kernel hands it over, at the given stack pointer.
fn context(rsp: u64) -> Ucontext {
    let mut context =
        Ucontext { flags: 0, link: 0, stack: [0; 3], gregs: [0; 23], fpstate: 0, reserved: [0; 8], sigmask: 0 };
    context.gregs[REG_RSP] = rsp;
    context
}

/// Decides about a call made at stack pointer `rsp`.
///
/// # Safety
/// As [`several_nodes::decide`].
unsafe fn decide(nr: i64, args: [u64; 6], rsp: u64) -> CallOutcome {
    // SAFETY: the caller's.
    unsafe { several_nodes::decide(&Call::new(nr as u64, args, 0x5002, rsp), &mut 0) }
}

#[test]
fn ordinary_calls_run_with_their_own_arguments() {
    let args = [1, 2, 3, 4, 5, 6];
    // SAFETY: nothing is executed, only decided.
    let outcome = unsafe { decide(libc::SYS_getpid, args, 0x9000) };
    assert_eq!(outcome, CallOutcome::Run(Stub::Plain, args, 0));
}

#[test]
fn masks_are_copied_without_the_reserved_signals() {
    const SYS_IO_PGETEVENTS: i64 = 333;
    let mask = u64::MAX;
    let at = &raw const mask as u64;
    // SAFETY: nothing is executed, only decided; the mask is alive.
    unsafe {
        let kept = !UNBLOCKED;
        let suspend = decide(libc::SYS_rt_sigsuspend, [at, 8, 0, 0, 0, 0], 0x9000);
        let new = |i: usize| NEW_ARGUMENTS[i].load(Ordering::Relaxed);
        assert_eq!(suspend, CallOutcome::Run(Stub::Changed, [at, 8, 0, 0, 0, 0], 0));
        assert_eq!((*(new(0) as *const u64), new(1)), (kept, 8));
        let ppoll = decide(libc::SYS_ppoll, [0, 0, 0, at, 8, 0], 0x9000);
        assert_eq!(ppoll, CallOutcome::Run(Stub::Changed, [0, 0, 0, at, 8, 0], 0));
        assert_eq!((*(new(3) as *const u64), new(4)), (kept, 8));
        assert_eq!(decide(libc::SYS_ppoll, [0; 6], 0x9000), CallOutcome::Run(Stub::Plain, [0; 6], 0));
        let pair = [at, 8];
        let pair_at = &raw const pair as u64;
        for call in [libc::SYS_pselect6, SYS_IO_PGETEVENTS] {
            let outcome = decide(call, [0, 0, 0, 0, 0, pair_at], 0x9000);
            assert_eq!(outcome, CallOutcome::Run(Stub::Changed, [0, 0, 0, 0, 0, pair_at], 0));
            let [mask_at, bytes] = *(new(5) as *const [u64; 2]);
            assert_eq!((*(mask_at as *const u64), bytes), (kept, 8));
        }
    }
}

#[test]
fn processes_are_started_at_stubs_that_find_their_way_back() {
    let mut stack = [0u64; 64];
    let top = stack.as_mut_ptr_range().end as u64;
    let clone = |args| processes::clone(&Call::new(libc::SYS_clone as u64, args, 0x5002, 0x9000));
    let spawn = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64;
    // This stub may go back to the gate. A stack that had been prepared was prepared twice then, and the child ended with an address for its status.
    let spawned = [spawn, top, 0, 0, 0, 0];
    assert_eq!(clone(spawned), CallOutcome::Run(Stub::Vfork, spawned, 0));
    assert_eq!(stack, [0; 64]);
    let fork = libc::SIGCHLD as u64;
    assert_eq!(clone([fork, 0, 0, 0, 0, 0]), CallOutcome::Run(Stub::Fork, [fork, 0, 0, 0, 0, 0], 0));
    let CallOutcome::Run(stub, args, _) = clone([fork, top, 0, 0, 0, 0]) else { panic!() };
    assert_eq!((stub, args[1]), (Stub::Fork, top - 136));
    assert_eq!(stack[64 - 17], 0x5002, "where the child continues");
    assert_eq!(clone([spawn, 0, 0, 0, 0, 0]), CallOutcome::Run(Stub::Vfork, [spawn, 0, 0, 0, 0, 0], 0));
    // SAFETY: nothing is executed, only decided.
    let clone3 = unsafe { decide(libc::SYS_clone3, [0; 6], 0x9000) };
    assert_eq!(clone3, CallOutcome::Done(-i64::from(libc::ENOSYS)));
}

/// The page where loops say how far they have tested tags, which is there before a program runs.
pub(crate) fn map_context_page() {
    let (at, flags) =
        (blizzard_contract::CONTEXT_SHARED, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE);
    // SAFETY: nothing that is there is replaced.
    match unsafe { sys::mmap(at, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) } {
        Ok(_) => {}
        Err(e) => assert_eq!(e.0, libc::EEXIST, "{e}"),
    }
}

#[test]
fn the_frame_of_a_signal_return_loses_reserved_bits() {
    map_context_page();
    let mut frame = context(0);
    frame.sigmask = u64::MAX;
    // SAFETY: the frame is alive; nothing is executed.
    let outcome = unsafe { decide(libc::SYS_rt_sigreturn, [0; 6], &raw mut frame as u64) };
    assert_eq!(outcome, CallOutcome::Run(Stub::Sigreturn, [0; 6], 0));
    assert_eq!(frame.sigmask, !RESERVED);
}

/// The dispatch as it really happens: a forked child arms it, with its own executable as "the runtime's text", so that every call of
/// the C library, a shared object, is gated. The child reports the number of the step that failed as its exit status.
mod dispatched {
    use super::*;
    use crate::libraries::modules::MODULES;
    use blizzard_contract::ModuleInfo;
    use core::sync::atomic::{AtomicI32, AtomicU32};

    static HANDLED: AtomicI32 = AtomicI32::new(0);
    static PIPE_IN: AtomicI32 = AtomicI32::new(-1);

    /// The executable's text, found in the process's own memory map.
    fn text() -> (u64, u64) {
        let here = arm as *const () as u64;
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        for line in maps.lines() {
            let (range, _) = line.split_once(' ').unwrap();
            let (start, end) = range.split_once('-').unwrap();
            let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
            if (start..end).contains(&here) {
                return (start, end - start);
            }
        }
        panic!("the text is not mapped");
    }

    /// Context pages and a page of machine code that lies outside every range, so that its calls are gated.
    unsafe fn pages(code: &[u8]) -> u64 {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the context pages of a process that has none; a fresh page for the code.
        unsafe {
            sys::mmap(contract::CONTEXT_SHARED, 2 * contract::CONTEXT_BYTES, rw, anonymous | libc::MAP_FIXED, -1, 0)
                .unwrap();
            let at = sys::mmap(0, 4096, rw | libc::PROT_EXEC, anonymous, -1, 0).unwrap();
            core::ptr::copy_nonoverlapping(code.as_ptr(), at as *mut u8, code.len());
            at
        }
    }

    fn need(step: i32, holds: bool) {
        if !holds {
            sys::exit_group(step);
        }
    }

    /// Runs `steps` in a child with the dispatch armed; the child must get to its end.
    fn in_child(code: &[u8], steps: fn(u64)) {
        let (start, bytes) = text();
        // SAFETY: the child calls only what is safe after a fork of a process with threads: system calls, no allocation.
        unsafe {
            let pid = libc::fork();
            assert!(pid >= 0);
            if pid == 0 {
                let page = pages(code);
                crate::system_calls::execution::stubs::set_child_entries(crate::gates::entries::child_entries());
                need(100, arm(start, bytes).is_ok());
                steps(page);
                sys::exit_group(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
            assert!(libc::WIFEXITED(status), "the child died by signal {}", libc::WTERMSIG(status));
            assert_eq!(libc::WEXITSTATUS(status), 0, "the step that failed");
        }
    }

    extern "C" fn handler(_signal: i32) {
        HANDLED.fetch_add(1, Ordering::Relaxed);
        let fd = PIPE_IN.load(Ordering::Relaxed);
        if fd >= 0 {
            // SAFETY: one byte of a static.
            unsafe { libc::write(fd, c"x".as_ptr().cast(), 1) };
        }
    }

    fn handle(signal: i32, flags: i32) {
        // SAFETY: a handler that only makes a system call and counts.
        unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = flags;
            libc::sigfillset(&mut action.sa_mask);
            need(90, libc::sigaction(signal, &action, core::ptr::null_mut()) == 0);
        }
    }

    /// Starts a timer that repeats, because on a busy machine its first signal can come before the wait that it is meant for; 0 stops it.
    fn timer_ms(ms: i64) {
        let interval = libc::timeval { tv_sec: 0, tv_usec: ms * 1000 };
        let value = libc::itimerval { it_interval: interval, it_value: interval };
        // SAFETY: a live structure.
        need(91, unsafe { libc::setitimer(libc::ITIMER_REAL, &value, core::ptr::null_mut()) } == 0);
    }

    fn handled() -> i32 {
        HANDLED.load(Ordering::Relaxed)
    }

    #[test]
    fn calls_signals_and_masks() {
        in_child(&[], |_| {
            // SAFETY: plain calls of the C library in a child of its own.
            unsafe {
                need(1, libc::getpid() == sys::getpid());
                need(2, libc::close(-1) == -1 && *libc::__errno_location() == libc::EBADF);
                let mut fds = [0; 2];
                need(3, libc::pipe(fds.as_mut_ptr()) == 0);
                need(4, libc::write(fds[1], c"ab".as_ptr().cast(), 2) == 2);
                let mut buf = [0u8; 2];
                need(5, libc::read(fds[0], buf.as_mut_ptr().cast(), 2) == 2 && &buf == b"ab");
                // A full mask must not cut the runtime off.
                let (mut all, mut old): (libc::sigset_t, libc::sigset_t) = core::mem::zeroed();
                libc::sigfillset(&mut all);
                need(6, libc::sigprocmask(libc::SIG_SETMASK, &all, &mut old) == 0);
                need(7, libc::getpid() == sys::getpid());
                // A blocked signal stays pending and comes with the unblocking.
                handle(libc::SIGUSR1, 0);
                need(8, libc::raise(libc::SIGUSR1) == 0 && HANDLED.load(Ordering::Relaxed) == 0);
                need(9, libc::sigprocmask(libc::SIG_SETMASK, &old, core::ptr::null_mut()) == 0);
                need(10, HANDLED.load(Ordering::Relaxed) == 1);
                // The handler, whose mask is full, makes a gated call itself; so does everything after it.
                PIPE_IN.store(fds[1], Ordering::Relaxed);
                need(11, libc::raise(libc::SIGUSR1) == 0 && HANDLED.load(Ordering::Relaxed) == 2);
                need(12, libc::read(fds[0], buf.as_mut_ptr().cast(), 2) == 1);
                // The program reads back its own handler, not the wrapper.
                let mut now: libc::sigaction = core::mem::zeroed();
                need(13, libc::sigaction(libc::SIGUSR1, core::ptr::null(), &mut now) == 0);
                need(14, now.sa_sigaction == handler as *const () as usize);
            }
        });
    }

    #[test]
    fn waits_are_interrupted_and_restarted_as_without_the_gate() {
        in_child(&[], |_| {
            // SAFETY: plain calls of the C library in a child of its own.
            unsafe {
                let mut fds = [0; 2];
                need(1, libc::pipe(fds.as_mut_ptr()) == 0);
                let mut byte = [0u8; 1];
                handle(libc::SIGALRM, 0);
                timer_ms(20);
                need(2, libc::read(fds[0], byte.as_mut_ptr().cast(), 1) == -1);
                need(3, *libc::__errno_location() == libc::EINTR && handled() > 0);
                // Restarted: the handler itself writes what the call then reads.
                timer_ms(0);
                handle(libc::SIGALRM, libc::SA_RESTART);
                PIPE_IN.store(fds[1], Ordering::Relaxed);
                timer_ms(20);
                need(4, libc::read(fds[0], byte.as_mut_ptr().cast(), 1) == 1 && &byte == b"x");
                // A wait with a mask of its own: the handler runs under it.
                let mut mask: libc::sigset_t = core::mem::zeroed();
                libc::sigfillset(&mut mask);
                libc::sigdelset(&mut mask, libc::SIGALRM);
                let before = handled();
                need(5, libc::sigsuspend(&mask) == -1 && *libc::__errno_location() == libc::EINTR);
                need(6, handled() > before);
                let before = handled();
                let mut poll = libc::pollfd { fd: -1, events: 0, revents: 0 };
                need(7, libc::ppoll(&mut poll, 1, core::ptr::null(), &mask) == -1);
                need(8, handled() > before);
                let before = handled();
                let none = core::ptr::null_mut();
                need(9, libc::pselect(0, none, none, none, core::ptr::null(), &mask) == -1);
                need(10, handled() > before);
            }
        });
    }

    #[test]
    fn processes() {
        // vfork whose child exits at once: mov eax,58; syscall; test eax,eax; jne +12; mov edi,9; mov eax,231; syscall; ret
        let code = [
            0xb8, 58, 0, 0, 0, 0x0f, 0x05, 0x85, 0xc0, 0x75, 12, 0xbf, 9, 0, 0, 0, 0xb8, 231, 0, 0, 0, 0x0f, 0x05, 0xc3,
        ];
        in_child(&code, |page| {
            // SAFETY: plain calls of the C library in a child of its own; the page holds the code above.
            unsafe {
                let mut status = 0;
                // The forked child has no dispatch and is no node.
                let child = libc::fork();
                if child == 0 {
                    let apart = tags::detached() && libc::getpid() == sys::getpid();
                    libc::_exit(if apart { 7 } else { 8 });
                }
                need(1, child > 0 && !tags::detached());
                need(2, libc::waitpid(child, &mut status, 0) == child && status == 7 << 8);
                let mut spawned = 0;
                let argv = [c"true".as_ptr().cast_mut(), core::ptr::null_mut()];
                let envp = [core::ptr::null_mut()];
                let null = core::ptr::null::<u8>();
                let path = c"/bin/true".as_ptr();
                need(
                    4,
                    libc::posix_spawn(&mut spawned, path, null.cast(), null.cast(), argv.as_ptr(), envp.as_ptr()) == 0,
                );
                need(5, libc::waitpid(spawned, &mut status, 0) == spawned && status == 0);
                need(6, libc::system(c"exit 5".as_ptr()) == 5 << 8);
                let vfork: extern "C" fn() -> i32 = core::mem::transmute(page);
                let child = vfork();
                need(7, libc::waitpid(child, &mut status, 0) == child && status == 9 << 8);
                need(8, libc::getpid() == sys::getpid());
            }
        });
    }

    #[test]
    fn execve_leaves_the_dispatch_behind() {
        in_child(&[], |_| {
            let argv = [c"sh".as_ptr(), c"-c".as_ptr(), c"exit 0".as_ptr(), core::ptr::null()];
            let envp = [core::ptr::null()];
            // SAFETY: replaces the child.
            unsafe { libc::execve(c"/bin/sh".as_ptr(), argv.as_ptr(), envp.as_ptr()) };
            need(1, false);
        });
    }

    #[test]
    fn a_signal_in_checked_code_waits_for_a_safe_point() {
        // cmp dword [abs POLL_WORD], 0; je back; ret
        let mut code = vec![0x83, 0x3c, 0x25];
        code.extend((contract::POLL_WORD as u32).to_le_bytes());
        code.extend([0x00, 0x74, 0xf6, 0xc3]);
        in_child(&code, |page| {
            // SAFETY: plain calls of the C library in a child of its own; the page holds the code above.
            unsafe {
                let info = ModuleInfo { code_va: page, code_bytes: 4096, ..ModuleInfo::ZERO };
                need(7, MODULES.add(&info, 0, page, page + 4096).is_ok());
                handle(libc::SIGALRM, 0);
                let wait: extern "C" fn() = core::mem::transmute(page);
                timer_ms(20);
                // The loop ends only when a signal was put off, which rings the doorbell; from there on it is blocked.
                wait();
                let before = handled();
                safe_points::safe_point();
                need(1, handled() > before);
                // A system call is a safe point too.
                AtomicU32::from_ptr(contract::POLL_WORD as *mut u32).store(0, Ordering::Relaxed);
                wait();
                let before = handled();
                need(2, libc::getpid() == sys::getpid() && handled() > before);
                timer_ms(0);
                let mut pending: libc::sigset_t = core::mem::zeroed();
                need(5, libc::sigprocmask(libc::SIG_SETMASK, core::ptr::null(), &mut pending) == 0);
                need(6, libc::sigismember(&pending, libc::SIGALRM) == 0);
            }
        });
    }
}
