//! The functions behind `blizzard.h`, as the program's client library calls them.
//!
//! Purpose: [`TABLE`], whose address the program finds in its auxiliary vector. Each function checks its arguments and leads to the
//! node or, in a run of one node, to [`Single`]. Called with the C calling convention on the program's stack.
//! **Invariant**: nothing unwinds out of here; misuse ends the run with one error line.

use crate::gates::alloc_rules::AskedAllocation;
use crate::kernel::entry::aligned;
use crate::kernel::print::{self, ByteCount};
use crate::memory::access_control::program::runtime_address;
use crate::memory::partition::{Attributes, BlockSize, Placement};
use crate::memory::region::ContextPage;
use crate::node::arenas::ArenasFull;
use crate::node::calls::creation::NoNodeLeft;
use crate::node::node::Node;
use crate::node::single::{self, CallMisuse, Single};
use crate::process::process::{self, ProgramCall, with_run};
use crate::sync::collective::{BROADCAST_BYTES, Collective, VECTOR_WORDS};
use crate::sync::handle::HandleKind;
use crate::sync::op::{Op, Reduction, WordCombine, WordType};
use blizzard_contract::{
    API_VERSION, BLOCK_BYTES, BzApi, BzLock, BzObject, CONTEXT_SHARED, Counter, PUBLISH_SLOTS, alloc_homes,
};
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::operation::Operation;
use blizzard_protocol::port::ProtocolId;
use core::fmt;
use core::sync::atomic::AtomicU64;

/// The one table of this process.
pub const TABLE: &BzApi = &BzApi {
    version: API_VERSION,
    bytes: size_of::<BzApi>() as u32,
    node: aligned!(bz_node),
    nodes: aligned!(bz_nodes),
    alloc: aligned!(bz_alloc, by),
    alloc_on: aligned!(bz_alloc_on, by),
    free: aligned!(bz_free),
    publish: aligned!(bz_publish),
    lookup: aligned!(bz_lookup),
    barrier: aligned!(bz_barrier),
    lock_new: aligned!(bz_lock_new),
    lock: aligned!(bz_lock),
    trylock: aligned!(bz_trylock),
    unlock: aligned!(bz_unlock),
    fetch_add_u64: aligned!(bz_fetch_add_u64),
    reduce_sum_u64: aligned!(bz_reduce_sum_u64),
    reduce_sum_f64: aligned!(bz_reduce_sum_f64),
    create_begin: aligned!(bz_create_begin),
    create_end: aligned!(bz_create_end),
    wait_for_end: aligned!(bz_wait_for_end),
    prefetch: aligned!(bz_prefetch),
    check_out: aligned!(bz_check_out),
    check_in: aligned!(bz_check_in),
    barrier_new: aligned!(bz_barrier_new),
    barrier_wait: aligned!(bz_barrier_wait),
    event_new: aligned!(bz_event_new),
    event_set: aligned!(bz_event_set),
    event_wait: aligned!(bz_event_wait),
    counter_new: aligned!(bz_counter_new),
    counter_op: aligned!(bz_counter_op),
    fetch_op: aligned!(bz_fetch_op),
    reduce: aligned!(bz_reduce),
    broadcast: aligned!(bz_broadcast),
    remote_write: aligned!(bz_remote_write),
    remote_fence: aligned!(bz_remote_fence),
    tempest: crate::tempest::api::TABLE,
    alloc_with: aligned!(bz_alloc_with, by),
};

/// Counts in a run of one node.
fn count(counter: Counter, amount: u64) {
    // SAFETY: the runtime has started, so the page is mapped.
    unsafe { ContextPage::at(CONTEXT_SHARED) }.add(counter, amount);
}

/// Ends the run unless the call was right.
fn expect<T>(function: &str, value: u64, result: Result<T, CallMisuse>) -> T {
    match result {
        Ok(value) => value,
        Err(misuse) => process::fail_at(value, format_args!("{function}: {value:#x} {}", misuse.text())),
    }
}

extern "C" fn bz_node() -> u32 {
    process::number()
}

extern "C" fn bz_nodes() -> u32 {
    process::nodes()
}

