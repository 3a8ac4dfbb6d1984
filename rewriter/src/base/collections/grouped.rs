//! Values by key, in two lists.
//!
//! Input: pairs of numbers in any order, asked for several times instead of kept. Output: the values of a key. **Invariant**: they have the order of the pairs.

use crate::base::collections::ranked_bits::{RankedBits, set};

/// Values by key, where most keys have none.
pub(crate) struct Grouped {
    keys: RankedBits,
    /// By key that has some: where its values begin in `list`; one more for the end.
    from: Vec<u32>,
    list: Vec<u32>,
}

impl Grouped {
    /// Groups (key, value) pairs, which are asked for three times, so that they need not be kept. Keys are below `keys`.
    pub(crate) fn new<I: Iterator<Item = (u32, u32)>>(keys: usize, pairs: impl Fn() -> I) -> Grouped {
        let mut bits = vec![0; keys.div_ceil(64)];
        pairs().for_each(|(k, _)| set(&mut bits, k as usize));
        let ranks = RankedBits::from_bits(bits);
        let (from, list) = group(ranks.before(keys) as usize, || pairs().map(|(k, v)| (ranks.before(k as usize), v)));
        Grouped { keys: ranks, from, list }
    }

    /// Those of one key, in the order of the pairs.
    #[inline]
    pub(crate) fn of(&self, key: usize) -> &[u32] {
        if !self.keys.contains(key) {
            return &[];
        }
        let k = self.keys.before(key) as usize;
        &self.list[self.from[k] as usize..self.from[k + 1] as usize]
    }
}

/// Groups (key, value) pairs by key: offsets and values. The pairs are asked for twice, so that they need not be kept.
pub(crate) fn group<I: Iterator<Item = (u32, u32)>>(keys: usize, pairs: impl Fn() -> I) -> (Vec<u32>, Vec<u32>) {
    // While the list is filled, what stands behind a key's place says where its next value goes: at the end, where those of the next key begin.
    let mut from = vec![0u32; keys + 2];
    for (k, _) in pairs() {
        from[k as usize + 2] += 1;
    }
    for i in 1..=keys {
        from[i + 1] += from[i];
    }
    let mut list = vec![0; from[keys + 1] as usize];
    for (k, v) in pairs() {
        let next = &mut from[k as usize + 1];
        list[*next as usize] = v;
        *next += 1;
    }
    from.pop();
    (from, list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_keys_in_order() {
        let pairs = [(70, 1), (3, 2), (70, 0), (129, 5), (3, 9), (0, 4)];
        let wanted = |key| pairs.iter().filter(|p| p.0 == key).map(|p| p.1).collect::<Vec<u32>>();
        let (from, list) = group(130, || pairs.into_iter());
        let grouped = Grouped::new(130, || pairs.into_iter());
        assert_eq!(from.len(), 131);
        for key in 0..130 {
            assert_eq!(list[from[key] as usize..from[key + 1] as usize], wanted(key as u32), "{key}");
            assert_eq!(grouped.of(key), wanted(key as u32), "{key}");
        }
        assert_eq!(group(0, || [].into_iter()), (vec![0], vec![]));
    }
}
