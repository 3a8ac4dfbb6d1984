//! Damaged files on each test run: seeded, so that a failure comes again.

use blizzard_fuzz::elf;
use rustix::process::{Resource, Rlimit, setrlimit};

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
            elf::damage(&mut bytes, |below| elf::random(&mut state, below));
            if std::panic::catch_unwind(|| elf::rewrite(&bytes)).is_err() {
                failed.push((path, seed));
            }
        }
    }
    assert!(failed.is_empty(), "panics on (file, seed): {failed:?}");
}
