//! The rewriter, rewritten, passes these tests.
//!
//! Input: the executable that runs the tests of this crate. It is rewritten with all checks, with the libraries that it loads, and run: the
//! rewriter is a large Rust program with threads, unwinding and jump tables of every kind, and its tests say whether each part still does what
//! it did.

use crate::base::options::Options;
use crate::pipeline;
use crate::read::rewritten;
use crate::store::cache::Cache;
use crate::store::closure::{Cached, ClosureSource};
use crate::store::library_search::libraries_of;
use blizzard_test_harness::executable;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What the tests' executable says.
fn said(tests: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "3000"]).arg(tests).args(arguments);
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
#[ignore = "minutes: run by tests/of_the_library.rs"]
fn the_rewritten_rewriter_passes_its_own_tests() {
    let own = std::env::current_exe().unwrap();
    let input = std::fs::read(&own).unwrap();
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
    pipeline::rewrite_program(&input, "the tests", &options, &ClosureSource::Cache(cached).record(), &mut output)
        .unwrap();
    assert!(rewritten::rewritten_with(&output).unwrap().libraries);
    executable::write(&rewritten, &output);

    let (all, ignored) = (said(&own, &["--list"]), said(&own, &["--list", "--ignored"]));
    let expected: BTreeSet<&str> = &between(&all, "", ": test") - &between(&ignored, "", ": test");
    let run = said(&rewritten, &[]);
    let passed: BTreeSet<_> =
        between(&run, "test ", " ... ok").into_iter().map(|name| name.trim_end_matches(" - should panic")).collect();
    let missing: Vec<_> = expected.difference(&passed).collect();
    assert!(missing.is_empty() && passed.len() == expected.len(), "did not pass: {missing:?}\n{run}");
}
