//! Several nodes in one process: real misses, messages, barriers and locks between threads.
//!
//! Each node has its own copy of the segment and its own tags, so a value can get from one to another by the protocol only. `Program`
//! stands for rewritten code: it tests the tag as a check does, calls the miss, and then accesses the node's copy.

use super::*;
use crate::abi::{BLOCK_BYTES, SEGMENT_BASE, protocol_number};
use crate::coherence::shuffle::Bag;
use crate::homes::{Attributes, PAGE_BYTES, Placement};
use crate::protocol::Tag;
use crate::region::testing::TestRegion;
use crate::sync::Collective;
use crate::sync::op::{Combine, Op, Reduction, Type};
use crate::tags::Block;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::vec::Vec;

mod under_mcm;

thread_local! {
    /// The protocol of the runs that this thread starts.
    static PROTOCOL: Cell<u32> = const { Cell::new(protocol_number::STACHE) };
    /// Whether messages about blocks overtake each other in them.
    static SHUFFLE: Cell<bool> = const { Cell::new(false) };
}

const SEGMENT_BYTES: u64 = 16 << 20;

fn sum(of: Type) -> Collective {
    Collective::Reduce(Reduction { combine: Combine::Sum, of })
}

/// One node's program.
pub struct Program {
    pub node: Box<Node>,
}

impl Program {
    fn new(region: Region, number: u32) -> Program {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let tag_bytes = SEGMENT_BYTES >> abi::BLOCK_SHIFT;
        // SAFETY: new memory of this node alone, unmapped when the program is dropped.
        let space = unsafe {
            let memory = sys::mmap(0, SEGMENT_BYTES + tag_bytes, rw, flags, -1, 0).unwrap();
            let tags = memory + SEGMENT_BYTES;
            (tags as *mut u8).write_bytes(abi::TAG_INVALID, tag_bytes as usize);
            Space::new(memory, tags, SEGMENT_BYTES)
        };
        let me = NodeId::new(number).unwrap();
        // SAFETY: the harness makes each node once and drops the region last.
        let node = Box::new(unsafe { Node::new(region, me, space) }.unwrap());
        Program { node }
    }

    pub fn me(&self) -> u64 {
        self.node.me.index() as u64
    }

    fn check(&mut self, addr: u64, bytes: u64, store: bool) {
        while !self.node.is_accessible(addr, bytes, store) {
            self.node.miss(addr, bytes, store, false);
            assert!(self.node.is_accessible(addr, bytes, store), "the access must be possible right after the miss");
        }
    }

    pub fn load(&mut self, addr: u64) -> u64 {
        self.check(addr, 8, false);
        // SAFETY: inside the node's copy.
        unsafe { self.node.space.local(addr).cast::<u64>().read_unaligned() }
    }

    pub fn store(&mut self, addr: u64, value: u64) {
        self.check(addr, 8, true);
        // SAFETY: inside the node's copy.
        unsafe { self.node.space.local(addr).cast::<u64>().write_unaligned(value) }
    }

    /// A loop's back-edge.
    pub fn back_edge(&mut self) {
        if self.node.context.poll().load(Ordering::Relaxed) != 0 {
            self.node.poll();
        }
    }

    /// A call of `blizzard.h`.
    pub fn call<R>(&mut self, run: impl FnOnce(&mut Node) -> R) -> R {
        self.node.begin();
        let result = run(&mut self.node);
        self.node.leave();
        result
    }

    pub fn barrier(&mut self) {
        self.call(|node| node.collective(Collective::Barrier, &mut []));
    }

    /// Node 0 allocates with homes by policy; all get the address.
    pub fn shared(&mut self, bytes: u64) -> u64 {
        if self.me() == 0 {
            let addr = self.call(|node| node.alloc_home(None, bytes));
            assert_ne!(addr, 0);
            self.call(|node| node.publish(0, addr));
        }
        self.call(|node| node.lookup(0))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let at = self.node.space.local(SEGMENT_BASE) as u64;
        // SAFETY: mapped in `new`; nobody uses it any more.
        let _ = unsafe { sys::munmap(at, SEGMENT_BYTES + (SEGMENT_BYTES >> abi::BLOCK_SHIFT)) };
    }
}

