//! Random sequences, original and rewritten, on each test run.

use blizzard_fuzz::sequence::{self, Sequence};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Always the same sequences, so that a run says something of the change at hand; looking for new ones is the fuzzer's part.
#[test]
fn rewritten_sequences_end_in_the_same_state() {
    const SEQUENCES: u64 = 4000;
    let verdicts = RefCell::new(BTreeMap::<String, u32>::new());
    for n in 1..=SEQUENCES {
        // The lower half of a seed is the number of random bytes.
        let (high, size) = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32, 512 << (n % 4));
        arbtest::arbtest(|u| {
            let sequence: Sequence = u.arbitrary()?;
            *verdicts.borrow_mut().entry(format!("{:?}", sequence::check(&sequence))).or_default() += 1;
            Ok(())
        })
        .seed(high << 32 | size)
        .run();
    }
    let verdicts = verdicts.into_inner();
    println!("{verdicts:?}");
    let same = verdicts.get("Same").copied().unwrap_or(0);
    assert!(same * 2 > verdicts.values().sum(), "most sequences do not run to their end: {verdicts:?}");
}
