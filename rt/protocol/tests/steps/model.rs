//! What the models of both protocols have in common: the nodes' copies, channels, and the interface that the explorations use.
//!
//! A [`Machine`] is everything around one protocol's step functions; [`crate::stache_model`] and [`crate::mcm_model`] implement it. It
//! performs the functions' actions by the rules in the documentation of `blizzard_protocol`. Wherever the runtime is free to
//! choose, so is the model's caller, and it is given more freedom than a runtime has: what a node puts off is a step of
//! its own, at any later time.
//!
//! A block's data are one bit: is it the latest value?

use std::fmt::Debug;
use std::hash::Hash;

use blizzard_protocol::ids::NodeId;
use blizzard_protocol::protocols::mcm::vocabulary as mcm;
use blizzard_protocol::protocols::stache::vocabulary::Violation;
use blizzard_protocol::tag::Tag;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    Load,
    Store,
}

/// What went wrong in a step. A correct protocol never causes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    Stache(Violation),
    Mcm(mcm::Violation),
    /// `CopyIn` while handling an event that brought no data.
    NoData,
    /// The tag that the actions left is not the one that the function returned or that the state implies.
    WrongTag,
    /// More messages about one block on one channel than [`CHANNEL_SLOTS`].
    ChannelFull,
    DeferredFull,
    /// An action that this kind of node cannot perform, or `Defer` of an event that was replayed or is an answer.
    WrongAction,
    /// `Resume` without an outstanding miss.
    ResumeOfNothing,
    /// A message for a home arrived elsewhere, or the reverse.
    WrongReceiver,
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Fault {
        Fault::Stache(violation)
    }
}

impl From<mcm::Violation> for Fault {
    fn from(violation: mcm::Violation) -> Fault {
        Fault::Mcm(violation)
    }
}

/// Most messages about one block that are on the way from one node to another: the exploration shows that it suffices.
pub const CHANNEL_SLOTS: usize = 4;

/// The messages `M` about one block on their way from one node to another, with their data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel<M> {
    slots: [Option<(M, Option<bool>)>; CHANNEL_SLOTS],
}

impl<M: Copy + Ord> Channel<M> {
    /// As [`Channel::push`] for a channel without an order: equal contents are equal states.
    pub fn put(&mut self, msg: M, data: Option<bool>) -> Result<(), Fault> {
        self.push(msg, data)?;
        let used = self.len();
        self.slots[..used].sort_unstable();
        Ok(())
    }
}

impl<M: Copy> Channel<M> {
    pub const EMPTY: Channel<M> = Channel { slots: [None; CHANNEL_SLOTS] };

    pub fn push(&mut self, msg: M, data: Option<bool>) -> Result<(), Fault> {
        *self.slots.iter_mut().find(|slot| slot.is_none()).ok_or(Fault::ChannelFull)? = Some((msg, data));
        Ok(())
    }

    /// Takes the message at `at`, counted from the oldest.
    pub fn take(&mut self, at: usize) -> Option<(M, Option<bool>)> {
        let taken = self.slots[at].take();
        self.slots[at..].rotate_left(1);
        taken
    }

    pub fn is_empty(&self) -> bool {
        self.slots[0].is_none()
    }

    pub fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// The data of all messages.
    pub fn data_mut(&mut self) -> impl Iterator<Item = &mut bool> {
        self.slots.iter_mut().flatten().filter_map(|(_, data)| data.as_mut())
    }
}

/// One node's copy of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalCopy {
    pub data: bool,
    pub tag: Tag,
    /// The outstanding miss.
    pub miss: Option<Access>,
}

impl LocalCopy {
    /// What a protocol's `CopyIn` does with what the event has brought.
    pub fn copy_in(&mut self, data: Option<bool>) -> Result<(), Fault> {
        self.data = data.ok_or(Fault::NoData)?;
        Ok(())
    }

    /// What a protocol's `SetTag` does.
    pub fn set_tag(&mut self, tag: Tag) {
        self.tag = tag;
    }
}

/// Who is the home of each block, and the planted error, if the protocol is not the real one.
#[derive(Clone, Copy, Debug)]
pub struct Config<M, const B: usize> {
    pub homes: [usize; B],
    pub mutation: Option<M>,
}

