//! The rewriter, rewritten, passes these tests.
//!
//! Input: the executable that runs the tests of this crate. It is rewritten with all checks and run: the rewriter is a large Rust program
//! with threads, unwinding and jump tables of every kind, and its tests say whether each part still does what it did.

use crate::options::Options;
use crate::pipeline;
use std::process::Command;

/// Tests that take long and ask nothing else of the machine than the others do; and this one.
const SKIPPED: &[&str] = &["own_tests::", "systematic", "planted", "cpp_programs", "agrees_with_iced_on_every_opcode"];

#[test]
fn the_rewritten_rewriter_passes_its_own_tests() {
    let own = std::env::current_exe().unwrap();
    let input = std::fs::read(&own).unwrap();
    if crate::marker::rewritten_with(&input).is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let rewritten = folder.path().join("tests");
    let output = pipeline::rewrite(&input, "the tests", &Options::default()).unwrap();
    std::fs::write(&rewritten, output.bytes).unwrap();
    std::fs::set_permissions(&rewritten, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "3000"]).arg(&rewritten);
    for name in SKIPPED {
        command.args(["--skip", name]);
    }
    let output = command.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let line = said.lines().find(|line| line.starts_with("test result: ok.")).unwrap_or_else(|| panic!("{said}"));
    let passed: usize = line.split(' ').nth(3).and_then(|n| n.parse().ok()).unwrap_or(0);
    assert!(passed >= 70, "{line}");
}
