//! The model of everything around [`mcm`](blizzard_protocol::mcm): tags, event tables, messages that overtake each other.
//!
//! Messages about a block between its home and a node are a bag: each may be the next that arrives. A job of the event handler is a step of
//! its own, at any later time; so is the home's own attempt to get a block that it was refused.

use blizzard_protocol::protocols::mcm::directory::Entry;
use blizzard_protocol::protocols::mcm::vocabulary::{Action, Actions, Bits, HomeEvent, Msg, NodeEvent};
use blizzard_protocol::tag::Tag;

use crate::mcm_mutants::{self as mutants, Mutation};
use crate::model::{Access, Channel, Config, Fault, LocalCopy, Machine, Service, node};

/// `N` nodes, `B` blocks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World<const N: usize, const B: usize> {
    copies: [[LocalCopy; B]; N],
    /// The event tables. Not used at a block's home.
    bits: [[Bits; B]; N],
    dir: [Entry; B],
    /// The home's own program was refused.
    refused: [bool; B],
    /// By the node at the other end.
    to_home: [[Channel<Msg>; B]; N],
    from_home: [[Channel<Msg>; B]; N],
}

impl<const N: usize, const B: usize> World<N, B> {
    fn home_event(
        &mut self,
        config: &Config<Mutation, B>,
        block: usize,
        event: HomeEvent,
        data: Option<bool>,
    ) -> Result<(), Fault> {
        let home = config.homes[block];
        let (entry, actions) =
            mutants::home_step(config.mutation, self.dir[block], self.copies[home][block].tag, event)?;
        self.dir[block] = entry;
        self.perform(home, home, block, data, &actions)
    }

    fn node_event(
        &mut self,
        config: &Config<Mutation, B>,
        at: usize,
        block: usize,
        event: NodeEvent,
        data: Option<bool>,
    ) -> Result<(), Fault> {
        let (bits, actions) =
            mutants::node_step(config.mutation, self.bits[at][block], self.copies[at][block].tag, event)?;
        self.bits[at][block] = bits;
        self.perform(at, config.homes[block], block, data, &actions)
    }

    fn local_event(access: Access) -> HomeEvent {
        match access {
            Access::Load => HomeEvent::LocalLoad,
            Access::Store => HomeEvent::LocalStore,
        }
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
                Action::Send(to, msg) if at == home => self.send_from_home(home, to.index(), block, msg)?,
                Action::Invalidate(set) if at == home => {
                    for to in set.iter() {
                        self.send_from_home(home, to.index(), block, Msg::Invalidate)?;
                    }
                }
                Action::SendHome(msg) if at != home => {
                    let data = msg.carries_data().then_some(self.copies[at][block].data);
                    self.to_home[at][block].put(msg, data)?;
                }
                Action::Resume => {
                    let allowed = self.copies[at][block].miss.is_some_and(|access| self.allows(at, block, access));
                    if allowed {
                        self.copies[at][block].miss = None;
                    }
                }
                Action::Refused if at == home => self.refused[block] = true,
                _ => return Err(Fault::WrongAction),
            }
        }
        Ok(())
    }

    fn send_from_home(&mut self, home: usize, to: usize, block: usize, msg: Msg) -> Result<(), Fault> {
        let data = msg.carries_data().then_some(self.copies[home][block].data);
        self.from_home[to][block].put(msg, data)
    }

    fn deliver(
        &mut self,
        config: &Config<Mutation, B>,
        [from, to, block]: [usize; 3],
        slot: usize,
    ) -> Result<(), Fault> {
        if config.homes[block] == to {
            let (msg, data) = self.to_home[from][block].take(slot).expect("the caller saw a message");
            let event = HomeEvent::from_msg(msg, node(from)).ok_or(Fault::WrongReceiver)?;
            self.home_event(config, block, event, data)
        } else {
            let (msg, data) = self.from_home[to][block].take(slot).expect("the caller saw a message");
            let event = NodeEvent::from_msg(msg).ok_or(Fault::WrongReceiver)?;
            self.node_event(config, to, block, event, data)
        }
    }
}

