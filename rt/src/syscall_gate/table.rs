//! Which arguments of which system call point to memory, and how much.
//!
//! Purpose: the kernel does not look at tags, so what a call reads or writes in shared memory must be made accessible before it. Input: a
//! call's number and arguments. Output: the ranges in the segment that it touches, through a visitor.
//! **Invariant**: a call that is not in the table, or an argument whose layout is not known, is an error as soon as the argument
//! points into the segment; it is never let through unchecked. Calls that take fewer arguments than six are in the table even if they
//! take no pointer: what their unused registers hold means nothing.
//! Source: Reinhardt 1996, 4.2.4; Linux `include/linux/syscalls.h`; the structure sizes are those of x86-64.

use crate::abi::BLOCK_BYTES;
use crate::entry::access::in_segment;

/// Where the number of bytes behind a pointer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Len {
    Bytes(u32),
    /// The value of an argument.
    Arg(u8),
    /// The value of an argument times an element's bytes.
    Times(u8, u32),
    /// A 32-bit length that an argument points to.
    At(u8),
    /// Bits, as many as an argument says, in 8-byte words.
    Bits(u8),
}

/// What an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arg {
    /// A number or a descriptor.
    Num,
    /// The kernel reads.
    In(Len),
    /// The kernel writes, or reads and writes.
    Out(Len),
    /// A NUL-terminated string that the kernel reads.
    Str,
    /// An array of `struct iovec`, as many as the argument says; the kernel reads the buffers.
    IovIn(u8),
    /// The same; the kernel writes the buffers.
    IovOut(u8),
    /// A `struct msghdr`; the kernel reads the buffers.
    MsgIn,
    /// The same; the kernel writes the buffers.
    MsgOut,
    /// The argument of `ioctl`, by the command.
    Ioctl,
    /// The argument of `fcntl`, by the command.
    Fcntl,
    /// The first argument of a `prctl` option.
    Prctl,
    /// Bytes that `futex` reads or writes if its operation is one of these (bit = operation).
    Futex(u32, u32),
    /// Must not point into the segment.
    Never,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub nr: i64,
    pub args: [Arg; 6],
}

/// Builds a row; arguments that are left out are numbers.
macro_rules! call {
    ($nr:ident $(, $arg:expr)*) => {{
        let mut args = [Arg::Num; 6];
        let list: &[Arg] = &[$($arg),*];
        let mut i = 0;
        while i < list.len() {
            args[i] = list[i];
            i += 1;
        }
        Call { nr: libc::$nr, args }
    }};
}

use Arg::{Fcntl, Futex, In, Ioctl, IovIn, IovOut, MsgIn, MsgOut, Never, Num, Out, Prctl, Str};
use Len::{Arg as By, At, Bits, Bytes, Times};

const STAT: u32 = 144;
const TIMESPEC: u32 = 16;
const RUSAGE: u32 = 144;
const SIGINFO: u32 = 128;
const STATFS: u32 = 120;
const EPOLL_EVENT: u32 = 12;
const POLLFD: u32 = 8;
/// Futex operations with a timeout: WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI.
const FUTEX_TIMED: u32 = 1 | 1 << 6 | 1 << 9 | 1 << 11;
/// Futex operations with a second word: REQUEUE, CMP_REQUEUE, WAKE_OP, WAIT_REQUEUE_PI, CMP_REQUEUE_PI.
const FUTEX_TWO_WORDS: u32 = 1 << 3 | 1 << 4 | 1 << 5 | 1 << 11 | 1 << 12;

