//! The control plane: who takes part in a run, how each node ends, and why.
//!
//! Purpose: start, membership, end and failure, apart from the messages, which [`crate::transport::endpoint`] has. The launcher writes and reads the same words.
//! Input: what happens to this node. Output: its phase, status and last words, and the run's abort word.
//! **Invariants**: a node's phase only grows, but for a created one, which starts in place of another; the abort word is never taken back.

use crate::kernel::sys;
use crate::memory::region::{ContextPage, Region};
use blizzard_contract::{activity, node_phase};
use blizzard_protocol::ids::NodeId;
use core::sync::atomic::Ordering;

/// A process takes part as the node with that context page: peers may call it from here on.
pub fn join(own: &ContextPage, pid: u32) {
    own.pid().store(pid, Ordering::Relaxed);
    run(own);
}

/// The node runs.
pub fn run(own: &ContextPage) {
    own.phase().store(node_phase::RUNNING, Ordering::Release);
}

/// The node's program is done, with status 0; the node still serves.
pub fn finish(own: &ContextPage) {
    own.exit_status().store(0, Ordering::Relaxed);
    own.phase().store(node_phase::DONE, Ordering::SeqCst);
}

/// The node takes no more part in the run: nobody waits for it.
pub fn leave(own: &ContextPage) {
    own.activity().swap(activity::GONE, Ordering::SeqCst);
}

/// The node has failed; ends the run for all.
pub fn fail(region: &Region, own: &ContextPage, status: i32) {
    own.exit_status().store(status as u32, Ordering::Relaxed);
    own.phase().store(node_phase::FAILED, Ordering::SeqCst);
    abort(region);
}

/// Ends the run for everyone: sets the abort word, and wakes all who sleep.
pub fn abort(region: &Region) {
    region.abort().store(1, Ordering::SeqCst);
    for node in (0..region.header().nodes).filter_map(NodeId::new) {
        let context = region.context(node);
        let doorbell = context.poll();
        doorbell.store(1, Ordering::SeqCst);
        let _ = sys::futex_wake(doorbell, i32::MAX as u32);
    }
}

/// Whether somebody has ended the run.
#[inline]
pub fn is_aborted(region: &Region) -> bool {
    region.abort().load(Ordering::Relaxed) != 0
}
