//! What the kernel is given, where it has shared memory at other addresses: pointers into shared and private memory mixed, in structures that lie in either,
//! and what comes back.

use crate::kernel::sys;
use crate::memory::access_control::program::in_segment;
use crate::system_calls::table::calls::row;
use crate::system_calls::table::copies::{self, CallCopies, Given};
use crate::system_calls::table::memory::{TooLarge, kernel_arguments};
use crate::system_calls::table::visitor::Shared;
use blizzard_contract::SEGMENT_BASE;

/// Shared memory in which nothing is read.
const S: u64 = SEGMENT_BASE;
/// From the program's addresses to the kernel's.
const D: u64 = 1 << 44;
/// Private memory in which nothing is read.
const P: u64 = 0x7000;

/// A call, as the kernel is given it.
struct Call {
    copies: Box<CallCopies>,
    result: Result<[u64; 6], TooLarge>,
}

fn call(nr: i64, args: [u64; 6]) -> Call {
    let mut copies = Box::new(CallCopies::EMPTY);
    let given = Given { copies: &mut copies, address: &|addr| if in_segment(addr) { addr + D } else { addr } };
    // SAFETY: structures of these tests that are read are mapped.
    let result = unsafe { kernel_arguments(row(nr), nr, &args, Shared::Segment, given) };
    Call { copies, result }
}

impl Call {
    fn args(&self) -> [u64; 6] {
        self.result.unwrap()
    }

    /// Argument `i`, which leads to a copy of so many words.
    fn words<const N: usize>(&self, i: usize) -> [u64; N] {
        words(self.args()[i])
    }

    fn give_back(&mut self, result: i64) -> i64 {
        // SAFETY: the structures of these tests are alive.
        unsafe { self.copies.give_back(result) }
    }
}

/// Writes where the kernel would.
fn kernel_writes<T>(addr: u64, value: T) {
    // SAFETY: a copy, which is mapped and nobody's but the kernel's.
    unsafe { (addr as *mut T).write_unaligned(value) };
}

fn words<const N: usize>(addr: u64) -> [u64; N] {
    assert!(!in_segment(addr));
    // SAFETY: a structure of the test or a copy.
    unsafe { (addr as *const [u64; N]).read_unaligned() }
}

fn at<T>(value: &T) -> u64 {
    value as *const T as u64
}

/// A page of shared memory with these words, which the program has at an address of its own.
fn shared(page: u64, words: &[u64]) -> u64 {
    let at = S + (3 << 36) + page * 4096;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a part of the window that no other test uses.
    unsafe {
        sys::mmap(at, 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0).unwrap();
        core::ptr::copy_nonoverlapping(words.as_ptr(), at as *mut u64, words.len());
    }
    at
}

#[test]
fn pointers_are_the_kernels_and_numbers_stay() {
    let args = |nr, args| call(nr, args).args();
    assert_eq!(args(libc::SYS_write, [S, S, S, S, S, S]), [S, S + D, S, S, S, S]);
    assert_eq!(args(libc::SYS_write, [1, P, 8, 0, 0, 0]), [1, P, 8, 0, 0, 0]);
    assert_eq!(args(libc::SYS_rename, [S, S + 8, S, 0, 0, 0]), [S + D, S + 8 + D, S, 0, 0, 0]);
    assert_eq!(args(libc::SYS_mmap, [S; 6]), [S; 6], "a hint");
    // The kernel refuses the count, and not the pointer.
    assert_eq!(args(libc::SYS_read, [0, S, u64::MAX, 0, 0, 0]), [0, S + D, u64::MAX, 0, 0, 0]);
    assert_eq!(args(9999, [S; 6]), [S; 6], "unknown");
    let settid = libc::CLONE_PARENT_SETTID as u64;
    assert_eq!(args(libc::SYS_clone, [settid, 0, S, S, S, 0]), [settid, 0, S + D, S, S, 0]);
    assert_eq!(args(libc::SYS_clone, [0, 0, S, S, S, 0]), [0, 0, S, S, S, 0]);
}

