//! The check that stands before belief.
//!
//! Purpose: [`validate`] compares a received message with the row of [`kinds`] that it names. Input: a message, and the node whose ring it was in.
//! Output: whether it is handled, or the reason why it is dropped and counted. Source: design section 6 (wire); PPE seed, sections 3.2, 4.1 and 6.

use crate::memory::homes::{HomeTable, Homes};
use crate::memory::tags::Space;
use crate::messages::kinds::{self, ANY_DATA, Route};
use crate::transport::message::Message;
use blizzard_contract::BLOCK_BYTES;
use blizzard_protocol::ids::NodeId;

/// Why a message was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    Incarnation,
    Source,
    Handler,
    Length,
    Address,
    /// Not a message that this sender may send to this receiver.
    Route,
}

/// What a receiver knows when it judges a message.
pub struct Receiver<'a> {
    pub incarnation: u32,
    pub me: NodeId,
    pub space: &'a Space,
    pub homes: &'a Homes,
    pub home_table: &'a HomeTable,
}

/// Judges a message that was in the ring from node `from`.
#[inline]
pub fn validate(receiver: &Receiver<'_>, from: NodeId, message: &Message) -> Result<(), Rejection> {
    if message.incarnation != receiver.incarnation {
        return Err(Rejection::Incarnation);
    }
    if usize::from(message.source) != from.index() {
        return Err(Rejection::Source);
    }
    let row = kinds::row(message.handler).ok_or(Rejection::Handler)?;
    let known_length = matches!(message.length, 0 | 64);
    if message.length != row.data_bytes && !(row.data_bytes == ANY_DATA && known_length) {
        return Err(Rejection::Length);
    }
    let manager = NodeId::new(0);
    let routed = match row.route {
        Route::ToHome | Route::FromHome => {
            let to_home = row.route == Route::ToHome;
            let (at_home, away) = if to_home { (receiver.me, from) } else { (from, receiver.me) };
            match receiver.home_table.place(receiver.homes, message.addr) {
                Some(place) => {
                    if !receiver.space.contains(message.addr) || message.addr & (place.block.bytes() - 1) != 0 {
                        return Err(Rejection::Address);
                    }
                    if !place.protocol.has_message(message.handler) {
                        return Err(Rejection::Handler);
                    }
                    place.home == at_home && place.home != away
                }
                None => {
                    if !receiver.space.contains(message.addr)
                        || receiver.space.block_of(message.addr).addr() != message.addr
                    {
                        return Err(Rejection::Address);
                    }
                    let arena = receiver.homes.arena_of(message.addr);
                    if !arena.is_some_and(|arena| arena.protocol().has_message(message.handler)) {
                        return Err(Rejection::Handler);
                    }
                    to_home && receiver.home_table.is_asking(message.addr) && from != receiver.me
                }
            }
        }
        Route::WithHome => {
            if !receiver.space.contains(message.addr) || !message.addr.is_multiple_of(BLOCK_BYTES) {
                return Err(Rejection::Address);
            }
            let home = receiver.home_table.place(receiver.homes, message.addr).map(|place| place.home);
            (home == Some(receiver.me)) != (home == Some(from))
        }
        Route::ToManager => manager == Some(receiver.me),
        Route::FromManager => manager == Some(from),
        Route::Any => true,
    };
    if routed { Ok(()) } else { Err(Rejection::Route) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::homes::{Attributes, PAGE_BYTES};
    use crate::messages::kinds::{OWN, id};
    use blizzard_contract::SEGMENT_BASE;
    use blizzard_protocol::list::row_of;

    fn node(n: u32) -> NodeId {
        NodeId::new(n).unwrap()
    }

    /// The first message of that name.
    fn protocol_message(name: &str) -> u16 {
        (0..OWN).find(|&number| row_of(number).is_some_and(|(_, row)| row.name == name)).unwrap()
    }

    #[test]
    fn each_field_is_checked() {
        // Never dereferenced: validation looks at numbers only.
        // SAFETY: as just said.
        let space = unsafe { Space::new(0, 0, 1 << 20) };
        let plain = Attributes::PLAIN;
        let homes = Homes::new(3, 1 << 20, plain);
        let home_table = HomeTable::new(false, &homes).unwrap();
        let judge = |me: u32, from: u32, message: Message| {
            let receiver =
                Receiver { incarnation: 5, me: node(me), space: &space, homes: &homes, home_table: &home_table };
            validate(&receiver, node(from), &message).map(|()| kinds::row(message.handler).unwrap().name)
        };
        // Page 1 has its home on node 1.
        let good = Message {
            incarnation: 5,
            source: 2,
            handler: protocol_message("WriteBack"),
            length: 64,
            addr: SEGMENT_BASE + PAGE_BYTES + 64,
            ..Message::default()
        };
        assert_eq!(judge(1, 2, good), Ok("WriteBack"));
        assert_eq!(judge(1, 2, Message { incarnation: 4, ..good }), Err(Rejection::Incarnation));
        assert_eq!(judge(1, 0, good), Err(Rejection::Source));
        assert_eq!(judge(1, 2, Message { source: 0, ..good }), Err(Rejection::Source));
        for handler in [0, id::OPERATION_KNOWN + 1, u16::MAX, protocol_message("ReturnDirty")] {
            assert_eq!(judge(1, 2, Message { handler, ..good }), Err(Rejection::Handler));
        }
        for length in [0, 63, 255] {
            assert_eq!(judge(1, 2, Message { length, ..good }), Err(Rejection::Length));
        }
        for addr in [0, good.addr + 1, SEGMENT_BASE - 64, SEGMENT_BASE + (1 << 20), u64::MAX - 63] {
            assert_eq!(judge(1, 2, Message { addr, ..good }), Err(Rejection::Address));
        }
        // Not the home; a home that sends to itself; data that does not come from the home.
        assert_eq!(judge(0, 2, good), Err(Rejection::Route));
        assert_eq!(judge(1, 1, Message { source: 1, ..good }), Err(Rejection::Route));
        let data = Message { handler: protocol_message("DataReadOnly"), ..good };
        assert_eq!(judge(0, 2, data), Err(Rejection::Route));
        assert_eq!(judge(0, 1, Message { source: 1, ..data }), Ok("DataReadOnly"));
        let publish = Message { handler: id::PUBLISH, length: 0, addr: 0, ..good };
        assert_eq!(judge(0, 2, publish), Ok("Publish"));
        assert_eq!(judge(1, 2, publish), Err(Rejection::Route));
        let looked_up = Message { handler: id::LOOKED_UP, ..publish };
        assert_eq!(judge(1, 2, looked_up), Err(Rejection::Route));
    }
}
