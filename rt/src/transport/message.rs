//! A message as it lies in a ring slot.
//!
//! Purpose: the fixed form in which everything travels between nodes. Self-contained: numbers of handlers, never pointers.
//! Source: design section 6 (wire); PPE seed, sections 3.2 and 4.1 (incarnation numbers).
//!
//! ```text
//! byte   0  u32  sequence number, owned by the transport
//!        4  u32  incarnation of the run
//!        8  u16  handler number: index into the handler table
//!       10  u16  source node
//!       12  u32  how many messages the sender had taken in the other direction, modulo 2^32
//!       16  u64  address in the segment, or zero
//!       24  u64  three arguments, meaning by handler
//!       48  u64  key: an answer has that of its request
//!       56  u32  how many messages of its sender went the other way before it: owned by the transport, zero elsewhere
//!       60  u8   bytes of data: 0 or 64
//!       61       zero
//!       64  64 bytes of data
//! ```

use crate::kernel::own_memory::Zeroed;
use blizzard_protocol::ids::{BLOCK_WORDS, NodeId};
use blizzard_protocol::protocol::messages::ABOUT_BLOCKS;

/// Words of a slot's first line behind the one that the sequence number shares with the incarnation.
pub const HEAD_WORDS: usize = 7;
/// The last of them, whose lower half is not part of a [`Message`].
pub const ORDER: usize = HEAD_WORDS - 1;
/// Where the length begins in it.
const LENGTH_SHIFT: u32 = 32;

/// The first number of a handler of messages that are not about a block.
pub const FIRST_OTHER: u16 = ABOUT_BLOCKS;

/// What kind of message it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// About a block: of a coherence protocol.
    Blocks,
    Other,
}

impl Traffic {
    /// Of messages for that handler.
    #[inline]
    pub const fn of(handler: u16) -> Traffic {
        if handler < FIRST_OTHER { Traffic::Blocks } else { Traffic::Other }
    }
}

/// The head of a message without its arguments in the middle: the first word and the last one.
#[inline(always)]
pub const fn ends_of_head(handler: u16, source: NodeId, length: u64, taken: u32) -> [u64; 2] {
    let first = handler as u64 | (source.index() as u64) << 16 | (taken as u64) << 32;
    [first, length << LENGTH_SHIFT]
}

/// Bytes of a slot's first line: what a message without data moves.
pub const LINE_BYTES: u64 = 64;

/// One message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub incarnation: u32,
    pub handler: u16,
    pub source: u16,
    /// Bytes of `data` that travel.
    pub length: u8,
    /// How many messages of the receiver its sender had taken out, modulo 2^32: an acknowledgement of those.
    pub taken: u32,
    pub addr: u64,
    pub args: [u64; 3],
    pub key: u64,
    pub data: [u64; BLOCK_WORDS],
}

// SAFETY: integers only.
unsafe impl Zeroed for Message {}

impl Message {
    /// The words of the slot's first line, from the second one on.
    #[inline]
    pub fn head(&self) -> [u64; HEAD_WORDS] {
        let [first, second, third] = self.args;
        let small = u64::from(self.handler) | u64::from(self.source) << 16 | u64::from(self.taken) << 32;
        [small, self.addr, first, second, third, self.key, u64::from(self.length) << LENGTH_SHIFT]
    }

    /// The inverse of [`Message::head`]; leaves the data alone.
    #[inline]
    pub fn set_head(&mut self, incarnation: u32, head: &[u64; HEAD_WORDS]) {
        let &[small, addr, first, second, third, key, last] = head;
        self.incarnation = incarnation;
        self.handler = small as u16;
        self.source = (small >> 16) as u16;
        self.length = (last >> LENGTH_SHIFT) as u8;
        self.taken = (small >> 32) as u32;
        self.addr = addr;
        self.args = [first, second, third];
        self.key = key;
    }

    #[inline]
    pub const fn traffic(&self) -> Traffic {
        Traffic::of(self.handler)
    }

    /// Bytes that travel.
    pub const fn wire_bytes(&self) -> u64 {
        LINE_BYTES + self.length as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_fields_agree() {
        let message = Message {
            incarnation: 0xdead_beef,
            handler: 0x1234,
            source: 0xfedc,
            length: 64,
            taken: 0x8765_4321,
            addr: 0x2000_0000_0040,
            args: [1, u64::MAX, 3],
            key: 11,
            data: [9, 8, 7, 6, 5, 4, 3, 2],
        };
        let head = message.head();
        assert_eq!((head[0], head[ORDER]), (0x8765_4321_fedc_1234, 0x40_0000_0000));
        let [first, last] = ends_of_head(0x1234, NodeId::new(7).unwrap(), 64, 0x8765_4321);
        assert_eq!((first, last), (0x8765_4321_0007_1234, head[ORDER]));
        let mut copy = Message { data: message.data, ..Message::default() };
        copy.set_head(message.incarnation, &head);
        assert_eq!(copy, message);
    }
}