impl<const N: usize, const B: usize> Machine<N, B> for World<N, B> {
    type Mutation = Mutation;

    fn new(config: &Config<Mutation, B>) -> Self {
        let away = LocalCopy { data: false, tag: Tag::Invalid, miss: None };
        let mut world = World {
            copies: [[away; B]; N],
            bits: [[Bits::NONE; B]; N],
            dir: [Entry::UNSHARED; B],
            refused: [false; B],
            to_home: [[Channel::EMPTY; B]; N],
            from_home: [[Channel::EMPTY; B]; N],
        };
        for (block, &home) in config.homes.iter().enumerate() {
            world.copies[home][block] = LocalCopy { data: true, tag: Tag::Writable, miss: None };
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
            return self.home_event(config, block, World::<N, B>::local_event(access), None);
        }
        let event = match access {
            Access::Load => NodeEvent::Load,
            Access::Store => NodeEvent::Store,
        };
        self.node_event(config, at, block, event, None)
    }

    /// The load was a prefetch, say.
    fn can_raise_miss(&self, at: usize, block: usize) -> bool {
        self.copies[at][block].miss == Some(Access::Load)
    }

    fn can_evict(&self, config: &Config<Mutation, B>, at: usize, block: usize) -> bool {
        let copy = &self.copies[at][block];
        config.homes[block] != at && self.bits[at][block].is_empty() && copy.tag != Tag::Invalid
    }

    fn evict(&mut self, config: &Config<Mutation, B>, at: usize, block: usize) -> Result<(), Fault> {
        self.node_event(config, at, block, NodeEvent::Evict, None)
    }

    fn services(&self, config: &Config<Mutation, B>) -> Vec<Service> {
        let mut services = Vec::new();
        for block in 0..B {
            let home = config.homes[block];
            for at in 0..N {
                // Equal messages stand beside each other, and the order in which they arrive makes no difference.
                let to_home = 0..self.to_home[at][block].len();
                services.extend(to_home.map(|slot| Service::Deliver { channel: [at, home, block], slot }));
                let from_home = 0..self.from_home[at][block].len();
                services.extend(from_home.map(|slot| Service::Deliver { channel: [home, at, block], slot }));
                if self.bits[at][block].has_job() {
                    services.push(Service::Local { at, block });
                }
            }
            if self.refused[block] {
                services.push(Service::Local { at: home, block });
            }
        }
        services
    }

    fn is_retry(&self, service: Service) -> bool {
        match service {
            Service::Deliver { .. } => false,
            Service::Local { at, block } => self.refused[block] || self.bits[at][block].any(Bits::NR.with(Bits::NX)),
        }
    }

    fn serve(&mut self, config: &Config<Mutation, B>, service: Service) -> Result<(), Fault> {
        match service {
            Service::Deliver { channel, slot } => self.deliver(config, channel, slot),
            Service::Local { at, block } if config.homes[block] == at => {
                self.refused[block] = false;
                match self.copies[at][block].miss {
                    Some(access) => self.home_event(config, block, World::<N, B>::local_event(access), None),
                    // Served meanwhile.
                    None => Ok(()),
                }
            }
            Service::Local { at, block } => self.node_event(config, at, block, NodeEvent::Serve, None),
        }
    }

    fn for_data_on_its_way(&mut self, block: usize, mut change: impl FnMut(&mut bool)) {
        for channels in self.to_home.iter_mut().chain(&mut self.from_home) {
            channels[block].data_mut().for_each(&mut change);
        }
    }

    fn is_quiet(&self) -> bool {
        self.to_home.iter().chain(&self.from_home).flatten().all(Channel::is_empty)
            && self.bits.iter().flatten().all(|bits| bits.is_empty())
            && self.dir.iter().all(|entry| entry.decode().is_some_and(|state| !state.is_transitioning()))
            && self.copies.iter().flatten().all(|copy| copy.miss.is_none())
    }

    fn keeps_waiting(&self) -> bool {
        self.refused.contains(&true) || self.bits.iter().flatten().any(|bits| bits.any(Bits::NR.with(Bits::NX)))
    }
}
