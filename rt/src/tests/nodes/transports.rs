//! The tests of the other modules once more, on both transports, from seeds: engine with all protocols, synchronisation, `tempest.h`, bulk data.
//!
//! All nodes run on one thread. A test that fails says with which seed; the environment variable `BLIZZARD_SEED` repeats that one.

use crate::memory::homes::PAGE_BYTES;
use crate::process::host::CallHost;
use crate::sync::op::Op;
use crate::tempest::bulk::{channels, transfer};
use crate::tempest::messages::{arrived, sending};
use crate::tests::nodes::common::*;
use crate::tests::nodes::failures::*;
use crate::tests::nodes::prelude::*;
use crate::tests::nodes::sync::*;
use crate::transport::control;
use crate::transport::delaying::network::NetworkSettings;
use crate::transport::patience::Wait;
use blizzard_contract as contract;
use blizzard_contract::tempest::{SendItem, item_kind};
use blizzard_contract::{STAGE_PIECE_BYTES, waits};
use blizzard_protocol::bugs::Bug;
use core::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The longest that a message takes, in these tests: shorter and much longer than a step of a node.
const LONGEST_NS: [u64; 3] = [2_000, 50_000, 1_000_000];

fn delaying(seed: u64) -> Way {
    Way::Delaying(NetworkSettings { longest_ns: LONGEST_NS[seed as usize % 3], ..NetworkSettings::new(seed) })
}

/// The same with little room and with messages about blocks that overtake each other, as only some protocols bear.
fn overtaking(seed: u64) -> Way {
    let Way::Delaying(settings) = delaying(seed) else { return Way::Threads };
    Way::Delaying(NetworkSettings { overtaking: true, ..settings })
}

/// Runs a test on that transport with so many seeds.
fn each_seed(way: fn(u64) -> Way, seeds: u64, test: impl Fn()) {
    let chosen = std::env::var("BLIZZARD_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in chosen.map_or(0..seeds, |seed: u64| seed..seed + 1) {
        WAY.set(way(seed));
        let result = catch_unwind(AssertUnwindSafe(&test));
        WAY.set(Way::Threads);
        if let Err(panic) = result {
            println!("BLIZZARD_SEED={seed}: protocol {}, {:?}", PROTOCOL.get(), way(seed));
            resume_unwind(panic);
        }
    }
}

/// Those tests under these protocols, on both transports, with so many seeds.
macro_rules! on_both {
    ($module:ident, $protocols:expr, $seeds:expr; $($name:ident)*) => {
        mod $module {
            mod rings {
                $(#[test]
                fn $name() {
                    super::super::under($protocols, super::super::Way::Rings, $seeds, super::super::$name);
                })*
            }
            mod delaying {
                $(#[test]
                fn $name() {
                    super::super::under($protocols, super::super::delaying, $seeds, super::super::$name);
                })*
            }
        }
    };
}

fn under(protocols: impl IntoIterator<Item = u32>, way: fn(u64) -> Way, seeds: u64, test: fn()) {
    for protocol in protocols {
        PROTOCOL.set(protocol);
        each_seed(way, seeds, test);
    }
}

on_both! { engine, crate::tests::nodes::common::PROTOCOLS, 3;
    a_store_on_one_node_is_loaded_on_the_others
    fetch_add_loses_nothing_under_false_sharing
    straddling_accesses_get_both_blocks_at_once
    gathers_get_all_lanes_at_once
    store_buffering_and_message_passing_are_sequentially_consistent
    random_traffic_with_unique_values_stays_coherent
    tiny_rings_overflow_without_blocking_anybody
    masked_accesses_may_reach_beyond_what_was_allocated
    a_home_uses_its_own_memory_without_messages
    a_node_that_has_exited_still_serves_its_blocks
    hostile_messages_are_counted_and_dropped
}

// What has come from another home stays.
on_both! { staying, crate::tests::nodes::common::COPYING, 3;
    who_allocates_and_frees_small_pieces_asks_nobody
}

on_both! { many, crate::tests::nodes::common::PROTOCOLS, 1;
    sixty_four_nodes_share_a_block
}

