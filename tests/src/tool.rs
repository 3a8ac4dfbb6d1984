//! The `blizzard` program under test.
//!
//! Cargo builds a package's program only for that package's own tests, so it is built here, once per test process, with
//! the profile and in the target folder that this test was built with.

use crate::run::{LIMIT, Outcome, run};
use blizzard_protocol::list;
use blizzard_test_harness::built;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The path of the `blizzard` program.
pub fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build().unwrap_or_else(|e| panic!("building blizzard: {e}")))
}

fn build() -> Result<PathBuf, String> {
    if let Some(given) = std::env::var_os("BLIZZARD") {
        return Ok(PathBuf::from(given));
    }
    built::program("blizzard", "programs")
}

/// A `blizzard` command with `arguments`. Signals have their default actions in it: who starts tests in the background, or
/// under nohup, lets them inherit ignored ones.
pub fn blizzard<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal").arg(path()).args(arguments);
    command
}

/// The first so many of [`PROTOCOLS`] have drivers of their own; the others are stache but for a few steps, and are tried with fewer programs.
pub const OWN_DRIVERS: usize = 3;

/// The protocols that a run of several nodes is tried with.
pub const PROTOCOLS: [&str; list::OF_RUNS] = {
    let mut names = [""; list::OF_RUNS];
    let mut at = 0;
    while at < names.len() {
        names[at] = list::RUNS[at].name();
        at += 1;
    }
    names
};

/// One way of rewriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    pub access: &'static str,
    pub checks: &'static str,
    pub poll: &'static str,
    pub count: bool,
    /// The most nodes that the output is for; 0: as many as the rewriter takes to be usual.
    pub nodes: u32,
}

impl Mode {
    /// The modes that are added in three configurations of a case.
    pub const PARTIAL: [Mode; 1] = [Mode::of("tests", "none", "none")];
    /// The modes that are added once per case, by turn to its configurations.
    pub const RARE: [Mode; 6] = [
        Mode::GUARD,
        Mode::of("tests", "loads", "backedge"),
        Mode::of("tests", "stores", "backedge"),
        Mode::of("tests", "none", "backedge"),
        Mode::of("tests", "all", "none"),
        Mode { count: true, ..Mode::TESTS },
    ];
    /// The mode in which each case is run in each configuration, and what a run of several nodes needs: a test in front of each access.
    pub const TESTS: Mode = Mode::of("tests", "all", "backedge");
    /// Guarded code.
    pub const GUARD: Mode = Mode::of("guard", "all", "backedge");

    const fn of(access: &'static str, checks: &'static str, poll: &'static str) -> Mode {
        Mode { access, checks, poll, count: false, nodes: 0 }
    }

    /// A short name for messages and file names.
    pub fn name(self) -> String {
        format!("{}-checks-{}-poll-{}{}", self.access, self.checks, self.poll, if self.count { "-count" } else { "" })
    }
}

/// Rewrites `input` to `output`.
///
/// # Errors
/// `blizzard` could not be started.
pub fn rewrite(input: &Path, output: &Path, mode: Mode) -> Result<Outcome, String> {
    let mut command = blizzard(["rewrite"]);
    command.arg(input).arg("-o").arg(output).args([
        "--access",
        mode.access,
        "--checks",
        mode.checks,
        "--poll",
        mode.poll,
    ]);
    if mode.count {
        command.arg("--count");
    }
    if mode.nodes > 0 {
        command.args(["--nodes", &mode.nodes.to_string()]);
    }
    run(&mut command, "", LIMIT)
}

/// Audits `output`, and compares it with the program that was rewritten.
///
/// # Errors
/// `blizzard` could not be started.
pub fn verify(output: &Path, original: Option<&Path>) -> Result<Outcome, String> {
    let mut command = blizzard(["verify"]);
    command.arg(output);
    if let Some(original) = original {
        command.arg("--original").arg(original);
    }
    run(&mut command, "", LIMIT)
}

/// The flags that `blizzard config` prints with that option (`--cflags`, `--libs`, `--m4`).
///
/// # Errors
/// The command failed.
pub fn config(option: &str) -> Result<Vec<String>, String> {
    words(&mut blizzard(["config", option]))
}

fn words(command: &mut Command) -> Result<Vec<String>, String> {
    let outcome = run(command, "", LIMIT)?.success()?;
    Ok(outcome.stdout_text().split_whitespace().map(String::from).collect())
}
