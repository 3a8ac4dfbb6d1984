//! What the protocol broadcast saves, in counts, and what becomes of copies that find no room.

use crate::memory::homes::PAGE_BYTES;
use crate::tests::nodes::common::*;
use crate::tests::nodes::prelude::*;
use blizzard_protocol::port::ProtocolId;

const ROUNDS: u64 = 40;
const NODES: u32 = 4;

fn broadcast() -> u32 {
    ProtocolId::named("broadcast").unwrap().number()
}

/// Memory of node 0, known to all.
fn shared(program: &mut Program, bytes: u64) -> u64 {
    if program.me() == 0 {
        let addr = program.call(|node| node.alloc_home(NodeId::new(0), bytes));
        program.call(|node| node.publish(0, addr));
    }
    program.call(|node| node.lookup(0))
}

/// Read misses, messages and unasked copies of all nodes in rounds of `each`, the first round left out.
fn counts(protocol: u32, each: fn(&mut Program, u64, u64)) -> [u64; 3] {
    PROTOCOL.set(protocol);
    let all = run(NODES, move |program| {
        let addr = shared(program, PAGE_BYTES);
        each(program, addr, 0);
        program.barrier();
        let kinds = [Counter::ReadMisses, Counter::MessagesSent, Counter::BlocksPushed];
        let now = |program: &Program| kinds.map(|kind| program.node.context.counter(kind));
        let before = now(program);
        for round in 1..=ROUNDS {
            each(program, addr, round);
            program.barrier();
        }
        let after = now(program);
        [0, 1, 2].map(|at| after[at] - before[at])
    });
    PROTOCOL.set(STACHE);
    all.into_iter().fold([0; 3], |sum, one| [0, 1, 2].map(|at| sum[at] + one[at]))
}

/// The home stores; one node reads first, then the others do. Barriers cost the same with both protocols.
#[test]
fn the_first_reader_misses_for_all() {
    let each = |program: &mut Program, addr, round| {
        if program.me() == 0 {
            program.store(addr, round);
        }
        program.barrier();
        if program.me() == 1 {
            assert_eq!(program.load(addr), round);
        }
        program.barrier();
        assert_eq!(program.load(addr), round);
    };
    let [stache, broadcast] = [STACHE, broadcast()].map(|protocol| counts(protocol, each));
    let others = u64::from(NODES) - 2;
    assert_eq!((stache[0], stache[2]), ((1 + others) * ROUNDS, 0));
    assert_eq!((broadcast[0], broadcast[2]), (ROUNDS, others * ROUNDS));
    // Each of the others: a copy instead of a request and its answer.
    assert_eq!(stache[1] - broadcast[1], others * ROUNDS);
}

/// All read at once: a request that crosses a copy is not answered again.
#[test]
fn copies_that_cross_requests_cost_nothing() {
    let each = |program: &mut Program, addr, round| {
        if program.me() == 0 {
            program.store(addr, round);
        }
        program.barrier();
        assert_eq!(program.load(addr), round);
    };
    let [stache, broadcast] = [STACHE, broadcast()].map(|protocol| counts(protocol, each));
    assert!(broadcast[0] <= stache[0] && broadcast[1] <= stache[1], "{broadcast:?} {stache:?}");
}

/// Another node than the home stores, and checks in: nobody misses to read.
#[test]
fn what_a_writer_checks_in_is_read_without_a_miss() {
    let each = |program: &mut Program, addr, round| {
        if program.me() == 1 {
            program.store(addr, round);
            program.call(|node| node.check_in(addr, 8));
        }
        program.barrier();
        if program.me() != 1 {
            assert_eq!(program.load(addr), round);
        }
    };
    let found = counts(broadcast(), each);
    // Nodes 2 and 3 get copies; the home has the data.
    assert_eq!((found[0], found[2]), (0, 2 * ROUNDS));
}

/// Node 1 does not keep the page any more when the copy comes: it gives the copy up, and gets no other one.
#[test]
fn a_copy_of_a_page_that_is_not_kept_is_given_up() {
    const PAGES: u32 = 5;
    run_finite(3, PAGES, broadcast(), |program| {
        let addr = shared(program, 16 * PAGE_BYTES);
        let count = |program: &Program, kind| program.node.context.counter(kind);
        let store = |program: &mut Program, value| {
            if program.me() == 0 {
                program.store(addr, value);
            }
            program.barrier();
        };
        store(program, 1);
        assert_eq!(program.load(addr), 1);
        program.barrier();
        store(program, 2);
        if program.me() == 1 {
            // The page's only block is Invalid.
            for page in 1..=2 * u64::from(PAGES) {
                assert_eq!(program.load(addr + page * PAGE_BYTES), 0);
            }
            assert!(count(program, Counter::PagesReplaced) > 0);
        }
        program.barrier();
        if program.me() == 2 {
            assert_eq!(program.load(addr), 2);
        }
        program.barrier();
        assert!(program.me() != 1 || !program.node.is_accessible(addr, 8, false));
        program.barrier();
        store(program, 3);
        if program.me() == 2 {
            assert_eq!(program.load(addr), 3);
        }
        program.barrier();
        match program.me() {
            0 => assert_eq!(count(program, Counter::BlocksPushed), 1),
            1 => assert_eq!(count(program, Counter::InvalidationsReceived), 1),
            _ => {}
        }
        assert_eq!(program.load(addr), 3);
        program.barrier();
    });
}
