//! The functions behind `blizzard.h`, as the program's client library calls them.
//!
//! Purpose: [`TABLE`], whose address the program finds in its auxiliary vector. Each function checks its arguments and leads to the
//! [`Node`](crate::node::Node) or, in a run of one node, to [`Single`](crate::single::Single). Called with the C calling convention on the program's stack.
//! **Invariant**: nothing unwinds out of here; misuse ends the run with one error line.

use crate::abi::{API_VERSION, BLOCK_BYTES, BzApi, BzLock, CONTEXT_SHARED, Counter, PUBLISH_SLOTS};
use crate::forks;
use crate::node::{self, Call, with_run};
use crate::protocol::NodeId;
use crate::region::Context;
use crate::single::{self, Misuse, Single};
use crate::sync::Collective;
use core::sync::atomic::{AtomicU64, Ordering};

/// The one table of this process.
pub static TABLE: BzApi = BzApi {
    version: API_VERSION,
    bytes: size_of::<BzApi>() as u32,
    node: bz_node,
    nodes: bz_nodes,
    alloc: bz_alloc,
    alloc_on: bz_alloc_on,
    free: bz_free,
    publish: bz_publish,
    lookup: bz_lookup,
    barrier: bz_barrier,
    lock_new: bz_lock_new,
    lock: bz_lock,
    trylock: bz_trylock,
    unlock: bz_unlock,
    fetch_add_u64: bz_fetch_add_u64,
    reduce_sum_u64: bz_reduce_sum_u64,
    reduce_sum_f64: bz_reduce_sum_f64,
    create_begin: bz_create_begin,
    create_end: bz_create_end,
    wait_for_end: bz_wait_for_end,
    prefetch: bz_prefetch,
    check_out: bz_check_out,
    check_in: bz_check_in,
};

/// Counts in a run of one node.
fn count(counter: Counter, amount: u64) {
    // SAFETY: the runtime has started, so the page is mapped.
    unsafe { Context::at(CONTEXT_SHARED) }.add(counter, amount);
}

/// Ends the run unless the call was right.
fn expect<T>(function: &str, value: u64, result: Result<T, Misuse>) -> T {
    match result {
        Ok(value) => value,
        Err(misuse) => node::fail(format_args!("{function}: {value:#x} {}", misuse.text())),
    }
}

extern "C" fn bz_node() -> u32 {
    node::number()
}

extern "C" fn bz_nodes() -> u32 {
    node::nodes()
}

extern "C" fn bz_alloc(bytes: usize) -> *mut u8 {
    allocate("bz_alloc", None, bytes)
}

extern "C" fn bz_alloc_on(home: u32, bytes: usize) -> *mut u8 {
    match NodeId::new(home).filter(|_| home < node::nodes()) {
        Some(home) => allocate("bz_alloc_on", Some(home), bytes),
        None => node::fail(format_args!("bz_alloc_on: home {home}, but the run has {} node(s)", node::nodes())),
    }
}

fn allocate(function: &str, home: Option<NodeId>, bytes: usize) -> *mut u8 {
    let addr = with_run(function, |call| match call {
        Call::Several(node) => node.alloc(home, bytes as u64),
        Call::Single(single) => allocate_single(single, home, bytes as u64),
    });
    addr as *mut u8
}

fn allocate_single(single: &Single, home: Option<NodeId>, bytes: u64) -> u64 {
    let Some((addr, got_bytes, recycled)) = single.alloc(home, bytes) else { return 0 };
    debug_assert!(got_bytes.is_multiple_of(BLOCK_BYTES));
    if recycled {
        // SAFETY: the allocator has given this range of the mapped segment to this call alone.
        unsafe { single::zero(addr, got_bytes) };
    }
    count(Counter::Allocations, 1);
    count(Counter::AllocatedBytes, got_bytes);
    addr
}

extern "C" fn bz_free(addr: *mut u8) {
    let addr = addr as u64;
    if addr == 0 {
        return;
    }
    with_run("bz_free", |call| match call {
        Call::Several(node) => node.free(addr),
        Call::Single(single) => expect("bz_free", addr, single.free(addr)),
    });
}

/// Hints about memory that is not shared, or a run of one node, mean nothing.
fn hint(function: &str, run: impl FnOnce(&mut node::Node)) {
    with_run(function, |call| match call {
        Call::Several(node) => run(node),
        Call::Single(_) => {}
    });
}

extern "C" fn bz_prefetch(addr: *const u8, bytes: usize, store: i32) {
    hint("bz_prefetch", |node| node.prefetch(addr as u64, bytes as u64, store != 0));
}

