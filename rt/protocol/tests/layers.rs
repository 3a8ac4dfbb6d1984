//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

use blizzard_test_harness::layers::{Tree, problems};

#[test]
fn imports_point_up_the_list() {
    let problems = problems(env!("CARGO_MANIFEST_DIR"));
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// What is found of the real tree with a line more in one of its files: the test above can fail.
#[test]
fn a_protocol_that_knows_the_engine_is_found() {
    let tree = Tree::read(env!("CARGO_MANIFEST_DIR")).with("stache/driver", "use crate::engine::access::Engine;");
    let problems = tree.problems().join("\n");
    assert!(problems.contains("stache/driver imports engine/access, which stands below it in the list"), "{problems}");
}
