//! The utility library with several nodes: collectives in trees, group barriers, events, counters, remote writes.

use crate::memory::homes::PAGE_BYTES;
use crate::sync::op::{Op, Reduction, WordCombine, WordType};
use crate::tests::nodes::common::*;
use crate::tests::nodes::prelude::*;

#[test]
pub fn reductions_of_vectors_go_through_a_tree() {
    let endings = run(TREE_NODES, |program| {
        let me = program.me();
        let mut results = Vec::new();
        for round in 0..200u64 {
            for combine in [WordCombine::Sum, WordCombine::Min, WordCombine::Max] {
                let of = if round % 2 == 0 { WordType::U64 } else { WordType::F64 };
                let word = |k: u64| {
                    if of == WordType::U64 { (me + 3) * (k + round) } else { ((me + k) as f64 / 3.0).to_bits() }
                };
                let mut words: Vec<u64> = (0..1 + round % 8).map(word).collect();
                program.call(|node| node.collective(Collective::Reduce(Reduction { combine, of }), &mut words));
                results.push(words);
            }
            program.barrier();
        }
        results
    });
    let all = endings;
    assert!(all.iter().all(|results| *results == all[0]), "all nodes have the same bits");
    let n = u64::from(TREE_NODES);
    for (index, words) in all[0].iter().enumerate() {
        let (round, combine) = (index as u64 / 3, index % 3);
        for (k, &word) in (0u64..).zip(words) {
            if round % 2 == 0 {
                let expected = match combine {
                    0 => (n * (n - 1) / 2 + 3 * n) * (k + round),
                    1 => 3 * (k + round),
                    _ => (n + 2) * (k + round),
                };
                assert_eq!(word, expected, "round {round} word {k}");
            } else {
                let value = |me: u64| (me + k) as f64 / 3.0;
                let expected = match combine {
                    0 => (0..n).map(value).sum::<f64>(),
                    1 => value(0),
                    _ => value(n - 1),
                };
                assert!((f64::from_bits(word) - expected).abs() < 1e-9, "round {round} word {k}");
            }
        }
    }
}

#[test]
pub fn broadcasts_reach_every_node_from_any() {
    for nodes in [2, 3, TREE_NODES] {
        run(nodes, |program| {
            let me = program.me() as u32;
            for round in 0..30u32 {
                let root = round % nodes;
                let bytes = [1, 63, 64, 65, 1000, 8192, 0][round as usize % 7];
                let right: Vec<u8> = (0..bytes).map(|i| (i as u32 * 7 + round) as u8).collect();
                let mut mine = if me == root { right.clone() } else { vec![0xee; bytes] };
                let at = mine.as_mut_ptr() as u64;
                let from = NodeId::new(root).unwrap();
                // SAFETY: the vector outlives the call.
                program.call(|node| unsafe { node.broadcast(from, at, bytes as u64) });
                assert!(mine == right, "round {round} at node {me}");
            }
        });
    }
}

#[test]
pub fn some_nodes_meet_at_a_barrier_while_the_others_compute() {
    const ROUNDS: u64 = 500;
    let endings = run(TREE_NODES, |program| {
        let data = program.shared(PAGE_BYTES);
        let group = u32::min(program.me() as u32 / 4, 1);
        if program.me() % 4 == 0 && program.me() < 8 {
            let barrier = program.call(Node::barrier_new);
            program.call(|node| node.publish(u64::from(1 + group), barrier));
        }
        let barrier = program.call(|node| node.lookup(u64::from(1 + group)));
        let count = if group == 0 { 4 } else { TREE_NODES - 4 };
        let word = data + 512 * u64::from(group);
        let mut last = 0;
        for round in 0..ROUNDS {
            program.call(|node| node.fetch_op(Op::Add, word, 1, 0));
            last += u64::from(program.call(|node| node.barrier_wait(barrier, count)));
            assert_eq!(program.load(word), u64::from(count) * (round + 1));
            last += u64::from(program.call(|node| node.barrier_wait(barrier, count)));
        }
        program.barrier();
        last
    });
    let last: u64 = endings.into_iter().sum();
    assert_eq!(last, 2 * 2 * ROUNDS, "one node of each group is the last one of each round");
}

