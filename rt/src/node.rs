//! The node: the object that a node of a run of several is.
//!
//! Purpose: a [`Node`] makes blocks accessible, handles messages and waits for them; it receives messages only while one of its calls runs. `process` has
//! the one of this process, and the ways into the runtime. Input: misses, polls, calls, messages. Output: tags, messages, the end of the run.
//!
//! A [`Node`] knows its copy of the segment, its tags and its rings by address, so that tests run several in one process.

/// Whether that bug is planted. Never in a runtime that Blizzard embeds.
macro_rules! has_bug {
    ($node:expr, $bug:ident) => {{
        #[cfg(any(feature = "planted", test))]
        let has = $crate::node::planted::bug(&$node.context) == Some(blizzard_protocol::bugs::Bug::$bug);
        #[cfg(not(any(feature = "planted", test)))]
        let has = {
            let _ = &$node;
            false
        };
        has
    }};
}
pub(crate) use has_bug;

pub mod access;
#[cfg(test)]
pub mod explore;
pub mod forks;
pub mod instruments;
pub mod links;
pub mod liveness;
pub mod own_stack;
#[cfg(any(feature = "planted", test))]
pub mod planted;
mod process;
pub mod stats;

use crate::kernel::own_memory::{KernelMemory, Queue};
use crate::kernel::sys;
use crate::memory::homes::{HomeTable, Homes, MAX_ARENAS};
use crate::memory::region::Region;
use crate::memory::tags::Space;
use crate::messages::{self, Receiver, Rejection};
use crate::shared_memory::heap::Arenas;
use crate::sync::Sync;
use crate::tempest::{self, Host};
use crate::transport::endpoint::Transport;
use crate::transport::interface::Urgency;
use crate::transport::message::Message;
use crate::transport::patience::Patience;
use crate::transport::stage;
use blizzard_contract::Counter;
use blizzard_protocol::engine::access::Engine;
use blizzard_protocol::ids::NodeId;
use core::fmt;
use core::sync::atomic::Ordering;
use forks::Forks;
use instruments::Step;
use links::Links;
pub use process::{
    Boot, Call, api, before_call, detach_child, enter_kernel, exiting, fail, hold_pages, is_inside, miss, miss_lanes,
    nodes, number, poll, region, restart, set_created, start, tempest_settings, with_host, with_host_at_gate, with_run,
};
use stats::{Wait, WaitClock};

/// Messages that one poll handles at most; the doorbell stays set when there are more.
const POLL_BUDGET: u32 = 256;

/// Whether a node that wants to wait in the kernel has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// There is a message to handle first.
    Message,
    Yes,
    /// Messages were handled: what was accessible may not be any more.
    Waited,
}

/// One node of a run of several.
pub struct Node {
    links: Links,
    pub engine: Engine<KernelMemory>,
    pub arenas: Arenas,
    pub sync: Sync,
    /// By arena: the first address that was never handed out, as far as this node knows.
    handed_out: [u64; MAX_ARENAS],
    clock: WaitClock,
    /// The answer that [`Node::call`] waits for: its handler, who sends it, and its key.
    awaited: Option<(u16, NodeId, u64)>,
    answer: Option<Message>,
    requests: u64,
    /// Messages of `tempest.h` that came before the program had started that interface.
    pub early: Queue<Message>,
}

impl Node {
    /// Node `me` of the run.
    ///
    /// # Safety
    /// Nobody else is that node; region and space stay mapped; all tags of the space are Invalid and its memory zero.
    pub unsafe fn new(region: Region, me: NodeId, space: Space) -> sys::Result<Node> {
        let homes = Homes::new(region.header().nodes, space.bytes(), region.defaults());
        let space = space.with_partition(*homes.partition());
        let homes = homes.among(forks::homes_present(&region));
        // A program that creates its nodes has used its pages at node 0, where their data stays.
        let migrates = region.header().forks == 0;
        let links = Links {
            me,
            protocol: region.protocol(),
            region,
            context: region.context(me),
            space,
            home_table: HomeTable::new(migrates, &homes)?,
            homes,
            // SAFETY: passed on from the caller.
            transport: unsafe { Transport::new(region, me) }?,
            forks: Forks::new(&region),
        };
        Ok(Node {
            arenas: Arenas::new(&links.homes, me)?,
            links,
            engine: Engine::new(region.protocol(), region.header())?,
            sync: Sync::new()?,
            handed_out: [0; MAX_ARENAS],
            clock: WaitClock::start(),
            awaited: None,
            answer: None,
            requests: 0,
            early: Queue::new(),
        })
    }

