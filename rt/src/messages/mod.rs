//! Handlers of messages: their numbers, what they accept, and the check that stands before belief.
//!
//! Purpose: [`HANDLERS`] is the one table of everything a node understands. [`validate`] compares a received message with the row that
//! it names; only then [`Handler::run`] sees it. Input: a message and the ring it was in. Output: its handler, or the reason why
//! it is dropped and counted. Source: design section 6 (wire); PPE seed, sections 3.2, 4.1 and 6.
//! **Invariant**: a handler never waits: it changes state and sends, and returns.

use crate::memory::homes::{HomeTable, Homes};
use crate::memory::tags::Space;
use crate::node::{Node, access};
use crate::shared_memory::heap;
use crate::sync;
use crate::sync::{collective, group, lock, remote, slots};
use crate::tempest;
use crate::transport::interface::Urgency;
use crate::transport::message::FIRST_OTHER;
use crate::transport::message::Message;
use blizzard_contract::{BLOCK_BYTES, PUBLISH_SLOTS};
use blizzard_protocol::ids::NodeId;
use blizzard_protocol::list::row_of;
use blizzard_protocol::port::{MESSAGES, ProtocolId};

/// Numbers of the handlers. Those below [`OWN`] are messages of protocols, and the parts of data that come before them.
pub mod id {
    pub use blizzard_protocol::protocol::messages::PART as BLOCK_PART;

    pub const COLLECTIVE_ARRIVE: u16 = 64;
    pub const COLLECTIVE_DONE: u16 = 65;
    pub const LOCK_ACQUIRE: u16 = 66;
    pub const LOCK_GRANTED: u16 = 67;
    pub const LOCK_RELEASE: u16 = 68;
    pub const LOCK_TRY: u16 = 69;
    pub const LOCK_TRIED: u16 = 70;
    pub const PUBLISH: u16 = 71;
    pub const LOOKUP: u16 = 72;
    pub const LOOKED_UP: u16 = 73;
    pub const ALLOC: u16 = 74;
    pub const ALLOCATED: u16 = 75;
    pub const FREE: u16 = 76;
    pub const FREED: u16 = 77;
    pub const LIMIT_QUERY: u16 = 78;
    pub const LIMIT: u16 = 79;
    pub const EXITED: u16 = 80;
    pub const VECTOR_ARRIVE: u16 = 81;
    pub const VECTOR_DONE: u16 = 82;
    pub const BROADCAST_DATA: u16 = 83;
    pub const BARRIER_ARRIVE: u16 = 84;
    pub const BARRIER_DONE: u16 = 85;
    pub const EVENT_SET: u16 = 86;
    pub const EVENT_WAIT: u16 = 87;
    pub const EVENT_DONE: u16 = 88;
    pub const COUNTER_OP: u16 = 89;
    pub const COUNTED: u16 = 90;
    pub const REMOTE_WRITE: u16 = 91;
    pub const REMOTE_FENCE: u16 = 92;
    pub const REMOTE_FENCED: u16 = 93;
    pub const PUBLISHED: u16 = 94;
    pub const HOME_QUERY: u16 = 95;
    pub const HOME_IS: u16 = 96;
    // The messages of `tempest.h`.
    pub const USER: u16 = 97;
    pub const USER_MORE: u16 = 98;
    pub const BULK_ESTABLISHED: u16 = 99;
    pub const BULK_RESET: u16 = 100;
    pub const BULK_SEND: u16 = 101;
    pub const BULK_DONE: u16 = 102;
    pub const BULK_ASK: u16 = 103;
    pub const BULK_PIECE: u16 = 104;
    pub const BULK_STAGED: u16 = 105;
    pub const BULK_TAKEN: u16 = 106;
}

/// The first number that is no protocol's.
pub const OWN: u16 = FIRST_OTHER;

