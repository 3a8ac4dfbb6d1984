//! Private memory of the runtime: zeroed tables and growing queues straight from the kernel.
//!
//! Purpose: the runtime may interrupt the program inside `malloc`, so its own memory comes from `mmap` alone. [`KernelTable`] reserves
//! a large array of which only touched pages cost memory; [`KernelQueue`] is a queue on top of it. [`KernelMemory`] hands them to the coherence engine.
//! [`Slice`] has as many values of any type as the run needs. **Invariant**: elements of tables and queues are plain data for which zero bytes are a value
//! ([`Zeroed`]).

use crate::kernel::limits;
use crate::kernel::sys;
use blizzard_protocol::storage::Storage;
pub use blizzard_protocol::storage::Zeroed;
use core::marker::PhantomData;
use core::mem::{align_of, size_of};
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

/// [`KernelTable`]s from the kernel.
pub struct KernelMemory;

impl Storage for KernelMemory {
    type Error = sys::Errno;
    type Table<T: Zeroed> = KernelTable<T>;
    type Slice<T> = Slice<T>;

    fn table<T: Zeroed>(len: u64) -> sys::Result<KernelTable<T>> {
        KernelTable::new(len)
    }

    fn slice<T>(len: usize, mut make: impl FnMut() -> T) -> sys::Result<Slice<T>> {
        Slice::new(len, |_| make())
    }
}

/// A first-in first-out queue that grows without bound. Costs nothing until the first push.
pub type KernelQueue<T> = blizzard_protocol::storage::Queue<T, KernelMemory>;

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
pub struct KernelTable<T: Zeroed> {
    base: u64,
    len: u64,
    _owns: PhantomData<T>,
}

impl<T: Zeroed> KernelTable<T> {
    /// Reserves `len` elements.
    pub fn new(len: u64) -> sys::Result<Self> {
        let len = len.max(1);
        Ok(KernelTable { base: map(len * size_of::<T>() as u64)?, len, _owns: PhantomData })
    }

    /// Where the first element is. Elements never move.
    pub fn base(&self) -> u64 {
        self.base
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

impl<T: Zeroed> Drop for KernelTable<T> {
    fn drop(&mut self) {
        // SAFETY: the table owns the memory, and nobody else knows it.
        unsafe { unmap(self.base, self.len * size_of::<T>() as u64) };
    }
}

// SAFETY: the table owns its memory like a boxed slice.
unsafe impl<T: Zeroed + Send> Send for KernelTable<T> {}

impl<T: Zeroed> blizzard_protocol::storage::Table<T> for KernelTable<T> {
    #[inline]
    fn capacity(&self) -> u64 {
        self.len
    }

    #[inline]
    fn get(&self, index: u64) -> T {
        KernelTable::get(self, index)
    }

    #[inline]
    fn set(&mut self, index: u64, value: T) {
        KernelTable::set(self, index, value);
    }
}

/// A number of values, known when they are made.
pub struct Slice<T> {
    base: NonNull<T>,
    len: usize,
}

impl<T> Slice<T> {
    /// Makes `len` values, one by one.
    pub fn new(len: usize, mut make: impl FnMut(usize) -> T) -> sys::Result<Slice<T>> {
        const { assert!(align_of::<T>() <= 64) };
        let at = map((len * size_of::<T>()).max(1) as u64)?;
        let base = NonNull::new(at as *mut T).unwrap_or(NonNull::dangling());
        for index in 0..len {
            // SAFETY: inside the new memory, which is aligned for any such type.
            unsafe { base.add(index).write(make(index)) };
        }
        Ok(Slice { base, len })
    }
}

impl<T> Deref for Slice<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` has made so many values there, which belong to the slice.
        unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Slice<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `self` is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl<T> Drop for Slice<T> {
    fn drop(&mut self) {
        // SAFETY: the slice owns values and memory, and nobody else knows them.
        unsafe {
            core::ptr::drop_in_place(&raw mut **self);
            unmap(self.base.as_ptr() as u64, (self.len * size_of::<T>()).max(1) as u64);
        }
    }
}

// SAFETY: the slice owns its memory like a boxed one.
unsafe impl<T: Send> Send for Slice<T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_start_zero_and_keep_values() {
        // 1 TiB of address space; two pages of it are used.
        let mut table = KernelTable::<u64>::new(1 << 37).unwrap();
        assert_eq!(table.get((1 << 37) - 1), 0);
        table.set((1 << 37) - 1, 9);
        table.set(5, 7);
        assert_eq!((table.get((1 << 37) - 1), table.get(5), table.get(6)), (9, 7, 0));
    }

    #[test]
    #[should_panic(expected = "index 4 of 4")]
    fn tables_check_the_index() {
        KernelTable::<u64>::new(4).unwrap().get(4);
    }
}
