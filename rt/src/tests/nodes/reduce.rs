//! What the protocol reduce comes to on real nodes: the bits of its results, and what it costs in counts.

use crate::memory::homes::{Attributes, BlockSize, PAGE_BYTES, Placement};
use crate::tests::nodes::common::*;
use crate::tests::nodes::prelude::*;
use blizzard_contract::{BLOCK_BYTES, RegionHeader, STACHE_PAGES_MIN};
use blizzard_protocol::list::ALL;
use blizzard_protocol::operation::{Combine, Element, Operation};
use blizzard_protocol::port::Port;
use std::vec::Vec;

const WORDS: u64 = 320;

fn operations() -> Vec<Operation> {
    (0..100).filter_map(Operation::from_number).collect()
}

fn of(combine: Combine, element: Element) -> Operation {
    Operation::new(combine, element).unwrap()
}

fn attributes(block: u64, homes: Placement, operation: Operation) -> Attributes {
    let protocol = ALL.into_iter().find(|protocol| protocol.name() == "reduce").unwrap();
    Attributes { block: BlockSize::new(block).unwrap(), homes, protocol, operation: Some(operation) }
}

impl Program {
    /// Node `by` allocates; all get the address.
    fn combined(&mut self, slot: u64, by: u64, attributes: Attributes) -> u64 {
        if self.me() == by {
            let addr = self.call(|node| node.alloc(attributes, 8 * WORDS, 0)).unwrap();
            assert!(addr.is_multiple_of(PAGE_BYTES));
            self.call(|node| node.publish(slot, addr));
        }
        self.call(|node| node.lookup(slot))
    }

    fn begin_to_add(&mut self, addr: u64, bytes: u64) {
        self.call(|node| node.check_out(addr, bytes, true));
    }

    /// As a program does: loads, combines, stores.
    fn add(&mut self, addr: u64, operation: Operation, value: u64) {
        let before = self.load(addr);
        self.store(addr, operation.apply(before, value));
    }
}

