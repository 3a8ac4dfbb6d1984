//! Each shape of the table on structures in private memory that lead into the segment, and the table against the system's headers.

mod document;

mod given;

use crate::system_calls::table::calls::{CALLS, row};
use crate::system_calls::table::memory::visit;
use crate::system_calls::table::row::Arg;
use crate::system_calls::table::visitor::{Shared, TRANSFER_MAX};
use blizzard_contract::{CONTEXT_PRIVATE, CONTEXT_SHARED, SEGMENT_BASE, TAG_TABLE_BASE};

const S: u64 = SEGMENT_BASE;

type Found = std::result::Result<Vec<(u64, u64, bool)>, (usize, u64)>;

/// What the call touches: address, bytes, whether written; or the argument and the pointer that are refused.
fn ranges(nr: i64, args: [u64; 6]) -> Found {
    let mut out = Vec::new();
    // SAFETY: the arguments of these tests lead into the segment without being read there.
    let done = unsafe { visit(row(nr), nr, &args, Shared::Segment, &mut |r| out.push((r.addr, r.bytes, r.store))) };
    done.map(|()| out).map_err(|u| (u.argument, u.addr))
}

fn at<T>(value: &T) -> u64 {
    value as *const T as u64
}

/// With one node memory of `bz_alloc` is always accessible, and what the kernel may do with it is the program's business.
#[test]
fn with_one_node_user_managed_memory_alone_matters() {
    const USER: u64 = blizzard_contract::USER_BASE;
    let ranges = |nr: i64, args: [u64; 6]| {
        let mut out = Vec::new();
        // SAFETY: as above.
        let done =
            unsafe { visit(row(nr), nr, &args, Shared::UserManaged, &mut |r| out.push((r.addr, r.bytes, r.store))) };
        done.map(|()| out).map_err(|u| (u.argument, u.addr))
    };
    assert_eq!(ranges(libc::SYS_read, [0, S, 64, 0, 0, 0]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_read, [0, USER, 64, 0, 0, 0]), Ok(vec![(USER, 64, true)]));
    let parts = [[S, 8], [USER + 8, 16]];
    assert_eq!(ranges(libc::SYS_writev, [1, at(&parts), 2, 0, 0, 0]), Ok(vec![(USER + 8, 16, false)]));
    assert_eq!(ranges(libc::SYS_munmap, [S, 4096, 0, 0, 0, 0]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_munmap, [TAG_TABLE_BASE, 4096, 0, 0, 0, 0]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_munmap, [USER, 4096, 0, 0, 0, 0]), Err((0, USER)));
    assert_eq!(ranges(9999, [S; 6]), Ok(vec![]));
    assert_eq!(ranges(9999, [S, USER, 0, 0, 0, 0]), Err((1, USER)));
}

/// The kernel refuses a negative count, or takes it for the most that it transfers. The gate looked at 2^58 blocks, and the run hung.
#[test]
fn counts_beyond_the_kernels_range_name_no_more_than_it_transfers() {
    for nr in [libc::SYS_read, libc::SYS_write, libc::SYS_pread64, libc::SYS_pwrite64] {
        assert_eq!(ranges(nr, [0, S, u64::MAX, 0, 0, 0]), Ok(vec![]));
        assert_eq!(ranges(nr, [0, S, i64::MAX as u64, 0, 0, 0]).map(|r| r[0].1), Ok(TRANSFER_MAX));
    }
    for (nr, args) in [
        (libc::SYS_recvfrom, [0, S, u64::MAX, 0, 0, 0]),
        (libc::SYS_getcwd, [S, u64::MAX, 0, 0, 0, 0]),
        (libc::SYS_getrandom, [S, u64::MAX, 0, 0, 0, 0]),
    ] {
        assert_eq!(ranges(nr, args), Ok(vec![(S, TRANSFER_MAX, true)]), "{nr}");
    }
    let parts = [[S, 8], [S + 64, u64::MAX], [S + 128, 8]];
    assert_eq!(ranges(libc::SYS_writev, [1, at(&parts), 3, 0, 0, 0]), Ok(vec![(S, 8, false)]));
}

#[test]
fn the_table_is_sorted_by_number() {
    assert!(CALLS.is_sorted_by(|a, b| a.nr < b.nr));
}

