//! Blocks of more than 64 bytes, with several nodes in one process.

use crate::links::links::Links;
use crate::memory::homes::{Attributes, BlockSize, PAGE_BYTES, Placement};
use crate::node::access::Lane;
use crate::tests::nodes::common::{COPYING, PROTOCOLS, Program, run_blocks, run_shaped};
use crate::tests::nodes::prelude::*;
use blizzard_contract::{self as contract, BLOCK_BYTES};
use blizzard_protocol::ids::Block;
use blizzard_protocol::list::ALL;
use core::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

const SIZES: [u32; 6] = [128, 256, 512, 1024, 2048, 4096];

fn counter(program: &Program, counter: Counter) -> u64 {
    program.node.context.counter(counter)
}

/// Words of all nodes alternate inside each block: every store takes the block away from somebody, all of whose words must travel.
#[test]
fn no_word_of_a_larger_block_is_lost() {
    for protocol in PROTOCOLS {
        for block_bytes in SIZES {
            run_blocks(3, protocol, block_bytes, |program| {
                let words = 3 * 512;
                let array = program.shared(8 * words);
                let me = program.me();
                for round in 1..=4u64 {
                    for step in 0..60 {
                        let word = (step * 97 + round * 31) % 512 * 3 + me;
                        program.store(array + 8 * word, round << 32 | word);
                        program.call(|node| node.fetch_add(array, 1 << 40));
                        program.back_edge();
                    }
                    program.barrier();
                    for step in 0..60 {
                        let word = (step * 97 + round * 31) % 512 * 3 + (me + 1) % 3;
                        if word != 0 {
                            assert_eq!(program.load(array + 8 * word), round << 32 | word);
                        }
                        program.back_edge();
                    }
                    program.barrier();
                }
            });
        }
    }
}

#[test]
fn additions_survive_false_sharing_replacement_and_hints() {
    for protocol in PROTOCOLS {
        for block_bytes in [256, 4096] {
            let shape = |header: &mut contract::RegionHeader| {
                header.block_bytes = block_bytes;
                header.stache_pages = 4;
            };
            run_shaped(4, protocol, shape, |program| {
                let array = program.shared(16 * PAGE_BYTES);
                let mut seed = 0x9e37_79b9_97f4_a7c1 ^ program.me() << 9;
                for _ in 0..600 {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    let at = array + seed % (16 * 512) * 8;
                    match (seed >> 40) % 8 {
                        0 => program.call(|node| node.prefetch(at, 3000, seed >> 50 & 1 == 0)),
                        1 => program.call(|node| node.check_in(at, 3000)),
                        2 => program.call(|node| node.check_out(at, 500, true)),
                        _ => {}
                    }
                    program.call(|node| node.fetch_add(at, 1));
                    program.back_edge();
                }
                program.barrier();
                let sum: u64 = (0..16 * 512).map(|word| program.load(array + 8 * word)).sum();
                assert_eq!(sum, 4 * 600);
            });
        }
    }
}

/// An access over the border of two blocks, and one over many, has them all.
#[test]
fn wide_accesses_get_all_their_blocks() {
    for block_bytes in SIZES {
        run_blocks(3, PROTOCOLS[0], block_bytes, |program| {
            let array = program.shared(4 * PAGE_BYTES);
            for round in 0..120u64 {
                let border = array + u64::from(block_bytes) * (1 + (round + program.me()) % 3);
                if (round + program.me()) % 3 == 0 {
                    program.store(border - 3, u64::from_ne_bytes([program.me() as u8 + 1; 8]));
                } else {
                    let bytes = program.load(border - 3).to_ne_bytes();
                    assert!(bytes.iter().all(|&byte| byte == bytes[0]), "{bytes:?}");
                }
                let store = round % 4 == 0;
                let lane = |lane: u64| {
                    let addr = array + (lane * 1000 + round * 64) % (4 * PAGE_BYTES - 200);
                    Lane { addr, bytes: 8, store, masked: false }
                };
                let lanes: Vec<Lane> = (0..14).map(lane).collect();
                program.call(|node| node.access_lanes(&lanes));
                for lane in &lanes {
                    assert!(program.node.is_accessible(lane.addr, lane.bytes, lane.store));
                }
                program.back_edge();
            }
        });
    }
}

