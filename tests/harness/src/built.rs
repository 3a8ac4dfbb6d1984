//! What cargo has built, or builds now, like this test program: same profile, same target folder, same features of dependencies.
//!
//! Features are those of `cargo test --workspace`, so that it finds everything built, and builds no second `blizzard` with others.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The program `name`, which cargo builds for the integration test `test` of its package.
///
/// # Errors
/// What cargo said.
pub fn program(name: &str, test: &str) -> Result<PathBuf, String> {
    let artifacts = like_this_program(&["--test", test])?;
    let is =
        |m: &&Value| m["profile"]["test"] == false && m["target"]["name"] == name && m["target"]["kind"][0] == "bin";
    artifacts.iter().find(is).map(executable).ok_or_else(|| format!("cargo names no program {name}"))
}

/// The executable with the unit tests of the library `name`.
///
/// # Errors
/// What cargo said.
pub fn unit_tests(name: &str) -> Result<PathBuf, String> {
    let artifacts = like_this_program(&["--lib"])?;
    let is = |m: &&Value| m["profile"]["test"] == true && m["target"]["name"] == name;
    artifacts.iter().find(is).map(executable).ok_or_else(|| format!("cargo names no unit tests of {name}"))
}

fn like_this_program(what: &[&str]) -> Result<Vec<Value>, String> {
    // <target>/<profile>/deps/<this program>
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let folder = own.parent().and_then(Path::parent).ok_or("no profile folder above this program")?;
    let target = folder.parent().and_then(Path::to_str).ok_or("no target folder above this program")?;
    let profile = match folder.file_name().and_then(OsStr::to_str) {
        Some("debug") | None => "dev",
        Some(name) => name,
    };
    let usual = ["test", "--workspace", "--profile", profile, "--target-dir", target];
    let arguments: Vec<String> = usual.iter().chain(what).map(|&word| word.to_owned()).collect();
    artifacts(&arguments, Path::new(env!("CARGO_MANIFEST_DIR")))
}

/// What `cargo ARGUMENTS --no-run` says of each executable that it has built.
///
/// # Errors
/// What cargo said.
pub(crate) fn artifacts(arguments: &[String], folder: &Path) -> Result<Vec<Value>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments).args(["--no-run", "--message-format=json"]).current_dir(folder).stdin(Stdio::null());
    let output = cargo.output().map_err(|e| e.to_string())?;
    if !output.status.success() {
        return Err(format!("{cargo:?}: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter(|m| m["executable"].is_string()).collect())
}

pub(crate) fn executable(artifact: &Value) -> PathBuf {
    PathBuf::from(artifact["executable"].as_str().unwrap_or_default())
}
