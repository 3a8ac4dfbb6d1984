//! The kinds of messages: their numbers, names, who may send them to whom, and what they carry.
//!
//! Purpose: one row a kind. What a node does with a message is said where it is done: [`crate::node::handlers`].
//! Source: design section 6 (wire).

use crate::transport::interface::Urgency;
use crate::transport::message::FIRST_OTHER;
use blizzard_contract::{BLOCK_BYTES, PUBLISH_SLOTS};
use blizzard_protocol::list::row_of;

/// The first number that is no protocol's.
pub const OWN: u16 = FIRST_OTHER;

/// Who may send a message to whom, and what its address must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
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
    /// Between any two nodes; its handler checks the arguments.
    Any,
}

/// One row of the table.
pub struct Row {
    pub name: &'static str,
    pub route: Route,
    /// Bytes of data: 0, 64 or [`ANY_DATA`].
    pub data_bytes: u8,
}

/// With data or without: the handler looks.
pub const ANY_DATA: u8 = u8::MAX;

/// Makes the constants of [`id`] and the table from one row a kind: number, constant, name, route, bytes of data, urgency.
macro_rules! kinds {
    ($($number:literal $constant:ident $name:ident $route:ident $data:tt $urgency:ident;)*) => {
        /// Numbers of the kinds. Those below [`OWN`] are messages of protocols, and the parts of data that come before them.
        pub mod id {
            pub use blizzard_protocol::protocol::messages::{PART as BLOCK_PART, PUSH as BLOCK_PUSH};
            $(pub const $constant: u16 = $number;)*
        }

        /// The kinds that are no protocol's, by number from [`OWN`].
        const ROWS: &[Row] = &[$(Row {
            name: stringify!($name),
            route: Route::$route,
            data_bytes: $data,
        }),*];

        const _: () = {
            let (numbers, mut at) = ([$($number),*], 0);
            while at < numbers.len() {
                assert!(numbers[at] == OWN as usize + at);
                at += 1;
            }
            assert!(numbers.len() <= 64);
        };

        /// Those that answer a request of the receiver, a bit each.
        const ANSWERS: u64 = 0 $(| (matches!(Urgency::$urgency, Urgency::Answer) as u64) << ($number - OWN))*;
    };
}

kinds! {
    64 COLLECTIVE_ARRIVE CollectiveArrive Any 0 Call;
    65 COLLECTIVE_DONE CollectiveDone Any 0 Answer;
    66 LOCK_ACQUIRE LockAcquire Any 0 Call;
    67 LOCK_GRANTED LockGranted Any 0 Answer;
    68 LOCK_RELEASE LockRelease Any 0 Call;
    69 LOCK_TRY LockTry Any 0 Call;
    70 LOCK_TRIED LockTried Any 0 Answer;
    71 PUBLISH Publish ToManager 0 Call;
    72 LOOKUP Lookup ToManager 0 Call;
    73 LOOKED_UP LookedUp FromManager 0 Answer;
    74 ALLOC Alloc Any 0 Call;
    75 ALLOCATED Allocated Any 0 Answer;
    76 FREE Free Any 0 Call;
    77 FREED Freed Any 0 Answer;
    78 LIMIT_QUERY LimitQuery Any 0 Call;
    79 LIMIT Limit Any 0 Answer;
    80 EXITED Exited Any 0 Call;
    81 VECTOR_ARRIVE VectorArrive Any 64 Call;
    82 VECTOR_DONE VectorDone Any 64 Answer;
    83 BROADCAST_DATA BroadcastData Any 64 Call;
    84 BARRIER_ARRIVE BarrierArrive Any 0 Call;
    85 BARRIER_DONE BarrierDone Any 0 Answer;
    86 EVENT_SET EventSet Any 0 Call;
    87 EVENT_WAIT EventWait Any 0 Call;
    88 EVENT_DONE EventDone Any 0 Answer;
    89 COUNTER_OP CounterOp Any 0 Call;
    90 COUNTED Counted Any 0 Answer;
    91 REMOTE_WRITE RemoteWrite Any 64 Call;
    92 REMOTE_FENCE RemoteFence Any 0 Call;
    93 REMOTE_FENCED RemoteFenced Any 0 Answer;
    94 PUBLISHED Published FromManager 0 Answer;
    95 HOME_QUERY HomeQuery Any 0 Call;
    96 HOME_IS HomeIs Any 0 Answer;
    97 USER User Any ANY_DATA Call;
    98 USER_MORE UserMore Any ANY_DATA Call;
    99 BULK_ESTABLISHED BulkEstablished Any 0 Call;
    100 BULK_RESET BulkReset Any 0 Call;
    101 BULK_SEND BulkSend Any 0 Call;
    102 BULK_DONE BulkDone Any 0 Call;
    103 BULK_ASK BulkAsk Any 0 Call;
    104 BULK_PIECE BulkPiece Any 64 Call;
    105 BULK_STAGED BulkStaged Any 0 Call;
    106 BULK_TAKEN BulkTaken Any 0 Call;
    107 SLICES Slices Any 0 Call;
    108 SLICES_KNOWN SlicesKnown Any 0 Answer;
    109 BLOCK_PUSHES BlockPushes Any 0 Call;
}

