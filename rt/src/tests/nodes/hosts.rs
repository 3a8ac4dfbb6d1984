//! Runs whose nodes are on several hosts: what goes from one host to another.

use crate::sync::handle::{Handle, HandleKind};
use crate::sync::op::{Reduction, WordCombine, WordType};
use crate::tests::nodes::common::*;
use crate::tests::nodes::prelude::*;
use crate::transport::delaying::network::NetworkSettings;
use std::string::String;
use std::vec::Vec;

/// Hosts by their first nodes, and how many nodes there are.
const SHAPES: [(&[u16], u32); 7] = [
    (&[], 4),
    (&[], TREE_NODES),
    (&[2], 4),
    (&[1], 3),
    (&[2, 4], 6),
    (&[1, 2, 5], TREE_NODES),
    (&[2, 4, 6, 8, 10, 12, 14, 16, 18], 20),
];

/// The host of a node, by its first node.
fn host(firsts: &[u16], node: u32) -> u32 {
    firsts.iter().map(|&first| first.into()).filter(|&first| first <= node).max().unwrap_or(0)
}

/// Messages by sender and receiver in a run that ends well; the last one of each pair says that the sender has ended.
fn messages(
    seed: u64,
    firsts: &'static [u16],
    nodes: u32,
    main: impl Fn(&mut Program) + core::marker::Sync,
) -> Vec<Vec<u64>> {
    WAY.set(Way::Delaying(NetworkSettings::new(seed)));
    HOSTS.set(firsts);
    run(nodes, main);
    HOSTS.set(&[]);
    WAY.set(Way::Threads);
    let mut sent = SENT.take();
    for (from, row) in (0..).zip(&mut sent) {
        (0..).zip(row).filter(|(to, _)| *to != from).for_each(|(_, count)| *count -= 1);
    }
    sent
}

/// Of each host but the first, one node sends one message to another host in a round, and is sent one from there.
#[test]
fn a_round_costs_a_message_to_each_host_and_one_back() {
    const ROUNDS: u64 = 50;
    for (firsts, nodes) in SHAPES {
        for (seed, kind) in [(1, Collective::Barrier), (2, sum(WordType::F64)), (3, Collective::Barrier)] {
            let sent = messages(seed, firsts, nodes, |program| {
                for _ in 0..ROUNDS {
                    program.call(|node| node.collective(kind, &mut [1][..usize::from(kind != Collective::Barrier)]));
                }
            });
            let total: u64 = sent.iter().flatten().sum();
            assert_eq!(total, 2 * ROUNDS * u64::from(nodes - 1), "{firsts:?}: {sent:?}");
            let is_away = |from: usize, to: usize| host(firsts, from as u32) != host(firsts, to as u32);
            for &first in [0].iter().chain(firsts) {
                let is_here = |node: usize| host(firsts, node as u32) == u32::from(first);
                let (mut up, mut down) = (Vec::new(), Vec::new());
                for (from, row) in sent.iter().enumerate() {
                    for (to, &count) in row.iter().enumerate().filter(|(to, count)| is_away(from, *to) && **count != 0)
                    {
                        // A parent has a lower number.
                        if is_here(from) && to < from {
                            up.push((from, count));
                        } else if is_here(to) && from < to {
                            down.push((to, count));
                        }
                    }
                }
                let expected = if first == 0 { vec![] } else { vec![(usize::from(first), ROUNDS)] };
                assert_eq!((up, down), (expected.clone(), expected), "host of node {first} of {firsts:?}: {sent:?}");
            }
        }
    }
}

/// The same of a barrier for as many nodes as there are; one of them is told that it is the one.
#[test]
fn a_barrier_for_all_nodes_costs_no_more() {
    const ROUNDS: u64 = 50;
    let ones = std::sync::Mutex::new(0);
    let sent = messages(1, &[2, 4], 6, |program| {
        if program.me() == 3 {
            let barrier = program.call(Node::barrier_new);
            program.call(|node| node.publish(1, barrier));
        }
        let barrier = program.call(|node| node.lookup(1));
        for _ in 0..ROUNDS {
            *ones.lock().unwrap() += u64::from(program.call(|node| node.barrier_wait(barrier, 6)));
        }
    });
    assert_eq!(ones.into_inner().unwrap(), ROUNDS);
    // The first node of each host also looks up the slot.
    assert_eq!([sent[2][0], sent[0][2], sent[4][0], sent[0][4]], [ROUNDS + 1; 4]);
    assert_eq!([sent[5][0], sent[0][5], sent[5][4], sent[4][5]], [1, 1, ROUNDS, ROUNDS]);
}

#[test]
fn all_nodes_at_different_barriers_are_told() {
    HOSTS.set(&[2]);
    let words = last_words(4, |program| {
        let barrier = program.call(Node::barrier_new);
        program.call(|node| node.barrier_wait(barrier, 4));
    });
    let expected = "bz_barrier_wait: all nodes wait, but not at the same barrier";
    assert!(words.iter().all(|message| *message == expected), "{words:?}");
    let words = last_words(4, |program| {
        let never_made = Handle { kind: HandleKind::Barrier, home: NodeId::new(2).unwrap(), index: 3 }.encode();
        program.call(|node| node.barrier_wait(never_made, 4));
    });
    assert_eq!(words, ["node 2 uses a barrier that was never made"]);
    HOSTS.set(&[]);
}

