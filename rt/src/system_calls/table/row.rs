//! The columns of the table of calls.
//!
//! A row says of a call which memory it touches, what the gate does with it, and how it waits. The rest of the folder carries that out and asks for no
//! number of a call. A row names what differs from [`CallRow::PLAIN`] alone.
//! **Invariant**: all is data. What is done by it stands in [`crate::system_calls::gate`], [`crate::system_calls::execution`] and
//! [`crate::system_calls::table::memory`].

/// Where the number of bytes behind a pointer comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Len {
    Bytes(u32),
    /// The value of an argument, 64 bits.
    Arg(u8),
    /// The same, of a call that the kernel refuses where the number is negative.
    Count(u8),
    /// The value of an argument of type `int`; the kernel looks at no more of the register.
    Int(u8),
    /// An argument of type `int`, times an element's bytes.
    Times(u8, u32),
    /// The same of 64 bits.
    TimesLong(u8, u32),
    /// The value of an argument and so many bytes more.
    Plus(u8, u32),
    /// A 32-bit length that an argument points to.
    At(u8),
    /// Bits, as many as an argument says, in 8-byte words.
    Bits(u8),
    /// A byte for each page of so many bytes.
    Pages(u8),
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
    /// A structure that leads to more memory, or whose size has to be found out.
    Layout(Layout),
    /// As it says, if the argument with this index has one of the bits; otherwise unused.
    When(u8, u32, &'static Arg),
    /// Must not point into the segment.
    Never,
    /// The same of what the kernel keeps: it takes any address.
    Kept,
    /// Pages that the call maps, unmaps or changes, so many bytes as the argument with this index says; the third and fourth: only if that argument has one
    /// of the bits. None may be shared or the runtime's.
    Mapped(u8, u8, u32),
}

/// Structures. A number is the index of the argument that holds the count or length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// An array of pointers to strings, ended by a null pointer.
    Strings,
    /// An array of `struct iovec`; the kernel reads the buffers.
    IovIn(u8),
    /// The same; the kernel writes the buffers.
    IovOut(u8),
    /// The same; the buffers are another process's, so that nothing can be done for them.
    IovRemote(u8),
    /// A `struct msghdr`; the kernel reads the buffers.
    MsgIn,
    /// The same; the kernel writes the buffers.
    MsgOut,
    /// An array of `struct mmsghdr`; the kernel reads the buffers.
    MmsgIn(u8),
    /// The same; the kernel writes the buffers.
    MmsgOut(u8),
    /// A pair of a signal mask's address and its bytes.
    SigsetPair,
    /// A `stack_t`.
    SignalStack,
    /// A `struct sigevent` that may name 32 bytes to be sent.
    MqNotify,
    /// A capability header's data: 12 or 24 bytes, by its version.
    Caps,
    /// A structure whose first word is its size in bytes.
    Sized,
    /// A `struct perf_event_attr`: its second word is its size.
    PerfAttr,
    /// A `struct clone_args` of so many bytes.
    CloneArgs(u8),
    /// An array of pointers to `struct iocb`, whose buffers the kernel uses after the call.
    Iocbs(u8),
    /// An array of `struct futex_waitv`.
    Waiters(u8),
    /// Two of them.
    TwoWaiters,
    /// A `struct file_handle` that the kernel reads.
    HandleIn,
    /// The same; the kernel writes it.
    HandleOut,
    /// A mount's number: 4 bytes, or 8 if the flags ask for the unique one.
    MountId,
    /// A `struct xattr_args`; the kernel reads the value.
    XattrIn,
    /// The same; the kernel writes the value.
    XattrOut,
    /// Memory of unknown layout: no word of it may lead into the segment.
    Opaque(u8),
    /// The timeout of these operations of `futex` (bit = operation).
    FutexTimeout(u32),
    /// The second word of these. The kernel knows only this node's copy of it.
    FutexWord(u32),
    /// What the call's command says, which is one of these.
    Listed(&'static &'static [Commands]),
    Ioctl,
    Prctl,
    ArchPrctl,
    SetSockopt,
    GetSockopt,
    Fsconfig,
    LandlockRule,
}

/// What is behind a command's argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// It is a number, or unused.
    Number,
    /// So many bytes that the kernel reads.
    Read(u32),
    /// So many bytes that the kernel writes, or reads and writes.
    Written(u32),
    Str,
    /// So many bytes of which parts depend on more than is known here: no word of them may lead into the segment.
    Opaque(u32),
    /// As many bytes as the command itself says, none of them a pointer.
    Encoded,
    /// A header of so many bytes; at the offset a count of so many bytes (2, 4), times an element's bytes, that follow.
    Counted {
        header: u32,
        at: u32,
        width: u32,
        element: u32,
    },
    /// A length, and at offset 8 the address of so many bytes that the kernel writes.
    Configuration,
    /// A `struct sock_fprog`.
    Filter,
}

/// Commands from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commands {
    pub first: u32,
    pub last: u32,
    pub behind: Behind,
    /// For the document.
    #[cfg(test)]
    pub names: &'static str,
}

