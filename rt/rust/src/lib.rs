//! Shared memory, locks, barriers and reductions for Rust programs that `blizzard run` starts on many nodes.
//!
//! `main` runs on every node. Memory of a [`Shared`] slice has the same address on all nodes and is sequentially consistent;
//! everything else is private to a node. A program that has not been rewritten is the one node of its run.
//!
//! The API is safe where Rust can see the whole story: shared memory holds only types that may be any bytes and that may be
//! changed by others at any time ([`Word`], the standard atomics), reached through `&self`.
//!
//! An example:
#![doc = concat!("```no_run\n", include_str!("../examples/sum.rs"), "```")]
//!
//! `bz_create` and `bz_fork_nodes` have no counterpart here: what refers to them carries the note that makes the launcher start node 0 alone, so that
//! a program that only links this crate could become one of that kind; and a function that goes on in a copy of the process is not safe to call in Rust.
//!
//! Source: `rt/include/blizzard.h`, which states units and errors of each call.

use std::error::Error;
use std::ffi::c_void;
use std::fmt;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{
    AtomicI8, AtomicI16, AtomicI32, AtomicI64, AtomicIsize, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize,
};

pub mod tempest;

mod sys {
    use std::ffi::c_void;

    unsafe extern "C" {
        pub safe fn bz_node() -> u32;
        pub safe fn bz_nodes() -> u32;
        pub safe fn bz_alloc(bytes: usize) -> *mut c_void;
        pub safe fn bz_alloc_on(home: u32, bytes: usize) -> *mut c_void;
        pub fn bz_alloc_with(attributes: *const super::RawAttributes, bytes: usize) -> *mut c_void;
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
        pub fn bz_reduce(kind: u32, words: *mut c_void, count: usize);
        pub fn bz_broadcast(root: u32, p: *mut c_void, bytes: usize);
        pub fn bz_fetch_op_u64(p: *mut u64, op: u32, v: u64, expected: u64) -> u64;
        pub fn bz_remote_write(node: u32, to: *mut c_void, from: *const c_void, bytes: usize);
        pub safe fn bz_remote_fence();
        pub safe fn bz_flush();
        pub safe fn bz_barrier_new() -> *mut c_void;
        pub fn bz_barrier_wait(barrier: *mut c_void, nodes: u32) -> i32;
        pub safe fn bz_event_new() -> *mut c_void;
        pub fn bz_event_set(event: *mut c_void);
        pub fn bz_event_clear(event: *mut c_void);
        pub fn bz_event_wait(event: *mut c_void);
        pub safe fn bz_counter_new(value: u64) -> *mut c_void;
        pub fn bz_counter_op(counter: *mut c_void, op: u32, v: u64, expected: u64) -> u64;
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

/// The sum of all nodes' arguments, added in a fixed order: the same bits on all nodes. Every node must call it.
pub fn reduce_sum_f64(v: f64) -> f64 {
    sys::bz_reduce_sum_f64(v)
}

/// Asks for copies of what `value` refers to and does not wait; `store`: to store to. A hint: see `bz_prefetch` in `blizzard.h`.
pub fn prefetch<T: ?Sized>(value: &T, store: bool) {
    sys::bz_prefetch(core::ptr::from_ref(value).cast(), size_of_val(value), store.into());
}

/// Gets copies of what `value` refers to, many blocks at a time. A hint: see `bz_check_out` in `blizzard.h`. Of memory with
/// [`Protocol::Reduce`], to store: begins to add, until the next barrier.
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

/// Copies from shared memory to private memory; all blocks travel together. See `bz_get` in `blizzard.h`.
///
/// # Panics
/// The two have different lengths.
pub fn get<T: Plain>(to: &mut [T], from: &[Word<T>]) {
    assert_eq!(to.len(), from.len(), "get: lengths differ");
    check_out(from, false);
    to.iter_mut().zip(from).for_each(|(to, from)| *to = from.get());
}

/// Copies from private memory to shared memory; all blocks travel together. See `bz_put` in `blizzard.h`.
///
/// # Panics
/// The two have different lengths.
pub fn put<T: Plain>(to: &[Word<T>], from: &[T]) {
    assert_eq!(to.len(), from.len(), "put: lengths differ");
    check_out(to, true);
    to.iter().zip(from).for_each(|(to, from)| to.set(*from));
}

/// A slice in shared memory. Copies are the same memory; nothing is freed until [`Shared::free`].
pub struct Shared<T: Sharable> {
    start: NonNull<T>,
    len: usize,
}

/// Where it lies; the elements are not read.
impl<T: Sharable> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("start", &self.start).field("len", &self.len).finish()
    }
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

/// The part of the segment that an allocation would have come from is full. A line on standard error has said how many bytes are free there, and which
/// `blizzard run --segment-gib` is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError {
    /// What was asked; `usize::MAX` if that is no number.
    pub bytes: usize,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no room for {} bytes of shared memory", self.bytes)
    }
}

