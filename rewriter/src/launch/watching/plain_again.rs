//! Rings for nodes that a fault has taken into full code, so that they try plain code again.
//!
//! Input: the nodes' context pages, again and again. Output: rung doorbells. **Invariant**: only who computes is rung for, and nobody who is traced: a debugger would
//! stop at each of the single steps that lead back. Source: design section 9; the runtime's `signals/plain_again.rs`.

use crate::launch::crashes::crash::OwnNodes;
use crate::launch::region::RegionFile;
use rustix::process::Pid;
use std::fs;
use std::time::Duration;

/// How often to look while nodes fault.
const OFTEN: Duration = Duration::from_millis(4);
/// How often to look while none does.
const SELDOM: Duration = Duration::from_millis(20);

/// Rings where it is time; how long the launcher may sleep until the next look.
pub(crate) fn ring(own: OwnNodes, region: &RegionFile) -> Duration {
    let mut again = SELDOM;
    for (number, node) in (own.first..).zip(own.nodes) {
        // What the launcher has started may be the debugger.
        let pid = region.created_pid(number).or(node.pid);
        let Some(pid) = pid.filter(|_| node.ended.is_none() && region.is_in_full_code(number)) else { continue };
        if !is_traced(pid) {
            region.ring_for_plain_code(number);
            again = OFTEN;
        }
    }
    again
}

/// Whether a debugger is attached. Who cannot be looked at is taken for traced.
fn is_traced(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap_or_default();
    !status.contains("\nTracerPid:\t0\n")
}