#[test]
fn the_command_says_what_is_a_pointer() {
    let third = |nr, command: u64| call(nr, [0, command, S, S, S, S]).args()[2];
    for (nr, pointers, numbers) in [
        (libc::SYS_fcntl, [libc::F_GETLK, libc::F_OFD_SETLK, 15], [libc::F_SETFD, libc::F_SETOWN, libc::F_DUPFD]),
        (libc::SYS_ioctl, [0x5401, 0x541b, 0x5421], [0x5450, 0x5409, 0x540e]),
        (libc::SYS_shmctl, [libc::IPC_STAT, libc::IPC_SET, 13], [libc::IPC_RMID, 11, 12]),
        (libc::SYS_msgctl, [libc::IPC_STAT, libc::IPC_SET, 13], [libc::IPC_RMID, 99, 98]),
    ] {
        for (pointer, number) in pointers.into_iter().zip(numbers) {
            assert_eq!(third(nr, pointer as u64), S + D, "{nr} {pointer:#x}");
            assert_eq!(third(nr, number as u64), S, "{nr} {number:#x}");
        }
    }
    let prctl = |option: i32| call(libc::SYS_prctl, [option as u64, S, S, S, S, 0]).args();
    for (option, second) in [
        (libc::PR_SET_NAME, S + D),
        (libc::PR_GET_NAME, S + D),
        (libc::PR_SET_PDEATHSIG, S),
        (libc::PR_SET_TIMERSLACK, S),
    ] {
        assert_eq!(prctl(option), [option as u64, second, S, S, S, 0]);
    }
    let semctl = |command: u64| call(libc::SYS_semctl, [0, 0, command, S, 0, 0]).args()[3];
    assert_eq!([semctl(2), semctl(16)], [S + D, S], "IPC_STAT and SETVAL");
    let arch = |option: u64| call(libc::SYS_arch_prctl, [option, S, 0, 0, 0, 0]).args()[1];
    assert_eq!([arch(0x1003), arch(0x1012)], [S + D, S], "ARCH_GET_FS and ARCH_SET_CPUID");
    let futex = |operation: i32| call(libc::SYS_futex, [P, operation as u64, 1, S, S, 0]).args();
    assert_eq!(futex(libc::FUTEX_WAIT)[3..], [S + D, S, 0]);
    assert_eq!(futex(libc::FUTEX_WAKE)[3..], [S, S, 0]);
    let mount = |command: u64| call(431, [0, command, 0, S, 4, 0]).args()[3];
    assert_eq!([mount(2), mount(6)], [S + D, S], "FSCONFIG_SET_BINARY and FSCONFIG_CMD_CREATE");
    let socket = libc::SOL_SOCKET as u64;
    let option = [3, socket, libc::SO_RCVBUF as u64, S, 4, 0];
    assert_eq!(call(libc::SYS_setsockopt, option).args(), [3, socket, libc::SO_RCVBUF as u64, S + D, 4, 0]);
}