extern "C" fn bz_alloc(bytes: usize, _: u64, _: u64, _: u64, _: u64, frame: u64) -> *mut u8 {
    let asked = AskedAllocation::at(frame);
    if asked.is_changed() {
        return allocate("bz_alloc", bytes, &asked, |defaults| defaults);
    }
    let result = with_run("bz_alloc", |call| match call {
        ProgramCall::Several(node) => node.alloc_plain(bytes as u64, asked.by),
        ProgramCall::Single(single) => allocate_single(single, single::DEFAULTS, bytes as u64, asked.by),
    });
    handed_out("bz_alloc", bytes, result)
}

extern "C" fn bz_alloc_on(home: u32, bytes: usize, _: u64, _: u64, _: u64, frame: u64) -> *mut u8 {
    let homes = Placement::Node(existing("bz_alloc_on", home));
    allocate("bz_alloc_on", bytes, &AskedAllocation::at(frame), |defaults| Attributes { homes, ..defaults })
}

extern "C" fn bz_alloc_with(
    bytes: usize,
    block_bytes: u32,
    homes: u32,
    node: u32,
    protocol: u32,
    frame: u64,
) -> *mut u8 {
    const NAME: &str = "bz_alloc_with";
    let block = BlockSize::new(block_bytes.into());
    if block_bytes != 0 && block.is_none() {
        process::fail(format_args!(
            "{NAME}: blocks of {block_bytes} bytes: 64, 128, 256, 512, 1024, 2048 or 4096, or 0"
        ));
    }
    let homes = match homes {
        alloc_homes::DEFAULT => None,
        alloc_homes::ROUND_ROBIN => Some(Placement::RoundRobin),
        alloc_homes::FIRST_TOUCH => Some(Placement::FirstTouch),
        alloc_homes::SLICES => Some(Placement::Slices),
        alloc_homes::NODE => Some(Placement::Node(existing(NAME, node))),
        _ => process::fail(format_args!("{NAME}: {homes} is none of the BZ_HOMES constants")),
    };
    let chosen = ProtocolId::chosen(protocol);
    if protocol != 0 && chosen.is_none() {
        process::fail(format_args!(
            "{NAME}: {protocol} is none of the BZ_PROTOCOL constants, or not with that operation: BZ_PROTOCOL_REDUCE_BY(operation, type) makes one"
        ));
    }
    allocate(NAME, bytes, &AskedAllocation::at(frame), |defaults| Attributes {
        protocol: chosen.map_or(defaults.protocol, |(protocol, _)| protocol),
        operation: chosen.and_then(|(_, operation)| operation),
        block: block.unwrap_or(defaults.block),
        homes: homes.unwrap_or(defaults.homes),
    })
}

/// The node that shall be a home; ends the run if there is none of that number.
fn existing(function: &str, home: u32) -> NodeId {
    match NodeId::new(home).filter(|_| home < process::nodes()) {
        Some(home) => home,
        None => process::fail(format_args!("{function}: home {home}, but the run has {} node(s)", process::nodes())),
    }
}

/// Allocates with what `choose` makes of the run's defaults, and a rule of that.
fn allocate(
    function: &str,
    bytes: usize,
    asked: &AskedAllocation,
    choose: impl FnOnce(Attributes) -> Attributes,
) -> *mut u8 {
    let choose = |defaults| asked.changed(choose(defaults));
    let result = with_run(function, |call| match call {
        ProgramCall::Several(node) => node.alloc(choose(node.alloc_defaults()), bytes as u64, asked.by),
        ProgramCall::Single(single) => allocate_single(single, choose(single::DEFAULTS), bytes as u64, asked.by),
    });
    if result.is_ok() {
        asked.count(bytes as u64);
    }
    handed_out(function, bytes, result)
}

/// Displays the size of segment that has room, in GiB.
struct Enough(Option<u64>);

impl fmt::Display for Enough {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(gib) => write!(f, "`blizzard run --segment-gib {gib}` has room for it"),
            None => f.write_str("no `blizzard run --segment-gib` has room for it"),
        }
    }
}

/// What an allocation returns; one that has failed says so.
fn handed_out(function: &str, bytes: usize, result: Result<u64, ArenasFull>) -> *mut u8 {
    match result {
        Ok(addr) => addr as *mut u8,
        Err(ArenasFull { free_bytes, enough_gib }) => {
            // Programs seldom look at the result: the line is what tells a full segment from any other null pointer.
            print::warning(format_args!(
                "{function}: no room for {} of shared memory: {} are free in the part of the segment that it comes from; {}",
                ByteCount(bytes as u64),
                ByteCount(free_bytes),
                Enough(enough_gib)
            ));
            core::ptr::null_mut()
        }
    }
}

