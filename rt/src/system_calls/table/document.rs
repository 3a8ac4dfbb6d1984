//! `rt/SYSCALLS.md`: the table in words, generated from it.
//!
//! `BLIZZARD_BLESS=1 cargo test -p blizzard-rt` writes the file; without the variable the test compares.

use super::commands::{self, Behind, Commands};
use super::{ABSENT, Arg, CALLS, Layout, Len};
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/SYSCALLS.md");
const BLESS: &str = "BLIZZARD_BLESS";

const HEAD: &str = "\
# System calls in a run of several nodes

Generated from `src/system_calls/table.rs` and the modules below it; refresh with `BLIZZARD_BLESS=1 cargo test -p blizzard-rt document`.

Every system call passes the gate (`DESIGN.md`, System calls). Before the kernel runs it, what the call reads in shared memory is made readable,
and what it writes is made writable. *argument n* counts from 1. A dash is a number, a descriptor, or nothing.

* **private** means: the argument must not lead into shared memory. If it does, the run ends with a message that names the call and
  the pointer. The same holds for everything that is marked so inside a structure, and for every call that is not listed.
* **own pages** means: private, and no page of the range may be one that the runtime needs (its context, the tag table, the segments and their
  guards): else the run ends with a message. *By flags*: where the range is placed there whatever it replaces; a mere hint finds another place.
* What the kernel would use after the call is over (asynchronous transfers, stacks, lists that it walks at exit) is private.
* Where a count or size is out of the kernel's range, the kernel refuses the call as always. It transfers at most 2 GiB less a page; more is taken for so much, all of which must be
  allocated if the memory is shared.

Handled by the gate itself, whatever their row says: `exit` and `exit_group` end the node; `fork`, `vfork` and `clone` without a thread
start a process that takes no part in the run; threads are refused; `rt_sigaction`, `rt_sigprocmask`, `rt_sigreturn` and the calls with a signal mask keep
the runtime's own signals; `futex` on a shared word gives way instead of sleeping; `mlockall` locks pages when they are first used (so with one node, too).
";

fn length(len: Len) -> String {
    match len {
        Len::Bytes(bytes) => bytes.to_string(),
        Len::Arg(i) | Len::Count(i) | Len::Int(i) => format!("argument {}", i + 1),
        Len::Times(i, bytes) | Len::TimesLong(i, bytes) => format!("argument {} × {bytes}", i + 1),
        Len::Plus(i, bytes) => format!("argument {} + {bytes}", i + 1),
        Len::At(i) => format!("as argument {} points to", i + 1),
        Len::Bits(i) => format!("argument {} bits", i + 1),
        Len::Pages(i) => format!("one for each page of argument {}", i + 1),
    }
}

fn layout(layout: Layout) -> String {
    let count = |what: &str, i: u8, then: &str| format!("argument {} × `struct {what}`{then}", i + 1);
    match layout {
        Layout::Strings => "strings of an array".into(),
        Layout::IovIn(n) => count("iovec", n, ", buffers read"),
        Layout::IovOut(n) => count("iovec", n, ", buffers written"),
        Layout::IovRemote(n) => count("iovec", n, ", buffers private"),
        Layout::MsgIn => "`struct msghdr`, all parts read".into(),
        Layout::MsgOut => "`struct msghdr`, all parts written".into(),
        Layout::MmsgIn(n) => count("mmsghdr", n, ", all parts read"),
        Layout::MmsgOut(n) => count("mmsghdr", n, ", all parts written"),
        Layout::SigsetPair => "pair of a mask and its size".into(),
        Layout::SignalStack => "`stack_t`, the stack private".into(),
        Layout::MqNotify => "`struct sigevent`, its cookie read".into(),
        Layout::Caps => "12 or 24 written, by the header's version".into(),
        Layout::Sized => "read, its first word is its size".into(),
        Layout::PerfAttr => "`struct perf_event_attr`, written".into(),
        Layout::CloneArgs(_) => "`struct clone_args`, stack, thread storage and child's number private".into(),
        Layout::Iocbs(n) => count("iocb", n, " by address, buffers private"),
        Layout::Waiters(n) => count("futex_waitv", n, ", words private"),
        Layout::TwoWaiters => "2 × `struct futex_waitv`, words private".into(),
        Layout::HandleIn => "`struct file_handle`, read".into(),
        Layout::HandleOut => "`struct file_handle`, written".into(),
        Layout::MountId => "4 or 8 written, by argument 5".into(),
        Layout::XattrIn => "`struct xattr_args`, value read".into(),
        Layout::XattrOut => "`struct xattr_args`, value written".into(),
        Layout::Opaque(n) => format!("argument {} bytes, private with all that they point to", n + 1),
        Layout::FutexTimeout(_) => "timeout read, by operation".into(),
        Layout::FutexWord(_) => "second word private, by operation".into(),
        Layout::Ioctl
        | Layout::Fcntl
        | Layout::Prctl
        | Layout::ArchPrctl
        | Layout::Shmctl
        | Layout::Msgctl
        | Layout::Semctl
        | Layout::Seccomp => "by command, see below".into(),
        Layout::SetSockopt => "argument 5 read; socket filters followed".into(),
        Layout::GetSockopt => "as argument 5 points to, written; `TCP_ZEROCOPY_RECEIVE`'s mapping private".into(),
        Layout::Fsconfig => "string or argument 5 bytes read, by command".into(),
        Layout::LandlockRule => "12 or 16 read, by argument 2".into(),
    }
}

