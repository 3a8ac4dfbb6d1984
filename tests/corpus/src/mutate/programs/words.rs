// A map, a sort, formatting, a panic that is caught: what Rust's own code generator and unwinder ask for.
use std::collections::BTreeMap;

fn check(count: usize) -> usize {
    let kept = vec![count; 3];
    assert!(count < 3, "too many: {count}");
    kept.iter().sum()
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut counts = BTreeMap::new();
    for word in "the cat and the dog and the bird".split(' ') {
        *counts.entry(word).or_insert(0usize) += 1;
    }
    let mut sorted: Vec<_> = counts.into_iter().collect();
    sorted.sort_by_key(|(word, count)| (usize::MAX - count, *word));
    for (word, count) in &sorted {
        let checked = std::panic::catch_unwind(|| check(*count));
        println!("{word:>6} {count} {:?}", checked.ok());
    }
}
