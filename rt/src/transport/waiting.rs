//! Waiting for messages: look, see whether the peers run, yield, sleep.
//!
//! Purpose: one wait of this node, step by step. Input: wires that were found empty. Output: time passes, and peers know what this
//! node does (the table of [`crate::transport::rings::doorbell`]). How long each kind of waiting lasts is [`crate::transport::settings`]'s business.
//! A wait that is soon over does not say that it is one: the node has said all the time that it runs, so at its end there is nothing to take back.

use crate::kernel::sys;
use crate::transport::endpoint::{Peer, Transport};
use crate::transport::interface::{Station, Wire};
use crate::transport::patience::{Patience, Wait};
use crate::transport::peers::company::PeersSeen;
use crate::transport::peers::placement;
use crate::transport::peers::watch::{PeerVerdict, Silent};
use crate::transport::settings::{Attempts, LONG_YIELD_CYCLES, Spins};
use crate::transport::stage;
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::protocol::seam::Idled;
use core::hint::spin_loop;

/// A node that only yields looks at its peers after so many yields.
const YIELDS_UNWATCHED: u32 = 1024;

/// Looks at the rings in a row, with nothing else in between but a pause each.
const STRETCH: u32 = 8;
/// Pauses in front of each look while messages of programs and of the synchronisation come and go.
const TALKING_PAUSES: u32 = 3;
/// After so many looks in vain, longer than a miss takes, a node makes sure that who must know of its messages does.
const UNSURE_LOOKS: u32 = 24;
/// In guarded code: after so many pauses in vain, some 2 us, a node interrupts peers that compute. A signal costs them as much, and a poll comes sooner.
const INTERRUPT_PAUSES: u32 = 80;
/// A wait that has been in vain for so many looks says so. A shorter one leaves the word `activity` alone: to change it back would take a fence.
const QUIET_LOOKS: u32 = 32;

/// Cycles between two times that a node gives its processor to a carrier: some 20 µs, in which a stream of messages becomes a batch.
const GIVE_WAY_CYCLES: u64 = 50_000;

impl Transport {
    /// Before each look of a wait: if this node has just sent a message, lets its receiver work undisturbed for as long as has been found to be best, unless there is a
    /// message of somebody else. Only while a peer that is waited for may be expected to run.
    #[inline]
    pub fn hold_off(&mut self, what: Wait) {
        if let Some(to) = self.looking.take_sent()
            && self.spins.now() > self.waiting.spins_min
        {
            self.pause_for(to, what);
        }
    }

    #[inline(never)]
    fn pause_for(&mut self, receiver: NodeId, what: Wait) {
        let pauses = self.looking.begin(what, self.is_talking);
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
        let others = self.peers.iter().enumerate().filter(|&(number, _)| number != one.index());
        others.filter_map(|(_, peer)| peer.as_ref()).any(|peer| peer.wire.is_ready())
    }

    /// From here on the node looks at its rings by itself, and peers see it.
    pub(super) fn begin_wait(&self, patience: &mut Patience) {
        if !patience.is_announced {
            patience.is_announced = true;
            self.station.begin_wait();
        }
    }

    /// The end of a wait: back to the program. If peers were told of the wait, tells them that it is over, and sets the own doorbell if anything is
    /// left to do. Otherwise they have rung meanwhile for what is not an answer, and a doorbell that rang for what has been handled is cleared. `wants_poll`: whether
    /// there is more to do than messages.
    #[inline]
    pub fn end_wait(&mut self, patience: &Patience, wants_poll: impl FnOnce() -> bool) {
        self.looking.forget();
        if patience.is_announced {
            self.station.end_wait(|| self.any_ready() || self.buffered != 0);
        } else if self.station.is_rung() {
            let has_work = || self.any_ready() || self.buffered != 0 || self.is_aborted() || wants_poll();
            self.station.silence(has_work);
        }
    }

    /// The beginning of a wait that gives the processor away at once.
    pub fn begin_rest(&self) -> Patience {
        let mut patience = Patience { is_spun_out: true, ..Patience::default() };
        self.begin_wait(&mut patience);
        patience
    }

    /// Whether a node that spins keeps others waiting for whole time slices: two or more share each processor. Where fewer do, who sleeps answers later than who spins.
    pub const fn lacks_processors(&self) -> bool {
        self.waiting.is_shared
    }

    /// Sets the own doorbell, so that the next poll is taken.
    pub fn remind(&self) {
        self.station.remind();
    }

    /// Clears the own doorbell; afterwards the caller must look at all rings.
    pub fn answer_doorbell(&self) {
        self.station.beat();
        self.station.answer();
    }