/// A block of 4 KiB takes one miss where 64 small ones take 64; its tags change together; allocations do not share blocks.
#[test]
fn a_larger_block_is_one_miss() {
    run_blocks(2, PROTOCOLS[0], 4096, |program| {
        let home = NodeId::new(0);
        if program.me() == 0 {
            let [a, b] = [100, 5000].map(|bytes| program.call(|node| node.alloc_home(home, bytes)));
            assert!(a.is_multiple_of(4096) && b == a + 4096);
            (0..512).for_each(|word| program.store(a + 8 * word, word));
            program.call(|node| node.publish(0, a));
            let c = program.call(|node| node.alloc_home(home, 1));
            assert_eq!(c, b + 8192);
            // Recycled memory is zero again.
            program.store(b + 8000, 7);
            program.call(|node| node.free(b));
            assert_eq!(program.call(|node| node.alloc_home(home, 8000)), b);
            assert_eq!(program.load(b + 8000), 0);
        }
        let at = program.call(|node| node.lookup(0));
        program.barrier();
        if program.me() == 1 {
            for word in (0..512).rev() {
                assert_eq!(program.load(at + 8 * word), word);
            }
            assert_eq!(counter(program, Counter::ReadMisses), 1);
            program.store(at + 2048, 9);
            let tags: Vec<_> = (0..4096 / BLOCK_BYTES)
                .map(|part| program.node.space.tag(Block::of(at + part * BLOCK_BYTES)))
                .collect();
            assert!(tags.iter().all(|&tag| tag == Some(blizzard_protocol::tag::Tag::Writable)), "{tags:?}");
            assert_eq!(counter(program, Counter::Upgrades), 1);
        }
        program.barrier();
        assert_eq!(program.load(at + 2048), 9);
        assert_eq!(program.load(at + 4088), 511);
        program.barrier();
    });
}

/// Each page's home is the node that used it first; whoever asks before that node knows is served all the same.
#[test]
fn pages_get_their_homes_by_first_touch() {
    for protocol in PROTOCOLS {
        for block_bytes in [64, 1024] {
            let shape = |header: &mut contract::RegionHeader| {
                header.block_bytes = block_bytes;
                header.homes = contract::home_policy::FIRST_TOUCH;
            };
            let homed = run_shaped(4, protocol, shape, |program| {
                let me = program.me();
                let array = program.shared(32 * PAGE_BYTES);
                for page in (me..16).step_by(4) {
                    program.store(array + page * PAGE_BYTES, page + 1);
                }
                assert_eq!(counter(program, Counter::PagesHomed), 4);
                program.barrier();
                // The owner uses its pages without a message.
                let sent = counter(program, Counter::MessagesSent);
                for word in 0..512 {
                    program.store(array + me * PAGE_BYTES + 8 * word, word);
                }
                assert_eq!(counter(program, Counter::MessagesSent), sent);
                program.barrier();
                for page in 0..4 {
                    assert_eq!(program.load(array + page * PAGE_BYTES + 8 * me), me);
                }
                for page in 4..16 {
                    assert_eq!(program.load(array + page * PAGE_BYTES), page + 1);
                }
                program.barrier();
                // All at once: one of them is first, and nothing is lost.
                for page in 16..32 {
                    for word in 0..8 {
                        program.call(|node| node.fetch_add(array + page * PAGE_BYTES + 512 * word, 1));
                    }
                    program.back_edge();
                }
                program.barrier();
                for at in (16..32).flat_map(|page| (0..8).map(move |word| page * PAGE_BYTES + 512 * word)) {
                    assert_eq!(program.load(array + at), 4);
                }
                // Memory that was used before keeps its homes and comes back zeroed.
                program.barrier();
                if me == 3 {
                    program.call(|node| node.free(array));
                    let again = program.call(|node| node.alloc_home(None, 32 * PAGE_BYTES));
                    assert_eq!(again, array);
                    assert!((0..32).all(|page| program.load(array + page * PAGE_BYTES) == 0));
                }
                program.barrier();
                counter(program, Counter::PagesHomed)
            });
            // Each page has one home.
            assert_eq!(homed.iter().sum::<u64>(), 32);
        }
    }
}