/// The headers are an independent source of numbers and names. Newer headers may have more calls; older ones have fewer.
#[test]
fn every_call_of_the_systems_headers_is_in_the_table() {
    let paths = ["/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"];
    let header = paths.iter().find_map(|path| std::fs::read_to_string(path).ok()).expect("the C library's headers");
    let last = CALLS.last().unwrap().nr;
    let mut seen = 0;
    for line in header.lines() {
        let Some((name, nr)) = line.strip_prefix("#define __NR_").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let nr: i64 = nr.trim().parse().unwrap();
        if nr <= last {
            assert_eq!(row(nr).name, name);
            seen += 1;
        }
    }
    assert!(seen > 330, "only {seen} calls in the headers");
}

/// A pointer that the gate prepares, and that may lead into shared memory.
fn is_prepared(arg: Arg) -> bool {
    match arg {
        Arg::Num | Arg::Never | Arg::Kept | Arg::Mapped(..) => false,
        Arg::When(_, _, then) => is_prepared(*then),
        Arg::In(_) | Arg::Out(_) | Arg::Str | Arg::Layout(_) => true,
    }
}

/// `tests/cases/syscalls/vfork-calls.c` makes every call of its list in a child of vfork.
#[test]
fn every_call_with_a_pointer_is_in_the_list_of_the_vfork_case() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/cases/include/calls.inc");
    let text = std::fs::read_to_string(path).unwrap();
    let listed: Vec<(i64, &str)> = text
        .lines()
        .filter_map(|line| {
            let (kind, rest) = line.split_once('(')?;
            let mut words = rest.split([',', ')']).map(str::trim);
            let nr = words.next()?.parse().ok()?;
            ["CALL", "THEN", "VARY", "BLIND", "NONE"].contains(&kind).then_some((nr, words.next()?))
        })
        .collect();
    for call in CALLS.iter().filter(|call| call.args.iter().any(|&arg| is_prepared(arg))) {
        assert!(listed.contains(&(call.nr, call.name)), "{} {} is not in calls.inc", call.nr, call.name);
    }
    for (nr, name) in listed {
        assert_eq!(row(nr).name, name, "calls.inc");
    }
}

#[test]
fn the_numbers_are_those_of_the_libc_crate() {
    for (nr, name) in [
        (libc::SYS_read, "read"),
        (libc::SYS_sendmmsg, "sendmmsg"),
        (libc::SYS_clone3, "clone3"),
        (libc::SYS_futex_waitv, "futex_waitv"),
        (libc::SYS_mseal, "mseal"),
    ] {
        assert_eq!(row(nr).name, name);
    }
}

#[test]
fn structures_have_the_sizes_of_the_c_library() {
    let out = |nr, args: [u64; 6]| ranges(nr, args).unwrap()[0].1 as usize;
    assert_eq!(out(libc::SYS_fstat, [1, S, 0, 0, 0, 0]), size_of::<libc::stat>());
    assert_eq!(out(libc::SYS_getrusage, [0, S, 0, 0, 0, 0]), size_of::<libc::rusage>());
    assert_eq!(out(libc::SYS_fstatfs, [0, S, 0, 0, 0, 0]), size_of::<libc::statfs>());
    assert_eq!(out(libc::SYS_uname, [S, 0, 0, 0, 0, 0]), size_of::<libc::utsname>());
    assert_eq!(out(libc::SYS_sysinfo, [S, 0, 0, 0, 0, 0]), size_of::<libc::sysinfo>());
    assert_eq!(out(libc::SYS_times, [S, 0, 0, 0, 0, 0]), size_of::<libc::tms>());
    assert_eq!(out(libc::SYS_adjtimex, [S, 0, 0, 0, 0, 0]), size_of::<libc::timex>());
    assert_eq!(out(libc::SYS_statx, [0, 0, 0, 0, S, 0]), size_of::<libc::statx>());
    assert_eq!(out(libc::SYS_timer_create, [0, S, 0, 0, 0, 0]), size_of::<libc::sigevent>());
    assert_eq!(out(libc::SYS_waitid, [0, 0, S, 0, 0, 0]), size_of::<libc::siginfo_t>());
    assert_eq!(out(libc::SYS_setitimer, [0, S, 0, 0, 0, 0]), size_of::<libc::itimerval>());
    assert_eq!(out(libc::SYS_epoll_ctl, [0, 0, 0, S, 0, 0]), size_of::<libc::epoll_event>());
    assert_eq!(out(libc::SYS_mq_open, [0, 0, 0, S, 0, 0]), size_of::<libc::mq_attr>());
    assert_eq!(out(libc::SYS_poll, [S, 1, 0, 0, 0, 0]), size_of::<libc::pollfd>());
    assert_eq!(out(libc::SYS_semop, [0, S, 1, 0, 0, 0]), size_of::<libc::sembuf>());
    assert_eq!(out(libc::SYS_shmctl, [0, libc::IPC_STAT as u64, S, 0, 0, 0]), size_of::<libc::shmid_ds>());
    assert_eq!(out(libc::SYS_msgctl, [0, libc::IPC_STAT as u64, S, 0, 0, 0]), size_of::<libc::msqid_ds>());
    assert_eq!(out(libc::SYS_semctl, [0, 0, libc::IPC_STAT as u64, S, 0, 0]), size_of::<libc::semid_ds>());
    assert_eq!(out(libc::SYS_fcntl, [0, libc::F_GETLK as u64, S, 0, 0, 0]), size_of::<libc::flock>());
    assert_eq!(out(libc::SYS_sigaltstack, [0, S, 0, 0, 0, 0]), size_of::<libc::stack_t>());
}

