//! How often accesses of plain code have faulted, for whoever has launched the run.
//!
//! Input: accesses that faulted, or missed in full code. Output: [`LearntPlace`]s, which all processes of the run share, forked children too: so nothing is lost however a process ends.
//! **Invariants**: a place belongs to one access for the whole run. Where there is no place left, an access is not learnt of; that costs speed only.
//! Source: design section 9.

use crate::kernel::owned::PerProcess;
use crate::libraries::modules::MODULES;
use blizzard_contract::{LEARNT_PLACES, LEARNT_REACH, LearntPlace, learnt_place};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU64, Ordering};

/// Address of the first place; 0: nobody asks.
static PLACES: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(0));

/// Counts into the places at this address, which stay mapped.
pub fn start(places: u64) {
    PLACES.store(places, Ordering::Relaxed);
}

/// Whether somebody asks.
#[inline]
pub fn is_asked() -> bool {
    PLACES.load(Ordering::Relaxed) != 0
}

/// Places whose misses have been noted, each where its address says; of two that share one, each forgets the other.
static NOTED: PerProcess<[AtomicU64; 1024]> = PerProcess::new([const { AtomicU64::new(0) }; 1024]);

/// A miss has been for full code, whose way leads on at `place`: what misses there would fault in plain code, which a function in its full version does not come to.
/// `access`: where the access begins, of such a place.
#[inline]
pub fn note_miss(place: u64, access: impl FnOnce() -> Option<u64>) {
    let noted = &NOTED[place as usize % NOTED.len()];
    if noted.load(Ordering::Relaxed) != place {
        noted.store(place, Ordering::Relaxed);
        if let Some(plain) = access().and_then(|at| MODULES.plain_of(at)).and_then(|at| MODULES.access_at(at)) {
            is_first(plain);
        }
    }
}

/// Counts a fault of an access, by its name; whether it is the run's first of it.
pub fn is_first(access: u64) -> bool {
    let places = PLACES.load(Ordering::Relaxed);
    if places == 0 {
        return false;
    }
    for k in 0..LEARNT_REACH {
        let at = places + (learnt_place(access) + k) % LEARNT_PLACES * size_of::<LearntPlace>() as u64;
        // SAFETY: the launcher's places, which everybody changes atomically.
        let word = |offset: usize| unsafe { AtomicU64::from_ptr((at + offset as u64) as *mut u64) };
        let name = word(offset_of!(LearntPlace, access));
        let owner =
            name.compare_exchange(0, access, Ordering::Relaxed, Ordering::Relaxed).unwrap_or_else(|owner| owner);
        if owner == 0 || owner == access {
            return word(offset_of!(LearntPlace, faults)).fetch_add(1, Ordering::Relaxed) == 0;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn each_access_has_a_place_and_is_first_once() {
        let places: Vec<AtomicU64> = (0..2 * LEARNT_PLACES).map(|_| AtomicU64::new(0)).collect();
        assert!(!is_first(1 << 32 | 7), "nobody asks");
        start(places.as_ptr() as u64);
        for round in 0..3 {
            for access in (0..4000u64).map(|k| (0x1234_5677 << 32) | (k * 5)) {
                assert_eq!(is_first(access), round == 0, "{access:#x}");
            }
        }
        start(0);
        let words: Vec<u64> = places.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        let used: Vec<_> = words.chunks(2).filter(|place| place[0] != 0).collect();
        assert!(used.len() == 4000 && used.iter().all(|place| place[1] == 3));
    }
}
