//! Cfg -> facts: what each instruction reads and writes, which registers and flags are live, which hold stack addresses.

pub mod access;
pub mod conventions;
pub mod dropped;
pub mod effects;
pub mod facts;
pub mod liveness;
pub mod named_calls;
pub mod red_zone;
pub mod regs;
pub mod stack;

/// Groups (key, value) pairs by key: offsets and values. The pairs are asked for twice, so that they need not be kept.
pub(crate) fn group<I: Iterator<Item = (u32, u32)>>(keys: usize, pairs: impl Fn() -> I) -> (Vec<u32>, Vec<u32>) {
    let mut from = vec![0u32; keys + 1];
    let mut count = 0;
    for (k, _) in pairs() {
        from[k as usize + 1] += 1;
        count += 1;
    }
    for i in 0..keys {
        from[i + 1] += from[i];
    }
    let mut next = from.clone();
    let mut list = vec![0; count];
    for (k, v) in pairs() {
        list[next[k as usize] as usize] = v;
        next[k as usize] += 1;
    }
    (from, list)
}