#[test]
fn lengths_come_from_where_the_table_says() {
    assert_eq!(ranges(libc::SYS_read, [0, S + 8, 100, 0, 0, 0]), Ok(vec![(S + 8, 100, true)]));
    assert_eq!(ranges(libc::SYS_write, [1, S + 8, 100, 0, 0, 0]), Ok(vec![(S + 8, 100, false)]));
    assert_eq!(ranges(libc::SYS_poll, [S, 3, 0, 0, 0, 0]), Ok(vec![(S, 24, true)]));
    assert_eq!(ranges(libc::SYS_select, [65, S, 0, S + 64, 0, 0]), Ok(vec![(S, 16, true), (S + 64, 16, true)]));
    let length = 28u32;
    let length_at = at(&length);
    assert_eq!(ranges(libc::SYS_accept, [3, S, length_at, 0, 0, 0]), Ok(vec![(S, 28, true)]));
    assert_eq!(ranges(libc::SYS_read, [0, S, 0, 0, 0, 0]), Ok(vec![]), "nothing is touched");
    assert_eq!(ranges(libc::SYS_msgsnd, [0, S, 20, 0, 0, 0]), Ok(vec![(S, 28, false)]), "the type goes with the text");
    assert_eq!(ranges(libc::SYS_mincore, [0x7000, 8193, S, 0, 0, 0]), Ok(vec![(S, 3, true)]));
    assert_eq!(ranges(libc::SYS_move_pages, [0, 3, 0, 0, S, 0]), Ok(vec![(S, 12, true)]));
    assert_eq!(ranges(libc::SYS_epoll_wait, [0, S, 4, 0, 0, 0]), Ok(vec![(S, 48, true)]));
}

/// The kernel looks at the lower half of a register that holds an `int`; what a program leaves in the other half was once taken for
/// a length of many gigabytes.
#[test]
fn the_upper_half_of_an_int_means_nothing() {
    let garbage = 0xdead_0000_0000u64;
    assert_eq!(ranges(libc::SYS_bind, [3, S, garbage | 16, 0, 0, 0]), Ok(vec![(S, 16, false)]));
    assert_eq!(ranges(libc::SYS_poll, [S, garbage | 2, 0, 0, 0, 0]), Ok(vec![(S, 16, true)]));
    let minus = -1i64 as u64;
    assert_eq!(ranges(libc::SYS_epoll_wait, [3, S, minus, 0, 0, 0]), Ok(vec![]), "refused by the kernel");
    assert_eq!(ranges(libc::SYS_getsockname, [3, S, at(&-5i32), 0, 0, 0]), Ok(vec![]));
}

