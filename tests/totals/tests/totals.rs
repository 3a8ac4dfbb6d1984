//! The last test program of `cargo test --workspace`: the totals of all, in one line.

fn main() {
    blizzard_test_harness::totals::main();
}
