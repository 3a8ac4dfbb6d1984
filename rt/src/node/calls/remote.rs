//! Operations that one node performs on another one's data: the calls of the program.
//!
//! There are two kinds of fetch-and-op. [`Node::fetch_op`] works on any aligned word of shared memory, by making it Writable here: it is as
//! fast as a local access while the same node uses the word again, and costs a transfer of the block when another one had it.
//! [`Node::counter_op`] works on a counter, whose home performs the operation ([`crate::sync::remote`]).
//! **Invariant**: operations on one word are atomic: a word is Writable at one node only.

use crate::links::bugs::has_bug;
use crate::messages::kinds::id;
use crate::node::node::Node;
use crate::sync::handle::HandleKind;
use crate::sync::op::Op;
use crate::sync::remote::{OP_SHIFT, is_private};
use crate::transport::message::Message;
use crate::transport::patience::Wait;
use blizzard_contract::BLOCK_BYTES;
use blizzard_protocol::ids::{BLOCK_WORDS, NodeId};

impl Node {
    /// Performs an operation on an aligned word of shared or private memory; returns what it was.
    pub fn fetch_op(&mut self, op: Op, addr: u64, value: u64, expected: u64) -> u64 {
        self.access(addr, 8, true, false);
        let word = self.space.runtime_address(addr).cast::<u64>();
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
        let index = self.sync.counters.make(value);
        self.new_handle("bz_counter_new", HandleKind::Counter, index)
    }

    /// Performs an operation on a counter; returns what it was.
    pub fn counter_op(&mut self, op: Op, counter: u64, value: u64, expected: u64) -> u64 {
        let handle = self.object_handle("bz_counter_op", HandleKind::Counter, counter);
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
        self.links.written = self.written.with(node);
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

    /// Waits until the nodes that have copies of blocks of this home, whose protocol is update, have got what this node has stored into them.
    #[inline]
    pub fn flush(&mut self) {
        if self.engine.flushes() {
            self.remote_fence();
        } else {
            self.end_promises();
        }
    }

    /// [`Node::flush`], and waits until all remote writes of this node have been performed.
    pub fn remote_fence(&mut self) {
        self.links.begin_flush();
        self.engine.flush(&mut self.links);
        self.links.end_flush();
        let written = core::mem::take(&mut self.links.written);
        if has_bug!(self, FenceDoesNotWait) {
            return;
        }
        for to in written.iter() {
            let key = self.fresh_key();
            let ask = Message { handler: id::REMOTE_FENCE, key, ..Message::default() };
            self.call(to, ask, id::REMOTE_FENCED, Wait::Other);
        }
        // Readers have been told to give their copies up, and may have answered the fence in an access that goes on first.
        for k in 0.. {
            let Some(is_leaving) = self.engine.is_leaving(k) else { break };
            if is_leaving {
                self.wait(Wait::Other, |node| node.engine.is_leaving(k) != Some(true));
            }
        }
        self.end_promises();
    }
}
