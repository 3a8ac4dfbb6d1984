//! Messages, events, block-state bits and actions of the M-Machine's protocol.
//!
//! Purpose: the words that [`crate::protocols::mcm::steps::home_step`] and [`crate::protocols::mcm::steps::node_step`] speak. Source: Gurevich, "The M-Machine Operating System", 1995, section
//! 7.3.2 (the five bits and figure 7-4), table A.1 (messages).

use crate::ids::{NodeId, NodeSet};
use crate::protocol::messages::messages;
use crate::protocols::mcm::directory::HomeState;
use crate::tag::Tag;
use blizzard_contract::listed;

messages! {
    /// A message about one block. The discriminants are what travels.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Msg {
        /// Node to home (`ccrequest` of a load): I want a copy to load from.
        RequestReadOnly = 1,
        /// Node to home (`ccrequest` of a store): I want the only copy.
        RequestExclusive,
        /// Node to home (`ccreturnYank`): answers an `Invalidate`; what I had was not Writable.
        Yanked,
        /// Node to home (`ccreturnyankFull`), with data: answers an `Invalidate`; I had the Writable copy.
        YankedFull,
        /// Node to home (`ccreturnDirty`), with data: I have evicted the Writable copy.
        ReturnDirty,
        /// Home to node (`ccreturnLoad`), with data: grants a `RequestReadOnly`.
        ReturnReadOnly,
        /// Home to node (`ccreturnStore`), with data: grants a `RequestExclusive`.
        ReturnExclusive,
        /// Home to node: your `RequestReadOnly` is refused for now, ask again.
        NackReadOnly,
        /// Home to node: your `RequestExclusive` is refused for now, ask again.
        NackExclusive,
        /// Home to node: give up your copy, if you have one, and say so.
        Invalidate,
    }
}

impl Msg {
    /// Whether the block's data travels with it.
    pub const fn carries_data(self) -> bool {
        matches!(self, Msg::YankedFull | Msg::ReturnDirty | Msg::ReturnReadOnly | Msg::ReturnExclusive)
    }

    /// Whether it is addressed to the block's home (else: from the home to another node).
    pub const fn is_for_home(self) -> bool {
        self.byte() <= Msg::ReturnDirty.byte()
    }

    /// Whether it answers a request of its receiver.
    pub const fn is_answer(self) -> bool {
        matches!(self, Msg::ReturnReadOnly | Msg::ReturnExclusive | Msg::NackReadOnly | Msg::NackExclusive)
    }
}

/// What can happen to a block at its home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HomeEvent {
    RequestReadOnly(NodeId),
    RequestExclusive(NodeId),
    Yanked(NodeId),
    YankedFull(NodeId),
    ReturnDirty(NodeId),
    /// The home's own program missed, or tries again after [`Action::Refused`].
    LocalLoad,
    LocalStore,
}

impl HomeEvent {
    /// The event that message `msg` from node `from` is; `None` if that message is not for a home.
    pub const fn from_msg(msg: Msg, from: NodeId) -> Option<HomeEvent> {
        match msg {
            Msg::RequestReadOnly => Some(HomeEvent::RequestReadOnly(from)),
            Msg::RequestExclusive => Some(HomeEvent::RequestExclusive(from)),
            Msg::Yanked => Some(HomeEvent::Yanked(from)),
            Msg::YankedFull => Some(HomeEvent::YankedFull(from)),
            Msg::ReturnDirty => Some(HomeEvent::ReturnDirty(from)),
            _ => None,
        }
    }
}

listed! {
    /// What can happen to a block at a node that is not its home.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum NodeEvent {
        /// The node's program misses (RI, WI and WR of figure 7-4, by the tag).
        Load,
        Store,
        /// The runtime wants the memory back.
        Evict,
        ReturnReadOnly,
        ReturnExclusive,
        NackReadOnly,
        NackExclusive,
        Invalidate,
        /// The event handler takes the block's job from the software queue, see [`Bits::has_job`].
        Serve,
    }
}

impl NodeEvent {
    /// The event that message `msg` from the block's home is; `None` if that message is for a home.
    pub const fn from_msg(msg: Msg) -> Option<NodeEvent> {
        match msg {
            Msg::ReturnReadOnly => Some(NodeEvent::ReturnReadOnly),
            Msg::ReturnExclusive => Some(NodeEvent::ReturnExclusive),
            Msg::NackReadOnly => Some(NodeEvent::NackReadOnly),
            Msg::NackExclusive => Some(NodeEvent::NackExclusive),
            Msg::Invalidate => Some(NodeEvent::Invalidate),
            _ => None,
        }
    }
}

/// The block-state bits of an entry of the software event table. No bit: there is no entry.
///
/// The first five are those of the source. `NR` stands for a job that the source keeps in a queue of its own: here the bits alone say
/// what is to be done, so that a step function can decide it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Bits(u8);

impl Bits {
    /// No entry.
    pub const NONE: Bits = Bits(0);
    /// The answer to a `RequestReadOnly` is outstanding.
    pub const PR: Bits = Bits(1);
    /// The answer to a `RequestExclusive` is outstanding.
    pub const PX: Bits = Bits(2);
    /// An `Invalidate` has come and waits for the outstanding answers.
    pub const I: Bits = Bits(4);
    /// The exclusive copy is here; the answer to the `RequestReadOnly` is still to come, and is out of date.
    pub const AX: Bits = Bits(8);
    /// The `RequestExclusive` was refused and must be sent again.
    pub const NX: Bits = Bits(16);
    /// The `RequestReadOnly` was refused and must be sent again.
    pub const NR: Bits = Bits(32);

