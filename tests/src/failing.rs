//! The program of the tests about failures, and the processes of its runs.
//!
//! Input: `tests/failures/failures.c`. Output: its rewritten form; which processes belong to a run. A run is known by its *marker*, an
//! argument that no other process has.

use crate::compile::{Job, Language, compile};
use crate::tool::{self, Mode};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The program rewritten with one of both kinds of access control, built once for each test process: `folder/name`, and more, where `folder` is cargo's for
/// the files of tests.
pub fn program(folder: &str, name: &str, mode: Mode) -> &'static Path {
    static BUILT: [OnceLock<PathBuf>; 2] = [const { OnceLock::new() }; 2];
    BUILT[usize::from(mode == Mode::TESTS)].get_or_init(|| {
        let plain = Path::new(folder).join(format!("{name}-{}-plain", mode.access));
        let mut flags = tool::config("--cflags").unwrap();
        flags.push("-O1".into());
        compile(&Job {
            sources: vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("failures/failures.c")],
            language: Language::C,
            compiler: "cc",
            flags,
            libraries: tool::config("--libs").unwrap(),
            output: &plain,
        })
        .unwrap();
        let output = Path::new(folder).join(format!("{name}-{}", mode.access));
        tool::rewrite(&plain, &output, mode).unwrap().success().unwrap();
        output
    })
}

/// A marker for one run.
pub fn marker() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("blizzard-failing-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Processes with the marker among their arguments: number and first argument.
pub fn processes_with(marker: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut list = arguments.split(|b| *b == 0);
        let first = String::from_utf8_lossy(list.next().unwrap_or_default()).into_owned();
        if list.any(|a| a == marker.as_bytes())
            && let Ok(number) = entry.file_name().to_string_lossy().parse()
        {
            found.push((number, first));
        }
    }
    found
}
