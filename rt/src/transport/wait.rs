//! Waiting for messages: look, look less often, yield, sleep.
//!
//! Purpose: one wait of this node, step by step. Input: rings that were found empty. Output: time passes, and peers know what this
//! node does (the table of [`super::doorbell`]). How long each kind of waiting lasts is [`crate::transport::settings`]'s business.

use super::first_look::{FirstLook, Timed};
use super::watch::CALL_EVERY_NS;
use super::{Transport, doorbell_of};
use crate::kernel::sys;
use crate::links::wait_clock;
use crate::links::wait_clock::Wait;
use blizzard_contract::activity;
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::protocol::seam::Idled;
use core::hint::spin_loop;
use core::sync::atomic::Ordering;

/// A node that only yields looks at its peers after so many yields.
const YIELDS_UNWATCHED: u32 = 1024;

/// Looks at the rings in a row, with nothing else in between but a pause each.
const STRETCH: u32 = 8;
/// Pauses in front of each look while messages of programs and of the synchronisation come and go.
const TALKING_PAUSES: u32 = 3;
/// After so many looks in vain, longer than a miss takes, a node makes sure that who must know of its messages does.
const UNSURE_LOOKS: u32 = 24;
/// A wait that has been in vain for so many looks says so. A shorter one leaves the word `activity` alone: to change it back would take a fence.
const QUIET_LOOKS: u32 = 32;

/// How long a wait has been going on; [`Transport::idle`] advances it.
#[derive(Clone, Copy, Default)]
pub struct Patience {
    /// Looks with a pause in between.
    looks: u32,
    /// Their number is used up.
    is_spun_out: bool,
    /// Looks with a yield, since the last sleep.
    yields: u32,
    /// The word `activity` says that this node looks at its rings by itself.
    is_announced: bool,
}

/// What waits of that kind are for, and whether messages of programs come and go: each has a first look of its own.
const KINDS: usize = 2 * Wait::KINDS;

/// When the first look of a wait comes that follows a message of this node.
pub(super) struct Looking {
    kinds: [FirstLook; KINDS],
    /// The receiver of the last message, if it was sent after the last one came.
    sent: Option<NodeId>,
    /// The wait that is timed: its kind, its pause, and the cycle when it began.
    timed: Option<(usize, Timed, u64)>,
}

impl Looking {
    pub(super) const fn new() -> Looking {
        Looking { kinds: [const { FirstLook::new() }; KINDS], sent: None, timed: None }
    }

    /// A message was sent.
    #[inline]
    pub(super) fn sent(&mut self, to: NodeId) {
        self.sent = Some(to);
    }

    /// A message came.
    #[inline]
    pub(super) fn received(&mut self) {
        self.sent = None;
        if let Some((kind, timed, since)) = self.timed.take() {
            self.kinds[kind].end(timed, wait_clock::cycles().saturating_sub(since));
        }
    }
}

impl Transport {
    /// Before each look of a wait: if this node has just sent a message, lets its receiver work undisturbed for as long as has been found to be best, unless there is a
    /// message of somebody else. Only while a peer that is waited for may be expected to run.
    #[inline]
    pub fn hold_off(&mut self, what: Wait) {
        if let Some(to) = self.looking.sent.take()
            && self.spins.now() > self.waiting.spins_min
        {
            self.pause_for(to, 2 * what as usize + usize::from(self.is_talking));
        }
    }

    #[inline(never)]
    fn pause_for(&mut self, receiver: NodeId, kind: usize) {
        let (pauses, timed) = self.looking.kinds[kind].begin();
        self.looking.timed = None;
        if pauses != 0 || timed.is_some() {
            // Whether or not it is wanted: reading the clock is a pause, too, and those that are timed must not be longer than the others.
            let now = wait_clock::cycles();
            self.looking.timed = timed.map(|timed| (kind, timed, now));
        }
        for _ in 0..pauses {
            if self.is_ready_but(receiver) {
                break;
            }
            spin_loop();
        }
    }

    /// Whether a message of another node than that one is there.
    #[inline]
    fn is_ready_but(&self, one: NodeId) -> bool {
        let peers = self.peers[..self.nodes].iter().enumerate();
        peers
            .filter(|&(number, _)| number != one.index())
            .any(|(_, peer)| peer.as_ref().is_some_and(|peer| peer.link.is_ready()))
    }

    /// From here on the node looks at its rings by itself, and peers see it.
    pub(super) fn begin_wait(&self, patience: &mut Patience) {
        if !patience.is_announced {
            patience.is_announced = true;
            doorbell_of(&self.own).begin_wait();
        }
    }

