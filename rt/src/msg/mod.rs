//! Handlers of messages: their numbers, what they accept, and the check that stands before belief.
//!
//! Purpose: [`HANDLERS`] is the one table of everything a node understands. [`validate`] compares a received message with the row that
//! it names; only then [`Handler::run`] sees it. Input: a message and the ring it was in. Output: its handler, or the reason why
//! it is dropped and counted. Source: design section 6 (wire); PPE seed, sections 3.2, 4.1 and 6.
//! **Invariant**: a handler never waits: it changes state and sends, and returns.

use crate::coherence::Kind;
use crate::homes::{HomeTable, Homes};
use crate::node::Node;
use crate::protocol::{Msg, NodeId, mcm};
use crate::sync::{collective, group, lock, remote, slots};
use crate::tags::Space;
use crate::transport::{Message, Urgency};
use crate::{coherence, heap, sync, tempest};
use blizzard_contract::{BLOCK_BYTES, PUBLISH_SLOTS};

/// Numbers of the handlers. 1 to 12 are the messages of the run's protocol: [`Msg`], or [`mcm::Msg`].
pub mod id {
    pub const COLLECTIVE_ARRIVE: u16 = 13;
    pub const COLLECTIVE_DONE: u16 = 14;
    pub const LOCK_ACQUIRE: u16 = 15;
    pub const LOCK_GRANTED: u16 = 16;
    pub const LOCK_RELEASE: u16 = 17;
    pub const LOCK_TRY: u16 = 18;
    pub const LOCK_TRIED: u16 = 19;
    pub const PUBLISH: u16 = 20;
    pub const LOOKUP: u16 = 21;
    pub const LOOKED_UP: u16 = 22;
    pub const ALLOC: u16 = 23;
    pub const ALLOCATED: u16 = 24;
    pub const FREE: u16 = 25;
    pub const FREED: u16 = 26;
    pub const LIMIT_QUERY: u16 = 27;
    pub const LIMIT: u16 = 28;
    pub const EXITED: u16 = 29;
    pub const BLOCK_PART: u16 = 30;
    pub const VECTOR_ARRIVE: u16 = 31;
    pub const VECTOR_DONE: u16 = 32;
    pub const BROADCAST_DATA: u16 = 33;
    pub const BARRIER_ARRIVE: u16 = 34;
    pub const BARRIER_DONE: u16 = 35;
    pub const EVENT_SET: u16 = 36;
    pub const EVENT_WAIT: u16 = 37;
    pub const EVENT_DONE: u16 = 38;
    pub const COUNTER_OP: u16 = 39;
    pub const COUNTED: u16 = 40;
    pub const REMOTE_WRITE: u16 = 41;
    pub const REMOTE_FENCE: u16 = 42;
    pub const REMOTE_FENCED: u16 = 43;
    pub const PUBLISHED: u16 = 44;
    pub const HOME_QUERY: u16 = 45;
    pub const HOME_IS: u16 = 46;
    // The messages of `tempest.h`.
    pub const USER: u16 = 47;
    pub const USER_MORE: u16 = 48;
    pub const BULK_ESTABLISHED: u16 = 49;
    pub const BULK_RESET: u16 = 50;
    pub const BULK_SEND: u16 = 51;
    pub const BULK_DONE: u16 = 52;
    pub const BULK_ASK: u16 = 53;
    pub const BULK_PIECE: u16 = 54;
    pub const BULK_STAGED: u16 = 55;
    pub const BULK_TAKEN: u16 = 56;
}

/// Whether such a message belongs to the run's coherence protocol.
#[inline]
pub const fn is_coherence(handler: u16) -> bool {
    handler < id::COLLECTIVE_ARRIVE || handler == id::BLOCK_PART
}

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

const fn protocol(name: &'static str, msg: Msg) -> Handler {
    let route = if msg.is_for_home() { Route::ToHome } else { Route::FromHome };
    let data_bytes = if msg.carries_data() { BLOCK_BYTES as u8 } else { 0 };
    row(name, route, data_bytes, coherence::on_message)
}

const fn of_mcm(name: &'static str, msg: mcm::Msg) -> Handler {
    let route = if msg.is_for_home() { Route::ToHome } else { Route::FromHome };
    let data_bytes = if msg.carries_data() { BLOCK_BYTES as u8 } else { 0 };
    row(name, route, data_bytes, coherence::on_message)
}

/// The first rows of the table when the run's protocol is [`Kind::Mcm`].
static OF_MCM: [Handler; 10] = [
    of_mcm("RequestReadOnly", mcm::Msg::RequestReadOnly),
    of_mcm("RequestExclusive", mcm::Msg::RequestExclusive),
    of_mcm("Yanked", mcm::Msg::Yanked),
    of_mcm("YankedFull", mcm::Msg::YankedFull),
    of_mcm("ReturnDirty", mcm::Msg::ReturnDirty),
    of_mcm("ReturnReadOnly", mcm::Msg::ReturnReadOnly),
    of_mcm("ReturnExclusive", mcm::Msg::ReturnExclusive),
    of_mcm("NackReadOnly", mcm::Msg::NackReadOnly),
    of_mcm("NackExclusive", mcm::Msg::NackExclusive),
    of_mcm("Invalidate", mcm::Msg::Invalidate),
];

