//! Which arguments of which system call point to memory, and how much.
//!
//! Purpose: the kernel does not look at tags, so what a call reads or writes in shared memory must be made accessible before it. Input: a
//! call's number and arguments. Output: the ranges in the segment that it touches, through a visitor.
//! **Invariants**
//! * A call that is not in the table, or a pointer whose layout is not known, is an error as soon as the pointer leads into the segment; it is
//!   never let through unchecked. Calls that take fewer arguments than six are in the table even if they take no pointer: what their
//!   unused registers hold means nothing.
//! * Memory that the kernel would keep after the call (asynchronous transfers, robust lists, a new thread's stack) must not be
//!   shared: it could lose its access at any time.
//! * A bad pointer of the program stays the kernel's business: structures outside the segment are read in a way that cannot fault.
//!
//! Parts: [`calls`] has a row for every call of x86-64 Linux, [`layouts`] follows structures that hold further pointers, [`commands`] knows
//! what `ioctl`, `fcntl`, `prctl` and the like mean. `rt/SYSCALLS.md` is generated from all three.
//! Source: Reinhardt 1996, 4.2.4; Linux `arch/x86/entry/syscalls/syscall_64.tbl`, `include/linux/syscalls.h`; the structure sizes are
//! those of x86-64.

mod calls;
mod commands;
mod layouts;

pub use calls::CALLS;

use crate::kernel::sys;
use crate::memory::segment::GUARD_BYTES;
use crate::process::tags::in_segment;
use crate::tempest::pages::table::is_user;
use blizzard_contract::{self as contract, BLOCK_BYTES};
use core::fmt;

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
    When(u8, u64, &'static Arg),
    /// Must not point into the segment.
    Never,
    /// Pages that the call maps, unmaps or changes, so many bytes as the argument with this index says; the third and fourth: only if that argument has one
    /// of the bits. None may be shared or the runtime's.
    Mapped(u8, u8, u64),
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
    Ioctl,
    Fcntl,
    Prctl,
    ArchPrctl,
    SetSockopt,
    GetSockopt,
    Shmctl,
    Msgctl,
    Semctl,
    Seccomp,
    Fsconfig,
    LandlockRule,
}

/// One row.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub nr: i64,
    pub name: &'static str,
    pub args: [Arg; 6],
}

/// Calls that the gate answers with ENOSYS. For `clone3` the C library then uses `clone`, whose stack argument the gate can prepare; behind
/// the others the kernel would work on memory that the gate never sees.
pub const ABSENT: [i64; 3] = [libc::SYS_clone3, libc::SYS_io_setup, libc::SYS_io_uring_setup];

/// A row whose every argument must stay out of the segment.
static UNKNOWN: [Arg; 6] = [Arg::Never; 6];

fn row(nr: i64) -> Option<&'static Call> {
    CALLS.binary_search_by_key(&nr, |call| call.nr).ok().map(|i| &CALLS[i])
}

/// The arguments of call `nr`.
pub fn arguments(nr: i64) -> &'static [Arg; 6] {
    row(nr).map_or(&UNKNOWN, |call| &call.args)
}

/// Memory that a call touches in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub addr: u64,
    pub bytes: u64,
    pub store: bool,
}

/// A pointer into the segment that the gate cannot prepare, or to pages of the runtime that the call would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsupported {
    pub nr: i64,
    /// 0..6.
    pub argument: usize,
    /// The pointer: the argument's value, or found behind it.
    pub addr: u64,
    /// Of a call with commands.
    pub command: Option<u64>,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unsupported { nr, argument, addr, command } = *self;
        write!(f, "system call {nr} ({})", row(nr).map_or("unknown", |call| call.name))?;
        if let Some(command) = command {
            write!(f, ", command {command:#x},")?;
        }
        let argument = argument + 1;
        if nr == libc::SYS_arch_prctl && command == Some(commands::ARCH_SET_GS) {
            return write!(
                f,
                " sets the base of %gs to {addr:#x}, which checks take for zero in a run of several nodes"
            );
        }
        if !in_segment(addr) {
            return write!(f, " would change pages that the runtime needs at {addr:#x} (argument {argument})");
        }
        write!(
            f,
            " has a pointer into shared memory ({addr:#x}) in argument {argument}, which the gate does not know how to prepare"
        )
    }
}