/// Planted errors of a protocol, and the property by which each must be found.
macro_rules! mutations {
    ($($(#[$doc:meta])* $name:ident => $property:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            $($(#[$doc])* $name,)*
        }

        impl Mutation {
            const ALL: &[(Mutation, &str)] = &[$((Mutation::$name, $property)),*];
        }
    };
}
pub(crate) use mutations;

/// Something that follows from earlier steps, whatever the programs do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// Message number `slot` of the channel `[from, to, block]` is handled.
    Deliver { channel: [usize; 3], slot: usize },
    /// The node does what it has put off about the block.
    Local { at: usize, block: usize },
}

/// `N` nodes and `B` blocks under some protocol.
pub trait Machine<const N: usize, const B: usize>: Clone + Debug + Eq + Hash + Send + Sync + 'static {
    type Mutation: Copy + Debug + Send + Sync + 'static;

    /// All blocks at home and Writable there; what other nodes' memory holds is not the latest value.
    fn new(config: &Config<Self::Mutation, B>) -> Self;

    fn copy(&self, at: usize, block: usize) -> &LocalCopy;

    fn copy_mut(&mut self, at: usize, block: usize) -> &mut LocalCopy;

    /// Node `at`'s program misses on `block`.
    fn miss(
        &mut self,
        config: &Config<Self::Mutation, B>,
        at: usize,
        block: usize,
        access: Access,
    ) -> Result<(), Fault>;

    /// Whether the protocol lets a node store to a block that it has asked for to load from, before the answer.
    fn can_raise_miss(&self, _at: usize, _block: usize) -> bool {
        false
    }

    fn can_evict(&self, config: &Config<Self::Mutation, B>, at: usize, block: usize) -> bool;

    fn evict(&mut self, config: &Config<Self::Mutation, B>, at: usize, block: usize) -> Result<(), Fault>;

    /// What can be served now.
    fn services(&self, config: &Config<Self::Mutation, B>) -> Vec<Service>;

    /// Whether this sends a refused request again, which may be refused again.
    fn is_retry(&self, _service: Service) -> bool {
        false
    }

    fn serve(&mut self, config: &Config<Self::Mutation, B>, service: Service) -> Result<(), Fault>;

    /// Calls `change` with the data of all messages about the block.
    fn for_data_on_its_way(&mut self, block: usize, change: impl FnMut(&mut bool));

    /// No miss outstanding, no message on its way, nothing put off, no entry busy.
    fn is_quiet(&self) -> bool;

    /// Whether a request is kept waiting, or was refused.
    fn keeps_waiting(&self) -> bool;

    fn allows(&self, at: usize, block: usize, access: Access) -> bool {
        let tag = self.copy(at, block).tag;
        match access {
            Access::Load => tag.allows_load(),
            Access::Store => tag.allows_store(),
        }
    }

    /// At most one node may store, and then no other may even load.
    fn has_one_writer_or_many_readers(&self) -> bool {
        (0..B).all(|block| {
            let readers = (0..N).filter(|&at| self.allows(at, block, Access::Load)).count();
            let writers = (0..N).filter(|&at| self.allows(at, block, Access::Store)).count();
            writers == 0 || (writers == 1 && readers == 1)
        })
    }
}

/// A protocol: its machines, and its planted errors.
pub trait Protocol: Copy + Debug + Send + Sync + 'static {
    type Mutation: Copy + Debug + Send + Sync + 'static;
    type World<const N: usize, const B: usize>: Machine<N, B, Mutation = Self::Mutation>;
    const NAME: &'static str;
}

#[derive(Clone, Copy, Debug)]
pub struct Stache;

impl Protocol for Stache {
    type Mutation = crate::stache_mutants::Mutation;
    type World<const N: usize, const B: usize> = crate::stache_model::World<N, B>;
    const NAME: &'static str = "stache";
}

#[derive(Clone, Copy, Debug)]
pub struct Mcm;

impl Protocol for Mcm {
    type Mutation = crate::mcm_mutants::Mutation;
    type World<const N: usize, const B: usize> = crate::mcm_model::World<N, B>;
    const NAME: &'static str = "mcm";
}

pub fn node(index: usize) -> NodeId {
    NodeId::new(index as u32).expect("the model has few nodes")
}
