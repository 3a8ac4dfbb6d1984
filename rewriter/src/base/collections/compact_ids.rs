//! A list of numbers that are nearly always small, in two bytes each.
//!
//! Purpose: there are lists with one number of a kind or of an effect for each instruction, of a module that has millions; kinds are a few thousand, as a
//! rule. Input: numbers in the order of the list, one at a time; any of them may be replaced. Output: any of them by index, in constant
//! time.
//!
//! Invariants: what is read is what was put in last, whatever the numbers are. The first number of 2^16 or more makes the whole list one of
//! four bytes each, once and for good; this costs memory only.

/// The list: two bytes for each number, as long as all are below 2^16.
#[derive(Clone, Debug)]
pub enum CompactIds {
    Narrow(Vec<u16>),
    Wide(Vec<u32>),
}

impl Default for CompactIds {
    fn default() -> Self {
        CompactIds::Narrow(Vec::new())
    }
}

impl CompactIds {
    /// An empty list with room for `count` small numbers.
    pub fn with_capacity(count: usize) -> CompactIds {
        CompactIds::Narrow(Vec::with_capacity(count))
    }

    /// The number at `i`.
    #[inline]
    pub fn get(&self, i: usize) -> u32 {
        match self {
            CompactIds::Narrow(list) => list[i].into(),
            CompactIds::Wide(list) => list[i],
        }
    }

    /// How many there are.
    #[allow(clippy::len_without_is_empty)]
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            CompactIds::Narrow(list) => list.len(),
            CompactIds::Wide(list) => list.len(),
        }
    }

    /// Adds one.
    #[inline]
    pub fn push(&mut self, number: u32) {
        match (&mut *self, u16::try_from(number)) {
            (CompactIds::Narrow(list), Ok(small)) => list.push(small),
            (CompactIds::Wide(list), _) => list.push(number),
            (CompactIds::Narrow(_), Err(_)) => {
                self.widen();
                self.push(number);
            }
        }
    }

    /// Replaces the one at `i`.
    #[inline]
    pub fn set(&mut self, i: usize, number: u32) {
        match (&mut *self, u16::try_from(number)) {
            (CompactIds::Narrow(list), Ok(small)) => list[i] = small,
            (CompactIds::Wide(list), _) => list[i] = number,
            (CompactIds::Narrow(_), Err(_)) => {
                self.widen();
                self.set(i, number);
            }
        }
    }

    fn widen(&mut self) {
        if let CompactIds::Narrow(list) = self {
            let mut wide = Vec::with_capacity(list.capacity());
            wide.extend(list.iter().map(|n| u32::from(*n)));
            *self = CompactIds::Wide(wide);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_number_widens_the_list_and_loses_none() {
        let mut list = CompactIds::with_capacity(4);
        let numbers = [0, 1, 0xffff, 0x1_0000, 7, u32::MAX];
        numbers.iter().for_each(|n| list.push(*n));
        assert_eq!((0..list.len()).map(|i| list.get(i)).collect::<Vec<_>>(), numbers);
        let mut list = CompactIds::default();
        (0..3).for_each(|n| list.push(n));
        list.set(1, 9);
        list.set(2, 0x2_0000);
        assert_eq!((0..list.len()).map(|i| list.get(i)).collect::<Vec<_>>(), [0, 9, 0x2_0000]);
    }
}
