//! The interface of `blizzard.h` in a run of one node.
//!
//! Purpose: with one node no block is ever Invalid and nothing has to be sent, but the program may have threads, and they may call at the same
//! time. So everything here is atomic or under a spin lock, and [`Single`] is used by shared reference. A wait of the only thread would never end,
//! and is misuse.
//! **Invariant**: no memory outside this object and the segment is touched.

use crate::kernel::limits;
use crate::kernel::sys;
use crate::memory::access_control::interface::AccessControl;
use crate::memory::access_control::program::{PROGRAM, runtime_address};
use crate::memory::arena::FreeError;
use crate::memory::homes::{Attributes, Homes};
use crate::memory::segment;
use crate::node::arenas::{Arenas, ArenasFull, whole_blocks};
use crate::sync::handle::{Handle, HandleKind};
use crate::sync::op::Op;
use blizzard_contract::{BLOCK_BYTES, PUBLISH_SLOTS};
use blizzard_protocol::ids::NodeId;
use core::cell::UnsafeCell;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// Most locks of a run of one node. Unused ones cost address space only.
const MAX_LOCKS: u64 = 1 << 24;
/// Most barriers, events and counters.
const MAX_OBJECTS: u64 = 1 << 20;
/// What allocations have that do not choose; here it means nothing but where they lie.
pub const DEFAULTS: Attributes = Attributes::PLAIN;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep on it.
const CONTENDED: u32 = 2;

/// Why a call was refused; the text of the error line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallMisuse {
    NotALock,
    /// Not a barrier, event or counter, whichever was meant.
    NotThat,
    TooManyObjects,
    NotLocked,
    TooManyLocks,
    Free(FreeError),
    NotShared,
    HeldAlready,
    NeverSet,
}

impl CallMisuse {
    pub const fn text(self) -> &'static str {
        match self {
            CallMisuse::NotALock => "is not a lock",
            CallMisuse::NotThat => "is not an object of that kind",
            CallMisuse::TooManyObjects => "too many barriers, events and counters",
            CallMisuse::NotLocked => "is not locked",
            CallMisuse::TooManyLocks => "too many locks",
            CallMisuse::Free(error) => error.text(),
            CallMisuse::NotShared => "is not shared memory",
            CallMisuse::HeldAlready => "is held already, and there is no other thread to release it",
            CallMisuse::NeverSet => "is not set, and there is no other thread to set it",
        }
    }
}

/// Performs an operation on a word that several threads use; returns what it was.
pub fn apply(word: &AtomicU64, op: Op, value: u64, expected: u64) -> u64 {
    let mut old = word.load(Ordering::Relaxed);
    loop {
        let new = op.apply(old, value, expected);
        match word.compare_exchange_weak(old, new, Ordering::SeqCst, Ordering::Relaxed) {
            Ok(old) => return old,
            Err(other) => old = other,
        }
    }
}

/// State of the only node.
pub struct Single {
    homes: Homes,
    guard: AtomicU32,
    arenas: UnsafeCell<Arenas>,
    lock_count: AtomicU64,
    /// Address of `MAX_LOCKS` words.
    locks: u64,
    object_count: AtomicU64,
    /// Address of `MAX_OBJECTS` words of 64 bits: barriers, events and counters, numbered together.
    objects: u64,
    slots: [AtomicU64; PUBLISH_SLOTS as usize],
    published: [AtomicU8; PUBLISH_SLOTS as usize],
}

// SAFETY: `arenas` is used under `guard` only; the rest is atomic.
unsafe impl Sync for Single {}
// SAFETY: nothing belongs to a thread.
unsafe impl Send for Single {}

