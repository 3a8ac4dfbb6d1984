//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

use blizzard_test_harness::layers::check;

#[test]
fn imports_point_up_the_list() {
    let found = "stache/driver imports engine/access, which stands below it in the list";
    check(env!("CARGO_MANIFEST_DIR"), &[("stache/driver", "use crate::engine::access::Engine;", found)]);
}
