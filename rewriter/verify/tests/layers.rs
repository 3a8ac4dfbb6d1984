//! The layers of the crate: which module may import which, as `src/lib.rs` and `src/judge/mod.rs` list them.

use blizzard_test_harness::layers::{Tree, problems};

#[test]
fn imports_point_up_the_list() {
    let problems = problems(env!("CARGO_MANIFEST_DIR"));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is found of the real tree with a line more in one of its files: the test above can fail.
#[test]
fn what_breaks_a_rule_is_found() {
    for (file, line, found) in [
        (
            "decode/raw",
            "use crate::facts::live::Live;",
            "decode/raw imports facts/live, which stands below it in the list",
        ),
        (
            "judge/file/notes",
            "use crate::judge::code::polls;",
            "judge/file/notes imports judge/code/polls, which stands below it in the list",
        ),
        (
            "graph/trace",
            "fn f() { crate::stages::audit_against() }",
            "graph/trace imports stages, which stands below it in the list",
        ),
        ("sites/symbolic", "use crate::sites::strips;", "these import each other: sites/"),
    ] {
        let problems = Tree::read(env!("CARGO_MANIFEST_DIR")).with(file, line).problems().join("\n");
        assert!(problems.contains(found), "{line}: {problems}");
    }
}
