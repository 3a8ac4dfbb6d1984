//! Messages, events, states of copies and actions of Stache.
//!
//! Purpose: the words that [`crate::protocols::stache::steps::home_step`] and [`crate::protocols::stache::steps::cache_step`] speak. Source: Reinhardt 1996, section 2.3; Tempest 1.2.1, sections 2 and
//! 3.2 (order of data and tag changes).

use crate::ids::{NodeId, NodeSet};
use crate::protocol::messages::messages;
use crate::protocols::stache::directory::{DirEntry, DirState};
use crate::tag::Tag;
use blizzard_contract::listed;

messages! {
    /// A protocol message about one block. The discriminants are what travels.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Msg {
        /// Node to home: I have no copy and want to load.
        ReadRequest = 1,
        /// Node to home: I have no copy and want to store.
        WriteRequest,
        /// Node to home: I have a ReadOnly copy and want to store. It may be invalidated while this travels.
        UpgradeRequest,
        /// Node to home: I have no copy any more. Answers each `Invalidate`, once.
        InvalidateAck,
        /// Node to home, with data: I had the Writable copy and have none now (an eviction, or the answer to a recall).
        WriteBack,
        /// Node to home, with data: I had the Writable copy and keep a ReadOnly one. Answers `RecallRead`.
        Downgraded,
        /// Home to node, with data: answers `ReadRequest`.
        DataReadOnly,
        /// Home to node, with data: answers `WriteRequest`, or an `UpgradeRequest` whose copy was invalidated meanwhile.
        DataWritable,
        /// Home to node: your ReadOnly copy is the only one now and you may store.
        UpgradeAck,
        /// Home to node: give up your ReadOnly copy, if you still have it, and say so.
        Invalidate,
        /// Home to owner: send the data and keep a ReadOnly copy.
        RecallRead,
        /// Home to owner: send the data and keep nothing.
        RecallWrite,
    }
}

impl Msg {
    /// Whether the block's 64 bytes travel with it.
    pub const fn carries_data(self) -> bool {
        matches!(self, Msg::WriteBack | Msg::Downgraded | Msg::DataReadOnly | Msg::DataWritable)
    }

    /// Whether it is addressed to the block's home (else: from the home to another node).
    pub const fn is_for_home(self) -> bool {
        self.byte() <= Msg::Downgraded.byte()
    }

    /// Whether it answers a request of its receiver.
    pub const fn is_answer(self) -> bool {
        matches!(self, Msg::DataReadOnly | Msg::DataWritable | Msg::UpgradeAck)
    }
}

/// What can happen to a block at its home. Zero bytes are the first event, of node 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum HomeEvent {
    /// `ReadRequest`, `WriteRequest`, `UpgradeRequest` from that node.
    Read(NodeId),
    Write(NodeId),
    Upgrade(NodeId),
    InvalidateAck(NodeId),
    WriteBack(NodeId),
    Downgraded(NodeId),
    /// The home's own program missed.
    LocalLoad,
    LocalStore,
}

impl HomeEvent {
    /// The event that message `msg` from node `from` is; `None` if that message is not for a home.
    pub const fn from_msg(msg: Msg, from: NodeId) -> Option<HomeEvent> {
        match msg {
            Msg::ReadRequest => Some(HomeEvent::Read(from)),
            Msg::WriteRequest => Some(HomeEvent::Write(from)),
            Msg::UpgradeRequest => Some(HomeEvent::Upgrade(from)),
            Msg::InvalidateAck => Some(HomeEvent::InvalidateAck(from)),
            Msg::WriteBack => Some(HomeEvent::WriteBack(from)),
            Msg::Downgraded => Some(HomeEvent::Downgraded(from)),
            _ => None,
        }
    }

    /// Whether another node has sent it, which is that one.
    #[inline(always)]
    pub fn is_from(self, node: NodeId) -> bool {
        match self {
            HomeEvent::Read(from)
            | HomeEvent::Write(from)
            | HomeEvent::Upgrade(from)
            | HomeEvent::InvalidateAck(from)
            | HomeEvent::WriteBack(from)
            | HomeEvent::Downgraded(from) => from == node,
            HomeEvent::LocalLoad | HomeEvent::LocalStore => false,
        }
    }

    /// Whether it asks for something and may therefore be deferred (answers never are).
    pub const fn is_request(self) -> bool {
        !matches!(self, HomeEvent::InvalidateAck(_) | HomeEvent::WriteBack(_) | HomeEvent::Downgraded(_))
    }
}

listed! {
    /// What can happen to a block at a node that is not its home.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum CacheEvent {
        /// The node's program missed.
        Load,
        Store,
        /// The runtime wants the memory back.
        Evict,
        DataReadOnly,
        DataWritable,
        UpgradeAck,
        Invalidate,
        RecallRead,
        RecallWrite,
    }
}

impl CacheEvent {
    /// The event that message `msg` from the block's home is; `None` if that message is for a home.
    pub const fn from_msg(msg: Msg) -> Option<CacheEvent> {
        match msg {
            Msg::DataReadOnly => Some(CacheEvent::DataReadOnly),
            Msg::DataWritable => Some(CacheEvent::DataWritable),
            Msg::UpgradeAck => Some(CacheEvent::UpgradeAck),
            Msg::Invalidate => Some(CacheEvent::Invalidate),
            Msg::RecallRead => Some(CacheEvent::RecallRead),
            Msg::RecallWrite => Some(CacheEvent::RecallWrite),
            _ => None,
        }
    }
}

