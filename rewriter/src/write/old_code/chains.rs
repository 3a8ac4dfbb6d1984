//! Springboards of several jumps, where there is no room for a long one: `jmp rel8` to `jmp rel8` and so on, the last to `jmp rel32`.
//!
//! Input: the states of a section's bytes. Output: jumps in the bytes nearby where no possible target begins: in padding or inside an instruction, else over
//! instructions that only follow others. A possible target right behind the first byte leaves one displacement for the first jump, which is what stands
//! there: a trap byte, or the first byte of that target's own springboard. **Invariants**: what a jump covers belongs to no other one; no chain has more
//! than [`SPRINGBOARD_JUMPS`] jumps, which the runtime and
//! `verify` follow; the shortest chain is taken. Source: SDM volume 2, JMP.

use crate::base::addresses::Vaddr;
use crate::write::old_code::springboards::{
    BEGIN, COVERED, ENTERED, LONG, LONG_JUMP, OldSection, SHARED, TARGET, TRAP, USED,
};
use blizzard_contract::SPRINGBOARD_JUMPS;
use std::ops::Range;

/// `jmp rel8`, and its bytes.
const SHORT_JUMP: u8 = 0xeb;
const SHORT: usize = 2;

/// A `jmp rel8` that a chain may have.
struct Step {
    at: usize,
    /// Where displacements lead.
    reach: Range<usize>,
    /// The step that leads here.
    from: Option<usize>,
}

impl OldSection {
    /// Puts a chain of jumps to `to` there; false where none fits.
    pub(super) fn chain(&mut self, at: usize, to: Vaddr) -> bool {
        let Some((steps, pad)) = self.find(at) else { return false };
        self.long(pad, to);
        let mut next = pad;
        for step in steps {
            self.bytes[step] = SHORT_JUMP;
            self.bytes[step + 1] = displacement(step, next);
            self.state[step] |= USED;
            // Who lands on another target must meet what stands there.
            self.state[step + 1] |= if self.state[step + 1] & TARGET == 0 { USED } else { SHARED };
            next = step;
        }
        true
    }

    /// The places of a shortest chain's short jumps, the last of them first, and of its long one.
    fn find(&self, at: usize) -> Option<(Vec<usize>, usize)> {
        let mut steps = vec![Step { at, reach: self.first_reach(at)?, from: None }];
        // What more steps reach are a stretch around what fewer do.
        let mut seen = steps[0].reach.start..steps[0].reach.start;
        let mut fresh = 0..1;
        for _ in 2..=SPRINGBOARD_JUMPS {
            let mut pads = Vec::new();
            let behind = steps.len();
            for k in fresh {
                let reach = steps[k].reach.clone();
                for place in reach.clone().filter(|place| !seen.contains(place)) {
                    if !self.leads(steps[k].at, place) {
                        continue;
                    }
                    if self.fits(place, LONG) && !crosses(&steps, k, place, LONG) {
                        pads.push((place, k));
                    } else if self.fits(place, SHORT) && !crosses(&steps, k, place, SHORT) {
                        steps.push(Step { at: place, reach: self.reach(place), from: Some(k) });
                    }
                }
                seen = seen.start.min(reach.start)..seen.end.max(reach.end);
            }
            // The nearest is likely in the same cache line.
            let rank = |&(pad, _): &(usize, usize)| (self.holds(pad..pad + LONG, BEGIN), pad.abs_diff(at));
            if let Some((pad, last)) = pads.into_iter().min_by_key(rank) {
                let places = std::iter::successors(Some(last), |&k| steps[k].from).map(|k| steps[k].at).collect();
                return Some((places, pad));
            }
            fresh = behind..steps.len();
        }
        None
    }

    /// Where a `jmp rel8` at a possible target may lead.
    fn first_reach(&self, at: usize) -> Option<Range<usize>> {
        let second = *self.state.get(at + 1)?;
        if self.state[at] & (USED | SHARED) != 0 {
            return None;
        }
        if second & TARGET != 0 {
            let only = (at + SHORT).checked_add_signed(isize::from(self.bytes[at + 1] as i8))?;
            return Some(only..(only + 1).min(self.state.len()));
        }
        (second & !(BEGIN | ENTERED) == COVERED).then(|| self.reach(at))
    }

    fn reach(&self, at: usize) -> Range<usize> {
        let behind = at + SHORT;
        behind.saturating_sub(1 << 7)..(behind + (1 << 7)).min(self.state.len())
    }

    /// Whether a jump of `bytes` may stand at `at`: instructions that begin in it can neither be reached nor trap, so none may that
    /// does not follow another.
    fn fits(&self, at: usize, bytes: usize) -> bool {
        self.free(at..at + bytes) && !self.holds(at..at + bytes, ENTERED)
    }

