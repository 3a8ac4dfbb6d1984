//! Every node adds its number to one shared word.

use blizzard_shm as bz;
use std::sync::atomic::{AtomicU64, Ordering};

pub fn main() {
    let total: bz::Shared<AtomicU64> = bz::share(0, || bz::alloc(1).expect("one word"));
    total[0].fetch_add(u64::from(bz::node()) + 1, Ordering::SeqCst);
    bz::barrier();
    let n = u64::from(bz::nodes());
    assert_eq!(total[0].load(Ordering::SeqCst), n * (n + 1) / 2);
}
