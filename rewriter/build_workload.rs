//! Part of the build script: compiles the programs that `blizzard stress` and `blizzard bench` run.
//!
//! Input: `../bench-apps/workload/*.c`, the client library's source. Output: the environment variables `BLIZZARD_WORKLOAD_STRESS`,
//! `BLIZZARD_WORKLOAD_BENCH`, `BLIZZARD_WORKLOAD_MESSAGES` and `BLIZZARD_WORKLOAD_MARKED` of the rewriter's compilation: paths of ordinary dynamically linked programs, which the rewriter embeds and
//! rewrites when they are needed. They need the C library that the rewriter itself needs, and no compiler where they run.

use std::path::{Path, PathBuf};

/// Name, variable, and the parts of the client library.
const PROGRAMS: [(&str, &str, &[&str]); 4] = [
    ("stress", "BLIZZARD_WORKLOAD_STRESS", &["blizzard.c"]),
    ("bench", "BLIZZARD_WORKLOAD_BENCH", &["blizzard.c"]),
    ("messages", "BLIZZARD_WORKLOAD_MESSAGES", &["blizzard.c", "tempest.c"]),
    ("marked", "BLIZZARD_WORKLOAD_MARKED", &["blizzard.c"]),
];

/// Compiles the programs into `out`.
pub fn build(manifest_dir: &Path, out: &Path) -> Result<(), String> {
    let folder = manifest_dir.join("../bench-apps/workload");
    let include = manifest_dir.join("../rt/include");
    let client = manifest_dir.join("../rt/client");
    for input in [&folder, &manifest_dir.join("build_workload.rs")] {
        println!("cargo::rerun-if-changed={}", input.display());
    }
    let compiler = cc::Build::new()
        .std("c11")
        .opt_level(2)
        .debug(false)
        .warnings(false)
        .try_get_compiler()
        .map_err(|e| e.to_string())?;
    for (name, variable, parts) in PROGRAMS {
        let program: PathBuf = out.join(format!("blizzard-{name}"));
        let status = compiler
            .to_command()
            .arg("-Wall")
            .arg("-Wextra")
            .arg("-I")
            .arg(&include)
            .arg(folder.join(format!("{name}.c")))
            .args(parts.iter().map(|part| client.join(part)))
            .args(["-pthread", "-o"])
            .arg(&program)
            .status()
            .map_err(|e| format!("cannot run the C compiler: {e}"))?;
        if !status.success() {
            return Err(format!("cannot compile the workload {name}: {status}"));
        }
        println!("cargo::rustc-env={variable}={}", program.display());
    }
    Ok(())
}