fn allocate_single(single: &Single, attributes: Attributes, bytes: u64, by: u64) -> Result<u64, ArenasFull> {
    let (addr, got_bytes, recycled) = single.alloc(attributes, bytes, by)?;
    debug_assert!(got_bytes.is_multiple_of(BLOCK_BYTES));
    if recycled {
        // SAFETY: the allocator has given this range of the mapped segment to this call alone.
        unsafe { single::zero(addr, got_bytes) };
    }
    if let Some(initial) = attributes.operation.map(Operation::initial).filter(|&initial| initial != 0) {
        // SAFETY: as above.
        unsafe { single::fill(addr, got_bytes, initial) };
    }
    count(Counter::Allocations, 1);
    count(Counter::AllocatedBytes, got_bytes);
    Ok(addr)
}

extern "C" fn bz_free(addr: *mut u8) {
    let addr = addr as u64;
    if addr == 0 {
        return;
    }
    with_run("bz_free", |call| match call {
        ProgramCall::Several(node) => node.free(addr),
        ProgramCall::Single(single) => expect("bz_free", addr, single.free(addr)),
    });
}

/// Hints about memory that is not shared, or a run of one node, mean nothing.
fn hint(function: &str, calls: Counter, run: impl FnOnce(&mut Node)) {
    with_run(function, |call| match call {
        ProgramCall::Several(node) => {
            node.count(calls);
            run(node);
        }
        ProgramCall::Single(_) => {}
    });
}

extern "C" fn bz_prefetch(addr: *const u8, bytes: usize, store: i32) {
    hint("bz_prefetch", Counter::PrefetchCalls, |node| node.prefetch(addr as u64, bytes as u64, store != 0));
}

extern "C" fn bz_check_out(addr: *const u8, bytes: usize, store: i32) {
    hint("bz_check_out", Counter::CheckOutCalls, |node| node.check_out(addr as u64, bytes as u64, store != 0));
}

extern "C" fn bz_check_in(addr: *const u8, bytes: usize) {
    hint("bz_check_in", Counter::CheckInCalls, |node| node.check_in(addr as u64, bytes as u64));
}

fn check_slot(function: &str, slot: u32) {
    if slot >= PUBLISH_SLOTS {
        process::fail(format_args!("{function}: slot {slot} is not below {PUBLISH_SLOTS}"));
    }
}

extern "C" fn bz_publish(slot: u32, pointer: *mut u8) {
    check_slot("bz_publish", slot);
    with_run("bz_publish", |call| match call {
        ProgramCall::Several(node) => node.publish(slot.into(), pointer as u64),
        ProgramCall::Single(single) => single.publish(slot, pointer as u64),
    });
}

extern "C" fn bz_lookup(slot: u32) -> *mut u8 {
    check_slot("bz_lookup", slot);
    let pointer = with_run("bz_lookup", |call| match call {
        ProgramCall::Several(node) => node.lookup(slot.into()),
        ProgramCall::Single(single) => single.lookup(slot).unwrap_or_else(|| {
            process::fail(format_args!(
                "bz_lookup: slot {slot} was not published, and there is no other thread to do it"
            ))
        }),
    });
    pointer as *mut u8
}

extern "C" fn bz_barrier() {
    collective("bz_barrier", Collective::Barrier, &mut []);
}

/// A collective; alone, the own values are the result.
fn collective(function: &str, kind: Collective, words: &mut [u64]) {
    with_run(function, |call| match call {
        ProgramCall::Several(node) => {
            node.collective(kind, words);
            node.fold_times_if_due();
        }
        ProgramCall::Single(_) => {
            if kind == Collective::Barrier {
                count(Counter::Barriers, 1);
            }
        }
    });
}

extern "C" fn bz_lock_new() -> *mut BzLock {
    let lock = with_run("bz_lock_new", |call| match call {
        ProgramCall::Several(node) => node.lock_new(),
        ProgramCall::Single(single) => expect("bz_lock_new", 0, single.lock_new()),
    });
    lock as *mut BzLock
}

extern "C" fn bz_lock(lock: *mut BzLock) {
    let lock = lock as u64;
    with_run("bz_lock", |call| match call {
        ProgramCall::Several(node) => node.lock(lock),
        ProgramCall::Single(single) => {
            expect("bz_lock", lock, single.lock(lock));
            count(Counter::LockAcquires, 1);
        }
    });
}