on_both! { synchronisation, [crate::tests::nodes::common::STACHE], 6;
    locks_exclude_and_queue
    reductions_give_every_node_the_same_bits
    memory_is_freed_elsewhere_and_comes_back_zeroed
    reductions_of_vectors_go_through_a_tree
    broadcasts_reach_every_node_from_any
    some_nodes_meet_at_a_barrier_while_the_others_compute
    events_wake_whoever_waits
    counters_count_every_operation_once
    remote_writes_are_there_after_the_fence
    misuse_ends_the_run_with_one_clear_error
    waits_for_a_node_that_has_exited_are_found
}

on_both! { programs, [crate::tests::nodes::common::STACHE], 40;
    messages_of_programs_arrive_once_and_in_order
    bulk_data_arrive_whole
}

/// Messages about blocks that overtake each other, as this protocol promises to bear.
mod overtaking {
    use crate::tests::nodes::common::MCM;

    macro_rules! overtaking {
        ($($name:ident)*) => {
            $(#[test]
            fn $name() {
                super::under([MCM], super::overtaking, 4, super::$name);
            })*
        };
    }

    overtaking! {
        a_store_on_one_node_is_loaded_on_the_others
        fetch_add_loses_nothing_under_false_sharing
        straddling_accesses_get_both_blocks_at_once
        gathers_get_all_lanes_at_once
        store_buffering_and_message_passing_are_sequentially_consistent
        locks_exclude_and_queue
        memory_is_freed_elsewhere_and_comes_back_zeroed
        tiny_rings_overflow_without_blocking_anybody
        random_traffic_with_unique_values_stays_coherent
        a_node_that_has_exited_still_serves_its_blocks
    }

    /// The tests above test what they say.
    #[test]
    fn messages_do_overtake_each_other() {
        super::under([MCM], super::overtaking, 4, super::random_traffic_with_unique_values_stays_coherent);
        assert!(super::OVERTAKEN.get() > 50, "{}", super::OVERTAKEN.get());
    }
}

const PROGRAMS: usize = 3;

thread_local! {
    /// By node, while its program runs: the node, which handlers of its program use.
    static NODES: Cell<[*mut Node; PROGRAMS]> = const { Cell::new([core::ptr::null_mut(); PROGRAMS]) };
    /// By receiver and sender: what has come, and what has been answered.
    static COME: RefCell<[[Vec<u32>; PROGRAMS]; PROGRAMS]> = RefCell::default();
    static ANSWERED: Cell<[u32; PROGRAMS]> = const { Cell::new([0; PROGRAMS]) };
}

/// The node whose handler runs.
fn here() -> &'static mut Node {
    // SAFETY: the handler has the node, which its program keeps until its end.
    unsafe { &mut *NODES.get()[RUNNING.get()] }
}

fn word(value: u32) -> SendItem {
    SendItem { kind: item_kind::WORD, change: 0, len: value as i32, _pad: 0, addr: 0 }
}

/// Body of the message with that number.
fn body(number: u32) -> impl Iterator<Item = u32> {
    let words = [1, 2, 6, 7, 22, 23, 100][number as usize % 7];
    (0..words).map(move |at| number.wrapping_mul(31) + at)
}

unsafe extern "C" fn on_numbers(from: u32, bytes: i32) {
    let words: Vec<u32> = (0..bytes / 4).map(|_| arrived::recv_w() as u32).collect();
    let number = COME.with_borrow(|come| come[RUNNING.get()][from as usize].len() as u32);
    assert!(words.iter().copied().eq(body(number)), "message {number} of node {from}");
    COME.with_borrow_mut(|come| come[RUNNING.get()][from as usize].push(number));
    sending::send(&mut CallHost::Node(here()), from, on_answer as *const () as u64, &[word(number)]);
}

unsafe extern "C" fn on_answer(_from: u32, _bytes: i32) {
    let _ = arrived::recv_w();
    note_answer();
}

unsafe extern "C" fn on_sent(_to: u32, _channel: i32) {
    note_answer();
}

fn note_answer() {
    let mut answered = ANSWERED.get();
    answered[RUNNING.get()] += 1;
    ANSWERED.set(answered);
}

/// Makes the program's node known to its handlers.
fn let_handlers_use(program: &mut Program) -> usize {
    let me = program.me() as usize;
    let mut nodes = NODES.get();
    nodes[me] = &raw mut *program.node;
    NODES.set(nodes);
    me
}

