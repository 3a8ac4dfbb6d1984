//! A model of everything around the step functions: memory, tags, channels, the queue of deferred requests.
//!
//! [`World`] performs the functions' actions by the rules in the documentation of `blizzard_rt::protocol`. Wherever the runtime is
//! free to choose, so is the model's caller, and it is given more freedom than a runtime has: channels keep order only among the
//! messages about one block from one node to another; replaying one deferred event is a step of its own, at any later time.
//!
//! `D` is what a block holds: a bit (is it the latest value?), a number, or real words.

use blizzard_rt::protocol::defer::Deferred;
use blizzard_rt::protocol::{
    Action, Actions, CacheEvent, CacheState, DirState, HomeEvent, Msg, NodeId, Tag, Violation,
};

use crate::mutants::Rules;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    Load,
    Store,
}

/// What went wrong in a step. A correct protocol never causes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    Violation(Violation),
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
        Fault::Violation(violation)
    }
}

/// Most messages about one block that are on the way from one node to another: the exploration shows that it suffices.
pub const CHANNEL_SLOTS: usize = 3;

/// A FIFO channel for the messages about one block from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Channel<D> {
    slots: [Option<(Msg, Option<D>)>; CHANNEL_SLOTS],
}

impl<D: Copy> Channel<D> {
    const EMPTY: Channel<D> = Channel { slots: [None; CHANNEL_SLOTS] };

    fn push(&mut self, msg: Msg, data: Option<D>) -> Result<(), Fault> {
        *self.slots.iter_mut().find(|slot| slot.is_none()).ok_or(Fault::ChannelFull)? = Some((msg, data));
        Ok(())
    }

    /// Takes the message at `at`, counted from the oldest.
    fn take(&mut self, at: usize) -> Option<(Msg, Option<D>)> {
        let taken = self.slots[at].take();
        self.slots[at..].rotate_left(1);
        taken
    }

    /// The message that is delivered next.
    pub fn oldest(&self) -> Option<Msg> {
        self.slots[0].map(|(msg, _)| msg)
    }

    pub fn is_empty(&self) -> bool {
        self.slots[0].is_none()
    }

    pub fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// The data of all messages.
    pub fn data_mut(&mut self) -> impl Iterator<Item = &mut D> {
        self.slots.iter_mut().flatten().filter_map(|(_, data)| data.as_mut())
    }
}

/// One node's view of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalCopy<D> {
    pub data: D,
    pub tag: Tag,
    /// Not used at the block's home.
    pub state: CacheState,
    /// The outstanding miss.
    pub miss: Option<Access>,
}

/// Who is the home of each block, and whether the protocol is the real one or has a planted error.
#[derive(Clone, Copy, Debug)]
pub struct Config<const B: usize> {
    pub homes: [usize; B],
    pub rules: Rules,
}

/// `N` nodes, `B` blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<D, const N: usize, const B: usize> {
    pub copies: [[LocalCopy<D>; B]; N],
    pub dir: [DirState; B],
    /// One queue per node, for the blocks it is the home of.
    pub deferred: [Deferred<8>; N],
    /// `Replay` has been demanded for the block and not yet been finished.
    pub replay: [bool; B],
    /// `channels[from][to][block]`.
    pub channels: [[[Channel<D>; B]; N]; N],
}

fn node(index: usize) -> NodeId {
    NodeId::new(index as u32).expect("the model has few nodes")
}

impl<D: Copy, const N: usize, const B: usize> World<D, N, B> {
    /// All blocks at home and Writable there with value `initial`; what other nodes' memory holds is `rubbish`.
    pub fn new(config: &Config<B>, initial: D, rubbish: D) -> Self {
        let away = LocalCopy { data: rubbish, tag: Tag::Invalid, state: CacheState::Invalid, miss: None };
        let mut world = World {
            copies: [[away; B]; N],
            dir: [DirState::Idle; B],
            deferred: [Deferred::new(); N],
            replay: [false; B],
            channels: [[[Channel::EMPTY; B]; N]; N],
        };
        for (block, &home) in config.homes.iter().enumerate() {
            let copy = &mut world.copies[home][block];
            copy.data = initial;
            copy.tag = Tag::Writable;
        }
        world
    }

    pub fn allows(&self, at: usize, block: usize, access: Access) -> bool {
        let tag = self.copies[at][block].tag;
        match access {
            Access::Load => tag.allows_load(),
            Access::Store => tag.allows_store(),
        }
    }

    /// Node `at`'s program misses on `block`. Returns whether the miss was served at once.
    pub fn miss(&mut self, config: &Config<B>, at: usize, block: usize, access: Access) -> Result<bool, Fault> {
        self.copies[at][block].miss = Some(access);
        if config.homes[block] == at {
            let event = match access {
                Access::Load => HomeEvent::LocalLoad,
                Access::Store => HomeEvent::LocalStore,
            };
            self.home_event(config, block, event, None)
        } else {
            let event = match access {
                Access::Load => CacheEvent::Load,
                Access::Store => CacheEvent::Store,
            };
            self.cache_event(config, at, block, event, None)
        }
    }

    pub fn can_evict(&self, config: &Config<B>, at: usize, block: usize) -> bool {
        let copy = &self.copies[at][block];
        config.homes[block] != at && copy.miss.is_none() && copy.tag != Tag::Invalid
    }

    pub fn evict(&mut self, config: &Config<B>, at: usize, block: usize) -> Result<bool, Fault> {
        self.cache_event(config, at, block, CacheEvent::Evict, None)
    }