/// The table, by ascending number.
#[rustfmt::skip]
pub static CALLS: &[Call] = &[
    call!(SYS_read, Num, Out(By(2))),
    call!(SYS_write, Num, In(By(2))),
    call!(SYS_open, Str),
    call!(SYS_close),
    call!(SYS_stat, Str, Out(Bytes(STAT))),
    call!(SYS_fstat, Num, Out(Bytes(STAT))),
    call!(SYS_lstat, Str, Out(Bytes(STAT))),
    call!(SYS_poll, Out(Times(1, POLLFD))),
    call!(SYS_lseek),
    call!(SYS_mmap, Never),
    call!(SYS_mprotect, Never),
    call!(SYS_munmap, Never),
    call!(SYS_brk),
    call!(SYS_rt_sigaction, Num, In(Bytes(32)), Out(Bytes(32))),
    call!(SYS_rt_sigprocmask, Num, In(Bytes(8)), Out(Bytes(8))),
    call!(SYS_ioctl, Num, Num, Ioctl),
    call!(SYS_pread64, Num, Out(By(2))),
    call!(SYS_pwrite64, Num, In(By(2))),
    call!(SYS_readv, Num, IovOut(2)),
    call!(SYS_writev, Num, IovIn(2)),
    call!(SYS_access, Str),
    call!(SYS_pipe, Out(Bytes(8))),
    call!(SYS_select, Num, Out(Bits(0)), Out(Bits(0)), Out(Bits(0)), Out(Bytes(16))),
    call!(SYS_sched_yield),
    call!(SYS_mremap, Never),
    call!(SYS_msync, Never),
    call!(SYS_mincore, Never, Num, Never),
    call!(SYS_madvise, Never),
    call!(SYS_shmget),
    call!(SYS_shmat, Num, Never),
    call!(SYS_shmctl, Num, Num, Never),
    call!(SYS_dup),
    call!(SYS_dup2),
    call!(SYS_pause),
    call!(SYS_nanosleep, In(Bytes(TIMESPEC)), Out(Bytes(TIMESPEC))),
    call!(SYS_getitimer, Num, Out(Bytes(32))),
    call!(SYS_alarm),
    call!(SYS_setitimer, Num, In(Bytes(32)), Out(Bytes(32))),
    call!(SYS_getpid),
    call!(SYS_sendfile, Num, Num, Out(Bytes(8))),
    call!(SYS_socket),
    call!(SYS_connect, Num, In(By(2))),
    call!(SYS_accept, Num, Out(At(2)), Out(Bytes(4))),
    call!(SYS_sendto, Num, In(By(2)), Num, Num, In(By(5))),
    call!(SYS_recvfrom, Num, Out(By(2)), Num, Num, Out(At(5)), Out(Bytes(4))),
    call!(SYS_sendmsg, Num, MsgIn),
    call!(SYS_recvmsg, Num, MsgOut),
    call!(SYS_shutdown),
    call!(SYS_bind, Num, In(By(2))),
    call!(SYS_listen),
    call!(SYS_getsockname, Num, Out(At(2)), Out(Bytes(4))),
    call!(SYS_getpeername, Num, Out(At(2)), Out(Bytes(4))),
    call!(SYS_socketpair, Num, Num, Num, Out(Bytes(8))),
    call!(SYS_setsockopt, Num, Num, Num, In(By(4))),
    call!(SYS_getsockopt, Num, Num, Num, Out(At(4)), Out(Bytes(4))),
    call!(SYS_execve, Str, Never, Never),
    call!(SYS_wait4, Num, Out(Bytes(4)), Num, Out(Bytes(RUSAGE))),
    call!(SYS_kill),
    call!(SYS_uname, Out(Bytes(390))),
    call!(SYS_semget),
    call!(SYS_semop, Num, In(Times(2, 6))),
    call!(SYS_semctl, Num, Num, Num, Never),
    call!(SYS_shmdt, Never),
    call!(SYS_msgget),
    call!(SYS_msgsnd, Num, Never),
    call!(SYS_msgrcv, Num, Never),
    call!(SYS_msgctl, Num, Num, Never),
    call!(SYS_fcntl, Num, Num, Fcntl),
    call!(SYS_flock),
    call!(SYS_fsync),
    call!(SYS_fdatasync),
    call!(SYS_truncate, Str),
    call!(SYS_ftruncate),
    call!(SYS_getdents, Num, Out(By(2))),
    call!(SYS_getcwd, Out(By(1))),
    call!(SYS_chdir, Str),
    call!(SYS_fchdir),
    call!(SYS_rename, Str, Str),
    call!(SYS_mkdir, Str),
    call!(SYS_rmdir, Str),
    call!(SYS_creat, Str),
    call!(SYS_link, Str, Str),
    call!(SYS_unlink, Str),
    call!(SYS_symlink, Str, Str),
    call!(SYS_readlink, Str, Out(By(2))),
    call!(SYS_chmod, Str),
    call!(SYS_fchmod),
    call!(SYS_chown, Str),
    call!(SYS_fchown),
    call!(SYS_lchown, Str),
    call!(SYS_umask),
    call!(SYS_gettimeofday, Out(Bytes(16)), Out(Bytes(8))),
    call!(SYS_getrlimit, Num, Out(Bytes(16))),
    call!(SYS_getrusage, Num, Out(Bytes(RUSAGE))),
    call!(SYS_sysinfo, Out(Bytes(112))),
    call!(SYS_times, Out(Bytes(32))),
    call!(SYS_ptrace, Num, Num, Num, Never),
    call!(SYS_getuid),
    call!(SYS_syslog, Num, Out(By(2))),
    call!(SYS_getgid),
    call!(SYS_setuid),
    call!(SYS_setgid),
    call!(SYS_geteuid),
    call!(SYS_getegid),
    call!(SYS_setpgid),
    call!(SYS_getppid),
    call!(SYS_getpgrp),
    call!(SYS_setsid),
    call!(SYS_setreuid),
    call!(SYS_setregid),
    call!(SYS_getgroups, Num, Out(Times(0, 4))),
    call!(SYS_setgroups, Num, In(Times(0, 4))),
    call!(SYS_setresuid),
    call!(SYS_getresuid, Out(Bytes(4)), Out(Bytes(4)), Out(Bytes(4))),
    call!(SYS_setresgid),
    call!(SYS_getresgid, Out(Bytes(4)), Out(Bytes(4)), Out(Bytes(4))),
    call!(SYS_getpgid),
    call!(SYS_setfsuid),
    call!(SYS_setfsgid),
    call!(SYS_getsid),
    call!(SYS_capget, Never, Never),
    call!(SYS_capset, Never, Never),
    call!(SYS_rt_sigpending, Out(By(1))),
    call!(SYS_rt_sigtimedwait, In(Bytes(8)), Out(Bytes(SIGINFO)), In(Bytes(TIMESPEC))),
    call!(SYS_rt_sigqueueinfo, Num, Num, In(Bytes(SIGINFO))),
    call!(SYS_rt_sigsuspend, In(Bytes(8))),
    call!(SYS_sigaltstack, In(Bytes(24)), Out(Bytes(24))),
    call!(SYS_utime, Str, In(Bytes(16))),
    call!(SYS_mknod, Str),
    call!(SYS_personality),
    call!(SYS_statfs, Str, Out(Bytes(STATFS))),
    call!(SYS_fstatfs, Num, Out(Bytes(STATFS))),
    call!(SYS_getpriority),
    call!(SYS_setpriority),
    call!(SYS_sched_setparam, Num, In(Bytes(4))),
    call!(SYS_sched_getparam, Num, Out(Bytes(4))),
    call!(SYS_sched_setscheduler, Num, Num, In(Bytes(4))),
    call!(SYS_sched_getscheduler),
    call!(SYS_sched_get_priority_max),
    call!(SYS_sched_get_priority_min),
    call!(SYS_sched_rr_get_interval, Num, Out(Bytes(TIMESPEC))),
    call!(SYS_mlock, Never),
    call!(SYS_munlock, Never),
    call!(SYS_mlockall),
    call!(SYS_munlockall),
    call!(SYS_prctl, Num, Prctl),
    call!(SYS_arch_prctl, Num, Never),
    call!(SYS_setrlimit, Num, In(Bytes(16))),
    call!(SYS_chroot, Str),
    call!(SYS_sync),
    call!(SYS_settimeofday, In(Bytes(16)), In(Bytes(8))),
    call!(SYS_mount, Str, Str, Str, Num, Str),
    call!(SYS_umount2, Str),
    call!(SYS_sethostname, In(By(1))),
    call!(SYS_setdomainname, In(By(1))),
    call!(SYS_gettid),
    call!(SYS_readahead),
    call!(SYS_setxattr, Str, Str, In(By(3))),
    call!(SYS_lsetxattr, Str, Str, In(By(3))),
    call!(SYS_fsetxattr, Num, Str, In(By(3))),
    call!(SYS_getxattr, Str, Str, Out(By(3))),
    call!(SYS_lgetxattr, Str, Str, Out(By(3))),
    call!(SYS_fgetxattr, Num, Str, Out(By(3))),
    call!(SYS_listxattr, Str, Out(By(2))),
    call!(SYS_llistxattr, Str, Out(By(2))),
    call!(SYS_flistxattr, Num, Out(By(2))),
    call!(SYS_removexattr, Str, Str),
    call!(SYS_lremovexattr, Str, Str),
    call!(SYS_fremovexattr, Num, Str),
    call!(SYS_tkill),
    call!(SYS_time, Out(Bytes(8))),
    call!(SYS_futex, Out(Bytes(4)), Num, Num, Futex(FUTEX_TIMED, TIMESPEC), Futex(FUTEX_TWO_WORDS, 4)),
    call!(SYS_sched_setaffinity, Num, Num, In(By(1))),
    call!(SYS_sched_getaffinity, Num, Num, Out(By(1))),
    call!(SYS_epoll_create),
    call!(SYS_getdents64, Num, Out(By(2))),
    call!(SYS_set_tid_address, Never),
    call!(SYS_restart_syscall),
    call!(SYS_semtimedop, Num, In(Times(2, 6)), Num, In(Bytes(TIMESPEC))),
    call!(SYS_fadvise64),
    call!(SYS_timer_create, Num, In(Bytes(64)), Out(Bytes(4))),
    call!(SYS_timer_settime, Num, Num, In(Bytes(32)), Out(Bytes(32))),
    call!(SYS_timer_gettime, Num, Out(Bytes(32))),
    call!(SYS_timer_getoverrun),
    call!(SYS_timer_delete),
    call!(SYS_clock_settime, Num, In(Bytes(TIMESPEC))),
    call!(SYS_clock_gettime, Num, Out(Bytes(TIMESPEC))),
    call!(SYS_clock_getres, Num, Out(Bytes(TIMESPEC))),
    call!(SYS_clock_nanosleep, Num, Num, In(Bytes(TIMESPEC)), Out(Bytes(TIMESPEC))),
    call!(SYS_epoll_wait, Num, Out(Times(2, EPOLL_EVENT))),
    call!(SYS_epoll_ctl, Num, Num, Num, In(Bytes(EPOLL_EVENT))),
    call!(SYS_tgkill),
    call!(SYS_utimes, Str, In(Bytes(32))),
    call!(SYS_mbind, Never, Num, Num, Never),
    call!(SYS_set_mempolicy, Num, Never),
    call!(SYS_get_mempolicy, Never, Never, Num, Never),
    call!(SYS_mq_open, Str, Num, Num, In(Bytes(64))),
    call!(SYS_mq_unlink, Str),
    call!(SYS_mq_timedsend, Num, In(By(2)), Num, Num, In(Bytes(TIMESPEC))),
    call!(SYS_mq_timedreceive, Num, Out(By(2)), Num, Out(Bytes(4)), In(Bytes(TIMESPEC))),
    call!(SYS_mq_notify, Num, Never),
    call!(SYS_mq_getsetattr, Num, In(Bytes(64)), Out(Bytes(64))),
    call!(SYS_waitid, Num, Num, Out(Bytes(SIGINFO)), Num, Out(Bytes(RUSAGE))),
    call!(SYS_ioprio_set),
    call!(SYS_ioprio_get),
    call!(SYS_inotify_init),
    call!(SYS_inotify_add_watch, Num, Str),
    call!(SYS_inotify_rm_watch),
    call!(SYS_openat, Num, Str),
    call!(SYS_mkdirat, Num, Str),
    call!(SYS_mknodat, Num, Str),
    call!(SYS_fchownat, Num, Str),
    call!(SYS_futimesat, Num, Str, In(Bytes(32))),
    call!(SYS_newfstatat, Num, Str, Out(Bytes(STAT))),
    call!(SYS_unlinkat, Num, Str),
    call!(SYS_renameat, Num, Str, Num, Str),
    call!(SYS_linkat, Num, Str, Num, Str),
    call!(SYS_symlinkat, Str, Num, Str),
    call!(SYS_readlinkat, Num, Str, Out(By(3))),
    call!(SYS_fchmodat, Num, Str),
    call!(SYS_faccessat, Num, Str),
    call!(SYS_pselect6, Num, Out(Bits(0)), Out(Bits(0)), Out(Bits(0)), Out(Bytes(TIMESPEC)), In(Bytes(16))),
    call!(SYS_ppoll, Out(Times(1, POLLFD)), Num, Out(Bytes(TIMESPEC)), In(Bytes(8))),
    call!(SYS_unshare),
    call!(SYS_set_robust_list, Never),
    call!(SYS_get_robust_list, Num, Out(Bytes(8)), Out(Bytes(8))),
    call!(SYS_splice, Num, Out(Bytes(8)), Num, Out(Bytes(8))),
    call!(SYS_tee),
    call!(SYS_sync_file_range),
    call!(SYS_vmsplice, Num, IovIn(2)),
    call!(SYS_utimensat, Num, Str, In(Bytes(32))),
    call!(SYS_epoll_pwait, Num, Out(Times(2, EPOLL_EVENT)), Num, Num, In(Bytes(8))),
    call!(SYS_signalfd, Num, In(Bytes(8))),
    call!(SYS_timerfd_create),
    call!(SYS_eventfd),
    call!(SYS_fallocate),
    call!(SYS_timerfd_settime, Num, Num, In(Bytes(32)), Out(Bytes(32))),
    call!(SYS_timerfd_gettime, Num, Out(Bytes(32))),
    call!(SYS_accept4, Num, Out(At(2)), Out(Bytes(4))),
    call!(SYS_signalfd4, Num, In(Bytes(8))),
    call!(SYS_eventfd2),
    call!(SYS_epoll_create1),
    call!(SYS_dup3),
    call!(SYS_pipe2, Out(Bytes(8))),
    call!(SYS_inotify_init1),
    call!(SYS_preadv, Num, IovOut(2)),
    call!(SYS_pwritev, Num, IovIn(2)),
    call!(SYS_rt_tgsigqueueinfo, Num, Num, Num, In(Bytes(SIGINFO))),
    call!(SYS_perf_event_open, Never),
    call!(SYS_recvmmsg, Num, Never, Num, Num, Out(Bytes(TIMESPEC))),
    call!(SYS_prlimit64, Num, Num, In(Bytes(16)), Out(Bytes(16))),
    call!(SYS_syncfs),
    call!(SYS_sendmmsg, Num, Never),
    call!(SYS_setns),
    call!(SYS_getcpu, Out(Bytes(4)), Out(Bytes(4))),
    call!(SYS_process_vm_readv, Num, Never, Num, Never),
    call!(SYS_process_vm_writev, Num, Never, Num, Never),
    call!(SYS_kcmp),
    call!(SYS_sched_setattr, Num, Never),
    call!(SYS_sched_getattr, Num, Out(By(2))),
    call!(SYS_renameat2, Num, Str, Num, Str),
    call!(SYS_seccomp, Num, Num, Never),
    call!(SYS_getrandom, Out(By(1))),
    call!(SYS_memfd_create, Str),
    call!(SYS_bpf, Num, Never),
    call!(SYS_execveat, Num, Str, Never, Never),
    call!(SYS_userfaultfd),
    call!(SYS_membarrier),
    call!(SYS_mlock2, Never),
    call!(SYS_copy_file_range, Num, Out(Bytes(8)), Num, Out(Bytes(8))),
    call!(SYS_preadv2, Num, IovOut(2)),
    call!(SYS_pwritev2, Num, IovIn(2)),
    call!(SYS_pkey_mprotect, Never),
    call!(SYS_pkey_alloc),
    call!(SYS_pkey_free),
    call!(SYS_statx, Num, Str, Num, Num, Out(Bytes(256))),
    call!(SYS_rseq, Never),
    call!(SYS_pidfd_send_signal, Num, Num, In(Bytes(SIGINFO))),
    call!(SYS_pidfd_open),
    call!(SYS_close_range),
    call!(SYS_openat2, Num, Str, In(By(3))),
    call!(SYS_pidfd_getfd),
    call!(SYS_faccessat2, Num, Str),
    call!(SYS_epoll_pwait2, Num, Out(Times(2, EPOLL_EVENT)), Num, In(Bytes(TIMESPEC)), In(Bytes(8))),
];

