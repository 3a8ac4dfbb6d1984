//! Builds the runtime blob (`rt`, binary `blizzard-rt`) and hands its path to `rt_blob.rs`.
//!
//! Purpose: the rewriter embeds the freestanding runtime, so it must exist before the rewriter is compiled. A nested cargo builds it with
//! the settings that a blob without libc, TLS, AVX and x87 needs; the outer profile has no say.
//! Input: `../rt`. Output: the environment variable `BLIZZARD_RT_BLOB` of the rewriter's compilation: path of the ELF file.
//! **Invariants**: the nested cargo has a target folder of its own below OUT_DIR, so it never waits for the outer cargo's lock; it runs
//! offline, because the outer cargo has already fetched the one dependency (`libc`).

mod build_client;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};

const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    let manifest_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let rt = manifest_dir.join("../rt");
    for input in ["../rt/src", "../rt/Cargo.toml", "../Cargo.toml", "../Cargo.lock", "build.rs"] {
        println!("cargo::rerun-if-changed={}", manifest_dir.join(input).display());
    }
    let target_dir = PathBuf::from(variable("OUT_DIR")).join("rt");
    build(&rt, &target_dir);
    let blob = target_dir.join(TARGET).join("release/blizzard-rt");
    println!("cargo::rustc-env=BLIZZARD_RT_BLOB={}", blob.display());
    build_client::build(&manifest_dir, &PathBuf::from(variable("OUT_DIR")).join("client"));
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|e| {
        eprintln!("{name}: {e}");
        exit(1)
    })
}

fn build(rt: &Path, target_dir: &Path) {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--release", "--offline", "--bin", "blizzard-rt", "--features", "freestanding"])
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
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo")
        .env("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "false")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "false")
        .env("CARGO_PROFILE_RELEASE_INCREMENTAL", "false");
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            eprintln!("building the runtime blob failed: {status}");
            exit(1);
        }
        Err(e) => {
            eprintln!("cannot run cargo to build the runtime blob: {e}");
            exit(1);
        }
    }
}
