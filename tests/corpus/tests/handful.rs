//! A handful of programs that every Debian system has, through the command that users have.

use blizzard_corpus::inside::namespaces;
use blizzard_test_harness::executable;
use blizzard_test_harness::needs::{need, need_system};
use std::process::Command;

blizzard_test_harness::tests! {
    programs_of_every_debian_system_behave_as_before: ["sort", "gzip", "sed", "dash"],
    a_rewriter_that_changes_behaviour_is_found,
}

/// Originals and rewritten programs must behave alike.
fn programs_of_every_debian_system_behave_as_before(name: &str) {
    need(name);
    need_namespaces();
    let output = Command::new(env!("CARGO_BIN_EXE_corpus")).arg("--quick").arg(name).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let row = said.lines().find(|l| l.starts_with(&format!("| {name} "))).unwrap_or_else(|| panic!("{name}: {said}"));
    assert!(row.contains("| passed "), "{row}");
}

/// `sort` and others are called by their usual names: the rewritten program must stand in the original's place.
fn need_namespaces() {
    need("unshare");
    need("mount");
    need_system(namespaces(), "mount namespaces for users");
}

/// A runner that cannot tell a difference would pass everything: here a program is "rewritten" into another one.
fn a_rewriter_that_changes_behaviour_is_found() {
    need_namespaces();
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong");
    // Copies `head` to where the rewritten `sort` is expected: blizzard rewrite IN -o OUT.
    executable::write(&wrong, b"#!/bin/sh\ncp \"$(command -v head)\" \"$4\"\n");
    let output = Command::new(env!("CARGO_BIN_EXE_corpus"))
        .args(["--quick", "--blizzard"])
        .arg(&wrong)
        .arg("sort")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && said.contains("sort FAILED: null: "), "{said}");
}