    /// Node 0, which manages collectives and publish slots.
    pub fn manager(&self) -> NodeId {
        NodeId::FIRST
    }

    pub fn region(&self) -> Region {
        self.region
    }

    /// Counts one event.
    #[inline]
    pub fn count(&self, counter: Counter) {
        self.context.add_alone(counter, 1);
    }

    /// First thing in every entry but a false miss.
    pub fn begin(&mut self) {
        #[cfg(any(feature = "planted", test))]
        blizzard_protocol::planted::begin(&mut self.links);
        self.end_last_access();
        self.transport.drain();
    }

    /// Last thing in every entry: leaves a reminder if anything is to be done at the next one.
    #[inline]
    pub fn leave(&mut self) {
        self.transport.make_sure();
        if self.holds_work() || !self.transport.is_drained() {
            self.transport.remind();
        }
    }

    /// A block access fault: makes the range accessible.
    pub fn miss(&mut self, addr: u64, bytes: u64, store: bool, masked: bool) {
        instruments::stamp(&self.context, Step::Entered);
        self.begin();
        self.access(addr, bytes, store, masked);
        self.leave();
        instruments::stamp(&self.context, Step::Leaving);
    }

    /// Handles what has arrived.
    pub fn poll(&mut self) {
        self.count(Counter::PollsTaken);
        if self.transport.is_aborted() {
            self.stop();
        }
        self.begin();
        self.transport.answer_doorbell();
        self.release_if_due();
        self.serve();
        tempest::run_events(&mut Host::Node(self), || false);
        self.leave();
    }

    /// See [`enter_kernel`].
    pub fn enter_kernel(&mut self) -> Entered {
        // Nobody drains the queues while this node sleeps.
        let must_wait = |node: &Node| !node.transport.is_drained() || node.engine.owes_answer();
        if must_wait(self) {
            self.wait(Wait::Other, |node| !must_wait(node));
            // A message in that wait may have taken memory away that the call needs.
            if !has_bug!(self, CallIsMadeAfterWait) {
                return Entered::Waited;
            }
        }
        if !self.holds_work() && !tempest::has_events() && self.transport.enter_kernel(tempest::timers::is_due) {
            Entered::Yes
        } else {
            Entered::Message
        }
    }

    /// Handles the messages that are there, up to a limit.
    pub fn serve(&mut self) {
        let mut message = Message::default();
        for _ in 0..POLL_BUDGET {
            stage::look_is_optional();
            let Some(from) = self.transport.receive_into(&mut message) else { return };
            self.transport.next_turn();
            self.handle(from, &message);
        }
        self.transport.remind();
    }

    /// Judges a message and runs its handler.
    #[inline]
    fn handle(&mut self, from: NodeId, message: &Message) {
        self.count(Counter::MessagesReceived);
        instruments::stamp_received(&self.context, message);
        instruments::boundary(&self.context);
        let receiver = Receiver {
            incarnation: self.region.header().incarnation,
            me: self.me,
            space: &self.space,
            homes: &self.homes,
            home_table: &self.home_table,
            protocol: self.protocol,
        };
        match messages::validate(&receiver, from, message) {
            Ok(handler) => {
                self.transport.note_taken(from, message.taken);
                (handler.run)(self, from, message);
            }
            Err(why) => {
                self.count(Counter::MessagesRejected);
                self.count(match why {
                    Rejection::Incarnation => Counter::RejectedIncarnation,
                    _ => Counter::RejectedForm,
                });
            }
        }
    }

    /// Sends a message; one to this node itself is handled at once.
    pub fn send(&mut self, to: NodeId, mut message: Message) {
        if to == self.me {
            message.source = to.index() as u16;
            if let Some(handler) = messages::handler(message.handler) {
                (handler.run)(self, to, &message);
            }
        } else {
            self.send_as(to, message, messages::urgency(message.handler));
        }
    }

