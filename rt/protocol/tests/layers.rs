//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

use blizzard_test_harness::layers::check;

#[test]
fn imports_point_up_the_list() {
    let wrong = [
        (
            "protocols/stache/driver",
            "use crate::engine::access::Engine;",
            "protocols/stache/driver imports engine/access, which stands below it in the list",
        ),
        (
            "protocols/stache/driver",
            "use crate::protocols::home::driver::Home;",
            "protocols/stache/driver imports protocols/home/driver, which stands below it in the list",
        ),
    ];
    check(env!("CARGO_MANIFEST_DIR"), &wrong);
}
