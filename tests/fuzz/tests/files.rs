//! Damaged files on each test run: seeded, so that a failure comes again.

use blizzard_fuzz::elf;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// A rewrite of these takes a fraction of a second: what takes this long, on however busy a machine, does not end.
const LIMIT: Duration = Duration::from_secs(60);

/// Damaged programs and libraries are rewritten or refused: no panic, no hang, and no memory beyond 4 GiB (a size field that is
/// believed asks for more).
#[test]
fn damaged_files_neither_panic_nor_hang_nor_eat_memory() {
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
            if let Err(how) = ends_within(LIMIT, move || elf::rewrite(&bytes)) {
                failed.push((path, seed, how));
            }
        }
    }
    assert!(failed.is_empty(), "(file, seed): {failed:?}");
}

/// The limit itself: a test that waits for a rewrite without end would say nothing.
#[test]
fn what_does_not_end_fails() {
    let (hold, held) = channel::<()>();
    let waits = move || {
        let _ = held.recv();
    };
    assert_eq!(ends_within(Duration::from_millis(50), waits), Err("does not end"));
    drop(hold);
    assert_eq!(ends_within(LIMIT, || ()), Ok(()));
    assert_eq!(ends_within(LIMIT, || panic!("on purpose")), Err("panics"));
}

/// Runs `work` on a thread of its own, which is left behind if it has not ended when the time is over.
fn ends_within(limit: Duration, work: impl FnOnce() + Send + 'static) -> Result<(), &'static str> {
    let (done, ended) = channel();
    std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match ended.recv_timeout(limit) {
        Ok(()) => Ok(()),
        Err(RecvTimeoutError::Timeout) => Err("does not end"),
        // The sender was dropped by a panic.
        Err(RecvTimeoutError::Disconnected) => Err("panics"),
    }
}
