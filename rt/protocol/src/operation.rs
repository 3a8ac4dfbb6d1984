//! What the elements of an allocation are combined by.
//!
//! Purpose: [`Operation`]: sum, minimum, maximum or bitwise or of integers and floats of 4 or 8 bytes. Input: words of 8 bytes, as bits. Output: the same. Pure.
//! **Invariant**: what an operation begins with ([`Operation::neutral`]) changes no bit of what it is combined with. So whoever has added nothing counts for nothing.

/// What is done with two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    Sum,
    Min,
    Max,
    Or,
}

/// What the elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

/// An operation on elements of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    pub combine: Combine,
    pub of: Element,
}

impl Combine {
    pub const ALL: [(&'static str, Combine); 4] =
        [("sum", Combine::Sum), ("min", Combine::Min), ("max", Combine::Max), ("or", Combine::Or)];
}

impl Element {
    pub const ALL: [(&'static str, Element); 6] = [
        ("u32", Element::U32),
        ("i32", Element::I32),
        ("u64", Element::U64),
        ("i64", Element::I64),
        ("f32", Element::F32),
        ("f64", Element::F64),
    ];
}

/// Minimum and maximum of floats: NaN as soon as one is, and -0.0 is below 0.0.
macro_rules! of_floats {
    ($combine:expr, $bits:ty, $float:ty, $a:expr, $b:expr) => {{
        let (x, y) = (<$float>::from_bits($a), <$float>::from_bits($b));
        let is_below = x < y || x == y && x.is_sign_negative() && !y.is_sign_negative();
        match $combine {
            Combine::Sum => (x + y).to_bits(),
            Combine::Or => $a | $b,
            _ if x.is_nan() => $a,
            _ if y.is_nan() => $b,
            Combine::Min => {
                if is_below {
                    $a
                } else {
                    $b
                }
            }
            Combine::Max => {
                if is_below {
                    $b
                } else {
                    $a
                }
            }
        }
    }};
}

macro_rules! of_integers {
    ($combine:expr, $bits:ty, $int:ty, $a:expr, $b:expr) => {
        match $combine {
            Combine::Sum => $a.wrapping_add($b),
            Combine::Or => $a | $b,
            Combine::Min => ($a as $int).min($b as $int) as $bits,
            Combine::Max => ($a as $int).max($b as $int) as $bits,
        }
    };
}

impl Operation {
    /// `None`: floats have no bitwise or.
    pub const fn new(combine: Combine, of: Element) -> Option<Operation> {
        match (combine, of) {
            (Combine::Or, Element::F32 | Element::F64) => None,
            _ => Some(Operation { combine, of }),
        }
    }

    /// Its number in `blizzard.h`, from 1.
    pub const fn number(self) -> u32 {
        1 + Element::ALL.len() as u32 * self.combine as u32 + self.of as u32
    }

    pub const fn from_number(number: u32) -> Option<Operation> {
        let Some(place) = number.checked_sub(1) else { return None };
        let (combine, of) = (place as usize / Element::ALL.len(), place as usize % Element::ALL.len());
        if combine < Combine::ALL.len() { Operation::new(Combine::ALL[combine].1, Element::ALL[of].1) } else { None }
    }

    /// What a copy begins as that only collects what is added to it.
    pub fn neutral(self) -> u64 {
        let of_32 = |bits: u32| (bits as u64) << 32 | bits as u64;
        let of = |[u32, i32, u64, i64, f32, f64]: [u64; 6]| match self.of {
            Element::U32 => of_32(u32 as u32),
            Element::I32 => of_32(i32 as u32),
            Element::U64 => u64,
            Element::I64 => i64,
            Element::F32 => of_32(f32 as u32),
            Element::F64 => f64,
        };
        match self.combine {
            // With 0.0, the sum with -0.0 would be another bit pattern.
            Combine::Sum => of([0, 0, 0, 0, (-0.0f32).to_bits() as u64, (-0.0f64).to_bits()]),
            Combine::Or => 0,
            Combine::Min => of([
                u32::MAX as u64,
                i32::MAX as u64,
                u64::MAX,
                i64::MAX as u64,
                f32::INFINITY.to_bits() as u64,
                f64::INFINITY.to_bits(),
            ]),
            Combine::Max => of([
                0,
                i32::MIN as u32 as u64,
                0,
                i64::MIN as u64,
                f32::NEG_INFINITY.to_bits() as u64,
                f64::NEG_INFINITY.to_bits(),
            ]),
        }
    }

    /// What fresh memory is: zero, where that is what sums begin with, else [`Operation::neutral`].
    pub fn initial(self) -> u64 {
        match self.combine {
            Combine::Sum => 0,
            _ => self.neutral(),
        }
    }

    /// The elements of two words, combined one by one; of a sum of floats, `a` is the left one.
    pub fn apply(self, a: u64, b: u64) -> u64 {
        let halves = |one: fn(Combine, u32, u32) -> u32| {
            let high = one(self.combine, (a >> 32) as u32, (b >> 32) as u32);
            u64::from(high) << 32 | u64::from(one(self.combine, a as u32, b as u32))
        };
        match self.of {
            Element::U32 => halves(|combine, a, b| of_integers!(combine, u32, u32, a, b)),
            Element::I32 => halves(|combine, a, b| of_integers!(combine, u32, i32, a, b)),
            Element::F32 => halves(|combine, a, b| of_floats!(combine, u32, f32, a, b)),
            Element::U64 => of_integers!(self.combine, u64, u64, a, b),
            Element::I64 => of_integers!(self.combine, u64, i64, a, b),
            Element::F64 => of_floats!(self.combine, u64, f64, a, b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn all() -> Vec<Operation> {
        (0..100).filter_map(Operation::from_number).collect()
    }

    fn of(combine: Combine, of: Element) -> Operation {
        Operation::new(combine, of).unwrap()
    }

    #[test]
    fn numbers_name_all_but_or_of_floats() {
        assert_eq!(all().len(), 4 * 6 - 2);
        assert!(all().into_iter().all(|one| Operation::from_number(one.number()) == Some(one)));
        assert_eq!(
            (Operation::from_number(0), Operation::from_number(23), Operation::from_number(25)),
            (None, None, None)
        );
    }

    #[test]
    fn what_copies_begin_with_changes_no_bit() {
        let words =
            [0, 1, u64::MAX, 1 << 63, 1 << 31, 0x8000_0000_8000_0000, f64::NAN.to_bits(), 0x7fc0_0001_ff80_0000];
        let doubles = [0.0, -0.0, 1.5, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::MIN_POSITIVE].map(f64::to_bits);
        for operation in all() {
            for word in words.into_iter().chain(doubles) {
                assert_eq!(operation.apply(word, operation.neutral()), word, "{operation:?} {word:#x}");
            }
        }
    }

    #[test]
    fn elements_are_combined_one_by_one() {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        assert_eq!(of(Combine::Sum, Element::U32).apply(pair(1, u32::MAX), pair(2, 1)), pair(3, 0));
        assert_eq!(
            of(Combine::Min, Element::I32).apply(pair(5, -7i32 as u32), pair(-5i32 as u32, 7)),
            pair(-5i32 as u32, -7i32 as u32)
        );
        assert_eq!(of(Combine::Max, Element::U32).apply(pair(5, 7), pair(6, 2)), pair(6, 7));
        let floats = |a: f32, b: f32| pair(a.to_bits(), b.to_bits());
        assert_eq!(of(Combine::Sum, Element::F32).apply(floats(1.5, -2.0), floats(0.25, 2.0)), floats(1.75, 0.0));
        assert_eq!(of(Combine::Max, Element::F32).apply(floats(-0.0, 1.0), floats(0.0, -3.0)), floats(0.0, 1.0));
        assert_eq!(of(Combine::Or, Element::I64).apply(0b1010, 0b0110), 0b1110);
        assert_eq!(of(Combine::Min, Element::I64).apply(3, -4i64 as u64), -4i64 as u64);
        let (nan, one) = (f64::NAN.to_bits(), 1f64.to_bits());
        for combine in [Combine::Min, Combine::Max] {
            assert_eq!([[nan, one], [one, nan]].map(|[a, b]| of(combine, Element::F64).apply(a, b)), [nan; 2]);
        }
    }
}
