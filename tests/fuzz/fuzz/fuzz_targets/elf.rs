//! Any bytes as the input of a rewrite. Every second change to an input is one that damaged files have (see [`elf::damage`]), the others are libFuzzer's.
#![no_main]

use blizzard_fuzz::elf;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

fuzz_target!(|data: &[u8]| elf::rewrite(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed % 2 == 0 {
        return fuzzer_mutate(data, size, max_size);
    }
    let mut bytes = data[..size].to_vec();
    let mut state = u64::from(seed);
    elf::damage(&mut bytes, |below| elf::random(&mut state, below));
    data[..bytes.len()].copy_from_slice(&bytes);
    bytes.len()
});
