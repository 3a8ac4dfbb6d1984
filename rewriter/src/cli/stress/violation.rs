//! Logs that break a promise, in words.
//!
//! Input: an epoch, and where in it the accesses stand that contradict each other. Output: [`OrderViolation`].

use crate::cli::stress::log::{Epoch, LoggedId, LoggedKind};

/// Where an access stands: node and index.
pub(crate) type AccessAt = (usize, usize);

/// The version of a write, or that a load has returned; the epoch's first value has version 0.
pub(crate) type WordVersion = u32;

/// Why a log breaks what its memory promises, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderViolation {
    pub epoch: u64,
    /// One line.
    pub what: String,
    /// The accesses that contradict each other, one to a line.
    pub details: Vec<String>,
}

/// A value as a user reads it.
pub(crate) fn value_text(value: u64) -> String {
    match LoggedId::of_value(value) {
        None => "the initial 0".into(),
        Some(id) => format!("the value of epoch {}, node {}, access {}", id.epoch, id.node, id.index),
    }
}

/// An access as a user reads it.
pub(crate) fn describe(epoch: &Epoch, at: AccessAt) -> String {
    let access = &epoch.nodes[at.0][at.1];
    let what = match access.kind {
        LoggedKind::Load => format!("loads {}, gets {}", access.location, value_text(access.read)),
        LoggedKind::Store => format!("stores to {}", access.location),
        LoggedKind::Swap => format!("exchanges {}, gets {}", access.location, value_text(access.read)),
        LoggedKind::Flush => "flushes".into(),
        LoggedKind::Open => format!("begins to add to line {}", access.location.0 / 8),
        LoggedKind::Add => format!("adds {:#x} to {}", access.read, access.location),
    };
    format!("node {}, access {} {what}", at.0, at.1)
}
