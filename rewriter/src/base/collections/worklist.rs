//! A work list of blocks, one bit for each.
//!
//! Input: numbers of blocks that are to be visited. Output: the last that waits in front of a given one. **Invariant**: each waits once at most.

use crate::base::collections::ranked_bits::set;

/// Blocks that are to be visited.
#[derive(Clone)]
pub(crate) struct Worklist(Vec<u64>);

impl Worklist {
    /// So many.
    pub(crate) fn all(count: usize) -> Worklist {
        let mut bits = vec![u64::MAX; count.div_ceil(64)];
        if let Some(last) = bits.last_mut()
            && !count.is_multiple_of(64)
        {
            *last = (1 << (count % 64)) - 1;
        }
        Worklist(bits)
    }

    /// Room for so many, of which none waits.
    pub(crate) fn none(count: usize) -> Worklist {
        Worklist(vec![0; count.div_ceil(64)])
    }

    #[inline]
    pub(crate) fn add(&mut self, b: usize) {
        set(&mut self.0, b);
    }

    /// Takes the last one in front of `b` out.
    #[inline]
    pub(crate) fn take_before(&mut self, b: usize) -> Option<usize> {
        let part = self.0.get(b / 64).map_or(0, |word| word & ((1 << (b % 64)) - 1));
        let k =
            if part != 0 { b / 64 } else { self.0[..self.0.len().min(b / 64)].iter().rposition(|word| *word != 0)? };
        let word = if part != 0 { part } else { self.0[k] };
        let bit = word.ilog2() as usize;
        self.0[k] ^= 1 << bit;
        Some(64 * k + bit)
    }
}