/// All handlers; row `i` is handler number `i + 1`. The first rows are those of [`Kind::Stache`].
pub static HANDLERS: [Handler; 56] = [
    protocol("ReadRequest", Msg::ReadRequest),
    protocol("WriteRequest", Msg::WriteRequest),
    protocol("UpgradeRequest", Msg::UpgradeRequest),
    protocol("InvalidateAck", Msg::InvalidateAck),
    protocol("WriteBack", Msg::WriteBack),
    protocol("Downgraded", Msg::Downgraded),
    protocol("DataReadOnly", Msg::DataReadOnly),
    protocol("DataWritable", Msg::DataWritable),
    protocol("UpgradeAck", Msg::UpgradeAck),
    protocol("Invalidate", Msg::Invalidate),
    protocol("RecallRead", Msg::RecallRead),
    protocol("RecallWrite", Msg::RecallWrite),
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
    row("BlockPart", Route::WithHome, BLOCK_BYTES as u8, coherence::on_message),
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
    row("HomeQuery", Route::Any, 0, coherence::on_home_query),
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

/// A bit for each handler.
const fn bits(handlers: &[u16]) -> u64 {
    let (mut set, mut at) = (0, 0);
    while at < handlers.len() {
        set |= 1 << handlers[at];
        at += 1;
    }
    set
}
/// Messages that answer a request of the receiver, in runs of both protocols.
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
    // Another message of the same sender follows it at once.
    id::BLOCK_PART,
]);
const STACHE_ANSWERS: u64 =
    ANSWERS | bits(&[Msg::DataReadOnly as u16, Msg::DataWritable as u16, Msg::UpgradeAck as u16]);
const MCM_ANSWERS: u64 = ANSWERS
    | bits(&[
        mcm::Msg::ReturnReadOnly as u16,
        mcm::Msg::ReturnExclusive as u16,
        mcm::Msg::NackReadOnly as u16,
        mcm::Msg::NackExclusive as u16,
    ]);
const _: () = assert!(HANDLERS.len() < 64);

/// Whether the receiver of such a message must be told of it.
#[inline]
pub fn urgency(protocol: Kind, handler: u16) -> Urgency {
    let answers = if protocol == Kind::Mcm { MCM_ANSWERS } else { STACHE_ANSWERS };
    if handler < 64 && answers >> handler & 1 == 1 { Urgency::Answer } else { Urgency::Call }
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
    pub protocol: Kind,
}

/// The row of a handler's number in a run of that protocol.
#[inline]
fn handler(protocol: Kind, number: u16) -> Option<&'static Handler> {
    let row = usize::from(number).checked_sub(1)?;
    if protocol == Kind::Mcm && row < Msg::ALL.len() { OF_MCM.get(row) } else { HANDLERS.get(row) }
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
    let handler = handler(receiver.protocol, message.handler).ok_or(Rejection::Handler)?;
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
    use crate::homes::{Attributes, BlockSize, PAGE_BYTES, Placement};
    use blizzard_contract::SEGMENT_BASE;

    fn node(n: u32) -> NodeId {
        NodeId::new(n).unwrap()
    }

    #[test]
    fn the_table_agrees_with_the_protocols_numbers() {
        for msg in Msg::ALL {
            let handler = &HANDLERS[usize::from(msg.byte()) - 1];
            assert_eq!(handler.name, format!("{msg:?}"));
            assert_eq!(handler.route == Route::ToHome, msg.is_for_home());
            assert_eq!(handler.data_bytes == 64, msg.carries_data());
        }
        assert_eq!(HANDLERS.len(), usize::from(id::BULK_TAKEN));
        assert_eq!(HANDLERS[usize::from(id::EXITED) - 1].name, "Exited");
        assert_eq!(HANDLERS[usize::from(id::BULK_PIECE) - 1].name, "BulkPiece");
        assert_eq!(HANDLERS[usize::from(id::LOCK_TRIED) - 1].name, "LockTried");
        assert_eq!(HANDLERS[usize::from(id::LIMIT) - 1].name, "Limit");
    }

    #[test]
    fn the_first_rows_are_those_of_the_runs_protocol() {
        for msg in mcm::Msg::ALL {
            let handler = handler(Kind::Mcm, msg.byte().into()).unwrap();
            assert_eq!(handler.name, format!("{msg:?}"));
            assert_eq!(handler.route == Route::ToHome, msg.is_for_home());
            assert_eq!(handler.data_bytes == 64, msg.carries_data());
        }
        assert!(handler(Kind::Mcm, 11).is_none() && handler(Kind::Mcm, 0).is_none());
        for number in 13..=HANDLERS.len() as u16 {
            assert_eq!(handler(Kind::Mcm, number).unwrap().name, handler(Kind::Stache, number).unwrap().name);
        }
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
            let protocol = Kind::Stache;
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
            handler: Msg::WriteBack.byte().into(),
            length: 64,
            addr: SEGMENT_BASE + PAGE_BYTES + 64,
            ..Message::default()
        };
        assert_eq!(judge(1, 2, good), Ok("WriteBack"));
        assert_eq!(judge(1, 2, Message { incarnation: 4, ..good }), Err(Rejection::Incarnation));
        assert_eq!(judge(1, 0, good), Err(Rejection::Source));
        assert_eq!(judge(1, 2, Message { source: 0, ..good }), Err(Rejection::Source));
        for handler in [0, HANDLERS.len() as u16 + 1, u16::MAX] {
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
        let data = Message { handler: Msg::DataReadOnly.byte().into(), ..good };
        assert_eq!(judge(0, 2, data), Err(Rejection::Route));
        assert_eq!(judge(0, 1, Message { source: 1, ..data }), Ok("DataReadOnly"));
        let publish = Message { handler: id::PUBLISH, length: 0, addr: 0, ..good };
        assert_eq!(judge(0, 2, publish), Ok("Publish"));
        assert_eq!(judge(1, 2, publish), Err(Rejection::Route));
        let looked_up = Message { handler: id::LOOKED_UP, ..publish };
        assert_eq!(judge(1, 2, looked_up), Err(Rejection::Route));
    }
}
