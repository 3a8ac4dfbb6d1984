//! Damaged files on each test run: seeded, so that a failure comes again.

use blizzard_fuzz::elf;
use rustix::process::{Resource, Rlimit, setrlimit};

/// SplitMix64.
fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % below as u64) as usize
}

/// Damaged programs and libraries are rewritten or refused: no panic, and no memory beyond 4 GiB (a size field that is
/// believed asks for more).
#[test]
fn damaged_files_neither_panic_nor_eat_memory() {
    let limit = Some(4 << 30);
    setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).unwrap();
    let mut failed = Vec::new();
    for (n, path) in ["/bin/true", "/usr/lib/x86_64-linux-gnu/libdl.so.2", "/bin/echo"].iter().enumerate() {
        let original = std::fs::read(path).unwrap();
        for round in 0..150 {
            let seed = (n * 1_000_000 + round) as u64;
            let mut state = seed;
            let mut bytes = original.clone();
            elf::damage(&mut bytes, |below| random(&mut state, below));
            if std::panic::catch_unwind(|| elf::rewrite(&bytes)).is_err() {
                failed.push((path, seed));
            }
        }
    }
    assert!(failed.is_empty(), "panics on (file, seed): {failed:?}");
}
