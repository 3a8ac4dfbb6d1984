//! Every program in `tests/cases`, original and rewritten. `cargo test --release -p blizzard-tests NAME` runs the cases
//! whose name contains NAME.

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    blizzard_tests::run::forbid_core_files();
    blizzard_test_harness::run("blizzard-tests::cases", blizzard_tests::case::tests(&folder));
}