    /// The end of a wait: back to the program. If peers were told of the wait, tells them that it is over, and sets the own doorbell if anything is
    /// left to do. Otherwise they have rung meanwhile for what is not an answer, and a doorbell that rang for what has been handled is cleared.
    #[inline]
    pub fn end_wait(&mut self, patience: &Patience) {
        self.looking.timed = None;
        if patience.is_announced {
            doorbell_of(&self.own).end_wait(|| self.any_ready() || self.buffered != 0);
        } else if self.own.poll().load(Ordering::Relaxed) != 0 {
            let has_work = || {
                self.any_ready() || self.buffered != 0 || self.is_aborted() || crate::node::user_handlers::wants_poll()
            };
            doorbell_of(&self.own).silence(has_work);
        }
    }

    /// Sets the own doorbell, so that the next poll is taken.
    pub fn remind(&self) {
        self.own.poll().store(1, Ordering::Relaxed);
    }

    /// Clears the own doorbell; afterwards the caller must look at all rings.
    pub fn answer_doorbell(&self) {
        self.beat();
        doorbell_of(&self.own).answer();
    }

    /// Tells whoever watches that this node looks at its rings.
    #[inline]
    fn beat(&self) {
        let beat = self.own.beat();
        beat.store(beat.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Before a system call that may wait: from here on peers call this node by a signal. False, and nothing has changed, when a
    /// message is there.
    pub fn enter_kernel(&mut self) -> bool {
        self.beat();
        self.make_sure();
        doorbell_of(&self.own)
            .enter_kernel(|| self.any_ready() || self.is_aborted() || crate::node::user_handlers::is_timer_due())
    }

    /// This node takes no more part in the run: nobody waits for it.
    pub fn say_gone(&self) {
        self.own.activity().swap(activity::GONE, Ordering::SeqCst);
    }

    /// One step of waiting after all rings were found empty, until [`Transport::end_wait`]: at most so many looks, one at least, or a yield, or a sleep
    /// of at most so many nanoseconds.
    #[inline]
    pub fn idle(&mut self, patience: &mut Patience, most_looks: u32, longest_ns: u64) -> Idled {
        #[cfg(test)]
        if crate::kernel::explored::is_active() {
            return Idled { looks: 1, slept: true };
        }
        self.beat();
        self.drain();
        if !patience.is_spun_out {
            let most = STRETCH.min(most_looks).min(self.spins.now().saturating_sub(patience.looks)).max(1);
            // Each look at the shuttle takes its line away from the peer that is about to write it.
            let pauses = if self.is_talking { TALKING_PAUSES } else { 1 };
            for look in 1..=most {
                for _ in 0..pauses {
                    spin_loop();
                }
                if self.any_ready() {
                    patience.looks += look;
                    return Idled { looks: look, slept: false };
                }
            }
            patience.looks += most;
            if patience.looks >= UNSURE_LOOKS {
                self.make_sure();
            }
            if patience.looks >= QUIET_LOOKS {
                self.begin_wait(patience);
            }
            if patience.looks >= self.spins.now() {
                patience.is_spun_out = true;
                self.looking.timed = None;
                self.begin_wait(patience);
                self.spins.in_vain(&self.waiting);
            }
            return Idled { looks: most, slept: false };
        }
        self.make_sure();
        if (patience.yields < self.waiting.yields && self.yields.may()) || self.buffered != 0 {
            // A receiver does not say when its ring has room again, so whoever has messages in a queue keeps looking.
            patience.yields += 1;
            self.unwatched += 1;
            if self.unwatched >= YIELDS_UNWATCHED {
                self.watch();
            }
            let began = wait_clock::cycles();
            sys::sched_yield();
            self.yields.took(wait_clock::cycles().saturating_sub(began));
            Idled { looks: 1, slept: false }
        } else {
            patience.yields = 0;
            self.yields.slept();
            let limit_ns = if self.watch() { CALL_EVERY_NS } else { self.waiting.sleep_ns };
            self.sleep(limit_ns.min(longest_ns));
            Idled { looks: 1, slept: true }
        }
    }

    /// A message came: the wait begins again.
    #[inline]
    pub fn answered(&mut self, patience: &mut Patience) {
        if patience.looks != 0 && !patience.is_spun_out {
            self.spins.answered(&self.waiting);
        }
        *patience = Patience { is_announced: patience.is_announced, ..Patience::default() };
    }

    #[cold]
    fn sleep(&self, limit_ns: u64) {
        doorbell_of(&self.own)
            .sleep(|| self.any_ready() || self.is_aborted() || crate::node::user_handlers::is_timer_due(), limit_ns);
    }
}
