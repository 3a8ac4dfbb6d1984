//! The finite stache and the hints, with several nodes in one process.

use crate::memory::homes::PAGE_BYTES;
use crate::tests::nodes::common::{COPYING, Program, run_finite, run_under};
use crate::tests::nodes::prelude::*;
use blizzard_contract::{BLOCK_BYTES, BLOCK_SIZES};
use blizzard_protocol::list;

/// Fewer than the arrays have, so that every round replaces.
const PAGES: u32 = 5;

fn counter(program: &Program, counter: Counter) -> u64 {
    program.node.context.counter(counter)
}

/// Each node's writes are found by the others although pages come and go all the time.
#[test]
fn a_finite_stache_replaces_pages_and_writes_them_back() {
    for protocol in COPYING {
        let counts = run_finite(3, PAGES, protocol, |program| {
            let array = program.shared(48 * PAGE_BYTES);
            let me = program.me();
            for round in 1..=4u64 {
                for word in 0..1500 {
                    // Words of all nodes alternate inside blocks.
                    let word = (word * 7919) % 8192 * 3 + me;
                    program.store(array + 8 * word, round << 32 | word);
                    program.back_edge();
                }
                program.barrier();
                for word in 0..1500 {
                    let word = (word * 7919) % 8192 * 3 + (me + round) % 3;
                    assert_eq!(program.load(array + 8 * word), round << 32 | word);
                    program.back_edge();
                }
                program.barrier();
            }
            let all = [Counter::PagesReplaced, Counter::BlocksEvicted, Counter::StacheOverruns];
            all.map(|which| counter(program, which))
        });
        for [replaced, evicted, overruns] in counts {
            assert!(replaced > 500 && evicted > 500, "{replaced} {evicted}");
            assert_eq!(overruns, 0, "five pages are enough for one access");
        }
    }
}

#[test]
fn nothing_is_lost_when_all_nodes_add_to_more_pages_than_fit() {
    for protocol in COPYING {
        run_finite(4, PAGES, protocol, |program| {
            let array = program.shared(24 * PAGE_BYTES);
            let mut seed = 88172645463325252 ^ program.me();
            for _ in 0..3000 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                // Four words of each page, two of them in one block.
                let at = array + seed % 24 * PAGE_BYTES + [0, 8, 640, 4032][(seed >> 32) as usize % 4];
                program.call(|node| node.fetch_add(at, 1));
                program.back_edge();
            }
            program.barrier();
            let sum: u64 = (0..24)
                .flat_map(|page| [0, 8, 640, 4032].map(|inside| array + page * PAGE_BYTES + inside))
                .map(|at| program.load(at))
                .sum();
            assert_eq!(sum, 4 * 3000);
            assert!(counter(program, Counter::PagesReplaced) > 100);
            program.barrier();
        });
    }
}

/// An access that is wider than the stache gets all its blocks at once all the same.
#[test]
fn an_access_may_use_more_pages_than_there_are() {
    run_finite(2, PAGES, COPYING[0], |program| {
        let array = program.shared(40 * PAGE_BYTES);
        for round in 0..20 {
            let store = (round + program.me()) % 2 == 0;
            program.call(|node| {
                node.access(array, 40 * PAGE_BYTES, store, false);
                assert!(node.is_accessible(array, 40 * PAGE_BYTES, store));
            });
            program.back_edge();
        }
        assert!(counter(program, Counter::StacheOverruns) > 0);
        program.barrier();
    });
}

#[test]
fn what_was_checked_out_is_there_and_what_was_checked_in_is_at_home() {
    for protocol in COPYING {
        check_out_and_in(protocol);
    }
}

