//! Everything there is to say of what the checks cost a program, as JSON.
//!
//! Input: the timing, sizes of code, counts. Output: a [`OverheadReport`], which [`crate::reports::overhead::render`] and [`crate::reports::overhead::html`] show
//! to people.

use crate::reports::overhead::variants::Variant;
use crate::reports::overhead::{hot_spots, measure, setting};
use serde::Serialize;

/// Bytes of new code, hot and cold.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct CodeSize {
    pub program: u64,
    /// Of all libraries that the program names.
    pub libraries: u64,
}

/// Everything there is to say.
#[derive(Debug, Serialize)]
pub struct OverheadReport {
    pub program: String,
    pub args: Vec<String>,
    pub setting: setting::Setting,
    #[serde(flatten)]
    pub timing: measure::Timing,
    /// In the order of the variants.
    pub code_bytes: Vec<CodeSize>,
    /// The variant that was counted.
    pub counts_of: Variant,
    pub counts: Option<hot_spots::AllCounts>,
}
