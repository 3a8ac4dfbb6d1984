//! Handlers of the program (`tempest.h`), as the node knows them: whether any are pending, and whether one runs.
//!
//! Purpose: the node runs them where it polls and where it waits, and gives them their messages; [`crate::tempest`] says which and how. It registers itself
//! here when the program starts that interface. **Invariant**: one handler runs at a time, on the node's thread.

use crate::kernel::owned::per_thread;
use crate::messages::kinds::id;
use crate::node::access::Lane;
use crate::node::node::Node;
use crate::transport::message::Message;
use blizzard_contract::Counter;
use blizzard_protocol::ids::NodeId;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};

/// What the interface does for the node.
pub struct Interface {
    /// Whether [`Interface::run`] has something to do.
    pub are_due: fn() -> bool,
    /// Whether the next poll is to come here, though perhaps there will be nothing to do yet.
    pub wants_poll: fn() -> bool,
    /// Runs what is pending, until there is nothing to do or the function says that it is enough.
    pub run: fn(&mut Node, &dyn Fn() -> bool),
    /// The same in a run of one node.
    pub run_alone: fn(),
    /// Whether this thread may run them.
    pub may_run_here: fn() -> bool,
    /// Makes ranges accessible if they touch user-managed memory; else returns false.
    pub miss: fn(&[Lane]) -> bool,
    /// Takes a message of the interface.
    pub on_message: fn(&mut Node, NodeId, &Message),
}

/// Kinds of handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HandlerKind {
    None,
    PageFault,
    BlockFault,
    Timer,
    Message,
    Channel,
}

const KINDS: [(HandlerKind, &str); 6] = [
    (HandlerKind::None, "program"),
    (HandlerKind::PageFault, "handler of a page fault"),
    (HandlerKind::BlockFault, "handler of a block access fault"),
    (HandlerKind::Timer, "handler of a timer"),
    (HandlerKind::Message, "handler of a message"),
    (HandlerKind::Channel, "callback of a channel"),
];

impl fmt::Display for HandlerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KINDS[*self as usize].1)
    }
}

/// At a page of its own: see [`crate::kernel::unaliased`].
#[repr(align(4096))]
struct Global {
    /// Null until the program starts the interface.
    interface: AtomicPtr<Interface>,
    /// The runtime was entered by a gate: the program's registers are live.
    by_gate: AtomicBool,
    /// The kind of handler that runs, or [`HandlerKind::None`].
    running: AtomicU8,
}

impl Global {
    const fn new() -> Global {
        Global {
            interface: AtomicPtr::new(core::ptr::null_mut()),
            by_gate: AtomicBool::new(false),
            running: AtomicU8::new(HandlerKind::None as u8),
        }
    }
}

per_thread! {
    static GLOBAL: Global = Global::new();
}

/// The program uses the interface from here on.
pub fn activate(interface: &'static Interface) {
    GLOBAL.interface.store(core::ptr::from_ref(interface).cast_mut(), Ordering::Release);
}

/// The interface, if the program uses it.
#[inline]
pub fn active() -> Option<&'static Interface> {
    #[cfg(test)]
    if let Some(interface) = crate::kernel::explored::user_interface() {
        // SAFETY: the tests that set it give an `Interface` that lives for ever.
        return Some(unsafe { &*interface.cast() });
    }
    // SAFETY: null, or what `activate` was given.
    unsafe { GLOBAL.interface.load(Ordering::Relaxed).as_ref() }
}

/// Whether the program uses the interface.
#[inline]
pub fn is_active() -> bool {
    active().is_some()
}

/// Whether handlers are to be run.
#[inline]
pub fn are_due() -> bool {
    active().is_some_and(|interface| (interface.are_due)())
}

/// Whether the next poll is to run handlers, though perhaps there will be nothing to do yet.
#[inline]
pub fn wants_poll() -> bool {
    active().is_some_and(|interface| (interface.wants_poll)())
}

/// The kind of the program's handler that runs now; [`HandlerKind::None`] when none does.
pub fn running() -> HandlerKind {
    KINDS.get(usize::from(GLOBAL.running.load(Ordering::Relaxed))).map_or(HandlerKind::None, |&(kind, _)| kind)
}

/// A handler of that kind begins, or, with [`HandlerKind::None`], ends.
#[inline]
pub fn set_running(kind: HandlerKind) {
    GLOBAL.running.store(kind as u8, Ordering::Relaxed);
}

/// Whether a handler of the program runs.
#[inline]
pub fn in_handler() -> bool {
    GLOBAL.running.load(Ordering::Relaxed) != HandlerKind::None as u8
}

/// Whether the handler of a message runs.
#[inline]
pub fn in_message() -> bool {
    GLOBAL.running.load(Ordering::Relaxed) == HandlerKind::Message as u8
}

/// Notes how the runtime was entered: by a gate, where the program's vector registers are live, or by a C call.
pub fn entered(by_gate: bool) {
    if !in_handler() {
        GLOBAL.by_gate.store(by_gate, Ordering::Relaxed);
    }
}

/// Whether the program's vector registers are live.
#[inline]
pub fn is_by_gate() -> bool {
    GLOBAL.by_gate.load(Ordering::Relaxed)
}

/// Handler of the interface's messages. What comes before the program has got as far as the interface waits, but for bulk data, which nobody has offered.
pub fn on_message(node: &mut Node, from: NodeId, message: &Message) {
    if let Some(interface) = active() {
        (interface.on_message)(node, from, message);
    } else if !matches!(message.handler, id::USER | id::USER_MORE) {
        node.count(Counter::MessagesRejected);
    } else if node.early.push(*message).is_err() {
        node.fail(format_args!("no memory to keep a message from node {}", from.index()));
    }
}