    /// Handles message number `slot` of the channel (0 is the oldest, the only one that a FIFO channel delivers). Returns
    /// whether it served the receiver's outstanding miss.
    pub fn deliver(&mut self, config: &Config<B>, [from, to, block]: [usize; 3], slot: usize) -> Result<bool, Fault> {
        let (msg, data) = self.channels[from][to][block].take(slot).expect("the caller saw a message");
        if config.homes[block] == to {
            let event = HomeEvent::from_msg(msg, node(from)).ok_or(Fault::WrongReceiver)?;
            self.home_event(config, block, event, data)
        } else {
            let event = CacheEvent::from_msg(msg).ok_or(Fault::WrongReceiver)?;
            self.cache_event(config, to, block, event, data)
        }
    }

    /// Steps the oldest deferred event of the block, for which `replay` must be set.
    pub fn replay(&mut self, config: &Config<B>, block: usize) -> Result<bool, Fault> {
        let home = config.homes[block];
        let event = self.deferred[home].pop(block as u64).expect("the caller saw replay set");
        let resumed = self.step_home(config, block, event, None, true)?;
        self.stop_replay_if_over(home, block);
        Ok(resumed)
    }

    fn stop_replay_if_over(&mut self, home: usize, block: usize) {
        let busy = self.dir[block].is_busy();
        self.replay[block] &= !busy && self.deferred[home].is_waiting(block as u64);
    }

    fn home_event(
        &mut self,
        config: &Config<B>,
        block: usize,
        event: HomeEvent,
        data: Option<D>,
    ) -> Result<bool, Fault> {
        let queue = &mut self.deferred[config.homes[block]];
        if event.is_request() && queue.is_waiting(block as u64) {
            queue.push(block as u64, event).map_err(|_| Fault::DeferredFull)?;
            return Ok(false);
        }
        self.step_home(config, block, event, data, false)
    }

    fn step_home(
        &mut self,
        config: &Config<B>,
        block: usize,
        event: HomeEvent,
        data: Option<D>,
        replayed: bool,
    ) -> Result<bool, Fault> {
        let home = config.homes[block];
        let (state, tag, actions) = config.rules.home_step(self.dir[block], self.copies[home][block].tag, event)?;
        self.dir[block] = state;
        if actions.is_defer() {
            if replayed || !event.is_request() {
                return Err(Fault::WrongAction);
            }
            self.deferred[home].push(block as u64, event).map_err(|_| Fault::DeferredFull)?;
            return Ok(false);
        }
        let resumed = self.perform(home, home, block, data, &actions)?;
        if self.copies[home][block].tag != tag { Err(Fault::WrongTag) } else { Ok(resumed) }
    }

    fn cache_event(
        &mut self,
        config: &Config<B>,
        at: usize,
        block: usize,
        event: CacheEvent,
        data: Option<D>,
    ) -> Result<bool, Fault> {
        let (state, actions) = config.rules.cache_step(self.copies[at][block].state, event)?;
        self.copies[at][block].state = state;
        let resumed = self.perform(at, config.homes[block], block, data, &actions)?;
        if self.copies[at][block].tag != state.tag() { Err(Fault::WrongTag) } else { Ok(resumed) }
    }

    fn perform(
        &mut self,
        at: usize,
        home: usize,
        block: usize,
        data: Option<D>,
        actions: &Actions,
    ) -> Result<bool, Fault> {
        let mut resumed = false;
        for &action in actions.as_slice() {
            match action {
                Action::CopyIn => self.copies[at][block].data = data.ok_or(Fault::NoData)?,
                Action::SetTag(tag) => self.copies[at][block].tag = tag,
                Action::Send(to, msg) if at == home => self.send([at, to.index(), block], msg)?,
                Action::Invalidate(set) if at == home => {
                    for to in set.iter() {
                        self.send([at, to.index(), block], Msg::Invalidate)?;
                    }
                }
                Action::SendHome(msg) if at != home => self.send([at, home, block], msg)?,
                Action::Resume => {
                    self.copies[at][block].miss.take().ok_or(Fault::ResumeOfNothing)?;
                    resumed = true;
                }
                Action::Replay if at == home => {
                    self.replay[block] = true;
                    self.stop_replay_if_over(home, block);
                }
                _ => return Err(Fault::WrongAction),
            }
        }
        Ok(resumed)
    }

    fn send(&mut self, [from, to, block]: [usize; 3], msg: Msg) -> Result<(), Fault> {
        let data = msg.carries_data().then_some(self.copies[from][block].data);
        self.channels[from][to][block].push(msg, data)
    }

    /// Channels that hold a message.
    pub fn deliverable(&self) -> impl Iterator<Item = [usize; 3]> {
        let all = (0..N).flat_map(|from| (0..N).flat_map(move |to| (0..B).map(move |block| [from, to, block])));
        all.filter(|&[from, to, block]| !self.channels[from][to][block].is_empty())
    }

    /// At most one node may store, and then no other may even load.
    pub fn has_one_writer_or_many_readers(&self) -> bool {
        (0..B).all(|block| {
            let readers = (0..N).filter(|&at| self.allows(at, block, Access::Load)).count();
            let writers = (0..N).filter(|&at| self.allows(at, block, Access::Store)).count();
            writers == 0 || (writers == 1 && readers == 1)
        })
    }

    /// No miss outstanding, no message on its way, nothing deferred, no entry busy.
    pub fn is_quiet(&self) -> bool {
        self.deliverable().next().is_none()
            && self.deferred.iter().all(Deferred::is_empty)
            && self.dir.iter().all(|state| !state.is_busy())
            && self.copies.iter().flatten().all(|copy| copy.miss.is_none())
    }
}
