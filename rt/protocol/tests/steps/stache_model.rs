//! The model of everything around [`stache`](blizzard_protocol::stache): tags, channels, the queue of deferred requests.
//!
//! Channels keep order only among the messages about one block from one node to another; replaying one deferred event is a step of its
//! own, at any later time.

use blizzard_protocol::protocols::stache::defer::{Deferred, WaitingEvent};
use blizzard_protocol::protocols::stache::directory::DirState;
use blizzard_protocol::protocols::stache::vocabulary::{Action, Actions, CacheEvent, CacheState, HomeEvent, Msg};
use blizzard_protocol::tag::Tag;

use crate::model::{Access, Channel, Config, Fault, LocalCopy, Machine, Service, node};
use crate::stache_mutants::{self as mutants, Mutation};

/// `N` nodes, `B` blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<const N: usize, const B: usize> {
    copies: [[LocalCopy; B]; N],
    /// Not used at a block's home.
    states: [[CacheState; B]; N],
    dir: [DirState; B],
    /// One queue per node, for the blocks it is the home of.
    deferred: [Deferred<[WaitingEvent; 8]>; N],
    /// `Replay` has been demanded for the block and not yet been finished.
    replay: [bool; B],
    /// `channels[from][to][block]`.
    channels: [[[Channel<Msg>; B]; N]; N],
}

impl<const N: usize, const B: usize> World<N, B> {
    /// Handles message number `slot` of the channel (0 is the oldest, the only one that a FIFO channel delivers).
    fn deliver(
        &mut self,
        config: &Config<Mutation, B>,
        [from, to, block]: [usize; 3],
        slot: usize,
    ) -> Result<(), Fault> {
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
    fn replay(&mut self, config: &Config<Mutation, B>, block: usize) -> Result<(), Fault> {
        let home = config.homes[block];
        let event = self.deferred[home].pop(block as u64).expect("the caller saw replay set");
        self.step_home(config, block, event, None, true)?;
        self.stop_replay_if_over(home, block);
        Ok(())
    }

    fn stop_replay_if_over(&mut self, home: usize, block: usize) {
        let busy = self.dir[block].is_busy();
        self.replay[block] &= !busy && self.deferred[home].is_waiting(block as u64);
    }

    fn home_event(
        &mut self,
        config: &Config<Mutation, B>,
        block: usize,
        event: HomeEvent,
        data: Option<bool>,
    ) -> Result<(), Fault> {
        let queue = &mut self.deferred[config.homes[block]];
        if event.is_request() && queue.is_waiting(block as u64) {
            queue.push(block as u64, event).map_err(|_| Fault::DeferredFull)?;
            return Ok(());
        }
        self.step_home(config, block, event, data, false)
    }

    fn step_home(
        &mut self,
        config: &Config<Mutation, B>,
        block: usize,
        event: HomeEvent,
        data: Option<bool>,
        replayed: bool,
    ) -> Result<(), Fault> {
        let home = config.homes[block];
        let (state, tag, actions) =
            mutants::home_step(config.mutation, self.dir[block], self.copies[home][block].tag, event)?;
        self.dir[block] = state;
        if actions.is_defer() {
            if replayed || !event.is_request() {
                return Err(Fault::WrongAction);
            }
            self.deferred[home].push(block as u64, event).map_err(|_| Fault::DeferredFull)?;
            return Ok(());
        }
        self.perform(home, home, block, data, &actions)?;
        if self.copies[home][block].tag != tag { Err(Fault::WrongTag) } else { Ok(()) }
    }

    fn cache_event(
        &mut self,
        config: &Config<Mutation, B>,
        at: usize,
        block: usize,
        event: CacheEvent,
        data: Option<bool>,
    ) -> Result<(), Fault> {
        let (state, actions) = mutants::cache_step(config.mutation, self.states[at][block], event)?;
        self.states[at][block] = state;
        self.perform(at, config.homes[block], block, data, &actions)?;
        if self.copies[at][block].tag != state.tag() { Err(Fault::WrongTag) } else { Ok(()) }
    }

    fn perform(
        &mut self,
        at: usize,
        home: usize,
        block: usize,
        data: Option<bool>,
        actions: &Actions,
    ) -> Result<(), Fault> {
        for &action in actions.as_slice() {
            match action {
                Action::CopyIn => self.copies[at][block].copy_in(data)?,
                Action::SetTag(tag) => self.copies[at][block].set_tag(tag),
                Action::Send(to, msg) if at == home => self.send([at, to.index(), block], msg)?,
                Action::Invalidate(set) if at == home => {
                    for to in set.iter() {
                        self.send([at, to.index(), block], Msg::Invalidate)?;
                    }
                }
                Action::SendHome(msg) if at != home => self.send([at, home, block], msg)?,
                Action::Resume => {
                    self.copies[at][block].miss.take().ok_or(Fault::ResumeOfNothing)?;
                }
                Action::Replay if at == home => {
                    self.replay[block] = true;
                    self.stop_replay_if_over(home, block);
                }
                _ => return Err(Fault::WrongAction),
            }
        }
        Ok(())
    }

    fn send(&mut self, [from, to, block]: [usize; 3], msg: Msg) -> Result<(), Fault> {
        let data = msg.carries_data().then_some(self.copies[from][block].data);
        self.channels[from][to][block].push(msg, data)
    }

    /// Channels that hold a message.
    fn deliverable(&self) -> impl Iterator<Item = [usize; 3]> {
        let all = (0..N).flat_map(|from| (0..N).flat_map(move |to| (0..B).map(move |block| [from, to, block])));
        all.filter(|&[from, to, block]| !self.channels[from][to][block].is_empty())
    }
}

impl<const N: usize, const B: usize> Machine<N, B> for World<N, B> {
    type Mutation = Mutation;

