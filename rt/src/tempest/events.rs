//! What runs the program's handlers: at polls, in waits, and when a message arrives.
//!
//! Purpose: [`run_events`] chooses the next handler: timers before messages (section 2). Input: what has arrived, timers. Output: calls of handlers.

use crate::messages::kinds::id;
use crate::node::alarm;
use crate::node::node::Node;
use crate::node::user_handlers::{in_handler, is_active};
use crate::process::host::CallHost;
use crate::process::process;
use crate::tempest::bulk::{channels, transfer};
use crate::tempest::invocation::{Invocation, invoke, remind};
use crate::tempest::messages::arrived;
use crate::tempest::timers;
use crate::transport::message::Message;
use crate::transport::patience::Wait;
use blizzard_contract::{Counter, waits};
use blizzard_protocol::ids::NodeId;
use core::fmt;

/// Handlers that one [`run_events`] runs at most.
const BUDGET: u32 = 256;

/// Whether [`run_events`] has something to do.
#[inline]
pub fn has_events() -> bool {
    is_active() && !in_handler() && (alarm::is_due() || arrived::is_waiting() || channels::has_work())
}

/// Runs handlers of timers, messages and channels until there is nothing to do, `enough` says so, or the budget is used up; then the
/// doorbell stays set.
pub fn run_events(host: &mut CallHost<'_>, enough: impl Fn() -> bool) {
    if !is_active() || in_handler() {
        return;
    }
    for _ in 0..BUDGET {
        if enough() {
            break;
        }
        if let Some((run, user_ptr)) = timers::take_due() {
            host.count(Counter::UserTimers);
            invoke(host, Invocation::Timer(run, user_ptr));
        } else if let Some(message) = arrived::begin() {
            arrived::run(host, message);
        } else if let Some(callback) = channels::next_callback() {
            invoke(host, callback);
        } else if !transfer::step(host) {
            break;
        }
    }
    if wants_poll() {
        remind();
    }
}

/// Whether the next poll is to come here, though perhaps there will be nothing to do yet.
pub fn wants_poll() -> bool {
    has_events() || is_active() && !in_handler() && channels::awaits_pieces()
}

/// What only handlers of the program end.
#[derive(Clone, Copy, Debug)]
pub enum Awaited {
    /// The address of an access that a handler is to resume.
    Resumption(u64),
    /// The address of a semaphore.
    Wakeup(u64),
}

impl Awaited {
    const fn wait(self) -> Wait {
        match self {
            Awaited::Resumption(_) => Wait::Miss,
            Awaited::Wakeup(_) => Wait::Other,
        }
    }

    /// For the launcher: see [`waits`].
    const fn record(self) -> (u64, u64) {
        match self {
            Awaited::Resumption(va) => (waits::RESUMPTION, va),
            Awaited::Wakeup(semaphore) => (waits::WAKEUP, semaphore),
        }
    }
}

/// Waits, running handlers, until `done`; in a run of one node, where nothing but a timer can come from outside, a wait without end is
/// an error that `describe` describes.
pub fn wait(host: &mut CallHost<'_>, what: Awaited, done: impl Fn() -> bool, describe: fmt::Arguments<'_>) {
    match host {
        CallHost::Node(node) => node.wait_running_handlers(what.wait(), what.record(), done),
        CallHost::Alone => loop {
            run_events(host, &done);
            if done() {
                return;
            }
            if matches!(what, Awaited::Wakeup(_)) {
                // A call of the program, with nothing that relies on tags behind it.
                process::safe_point();
            }
            if !has_events() && !timers::sleep_until_due() {
                process::fail(format_args!("{describe}: nothing can end that in a run of one node"));
            }
        },
    }
}

/// Handler of all messages of the interface.
#[inline]
pub fn on_message(node: &mut Node, from: NodeId, message: &Message) {
    match message.handler {
        id::USER | id::USER_MORE => on_slot(node, from, message),
        _ => transfer::deliver(&mut CallHost::Node(node), from, message),
    }
}

/// Takes a slot of a message of the program.
#[inline]
fn on_slot(node: &mut Node, from: NodeId, slot: &Message) {
    // Most messages are short and find nothing in front of them: no queue then.
    if !in_handler()
        && !alarm::is_due()
        && let Some(message) = arrived::begin_in_line(from, slot)
    {
        arrived::run(&mut CallHost::Node(node), message);
        if has_events() {
            run_events(&mut CallHost::Node(node), || false);
        }
    } else {
        queue_slot(node, from, slot);
    }
}

#[inline(never)]
fn queue_slot(node: &mut Node, from: NodeId, slot: &Message) {
    if arrived::accept(from, slot).is_err() {
        node.count(Counter::MessagesRejected);
    } else {
        run_events(&mut CallHost::Node(node), || false);
    }
}

/// Takes the slots that came before the interface was started.
pub fn accept_early(host: &mut CallHost<'_>) {
    let Some(node) = host.node() else { return };
    while let Some(slot) = node.early.pop() {
        if let Some(from) = NodeId::new(slot.source.into()) {
            on_slot(node, from, &slot);
        }
    }
}