/// How a node of a test run ended, and its last words.
struct Ending<R> {
    result: Result<R, String>,
    message: String,
}

fn message_of(region: &Region, number: u32) -> String {
    let context = region.context(NodeId::new(number).unwrap());
    if context.phase().load(Ordering::SeqCst) != node_phase::FAILED {
        return String::new();
    }
    let base = context.poll().as_ptr() as u64 + core::mem::offset_of!(abi::SharedContext, message) as u64;
    // SAFETY: the field is NUL-terminated by `set_message`.
    unsafe { core::ffi::CStr::from_ptr(base as *const _) }.to_string_lossy().into_owned()
}

/// Runs `main` on every node.
fn run_with<R: Send>(
    nodes: u32,
    cpus: u32,
    ring_slots: u32,
    main: impl Fn(&mut Program) -> R + core::marker::Sync,
) -> Vec<Ending<R>> {
    let test = TestRegion::with_protocol(nodes, cpus, SEGMENT_BYTES, ring_slots, PROTOCOL.get());
    run_in(test, nodes, main)
}

/// Runs `main` on every node of a region.
fn run_in<R: Send>(
    test: TestRegion,
    nodes: u32,
    main: impl Fn(&mut Program) -> R + core::marker::Sync,
) -> Vec<Ending<R>> {
    let region = test.region;
    let shuffle = SHUFFLE.get();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..nodes)
            .map(|number| {
                let main = &main;
                scope.spawn(move || {
                    let mut program = Program::new(region, number);
                    program.node.coherence.bag = shuffle.then(|| Bag::new(0x5851_f42d_4c95_7f2d << number));
                    catch_unwind(AssertUnwindSafe(|| {
                        let result = main(&mut program);
                        program.call(Node::finish);
                        result
                    }))
                    .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
                    .inspect_err(|_| transport::abort(&region))
                })
            })
            .collect();
        let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        let ending = |(number, result)| Ending { result, message: message_of(&region, number) };
        (0..).zip(results).map(ending).collect()
    })
}

/// A run in which each node has copies of at most `pages` pages (0: of any number); no node may fail.
pub fn run_finite<R: Send>(
    nodes: u32,
    pages: u32,
    protocol: u32,
    main: impl Fn(&mut Program) -> R + core::marker::Sync,
) -> Vec<R> {
    run_shaped(nodes, protocol, |header| header.stache_pages = pages, main)
}

/// A run with another header than usual; no node may fail.
pub fn run_shaped<R: Send>(
    nodes: u32,
    protocol: u32,
    shape: impl FnOnce(&mut abi::RegionHeader),
    main: impl Fn(&mut Program) -> R + core::marker::Sync,
) -> Vec<R> {
    let mut test = TestRegion::with_protocol(nodes, 2, SEGMENT_BYTES, 16, protocol);
    test.region.change_header(shape);
    let endings = run_in(test, nodes, |program| {
        let result = main(program);
        assert_eq!(program.node.context.counter(Counter::MessagesRejected), 0);
        result
    });
    endings.into_iter().map(|end| end.result.unwrap_or_else(|why| panic!("{why} {}", end.message))).collect()
}

/// [`run_with`] where no node may fail; nothing may have been rejected.
fn run<R: Send>(nodes: u32, main: impl Fn(&mut Program) -> R + core::marker::Sync) -> Vec<R> {
    let checked = |program: &mut Program| {
        let result = main(program);
        assert_eq!(program.node.context.counter(Counter::MessagesRejected), 0);
        result
    };
    // Two processors, as many as the smallest machines have: more nodes must yield to each other.
    let endings = run_with(nodes, 2, 8, checked);
    endings.into_iter().map(|end| end.result.unwrap_or_else(|why| panic!("{why} {}", end.message))).collect()
}

