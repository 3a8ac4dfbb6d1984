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
pub struct KindRow {
    pub name: &'static str,
    pub route: Route,
    /// Bytes of data: 0, 64 or [`ANY_DATA`].
    pub data_bytes: u8,
}

/// With data or without: the handler looks.
pub const ANY_DATA: u8 = u8::MAX;

/// Makes the constants of [`id`] and the table from one row a kind: constant, name, route, bytes of data, urgency. Its place gives its number.
macro_rules! kinds {
    ($($constant:ident $name:ident $route:ident $data:tt $urgency:ident;)*) => {
        /// Numbers of the kinds. Those below [`OWN`] are messages of protocols, and the parts of data that come before them.
        pub mod id {
            pub use blizzard_protocol::protocol::messages::{PART as BLOCK_PART, PUSH as BLOCK_PUSH};
            #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
            enum Place {
                $($constant),*
            }
            $(pub const $constant: u16 = $crate::messages::kinds::OWN + Place::$constant as u16;)*
        }

        /// The kinds that are no protocol's, by number from [`OWN`].
        const ROWS: &[KindRow] = &[$(KindRow {
            name: stringify!($name),
            route: Route::$route,
            data_bytes: $data,
        }),*];

        /// Those that answer a request of the receiver, a bit each.
        const ANSWERS: u64 = 0 $(| (matches!(Urgency::$urgency, Urgency::Answer) as u64) << (id::$constant - OWN))*;
        const _: () = assert!(ROWS.len() <= 64);
    };
}

kinds! {
    COLLECTIVE_ARRIVE CollectiveArrive Any 0 Call;
    COLLECTIVE_DONE CollectiveDone Any 0 Answer;
    LOCK_ACQUIRE LockAcquire Any 0 Call;
    LOCK_GRANTED LockGranted Any 0 Answer;
    LOCK_RELEASE LockRelease Any 0 Call;
    LOCK_TRY LockTry Any 0 Call;
    LOCK_TRIED LockTried Any 0 Answer;
    PUBLISH Publish ToManager 0 Call;
    LOOKUP Lookup ToManager 0 Call;
    LOOKED_UP LookedUp FromManager 0 Answer;
    ALLOC Alloc Any 0 Call;
    ALLOCATED Allocated Any 0 Answer;
    FREE Free Any 0 Call;
    FREED Freed Any 0 Answer;
    LIMIT_QUERY LimitQuery Any 0 Call;
    LIMIT Limit Any 0 Answer;
    EXITED Exited Any 0 Call;
    VECTOR_ARRIVE VectorArrive Any 64 Call;
    VECTOR_DONE VectorDone Any 64 Answer;
    BROADCAST_DATA BroadcastData Any 64 Call;
    BARRIER_ARRIVE BarrierArrive Any 0 Call;
    BARRIER_DONE BarrierDone Any 0 Answer;
    EVENT_SET EventSet Any 0 Call;
    EVENT_WAIT EventWait Any 0 Call;
    EVENT_DONE EventDone Any 0 Answer;
    COUNTER_OP CounterOp Any 0 Call;
    COUNTED Counted Any 0 Answer;
    REMOTE_WRITE RemoteWrite Any 64 Call;
    REMOTE_FENCE RemoteFence Any 0 Call;
    REMOTE_FENCED RemoteFenced Any 0 Answer;
    PUBLISHED Published FromManager 0 Answer;
    HOME_QUERY HomeQuery Any 0 Call;
    HOME_IS HomeIs Any 0 Answer;
    USER User Any ANY_DATA Call;
    USER_MORE UserMore Any ANY_DATA Call;
    BULK_ESTABLISHED BulkEstablished Any 0 Call;
    BULK_RESET BulkReset Any 0 Call;
    BULK_SEND BulkSend Any 0 Call;
    BULK_DONE BulkDone Any 0 Call;
    BULK_ASK BulkAsk Any 0 Call;
    BULK_STAGED BulkStaged Any 0 Call;
    BULK_TAKEN BulkTaken Any 0 Call;
    SLICES Slices Any 0 Call;
    SLICES_KNOWN SlicesKnown Any 0 Answer;
    BLOCK_PUSHES BlockPushes Any 0 Call;
    OPERATION Operation Any 0 Call;
    OPERATION_KNOWN OperationKnown Any 0 Answer;
}

/// The kinds of messages that are about a block, by number: what [`blizzard_protocol::list::row_of`] says of each.
const OF_PROTOCOLS: &[Option<KindRow>; OWN as usize] = &{
    let mut all = [const { None }; OWN as usize];
    let mut number = 0;
    while number < OWN {
        if let Some((_, row)) = row_of(number) {
            let route = if row.is_for_home { Route::ToHome } else { Route::FromHome };
            let data_bytes = if row.carries_data { BLOCK_BYTES as u8 } else { 0 };
            all[number as usize] = Some(KindRow { name: row.name, route, data_bytes });
        }
        number += 1;
    }
    all[id::BLOCK_PART as usize] =
        Some(KindRow { name: "BlockPart", route: Route::WithHome, data_bytes: BLOCK_BYTES as u8 });
    all[id::BLOCK_PUSH as usize] =
        Some(KindRow { name: "BlockPush", route: Route::WithHome, data_bytes: BLOCK_BYTES as u8 });
    all
};

/// The same of the kinds that are about a block; another message of the same sender follows a part at once.
const PROTOCOL_ANSWERS: &[bool; OWN as usize] = &{
    let mut all = [false; OWN as usize];
    let mut number = 0;
    while number < OWN {
        all[number as usize] = matches!(row_of(number), Some((_, row)) if row.is_answer);
        number += 1;
    }
    all[id::BLOCK_PART as usize] = true;
    all
};

/// Whether the receiver of such a message must be told of it.
#[inline]
pub fn urgency(number: u16) -> Urgency {
    let Some(place) = number.checked_sub(OWN) else { return urgency_about_block(number) };
    if place < 64 && ANSWERS >> place & 1 == 1 { Urgency::Answer } else { Urgency::Call }
}

/// The same of a message about a block.
#[inline]
pub fn urgency_about_block(number: u16) -> Urgency {
    if PROTOCOL_ANSWERS[usize::from(number % OWN)] { Urgency::Answer } else { Urgency::Call }
}

/// The row of that number; `None` when no message has it.
#[inline]
pub fn row(number: u16) -> Option<&'static KindRow> {
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
        assert!(row(0).is_none() && row(id::OPERATION_KNOWN + 1).is_none());
    }
}
