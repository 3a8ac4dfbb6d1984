//! Bytes of the sender's staging area that a message tells of.
//!
//! Purpose: between nodes of one host these bytes are there already, because both map the area. Between hosts whoever carries the message carries them too, to the
//! same place of the receiver's region. Input: a message. Output: where they are in the area, as [`crate::memory::region::Region::stage`] gives it.
//! **Invariant**: whatever the message says, they lie in the places behind the area's first page.

use crate::messages::kinds::id;
use crate::transport::message::Message;
use blizzard_contract::{CONTEXT_BYTES, PUSH_PLACES, STAGE_PIECE_BYTES, STAGE_PLACES};
use blizzard_protocol::ids::BLOCK_WORDS;
use core::ops::Range;

/// Blocks of one piece that a flush pushes: their addresses come first, then their data.
pub const PUSH_BLOCKS: u64 = 448;

/// The bytes that `message` tells of; none if it tells of none, or of more than a place has.
pub const fn area_bytes(message: &Message) -> Option<Range<u64>> {
    let [first, second, _] = message.args;
    let (place, bytes) = match message.handler {
        id::BULK_STAGED => (second % STAGE_PLACES, message.addr),
        id::BLOCK_PUSHES if first < PUSH_PLACES && second < PUSH_BLOCKS => {
            (STAGE_PLACES + first, 8 * (PUSH_BLOCKS + second * BLOCK_WORDS as u64))
        }
        // So that full pieces of neighbouring places are one range.
        id::BLOCK_PUSHES if first < PUSH_PLACES && second == PUSH_BLOCKS => (STAGE_PLACES + first, STAGE_PIECE_BYTES),
        _ => return None,
    };
    if bytes == 0 || bytes > STAGE_PIECE_BYTES {
        return None;
    }
    let start = CONTEXT_BYTES + place * STAGE_PIECE_BYTES;
    Some(start..start + bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_contract::STAGE_BYTES;

    #[test]
    fn no_message_tells_of_bytes_outside_of_the_places() {
        let words = [0, 1, 15, 16, 447, 448, 449, 32 << 10, (32 << 10) + 1, 1 << 40, u64::MAX];
        for handler in 0..600 {
            for (first, second, addr) in words.iter().flat_map(|&a| words.iter().map(move |&b| (a, b, a ^ b))) {
                let message = Message { handler, addr, args: [first, second, 0], ..Message::default() };
                let Some(range) = area_bytes(&message) else { continue };
                assert!(range.start >= CONTEXT_BYTES && range.start < range.end && range.end <= STAGE_BYTES);
                let place = (range.start - CONTEXT_BYTES) / STAGE_PIECE_BYTES;
                assert_eq!((range.end - 1 - CONTEXT_BYTES) / STAGE_PIECE_BYTES, place);
                assert_eq!(place >= STAGE_PLACES, handler == id::BLOCK_PUSHES);
            }
        }
    }

    #[test]
    fn full_pieces_of_neighbouring_places_are_one_range() {
        let staged = |piece| Message {
            handler: id::BULK_STAGED,
            addr: STAGE_PIECE_BYTES,
            args: [3, piece, 9],
            ..Message::default()
        };
        assert_eq!(area_bytes(&staged(17)).unwrap().end, area_bytes(&staged(18)).unwrap().start);
        let pushed =
            |place, blocks| Message { handler: id::BLOCK_PUSHES, args: [place, blocks, 0], ..Message::default() };
        assert_eq!(area_bytes(&pushed(4, PUSH_BLOCKS)).unwrap().end, area_bytes(&pushed(5, 1)).unwrap().start);
    }
}