    fn holds(&self, range: Range<usize>, what: u8) -> bool {
        self.state[range].iter().any(|s| s & what != 0)
    }

    /// Whether a `jmp rel8` at `at` may lead there. A displacement that is a trap byte counts as one, so none may where an instruction has no row in the
    /// trap map; nor may one look like another jump.
    fn leads(&self, at: usize, to: usize) -> bool {
        let second = self.state[at + 1];
        second & TARGET != 0
            || match displacement(at, to) {
                TRAP => second & BEGIN == 0,
                LONG_JUMP | SHORT_JUMP => false,
                _ => true,
            }
    }
}

fn displacement(at: usize, to: usize) -> u8 {
    (to as i64 - (at + SHORT) as i64) as i8 as u8
}

/// Whether a jump of `bytes` at `at` would overlap one of the chain up to step `k`.
fn crosses(steps: &[Step], k: usize, at: usize, bytes: usize) -> bool {
    std::iter::successors(Some(k), |&k| steps[k].from).any(|k| at < steps[k].at + SHORT && steps[k].at < at + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trap bytes of decoded code, and possible targets among them.
    fn old(bytes: usize, targets: impl IntoIterator<Item = usize>) -> OldSection {
        let mut old = OldSection { va: Vaddr(0x1000), bytes: vec![TRAP; bytes], state: vec![COVERED; bytes] };
        targets.into_iter().for_each(|at| old.state[at] |= BEGIN | TARGET);
        old
    }

    /// Where jumps lead from `at` on, and how many they are.
    fn follow(old: &OldSection, mut at: usize) -> (u64, usize) {
        for jumps in 1.. {
            match old.bytes[at..] {
                [0xeb, rel, ..] => at = (at + SHORT).checked_add_signed(isize::from(rel as i8)).unwrap(),
                [0xe9, a, b, c, d, ..] => {
                    let behind = old.va + (at + LONG) as u64;
                    return ((behind + i64::from(i32::from_le_bytes([a, b, c, d])) as u64).0, jumps);
                }
                _ => panic!("no jump at {at}"),
            }
        }
        unreachable!()
    }

    #[test]
    fn a_chain_goes_over_places_that_hold_no_long_jump() {
        // Room for a long jump 600 bytes away, for short ones everywhere.
        let mut old = old(1000, (0..700).step_by(4));
        let before = old.state.clone();
        assert!(old.chain(40, Vaddr(0x9000)));
        let (to, jumps) = follow(&old, 40);
        assert_eq!((to, jumps), (0x9000, 7));
        for at in (0..700).step_by(4).filter(|at| *at != 40) {
            assert_eq!((old.bytes[at], old.state[at]), (TRAP, before[at]), "{at}");
        }
    }

    #[test]
    fn a_chain_has_an_end() {
        let mut old = old(2000, (0..1900).step_by(4));
        assert!(!old.chain(40, Vaddr(0x9000)));
        assert!(old.bytes.iter().all(|b| *b == TRAP));
    }

    #[test]
    fn a_target_behind_the_first_byte_keeps_its_trap_byte() {
        // The one displacement leads to 50, from where a long jump is two steps away.
        let mut old = old(1000, (0..250).step_by(4).chain([101]));
        assert!(old.chain(100, Vaddr(0x9000)));
        assert_eq!((&old.bytes[100..102], old.bytes[50]), (&[0xeb, TRAP][..], 0xeb));
        assert_eq!(follow(&old, 100), (0x9000, 4));
        // It serves one target only.
        assert!(!old.chain(101, Vaddr(0x9000)));
    }

    #[test]
    fn the_first_byte_of_a_springboard_is_a_displacement_in_front_of_it() {
        // 101 has a long jump; the one at 100 leads 21 bytes back, from where another reaches what follows 101's.
        let mut old = old(1000, (0..101).filter(|at| !(79..=80).contains(at)).chain([101]));
        old.long(101, Vaddr(0x8000));
        assert!(old.chain(100, Vaddr(0x9000)));
        assert_eq!((&old.bytes[100..102], old.bytes[79]), (&[SHORT_JUMP, LONG_JUMP][..], SHORT_JUMP));
        assert_eq!((follow(&old, 100).0, follow(&old, 101).0), (0x9000, 0x8000));
    }

    #[test]
    fn a_displacement_is_no_trap_byte_by_chance() {
        // Pads at 50 only, which a jump at 100 would reach by the value of a trap byte; another instruction begins at 101.
        let mut old = old(400, (0..400).filter(|at| !(50..55).contains(at) && *at != 101));
        old.state[101] |= BEGIN;
        assert!(!old.chain(100, Vaddr(0x9000)));
        old.state[101] = COVERED;
        assert!(old.chain(100, Vaddr(0x9000)));
    }
}