extern "C" fn bz_check_out(addr: *const u8, bytes: usize, store: i32) {
    hint("bz_check_out", |node| node.check_out(addr as u64, bytes as u64, store != 0));
}

extern "C" fn bz_check_in(addr: *const u8, bytes: usize) {
    hint("bz_check_in", |node| node.check_in(addr as u64, bytes as u64));
}

fn check_slot(function: &str, slot: u32) {
    if slot >= PUBLISH_SLOTS {
        node::fail(format_args!("{function}: slot {slot} is not below {PUBLISH_SLOTS}"));
    }
}

extern "C" fn bz_publish(slot: u32, pointer: *mut u8) {
    check_slot("bz_publish", slot);
    with_run("bz_publish", |call| match call {
        Call::Several(node) => node.publish(slot.into(), pointer as u64),
        Call::Single(single) => single.publish(slot, pointer as u64),
    });
}

extern "C" fn bz_lookup(slot: u32) -> *mut u8 {
    check_slot("bz_lookup", slot);
    let pointer = with_run("bz_lookup", |call| match call {
        Call::Several(node) => node.lookup(slot.into()),
        Call::Single(single) => single.lookup(slot),
    });
    pointer as *mut u8
}

extern "C" fn bz_barrier() {
    collective("bz_barrier", Collective::Barrier, 0);
}

/// A collective; alone, the own value is the result.
fn collective(function: &str, kind: Collective, value: u64) -> u64 {
    with_run(function, |call| match call {
        Call::Several(node) => {
            let result = node.collective(kind, value);
            node.fold_times_if_due();
            result
        }
        Call::Single(_) => {
            if kind == Collective::Barrier {
                count(Counter::Barriers, 1);
            }
            value
        }
    })
}

extern "C" fn bz_lock_new() -> *mut BzLock {
    let lock = with_run("bz_lock_new", |call| match call {
        Call::Several(node) => node.lock_new(),
        Call::Single(single) => expect("bz_lock_new", 0, single.lock_new()),
    });
    lock as *mut BzLock
}

extern "C" fn bz_lock(lock: *mut BzLock) {
    let lock = lock as u64;
    with_run("bz_lock", |call| match call {
        Call::Several(node) => node.lock(lock),
        Call::Single(single) => {
            expect("bz_lock", lock, single.lock(lock));
            count(Counter::LockAcquires, 1);
        }
    });
}

extern "C" fn bz_trylock(lock: *mut BzLock) -> i32 {
    let lock = lock as u64;
    let got = with_run("bz_trylock", |call| match call {
        Call::Several(node) => node.trylock(lock),
        Call::Single(single) => {
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
        Call::Several(node) => node.unlock(lock),
        Call::Single(single) => expect("bz_unlock", lock, single.unlock(lock)),
    });
}

extern "C" fn bz_fetch_add_u64(word: *mut u64, value: u64) -> u64 {
    if word.is_null() || !word.is_aligned() {
        node::fail(format_args!("bz_fetch_add_u64: {:#x} is not the address of an aligned 8-byte word", word as u64));
    }
    with_run("bz_fetch_add_u64", |call| match call {
        Call::Several(node) => node.fetch_add(word as u64, value),
        // SAFETY: the program's own word, aligned; the other threads of the program use it through here.
        Call::Single(_) => unsafe { AtomicU64::from_ptr(word) }.fetch_add(value, Ordering::SeqCst),
    })
}

extern "C" fn bz_reduce_sum_u64(value: u64) -> u64 {
    collective("bz_reduce_sum_u64", Collective::SumU64, value)
}

extern "C" fn bz_reduce_sum_f64(value: f64) -> f64 {
    f64::from_bits(collective("bz_reduce_sum_f64", Collective::SumF64, value.to_bits()))
}

extern "C" fn bz_create_begin() -> u32 {
    with_run("bz_create", |call| match call {
        Call::Several(node) => node.create_begin(),
        Call::Single(_) => forks::refuse_creation(1),
    })
}

extern "C" fn bz_create_end(pid: i32) {
    with_run("bz_create", |call| {
        if let Call::Several(node) = call {
            node.create_end(pid);
        }
    });
}

extern "C" fn bz_wait_for_end(count: u32) {
    with_run("bz_wait_for_end", |call| match call {
        Call::Several(node) => node.wait_for_end(count),
        Call::Single(_) if count == 0 => {}
        Call::Single(_) => node::fail(format_args!(
            "bz_wait_for_end: the program waits for {count} nodes to end, but has created none"
        )),
    });
}
