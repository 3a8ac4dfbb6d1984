//! Shared memory, locks, barriers and reductions for Rust programs that `blizzard run` starts on many nodes.
//!
//! `main` runs on every node. Memory of a [`Shared`] slice has the same address on all nodes and is sequentially consistent;
//! everything else is private to a node. A program that has not been rewritten is the one node of its run.
//!
//! The API is safe where Rust can see the whole story: shared memory holds only types that may be any bytes and that may be
//! changed by others at any time ([`Word`], the standard atomics), reached through `&self`.
//!
//! ```
//! use blizzard_shm as bz;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! let total: bz::Shared<AtomicU64> = bz::share(0, || bz::alloc(1).expect("one word"));
//! total[0].fetch_add(u64::from(bz::node()) + 1, Ordering::SeqCst);
//! bz::barrier();
//! let n = u64::from(bz::nodes());
//! assert_eq!(total[0].load(Ordering::SeqCst), n * (n + 1) / 2);
//! ```
//! Source: `rt/include/blizzard.h`, which states units and errors of each call.

use std::ffi::c_void;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};

mod sys {
    use std::ffi::c_void;

    unsafe extern "C" {
        pub safe fn bz_node() -> u32;
        pub safe fn bz_nodes() -> u32;
        pub safe fn bz_alloc(bytes: usize) -> *mut c_void;
        pub safe fn bz_alloc_on(home: u32, bytes: usize) -> *mut c_void;
        pub fn bz_free(p: *mut c_void);
        pub safe fn bz_publish(slot: u32, p: *mut c_void);
        pub safe fn bz_lookup(slot: u32) -> *mut c_void;
        pub safe fn bz_barrier();
        pub safe fn bz_lock_new() -> *mut c_void;
        pub fn bz_lock(lock: *mut c_void);
        pub fn bz_trylock(lock: *mut c_void) -> i32;
        pub fn bz_unlock(lock: *mut c_void);
        pub fn bz_fetch_add_u64(p: *mut u64, v: u64) -> u64;
        pub safe fn bz_reduce_sum_u64(v: u64) -> u64;
        pub safe fn bz_reduce_sum_f64(v: f64) -> f64;
        pub safe fn bz_prefetch(p: *const c_void, bytes: usize, store: i32);
        pub safe fn bz_check_out(p: *const c_void, bytes: usize, store: i32);
        pub safe fn bz_check_in(p: *const c_void, bytes: usize);
    }
}

/// Number of slots of [`publish`] and [`lookup`].
pub const SLOTS: u32 = 1024;

/// Number of this node, `0..nodes()`.
pub fn node() -> u32 {
    sys::bz_node()
}

/// Number of nodes of this run, at least 1.
pub fn nodes() -> u32 {
    sys::bz_nodes()
}

/// Returns when all nodes have called it.
pub fn barrier() {
    sys::bz_barrier();
}

/// The sum of all nodes' arguments, wrapping. Every node must call it.
pub fn reduce_sum_u64(v: u64) -> u64 {
    sys::bz_reduce_sum_u64(v)
}

/// The sum of all nodes' arguments, added in the order of the node numbers: the same bits on all nodes. Every node must call it.
pub fn reduce_sum_f64(v: f64) -> f64 {
    sys::bz_reduce_sum_f64(v)
}

/// Asks for copies of what `value` refers to and does not wait; `store`: to store to. A hint: see `bz_prefetch` in `blizzard.h`.
pub fn prefetch<T: ?Sized>(value: &T, store: bool) {
    sys::bz_prefetch(core::ptr::from_ref(value).cast(), size_of_val(value), store.into());
}

/// Gets copies of what `value` refers to, many blocks at a time. A hint: see `bz_check_out` in `blizzard.h`.
pub fn check_out<T: ?Sized>(value: &T, store: bool) {
    sys::bz_check_out(core::ptr::from_ref(value).cast(), size_of_val(value), store.into());
}

/// Gives the copies of what `value` refers to back to their homes. A hint: see `bz_check_in` in `blizzard.h`.
pub fn check_in<T: ?Sized>(value: &T) {
    sys::bz_check_in(core::ptr::from_ref(value).cast(), size_of_val(value));
}

/// Types that shared memory may hold: valid as any bytes (zero included), no drop glue, changed through `&self`.
///
/// # Safety
/// Every byte pattern must be a valid value, the alignment at most 64, and all methods that a shared reference offers must be
/// sound while other nodes change the value between any two instructions.
pub unsafe trait Sharable: Send + Sync + 'static {}