fn all_attributes(nodes: u32) -> Vec<Attributes> {
    let sizes = [64].into_iter().chain(SIZES).map(|bytes| BlockSize::new(bytes.into()).unwrap());
    let places = [Placement::RoundRobin, Placement::FirstTouch, Placement::Node(NodeId::new(nodes - 1).unwrap())];
    let placed = sizes.flat_map(|block| places.map(|homes| (block, homes)));
    // Those with operations have their own rules about who stores.
    let protocols = || ALL.into_iter().filter(|protocol| !protocol.has_operations());
    placed
        .flat_map(|(block, homes)| {
            protocols().map(move |protocol| Attributes { block, homes, protocol, operation: None })
        })
        .collect()
}

/// One after the other, memory of every protocol and block size with every kind of homes; the nodes' words alternate in all of it, hints and a bound on copies
/// work on it as on any other, and it comes back zeroed.
#[test]
fn allocations_of_all_protocols_block_sizes_and_homes_live_side_by_side() {
    const WORDS: u64 = 1500;
    for protocol in PROTOCOLS {
        for (nodes, block_bytes, homes) in [(2, 64, 0), (3, 512, 1), (4, 4096, 0)] {
            let shape = |header: &mut contract::RegionHeader| {
                header.block_bytes = block_bytes;
                header.homes = homes;
                header.stache_pages = if nodes == 4 { 16 } else { 0 };
            };
            run_shaped(nodes, protocol, shape, |program| {
                let mut all = all_attributes(nodes);
                let touched: Vec<_> = all.iter().copied().filter(|a| a.homes == Placement::FirstTouch).collect();
                all.extend(touched.into_iter().map(|a| Attributes { homes: Placement::Slices, ..a }));
                let (me, nodes) = (program.me(), u64::from(nodes));
                let at: Vec<u64> = all
                    .iter()
                    .zip(0..)
                    .map(|(&attributes, slot)| {
                        // Each node allocates some of them, so owners are asked from elsewhere, too.
                        if slot % nodes == me {
                            let addr = program.call(|node| node.alloc(attributes, 8 * WORDS, 0).unwrap_or(0));
                            assert!(addr != 0 && addr.is_multiple_of(attributes.block.bytes()));
                            program.call(|node| node.publish(slot, addr));
                        }
                        program.call(|node| node.lookup(slot))
                    })
                    .collect();
                for round in 1..=2 {
                    for step in 0..WORDS / nodes {
                        let word = (step * 97 + round * 31) % (WORDS / nodes) * nodes + me;
                        for (&addr, which) in at.iter().zip(0..) {
                            if (step + which) % 5 == 0 {
                                program.store(addr + 8 * word, round << 48 | which << 32 | word);
                            }
                        }
                        if step % 64 == 0 {
                            let addr = at[(step / 64 % at.len() as u64) as usize];
                            program.call(|node| node.prefetch(addr, 5000, false));
                            program.call(|node| node.check_in(addr, 5000));
                        }
                        program.back_edge();
                    }
                    program.barrier();
                    let other = (me + 1) % nodes;
                    for step in 0..WORDS / nodes {
                        let word = (step * 97 + round * 31) % (WORDS / nodes) * nodes + other;
                        for (&addr, which) in at.iter().zip(0..) {
                            if (step + which) % 5 == 0 {
                                assert_eq!(program.load(addr + 8 * word), round << 48 | which << 32 | word);
                            }
                        }
                        program.back_edge();
                    }
                    program.barrier();
                }
                // Freed by another node than the one that allocated it, and zero when it comes back.
                for (slot, (&attributes, &addr)) in all.iter().zip(&at).enumerate() {
                    if slot as u64 % nodes == (me + 1) % nodes {
                        program.call(|node| node.free(addr));
                        assert_eq!(program.call(|node| node.alloc(attributes, 8 * WORDS, 0).unwrap_or(0)), addr);
                        assert!((0..WORDS).all(|word| program.load(addr + 8 * word) == 0));
                    }
                    program.barrier();
                }
            });
        }
    }
}

