//! Several nodes in one process: real misses, messages, barriers and locks between threads.
//!
//! Each node has its own copy of the segment and its own tags, so a value can get from one to another by the protocol only. `Program`
//! stands for rewritten code: it tests the tag as a check does, calls the miss, and then accesses the node's copy. Here: that harness, and coherent
//! memory.

use crate::memory::homes::{Attributes, PAGE_BYTES, Placement};
use crate::memory::region::testing::TestRegion;
use crate::node::access::Lane;
use crate::node::user_handlers;
use crate::sync::op::{Op, Reduction, WordCombine, WordType};
use crate::tempest::owner;
use crate::tests::nodes::prelude::*;
use crate::tests::statics::Statics;
use crate::transport::control;
use crate::transport::delaying::network::{self, NetworkSettings};
use crate::transport::delaying::schedule;
use crate::transport::stage;
use blizzard_contract::{self as contract, BLOCK_BYTES, SEGMENT_BASE, node_phase};
use blizzard_protocol::ids::Block;
use blizzard_protocol::tag::Tag;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::vec::Vec;

/// Numbers of protocols in the region's header, in the order of their list.
pub const STACHE: u32 = blizzard_protocol::list::ALL[0].number();
pub const MCM: u32 = blizzard_protocol::list::ALL[1].number();
pub const HOME: u32 = blizzard_protocol::list::ALL[2].number();
/// Those that keep copies of other homes' blocks.
pub const COPYING: [u32; 2] = [STACHE, MCM];
pub const PROTOCOLS: [u32; blizzard_protocol::list::OF_RUNS] = {
    let mut all = [0; blizzard_protocol::list::OF_RUNS];
    let mut at = 0;
    while at < all.len() {
        all[at] = blizzard_protocol::list::RUNS[at].number();
        at += 1;
    }
    all
};

thread_local! {
    /// The protocol of the runs that this thread starts.
    pub static PROTOCOL: Cell<u32> = const { Cell::new(STACHE) };
    /// How their nodes go on.
    pub static WAY: Cell<Way> = const { Cell::new(Way::Threads) };
    /// The node that runs, where they go on one after the other.
    pub static RUNNING: Cell<usize> = const { Cell::new(0) };
    /// How often a message overtook an older one of its pair, in all runs.
    pub static OVERTAKEN: Cell<u64> = const { Cell::new(0) };
    /// The nodes of the runs that this thread starts are on hosts that begin with node 0 and with these ones, as far as there are so many nodes.
    pub static HOSTS: Cell<&'static [u16]> = const { Cell::new(&[]) };
    /// Messages of the last run over the transport of tests, by sender and receiver.
    pub static SENT: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// How the nodes of a run go on, and what is between them.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// Each on a thread of its own, over rings.
    Threads,
    /// All on one thread, from a seed, over rings.
    Rings(u64),
    /// The same, over the transport of tests.
    Delaying(NetworkSettings),
}

pub const SEGMENT_BYTES: u64 = 32 << 20;
/// More nodes than the flat form of a collective takes, and more than there are processors.
pub const TREE_NODES: u32 = 11;

pub fn sum(of: WordType) -> Collective {
    Collective::Reduce(Reduction { combine: WordCombine::Sum, of })
}

/// One node's program.
pub struct Program {
    pub node: Box<Node>,
}