impl Single {
    /// For a segment of that size.
    pub fn new(segment_bytes: u64, me: NodeId) -> sys::Result<Single> {
        let homes = Homes::new(1, segment_bytes, DEFAULTS);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        limits::make_room_at_start(MAX_OBJECTS * 8 + MAX_LOCKS * 4);
        // SAFETY: new memory at an address of the kernel's choice; it stays for the rest of the process.
        let objects = unsafe { sys::mmap(0, MAX_OBJECTS * 8, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }?;
        // SAFETY: as above.
        let locks = unsafe { sys::mmap(0, MAX_LOCKS * 4, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }?;
        Ok(Single {
            homes,
            guard: AtomicU32::new(FREE),
            arenas: UnsafeCell::new(Arenas::new(&homes, me)?),
            lock_count: AtomicU64::new(0),
            locks,
            object_count: AtomicU64::new(0),
            objects,
            slots: [const { AtomicU64::new(0) }; PUBLISH_SLOTS as usize],
            published: [const { AtomicU8::new(0) }; PUBLISH_SLOTS as usize],
        })
    }

    fn with_arenas<R>(&self, run: impl FnOnce(&mut Arenas) -> R) -> R {
        let mut looks = 0u32;
        while self.guard.swap(HELD, Ordering::Acquire) != FREE {
            looks += 1;
            if looks.is_multiple_of(64) { sys::sched_yield() } else { spin_loop() }
        }
        // SAFETY: the guard is held.
        let result = run(unsafe { &mut *self.arenas.get() });
        self.guard.store(FREE, Ordering::Release);
        result
    }

    /// Where the records of its arenas are.
    pub fn arena_records(&self) -> u64 {
        self.with_arenas(|arenas| arenas.records())
    }

    /// Allocates memory for who stands at `by`; gives address, bytes, and whether it has to be zeroed. Memory for larger blocks is aligned as it would be in a larger run.
    ///
    /// # Errors
    /// There is no room.
    pub fn alloc(&self, attributes: Attributes, bytes: u64, by: u64) -> Result<(u64, u64, bool), ArenasFull> {
        let arena = self.homes.arena_for(attributes).ok_or(ArenasFull::NO_ARENA)?;
        let bytes = whole_blocks(attributes, bytes);
        let (before, (chunk, limit)) = self
            .with_arenas(|arenas| Some((arenas.limit(arena).unwrap_or(0), arenas.alloc(arena, bytes, by, false)?)))
            .ok_or(ArenasFull::NO_ARENA)?;
        if let Some((start, bytes)) = self.homes.arena_range(arena).filter(|_| limit > before) {
            // SAFETY: an arena of the segment.
            unsafe { segment::show_in_dumps(PROGRAM.dumped_address(start), (start, start + bytes), before, limit) };
        }
        chunk.map(|chunk| (chunk.addr, chunk.bytes, chunk.recycled))
    }

    /// Gives memory back.
    pub fn free(&self, addr: u64) -> Result<(), CallMisuse> {
        self.with_arenas(|arenas| arenas.free(addr)).ok_or(CallMisuse::NotShared)?.map(drop).map_err(CallMisuse::Free)
    }

    /// A new barrier, event or counter.
    pub fn object_new(&self, kind: HandleKind, value: u64) -> Result<u64, CallMisuse> {
        let index = self.object_count.fetch_add(1, Ordering::Relaxed);
        let home = NodeId::new(0).filter(|_| index < MAX_OBJECTS).ok_or(CallMisuse::TooManyObjects)?;
        let handle = Handle { kind, home, index }.encode();
        self.object(kind, handle)?.store(value, Ordering::Release);
        Ok(handle)
    }

    /// The word of a barrier, event or counter.
    pub fn object(&self, kind: HandleKind, value: u64) -> Result<&AtomicU64, CallMisuse> {
        let known = self.object_count.load(Ordering::Relaxed).min(MAX_OBJECTS);
        let handle = Handle::decode(kind, value).filter(|handle| handle.home.index() == 0 && handle.index < known);
        let index = handle.ok_or(CallMisuse::NotThat)?.index;
        // SAFETY: below MAX_OBJECTS, so inside the mapping, which stays.
        Ok(unsafe { AtomicU64::from_ptr((self.objects + 8 * index) as *mut u64) })
    }

    /// The lower half of an event's word, which threads sleep on: 1 when it is set.
    fn event_word(&self, value: u64) -> Result<&AtomicU32, CallMisuse> {
        let word = self.object(HandleKind::Event, value)?;
        // SAFETY: half of the word, little-endian; events are used through here only.
        Ok(unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) })
    }

