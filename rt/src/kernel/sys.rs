//! Raw Linux system calls of the freestanding runtime.
//!
//! Purpose: the only place of the runtime that executes `syscall` on its own behalf. No errno, no TLS, no libc code: the `libc`
//! crate contributes numbers, constants and structure layouts only. Each wrapper returns the kernel's result or the
//! negated error as [`Errno`].
//! **Invariant**: every instruction here ends up in the runtime blob's text, which Syscall User Dispatch lets through, so the
//! runtime never traps on itself.
//! Source: System V psABI for x86-64, appendix A.2.1 (Linux conventions): number in rax, arguments in rdi, rsi, rdx, r10,
//! r8, r9; rcx and r11 clobbered; results -4095..-1 are errors.

use core::arch::asm;
use core::ffi::CStr;
use core::fmt;

/// A kernel error number (positive).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// Result of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

impl Errno {
    /// The kernel's words for the errors that a user of the runtime can meet; `None` for the others.
    fn text(self) -> Option<&'static str> {
        Some(match self.0 {
            libc::EPERM => "Operation not permitted",
            libc::ENOENT => "No such file or directory",
            libc::EINTR => "Interrupted system call",
            libc::EIO => "Input/output error",
            libc::EBADF => "Bad file descriptor",
            libc::EAGAIN => "Resource temporarily unavailable",
            libc::ENOMEM => "Cannot allocate memory",
            libc::EACCES => "Permission denied",
            libc::EFAULT => "Bad address",
            libc::EEXIST => "File exists",
            libc::ENODEV => "No such device",
            libc::ENOTDIR => "Not a directory",
            libc::EISDIR => "Is a directory",
            libc::EINVAL => "Invalid argument",
            libc::ENFILE => "Too many open files in system",
            libc::EMFILE => "Too many open files",
            libc::ELOOP => "Too many levels of symbolic links",
            libc::ENOSYS => "Function not implemented",
            libc::EOVERFLOW => "Value too large for defined data type",
            libc::ETIMEDOUT => "Connection timed out",
            _ => return None,
        })
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "error {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Executes system call `nr` and returns what the kernel left in rax.
///
/// # Safety
/// The call must be sound for the process: pointers valid for what the kernel does with them, and no memory that Rust
/// code relies on is unmapped or changed behind its back.
#[inline(always)]
pub unsafe fn raw(nr: i64, args: [u64; 6]) -> i64 {
    let ret: i64;
    // SAFETY: the register convention is the kernel's (see the module's source); the caller vouches for the call's effect.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr => ret,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    ret
}

/// [`raw`] with the error decoded.
///
/// # Safety
/// As [`raw`].
#[inline(always)]
pub unsafe fn call(nr: i64, args: [u64; 6]) -> Result<u64> {
    // SAFETY: passed on from the caller.
    let ret = unsafe { raw(nr, args) };
    if (-4095..0).contains(&ret) { Err(Errno(-ret as i32)) } else { Ok(ret as u64) }
}

/// Maps memory; `flags` as `mmap(2)` has them.
///
/// # Safety
/// With MAP_FIXED nothing in use may lie in the range; a shared mapping of a file can change at any time.
pub unsafe fn mmap(addr: u64, bytes: u64, prot: i32, flags: i32, fd: i32, offset: u64) -> Result<u64> {
    // SAFETY: passed on from the caller.
    unsafe { call(libc::SYS_mmap, [addr, bytes, prot as u64, flags as u64, fd as i64 as u64, offset]) }
}

/// Unmaps memory.
///
/// # Safety
/// Nothing may use the range afterwards.
pub unsafe fn munmap(addr: u64, bytes: u64) -> Result<()> {
    // SAFETY: passed on from the caller.
    unsafe { call(libc::SYS_munmap, [addr, bytes, 0, 0, 0, 0]) }.map(drop)
}

/// Changes the protection of pages.
///
/// # Safety
/// No live reference may need an access that the new protection forbids.
pub unsafe fn mprotect(addr: u64, bytes: u64, prot: i32) -> Result<()> {
    // SAFETY: passed on from the caller.
    unsafe { call(libc::SYS_mprotect, [addr, bytes, prot as u64, 0, 0, 0]) }.map(drop)
}

/// Maps the pages of a shared mapping a second time, at `to`, in place of what is there.
///
/// # Safety
/// `[from, from + bytes)` is a MAP_SHARED mapping; nothing relies on what lies at `to`.
pub unsafe fn remap_shared(from: u64, bytes: u64, to: u64) -> Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: an old size of 0 leaves the old mapping in place; the target is the caller's promise.
    unsafe { call(libc::SYS_mremap, [from, 0, bytes, flags as u64, to, 0]) }.map(drop)
}

