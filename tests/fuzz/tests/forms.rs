//! Each form of an instruction at a shared address, in plain code, in full code, and in code that the rewriter was not shown.

use blizzard_fuzz::machine::Entry;
use blizzard_fuzz::sequence::{Sequence, Verdict, check};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
#[ignore = "takes minutes"]
fn each_form_of_an_instruction_accesses_shared_memory() {
    each_form_at(64);
}

/// The same where operands lie in two blocks, if they may.
#[test]
#[ignore = "takes minutes"]
fn each_form_of_an_instruction_accesses_two_blocks() {
    each_form_at(127);
}

fn each_form_at(displacement: u32) {
    const IN_EACH: usize = 8;
    let all = Sequence::of_all_forms(IN_EACH, displacement);
    println!("{} forms", all.iter().map(|sequence| sequence.each().len()).sum::<usize>());
    let mut failed = Vec::new();
    for (entry, learnt) in [(Entry::Plain, 0), (Entry::Plain, u32::MAX), (Entry::Full, 0), (Entry::Made, 0)] {
        let mut verdicts = BTreeMap::<String, u32>::new();
        for sequence in &all {
            let sequence = sequence.clone().guarded(entry, learnt);
            let verdict = catch_unwind(AssertUnwindSafe(|| check(&sequence)));
            // What ends the sequence hides what is behind it; and one that fails is to be named.
            let ends = !matches!(verdict, Ok(Verdict::Same | Verdict::SameNotAudited));
            let parts = if ends { sequence.each() } else { Vec::new() };
            if let (false, Ok(verdict)) = (ends, verdict) {
                *verdicts.entry(format!("{verdict:?}")).or_default() += sequence.each().len() as u32;
            }
            for sequence in parts {
                match catch_unwind(AssertUnwindSafe(|| check(&sequence))) {
                    Ok(verdict) => *verdicts.entry(format!("{verdict:?}")).or_default() += 1,
                    Err(_) => failed.push((entry, learnt, sequence.code)),
                }
            }
        }
        println!("{entry:?}, learnt {learnt:#x}: {verdicts:?}");
        let same: u32 = ["Same", "SameNotAudited"].iter().filter_map(|verdict| verdicts.get(*verdict)).sum();
        let judged: u32 = verdicts.values().sum();
        assert!(10 * same >= 9 * judged, "{entry:?}: most forms were not carried out: {verdicts:?}");
    }
    assert!(failed.is_empty(), "{failed:x?}");
}
