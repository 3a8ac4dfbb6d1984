//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

use blizzard_test_harness::layers::check;

#[test]
fn imports_point_up_the_list() {
    let wrong = [
        ("sync/lock", "use crate::node::node::Node;", "sync/lock imports node/node, which stands below it in the list"),
        ("links/members", "use crate::links::links::Links;", "these import each other: links/links, links/members"),
    ];
    check(env!("CARGO_MANIFEST_DIR"), &wrong);
}
