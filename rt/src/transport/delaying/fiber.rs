//! Stacks that are left in the middle of a call and gone on with later: each explored node runs on one.
//!
//! Purpose: a node waits inside a call, so several nodes on one thread need several stacks. The scheduler [resumes](Fiber::resume) one,
//! which runs until it [pauses](pause). Input: a function and its argument. Output: nothing but what the function does.
//! Source: `makecontext(3)`.
//!
//! **Invariants**: a fiber is used by the thread that has made it. One that is dropped in the middle of its function is not unwound, so nothing on its stack
//! may own memory.

use core::cell::Cell;
use std::boxed::Box;

const STACK_BYTES: usize = 1 << 20;

thread_local! {
    /// Where [`pause`] leads to, and the fiber that runs.
    static RUNNING: Cell<*mut Contexts> = const { Cell::new(core::ptr::null_mut()) };
}

struct Contexts {
    own: libc::ucontext_t,
    scheduler: libc::ucontext_t,
    run: fn(usize),
    argument: usize,
}

/// A function on a stack of its own.
pub struct Fiber {
    contexts: Box<Contexts>,
    stack: *mut libc::c_void,
}

impl Fiber {
    /// Nothing to run yet.
    #[expect(clippy::new_without_default, reason = "it maps memory")]
    pub fn new() -> Fiber {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
        // SAFETY: a new mapping; the contexts are plain data that `getcontext` fills.
        unsafe {
            let stack =
                libc::mmap(core::ptr::null_mut(), STACK_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(stack, libc::MAP_FAILED);
            let (own, scheduler) = (core::mem::zeroed(), core::mem::zeroed());
            Fiber { contexts: Box::new(Contexts { own, scheduler, run: |_| (), argument: 0 }), stack }
        }
    }

    /// The next [`Fiber::resume`] begins `run(argument)`. What ran before is forgotten. `run` must pause for ever at its end.
    pub fn begin(&mut self, run: fn(usize), argument: usize) {
        let contexts = &mut *self.contexts;
        (contexts.run, contexts.argument) = (run, argument);
        // SAFETY: the context is the fiber's own, and so is the stack, which stays mapped as long as the fiber.
        unsafe {
            assert_eq!(libc::getcontext(&raw mut contexts.own), 0);
            contexts.own.uc_stack.ss_sp = self.stack;
            contexts.own.uc_stack.ss_size = STACK_BYTES;
            contexts.own.uc_link = core::ptr::null_mut();
            libc::makecontext(&raw mut contexts.own, entry, 0);
        }
    }

    /// Runs until the fiber pauses.
    pub fn resume(&mut self) {
        let contexts = &raw mut *self.contexts;
        RUNNING.set(contexts);
        // SAFETY: `begin` or `pause` has filled `own`; `scheduler` is filled here.
        unsafe { assert_eq!(libc::swapcontext(&raw mut (*contexts).scheduler, &raw const (*contexts).own), 0) };
        RUNNING.set(core::ptr::null_mut());
    }
}

impl Drop for Fiber {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`; nobody runs on it.
        unsafe { libc::munmap(self.stack, STACK_BYTES) };
    }
}

/// Goes back to who has resumed this fiber, until it is resumed again.
pub fn pause() {
    let contexts = RUNNING.get();
    assert!(!contexts.is_null(), "no fiber runs");
    // SAFETY: the fiber that runs; `resume` has filled `scheduler`.
    unsafe { assert_eq!(libc::swapcontext(&raw mut (*contexts).own, &raw const (*contexts).scheduler), 0) };
}

extern "C" fn entry() {
    let contexts = RUNNING.get();
    // SAFETY: `resume` has set it.
    let (run, argument) = unsafe { ((*contexts).run, (*contexts).argument) };
    run(argument);
    loop {
        pause();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    thread_local! {
        static SEEN: Cell<usize> = const { Cell::new(0) };
    }

    #[test]
    fn fibers_go_on_where_they_paused() {
        let count = |step: usize| {
            for _ in 0..3 {
                SEEN.set(SEEN.get() * 10 + step);
                pause();
            }
        };
        let mut fibers: Vec<Fiber> = (0..2).map(|_| Fiber::new()).collect();
        for round in 0..2 {
            SEEN.set(0);
            (1..).zip(&mut fibers).for_each(|(step, fiber)| fiber.begin(count, step));
            for turn in [0, 1, 1, 0] {
                fibers[turn].resume();
            }
            assert_eq!(SEEN.get(), 1221, "round {round}");
        }
    }
}