/// Fine-grain messages of all lengths, each answered by its handler, beside misses.
fn messages_of_programs_arrive_once_and_in_order() {
    const EACH: u32 = 60;
    COME.set(Default::default());
    ANSWERED.set([0; PROGRAMS]);
    run(PROGRAMS as u32, |program| {
        let me = let_handlers_use(program);
        let words = program.shared(PAGE_BYTES);
        for number in 0..EACH {
            for to in (0..PROGRAMS as u32).filter(|&to| to as usize != me) {
                let items: Vec<_> = body(number).map(word).collect();
                let function = on_numbers as *const () as u64;
                program.call(|node| sending::send(&mut CallHost::Node(node), to, function, &items));
            }
            program.call(|node| node.fetch_op(Op::Add, words + 64 * u64::from(number % 4), 1, 0));
            program.back_edge();
        }
        let all = 2 * EACH;
        program.call(|node| node.wait_running_handlers(Wait::Other, (waits::WAKEUP, 0), || ANSWERED.get()[me] == all));
        program.barrier();
        assert_eq!((0..4).map(|at| program.load(words + 64 * at)).sum::<u64>(), u64::from(EACH) * PROGRAMS as u64);
        COME.with_borrow(|come| assert_eq!(come[me].iter().map(Vec::len).sum::<usize>(), all as usize));
    });
}

/// Bulk data from each node to the next, of sizes around those of pieces, through the staging area and taken over.
fn bulk_data_arrive_whole() {
    ignore_calls();
    ANSWERED.set([0; PROGRAMS]);
    let pieces = STAGE_PIECE_BYTES as usize;
    let sizes = [4, 64, pieces - 4, pieces, pieces + 4, 5 * pieces + 100, 20 * pieces];
    run(PROGRAMS as u32, |program| {
        let me = let_handlers_use(program);
        // The destination copies what is not staged out of this process's memory.
        control::join(&program.node.context, std::process::id());
        program.barrier();
        let [next, before] = [1, PROGRAMS - 1].map(|step| NodeId::new(((me + step) % PROGRAMS) as u32).unwrap());
        for (round, &bytes) in sizes.iter().enumerate() {
            let content = |from: usize| (0..bytes).map(move |at| (at * 7 + from + round) as u8);
            let sent: Vec<u64> = vec![0; bytes.div_ceil(8)];
            let arriving: Vec<u64> = vec![0; bytes.div_ceil(8)];
            let [sent_at, arriving_at] = [&sent, &arriving].map(|buffer| buffer.as_ptr() as *mut u8);
            // SAFETY: inside the buffer, which nobody else uses.
            content(me).enumerate().for_each(|(at, byte)| unsafe { sent_at.add(at).write_volatile(byte) });
            let channel = channels::set_source(next, on_sent as *const () as u64);
            program.call(|node| {
                transfer::set_destination(
                    &mut CallHost::Node(node),
                    before,
                    channel,
                    (arriving_at as u64, bytes as i32),
                    0,
                    false,
                );
            });
            program.barrier();
            program.call(|node| transfer::send(&mut CallHost::Node(node), next, channel, sent_at as u64, bytes as i32));
            program.call(|node| {
                node.wait_running_handlers(Wait::Other, (waits::WAKEUP, 0), || channels::is_ready(before, channel))
            });
            // SAFETY: as above.
            let right = content(before.index())
                .enumerate()
                .all(|(at, byte)| unsafe { arriving_at.add(at).read_volatile() } == byte);
            assert!(right, "{bytes} bytes from node {} to node {me}", before.index());
            program.barrier();
            channels::destroy(channels::ChannelEnd::Destination, before, channel);
            program.call(|node| {
                node.wait_running_handlers(Wait::Other, (waits::WAKEUP, 0), || ANSWERED.get()[me] as usize > round)
            });
            channels::destroy(channels::ChannelEnd::Source, next, channel);
        }
        program.barrier();
    });
}

/// Nodes of these tests are called by a signal like others, but are one process.
fn ignore_calls() {
    let action = [libc::SIG_IGN as u64, 0, 0, 0];
    // SAFETY: the kernel reads its own structure: handler, flags, restorer, mask.
    let result =
        unsafe { libc::syscall(libc::SYS_rt_sigaction, blizzard_contract::CALL_SIGNAL, &raw const action, 0, 8) };
    assert_eq!(result, 0);
}

