//! The commands of `ioctl`, `fcntl`, `prctl` and their like: what is behind the argument of each.
//!
//! Input: a command. Output: what is behind its argument. What is not listed is unknown.
//! Source: Linux `include/uapi` (asm-generic/ioctls.h, linux/sockios.h, linux/fs.h, linux/fcntl.h, linux/prctl.h, asm/prctl.h and
//! others); section 2 of the manual.

use crate::system_calls::table::row::Behind::{
    self, Configuration, Counted, Encoded, Filter, Number, Opaque, Read, Str, Written,
};
use crate::system_calls::table::row::Commands;

const fn one(command: u32, behind: Behind, names: &'static str) -> Commands {
    span(command, command, behind, names)
}

#[cfg_attr(not(test), expect(unused_variables, reason = "the runtime has no use for names"))]
const fn span(first: u32, last: u32, behind: Behind, names: &'static str) -> Commands {
    Commands {
        first,
        last,
        behind,
        #[cfg(test)]
        names,
    }
}

const TERMIOS: u32 = 36;
const TERMIO: u32 = 18;
const IFREQ: u32 = 40;

/// The commands of `ioctl` that do not say their own size, and those that say it wrong.
#[rustfmt::skip]
pub const IOCTLS: &[Commands] = &[
    one(0x1, Written(4), "FIBMAP"),
    one(0x2, Written(4), "FIGETBSZ"),
    one(0x125d, Read(4), "BLKROSET"),
    one(0x125e, Written(4), "BLKROGET"),
    one(0x125f, Number, "BLKRRPART"),
    one(0x1260, Written(8), "BLKGETSIZE"),
    span(0x1261, 0x1262, Number, "BLKFLSBUF BLKRASET"),
    one(0x1263, Written(8), "BLKRAGET"),
    one(0x1264, Number, "BLKFRASET"),
    one(0x1265, Written(8), "BLKFRAGET"),
    one(0x1267, Written(2), "BLKSECTGET"),
    one(0x1268, Written(4), "BLKSSZGET"),
    one(0x1269, Opaque(24), "BLKPG"),
    one(0x1277, Read(16), "BLKDISCARD"),
    span(0x1278, 0x127c, Written(4), "BLKIOMIN BLKIOOPT BLKALIGNOFF BLKPBSZGET BLKDISCARDZEROES"),
    one(0x127d, Read(16), "BLKSECDISCARD"),
    one(0x127e, Written(2), "BLKROTATIONAL"),
    one(0x127f, Read(16), "BLKZEROOUT"),
    span(0x4c00, 0x4c01, Number, "LOOP_SET_FD LOOP_CLR_FD"),
    one(0x4c02, Read(168), "LOOP_SET_STATUS"),
    one(0x4c03, Written(168), "LOOP_GET_STATUS"),
    one(0x4c04, Read(232), "LOOP_SET_STATUS64"),
    one(0x4c05, Written(232), "LOOP_GET_STATUS64"),
    span(0x4c06, 0x4c09, Number, "LOOP_CHANGE_FD LOOP_SET_CAPACITY LOOP_SET_DIRECT_IO LOOP_SET_BLOCK_SIZE"),
    one(0x4c0a, Read(304), "LOOP_CONFIGURE"),
    span(0x4c80, 0x4c82, Number, "LOOP_CTL_ADD LOOP_CTL_REMOVE LOOP_CTL_GET_FREE"),
    one(0x5401, Written(TERMIOS), "TCGETS"),
    span(0x5402, 0x5404, Read(TERMIOS), "TCSETS TCSETSW TCSETSF"),
    one(0x5405, Written(TERMIO), "TCGETA"),
    span(0x5406, 0x5408, Read(TERMIO), "TCSETA TCSETAW TCSETAF"),
    span(0x5409, 0x540e, Number, "TCSBRK TCXONC TCFLSH TIOCEXCL TIOCNXCL TIOCSCTTY"),
    one(0x540f, Written(4), "TIOCGPGRP"),
    one(0x5410, Read(4), "TIOCSPGRP"),
    one(0x5411, Written(4), "TIOCOUTQ, SIOCOUTQ"),
    one(0x5412, Read(1), "TIOCSTI"),
    one(0x5413, Written(8), "TIOCGWINSZ"),
    one(0x5414, Read(8), "TIOCSWINSZ"),
    one(0x5415, Written(4), "TIOCMGET"),
    span(0x5416, 0x5418, Read(4), "TIOCMBIS TIOCMBIC TIOCMSET"),
    one(0x5419, Written(4), "TIOCGSOFTCAR"),
    one(0x541a, Read(4), "TIOCSSOFTCAR"),
    one(0x541b, Written(4), "FIONREAD, SIOCINQ"),
    one(0x541d, Number, "TIOCCONS"),
    one(0x541e, Written(72), "TIOCGSERIAL"),
    one(0x541f, Read(72), "TIOCSSERIAL"),
    span(0x5420, 0x5421, Read(4), "TIOCPKT FIONBIO"),
    one(0x5422, Number, "TIOCNOTTY"),
    one(0x5423, Read(4), "TIOCSETD"),
    one(0x5424, Written(4), "TIOCGETD"),
    span(0x5425, 0x5428, Number, "TCSBRKP TIOCSBRK TIOCCBRK"),
    one(0x5429, Written(4), "TIOCGSID"),
    one(0x542e, Written(32), "TIOCGRS485"),
    one(0x542f, Written(32), "TIOCSRS485"),
    one(0x5437, Number, "TIOCVHANGUP"),
    one(0x5441, Number, "TIOCGPTPEER"),
    span(0x5450, 0x5451, Number, "FIONCLEX FIOCLEX"),
    one(0x5452, Read(4), "FIOASYNC"),
    one(0x5456, Written(TERMIOS), "TIOCGLCKTRMIOS"),
    one(0x5457, Read(TERMIOS), "TIOCSLCKTRMIOS"),
    one(0x5459, Written(4), "TIOCSERGETLSR"),
    one(0x545c, Number, "TIOCMIWAIT"),
    one(0x545d, Written(80), "TIOCGICOUNT"),
    one(0x5460, Written(8), "FIOQSIZE"),
    span(0x8901, 0x8902, Read(4), "FIOSETOWN SIOCSPGRP"),
    span(0x8903, 0x8905, Written(4), "FIOGETOWN SIOCGPGRP SIOCATMARK"),
    span(0x8906, 0x8907, Written(16), "SIOCGSTAMP SIOCGSTAMPNS"),
    span(0x890b, 0x890c, Opaque(120), "SIOCADDRT SIOCDELRT"),
    one(0x8912, Configuration, "SIOCGIFCONF"),
    span(0x8910, 0x893f, Written(IFREQ), "SIOCGIFNAME SIOCGIFFLAGS SIOCGIFADDR SIOCGIFINDEX and others with a struct ifreq"),
    one(0x8946, Opaque(IFREQ), "SIOCETHTOOL"),
    span(0x8947, 0x8949, Written(IFREQ), "SIOCGMIIPHY SIOCGMIIREG SIOCSMIIREG"),
    one(0x894b, Written(4), "SIOCOUTQNSD"),
    one(0x894c, Number, "SIOCGSKNS"),
    one(0x8953, Read(68), "SIOCDARP"),
    one(0x8954, Written(68), "SIOCGARP"),
    one(0x8955, Read(68), "SIOCSARP"),
    span(0x8970, 0x8971, Written(IFREQ), "SIOCGIFMAP SIOCSIFMAP"),
    span(0x89a0, 0x89a1, Str, "SIOCBRADDBR SIOCBRDELBR"),
    span(0x89b0, 0x89b1, Opaque(IFREQ), "SIOCSHWTSTAMP SIOCGHWTSTAMP"),
    span(0x89f0, 0x89ff, Opaque(IFREQ), "SIOCDEVPRIVATE and the following"),
    span(0x2400, 0x2401, Number, "PERF_EVENT_IOC_ENABLE PERF_EVENT_IOC_DISABLE"),
    span(0x2402, 0x2403, Number, "PERF_EVENT_IOC_REFRESH PERF_EVENT_IOC_RESET"),
    one(0x2405, Number, "PERF_EVENT_IOC_SET_OUTPUT"),
    one(0x4004_2408, Number, "PERF_EVENT_IOC_SET_BPF"),
    one(0x4004_2409, Number, "PERF_EVENT_IOC_PAUSE_OUTPUT"),
    one(0x4008_2404, Read(8), "PERF_EVENT_IOC_PERIOD"),
    one(0x4008_2406, Str, "PERF_EVENT_IOC_SET_FILTER"),
    one(0x8008_2407, Written(8), "PERF_EVENT_IOC_ID"),
    one(0x4004_5436, Number, "TIOCSIG"),
    one(0x4004_9409, Number, "FICLONE"),
    one(0x4020_940d, Read(32), "FICLONERANGE"),
    one(0xc018_9436, Counted { header: 24, at: 16, width: 2, element: 32 }, "FIDEDUPERANGE"),
    one(0xc020_660b, Counted { header: 32, at: 24, width: 4, element: 56 }, "FS_IOC_FIEMAP"),
    one(0x4008_5203, Counted { header: 8, at: 4, width: 4, element: 1 }, "RNDADDENTROPY"),
];