/// What node `node` adds to a word in a round: sums of these depend on their order.
fn addend(operation: Operation, node: u64, word: u64, round: u64) -> u64 {
    let bits = (node + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left((word * 7 + round * 3) as u32 % 64) ^ word;
    let double = (bits % 1000) as f64 * [1e16, 1.0, -1e16, 1e-3][(node + word + round) as usize % 4];
    match operation.of {
        Element::F64 => double.to_bits(),
        Element::F32 => u64::from((double as f32).to_bits()) << 32 | u64::from(((bits >> 40) as f32).to_bits()),
        _ => bits,
    }
}

fn homes(nodes: u32, which: u64) -> Placement {
    match which % 4 {
        0 => Placement::RoundRobin,
        1 => Placement::Slices,
        2 => Placement::FirstTouch,
        _ => Placement::Node(NodeId::new(nodes - 1).unwrap()),
    }
}

/// Every operation, with blocks and homes of all kinds: the home's value first, then the others' in order of their numbers, to the last bit, round after round.
#[test]
fn results_are_those_of_the_nodes_in_order() {
    const ROUNDS: u64 = 3;
    for nodes in [2u32, 3, 4] {
        run(nodes, move |program| {
            let me = program.me();
            let arrays: Vec<(Operation, u64)> = operations()
                .into_iter()
                .zip(0..)
                .map(|(operation, slot)| {
                    let block = [64, 512, 4096][slot as usize % 3];
                    let which = attributes(block, homes(nodes, slot / 3), operation);
                    (operation, program.combined(slot, slot % u64::from(nodes), which))
                })
                .collect();
            let words = |round: u64| (0..WORDS).filter(move |word| !(word * 11 + round).is_multiple_of(5));
            let adds = |node: u64, word: u64| !(node + word).is_multiple_of(3);
            let mut expected: Vec<Vec<u64>> =
                arrays.iter().map(|(operation, _)| std::vec![operation.initial(); WORDS as usize]).collect();
            for round in 0..ROUNDS {
                for &(operation, addr) in &arrays {
                    program.begin_to_add(addr, 8 * WORDS);
                    for word in words(round).filter(|&word| adds(me, word)) {
                        program.add(addr + 8 * word, operation, addend(operation, me, word, round));
                    }
                }
                program.barrier();
                for (&(operation, addr), expected) in arrays.iter().zip(&mut expected) {
                    for word in 0..WORDS {
                        let at = addr + 8 * word;
                        let home = program.node.links.site(at).unwrap().home.index() as u64;
                        if words(round).any(|each| each == word) {
                            let order = [home].into_iter().chain((0..u64::from(nodes)).filter(|&node| node != home));
                            for node in order.filter(|&node| adds(node, word)) {
                                let value = &mut expected[word as usize];
                                *value = operation.apply(*value, addend(operation, node, word, round));
                            }
                        }
                        assert_eq!(
                            program.load(at),
                            expected[word as usize],
                            "{operation:?}, word {word}, round {round}"
                        );
                    }
                }
                program.barrier();
            }
        });
    }
}

/// Three nodes add to each of so many blocks of a fourth one: one message for each node and block, and no miss that waits.
#[test]
fn adding_costs_one_message_for_each_block() {
    let found = run(4, |program| {
        let sum = of(Combine::Sum, Element::U64);
        let addr = program.combined(0, 0, attributes(64, Placement::Node(NodeId::FIRST), sum));
        program.barrier();
        program.barrier();
        let now = |program: &Program| program.node.context.counter(Counter::MessagesSent);
        let before = now(program);
        program.barrier();
        let of_barrier = now(program) - before;
        if program.me() != 0 {
            program.begin_to_add(addr, 8 * WORDS);
            for word in 0..WORDS {
                for _ in 0..3 {
                    program.add(addr + 8 * word, sum, word);
                }
            }
        }
        let of_adds = now(program) - before - of_barrier;
        let before = now(program);
        program.barrier();
        let of_round = now(program) - before - of_barrier;
        for word in (0..WORDS).step_by(8) {
            assert_eq!(program.load(addr + 8 * word), 9 * word);
        }
        (of_adds, of_round)
    });
    let blocks = (8 * WORDS).div_ceil(BLOCK_BYTES);
    // The fence and its answer as well; the first block has sums of 0 as the others have.
    assert!(found[1..].iter().all(|&(of_adds, of_round)| of_adds == 0 && of_round == blocks + 1), "{found:?}");
}

/// Memory that is freed and allocated again begins anew, whatever was added to it, with another operation as well.
#[test]
fn memory_that_is_used_again_begins_anew() {
    run(3, |program| {
        let [sum, min] = [of(Combine::Sum, Element::I64), of(Combine::Min, Element::I64)];
        let mut at = 0;
        for round in 0..4 {
            let operation = if round % 2 == 0 { sum } else { min };
            let again = program.combined(round, 1, attributes(128, Placement::Node(NodeId::FIRST), operation));
            assert!(round == 0 || again == at);
            at = again;
            assert_eq!(program.load(at + 40), operation.initial());
            program.barrier();
            program.begin_to_add(at, 8 * WORDS);
            let me = program.me();
            program.add(at + 40, operation, 7 + me);
            program.barrier();
            assert_eq!(program.load(at + 40), if round % 2 == 0 { 24 } else { 7 });
            program.begin_to_add(at, 8 * WORDS);
            program.add(at + 48, operation, 1);
            program.barrier();
            if program.me() == 1 {
                program.call(|node| node.free(at));
            }
            program.barrier();
        }
    });
}

/// A store elsewhere that was not announced would be lost, so it ends the run.
#[test]
fn a_store_that_was_not_announced_ends_the_run() {
    let ends = run_with(2, 2, 64, |program| {
        let sum = of(Combine::Sum, Element::U64);
        let addr = program.combined(0, 0, attributes(64, Placement::Node(NodeId::FIRST), sum));
        program.store(addr, 1);
        program.barrier();
    });
    let told: Vec<_> = ends.iter().map(|end| end.message.as_str()).collect();
    assert!(told[1].contains("after `bz_check_out` to store"), "{told:?}");
}

/// With room for a few pages, what was added goes home early, and nothing is lost.
#[test]
fn replaced_pages_keep_what_was_added() {
    const PAGES: u64 = 12;
    let shape = |header: &mut RegionHeader| header.stache_pages = STACHE_PAGES_MIN;
    run_shaped(2, STACHE, shape, |program| {
        let sum = of(Combine::Sum, Element::U64);
        let arrays = [64, 256, 1024, 4096].map(|block| {
            if program.me() == 0 {
                let attributes = attributes(block, Placement::Node(NodeId::FIRST), sum);
                let addr = program.call(|node| node.alloc(attributes, PAGES * PAGE_BYTES, 0)).unwrap();
                program.call(|node| node.publish(block % 1000, addr));
            }
            program.call(|node| node.lookup(block % 1000))
        });
        let pages =
            || arrays.into_iter().flat_map(|addr| (0..PAGES).map(move |page| addr + page * PAGE_BYTES)).zip(1..);
        arrays.iter().for_each(|&addr| program.begin_to_add(addr, PAGES * PAGE_BYTES));
        for pass in 1..=3 {
            pages().for_each(|(at, number)| program.add(at, sum, pass * number));
        }
        program.barrier();
        for (at, number) in pages().chain(pages()) {
            assert_eq!(program.load(at), 2 * 6 * number);
        }
        if program.me() == 1 {
            assert_ne!(program.node.context.counter(Counter::PagesReplaced), 0);
        }
        program.barrier();
    });
}