/// What an allocation asks for is what it gets: the number of misses, and who is the home.
#[test]
fn an_allocation_has_its_own_block_size_and_homes() {
    for protocol in PROTOCOLS {
        // Each miss is counted, so none may be asked for ahead.
        let shape = |header: &mut contract::RegionHeader| (header.block_bytes, header.look_ahead) = (256, 0);
        run_shaped(2, protocol, shape, |program| {
            let (zero, one) = (NodeId::new(0).unwrap(), NodeId::new(1).unwrap());
            for (slot, bytes) in [64, 128, 256, 512, 1024, 2048, 4096].into_iter().enumerate() {
                let defaults = program.node.alloc_defaults();
                let attributes =
                    Attributes { block: BlockSize::new(bytes).unwrap(), homes: Placement::Node(zero), ..defaults };
                if program.me() == 0 {
                    let at = program.call(|node| node.alloc(attributes, PAGE_BYTES, 0).unwrap_or(0));
                    program.call(|node| node.publish(slot as u64, at));
                }
                let at = program.call(|node| node.lookup(slot as u64));
                if program.me() == 1 {
                    let before = counter(program, Counter::ReadMisses);
                    (0..512).for_each(|word| assert_eq!(program.load(at + 8 * word), 0));
                    assert_eq!(counter(program, Counter::ReadMisses) - before, PAGE_BYTES / bytes);
                }
                program.barrier();
            }
            let block = BlockSize::MIN;
            let homes = |program: &mut Program, homes: Placement, slot: u64| {
                if program.me() == 0 {
                    let at = program.call(|node| {
                        node.alloc(Attributes { block, homes, ..node.alloc_defaults() }, 4 * PAGE_BYTES, 0).unwrap_or(0)
                    });
                    program.call(|node| node.publish(slot, at));
                }
                let at = program.call(|node| node.lookup(slot));
                if program.me() == 1 {
                    (0..4).for_each(|page| program.store(at + page * PAGE_BYTES, page));
                }
                program.barrier();
                (0..4).for_each(|page| assert_eq!(program.load(at + page * PAGE_BYTES), page));
                let Links { home_table, homes, .. } = &**program.node;
                let found: Vec<_> = (0..4).map(|page| home_table.home_of(homes, at + page * PAGE_BYTES)).collect();
                program.barrier();
                found
            };
            let by_turn = homes(program, Placement::RoundRobin, 20);
            assert!(by_turn.windows(2).all(|pair| pair[0].is_some() && pair[0] != pair[1]), "{by_turn:?}");
            assert_eq!(homes(program, Placement::FirstTouch, 21), [Some(one); 4]);
            // As many pages for each node, but for one.
            let nodes = program.node.homes.nodes() as usize;
            let slice = |page: usize| (0..nodes).rev().find(|node| 4 * node / nodes <= page).map(|node| node as u32);
            let slices: Vec<_> = (0..4).map(|page| slice(page).and_then(NodeId::new)).collect();
            assert_eq!(homes(program, Placement::Slices, 24), slices);
            assert_eq!(homes(program, Placement::Node(one), 22), [Some(one); 4]);
            assert_eq!(homes(program, Placement::Node(zero), 23), [Some(zero); 4]);
        });
    }
}

