//! Any bytes as the input of a rewrite.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| blizzard_fuzz::elf::rewrite(data));