/// A row whose every argument must stay out of the segment.
static UNKNOWN: [Arg; 6] = [Arg::Never; 6];

/// The arguments of call `nr`.
pub fn arguments(nr: i64) -> &'static [Arg; 6] {
    match CALLS.binary_search_by_key(&nr, |call| call.nr) {
        Ok(i) => &CALLS[i].args,
        Err(_) => &UNKNOWN,
    }
}

/// Memory that a call touches in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub addr: u64,
    pub bytes: u64,
    pub store: bool,
}

/// An argument (0..6) that points into the segment although its layout is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported(pub usize);

/// Most elements of an `iovec` array that the kernel accepts (UIO_MAXIOV).
const IOV_MAX: u64 = 1024;
const IOVEC_BYTES: u64 = 16;
/// Longest path or string argument looked at, as PATH_MAX.
const STRING_MAX: u64 = 4096;

/// Whether any byte of the range may be shared.
fn touches_segment(addr: u64, bytes: u64) -> bool {
    bytes > 0 && (in_segment(addr) || in_segment(addr.saturating_add(bytes - 1)))
}

/// Calls `visit` with each range of the segment that the call touches. When `visit` returns, the range must be accessible:
/// nested structures are read through it.
///
/// # Errors
/// The argument that is not supported.
///
/// # Safety
/// The arguments are a program's system call: pointers in them are valid or are not in the segment.
pub unsafe fn visit(nr: i64, args: &[u64; 6], visit: &mut impl FnMut(Range)) -> Result<(), Unsupported> {
    for (i, kind) in arguments(nr).iter().enumerate() {
        let addr = args[i];
        match *kind {
            Arg::Num => {}
            Arg::Never if in_segment(addr) => return Err(Unsupported(i)),
            Arg::Never => {}
            Arg::In(len) | Arg::Out(len) => {
                // SAFETY: passed on from the caller.
                let bytes = unsafe { length(len, args, visit) };
                put(visit, addr, bytes, matches!(kind, Arg::Out(_)));
            }
            // SAFETY: passed on from the caller.
            Arg::Str => unsafe { string(addr, visit) },
            Arg::IovIn(count) | Arg::IovOut(count) => {
                // SAFETY: passed on from the caller.
                unsafe { vectors(addr, args[count as usize], matches!(kind, Arg::IovOut(_)), visit) }
            }
            // SAFETY: passed on from the caller.
            Arg::MsgIn | Arg::MsgOut => unsafe { message(addr, matches!(kind, Arg::MsgOut), visit) },
            Arg::Ioctl if in_segment(addr) => {
                let bytes = ioctl_bytes(args[1]).ok_or(Unsupported(i))?;
                put(visit, addr, bytes, true);
            }
            Arg::Ioctl => {}
            Arg::Fcntl => put(visit, addr, fcntl_bytes(args[1]), true),
            Arg::Prctl => put(visit, addr, prctl_bytes(args[0]), true),
            Arg::Futex(operations, bytes) => {
                let operation = args[1] as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
                if operations.checked_shr(operation as u32).unwrap_or(0) & 1 != 0 {
                    put(visit, addr, bytes.into(), true);
                }
            }
        }
    }
    Ok(())
}

