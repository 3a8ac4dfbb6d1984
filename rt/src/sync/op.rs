//! What reductions and fetch-and-op compute.
//!
//! Purpose: [`Op`] on words and [`Reduction`] on words of three types. Input: words as bits; output: a word. Pure.
//! **Invariant**: floating-point results depend on the order of the operands only where IEEE 754 says so (sums): minimum and maximum are NaN
//! as soon as one operand is, and tell -0.0 from 0.0. No library function is called: the blob has none.

use blizzard_contract::listed;

listed! {
    /// A fetch-and-op, by its number in `blizzard.h`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Op {
        Add = 0,
        And,
        Or,
        Xor,
        Swap,
        MinU64,
        MaxU64,
        MinI64,
        MaxI64,
        /// Stores the value if the word is what the caller expects.
        CompareSwap,
        /// Adds floating-point numbers.
        AddF64,
    }
}

impl Op {
    pub fn from_number(number: u64) -> Option<Op> {
        Op::ALL.into_iter().find(|op| *op as u64 == number)
    }

    /// The new value of a word that is `old`.
    pub fn apply(self, old: u64, value: u64, expected: u64) -> u64 {
        match self {
            Op::Add => old.wrapping_add(value),
            Op::And => old & value,
            Op::Or => old | value,
            Op::Xor => old ^ value,
            Op::Swap => value,
            Op::MinU64 => old.min(value),
            Op::MaxU64 => old.max(value),
            Op::MinI64 => (old as i64).min(value as i64) as u64,
            Op::MaxI64 => (old as i64).max(value as i64) as u64,
            Op::CompareSwap if old == expected => value,
            Op::CompareSwap => old,
            Op::AddF64 => (f64::from_bits(old) + f64::from_bits(value)).to_bits(),
        }
    }
}

/// What a reduction does with two words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordCombine {
    Sum = 0,
    Min,
    Max,
}

/// What the words of a reduction are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordType {
    U64 = 0,
    I64,
    F64,
}

/// A reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reduction {
    pub combine: WordCombine,
    pub of: WordType,
}

impl Reduction {
    /// `3 * combine + type`, as in `blizzard.h`.
    pub const fn number(self) -> u64 {
        3 * self.combine as u64 + self.of as u64
    }

    pub const fn from_number(number: u64) -> Option<Reduction> {
        let combine = match number / 3 {
            0 => WordCombine::Sum,
            1 => WordCombine::Min,
            2 => WordCombine::Max,
            _ => return None,
        };
        let of = match number % 3 {
            0 => WordType::U64,
            1 => WordType::I64,
            _ => WordType::F64,
        };
        Some(Reduction { combine, of })
    }

    /// The function of `blizzard.h` for one word.
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 9] = [
            "bz_reduce_sum_u64",
            "bz_reduce_sum_i64",
            "bz_reduce_sum_f64",
            "bz_reduce_min_u64",
            "bz_reduce_min_i64",
            "bz_reduce_min_f64",
            "bz_reduce_max_u64",
            "bz_reduce_max_i64",
            "bz_reduce_max_f64",
        ];
        NAMES[self.number() as usize]
    }

    /// The two words in one.
    pub fn apply(self, a: u64, b: u64) -> u64 {
        match (self.combine, self.of) {
            (WordCombine::Sum, WordType::F64) => (f64::from_bits(a) + f64::from_bits(b)).to_bits(),
            (WordCombine::Sum, _) => a.wrapping_add(b),
            (WordCombine::Min, WordType::U64) => a.min(b),
            (WordCombine::Max, WordType::U64) => a.max(b),
            (WordCombine::Min, WordType::I64) => (a as i64).min(b as i64) as u64,
            (WordCombine::Max, WordType::I64) => (a as i64).max(b as i64) as u64,
            (WordCombine::Min, WordType::F64) => {
                if less(b, a) {
                    b
                } else {
                    a
                }
            }
            (WordCombine::Max, WordType::F64) => {
                if less(a, b) && !is_nan(a) || is_nan(b) && !is_nan(a) {
                    b
                } else {
                    a
                }
            }
        }
    }
}

fn is_nan(bits: u64) -> bool {
    f64::from_bits(bits).is_nan()
}

/// Order of doubles with NaN below everything and -0.0 below 0.0.
fn less(a: u64, b: u64) -> bool {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    if x.is_nan() || y.is_nan() {
        return x.is_nan() && !y.is_nan();
    }
    x < y || x == y && x.is_sign_negative() && !y.is_sign_negative()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_each_operation_once() {
        for (number, op) in Op::ALL.into_iter().enumerate() {
            assert_eq!((op as usize, Op::from_number(number as u64)), (number, Some(op)));
        }
        assert_eq!(Op::from_number(11), None);
        for number in 0..9 {
            assert_eq!(Reduction::from_number(number).unwrap().number(), number);
        }
        assert_eq!(Reduction::from_number(9), None);
    }

    #[test]
    fn words_are_what_their_type_says() {
        let minus = -5i64 as u64;
        assert_eq!(Op::MinU64.apply(minus, 3, 0), 3);
        assert_eq!(Op::MinI64.apply(minus, 3, 0), minus);
        assert_eq!(Op::MaxI64.apply(minus, 3, 0), 3);
        assert_eq!(Op::CompareSwap.apply(7, 9, 7), 9);
        assert_eq!(Op::CompareSwap.apply(7, 9, 8), 7);
        assert_eq!(f64::from_bits(Op::AddF64.apply(1.5f64.to_bits(), 2.0f64.to_bits(), 0)), 3.5);
        assert_eq!(Op::Add.apply(u64::MAX, 3, 0), 2);
    }

    #[test]
    fn minimum_and_maximum_of_doubles_do_not_depend_on_the_order() {
        let values = [1.5, -0.0, 0.0, f64::NEG_INFINITY, f64::INFINITY, -3.0];
        for combine in [WordCombine::Min, WordCombine::Max] {
            let reduction = Reduction { combine, of: WordType::F64 };
            let apply = |a: f64, b: f64| f64::from_bits(reduction.apply(a.to_bits(), b.to_bits()));
            for a in values {
                for b in values {
                    assert_eq!(apply(a, b).to_bits(), apply(b, a).to_bits(), "{combine:?} {a} {b}");
                    let expected = if combine == WordCombine::Min { a.min(b) } else { a.max(b) };
                    assert_eq!(apply(a, b), expected);
                }
                assert!(apply(a, f64::NAN).is_nan() && apply(f64::NAN, a).is_nan(), "{combine:?} {a}");
            }
            let zero = apply(-0.0, 0.0);
            assert_eq!(zero.is_sign_negative(), combine == WordCombine::Min);
        }
    }
}
