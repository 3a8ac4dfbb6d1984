//! Signals at each instruction of a function, in each version.

use blizzard_fuzz::machine::Entry;
use blizzard_fuzz::sequence::{self, Sequence, Verdict};
use blizzard_fuzz::steps;
use blizzard_test_harness::skip;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};

blizzard_test_harness::tests! {
    handlers_find_the_original_in_plain_code,
    handlers_find_the_original_in_full_code,
    handlers_find_the_original_in_learnt_code,
    handlers_find_the_original_in_code_that_the_rewriter_was_not_shown,
    long: handlers_find_the_original_around_misses,
    long: handlers_find_the_original_in_random_sequences,
}

/// Loads and stores of both kinds of memory, flags that are live over them, a call's worth of registers, and a loop whose accesses change kind.
const CODE: [&[u8]; 14] = [
    // mov r11, [r8]; cmp r11, rdx; mov [rsi+8], rcx; sete al
    &[0x4d, 0x8b, 0x18],
    &[0x49, 0x39, 0xd3],
    &[0x48, 0x89, 0x4e, 0x08],
    &[0x0f, 0x94, 0xc0],
    // push rax; pop r10
    &[0x50],
    &[0x41, 0x5a],
    // again: add [r9+60], r11; xchg r8, r9; movups xmm3, [rdi]; sub rbp, 1; jg again
    &[0x4d, 0x01, 0x59, 0x3c],
    &[0x4d, 0x87, 0xc1],
    &[0x0f, 0x10, 0x1f],
    &[0x48, 0x83, 0xed, 0x01],
    &[0x0f, 0x8f, 0xec, 0xff, 0xff, 0xff],
    // movsq; adc rbx, [rdi-16]; not qword ptr [rdi+64]
    &[0x48, 0xa5],
    &[0x48, 0x13, 0x5f, 0xf0],
    &[0x48, 0xf7, 0x57, 0x40],
];

fn sequence() -> Sequence {
    Sequence::known(&CODE.concat())
}

fn interrupted(sequence: &Sequence) -> steps::Counts {
    let counts = match steps::check(sequence) {
        Ok(counts) => counts,
        Err(e) if e.kind() == ErrorKind::PermissionDenied => skip("needs a system that permits single steps (ptrace)"),
        Err(e) => panic!("{e}"),
    };
    println!("{counts:?}");
    counts
}

/// Up to the first access of shared memory the code is the program's own, and behind it in full code.
fn handlers_find_the_original_in_plain_code() {
    let counts = interrupted(&sequence().guarded(Entry::Plain, 0).used());
    assert!(counts.exact >= 7 && counts.other > counts.original, "{counts:?}");
}

fn handlers_find_the_original_in_full_code() {
    let counts = interrupted(&sequence().guarded(Entry::Full, 0).used());
    assert!(counts.exact == 0 && counts.other > counts.original, "{counts:?}");
}

fn handlers_find_the_original_in_learnt_code() {
    let counts = interrupted(&sequence().guarded(Entry::Plain, u32::MAX).used());
    assert!(counts.other > counts.original, "{counts:?}");
}

/// Each access is carried out by the runtime.
fn handlers_find_the_original_in_code_that_the_rewriter_was_not_shown() {
    let counts = interrupted(&sequence().guarded(Entry::Made, 0).used());
    // The last one is the harness's.
    assert!(counts.exact + 1 == counts.original && counts.other == 1, "{counts:?}");
}

/// Each block is missed first, which takes many steps.
fn handlers_find_the_original_around_misses() {
    let counts = interrupted(&sequence().guarded(Entry::Full, 0));
    assert!(counts.exact == 0 && counts.other > counts.original, "{counts:?}");
}

/// The same of random sequences that come to their ends.
fn handlers_find_the_original_in_random_sequences() {
    const SEQUENCES: u64 = 10;
    let seed =
        std::env::var("BLIZZARD_FUZZ_SEED").map_or(0, |n| n.parse::<u64>().expect("BLIZZARD_FUZZ_SEED is a number"));
    let mut failed = Vec::new();
    for n in (1..=SEQUENCES).map(|n| seed.wrapping_mul(SEQUENCES).wrapping_add(n)) {
        let one = || {
            let size = 2048;
            arbtest::arbtest(|u| {
                let sequence: Sequence = u.arbitrary()?;
                if sequence.is_guarded() && sequence::check(&sequence) == Verdict::Same {
                    println!("{}: {:?}", sequence.kind(), interrupted(&sequence));
                }
                Ok(())
            })
            .seed(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 << 32 | size)
            .run();
        };
        if catch_unwind(AssertUnwindSafe(one)).is_err() {
            failed.push(n);
        }
    }
    assert!(failed.is_empty(), "sequences {failed:?} failed");
}
