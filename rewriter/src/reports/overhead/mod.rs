//! What the checks cost a program, measured: the variants of a program, run in turn, and what of the rewrite they differ by.
//!
//! Input: a program's variants ([`variants::Variant`]), already rewritten, and a [`process::MeasuredJob`]: what each run gets. Output: a [`measure::Timing`]:
//! ratios to the original's processor time, with spread, and remarks on what makes them doubtful. [`counts`] says where the cost comes from.
//!
//! **Invariants**
//! * Variants are compared run by run: each round runs all of them, so that what else the machine does hits all alike.
//! * Everything runs on one processor, with the same input. Runs that are timed lie elsewhere in memory each time; runs that count lie where they did.
//! * A program that does not do the same in all variants is not measured, but named.

pub mod variants;

pub mod process;

pub(crate) mod measure;

pub(crate) mod counts;

pub(crate) mod symbols;

pub(crate) mod hot_spots;

pub mod setting;

pub(crate) mod report;

pub(crate) mod render;

pub(crate) mod html;
