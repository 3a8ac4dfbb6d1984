//! What `blizzard inspect` reports: data only; the pipeline fills it in, the command line renders it.

use crate::base::error::Refusal;
use crate::plan::checks::Counts;
use serde::Serialize;
use std::collections::BTreeMap;

/// A program as the rewriter sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Inspection {
    pub program: String,
    /// Bytes decoded as code.
    pub code_bytes: u64,
    pub instructions: u64,
    /// In the order of their addresses.
    pub functions: Vec<FunctionReport>,
    /// Sums over all functions.
    pub accesses: Accesses,
    /// What the optimiser's passes do: of the checked accesses, so many are covered by other checks.
    pub optimiser: Counts,
    /// What keeps the program from being rewritten.
    pub refusals: Vec<RefusalReport>,
}

/// One function, or a stretch of code that no symbol names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FunctionReport {
    pub name: String,
    /// Link-time address.
    pub address: u64,
    pub bytes: u64,
    pub instructions: u64,
    pub accesses: Accesses,
}

/// Counts of memory accesses and of what the rewrite does about them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Accesses {
    pub checked_loads: u64,
    /// Read-modify-writes included.
    pub checked_stores: u64,
    /// String instructions, gathers, scatters and state saves: tested by range, performed or prepared by the runtime.
    pub by_runtime: u64,
    pub polls: u64,
    /// Unchecked accesses by the class that proves them private (`DESIGN.md`, exempt accesses).
    pub exempt: BTreeMap<String, u64>,
}

/// A [`Refusal`], for output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusalReport {
    pub address: u64,
    pub place: String,
    pub reason: String,
}

impl From<&Refusal> for RefusalReport {
    fn from(refusal: &Refusal) -> Self {
        RefusalReport { address: refusal.at.0, place: refusal.place.clone(), reason: refusal.reason.clone() }
    }
}

impl Accesses {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Accesses) {
        self.checked_loads += other.checked_loads;
        self.checked_stores += other.checked_stores;
        self.by_runtime += other.by_runtime;
        self.polls += other.polls;
        for (class, count) in &other.exempt {
            *self.exempt.entry(class.clone()).or_default() += count;
        }
    }

    /// All exempt accesses.
    pub fn exempt_total(&self) -> u64 {
        self.exempt.values().sum()
    }
}