/// Bytes behind the argument of an `ioctl` command; `None`: unknown.
fn ioctl_bytes(command: u64) -> Option<u64> {
    match command {
        // The commands from before sizes were encoded.
        libc::FIOCLEX | libc::FIONCLEX | libc::TIOCSCTTY | libc::TIOCNOTTY | libc::TIOCEXCL | libc::TIOCNXCL => Some(0),
        libc::FIONREAD | libc::FIONBIO | libc::FIOASYNC | libc::TIOCGPGRP | libc::TIOCSPGRP | libc::TIOCOUTQ => Some(4),
        libc::TIOCGWINSZ | libc::TIOCSWINSZ => Some(8),
        libc::TCGETS | libc::TCSETS | libc::TCSETSW | libc::TCSETSF => Some(36),
        // _IOC_SIZE: bits 16..30.
        _ => Some(command >> 16 & 0x3fff).filter(|&bytes| bytes > 0),
    }
}

/// Bytes behind the argument of an `fcntl` command; 0: a number, or unused.
fn fcntl_bytes(command: u64) -> u64 {
    match command as i32 {
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW => 32,
        libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => 32,
        // F_SETOWN_EX, F_GETOWN_EX; the read-write hints.
        15 | 16 | 1035..=1038 => 8,
        _ => 0,
    }
}