/// Whoever waits for a node of which nothing comes any more, and which nobody sees live, ends the run and names it.
#[test]
fn a_node_that_falls_silent_is_named() {
    for protocol in PROTOCOLS {
        PROTOCOL.set(protocol);
        for seed in 0..20 {
            let silent = NodeId::new(seed as u32 % 3).unwrap();
            WAY.set(Way::Delaying(NetworkSettings {
                silent: Some((silent, 5 + 9 * seed)),
                ..NetworkSettings::new(seed)
            }));
            let endings = run_with(3, 2, 16, |program| {
                let words = program.shared(PAGE_BYTES);
                for round in 0..2000 {
                    program.call(|node| node.fetch_op(Op::Add, words + 64 * (round % 4), 1, 0));
                    program.back_edge();
                }
                program.barrier();
            });
            WAY.set(Way::Threads);
            let expected = format!("node {} has not answered for 60.", silent.index());
            let others = (0..).zip(&endings).filter(|&(number, _)| number != silent.index());
            let words: Vec<_> =
                others.map(|(_, ending)| &ending.message).filter(|message| !message.is_empty()).collect();
            assert!(
                !words.is_empty() && words.iter().all(|message| message.starts_with(&expected)),
                "seed {seed}: {words:?}"
            );
        }
    }
}

/// Each node writes to the next one, without an answer, and waits with a fence that this has arrived; then all meet, poll and look. True: somebody saw an
/// old value.
fn is_late_write_seen(bug: Option<Bug>) -> bool {
    let number = bug.map_or(0, |bug| bug as u64);
    let endings = run_with(3, 2, 16, |program| {
        program.node.context.instrument(contract::instrument::PLANTED).store(number, Ordering::Relaxed);
        let me = program.me();
        let word = core::sync::atomic::AtomicU64::new(0);
        program.call(|node| node.publish(me, word.as_ptr() as u64));
        let next = (me + 1) % 3;
        let to = program.call(|node| node.lookup(next));
        program.barrier();
        for round in 1..=20u64 {
            let to_node = NodeId::new(next as u32).unwrap();
            // SAFETY: both words outlive the fence, or the run.
            program.call(|node| unsafe { node.remote_write(to_node, to, &raw const round as u64, 8) });
            program.call(Node::remote_fence);
            program.barrier();
            program.back_edge();
            assert_eq!(word.load(Ordering::SeqCst), round);
            program.barrier();
        }
        program.barrier();
    });
    endings.iter().any(|ending| ending.result.is_err())
}

/// The planted bug takes what is in a ring for what has arrived. A doorbell makes sure of that before anybody can see it, whoever runs when: rings do not show
/// the bug. The delaying transport does, within this many seeds.
#[test]
fn a_planted_bug_of_the_order_is_found_by_delays_and_not_by_rings() {
    const SEEDS: u64 = 8;
    let bug = Some(Bug::FenceDoesNotWait);
    let on = |way: Way, bug| {
        WAY.set(way);
        let found = is_late_write_seen(bug);
        WAY.set(Way::Threads);
        found
    };
    assert!(!on(Way::Threads, bug) && !on(Way::Threads, None));
    for seed in 0..20 * SEEDS {
        assert!(!on(Way::Rings(seed), bug), "rings, seed {seed}");
        assert!(!on(delaying(seed), None), "no bug, seed {seed}");
    }
    let found = (0..SEEDS).find(|&seed| on(delaying(seed), bug));
    println!("found with seed {found:?}");
    assert!(found.is_some());
}

/// The same seed gives the same run.
#[test]
fn a_seed_repeats_its_run() {
    let run_once = |seed| {
        WAY.set(delaying(seed));
        let counts = run(3, |program| {
            let words = program.shared(PAGE_BYTES);
            for round in 0..300 {
                program.call(|node| node.fetch_op(Op::Add, words + 64 * (round % 4), 1, 0));
                program.back_edge();
            }
            [Counter::MessagesSent, Counter::ReadMisses, Counter::WriteMisses, Counter::PollsTaken]
                .map(|counter| program.node.context.counter(counter))
        });
        WAY.set(Way::Threads);
        counts
    };
    let all: Vec<_> = (0..6).map(run_once).collect();
    assert!((0..6).zip(&all).all(|(seed, counts)| run_once(seed) == *counts));
    assert!(all.iter().any(|counts| *counts != all[0]), "different seeds give different runs");
}