#[test]
fn vectors() {
    let private = [[P, 8], [P + 8, 8]];
    for nr in [libc::SYS_readv, libc::SYS_writev, libc::SYS_preadv, libc::SYS_pwritev2, libc::SYS_vmsplice] {
        assert_eq!(call(nr, [1, at(&private), 2, 0, 0, 0]).args()[1], at(&private), "not copied");
        let mixed = [[P, 8], [S, 16], [P + 8, 0], [S + 64, 1]];
        let copied = call(nr, [1, at(&mixed), 4, 0, 0, 0]);
        assert_eq!(copied.words(1), [P, 8, S + D, 16, P + 8, 0, S + 64 + D, 1]);
        assert_eq!(mixed, [[P, 8], [S, 16], [P + 8, 0], [S + 64, 1]]);
    }
    // More than are read at once; the array itself is shared.
    let many: Vec<u64> = (0..40).flat_map(|k| [if k % 3 == 0 { P } else { S + k }, k]).collect();
    let array = shared(0, &many);
    let copied: [u64; 80] = call(libc::SYS_writev, [1, array, 40, 0, 0, 0]).words(1);
    let expected: Vec<u64> = many.iter().map(|&word| if word >= S { word + D } else { word }).collect();
    assert_eq!(copied.to_vec(), expected);
    assert_eq!(call(libc::SYS_writev, [1, array, 1, 0, 0, 0]).args()[1], array + D, "leads to private memory alone");
    assert_eq!(call(libc::SYS_writev, [1, array, 0, 0, 0, 0]).args()[1], array + D);
    let local = [[S, 8]];
    let moved = call(libc::SYS_process_vm_readv, [1, at(&local), 1, at(&private), 2, 0]);
    assert_eq!((moved.words(1), moved.args()[3]), ([S + D, 8], at(&private)));
    // The kernel refuses them; nothing is left half done.
    let wrong = [[S, 8], [S, u64::MAX]];
    assert_eq!(call(libc::SYS_writev, [1, at(&wrong), 2, 0, 0, 0]).args()[1], at(&wrong));
}

#[test]
fn a_message_that_is_received_comes_back() {
    let vectors = [[P, 10], [S + 64, 20]];
    let name_bytes = 0xdead_0000_0010;
    let header = shared(1, &[S, name_bytes, at(&vectors), 2, P, 40, 7]);
    let mut received = call(libc::SYS_recvmsg, [0, header, 0, 0, 0, 0]);
    let copy: [u64; 7] = received.words(1);
    assert_eq!([copy[0], copy[1], copy[3], copy[4], copy[5], copy[6]], [S + D, name_bytes, 2, P, 40, 7]);
    assert_eq!(words(copy[2]), [P, 10, S + 64 + D, 20]);
    assert!(received.copies.are_written());
    let copied = received.args()[1];
    kernel_writes(copied + 8, 6u32);
    kernel_writes(copied + 40, 24u64);
    kernel_writes(copied + 48, 0x40u32);
    assert_eq!(received.give_back(30), 30);
    // SAFETY: the test's own.
    let read = || unsafe { (header as *const [u64; 7]).read() };
    assert_eq!(read(), [S, 0xdead_0000_0006, at(&vectors), 2, P, 24, 0x40]);
    kernel_writes(copied + 48, 9u32);
    assert_eq!((received.give_back(30), read()[6]), (30, 0x40), "once");
    // A call that fails has written nothing, and what is sent is not written.
    let mut failed = call(libc::SYS_recvmsg, [0, header, 0, 0, 0, 0]);
    kernel_writes(failed.args()[1] + 48, 9u32);
    assert_eq!((failed.give_back(-4), failed.give_back(4), read()[6]), (-4, 4, 0x40));
    let sent = call(libc::SYS_sendmsg, [0, header, 0, 0, 0, 0]);
    assert_eq!(sent.words::<1>(1), [S + D]);
    assert!(!sent.copies.are_written());
    // Without a pointer into shared memory the kernel writes to the program's own.
    let private = [P, 16, at(&[[P, 8]]), 1, 0, 0, 0];
    let own = call(libc::SYS_recvmsg, [0, at(&private), 0, 0, 0, 0]);
    assert!(own.args()[1] == at(&private) && !own.copies.are_written());
}