    fn new(config: &Config<Mutation, B>) -> Self {
        let away = LocalCopy { data: false, tag: Tag::Invalid, miss: None };
        let mut world = World {
            copies: [[away; B]; N],
            states: [[CacheState::Invalid; B]; N],
            dir: [DirState::Idle; B],
            deferred: [Deferred::new([WaitingEvent::NOTHING; 8]); N],
            replay: [false; B],
            channels: [[[Channel::EMPTY; B]; N]; N],
        };
        for (block, &home) in config.homes.iter().enumerate() {
            let copy = &mut world.copies[home][block];
            copy.data = true;
            copy.tag = Tag::Writable;
        }
        world
    }

    fn copy(&self, at: usize, block: usize) -> &LocalCopy {
        &self.copies[at][block]
    }

    fn copy_mut(&mut self, at: usize, block: usize) -> &mut LocalCopy {
        &mut self.copies[at][block]
    }

    fn miss(&mut self, config: &Config<Mutation, B>, at: usize, block: usize, access: Access) -> Result<(), Fault> {
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

    fn can_evict(&self, config: &Config<Mutation, B>, at: usize, block: usize) -> bool {
        let copy = &self.copies[at][block];
        config.homes[block] != at && copy.miss.is_none() && copy.tag != Tag::Invalid
    }

    fn evict(&mut self, config: &Config<Mutation, B>, at: usize, block: usize) -> Result<(), Fault> {
        self.cache_event(config, at, block, CacheEvent::Evict, None)
    }

    fn services(&self, config: &Config<Mutation, B>) -> Vec<Service> {
        let deliveries = self.deliverable().flat_map(|channel @ [from, to, block]| {
            let waiting = self.channels[from][to][block].len();
            let deliverable = if config.mutation == Some(Mutation::Reorder) { waiting } else { 1 };
            (0..deliverable).map(move |slot| Service::Deliver { channel, slot })
        });
        let replays = (0..B).filter(|&block| self.replay[block]);
        deliveries.chain(replays.map(|block| Service::Local { at: config.homes[block], block })).collect()
    }

    fn serve(&mut self, config: &Config<Mutation, B>, service: Service) -> Result<(), Fault> {
        match service {
            Service::Deliver { channel, slot } => self.deliver(config, channel, slot),
            Service::Local { block, .. } => self.replay(config, block),
        }
    }

    fn for_data_on_its_way(&mut self, block: usize, change: impl FnMut(&mut bool)) {
        self.channels.iter_mut().flatten().flat_map(|blocks| blocks[block].data_mut()).for_each(change);
    }

    fn is_quiet(&self) -> bool {
        self.deliverable().next().is_none()
            && self.deferred.iter().all(Deferred::is_empty)
            && self.dir.iter().all(|state| !state.is_busy())
            && self.copies.iter().flatten().all(|copy| copy.miss.is_none())
    }

    fn keeps_waiting(&self) -> bool {
        self.deferred.iter().any(|queue| !queue.is_empty())
    }
}
