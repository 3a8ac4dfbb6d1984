//! The protocol's state on one node, and its steps; the tables are in [`crate::protocols::reduce`].
//!
//! Input: misses, messages, and the barriers of all nodes. Output: tags, data and messages.
//! There are no requests ahead: a copy that came after the next barrier would be an old one.

use crate::bugs::has_bug;
use crate::ids::{BLOCK_WORDS, Block, Data, NodeId};
use crate::operation::Operation;
use crate::port::{BlockSite, Port, Rounds};
use crate::protocol::env::Env;
use crate::protocol::messages::{Incoming, MessageRow, reject};
use crate::protocol::pins::Pins;
use crate::protocol::seam::Protocol;
use crate::storage::{Queue, Storage, Table, Zeroed};
use crate::tag::Tag;
use blizzard_contract::BLOCK_BYTES;

/// Node to home: the value as of the barrier that I have left; the parity of how many these are is added.
const FETCH: u8 = 1;
/// Node to home, with data: what I have added in the round that ends with the barrier of that parity.
const ADD: u8 = 3;
/// Home to node, with data.
const COPY: u8 = 5;

pub const MESSAGES: &[MessageRow] = &[
    MessageRow { name: "FetchEven", is_for_home: true, carries_data: false, is_answer: false },
    MessageRow { name: "FetchOdd", is_for_home: true, carries_data: false, is_answer: false },
    MessageRow { name: "AddEven", is_for_home: true, carries_data: true, is_answer: false },
    MessageRow { name: "AddOdd", is_for_home: true, carries_data: true, is_answer: false },
    MessageRow { name: "Copy", is_for_home: false, carries_data: true, is_answer: true },
];

const fn parity(barriers: u64) -> u8 {
    (barriers % 2) as u8
}

/// How many barriers are over.
const fn left(rounds: Rounds) -> u64 {
    rounds.entered - rounds.waits as u64
}

/// The barrier that ends the round which the program is in, or has just come to the end of.
const fn next(rounds: Rounds) -> u64 {
    left(rounds) + 1
}

/// What this node does with a minimum block in this round.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Use(u8);

// SAFETY: an integer.
unsafe impl Zeroed for Use {}

impl Use {
    const NONE: Use = Use(0);
    /// It is in the list of those that have a copy.
    const LISTED: u8 = 1;
    /// The program adds to it.
    const OPEN: u8 = 2;

    const fn is_open(self) -> bool {
        self.0 & Use::OPEN != 0
    }
}

/// What a node has added to a minimum block of this home.
#[derive(Clone, Copy)]
struct Added {
    addr: u64,
    parity: u64,
    data: Data,
}

// SAFETY: integers.
unsafe impl Zeroed for Added {}

/// The protocol's state on one node.
pub struct Reduce<M: Storage> {
    /// By minimum block, those of larger blocks in the first one: used for blocks of other homes.
    uses: M::Table<Use>,
    /// Addresses of those that are not [`Use::NONE`].
    list: Queue<u64, M>,
    asked: Option<Block>,
    /// By node: what it has added to blocks of this home, in the order of the rounds. Nothing until there are such blocks.
    added: M::Slice<Queue<Added, M>>,
}

impl<M: Storage> Protocol<M> for Reduce<M> {
    fn new(blocks: u64, nodes: u32) -> Result<Reduce<M>, M::Error> {
        let added = M::slice(if blocks == 0 { 0 } else { nodes as usize }, Queue::new)?;
        Ok(Reduce { uses: M::table(blocks)?, list: Queue::new(), asked: None, added })
    }

    fn miss<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, store: bool) {
        if site.home == env.port.me() {
            touch(env, site);
            env.grant(site.block);
        } else if self.use_of(env.port, site).is_open() {
            self.enlist(env, site);
            fill(env, site, operation(env, site).neutral());
            env.set_tag(site, Tag::Writable);
            env.grant(site.block);
        } else if store {
            env.port.fail(format_args!(
                "a store to {:#x}, of memory with the protocol `reduce`, whose home is node {}: another node adds to it after `bz_check_out` to store, and until the next barrier of all nodes",
                site.block.addr(),
                site.home.index()
            ))
        } else {
            self.asked = Some(site.block);
            let barrier = left(env.port.rounds());
            env.send(site.home, site, FETCH + parity(barrier), false);
        }
    }

    fn message<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, message: &Incoming<'_>) {
        match message.kind {
            kind @ (FETCH | 2) => {
                let rounds = env.port.rounds();
                if rounds.waits && kind - FETCH == parity(rounds.entered) && !has_bug!(env.port, AddsComeLate) {
                    self.combine(env, rounds.entered);
                }
                touch(env, site);
                env.send(message.from, site, COPY, true);
            }
            kind @ (ADD | 4) => self.keep(env, site, kind - ADD, message),
            COPY if self.asked == Some(site.block) => {
                self.asked = None;
                self.enlist(env, site);
                env.copy_in(site, message.data);
                env.set_tag(site, Tag::ReadOnly);
                env.grant(site.block);
            }
            _ => reject(env.port),
        }
    }

    #[inline]
    fn is_at_rest(&self) -> bool {
        true
    }

    fn resume<P: Port>(&mut self, _env: &mut Env<'_, M, P>) {}

    fn has_put_off_work(&self, _pins: &Pins) -> bool {
        false
    }

    fn evict<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite) {
        give_up(env, site);
    }

    fn is_outstanding(&self, block: Block) -> bool {
        self.asked == Some(block)
    }

    fn has_outstanding(&self) -> bool {
        self.asked.is_some()
    }

    fn is_unshared(&self, _number: u64) -> bool {
        true
    }

    /// Such memory is handed out when all nodes exist.
    fn begin_away<P: Port>(&mut self, _env: &mut Env<'_, M, P>, _number: u64, _holder: NodeId) {}

    fn begin_to_store<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite) -> bool {
        let found = self.use_of(env.port, site);
        if site.home != env.port.me() && !found.is_open() {
            self.enlist(env, site);
            self.uses.set(env.port.number(site.block), Use(Use::LISTED | Use::OPEN));
            env.set_tag(site, Tag::Invalid);
        }
        true
    }

    fn round_ends<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
        while let Some(addr) = self.list.pop() {
            let site = env.site(addr);
            if env.tag(site.block) != Tag::Invalid {
                give_up(env, &site);
            }
            self.uses.set(env.port.number(site.block), Use::NONE);
        }
    }

    fn round_begins<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
        self.combine(env, env.port.rounds().entered);
    }

    fn forget<P: Port>(&mut self, env: &mut Env<'_, M, P>, addr: u64, bytes: u64) {
        let is_inside = |at: u64| (addr..addr + bytes).contains(&at);
        for _ in 0..self.list.len() {
            let Some(at) = self.list.pop() else { break };
            if is_inside(at) {
                self.uses.set(env.port.number(Block::of(at)), Use::NONE);
            } else {
                push(env, &mut self.list, at);
            }
        }
        for queue in self.added.iter_mut() {
            for _ in 0..queue.len() {
                let Some(each) = queue.pop() else { break };
                if !is_inside(each.addr) {
                    push(env, queue, each);
                }
            }
        }
        for at in (addr..addr + bytes).step_by(BLOCK_BYTES as usize) {
            env.port.set_tags(Block::of(at), BLOCK_BYTES, Tag::Invalid);
        }
    }
}

