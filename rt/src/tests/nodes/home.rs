//! What a counter that all nodes change by turns costs with the protocol home, in counts.

use crate::memory::homes::PAGE_BYTES;
use crate::tests::nodes::common::*;
use crate::tests::nodes::prelude::*;
use blizzard_protocol::port::ProtocolId;

const ROUNDS: u64 = 27;

/// Misses and messages of all nodes while each adds to a word of node 0 in turn, the first round left out. Barriers cost the same with all protocols.
fn counts(nodes: u32, protocol: &str) -> [u64; 2] {
    PROTOCOL.set(ProtocolId::named(protocol).unwrap().number());
    let all = run(nodes, move |program| {
        if program.me() == 0 {
            let addr = program.call(|node| node.alloc_home(NodeId::new(0), PAGE_BYTES));
            program.call(|node| node.publish(0, addr));
        }
        let addr = program.call(|node| node.lookup(0));
        let kinds = [Counter::ReadMisses, Counter::WriteMisses, Counter::Upgrades, Counter::MessagesSent];
        let mut before = [0; 4];
        for turn in 0..(ROUNDS + 1) * u64::from(nodes) {
            if turn == u64::from(nodes) {
                before = kinds.map(|kind| program.node.context.counter(kind));
            }
            if program.me() == turn % u64::from(nodes) {
                assert_eq!(program.load(addr), turn);
                program.store(addr, turn + 1);
            }
            program.barrier();
        }
        let counted = kinds.map(|kind| program.node.context.counter(kind));
        let [read, write, upgrades, messages] = [0, 1, 2, 3].map(|at| counted[at] - before[at]);
        [read + write + upgrades, messages]
    });
    PROTOCOL.set(STACHE);
    all.into_iter().fold([0; 2], |sum, one| [0, 1].map(|at| sum[at] + one[at]))
}

/// A round of each node's turn: misses, and messages more than with home. What the home uses in between it does not see: with two nodes each ninth visit ends with a
/// miss of the home's and a Recall.
#[test]
fn a_turn_of_another_node_takes_three_messages_and_one_of_the_home_none() {
    for (nodes, stache, migratory, recalls) in [(2, 8, 4, ROUNDS / 9), (4, 24, 12, 0)] {
        let others = u64::from(nodes) - 1;
        let [home, of_stache, of_migratory] = ["home", "stache", "migratory"].map(|name| counts(nodes, name));
        assert_eq!(home[0], others * ROUNDS + recalls);
        assert_eq!((of_stache[0], of_migratory[0]), (2 * (others + 1) * ROUNDS, (others + 1) * ROUNDS));
        assert_eq!(of_stache[1] - home[1] + recalls, (stache - 3 * others) * ROUNDS);
        assert_eq!(of_migratory[1] - home[1] + recalls, (migratory - 3 * others) * ROUNDS);
    }
}

/// What one node uses alone takes one miss a block, however often the node enters the runtime in between.
#[test]
fn what_nobody_else_wants_stays() {
    PROTOCOL.set(ProtocolId::named("home").unwrap().number());
    let all = run(2, move |program| {
        if program.me() == 0 {
            let addr = program.call(|node| node.alloc_home(NodeId::new(0), PAGE_BYTES));
            program.call(|node| node.publish(0, addr));
        }
        let addr = program.call(|node| node.lookup(0));
        let before = program.node.context.counter(Counter::WriteMisses);
        for turn in 0..100 {
            if program.me() == 1 {
                program.store(addr + turn % 2 * 64, turn);
            }
            program.barrier();
        }
        program.node.context.counter(Counter::WriteMisses) - before
    });
    PROTOCOL.set(STACHE);
    assert_eq!(all, [0, 2]);
}
