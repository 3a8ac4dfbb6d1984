//! The test executables that cargo builds of a package's library.

use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The executable with the unit tests of the library of `package`. It is built like this test program, if it is not there yet.
///
/// # Errors
/// What cargo said.
pub fn of(package: &str) -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<Vec<Value>, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let profile = profile()?;
        // With all packages, so that dependencies have the features that they have in `cargo test --workspace`.
        let arguments = ["test", "--workspace", "--lib", "--profile", &profile].map(str::to_owned);
        artifacts(&arguments, Path::new(env!("CARGO_MANIFEST_DIR")))
    });
    let is = |artifact: &&Value| artifact["package_id"].as_str().is_some_and(|id| named(id, package));
    let found = built.as_ref().map_err(Clone::clone)?.iter().find(is).ok_or("cargo names no such test executable")?;
    Ok(PathBuf::from(found["executable"].as_str().unwrap_or_default()))
}

/// Whether a package id (`path+file:///folder/name#version`, or `...#name@version`) is that of `package`.
fn named(id: &str, package: &str) -> bool {
    let (place, version) = id.rsplit_once('#').unwrap_or((id, ""));
    match version.split_once('@') {
        Some((name, _)) => name == package,
        None => place.rsplit('/').next() == Some(package),
    }
}

/// What `cargo ARGUMENTS` says of the test executables that it would run.
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
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter(|m| m["profile"]["test"] == true && m["executable"].is_string()).collect())
}

/// The profile of this test program: `<target>/<profile>/deps/<program>`.
fn profile() -> Result<String, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let folder = own.parent().and_then(Path::parent).and_then(Path::file_name).and_then(OsStr::to_str);
    Ok(match folder.ok_or("not in a target folder")? {
        "debug" => "dev".to_owned(),
        other => other.to_owned(),
    })
}