#[test]
fn private_pointers_and_large_numbers_are_left_alone() {
    assert_eq!(ranges(libc::SYS_read, [0, 0x7000, 100, 0, 0, 0]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_lseek, [0, S, 0, 0, 0, 0]), Ok(vec![]), "an offset is not an address");
    assert_eq!(ranges(libc::SYS_pread64, [0, 0x7000, 10, S, 0, 0]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_getpid, [S; 6]), Ok(vec![]), "unused registers mean nothing");
    assert_eq!(ranges(libc::SYS_mremap, [0x7000, 1, 2, 1, S, 0]), Ok(vec![]), "unused without MREMAP_FIXED");
}

/// A bad pointer is for the kernel to refuse: the gate itself once faulted on it.
#[test]
fn bad_pointers_are_left_to_the_kernel() {
    for bad in [0, 1, 0x7000, u64::MAX - 7] {
        assert_eq!(ranges(libc::SYS_readv, [0, bad, 3, 0, 0, 0]), Ok(vec![]));
        assert_eq!(ranges(libc::SYS_sendmsg, [0, bad, 0, 0, 0, 0]), Ok(vec![]));
        assert_eq!(ranges(libc::SYS_accept, [0, S, bad, 0, 0, 0]), Ok(vec![]));
        assert_eq!(ranges(libc::SYS_clone3, [bad, 88, 0, 0, 0, 0]), Ok(vec![]));
    }
    assert_eq!(ranges(libc::SYS_readv, [0, at(&[S, 10]), 1025, 0, 0, 0]), Ok(vec![]), "too many");
}

#[test]
fn a_range_that_reaches_into_the_segment_counts() {
    assert_eq!(ranges(libc::SYS_write, [1, S - 4, 8, 0, 0, 0]), Ok(vec![(S - 4, 8, false)]));
}

#[test]
fn vectors_are_followed() {
    let vectors = [[S, 10], [0x7000, 20], [S + 64, 30]];
    let v = at(&vectors);
    assert_eq!(ranges(libc::SYS_readv, [0, v, 3, 0, 0, 0]), Ok(vec![(S, 10, true), (S + 64, 30, true)]));
    assert_eq!(ranges(libc::SYS_pwritev2, [0, v, 1, 0, 0, 0]), Ok(vec![(S, 10, false)]));
    // More than are read at once.
    let many: Vec<[u64; 2]> = (0..40).map(|k| [S + 64 * k, k]).collect();
    let found = ranges(libc::SYS_writev, [0, many.as_ptr() as u64, 40, 0, 0, 0]).unwrap();
    assert_eq!(found, (1..40).map(|k| (S + 64 * k, k, false)).collect::<Vec<_>>());
    // Another process's memory cannot be prepared.
    let private = [[0x7000u64, 20]];
    assert_eq!(ranges(libc::SYS_process_vm_readv, [1, v, 3, at(&private), 1, 0]).unwrap().len(), 2);
    assert_eq!(ranges(libc::SYS_process_vm_readv, [1, v, 3, v, 3, 0]), Err((3, S)));
    assert_eq!(ranges(libc::SYS_process_madvise, [1, v, 3, 0, 0, 0]), Err((1, S)));
}

#[test]
fn messages_are_followed() {
    let vectors = [[S, 10], [0x7000, 20], [S + 64, 30]];
    let header = [S + 128, 0xdead_0000_0010, at(&vectors), 3, S + 256, 40, 0];
    let parts = |store| vec![(S + 128, 16, store), (S + 256, 40, store), (S, 10, store), (S + 64, 30, store)];
    assert_eq!(ranges(libc::SYS_sendmsg, [0, at(&header), 0, 0, 0, 0]), Ok(parts(false)));
    assert_eq!(ranges(libc::SYS_recvmsg, [0, at(&header), 0, 0, 0, 0]), Ok(parts(true)));
    let two = [[S + 1024, 4, at(&vectors), 1, 0, 0, 0, 0], [0, 0, at(&vectors[2]), 1, 0, 0, 0, 0]];
    let all = |store| vec![(S + 1024, 4, store), (S, 10, store), (S + 64, 30, store)];
    assert_eq!(ranges(libc::SYS_sendmmsg, [0, at(&two), 2, 0, 0, 0]), Ok(all(false)));
    assert_eq!(ranges(libc::SYS_recvmmsg, [0, at(&two), 2, 0, 0, 0]), Ok(all(true)));
}

