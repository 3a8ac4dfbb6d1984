//! Whose a static or a field is: the process's, the thread's or the node's.
//!
//! Purpose: a static says in its type who may use it. So it does for the fields of its value, but those whose own types say otherwise.
//! [`PerProcess`]: every thread of the process, so it is atomic, never changes once the program runs, or has a guard of its own. [`PerThread`]: the thread
//! that computes, alone, and handlers that interrupt it. [`PerNode`]: the same thread, as the node. There may be several nodes in one process only in tests,
//! which give each its own (`crate::kernel::explored`).
//! **Invariants**: one reference into all the [`PerNode`]s of a [`Turn`] at a time. Each static of the crate has one of these types (`tests/statics.rs`), and
//! each field that is an atomic or a cell has one owner (`tests/owners.rs`). What never changes at all is a constant. The first two types are where their
//! value is, so that assembly finds it.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::sync::atomic::{AtomicBool, Ordering, compiler_fence};

/// What all threads of the process use.
#[repr(transparent)]
pub struct PerProcess<T>(T);

impl<T> PerProcess<T> {
    pub const fn new(value: T) -> PerProcess<T> {
        PerProcess(value)
    }
}

impl<T> Deref for PerProcess<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// What the thread that computes has: the only one that uses it. [`per_thread`] makes one.
#[cfg_attr(not(test), repr(transparent))]
#[cfg_attr(test, repr(C))]
pub struct PerThread<T: 'static> {
    value: T,
    /// In a test each thread has its own.
    #[cfg(test)]
    of_thread: Option<fn() -> &'static T>,
}

// SAFETY: one thread uses it.
unsafe impl<T> Sync for PerThread<T> {}

impl<T> PerThread<T> {
    /// What assembly names: there is one value also in a test.
    pub const fn new(value: T) -> PerThread<T> {
        PerThread {
            value,
            #[cfg(test)]
            of_thread: None,
        }
    }

    #[cfg(test)]
    pub const fn of_each(value: T, of_thread: fn() -> &'static T) -> PerThread<T> {
        PerThread { value, of_thread: Some(of_thread) }
    }
}

impl<T> Deref for PerThread<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        #[cfg(test)]
        if let Some(of_thread) = self.of_thread {
            return of_thread();
        }
        &self.value
    }
}

/// Makes statics of the thread that computes.
macro_rules! per_thread {
    ($($(#[$attribute:meta])* $visibility:vis static $name:ident: $Type:ty = $value:expr;)*) => {$(
        $(#[$attribute])*
        #[cfg(not(test))]
        $visibility static $name: $crate::kernel::owned::PerThread<$Type> = $crate::kernel::owned::PerThread::new($value);
        #[cfg(test)]
        $visibility static $name: $crate::kernel::owned::PerThread<$Type> = $crate::kernel::owned::PerThread::of_each($value, {
            fn of_thread() -> &'static $Type {
                // Nothing is allocated: the gate may be where no call of the test's can be made.
                std::thread_local! {
                    static OF_THREAD: $Type = const { $value };
                }
                // SAFETY: there as long as the thread, which alone uses it.
                OF_THREAD.with(|value| unsafe { &*core::ptr::from_ref(value) })
            }
            of_thread
        });
    )*};
}
pub(crate) use per_thread;

/// How a value of the node was misused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// It is not there yet.
    Unstarted,
    /// Somebody uses it, or its neighbours, already.
    Nested,
}

/// Who uses a group of [`PerNode`]s now.
pub struct Turn {
    taken: AtomicBool,
    /// Other threads may try, and must be found out.
    threaded: AtomicBool,
    /// Ends the run.
    refuse: fn(Misuse) -> !,
}

impl Turn {
    pub const fn new(refuse: fn(Misuse) -> !) -> Turn {
        Turn { taken: AtomicBool::new(false), threaded: AtomicBool::new(false), refuse }
    }

    pub fn set_threaded(&self, threaded: bool) {
        self.threaded.store(threaded, Ordering::Relaxed);
    }

    #[inline]
    fn take(&self) {
        let taken = if self.threaded.load(Ordering::Relaxed) {
            self.taken.swap(true, Ordering::Acquire)
        } else {
            // No exchange: what could come between the two is a signal handler on this very thread, which leaves the word as it found it.
            let taken = self.taken.load(Ordering::Relaxed);
            self.taken.store(true, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            taken
        };
        if taken {
            (self.refuse)(Misuse::Nested);
        }
    }

    #[inline]
    fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

/// What one node uses. At a page of its own: see [`crate::kernel::unaliased`].
#[repr(C, align(4096))]
pub struct PerNode<T> {
    value: UnsafeCell<MaybeUninit<T>>,
    is_there: AtomicBool,
    turn: &'static Turn,
}

// SAFETY: `value` is written by `init` before `is_there`, then used in a turn.
unsafe impl<T> Sync for PerNode<T> {}

impl<T> PerNode<T> {
    pub const fn new(turn: &'static Turn) -> PerNode<T> {
        PerNode { value: UnsafeCell::new(MaybeUninit::uninit()), is_there: AtomicBool::new(false), turn }
    }

    /// The value is there from here on. Once.
    pub fn init(&self, value: T) {
        assert!(!self.is_there.load(Ordering::Relaxed), "a second value");
        // SAFETY: not there yet, so nobody looks.
        unsafe { (*self.value.get()).write(value) };
        self.is_there.store(true, Ordering::Release);
    }

    /// Uses the value.
    #[inline]
    pub fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        #[cfg(test)]
        if let Some(value) = crate::kernel::explored::owned(self.key()) {
            // SAFETY: the explorer gives the value of the node that runs, and no call is inside another one.
            return run(unsafe { &mut *value.cast() });
        }
        if !self.is_there.load(Ordering::Relaxed) {
            (self.turn.refuse)(Misuse::Unstarted);
        }
        self.turn.take();
        // SAFETY: it is there, and the turn was free, so nobody else has a reference.
        let result = run(unsafe { (*self.value.get()).assume_init_mut() });
        self.turn.give_back();
        result
    }

    /// By which a test that explores several nodes names this static.
    #[cfg(test)]
    pub fn key(&self) -> *const () {
        core::ptr::from_ref(self).cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static TURN: Turn = Turn::new(|misuse| panic!("{misuse:?}"));
    static VALUE: PerNode<u32> = PerNode::new(&TURN);

    #[test]
    fn one_reference_at_a_time_and_none_before_the_start() {
        let misuse = |run: fn()| *std::panic::catch_unwind(run).unwrap_err().downcast::<String>().unwrap();
        assert_eq!(misuse(|| VALUE.with(|_| ())), "Unstarted");
        VALUE.init(3);
        for threaded in [false, true] {
            TURN.set_threaded(threaded);
            assert_eq!(VALUE.with(|value| core::mem::replace(value, 4) | 7), 7);
            assert_eq!(misuse(|| VALUE.with(|_| VALUE.with(|_| ()))), "Nested");
            TURN.give_back();
        }
        assert_eq!(VALUE.with(|value| *value), 4);
    }
}
