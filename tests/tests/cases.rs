//! Every program in `tests/cases`, original and rewritten. `cargo test --release -p blizzard-tests NAME` runs the cases
//! whose name contains NAME.

use std::path::Path;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    blizzard_tests::run_trials(blizzard_tests::case::trials(&folder));
}
