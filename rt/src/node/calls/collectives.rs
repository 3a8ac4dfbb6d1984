//! Barriers of all nodes, reductions, broadcasts: the calls of the program, which wait.
//!
//! Input: words, private memory. Output: the same on all nodes. [`crate::sync::collective`] says how.

use crate::messages::kinds::id;
use crate::node::node::Node;
use crate::sync::collective::{CHUNK_BYTES, Collective, VECTOR_WORDS};
use crate::transport::message::Message;
use crate::transport::patience::Wait;
use blizzard_contract::{Counter, waits};
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::port::Rounds;

impl Node {
    /// Waits until every node is in its next collective, which must be the same one; replaces the words by the result.
    pub fn collective(&mut self, kind: Collective, words: &mut [u64]) {
        self.rounds = Rounds { entered: self.rounds.entered + 1, waits: true };
        self.engine.round_ends(&mut self.links);
        self.flush();
        if kind == Collective::Barrier {
            self.count(Counter::Barriers);
        }
        self.meet(kind, words);
        self.rounds.waits = false;
        self.engine.round_begins(&mut self.links);
    }

    /// The same, where no round of what is combined in place ends.
    pub fn meet(&mut self, kind: Collective, words: &mut [u64]) {
        let number = self.sync.collectives.enter();
        let mut all = [0; VECTOR_WORDS];
        all[..words.len()].copy_from_slice(words);
        let me = self.me;
        self.sync.collectives.arrive(&mut self.links, me, kind, words.len() as u64, &all);
        self.wait_for_all(Wait::Barrier, waits::ALL, |node| node.sync.collectives.is_complete(number));
        words.copy_from_slice(&self.sync.collectives.result()[..words.len()]);
    }

    /// One word.
    pub fn collective_word(&mut self, kind: Collective, value: u64) -> u64 {
        let mut word = [value];
        self.collective(kind, &mut word);
        word[0]
    }

    /// Copies `bytes` bytes (at most [`BROADCAST_BYTES`](crate::sync::collective::BROADCAST_BYTES)) of private memory from node `root` to the other nodes' `at`.
    ///
    /// # Safety
    /// `bytes` bytes at `at` are private memory of the caller's, readable and writable until the call returns.
    pub unsafe fn broadcast(&mut self, root: NodeId, at: u64, bytes: u64) {
        if self.me != root && bytes != 0 {
            // SAFETY: the caller's memory, until the wait below is over.
            unsafe { self.sync.collectives.receive(at, bytes) };
        }
        if self.collective_word(Collective::Broadcast(root), bytes) != bytes {
            self.fail(format_args!("bz_broadcast: the nodes do not all expect the same number of bytes"));
        }
        if self.me == root {
            for offset in (0..bytes).step_by(CHUNK_BYTES as usize) {
                let length = CHUNK_BYTES.min(bytes - offset);
                let mut data = [0; VECTOR_WORDS];
                // SAFETY: the caller's memory, and as many bytes of a larger array.
                unsafe {
                    core::ptr::copy_nonoverlapping(
                        (at + offset) as *const u8,
                        data.as_mut_ptr().cast::<u8>(),
                        length as usize,
                    );
                }
                let args = [offset, length, root.index() as u64];
                let chunk = Message {
                    handler: id::BROADCAST_DATA,
                    length: CHUNK_BYTES as u8,
                    args,
                    data,
                    ..Message::default()
                };
                self.send(self.manager(), chunk);
            }
        } else {
            self.wait_for_all(Wait::Barrier, waits::ALL, |node| !node.sync.collectives.is_receiving());
        }
    }
}