    /// Sets or clears an event.
    pub fn event_set(&self, value: u64, on: bool) -> Result<(), CallMisuse> {
        let word = self.event_word(value)?;
        word.store(on.into(), Ordering::Release);
        if on {
            let _ = sys::futex_wake(word, i32::MAX as u32);
        }
        Ok(())
    }

    /// Waits until another thread has set the event.
    pub fn event_wait(&self, value: u64) -> Result<(), CallMisuse> {
        let word = self.event_word(value)?;
        while word.load(Ordering::Acquire) == 0 {
            if sys::is_only_thread() {
                return Err(CallMisuse::NeverSet);
            }
            let _ = sys::futex_wait(word, 0, None);
        }
        Ok(())
    }

    /// A new, free lock.
    pub fn lock_new(&self) -> Result<u64, CallMisuse> {
        let index = self.lock_count.fetch_add(1, Ordering::Relaxed);
        let home = NodeId::new(0).filter(|_| index < MAX_LOCKS).ok_or(CallMisuse::TooManyLocks)?;
        Ok(Handle { kind: HandleKind::Lock, home, index }.encode())
    }

    fn lock_word(&self, value: u64) -> Result<&AtomicU32, CallMisuse> {
        let known = self.lock_count.load(Ordering::Relaxed).min(MAX_LOCKS);
        let handle =
            Handle::decode(HandleKind::Lock, value).filter(|handle| handle.home.index() == 0 && handle.index < known);
        let index = handle.ok_or(CallMisuse::NotALock)?.index;
        // SAFETY: below MAX_LOCKS, so inside the mapping, which stays.
        Ok(unsafe { AtomicU32::from_ptr((self.locks + 4 * index) as *mut u32) })
    }

    /// Waits until the calling thread holds the lock.
    pub fn lock(&self, value: u64) -> Result<(), CallMisuse> {
        let word = self.lock_word(value)?;
        if word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        while word.swap(CONTENDED, Ordering::Acquire) != FREE {
            if sys::is_only_thread() {
                return Err(CallMisuse::HeldAlready);
            }
            // Woken, interrupted or changed meanwhile: look again.
            let _ = sys::futex_wait(word, CONTENDED, None);
        }
        Ok(())
    }

    /// Takes the lock if it is free.
    pub fn trylock(&self, value: u64) -> Result<bool, CallMisuse> {
        let word = self.lock_word(value)?;
        Ok(word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok())
    }

    /// Releases the lock.
    pub fn unlock(&self, value: u64) -> Result<(), CallMisuse> {
        let word = self.lock_word(value)?;
        match word.swap(FREE, Ordering::Release) {
            FREE => Err(CallMisuse::NotLocked),
            HELD => Ok(()),
            _ => {
                let _ = sys::futex_wake(word, 1);
                Ok(())
            }
        }
    }

    /// Stores a pointer in a slot below [`PUBLISH_SLOTS`].
    pub fn publish(&self, slot: u32, value: u64) {
        let slot = slot as usize;
        self.slots[slot].store(value, Ordering::Relaxed);
        self.published[slot].store(1, Ordering::Release);
    }

    /// The pointer in a slot, as soon as some thread has published it; `None` if there is no other thread to do so.
    pub fn lookup(&self, slot: u32) -> Option<u64> {
        let slot = slot as usize;
        while self.published[slot].load(Ordering::Acquire) == 0 {
            if sys::is_only_thread() {
                return None;
            }
            // Rare, and there is no word to sleep on: a millisecond's nap on a private one.
            let never = AtomicU32::new(0);
            let _ = sys::futex_wait(&never, 0, Some(1_000_000));
        }
        Some(self.slots[slot].load(Ordering::Relaxed))
    }
}

