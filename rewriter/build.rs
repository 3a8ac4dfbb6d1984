//! Builds the runtime blob (`rt`, binary `blizzard-rt`) and hands its path to `src/write/runtime_blob.rs`.
//!
//! Purpose: the rewriter embeds the freestanding runtime, so it must exist before the rewriter is compiled. A nested cargo builds it with
//! the settings that a blob without libc, TLS, AVX and x87 needs; the outer profile has no say.
//! Input: `../rt`. Output: environment variables of the rewriter's compilation, each the path of a file that it embeds: `BLIZZARD_RT_BLOB`
//! (the runtime of tested code), `BLIZZARD_RT_BLOB_GUARD` (that of guarded code), each also with `_MANY` (for more than 64 nodes) and with
//! `_INSTRUMENTS` (for `blizzard stress` and `blizzard bench`), and those of the other parts.

mod build_blob;
mod build_client;
mod build_workload;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, exit};
use std::thread;

/// Variable, features and folder of each runtime; two lists, for as many processors.
const RUNTIMES: [[(&str, &str, &str); 3]; 2] = [
    [
        ("BLIZZARD_RT_BLOB", "freestanding", "plain"),
        ("BLIZZARD_RT_BLOB_MANY", "freestanding,many_nodes", "many"),
        ("BLIZZARD_RT_BLOB_INSTRUMENTS", "freestanding,instruments", "instruments"),
    ],
    [
        ("BLIZZARD_RT_BLOB_GUARD", "freestanding,guard", "guard"),
        ("BLIZZARD_RT_BLOB_GUARD_MANY", "freestanding,guard,many_nodes", "guard-many"),
        ("BLIZZARD_RT_BLOB_GUARD_INSTRUMENTS", "freestanding,guard,instruments", "guard-instruments"),
    ],
];

fn main() {
    let manifest_dir = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let rt = manifest_dir.join("../rt");
    for package in ["../rt", "../rt/contract", "../rt/protocol"] {
        for input in ["src", "Cargo.toml"] {
            println!("cargo::rerun-if-changed={}", manifest_dir.join(package).join(input).display());
        }
    }
    for input in ["../Cargo.toml", "../Cargo.lock", "build.rs", "build_blob.rs"] {
        println!("cargo::rerun-if-changed={}", manifest_dir.join(input).display());
    }
    // The same for all profiles, which have the same runtimes: <target>/<profile>/build/<package>/out.
    let out = PathBuf::from(variable("OUT_DIR"));
    let target_dir = out.ancestors().nth(4).unwrap_or(&out).join("blizzard-rt");
    let (rt, target_dir) = (&rt, &target_dir);
    thread::scope(|scope| {
        for list in &RUNTIMES {
            scope.spawn(move || {
                for (variable_name, features, folder) in list {
                    match build_blob::build(rt, &target_dir.join(folder), features) {
                        Ok(blob) => println!("cargo::rustc-env={variable_name}={}", blob.display()),
                        Err(e) => fail(&e),
                    }
                }
            });
        }
    });
    // Another name than the variable that is read: cargo gives this one to the tests that it runs, and a cargo that such a test starts would
    // take it for a change, and build everything again.
    println!("cargo::rustc-env=BLIZZARD_BUILT_FROM={}", commit(&manifest_dir));
    build_client::build(&manifest_dir, &out.join("client"));
    if let Err(e) = build_workload::build(&manifest_dir, &out) {
        fail(&e);
    }
}

/// The commit that this is built from, for `blizzard --version`: what the environment variable BLIZZARD_COMMIT says, else what git says. Whoever builds
/// again after a commit that changes none of this script's inputs gets the earlier one: a build of everything for its name would take minutes.
fn commit(folder: &Path) -> String {
    println!("cargo::rerun-if-env-changed=BLIZZARD_COMMIT");
    if let Ok(name) = env::var("BLIZZARD_COMMIT") {
        return name.split_whitespace().collect();
    }
    let git = Command::new("git").arg("-C").arg(folder).args(["rev-parse", "--short=12", "HEAD"]).output();
    let name = git.ok().filter(|output| output.status.success()).map(|output| output.stdout);
    String::from_utf8(name.unwrap_or_default()).unwrap_or_default().trim().to_owned()
}

fn fail(what: &str) -> ! {
    eprintln!("{what}");
    exit(1)
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|e| {
        eprintln!("{name}: {e}");
        exit(1)
    })
}
