//! Being woken.
//!
//! Purpose: the carrier sleeps on descriptors, and nodes wake it by the doorbells of the nodes that it stands in for, which are futexes. Each of those doorbells has a
//! thread, which passes on that it was rung. Input: doorbells, other threads. Output: a descriptor that is readable then.
//! **Invariant**: whoever has rung before the descriptor is cleared has published before the carrier looks.

use blizzard_rt::kernel::sys;
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Stack of a thread that passes a ring on.
const STACK_BYTES: usize = 64 << 10;
/// Longest sleep of such a thread: it looks whether it is still wanted.
const LONGEST_NS: u64 = 500_000_000;

/// Wakes the carrier.
#[derive(Clone, Debug)]
pub struct Waker {
    fd: Arc<OwnedFd>,
}

impl Waker {
    /// A descriptor of its own.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker { fd: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?) })
    }

    /// Makes the descriptor readable.
    pub fn wake(&self) {
        // A counter that is full is readable, too.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    /// Makes it unreadable; then the carrier looks at everything.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Passes on that `bell` was rung, until `stop`.
///
/// # Errors
/// The kernel's, when it gives no thread.
pub fn pass_on(bell: &'static AtomicU32, waker: Waker, stop: Arc<AtomicBool>) -> io::Result<()> {
    let pass_on = move || {
        while !stop.load(Ordering::Relaxed) {
            let _ = sys::futex_wait(bell, 0, Some(LONGEST_NS));
            // Whoever rings the next time wakes this thread again.
            if bell.swap(0, Ordering::SeqCst) != 0 {
                waker.wake();
            }
        }
    };
    std::thread::Builder::new().name("bz-bell".into()).stack_size(STACK_BYTES).spawn(pass_on).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn is_readable(waker: &Waker, seconds: i64) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(waker.fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: seconds, tv_nsec: 0 })).unwrap() != 0
    }

    #[test]
    fn each_ring_is_passed_on() {
        let bell: &'static AtomicU32 = Box::leak(Box::default());
        let (waker, stop) = (Waker::new().unwrap(), Arc::new(AtomicBool::new(false)));
        pass_on(bell, waker.clone(), Arc::clone(&stop)).unwrap();
        for _ in 0..1000 {
            // As a node rings for one that sleeps.
            if bell.swap(1, Ordering::SeqCst) == 0 {
                let _ = sys::futex_wake(bell, 1);
            }
            assert!(is_readable(&waker, 100));
            waker.clear();
        }
        assert!(!is_readable(&waker, 0));
        stop.store(true, Ordering::Relaxed);
    }
}