#[test]
pub fn events_wake_whoever_waits() {
    run(TREE_NODES, |program| {
        let data = program.shared(PAGE_BYTES);
        if program.me() == 3 {
            let event = program.call(Node::event_new);
            program.call(|node| node.publish(1, event));
        }
        let event = program.call(|node| node.lookup(1));
        for round in 1..100 {
            if program.me() == 0 {
                program.store(data, round);
                program.call(|node| node.event_set(event, true));
            } else {
                program.call(|node| node.event_wait(event));
                assert_eq!(program.load(data), round);
            }
            program.barrier();
            if program.me() == 0 {
                program.call(|node| node.event_set(event, false));
            }
            // Nobody may pass before it is set again, although most nodes hear of the clearing from others only.
            program.barrier();
        }
    });
}

#[test]
pub fn counters_count_every_operation_once() {
    const ROUNDS: u64 = 500;
    let endings = run(TREE_NODES, |program| {
        if program.me() == 1 {
            let counter = program.call(|node| node.counter_new(1000));
            program.call(|node| node.publish(1, counter));
        }
        let counter = program.call(|node| node.lookup(1));
        let mut seen = Vec::new();
        for _ in 0..ROUNDS {
            seen.push(program.call(|node| node.counter_op(Op::Add, counter, 1, 0)));
            // Compare and swap until it succeeds.
            let mut old = program.call(|node| node.counter_op(Op::Add, counter, 0, 0));
            loop {
                let now = program.call(|node| node.counter_op(Op::CompareSwap, counter, old + (1 << 32), old));
                if now == old {
                    break;
                }
                old = now;
            }
        }
        program.barrier();
        let end = program.call(|node| node.counter_op(Op::Or, counter, 0, 0));
        (seen, end)
    });
    let total = u64::from(TREE_NODES) * ROUNDS;
    let mut all = Vec::new();
    for (seen, end) in endings {
        assert_eq!(end, 1000 + total + (total << 32));
        all.extend(seen.iter().map(|value| value & 0xffff_ffff));
    }
    all.sort_unstable();
    assert_eq!(all, (1000..1000 + total).collect::<Vec<_>>());
}

#[test]
pub fn remote_writes_are_there_after_the_fence() {
    use std::sync::atomic::AtomicU64 as Address;
    let at: [Address; 3] = Default::default();
    run(3, |program| {
        let me = program.me() as usize;
        let mut memory = vec![0u8; 3000];
        at[me].store(memory.as_mut_ptr() as u64, Ordering::SeqCst);
        program.barrier();
        let next = (me + 1) % 3;
        for round in 1..50u8 {
            let text: Vec<u8> = (0..1000).map(|i| (i as u8).wrapping_mul(round).wrapping_add(me as u8)).collect();
            let to = at[next].load(Ordering::SeqCst) + u64::from(round);
            // SAFETY: `text` outlives the call.
            program.call(|node| unsafe {
                node.remote_write(NodeId::new(next as u32).unwrap(), to, text.as_ptr() as u64, 1000);
                node.remote_fence();
            });
            program.barrier();
            let from = (me + 2) % 3;
            // SAFETY: the node's own memory, which nobody writes now.
            let got = unsafe { core::slice::from_raw_parts(memory.as_ptr().add(round.into()), 1000) };
            assert!(got.iter().enumerate().all(|(i, b)| *b == (i as u8).wrapping_mul(round).wrapping_add(from as u8)));
            program.barrier();
        }
        drop(memory);
    });
}

#[test]
pub fn a_wrong_address_of_a_remote_write_is_an_error_at_the_receiver() {
    let message = run_to_failure(2, |program| {
        if program.me() == 0 {
            let byte = 1u64;
            let from = &raw const byte as u64;
            // SAFETY: eight bytes of this frame.
            program.call(|node| unsafe { node.remote_write(NodeId::new(1).unwrap(), 64, from, 8) });
        }
        program.barrier();
    });
    assert!(message.contains("node 0 writes 8 bytes at 0x40, where this node has no writable memory"), "{message}");
}