    /// Sends a message to another node, which is to hear of it so soon.
    pub fn send_as(&mut self, to: NodeId, message: Message, kind: Urgency) {
        instruments::boundary(&self.context);
        if let Err(e) = self.transport.send(to, message, kind) {
            self.fail(format_args!("no memory to buffer a message to node {}: {e}", to.index()));
        }
    }

    /// Sends a request and waits for the answer with handler number `answer` and the request's key.
    pub fn call(&mut self, to: NodeId, request: Message, answer: u16, what: Wait) -> Message {
        self.awaited = Some((answer, to, request.key));
        self.answer = None;
        self.send(to, request);
        self.wait(what, |node| node.answer.is_some());
        self.answer.take().unwrap_or_default()
    }

    /// A key that no request of this node had before.
    pub fn fresh_key(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Handler of all answers.
    pub fn on_reply(&mut self, from: NodeId, message: &Message) {
        if self.awaited == Some((message.handler, from, message.key)) {
            self.awaited = None;
            self.answer = Some(*message);
        } else {
            self.count(Counter::MessagesRejected);
        }
    }

    /// Handles messages until `done`, and none after that.
    pub fn wait(&mut self, what: Wait, done: impl Fn(&Node) -> bool) {
        if matches!(what, Wait::Barrier | Wait::Lock) {
            self.engine.trail.border();
        }
        if done(self) {
            return;
        }
        // Whoever waits may wait for a node that has been created and not released.
        self.release();
        let since = if what.is_counted() { stats::cycles() } else { 0 };
        let mut patience = Patience::default();
        let mut message = Message::default();
        loop {
            self.transport.hold_off(what);
            match self.transport.receive_into(&mut message) {
                Some(from) => {
                    self.transport.answered(&mut patience);
                    self.handle(from, &message);
                    if done(self) {
                        break;
                    }
                    self.transport.next_turn();
                }
                None if tempest::has_events() => {
                    tempest::run_events(&mut Host::Node(self), || false);
                    if done(self) {
                        break;
                    }
                }
                None => {
                    self.idle(&mut patience);
                    // What was sent from a queue may have been the last thing to wait for.
                    if done(self) {
                        break;
                    }
                    if self.transport.is_aborted() {
                        self.stop();
                    }
                    if let Some(silent) = self.transport.silent() {
                        self.fail(format_args!("{silent}"));
                    }
                    if let Some(peer) = self.transport.damaged() {
                        self.fail(format_args!(
                            "a ring between this node and node {} has been overwritten: something writes to memory that is not its own",
                            peer.index()
                        ));
                    }
                }
            }
        }
        self.transport.end_wait(&patience, tempest::wants_poll);
        if what.is_counted() {
            self.clock.waited(what, since);
        }
    }

    /// [`Node::wait`] for something that the program's handlers do: `done` is looked at after each of them.
    pub fn wait_running_handlers(&mut self, what: Wait, done: impl Fn() -> bool) {
        tempest::run_events(&mut Host::Node(self), &done);
        self.wait(what, |_| done());
    }

    /// Process number of a node of the run.
    pub fn process_of(&self, node: NodeId) -> u32 {
        self.region.context(node).pid().load(Ordering::Relaxed)
    }

    /// Gives the node to the program's handler that `run` calls: until it returns, the functions of `tempest.h` find the node here.
    pub fn lend<R>(&mut self, run: impl FnOnce() -> R) -> R {
        process::lent(self);
        let result = run();
        process::lent(core::ptr::null_mut());
        result
    }

    /// [`Node::fold_times`] now and then, so that the counters of a node that dies are nearly right.
    pub fn fold_times_if_due(&mut self) {
        if self.clock.is_due() {
            self.fold_times();
        }
    }

    /// Converts the times for whoever reads the counters.
    pub fn fold_times(&mut self) {
        self.clock.fold(&self.links.context);
    }

    /// Stops because somebody else has ended the run.
    #[cold]
    fn stop(&self) -> ! {
        process::end_process(process::EXIT_FAILED, "the run was ended by another node")
    }

    /// Reports an error and ends the run.
    #[cold]
    pub fn fail(&self, message: fmt::Arguments<'_>) -> ! {
        process::fail_run(&self.region, self.context, process::EXIT_FAILED, message)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_ahead;
#[cfg(test)]
mod tests_blocks;
#[cfg(test)]
mod tests_replace;