impl<M: Storage> Reduce<M> {
    fn use_of(&self, port: &impl Port, site: &BlockSite) -> Use {
        self.uses.get(port.number(site.block))
    }

    fn enlist<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite) {
        if self.use_of(env.port, site) == Use::NONE {
            self.uses.set(env.port.number(site.block), Use(Use::LISTED));
            push(env, &mut self.list, site.block.addr());
        }
    }

    /// At the home: a node has added.
    fn keep<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, parity: u8, message: &Incoming<'_>) {
        let (Some(last), Some(queue)) = (message.data, self.added.get_mut(message.from.index())) else {
            return reject(env.port);
        };
        let parts = site.bytes / BLOCK_BYTES;
        for part in 0..parts {
            let data = if part == parts - 1 { *last } else { env.part(part) };
            let addr = site.block.addr() + part * BLOCK_BYTES;
            push(env, queue, Added { addr, parity: parity.into(), data });
        }
    }

    /// At the home: all have entered that barrier.
    fn combine<P: Port>(&mut self, env: &mut Env<'_, M, P>, barrier: u64) {
        let parity = u64::from(parity(barrier));
        let backwards = has_bug!(env.port, NodesCombinedBackwards);
        let mixed = has_bug!(env.port, RoundsAreMixed);
        let nodes = self.added.len();
        for number in 0..nodes {
            let queue = &mut self.added[if backwards { nodes - 1 - number } else { number }];
            while let Some(added) = queue.get(0).filter(|added| added.parity == parity || mixed) {
                queue.pop();
                let site = env.site(added.addr);
                touch(env, &site);
                let (block, operation) = (Block::of(added.addr), operation(env, &site));
                let mut data = env.port.read(block);
                data.iter_mut().zip(added.data).for_each(|(word, more)| *word = operation.apply(*word, more));
                env.port.write(block, &data);
            }
        }
    }
}

/// At the home: of a page that nobody has used the home uses the block first.
fn touch<M: Storage, P: Port>(env: &mut Env<'_, M, P>, site: &BlockSite) {
    if env.tag(site.block) == Tag::Invalid {
        fill(env, site, operation(env, site).initial());
        env.set_tag(site, Tag::Writable);
    }
}

/// Elsewhere: the copy goes, with what was added to it.
fn give_up<M: Storage, P: Port>(env: &mut Env<'_, M, P>, site: &BlockSite) {
    if env.tag(site.block) == Tag::Writable {
        let neutral = operation(env, site).neutral();
        let is_used = blocks(site).any(|part| env.port.read(part).iter().any(|&word| word != neutral));
        if is_used {
            let barrier = next(env.port.rounds());
            env.send(site.home, site, ADD + parity(barrier), true);
            env.port.fence(site.home);
        }
    }
    env.set_tag(site, Tag::Invalid);
}

fn fill<M: Storage, P: Port>(env: &mut Env<'_, M, P>, site: &BlockSite, word: u64) {
    let data: Data = [word; BLOCK_WORDS];
    blocks(site).for_each(|part| env.port.write(part, &data));
}

fn blocks(site: &BlockSite) -> impl Iterator<Item = Block> + use<> {
    let first = site.block.addr();
    (first..first + site.bytes).step_by(BLOCK_BYTES as usize).map(Block::of)
}

fn operation<M: Storage, P: Port>(env: &Env<'_, M, P>, site: &BlockSite) -> Operation {
    match env.port.operation(site.block) {
        Some(operation) => operation,
        None => env.port.fail(format_args!("block {:#x} has no operation", site.block.addr())),
    }
}

fn push<M: Storage, P: Port, T: Zeroed>(env: &Env<'_, M, P>, queue: &mut Queue<T, M>, value: T) {
    if queue.push(value).is_err() {
        env.port.fail(format_args!("no memory for the list of blocks that nodes add to"));
    }
}