macro_rules! sharable {
    ($($t:ty),*) => { $(
        // SAFETY: atomics are valid as any bytes of their size and are made for concurrent change.
        unsafe impl Sharable for $t {}
    )* };
}
sharable!(
    AtomicU8,
    AtomicU16,
    AtomicU32,
    AtomicU64,
    AtomicUsize,
    AtomicI8,
    AtomicI16,
    AtomicI32,
    AtomicI64,
    AtomicIsize
);

/// A plain value in shared memory, read and written whole by [`Word::get`] and [`Word::set`]: for data that a lock or a
/// barrier protects. `T` is an integer or a float of at most eight bytes, so a read never sees half of a write.
#[repr(transparent)]
pub struct Word<T>(std::cell::UnsafeCell<T>);

/// Integers and floats.
pub trait Plain: Copy + Send + 'static + private::Sealed {}

mod private {
    pub trait Sealed {}
}

macro_rules! plain {
    ($($t:ty),*) => { $( impl private::Sealed for $t {} impl Plain for $t {} )* };
}
plain!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize, f32, f64);

// SAFETY: all access goes through volatile reads and writes of an aligned machine word, which x86-64 performs whole.
unsafe impl<T: Plain> Sync for Word<T> {}
// SAFETY: every byte pattern of an integer or float is a value; see `Sync` above for concurrency.
unsafe impl<T: Plain> Sharable for Word<T> {}

impl<T: Plain> Word<T> {
    /// The value now.
    pub fn get(&self) -> T {
        // SAFETY: the cell is valid and aligned; a volatile read tolerates concurrent change by other nodes.
        unsafe { self.0.get().read_volatile() }
    }

    /// Changes the value.
    pub fn set(&self, v: T) {
        // SAFETY: as in `get`.
        unsafe { self.0.get().write_volatile(v) }
    }
}

/// A slice in shared memory. Copies are the same memory; nothing is freed until [`Shared::free`].
pub struct Shared<T: Sharable> {
    start: NonNull<T>,
    len: usize,
}

impl<T: Sharable> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Sharable> Copy for Shared<T> {}

// SAFETY: a `Shared` only gives out `&T`, and `T` is `Sync`.
unsafe impl<T: Sharable> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sharable> Sync for Shared<T> {}

impl<T: Sharable> Deref for Shared<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        // SAFETY: `start` came from the allocator with room for `len` elements, is 64-byte aligned, and zero or any later bytes are
        // valid values; `free` is unsafe and takes on that nobody uses the memory any more.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

fn checked_bytes<T>(len: usize) -> Option<usize> {
    const { assert!(align_of::<T>() <= 64) };
    size_of::<T>().checked_mul(len)
}

fn slice<T: Sharable>(p: *mut c_void, len: usize) -> Option<Shared<T>> {
    NonNull::new(p.cast::<T>()).map(|start| Shared { start, len })
}

/// `len` zeroed elements whose pages' homes are spread over the nodes. `None`: the segment is full.
pub fn alloc<T: Sharable>(len: usize) -> Option<Shared<T>> {
    slice(sys::bz_alloc(checked_bytes::<T>(len)?), len)
}

/// `len` zeroed elements homed on node `home`. `None`: its part of the segment is full.
///
/// # Panics
/// If there is no node `home`.
pub fn alloc_on<T: Sharable>(home: u32, len: usize) -> Option<Shared<T>> {
    assert!(home < nodes(), "there is no node {home}");
    slice(sys::bz_alloc_on(home, checked_bytes::<T>(len)?), len)
}

impl<T: Sharable> Shared<T> {
    /// Frees the memory.
    ///
    /// # Safety
    /// No node may use this slice or a copy of it any more.
    pub unsafe fn free(self) {
        // SAFETY: the pointer came from `alloc` or `alloc_on`; the caller vouches for the rest.
        unsafe { sys::bz_free(self.start.as_ptr().cast()) }
    }

    /// The address, the same on all nodes: for [`publish`].
    pub fn as_ptr(&self) -> *const T {
        self.start.as_ptr()
    }
}

/// Makes a slice known to all nodes under a slot number (the slice's length does not travel: use a fixed one, or [`share`]).
///
/// # Panics
/// If the slot is not below [`SLOTS`].
pub fn publish<T: Sharable>(slot: u32, slice: Shared<T>) {
    assert!(slot < SLOTS, "slot {slot} is not below {SLOTS}");
    sys::bz_publish(slot, slice.start.as_ptr().cast());
}