impl Error for AllocError {}

/// Bytes of `len` elements; more than any segment has where they are no number.
fn bytes_of<T>(len: usize) -> usize {
    const { assert!(align_of::<T>() <= 64) };
    size_of::<T>().saturating_mul(len)
}

fn slice<T: Sharable>(p: *mut c_void, len: usize) -> Result<Shared<T>, AllocError> {
    let error = AllocError { bytes: bytes_of::<T>(len) };
    NonNull::new(p.cast::<T>()).map(|start| Shared { start, len }).ok_or(error)
}

/// `len` zeroed elements whose pages' homes are spread over the nodes.
///
/// # Errors
/// The segment is full.
pub fn alloc<T: Sharable>(len: usize) -> Result<Shared<T>, AllocError> {
    slice(sys::bz_alloc(bytes_of::<T>(len)), len)
}

/// `len` zeroed elements homed on node `home`.
///
/// # Errors
/// Its part of the segment is full.
///
/// # Panics
/// If there is no node `home`.
pub fn alloc_on<T: Sharable>(home: u32, len: usize) -> Result<Shared<T>, AllocError> {
    assert!(home < nodes(), "there is no node {home}");
    slice(sys::bz_alloc_on(home, bytes_of::<T>(len)), len)
}

/// How many bytes change hands together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BlockSize {
    /// As `blizzard run --block-size` says.
    #[default]
    OfTheRun,
    Bytes64,
    Bytes128,
    Bytes256,
    Bytes512,
    Bytes1024,
    Bytes2048,
    Bytes4096,
}

impl BlockSize {
    /// 0 for [`BlockSize::OfTheRun`].
    pub const fn bytes(self) -> u32 {
        match self {
            BlockSize::OfTheRun => 0,
            size => 32 << size as u32,
        }
    }
}

/// Where the pages of an allocation have their homes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Homes {
    /// As `blizzard run --homes` says.
    #[default]
    OfTheRun,
    /// By turn over the nodes.
    RoundRobin,
    /// Each page at the node that uses it first.
    FirstTouch,
    /// All on that node.
    Node(u32),
    /// In as many slices of pages as there are nodes, slice `i` on node `i`.
    Slices,
}

/// The coherence protocol of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// As `blizzard run --protocol` says.
    #[default]
    OfTheRun,
    Stache,
    Mcm,
    /// Many nodes use it by turns, a little each time: no copies, the home lends a block to one node at a time. Sequentially consistent.
    Home,
    /// One node stores, the pages' home; barriers and the like send what it has stored to those that have loaded it before. Not sequentially consistent:
    /// see [`flush`].
    Update,
    /// One node after the other reads and then stores, as under a lock: the read miss brings the right to store. Sequentially consistent.
    Migratory,
    /// Written once or seldom, read by many: after a store the first reader's miss brings all earlier readers a copy. Sequentially consistent.
    Broadcast,
    /// Nodes add to elements of that type between two barriers, after [`check_out`] to store, and read what the homes have combined behind them: "Reductions in place"
    /// in `blizzard.h` says what is promised.
    Reduce(Combine, Element),
}

impl Protocol {
    /// As `blizzard.h` numbers them.
    const fn number(self) -> u32 {
        match self {
            Protocol::OfTheRun => 0,
            Protocol::Stache => 1,
            Protocol::Mcm => 2,
            Protocol::Home => 3,
            Protocol::Update => 4,
            Protocol::Migratory => 5,
            Protocol::Broadcast => 6,
            Protocol::Reduce(combine, element) => 7 | (1 + 6 * combine as u32 + element as u32) << 8,
        }
    }
}

