//! When a node that has just sent a message looks for what follows from it.
//!
//! Purpose: a look at the line that a peer is about to write takes the line away from it, perhaps between two of its stores: the peer must fetch it
//! again, and so must whoever looked. On some processors an answer that is looked for too early therefore takes twice as long; on others early looks
//! cost nothing, and late ones all that they are late. So the node learns when to look first. Input: how long waits took that began with each of a
//! few pauses. Output: the pause to begin with.
//!
//! One wait in [`TIMED_EVERY`] is timed: with the best pause so far and with another one, in turn; when the best one has been the same for a while,
//! the others are tried less often. What is compared is the lower quartile, because now and then a peer does something else or does not run.
//! **Invariant**: nothing but time depends on a pause, and none is longer than the longest of [`PAUSES`].

/// `pause` instructions before the first look.
const PAUSES: [u8; 12] = [0, 2, 4, 6, 8, 10, 12, 14, 17, 20, 24, 28];
/// One wait in so many is timed.
const TIMED_EVERY: u32 = 16;
/// When all pauses have been tried so many times and the best one has not changed, one in so many of the others' turns is left to them.
const SETTLED: u8 = 8;
const RARELY: u32 = 8;
/// A lower quartile stands still where a quarter of the samples moves it down by one part in so many, and the others up by a third of that.
const STEP: u64 = 16;
/// Another pause must be better by one part in so many: more than a lower quartile wavers.
const MARGIN: u64 = 8;
const _: () = assert!(MARGIN < STEP);

/// What is known of one kind of wait; nothing at first: then the first look comes at once.
#[derive(Clone, Copy, Debug, Default)]
pub struct FirstLook {
    /// Lower quartile of the waits that began with each pause, in cycles; 0: not tried yet.
    cycles: [u64; PAUSES.len()],
    best: u8,
    /// The pause that was tried last.
    tried: u8,
    /// How many times all have been tried since the best one changed, up to [`SETTLED`].
    settled: u8,
    waits: u32,
}

/// A wait that is timed: its pause, by its place in [`PAUSES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timed(u8);

impl FirstLook {
    /// A wait begins: how many pauses come first, and whether the wait is to be timed.
    #[inline]
    pub fn begin(&mut self) -> (u8, Option<Timed>) {
        self.waits = self.waits.wrapping_add(1);
        if !self.waits.is_multiple_of(TIMED_EVERY) {
            return (PAUSES[usize::from(self.best)], None);
        }
        let others_turn = if self.settled < SETTLED { 2 * TIMED_EVERY } else { 2 * TIMED_EVERY * RARELY };
        let timed = if self.waits.is_multiple_of(others_turn) { self.next_to_try() } else { self.best };
        (PAUSES[usize::from(timed)], Some(Timed(timed)))
    }

    fn next_to_try(&mut self) -> u8 {
        self.tried += 1;
        if usize::from(self.tried) == PAUSES.len() {
            self.tried = 0;
            self.settled = (self.settled + 1).min(SETTLED);
        }
        self.tried
    }

    /// A timed wait took so many cycles.
    #[inline(never)]
    pub fn end(&mut self, Timed(place): Timed, cycles: u64) {
        let known = &mut self.cycles[usize::from(place)];
        *known = match *known {
            0 => cycles.max(1),
            known if cycles < known => known - known / STEP,
            known => known + (known / (3 * STEP)).max(1),
        };
        let mut best = self.best;
        for (place, &cycles) in (0..).zip(&self.cycles) {
            let at_present = self.cycles[usize::from(best)];
            if cycles != 0 && cycles < at_present - at_present / MARGIN {
                best = place;
            }
        }
        if best != self.best {
            (self.best, self.settled) = (best, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits whose length depends on the pause; the pause that most of them begin with in the end.
    fn learnt(waits: u32, length: impl Fn(u8, u32) -> u64) -> u8 {
        let mut look = FirstLook::default();
        for n in 0..waits {
            let (pauses, timed) = look.begin();
            if let Some(timed) = timed {
                look.end(timed, length(pauses, n));
            }
        }
        PAUSES[usize::from(look.best)]
    }

    /// An early look doubles the time, a late one costs what it is late.
    fn disturbed(pauses: u8) -> u64 {
        if pauses < 10 { 1200 } else { 600 + 36 * (u64::from(pauses) - 10) }
    }

    #[test]
    fn the_first_look_comes_when_it_no_longer_disturbs() {
        assert_eq!(learnt(20_000, |pauses, _| disturbed(pauses)), 10);
    }

    #[test]
    fn where_early_looks_cost_nothing_the_first_one_comes_at_once() {
        assert_eq!(learnt(20_000, |pauses, _| 700 + 36 * u64::from(pauses)), 0);
        assert_eq!(learnt(20_000, |_, n| 700 + u64::from(n % 7)), 0);
    }

    /// Two waits of three end when the peer has computed for a while, some when it runs again.
    #[test]
    fn waits_that_have_other_reasons_do_not_matter() {
        let length = |pauses, n: u32| match n / 16 % 12 {
            11 => 5_000_000,
            k if k % 3 != 0 => 30_000 + u64::from(n * 7919 % 10_000),
            _ => disturbed(pauses),
        };
        assert_eq!(learnt(200_000, length), 10);
    }

    #[test]
    fn what_is_settled_is_rarely_disturbed() {
        let mut look = FirstLook::default();
        let mut odd = 0;
        for n in 0..60_000 {
            let (pauses, timed) = look.begin();
            odd += u32::from(n >= 50_000 && pauses != 10);
            if let Some(timed) = timed {
                look.end(timed, disturbed(pauses));
            }
        }
        assert!(odd <= 10_000 / 256 + 1, "{odd}");
    }

    #[test]
    fn what_has_been_learnt_is_forgotten_when_the_peer_changes() {
        let length = |pauses, n| if n < 50_000 { disturbed(pauses) } else { 700 + 36 * u64::from(pauses) };
        assert_eq!((learnt(50_000, length), learnt(100_000, length)), (10, 0));
    }
}
