//! Operations on another node's data, where they are performed: counters and remote writes.
//!
//! Purpose: a counter is no memory: its home performs the operation, and the cost is one request and its answer, whoever came before. A remote write
//! stores into a node's *private* memory, without an answer. Input: messages. Output: answers, stores.
//! **Invariants**
//! * A counter is changed by its home only.
//! * Remote writes from one node to another are performed in order, each before any later message between the two is handled, and never touch
//!   shared memory or the runtime's tables.
//!
//! Source: Reinhardt 1996, section 2.2.1 (fetch-and-op and remote write as uses of active messages).

use crate::kernel::own_memory::KernelQueue;
use crate::kernel::sys;
use crate::links::links::Links;
use crate::messages::kinds::id;
use crate::sync::op::Op;
use crate::transport::message::Message;
use blizzard_contract::{self as contract, BLOCK_BYTES};
use blizzard_protocol::ids::NodeId;

/// The counters that one node manages.
pub struct ManagedCounters {
    all: KernelQueue<u64>,
}

impl ManagedCounters {
    pub const fn new() -> ManagedCounters {
        ManagedCounters { all: KernelQueue::new() }
    }

    /// The number of a new counter; `None` when there is no memory.
    pub fn make(&mut self, value: u64) -> Option<u64> {
        self.all.push(value).ok()?;
        Some(self.all.len() - 1)
    }
}

/// Where the operation's number is in the first argument of a counter's message.
pub const OP_SHIFT: u32 = 48;

/// `args`: number of the counter and of the operation, value, expected value. Answer: `args[0]`: what it was.
pub fn on_counter_op(counters: &mut ManagedCounters, links: &mut Links, from: NodeId, message: &Message) {
    let [which, value, expected] = message.args;
    let index = which & ((1 << OP_SHIFT) - 1);
    let Some(op) = Op::from_number(which >> OP_SHIFT) else {
        return links.count(contract::Counter::MessagesRejected);
    };
    let Some(old) = counters.all.get(index) else {
        links.fail(format_args!("node {} uses a counter that was never made", from.index()));
    };
    counters.all.set(index, op.apply(old, value, expected));
    links.post(from, Message { handler: id::COUNTED, args: [old, 0, 0], ..*message });
}

/// Address: where to; `args[0]`: bytes. Not answered.
pub fn on_remote_write(links: &mut Links, from: NodeId, message: &Message) {
    let (to, bytes) = (message.addr, message.args[0]);
    if bytes > BLOCK_BYTES || !is_private(to, bytes) {
        return links.count(contract::Counter::MessagesRejected);
    }
    let mut data = [0u8; BLOCK_BYTES as usize];
    for (bytes, word) in data.chunks_exact_mut(8).zip(message.data) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    // SAFETY: private memory, which the program says is its variable on this node too.
    if let Err(e) = unsafe { sys::write_own_memory(to, &data[..bytes as usize]) } {
        links.fail(format_args!(
            "bz_remote_write: node {} writes {bytes} bytes at {to:#x}, where this node has no writable memory: {e}",
            from.index()
        ));
    }
}

/// Answered at once: what the sender sent before has been handled.
pub fn on_remote_fence(links: &mut Links, from: NodeId, message: &Message) {
    links.post(from, Message { handler: id::REMOTE_FENCED, ..*message });
}

/// Whether a range can only be the program's private memory.
pub fn is_private(addr: u64, bytes: u64) -> bool {
    let Some(end) = addr.checked_add(bytes) else { return false };
    let apart = |start: u64, length: u64| end <= start || addr >= start + length;
    apart(contract::CONTEXT_SHARED, 2 * contract::CONTEXT_BYTES)
        && apart(contract::TAG_TABLE_BASE, contract::TAG_TABLE_BYTES)
        && apart(contract::SEGMENT_BASE, contract::SEGMENT_MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_and_the_runtimes_tables_are_not_private() {
        assert!(is_private(0x1000, 8) && is_private(0x7fff_ffff_0000, 64));
        for (addr, bytes) in [
            (contract::SEGMENT_BASE, 8),
            (contract::SEGMENT_BASE - 4, 8),
            (contract::TAG_TABLE_BASE + 5, 1),
            (contract::CONTEXT_PRIVATE, 8),
            (u64::MAX, 2),
        ] {
            assert!(!is_private(addr, bytes), "{addr:#x}");
        }
    }
}
