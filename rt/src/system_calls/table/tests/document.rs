//! `rt/SYSCALLS.md`: the table in words, generated from it.
//!
//! `BLIZZARD_BLESS=1 cargo test -p blizzard-rt` writes the file; without the variable the test compares.

use crate::system_calls::table::calls::CALLS;
use crate::system_calls::table::commands as lists;
use crate::system_calls::table::row::{
    Arg, Behind, CallRow, Commands, GateAction, Layout, Len, Mask, MayWait, Timeout, Transfer,
};
use std::fmt::Write;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/SYSCALLS.md");
const BLESS: &str = "BLIZZARD_BLESS";

const HEAD: &str = "\
# System calls

Generated from `src/system_calls/table`; refresh with `BLIZZARD_BLESS=1 cargo test -p blizzard-rt document`.

A call passes the gate (`PROCESS.md`, System calls). Its row says what the gate does. Columns that are empty say: nothing.

| column | what it says |
|---|---|
| memory | The bytes behind each argument. Before the kernel runs the call, what it reads in shared memory is made readable, what it writes writable. |
| several nodes | What the gate does with the call in a run of several nodes. |
| one node | The same in a run of one, and in a forked child. Where this is empty the program's own `syscall` makes the call. |
| `tempest.h` | The same on the thread that uses `tempest.h`, with one node. Its memory is that of the user-managed segment. |
| `vfork` | The same in a child of `vfork`, with several nodes. |
| waits | Whether a call may wait with several nodes: whether a peer that has a message calls the node out of it, and what that call goes on with. |

Memory: *argument n* counts from 1. A dash is a number, a descriptor, or nothing.

* **private** means: the argument must not lead into shared memory. The same holds for everything that is marked so inside a structure, for every
  command that is not listed, and for every call that is not listed. If it does, with `--access tests` the run ends with a message that names the call
  and the pointer. In guarded code the kernel cannot read shared memory where the program has it. There the call is not made, and its result is EFAULT;
  one line names the call, the pointer and the place.
* **kept** means: private, but the kernel takes any address there without a look. So EFAULT would be no answer of the kernel's, and few programs look
  for one. If it leads into shared memory, the run ends with that message, in guarded code, too.
* **own pages** means: kept, and no page of the range may be one that the runtime needs (its context, the tag table, the segments and their
  guards): else the run ends with a message. *By flags*: where the range is placed there whatever it replaces; a mere hint finds another place.
* A call whose structures lead to shared memory and have more than 256 KiB ends the run in guarded code, where the kernel is given copies of them.
* What the kernel would use after the call is over (asynchronous transfers, stacks, lists that it walks at exit) is private.
* Where a count or size is out of the kernel's range, the kernel refuses the call as always. It transfers at most 2 GiB less a page; more is taken for so much, all of which must be
  allocated if the memory is shared.

Waits: empty means that the call may wait, and that the kernel restarts it after a handler with SA_RESTART.

* *no* means: it is not announced. It does not wait, ends or doubles the process, or has done what cannot be undone when it reports an interruption.
* *interrupted* means: after a handler the kernel never restarts it.
* *prompt* means: programs make it between the creation of two nodes. Any other call ends the creation.
* *mask*: the kernel gets a copy of the signal mask without the runtime's signals.
* *timeout*: made again, it gets what is left of it.
* *rest*: interrupted in the middle, it goes on with the rest.
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
        Layout::SignalStack => "`stack_t`, the stack **kept**".into(),
        Layout::MqNotify => "`struct sigevent`, its cookie read".into(),
        Layout::Caps => "12 or 24 written, by the header's version".into(),
        Layout::Sized => "read, its first word is its size".into(),
        Layout::PerfAttr => "`struct perf_event_attr`, written".into(),
        Layout::CloneArgs(_) => "`struct clone_args`, stack, thread storage and child's number **kept**".into(),
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
        Layout::FutexWord(_) => "second word **kept**, by operation".into(),
        Layout::Listed(_) | Layout::Ioctl | Layout::Prctl | Layout::ArchPrctl => "by command, see below".into(),
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
        Arg::Kept => "**kept**".into(),
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

