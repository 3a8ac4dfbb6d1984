//! What must end a run with a clear error, what must not, and messages that nobody can have sent.

use crate::memory::homes::PAGE_BYTES;
use crate::messages::kinds;
use crate::sync::op::{Op, WordType};
use crate::tests::nodes::common::*;
use crate::tests::nodes::prelude::*;
use blizzard_contract::SEGMENT_BASE;

#[test]
pub fn misuse_ends_the_run_with_one_clear_error() {
    type Main = fn(&mut Program);
    let cases: [(&str, Main); 9] = [
        ("bz_free: 0x200000000000 is already free", |program| {
            if program.me() == 1 {
                let addr = program.call(|node| node.alloc_home(None, 64));
                program.call(|node| node.free(addr));
                program.call(|node| node.free(addr));
            }
        }),
        ("bz_free: 0x1000 is not shared memory", |program| program.call(|node| node.free(0x1000))),
        ("bz_lock: 0x0 is not a lock", |program| program.call(|node| node.lock(0))),
        ("bz_lookup: slot 1024 is not below 1024", |program| {
            program.call(|node| node.lookup(1024));
        }),
        ("access to 0x200000100000..0x200000100040: shared memory that was never allocated", |program| {
            program.load(SEGMENT_BASE + (1 << 20));
        }),
        ("node 1 calls bz_reduce_sum_u64 while node 0 waits in bz_barrier", |program| {
            if program.me() == 0 {
                program.barrier();
            }
            while program.me() == 1
                && program.node.region.context(NodeId::new(0).unwrap()).counter(Counter::Barriers) == 0
            {
                program.pass();
            }
            program.call(|node| node.collective_word(sum(WordType::U64), 1));
        }),
        ("bz_unlock: node 1 unlocks a lock that node 0 holds", |program| {
            if program.me() == 0 {
                let lock = program.call(Node::lock_new);
                program.call(|node| node.lock(lock));
                program.call(|node| node.publish(3, lock));
            } else {
                let lock = program.call(|node| node.lookup(3));
                program.call(|node| node.unlock(lock));
            }
            program.barrier();
        }),
        ("bz_lock: node 0 already holds the lock", |program| {
            if program.me() == 0 {
                let lock = program.call(Node::lock_new);
                program.call(|node| node.lock(lock));
                program.call(|node| node.lock(lock));
            }
        }),
        ("node 1 uses a lock that was never made", |program| {
            if program.me() == 1 {
                let home = NodeId::new(0).unwrap();
                let lock = crate::sync::handle::Handle { kind: crate::sync::handle::HandleKind::Lock, home, index: 5 }
                    .encode();
                program.call(|node| node.lock(lock));
            }
        }),
    ];
    for (expected, main) in cases {
        // One node at fault is enough; the first word ends the run for both.
        let endings = run_with(2, 2, 128, main);
        let messages: Vec<_> = endings.iter().map(|end| &end.message).filter(|m| !m.is_empty()).collect();
        assert!(!messages.is_empty() && messages.iter().all(|m| m.contains(expected)), "{messages:?}: {expected}");
        assert!(endings.iter().all(|end| end.result.is_err()));
    }
}

#[test]
pub fn waits_for_a_node_that_has_exited_are_found() {
    let barrier = run_to_failure(3, |program| {
        if program.me() != 1 {
            program.barrier();
        }
    });
    assert!(barrier.contains("in bz_barrier, but node 1 has exited: it can never complete"), "{barrier}");
    // In a tree, whoever waits for the arrival finds it: node 5 is a child of node 1.
    let tree = run_to_failure(TREE_NODES, |program| {
        if program.me() != 5 {
            program.barrier();
        }
    });
    assert!(tree.starts_with("node") && tree.contains("in bz_barrier, but node 5 has exited"), "{tree}");
    let group = run_to_failure(3, |program| {
        if program.me() == 2 {
            let barrier = program.call(Node::barrier_new);
            program.call(|node| node.publish(2, barrier));
        }
        if program.me() != 1 {
            let barrier = program.call(|node| node.lookup(2));
            program.call(|node| node.barrier_wait(barrier, 3));
        }
    });
    assert!(group.contains("at a barrier for 3 nodes, but node 1 has exited: it can never complete"), "{group}");
    let event = run_to_failure(2, |program| {
        if program.me() == 0 {
            let event = program.call(Node::event_new);
            program.call(|node| node.event_wait(event));
        }
    });
    assert_eq!(event, "node 0 waits for an event, but node 1 has exited: nobody is left to set it");
    let lookup = run_to_failure(2, |program| {
        if program.me() == 0 {
            program.call(|node| node.lookup(7));
        }
    });
    assert_eq!(lookup, "node 0 waits in bz_lookup for slot 7, but node 1 has exited: nobody is left to publish it");
    let lock = run_to_failure(3, |program| {
        if program.me() == 2 {
            let lock = program.call(Node::lock_new);
            program.call(|node| node.lock(lock));
            program.call(|node| node.publish(1, lock));
        } else {
            let lock = program.call(|node| node.lookup(1));
            program.call(|node| node.lock(lock));
        }
    });
    assert!(lock.contains("for a lock, but node 2 has exited without unlocking it"), "{lock}");
}

#[test]
pub fn a_node_that_has_exited_still_serves_its_blocks() {
    run(3, |program| {
        let me = program.node.me;
        let mine = program.call(|node| node.alloc_home(Some(me), PAGE_BYTES));
        program.store(mine, 70 + me.index() as u64);
        program.call(|node| node.publish(me.index() as u64, mine));
        if me.index() == 2 {
            // The others are on their way out, or gone as far as they can.
            for other in 0..2 {
                let theirs = program.call(|node| node.lookup(other));
                for round in 0..200 {
                    assert_eq!(program.load(theirs), 70 + other + round);
                    program.call(|node| node.fetch_op(Op::Add, theirs, 1, 0));
                }
            }
        }
    });
}

#[test]
pub fn hostile_messages_are_counted_and_dropped() {
    let rejected = run_with(2, 2, 128, |program| {
        let array = program.shared(PAGE_BYTES);
        let other = NodeId::new(1 - program.me() as u32).unwrap();
        let mut seed = 0x1234_5678_9abc_def1 ^ program.me();
        let mut random = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        for _ in 0..2000 {
            let handler = match random() as u16 % (kinds::OWN + 1) {
                kinds::OWN => id::BLOCK_PUSHES,
                number => number,
            };
            let mut message = Message { handler, addr: random(), ..Message::default() };
            message.args = [random() | 1 << 50, random(), random()];
            message.key = random() | 1 << 50;
            message.length = [0, 64, 1, 255][random() as usize % 4];
            program.call(|node| node.send(other, message));
            program.back_edge();
        }
        program.barrier();
        program.call(|node| node.fetch_op(Op::Add, array, 1, 0));
        program.barrier();
        assert_eq!(program.load(array), 2);
        program.node.context.counter(Counter::MessagesRejected)
    });
    for ending in rejected {
        assert!(ending.result.unwrap() > 1500);
    }
}