/// What the gate does with a call. The first column of actions is that of several nodes, the second that of one node, the third that of the thread which uses
/// `tempest.h` on one node, the fourth that of a child of `vfork` of several nodes. A forked child has that of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAction {
    /// The program makes it, where its memory may be inaccessible after that has been acquired. One node: the gate is not entered.
    Make,
    /// This error is its result.
    Refuse(i32),
    /// The node ends with it.
    End,
    /// A process that is none of the run's, or the next node.
    Fork,
    /// A process that borrows memory and stack.
    Vfork,
    /// One of them. A thread ends the run.
    Clone,
    /// This error is its result, so that `clone` takes its place. A stack in shared memory ends the run.
    RefuseClone(i32),
    /// The program's own `syscall` makes it: its child continues on another stack, or on the same one.
    OwnSyscall,
    /// The same; where it starts a thread, that is noted: a program that uses `tempest.h` may have none. The first argument holds the flags.
    NoteThread,
    /// The same; the first argument leads to the flags.
    NoteThreadAt,
    /// The context to return to is made to rely on nothing, or on what is accessible, and keeps the runtime's signals.
    SignalReturn,
    /// The runtime's signals are recorded, and handlers wrapped where they must not run anywhere.
    SignalAction,
    /// The mask never has the runtime's signals.
    SignalMask,
    /// Its mask (see [`Mask`]) is replaced by a copy without the runtime's signals, on the caller's stack.
    CopyMask,
    /// On a word in shared memory it gives way instead of sleeping.
    SharedFutex,
    /// A signal, perhaps the one by which the process dies: the launcher is told.
    /// The first argument is the process or thread, this one the signal.
    SendSignal(u8),
    /// This error is its result if it would change the dispatch of system calls.
    KeepDispatch(i32),
    /// The base of %gs is the runtime's, and 0 for the program, which may set nothing else.
    KeepGs,
    /// The program does not see the runtime's alternate stack, which is there whenever it has none.
    KeepAlternateStack,
    /// Pages are locked when they are first used, not at once.
    LockWhenUsed,
    /// Limits are counted without what the runtime needs.
    Limits,
    /// The dynamic loader gets the rewritten form of the library whose path is this argument, and who has asked for its own file that of it; the flags are the
    /// next.
    OpenLibrary(u8),
    /// Rewritten files are registered; other code ends the run of several nodes, or is counted.
    MapCode,
    /// The same, of pages that become executable: this argument has one of the bits.
    AllowCode(u8, u32),
    /// The libraries' folder is opened before the program gives up the right to do so.
    KeepLibraries,
    /// Trap bytes stay trap bytes from here on ([`crate::kernel::near`]), if it is about a filter of system calls.
    LeaveTrapBytes,
    /// The program's own link leads to the original file. The link's name is this argument.
    ReadOwnLink(u8),
    /// The program's own file is executed as rewritten (one node), and with limits as the program sees them. The path is this argument.
    Execute(u8),
}

/// Whether a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayWait {
    /// It is not announced: a peer does not call the node out of it. It does not wait, ends or doubles the process, or has done what cannot be undone when it
    /// reports an interruption (`close` has released the descriptor).
    No,
    /// It may. After a handler with SA_RESTART the kernel restarts it.
    Restarted,
    /// It may. The kernel never restarts it, whatever the handler's flags say (`signal(7)`).
    Interrupted,
}

/// Where a call has a signal mask for the time while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mask {
    None,
    /// This argument points to it.
    At(u8),
    /// This argument points to a pair of its address and its bytes.
    Pair(u8),
}

/// The relative timeout of a call that the kernel does not continue by itself. (`select`, `pselect6` and `ppoll` write what is left into the program's
/// memory.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    None,
    /// This argument, in milliseconds.
    Milliseconds(u8),
    /// This argument points to a `struct timespec`.
    Timespec(u8),
    /// The first points to one, the second to where the rest goes when the call is interrupted.
    Sleep(u8, u8),
    /// `clock_nanosleep`: clock, flags, time, rest.
    ClockSleep,
    /// `futex`: the fourth argument, of FUTEX_WAIT alone.
    FutexWait,
}

/// What a call transfers that the kernel goes on with until all is done, unless a handler has run. `All`: only with MSG_WAITALL in the argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    None,
    /// The second argument is an address, the third a number of bytes.
    Bytes,
    BytesIfAll(u8),
    /// The second argument is an array of parts, the third their number.
    Parts,
    /// The second argument is a `struct msghdr`.
    Message,
    MessageIfAll(u8),
    /// This argument is a number of bytes, to a socket; the kernel keeps count of places.
    Count(u8),
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct CallRow {
    pub nr: i64,
    pub name: &'static str,
    pub args: [Arg; 6],
    /// The argument that is a command, if it has commands.
    pub command: Option<u8>,
    /// What the gate does with several nodes.
    pub several: GateAction,
    /// With one node, and in a forked child.
    pub one: GateAction,
    /// On the thread that uses `tempest.h`, with one node.
    pub tempest: GateAction,
    /// In a child of `vfork`, with several nodes.
    pub child: GateAction,
    pub waits: MayWait,
    /// It returns soon, and programs make it between the creation of two nodes.
    pub prompt: bool,
    pub mask: Mask,
    pub timeout: Timeout,
    pub transfer: Transfer,
}

impl CallRow {
    /// The program makes the call, which may wait, as it likes.
    pub const PLAIN: CallRow = CallRow {
        nr: -1,
        name: "unknown",
        args: [Arg::Num; 6],
        command: None,
        several: GateAction::Make,
        one: GateAction::Make,
        tempest: GateAction::Make,
        child: GateAction::Make,
        waits: MayWait::Restarted,
        prompt: false,
        mask: Mask::None,
        timeout: Timeout::None,
        transfer: Transfer::None,
    };

    /// A call that is not in the table: every argument must stay out of the segment.
    pub const UNKNOWN: CallRow = CallRow { args: [Arg::Never; 6], ..CallRow::PLAIN };

    /// The command of a call with these arguments, as the kernel sees an `int`.
    pub fn command(&self, args: &[u64; 6]) -> Option<u64> {
        self.command.map(|i| args[usize::from(i)] & 0xffff_ffff)
    }
}