/// Sets the base of `%gs` of the calling thread; threads and processes that it makes have the same.
///
/// # Safety
/// Nothing uses `%gs` otherwise.
pub unsafe fn set_gs_base(base: u64) -> Result<()> {
    const ARCH_SET_GS: u64 = 0x1001;
    // SAFETY: passed on from the caller.
    unsafe { call(libc::SYS_arch_prctl, [ARCH_SET_GS, base, 0, 0, 0, 0]) }.map(drop)
}

/// Advises the kernel about a range.
///
/// # Safety
/// MADV_DONTNEED and its kin drop contents: nothing may rely on them.
pub unsafe fn madvise(addr: u64, bytes: u64, advice: i32) -> Result<()> {
    // SAFETY: passed on from the caller.
    unsafe { call(libc::SYS_madvise, [addr, bytes, advice as u64, 0, 0, 0]) }.map(drop)
}

/// Opens a file (`openat` relative to the working directory).
pub fn open(path: &CStr, flags: i32) -> Result<i32> {
    openat(libc::AT_FDCWD, path, flags)
}

/// Opens a file without creating it; a relative path begins at the open folder.
pub fn openat(folder: i32, path: &CStr, flags: i32) -> Result<i32> {
    // SAFETY: the kernel reads the NUL-terminated path and nothing else.
    unsafe { call(libc::SYS_openat, [i64::from(folder) as u64, path.as_ptr() as u64, (flags as u32).into(), 0, 0, 0]) }
        .map(|fd| fd as i32)
}

/// Closes a file descriptor.
pub fn close(fd: i32) -> Result<()> {
    // SAFETY: no memory is touched.
    unsafe { call(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) }.map(drop)
}

/// Reads from the file's position; returns the bytes read.
pub fn read(fd: i32, buf: &mut [u8]) -> Result<usize> {
    // SAFETY: the kernel writes at most `len` bytes into the exclusive slice.
    unsafe { call(libc::SYS_read, [fd as u64, buf.as_mut_ptr() as u64, buf.len() as u64, 0, 0, 0]) }.map(|n| n as usize)
}

/// Reads at `offset`; returns the bytes read.
pub fn pread(fd: i32, buf: &mut [u8], offset: u64) -> Result<usize> {
    // SAFETY: the kernel writes at most `len` bytes into the exclusive slice.
    unsafe { call(libc::SYS_pread64, [fd as u64, buf.as_mut_ptr() as u64, buf.len() as u64, offset, 0, 0]) }
        .map(|n| n as usize)
}

/// Writes at `offset`; returns the bytes written.
pub fn pwrite(fd: i32, buf: &[u8], offset: u64) -> Result<usize> {
    // SAFETY: the kernel only reads the slice.
    unsafe { call(libc::SYS_pwrite64, [fd as u64, buf.as_ptr() as u64, buf.len() as u64, offset, 0, 0]) }
        .map(|n| n as usize)
}

/// Writes; returns the bytes written.
pub fn write(fd: i32, buf: &[u8]) -> Result<usize> {
    // SAFETY: the kernel only reads the slice.
    unsafe { call(libc::SYS_write, [fd as u64, buf.as_ptr() as u64, buf.len() as u64, 0, 0, 0]) }.map(|n| n as usize)
}

/// File status.
pub fn fstat(fd: i32) -> Result<libc::stat> {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills the structure, which is large enough and exclusive.
    unsafe { call(libc::SYS_fstat, [fd as u64, stat.as_mut_ptr() as u64, 0, 0, 0, 0]) }?;
    // SAFETY: filled by the kernel; all-zero bytes would be valid too.
    Ok(unsafe { stat.assume_init() })
}

