//! Timers (Tempest 1.2.1, section 3.5). A tick is a microsecond.
//!
//! Purpose: call a handler when its time has come, also while the program computes or waits. Input: ticks, handlers. Output: due handlers, in the
//! order of their times.
//!
//! A program that computes enters the runtime only when its doorbell is set, so somebody must set it. That is a thread of the runtime's own,
//! made at the first timer (in guarded code and a run of one node at the start), which sleeps until the next deadline; it executes nothing but [`watch`], has all signals
//! blocked, and touches only this module's words and the context page. A node that waits in the kernel is called out of it as by a peer
//! ([`crate::system_calls`]). With one node guarded code has nobody else to interrupt it: the watcher does ([`crate::node::nudge`]).
//! **Invariants**: the handlers' list belongs to the computation thread; the watcher sees [`DEADLINE`] only. Whoever lowers the deadline
//! wakes the watcher.

use crate::kernel::own_memory::{KernelQueue, Zeroed};
use crate::kernel::owned::{PerNode, PerProcess};
use crate::kernel::sys;
use crate::memory::region::ContextPage;
use crate::node::alarm;
use crate::node::nudge::{self, CHANGED};
use crate::process::process;
use crate::tempest::owner::TURN;
use crate::transport::rings::ends::{interrupt, wake};
use blizzard_contract::tempest::TimerHandler;
use blizzard_contract::{self as contract, activity};
use core::sync::atomic::{AtomicU64, Ordering};

/// Nanoseconds of one tick.
pub const TICK_NS: u64 = 1000;
/// No deadline.
const NEVER: u64 = u64::MAX;

/// When the watcher sets the doorbell next, by the monotonic clock.
static DEADLINE: PerProcess<AtomicU64> = PerProcess::new(AtomicU64::new(NEVER));
/// A scheduled handler.
#[derive(Clone, Copy)]
struct Timer {
    due_ns: u64,
    /// Of two with the same time, the one that was scheduled first.
    number: u64,
    handler: u64,
    user_ptr: u64,
}

// SAFETY: integers.
unsafe impl Zeroed for Timer {}

impl Timer {
    const fn key(&self) -> (u64, u64) {
        (self.due_ns, self.number)
    }
}

/// All scheduled handlers: a binary heap, the earliest first.
pub struct Timers {
    heap: KernelQueue<Timer>,
    scheduled: u64,
    has_watcher: bool,
}

impl Timers {
    pub const fn new() -> Timers {
        Timers { heap: KernelQueue::new(), scheduled: 0, has_watcher: false }
    }

    fn at(&self, index: u64) -> Timer {
        self.heap.get(index).unwrap_or(Timer { due_ns: NEVER, number: u64::MAX, handler: 0, user_ptr: 0 })
    }

    fn swap(&mut self, a: u64, b: u64) {
        let (x, y) = (self.at(a), self.at(b));
        self.heap.set(a, y);
        self.heap.set(b, x);
    }