extern "C" fn bz_trylock(lock: *mut BzLock) -> i32 {
    let lock = lock as u64;
    let got = with_run("bz_trylock", |call| match call {
        ProgramCall::Several(node) => node.trylock(lock),
        ProgramCall::Single(single) => {
            let got = expect("bz_trylock", lock, single.trylock(lock));
            count(Counter::LockAcquires, got.into());
            got
        }
    });
    got.into()
}

extern "C" fn bz_unlock(lock: *mut BzLock) {
    let lock = lock as u64;
    with_run("bz_unlock", |call| match call {
        ProgramCall::Several(node) => node.unlock(lock),
        ProgramCall::Single(single) => expect("bz_unlock", lock, single.unlock(lock)),
    });
}

extern "C" fn bz_fetch_add_u64(word: *mut u64, value: u64) -> u64 {
    bz_fetch_op(Op::Add as u32, word, value, 0)
}

fn operation(function: &str, op: u32) -> Op {
    match Op::from_number(op.into()) {
        Some(op) => op,
        None => process::fail(format_args!("{function}: there is no operation {op}")),
    }
}

extern "C" fn bz_fetch_op(op: u32, word: *mut u64, value: u64, expected: u64) -> u64 {
    let op = operation("bz_fetch_op_u64", op);
    if word.is_null() || !word.is_aligned() {
        process::fail(format_args!("bz_fetch_op_u64: {:#x} is not the address of an aligned 8-byte word", word as u64));
    }
    with_run("bz_fetch_op_u64", |call| match call {
        ProgramCall::Several(node) => node.fetch_op(op, word as u64, value, expected),
        ProgramCall::Single(_) => {
            let word = runtime_address(word as u64).cast();
            // SAFETY: the program's own word, aligned; the other threads of the program use it through here.
            single::apply(unsafe { AtomicU64::from_ptr(word) }, op, value, expected)
        }
    })
}

fn sum(of: WordType) -> Collective {
    Collective::Reduce(Reduction { combine: WordCombine::Sum, of })
}

extern "C" fn bz_reduce_sum_u64(value: u64) -> u64 {
    let mut word = [value];
    collective("bz_reduce_sum_u64", sum(WordType::U64), &mut word);
    word[0]
}

extern "C" fn bz_reduce_sum_f64(value: f64) -> f64 {
    let mut word = [value.to_bits()];
    collective("bz_reduce_sum_f64", sum(WordType::F64), &mut word);
    f64::from_bits(word[0])
}

/// Ends the run at a null pointer, which the client library hands on where it would have read or written there.
fn some(function: &str, at: u64) {
    if at == 0 {
        process::fail(format_args!("{function}: a null pointer"));
    }
}

extern "C" fn bz_reduce(kind: u32, words: *mut u64, count: u32) {
    let Some(reduction) = Reduction::from_number(kind.into()).filter(|_| count as usize <= VECTOR_WORDS) else {
        process::fail(format_args!("bz_reduce: no reduction {kind} of {count} words"));
    };
    some("bz_reduce", words as u64);
    // SAFETY: the client library passes so many words of its stack.
    let words = unsafe { core::slice::from_raw_parts_mut(words, count as usize) };
    collective("bz_reduce", Collective::Reduce(reduction), words);
}

/// A node of the run, or its end.
fn node_number(function: &str, number: u32) -> NodeId {
    match NodeId::new(number).filter(|_| number < process::nodes()) {
        Some(node) => node,
        None => process::fail(format_args!("{function}: there is no node {number} in a run of {}", process::nodes())),
    }
}

extern "C" fn bz_broadcast(root: u32, at: *mut u8, bytes: usize) {
    let root = node_number("bz_broadcast", root);
    some("bz_broadcast", at as u64);
    if bytes as u64 > BROADCAST_BYTES {
        process::fail(format_args!("bz_broadcast: {bytes} bytes at once"));
    }
    with_run("bz_broadcast", |call| {
        if let ProgramCall::Several(node) = call {
            // SAFETY: the client library passes so many bytes of its stack.
            unsafe { node.broadcast(root, at as u64, bytes as u64) };
        }
    });
}