/// An access that reaches from one arena into the next has blocks of two sizes.
#[test]
fn an_access_across_arenas_gets_blocks_of_both_sizes() {
    for protocol in PROTOCOLS {
        run_shaped(
            3,
            protocol,
            |_| {},
            |program| {
                let homes = program.node.homes;
                let all = all_attributes(3).into_iter().filter_map(|attributes| {
                    let (base, bytes) = homes.arena_range(homes.arena_for(attributes)?)?;
                    Some((base, bytes, attributes))
                });
                let mut all: Vec<_> = all.collect();
                all.sort_unstable_by_key(|&(base, ..)| base);
                let pairs = all.windows(2).filter(|pair| pair[0].0 + pair[0].1 == pair[1].0 && pair[0].1 < 1 << 20);
                let pairs: Vec<_> = pairs.map(|pair| (pair[0], pair[1])).collect();
                assert!(pairs.len() > 10);
                let borders: Vec<u64> = pairs.iter().map(|pair| pair.1.0).collect();
                if program.me() == 0 {
                    for &(_, bytes, attributes) in &all {
                        // To the end of the arena, so that its last block has been handed out.
                        if bytes < 1 << 20 {
                            assert_ne!(program.call(|node| node.alloc(attributes, bytes, 0).unwrap_or(0)), 0);
                        }
                    }
                }
                program.barrier();
                for round in 1..=30u64 {
                    for &border in &borders {
                        let value = round << 32 | program.me();
                        program.store(border - 4, value);
                        let got = program.load(border - 4);
                        assert!(got >> 32 <= 30 && got & 0xffff_ffff < 3, "{got:#x}: a mixture");
                        program.back_edge();
                    }
                }
                program.barrier();
            },
        );
    }
}

/// Computes, with polls in loops, until another node has got what it waits for.
fn compute_until(program: &mut Program, done: &AtomicBool) {
    let began = Instant::now();
    while !done.load(Ordering::SeqCst) {
        program.back_edge();
        assert!(began.elapsed() < Duration::from_secs(20), "a node that computes holds another one up");
    }
}

/// The data of a large block filled the ring to its home, which computed and was not told: what made the message complete, and would have told it, waited
/// behind them in the sender's memory.
#[test]
fn a_write_back_larger_than_the_ring_is_told_to_a_home_that_computes() {
    for protocol in PROTOCOLS {
        let done = AtomicBool::new(false);
        run_blocks(3, protocol, 4096, |program| {
            let word = program.shared(8);
            assert_eq!(program.node.home_table.home_of(&program.node.homes, word), NodeId::new(0));
            if program.me() == 1 {
                program.store(word, 7);
            }
            program.barrier();
            match program.me() {
                0 => compute_until(program, &done),
                1 => {}
                _ => {
                    assert_eq!(program.load(word), 7);
                    done.store(true, Ordering::SeqCst);
                }
            }
            program.barrier();
        });
    }
}

/// Blocks that a node had asked for ahead filled the ring to it. Nobody rings for answers, so an invalidation that waited behind them was not
/// told while the node computed.
#[test]
fn a_ring_full_of_answers_holds_nobody_up() {
    for protocol in COPYING {
        let (done, asked) = (AtomicBool::new(false), AtomicBool::new(false));
        run_blocks(3, protocol, 1024, |program| {
            let at = program.shared(4 * PAGE_BYTES);
            let blocks = [0, 1, 2, 3].map(|n| at + 1024 * n);
            assert_eq!(program.node.homes.home_of(at), NodeId::new(0));
            if program.me() == 0 {
                blocks.iter().for_each(|&addr| program.store(addr, 5));
            }
            program.barrier();
            match program.me() {
                0 => {}
                1 => {
                    program.call(|node| blocks.iter().for_each(|&addr| node.prefetch(addr, 8, false)));
                    let home = program.node.region.context(program.node.manager());
                    let began = Instant::now();
                    while home.counter(Counter::SendsBuffered) == 0 {
                        core::hint::spin_loop();
                        assert!(began.elapsed() < Duration::from_secs(20), "the answers fit into the ring");
                    }
                    asked.store(true, Ordering::SeqCst);
                    compute_until(program, &done);
                }
                _ => {
                    while !asked.load(Ordering::SeqCst) {
                        core::hint::spin_loop();
                    }
                    program.store(blocks[3], 6);
                    done.store(true, Ordering::SeqCst);
                }
            }
            program.barrier();
            assert_eq!(program.load(blocks[3]), 6);
            assert_eq!(program.load(blocks[0]), 5);
        });
    }
}
