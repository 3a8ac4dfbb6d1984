//! Private memory of the runtime: zeroed tables and growing queues straight from the kernel.
//!
//! Purpose: the runtime may interrupt the program inside `malloc`, so its own memory comes from `mmap` alone. [`Table`] reserves
//! a large array of which only touched pages cost memory; [`Queue`] is a first-in first-out queue that doubles when full.
//! **Invariant**: element types are plain data for which zero bytes are a value ([`Zeroed`]).

use crate::limits;
use crate::sys;
use core::marker::PhantomData;
use core::mem::size_of;

/// Plain data for which all-zero bytes are a value.
///
/// # Safety
/// The implementer vouches that zero bytes are a value of the type and that it has no drop glue.
pub unsafe trait Zeroed: Copy {}

// SAFETY: integers.
unsafe impl Zeroed for u64 {}
// SAFETY: integers.
unsafe impl Zeroed for u32 {}

// SAFETY: integers; all zero is the Unshared entry.
unsafe impl Zeroed for crate::protocol::mcm::Entry {}

/// The explorations of the tests make nodes by the hundred thousand: what is as small as this comes from malloc there.
#[cfg(test)]
const FROM_MALLOC: u64 = 32 << 10;

/// Maps zeroed, unreserved private memory.
fn map(bytes: u64) -> sys::Result<u64> {
    #[cfg(test)]
    if bytes <= FROM_MALLOC {
        // SAFETY: new memory of that size; cleared before anybody knows it.
        return Ok(unsafe { libc::memset(libc::aligned_alloc(64, bytes as usize), 0, bytes as usize) } as u64);
    }
    limits::make_room_at_start(bytes);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
    let at = unsafe { sys::mmap(0, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }?;
    // A huge page would be zeroed as a whole at the first touch: milliseconds inside a miss. Advice may fail harmlessly.
    // SAFETY: advice about the mapping just made; contents stay.
    let _ = unsafe { sys::madvise(at, bytes, libc::MADV_NOHUGEPAGE) };
    // The kernel looks at each page of what it dumps.
    // SAFETY: as above.
    let _ = unsafe { sys::madvise(at, bytes, libc::MADV_DONTDUMP) };
    Ok(at)
}

/// Gives back what [`map`] gave.
///
/// # Safety
/// Nobody uses it any more.
unsafe fn unmap(at: u64, bytes: u64) {
    #[cfg(test)]
    if bytes <= FROM_MALLOC {
        // SAFETY: `map` took it from there.
        return unsafe { libc::free(at as *mut libc::c_void) };
    }
    // SAFETY: the caller's promise.
    let _ = unsafe { sys::munmap(at, bytes) };
}

/// An array of zeroed elements; pages that were never written cost no memory.
pub struct Table<T: Zeroed> {
    base: u64,
    len: u64,
    _owns: PhantomData<T>,
}

impl<T: Zeroed> Table<T> {
    /// Reserves `len` elements.
    pub fn new(len: u64) -> sys::Result<Self> {
        let len = len.max(1);
        Ok(Table { base: map(len * size_of::<T>() as u64)?, len, _owns: PhantomData })
    }

    fn at(&self, index: u64) -> *mut T {
        assert!(index < self.len, "index {index} of {}", self.len);
        (self.base as *mut T).wrapping_add(index as usize)
    }

    /// The element at `index`, which must be below the length.
    pub fn get(&self, index: u64) -> T {
        // SAFETY: in range and initialised (zero bytes are a value).
        unsafe { self.at(index).read() }
    }

    /// Replaces the element at `index`, which must be below the length.
    pub fn set(&mut self, index: u64, value: T) {
        // SAFETY: in range; `self` is exclusive.
        unsafe { self.at(index).write(value) }
    }
}

impl<T: Zeroed> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: the table owns the memory, and nobody else knows it.
        unsafe { unmap(self.base, self.len * size_of::<T>() as u64) };
    }
}

// SAFETY: the table owns its memory like a boxed slice.
unsafe impl<T: Zeroed + Send> Send for Table<T> {}

/// A first-in first-out queue that grows without bound. Costs nothing until the first push.
pub struct Queue<T: Zeroed> {
    slots: Option<Table<T>>,
    head: u64,
    len: u64,
}

impl<T: Zeroed> Queue<T> {
    /// An empty queue.
    pub const fn new() -> Self {
        Queue { slots: None, head: 0, len: 0 }
    }

    pub const fn len(&self) -> u64 {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends; fails only when the kernel has no memory.
    pub fn push(&mut self, value: T) -> sys::Result<()> {
        let capacity = self.slots.as_ref().map_or(0, |slots| slots.len);
        if self.len == capacity {
            let first = (16384 / size_of::<T>() as u64).max(16).next_power_of_two();
            let mut bigger = Table::new(if capacity == 0 { first } else { capacity * 2 })?;
            for index in 0..self.len {
                if let Some(value) = self.get(index) {
                    bigger.set(index, value);
                }
            }
            self.slots = Some(bigger);
            self.head = 0;
        }
        let at = self.head + self.len;
        if let Some(slots) = &mut self.slots {
            let capacity = slots.len;
            slots.set(at & (capacity - 1), value);
            self.len += 1;
        }
        Ok(())
    }

    /// The element `index` places behind the front.
    pub fn get(&self, index: u64) -> Option<T> {
        let slots = self.slots.as_ref().filter(|_| index < self.len)?;
        Some(slots.get((self.head + index) & (slots.len - 1)))
    }

    /// Replaces the element `index` places behind the front; nothing happens when there is none.
    pub fn set(&mut self, index: u64, value: T) {
        let at = self.head + index;
        if let Some(slots) = self.slots.as_mut().filter(|_| index < self.len) {
            let capacity = slots.len;
            slots.set(at & (capacity - 1), value);
        }
    }

    /// Takes the last element.
    pub fn pop_back(&mut self) -> Option<T> {
        let value = self.get(self.len.checked_sub(1)?)?;
        self.len -= 1;
        Some(value)
    }

    /// Takes the front element.
    pub fn pop(&mut self) -> Option<T> {
        let value = self.get(0)?;
        self.head += 1;
        self.len -= 1;
        Some(value)
    }
}

impl<T: Zeroed> Default for Queue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_start_zero_and_keep_values() {
        // 1 TiB of address space; two pages of it are used.
        let mut table = Table::<u64>::new(1 << 37).unwrap();
        assert_eq!(table.get((1 << 37) - 1), 0);
        table.set((1 << 37) - 1, 9);
        table.set(5, 7);
        assert_eq!((table.get((1 << 37) - 1), table.get(5), table.get(6)), (9, 7, 0));
    }

    #[test]
    #[should_panic(expected = "index 4 of 4")]
    fn tables_check_the_index() {
        Table::<u64>::new(4).unwrap().get(4);
    }

    #[test]
    fn queues_keep_their_order_while_they_grow() {
        let mut queue = Queue::new();
        let mut expected = std::collections::VecDeque::new();
        // Pops in between move the front away from the start of the storage, so that growth meets a wrapped queue.
        for n in 0..100_000u64 {
            queue.push(n).unwrap();
            expected.push_back(n);
            if n % 3 == 0 {
                assert_eq!(queue.pop(), expected.pop_front());
            }
        }
        queue.set(1, 77);
        expected[1] = 77;
        assert_eq!(queue.get(1), Some(77));
        assert_eq!(queue.get(queue.len()), None);
        while let Some(n) = expected.pop_front() {
            assert_eq!(queue.pop(), Some(n));
        }
        assert!(queue.is_empty() && queue.pop().is_none());
    }
}