/// Why the look at an argument ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The kernel will refuse the call: a pointer leads nowhere, a count is out of range.
    Refused,
    /// This pointer into the segment cannot be prepared.
    At(u64),
}

type Look<T = ()> = Result<T, Stop>;

/// What the kernel must not map anew at the program's wish: the context pages and the tag table, whose zeros would allow every access, and
/// the segments with their guards.
const OURS: [(u64, u64); 3] = [
    (contract::CONTEXT_SHARED, contract::CONTEXT_PRIVATE + contract::CONTEXT_BYTES),
    (contract::TAG_TABLE_BASE, contract::TAG_TABLE_BASE + contract::TAG_TABLE_BYTES),
    (contract::SEGMENT_BASE - GUARD_BYTES, contract::SEGMENT_BASE + contract::SEGMENT_WINDOW_BYTES),
];

/// Refuses pages that the runtime needs.
pub fn keep_pages_out(addr: u64, bytes: u64) -> Result<(), u64> {
    let end = addr.saturating_add(bytes);
    OURS.iter()
        .find(|&&(first, behind)| addr < behind && first < end)
        .map_or(Ok(()), |&(first, _)| Err(addr.max(first)))
}

/// What the kernel transfers at most in one call (MAX_RW_COUNT).
const TRANSFER_MAX: u64 = 0x7fff_f000;
/// Longest string looked at: an argument of a new program (MAX_ARG_STRLEN); paths are shorter.
const STRING_MAX: u64 = 128 << 10;

/// The memory that can be inaccessible: what else there is, is the kernel's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shared {
    /// All of the segment: in runs of several nodes.
    Segment,
    /// That of `tempest.h`: with one node.
    UserManaged,
}

impl Shared {
    /// Whether the address may be in it.
    pub fn holds(self, addr: u64) -> bool {
        match self {
            Shared::Segment => in_segment(addr),
            Shared::UserManaged => is_user(addr),
        }
    }
}

/// Finds a call's memory and reads its structures.
struct Visitor<'a> {
    args: &'a [u64; 6],
    shared: Shared,
    found: &'a mut dyn FnMut(Range),
}