extern "C" fn bz_remote_write(to: u32, at: *mut u8, from: *const u8, bytes: usize) {
    let to = node_number("bz_remote_write", to);
    some("bz_remote_write", at as u64);
    some("bz_remote_write", from as u64);
    with_run("bz_remote_write", |call| match call {
        // SAFETY: the client library passes so many bytes of its stack.
        ProgramCall::Several(node) => unsafe { node.remote_write(to, at as u64, from as u64, bytes as u64) },
        // SAFETY: the program asks for its own memory to be written.
        ProgramCall::Single(_) => unsafe { core::ptr::copy(from, at, bytes) },
    });
}

extern "C" fn bz_remote_fence() {
    with_run("bz_remote_fence", |call| {
        if let ProgramCall::Several(node) = call {
            node.remote_fence();
        }
    });
}

extern "C" fn bz_barrier_new() -> *mut BzObject {
    let barrier = with_run("bz_barrier_new", |call| match call {
        ProgramCall::Several(node) => node.barrier_new(),
        ProgramCall::Single(single) => expect("bz_barrier_new", 0, single.object_new(HandleKind::Barrier, 0)),
    });
    barrier as *mut BzObject
}

extern "C" fn bz_barrier_wait(barrier: *mut BzObject, nodes: u32) -> i32 {
    let last = with_run("bz_barrier_wait", |call| match call {
        ProgramCall::Several(node) => {
            let last = node.barrier_wait(barrier as u64, nodes);
            node.fold_times_if_due();
            last
        }
        ProgramCall::Single(single) => {
            expect("bz_barrier_wait", barrier as u64, single.object(HandleKind::Barrier, barrier as u64).map(drop));
            if nodes != 1 {
                process::fail(format_args!(
                    "bz_barrier_wait: a barrier for {nodes} nodes in a run of 1 can never complete"
                ));
            }
            count(Counter::Barriers, 1);
            true
        }
    });
    last.into()
}

extern "C" fn bz_event_new() -> *mut BzObject {
    let event = with_run("bz_event_new", |call| match call {
        ProgramCall::Several(node) => node.event_new(),
        ProgramCall::Single(single) => expect("bz_event_new", 0, single.object_new(HandleKind::Event, 0)),
    });
    event as *mut BzObject
}

extern "C" fn bz_event_set(event: *mut BzObject, on: i32) {
    with_run("bz_event_set", |call| match call {
        ProgramCall::Several(node) => node.event_set(event as u64, on != 0),
        ProgramCall::Single(single) => expect("bz_event_set", event as u64, single.event_set(event as u64, on != 0)),
    });
}

extern "C" fn bz_event_wait(event: *mut BzObject) {
    with_run("bz_event_wait", |call| match call {
        ProgramCall::Several(node) => node.event_wait(event as u64),
        ProgramCall::Single(single) => expect("bz_event_wait", event as u64, single.event_wait(event as u64)),
    });
}

extern "C" fn bz_counter_new(value: u64) -> *mut BzObject {
    let counter = with_run("bz_counter_new", |call| match call {
        ProgramCall::Several(node) => node.counter_new(value),
        ProgramCall::Single(single) => expect("bz_counter_new", 0, single.object_new(HandleKind::Counter, value)),
    });
    counter as *mut BzObject
}

extern "C" fn bz_counter_op(op: u32, counter: *mut BzObject, value: u64, expected: u64) -> u64 {
    let op = operation("bz_counter_op", op);
    let counter = counter as u64;
    with_run("bz_counter_op", |call| match call {
        ProgramCall::Several(node) => node.counter_op(op, counter, value, expected),
        ProgramCall::Single(single) => {
            let word = expect("bz_counter_op", counter, single.object(HandleKind::Counter, counter));
            single::apply(word, op, value, expected)
        }
    })
}

extern "C" fn bz_create_begin() -> u32 {
    with_run("bz_create", |call| match call {
        ProgramCall::Several(node) => node.create_begin(),
        ProgramCall::Single(_) => process::fail(format_args!("{}", NoNodeLeft(1))),
    })
}

extern "C" fn bz_create_end(pid: i32) {
    with_run("bz_create", |call| {
        if let ProgramCall::Several(node) = call {
            node.create_end(pid);
        }
    });
}

extern "C" fn bz_wait_for_end(count: u32) {
    with_run("bz_wait_for_end", |call| match call {
        ProgramCall::Several(node) => node.wait_for_end(count),
        ProgramCall::Single(_) if count == 0 => {}
        ProgramCall::Single(_) => process::fail(format_args!(
            "bz_wait_for_end: the program waits for {count} nodes to end, but has created none"
        )),
    });
}
