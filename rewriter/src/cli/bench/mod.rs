//! `blizzard bench`: what the runtime's mechanisms cost.
//!
//! Input: what to measure ([`plans`]). Output: ratios to floors measured in the same run ([`report`]), or exact numbers of instructions ([`instructions`]).

pub(crate) mod plans;

pub(crate) mod report;

pub mod ptrace;

pub(crate) mod lockstep;

pub(crate) mod instructions;

pub(crate) mod command;
