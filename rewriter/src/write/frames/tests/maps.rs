//! Code maps for tests: every instruction of the input's frames gets a new place by some rule.

use crate::base::addresses::Vaddr;
use crate::read::eh_frame::FrameInput;
use crate::read::frames::FrameInfo;
use crate::write::frames::pieces::{CodeMap, StackMove};
use std::ops::Range;

/// New places by old address.
pub struct Map {
    /// (old begin, new begin, new end), ascending by old address.
    pub places: Vec<(u64, u64, u64)>,
    /// Ascending by address.
    pub moves: Vec<StackMove>,
    /// What [`CodeMap::in_order`] answers at once; `None`: the default looks.
    pub in_order: Option<bool>,
}

/// Where instructions go.
pub enum Rule {
    /// The same distances.
    Shift,
    /// Three times the distances, so that every advance changes its width somewhere.
    Stretch,
    /// Chunks of a few instructions in random order, with gaps.
    Scatter(u64),
}

/// Old addresses of the instructions in the frames' code, as a linear decoder sees them.
pub fn instructions(input: &FrameInput, info: &FrameInfo) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for fde in &info.fdes {
        let code = (input.tail)(fde.start).expect("code");
        let code = &code[..(fde.end - fde.start) as usize];
        let mut decoder = iced_x86::Decoder::with_ip(64, code, fde.start.0, iced_x86::DecoderOptions::NONE);
        while decoder.can_decode() {
            let at = decoder.ip();
            let _ = decoder.decode();
            all.push((at, decoder.ip()));
        }
    }
    all.sort_unstable();
    all.dedup_by_key(|i| i.0);
    all
}

pub fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Map {
    /// Places `instructions` from the address `to` on.
    pub fn new(instructions: &[(u64, u64)], to: u64, rule: &Rule) -> Map {
        let first = instructions.first().expect("code").0;
        let mut places = Vec::new();
        match rule {
            Rule::Shift => places.extend(instructions.iter().map(|&(a, b)| (a, a - first + to, b - first + to))),
            Rule::Stretch => {
                places.extend(instructions.iter().map(|&(a, b)| (a, 3 * (a - first) + to, 3 * (b - first) + to)));
            }
            Rule::Scatter(seed) => {
                let mut state = *seed;
                let mut chunks = Vec::new();
                let mut rest = instructions;
                while !rest.is_empty() {
                    let n = (1 + xorshift(&mut state) as usize % 40).min(rest.len());
                    let (chunk, behind) = rest.split_at(n);
                    chunks.push(chunk);
                    rest = behind;
                }
                for i in (1..chunks.len()).rev() {
                    chunks.swap(i, xorshift(&mut state) as usize % (i + 1));
                }
                let mut at = to;
                for chunk in chunks {
                    for &(a, b) in chunk {
                        let end = at + (b - a) + xorshift(&mut state) % 9;
                        places.push((a, at, end));
                        at = end;
                    }
                    at += xorshift(&mut state) % 100;
                }
                places.sort_unstable();
            }
        }
        Map { places, moves: Vec::new(), in_order: None }
    }
}

/// By how much [`Map::spill`] lowers rsp, one byte apart.
pub const SPILL: [u32; 3] = [128, 136, 0];

impl Map {
    /// Whether inserted code spills registers before the instruction.
    pub fn spills(old: u64) -> bool {
        old % 3 == 1
    }

    /// Lets inserted code before every third instruction move rsp. New code must be at least three times as long as old.
    pub fn spill(&mut self) {
        for &(_, begin, _) in self.places.iter().filter(|p| Map::spills(p.0)) {
            let moves = SPILL.iter().zip(begin..).map(|(&lower_by, at)| StackMove { at: Vaddr(at), lower_by });
            self.moves.extend(moves);
        }
        self.moves.sort_by_key(|m| m.at);
    }
}

impl CodeMap for Map {
    fn stack_moves(&self, new: Range<Vaddr>) -> &[StackMove] {
        let place = |a: Vaddr| self.moves.partition_point(|m| m.at < a);
        // A damaged table may name code where nothing is in order.
        self.moves.get(place(new.start)..place(new.end)).unwrap_or(&[])
    }

    fn begin(&self, old: Vaddr) -> Option<Vaddr> {
        let i = self.places.binary_search_by_key(&old.0, |p| p.0).ok()?;
        Some(Vaddr(self.places[i].1))
    }

    fn end(&self, old_end: Vaddr) -> Option<Vaddr> {
        let i = self.places.partition_point(|p| p.0 < old_end.0).checked_sub(1)?;
        Some(Vaddr(self.places[i].2))
    }

    fn first(&self, from: Vaddr, to: Vaddr) -> Option<Vaddr> {
        let place = self.places.get(self.places.partition_point(|p| p.0 < from.0))?;
        (place.0 < to.0).then_some(Vaddr(place.1))
    }

    fn in_order(&self, from: Vaddr, to: Vaddr) -> bool {
        if let Some(known) = self.in_order {
            return known;
        }
        let inside = self.places.partition_point(|p| p.0 < from.0)..self.places.partition_point(|p| p.0 < to.0);
        let places = self.places[inside].windows(2);
        places.map(|p| p[1].1.wrapping_sub(p[0].2)).all(|gap| gap <= crate::write::frames::pieces::MAX_PADDING)
    }
}
