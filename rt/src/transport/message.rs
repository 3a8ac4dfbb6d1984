//! A message as it lies in a ring slot.
//!
//! Purpose: the fixed form in which everything travels between nodes. Self-contained: numbers of handlers, never pointers.
//! Source: design section 6 (wire); PPE seed, sections 3.2 and 4.1 (incarnation numbers).
//!
//! ```text
//! byte   0  u32  sequence number, owned by the ring
//!        4  u32  incarnation of the run
//!        8  u16  handler number: index into the handler table
//!       10  u8   source node
//!       11  u8   bytes of data: 0 or 64
//!       12  u32  zero
//!       16  u64  address in the segment, or zero
//!       24  u64  three arguments, meaning by handler
//!       48  u64  key: an answer has that of its request
//!       56  8 bytes unused
//!       64  64 bytes of data
//! ```

use crate::abi::SLOT_BYTES;
use crate::buffer::Zeroed;
use crate::tags::BLOCK_WORDS;

const WORDS: usize = SLOT_BYTES as usize / 8;

/// One message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    pub incarnation: u32,
    pub handler: u16,
    pub source: u8,
    /// Bytes of `data` that travel.
    pub length: u8,
    pub addr: u64,
    pub args: [u64; 3],
    pub key: u64,
    pub data: [u64; BLOCK_WORDS],
}

// SAFETY: integers only.
unsafe impl Zeroed for Message {}

impl Message {
    /// The slot's words; the sequence number is zero.
    #[inline]
    pub fn words(&self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        words[0] = u64::from(self.incarnation) << 32;
        words[1] = u64::from(self.handler) | u64::from(self.source) << 16 | u64::from(self.length) << 24;
        words[2] = self.addr;
        words[3..6].copy_from_slice(&self.args);
        words[6] = self.key;
        words[8..].copy_from_slice(&self.data);
        words
    }

    /// The message in a slot's words, the sequence number left out.
    #[inline]
    pub fn from_words(words: &[u64; WORDS]) -> Message {
        let mut message = Message {
            incarnation: (words[0] >> 32) as u32,
            handler: words[1] as u16,
            source: (words[1] >> 16) as u8,
            length: (words[1] >> 24) as u8,
            addr: words[2],
            key: words[6],
            ..Message::default()
        };
        message.args.copy_from_slice(&words[3..6]);
        message.data.copy_from_slice(&words[8..]);
        message
    }

    /// Bytes that travel.
    pub const fn wire_bytes(&self) -> u64 {
        64 + self.length as u64
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
            source: 31,
            length: 64,
            addr: 0x2000_0000_0040,
            args: [1, u64::MAX, 3],
            key: 11,
            data: [9, 8, 7, 6, 5, 4, 3, 2],
        };
        let words = message.words();
        assert_eq!(words[0], 0xdead_beef_0000_0000);
        assert_eq!(words[1], 0x401f_1234);
        assert_eq!(Message::from_words(&words), message);
    }
}