#[test]
fn strings_of_a_new_program_are_found() {
    // A string in the segment is read there, so only an empty list and private strings can be tried here; tests/tests/gate.rs has the rest.
    let list = [c"a".as_ptr() as u64, c"b".as_ptr() as u64, 0];
    assert_eq!(ranges(libc::SYS_execve, [0, at(&list), 0, 0, 0, 0]), Ok(vec![]));
}

#[test]
fn futexes() {
    let wake = (libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG) as u64;
    assert_eq!(ranges(libc::SYS_futex, [0x7000, wake, 1, S, S, 0]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_futex, [0x7000, libc::FUTEX_WAIT as u64, 1, S, S, 0]), Ok(vec![(S, 16, false)]));
    let requeue = libc::FUTEX_CMP_REQUEUE as u64;
    assert_eq!(ranges(libc::SYS_futex, [0x7000, requeue, 1, 1, S, 0]), Err((4, S)));
    assert_eq!(ranges(libc::SYS_futex, [0x7000, requeue, 1, 1, 0x8000, 0]), Ok(vec![]));
    let waiters = [[7, 0x7000, 2], [7, S + 4, 2]];
    assert_eq!(ranges(libc::SYS_futex_waitv, [at(&waiters), 1, 0, S, 0, 0]), Ok(vec![(S, 16, false)]));
    assert_eq!(ranges(libc::SYS_futex_waitv, [at(&waiters), 2, 0, 0, 0, 0]), Err((0, S + 4)));
    assert_eq!(ranges(456, [at(&waiters), 0, 0, 0, 0, 0]), Err((0, S + 4)), "futex_requeue");
}

