//! A set of numbers as bits, with running counts: how many members are below a number.
//!
//! Purpose: lists that have an entry for some instructions only (those that begin a block, those that branch) need no index of four bytes for
//! every instruction: the entry's place is how many members stand before it. Input: whether each number is a member, or the bits themselves. Output:
//! membership and rank of any number, in constant time.
//!
//! Invariants: the set does not change. `before(i)` counts the members below `i` and not `i` itself; behind the last word nothing is a
//! member, and the rank is the number of all. A module has less than 2^32 members.

/// The set. Most of its memory is one bit for each number below the highest one.
#[derive(Debug, Default)]
pub struct RankedBits {
    bits: Vec<u64>,
    /// Members before each word of `bits`; one more for the end.
    before: Vec<u32>,
}

impl RankedBits {
    /// The numbers for which `members` says so.
    pub fn of(members: impl Iterator<Item = bool>) -> RankedBits {
        let mut bits = Vec::with_capacity(members.size_hint().0.div_ceil(64));
        for (i, member) in members.enumerate() {
            if i % 64 == 0 {
                bits.push(0u64);
            }
            if member {
                bits[i / 64] |= 1 << (i % 64);
            }
        }
        RankedBits::from_bits(bits)
    }

    /// Those whose bits are set.
    pub fn from_bits(bits: Vec<u64>) -> RankedBits {
        let mut before = Vec::with_capacity(bits.len() + 1);
        let mut count = 0;
        for word in &bits {
            before.push(count);
            count += word.count_ones();
        }
        before.push(count);
        RankedBits { bits, before }
    }

    /// The members, ascending.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        members(&self.bits)
    }

    /// Whether `i` is a member; nothing behind the highest word is.
    #[inline]
    pub fn contains(&self, i: usize) -> bool {
        self.bits.get(i / 64).is_some_and(|word| word >> (i % 64) & 1 != 0)
    }

    /// How many members are below `i`.
    #[inline]
    pub fn before(&self, i: usize) -> u32 {
        match self.bits.get(i / 64) {
            Some(word) => self.before[i / 64] + (word & ((1 << (i % 64)) - 1)).count_ones(),
            None => self.before.last().copied().unwrap_or(0),
        }
    }
}

/// Sets the bit of a number.
#[inline]
pub fn set(bits: &mut [u64], i: usize) {
    bits[i / 64] |= 1 << (i % 64);
}

/// Whether the bit of a number is set.
#[inline]
pub fn is_set(bits: &[u64], i: usize) -> bool {
    bits[i / 64] >> (i % 64) & 1 != 0
}

/// The numbers whose bits are set, ascending.
#[inline]
pub fn members(bits: &[u64]) -> impl Iterator<Item = usize> {
    bits.iter().enumerate().flat_map(|(k, &word)| members_of(word).map(move |bit| 64 * k + bit))
}

/// The same of one word.
#[inline]
pub fn members_of(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        let more = word != 0;
        word &= word.wrapping_sub(1);
        more.then_some(bit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_count_the_members_below() {
        let members = [0usize, 3, 63, 64, 100, 127, 200];
        let ranks = RankedBits::of((0..201).map(|i| members.contains(&i)));
        for i in 0..400 {
            assert_eq!(ranks.contains(i), members.contains(&i), "{i}");
            assert_eq!(ranks.before(i) as usize, members.iter().filter(|m| **m < i).count(), "{i}");
        }
        assert_eq!(ranks.iter().collect::<Vec<_>>(), members);
        assert_eq!(RankedBits::default().before(7), 0);
        assert!(!RankedBits::of(std::iter::empty()).contains(0));
    }
}
