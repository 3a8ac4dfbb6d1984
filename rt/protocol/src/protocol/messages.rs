//! Messages of protocols: their rows, and one that has arrived.
//!
//! Purpose: the engine and the runtime know of a message what its [`MessageRow`] says, and no more. Input: the messages of a protocol. Output: their rows.
//! **Invariant**: the row of message `n` of a protocol is at place `n - 1`.

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
pub struct MessageRow {
    pub name: &'static str,
    /// Whether it goes to the block's home. Otherwise it comes from there.
    pub is_for_home: bool,
    /// Whether the block's data travels with it.
    pub carries_data: bool,
    /// Whether it answers a request, so that its receiver looks for it. Otherwise somebody has to tell the receiver.
    pub is_answer: bool,
}

/// Declares the messages of a protocol, numbered from 1, and `MESSAGES`, their rows. The enum says the rest: `is_for_home`, `carries_data`, `is_answer`.
macro_rules! messages {
    ($(#[$meta:meta])* pub enum $Msg:ident { $($(#[$of:meta])* $Variant:ident $(= $number:literal)?,)* }) => {
        blizzard_contract::listed! {
            $(#[$meta])*
            #[repr(u8)]
            pub enum $Msg { $($(#[$of])* $Variant $(= $number)?,)* }
        }

        impl $Msg {
            /// `None` for a byte that is no message.
            pub const fn from_byte(byte: u8) -> Option<$Msg> {
                if byte >= 1 && byte as usize <= $Msg::ALL.len() { Some($Msg::ALL[byte as usize - 1]) } else { None }
            }

            pub const fn byte(self) -> u8 {
                self as u8
            }

            const fn row(self, name: &'static str) -> $crate::protocol::messages::MessageRow {
                $crate::protocol::messages::MessageRow {
                    name,
                    is_for_home: self.is_for_home(),
                    carries_data: self.carries_data(),
                    is_answer: self.is_answer(),
                }
            }
        }

        /// By number, from 1.
        pub const MESSAGES: &[$crate::protocol::messages::MessageRow] = &[$($Msg::$Variant.row(stringify!($Variant)),)*];
    };
}
pub(crate) use messages;

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
