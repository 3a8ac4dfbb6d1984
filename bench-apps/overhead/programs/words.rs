//! Counts words with hash maps and iterators: makes a text, then counts, groups and ranks its words as often as the argument says.
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};

fn main() {
    let rounds: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    let mut state = 88172645463325252u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 20
    };
    let text: String = (0..60_000)
        .map(|_| {
            let n = next() % 2000 * (next() % 3 + 1);
            format!("{}{}", ["al", "be", "ce", "do", "e"][n as usize % 5], n / 3)
        })
        .collect::<Vec<_>>()
        .join(" ");
    let mut total = 0usize;
    for _ in 0..rounds {
        // The same order in each run.
        let mut counts: HashMap<&str, usize, BuildHasherDefault<DefaultHasher>> = HashMap::default();
        text.split(' ').for_each(|word| *counts.entry(word).or_default() += 1);
        let mut by_length: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
        counts.keys().for_each(|word| by_length.entry(word.len()).or_default().push(word));
        let mut ranked: Vec<(usize, &str)> = counts.iter().map(|(word, n)| (*n, *word)).collect();
        ranked.sort_unstable();
        total += ranked.iter().rev().take(100).map(|(n, word)| n * word.len()).sum::<usize>();
        total += by_length.values().map(|words| words.iter().map(|w| w.bytes().map(usize::from).sum::<usize>()).max().unwrap_or(0)).sum::<usize>();
    }
    println!("{total}");
}
