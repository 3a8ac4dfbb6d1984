//! What became of the changes: rows by part, and the section of `RESULTS.md`.

use crate::report::Circumstances;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What became of the changes in one part, of one file or of all.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Row {
    /// Bytes that the part has, and changes made.
    pub bytes: usize,
    pub places: usize,
    pub found: usize,
    /// By reason.
    pub harmless: BTreeMap<String, usize>,
    pub defects: usize,
    /// Harmless changes that were run.
    pub run: usize,
}

/// A whole run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    pub at: Circumstances,
    pub seed: u64,
    pub wanted: usize,
    pub minutes: f64,
    /// Files with their places in all, and those that are absent, with why.
    pub files: Vec<(String, usize)>,
    pub absent: Vec<(String, String)>,
    pub parts: BTreeMap<String, Row>,
    /// One line each.
    pub defects: Vec<String>,
}

impl Results {
    /// The section of `RESULTS.md`.
    pub fn markdown(&self) -> String {
        let mut out = String::from("## Changed bytes\n\n");
        let total: usize = self.files.iter().map(|f| f.1).sum();
        let files: Vec<String> = self.files.iter().map(|(name, n)| format!("{name} {n}")).collect();
        // Writing to a string cannot fail.
        let _ = write!(
            out,
            "`corpus mutate`: one byte of an output changed at a time, and audited against the original.\n\
             Measured: {}; {:.0} minutes. Seed {}, at most {} places in each part of each file; a time limit may have ended a file's earlier.\n\
             Changes: {total}. By file: {}.\n",
            self.at.line(),
            self.minutes,
            self.seed,
            self.wanted,
            files.join(", ")
        );
        for (name, why) in &self.absent {
            let _ = writeln!(out, "Skipped: {name} ({why}).");
        }
        let mut reasons: Vec<&str> = Vec::new();
        for row in self.parts.values() {
            for why in row.harmless.keys() {
                if !reasons.contains(&why.as_str()) {
                    reasons.push(why);
                }
            }
        }
        out.push_str(
            "*Run*: harmless changes of programs that were run and did what the output does. *Harmless, by reason* refers to the list below.\n\n\
             | part | bytes | places | found | harmless | run | defects | harmless, by reason |\n\
             |---|--:|--:|--:|--:|--:|--:|---|\n",
        );
        let mut sum = Row::default();
        for (name, row) in &self.parts {
            let by_reason: Vec<String> = row
                .harmless
                .iter()
                .map(|(why, n)| format!("{n} ({})", 1 + reasons.iter().position(|r| r == why).unwrap_or_default()))
                .collect();
            let harmless: usize = row.harmless.values().sum();
            let _ = writeln!(
                out,
                "| {name} | {} | {} | {} | {harmless} | {} | {} | {} |",
                row.bytes,
                row.places,
                row.found,
                row.run,
                row.defects,
                by_reason.join(", ")
            );
            sum.bytes += row.bytes;
            sum.places += row.places;
            sum.found += row.found;
            sum.run += row.run;
            sum.defects += row.defects;
        }
        let harmless = sum.places - sum.found - sum.defects;
        let _ = writeln!(
            out,
            "| all | {} | {} | {} | {harmless} | {} | {} | |\n",
            sum.bytes, sum.places, sum.found, sum.run, sum.defects
        );
        for (k, why) in reasons.iter().enumerate() {
            let _ = writeln!(out, "{}. {why}", k + 1);
        }
        for defect in &self.defects {
            let _ = writeln!(out, "* defect: {defect}");
        }
        out
    }
}