/// Zeroes a chunk that was in use before.
///
/// # Safety
/// The range is mapped and belongs to the caller alone.
pub unsafe fn zero(addr: u64, bytes: u64) {
    debug_assert!(bytes.is_multiple_of(BLOCK_BYTES));
    // SAFETY: the caller's promise.
    unsafe { core::ptr::write_bytes(runtime_address(addr), 0, bytes as usize) };
}

/// Fills memory with a word.
///
/// # Safety
/// As of [`zero`].
pub unsafe fn fill(addr: u64, bytes: u64, word: u64) {
    // SAFETY: the caller's promise; whole blocks are aligned.
    unsafe { core::slice::from_raw_parts_mut(runtime_address(addr).cast::<u64>(), bytes as usize / 8) }.fill(word);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::homes::{BlockSize, Placement};
    use std::sync::Arc;

    fn single() -> Arc<Single> {
        Arc::new(Single::new(512 << 20, NodeId::new(0).unwrap()).unwrap())
    }

    #[test]
    fn locks_exclude_threads() {
        let single = single();
        let lock = single.lock_new().unwrap();
        let shared = Arc::new((AtomicU64::new(0), AtomicU32::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (single, shared) = (single.clone(), shared.clone());
                std::thread::spawn(move || {
                    for round in 0..20_000 {
                        if round % 7 == 0 {
                            while !single.trylock(lock).unwrap() {
                                std::thread::yield_now();
                            }
                        } else {
                            single.lock(lock).unwrap();
                        }
                        assert_eq!(shared.1.swap(1, Ordering::Relaxed), 0, "two holders");
                        shared.0.store(shared.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                        shared.1.store(0, Ordering::Relaxed);
                        single.unlock(lock).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(shared.0.load(Ordering::Relaxed), 80_000);
    }

    #[test]
    fn misuse_is_told() {
        let single = single();
        assert_eq!(single.lock(0), Err(CallMisuse::NotALock));
        let lock = single.lock_new().unwrap();
        assert_eq!(single.unlock(lock), Err(CallMisuse::NotLocked));
        assert_eq!(single.unlock(lock + 1), Err(CallMisuse::NotALock));
        single.lock(lock).unwrap();
        assert_eq!(single.trylock(lock), Ok(false));
        assert_eq!(single.free(64), Err(CallMisuse::NotShared));
        let (addr, ..) = single.alloc(DEFAULTS, 100, 0).unwrap();
        single.free(addr).unwrap();
        assert_eq!(single.free(addr), Err(CallMisuse::Free(FreeError::AlreadyFree)));
    }

    #[test]
    fn threads_allocate_at_the_same_time() {
        let single = single();
        let threads: Vec<_> = (0..4u64)
            .map(|seed| {
                let single = single.clone();
                std::thread::spawn(move || {
                    let homes =
                        [Placement::Node(NodeId::new(0).unwrap()), Placement::RoundRobin, Placement::FirstTouch];
                    let block = BlockSize::new(64 << (seed % 2 * 3)).unwrap();
                    let attributes = Attributes { homes: homes[seed as usize % 3], block, ..DEFAULTS };
                    let mut live: Vec<u64> = Vec::new();
                    for n in 0..2000 {
                        live.push(single.alloc(attributes, 64 + (n * 37 + seed) % 500, 0).unwrap().0);
                        if n % 3 == 0 {
                            single.free(live.swap_remove((n as usize * 7) % live.len())).unwrap();
                        }
                    }
                    live
                })
            })
            .collect();
        let mut all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        all.into_iter().for_each(|addr| single.free(addr).unwrap());
    }

    #[test]
    fn a_lookup_waits_for_another_threads_publish() {
        let single = single();
        let reader = {
            let single = single.clone();
            std::thread::spawn(move || single.lookup(1023))
        };
        single.publish(1023, 77);
        assert_eq!(reader.join().unwrap(), Some(77));
    }
}
