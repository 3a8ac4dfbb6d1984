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
        ("sync/lock", "use crate::node::node::Node;", "sync/lock imports node/node, which stands below it in the list"),
        ("links/members", "use crate::links::links::Links;", "these import each other: links/links, links/members"),
    ] {
        let problems = Tree::read(env!("CARGO_MANIFEST_DIR")).with(file, line).problems().join("\n");
        assert!(problems.contains(found), "{line}: {problems}");
    }
}
