//! Several nodes on one thread, from a seed: who goes on, and when.
//!
//! Purpose: [`run`] lets nodes go on one after the other until all have ended. Wherever a node waits, polls or passes a back-edge, another one may go on. Time
//! passes with each step; when nobody can go on it passes until something arrives or a sleep is over. Input: a seed, and what each node does. Output: the same
//! run for the same seed; what is wrong with one that does not end. **Invariant**: nothing that a node does depends on the clocks of this machine.

use crate::memory::region::Region;
use crate::transport::control;
use crate::transport::delaying::fiber::{self, Fiber};
use crate::transport::delaying::network::{self, Random};
use crate::transport::stage::{self, Director, Look};
use blizzard_protocol::ids::NodeId;
use core::cell::{Cell, RefCell};
use core::sync::atomic::Ordering;
use std::string::String;
use std::vec::Vec;

/// A step of a node takes at most so long.
const STEP_NS: u64 = 1_000;
/// When nobody has gone on for so long but to look, nobody ever will. More than the time after which a node that does not answer ends a run.
const STANDSTILL_NS: u64 = 200_000_000_000;
/// More steps than any test takes.
const MOST_STEPS: u64 = 20_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Runs,
    Waits,
    Ended,
}

struct Actor {
    status: Cell<Status>,
    /// While it waits: until when at most, and whether there is something for it.
    until_ns: Cell<u64>,
    is_ready: Cell<Option<*const dyn Fn() -> bool>>,
}

impl Actor {
    fn has_something(&self) -> bool {
        // SAFETY: it lies on the stack of the fiber that pauses in `rest`.
        self.is_ready.get().is_some_and(|is_ready| unsafe { (*is_ready)() })
    }
}

/// The nodes of a thread.
pub struct Schedule {
    region: Region,
    random: RefCell<Random>,
    now_ns: Cell<u64>,
    actors: Vec<Actor>,
    job: *const dyn Fn(usize),
}

thread_local! {
    static CURRENT: Cell<*const Schedule> = const { Cell::new(core::ptr::null()) };
}

/// Runs `job` for each node, with its number; `before` each of its steps. What is wrong if that does not end by itself: then the run is ended.
pub fn run(region: Region, seed: u64, before: &dyn Fn(usize), job: &dyn Fn(usize)) -> Option<String> {
    let actor = |_| Actor { status: Cell::new(Status::Runs), until_ns: Cell::new(0), is_ready: Cell::new(None) };
    let schedule = Schedule {
        region,
        random: RefCell::new(Random::new(!seed)),
        now_ns: Cell::new(1),
        actors: (0..region.header().nodes).map(actor).collect(),
        // SAFETY: only the lifetime changes; nobody uses it when this function is left.
        job: unsafe { core::mem::transmute::<&dyn Fn(usize), &'static dyn Fn(usize)>(job) },
    };
    CURRENT.set(&raw const schedule);
    // SAFETY: taken back below.
    unsafe { stage::set_director(Some(&raw const schedule as *const dyn Director)) };
    let wrong = schedule.run(before);
    // SAFETY: nobody directs.
    unsafe { stage::set_director(None) };
    CURRENT.set(core::ptr::null());
    wrong
}

fn begin(number: usize) {
    // SAFETY: `run` has set it, and goes on only when this has ended.
    let schedule = unsafe { &*CURRENT.get() };
    // SAFETY: as above.
    unsafe { (*schedule.job)(number) };
    schedule.actors[number].status.set(Status::Ended);
}

impl Schedule {
    fn run(&self, before: &dyn Fn(usize)) -> Option<String> {
        let mut fibers: Vec<Fiber> = self.actors.iter().map(|_| Fiber::new()).collect();
        (0..).zip(&mut fibers).for_each(|(number, fiber)| fiber.begin(begin, number));
        let mut wrong = None;
        let mut progress_ns = self.now_ns.get();
        for step in 0.. {
            let all = || (0..self.actors.len()).filter(|&n| self.actors[n].status.get() != Status::Ended);
            if all().next().is_none() {
                return wrong;
            }
            let is_aborted = control::is_aborted(&self.region);
            let has_work = |&n: &usize| {
                let actor = &self.actors[n];
                is_aborted || actor.status.get() == Status::Runs || actor.has_something()
            };
            if all().any(|n| has_work(&n)) {
                progress_ns = self.now_ns.get();
            } else {
                // A sleep is over, or a message arrives, whatever comes first.
                let over = all().map(|n| self.actors[n].until_ns.get()).min();
                let due = network::current().and_then(|network| network.lock().next_due_ns());
                let next = over.into_iter().chain(due).min().unwrap_or(0);
                self.now_ns.set(next.max(self.now_ns.get()));
            }
            let now_ns = self.now_ns.get();
            let able: Vec<usize> = all().filter(|n| has_work(n) || self.actors[*n].until_ns.get() <= now_ns).collect();
            if wrong.is_none() && (step >= MOST_STEPS || now_ns - progress_ns > STANDSTILL_NS) {
                let doing: Vec<_> = all().map(|n| (n, self.actors[n].status.get())).collect();
                let now_ms = now_ns / 1_000_000;
                wrong = Some(std::format!("these nodes never end: {doing:?}; after {step} steps and {now_ms} ms"));
                control::abort(&self.region);
            }
            let (which, takes_ns) = {
                let mut random = self.random.borrow_mut();
                (random.below(able.len() as u64) as usize, random.below(STEP_NS))
            };
            self.now_ns.set(now_ns + takes_ns);
            self.resume(able[which], &mut fibers, before);
        }
        wrong
    }

    fn resume(&self, number: usize, fibers: &mut [Fiber], before: &dyn Fn(usize)) {
        let me = NodeId::new(number as u32).expect("a node's number");
        self.actors[number].is_ready.set(None);
        if network::current().is_some_and(|network| network.lock().rings(me)) {
            self.region.context(me).poll().store(1, Ordering::Relaxed);
        }
        before(number);
        fibers[number].resume();
    }
}

impl Director for Schedule {
    fn look(&self, me: NodeId, is_optional: bool) -> Look {
        if is_optional {
            self.pass(me);
        }
        Look::Anywhere
    }

    fn rest(&self, me: NodeId, longest_ns: u64, is_ready: &dyn Fn() -> bool) {
        let actor = &self.actors[me.index()];
        // SAFETY: only the lifetime changes; it is forgotten when the node goes on.
        let is_ready = unsafe { core::mem::transmute::<&dyn Fn() -> bool, &'static dyn Fn() -> bool>(is_ready) };
        actor.is_ready.set(Some(is_ready));
        actor.until_ns.set(self.now_ns.get().saturating_add(longest_ns));
        actor.status.set(Status::Waits);
        fiber::pause();
    }

    fn pass(&self, me: NodeId) {
        self.actors[me.index()].status.set(Status::Runs);
        fiber::pause();
    }

    fn now_ns(&self) -> Option<u64> {
        Some(self.now_ns.get())
    }

    fn has_time_passed(&self) -> bool {
        self.random.borrow_mut().below(4) == 0
    }
}
