//! Structures that hold further pointers.
//!
//! Input: an argument that is the address of one. Output: the visitor has been given all its parts and what they lead to.
//! Source: Linux `include/uapi`; section 2 of the manual.

use crate::system_calls::table::calls::{SIGEVENT, TIMESPEC};
use crate::system_calls::table::row::Layout;
use crate::system_calls::table::visitor::{Look, Stop, Visitor};

/// Most elements of an `iovec` array, and of messages in one call, that the kernel accepts (UIO_MAXIOV).
const IOV_MAX: u64 = 1024;
const IOVEC_BYTES: u64 = 16;
/// Vectors read at once.
const IOV_CHUNK: usize = 16;
const MSGHDR_BYTES: u64 = 56;
const MMSGHDR_BYTES: u64 = 64;
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
    /// Follows argument `i`, which is the address of a `layout` or a command's argument.
    pub fn structure(&mut self, i: usize, layout: Layout) -> Look {
        let addr = self.args[i];
        let value = |i: u8| self.args[usize::from(i)];
        match layout {
            Layout::Strings => self.strings(addr),
            Layout::IovIn(count) => self.vectors(addr, value(count), Buffers::Read),
            Layout::IovOut(count) => self.vectors(addr, value(count), Buffers::Written),
            Layout::IovRemote(count) => self.vectors(addr, value(count), Buffers::Remote),
            Layout::MsgIn => self.message(addr, false),
            Layout::MsgOut => self.message(addr, true),
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
                self.put(addr, bytes, true);
                Ok(())
            }
            Layout::XattrIn => self.xattr(addr, false),
            Layout::XattrOut => self.xattr(addr, true),
            Layout::Opaque(bytes) => self.opaque(addr, self.int(bytes)),
            Layout::FutexTimeout(operations) => {
                if self.futex_is(operations) {
                    self.put(addr, TIMESPEC.into(), false);
                }
                Ok(())
            }
            Layout::FutexWord(operations) if self.futex_is(operations) => self.keep_out(addr),
            Layout::FutexWord(_) => Ok(()),
            by_command => self.by_command(i, by_command),
        }
    }

    /// Whether the operation of this `futex` is one of those (bit = operation).
    fn futex_is(&self, operations: u32) -> bool {
        let operation = self.args[1] as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
        operations.checked_shr(operation as u32).unwrap_or(0) & 1 != 0
    }

    fn strings(&mut self, addr: u64) -> Look {
        if addr == 0 {
            return Ok(()); // The kernel takes it for an empty list.
        }
        for k in 0..STRINGS_MAX {
            // A word at a time: where the array ends is not known before.
            let [string] = self.words::<1>(addr + 8 * k)?;
            if string == 0 {
                break;
            }
            self.string(string);
        }
        Ok(())
    }

    fn vectors(&mut self, addr: u64, count: u64, buffers: Buffers) -> Look {
        if count == 0 {
            return Ok(());
        }
        if count > IOV_MAX {
            return Err(Stop::Refused);
        }
        self.put(addr, count * IOVEC_BYTES, false);
        let mut words = [[0u8; IOVEC_BYTES as usize]; IOV_CHUNK];
        let mut done = 0;
        while done < count {
            let n = (count - done).min(IOV_CHUNK as u64);
            let chunk = &mut words[..n as usize];
            self.read(addr + done * IOVEC_BYTES, chunk.as_flattened_mut())?;
            for vector in chunk.iter() {
                let [base, bytes] = pair(vector);
                if (bytes as i64) < 0 {
                    return Err(Stop::Refused);
                }
                match buffers {
                    Buffers::Remote if bytes > 0 => self.keep_out(base)?,
                    Buffers::Remote => {}
                    _ => self.put(base, bytes, buffers == Buffers::Written),
                }
            }
            done += n;
        }
        Ok(())
    }

    /// `struct msghdr`: name, name length, vectors, their count, control, its length, flags. The kernel writes lengths and flags back when
    /// it receives.
    fn message(&mut self, addr: u64, receive: bool) -> Look {
        self.put(addr, MSGHDR_BYTES, receive);
        let [name, name_bytes, vectors, count, control, control_bytes, _] = self.words::<7>(addr)?;
        self.put(name, (name_bytes as i32).max(0) as u64, receive);
        self.put(control, control_bytes, receive);
        self.vectors(vectors, count, if receive { Buffers::Written } else { Buffers::Read })
    }

    /// Each element is a `struct msghdr` and a length that the kernel writes.
    fn messages(&mut self, addr: u64, count: u64, receive: bool) -> Look {
        for k in 0..count.min(IOV_MAX) {
            let at = addr + k * MMSGHDR_BYTES;
            self.put(at + MSGHDR_BYTES, 4, true);
            self.message(at, receive)?;
        }
        Ok(())
    }

    fn sigset_pair(&mut self, addr: u64) -> Look {
        if addr != 0 {
            let [mask, bytes] = self.words::<2>(addr)?;
            self.put(mask, bytes.min(STRUCT_MAX), false);
        }
        Ok(())
    }

    fn signal_stack(&mut self, addr: u64) -> Look {
        if addr != 0 {
            // The kernel would write frames there whenever a signal comes.
            let [stack, flags, _] = self.words::<3>(addr)?;
            if flags as i32 & libc::SS_DISABLE == 0 {
                self.keep_out(stack)?;
            }
        }
        Ok(())
    }

    /// `struct sigevent`: value, signal, kind of notification.
    fn mq_notify(&mut self, addr: u64) -> Look {
        if addr != 0 {
            self.put(addr, SIGEVENT.into(), false);
            let [value, how] = self.words::<2>(addr)?;
            if (how >> 32) as u32 == SIGEV_THREAD {
                self.put(value, COOKIE_BYTES, false);
            }
        }
        Ok(())
    }

    fn caps(&mut self, i: usize, addr: u64) -> Look {
        let bytes = if self.word32(self.args[0])? == CAPABILITY_VERSION_1 { 12 } else { 24 };
        // capget writes, capset reads; the first argument of both is the header.
        debug_assert_eq!(i, 1);
        self.put(addr, bytes, true);
        Ok(())
    }

    /// A structure that says its size in a word of its own; 0 means `default`.
    fn sized(&mut self, addr: u64, size_at: u64, default: u64, written: bool) -> Look {
        let bytes = match u64::from(self.word32(size_at)?) {
            0 => default,
            bytes => bytes.min(STRUCT_MAX),
        };
        // The kernel corrects a size that it does not know.
        self.put(size_at, 4, true);
        self.put(addr, bytes, written);
        Ok(())
    }

    /// flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size, cgroup.
    fn clone_args(&mut self, addr: u64, bytes: u64) -> Look {
        let mut words = [[0u8; 8]; CLONE_ARGS_WORDS];
        let bytes = bytes.min(8 * CLONE_ARGS_WORDS as u64);
        self.read(addr, &mut words.as_flattened_mut()[..bytes as usize])?;
        let [flags, pidfd, child_tid, parent_tid, _, stack, _, tls, set_tid, set_tid_count, _] =
            words.map(u64::from_ne_bytes);
        let has = |flag: i32| flags & u64::from(flag as u32) != 0;
        if has(libc::CLONE_PIDFD) {
            self.put(pidfd, 4, true);
        }
        if has(libc::CLONE_PARENT_SETTID) {
            self.put(parent_tid, 4, true);
        }
        // What the child will use is used when nobody looks.
        if has(libc::CLONE_CHILD_SETTID) || has(libc::CLONE_CHILD_CLEARTID) {
            self.keep_out(child_tid)?;
        }
        if has(libc::CLONE_SETTLS) {
            self.keep_out(tls)?;
        }
        self.put(set_tid, set_tid_count.min(STRUCT_MAX) * 4, false);
        self.keep_out(stack)
    }

    /// `struct iocb`: data, key, flags, operation, descriptor, buffer, bytes, ...: the kernel works on the buffer when the call is over.
    fn iocbs(&mut self, addr: u64, count: u64) -> Look {
        for k in 0..count.min(STRINGS_MAX) {
            let [iocb] = self.words::<1>(addr + 8 * k)?;
            self.put(iocb, IOCB_BYTES, true);
            let [_, _, _, buffer, bytes, ..] = self.words::<8>(iocb)?;
            if bytes > 0 {
                self.keep_out(buffer)?;
            }
        }
        Ok(())
    }

    /// `struct futex_waitv`: value, word, flags. The kernel knows only this node's copy of a word, so nobody could wake the sleeper.
    fn waiters(&mut self, addr: u64, count: u64) -> Look {
        if count > WAITERS_MAX {
            return Err(Stop::Refused);
        }
        for k in 0..count {
            let [_, word, _] = self.words::<3>(addr + k * WAITER_BYTES)?;
            self.keep_out(word)?;
        }
        Ok(())
    }

    /// `struct file_handle`: bytes that follow, type.
    fn handle(&mut self, addr: u64, written: bool) -> Look {
        let bytes = u64::from(self.word32(addr)?);
        self.put(addr, HANDLE_HEADER_BYTES + bytes.min(HANDLE_MAX), written);
        Ok(())
    }

    /// `struct xattr_args`: value, bytes, flags.
    fn xattr(&mut self, addr: u64, written: bool) -> Look {
        let [value, bytes] = self.words::<2>(addr)?;
        self.put(value, bytes & 0xffff_ffff, written);
        Ok(())
    }

    /// Memory whose layout nobody here knows: neither it nor any word of it may lead into the segment.
    pub fn opaque(&mut self, addr: u64, bytes: u64) -> Look {
        if addr == 0 || bytes == 0 {
            return Ok(());
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
                    return Err(Stop::At(word));
                }
            }
            at += 8 * n as u64;
        }
        Ok(())
    }

    /// `struct sock_fprog`: count, address of so many 8-byte instructions.
    pub fn filter(&mut self, addr: u64) -> Look {
        let [count, program] = self.words::<2>(addr)?;
        self.put(program, (count & 0xffff) * 8, false);
        Ok(())
    }
}

/// Two words in memory.
fn pair(bytes: &[u8; IOVEC_BYTES as usize]) -> [u64; 2] {
    let word = |at: usize| u64::from_ne_bytes(core::array::from_fn(|k| bytes[at + k]));
    [word(0), word(8)]
}