/// Who may send a message to whom, and what its address must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// About a block of which the receiver is the home and the sender is not.
    ToHome,
    /// About a block of which the sender is the home and the receiver is not.
    FromHome,
    /// About a part of a block of which one of the two is the home.
    WithHome,
    /// To node 0, which manages publish slots.
    ToManager,
    /// From node 0.
    FromManager,
    /// Between any two nodes; the handler checks the arguments.
    Any,
}

/// One row of the table.
pub struct Handler {
    pub name: &'static str,
    route: Route,
    /// Bytes of data: 0, 64 or [`ANY_DATA`].
    data_bytes: u8,
    /// Acts on a validated message.
    pub run: fn(&mut Node, NodeId, &Message),
}

/// With data or without: the handler looks.
const ANY_DATA: u8 = u8::MAX;

const fn row(name: &'static str, route: Route, data_bytes: u8, run: fn(&mut Node, NodeId, &Message)) -> Handler {
    Handler { name, route, data_bytes, run }
}

/// The handlers that are no protocol's, by number from [`OWN`].
pub static HANDLERS: [Handler; 43] = [
    row("CollectiveArrive", Route::Any, 0, collective::on_arrive),
    row("CollectiveDone", Route::Any, 0, collective::on_done),
    row("LockAcquire", Route::Any, 0, lock::on_acquire),
    row("LockGranted", Route::Any, 0, Node::on_reply),
    row("LockRelease", Route::Any, 0, lock::on_release),
    row("LockTry", Route::Any, 0, lock::on_try),
    row("LockTried", Route::Any, 0, Node::on_reply),
    row("Publish", Route::ToManager, 0, slots::on_publish),
    row("Lookup", Route::ToManager, 0, slots::on_lookup),
    row("LookedUp", Route::FromManager, 0, Node::on_reply),
    row("Alloc", Route::Any, 0, heap::on_alloc),
    row("Allocated", Route::Any, 0, Node::on_reply),
    row("Free", Route::Any, 0, heap::on_free),
    row("Freed", Route::Any, 0, Node::on_reply),
    row("LimitQuery", Route::Any, 0, heap::on_limit_query),
    row("Limit", Route::Any, 0, Node::on_reply),
    row("Exited", Route::Any, 0, sync::on_exited),
    row("VectorArrive", Route::Any, 64, collective::on_arrive),
    row("VectorDone", Route::Any, 64, collective::on_done),
    row("BroadcastData", Route::Any, 64, collective::on_broadcast_data),
    row("BarrierArrive", Route::Any, 0, group::on_barrier_arrive),
    row("BarrierDone", Route::Any, 0, Node::on_reply),
    row("EventSet", Route::Any, 0, group::on_event_set),
    row("EventWait", Route::Any, 0, group::on_event_wait),
    row("EventDone", Route::Any, 0, Node::on_reply),
    row("CounterOp", Route::Any, 0, remote::on_counter_op),
    row("Counted", Route::Any, 0, Node::on_reply),
    row("RemoteWrite", Route::Any, 64, remote::on_remote_write),
    row("RemoteFence", Route::Any, 0, remote::on_remote_fence),
    row("RemoteFenced", Route::Any, 0, Node::on_reply),
    row("Published", Route::FromManager, 0, Node::on_reply),
    row("HomeQuery", Route::Any, 0, access::on_home_query),
    row("HomeIs", Route::Any, 0, Node::on_reply),
    row("User", Route::Any, ANY_DATA, tempest::messages::on_message),
    row("UserMore", Route::Any, ANY_DATA, tempest::messages::on_message),
    row("BulkEstablished", Route::Any, 0, tempest::bulk::on_message),
    row("BulkReset", Route::Any, 0, tempest::bulk::on_message),
    row("BulkSend", Route::Any, 0, tempest::bulk::on_message),
    row("BulkDone", Route::Any, 0, tempest::bulk::on_message),
    row("BulkAsk", Route::Any, 0, tempest::bulk::on_message),
    row("BulkPiece", Route::Any, BLOCK_BYTES as u8, tempest::bulk::on_message),
    row("BulkStaged", Route::Any, 0, tempest::bulk::on_message),
    row("BulkTaken", Route::Any, 0, tempest::bulk::on_message),
];

