//! Where protocols and engine keep their state: zeroed tables, and queues that grow.
//!
//! Purpose: the runtime's memory comes from the kernel, that of unit tests from a vector; this crate knows neither. Input: a [`Storage`]. Output:
//! [`Storage::Table`], and [`Queue`] on top of it. **Invariant**: element types are plain data for which zero bytes are a value ([`Zeroed`]).

use core::fmt;
use core::ops::DerefMut;

/// Plain data for which all-zero bytes are a value.
///
/// # Safety
/// The implementer vouches that zero bytes are a value of the type and that it has no drop glue.
pub unsafe trait Zeroed: Copy {}

// SAFETY: integers.
unsafe impl Zeroed for u64 {}
// SAFETY: integers.
unsafe impl Zeroed for u32 {}
// SAFETY: integers.
unsafe impl<const N: usize> Zeroed for [u64; N] {}

/// An array of elements that were zero at first; what was never written should cost no memory.
pub trait Table<T: Zeroed> {
    /// How many elements it has.
    fn capacity(&self) -> u64;

    /// The element at `index`, which must be below the length.
    fn get(&self, index: u64) -> T;

    /// Replaces the element at `index`, which must be below the length.
    fn set(&mut self, index: u64, value: T);
}

impl<T: Zeroed, const N: usize> Table<T> for [T; N] {
    fn capacity(&self) -> u64 {
        N as u64
    }

    fn get(&self, index: u64) -> T {
        self[index as usize]
    }

    fn set(&mut self, index: u64, value: T) {
        self[index as usize] = value;
    }
}

/// Makes tables, and slices of values that are no plain data.
pub trait Storage {
    type Error: fmt::Display + fmt::Debug;
    type Table<T: Zeroed>: Table<T>;
    type Slice<T>: DerefMut<Target = [T]>;

    /// Reserves at least one element, and `len` if that is more.
    ///
    /// # Errors
    /// There is no memory.
    fn table<T: Zeroed>(len: u64) -> Result<Self::Table<T>, Self::Error>;

    /// Makes `len` values, one by one.
    ///
    /// # Errors
    /// There is no memory.
    fn slice<T>(len: usize, make: impl FnMut() -> T) -> Result<Self::Slice<T>, Self::Error>;
}

/// A first-in first-out queue that grows without bound. Costs nothing until the first push.
pub struct Queue<T: Zeroed, S: Storage> {
    slots: Option<S::Table<T>>,
    head: u64,
    len: u64,
}

impl<T: Zeroed, S: Storage> Queue<T, S> {
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

    /// Appends; fails only when there is no memory.
    pub fn push(&mut self, value: T) -> Result<(), S::Error> {
        let capacity = self.slots.as_ref().map_or(0, Table::capacity);
        if self.len == capacity {
            let first = (16384 / size_of::<T>() as u64).max(16).next_power_of_two();
            let mut bigger = S::table(if capacity == 0 { first } else { capacity * 2 })?;
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
            let capacity = slots.capacity();
            slots.set(at & (capacity - 1), value);
            self.len += 1;
        }
        Ok(())
    }

    /// The element `index` places behind the front.
    pub fn get(&self, index: u64) -> Option<T> {
        let slots = self.slots.as_ref().filter(|_| index < self.len)?;
        Some(slots.get((self.head + index) & (slots.capacity() - 1)))
    }

    /// Replaces the element `index` places behind the front; nothing happens when there is none.
    pub fn set(&mut self, index: u64, value: T) {
        let at = self.head + index;
        if let Some(slots) = self.slots.as_mut().filter(|_| index < self.len) {
            let capacity = slots.capacity();
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

    /// All elements, the front first.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.len).filter_map(|at| self.get(at))
    }
}

impl<T: Zeroed, S: Storage> Default for Queue<T, S> {
    fn default() -> Self {
        Self::new()
    }
}

/// Vectors, for unit tests.
#[cfg(test)]
pub mod vectors {
    use crate::storage::{Storage, Table, Zeroed};
    use std::vec::Vec;

    pub struct VectorStorage;

    impl<T: Zeroed> Table<T> for Vec<T> {
        fn capacity(&self) -> u64 {
            self.len() as u64
        }

        fn get(&self, index: u64) -> T {
            self[index as usize]
        }

        fn set(&mut self, index: u64, value: T) {
            self[index as usize] = value;
        }
    }

    impl Storage for VectorStorage {
        type Error = core::convert::Infallible;
        type Table<T: Zeroed> = Vec<T>;
        type Slice<T> = Vec<T>;

        fn table<T: Zeroed>(len: u64) -> Result<Vec<T>, Self::Error> {
            // SAFETY: zero bytes are a value.
            Ok(std::vec![unsafe { core::mem::zeroed() }; len.max(1) as usize])
        }

        fn slice<T>(len: usize, make: impl FnMut() -> T) -> Result<Vec<T>, Self::Error> {
            Ok(core::iter::repeat_with(make).take(len).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;
    use super::vectors::VectorStorage;

    #[test]
    fn queues_keep_their_order_while_they_grow() {
        let mut queue = Queue::<u64, VectorStorage>::new();
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
        assert!(queue.iter().eq(expected.iter().copied()));
        while let Some(n) = expected.pop_front() {
            assert_eq!(queue.pop(), Some(n));
        }
        assert!(queue.is_empty() && queue.pop().is_none());
    }
}
