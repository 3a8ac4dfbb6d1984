//! Requests ahead of misses that repeat, with several nodes in one process.

use crate::memory::homes::PAGE_BYTES;
use crate::sync::op::WordType;
use crate::tests::nodes::common::{COPYING, Program, run_blocks, run_shaped, run_under, sum};
use crate::tests::nodes::prelude::*;
use blizzard_contract::{BLOCK_BYTES, LOOK_AHEAD};
use core::hint::spin_loop;
use core::sync::atomic::AtomicU64;
use std::time::Instant;

const BLOCKS: u64 = 256;

/// Iterations in which each node adds what some blocks of other nodes held in the iteration before to its own: as in programs on graphs, in
/// an order without a pattern that is the same each time. The nodes' misses, and the requests ahead.
fn exchange(nodes: u32, protocol: u32, look_ahead: u32) -> (u64, u64) {
    const ROUNDS: u64 = 12;
    let counts = run_shaped(
        nodes,
        protocol,
        |header| header.look_ahead = look_ahead,
        |program| {
            let arrays = [program.shared(BLOCKS * BLOCK_BYTES), 0];
            let arrays = [arrays[0], second_array(program)];
            let (me, nodes) = (program.me(), u64::from(nodes));
            let mut expected = [0; 2];
            for round in 0..ROUNDS {
                let (from, to) = (arrays[round as usize % 2], arrays[(round as usize + 1) % 2]);
                let mut sum = 0u64;
                for number in 0..BLOCKS / 2 {
                    let other = (number * 7919 + me * 31) % BLOCKS;
                    sum = sum.wrapping_add(program.load(from + other * BLOCK_BYTES));
                    program.back_edge();
                }
                let seen = (0..BLOCKS / 2).map(|n| expected_value(round, (n * 7919 + me * 31) % BLOCKS));
                assert_eq!(sum, seen.fold(0, u64::wrapping_add), "round {round}");
                for own in (me..BLOCKS).step_by(nodes as usize) {
                    program.store(to + own * BLOCK_BYTES, expected_value(round + 1, own));
                    program.back_edge();
                }
                expected[round as usize % 2] = sum;
                program.barrier();
            }
            let counter = |which| program.node.context.counter(which);
            let misses = [Counter::ReadMisses, Counter::WriteMisses, Counter::Upgrades].map(counter);
            (misses.iter().sum::<u64>(), counter(Counter::AskedAhead))
        },
    );
    counts.into_iter().fold((0, 0), |(misses, asked), (m, a)| (misses + m, asked + a))
}

/// What a block holds behind a round.
fn expected_value(round: u64, block: u64) -> u64 {
    if round == 0 { 0 } else { round << 32 | block }
}

/// Another allocation of the same size, whose address all get.
fn second_array(program: &mut Program) -> u64 {
    if program.me() == 0 {
        let addr = program.call(|node| node.alloc_home(None, BLOCKS * BLOCK_BYTES));
        program.call(|node| node.publish(1, addr));
    }
    program.call(|node| node.lookup(1))
}

/// Each miss of 8 nodes on 2 processors cost a switch between processes. With the second protocol a home does not ask for its own blocks ahead, and the
/// reader of a block takes it away from its writer.
#[test]
fn misses_that_repeat_are_asked_for_ahead() {
    for (protocol, least_asked, most_missed) in [(COPYING[0], 50, 66), (COPYING[1], 12, 88)] {
        for nodes in [2, 4, 8] {
            let (misses, asked) = exchange(nodes, protocol, LOOK_AHEAD);
            let (plain, none) = exchange(nodes, protocol, 0);
            assert_eq!(none, 0);
            assert!(
                asked * 100 > plain * least_asked && misses * 100 < plain * most_missed,
                "{nodes} nodes, protocol {protocol}: {misses} of {plain}, {asked} ahead"
            );
        }
    }
}

/// Two nodes ask for a block that both have a copy of, one of them ahead of its use. The home asks that one for its copy and refuses its request, and only the
/// refusal decides what the node answers. Nothing told a node that computes of a refusal, so the other one waited until it next
/// missed: three nodes that handed a token round stood still (`tests/cases/shared/ring.c`).
#[test]
fn a_request_ahead_that_is_refused_holds_nobody_up() {
    const ROUNDS: u64 = 300;
    for protocol in COPYING {
        let (sent, done) = (AtomicU64::new(0), AtomicU64::new(0));
        run_under(3, protocol, |program| {
            let word = program.shared(BLOCK_BYTES);
            assert_eq!(program.node.home_table.home_of(&program.node.homes, word), NodeId::new(0));
            for round in 0..ROUNDS {
                program.load(word);
                program.barrier();
                if program.me() == 0 {
                    // Both requests arrive before either is looked at.
                    while sent.load(Ordering::SeqCst) != 2 * (round + 1) {
                        spin_loop();
                    }
                } else {
                    program.call(|node| node.prefetch(word, 8, true));
                    sent.fetch_add(1, Ordering::SeqCst);
                    if program.me() == 1 + round % 2 {
                        program.store(word, round);
                        done.store(round + 1, Ordering::SeqCst);
                    }
                    let began = Instant::now();
                    while done.load(Ordering::SeqCst) <= round {
                        program.back_edge();
                        assert!(began.elapsed().as_secs() < 20, "round {round}: the other node's store is held up");
                    }
                }
                program.barrier();
                assert_eq!(program.load(word), round);
                program.barrier();
            }
        });
    }
}