/// What [`Protocol::Reduce`] does with two elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combine {
    Sum,
    Min,
    Max,
    /// Bitwise; not of floats.
    Or,
}

/// What the elements of such memory are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

/// How one allocation is kept: see `bz_attr_t` in `blizzard.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    pub block: BlockSize,
    pub homes: Homes,
    pub protocol: Protocol,
}

/// `bz_attr_t`.
#[repr(C)]
struct RawAttributes {
    block_bytes: u32,
    homes: u32,
    node: u32,
    protocol: u32,
}

/// `len` zeroed elements kept in that way; their memory is aligned to the block size.
///
/// # Errors
/// The part of the segment for such memory is full.
///
/// # Panics
/// If the homes are on a node that does not exist, or floats shall be combined by [`Combine::Or`].
pub fn alloc_with<T: Sharable>(len: usize, attributes: Attributes) -> Result<Shared<T>, AllocError> {
    let (homes, node) = match attributes.homes {
        Homes::OfTheRun => (0, 0),
        Homes::RoundRobin => (1, 0),
        Homes::FirstTouch => (2, 0),
        Homes::Slices => (4, 0),
        Homes::Node(node) => {
            assert!(node < nodes(), "there is no node {node}");
            (3, node)
        }
    };
    let is_or_of_floats = matches!(attributes.protocol, Protocol::Reduce(Combine::Or, Element::F32 | Element::F64));
    assert!(!is_or_of_floats, "floats have no bitwise or");
    let protocol = attributes.protocol.number();
    let raw = RawAttributes { block_bytes: attributes.block.bytes(), homes, node, protocol };
    // SAFETY: the attributes live until the call returns, and have no value that it refuses.
    slice(unsafe { sys::bz_alloc_with(&raw, bytes_of::<T>(len)) }, len)
}

impl<T: Sharable> Shared<T> {
    /// Frees the memory.
    ///
    /// # Safety
    /// No node may use this slice or a copy of it any more.
    pub unsafe fn free(self) {
        // SAFETY: the pointer came from an allocation; the caller vouches for the rest.
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

/// A lock that all nodes may use. Waiting nodes get it in the order of their requests; on several hosts a host keeps it for a while.
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

/// Operations of [`fetch_op_u64`] and [`Counter::op`], numbered as in `blizzard.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    Add,
    And,
    Or,
    Xor,
    Swap,
    MinU64,
    MaxU64,
    MinI64,
    MaxI64,
    /// Stores the value if the word is the expected one.
    CompareSwap,
    /// Both words are the bits of a double.
    AddF64,
}

/// Performs an operation on a shared word, atomically for all nodes; returns the old value. `expected` matters to [`Op::CompareSwap`] only.
pub fn fetch_op_u64(word: &AtomicU64, op: Op, v: u64, expected: u64) -> u64 {
    // SAFETY: the reference is valid, aligned and of an atomic type; every number of `Op` is one of the header's.
    unsafe { sys::bz_fetch_op_u64(word.as_ptr(), op as u32, v, expected) }
}

/// What a reduction does, in the order of `blizzard.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduction {
    Sum,
    Min,
    Max,
}

/// Types that can be reduced.
pub trait Reducible: Plain {
    #[doc(hidden)]
    const NUMBER: u32;
}

impl Reducible for u64 {
    const NUMBER: u32 = 0;
}
impl Reducible for i64 {
    const NUMBER: u32 = 1;
}
impl Reducible for f64 {
    const NUMBER: u32 = 2;
}

/// Reduces the nodes' slices element by element, in place: the same bits on all nodes. Every node must call it, with the same operation and
/// length. Sums of integers wrap; minimum and maximum of doubles are NaN if any value is.
pub fn reduce<T: Reducible>(reduction: Reduction, values: &mut [T]) {
    let kind = 3 * reduction as u32 + T::NUMBER;
    // SAFETY: an exclusive slice of 64-bit words, for which any bits are a value.
    unsafe { sys::bz_reduce(kind, values.as_mut_ptr().cast(), values.len()) }
}