/// The `len` elements that some node has published; waits until one has.
///
/// # Safety
/// What was published in this slot must be a slice of `T` with at least `len` elements that has not been freed.
///
/// # Panics
/// If the slot is not below [`SLOTS`].
pub unsafe fn lookup<T: Sharable>(slot: u32, len: usize) -> Shared<T> {
    assert!(slot < SLOTS, "slot {slot} is not below {SLOTS}");
    slice(sys::bz_lookup(slot), len).expect("a published slice is not null")
}

/// Node 0 makes a slice, all nodes get it: the usual way to set a program up. Every node must call it, with the same `slot` and
/// element type; the slot must not be used for anything else.
pub fn share<T: Sharable>(slot: u32, make: impl FnOnce() -> Shared<T>) -> Shared<T> {
    if node() == 0 {
        let made = make();
        publish(slot, made);
        reduce_sum_u64(made.len as u64);
        made
    } else {
        let len = reduce_sum_u64(0) as usize;
        // SAFETY: node 0 published a slice of this length before it entered the reduction.
        unsafe { lookup(slot, len) }
    }
}

/// Adds to a shared word, atomically for all nodes; returns the old value.
pub fn fetch_add_u64(word: &AtomicU64, v: u64) -> u64 {
    // SAFETY: the reference is valid, aligned and of an atomic type.
    unsafe { sys::bz_fetch_add_u64(word.as_ptr(), v) }
}

/// A lock that all nodes may use. Waiting nodes get it in the order of their requests.
#[derive(Clone, Copy, Debug)]
pub struct Lock(NonNull<c_void>);

// SAFETY: the runtime's locks may be used from any node and thread.
unsafe impl Send for Lock {}
// SAFETY: as above.
unsafe impl Sync for Lock {}

/// Holds a [`Lock`] until it is dropped.
#[derive(Debug)]
pub struct Guard<'l>(&'l Lock);

impl Lock {
    /// Makes a lock on node 0 and gives it to all nodes. Every node must call it, with the same `slot`.
    pub fn shared(slot: u32) -> Lock {
        if node() == 0 {
            sys::bz_publish(slot, sys::bz_lock_new());
        }
        barrier();
        Lock(NonNull::new(sys::bz_lookup(slot)).expect("node 0 published the lock"))
    }

    /// Waits until the lock is free and takes it.
    pub fn lock(&self) -> Guard<'_> {
        // SAFETY: the handle came from `bz_lock_new`, and locks are never freed.
        unsafe { sys::bz_lock(self.0.as_ptr()) };
        Guard(self)
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_>> {
        // SAFETY: as in `lock`.
        (unsafe { sys::bz_trylock(self.0.as_ptr()) } != 0).then(|| Guard(self))
    }
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // SAFETY: a guard exists only while its node holds the lock.
        unsafe { sys::bz_unlock(self.0.0.as_ptr()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_plain_program_is_a_run_of_one_node() {
        assert_eq!((node(), nodes()), (0, 1));
        barrier();
        assert_eq!(reduce_sum_u64(7), 7);
        assert_eq!(reduce_sum_f64(0.1).to_bits(), 0.1f64.to_bits());
    }

    #[test]
    fn shared_slices_are_zeroed_aligned_and_writable() {
        let words: Shared<Word<f64>> = alloc(1000).expect("memory");
        assert_eq!(words.as_ptr() as usize % 64, 0);
        assert!(words.iter().all(|w| w.get() == 0.0));
        words[999].set(1.5);
        assert_eq!(words[999].get(), 1.5);
        let counter: Shared<AtomicU64> = share(17, || alloc_on(0, 1).expect("memory"));
        assert_eq!(fetch_add_u64(&counter[0], 5), 0);
        assert_eq!(counter[0].load(Ordering::SeqCst), 5);
        // SAFETY: nothing uses the two slices any more.
        unsafe {
            words.free();
            counter.free();
        }
    }

    #[test]
    fn locks_exclude_and_release() {
        let lock = Lock::shared(18);
        let held = lock.lock();
        std::thread::scope(|s| {
            s.spawn(|| assert!(lock.try_lock().is_none()));
        });
        drop(held);
        assert!(lock.try_lock().is_some());
    }
}
