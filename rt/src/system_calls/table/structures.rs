//! Structures that hold further pointers.
//!
//! Input: an argument that is the address of one. Output: the visitor has been given all its parts and what they lead to; what the kernel is given.
//! Source: Linux `include/uapi`; section 2 of the manual.

use crate::system_calls::table::calls::{SIGEVENT, TIMESPEC};
use crate::system_calls::table::copies::{Fields, Structure};
use crate::system_calls::table::row::Layout;
use crate::system_calls::table::visitor::{LookResult, LookStop, Visitor};

/// Most elements of an `iovec` array, and of messages in one call, that the kernel accepts (UIO_MAXIOV).
const IOV_MAX: u64 = 1024;
const IOVEC_BYTES: u64 = 16;
/// Vectors read at once.
const IOV_CHUNK: usize = 16;
const MSGHDR_BYTES: u64 = 56;
const MMSGHDR_BYTES: u64 = 64;
/// What the kernel writes in a message: the name's length; the control data's, and flags; in an array, the message's length.
const RECEIVED: Fields = &[(8, 4), (40, 12)];
const RECEIVED_MANY: Fields = &[(8, 4), (40, 12), (56, 4)];
const SENT_MANY: Fields = &[(56, 4)];
/// Most bytes of a file handle (MAX_HANDLE_SZ).
const HANDLE_MAX: u64 = 128;
const HANDLE_HEADER_BYTES: u64 = 8;
/// FUTEX_WAITV_MAX.
const WAITERS_MAX: u64 = 128;
const WAITER_BYTES: u64 = 24;
const IOCB_BYTES: u64 = 64;
/// `sigev_notify` of a notification by `mq_notify` through a socket, and the bytes that it sends.
const SIGEV_THREAD: u32 = 2;
const COOKIE_BYTES: u64 = 32;
/// Version 1 of capabilities: one set of 32 bits.
const CAPABILITY_VERSION_1: u32 = 0x1998_0330;
/// Size of `struct perf_event_attr` when it says 0.
const PERF_ATTR_FIRST: u64 = 64;
/// No structure of a call is larger than a page.
const STRUCT_MAX: u64 = 4096;
/// `AT_HANDLE_MNT_ID_UNIQUE`.
const MNT_ID_UNIQUE: u64 = 1;
/// Words of `struct clone_args` today.
const CLONE_ARGS_WORDS: usize = 11;
/// Most strings of a program's arguments and environment that are looked at.
const STRINGS_MAX: u64 = 1 << 20;

/// What is done with the other process's side of a transfer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Buffers {
    Read,
    Written,
    Remote,
}

