//! Which arguments of which system call point to memory, and how much.
//!
//! Purpose: the kernel does not look at tags, so what a call reads or writes in shared memory must be made accessible before it. Input: a
//! call's number and arguments. Output: the ranges in the segment that it touches, through a visitor.
//! **Invariant**: a call that is not in the table, or an argument whose layout is not known, is an error as soon as the argument
//! points into the segment; it is never let through unchecked.
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
    /// The argument of `ioctl`: its size is in bits 16..30 of the command.
    Ioctl,
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

use Arg::{In, Ioctl, IovIn, IovOut, MsgIn, MsgOut, Never, Num, Out, Str};
use Len::{Arg as By, At, Bits, Bytes, Times};

const STAT: u32 = 144;
const TIMESPEC: u32 = 16;
const RUSAGE: u32 = 144;
const SIGINFO: u32 = 128;
const STATFS: u32 = 120;
const EPOLL_EVENT: u32 = 12;
const POLLFD: u32 = 8;

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
    call!(SYS_nanosleep, In(Bytes(TIMESPEC)), Out(Bytes(TIMESPEC))),
    call!(SYS_getitimer, Num, Out(Bytes(32))),
    call!(SYS_setitimer, Num, In(Bytes(32)), Out(Bytes(32))),
    call!(SYS_sendfile, Num, Num, Out(Bytes(8))),
    call!(SYS_connect, Num, In(By(2))),
    call!(SYS_accept, Num, Out(At(2)), Out(Bytes(4))),
    call!(SYS_sendto, Num, In(By(2)), Num, Num, In(By(5))),
    call!(SYS_recvfrom, Num, Out(By(2)), Num, Num, Out(At(5)), Out(Bytes(4))),
    call!(SYS_sendmsg, Num, MsgIn),
    call!(SYS_recvmsg, Num, MsgOut),
    call!(SYS_bind, Num, In(By(2))),
    call!(SYS_getsockname, Num, Out(At(2)), Out(Bytes(4))),
    call!(SYS_getpeername, Num, Out(At(2)), Out(Bytes(4))),
    call!(SYS_socketpair, Num, Num, Num, Out(Bytes(8))),
    call!(SYS_setsockopt, Num, Num, Num, In(By(4))),
    call!(SYS_getsockopt, Num, Num, Num, Out(At(4)), Out(Bytes(4))),
    call!(SYS_execve, Str, Never, Never),
    call!(SYS_wait4, Num, Out(Bytes(4)), Num, Out(Bytes(RUSAGE))),
    call!(SYS_uname, Out(Bytes(390))),
    // Locks are the only pointers, `struct flock` of 32 bytes; numbers are never as large as a segment address.
    call!(SYS_fcntl, Num, Num, Out(Bytes(32))),
    call!(SYS_truncate, Str),
    call!(SYS_ftruncate),
    call!(SYS_getdents, Num, Out(By(2))),
    call!(SYS_getcwd, Out(By(1))),
    call!(SYS_chdir, Str),
    call!(SYS_rename, Str, Str),
    call!(SYS_mkdir, Str),
    call!(SYS_rmdir, Str),
    call!(SYS_creat, Str),
    call!(SYS_link, Str, Str),
    call!(SYS_unlink, Str),
    call!(SYS_symlink, Str, Str),
    call!(SYS_readlink, Str, Out(By(2))),
    call!(SYS_chmod, Str),
    call!(SYS_chown, Str),
    call!(SYS_lchown, Str),
    call!(SYS_gettimeofday, Out(Bytes(16)), Out(Bytes(8))),
    call!(SYS_getrlimit, Num, Out(Bytes(16))),
    call!(SYS_getrusage, Num, Out(Bytes(RUSAGE))),
    call!(SYS_sysinfo, Out(Bytes(112))),
    call!(SYS_times, Out(Bytes(32))),
    call!(SYS_getgroups, Num, Out(Times(0, 4))),
    call!(SYS_rt_sigpending, Out(By(1))),
    call!(SYS_rt_sigtimedwait, In(Bytes(8)), Out(Bytes(SIGINFO)), In(Bytes(TIMESPEC))),
    call!(SYS_rt_sigqueueinfo, Num, Num, In(Bytes(SIGINFO))),
    call!(SYS_rt_sigsuspend, In(Bytes(8))),
    call!(SYS_sigaltstack, In(Bytes(24)), Out(Bytes(24))),
    call!(SYS_utime, Str, In(Bytes(16))),
    call!(SYS_statfs, Str, Out(Bytes(STATFS))),
    call!(SYS_fstatfs, Num, Out(Bytes(STATFS))),
    call!(SYS_setrlimit, Num, In(Bytes(16))),
    call!(SYS_futex, Out(Bytes(4)), Num, Num, In(Bytes(TIMESPEC)), Out(Bytes(4))),
    call!(SYS_sched_setaffinity, Num, Num, In(By(1))),
    call!(SYS_sched_getaffinity, Num, Num, Out(By(1))),
    call!(SYS_getdents64, Num, Out(By(2))),
    call!(SYS_fadvise64),
    call!(SYS_timer_create, Num, In(Bytes(64)), Out(Bytes(4))),
    call!(SYS_timer_settime, Num, Num, In(Bytes(32)), Out(Bytes(32))),
    call!(SYS_clock_settime, Num, In(Bytes(TIMESPEC))),
    call!(SYS_clock_gettime, Num, Out(Bytes(TIMESPEC))),
    call!(SYS_clock_getres, Num, Out(Bytes(TIMESPEC))),
    call!(SYS_clock_nanosleep, Num, Num, In(Bytes(TIMESPEC)), Out(Bytes(TIMESPEC))),
    call!(SYS_epoll_wait, Num, Out(Times(2, EPOLL_EVENT))),
    call!(SYS_epoll_ctl, Num, Num, Num, In(Bytes(EPOLL_EVENT))),
    call!(SYS_utimes, Str, In(Bytes(32))),
    call!(SYS_waitid, Num, Num, Out(Bytes(SIGINFO)), Num, Out(Bytes(RUSAGE))),
    call!(SYS_openat, Num, Str),
    call!(SYS_mkdirat, Num, Str),
    call!(SYS_fchownat, Num, Str),
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
    call!(SYS_splice, Num, Out(Bytes(8)), Num, Out(Bytes(8))),
    call!(SYS_utimensat, Num, Str, In(Bytes(32))),
    call!(SYS_epoll_pwait, Num, Out(Times(2, EPOLL_EVENT)), Num, Num, In(Bytes(8))),
    call!(SYS_fallocate),
    call!(SYS_accept4, Num, Out(At(2)), Out(Bytes(4))),
    call!(SYS_pipe2, Out(Bytes(8))),
    call!(SYS_preadv, Num, IovOut(2)),
    call!(SYS_pwritev, Num, IovIn(2)),
    call!(SYS_prlimit64, Num, Num, In(Bytes(16)), Out(Bytes(16))),
    call!(SYS_renameat2, Num, Str, Num, Str),
    call!(SYS_getrandom, Out(By(1))),
    call!(SYS_memfd_create, Str),
    call!(SYS_execveat, Num, Str, Never, Never),
    call!(SYS_copy_file_range, Num, Out(Bytes(8)), Num, Out(Bytes(8))),
    call!(SYS_preadv2, Num, IovOut(2)),
    call!(SYS_pwritev2, Num, IovIn(2)),
    call!(SYS_statx, Num, Str, Num, Num, Out(Bytes(256))),
    call!(SYS_openat2, Num, Str, In(By(3))),
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
                // _IOC_SIZE; old commands carry no size, hence an unknown layout.
                let bytes = args[1] >> 16 & 0x3fff;
                if bytes == 0 {
                    return Err(Unsupported(i));
                }
                put(visit, addr, bytes, true);
            }
            Arg::Ioctl => {}
        }
    }
    Ok(())
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
        assert_eq!(ranges(libc::SYS_getpid, [0; 6]), Ok(vec![]));
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
        let tcgets = 0x5401;
        assert_eq!(ranges(libc::SYS_ioctl, [0, tcgets, S, 0, 0, 0]), Err(Unsupported(2)));
        let with_size = 0x8008_0000 | 0x1234;
        assert_eq!(ranges(libc::SYS_ioctl, [0, with_size, S, 0, 0, 0]), Ok(vec![(S, 8, true)]));
    }
}
