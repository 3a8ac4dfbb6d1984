//! How many messages of a pair may be under way.
//!
//! Purpose: the receiver's ring may be full, and then what has come for it waits in the memory of its host's carrier. A sender goes on only while less than a window is
//! under way, so that memory has a bound, and no pair waits for another. Input: what was sent, what has arrived. Output: whether more may be sent, and whether the
//! other side is to be told. Counts are modulo 2^32. Source: the sliding window of TCP.

/// Windows have so many times the slots of a ring: while a ring is emptied and filled, as much again is on its way.
const RINGS: u32 = 4;

/// The window of rings with so many slots.
pub const fn window(slots: u32) -> u32 {
    RINGS * slots
}

/// The sender's side of a pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outgoing {
    sent: u32,
    arrived: u32,
}

impl Outgoing {
    /// Whether another message may be sent.
    pub const fn may_send(&self, window: u32) -> bool {
        self.sent.wrapping_sub(self.arrived) < window
    }

    /// How many have been sent.
    pub const fn count(&self) -> u32 {
        self.sent
    }

    /// One more is sent.
    pub const fn sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// So many have arrived in all. False: that cannot be.
    pub const fn arrived(&mut self, arrived: u32) -> bool {
        let fits = arrived.wrapping_sub(self.arrived) <= self.sent.wrapping_sub(self.arrived);
        if fits {
            self.arrived = arrived;
        }
        fits
    }
}

/// The receiver's side of a pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiveWindow {
    arrived: u32,
    told: u32,
}

impl ReceiveWindow {
    /// One more is in the ring.
    pub const fn arrived(&mut self) {
        self.arrived = self.arrived.wrapping_add(1);
    }

    /// How many have come.
    pub const fn count(&self) -> u32 {
        self.arrived
    }

    /// Whether the sender is to be told soon.
    pub const fn must_tell(&self, window: u32) -> bool {
        self.arrived.wrapping_sub(self.told) >= window / 4
    }

    /// What to tell it; none if it knows.
    pub const fn tell(&mut self) -> Option<u32> {
        if self.arrived == self.told {
            return None;
        }
        self.told = self.arrived;
        Some(self.arrived)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_under_way_at_most() {
        let window = window(2);
        let (mut out, mut into) = (Outgoing { sent: u32::MAX - 3, arrived: u32::MAX - 3 }, ReceiveWindow::default());
        (into.arrived, into.told) = (out.sent, out.sent);
        let mut sent = 0;
        for round in 0..100u32 {
            while out.may_send(window) {
                out.sent();
                sent += 1;
            }
            assert!(!into.must_tell(window));
            for _ in 0..window / 4 {
                into.arrived();
            }
            assert!(into.must_tell(window), "round {round}");
            assert!(out.arrived(into.tell().unwrap()) && into.tell().is_none());
        }
        assert_eq!(sent, window + 99 * (window / 4));
    }

    #[test]
    fn more_than_was_sent_cannot_have_arrived() {
        let mut out = Outgoing::default();
        out.sent();
        out.sent();
        assert!(!out.arrived(3) && !out.arrived(u32::MAX) && out.arrived(2) && !out.arrived(1));
    }
}