/// Types (bits 8 to 15 of the command) whose commands say their size truly and have no pointers inside.
pub const ENCODED_TYPES: &[(u8, &str)] = &[
    (b'T', "terminals: TCGETS2 TCSETS2 TIOCGPTN TIOCSPTLCK TIOCGDEV TIOCGPKT TIOCGPTLCK TIOCGEXCL TIOCGISO7816"),
    (b'X', "file systems: FIFREEZE FITHAW FITRIM FS_IOC_FSGETXATTR FS_IOC_FSSETXATTR"),
    (b'f', "file systems: FS_IOC_GETFLAGS FS_IOC_SETFLAGS"),
    (b'v', "file systems: FS_IOC_GETVERSION FS_IOC_SETVERSION"),
    (b'R', "random numbers: RNDGETENTCNT RNDADDTOENTCNT RNDZAPENTCNT RNDCLEARPOOL RNDRESEEDCRNG"),
    (b'p', "clocks: RTC_RD_TIME RTC_SET_TIME RTC_ALM_READ and others of /dev/rtc"),
    (0x12, "block devices: BLKBSZGET BLKBSZSET BLKGETSIZE64"),
    (0x89, "sockets: SIOCGSTAMP_NEW SIOCGSTAMPNS_NEW"),
    (0xb7, "name spaces: NS_GET_USERNS NS_GET_PARENT NS_GET_NSTYPE NS_GET_OWNER_UID"),
];