/// The handlers of messages that are about a block, by number: what [`blizzard_protocol::list::row_of`] says of each.
static OF_PROTOCOLS: [Option<Handler>; OWN as usize] = {
    let mut all = [const { None }; OWN as usize];
    let mut number = 0;
    while number < OWN {
        if let Some((_, row_of)) = row_of(number) {
            let route = if row_of.is_for_home { Route::ToHome } else { Route::FromHome };
            let data_bytes = if row_of.carries_data { BLOCK_BYTES as u8 } else { 0 };
            all[number as usize] = Some(row(row_of.name, route, data_bytes, access::on_message));
        }
        number += 1;
    }
    all[id::BLOCK_PART as usize] = Some(row("BlockPart", Route::WithHome, BLOCK_BYTES as u8, access::on_message));
    all
};

/// A bit for each of these handlers.
const fn bits(handlers: &[u16]) -> u64 {
    let (mut set, mut at) = (0, 0);
    while at < handlers.len() {
        set |= 1 << (handlers[at] - OWN);
        at += 1;
    }
    set
}

/// Messages that answer a request of the receiver.
const ANSWERS: u64 = bits(&[
    id::COLLECTIVE_DONE,
    id::LOCK_GRANTED,
    id::LOCK_TRIED,
    id::LOOKED_UP,
    id::ALLOCATED,
    id::FREED,
    id::LIMIT,
    id::VECTOR_DONE,
    id::BARRIER_DONE,
    id::EVENT_DONE,
    id::COUNTED,
    id::REMOTE_FENCED,
    id::PUBLISHED,
    id::HOME_IS,
]);
/// Of protocols; another message of the same sender follows a part at once.
const PROTOCOL_ANSWERS: u64 = blizzard_protocol::list::ANSWERS | 1 << id::BLOCK_PART;
const _: () = assert!(HANDLERS.len() <= 64);

/// Whether the receiver of such a message must be told of it.
#[inline]
pub const fn urgency(handler: u16) -> Urgency {
    let Some(place) = handler.checked_sub(OWN) else { return urgency_about_block(handler) };
    if place < 64 && ANSWERS >> place & 1 == 1 { Urgency::Answer } else { Urgency::Call }
}

/// The same of a message about a block.
#[inline]
pub const fn urgency_about_block(handler: u16) -> Urgency {
    if PROTOCOL_ANSWERS >> (handler % OWN) & 1 == 1 { Urgency::Answer } else { Urgency::Call }
}

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
    pub protocol: ProtocolId,
}

/// What handles a message of that number; `None` when nothing does.
#[inline]
pub fn handler(number: u16) -> Option<&'static Handler> {
    match number.checked_sub(OWN) {
        None => OF_PROTOCOLS[usize::from(number)].as_ref(),
        Some(own) => HANDLERS.get(usize::from(own)),
    }
}

