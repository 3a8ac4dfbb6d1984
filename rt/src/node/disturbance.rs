//! How much signals take of the time of a program that computes.
//!
//! Purpose: peers interrupt code without polls. Input: when an interruption begins and ends, in cycles. Output: how long the node stays for the next request, and how
//! long it wants no signals then. **Invariant**: but for [`MOST`], the program computes for as long as it was kept from it. So it takes twice its time at most,
//! however many requests come.

/// What a signal takes with the way to its handler and back. Two to eight microseconds have been measured; a little too much makes peers wait a little longer.
const SIGNAL: u64 = 16_000;
/// Longest wait for the next request, where a signal costs more.
pub const GAP: u64 = 4_000;
/// What the program may be kept from computing before it must be left alone.
const MOST: u64 = 120_000;
/// Cycles of a nanosecond, or less: then the program is left alone for longer.
const CYCLES_OF_NS: u64 = 2;

/// What the program has been kept from, and has not had back since.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbance {
    owed: u64,
    /// When this interruption began, and the last one ended.
    began: u64,
    ended: u64,
}

impl Disturbance {
    /// An interruption begins.
    pub fn begin(&mut self, now: u64) {
        // The ways back from the last signal and to this one's handler are no time of the program's.
        self.owed = self.owed.saturating_sub(now.saturating_sub(self.ended).saturating_sub(SIGNAL));
        self.began = now;
    }

    fn owed(&self, now: u64) -> u64 {
        self.owed + SIGNAL + now.saturating_sub(self.began)
    }

    /// Whether it may go on.
    pub fn may_go_on(&self, now: u64) -> bool {
        self.owed(now) < MOST
    }

    /// It ends. For how many nanoseconds the program must be left alone, if it must.
    pub fn end(&mut self, now: u64) -> Option<u64> {
        (self.owed, self.ended) = (self.owed(now), now);
        (self.owed >= MOST).then_some(self.owed / CYCLES_OF_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests that follow each other after `pause` cycles; of the time the part in which the program computes, in percent.
    fn computes(pause: u64, requests: u64) -> u64 {
        let (mut disturbance, mut now, mut computed) = (Disturbance::default(), 1 << 40, 0);
        let since = now;
        for _ in 0..requests {
            // The signal, and what is done.
            now += SIGNAL / 2;
            disturbance.begin(now);
            now += 500;
            while pause <= GAP && disturbance.may_go_on(now) {
                now += pause;
            }
            let alone = disturbance.end(now).map_or(pause, |ns| ns * CYCLES_OF_NS);
            now += SIGNAL / 2 + alone;
            computed += alone;
        }
        100 * computed / (now - since)
    }

    #[test]
    fn a_storm_leaves_half_of_the_time() {
        for pause in [10, 1000, GAP, GAP + 1, 2 * SIGNAL] {
            assert!((48..75).contains(&computes(pause, 1000)), "{pause}: {}", computes(pause, 1000));
        }
        assert!(computes(100 * SIGNAL, 1000) > 95);
    }

    #[test]
    fn rare_requests_are_answered_at_once() {
        let mut disturbance = Disturbance::default();
        for n in 1..1000 {
            disturbance.begin(n * 4 * SIGNAL);
            assert_eq!(disturbance.end(n * 4 * SIGNAL + GAP), None);
        }
    }
}