/// `fcntl`.
#[rustfmt::skip]
pub const FCNTLS: &[Commands] = &[
    span(0, 4, Number, "F_DUPFD F_GETFD F_SETFD F_GETFL F_SETFL"),
    span(5, 7, Written(32), "F_GETLK F_SETLK F_SETLKW"),
    span(8, 11, Number, "F_SETOWN F_GETOWN F_SETSIG F_GETSIG"),
    span(15, 16, Written(8), "F_SETOWN_EX F_GETOWN_EX"),
    one(17, Written(8), "F_GETOWNER_UIDS"),
    span(36, 38, Written(32), "F_OFD_GETLK F_OFD_SETLK F_OFD_SETLKW"),
    span(1024, 1028, Number, "F_SETLEASE F_GETLEASE F_NOTIFY F_DUPFD_QUERY F_CREATED_QUERY"),
    span(1029, 1034, Number, "F_CANCELLK F_DUPFD_CLOEXEC F_SETPIPE_SZ F_GETPIPE_SZ F_ADD_SEALS F_GET_SEALS"),
    span(1035, 1038, Written(8), "F_GET_RW_HINT F_SET_RW_HINT F_GET_FILE_RW_HINT F_SET_FILE_RW_HINT"),
];

/// `prctl`: the second argument; the others are numbers.
#[rustfmt::skip]
pub const PRCTLS: &[Commands] = &[
    one(1, Number, "PR_SET_PDEATHSIG"),
    one(2, Written(4), "PR_GET_PDEATHSIG"),
    span(3, 4, Number, "PR_GET_DUMPABLE PR_SET_DUMPABLE"),
    one(5, Written(4), "PR_GET_UNALIGN"),
    span(6, 8, Number, "PR_SET_UNALIGN PR_GET_KEEPCAPS PR_SET_KEEPCAPS"),
    one(9, Written(4), "PR_GET_FPEMU"),
    one(10, Number, "PR_SET_FPEMU"),
    one(11, Written(4), "PR_GET_FPEXC"),
    span(12, 14, Number, "PR_SET_FPEXC PR_GET_TIMING PR_SET_TIMING"),
    one(15, Str, "PR_SET_NAME"),
    one(16, Written(16), "PR_GET_NAME"),
    one(19, Written(4), "PR_GET_ENDIAN"),
    span(20, 21, Number, "PR_SET_ENDIAN PR_GET_SECCOMP"),
    one(22, Number, "PR_SET_SECCOMP: strict"),
    span(23, 24, Number, "PR_CAPBSET_READ PR_CAPBSET_DROP"),
    one(25, Written(4), "PR_GET_TSC"),
    span(26, 34, Number, "PR_SET_TSC PR_GET_SECUREBITS PR_SET_SECUREBITS PR_SET_TIMERSLACK PR_GET_TIMERSLACK PR_TASK_PERF_EVENTS_DISABLE PR_TASK_PERF_EVENTS_ENABLE PR_MCE_KILL PR_MCE_KILL_GET"),
    one(35, Number, "PR_SET_MM: which"),
    one(36, Number, "PR_SET_CHILD_SUBREAPER"),
    one(37, Written(4), "PR_GET_CHILD_SUBREAPER"),
    span(38, 39, Number, "PR_SET_NO_NEW_PRIVS PR_GET_NO_NEW_PRIVS"),
    one(40, Written(8), "PR_GET_TID_ADDRESS"),
    span(41, 47, Number, "PR_SET_THP_DISABLE PR_GET_THP_DISABLE PR_MPX_ENABLE_MANAGEMENT PR_MPX_DISABLE_MANAGEMENT PR_SET_FP_MODE PR_GET_FP_MODE PR_CAP_AMBIENT"),
    span(50, 58, Number, "PR_SVE_SET_VL PR_SVE_GET_VL PR_GET_SPECULATION_CTRL PR_SET_SPECULATION_CTRL PR_PAC_RESET_KEYS PR_SET_TAGGED_ADDR_CTRL PR_GET_TAGGED_ADDR_CTRL PR_SET_IO_FLUSHER PR_GET_IO_FLUSHER"),
    span(60, 61, Number, "PR_PAC_SET_ENABLED_KEYS PR_PAC_GET_ENABLED_KEYS"),
    one(62, Number, "PR_SCHED_CORE: which"),
    span(63, 73, Number, "PR_SME_SET_VL PR_SME_GET_VL PR_SET_MDWE PR_GET_MDWE PR_SET_MEMORY_MERGE PR_GET_MEMORY_MERGE PR_RISCV_V_SET_CONTROL PR_RISCV_V_GET_CONTROL PR_RISCV_SET_ICACHE_FLUSH_CTX PR_PPC_GET_DEXCR PR_PPC_SET_DEXCR"),
    one(0x5356_4d41, Number, "PR_SET_VMA: which"),
    one(0x5961_6d61, Number, "PR_SET_PTRACER"),
];
/// `arch_prctl`.
#[rustfmt::skip]
pub const ARCH_PRCTLS: &[Commands] = &[
    span(0x1011, 0x1012, Number, "ARCH_GET_CPUID ARCH_SET_CPUID"),
    span(0x1003, 0x1004, Written(8), "ARCH_GET_FS ARCH_GET_GS"),
    span(0x1021, 0x1022, Written(8), "ARCH_GET_XCOMP_SUPP ARCH_GET_XCOMP_PERM"),
    one(0x1023, Number, "ARCH_REQ_XCOMP_PERM"),
    one(0x1024, Written(8), "ARCH_GET_XCOMP_GUEST_PERM"),
    one(0x1025, Number, "ARCH_REQ_XCOMP_GUEST_PERM"),
    span(0x2001, 0x2003, Number, "ARCH_MAP_VDSO_X32 ARCH_MAP_VDSO_32 ARCH_MAP_VDSO_64"),
    one(0x4001, Written(8), "ARCH_GET_UNTAG_MASK"),
    one(0x4002, Number, "ARCH_ENABLE_TAGGED_ADDR"),
    one(0x4003, Written(8), "ARCH_GET_MAX_TAG_BITS"),
    one(0x4004, Number, "ARCH_FORCE_TAGGED_SVA"),
    span(0x5001, 0x5004, Number, "ARCH_SHSTK_ENABLE ARCH_SHSTK_DISABLE ARCH_SHSTK_LOCK ARCH_SHSTK_UNLOCK"),
    one(0x5005, Written(8), "ARCH_SHSTK_STATUS"),
];

