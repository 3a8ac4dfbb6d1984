//! Random sequences, original and rewritten, on each test run.

use blizzard_fuzz::sequence::{self, Sequence};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Names the sequences to run: each number others. Without it they are always the same, so that a run says something of the change at hand; looking for
/// new ones is the fuzzer's part.
const SEED: &str = "BLIZZARD_FUZZ_SEED";

#[test]
fn rewritten_sequences_end_in_the_same_state() {
    const SEQUENCES: u64 = 2000;
    let seed = std::env::var(SEED).map_or(0, |n| n.parse::<u64>().expect("BLIZZARD_FUZZ_SEED is a number"));
    let first = seed.wrapping_mul(SEQUENCES);
    let verdicts = RefCell::new(BTreeMap::<(String, String), u32>::new());
    let mut failed = Vec::new();
    for n in (1..=SEQUENCES).map(|n| first.wrapping_add(n)) {
        // The lower half of a seed is the number of random bytes.
        let (high, size) = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32, 512 << (n % 4));
        let one = || {
            arbtest::arbtest(|u| {
                let sequence: Sequence = u.arbitrary()?;
                let verdict = format!("{:?}", sequence::check(&sequence));
                *verdicts.borrow_mut().entry((sequence.kind(), verdict)).or_default() += 1;
                Ok(())
            })
            .seed(high << 32 | size)
            .run();
        };
        if catch_unwind(AssertUnwindSafe(one)).is_err() {
            failed.push(n);
        }
    }
    let verdicts = verdicts.into_inner();
    println!("{SEED}={seed}:");
    for ((kind, verdict), count) in &verdicts {
        println!("{count:6} {kind}: {verdict}");
    }
    assert!(failed.is_empty(), "sequences {failed:?} failed");
    let count = |name: &str| verdicts.iter().filter(|of| of.0.1 == name).map(|of| of.1).sum::<u32>();
    assert!(count("Same") * 2 > verdicts.values().sum(), "most sequences do not run to their end: {verdicts:?}");
    assert_eq!(count("Killed"), 0, "sequences end without a state to compare: {verdicts:?}");
    // Anything else that is not carried out is a defect.
    const REFUSED: [&str; 4] =
        ["it has an address of 32 bits", "it stores 64 bytes", "it has no room", "it stores a system register"];
    for (_, verdict) in verdicts.keys().filter(|key| key.1.starts_with("NotCarriedOut")) {
        assert!(REFUSED.iter().any(|why| verdict.contains(why)), "{verdict}");
    }
}
