//! The forms in which a program is measured, and the spread of what was measured.
//!
//! Input: options of a rewrite. Output: those of each [`Variant`]. Input: values. Output: their [`Spread`].

use crate::base::options::{AccessMode, Checks, Options, Poll};
use blizzard_contract::listed;
use serde::Serialize;

listed! {
    /// A form of the program.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, clap::ValueEnum)]
    #[serde(rename_all = "kebab-case")]
    pub enum Variant: name {
        /// As it was built.
        Original: "original",
        /// Rewritten without checks and polls.
        Relocated: "relocated",
        /// Loads are checked.
        Loads: "loads only",
        /// Stores are checked.
        Stores: "stores only",
        /// Loads and stores are checked.
        All: "all",
        /// Everything is checked, and loops poll: what runs on several nodes by default.
        AllPolls: "all + polls",
        /// Shared memory faults: what `--access guard` runs on several nodes.
        Guarded: "guarded",
        /// The same, with a test of each access in plain code, as if all data were shared and each access had been learnt.
        Shared: "all shared",
    }
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
            Variant::AllPolls | Variant::Guarded | Variant::Shared => (Checks::All, Poll::Backedge),
        };
        let access =
            if matches!(self, Variant::Guarded | Variant::Shared) { AccessMode::Guard } else { AccessMode::Tests };
        Some(Options { checks, access, poll, as_shared: self == Variant::Shared, ..*base })
    }
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
            (Variant::Guarded, true, true, Poll::Backedge),
            (Variant::Shared, true, true, Poll::Backedge),
        ] {
            let options = variant.options(&base).unwrap();
            assert_eq!((options.checks.loads(), options.checks.stores(), options.poll), (loads, stores, poll));
            assert!(options.count);
            assert_eq!(options.as_shared, variant == Variant::Shared);
        }
    }
}