    /// The bits of [`Bits::byte`] that may be set.
    pub const MASK: u8 = 63;

    const NAMES: [(Bits, &str); 6] =
        [(Bits::PR, "PR"), (Bits::PX, "PX"), (Bits::I, "I"), (Bits::AX, "AX"), (Bits::NX, "NX"), (Bits::NR, "NR")];

    /// All sets of bits, possible or not.
    pub fn all() -> impl Iterator<Item = Bits> {
        (0..=Bits::MASK).map(Bits)
    }

    /// Whether any of these bits is set.
    pub const fn any(self, of: Bits) -> bool {
        self.0 & of.0 != 0
    }

    #[must_use]
    pub const fn with(self, more: Bits) -> Bits {
        Bits(self.0 | more.0)
    }

    #[must_use]
    pub const fn without(self, fewer: Bits) -> Bits {
        Bits(self.0 & !fewer.0)
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether answers are outstanding.
    pub const fn is_pending(self) -> bool {
        self.any(Bits::PR.with(Bits::PX))
    }

    /// Whether [`NodeEvent::Serve`] has something to do: no answer is outstanding, and an invalidation or a refused request waits.
    pub const fn has_job(self) -> bool {
        !self.is_pending() && self.any(Bits::I.with(Bits::NX).with(Bits::NR))
    }

    /// Whether a block can be in this state with this tag.
    pub const fn is_possible(self, tag: Tag) -> bool {
        let fits = match self.without(Bits::I).0 {
            // No request: an invalidation that waits has something to invalidate.
            0 => !self.any(Bits::I) || !matches!(tag, Tag::Invalid),
            // PR, NR: nothing is here yet.
            1 | 32 => matches!(tag, Tag::Invalid),
            // PX, NX: a ReadOnly copy may be here.
            2 | 16 => matches!(tag, Tag::Invalid | Tag::ReadOnly),
            // PR PX, PR NX.
            3 | 17 => matches!(tag, Tag::Invalid),
            // PR AX.
            9 => matches!(tag, Tag::Writable),
            _ => false,
        };
        fits && !matches!(tag, Tag::Busy)
    }

    /// The bits as one byte, for a table of the runtime.
    pub const fn byte(self) -> u8 {
        self.0
    }

    /// The inverse of [`Bits::byte`]; bits that mean nothing are dropped.
    pub const fn from_byte(byte: u8) -> Bits {
        Bits(byte & Bits::MASK)
    }
}

impl core::fmt::Debug for Bits {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let mut gap = "";
        for (bit, name) in Bits::NAMES {
            if self.any(bit) {
                write!(f, "{gap}{name}")?;
                gap = " ";
            }
        }
        Ok(())
    }
}

/// One thing for the runtime to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Copy the data of the message being handled into the own copy.
    CopyIn,
    /// Set the tag of the own copy.
    SetTag(Tag),
    /// Home only: send to that node; data is that of the own copy as it is now.
    Send(NodeId, Msg),
    /// Home only: send [`Msg::Invalidate`] to each of these nodes.
    Invalidate(NodeSet),
    /// Not at the home: send to the home, likewise.
    SendHome(Msg),
    /// The block allows more than before: if the access that waits for it is allowed now, it is performed before the block's next event.
    Resume,
    /// Home only: the own program's request is refused; step it again later.
    Refused,
}

/// Most actions of one step.
pub const MAX_ACTIONS: usize = 3;

/// The actions of one step, in the order in which they must be performed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Actions {
    items: [Action; MAX_ACTIONS],
    len: u8,
}

impl Actions {
    pub const NONE: Actions = Actions { items: [Action::Refused; MAX_ACTIONS], len: 0 };

    pub fn as_slice(&self) -> &[Action] {
        &self.items[..usize::from(self.len).min(MAX_ACTIONS)]
    }

    /// The list with one more action at its end; a step never needs more than [`MAX_ACTIONS`].
    #[must_use]
    pub(super) fn then(mut self, action: Action) -> Actions {
        self.items[usize::from(self.len)] = action;
        self.len += 1;
        self
    }

    /// The list with a change of the tag at its end, if it is one.
    #[must_use]
    pub(super) fn then_tag(self, from: Tag, to: Tag) -> Actions {
        if from as u8 == to as u8 { self } else { self.then(Action::SetTag(to)) }
    }
}

impl<const N: usize> From<[Action; N]> for Actions {
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
    /// The directory entry is none that [`crate::protocols::mcm::directory::Entry::encode`] makes.
    CorruptEntry,
    /// The home's own copy does not have the tag that the directory entry implies.
    WrongTag { state: HomeState, found: Tag },
    /// Nobody can have sent this to the home.
    AtHome { state: HomeState, event: HomeEvent },
    /// The home cannot have sent this, or the runtime must not do this.
    AtNode { bits: Bits, tag: Tag, event: NodeEvent },
}

impl Violation {
    /// One line for the user; the details are in the `Debug` form.
    pub const fn what(&self) -> &'static str {
        match self {
            Violation::CorruptEntry => "directory entry is corrupt",
            Violation::WrongTag { .. } => "home's tag contradicts its directory entry",
            Violation::AtHome { .. } => "home received an impossible protocol event",
            Violation::AtNode { .. } => "node received an impossible protocol event",
        }
    }
}
