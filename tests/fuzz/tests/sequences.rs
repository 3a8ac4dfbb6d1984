//! Random sequences, original and rewritten, on each test run.

use blizzard_fuzz::sequence::{self, Sequence};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The budget is time, so that a slow machine is not punished; the seed of a failure is printed, for `.seed(...)`.
#[test]
fn rewritten_sequences_end_in_the_same_state() {
    let verdicts = RefCell::new(BTreeMap::<String, u32>::new());
    arbtest::arbtest(|u| {
        let sequence: Sequence = u.arbitrary()?;
        *verdicts.borrow_mut().entry(format!("{:?}", sequence::check(&sequence))).or_default() += 1;
        Ok(())
    })
    .budget_ms(20_000)
    .size_min(512)
    .size_max(4096)
    .run();
    let verdicts = verdicts.into_inner();
    println!("{verdicts:?}");
    let same = verdicts.get("Same").copied().unwrap_or(0);
    assert!(same * 2 > verdicts.values().sum(), "most sequences do not run to their end: {verdicts:?}");
}