/// The kinds of messages that are about a block, by number: what [`blizzard_protocol::list::row_of`] says of each.
const OF_PROTOCOLS: &[Option<Row>; OWN as usize] = &{
    let mut all = [const { None }; OWN as usize];
    let mut number = 0;
    while number < OWN {
        if let Some((_, row)) = row_of(number) {
            let route = if row.is_for_home { Route::ToHome } else { Route::FromHome };
            let data_bytes = if row.carries_data { BLOCK_BYTES as u8 } else { 0 };
            all[number as usize] = Some(Row { name: row.name, route, data_bytes });
        }
        number += 1;
    }
    all[id::BLOCK_PART as usize] =
        Some(Row { name: "BlockPart", route: Route::WithHome, data_bytes: BLOCK_BYTES as u8 });
    all[id::BLOCK_PUSH as usize] =
        Some(Row { name: "BlockPush", route: Route::WithHome, data_bytes: BLOCK_BYTES as u8 });
    all
};

/// The same of the kinds that are about a block; another message of the same sender follows a part at once.
const PROTOCOL_ANSWERS: u64 = blizzard_protocol::list::ANSWERS | 1 << id::BLOCK_PART;

/// Whether the receiver of such a message must be told of it.
#[inline]
pub const fn urgency(number: u16) -> Urgency {
    let Some(place) = number.checked_sub(OWN) else { return urgency_about_block(number) };
    if place < 64 && ANSWERS >> place & 1 == 1 { Urgency::Answer } else { Urgency::Call }
}

/// The same of a message about a block.
#[inline]
pub const fn urgency_about_block(number: u16) -> Urgency {
    if PROTOCOL_ANSWERS >> (number % OWN) & 1 == 1 { Urgency::Answer } else { Urgency::Call }
}

/// The row of that number; `None` when no message has it.
#[inline]
pub fn row(number: u16) -> Option<&'static Row> {
    match number.checked_sub(OWN) {
        None => OF_PROTOCOLS[usize::from(number)].as_ref(),
        Some(own) => ROWS.get(usize::from(own)),
    }
}

/// Whether a publish slot's number is in range.
pub const fn is_publish_slot(slot: u64) -> bool {
    slot < PUBLISH_SLOTS as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_of_a_protocol_has_its_row() {
        for number in 0..OWN {
            let Some((_, of_protocol)) = row_of(number) else { continue };
            let row = row(number).unwrap();
            assert_eq!(row.route == Route::ToHome, of_protocol.is_for_home, "{}", row.name);
            assert_eq!(row.data_bytes == 64, of_protocol.carries_data, "{}", row.name);
            assert_eq!(urgency(number) == Urgency::Answer, of_protocol.is_answer, "{}", row.name);
        }
    }

    #[test]
    fn a_kind_has_its_own_urgency() {
        assert_eq!([id::LOCK_TRY, id::USER, id::BULK_TAKEN].map(urgency), [Urgency::Call; 3]);
        assert_eq!(
            [id::COLLECTIVE_DONE, id::LOCK_TRIED, id::HOME_IS, id::BLOCK_PART].map(urgency),
            [Urgency::Answer; 4]
        );
        assert!(row(0).is_none() && row(id::BLOCK_PUSHES + 1).is_none());
    }
}
