//! What the program's handlers (`tempest.h`) may ask while it is at a gate.
//!
//! Input: the gate's frame. Output: where the access stands, and where the calls are found that led there.

use crate::node::user_handlers;
use crate::process::frame::Frame;
use crate::process::goes_on;
use crate::tempest::faults;

/// Notes it for a gate that takes `popped` bytes of arguments.
#[cold]
#[inline(never)]
pub fn note(frame: &mut Frame, popped: u64) {
    faults::note_pc(frame.return_address);
    goes_on::lead(frame, popped);
}

/// [`note`], if there may be handlers.
#[inline]
pub fn note_for_handlers(frame: &mut Frame, popped: u64) {
    if user_handlers::is_active() {
        note(frame, popped);
    }
}