/// Judges a message that was in the ring from node `from`.
#[inline]
pub fn validate(receiver: &Receiver<'_>, from: NodeId, message: &Message) -> Result<&'static Handler, Rejection> {
    if message.incarnation != receiver.incarnation {
        return Err(Rejection::Incarnation);
    }
    if usize::from(message.source) != from.index() {
        return Err(Rejection::Source);
    }
    let handler = handler(message.handler).ok_or(Rejection::Handler)?;
    if message.handler < id::BLOCK_PART && message.handler / MESSAGES != receiver.protocol.number_of(0) / MESSAGES {
        return Err(Rejection::Handler);
    }
    let known_length = matches!(message.length, 0 | 64);
    if message.length != handler.data_bytes && !(handler.data_bytes == ANY_DATA && known_length) {
        return Err(Rejection::Length);
    }
    let manager = NodeId::new(0);
    let routed = match handler.route {
        Route::ToHome | Route::FromHome => {
            let to_home = handler.route == Route::ToHome;
            let (at_home, away) = if to_home { (receiver.me, from) } else { (from, receiver.me) };
            match receiver.home_table.place(receiver.homes, message.addr) {
                Some(place) => {
                    if !receiver.space.contains(message.addr) || message.addr & (place.block.bytes() - 1) != 0 {
                        return Err(Rejection::Address);
                    }
                    place.home == at_home && place.home != away
                }
                None => {
                    if !receiver.space.contains(message.addr)
                        || receiver.space.block_of(message.addr).addr() != message.addr
                    {
                        return Err(Rejection::Address);
                    }
                    to_home && receiver.home_table.is_asking(message.addr) && from != receiver.me
                }
            }
        }
        Route::WithHome => {
            if !receiver.space.contains(message.addr) || !message.addr.is_multiple_of(BLOCK_BYTES) {
                return Err(Rejection::Address);
            }
            let home = receiver.home_table.home_of(receiver.homes, message.addr);
            (home == Some(receiver.me)) != (home == Some(from))
        }
        Route::ToManager => manager == Some(receiver.me),
        Route::FromManager => manager == Some(from),
        Route::Any => true,
    };
    if routed { Ok(handler) } else { Err(Rejection::Route) }
}

/// Whether a publish slot's number is in range.
pub const fn is_publish_slot(slot: u64) -> bool {
    slot < PUBLISH_SLOTS as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::homes::{Attributes, BlockSize, PAGE_BYTES, Placement};
    use blizzard_contract::SEGMENT_BASE;

    fn node(n: u32) -> NodeId {
        NodeId::new(n).unwrap()
    }

    #[test]
    fn names_and_numbers_agree() {
        let name = |number| handler(number).unwrap().name;
        assert_eq!(name(id::COLLECTIVE_ARRIVE), "CollectiveArrive");
        assert_eq!(name(id::LOCK_TRIED), "LockTried");
        assert_eq!(name(id::LIMIT), "Limit");
        assert_eq!(name(id::EXITED), "Exited");
        assert_eq!(name(id::BLOCK_PART), "BlockPart");
        assert_eq!(name(id::HOME_IS), "HomeIs");
        assert_eq!(name(id::BULK_PIECE), "BulkPiece");
        assert_eq!(HANDLERS.len(), usize::from(id::BULK_TAKEN - OWN) + 1);
        assert!(handler(0).is_none() && handler(id::BULK_TAKEN + 1).is_none());
    }

    #[test]
    fn each_message_of_a_protocol_has_its_handler() {
        for number in 0..OWN {
            let Some((_, row)) = row_of(number) else { continue };
            let handler = handler(number).unwrap();
            assert_eq!(handler.route == Route::ToHome, row.is_for_home, "{}", row.name);
            assert_eq!(handler.data_bytes == 64, row.carries_data, "{}", row.name);
            assert_eq!(urgency(number) == Urgency::Answer, row.is_answer, "{}", row.name);
        }
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
        let plain = Attributes { block: BlockSize::MIN, homes: Placement::RoundRobin };
        let homes = Homes::new(3, 1 << 20, plain);
        let home_table = HomeTable::new(false, &homes).unwrap();
        let judge = |me: u32, from: u32, message: Message| {
            let protocol = ProtocolId::named("stache").unwrap();
            let receiver = Receiver {
                incarnation: 5,
                me: node(me),
                space: &space,
                homes: &homes,
                home_table: &home_table,
                protocol,
            };
            validate(&receiver, node(from), &message).map(|handler| handler.name)
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
        for handler in [0, id::BULK_TAKEN + 1, u16::MAX, protocol_message("ReturnDirty")] {
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
