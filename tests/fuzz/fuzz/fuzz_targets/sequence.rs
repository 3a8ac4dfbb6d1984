//! Random instructions, original and rewritten.
#![no_main]

use blizzard_fuzz::sequence::{Sequence, check};

libfuzzer_sys::fuzz_target!(|sequence: Sequence| {
    check(&sequence);
});
