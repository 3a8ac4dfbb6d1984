//! `blizzard bench`: what the runtime's mechanisms cost.
//!
//! Input: what to measure ([`plans`]). Output: ratios to floors measured in the same run ([`report`]).

pub(crate) mod plans;

pub(crate) mod report;

pub(crate) mod command;
