//! @NAME@: how many primes there are below a million, counted by all nodes of the run.

use blizzard_shm as bz;
use std::sync::atomic::{AtomicU64, Ordering};

const LIMIT: u64 = 1_000_000;

fn is_prime(n: u64) -> bool {
    n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| n % d != 0)
}

/// Runs on every node. Without Blizzard there is one.
fn main() {
    let (me, n) = (u64::from(bz::node()), u64::from(bz::nodes()));
    // One shared word, which starts as zero.
    let total: bz::Shared<AtomicU64> = bz::share(0, || bz::alloc(1).expect("one word of shared memory"));
    let found = (me..LIMIT).step_by(n as usize).filter(|&k| is_prime(k)).count();
    total[0].fetch_add(found as u64, Ordering::SeqCst);
    bz::barrier();
    if me == 0 {
        println!("{} primes below {LIMIT}", total[0].load(Ordering::SeqCst));
    }
}
