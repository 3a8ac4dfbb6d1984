//! Bulk data by copies out of the other process's memory.
//!
//! Purpose: transfers whose source computes, or stages another one; and those of a node to itself. Input: destinations that are filling. Output: data
//! in their buffers, a part per [`step`] so that other events do not wait for long. Where the kernel refuses (`process_vm_readv`), [`asked`] goes on.

use super::super::{Host, with};
use super::{Destination, asked, complete, staged};
use crate::kernel::sys::{self, Errno};
use crate::node;
use blizzard_protocol::ids::NodeId;

/// Bytes that one step copies.
const PIECE_BYTES: u64 = 1 << 20;
/// Takes the next piece of the first transfer; false when there is none.
pub fn step(host: &mut Host<'_>) -> bool {
    let me = host.me();
    if with(|t| t.bulk.is_starving()) {
        staged::take_over(host);
    }
    let Some((at, mut d)) = with(|t| {
        let filling = t.bulk.filling != 0;
        let all = &t.bulk.destinations;
        let mut found = (0..all.len()).filter_map(|at| Some((at, all.get(at)?)));
        let is_due = |d: &Destination| d.is_direct() && (d.number == 0 || d.done < d.bytes);
        if filling { found.find(|(_, d)| is_due(d)) } else { None }
    }) else {
        return false;
    };
    let Some(src) = NodeId::new(d.src.into()) else { return false };
    let bytes = PIECE_BYTES.min(d.bytes - d.done);
    if src == me {
        // SAFETY: both buffers are the program's own, checked when they were given; they may overlap.
        unsafe { core::ptr::copy((d.from + d.done) as *const u8, (d.buffer + d.done) as *mut u8, bytes as usize) };
    } else if with(|t| t.bulk.refused) {
        return asked::ask(host, at, d);
    } else {
        let process = host.node().map_or(0, |node| node.process_of(src)) as i32;
        // SAFETY: the program's own buffer, checked when it was given.
        match unsafe { sys::read_process(process, d.from + d.done, d.buffer + d.done, bytes) } {
            Ok(()) => {}
            Err(Errno(libc::EPERM | libc::ENOSYS)) => {
                with(|t| t.bulk.refused = true);
                return asked::ask(host, at, d);
            }
            Err(e) => node::fail(format_args!(
                "cannot copy {bytes} bytes at {:#x} from the memory of node {} to {:#x}: {e}",
                d.from + d.done,
                d.src,
                d.buffer + d.done
            )),
        }
    }
    d.done += bytes;
    with(|t| t.bulk.destinations.set(at, d));
    if d.done == d.bytes {
        with(|t| t.bulk.filling -= 1);
        if d.has_all_pieces() {
            complete(host, at, d);
        }
    }
    true
}