/// Whether the process certainly has one thread: the folder of its threads has two links more than there are. False where that is not to be found out.
pub fn is_only_thread() -> bool {
    let mut stat = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel reads the string and fills the structure, which is large enough and exclusive.
    let done = unsafe {
        let path = c"/proc/self/task".as_ptr() as u64;
        call(libc::SYS_stat, [path, stat.as_mut_ptr() as u64, 0, 0, 0, 0])
    };
    // SAFETY: filled by the kernel; all-zero bytes would be valid too.
    done.is_ok() && unsafe { stat.assume_init() }.st_nlink == 3
}

/// Bytes of the machine's memory, swap included; 0 if the kernel does not say.
pub fn memory_bytes() -> u64 {
    let mut info = core::mem::MaybeUninit::<libc::sysinfo>::zeroed();
    // SAFETY: the kernel fills the structure, which is large enough and exclusive.
    if unsafe { call(libc::SYS_sysinfo, [info.as_mut_ptr() as u64, 0, 0, 0, 0, 0]) }.is_err() {
        return 0;
    }
    // SAFETY: filled by the kernel; all-zero bytes would be valid too.
    let info = unsafe { info.assume_init() };
    info.totalram.saturating_add(info.totalswap).saturating_mul(info.mem_unit.into())
}

/// Sleeps while `*word == expected`, at most `timeout_ns` if given. Works between processes (not FUTEX_PRIVATE).
/// Returns at once with EAGAIN when the word differs; wakes spuriously like any futex.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, expected: u32, timeout_ns: Option<u64>) -> Result<()> {
    let time = timeout_ns.map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]);
    let time_addr = time.as_ref().map_or(0, |t| t.as_ptr() as u64);
    // SAFETY: the kernel reads the word atomically and the timespec, both alive for the call.
    unsafe { call(libc::SYS_futex, [word.as_ptr() as u64, libc::FUTEX_WAIT as u64, expected.into(), time_addr, 0, 0]) }
        .map(drop)
}

/// Wakes up to `count` sleepers of [`futex_wait`], in any process that maps the word; returns how many.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32, count: u32) -> Result<u32> {
    // SAFETY: the kernel uses the address as a key only.
    unsafe { call(libc::SYS_futex, [word.as_ptr() as u64, libc::FUTEX_WAKE as u64, count.into(), 0, 0, 0]) }
        .map(|n| n as u32)
}

/// Lets another runnable thread go first.
pub fn sched_yield() {
    // SAFETY: no memory is touched.
    let _ = unsafe { raw(libc::SYS_sched_yield, [0; 6]) };
}

/// Words of a set of processors: enough for 1,024.
pub const PROCESSOR_WORDS: usize = 16;

/// The processor that the calling thread runs on.
pub fn processor() -> Option<u32> {
    let mut processor = 0u32;
    // SAFETY: the kernel writes the word.
    let result = unsafe { raw(libc::SYS_getcpu, [(&raw mut processor) as u64, 0, 0, 0, 0, 0]) };
    (result == 0).then_some(processor)
}

/// The processors that the calling thread may use, if the kernel has no more than a set holds.
pub fn allowed_processors() -> Option<[u64; PROCESSOR_WORDS]> {
    let mut set = [0u64; PROCESSOR_WORDS];
    let bytes = size_of_val(&set) as u64;
    // SAFETY: the kernel writes at most so many bytes.
    let result = unsafe { raw(libc::SYS_sched_getaffinity, [0, bytes, set.as_mut_ptr() as u64, 0, 0, 0]) };
    (result > 0).then_some(set)
}

/// Lets the calling thread use these processors only.
pub fn allow_processors(set: &[u64; PROCESSOR_WORDS]) {
    // SAFETY: the kernel reads the set. Refused when it names no processor that there is; then nothing changes.
    let _ = unsafe { raw(libc::SYS_sched_setaffinity, [0, size_of_val(set) as u64, set.as_ptr() as u64, 0, 0, 0]) };
}

/// Time of a clock in nanoseconds; 0 when there is no such clock.
pub fn clock_ns(clock: i64) -> i64 {
    let mut time = [0i64; 2];
    // SAFETY: the kernel writes the two words.
    match unsafe { call(libc::SYS_clock_gettime, [clock as u64, time.as_mut_ptr() as u64, 0, 0, 0, 0]) } {
        Ok(_) => time[0] * 1_000_000_000 + time[1],
        Err(_) => 0,
    }
}