#[test]
fn as_many_messages_come_back_as_the_kernel_says() {
    let vectors = [[S, 10]];
    let header = |name| [name, 16, at(&vectors), 1, 0, 0, 0, 0];
    for (nr, received) in [(libc::SYS_recvmmsg, true), (libc::SYS_sendmmsg, false)] {
        let messages = [header(P), header(S), header(P + 8)];
        let mut many = call(nr, [0, at(&messages), 3, 0, 0, 0]);
        let copy = many.args()[1];
        for k in 0..3 {
            let [name, .., vector_at, _, _, _, _, _]: [u64; 8] = words(copy + 64 * k);
            assert_eq!((name, words(vector_at)), ([P, S + D, P + 8][k as usize], [S + D, 10]));
            kernel_writes(copy + 64 * k + 8, 4u32);
            kernel_writes(copy + 64 * k + 40, 3u64);
            kernel_writes(copy + 64 * k + 48, 2u32);
            kernel_writes(copy + 64 * k + 56, 9u32);
        }
        assert_eq!(many.give_back(2), 2);
        let [name_bytes, control, flags] = if received { [4, 3, 2] } else { [16, 0, 0] };
        let after = |name| [name, name_bytes, at(&vectors), 1, 0, control, flags, 9];
        // SAFETY: the program's structure, which the call writes.
        let now = unsafe { core::ptr::read_volatile(&messages) };
        assert_eq!(now, [after(P), after(S), header(P + 8)]);
    }
    // The second cannot be read: the first is sent.
    let messages = [header(S), [0, 0, 8, 1, 0, 0, 0, 0]];
    let sent = call(libc::SYS_sendmmsg, [0, at(&messages), 2, 0, 0, 0]);
    assert_eq!(sent.words::<1>(1), [S + D]);
}

#[test]
fn what_cannot_come_back_is_an_error() {
    let vectors = [[S, 10]];
    let page = shared(2, &[0, 0, at(&vectors), 1, 0, 0, 0]);
    let mut received = call(libc::SYS_recvmsg, [0, page, 0, 0, 0, 0]);
    // SAFETY: the test's own page.
    unsafe { sys::mprotect(page, 4096, libc::PROT_READ) }.unwrap();
    assert_eq!(received.give_back(3), -i64::from(libc::EFAULT));
}

#[test]
fn strings_of_a_new_program() {
    let private = [P, P + 8, 0];
    let mixed = [P, S, P + 8, S + 64, 0];
    let list = shared(3, &[P, S + 8, 0]);
    let new = call(libc::SYS_execve, [S, at(&mixed), list, 0, 0, 0]);
    assert_eq!(
        (new.args()[0], new.words(1), new.words(2)),
        (S + D, [P, S + D, P + 8, S + 64 + D, 0], [P, S + 8 + D, 0])
    );
    assert_eq!(call(libc::SYS_execve, [P, at(&private), 0, 0, 0, 0]).args(), [P, at(&private), 0, 0, 0, 0]);
    let new = call(libc::SYS_execveat, [3, S, at(&private), at(&mixed), 0, 0]);
    assert_eq!((new.args()[1], new.args()[2], new.words(3)), (S + D, at(&private), [P, S + D, P + 8, S + 64 + D, 0]));
}

#[test]
fn copies_have_an_end() {
    let most = copies::BYTES / 8;
    let mut list = vec![P; most - 1];
    list.push(0);
    let execute = |list: &[u64]| call(libc::SYS_execve, [P, list.as_ptr() as u64, 0, 0, 0, 0]).result;
    list[7] = S;
    assert!(execute(&list).is_ok());
    list.insert(0, P);
    assert_eq!(execute(&list), Err(TooLarge { nr: libc::SYS_execve, argument: 1 }));
    let message = execute(&list).unwrap_err().to_string();
    assert!(
        message.starts_with("system call 59 (execve) has pointers into shared memory in structures of more"),
        "{message}"
    );
    list[8] = P;
    assert_eq!(execute(&list).unwrap()[1], list.as_ptr() as u64, "nothing has to be copied");
}

