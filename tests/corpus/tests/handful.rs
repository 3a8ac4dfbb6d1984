//! A handful of programs that every Debian system has, through the command that users have.

#[path = "../../../rewriter/tests/executable/mod.rs"]
mod executable;

use std::process::Command;

/// Originals and rewritten programs must behave alike; a program that is not installed would be missing, not passed.
#[test]
fn programs_of_every_debian_system_behave_as_before() {
    let programs = ["sort", "gzip", "sed", "dash"];
    let output = Command::new(env!("CARGO_BIN_EXE_corpus")).arg("--quick").args(programs).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for name in programs {
        let row =
            said.lines().find(|l| l.starts_with(&format!("| {name} "))).unwrap_or_else(|| panic!("{name}: {said}"));
        // Where mount namespaces are not allowed, what must stand in its own place is left out, and says so.
        let left_out = said.contains(&format!("{name} missing: needs mount namespaces"));
        assert!(row.contains("| passed ") || left_out, "{row}");
    }
}

/// A runner that cannot tell a difference would pass everything: here a program is "rewritten" into another one.
#[test]
fn a_rewriter_that_changes_behaviour_is_found() {
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