/// Copies the values from node `root` to all others. Every node must call it, with the same root and length.
///
/// # Panics
/// If there is no node `root`.
pub fn broadcast<T: Plain>(root: u32, values: &mut [T]) {
    assert!(root < nodes(), "there is no node {root}");
    // SAFETY: an exclusive slice of integers or floats, for which any bytes are a value.
    unsafe { sys::bz_broadcast(root, values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Copies the values to *private* memory of another node, at the address `to` there. Does not wait: see [`remote_fence`].
///
/// # Safety
/// On that node, `to` must point to as many values of that type which no reference is to be unchanged under: a static of atomics, whose address is
/// the same on all nodes, for example.
///
/// # Panics
/// If there is no node `node`.
pub unsafe fn remote_write<T: Plain>(node: u32, to: *mut T, values: &[T]) {
    assert!(node < nodes(), "there is no node {node}");
    // SAFETY: the slice is readable; the caller vouches for the target.
    unsafe { sys::bz_remote_write(node, to.cast(), values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns when all remote writes of this node have happened.
pub fn remote_fence() {
    sys::bz_remote_fence();
}

/// Returns when all nodes that have loaded memory with [`Protocol::Update`] have what this node, its home, has stored into it. Barriers, reductions, broadcasts,
/// unlocks, events and publications begin with the same. A load elsewhere gives what the home had at its last flush, or something newer.
pub fn flush() {
    sys::bz_flush();
}

/// Node 0 makes an object, and all nodes get it.
fn shared_object(slot: u32, make: impl FnOnce() -> *mut c_void) -> NonNull<c_void> {
    if node() == 0 {
        sys::bz_publish(slot, make());
    }
    barrier();
    NonNull::new(sys::bz_lookup(slot)).expect("node 0 published the object")
}

macro_rules! object {
    ($name:ident) => {
        // SAFETY: the runtime's objects may be used from any node and thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    };
}

/// A barrier for some of the nodes.
#[derive(Clone, Copy, Debug)]
pub struct GroupBarrier(NonNull<c_void>);
object!(GroupBarrier);

impl GroupBarrier {
    /// Makes a barrier on node 0 and gives it to all nodes. Every node must call it, with the same `slot`.
    pub fn shared(slot: u32) -> GroupBarrier {
        GroupBarrier(shared_object(slot, || sys::bz_barrier_new()))
    }

    /// Returns when so many nodes wait here; true for exactly one of them.
    ///
    /// # Panics
    /// If the run has fewer nodes, or `nodes` is 0.
    pub fn wait(&self, nodes: u32) -> bool {
        assert!(nodes > 0 && nodes <= self::nodes(), "a barrier for {nodes} nodes can never complete");
        // SAFETY: the handle came from `bz_barrier_new`, and barriers are never freed.
        unsafe { sys::bz_barrier_wait(self.0.as_ptr(), nodes) != 0 }
    }
}

/// A flag that nodes wait for.
#[derive(Clone, Copy, Debug)]
pub struct Event(NonNull<c_void>);
object!(Event);

impl Event {
    /// Makes an event on node 0, not set, and gives it to all nodes. Every node must call it, with the same `slot`.
    pub fn shared(slot: u32) -> Event {
        Event(shared_object(slot, || sys::bz_event_new()))
    }

    pub fn set(&self) {
        // SAFETY: the handle came from `bz_event_new`, and events are never freed.
        unsafe { sys::bz_event_set(self.0.as_ptr()) }
    }

    pub fn clear(&self) {
        // SAFETY: as in `set`.
        unsafe { sys::bz_event_clear(self.0.as_ptr()) }
    }

    /// Returns when it is set.
    pub fn wait(&self) {
        // SAFETY: as in `set`.
        unsafe { sys::bz_event_wait(self.0.as_ptr()) }
    }
}

/// A 64-bit counter that is no memory: node 0 performs all operations on it.
#[derive(Clone, Copy, Debug)]
pub struct Counter(NonNull<c_void>);
object!(Counter);

impl Counter {
    /// Makes a counter on node 0 and gives it to all nodes. Every node must call it, with the same `slot`.
    pub fn shared(slot: u32, value: u64) -> Counter {
        Counter(shared_object(slot, || sys::bz_counter_new(value)))
    }

    /// Performs an operation; returns the old value. `expected` matters to [`Op::CompareSwap`] only.
    pub fn op(&self, op: Op, v: u64, expected: u64) -> u64 {
        // SAFETY: the handle came from `bz_counter_new`, and counters are never freed.
        unsafe { sys::bz_counter_op(self.0.as_ptr(), op as u32, v, expected) }
    }
}

#[cfg(test)]
extern crate self as blizzard_shm;

#[cfg(test)]
#[path = "../examples/sum.rs"]
mod sum;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn the_example_holds_on_one_node() {
        sum::main();
    }

    #[test]
    fn attributes_align_memory() {
        let sizes = [
            (BlockSize::OfTheRun, 64),
            (BlockSize::Bytes64, 64),
            (BlockSize::Bytes128, 128),
            (BlockSize::Bytes256, 256),
            (BlockSize::Bytes512, 512),
            (BlockSize::Bytes1024, 1024),
            (BlockSize::Bytes2048, 2048),
            (BlockSize::Bytes4096, 4096),
        ];
        for (block, bytes) in sizes {
            assert!(block == BlockSize::OfTheRun || block.bytes() == bytes);
            for homes in [Homes::OfTheRun, Homes::RoundRobin, Homes::FirstTouch, Homes::Node(0), Homes::Slices] {
                let words = alloc_with::<AtomicU64>(100, Attributes { block, homes, protocol: Protocol::Update })
                    .expect("memory");
                assert!((words.as_ptr() as usize).is_multiple_of(bytes as usize));
                assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
                words[99].store(1, Ordering::Relaxed);
                // SAFETY: nobody else knows it.
                unsafe { words.free() };
            }
        }
    }

    #[test]
    fn what_there_is_no_room_for_is_an_error() {
        const MUCH: usize = 1 << 57;
        let error = AllocError { bytes: 8 * MUCH };
        assert_eq!(alloc::<AtomicU64>(MUCH).unwrap_err(), error);
        assert_eq!(alloc_on::<AtomicU64>(0, MUCH).unwrap_err(), error);
        assert_eq!(alloc_with::<AtomicU64>(MUCH, Attributes::default()).unwrap_err(), error);
        assert_eq!(alloc::<AtomicU64>(usize::MAX).unwrap_err().bytes, usize::MAX);
        assert_eq!(error.to_string(), "no room for 1152921504606846976 bytes of shared memory");
    }

    #[test]
    #[should_panic(expected = "there is no node 7")]
    fn homes_on_a_node_that_is_not_there_are_refused() {
        let homes = Homes::Node(7);
        let _ = alloc_with::<AtomicU64>(1, Attributes { homes, ..Attributes::default() });
    }

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
    fn the_other_objects_work_for_one_node_too() {
        let word: Shared<AtomicU64> = share(20, || alloc(1).expect("memory"));
        assert_eq!(fetch_op_u64(&word[0], Op::MinI64, -3i64 as u64, 0), 0);
        assert_eq!(fetch_op_u64(&word[0], Op::CompareSwap, 9, 0), -3i64 as u64);
        assert_eq!(fetch_op_u64(&word[0], Op::CompareSwap, 9, -3i64 as u64), -3i64 as u64);
        assert_eq!(word[0].load(Ordering::SeqCst), 9);
        let mut values = [1.5, -2.0];
        reduce(Reduction::Max, &mut values);
        broadcast(0, &mut values);
        assert_eq!(values, [1.5, -2.0]);
        assert!(GroupBarrier::shared(21).wait(1));
        let event = Event::shared(22);
        std::thread::scope(|s| {
            s.spawn(|| event.set());
            event.wait();
        });
        static TARGET: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
        // SAFETY: two words that are changed by others at any time, as atomics may be.
        unsafe { remote_write(0, TARGET.as_ptr().cast_mut().cast::<u64>(), &[6, 7]) };
        remote_fence();
        flush();
        assert_eq!(TARGET.each_ref().map(|word| word.load(Ordering::SeqCst)), [6, 7]);
        let counter = Counter::shared(23, 5);
        assert_eq!((counter.op(Op::AddF64, 0, 0), counter.op(Op::Add, 2, 0), counter.op(Op::Add, 0, 0)), (5, 5, 7));
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