/// What is done, in words; nothing where nothing is.
fn action(action: GateAction) -> String {
    let error = |e: i32| if e == libc::ENOSYS { "ENOSYS" } else { "EINVAL" };
    match action {
        GateAction::Make => String::new(),
        GateAction::Refuse(e) => format!("refused: {}", error(e)),
        GateAction::End => "ends the node".into(),
        GateAction::Fork => "starts a process of no run, or the next node".into(),
        GateAction::Vfork => "starts a process of no run".into(),
        GateAction::Clone => "as `fork` or `vfork`; a thread ends the run".into(),
        GateAction::RefuseClone(e) => format!("refused: {}, so `clone` follows; a shared stack ends the run", error(e)),
        GateAction::OwnSyscall => "made by the program's own `syscall`".into(),
        GateAction::NoteThread | GateAction::NoteThreadAt => {
            "made by the program's own `syscall`; a thread is noted".into()
        }
        GateAction::SignalReturn => "keeps the runtime's signals; what the context relies on is acquired".into(),
        GateAction::SignalAction => "keeps the runtime's signals; handlers are wrapped".into(),
        GateAction::SignalMask | GateAction::CopyMask => "keeps the runtime's signals".into(),
        GateAction::SendSignal(_) => "the launcher looks at a node that ends itself by SIGABRT".into(),
        GateAction::SharedFutex => {
            "on a shared word: gives way instead of sleeping; other operations than to wait and to wake end the run"
                .into()
        }
        GateAction::KeepDispatch(e) => {
            format!("of the dispatch of system calls: refused, {}; of a filter: trap bytes stay", error(e))
        }
        GateAction::KeepAlternateStack => "does not show the runtime's stack for signals".into(),
        GateAction::KeepGs => unreachable!("of guarded code"),
        GateAction::LockWhenUsed => "locks pages when they are first used".into(),
        GateAction::Limits => "without what the runtime needs".into(),
        GateAction::OpenLibrary(path) => {
            format!("of the dynamic loader, and of the own file: the rewritten form of argument {}", path + 1)
        }
        GateAction::MapCode => "registers rewritten code; other code ends a run of several nodes".into(),
        GateAction::AllowCode(..) => "code that is not rewritten ends a run of several nodes".into(),
        GateAction::KeepLibraries => "opens the libraries' folder first".into(),
        GateAction::LeaveTrapBytes => "of a filter: trap bytes stay from here on".into(),
        GateAction::ReadOwnLink(_) => "of the own link: the original's path".into(),
        GateAction::Execute(_) => "with the program's limits; with one node the own file as rewritten".into(),
    }
}

fn waits(row: &CallRow) -> String {
    let mut words = Vec::new();
    match row.waits {
        MayWait::No => words.push("no"),
        MayWait::Restarted => {}
        MayWait::Interrupted => words.push("interrupted"),
    }
    for (says, word) in [
        (row.prompt, "prompt"),
        (row.mask != Mask::None, "mask"),
        (row.timeout != Timeout::None, "timeout"),
        (row.transfer != Transfer::None, "rest"),
    ] {
        if says {
            words.push(word);
        }
    }
    words.join(", ")
}

fn document() -> String {
    let mut text = HEAD.to_owned();
    let titles = "| number | name | memory | several nodes | one node | `tempest.h` | `vfork` | waits |";
    writeln!(text, "\n## Calls\n\n{titles}\n|---|---|---|---|---|---|---|---|").unwrap();
    for row in CALLS {
        let used = row.args.iter().rposition(|arg| *arg != Arg::Num).map_or(0, |last| last + 1);
        let mut args: Vec<String> = row.args[..used].iter().map(|arg| argument(*arg)).collect();
        if args.is_empty() {
            args.push("–".into());
        }
        write!(text, "| {} | `{}` | {} |", row.nr, row.name, args.join("; ")).unwrap();
        let [several, one, tempest, child] = [row.several, row.one, row.tempest, row.child].map(action);
        let same = |cell: &String, other: &String| {
            if cell == other && !cell.is_empty() { "same".into() } else { cell.clone() }
        };
        let cells =
            [several.clone(), same(&one, &several), same(&tempest, &several), same(&child, &several), waits(row)];
        for cell in cells {
            write!(text, "{}|", if cell.is_empty() { " ".into() } else { format!(" {cell} ") }).unwrap();
        }
        text.push('\n');
    }
    let number = "The argument of any other command is **private**.";
    let note = "The argument of any other command is **private**; so is that of one that reads a structure of a size that it states \
                with a word in it that leads into shared memory.";
    commands(&mut text, "ioctl", note, lists::IOCTLS);
    writeln!(text, "\nAll commands of these types say their own size:\n\n| type | commands |\n|---|---|").unwrap();
    for (kind, names) in lists::ENCODED_TYPES {
        writeln!(text, "| {kind:#x} | {names} |").unwrap();
    }
    let prctl = "The second argument. `PR_SET_SECCOMP` (its filter, read), `PR_SCHED_CORE` (8 written), `PR_SET_VMA` (string), `PR_GET_AUXV` \
                 (argument 3 written) and `PR_SET_MM` (**private**) have theirs elsewhere. The arguments of any other option are **private**.";
    commands(&mut text, "prctl", prctl, lists::PRCTLS);
    let arch = "`ARCH_SET_FS`: **kept**. `ARCH_SET_GS`: 0 alone, because checks take it for that; anything else ends the run. The argument of any other option is **private**.";
    commands(&mut text, "arch_prctl", arch, lists::ARCH_PRCTLS);
    for row in CALLS {
        if let Some(Arg::Layout(Layout::Listed(list))) =
            row.args.iter().find(|arg| matches!(arg, Arg::Layout(Layout::Listed(_))))
        {
            commands(&mut text, row.name, number, list);
        }
    }
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