/// `shmctl`, `msgctl`.
#[rustfmt::skip]
pub const SHMCTLS: &[Commands] = &[
    one(0, Number, "IPC_RMID"),
    one(1, Read(112), "IPC_SET"),
    one(2, Written(112), "IPC_STAT"),
    one(3, Written(72), "IPC_INFO"),
    span(11, 12, Number, "SHM_LOCK SHM_UNLOCK"),
    one(13, Written(112), "SHM_STAT"),
    one(14, Written(48), "SHM_INFO"),
    one(15, Written(112), "SHM_STAT_ANY"),
];
#[rustfmt::skip]
pub const MSGCTLS: &[Commands] = &[
    one(0, Number, "IPC_RMID"),
    one(1, Read(120), "IPC_SET"),
    one(2, Written(120), "IPC_STAT"),
    one(3, Written(32), "IPC_INFO"),
    one(11, Written(120), "MSG_STAT"),
    one(12, Written(32), "MSG_INFO"),
    one(13, Written(120), "MSG_STAT_ANY"),
];
/// `semctl`; how many semaphores GETALL and SETALL move is not known here.
#[rustfmt::skip]
pub const SEMCTLS: &[Commands] = &[
    one(0, Number, "IPC_RMID"),
    one(1, Read(104), "IPC_SET"),
    one(2, Written(104), "IPC_STAT"),
    one(3, Written(36), "IPC_INFO"),
    span(11, 12, Number, "GETPID GETVAL"),
    one(13, Opaque(8), "GETALL"),
    span(14, 16, Number, "GETNCNT GETZCNT SETVAL"),
    one(17, Opaque(8), "SETALL"),
    one(18, Written(104), "SEM_STAT"),
    one(19, Written(36), "SEM_INFO"),
    one(20, Written(104), "SEM_STAT_ANY"),
];

/// `seccomp`.
#[rustfmt::skip]
pub const SECCOMPS: &[Commands] = &[
    one(0, Number, "SECCOMP_SET_MODE_STRICT"),
    one(1, Filter, "SECCOMP_SET_MODE_FILTER"),
    one(2, Read(4), "SECCOMP_GET_ACTION_AVAIL"),
    one(3, Written(6), "SECCOMP_GET_NOTIF_SIZES"),
];

pub fn find(commands: &[Commands], command: u64) -> Option<Behind> {
    let command = command as u32;
    commands.iter().find(|c| (c.first..=c.last).contains(&command)).map(|c| c.behind)
}

/// What is behind the argument of an `ioctl`; `None`: unknown.
pub fn ioctl(command: u64) -> Option<Behind> {
    let kind = (command >> 8) as u8;
    let encoded = || (encoded_bytes(command) > 0 && ENCODED_TYPES.iter().any(|(t, _)| *t == kind)).then_some(Encoded);
    find(IOCTLS, command).or_else(encoded)
}

/// _IOC_SIZE: bits 16..30.
pub fn encoded_bytes(command: u64) -> u64 {
    command >> 16 & 0x3fff
}