    /// Before a system call that may wait: from here on peers call this node by a signal. False, and nothing has changed, when a
    /// message is there, or `has_more` says so.
    pub fn enter_kernel(&mut self, has_more: impl Fn() -> bool) -> bool {
        self.station.beat();
        self.make_sure();
        self.station.enter_kernel(|| self.any_ready() || self.is_aborted() || has_more())
    }

    /// One step of waiting after all rings were found empty, until [`Transport::end_wait`]: at most so many looks, one at least, or a yield, or a sleep
    /// of at most so many nanoseconds, and none if `has_more` says so.
    #[inline]
    pub fn idle(
        &mut self,
        patience: &mut Patience,
        most_looks: u32,
        longest_ns: u64,
        has_more: impl Fn() -> bool,
    ) -> Idled {
        self.station.beat();
        self.drain();
        if stage::is_directed() {
            return self.rest(patience, longest_ns, has_more);
        }
        if !patience.is_spun_out {
            // Hardly ever have there been more looks than the limit: then there are a few more.
            let most = STRETCH.min(most_looks).min(self.spins.limit().wrapping_sub(patience.looks)).max(1);
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
            if cfg!(feature = "guard") && patience.looks * pauses >= INTERRUPT_PAUSES {
                self.interrupt_once(patience);
            }
            if patience.looks >= QUIET_LOOKS {
                self.begin_wait(patience);
            }
            if patience.looks >= self.spins.limit() {
                self.end_spin(patience);
            }
            return Idled { looks: most, slept: false };
        }
        self.give_way(patience, longest_ns, has_more)
    }

    /// A step of a wait whose spin is over: a yield, or a sleep.
    #[inline(never)]
    fn give_way(&mut self, patience: &mut Patience, longest_ns: u64, has_more: impl Fn() -> bool) -> Idled {
        self.make_sure();
        self.interrupt_once(patience);
        if (patience.yields < self.waiting.yields && self.yields.may()) || self.buffered != 0 {
            // A receiver does not say when its ring has room again, so whoever has messages in a queue keeps looking.
            patience.yields += 1;
            self.unwatched += 1;
            if self.unwatched >= YIELDS_UNWATCHED {
                self.watch();
            }
            let began = sys::cycles();
            sys::sched_yield();
            if sys::cycles().saturating_sub(began) < LONG_YIELD_CYCLES {
                self.yields.of_use();
            } else {
                self.yields.in_vain();
            }
            Idled { looks: 1, slept: false }
        } else {
            patience.yields = 0;
            self.yields.done_without();
            let limit_ns = self.watch().map_or(self.waiting.sleep_ns, |again_ns| again_ns.min(self.waiting.sleep_ns));
            self.sleep(limit_ns.min(longest_ns), has_more);
            Idled { looks: 1, slept: true }
        }
    }

    /// Messages are for other hosts, and who carries them shares the nodes' processors: without this it would carry them when this node waits, or after a
    /// time slice of milliseconds. Not more often than pays: then the next poll comes back to it. Where code has no polls, always.
    #[cold]
    pub(super) fn give_way_to_carrier(&mut self, carried: u64, calls: u64) {
        if !cfg!(feature = "guard") && sys::cycles().saturating_sub(self.gave_way) < GIVE_WAY_CYCLES {
            self.unsure |= carried;
            self.unsure_calls |= carried & calls;
            return self.station.remind();
        }
        sys::sched_yield();
        self.gave_way = sys::cycles();
    }

    /// As many looks as usual were in vain: goes on for as many more while those run who may be waited for, up to a limit.
    #[inline(never)]
    fn end_spin(&mut self, patience: &mut Patience) {
        self.looking.forget();
        self.begin_wait(patience);
        if patience.looks >= self.waiting.spins_most {
            patience.is_spun_out = true;
            return self.spins.end();
        }
        let found = if self.long_spins.may() {
            let peers = self.peers.iter().enumerate();
            let states = peers.filter_map(|(number, peer)| Some((number, peer.as_ref()?.wire.state())));
            let found = self.company.look(!self.spins.goes_on(), states);
            match found {
                PeersSeen::Waits => self.long_spins.in_vain(),
                PeersSeen::Runs if self.spins.goes_on() => {
                    self.long_spins.of_use();
                    self.moves.of_use();
                }
                PeersSeen::Runs => {}
            }
            found
        } else {
            self.long_spins.done_without();
            PeersSeen::Waits
        };
        if found == PeersSeen::Runs {
            self.spins.go_on((2 * patience.looks).min(self.waiting.spins_most));
        } else {
            patience.is_spun_out = true;
            self.spins.in_vain(&self.waiting);
            if !self.waiting.is_crowded() {
                self.keep_apart();
            }
        }
    }

