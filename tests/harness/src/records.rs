//! What the test programs of one `cargo test` leave for its last one, which adds them up.
//!
//! A record is a file in `<target>/<profile>/test-results/<cargo's process>/`. Process and start time name the `cargo` that runs the test
//! programs, so records of another command, or of a reused process number, are never added.

use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// The results of one test program.
pub struct Record {
    /// Package and target.
    pub program: String,
    pub passed: u64,
    pub failed: u64,
    /// Tests that take minutes and were not asked for.
    pub long: u64,
    /// Tests that were not run, because they had passed before: [`crate::passed`].
    pub known: u64,
    /// `name: why` of each test that was skipped.
    pub skipped: Vec<String>,
}

impl Record {
    /// Keeps the record for the last program. A record that cannot be kept makes the totals wrong, so that is a panic.
    pub fn keep(&self) {
        let folder = folder().expect("the test program is in a target folder");
        std::fs::create_dir_all(&folder).expect("a folder for the results");
        let text = json!({ "executable": executable(), "program": self.program, "passed": self.passed,
            "failed": self.failed, "long": self.long, "known": self.known, "skipped": self.skipped });
        let file = folder.join(self.program.replace("::", "."));
        std::fs::write(file, text.to_string()).expect("a file for the results");
    }
}

/// Takes all records of this `cargo`, with the executables that left them; those of commands that have ended are removed.
pub fn take() -> Vec<(PathBuf, Record)> {
    let Some(own) = folder() else { return Vec::new() };
    let mut records: Vec<_> = entries(&own).iter().filter_map(|file| read(file)).collect();
    records.sort_by(|a, b| a.1.program.cmp(&b.1.program));
    for folder in own.parent().map(entries).unwrap_or_default() {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let process = name.split('-').next().and_then(|n| n.parse().ok()).and_then(process_name);
        if folder == own || process != Some(name) {
            let _ = std::fs::remove_dir_all(&folder);
        }
    }
    records
}

fn read(file: &Path) -> Option<(PathBuf, Record)> {
    let value: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    let number = |key: &str| value[key].as_u64();
    let record = Record {
        program: value["program"].as_str()?.to_owned(),
        passed: number("passed")?,
        failed: number("failed")?,
        long: number("long")?,
        known: number("known")?,
        skipped: value["skipped"].as_array()?.iter().filter_map(|s| Some(s.as_str()?.to_owned())).collect(),
    };
    Some((PathBuf::from(value["executable"].as_str()?), record))
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect()
}

fn executable() -> PathBuf {
    std::env::current_exe().expect("/proc is mounted")
}

/// `<target>/<profile>/deps/<this test>` -> the folder of this `cargo`.
fn folder() -> Option<PathBuf> {
    let profile = executable().parent()?.parent()?.to_owned();
    Some(profile.join("test-results").join(process_name(std::os::unix::process::parent_id())?))
}

/// Number and start time of a process.
fn process_name(id: u32) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The 22nd field of proc(5); the third is the first behind the name, which may have spaces.
    let started = stat[stat.rfind(')')? + 1..].split_ascii_whitespace().nth(22 - 3)?;
    Some(format!("{id}-{started}"))
}
