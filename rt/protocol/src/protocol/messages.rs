//! Messages of protocols: their rows, and one that has arrived.

use crate::ids::{Data, NodeId};
use crate::port::{MESSAGES, Port};
use blizzard_contract::{Counter, MAX_PROTOCOLS};

/// How many numbers messages about blocks have.
pub const ABOUT_BLOCKS: u16 = MAX_PROTOCOLS as u16 * MESSAGES;

/// Number of the message with a part of a block's data that is not the last.
pub const PART: u16 = ABOUT_BLOCKS - 1;
/// Number of the message by which a home brings the copy of a minimum block up to date, unasked ([`Port::push`]).
pub const PUSH: u16 = PART - 1;

/// One kind of message of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub name: &'static str,
    /// Whether it goes to the block's home. Otherwise it comes from there.
    pub is_for_home: bool,
    /// Whether the block's data travels with it.
    pub carries_data: bool,
    /// Whether it answers a request, so that its receiver looks for it. Otherwise somebody has to tell the receiver.
    pub is_answer: bool,
}

/// The rows of all messages of a protocol, which are numbered from 1.
macro_rules! rows {
    ($Msg:ident, $names:expr) => {{
        const EMPTY: $crate::protocol::messages::Row =
            $crate::protocol::messages::Row { name: "", is_for_home: false, carries_data: false, is_answer: false };
        let mut rows = [EMPTY; $Msg::ALL.len()];
        let mut at = 0;
        while at < rows.len() {
            let msg = $Msg::ALL[at];
            rows[at] = $crate::protocol::messages::Row {
                name: $names[at],
                is_for_home: msg.is_for_home(),
                carries_data: msg.carries_data(),
                is_answer: msg.is_answer(),
            };
            at += 1;
        }
        rows
    }};
}
pub(crate) use rows;

/// A message about a block.
#[derive(Clone, Copy, Debug)]
pub struct Incoming<'a> {
    pub from: NodeId,
    /// The protocol's own number of it.
    pub kind: u8,
    /// The data, or their last part.
    pub data: Option<&'a Data>,
    /// Whether this node keeps copies of the block's page: otherwise there is no room for data that it has not asked for.
    pub keeps_page: bool,
}

/// Counts a message that a protocol cannot have been sent.
#[cold]
pub fn reject(port: &impl Port) {
    port.count(Counter::MessagesRejected);
}
