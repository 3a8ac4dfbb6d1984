//! What the checks cost a program, measured: the variants of a program, run in turn, and what of the rewrite they differ by.
//!
//! Input: a program's variants ([`Variant`]), already rewritten, and a [`Job`]: what each run gets. Output: a [`Timing`]: ratios to the
//! original's processor time, with spread, and remarks on what makes them doubtful. `counts` says where the cost comes from.
//!
//! **Invariants**
//! * Variants are compared run by run: each round runs all of them, so that what else the machine does hits all alike.
//! * Everything runs on one processor, without address-space randomisation, with the same input.
//! * A program that does not do the same in all variants is not measured, but named.

use crate::base::options::{Checks, Options, Poll};
use crate::reports::overhead::{hot, measure};
use serde::Serialize;

/// A form of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// As it was built.
    Original,
    /// Rewritten without checks and polls.
    Relocated,
    /// Loads are checked.
    Loads,
    /// Stores are checked.
    Stores,
    /// Loads and stores are checked.
    All,
    /// Everything is checked, and loops poll: what runs on several nodes.
    AllPolls,
}

impl Variant {
    /// How the variant is rewritten; none: not at all. `base`: everything but checks and polls.
    pub fn options(self, base: &Options) -> Option<Options> {
        let (checks, poll) = match self {
            Variant::Original => return None,
            Variant::Relocated => (Checks::None, Poll::None),
            Variant::Loads => (Checks::Loads, Poll::None),
            Variant::Stores => (Checks::Stores, Poll::None),
            Variant::All => (Checks::All, Poll::None),
            Variant::AllPolls => (Checks::All, Poll::Backedge),
        };
        Some(Options { checks, poll, ..*base })
    }

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Original => "original",
            Variant::Relocated => "relocated",
            Variant::Loads => "loads only",
            Variant::Stores => "stores only",
            Variant::All => "all",
            Variant::AllPolls => "all + polls",
        }
    }
}

/// Bytes of new code, hot and cold.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CodeSize {
    pub program: u64,
    /// Of all libraries that the program names.
    pub libraries: u64,
}

/// Everything there is to say.
#[derive(Debug, Serialize)]
pub struct Report {
    pub program: String,
    pub args: Vec<String>,
    #[serde(flatten)]
    pub timing: measure::Timing,
    /// In the order of the variants.
    pub code_bytes: Vec<CodeSize>,
    /// Of the variant with all checks and polls.
    pub counts: Option<hot::Counts>,
}

/// Middle and ends of several values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Spread {
    /// Of at least one value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (n, mid) = (sorted.len(), sorted.len() / 2);
        assert!(n > 0, "no values");
        let median = if n.is_multiple_of(2) { (sorted[mid - 1] + sorted[mid]) / 2.0 } else { sorted[mid] };
        Spread { median, min: sorted[0], max: sorted[n - 1] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_an_even_number_is_between_two() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Spread { median: 2.5, min: 1.0, max: 4.0 });
        assert_eq!(Spread::of([5.0, 1.0, 3.0]), Spread { median: 3.0, min: 1.0, max: 5.0 });
    }

    #[test]
    fn variants_keep_what_else_is_asked_for() {
        let base = Options { count: true, ..Options::default() };
        assert_eq!(Variant::Original.options(&base), None);
        for (variant, loads, stores, poll) in [
            (Variant::Relocated, false, false, Poll::None),
            (Variant::Loads, true, false, Poll::None),
            (Variant::Stores, false, true, Poll::None),
            (Variant::All, true, true, Poll::None),
            (Variant::AllPolls, true, true, Poll::Backedge),
        ] {
            let options = variant.options(&base).unwrap();
            assert_eq!((options.checks.loads(), options.checks.stores(), options.poll), (loads, stores, poll));
            assert!(options.count);
        }
    }
}
