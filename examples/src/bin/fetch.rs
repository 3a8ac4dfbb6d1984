//! Fetch-and-add two ways: on a word of shared memory, whose block moves to the caller, and on a counter, which stays at its home.
//!
//! All nodes count at once, or only the last one does; the time of one operation on the counter is divided by that on the word. One number above 1 and
//! one below it say which to choose when. Run with `blizzard run -n 2 -- target/release/fetch`; by itself it is one node.

use blizzard_shm as bz;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Operations of one measurement.
const ROUNDS: u64 = 20_000;
/// Measurements, of which the shortest counts: others may need the processors.
const TRIES: u64 = 5;

fn shortest(mut measure: impl FnMut()) -> f64 {
    let times = (0..TRIES).map(|_| {
        bz::barrier();
        let begin = Instant::now();
        measure();
        begin.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn main() {
    let word: bz::Shared<AtomicU64> = bz::share(0, || bz::alloc(1).expect("one word"));
    let counter = bz::Counter::shared(1, 0);
    let last = bz::nodes() - 1;
    for (what, counts) in [("all nodes", true), ("one node", bz::node() == last)] {
        let repeat = |operation: &dyn Fn() -> u64| {
            if counts {
                (0..ROUNDS).for_each(|_| {
                    operation();
                });
            }
        };
        let by_word = shortest(|| repeat(&|| bz::fetch_op_u64(&word[0], bz::Op::Add, 1, 0)));
        let by_counter = shortest(|| repeat(&|| counter.op(bz::Op::Add, 1, 0)));
        if bz::node() == last {
            eprintln!("{what}: an operation on the counter takes {:.2} times one on the word", by_counter / by_word);
        }
    }
    bz::barrier();
    let total = TRIES * ROUNDS * (u64::from(bz::nodes()) + 1);
    let (words, counters) = (word[0].load(Ordering::SeqCst), counter.op(bz::Op::Add, 0, 0));
    assert_eq!((words, counters), (total, total));
    if bz::node() == 0 {
        println!("{} each", total / (u64::from(bz::nodes()) + 1));
    }
}
