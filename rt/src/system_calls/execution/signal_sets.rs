//! Sets of signals: the runtime's, those that instructions raise, all others.

use blizzard_contract::CALL_SIGNAL;

/// The bit of a signal in a mask.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Signals that must reach the runtime whenever the program runs, with several nodes.
pub const RESERVED: u64 = bit(libc::SIGSYS) | bit(libc::SIGTRAP) | bit(CALL_SIGNAL);
/// The one that must with one node.
pub const RESERVED_ALONE: u64 = bit(libc::SIGTRAP);
/// Those that the kernel never blocks: the reserved ones, and what untested accesses to guarded memory raise.
pub const UNBLOCKED: u64 = RESERVED | GUARD;
/// The same on the thread that uses `tempest.h` in a run of one node. Elsewhere with one node nothing is guarded.
pub const UNBLOCKED_ALONE: u64 = RESERVED_ALONE | GUARD;
/// What untested accesses to guarded memory raise.
pub const GUARD: u64 = if cfg!(feature = "guard") { bit(libc::SIGSEGV) } else { 0 };
/// Signals that an instruction raises: never put off when it did.
pub const SYNCHRONOUS: u64 = bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGFPE) | bit(libc::SIGILL) | RESERVED;
/// Whether a set has what untested accesses to guarded memory raise.
pub const fn has_guard(set: u64) -> bool {
    cfg!(feature = "guard") && set & bit(libc::SIGSEGV) != 0
}
/// Those that instructions raise, and that others may send to the program: where signals are put off, the kernel blocks none of them for that.
pub const HELD: u64 = SYNCHRONOUS & !(bit(libc::SIGSYS) | bit(CALL_SIGNAL));
/// What is blocked while the runtime's own handlers run.
pub const BLOCK_ALL: u64 = !SYNCHRONOUS;
