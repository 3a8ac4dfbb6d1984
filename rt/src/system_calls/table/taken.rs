//! With one node: the calls that come to the gate. The program makes all others by its own `syscall`, without a detour.
//!
//! Input: the column of one node. Output: a set of numbers, which the gate tests.

use crate::kernel::owned::PerProcess;
use crate::system_calls::table::calls::CALLS;
use crate::system_calls::table::row::GateAction;
use core::sync::atomic::{AtomicU32, Ordering};

/// Numbers below this one are looked up in [`TAKEN`].
pub const LIMIT: i32 = 512;

/// One bit for each call that comes to the gate.
pub static TAKEN: PerProcess<[AtomicU32; LIMIT as usize / 32]> = PerProcess::new(taken());

const fn taken() -> [AtomicU32; LIMIT as usize / 32] {
    let mut set = [0; LIMIT as usize / 32];
    let mut i = 0;
    while i < CALLS.len() {
        if !matches!(CALLS[i].one, GateAction::Make) {
            set[CALLS[i].nr as usize / 32] |= 1 << (CALLS[i].nr % 32);
        }
        i += 1;
    }
    let mut words = [const { AtomicU32::new(0) }; LIMIT as usize / 32];
    i = 0;
    while i < words.len() {
        words[i] = AtomicU32::new(set[i]);
        i += 1;
    }
    words
}

/// From here on all calls come.
pub fn take_all() {
    TAKEN.iter().for_each(|word| word.store(u32::MAX, Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_column_names_comes_to_the_gate() {
        // `libc` has no name for it.
        const IO_PGETEVENTS: i64 = 333;
        let holds = |nr: i64| TAKEN[nr as usize / 32].load(Ordering::Relaxed) >> (nr % 32) & 1 == 1;
        let taken = [libc::SYS_mmap, libc::SYS_epoll_pwait2, IO_PGETEVENTS, libc::SYS_open];
        assert!(taken.into_iter().all(holds));
        assert!(!holds(libc::SYS_read) && !holds(libc::SYS_vfork) && !holds(511));
        assert_eq!(TAKEN.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum::<u32>(), 36);
    }
}