fn argument(arg: Arg) -> String {
    match arg {
        Arg::Num => "–".into(),
        Arg::In(len) => format!("{} read", length(len)),
        Arg::Out(len) => format!("{} written", length(len)),
        Arg::Str => "string".into(),
        Arg::Layout(kind) => layout(kind),
        Arg::When(_, _, then) => format!("{}, by flags", argument(*then)),
        Arg::Never => "**private**".into(),
        Arg::Mapped(_, _, 0) => "**own pages**".into(),
        Arg::Mapped(..) => "**own pages**, by flags".into(),
    }
}

fn behind(behind: Behind) -> String {
    match behind {
        Behind::Number => "–".into(),
        Behind::Read(bytes) => format!("{bytes} read"),
        Behind::Written(bytes) => format!("{bytes} written"),
        Behind::Str => "string".into(),
        Behind::Opaque(bytes) => format!("{bytes} bytes, **private** with all that they point to"),
        Behind::Encoded => "as the command says, written".into(),
        Behind::Counted { header, element, .. } => format!("{header} and its count × {element}, written"),
        Behind::Configuration => "`struct ifconf`, its buffer written".into(),
        Behind::Filter => "`struct sock_fprog`, its program read".into(),
    }
}

fn commands(text: &mut String, title: &str, note: &str, list: &[Commands]) {
    writeln!(text, "\n## {title}\n\n{note}\n\n| command | names | bytes behind the argument |\n|---|---|---|").unwrap();
    for c in list {
        let range =
            if c.first == c.last { format!("{:#x}", c.first) } else { format!("{:#x} to {:#x}", c.first, c.last) };
        writeln!(text, "| {range} | {} | {} |", c.names, behind(c.behind)).unwrap();
    }
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    writeln!(text, "\n## Calls\n\n| number | name | bytes behind each argument |\n|---|---|---|").unwrap();
    for call in CALLS {
        let used = call.args.iter().rposition(|arg| *arg != Arg::Num).map_or(0, |last| last + 1);
        let mut args: Vec<String> = call.args[..used].iter().map(|arg| argument(*arg)).collect();
        if args.is_empty() {
            args.push("–".into());
        }
        let absent = if ABSENT.contains(&call.nr) { "answered with ENOSYS; " } else { "" };
        writeln!(text, "| {} | `{}` | {absent}{} |", call.nr, call.name, args.join("; ")).unwrap();
    }
    let number = "Any other command with an argument in shared memory is refused.";
    let note = "Any other command with an argument in shared memory is refused; so is one that reads a structure of a size that it states \
                with a word in it that leads into shared memory.";
    commands(&mut text, "ioctl", note, commands::IOCTLS);
    writeln!(text, "\nAll commands of these types say their own size:\n\n| type | commands |\n|---|---|").unwrap();
    for (kind, names) in commands::ENCODED_TYPES {
        writeln!(text, "| {kind:#x} | {names} |").unwrap();
    }
    commands(&mut text, "fcntl", number, commands::FCNTLS);
    let prctl = "The second argument. `PR_SET_SECCOMP` (its filter, read), `PR_SCHED_CORE` (8 written), `PR_SET_VMA` (string), `PR_GET_AUXV` \
                 (argument 3 written) and `PR_SET_MM` (**private**) have theirs elsewhere. Any other option with an argument in shared memory is refused.";
    commands(&mut text, "prctl", prctl, commands::PRCTLS);
    let arch = "`ARCH_SET_FS`: **private**. `ARCH_SET_GS`: 0 alone, because checks take it for that. Any other option with an argument in shared memory is refused.";
    commands(&mut text, "arch_prctl", arch, commands::ARCH_PRCTLS);
    commands(&mut text, "shmctl", number, commands::SHMCTLS);
    commands(&mut text, "msgctl", number, commands::MSGCTLS);
    commands(&mut text, "semctl", number, commands::SEMCTLS);
    commands(&mut text, "seccomp", number, commands::SECCOMPS);
    text
}

/// The document is part of the repository, so that it can be read there, and must not say what no longer holds.
#[test]
fn the_document_is_what_the_table_says() {
    let fresh = document();
    if std::env::var_os(BLESS).is_some() {
        std::fs::write(PATH, &fresh).unwrap();
    }
    let found = std::fs::read_to_string(PATH).unwrap_or_default();
    let differs = fresh.lines().zip(found.lines()).find(|(a, b)| a != b);
    assert!(fresh == found, "{PATH} is stale ({differs:?}): refresh it with {BLESS}=1");
}