/// Blocks that were asked for are taken away again before they are used, all the time.
#[test]
fn nodes_that_ask_for_the_same_blocks_get_on() {
    for protocol in COPYING {
        for nodes in [2, 3, 5] {
            run_under(nodes, protocol, |program| {
                let array = program.shared(2 * PAGE_BYTES);
                for _ in 0..60 {
                    for block in 0..64 {
                        program.call(|node| node.fetch_add(array + block * 2 * BLOCK_BYTES, 1));
                        program.back_edge();
                    }
                }
                program.barrier();
                for block in 0..64 {
                    assert_eq!(program.load(array + block * 2 * BLOCK_BYTES), 60 * u64::from(nodes));
                }
            });
        }
    }
}

/// Larger blocks travel in parts, and pages of a finite stache are not replaced for a guess.
#[test]
fn large_blocks_and_a_finite_stache_bear_requests_ahead() {
    for protocol in COPYING {
        for (block, pages) in [(512, 0), (4096, 0), (64, 5), (1024, 5)] {
            run_shaped(
                3,
                protocol,
                |header| (header.block_bytes, header.stache_pages) = (block, pages),
                |program| {
                    let words = 16 * PAGE_BYTES / 8;
                    let array = program.shared(8 * words);
                    for round in 1..=4u64 {
                        for word in (program.me()..words).step_by(3).filter(|word| word % 7 < 3) {
                            program.store(array + 8 * word, round << 32 | word);
                            program.back_edge();
                        }
                        program.barrier();
                        for word in (0..words).step_by(5).filter(|word| word % 7 < 3) {
                            assert_eq!(program.load(array + 8 * word), round << 32 | word);
                            program.back_edge();
                        }
                        program.barrier();
                    }
                },
            );
        }
    }
}

/// Hints and accesses of all nodes to one block. Its home asks for it ahead, too: when it had asked to load and then stored, requests of others that
/// had come meanwhile waited in front of the store, and nothing was left that would have let them go on.
#[test]
fn hints_about_one_block_leave_nobody_waiting() {
    for protocol in COPYING {
        for nodes in [2, 4] {
            run_under(nodes, protocol, |program| {
                let word = program.shared(2 * BLOCK_BYTES);
                let mut random = 88172645463325252 ^ program.me() << 20;
                let mut added = 0;
                for _ in 0..4000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    match random >> 32 & 7 {
                        0 => program.call(|node| node.prefetch(word, 2 * BLOCK_BYTES, random >> 40 & 1 == 1)),
                        1 => {
                            program.call(|node| node.prefetch(word, 8, false));
                            program.call(|node| node.fetch_add(word, 1));
                            added += 1;
                        }
                        2 => program.call(|node| node.check_in(word, BLOCK_BYTES)),
                        3 => {
                            program.call(|node| node.fetch_add(word, 1));
                            added += 1;
                        }
                        _ => {
                            program.load(word + 8);
                        }
                    }
                    program.back_edge();
                }
                program.barrier();
                let all = program.call(|node| node.collective_word(sum(WordType::U64), added));
                assert_eq!(program.load(word), all);
            });
        }
    }
}

/// A node asked for more than fits into a ring and came to its end. It was gone when the home, which had come to its end before, sent it: the home waited
/// for room for ever (`an_access_across_arenas_gets_blocks_of_both_sizes`, on a busy machine).
#[test]
fn what_was_asked_for_ahead_is_waited_for_at_the_end() {
    for protocol in COPYING {
        run_blocks(2, protocol, 4096, |program| {
            let pages = program.shared(16 * PAGE_BYTES);
            program.barrier();
            if program.me() == 1 {
                // The home says meanwhile that it computes no more.
                std::thread::sleep(std::time::Duration::from_millis(50));
                program.call(|node| node.prefetch(pages, 16 * PAGE_BYTES, true));
            }
        });
    }
}