fn check_out_and_in(protocol: u32) {
    run_finite(2, 0, protocol, |program| {
        let bytes = 2 * PAGE_BYTES;
        let home = NodeId::new(0);
        let at = if program.me() == 0 {
            let at = program.call(|node| node.alloc_home(home, bytes));
            (0..bytes / 8).for_each(|word| program.store(at + 8 * word, word));
            program.call(|node| node.publish(0, at));
            at
        } else {
            program.call(|node| node.lookup(0))
        };
        program.barrier();
        if program.me() == 1 {
            for store in [false, true] {
                program.call(|node| node.check_out(at, bytes, store));
                let misses = || [Counter::ReadMisses, Counter::WriteMisses, Counter::Upgrades];
                let before = misses().map(|which| counter(program, which));
                for word in 0..bytes / 8 {
                    assert_eq!(program.load(at + 8 * word), word);
                    if store {
                        program.store(at + 8 * word, word + 1);
                    }
                }
                assert_eq!(misses().map(|which| counter(program, which)), before);
            }
            assert!(counter(program, Counter::Prefetches) > 100);
            program.call(|node| node.check_in(at + 8, bytes - 8));
            assert_eq!(counter(program, Counter::WriteBacks), bytes / BLOCK_BYTES);
            let hints = [Counter::BlocksCheckedIn, Counter::HintsLate, Counter::HintsLost];
            assert_eq!(hints.map(|which| counter(program, which)), [bytes / BLOCK_BYTES, 0, 0]);
            // Copies that come and are taken away again, by the node itself.
            for _ in 0..2 {
                program.call(|node| node.check_out(at, 2 * BLOCK_BYTES, true));
                program.call(|node| node.check_in(at, 2 * BLOCK_BYTES));
            }
            assert_eq!(program.load(at), 1);
            program.call(|node| node.check_in(at, BLOCK_BYTES));
            let expected = [bytes / BLOCK_BYTES + 5, 0, 1];
            assert_eq!(hints.map(|which| counter(program, which)), expected);
        }
        program.barrier();
        if program.me() == 0 {
            let sent = counter(program, Counter::MessagesSent);
            for word in 0..bytes / 8 {
                assert_eq!(program.load(at + 8 * word), word + 1);
            }
            assert_eq!(counter(program, Counter::MessagesSent), sent);
        }
        program.barrier();
        // Hints about anything at all are harmless.
        for (addr, bytes) in [(0, 100), (u64::MAX - 10, 100), (at, 0), (at + 8, u64::MAX), (at + (1 << 20), 1 << 20)] {
            program.call(|node| node.prefetch(addr, bytes.min(1 << 30), true));
            program.call(|node| node.check_out(addr, bytes.min(1 << 20), false));
            program.call(|node| node.check_in(addr, bytes.min(1 << 30)));
        }
    });
}

/// Requests that nobody waits for, crossed by stores of others, joined by accesses, and given up.
#[test]
fn hints_of_all_nodes_change_no_result() {
    for protocol in COPYING {
        run_finite(4, 0, protocol, |program| {
            let array = program.shared(2 * PAGE_BYTES);
            let mut seed = 0x2545_f491_4f6c_dd1d ^ program.me() << 7;
            for _ in 0..2500 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let at = array + seed % 16 * 8 + (seed >> 8) % 12 * 640;
                let bytes = (seed >> 16) % 1500;
                match (seed >> 32) % 6 {
                    0 => program.call(|node| node.prefetch(at, bytes, false)),
                    1 => program.call(|node| node.prefetch(at, bytes, true)),
                    2 => program.call(|node| node.check_out(at, bytes, seed >> 40 & 1 == 0)),
                    3 => program.call(|node| node.check_in(at, bytes)),
                    _ => {}
                }
                program.call(|node| node.fetch_add(array + (seed >> 20) % 1024 * 8, 1));
                program.back_edge();
            }
            program.barrier();
            let sum: u64 = (0..1024).map(|word| program.load(array + 8 * word)).sum();
            assert_eq!(sum, 4 * 2500);
        });
    }
}

/// A hint about a range that goes beyond what was allocated asked the arena's owner about each of its blocks, and one about all addresses never ended.
#[test]
fn a_hint_about_everything_is_about_what_there_is() {
    for protocol in COPYING {
        run_under(3, protocol, |program| {
            let at = program.shared(4 * PAGE_BYTES);
            let blocks = 4 * PAGE_BYTES / BLOCK_BYTES;
            if program.me() == 0 {
                (0..blocks).for_each(|n| program.store(at + n * BLOCK_BYTES, n));
            }
            program.barrier();
            if program.me() == 1 {
                let sent = |program: &Program| program.node.context.counter(Counter::MessagesSent);
                let before = sent(program);
                program.call(|node| node.check_out(0, u64::MAX, false));
                program.call(|node| node.prefetch(at - 1, u64::MAX, false));
                program.call(|node| node.prefetch(u64::MAX - 5, 9, false));
                for n in 0..blocks {
                    assert!(program.node.is_accessible(at + n * BLOCK_BYTES, 8, false));
                }
                program.call(|node| node.check_in(at - 100, 1 << 50));
                // A request for each block, and with some protocols word that its copy is given back; and a question about each arena twice: by protocol, block
                // size, and two policies or one of three nodes.
                let arenas = (list::COUNT * BLOCK_SIZES * (2 + 3)) as u64;
                let cost = sent(program) - before;
                assert!(cost <= 2 * (blocks + arenas) + blocks, "{cost} messages");
            }
            program.barrier();
            (0..blocks).for_each(|n| assert_eq!(program.load(at + n * BLOCK_BYTES), n));
        });
    }
}