    /// A spin was in vain, though there is a processor for each node: goes to another one if a peer was seen on this node's.
    fn keep_apart(&mut self) {
        let Some(here) = sys::processor() else { return };
        self.station.show_processor(here + 1);
        let theirs = || self.peers.iter().flatten().map(|peer| peer.wire.state().processor);
        if !self.moves.may() || !theirs().any(|processor| processor == here + 1) {
            return self.moves.done_without();
        }
        let has_moved = placement::leave(theirs());
        self.moves.in_vain();
        if has_moved {
            self.station.show_processor(sys::processor().map_or(0, |there| there + 1));
            // What was learnt of spins is of no use any more.
            self.spins = Spins::new(&self.waiting);
            self.long_spins = Attempts::FRESH;
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
    fn sleep(&self, limit_ns: u64, has_more: impl Fn() -> bool) {
        self.station.sleep(|| self.any_ready() || self.is_aborted() || has_more(), limit_ns);
    }

    /// [`Transport::idle`] where a test decides who goes on.
    fn rest(&mut self, patience: &mut Patience, longest_ns: u64, has_more: impl Fn() -> bool) -> Idled {
        self.make_sure();
        if stage::now_ns().is_some() {
            self.begin_wait(patience);
            self.watch();
            // Who waits for room goes on looking.
            let limit_ns = if self.buffered != 0 { 0 } else { self.waiting.sleep_ns };
            let is_ready = || self.any_ready() || self.is_aborted() || has_more();
            stage::rest(self.me, limit_ns.min(longest_ns), &is_ready);
        }
        Idled { looks: 1, slept: true }
    }

    /// The peer that [`Transport::idle`] has found silent for too long.
    pub const fn silent(&self) -> Option<Silent> {
        self.silent
    }

    /// The peer to or from which [`Transport::idle`] has found a wire overwritten.
    pub const fn damaged(&self) -> Option<NodeId> {
        self.damaged
    }

    /// Looks at the peers: calls those that leave their doorbell unanswered, and notes one that has not shown a sign of life for too long
    /// although it owes one. When a peer's doorbell is unanswered: after how long this node looks again.
    #[cold]
    fn watch(&mut self) -> Option<u64> {
        self.unwatched = 0;
        let now = self.attention.look(stage::now_ns().unwrap_or_else(sys::monotonic_ns));
        let limit_ms = u64::from(self.region.header().peer_timeout_ms);
        let mut again: Option<u64> = None;
        for (number, peer) in self.peers.iter_mut().enumerate() {
            let (Some(Peer { watch, wire, .. }), Some(node)) = (peer, NodeId::new(number as u32)) else { continue };
            if !wire.is_sound() {
                self.damaged = Some(node);
            }
            let state = wire.state();
            match watch.look(state, now, limit_ms) {
                PeerVerdict::Nothing => {}
                PeerVerdict::Silent { for_ms } => self.silent = Some(Silent { node, pid: state.pid, for_ms }),
                PeerVerdict::Unanswered { call, again_ns } => {
                    again = Some(again.map_or(again_ns, |other| other.min(again_ns)));
                    if call {
                        wire.call();
                    }
                }
            }
        }
        again
    }

    /// Where code has no polls: interrupts the peers that compute and have not answered, once in a wait.
    #[inline]
    fn interrupt_once(&self, patience: &mut Patience) {
        #[cfg(feature = "guard")]
        if !core::mem::replace(&mut patience.has_interrupted, true) {
            self.interrupt();
        }
        let _ = patience;
    }

    /// Interrupts the peers that compute and have not answered their doorbell.
    #[cold]
    fn interrupt(&self) {
        self.peers.iter().flatten().for_each(|peer| peer.wire.interrupt());
    }

    /// This node has sent messages and does not wait: where code has no polls, nobody else may see that a peer leaves them.
    pub fn interrupt_told(&mut self) {
        if cfg!(feature = "guard") {
            self.make_sure();
            if core::mem::take(&mut self.has_told) {
                self.interrupt();
            }
        }
    }

    /// Looks at the rings, at most so many cycles long, for what follows from what was answered. Peers need not tell this node meanwhile.
    pub fn linger(&mut self, patience: &mut Patience, most_cycles: u64) -> bool {
        self.begin_wait(patience);
        self.drain();
        self.make_sure();
        let since = sys::cycles();
        while !self.any_ready() {
            if sys::cycles().saturating_sub(since) > most_cycles {
                return false;
            }
            spin_loop();
        }
        true
    }

    /// Sets the own doorbell, and wants no signal for it.
    pub fn hush(&self) {
        self.station.hush();
    }
}
