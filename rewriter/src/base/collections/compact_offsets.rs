//! A list of numbers that rise slowly, in two bytes each.
//!
//! Purpose: there are lists with one position for each instruction (where it stands, where its new code begins), of a module that has millions. Such
//! numbers rise by a few bytes from one to the next, so what a short run of them has in common is kept once. Input: numbers in the order of the list, one at a
//! time. Output: any of them by index, in constant time, all in order, and the last.
//!
//! Invariants: what is read is what was put in, whatever the numbers are. Where one falls below the first of its run, or is 2^16 or more
//! above it, the whole list becomes one of four bytes each, once and for good; this costs memory only.

/// The list: a little more than two bytes for each number, as long as no [`RUN`] of them spans more than 2^16.
#[derive(Clone, Debug)]
pub enum CompactOffsets {
    /// The first of each run, and what each adds to it.
    Near {
        firsts: Vec<u32>,
        added: Vec<u16>,
    },
    Wide(Vec<u32>),
}

/// Numbers that share a first one.
const RUN: usize = 32;

impl Default for CompactOffsets {
    fn default() -> Self {
        CompactOffsets::with_capacity(0)
    }
}

impl CompactOffsets {
    /// An empty list with room for `count` numbers.
    pub fn with_capacity(count: usize) -> CompactOffsets {
        CompactOffsets::Near { firsts: Vec::with_capacity(count.div_ceil(RUN)), added: Vec::with_capacity(count) }
    }

    /// The number at `i`.
    #[inline]
    pub fn get(&self, i: usize) -> u32 {
        match self {
            CompactOffsets::Near { firsts, added } => firsts[i / RUN] + u32::from(added[i]),
            CompactOffsets::Wide(list) => list[i],
        }
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            CompactOffsets::Near { added, .. } => added.len(),
            CompactOffsets::Wide(list) => list.len(),
        }
    }

    /// The last one.
    #[inline]
    pub fn last(&self) -> Option<u32> {
        self.len().checked_sub(1).map(|i| self.get(i))
    }

    /// All of them.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        let (firsts, added, wide) = match self {
            CompactOffsets::Near { firsts, added } => (&firsts[..], &added[..], &[][..]),
            CompactOffsets::Wide(list) => (&[][..], &[][..], &list[..]),
        };
        let near = firsts
            .iter()
            .zip(added.chunks(RUN))
            .flat_map(|(first, run)| run.iter().map(move |a| first + u32::from(*a)));
        near.chain(wide.iter().copied())
    }

    /// Adds one that is not below the last.
    #[inline]
    pub fn push(&mut self, number: u32) {
        if let CompactOffsets::Near { firsts, added } = self
            && !added.len().is_multiple_of(RUN)
            && let Some(first) = firsts.last()
            && let Ok(more) = u16::try_from(number.wrapping_sub(*first))
        {
            added.push(more);
        } else {
            self.push_first(number);
        }
    }

    /// Adds one that begins a run, or that makes the list wide.
    fn push_first(&mut self, number: u32) {
        match self {
            CompactOffsets::Wide(list) => list.push(number),
            CompactOffsets::Near { firsts, added } if added.len().is_multiple_of(RUN) => {
                firsts.push(number);
                added.push(0);
            }
            CompactOffsets::Near { added, .. } => {
                let mut wide = Vec::with_capacity(added.capacity());
                wide.extend(self.iter());
                wide.push(number);
                *self = CompactOffsets::Wide(wide);
            }
        }
    }
}

impl FromIterator<u32> for CompactOffsets {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> CompactOffsets {
        let numbers = numbers.into_iter();
        let mut out = CompactOffsets::with_capacity(numbers.size_hint().0);
        numbers.for_each(|n| out.push(n));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_whether_they_rise_slowly_or_not() {
        let slow: Vec<u32> = (0..1000).map(|k| 7 * k + k % 3).collect();
        let mut fast = slow.clone();
        fast.extend([80_000, 3_000_000, 3_000_001]);
        let fallen = [5, 9, 4];
        for numbers in [&slow[..], &fast, &fallen, &[]] {
            let list: CompactOffsets = numbers.iter().copied().collect();
            assert_eq!(list.iter().collect::<Vec<_>>(), numbers);
            assert_eq!((list.len(), list.last()), (numbers.len(), numbers.last().copied()));
        }
        let list: CompactOffsets = slow.iter().copied().collect();
        assert!(matches!(list, CompactOffsets::Near { .. }));
    }
}