/// The bytes of a broadcast come to each host once, from wherever.
#[test]
fn the_bytes_of_a_broadcast_come_to_each_host_once() {
    const BYTES: u64 = 1000;
    let (firsts, nodes): (&[u16], _) = (&[2, 4], 6);
    for root in 0..nodes {
        let sent = messages(root.into(), firsts, nodes, |program| {
            let mut buffer = [program.me() as u8; BYTES as usize];
            let at = buffer.as_mut_ptr() as u64;
            // SAFETY: the buffer outlives the call.
            program.call(|node| unsafe { node.broadcast(NodeId::new(root).unwrap(), at, BYTES) });
            assert!(buffer.iter().all(|byte| u32::from(*byte) == root));
        });
        let chunks = BYTES.div_ceil(64);
        for (from, row) in (0..).zip(&sent) {
            for (to, &count) in (0..).zip(row).filter(|(to, _)| host(firsts, *to) != host(firsts, from)) {
                let sends =
                    chunks * (u64::from((from, to) == (root, 0)) + u64::from(from == 0 && [2, 4].contains(&to)));
                let meets = u64::from([(0, 2), (0, 4), (2, 0), (4, 0)].contains(&(from, to)));
                assert_eq!(count, sends + meets, "{from} to {to}, root {root}");
            }
        }
    }
}

/// Those of one host are combined first: a fixed order.
#[test]
fn sums_of_floats_have_one_order_on_the_same_hosts() {
    let values = [1.0, 0.0, 0.0, 1e16, -1e16, 0.0f64];
    let sums = |firsts: &'static [u16], seed| {
        let bits = std::sync::Mutex::new(Vec::new());
        messages(seed, firsts, 6, |program| {
            let mine = values[program.me() as usize].to_bits();
            let kind = Collective::Reduce(Reduction { combine: WordCombine::Sum, of: WordType::F64 });
            let word = program.call(|node| node.collective_word(kind, mine));
            bits.lock().unwrap().push(f64::from_bits(word));
        });
        bits.into_inner().unwrap()
    };
    let in_order = |values: &[f64]| values.iter().copied().reduce(|a, b| a + b).unwrap();
    let by_hosts = in_order(&[in_order(&values[..3]), in_order(&values[3..5]), values[5]]);
    for seed in 0..10 {
        assert_eq!(sums(&[], seed), [in_order(&values); 6]);
        let of_hosts = sums(&[3, 5], seed);
        assert_eq!(of_hosts, [by_hosts; 6]);
    }
    assert_ne!(by_hosts.to_bits(), in_order(&values).to_bits(), "values that show the order");
}

/// What the nodes of a run say that end it: one at least. Whoever sees first what is wrong ends it, and others may have seen it, too.
fn last_words(nodes: u32, main: impl Fn(&mut Program) + core::marker::Sync) -> Vec<String> {
    let endings = run_with(nodes, 2, 128, main);
    let words: Vec<String> = endings.into_iter().map(|end| end.message).filter(|message| !message.is_empty()).collect();
    assert!(!words.is_empty());
    words
}

/// Each node in turn ends without the barrier at which the others are.
#[test]
fn a_node_that_has_exited_is_named_on_each_host() {
    HOSTS.set(&[2, 4]);
    for absent in 0..6 {
        for seed in 0..6 {
            WAY.set(Way::Delaying(NetworkSettings::new(seed)));
            let words = last_words(6, |program| {
                program.barrier();
                if program.me() != absent {
                    program.barrier();
                }
            });
            let expected = format!(" in bz_barrier, but node {absent} has exited: it can never complete");
            let is_right = |message: &String| message.starts_with("node") && message.ends_with(&expected);
            assert!(words.iter().all(is_right), "{words:?}");
        }
    }
    WAY.set(Way::Threads);
    HOSTS.set(&[]);
}

/// A test on hosts of one node and of more, in four orders of messages, and over rings.
fn again(test: fn()) {
    for firsts in [&[1, 2, 5][..], &[2]] {
        HOSTS.set(firsts);
        for seed in 0..4 {
            WAY.set(Way::Delaying(NetworkSettings::new(seed)));
            test();
        }
        WAY.set(Way::Threads);
        test();
    }
    HOSTS.set(&[]);
}

macro_rules! on_hosts {
    ($($module:ident: $($name:ident)*;)*) => {
        $($(#[test]
        fn $name() {
            again(crate::tests::nodes::$module::$name);
        })*)*
    };
}

on_hosts! {
    common: reductions_give_every_node_the_same_bits locks_exclude_and_queue;
    sync: reductions_of_vectors_go_through_a_tree broadcasts_reach_every_node_from_any some_nodes_meet_at_a_barrier_while_the_others_compute;
    failures: misuse_ends_the_run_with_one_clear_error;
}
