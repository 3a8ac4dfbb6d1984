//! Makes ranges accessible for the gates.
//!
//! Purpose: a process forked from a node is *detached*: it has the node's memory as it was, but no part in the protocol, so a range that is not valid there
//! is an error.
//! **Invariant**: between a positive answer of `tags::accessible` and the access that relies on it no handler runs: handlers run only inside
//! [`process::miss`], [`process::miss_lanes`] and [`process::poll`], on this thread.
//! Source: design section 5 (atomicity).

use crate::kernel::print;
use crate::kernel::sys;
use crate::node::access::Lane;
use crate::process::process;
use crate::process::tags::{accessible, detached};

/// Makes a range accessible; on return every block of it allows the access.
/// `masked`: bytes outside allocated shared memory are not an error.
pub fn require(addr: u64, bytes: u64, store: bool, masked: bool) {
    require_noting(addr, bytes, store, masked, || ());
}

/// [`require`]. `note` comes first, where the program has handlers that may run here.
pub fn require_noting(addr: u64, bytes: u64, store: bool, masked: bool, note: impl FnOnce()) {
    if detached() {
        if !accessible(addr, bytes, store) && !masked {
            refuse_in_child(addr);
        }
        return;
    }
    process::miss_noting(addr, bytes, store, masked, note);
}

/// Makes all lanes accessible at once.
pub fn require_lanes(lanes: &[Lane]) {
    if detached() {
        if let Some(lane) = lanes.iter().find(|l| !l.masked && !accessible(l.addr, l.bytes, l.store)) {
            refuse_in_child(lane.addr);
        }
        return;
    }
    process::miss_lanes(lanes);
}

/// A forked process used shared memory whose contents it does not have.
fn refuse_in_child(addr: u64) -> ! {
    print::error(format_args!(
        "a process forked from a node used shared memory at {addr:#x}, which is not valid there: \
         only the node itself takes part in the run"
    ));
    sys::exit_group(1)
}
