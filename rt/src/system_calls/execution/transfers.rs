//! Transfers that a peer interrupts in the middle.
//!
//! Purpose: `write` to a pipe or a socket comes back when all is written, or when a handler of the program has run. The signal by which a peer calls a node out of the
//! kernel ([`crate::system_calls::execution::interruptions`]) is not the program's business, yet the kernel then returns what it has transferred so far. So the gate makes the call again for the
//! rest, and the program gets the sum. Input: a call and what of it is done. Output: the call for the rest.
//! **Invariants**
//! * Only calls go on that the kernel itself would have gone on with: some bytes are transferred and some are not, and it is no file, where no signal interrupts.
//! * A handler of the program that runs in between ends the call with the sum, whatever its flags say, as one ends a call that has transferred something.
//! * An error of the rest is not reported: the program gets the sum, and meets the error at its next call, as with the kernel.
//!
//! `splice`, `vmsplice` and `sendmmsg` come back with what they have, without any signal: those are left alone.
//! Source: `signal(7)`, `pipe(7)`; POSIX.1-2024, `write`: "If write() is interrupted by a signal after it successfully writes some data, it shall return the number
//! of bytes written"; Linux `fs/pipe.c`, `fs/splice.c`, `net/core/sock.c`.

use crate::kernel::owned::per_thread;
use crate::kernel::sys;
use crate::memory::access_control::program::{kernel_address, runtime_address};
use crate::system_calls::table::row::{CallRow, Transfer};
use core::cell::UnsafeCell;

/// The arguments that say where, and how much or how many parts.
const AT: usize = 1;
const BYTES: usize = 2;
/// Most parts of a scattered transfer (UIO_MAXIOV).
const PARTS: usize = 1024;
/// Words of a `struct msghdr`; the indices of its peer's address, its parts, their number, and the bytes of its control data.
const MESSAGE_WORDS: usize = 7;
const MESSAGE_NAME: usize = 0;
const MESSAGE_PARTS: usize = 2;
const MESSAGE_COUNT: usize = 3;
const MESSAGE_CONTROL: usize = 4;
const MESSAGE_CONTROL_BYTES: usize = 5;

/// What the kernel reads when the rest of a scattered transfer begins.
struct Rest {
    parts: [[u64; 2]; PARTS],
    message: [u64; MESSAGE_WORDS],
}

per_thread! {
    /// Written in the gate, and read by the kernel in the call that follows.
    static REST: UnsafeCell<Rest> = UnsafeCell::new(Rest { parts: [[0; 2]; PARTS], message: [0; MESSAGE_WORDS] });
}

/// What the call transfers, its flags looked at.
fn transfer_of(row: &CallRow, args: &[u64; 6]) -> Transfer {
    // What is received comes as it comes, unless all is asked for.
    let if_all = |flags: u8, transfer| {
        let all = args[usize::from(flags)] as i32 & libc::MSG_WAITALL != 0;
        if all { transfer } else { Transfer::None }
    };
    match row.transfer {
        Transfer::BytesIfAll(flags) => if_all(flags, Transfer::Bytes),
        Transfer::MessageIfAll(flags) => if_all(flags, Transfer::Message),
        transfer => transfer,
    }
}

/// The parts of a transfer.
///
/// # Safety
/// So many can be read there.
unsafe fn parts(at: u64, count: u64) -> impl Iterator<Item = [u64; 2]> {
    let parts = runtime_address(at).cast::<[u64; 2]>();
    // SAFETY: passed on from the caller.
    (0..count.min(PARTS as u64)).map(move |k| unsafe { parts.add(k as usize).read_unaligned() })
}

/// A message's words.
///
/// # Safety
/// It can be read there.
unsafe fn message(at: u64) -> [u64; MESSAGE_WORDS] {
    // SAFETY: passed on from the caller.
    unsafe { runtime_address(at).cast::<[u64; MESSAGE_WORDS]>().read_unaligned() }
}

/// Whether a call that has returned `result` is to go on.
///
/// # Safety
/// The kernel has just read what the arguments lead to.
pub unsafe fn goes_on(row: &CallRow, args: &[u64; 6], result: i64) -> bool {
    if result < 1 {
        return false;
    }
    let bytes_of = |at, count| {
        // SAFETY: the kernel has read the parts, too.
        unsafe { parts(at, count) }.map(|[_, bytes]| bytes).sum()
    };
    let transfer = transfer_of(row, args);
    let asked: u64 = match transfer {
        Transfer::Bytes => args[BYTES],
        Transfer::Count(i) => args[usize::from(i)],
        Transfer::Parts => bytes_of(args[AT], args[BYTES]),
        Transfer::Message => {
            // SAFETY: passed on from the caller.
            let message = unsafe { message(args[AT]) };
            bytes_of(message[MESSAGE_PARTS], message[MESSAGE_COUNT])
        }
        _ => 0,
    };
    let kind = || sys::fstat(args[0] as i32).map_or(0, |stat| stat.st_mode & libc::S_IFMT);
    let waits_for_all = || match transfer {
        // To a pipe it comes back as soon as it has transferred something.
        Transfer::Count(_) => kind() == libc::S_IFSOCK,
        _ => kind() != libc::S_IFREG,
    };
    (result as u64) < asked && waits_for_all()
}