/// The time-stamp counter.
#[inline]
pub fn cycles() -> u64 {
    // SAFETY: every x86-64 processor has it, and Linux leaves it enabled for user mode.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Nanoseconds of the monotonic clock.
pub fn monotonic_ns() -> u64 {
    let mut time = [0u64; 2];
    // SAFETY: the kernel fills the two words (a timespec).
    let _ =
        unsafe { raw(libc::SYS_clock_gettime, [libc::CLOCK_MONOTONIC as u64, time.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    time[0] * 1_000_000_000 + time[1]
}

/// Stands for the calling process in [`processor_time_ns`]; no other one has this number.
pub const OWN_PROCESS: u32 = 0;

/// Processor time of a process, in nanoseconds, up to this moment; `None` when there is no such process.
pub fn processor_time_ns(pid: u32) -> Option<u64> {
    // The clock of a whole process that counts what the scheduler does (clock_getcpuclockid).
    const SCHEDULED: u64 = 2;
    let clock = (!i64::from(pid) << 3) as u64 | SCHEDULED;
    let mut time = [0u64; 2];
    // SAFETY: the kernel fills the two words (a timespec).
    let result = unsafe { raw(libc::SYS_clock_gettime, [clock, time.as_mut_ptr() as u64, 0, 0, 0, 0]) };
    (result == 0).then(|| time[0] * 1_000_000_000 + time[1])
}

/// Ends the process.
pub fn exit_group(status: i32) -> ! {
    loop {
        // SAFETY: does not return; no memory is touched.
        let _ = unsafe { raw(libc::SYS_exit_group, [status as u64, 0, 0, 0, 0, 0]) };
    }
}

/// The kernel's `struct sigaction` (not libc's, whose field order and mask size differ).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelSigaction {
    /// Handler address; 0 SIG_DFL, 1 SIG_IGN.
    pub handler: u64,
    /// SA_* bits. SA_RESTORER is mandatory on x86-64.
    pub flags: u64,
    /// Where the handler returns to; must execute `rt_sigreturn`.
    pub restorer: u64,
    /// Signals blocked while the handler runs: bit `n - 1` for signal `n`.
    pub mask: u64,
}

/// `SA_RESTORER`, which libc does not export.
pub const SA_RESTORER: u64 = 0x0400_0000;

/// Sets a signal's action; returns the former one.
///
/// # Safety
/// The handler and restorer must be sound to run at any instruction of the process.
pub unsafe fn rt_sigaction(signal: i32, action: &KernelSigaction) -> Result<KernelSigaction> {
    let mut old = KernelSigaction::default();
    // SAFETY: both structures have the kernel's layout; the caller vouches for the handler.
    unsafe {
        call(libc::SYS_rt_sigaction, [signal as u64, action as *const _ as u64, &mut old as *mut _ as u64, 8, 0, 0])
    }?;
    Ok(old)
}

/// Replaces the thread's signal mask; returns the former one.
pub fn set_signal_mask(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: the kernel reads one word and writes one word.
    let _ = unsafe {
        raw(
            libc::SYS_rt_sigprocmask,
            [libc::SIG_SETMASK as u64, &mask as *const u64 as u64, &mut old as *mut u64 as u64, 8, 0, 0],
        )
    };
    old
}

/// The thread's signal mask.
pub fn signal_mask() -> u64 {
    let mut mask = 0u64;
    // SAFETY: the kernel writes one word.
    let _ = unsafe { raw(libc::SYS_rt_sigprocmask, [0, 0, &raw mut mask as u64, 8, 0, 0]) };
    mask
}

/// Blocks these as well; returns the former mask.
pub fn block_signals(mask: u64) -> u64 {
    let mut old = 0u64;
    // SAFETY: the kernel reads one word and writes one word.
    let _ = unsafe {
        raw(libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK as u64, &raw const mask as u64, &raw mut old as u64, 8, 0, 0])
    };
    old
}

/// Lets blocked signals in; pending ones are delivered before this returns.
pub fn unblock_signals(mask: u64) {
    // SAFETY: the kernel reads one word.
    let _ =
        unsafe { raw(libc::SYS_rt_sigprocmask, [libc::SIG_UNBLOCK as u64, &mask as *const u64 as u64, 0, 8, 0, 0]) };
}

/// Process control.
///
/// # Safety
/// Depends on `option`; see `prctl(2)`.
pub unsafe fn prctl(option: i32, a: u64, b: u64, c: u64, d: u64) -> Result<u64> {
    // SAFETY: passed on from the caller.
    unsafe { call(libc::SYS_prctl, [option as u64, a, b, c, d, 0]) }
}

/// Copies this process's memory at `addr` without the danger of a fault.
///
/// # Errors
/// EFAULT if not all of it can be read.
pub fn read_own_memory(addr: u64, bytes: &mut [u8]) -> Result<()> {
    let local = [bytes.as_mut_ptr() as u64, bytes.len() as u64];
    let remote = [addr, bytes.len() as u64];
    let (local_at, remote_at) = (&raw const local as u64, &raw const remote as u64);
    // SAFETY: the kernel writes into `bytes` only, as many as it has; the vectors are alive.
    match unsafe { call(libc::SYS_process_vm_readv, [getpid() as u64, local_at, 1, remote_at, 1, 0]) } {
        Ok(n) if n == bytes.len() as u64 => Ok(()),
        Err(Errno(libc::EPERM | libc::ENOSYS)) => {
            // A container's filter forbids the call. What the program passes to the kernel is valid, or it would be told so.
            // SAFETY: the program's own pointer; a wrong one faults here as a use by the program would.
            unsafe { core::ptr::copy_nonoverlapping(addr as *const u8, bytes.as_mut_ptr(), bytes.len()) };
            Ok(())
        }
        _ => Err(Errno(libc::EFAULT)),
    }
}

/// Writes to this process's memory at `addr` without the danger of a fault.
///
/// # Errors
/// EFAULT if not all of it can be written.
///
/// # Safety
/// Nothing of the runtime lies there.
pub unsafe fn write_own_memory(addr: u64, bytes: &[u8]) -> Result<()> {
    let local = [bytes.as_ptr() as u64, bytes.len() as u64];
    let remote = [addr, bytes.len() as u64];
    let (local_at, remote_at) = (&raw const local as u64, &raw const remote as u64);
    // SAFETY: the kernel writes where the caller says, or nothing; the vectors are alive.
    match unsafe { call(libc::SYS_process_vm_writev, [getpid() as u64, local_at, 1, remote_at, 1, 0]) } {
        Ok(n) if n == bytes.len() as u64 => Ok(()),
        Err(Errno(libc::EPERM | libc::ENOSYS)) => {
            // A container's filter forbids the call: a wrong address faults here, as a store of the program would.
            // SAFETY: the caller's promise.
            unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), addr as *mut u8, bytes.len()) };
            Ok(())
        }
        _ => Err(Errno(libc::EFAULT)),
    }
}