    fn insert(&mut self, due_ns: u64, handler: u64, user_ptr: u64) -> sys::Result<()> {
        let number = self.scheduled;
        self.scheduled += 1;
        self.heap.push(Timer { due_ns, number, handler, user_ptr })?;
        let mut at = self.heap.len() - 1;
        while at > 0 && self.at(at).key() < self.at((at - 1) / 2).key() {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        Ok(())
    }

    fn next_due_ns(&self) -> u64 {
        self.at(0).due_ns
    }

    /// Takes the earliest handler if its time is not after `now_ns`.
    fn take(&mut self, now_ns: u64) -> Option<(u64, u64)> {
        let first = self.heap.get(0).filter(|first| first.due_ns <= now_ns)?;
        let last = self.heap.len() - 1;
        self.swap(0, last);
        self.heap.pop_back();
        let mut at = 0;
        loop {
            let child = if self.at(2 * at + 2).key() < self.at(2 * at + 1).key() { 2 * at + 2 } else { 2 * at + 1 };
            if self.at(at).key() <= self.at(child).key() {
                return Some((first.handler, first.user_ptr));
            }
            self.swap(at, child);
            at = child;
        }
    }
}

static TIMERS: PerNode<Timers> = PerNode::new(&TURN);

pub fn start() {
    TIMERS.init(Timers::new());
    if NUDGES && process::nodes() == 1 {
        require_watcher("tempest.h");
    }
}

/// Whether code without polls may have to be interrupted.
const NUDGES: bool = cfg!(feature = "guard");

/// Starts the watcher, if nobody has; `function` is for the error line.
fn require_watcher(function: &str) {
    let first = TIMERS.with(|timers| !core::mem::replace(&mut timers.has_watcher, true));
    if first && let Err(e) = start_watcher() {
        process::fail(format_args!("{function}: cannot start the thread that watches the clock: {e}"));
    }
}

/// `TPPI_schedule_timer`; `handler`: entry of the handler's rewritten code.
pub fn schedule(ticks: i32, handler: u64, user_ptr: u64) {
    let due_ns = sys::monotonic_ns() + u64::from(ticks.max(0) as u32) * TICK_NS;
    if TIMERS.with(|timers| timers.insert(due_ns, handler, user_ptr)).is_err() {
        process::fail(format_args!("TPPI_schedule_timer: no memory"));
    }
    note_scheduled();
    require_watcher("TPPI_schedule_timer");
    publish_deadline();
}

/// Tells the launcher how many timers are scheduled.
fn note_scheduled() {
    process::note_timers(TIMERS.with(|timers| timers.heap.len()));
}

/// Tells the watcher when the next timer is due.
fn publish_deadline() {
    let next = TIMERS.with(|timers| timers.next_due_ns());
    if next < DEADLINE.load(Ordering::SeqCst) {
        DEADLINE.store(next, Ordering::SeqCst);
        nudge::wake_watcher();
    }
}

/// Takes a handler whose time has come.
pub fn take_due() -> Option<(TimerHandler, u64)> {
    if !alarm::is_due() {
        return None;
    }
    let now = sys::monotonic_ns();
    if let Some((handler, user_ptr)) = TIMERS.with(|timers| timers.take(now)) {
        note_scheduled();
        // SAFETY: entry of the rewritten code of a function that the program gave as a timer handler.
        return Some((unsafe { core::mem::transmute::<u64, TimerHandler>(handler) }, user_ptr));
    }
    alarm::set_due(false);
    publish_deadline();
    None
}

/// Sleeps until a timer is due; false when none is scheduled.
pub fn sleep_until_due() -> bool {
    if TIMERS.with(|timers| timers.next_due_ns()) == NEVER {
        return false;
    }
    publish_deadline();
    let context = context();
    let doorbell = context.poll();
    doorbell.store(0, Ordering::SeqCst);
    context.activity().swap(activity::SLEEPING, Ordering::SeqCst);
    if !alarm::is_due() {
        // Woken, interrupted or timed out: the caller looks again.
        let _ = sys::futex_wait(doorbell, 0, Some(50_000_000));
    }
    context.activity().store(activity::RUNNING, Ordering::SeqCst);
    true
}

/// The own context page.
fn context() -> ContextPage {
    // SAFETY: mapped for the life of the process.
    unsafe { ContextPage::at(contract::CONTEXT_SHARED) }
}

/// Bytes of the watcher's stack.
const STACK_BYTES: u64 = 64 << 10;

fn start_watcher() -> sys::Result<()> {
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory; it stays for the life of the process.
    let stack = unsafe { sys::mmap(0, STACK_BYTES, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }?;
    // The watcher inherits the mask: no signal is ever delivered to it.
    let mask = sys::set_signal_mask(u64::MAX);
    // SAFETY: the stack is the new thread's alone, and `watch` never returns.
    let started = unsafe { sys::spawn_thread(stack + STACK_BYTES, watch) };
    sys::set_signal_mask(mask);
    started
}

/// The watcher.
extern "C" fn watch() -> ! {
    let mut again_ns = nudge::FIRST_NS;
    loop {
        let seen = CHANGED.load(Ordering::SeqCst);
        let deadline = DEADLINE.load(Ordering::SeqCst);
        let again = (NUDGES && nudge::is_wanted()).then(|| {
            nudge::interrupt();
            let ns = again_ns;
            again_ns = (2 * ns).min(nudge::LAST_NS);
            ns
        });
        if again.is_none() {
            again_ns = nudge::FIRST_NS;
        }
        if deadline == NEVER {
            let _ = sys::futex_wait(&CHANGED, seen, again);
            continue;
        }
        let now = sys::monotonic_ns();
        if now < deadline {
            let left_ns = deadline - now;
            let _ = sys::futex_wait(&CHANGED, seen, Some(again.map_or(left_ns, |again_ns| again_ns.min(left_ns))));
            continue;
        }
        if DEADLINE.compare_exchange(deadline, NEVER, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            alarm::set_due(true);
            // The node says that it sleeps before it looks at the word for the last time, so one of the two sees the other.
            wake(&context());
            if cfg!(feature = "guard") && process::nodes() > 1 {
                interrupt(&context());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 3.5: handlers come in the order of their times, those of the same time in the order of scheduling.
    #[test]
    fn timers_come_out_in_the_order_of_their_times() {
        let mut timers = Timers::new();
        let mut expected: Vec<(u64, u64)> = Vec::new();
        let mut seed = 12345u64;
        for number in 0..500 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            let due = seed >> 56;
            timers.insert(due, number, number + 7).unwrap();
            expected.push((due, number));
        }
        expected.sort_unstable();
        assert_eq!(timers.next_due_ns(), expected[0].0);
        for (due, number) in &expected {
            if *due > 0 {
                assert_eq!(timers.take(due - 1), None);
            }
            assert_eq!(timers.take(*due), Some((*number, number + 7)));
        }
        assert_eq!((timers.take(NEVER), timers.next_due_ns()), (None, NEVER));
    }
}