impl Visitor<'_> {
    /// Follows argument `i`, which is the address of a `layout` or a command's argument. What the kernel is given.
    pub fn structure(&mut self, i: usize, layout: Layout) -> LookResult<u64> {
        let addr = self.args[i];
        let value = |i: u8| self.args[usize::from(i)];
        match layout {
            Layout::Strings => self.strings(addr),
            Layout::IovIn(count) => self.vectors(addr, value(count), Buffers::Read),
            Layout::IovOut(count) => self.vectors(addr, value(count), Buffers::Written),
            Layout::IovRemote(count) => self.vectors(addr, value(count), Buffers::Remote),
            Layout::MsgIn => self.one_message(addr, false),
            Layout::MsgOut => self.one_message(addr, true),
            Layout::MmsgIn(count) => self.messages(addr, self.int(count), false),
            Layout::MmsgOut(count) => self.messages(addr, self.int(count), true),
            Layout::SigsetPair => self.sigset_pair(addr),
            Layout::SignalStack => self.signal_stack(addr),
            Layout::MqNotify => self.mq_notify(addr),
            Layout::Caps => self.caps(i, addr),
            Layout::Sized => self.sized(addr, addr, 0, false),
            Layout::PerfAttr => self.sized(addr, addr.wrapping_add(4), PERF_ATTR_FIRST, true),
            Layout::CloneArgs(bytes) => self.clone_args(addr, value(bytes)),
            Layout::Iocbs(count) => self.iocbs(addr, value(count)),
            Layout::Waiters(count) => self.waiters(addr, self.int(count)),
            Layout::TwoWaiters => self.waiters(addr, 2),
            Layout::HandleIn => self.handle(addr, false),
            Layout::HandleOut => self.handle(addr, true),
            Layout::MountId => {
                let bytes = if self.args[4] & MNT_ID_UNIQUE != 0 { 8 } else { 4 };
                Ok(self.put(addr, bytes, true))
            }
            Layout::XattrIn => self.xattr(addr, false),
            Layout::XattrOut => self.xattr(addr, true),
            Layout::Opaque(bytes) => self.opaque(addr, self.int(bytes)),
            Layout::FutexTimeout(operations) => {
                Ok(if self.futex_is(operations) { self.put(addr, TIMESPEC.into(), false) } else { addr })
            }
            // Sleepers would move to a word where nobody wakes them.
            Layout::FutexWord(operations) if self.futex_is(operations) => self.keep_out_for_good(addr),
            Layout::FutexWord(_) => Ok(addr),
            by_command => self.by_command(i, by_command),
        }
    }

    /// Whether the operation of this `futex` is one of those (bit = operation).
    fn futex_is(&self, operations: u32) -> bool {
        let operation = self.args[1] as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
        operations.checked_shr(operation as u32).unwrap_or(0) & 1 != 0
    }

    fn strings(&mut self, addr: u64) -> LookResult<u64> {
        if addr == 0 {
            return Ok(addr); // The kernel takes it for an empty list.
        }
        let (mut count, mut others) = (0, false);
        while count < STRINGS_MAX {
            // A word at a time: where the array ends is not known before.
            let [string] = self.words::<1>(addr + 8 * count)?;
            if string == 0 {
                break;
            }
            others |= self.string(string) != string;
            count += 1;
        }
        let mut list = Structure::at(addr, 8 * (count + 1));
        for k in 0..if others { count } else { 0 } {
            let [string] = self.words::<1>(addr + 8 * k)?;
            self.pointer(&mut list, 8 * k, string, self.kernel(string))?;
        }
        Ok(self.end(&list))
    }

    fn vectors(&mut self, addr: u64, count: u64, buffers: Buffers) -> LookResult<u64> {
        if count == 0 {
            return Ok(self.kernel(addr));
        }
        if count > IOV_MAX {
            return Err(LookStop::Refused);
        }
        let mut vectors = Structure::at(addr, count * IOVEC_BYTES);
        self.put(addr, count * IOVEC_BYTES, false);
        let mut words = [[0u8; IOVEC_BYTES as usize]; IOV_CHUNK];
        let mut done = 0;
        while done < count {
            let n = (count - done).min(IOV_CHUNK as u64);
            let chunk = &mut words[..n as usize];
            self.read(addr + done * IOVEC_BYTES, chunk.as_flattened_mut())?;
            for (vector, at) in chunk.iter().zip((done * IOVEC_BYTES..).step_by(IOVEC_BYTES as usize)) {
                let [base, bytes] = pair(vector);
                if (bytes as i64) < 0 {
                    return Err(LookStop::Refused);
                }
                let kernel = match buffers {
                    Buffers::Remote if bytes > 0 => self.keep_out(base)?,
                    Buffers::Remote => base,
                    _ => self.put(base, bytes, buffers == Buffers::Written),
                };
                self.pointer(&mut vectors, at, base, kernel)?;
            }
            done += n;
        }
        Ok(self.end(&vectors))
    }

    /// `struct msghdr`, `at` so many bytes of `messages`: name, name length, vectors, their count, control, its length, flags. The kernel writes lengths and
    /// flags back when it receives.
    fn message(&mut self, messages: &mut Structure, at: u64, receive: bool) -> LookResult {
        let addr = messages.addr + at;
        self.put(addr, MSGHDR_BYTES, receive);
        let [name, name_bytes, vectors, count, control, control_bytes, _] = self.words::<7>(addr)?;
        let kernel_name = self.put(name, (name_bytes as i32).max(0) as u64, receive);
        let kernel_control = self.put(control, control_bytes, receive);
        let kernel_vectors = self.vectors(vectors, count, if receive { Buffers::Written } else { Buffers::Read })?;
        self.pointer(messages, at, name, kernel_name)?;
        self.pointer(messages, at + 16, vectors, kernel_vectors)?;
        self.pointer(messages, at + 32, control, kernel_control)
    }

    /// One message.
    fn one_message(&mut self, addr: u64, receive: bool) -> LookResult<u64> {
        let mut message = Structure::at(addr, MSGHDR_BYTES);
        self.message(&mut message, 0, receive)?;
        Ok(self.end_written(&message, if receive { RECEIVED } else { &[] }, None))
    }

    /// Each element is a `struct msghdr` and a length that the kernel writes.
    fn messages(&mut self, addr: u64, count: u64, receive: bool) -> LookResult<u64> {
        let count = count.min(IOV_MAX);
        let mut messages = Structure::at(addr, count * MMSGHDR_BYTES);
        for k in 0..count {
            let at = k * MMSGHDR_BYTES;
            self.put(addr + at + MSGHDR_BYTES, 4, true);
            match self.message(&mut messages, at, receive) {
                // The kernel transfers those in front.
                Err(LookStop::Refused) => break,
                done => done?,
            }
        }
        Ok(self.end_written(&messages, if receive { RECEIVED_MANY } else { SENT_MANY }, Some(count)))
    }

    fn sigset_pair(&mut self, addr: u64) -> LookResult<u64> {
        if addr == 0 {
            return Ok(addr);
        }
        let mut words = Structure::at(addr, 16);
        let [mask, bytes] = self.words::<2>(addr)?;
        let kernel = self.put(mask, bytes.min(STRUCT_MAX), false);
        self.pointer(&mut words, 0, mask, kernel)?;
        Ok(self.end(&words))
    }

    fn signal_stack(&mut self, addr: u64) -> LookResult<u64> {
        if addr != 0 {
            // The kernel would write frames there whenever a signal comes.
            let [stack, flags, _] = self.words::<3>(addr)?;
            if flags as i32 & libc::SS_DISABLE == 0 {
                self.keep_out_for_good(stack)?;
            }
        }
        Ok(self.kernel(addr))
    }

    /// `struct sigevent`: value, signal, kind of notification.
    fn mq_notify(&mut self, addr: u64) -> LookResult<u64> {
        let mut event = Structure::at(addr, SIGEVENT.into());
        if addr != 0 {
            self.put(addr, SIGEVENT.into(), false);
            let [value, how] = self.words::<2>(addr)?;
            if (how >> 32) as u32 == SIGEV_THREAD {
                let kernel = self.put(value, COOKIE_BYTES, false);
                self.pointer(&mut event, 0, value, kernel)?;
            }
        }
        Ok(self.end(&event))
    }

    fn caps(&mut self, i: usize, addr: u64) -> LookResult<u64> {
        let bytes = if self.word32(self.args[0])? == CAPABILITY_VERSION_1 { 12 } else { 24 };
        // capget writes, capset reads; the first argument of both is the header.
        debug_assert_eq!(i, 1);
        Ok(self.put(addr, bytes, true))
    }

    /// A structure that says its size in a word of its own; 0 means `default`.
    fn sized(&mut self, addr: u64, size_at: u64, default: u64, written: bool) -> LookResult<u64> {
        let bytes = match u64::from(self.word32(size_at)?) {
            0 => default,
            bytes => bytes.min(STRUCT_MAX),
        };
        // The kernel corrects a size that it does not know.
        self.put(size_at, 4, true);
        Ok(self.put(addr, bytes, written))
    }

    /// flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup.
    fn clone_args(&mut self, addr: u64, bytes: u64) -> LookResult<u64> {
        let mut arguments = Structure::at(addr, bytes.min(STRUCT_MAX));
        let mut words = [[0u8; 8]; CLONE_ARGS_WORDS];
        let known = bytes.min(8 * CLONE_ARGS_WORDS as u64);
        self.read(addr, &mut words.as_flattened_mut()[..known as usize])?;
        let [flags, pidfd, child_tid, parent_tid, _, stack, _, tls, set_tid, set_tid_count, _] =
            words.map(u64::from_ne_bytes);
        let has = |flag: i32| flags & u64::from(flag as u32) != 0;
        if has(libc::CLONE_PIDFD) {
            let kernel = self.put(pidfd, 4, true);
            self.pointer(&mut arguments, 8, pidfd, kernel)?;
        }
        if has(libc::CLONE_PARENT_SETTID) {
            let kernel = self.put(parent_tid, 4, true);
            self.pointer(&mut arguments, 24, parent_tid, kernel)?;
        }
        // What the child will use is used when nobody looks.
        if has(libc::CLONE_CHILD_SETTID) || has(libc::CLONE_CHILD_CLEARTID) {
            self.keep_out_for_good(child_tid)?;
        }
        if has(libc::CLONE_SETTLS) {
            self.keep_out_for_good(tls)?;
        }
        let kernel = self.put(set_tid, set_tid_count.min(STRUCT_MAX) * 4, false);
        self.pointer(&mut arguments, 64, set_tid, kernel)?;
        self.keep_out_for_good(stack)?;
        Ok(self.end(&arguments))
    }

    /// `struct iocb`: data, key, flags, operation, descriptor, buffer, bytes, ...: the kernel works on the buffer when the call is over. Its events name the
    /// structure by the address that the kernel was given.
    fn iocbs(&mut self, addr: u64, count: u64) -> LookResult<u64> {
        for k in 0..count.min(STRINGS_MAX) {
            let [iocb] = self.words::<1>(addr + 8 * k)?;
            if cfg!(feature = "guard") {
                self.keep_out(iocb)?;
            }
            self.put(iocb, IOCB_BYTES, true);
            let [_, _, _, buffer, bytes, ..] = self.words::<8>(iocb)?;
            if bytes > 0 {
                self.keep_out(buffer)?;
            }
        }
        Ok(self.kernel(addr))
    }

    /// `struct futex_waitv`: value, word, flags. The kernel knows only this node's copy of a word, so nobody could wake the sleeper.
    fn waiters(&mut self, addr: u64, count: u64) -> LookResult<u64> {
        if count > WAITERS_MAX {
            return Err(LookStop::Refused);
        }
        for k in 0..count {
            let [_, word, _] = self.words::<3>(addr + k * WAITER_BYTES)?;
            self.keep_out(word)?;
        }
        Ok(self.kernel(addr))
    }

    /// `struct file_handle`: bytes that follow, type.
    fn handle(&mut self, addr: u64, written: bool) -> LookResult<u64> {
        let bytes = u64::from(self.word32(addr)?);
        Ok(self.put(addr, HANDLE_HEADER_BYTES + bytes.min(HANDLE_MAX), written))
    }

    /// `struct xattr_args`, as large as the sixth argument says: value, bytes, flags.
    fn xattr(&mut self, addr: u64, written: bool) -> LookResult<u64> {
        let mut arguments = Structure::at(addr, self.args[5].clamp(16, STRUCT_MAX));
        let [value, bytes] = self.words::<2>(addr)?;
        let kernel = self.put(value, bytes & 0xffff_ffff, written);
        self.pointer(&mut arguments, 0, value, kernel)?;
        Ok(self.end(&arguments))
    }

    /// Memory whose layout nobody here knows: neither it nor any word of it may lead into the segment.
    pub fn opaque(&mut self, addr: u64, bytes: u64) -> LookResult<u64> {
        if addr == 0 || bytes == 0 {
            return Ok(addr);
        }
        self.keep_out(addr)?;
        let mut at = addr;
        let end = addr.saturating_add(bytes);
        while at + 8 <= end {
            let mut words = [[0u8; 8]; 32];
            let n = ((end - at) / 8).min(32) as usize;
            self.read(at, words[..n].as_flattened_mut())?;
            for word in words[..n].iter().map(|word| u64::from_ne_bytes(*word)) {
                if self.shared.holds(word) {
                    return Err(LookStop::At(word));
                }
            }
            at += 8 * n as u64;
        }
        Ok(addr)
    }

    /// `struct sock_fprog`: count, address of so many 8-byte instructions.
    pub fn filter(&mut self, addr: u64) -> LookResult<u64> {
        let mut filter = Structure::at(addr, 16);
        let [count, program] = self.words::<2>(addr)?;
        let kernel = self.put(program, (count & 0xffff) * 8, false);
        self.pointer(&mut filter, 8, program, kernel)?;
        Ok(self.end(&filter))
    }
}

/// Two words in memory.
fn pair(bytes: &[u8; IOVEC_BYTES as usize]) -> [u64; 2] {
    let word = |at: usize| u64::from_ne_bytes(core::array::from_fn(|k| bytes[at + k]));
    [word(0), word(8)]
}
