//! What the tests that explore all orders of messages see of a node, and decide for it.
//!
//! Purpose: where time or an order of messages counts, a node asks here. Input: the node's number. Output: the choice of whoever explores, if anybody does.
//! Only in tests: [`Explorer`] is theirs.

use blizzard_protocol::ids::NodeId;
use core::cell::Cell;

/// Whoever explores.
pub trait Explorer {
    /// Node `me` looks for a message; `optional`: it does not wait for one.
    fn at_receive(&self, me: NodeId, optional: bool) -> Look;
    /// Node `me` has read something besides messages.
    fn note(&self, me: NodeId, what: u64);
    /// Whether as much time has passed as the node that runs now waits before it does something else.
    fn has_time_passed(&self) -> bool;
}

thread_local! {
    static EXPLORER: Cell<Option<*const dyn Explorer>> = const { Cell::new(None) };
    /// The next look for a message need not find one.
    static OPTIONAL: Cell<bool> = const { Cell::new(false) };
    /// The interface of the program's handlers, if the node that runs now has any.
    static USER: Cell<Option<*const ()>> = const { Cell::new(None) };
    /// What the node that runs now has in place of each static of a node: by its key.
    static OWNED: Cell<*const [(*const (), *mut ())]> = const { Cell::new(&[]) };
}

/// Where a node is to look for a message.
pub enum Look {
    /// Wherever it likes: nothing is explored.
    Anywhere,
    At(NodeId),
    /// It finds nothing.
    Nowhere,
}

/// This thread's nodes are explored from here on, or no more.
///
/// # Safety
/// The explorer stays where it is until this is called again.
pub unsafe fn set(explorer: Option<*const dyn Explorer>) {
    EXPLORER.set(explorer);
}

fn explorer<'a>() -> Option<&'a dyn Explorer> {
    // SAFETY: as `set` demands.
    EXPLORER.get().map(|explorer| unsafe { &*explorer })
}

/// Whether this thread explores.
pub fn is_active() -> bool {
    EXPLORER.get().is_some()
}

/// The next look of this node is one that may find nothing: it does not wait.
pub fn look_is_optional() {
    OPTIONAL.set(true);
}

/// Node `me` looks for a message.
pub fn at_receive(me: NodeId) -> Look {
    let optional = OPTIONAL.replace(false);
    explorer().map_or(Look::Anywhere, |explorer| explorer.at_receive(me, optional))
}

/// Adds something that node `me` has read, besides messages, to its history.
pub fn note(me: NodeId, what: u64) {
    if let Some(explorer) = explorer() {
        explorer.note(me, what);
    }
}

/// Whether as much time has passed as the node that runs now waits before it does something else; `None` where nothing is explored.
pub fn has_time_passed() -> Option<bool> {
    explorer().map(|explorer| explorer.has_time_passed())
}

/// The node that runs from here on has handlers of the program with that interface, or none; and those values in place of its statics.
///
/// # Safety
/// The values stay where they are, unused by anybody else, until this is called again.
pub unsafe fn set_node(user: Option<*const ()>, owned: *const [(*const (), *mut ())]) {
    USER.set(user);
    OWNED.set(owned);
}

pub fn user_interface() -> Option<*const ()> {
    USER.get()
}

/// What the node that runs now has in place of the static of a node with that key.
pub fn owned(key: *const ()) -> Option<*mut ()> {
    // SAFETY: as `set_node` demands.
    unsafe { &*OWNED.get() }.iter().find(|(of, _)| *of == key).map(|&(_, value)| value)
}
