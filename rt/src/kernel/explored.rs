//! The statics of a node, in tests that run several nodes on one thread.
//!
//! Input: the node that runs. Output: its values. Only in tests.

use std::cell::Cell;

thread_local! {
    /// The interface of the program's handlers, if the node that runs now has any.
    static USER: Cell<Option<*const ()>> = const { Cell::new(None) };
    /// What the node that runs now has in place of each static of a node: by its key.
    static OWNED: Cell<*const [(*const (), *mut ())]> = const { Cell::new(&[]) };
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
