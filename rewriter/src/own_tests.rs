//! The rewriter, rewritten, passes these tests.
//!
//! Input: the executable that runs the tests of this crate. It is rewritten with all checks, with the libraries that it loads, and run: the
//! rewriter is a large Rust program with threads, unwinding and jump tables of every kind, and its tests say whether each part still does what
//! it did.

#[path = "../tests/executable/mod.rs"]
mod executable;

use crate::cache::Cache;
use crate::closure::{Cached, Source, libraries_of};
use crate::options::Options;
use crate::{marker, pipeline};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Tests that are left out, by their full names.
const SKIPPED: &[&str] = &[
    // This one, which would begin again.
    "own_tests::the_rewritten_rewriter_passes_its_own_tests",
    // Takes a minute more; the audit, the rewriter and what it plants are run by others, too.
    "verify::tests::systematic::finds_every_planted_fault",
    // Takes half a minute more, most of it in compilers, which are not rewritten.
    "elf_write::frames::tests::cpp_programs_of_every_level_and_code_model_keep_every_row_and_call_site",
];

/// What the tests' executable says; the tests of `SKIPPED` are left out.
fn said(tests: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "3000"]).arg(tests).args(arguments).arg("--exact");
    for name in SKIPPED {
        command.args(["--skip", name]);
    }
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// What stands between `begin` and `end` in the lines that have both.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> BTreeSet<&'a str> {
    text.lines().filter_map(|line| line.strip_prefix(begin)?.strip_suffix(end)).collect()
}

#[test]
fn the_rewritten_rewriter_passes_its_own_tests() {
    let own = std::env::current_exe().unwrap();
    let input = std::fs::read(&own).unwrap();
    if marker::rewritten_with(&input).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rewritten = folder.path().join("tests");
    let options = Options::default();
    let cached = Cached::new(Cache::at(folder.path().join("cache")), options).unwrap();
    let libraries = libraries_of(&own).unwrap().all();
    assert!(libraries.iter().any(|path| path.ends_with("libc.so.6")), "{libraries:?}");
    for library in &libraries {
        cached.add(library).unwrap();
    }
    let mut output = Vec::new();
    pipeline::rewrite_program(&input, "the tests", &options, &Source::Cache(cached), &mut output).unwrap();
    assert!(marker::rewritten_with(&output).unwrap().libraries);
    executable::write(&rewritten, &output);

    let (all, ignored) = (said(&own, &["--list"]), said(&own, &["--list", "--ignored"]));
    let expected: BTreeSet<&str> = &between(&all, "", ": test") - &between(&ignored, "", ": test");
    let run = said(&rewritten, &[]);
    let passed: BTreeSet<_> =
        between(&run, "test ", " ... ok").into_iter().map(|name| name.trim_end_matches(" - should panic")).collect();
    let missing: Vec<_> = expected.difference(&passed).collect();
    assert!(missing.is_empty() && passed.len() == expected.len(), "did not pass: {missing:?}\n{run}");
    // All but those left out, which exist.
    let everything = Command::new(&own).arg("--list").output().unwrap();
    let everything = String::from_utf8(everything.stdout).unwrap();
    assert_eq!(between(&everything, "", ": test").len(), between(&all, "", ": test").len() + SKIPPED.len());
}