/// The call for what is left when `done` bytes are done, of which there are more.
///
/// # Safety
/// What the arguments lead to can be read; the gate is inside.
pub unsafe fn rest(row: &CallRow, args: &[u64; 6], done: u64) -> [u64; 6] {
    let mut new = *args;
    // SAFETY: see `REST`.
    let rest = unsafe { &mut *REST.get() };
    match transfer_of(row, args) {
        Transfer::Bytes => {
            new[AT] = new[AT].wrapping_add(done);
            new[BYTES] = new[BYTES].saturating_sub(done);
        }
        Transfer::Count(i) => new[usize::from(i)] = new[usize::from(i)].saturating_sub(done),
        Transfer::Parts => {
            // SAFETY: passed on from the caller.
            new[BYTES] = unsafe { rest.leave_out(args[AT], args[BYTES], done) };
            new[AT] = rest.parts.as_ptr() as u64;
        }
        Transfer::Message => {
            // SAFETY: passed on from the caller.
            unsafe {
                rest.message = message(args[AT]);
                rest.message[MESSAGE_NAME] = kernel_address(rest.message[MESSAGE_NAME]);
                rest.message[MESSAGE_COUNT] =
                    rest.leave_out(rest.message[MESSAGE_PARTS], rest.message[MESSAGE_COUNT], done);
            }
            rest.message[MESSAGE_PARTS] = rest.parts.as_ptr() as u64;
            // Descriptors and the like have gone with the first bytes.
            (rest.message[MESSAGE_CONTROL], rest.message[MESSAGE_CONTROL_BYTES]) = (0, 0);
            new[AT] = rest.message.as_ptr() as u64;
        }
        _ => {}
    }
    new
}

impl Rest {
    /// Takes over the parts but for their first `done` bytes; how many there are.
    ///
    /// # Safety
    /// As [`parts`].
    unsafe fn leave_out(&mut self, at: u64, count: u64, mut done: u64) -> u64 {
        let mut kept = 0;
        // SAFETY: passed on from the caller.
        for [from, bytes] in unsafe { parts(at, count) } {
            let gone = done.min(bytes);
            done -= gone;
            if gone < bytes {
                self.parts[kept] = [kernel_address(from.wrapping_add(gone)), bytes - gone];
                kept += 1;
            }
        }
        kept as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system_calls::table::calls::row;
    use std::os::fd::AsRawFd;

    #[test]
    fn what_is_left_begins_where_the_kernel_stopped() {
        let words = |nr, args, done| {
            // SAFETY: no structures, or live ones.
            unsafe { rest(row(nr), &args, done) }
        };
        assert_eq!(words(libc::SYS_write, [3, 1000, 50, 7, 8, 9], 20), [3, 1020, 30, 7, 8, 9]);
        assert_eq!(words(libc::SYS_sendfile, [3, 4, 1000, 50, 0, 0], 20), [3, 4, 1000, 30, 0, 0]);
        let parts = [[1000u64, 10], [2000, 0], [3000, 30], [4000, 5]];
        let args = [3, parts.as_ptr() as u64, 4, 0, 0, 0];
        // SAFETY: what `rest` has just written.
        let left =
            |at: u64, count: u64| unsafe { std::slice::from_raw_parts(at as *const [u64; 2], count as usize).to_vec() };
        for (done, expected) in [
            (5, vec![[1005, 5], [3000, 30], [4000, 5]]),
            (10, vec![[3000, 30], [4000, 5]]),
            (12, vec![[3002, 28], [4000, 5]]),
            (44, vec![[4004, 1]]),
        ] {
            let new = words(libc::SYS_writev, args, done);
            assert_eq!(left(new[1], new[2]), expected, "{done}");
            let message = [1u64, 2, parts.as_ptr() as u64, 4, 5, 6, 7];
            let new = words(libc::SYS_sendmsg, [3, message.as_ptr() as u64, 0, 0, 0, 0], done);
            // SAFETY: as above.
            let new = unsafe { super::message(new[1]) };
            assert_eq!((left(new[2], new[3]), [new[0], new[1], new[4], new[5], new[6]]), (expected, [1, 2, 0, 0, 7]));
        }
    }

    #[test]
    fn only_what_the_kernel_would_have_finished_goes_on() {
        let (_read, write) = std::io::pipe().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let (pipe, file) = (write.as_raw_fd() as u64, file.as_raw_fd() as u64);
        let goes_on = |nr, args: [u64; 6], result| {
            // SAFETY: no structures.
            unsafe { goes_on(row(nr), &args, result) }
        };
        assert!(goes_on(libc::SYS_write, [pipe, 1000, 50, 0, 0, 0], 20));
        assert!(!goes_on(libc::SYS_write, [pipe, 1000, 50, 0, 0, 0], 50), "done");
        assert!(!goes_on(libc::SYS_write, [pipe, 1000, 50, 0, 0, 0], 0));
        assert!(!goes_on(libc::SYS_write, [pipe, 1000, 50, 0, 0, 0], -4));
        assert!(!goes_on(libc::SYS_write, [file, 1000, 50, 0, 0, 0], 20), "a file's device is full");
        assert!(!goes_on(libc::SYS_read, [pipe, 1000, 50, 0, 0, 0], 20), "there is no more");
        assert!(!goes_on(libc::SYS_sendfile, [pipe, 3, 0, 50, 0, 0], 20), "it waits for nothing else");
        assert!(!goes_on(libc::SYS_recvfrom, [pipe, 1000, 50, 0, 0, 0], 20));
        assert!(goes_on(libc::SYS_recvfrom, [pipe, 1000, 50, libc::MSG_WAITALL as u64, 0, 0], 20));
    }
}
