//! The closing line of `cargo test`: `N passed, N failed, N skipped` over all test programs of the command, in front of it each test that
//! was skipped and why.
//!
//! It is the last test program of the last package: cargo runs packages, and the targets of a package, in the order of their names.
//! Programs on this harness leave records. The others have Rust's own harness, which leaves none: cargo names their executables, and each
//! lists its tests. Cargo gets to the last program only if all others have passed, unless it is told `--no-fail-fast`: then the line counts
//! the recorded programs only, and says so.

use crate::{built, passed, records};
use std::path::Path;
use std::process::Command;

/// Prints the totals. Not a test: it fails only where `--list` or a result is no text.
pub fn main() {
    let own: Vec<String> = std::env::args().skip(1).collect();
    if own.iter().any(|a| a == "--list") {
        return;
    }
    let records = records::take();
    let (mut passes, mut failed, mut long, mut known, mut skipped) = (0, 0, 0, 0, 0);
    println!();
    for (_, record) in &records {
        for line in &record.skipped {
            println!("skipped: {}::{line}", record.program);
        }
        passes += record.passed;
        failed += record.failed;
        long += record.long;
        known += record.known;
        skipped += record.skipped.len();
    }
    let recorded: Vec<&Path> = records.iter().map(|(path, _)| path.as_path()).collect();
    let others = match others(&recorded, &own) {
        Ok((of_others, left_out)) => {
            passes += of_others;
            long += left_out;
            String::new()
        }
        Err(why) => format!(" (without the programs on Rust's own harness: {why})"),
    };
    if long > 0 {
        println!("left out: {long} tests that take long or measure; see tests/README.md");
    }
    if known > 0 {
        println!("not run again: {known} tests that had passed ({})", passed::FILE);
    }
    println!("{passes} passed, {failed} failed, {skipped} skipped{others}");
}

/// How many tests the programs of this command have that left no record: run, and ignored.
fn others(recorded: &[&Path], own: &[String]) -> Result<(u64, u64), String> {
    let process = format!("/proc/{}", std::os::unix::process::parent_id());
    let line = std::fs::read(format!("{process}/cmdline")).map_err(|e| e.to_string())?;
    let words: Vec<String> = String::from_utf8_lossy(&line).split_terminator('\0').map(str::to_owned).collect();
    if !words.first().is_some_and(|w| w.ends_with("cargo")) || !words.iter().any(|w| w == "test" || w == "t") {
        return Err("they were not started by `cargo test`".into());
    }
    let end = words.iter().position(|w| w == "--").unwrap_or(words.len());
    if words.iter().any(|w| w == "--no-fail-fast") {
        return Err("--no-fail-fast".into());
    }
    let arguments: Vec<String> = words[1..end].iter().filter(|w| *w != "--no-run").cloned().collect();
    let artifacts = built::artifacts(&arguments, Path::new(&format!("{process}/cwd")))?;
    let executables = artifacts.iter().filter(|a| a["profile"]["test"] == true).map(built::executable);
    let this = std::env::current_exe().map_err(|e| e.to_string())?;
    let (mut run, mut ignored) = (0, 0);
    for executable in executables.filter(|e| *e != this && !recorded.contains(&e.as_path())) {
        let all = listed(&executable, own, &[])?;
        let left_out = listed(&executable, own, &["--ignored"])?;
        let [only, too] = ["--ignored", "--include-ignored"].map(|option| own.iter().any(|a| a == option));
        match (only, too) {
            (true, _) => run += left_out,
            (false, true) => run += all,
            (false, false) => (run, ignored) = (run + all - left_out, ignored + left_out),
        }
    }
    Ok((run, ignored))
}

/// How many tests `executable` lists with this command's own options and `more`.
fn listed(executable: &Path, own: &[String], more: &[&str]) -> Result<u64, String> {
    let of_command = own.iter().filter(|a| !["--ignored", "--include-ignored"].contains(&a.as_str()));
    let output = Command::new(executable).arg("--list").args(of_command).args(more).output();
    let output = output.map_err(|e| format!("{}: {e}", executable.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter(|l| l.ends_with(": test")).count() as u64)
}
