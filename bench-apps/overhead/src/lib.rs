//! What Blizzard's checks cost: the programs, how they are built, and how they are measured.
//!
//! Input: the sources in `programs/`, and what the machine has installed. Output: for each `Workload` the ratios that `blizzard overhead`
//! measures, and those of other tools in rounds of their own with the original ([`others`]). Times are those of processor time.

pub mod others;
pub mod shared;
pub mod workloads;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder of this package.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

/// Runs `command` to its end; an error with what it wrote to standard error.
///
/// # Errors
/// It cannot be started, or fails.
pub fn must(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().display().to_string();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Geometric mean of at least one value.
pub fn geometric_mean(values: &[f64]) -> f64 {
    (values.iter().map(|v| v.ln()).sum::<f64>() / values.len() as f64).exp()
}

/// Whether a program of this name is in PATH.
pub fn installed(name: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(name).is_file()))
}

/// GCC, whose usual name a machine need not have.
pub fn c_compiler() -> &'static str {
    if installed("gcc") { "gcc" } else { "cc" }
}