impl Program {
    pub fn new(region: Region, number: u32) -> Program {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let tag_bytes = SEGMENT_BYTES >> contract::BLOCK_SHIFT;
        // SAFETY: new memory of this node alone, unmapped when the program is dropped.
        let space = unsafe {
            let memory = sys::mmap(0, SEGMENT_BYTES + tag_bytes, rw, flags, -1, 0).unwrap();
            let tags = memory + SEGMENT_BYTES;
            (tags as *mut u8).write_bytes(contract::TAG_INVALID, tag_bytes as usize);
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

    pub fn check(&mut self, addr: u64, bytes: u64, store: bool) {
        while !self.node.is_accessible(addr, bytes, store) {
            self.node.miss(addr, bytes, store, false);
            assert!(self.node.is_accessible(addr, bytes, store), "the access must be possible right after the miss");
        }
    }

    pub fn load(&mut self, addr: u64) -> u64 {
        self.check(addr, 8, false);
        // SAFETY: inside the node's copy.
        unsafe { self.node.space.runtime_address(addr).cast::<u64>().read_unaligned() }
    }

    pub fn store(&mut self, addr: u64, value: u64) {
        self.check(addr, 8, true);
        // SAFETY: inside the node's copy.
        unsafe { self.node.space.runtime_address(addr).cast::<u64>().write_unaligned(value) }
    }

    /// Lets others go on.
    pub fn pass(&mut self) {
        if stage::is_directed() {
            stage::pass(self.node.me);
        } else {
            std::thread::yield_now();
        }
    }

    /// A loop's back-edge.
    pub fn back_edge(&mut self) {
        if stage::is_directed() {
            stage::pass(self.node.me);
        }
        if self.node.context.poll().load(Ordering::Relaxed) != 0 || stage::is_directed() && user_handlers::wants_poll()
        {
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
        let at = self.node.space.runtime_address(SEGMENT_BASE) as u64;
        // SAFETY: mapped in `new`; nobody uses it any more.
        let _ = unsafe { sys::munmap(at, SEGMENT_BYTES + (SEGMENT_BYTES >> contract::BLOCK_SHIFT)) };
    }
}

/// How a node of a test run ended, and its last words.
pub struct Ending<R> {
    pub result: Result<R, String>,
    pub message: String,
}

pub fn message_of(region: &Region, number: u32) -> String {
    let context = region.context(NodeId::new(number).unwrap());
    if context.phase().load(Ordering::SeqCst) != node_phase::FAILED {
        return String::new();
    }
    let base = context.poll().as_ptr() as u64 + core::mem::offset_of!(contract::SharedContext, message) as u64;
    // SAFETY: the field is NUL-terminated by `set_message`.
    unsafe { core::ffi::CStr::from_ptr(base as *const _) }.to_string_lossy().into_owned()
}

/// Runs `main` on every node.
pub fn run_with<R: Send>(
    nodes: u32,
    cpus: u32,
    ring_slots: u32,
    main: impl Fn(&mut Program) -> R + core::marker::Sync,
) -> Vec<Ending<R>> {
    let test = TestRegion::with_protocol(nodes, cpus, SEGMENT_BYTES, ring_slots, PROTOCOL.get());
    run_in(test, nodes, main)
}

/// Runs `main` on every node of a region.
pub fn run_in<R: Send>(
    test: TestRegion,
    nodes: u32,
    main: impl Fn(&mut Program) -> R + core::marker::Sync,
) -> Vec<Ending<R>> {
    let region = test.region;
    test.set_hosts(HOSTS.get());
    let run = |number: u32| {
        let mut program = Program::new(region, number);
        catch_unwind(AssertUnwindSafe(|| {
            let result = main(&mut program);
            program.call(Node::finish);
            result
        }))
        .map_err(|panic| panic.downcast_ref::<String>().cloned().unwrap_or_default())
        .inspect_err(|_| control::abort(&region))
    };
    let results = match WAY.get() {
        Way::Threads => std::thread::scope(|scope| {
            let run = &run;
            let threads: Vec<_> = (0..nodes).map(|number| scope.spawn(move || run(number))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        }),
        Way::Rings(seed) => run_staged(region, seed, &run),
        Way::Delaying(settings) => {
            let network = network::SharedNetwork::new(nodes as usize, settings);
            network::set_current(Some(network.clone()));
            let results = run_staged(region, settings.seed, &run);
            network::set_current(None);
            OVERTAKEN.set(OVERTAKEN.get() + network.lock().overtaken());
            SENT.set(network.lock().sent());
            results
        }
    };
    let ending = |(number, result)| Ending { result, message: message_of(&region, number) };
    (0..).zip(results).map(ending).collect()
}

/// Runs the nodes of a region on this thread; each has its state of `tempest.h`.
pub fn run_staged<R>(region: Region, seed: u64, run: &dyn Fn(u32) -> Result<R, String>) -> Vec<Result<R, String>> {
    let nodes = region.header().nodes as usize;
    let settings = owner::TempestSettings { pages: 1, ..owner::TempestSettings::of(region.header()) };
    let statics: Vec<_> = (0..nodes).map(|_| Statics::new(settings, nodes as u32)).collect();
    let results: Vec<_> = (0..nodes).map(|_| RefCell::new(None)).collect();
    let before = |number: usize| {
        RUNNING.set(number);
        // SAFETY: one node runs at a time, and the statics stay until the end of the run.
        unsafe { Statics::set(Some(&statics[number])) };
    };
    let wrong = schedule::run(region, seed, &before, &|number| {
        let result = run(number as u32);
        *results[number].borrow_mut() = Some(result);
    });
    // SAFETY: no node runs any more.
    unsafe { Statics::set(None) };
    let results: Vec<_> = results.into_iter().map(|result| result.into_inner().expect("each node has ended")).collect();
    assert_eq!(wrong, None);
    results
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

/// A run under a protocol; no node may fail.
pub fn run_under<R: Send>(nodes: u32, protocol: u32, main: impl Fn(&mut Program) -> R + core::marker::Sync) -> Vec<R> {
    run_shaped(nodes, protocol, |_| (), main)
}

/// The same with blocks of so many bytes.
pub fn run_blocks<R: Send>(
    nodes: u32,
    protocol: u32,
    block_bytes: u32,
    main: impl Fn(&mut Program) -> R + core::marker::Sync,
) -> Vec<R> {
    run_shaped(nodes, protocol, |header| header.block_bytes = block_bytes, main)
}

/// A run with another header than usual; no node may fail.
pub fn run_shaped<R: Send>(
    nodes: u32,
    protocol: u32,
    shape: impl FnOnce(&mut contract::RegionHeader),
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
pub fn run<R: Send>(nodes: u32, main: impl Fn(&mut Program) -> R + core::marker::Sync) -> Vec<R> {
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
pub fn run_to_failure(nodes: u32, main: impl Fn(&mut Program) + core::marker::Sync) -> String {
    let endings = run_with(nodes, 2, 128, main);
    let mut messages: Vec<String> = endings.into_iter().map(|end| end.message).filter(|m| !m.is_empty()).collect();
    assert_eq!(messages.len(), 1, "{messages:?}");
    messages.remove(0)
}

#[test]
pub fn a_store_on_one_node_is_loaded_on_the_others() {
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
pub fn sixty_four_nodes_share_a_block() {
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
pub fn fetch_add_loses_nothing_under_false_sharing() {
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
pub fn straddling_accesses_get_both_blocks_at_once() {
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
pub fn gathers_get_all_lanes_at_once() {
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
                    unsafe { program.node.space.runtime_address(addr).cast::<u64>().write_unaligned(round) }
                }
            }
            program.back_edge();
        }
    });
}

#[test]
pub fn store_buffering_and_message_passing_are_sequentially_consistent() {
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
pub fn locks_exclude_and_queue() {
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
pub fn reductions_give_every_node_the_same_bits() {
    let results = run(5, |program| {
        let me = program.me();
        let float = 0.1 * (me + 1) as f64 * 1e15f64.powi(me as i32 % 2);
        (0..50)
            .map(|round| {
                let whole = program.call(|node| node.collective_word(sum(WordType::U64), me + round));
                (whole, program.call(|node| node.collective_word(sum(WordType::F64), float.to_bits())))
            })
            .collect::<Vec<_>>()
    });
    assert_eq!(results[0][7].0, 10 + 35);
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
pub fn memory_is_freed_elsewhere_and_comes_back_zeroed() {
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
pub fn an_exhausted_segment_gives_null() {
    run(2, |program| {
        let half = SEGMENT_BYTES / 2;
        assert_eq!(program.call(|node| node.alloc_home(None, half + 1)), 0);
        let me = program.node.me;
        let homes = program.node.homes;
        for number in 0.. {
            let Some(arena) = homes.arena(number) else { break };
            let Some((_, bytes)) = homes.arena_range(arena).filter(|_| !arena.is_pool()) else { continue };
            let zone = arena.zone().map(|zone| NodeId::new(zone as u32).unwrap());
            if zone == Some(me) {
                let attributes = Attributes {
                    block: arena.block(),
                    homes: Placement::Node(me),
                    protocol: arena.protocol(),
                    operation: None,
                };
                assert_ne!(program.call(|node| node.alloc(attributes, bytes, 0).unwrap_or(0)), 0);
                assert_eq!(program.call(|node| node.alloc(attributes, 1, 0).unwrap_or(0)), 0);
            }
        }
        program.barrier();
    });
}

#[test]
pub fn who_allocates_and_frees_small_pieces_asks_nobody() {
    run(2, |program| {
        let turn = |program: &mut Program| {
            let pieces =
                [64, 200, 4096, 64 << 10].map(|bytes| program.call(|node| node.alloc_plain(bytes, 0).unwrap_or(0)));
            assert!(pieces.iter().all(|&piece| piece != 0));
            for piece in pieces {
                program.call(|node| node.free(piece));
            }
            pieces
        };
        // The second time they are zeroed, and come here for that.
        let pieces = turn(program);
        assert_eq!(turn(program), pieces);
        program.barrier();
        let sent = program.node.context.counter(Counter::MessagesSent);
        for _ in 0..10 {
            assert_eq!(turn(program), pieces);
        }
        assert_eq!(program.node.context.counter(Counter::MessagesSent), sent);
        program.barrier();
    });
}

#[test]
pub fn a_home_uses_its_own_memory_without_messages() {
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
pub fn a_read_miss_costs_two_messages() {
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
pub fn tiny_rings_overflow_without_blocking_anybody() {
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
pub fn masked_accesses_may_reach_beyond_what_was_allocated() {
    run(2, |program| {
        let beyond = program.shared(PAGE_BYTES) + PAGE_BYTES;
        program.node.miss(beyond - 32, 64, false, true);
        assert!(program.node.is_accessible(beyond - 32, 32, false));
        assert!(!program.node.is_accessible(beyond, 1, false));
        program.barrier();
    });
}

#[test]
pub fn random_traffic_with_unique_values_stays_coherent() {
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