impl Visitor<'_> {
    /// Whether any byte of the range may be shared.
    fn touches_segment(&self, addr: u64, bytes: u64) -> bool {
        bytes > 0 && (self.shared.holds(addr) || self.shared.holds(addr.saturating_add(bytes - 1)))
    }

    /// Refuses a pointer into the segment.
    fn keep_out(&self, addr: u64) -> Look {
        if self.shared.holds(addr) { Err(Stop::At(addr)) } else { Ok(()) }
    }

    /// The kernel reads these bytes, or with `store` writes them.
    fn put(&mut self, addr: u64, bytes: u64, store: bool) {
        let bytes = bytes.min(TRANSFER_MAX);
        if addr != 0 && self.touches_segment(addr, bytes) {
            (self.found)(Range { addr, bytes, store });
        }
    }

    /// Argument `i` as the kernel sees an `int`; negative counts, which it refuses, are none.
    fn int(&self, i: u8) -> u64 {
        (self.args[usize::from(i)] as i32).max(0) as u64
    }

    /// Fills `bytes` from the program's memory at `addr`.
    fn read(&mut self, addr: u64, bytes: &mut [u8]) -> Look {
        let n = bytes.len() as u64;
        if addr == 0 {
            return Err(Stop::Refused);
        }
        if self.touches_segment(addr, n) {
            self.put(addr, n, false);
            // SAFETY: shared memory, readable since the line above, and as long as no handler runs.
            unsafe { core::ptr::copy_nonoverlapping(addr as *const u8, bytes.as_mut_ptr(), bytes.len()) };
            return Ok(());
        }
        sys::read_own_memory(addr, bytes).map_err(|_| Stop::Refused)
    }

    fn word32(&mut self, addr: u64) -> Look<u32> {
        let mut bytes = [0; 4];
        self.read(addr, &mut bytes)?;
        Ok(u32::from_ne_bytes(bytes))
    }

    fn words<const N: usize>(&mut self, addr: u64) -> Look<[u64; N]> {
        let mut words = [[0u8; 8]; N];
        self.read(addr, words.as_flattened_mut())?;
        Ok(words.map(u64::from_ne_bytes))
    }

    fn length(&mut self, len: Len) -> Look<u64> {
        Ok(match len {
            Len::Bytes(bytes) => bytes.into(),
            Len::Arg(i) => self.args[usize::from(i)],
            Len::Count(i) if (self.args[usize::from(i)] as i64) < 0 => return Err(Stop::Refused),
            Len::Count(i) => self.args[usize::from(i)],
            Len::Int(i) => self.int(i),
            Len::Times(i, bytes) => self.int(i) * u64::from(bytes),
            Len::TimesLong(i, bytes) => self.args[usize::from(i)].saturating_mul(bytes.into()),
            Len::Plus(i, bytes) => self.args[usize::from(i)].saturating_add(bytes.into()),
            Len::Bits(i) => self.int(i).min(1 << 20).div_ceil(64) * 8,
            Len::Pages(i) => self.args[usize::from(i)].div_ceil(4096),
            Len::At(i) => match self.args[usize::from(i)] {
                0 => 0,
                at => (self.word32(at)? as i32).max(0) as u64,
            },
        })
    }

    fn string(&mut self, addr: u64) {
        let mut at = addr;
        // Only the part inside the segment matters, and a string does not leave the segment once it is in.
        while self.shared.holds(at) && at - addr < STRING_MAX {
            let end = (at | (BLOCK_BYTES - 1)) + 1;
            self.put(at, end - at, false);
            while at < end {
                // SAFETY: the block is readable now.
                if unsafe { (at as *const u8).read() } == 0 {
                    return;
                }
                at += 1;
            }
        }
    }

    fn argument(&mut self, i: usize, kind: Arg) -> Look {
        let addr = self.args[i];
        match kind {
            Arg::Num => Ok(()),
            Arg::Never => self.keep_out(addr),
            Arg::Mapped(bytes, condition, bits) => {
                // Without the flag it is a hint: the kernel finds another place.
                if bits != 0 && self.args[usize::from(condition)] & bits == 0 {
                    return Ok(());
                }
                self.keep_out(addr)?;
                if self.shared == Shared::UserManaged {
                    return Ok(());
                }
                keep_pages_out(addr, self.args[usize::from(bytes)]).map_err(Stop::At)
            }
            Arg::In(len) | Arg::Out(len) => {
                let bytes = self.length(len)?;
                self.put(addr, bytes, matches!(kind, Arg::Out(_)));
                Ok(())
            }
            Arg::Str => {
                self.string(addr);
                Ok(())
            }
            Arg::When(flags, bits, then) => {
                if self.args[usize::from(flags)] & bits == 0 {
                    return Ok(());
                }
                self.argument(i, *then)
            }
            Arg::Layout(layout) => self.layout(i, layout),
        }
    }
}

/// Calls `visit` with each range of `shared` memory that the call touches. When `visit` returns, the range must be accessible:
/// nested structures are read through it.
///
/// # Errors
/// The pointer that is not supported.
///
/// # Safety
/// What `visit` was given and lies in the segment can be read when it returns.
pub unsafe fn visit(nr: i64, args: &[u64; 6], shared: Shared, visit: &mut dyn FnMut(Range)) -> Result<(), Unsupported> {
    let mut visitor = Visitor { args, shared, found: visit };
    for (argument, kind) in arguments(nr).iter().enumerate() {
        // A call that the kernel refuses may have been given access to more than it uses; no harm is done.
        if let Err(Stop::At(addr)) = visitor.argument(argument, *kind) {
            return Err(Unsupported { nr, argument, addr, command: commands::command(nr, args) });
        }
    }
    Ok(())
}

#[cfg(test)]
mod document;
#[cfg(test)]
mod tests;