/// Bytes behind the first argument of a `prctl` option; 0: a number, or unused.
fn prctl_bytes(option: u64) -> u64 {
    match option as i32 {
        libc::PR_SET_NAME | libc::PR_GET_NAME => 16,
        libc::PR_GET_PDEATHSIG | libc::PR_GET_TSC | libc::PR_GET_CHILD_SUBREAPER => 4,
        _ => 0,
    }
}

fn put(visit: &mut impl FnMut(Range), addr: u64, bytes: u64, store: bool) {
    if addr != 0 && touches_segment(addr, bytes) {
        visit(Range { addr, bytes, store });
    }
}

/// # Safety
/// As [`visit`].
unsafe fn length(len: Len, args: &[u64; 6], visit: &mut impl FnMut(Range)) -> u64 {
    match len {
        Len::Bytes(bytes) => bytes.into(),
        Len::Arg(i) => args[i as usize],
        Len::Times(i, bytes) => args[i as usize].saturating_mul(bytes.into()),
        Len::Bits(i) => args[i as usize].min(1 << 20).div_ceil(64) * 8,
        Len::At(i) => {
            let at = args[i as usize];
            if at == 0 {
                return 0;
            }
            put(visit, at, 4, false);
            // SAFETY: the program passes the address of a length; if shared, it is readable now.
            unsafe { (at as *const u32).read_unaligned().into() }
        }
    }
}

