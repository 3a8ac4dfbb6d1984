//! How much output may be under way.
//!
//! Purpose: a reader of the launcher's output that is slow must hold back the program, not fill the memory of a host. Input: bytes that were sent, bytes that have been
//! written. Output: a wait.

use std::sync::{Condvar, Mutex, MutexGuard};

/// Most bytes of a node's stream between its host and the launcher's output.
const MOST_BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
struct State {
    under_way: usize,
    is_closed: bool,
    is_unlimited: bool,
}

/// The bytes of one stream.
#[derive(Debug, Default)]
pub struct Credit {
    state: Mutex<State>,
    changed: Condvar,
}

impl Credit {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Waits until so many may be sent; false when nobody wants them any more.
    pub fn spend(&self, bytes: usize) -> bool {
        let mut state = self.state();
        while state.under_way != 0 && state.under_way + bytes > MOST_BYTES && !state.is_closed && !state.is_unlimited {
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.under_way += bytes;
        !state.is_closed
    }

    /// So many have been written.
    pub fn give_back(&self, bytes: usize) {
        let mut state = self.state();
        state.under_way = state.under_way.saturating_sub(bytes);
        self.changed.notify_all();
    }

    /// The writer has ended: what is left fits into a pipe, and nobody says any more what has been written.
    pub fn lift(&self) {
        self.state().is_unlimited = true;
        self.changed.notify_all();
    }

    /// Nobody wants them any more.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn the_last_bytes_wait_for_nobody() {
        let credit = Credit::default();
        assert!(credit.spend(MOST_BYTES));
        credit.lift();
        assert!(credit.spend(MOST_BYTES));
        credit.close();
        assert!(!credit.spend(1));
    }

    #[test]
    fn a_writer_waits_until_what_it_sent_was_written() {
        let credit = Arc::new(Credit::default());
        let writer = Arc::clone(&credit);
        let thread =
            std::thread::spawn(move || (0..100).map(|_| writer.spend(MOST_BYTES / 2)).filter(|went| *went).count());
        for _ in 0..99 {
            while credit.state().under_way == 0 {
                std::thread::yield_now();
            }
            assert!(credit.state().under_way <= MOST_BYTES);
            credit.give_back(MOST_BYTES / 2);
        }
        assert_eq!(thread.join().unwrap(), 100);
        credit.close();
        assert!(!credit.spend(10 * MOST_BYTES));
    }
}
