//! Which combinations of compiler, flags and link flags a case is built in.
//!
//! Input: the number of alternatives of each dimension. Output: index tuples. The reduced form covers every *pair* of
//! alternatives of two dimensions at least once (greedy, so near the least number), because bugs that need three
//! particular alternatives at once are rare and the full product is many times larger.

/// All combinations.
pub fn full(sizes: [usize; 3]) -> Vec<[usize; 3]> {
    let mut out = Vec::new();
    for a in 0..sizes[0] {
        for b in 0..sizes[1] {
            for c in 0..sizes[2] {
                out.push([a, b, c]);
            }
        }
    }
    out
}

/// Combinations that cover each pair of alternatives. Deterministic.
pub fn pairs(sizes: [usize; 3]) -> Vec<[usize; 3]> {
    let pairs_of = |t: &[usize; 3]| [(0, t[0], 1, t[1]), (0, t[0], 2, t[2]), (1, t[1], 2, t[2])];
    let all = full(sizes);
    let mut open: std::collections::BTreeSet<_> = all.iter().flat_map(pairs_of).collect();
    let mut out = Vec::new();
    while !open.is_empty() {
        let gain = |t: &[usize; 3]| pairs_of(t).iter().filter(|p| open.contains(p)).count();
        // The last maximum would do as well; `rev` makes the first one win, so that small indices come early.
        let Some(best) = all.iter().rev().max_by_key(|t| gain(t)) else { break };
        for p in pairs_of(best) {
            open.remove(&p);
        }
        out.push(*best);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_covered_with_fewer_combinations() {
        let sizes = [2, 5, 3];
        let reduced = pairs(sizes);
        for [a, b, c] in full(sizes) {
            assert!(reduced.iter().any(|t| t[0] == a && t[1] == b));
            assert!(reduced.iter().any(|t| t[0] == a && t[2] == c));
            assert!(reduced.iter().any(|t| t[1] == b && t[2] == c));
        }
        assert!(reduced.len() < full(sizes).len());
        assert_eq!(pairs([1, 1, 1]), [[0, 0, 0]]);
    }
}