listed! {
    /// State of a block at a node that is not its home.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub enum CacheState {
        Invalid,
        ReadOnly,
        Writable,
        /// `ReadRequest` sent.
        ReadPending,
        /// `WriteRequest` sent, or `UpgradeRequest` sent and the copy invalidated since.
        WritePending,
        /// `UpgradeRequest` sent; the copy's data is still good.
        UpgradePending,
    }
}

impl CacheState {
    /// The tag of a copy in this state.
    pub const fn tag(self) -> Tag {
        match self {
            CacheState::Invalid => Tag::Invalid,
            CacheState::ReadOnly => Tag::ReadOnly,
            CacheState::Writable => Tag::Writable,
            CacheState::ReadPending | CacheState::WritePending | CacheState::UpgradePending => Tag::Busy,
        }
    }

    /// The state of a copy without an outstanding miss; `None` for Busy, which does not say which request is outstanding.
    pub const fn from_tag(tag: Tag) -> Option<CacheState> {
        match tag {
            Tag::Invalid => Some(CacheState::Invalid),
            Tag::ReadOnly => Some(CacheState::ReadOnly),
            Tag::Writable => Some(CacheState::Writable),
            Tag::Busy => None,
        }
    }

    /// Whether a miss is outstanding.
    pub const fn is_pending(self) -> bool {
        matches!(self.tag(), Tag::Busy)
    }
}

/// One thing for the runtime to do. The module documentation says how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Copy the data of the message being handled into the own copy.
    CopyIn,
    /// Set the tag of the own copy.
    SetTag(Tag),
    /// Home only: send to that node.
    Send(NodeId, Msg),
    /// Home only: send [`Msg::Invalidate`] to each of these nodes.
    Invalidate(NodeSet),
    /// Not at the home: send to the home.
    SendHome(Msg),
    /// The node's own outstanding miss on this block is served.
    Resume,
    /// Home only: the block is no longer busy; step its deferred events.
    Replay,
    /// Home only: keep this event until the block is no longer busy. Always alone.
    Defer,
}

/// Most actions of one step.
pub const MAX_ACTIONS: usize = 4;

/// The actions of one step, in the order in which they must be performed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Actions {
    items: [Action; MAX_ACTIONS],
    len: u8,
}

impl Actions {
    pub const NONE: Actions = Actions { items: [Action::Defer; MAX_ACTIONS], len: 0 };

    #[inline(always)]
    pub fn as_slice(&self) -> &[Action] {
        &self.items[..usize::from(self.len).min(MAX_ACTIONS)]
    }

    /// The same with each action changed.
    pub fn map(mut self, change: impl Fn(Action) -> Action) -> Actions {
        self.items.iter_mut().take(self.len.into()).for_each(|action| *action = change(*action));
        self
    }

    /// Whether the event must be kept and stepped again.
    #[inline(always)]
    pub fn is_defer(&self) -> bool {
        matches!(self.as_slice(), [Action::Defer])
    }
}

impl<const N: usize> From<[Action; N]> for Actions {
    #[inline(always)]
    fn from(list: [Action; N]) -> Actions {
        const { assert!(N <= MAX_ACTIONS) }
        let mut actions = Actions::NONE;
        actions.items[..N].copy_from_slice(&list);
        actions.len = N as u8;
        actions
    }
}

impl core::fmt::Debug for Actions {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

/// Why a step was refused: the state and the event together cannot occur in a correct run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Violation {
    /// The directory entry is none that [`crate::protocols::stache::directory::Directory::set`] makes.
    CorruptEntry(DirEntry),
    /// The home's own copy does not have the tag that the directory entry implies.
    WrongTag { state: DirState, found: Tag },
    /// Nobody can have sent this to the home.
    AtHome { state: DirState, event: HomeEvent },
    /// The home cannot have sent this, or the runtime must not do this.
    AtCache { state: CacheState, event: CacheEvent },
}

impl Violation {
    /// One line for the user; the details are in the `Debug` form.
    pub const fn what(&self) -> &'static str {
        match self {
            Violation::CorruptEntry(_) => "directory entry is corrupt",
            Violation::WrongTag { .. } => "home's tag contradicts its directory entry",
            Violation::AtHome { .. } => "home received an impossible protocol event",
            Violation::AtCache { .. } => "node received an impossible protocol event",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        for byte in 0..=255 {
            assert_eq!(Msg::from_byte(byte).map(Msg::byte), (1..=12).contains(&byte).then_some(byte));
        }
    }

    #[test]
    fn rows_have_the_names_of_their_messages() {
        assert!(Msg::ALL.iter().zip(MESSAGES).all(|(msg, row)| format!("{msg:?}") == row.name));
    }

    #[test]
    fn each_message_has_one_receiver() {
        let from = NodeId::new(1).unwrap();
        for msg in Msg::ALL {
            assert_eq!(HomeEvent::from_msg(msg, from).is_some(), msg.is_for_home(), "{msg:?}");
            assert_eq!(CacheEvent::from_msg(msg).is_some(), !msg.is_for_home(), "{msg:?}");
        }
    }

    #[test]
    fn tag_and_cache_state_agree() {
        for state in CacheState::ALL {
            assert_eq!(CacheState::from_tag(state.tag()), (!state.is_pending()).then_some(state));
        }
    }
}