/// Copies memory of another process that runs under the same user to memory of this one.
///
/// # Errors
/// EPERM or ENOSYS where the kernel does not let processes do that; EFAULT when not all of it is mapped on both sides.
///
/// # Safety
/// `to` is the caller's to overwrite, as far as it is mapped.
pub unsafe fn read_process(process: i32, from: u64, to: u64, bytes: u64) -> Result<()> {
    let mut done = 0;
    while done < bytes {
        let local = [to + done, bytes - done];
        let remote = [from + done, bytes - done];
        let (local_at, remote_at) = (&raw const local as u64, &raw const remote as u64);
        // SAFETY: the kernel checks both ranges; the vectors are alive; the caller vouches for the target.
        match unsafe { call(libc::SYS_process_vm_readv, [process as u64, local_at, 1, remote_at, 1, 0]) } {
            Ok(0) => return Err(Errno(libc::EFAULT)),
            Ok(n) => done += n,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Creates a file in memory, closed at `execve`.
pub fn memfd(name: &CStr) -> Result<i32> {
    // SAFETY: the kernel reads the NUL-terminated name.
    unsafe { call(libc::SYS_memfd_create, [name.as_ptr() as u64, libc::MFD_CLOEXEC.into(), 0, 0, 0, 0]) }
        .map(|fd| fd as i32)
}

/// Starts a thread that shares everything with this one but its stack, and runs `run`.
///
/// # Safety
/// `stack_top` is the 16-byte aligned end of memory that nobody else uses; `run` needs no thread-local storage and no library.
pub unsafe fn spawn_thread(stack_top: u64, run: extern "C" fn() -> !) -> Result<()> {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM;
    // SAFETY: the child leaves this function by the call of `run` only, on its own stack.
    let result = unsafe { clone_and_run(flags as u64, stack_top, run as *const () as u64) };
    if (-4095..0).contains(&result) { Err(Errno(-result as i32)) } else { Ok(()) }
}

/// # Safety
/// See [`spawn_thread`].
#[unsafe(naked)]
unsafe extern "C" fn clone_and_run(_flags: u64, _stack_top: u64, _run: u64) -> i64 {
    core::arch::naked_asm!(
        "mov r9, rdx",      // run: the child has the parent's registers
        "xor edx, edx",
        "xor r10d, r10d",
        "xor r8d, r8d",
        "mov eax, {clone}",
        "syscall",
        "test rax, rax",
        "jz 2f",
        "ret",
        "2: xor ebp, ebp",  // outermost frame
        "call r9",          // rsp is a multiple of 16
        clone = const libc::SYS_clone,
    )
}

/// This process's number.
pub fn getpid() -> i32 {
    // SAFETY: no memory is touched.
    unsafe { raw(libc::SYS_getpid, [0; 6]) as i32 }
}

/// The parent's number.
pub fn getppid() -> i32 {
    // SAFETY: no memory is touched.
    unsafe { raw(libc::SYS_getppid, [0; 6]) as i32 }
}

/// This thread's number.
pub fn gettid() -> i32 {
    // SAFETY: no memory is touched.
    unsafe { raw(libc::SYS_gettid, [0; 6]) as i32 }
}

/// Sends a signal to one thread.
pub fn tgkill(pid: i32, tid: i32, signal: i32) -> Result<()> {
    // SAFETY: no memory is touched by the call itself.
    unsafe { call(libc::SYS_tgkill, [pid as u64, tid as u64, signal as u64, 0, 0, 0]) }.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_decoded() {
        assert_eq!(open(c"/no/such/file", libc::O_RDONLY), Err(Errno(libc::ENOENT)));
        assert_eq!(close(-1), Err(Errno(libc::EBADF)));
        assert_eq!(Errno(libc::ENOENT).to_string(), "No such file or directory");
        assert_eq!(Errno(4000).to_string(), "error 4000");
    }

    #[test]
    fn files_and_memory() {
        let fd = open(c"/proc/self/exe", libc::O_RDONLY | libc::O_CLOEXEC).unwrap();
        let mut magic = [0u8; 4];
        assert_eq!(pread(fd, &mut magic, 0).unwrap(), 4);
        assert_eq!(&magic, b"\x7fELF");
        assert!(fstat(fd).unwrap().st_size > 4);
        close(fd).unwrap();
        // SAFETY: a fresh anonymous mapping that nothing else knows.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let at = mmap(0, 8192, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0).unwrap();
            (at as *mut u8).write(7);
            mprotect(at, 4096, libc::PROT_READ).unwrap();
            assert_eq!((at as *const u8).read(), 7);
            munmap(at, 8192).unwrap();
        }
        assert!(monotonic_ns() > 0);
        let before = processor_time_ns(std::process::id()).unwrap();
        while processor_time_ns(std::process::id()).unwrap() == before {}
        assert_eq!(processor_time_ns(0x7fff_fff0), None);
        assert_eq!(getpid(), std::process::id() as i32);
    }

    #[test]
    fn a_thread_goes_to_the_processor_that_it_is_allowed() {
        let all = allowed_processors().unwrap();
        let here = processor().unwrap() as usize;
        assert_eq!(all[here / 64] >> (here % 64) & 1, 1);
        for word in 0..PROCESSOR_WORDS {
            for bit in (0..64).filter(|bit| all[word] >> bit & 1 == 1) {
                let mut one = [0; PROCESSOR_WORDS];
                one[word] = 1 << bit;
                allow_processors(&one);
                assert_eq!(processor(), Some((64 * word + bit) as u32));
            }
        }
        allow_processors(&all);
        assert_eq!(allowed_processors(), Some(all));
    }

    #[test]
    fn futex_reports_a_changed_word_and_a_timeout() {
        let word = core::sync::atomic::AtomicU32::new(3);
        assert_eq!(futex_wait(&word, 4, None), Err(Errno(libc::EAGAIN)));
        assert_eq!(futex_wait(&word, 3, Some(1000)), Err(Errno(libc::ETIMEDOUT)));
        assert_eq!(futex_wake(&word, 1), Ok(0));
    }
}
