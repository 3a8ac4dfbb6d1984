//! Operations that one node performs on another one's data: counters, fetch-and-op, remote writes.
//!
//! Purpose: two kinds of fetch-and-op. [`Node::fetch_op`] works on any aligned word of shared memory, by making it Writable here: it is as
//! fast as a local access while the same node uses the word again, and costs a transfer of the block when another one had it.
//! [`Node::counter_op`] works on a counter, which is no memory: its home performs the operation, and the cost is one request and its
//! answer, whoever came before. [`Node::remote_write`] stores into another node's *private* memory, without an answer.
//! **Invariants**
//! * Operations on one word or counter are atomic: a word is Writable at one node only, and a counter is changed by its home only.
//! * Remote writes from one node to another are performed in order, each before any later message between the two is handled, and never touch
//!   shared memory or the runtime's tables.
//!
//! Source: Reinhardt 1996, section 2.2.1 (fetch-and-op and remote write as uses of active messages).

use super::handle::{Handle, Kind};
use super::op::Op;
use super::{bit, members};
use crate::kernel::sys;
use crate::messages::id;
use crate::node::Node;
use crate::node::has_bug;
use crate::node::stats::Wait;
use crate::transport::message::Message;
use blizzard_contract::{self as contract, BLOCK_BYTES};
use blizzard_protocol::ids::BLOCK_WORDS;
use blizzard_protocol::ids::NodeId;

/// Calls of the program.
impl Node {
    /// Performs an operation on an aligned word of shared or private memory; returns what it was.
    pub fn fetch_op(&mut self, op: Op, addr: u64, value: u64, expected: u64) -> u64 {
        self.access(addr, 8, true, false);
        let word = if self.space.contains(addr) { self.space.local(addr) } else { addr as *mut u8 };
        let word = word.cast::<u64>();
        // SAFETY: accessible now, and no handler runs before the store; a private word is the program's business, as with any store.
        unsafe {
            let old = word.read_volatile();
            word.write_volatile(op.apply(old, value, expected));
            old
        }
    }

    /// Adds to an aligned word; returns what it was.
    pub fn fetch_add(&mut self, addr: u64, value: u64) -> u64 {
        self.fetch_op(Op::Add, addr, value, 0)
    }

    /// A new counter that this node manages.
    pub fn counter_new(&mut self, value: u64) -> u64 {
        let index = self.sync.counters.len();
        if self.sync.counters.push(value).is_err() {
            self.fail(format_args!("bz_counter_new: no memory"));
        }
        Handle { kind: Kind::Counter, home: self.me, index }.encode()
    }

    /// Performs an operation on a counter; returns what it was.
    pub fn counter_op(&mut self, op: Op, counter: u64, value: u64, expected: u64) -> u64 {
        let handle = self.object_handle("bz_counter_op", Kind::Counter, counter);
        let key = self.fresh_key();
        let args = [handle.index | (op as u64) << OP_SHIFT, value, expected];
        let ask = Message { handler: id::COUNTER_OP, args, key, ..Message::default() };
        self.call(handle.home, ask, id::COUNTED, Wait::Lock).args[0]
    }

    /// Copies `bytes` bytes from this node's private memory to the address `to` of another node's; does not wait.
    ///
    /// # Safety
    /// `bytes` bytes at `from` are readable private memory of the caller's.
    pub unsafe fn remote_write(&mut self, node: NodeId, to: u64, from: u64, bytes: u64) {
        if !is_private(to, bytes) {
            self.fail(format_args!("bz_remote_write: {to:#x} is not private memory"));
        }
        if node.index() as u32 >= self.participants() {
            self.fail(format_args!("bz_remote_write: node {} has not been created", node.index()));
        }
        self.sync.written |= bit(node);
        for offset in (0..bytes).step_by(BLOCK_BYTES as usize) {
            let length = BLOCK_BYTES.min(bytes - offset);
            let mut data = [0u64; BLOCK_WORDS];
            // SAFETY: the caller's memory, and as many bytes of a larger array.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    (from + offset) as *const u8,
                    data.as_mut_ptr().cast::<u8>(),
                    length as usize,
                );
            }
            let args = [length, 0, 0];
            let (handler, addr) = (id::REMOTE_WRITE, to + offset);
            self.send(node, Message { handler, length: BLOCK_BYTES as u8, addr, args, data, ..Message::default() });
        }
    }

    /// Waits until all remote writes of this node have been performed.
    pub fn remote_fence(&mut self) {
        let written = core::mem::take(&mut self.sync.written);
        if has_bug!(self, FenceDoesNotWait) {
            return;
        }
        for to in members(written) {
            let key = self.fresh_key();
            let ask = Message { handler: id::REMOTE_FENCE, key, ..Message::default() };
            self.call(to, ask, id::REMOTE_FENCED, Wait::Other);
        }
    }
}

/// Where the operation's number is in the first argument of a counter's message.
const OP_SHIFT: u32 = 48;

/// `args`: number of the counter and of the operation, value, expected value. Answer: `args[0]`: what it was.
pub fn on_counter_op(node: &mut Node, from: NodeId, message: &Message) {
    let [which, value, expected] = message.args;
    let index = which & ((1 << OP_SHIFT) - 1);
    let Some(op) = Op::from_number(which >> OP_SHIFT) else {
        return node.count(contract::Counter::MessagesRejected);
    };
    let Some(old) = node.sync.counters.get(index) else {
        node.fail(format_args!("node {} uses a counter that was never made", from.index()));
    };
    node.sync.counters.set(index, op.apply(old, value, expected));
    node.send(from, Message { handler: id::COUNTED, args: [old, 0, 0], ..*message });
}

/// Address: where to; `args[0]`: bytes. Not answered.
pub fn on_remote_write(node: &mut Node, from: NodeId, message: &Message) {
    let (to, bytes) = (message.addr, message.args[0]);
    if bytes > BLOCK_BYTES || !is_private(to, bytes) {
        return node.count(contract::Counter::MessagesRejected);
    }
    let mut data = [0u8; BLOCK_BYTES as usize];
    for (bytes, word) in data.chunks_exact_mut(8).zip(message.data) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    // SAFETY: private memory, which the program says is its variable on this node too.
    if let Err(e) = unsafe { sys::write_own_memory(to, &data[..bytes as usize]) } {
        node.fail(format_args!(
            "bz_remote_write: node {} writes {bytes} bytes at {to:#x}, where this node has no writable memory: {e}",
            from.index()
        ));
    }
}

/// Answered at once: what the sender sent before has been handled.
pub fn on_remote_fence(node: &mut Node, from: NodeId, message: &Message) {
    node.send(from, Message { handler: id::REMOTE_FENCED, ..*message });
}

/// Whether a range can only be the program's private memory.
fn is_private(addr: u64, bytes: u64) -> bool {
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
