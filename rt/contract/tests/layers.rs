//! The layers of the crate: which module may import which, as `src/lib.rs` lists them.

use blizzard_test_harness::layers::check;

#[test]
fn imports_point_up_the_list() {
    let wrong = [
        ("promises", "use crate::run::RegionHeader;", "promises imports run, which stands below it in the list"),
        ("context", "use crate::RunState;", "context imports crate::RunState, of no module's file"),
    ];
    check(env!("CARGO_MANIFEST_DIR"), &wrong);
}
