//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

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
            "decode/insns",
            "use crate::facts::liveness::Liveness;",
            "decode/insns imports facts/liveness, which stands below it in the list",
        ),
        ("plan/ranges", "use crate::plan::passes;", "these import each other: plan/"),
        ("read/fde", "use super::lsda::Lsda;", "read/fde names a module by `super`"),
    ] {
        let problems = Tree::read(env!("CARGO_MANIFEST_DIR")).with(file, line).problems().join("\n");
        assert!(problems.contains(found), "{line}: {problems}");
    }
}