#[test]
fn signals() {
    let mask = [S, 8];
    let select = [0, 0, 0, 0, 0, at(&mask)];
    assert_eq!(ranges(libc::SYS_pselect6, select), Ok(vec![(S, 8, false)]));
    assert_eq!(ranges(libc::SYS_ppoll, [0, 0, 0, S, 8, 0]), Ok(vec![(S, 8, false)]));
    let action = [libc::SIGUSR1 as u64, S, S + 64, 8, 0, 0];
    assert_eq!(ranges(libc::SYS_rt_sigaction, action), Ok(vec![(S, 32, false), (S + 64, 32, true)]));
    let stack = [S, 0, 8192];
    assert_eq!(
        ranges(libc::SYS_sigaltstack, [at(&stack), 0, 0, 0, 0, 0]),
        Err((0, S)),
        "frames would be written there"
    );
    let disabled = [S, libc::SS_DISABLE as u64, 0];
    assert_eq!(ranges(libc::SYS_sigaltstack, [at(&disabled), 0, 0, 0, 0, 0]), Ok(vec![]));
    let by_socket = [S, 2 << 32, 0, 0, 0, 0, 0, 0];
    assert_eq!(ranges(libc::SYS_mq_notify, [0, at(&by_socket), 0, 0, 0, 0]), Ok(vec![(S, 32, false)]));
    let by_signal = [S, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(ranges(libc::SYS_mq_notify, [0, at(&by_signal), 0, 0, 0, 0]), Ok(vec![]), "a value, not an address");
}

#[test]
fn new_processes() {
    let flags = |bits: i32| u64::from(bits as u32);
    let tids = flags(libc::CLONE_PARENT_SETTID);
    assert_eq!(ranges(libc::SYS_clone, [tids, 0, S, S, S, 0]), Ok(vec![(S, 4, true)]));
    assert_eq!(ranges(libc::SYS_clone, [flags(libc::CLONE_CHILD_CLEARTID), 0, S, S, 0, 0]), Err((3, S)));
    assert_eq!(ranges(libc::SYS_clone, [0, S, 0, 0, 0, 0]), Err((1, S)), "a stack");
    let mut args = [tids | flags(libc::CLONE_PIDFD), S, 0, S + 64, 17, 0, 0, 0, S + 128, 2, 0u64];
    let found = vec![(S, 4, true), (S + 64, 4, true), (S + 128, 8, false)];
    assert_eq!(ranges(libc::SYS_clone3, [at(&args), 88, 0, 0, 0, 0]), Ok(found));
    args[5] = S;
    assert_eq!(ranges(libc::SYS_clone3, [at(&args), 88, 0, 0, 0, 0]), Err((0, S)));
    // The first version of the structure ends before the numbers.
    args[5] = 0;
    assert_eq!(ranges(libc::SYS_clone3, [at(&args), 64, 0, 0, 0, 0]).unwrap().len(), 2);
}

#[test]
fn structures_that_say_their_size() {
    let attr = [48u32, 0, 0, 0];
    assert_eq!(ranges(libc::SYS_sched_setattr, [0, at(&attr), 0, 0, 0, 0]), Ok(vec![]));
    let [v1, v3] = [[0x1998_0330u32, 0], [0x2008_0522, 0]];
    assert_eq!(ranges(libc::SYS_capget, [at(&v1), S, 0, 0, 0, 0]), Ok(vec![(S, 12, true)]));
    assert_eq!(ranges(libc::SYS_capget, [at(&v3), S, 0, 0, 0, 0]), Ok(vec![(S, 24, true)]));
    let value = [S, 100u64];
    assert_eq!(ranges(463, [0, 0, 0, 0, at(&value), 16]), Ok(vec![(S, 100, false)]), "setxattrat");
    assert_eq!(ranges(464, [0, 0, 0, 0, at(&value), 16]), Ok(vec![(S, 100, true)]), "getxattrat");
    assert_eq!(ranges(libc::SYS_name_to_handle_at, [0, 0, 0, S, 0, 0]), Ok(vec![(S, 4, true)]));
    assert_eq!(ranges(libc::SYS_name_to_handle_at, [0, 0, 0, S, 1, 0]), Ok(vec![(S, 8, true)]));
}

/// What the kernel uses when the call is over could lose its access meanwhile.
#[test]
fn buffers_of_asynchronous_transfers_are_refused() {
    let iocb = [0u64, 0, 0, S, 512, 0, 0, 0];
    let list = [at(&iocb)];
    assert_eq!(ranges(libc::SYS_io_submit, [0, 1, at(&list), 0, 0, 0]), Err((2, S)));
    assert_eq!(ranges(libc::SYS_io_submit, [0, 0, at(&list), 0, 0, 0]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_set_robust_list, [S, 24, 0, 0, 0, 0]), Err((0, S)));
}

#[test]
fn ioctls() {
    let ioctl = |command: u64, addr| ranges(libc::SYS_ioctl, [0, command, addr, 0, 0, 0]);
    assert_eq!(ioctl(libc::TCGETS, S), Ok(vec![(S, 36, true)]));
    assert_eq!(ioctl(libc::TCSETSW, S), Ok(vec![(S, 36, false)]));
    assert_eq!(ioctl(libc::FIONREAD, S), Ok(vec![(S, 4, true)]));
    assert_eq!(ioctl(libc::TIOCGWINSZ, S), Ok(vec![(S, 8, true)]));
    assert_eq!(ioctl(libc::SIOCGIFINDEX, S), Ok(vec![(S, 40, true)]));
    assert_eq!(ioctl(libc::TIOCGPTN, S), Ok(vec![(S, 4, true)]), "says its own size");
    assert_eq!(ioctl(libc::FIOCLEX, S), Ok(vec![]), "takes no argument");
    let configuration = [0xdead_0000_0050, S];
    assert_eq!(ioctl(libc::SIOCGIFCONF, at(&configuration)), Ok(vec![(S, 80, true)]));
    assert_eq!(ioctl(0x5499, S), Err((2, S)), "unknown");
    let unknown_with_size = 0x4010_9999;
    assert_eq!(ioctl(unknown_with_size, S), Err((2, S)));
    assert_eq!(ioctl(unknown_with_size, at(&[1u64, S + 8])), Err((2, S + 8)), "a pointer inside what it reads");
    assert_eq!(ioctl(unknown_with_size, at(&[1u64, 2])), Ok(vec![]));
    assert_eq!(ioctl(unknown_with_size, 5), Ok(vec![]), "a number");
    let ethtool = [0u64, 0, S, 0, 0];
    assert_eq!(ioctl(0x8946, at(&ethtool)), Err((2, S)));
    let mut extents = [0u64; 4];
    extents[3] = 3;
    assert_eq!(ioctl(0xc020_660b, at(&extents)), Ok(vec![]));
}

#[test]
fn other_commands() {
    let fcntl = |command: i32| ranges(libc::SYS_fcntl, [1, command as u64, S, 0, 0, 0]);
    assert_eq!(fcntl(libc::F_GETFD), Ok(vec![]));
    assert_eq!(fcntl(libc::F_SETLK), Ok(vec![(S, 32, true)]));
    assert_eq!(fcntl(libc::F_OFD_GETLK), Ok(vec![(S, 32, true)]));
    let prctl =
        |option: i32, args: [u64; 4]| ranges(libc::SYS_prctl, [option as u64, args[0], args[1], args[2], args[3], 0]);
    assert_eq!(prctl(libc::PR_GET_NAME, [S, 0, 0, 0]), Ok(vec![(S, 16, true)]));
    assert_eq!(prctl(libc::PR_SET_DUMPABLE, [S, S, S, S]), Ok(vec![]));
    assert_eq!(
        prctl(libc::PR_SET_NO_NEW_PRIVS, [1, S, S, S]),
        Ok(vec![]),
        "the kernel looks at none of them as a pointer"
    );
    assert_eq!(prctl(0x4155_5856, [S, 16, 0, 0]), Ok(vec![(S, 16, true)]), "PR_GET_AUXV");
    let filter = [3u64, S];
    assert_eq!(prctl(libc::PR_SET_SECCOMP, [2, at(&filter), 0, 0]), Ok(vec![(S, 24, false)]));
    assert_eq!(ranges(libc::SYS_seccomp, [1, 0, at(&filter), 0, 0, 0]), Ok(vec![(S, 24, false)]));
    assert_eq!(ranges(libc::SYS_arch_prctl, [0x1002, S, 0, 0, 0, 0]), Err((1, S)));
    assert_eq!(ranges(libc::SYS_arch_prctl, [0x1001, 0x7000, 0, 0, 0, 0]), Err((1, 0x7000)), "checks take it for zero");
    assert_eq!(ranges(libc::SYS_arch_prctl, [0x1001, 0, 0, 0, 0, 0]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_arch_prctl, [0x1003, S, 0, 0, 0, 0]), Ok(vec![(S, 8, true)]));
    assert_eq!(ranges(libc::SYS_semctl, [0, 0, 13, S, 0, 0]), Err((3, S)), "GETALL: how many is not known");
    assert_eq!(ranges(libc::SYS_semctl, [0, 0, 16, S, 0, 0]), Ok(vec![]), "SETVAL: a number");
    assert_eq!(ranges(libc::SYS_shmctl, [0, libc::IPC_RMID as u64, S, 0, 0, 0]), Ok(vec![]));
}

#[test]
fn commands_that_are_not_listed_take_no_pointer_into_the_segment() {
    for argument in 1..5 {
        let mut args = [9999, 0, 0, 0, 0, 0];
        args[argument] = S + 5;
        assert_eq!(ranges(libc::SYS_prctl, args), Err((argument, S + 5)), "prctl");
    }
    assert_eq!(ranges(libc::SYS_prctl, [9999, 1, 2, 3, 4, 5]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_fcntl, [3, 9999, S, 0, 0, 0]), Err((2, S)));
    assert_eq!(ranges(libc::SYS_arch_prctl, [0x9999, S, 0, 0, 0, 0]), Err((1, S)));
    assert_eq!(ranges(libc::SYS_shmctl, [0, 99, S, 0, 0, 0]), Err((2, S)));
    assert_eq!(ranges(libc::SYS_msgctl, [0, 99, S, 0, 0, 0]), Err((2, S)));
    assert_eq!(ranges(libc::SYS_semctl, [0, 0, 99, S, 0, 0]), Err((3, S)));
    assert_eq!(ranges(libc::SYS_seccomp, [99, 0, S, 0, 0, 0]), Err((2, S)));
}

#[test]
fn socket_options() {
    let socket = libc::SOL_SOCKET as u64;
    let plain = [3, socket, libc::SO_RCVBUF as u64, S, 4, 0];
    assert_eq!(ranges(libc::SYS_setsockopt, plain), Ok(vec![(S, 4, false)]));
    let length = 4u32;
    let get = |name: i32| ranges(libc::SYS_getsockopt, [3, socket, name as u64, S, at(&length), 0]);
    assert_eq!(get(libc::SO_RCVBUF), Ok(vec![(S, 4, true)]));
    assert_eq!(get(libc::SO_ATTACH_FILTER), Ok(vec![(S, 32, true)]), "counts instructions");
    let filter = [2u64, S + 64];
    let attach = [3, socket, libc::SO_ATTACH_FILTER as u64, at(&filter), 16, 0];
    assert_eq!(ranges(libc::SYS_setsockopt, attach), Ok(vec![(S + 64, 16, false)]));
}

#[test]
fn unknown_calls_and_layouts_are_refused_with_the_argument() {
    assert_eq!(ranges(9999, [0, 1, S + 5, 0, 0, 0]), Err((2, S + 5)));
    assert_eq!(ranges(libc::SYS_munmap, [S, 4096, 0, 0, 0, 0]), Err((0, S)));
    assert_eq!(ranges(libc::SYS_mremap, [0x7000, 1, 2, libc::MREMAP_FIXED as u64, S, 0]), Err((4, S)));
    // Zeros in place of a tag allow every access: a node went on with data that had never come.
    let tag = TAG_TABLE_BASE + (S >> 6);
    let fixed = (libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let hint = fixed & !(libc::MAP_FIXED as u64);
    for at in [tag & !4095, CONTEXT_SHARED, CONTEXT_PRIVATE] {
        for (before, bytes) in [(0, 1), (8192, 8193), (1 << 20, u64::MAX)] {
            let first = at - before;
            let args = [first, bytes, 3, fixed, 0, 0];
            let refused = Err((0, if at == tag & !4095 { first } else { first.max(CONTEXT_SHARED) }));
            for nr in [libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_madvise, libc::SYS_mremap] {
                assert_eq!(ranges(nr, args), refused, "{nr} {first:#x} {bytes:#x}");
            }
            assert_eq!(ranges(libc::SYS_mmap, [first, bytes, 3, hint, 0, 0]), Ok(vec![]), "finds another place");
        }
    }
    assert_eq!(
        ranges(libc::SYS_mmap, [S, 4096, 3, hint, 0, 0]),
        Ok(vec![]),
        "an allocator asks for room near its last chunk"
    );
    assert_eq!(ranges(libc::SYS_mmap, [S, 4096, 3, fixed, 0, 0]), Err((0, S)));
    assert_eq!(ranges(libc::SYS_munmap, [S - (4 << 20), 1 << 20, 0, 0, 0, 0]), Ok(vec![]));
    assert_eq!(ranges(libc::SYS_munmap, [S - (4 << 20), 8 << 20, 0, 0, 0, 0]), Err((0, S - (2 << 20))));
    let attr = [0u64, S, 0];
    assert_eq!(ranges(libc::SYS_bpf, [0, at(&attr), 24, 0, 0, 0]), Err((1, S)));
}

#[test]
fn a_refusal_names_call_command_pointer_and_argument() {
    let text = |nr, args| {
        // SAFETY: nothing is read in the segment.
        unsafe { visit(row(nr), nr, &args, Shared::Segment, &mut |_| {}) }.unwrap_err().to_string()
    };
    let message = text(libc::SYS_munmap, [S, 4096, 0, 0, 0, 0]);
    assert!(
        message.starts_with("system call 11 (munmap) has a pointer into shared memory (0x200000000000) in argument 1")
    );
    let message = text(libc::SYS_munmap, [TAG_TABLE_BASE, 4096, 0, 0, 0, 0]);
    assert_eq!(message, "system call 11 (munmap) would change pages that the runtime needs at 0x7fff8000 (argument 1)");
    let message = text(libc::SYS_ioctl, [0, 0x5499, S, 0, 0, 0]);
    assert!(message.starts_with("system call 16 (ioctl), command 0x5499, has a pointer"), "{message}");
    assert!(text(9999, [S; 6]).starts_with("system call 9999 (unknown) has"));
}
