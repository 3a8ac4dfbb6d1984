//! What the protocol migratory saves, in counts, and that it learns where it saves nothing.

use crate::memory::homes::PAGE_BYTES;
use crate::tests::nodes::common::*;
use crate::tests::nodes::prelude::*;
use blizzard_contract::BLOCK_BYTES;
use blizzard_protocol::list::ALL;
use std::vec::Vec;

const TURNS: u64 = 60;

/// Read misses, upgrades and messages of all nodes in turns of `each`.
fn counts(protocol: u32, each: fn(&mut Program, u64, u64)) -> [u64; 3] {
    PROTOCOL.set(protocol);
    let all = run(3, move |program| {
        let zero = NodeId::new(0);
        if program.me() == 0 {
            let addr = program.call(|node| node.alloc_home(zero, PAGE_BYTES));
            program.call(|node| node.publish(0, addr));
        }
        let addr = program.call(|node| node.lookup(0));
        program.load(addr + BLOCK_BYTES);
        program.barrier();
        let kinds = [Counter::ReadMisses, Counter::Upgrades, Counter::MessagesSent];
        let now = |program: &Program| kinds.map(|kind| program.node.context.counter(kind));
        let before = now(program);
        for turn in 0..TURNS {
            each(program, addr, turn);
            program.barrier();
        }
        let after = now(program);
        [0, 1, 2].map(|at| after[at] - before[at])
    });
    PROTOCOL.set(STACHE);
    all.into_iter().fold([0; 3], |sum, one| [0, 1, 2].map(|at| sum[at] + one[at]))
}

fn both(each: fn(&mut Program, u64, u64)) -> Vec<[u64; 3]> {
    let migratory = ALL.into_iter().find(|protocol| protocol.name() == "migratory").unwrap();
    [STACHE, migratory.number()].map(|protocol| counts(protocol, each)).into()
}

/// Nodes 1 and 2 add to a word by turns; the home is a third node. Barriers cost the same with both.
#[test]
fn a_turn_takes_one_miss_instead_of_two_and_half_the_messages() {
    let found = both(|program, addr, turn| {
        if program.me() == 1 + turn % 2 {
            assert_eq!(program.load(addr), turn);
            program.store(addr, turn + 1);
        }
    });
    let [stache, migratory] = [found[0], found[1]];
    assert_eq!((stache[0], stache[1]), (TURNS, TURNS));
    assert_eq!((migratory[0], migratory[1]), (TURNS, 0));
    // Each turn but the first: read, recall, data home, data; with stache then upgrade, invalidation, acknowledgement, answer.
    assert_eq!(stache[2] - migratory[2], 4 * (TURNS - 1) + 2);
}

/// Nodes 1 and 2 read, again and again, what node 1 stores at times: after the first reads migratory does what stache does.
#[test]
fn what_is_only_read_is_shared() {
    let found = both(|program, addr, turn| {
        if turn % 10 == 9 && program.me() == 1 {
            program.store(addr, turn);
        } else if turn % 10 != 9 && program.me() != 0 {
            program.load(addr);
        }
    });
    let misses = |counts: [u64; 3]| counts[0] + counts[1];
    assert!(misses(found[1]) <= misses(found[0]) + 4, "{found:?}");
}
