//! Part of the build script, and of the tests that build runtimes of their own: builds one runtime blob.
//!
//! **Invariants**: the nested cargo has a target folder of its own, so it never waits for the outer cargo's lock; it runs offline, because
//! the outer cargo has already fetched the one dependency (`libc`).

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Builds the runtime in folder `rt` with `features` (comma-separated) below `target_dir`; the path of the ELF file.
///
/// # Errors
/// That cargo did not succeed; it has said why on standard error.
pub fn build(rt: &Path, target_dir: &Path, features: &str) -> Result<PathBuf, String> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--release", "--offline", "--bin", "blizzard-rt", "--features", features])
        .args(["--target", TARGET])
        .arg("--manifest-path")
        .arg(rt.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target_dir);
    // Nothing of the outer build's settings may leak in: wrappers (clippy, coverage), flags, profile overrides. Which linker to use may.
    for (name, _) in env::vars_os() {
        let leaks = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PROFILE_")
                || name.starts_with("CARGO_TARGET_") && !name.ends_with("_LINKER")
                || name.starts_with("CARGO_BUILD_")
                || name.starts_with("CARGO_CFG_")
                || name.starts_with("CARGO_FEATURE_")
        });
        if leaks {
            cargo.env_remove(name);
        }
    }
    // A user's settings for faster rebuilds would cost the runtime inlining.
    cargo.env("CARGO_INCREMENTAL", "0");
    for name in ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS", "CLIPPY_TERMINAL_WIDTH"] {
        cargo.env_remove(name);
    }
    let flags = [
        // Baseline x86-64 (SSE2): no AVX, so the gates need not save upper halves.
        "-Ctarget-cpu=x86-64",
        "-Crelocation-model=pie",
        "-Cpanic=abort",
        "-Cforce-unwind-tables=no",
        // The blob's data is relocated by its own first instructions.
        "-Crelro-level=off",
        "-Clink-arg=-nostartfiles",
        "-Clink-arg=-nostdlib",
        "-Clink-arg=-Wl,--no-dynamic-linker",
        "-Clink-arg=-Wl,--build-id=none",
        "-Clink-arg=-Wl,-z,max-page-size=4096",
        "-Clink-arg=-Wl,-z,text",
        "-Clink-arg=-Wl,-z,noexecstack",
        "-Clink-arg=-Wl,--no-eh-frame-hdr",
    ];
    cargo
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "fat")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3")
        // What debuggers need to unwind (.debug_frame). It changes nothing of what is loaded.
        .env("CARGO_PROFILE_RELEASE_DEBUG", "line-directives-only")
        .env("CARGO_PROFILE_RELEASE_STRIP", "none")
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "false")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "false");
    match cargo.status() {
        Ok(status) if status.success() => Ok(target_dir.join(TARGET).join("release/blizzard-rt")),
        Ok(status) => Err(format!("building the runtime blob failed: {status}")),
        Err(e) => Err(format!("cannot run cargo to build the runtime blob: {e}")),
    }
}
