//! A node at work: it is entered, handles messages, and waits for them.
//!
//! Purpose: a [`Node`] receives messages only while one of its calls runs. [`crate::process::process`] has the one of this process, and the ways into the
//! runtime. Input: misses, polls, calls, messages. Output: tags, messages, the end of the run.

use crate::kernel::later;
use crate::kernel::sys;
use crate::links::bugs::has_bug;
use crate::links::ending;
use crate::links::instruments::{self, MissStep};
use crate::messages::judge::{self, Receiver, Rejection};
use crate::messages::kinds::{self, id};
use crate::node::access;
use crate::node::alarm;
use crate::node::disturbance::GAP;
use crate::node::handlers;
use crate::node::node::Node;
use crate::node::spinning;
use crate::node::user_handlers;
use crate::transport::message::Message;
use crate::transport::patience::Patience;
use crate::transport::patience::Wait;
use crate::transport::stage;
use blizzard_contract::{Counter, waits};
use blizzard_protocol::ids::NodeId;

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

impl Node {
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
        instruments::stamp(&self.context, MissStep::Entered);
        self.begin();
        self.access(addr, bytes, store, masked);
        self.leave();
        instruments::stamp(&self.context, MissStep::Leaving);
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
        self.run_user_handlers(&|| false);
        self.leave();
    }

    /// [`Node::poll`] in a loop of the program, with the registers that it has there.
    pub fn poll_in_loop(&mut self, registers: impl FnOnce() -> u64) {
        let received = self.context.counter(Counter::MessagesReceived);
        self.poll();
        let has_come = self.context.counter(Counter::MessagesReceived) != received;
        if has_come && self.transport.lacks_processors() && !cfg!(feature = "guard") {
            self.spinning.arm();
        }
        if self.spinning.is_armed() {
            self.look_for_spin(registers(), has_come);
        }
    }

    /// The program goes on behind a miss, and somebody else may need the processor: is it about to spin?
    pub fn expect_spin(&mut self) {
        self.spinning.arm();
        self.transport.remind();
    }

    #[inline(never)]
    fn look_for_spin(&mut self, registers: u64, has_come: bool) {
        match self.spinning.poll(registers, has_come) {
            spinning::PollStep::Done => return,
            spinning::PollStep::Again => {}
            spinning::PollStep::Wait { ns } => {
                self.rest(ns);
                self.leave();
            }
        }
        self.transport.remind();
    }

    /// Waits in the program's stead for a message, for so long at most, and handles what has come.
    fn rest(&mut self, longest_ns: u64) {
        self.release();
        let received = self.context.counter(Counter::MessagesReceived);
        let mut patience = self.transport.begin_rest();
        loop {
            let has_slept = self.idle_shortly(&mut patience, longest_ns);
            self.serve();
            self.require_peers();
            if has_slept
                || self.context.counter(Counter::MessagesReceived) != received
                || user_handlers::are_due()
                || alarm::is_due()
            {
                break;
            }
        }
        self.transport.end_wait(&patience, user_handlers::wants_poll);
    }

    /// [`Node::poll`] for a peer that has interrupted code without polls. A signal takes as long as many requests: so the node stays while more come, as
    /// [`crate::node::disturbance`] allows. Where that is used up it wants no signal for a while.
    pub fn answer(&mut self) {
        self.disturbance.begin(sys::cycles());
        self.poll();
        let mut patience = Patience::default();
        while self.disturbance.may_go_on(sys::cycles()) && self.transport.linger(&mut patience, GAP) {
            self.serve();
            self.run_user_handlers(&|| false);
        }
        self.transport.end_wait(&patience, user_handlers::wants_poll);
        self.leave();
        if let Some(ns) = self.disturbance.end(sys::cycles()) {
            self.transport.hush();
            later::call_after(ns);
        }
    }

    /// See `enter_kernel`.
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
        if !self.holds_work() && !user_handlers::are_due() && self.transport.enter_kernel(alarm::is_due) {
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
        };
        match judge::validate(&receiver, from, message) {
            Ok(()) => {
                self.transport.note_taken(from, message.taken);
                if message.handler < kinds::OWN {
                    access::on_message(self, from, message);
                } else {
                    handlers::run(self, from, message);
                    self.handle_own();
                }
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

    /// Handles what this node has sent to itself.
    pub fn handle_own(&mut self) {
        while let Some(message) = self.links.take_own() {
            handlers::run(self, self.me, &message);
        }
    }

    /// Sends a message; one to this node itself is handled before this returns.
    pub fn send(&mut self, to: NodeId, message: Message) {
        self.links.post(to, message);
        self.handle_own();
    }

    /// Sends a request and waits for the answer with handler number `answer` and the request's key.
    pub fn call(&mut self, to: NodeId, request: Message, answer: u16, what: Wait) -> Message {
        self.awaited = Some((answer, to, request.key));
        self.answer = None;
        self.send(to, request);
        self.wait(what, |node| node.answer.is_some());
        self.answer.take().unwrap_or_default()
    }

    /// Handles messages until `done`, and none after that.
    pub fn wait(&mut self, what: Wait, done: impl Fn(&Node) -> bool) {
        if matches!(what, Wait::Barrier | Wait::Lock) {
            self.engine.history.border();
        }
        if done(self) {
            return;
        }
        // Whoever waits may wait for a node that has been created and not released.
        self.release();
        let since = if what.is_counted() { sys::cycles() } else { 0 };
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
                None if user_handlers::are_due() => {
                    self.run_user_handlers(&|| false);
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
                    self.require_peers();
                }
            }
        }
        self.transport.end_wait(&patience, user_handlers::wants_poll);
        if what.is_counted() {
            self.clock.waited(what, since);
        }
    }

    /// [`Node::call`] for the program, about the object with the request's key, of which the launcher hears: it looks whether the run is stuck.
    pub fn ask(&mut self, to: NodeId, request: Message, answer: u16, what: Wait) -> Message {
        let kind = match answer {
            id::LOCK_GRANTED => waits::LOCK,
            id::BARRIER_DONE => waits::BARRIER,
            id::EVENT_DONE => waits::EVENT,
            id::LOOKED_UP => waits::SLOT,
            _ => waits::ANSWER,
        };
        self.note_wait(kind, request.key, to);
        let reply = self.call(to, request, answer, what);
        self.note_wait_is_over();
        reply
    }

    /// [`Node::wait`] for the program, for what all nodes do, of which the launcher hears.
    pub fn wait_for_all(&mut self, what: Wait, kind: u64, done: impl Fn(&Node) -> bool) {
        self.note_wait(kind, 0, NodeId::FIRST);
        self.wait(what, done);
        self.note_wait_is_over();
    }

    fn note_wait(&self, kind: u64, object: u64, home: NodeId) {
        self.context.set_wait(kind, object, home.index() as u64);
    }

    /// From here on the node waits for shared memory, if it does.
    fn note_wait_is_over(&self) {
        self.note_wait(waits::MEMORY, 0, self.me);
    }

    /// [`Node::wait`] for something that the program's handlers do: `done` is looked at after each of them. The launcher hears what it is, and of which object.
    pub fn wait_running_handlers(&mut self, what: Wait, (kind, object): (u64, u64), done: impl Fn() -> bool) {
        self.note_wait(kind, object, self.me);
        self.run_user_handlers(&done);
        self.wait(what, |_| done());
        self.note_wait_is_over();
    }

    /// Runs what is pending of the program's handlers, until `enough` says so.
    fn run_user_handlers(&mut self, enough: &dyn Fn() -> bool) {
        if let Some(user) = user_handlers::active() {
            (user.run)(self, enough);
        }
    }

    /// Behind a step of a wait: ends the run if nothing is to be waited for any more.
    #[inline(always)]
    fn require_peers(&self) {
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

    /// Stops because somebody else has ended the run.
    #[cold]
    fn stop(&self) -> ! {
        ending::end_process(ending::EXIT_FAILED, "the run was ended by another node")
    }
}