/// A run that must fail: the message that the failing node leaves.
fn run_to_failure(nodes: u32, main: impl Fn(&mut Program) + core::marker::Sync) -> String {
    let endings = run_with(nodes, 2, 128, main);
    let mut messages: Vec<String> = endings.into_iter().map(|end| end.message).filter(|m| !m.is_empty()).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

#[test]
fn a_store_on_one_node_is_loaded_on_the_others() {
    for nodes in [2, 3, 4, 8] {
        run(nodes, |program| {
            let array = program.shared(8 * 4096);
            for round in 0..3 {
                for turn in 0..u64::from(nodes) {
                    if program.me() == turn {
                        for word in 0..4096 {
                            program.store(array + 8 * word, round << 32 | turn << 16 | word);
                        }
                    }
                    program.barrier();
                    for word in (program.me()..4096).step_by(5) {
                        assert_eq!(program.load(array + 8 * word), round << 32 | turn << 16 | word);
                    }
                    program.barrier();
                }
            }
        });
    }
}

/// The forms of a directory entry follow each other: one pointer, six, a vector, a record, and back.
#[test]
fn sixty_four_nodes_share_a_block() {
    run(64, |program| {
        let words = program.shared(2 * PAGE_BYTES);
        for round in 1..=3 {
            for (writer, word) in [(63, words), (0, words + 64), (round, words + PAGE_BYTES)] {
                if program.me() == writer {
                    program.store(word, round << 8 | writer);
                }
                program.barrier();
                assert_eq!(program.load(word), round << 8 | writer);
            }
            program.barrier();
            program.call(|node| node.fetch_op(Op::Add, words + 128, 1, 0));
        }
        program.barrier();
        assert_eq!(program.load(words + 128), 3 * 64);
    });
}

#[test]
fn fetch_add_loses_nothing_under_false_sharing() {
    for nodes in [2, 4, 8] {
        let sums = run(nodes, |program| {
            let words = program.shared(BLOCK_BYTES);
            for round in 0..2000 {
                // Eight counters in one block, each added to by everyone.
                program.call(|node| node.fetch_op(Op::Add, words + 8 * (round % 8), 1, 0));
                program.back_edge();
            }
            program.barrier();
            (0..8).map(|word| program.load(words + 8 * word)).sum::<u64>()
        });
        assert!(sums.iter().all(|&sum| sum == 2000 * u64::from(nodes)), "{sums:?}");
    }
}

#[test]
fn straddling_accesses_get_both_blocks_at_once() {
    run(4, |program| {
        // Words across block and page borders; every pair of nodes wants overlapping pairs of blocks.
        let array = program.shared(3 * PAGE_BYTES);
        for round in 0..1500u64 {
            let border = array + BLOCK_BYTES * (62 + (round + program.me()) % 4);
            if (round + program.me()) % 3 == 0 {
                let value = u64::from_ne_bytes([program.me() as u8 + 1; 8]);
                program.store(border - 3, value);
            } else {
                // All bytes of one store: a word is never torn, because a store holds both its blocks.
                let bytes = program.load(border - 3).to_ne_bytes();
                assert!(bytes.iter().all(|&byte| byte == bytes[0]), "{bytes:?}");
            }
            program.back_edge();
        }
    });
}

#[test]
fn gathers_get_all_lanes_at_once() {
    run(3, |program| {
        let array = program.shared(4 * PAGE_BYTES);
        for round in 0..1000u64 {
            let store = (round + program.me()) % 4 == 0;
            let lanes: Vec<Lane> = (0..14)
                .map(|lane| {
                    let addr = array + (lane * 1000 + round * 64) % (4 * PAGE_BYTES - 200);
                    // Some lanes of a group of checks only load.
                    let store = store && lane % 3 != 2;
                    Lane { addr, bytes: if lane < 12 { 8 } else { 140 }, store, masked: false }
                })
                .collect();
            program.call(|node| node.access_lanes(&lanes));
            for &Lane { addr, bytes, store, .. } in &lanes {
                assert!(program.node.is_accessible(addr, bytes, store));
                if store {
                    // SAFETY: inside the node's copy.
                    unsafe { program.node.space.local(addr).cast::<u64>().write_unaligned(round) }
                }
            }
            program.back_edge();
        }
    });
}

#[test]
fn store_buffering_and_message_passing_are_sequentially_consistent() {
    let results = run(2, |program| {
        let base = program.shared(4 * PAGE_BYTES);
        let (mine, other) = (base + program.me() * PAGE_BYTES, base + (1 - program.me()) * PAGE_BYTES);
        (1..=3000)
            .map(|round| {
                program.store(mine, round);
                let seen = program.load(other);
                program.barrier();
                seen == round
            })
            .collect::<Vec<_>>()
    });
    // SB: at least one of the two loads sees the other's store.
    assert!((0..3000).all(|round| results[0][round] || results[1][round]));
    run(2, |program| {
        let data = program.shared(4 * PAGE_BYTES);
        let flag = data + PAGE_BYTES;
        for round in 1..=2000 {
            if program.me() == 0 {
                program.store(data, round);
                program.store(flag, round);
            } else {
                while program.load(flag) < round {
                    program.back_edge();
                }
                assert!(program.load(data) >= round);
            }
            program.back_edge();
        }
    });
}

#[test]
fn locks_exclude_and_queue() {
    for nodes in [2, 4, 8] {
        run(nodes, |program| {
            let words = program.shared(2 * PAGE_BYTES);
            let lock = if program.me() == u64::from(nodes) - 1 {
                let lock = program.call(Node::lock_new);
                program.call(|node| node.publish(1, lock));
                lock
            } else {
                program.call(|node| node.lookup(1))
            };
            for round in 0..300 {
                if round % 5 == 0 {
                    while !program.call(|node| node.trylock(lock)) {
                        program.back_edge();
                    }
                } else {
                    program.call(|node| node.lock(lock));
                }
                let (a, b) = (program.load(words), program.load(words + PAGE_BYTES));
                assert_eq!(a, b);
                program.store(words, a + 1);
                program.store(words + PAGE_BYTES, b + 1);
                program.call(|node| node.unlock(lock));
            }
            program.barrier();
            assert_eq!(program.load(words), 300 * u64::from(nodes));
        });
    }
}

#[test]
fn reductions_give_every_node_the_same_bits() {
    let results = run(5, |program| {
        let me = program.me();
        let float = 0.1 * (me + 1) as f64 * 1e15f64.powi(me as i32 % 2);
        (0..50)
            .map(|round| {
                let whole = program.call(|node| node.collective_word(sum(Type::U64), me + round));
                (whole, program.call(|node| node.collective_word(sum(Type::F64), float.to_bits())))
            })
            .collect::<Vec<_>>()
    });
    assert_eq!(results[0][7].0, 10 + 35);
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn memory_is_freed_elsewhere_and_comes_back_zeroed() {
    run(4, |program| {
        let me = program.me();
        for round in 0..40u64 {
            // Each node allocates, in turn by policy, on itself and on its neighbour.
            let home =
                [None, Some(me), Some((me + 1) % 4)][(round % 3) as usize].map(|n| NodeId::new(n as u32).unwrap());
            let words = 8 * (1 + (round * 7 + me) % 40);
            let addr = program.call(|node| node.alloc_home(home, 8 * words));
            assert!(addr.is_multiple_of(64));
            if let Some(home) = home {
                assert_eq!(program.node.homes.home_of(addr), Some(home));
            }
            for word in 0..words {
                assert_eq!(program.load(addr + 8 * word), 0);
                program.store(addr + 8 * word, round << 8 | me);
            }
            program.call(|node| node.publish(8 + me as u32 as u64, addr));
            program.barrier();
            let neighbour = (me + 1) % 4;
            let theirs = program.call(|node| node.lookup(8 + neighbour));
            assert_eq!(program.load(theirs), round << 8 | neighbour);
            program.barrier();
            program.call(|node| node.free(theirs));
            program.barrier();
        }
        assert_eq!(program.node.context.counter(Counter::Allocations), 40);
    });
}

#[test]
fn an_exhausted_segment_gives_null() {
    run(2, |program| {
        let half = SEGMENT_BYTES / 2;
        assert_eq!(program.call(|node| node.alloc_home(None, half + 1)), 0);
        let me = program.node.me;
        let homes = program.node.homes;
        for number in 0.. {
            let Some(arena) = homes.arena(number) else { break };
            let (_, bytes) = homes.arena_range(arena).unwrap();
            let zone = arena.zone().map(|zone| NodeId::new(zone as u32).unwrap());
            if zone == Some(me) {
                let attributes = Attributes { block: arena.block(), homes: Placement::Node(me) };
                assert_ne!(program.call(|node| node.alloc(attributes, bytes)), 0);
                assert_eq!(program.call(|node| node.alloc(attributes, 1)), 0);
            }
        }
        program.barrier();
    });
}

#[test]
fn a_home_uses_its_own_memory_without_messages() {
    run(2, |program| {
        let me = program.node.me;
        let addr = program.call(|node| node.alloc_home(Some(me), 64 * PAGE_BYTES));
        program.barrier();
        let sent = program.node.context.counter(Counter::MessagesSent);
        for word in 0..64 * PAGE_BYTES / 8 {
            program.store(addr + 8 * word, word);
        }
        assert_eq!(program.node.context.counter(Counter::MessagesSent), sent);
        // One fault per page: the first touch raises the whole page.
        assert_eq!(program.node.context.counter(Counter::WriteMisses), 64);
        program.barrier();
    });
}

#[test]
fn a_read_miss_costs_two_messages() {
    let counts = run(2, |program| {
        let (home, reader) = (program.me() == 0, program.me() == 1);
        let zero = NodeId::new(0);
        if home {
            let addr = program.call(|node| node.alloc_home(zero, PAGE_BYTES));
            program.store(addr, 5);
            program.call(|node| node.publish(0, addr));
        }
        let addr = program.call(|node| node.lookup(0));
        if reader {
            // Learns how far memory has been handed out.
            program.load(addr + BLOCK_BYTES);
        }
        program.barrier();
        let before = program.node.context.counter(Counter::MessagesSent);
        if reader {
            assert_eq!(program.load(addr), 5);
        }
        let after = program.node.context.counter(Counter::MessagesSent);
        program.barrier();
        assert_eq!(program.node.space.tag(Block::of(addr)), Some(Tag::ReadOnly));
        after - before
    });
    assert_eq!(counts[1], 1);
}

#[test]
fn tiny_rings_overflow_without_blocking_anybody() {
    let endings = run_with(4, 2, 2, |program| {
        let words = program.shared(64 * PAGE_BYTES);
        // Remote writes are not answered, so nothing but the ring limits their sender. All nodes of a test are in one process.
        let mut mine = [0u64; 8];
        let at = mine.as_mut_ptr() as u64;
        let next = NodeId::new((program.me() as u32 + 1) % 4).unwrap();
        for round in 0..2000u64 {
            // SAFETY: the word outlives the call, and the array the fence.
            program.call(|node| unsafe { node.remote_write(next, at + round % 8 * 8, &raw const round as u64, 8) });
            if round % 50 == 0 {
                program.call(|node| node.fetch_op(Op::Add, words + (round * 64) % (64 * PAGE_BYTES), 1, 0));
            }
        }
        program.call(Node::remote_fence);
        assert_eq!(mine.iter().sum::<u64>(), (1992..2000).sum::<u64>());
        program.barrier();
        let total: u64 = (0..40).map(|n| program.load(words + (n * 50 * 64) % (64 * PAGE_BYTES))).sum();
        (total, program.node.context.counter(Counter::SendsBuffered))
    });
    let results: Vec<_> = endings.into_iter().map(|end| end.result.unwrap()).collect();
    assert!(results.iter().all(|&(total, _)| total == 160), "{results:?}");
    assert!(results.iter().any(|&(_, buffered)| buffered > 0));
}

#[test]
fn masked_accesses_may_reach_beyond_what_was_allocated() {
    run(2, |program| {
        let beyond = program.shared(PAGE_BYTES) + PAGE_BYTES;
        program.node.miss(beyond - 32, 64, false, true);
        assert!(program.node.is_accessible(beyond - 32, 32, false));
        assert!(!program.node.is_accessible(beyond, 1, false));
        program.barrier();
    });
}

#[test]
fn random_traffic_with_unique_values_stays_coherent() {
    // Each word has one writer that counts it up; nobody may ever see a word go back.
    const WORDS: u64 = 64;
    for (nodes, slots) in [(3, 128), (4, 2), (8, 4)] {
        let endings = run_with(nodes, 2, slots, |program| {
            let base = program.shared(WORDS * 8);
            let mut seen = [0u64; WORDS as usize];
            let mut seed = 0x9e37_79b9_7f4a_7c15 ^ (program.me() + 1);
            for _ in 0..4000 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let word = seed % WORDS;
                let last = &mut seen[word as usize];
                if word % u64::from(nodes) == program.me() && seed & 0x10000 != 0 {
                    *last += 1;
                    program.store(base + 8 * word, *last);
                } else {
                    let value = program.load(base + 8 * word);
                    assert!(value >= *last, "word {word} went from {last} back to {value}");
                    if word % u64::from(nodes) == program.me() {
                        assert_eq!(value, *last, "somebody else wrote word {word}");
                    }
                    *last = value;
                }
                program.back_edge();
            }
            program.barrier();
            (0..WORDS).map(|word| program.load(base + 8 * word)).collect::<Vec<_>>()
        });
        let finals: Vec<_> = endings.into_iter().map(|end| end.result.unwrap()).collect();
        assert!(finals.iter().all(|words| *words == finals[0]));
        assert!(finals[0].iter().sum::<u64>() > 1000);
    }
}

#[test]
fn misuse_ends_the_run_with_one_clear_error() {
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
                std::thread::yield_now();
            }
            program.call(|node| node.collective_word(sum(Type::U64), 1));
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
                let lock =
                    crate::sync::handle::Handle { kind: crate::sync::handle::Kind::Lock, home, index: 5 }.encode();
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
fn waits_for_a_node_that_has_exited_are_found() {
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
fn a_node_that_has_exited_still_serves_its_blocks() {
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
fn hostile_messages_are_counted_and_dropped() {
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
            let mut message = Message { handler: random() as u16 % 50, addr: random(), ..Message::default() };
            // Calls and collectives with wild arguments; those that would be legal requests are left out.
            message.args = [random() | 1 << 50, random(), random()];
            message.key = random() | 1 << 50;
            message.length = [0, 64, 1, 255][random() as usize % 4];
            let legal = [
                crate::msg::id::EXITED,
                crate::msg::id::LOCK_ACQUIRE,
                crate::msg::id::LOCK_TRY,
                crate::msg::id::LOCK_RELEASE,
                crate::msg::id::BARRIER_ARRIVE,
                crate::msg::id::EVENT_SET,
                crate::msg::id::EVENT_WAIT,
                crate::msg::id::COUNTER_OP,
                crate::msg::id::REMOTE_FENCE,
            ];
            if !legal.contains(&message.handler) {
                program.call(|node| node.send(other, message));
            }
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

/// More nodes than the flat form of a collective takes, and more than there are processors.
const TREE_NODES: u32 = 11;

#[test]
fn reductions_of_vectors_go_through_a_tree() {
    let endings = run(TREE_NODES, |program| {
        let me = program.me();
        let mut results = Vec::new();
        for round in 0..200u64 {
            for combine in [Combine::Sum, Combine::Min, Combine::Max] {
                let of = if round % 2 == 0 { Type::U64 } else { Type::F64 };
                let word =
                    |k: u64| if of == Type::U64 { (me + 3) * (k + round) } else { ((me + k) as f64 / 3.0).to_bits() };
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
fn broadcasts_reach_every_node_from_any() {
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
fn some_nodes_meet_at_a_barrier_while_the_others_compute() {
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
fn events_wake_whoever_waits() {
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
fn counters_count_every_operation_once() {
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
fn remote_writes_are_there_after_the_fence() {
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
fn a_wrong_address_of_a_remote_write_is_an_error_at_the_receiver() {
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