#[test]
fn structures_with_one_pointer() {
    // Masks of `io_pgetevents`; by `pselect6` they are replaced anyway.
    assert_eq!(call(333, [0, 0, 0, S, 0, at(&[S, 8])]).words(5), [S + D, 8]);
    assert_eq!(call(libc::SYS_pselect6, [0, 0, 0, 0, 0, at(&[S, 8])]).words(5), [S + D, 8]);
    let by_socket = [S, 2 << 32, 5, 0, 0, 0, 0, 6];
    let notified = call(libc::SYS_mq_notify, [0, at(&by_socket), 0, 0, 0, 0]);
    assert_eq!(notified.words(1), [S + D, 2 << 32, 5, 0, 0, 0, 0, 6]);
    let by_signal = [S, 0, 5, 0, 0, 0, 0, 6];
    assert_eq!(call(libc::SYS_mq_notify, [0, at(&by_signal), 0, 0, 0, 0]).args()[1], at(&by_signal), "a value");
    // The structure as large as the program says.
    let value = [S, 8, 7];
    for (nr, bytes) in [(463, 16), (464, 24)] {
        let args = [0, 0, 0, 0, at(&value), bytes];
        assert_eq!(call(nr, args).words(4), [S + D, 8]);
        assert_eq!(call(nr, args).words::<3>(4)[2], if bytes == 24 { 7 } else { 0 });
    }
    let filter = [2u64, S + 64];
    let copied = [2, S + 64 + D];
    assert_eq!(call(libc::SYS_seccomp, [1, 0, at(&filter), 0, 0, 0]).words(2), copied);
    assert_eq!(call(libc::SYS_prctl, [22, 2, at(&filter), 0, 0, 0]).words(2), copied);
    let attach = [3, libc::SOL_SOCKET as u64, libc::SO_ATTACH_FILTER as u64, at(&filter), 16, 0];
    assert_eq!(call(libc::SYS_setsockopt, attach).words(3), copied);
    let mut configuration = [0xdead_0000_0050, S];
    let mut configured = call(libc::SYS_ioctl, [0, libc::SIOCGIFCONF, (&raw mut configuration) as u64, 0, 0, 0]);
    assert_eq!(configured.words(2), [0xdead_0000_0050, S + D]);
    kernel_writes(configured.args()[2], 40u32);
    assert_eq!(configured.give_back(0), 0);
    // SAFETY: the program's structure, which the call writes.
    assert_eq!(unsafe { (&raw const configuration).read_volatile() }, [0xdead_0000_0028, S]);
}

#[test]
fn new_processes() {
    let flags = (libc::CLONE_PIDFD | libc::CLONE_PARENT_SETTID) as u64;
    let arguments = [flags, S, S + 8, S + 16, 17, 0, 0, 0, S + 24, 1, 0];
    let process = call(libc::SYS_clone3, [at(&arguments), 88, 0, 0, 0, 0]);
    assert_eq!(process.words(0), [flags, S + D, S + 8, S + 16 + D, 17, 0, 0, 0, S + 24 + D, 1, 0]);
    // What no flag names means nothing, and the first version ends before the numbers.
    let arguments = [0, S, S, S, 17, 0, 0, 0, S, 1, 0];
    assert_eq!(call(libc::SYS_clone3, [at(&arguments), 64, 0, 0, 0, 0]).args()[0], at(&arguments));
}

#[test]
fn other_structures_are_the_programs() {
    let args = |nr, args| call(nr, args).args();
    let waiters = [[7, P, 2]];
    assert_eq!(args(libc::SYS_futex_waitv, [at(&waiters), 1, 0, S, 0, 0])[..4], [at(&waiters), 1, 0, S + D]);
    let disabled = shared(4, &[S, libc::SS_DISABLE as u64, 0]);
    assert_eq!(args(libc::SYS_sigaltstack, [disabled, S, 0, 0, 0, 0])[..2], [disabled + D, S + D]);
    let sized = shared(5, &[48, 0, 0, 0, 0, 0]);
    assert_eq!(args(libc::SYS_sched_setattr, [0, sized, 0, 0, 0, 0])[1], sized + D);
    let header = [0x2008_0522u64, 0];
    assert_eq!(args(libc::SYS_capget, [at(&header), S, 0, 0, 0, 0])[..2], [at(&header), S + D]);
    let handle = shared(6, &[16, 0, 0]);
    assert_eq!(args(libc::SYS_name_to_handle_at, [0, P, handle, S, 0, 0])[2..4], [handle + D, S + D]);
    assert_eq!(args(libc::SYS_landlock_add_rule, [0, 1, S, 0, 0, 0])[2], S + D);
}
