//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

use blizzard_test_harness::layers::check;

#[test]
fn imports_point_up_the_list() {
    let found = "ucx/worker imports carrier, which stands below it in the list";
    check(env!("CARGO_MANIFEST_DIR"), &[("ucx/worker", "use crate::carrier::Carrier;", found)]);
}