/// # Safety
/// As [`visit`].
unsafe fn string(addr: u64, visit: &mut impl FnMut(Range)) {
    let mut at = addr;
    // Only the part inside the segment matters, and a string does not leave the segment once it is in.
    while in_segment(at) && at - addr < STRING_MAX {
        let end = (at | (BLOCK_BYTES - 1)) + 1;
        visit(Range { addr: at, bytes: end - at, store: false });
        while at < end {
            // SAFETY: the block is readable now.
            if unsafe { (at as *const u8).read() } == 0 {
                return;
            }
            at += 1;
        }
    }
}

/// # Safety
/// As [`visit`].
unsafe fn vectors(addr: u64, count: u64, store: bool, visit: &mut impl FnMut(Range)) {
    if addr == 0 || count > IOV_MAX {
        return; // The kernel refuses it.
    }
    put(visit, addr, count * IOVEC_BYTES, false);
    for i in 0..count {
        let vector = (addr + i * IOVEC_BYTES) as *const [u64; 2];
        // SAFETY: the program passes `count` vectors; if shared, they are readable now.
        let [base, bytes] = unsafe { vector.read_unaligned() };
        put(visit, base, bytes, store);
    }
}

/// # Safety
/// As [`visit`].
unsafe fn message(addr: u64, store: bool, visit: &mut impl FnMut(Range)) {
    /// `struct msghdr`: name, name length, vectors, their count, control, its length, flags.
    const MSGHDR_BYTES: u64 = 56;
    if addr == 0 {
        return;
    }
    // The kernel writes lengths and flags back when it receives.
    put(visit, addr, MSGHDR_BYTES, store);
    // SAFETY: the program passes a message header; if shared, it is readable now.
    let words = unsafe { (addr as *const [u64; 7]).read_unaligned() };
    put(visit, words[0], words[1] & 0xffff_ffff, store);
    // SAFETY: passed on from the caller.
    unsafe { vectors(words[2], words[3], store, visit) };
    put(visit, words[4], words[5], store);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::SEGMENT_BASE;

    const S: u64 = SEGMENT_BASE;

    fn ranges(nr: i64, args: [u64; 6]) -> Result<Vec<(u64, u64, bool)>, Unsupported> {
        let mut out = Vec::new();
        // SAFETY: the arguments of these tests point to live memory, or into the segment without being read.
        unsafe { visit(nr, &args, &mut |r| out.push((r.addr, r.bytes, r.store))) }?;
        Ok(out)
    }

    #[test]
    fn the_table_is_sorted_by_number() {
        assert!(CALLS.is_sorted_by(|a, b| a.nr < b.nr));
    }

    #[test]
    fn lengths_come_from_where_the_table_says() {
        assert_eq!(ranges(libc::SYS_read, [0, S + 8, 100, 0, 0, 0]), Ok(vec![(S + 8, 100, true)]));
        assert_eq!(ranges(libc::SYS_write, [1, S + 8, 100, 0, 0, 0]), Ok(vec![(S + 8, 100, false)]));
        assert_eq!(ranges(libc::SYS_fstat, [1, S, 0, 0, 0, 0]), Ok(vec![(S, 144, true)]));
        assert_eq!(ranges(libc::SYS_poll, [S, 3, 0, 0, 0, 0]), Ok(vec![(S, 24, true)]));
        assert_eq!(ranges(libc::SYS_select, [65, S, 0, S + 64, 0, 0]), Ok(vec![(S, 16, true), (S + 64, 16, true)]));
        let length = 28u32;
        let at = &raw const length as u64;
        assert_eq!(ranges(libc::SYS_accept, [3, S, at, 0, 0, 0]), Ok(vec![(S, 28, true)]));
        assert_eq!(ranges(libc::SYS_read, [0, S, 0, 0, 0, 0]), Ok(vec![]), "nothing is touched");
    }

    #[test]
    fn private_pointers_and_large_numbers_are_left_alone() {
        assert_eq!(ranges(libc::SYS_read, [0, 0x7000, 100, 0, 0, 0]), Ok(vec![]));
        assert_eq!(ranges(libc::SYS_lseek, [0, S, 0, 0, 0, 0]), Ok(vec![]), "an offset is not an address");
        assert_eq!(ranges(libc::SYS_pread64, [0, 0x7000, 10, S, 0, 0]), Ok(vec![]));
        assert_eq!(ranges(libc::SYS_getpid, [S; 6]), Ok(vec![]), "unused registers mean nothing");
        assert_eq!(ranges(libc::SYS_fcntl, [1, libc::F_GETFD as u64, S, 0, 0, 0]), Ok(vec![]));
        assert_eq!(ranges(libc::SYS_fcntl, [1, libc::F_SETLK as u64, S, 0, 0, 0]), Ok(vec![(S, 32, true)]));
        let wake = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
        assert_eq!(ranges(libc::SYS_futex, [0x7000, wake, 1, S, S, 0]), Ok(vec![]));
        let wait = libc::FUTEX_WAIT as u64;
        assert_eq!(ranges(libc::SYS_futex, [0x7000, wait, 1, S, S, 0]), Ok(vec![(S, 16, true)]));
    }

    #[test]
    fn a_range_that_reaches_into_the_segment_counts() {
        assert_eq!(ranges(libc::SYS_write, [1, S - 4, 8, 0, 0, 0]), Ok(vec![(S - 4, 8, false)]));
    }

    #[test]
    fn vectors_and_messages_are_followed() {
        let vectors = [[S, 10], [0x7000, 20], [S + 64, 30]];
        let at = vectors.as_ptr() as u64;
        assert_eq!(ranges(libc::SYS_readv, [0, at, 3, 0, 0, 0]), Ok(vec![(S, 10, true), (S + 64, 30, true)]));
        assert_eq!(ranges(libc::SYS_writev, [0, at, 1, 0, 0, 0]), Ok(vec![(S, 10, false)]));
        let header = [S + 128, 16, at, 3, S + 256, 40, 0];
        let message = header.as_ptr() as u64;
        assert_eq!(
            ranges(libc::SYS_sendmsg, [0, message, 0, 0, 0, 0]),
            Ok(vec![(S + 128, 16, false), (S, 10, false), (S + 64, 30, false), (S + 256, 40, false)])
        );
    }

    #[test]
    fn unknown_layouts_are_refused_with_the_argument() {
        const UNKNOWN_CALL: i64 = 9999;
        assert_eq!(ranges(UNKNOWN_CALL, [0, 1, S + 5, 0, 0, 0]), Err(Unsupported(2)));
        assert_eq!(ranges(libc::SYS_munmap, [S, 4096, 0, 0, 0, 0]), Err(Unsupported(0)));
        assert_eq!(ranges(libc::SYS_execve, [0, S, 0, 0, 0, 0]), Err(Unsupported(1)));
        let unknown_command = 0x5499;
        assert_eq!(ranges(libc::SYS_ioctl, [0, unknown_command, S, 0, 0, 0]), Err(Unsupported(2)));
        assert_eq!(ranges(libc::SYS_ioctl, [0, libc::TCGETS, S, 0, 0, 0]), Ok(vec![(S, 36, true)]));
        let with_size = 0x8008_0000 | 0x1234;
        assert_eq!(ranges(libc::SYS_ioctl, [0, with_size, S, 0, 0, 0]), Ok(vec![(S, 8, true)]));
    }
}
