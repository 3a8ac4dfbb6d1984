//! The protocol's state on one node, and its steps; the tables are in [`crate::protocols::home`].
//!
//! Input: misses and messages from the engine. Output: tags, data and messages.
//! There are no requests ahead: who asks before an access would keep the block from others.

use crate::bugs::has_bug;
use crate::ids::{Block, Data, NodeId};
use crate::port::{BlockSite, Port};
use crate::protocol::env::Env;
use crate::protocol::messages::{Incoming, MessageRow, reject};
use crate::protocol::pins::Pins;
use crate::protocol::seam::{Protocol, first_touch};
use crate::storage::{Queue, Storage, Table, Zeroed};
use crate::tag::Tag;
use blizzard_contract::Counter;

/// Node to home: lend me the block.
const BORROW: u8 = 1;
/// Node to home, with data: I have used it.
const RETURN: u8 = 2;
/// Home to node, with data.
const LEND: u8 = 3;
/// Home to node: others wait for the block.
const RECALL: u8 = 4;
/// Home to node, with data: as a Lend, until there is a Recall.
const LEAVE: u8 = 5;

pub const MESSAGES: &[MessageRow] = &[
    MessageRow { name: "Borrow", is_for_home: true, carries_data: false, is_answer: false },
    MessageRow { name: "Return", is_for_home: true, carries_data: true, is_answer: false },
    MessageRow { name: "Lend", is_for_home: false, carries_data: true, is_answer: true },
    MessageRow { name: "Recall", is_for_home: false, carries_data: false, is_answer: false },
    MessageRow { name: "Leave", is_for_home: false, carries_data: true, is_answer: true },
];

/// So many times in a row a node gives a block back by itself, after another one has wanted it. Then it keeps it.
const VISITS: u16 = 8;

/// Who has a block: 0 its home, else the number of a node + 1.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Holder(u16);

// SAFETY: an integer.
unsafe impl Zeroed for Holder {}

impl Holder {
    const HOME: Holder = Holder(0);

    fn of(node: NodeId) -> Holder {
        Holder(node.index() as u16 + 1)
    }

    /// `None`: the home.
    fn node(self) -> Option<NodeId> {
        NodeId::new(self.0.checked_sub(1)?.into())
    }
}

/// What a home knows of a block. Zero: it has never been lent.
#[derive(Clone, Copy)]
struct Entry {
    holder: Holder,
    /// To whom it was lent last; the home, if to nobody.
    last: Holder,
    /// How many more times the same node is to give it back by itself.
    visits: u16,
}

// SAFETY: integers.
unsafe impl Zeroed for Entry {}

impl Entry {
    /// Lent once more, to that node; the message that says so.
    fn lent_to(self, to: Holder) -> (Entry, u8) {
        let visits = if self.last == to || self.last == Holder::HOME { self.visits } else { VISITS };
        let kind = if visits == 0 { LEAVE } else { LEND };
        (Entry { holder: to, last: to, visits: visits.saturating_sub(1) }, kind)
    }
}

/// Somebody who waits for a block at its home; without a node: the home's own program.
#[derive(Clone, Copy)]
struct Waiting {
    block: Block,
    who: Holder,
}

// SAFETY: integers.
unsafe impl Zeroed for Waiting {}

/// The protocol's state on one node.
pub struct Home<M: Storage> {
    /// By minimum block; used for blocks whose home this node is.
    entries: M::Table<Entry>,
    waiting: Queue<Waiting, M>,
    asked: Option<Block>,
    /// What was lent to this node since the last entry into the runtime, in the order in which it came.
    used: Queue<u64, M>,
}

impl<M: Storage> Protocol<M> for Home<M> {
    fn new(blocks: u64, _nodes: u32) -> Result<Home<M>, M::Error> {
        Ok(Home { entries: M::table(blocks)?, waiting: Queue::new(), asked: None, used: Queue::new() })
    }

    fn miss<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, _store: bool) {
        if site.home == env.port.me() {
            self.wanted(env, site, Holder::HOME);
        } else {
            self.asked = Some(site.block);
            env.send(site.home, site, BORROW, false);
        }
    }

    fn message<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, message: &Incoming<'_>) {
        match message.kind {
            BORROW => self.wanted(env, site, Holder::of(message.from)),
            RETURN => self.returned(env, site, message.from, message.data),
            LEND | LEAVE if self.asked == Some(site.block) => {
                self.asked = None;
                env.copy_in(site, message.data);
                env.set_tag(site, Tag::Writable);
                env.grant(site.block);
                if message.kind == LEND && self.used.push(site.block.addr()).is_err() {
                    env.port.fail(format_args!("no memory for the list of borrowed blocks"));
                }
            }
            // Otherwise it has been given back already.
            RECALL if env.tag(site.block) == Tag::Writable => give_back(env, site),
            RECALL => {}
            _ => reject(env.port),
        }
    }

    #[inline]
    fn is_at_rest(&self) -> bool {
        self.waiting.is_empty() && self.used.is_empty()
    }

    /// Lends what was pinned, and gives back what has been used.
    fn resume<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
        self.serve_waiting(env);
        self.give_back_used(env);
    }

    fn has_put_off_work(&self, pins: &Pins) -> bool {
        !self.used.is_empty() || self.waiting.iter().any(|each| pins.contains(each.block))
    }

    fn keep(&mut self) {
        while self.used.pop().is_some() {}
    }

    fn evict<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite) {
        give_back(env, site);
    }

    fn is_outstanding(&self, block: Block) -> bool {
        self.asked == Some(block)
    }

    fn has_outstanding(&self) -> bool {
        self.asked.is_some()
    }

    fn is_unshared(&self, number: u64) -> bool {
        self.holder(number) == Holder::HOME
    }

    /// Node 0 has the page's data, in a copy that it goes on using.
    fn begin_away<P: Port>(&mut self, _env: &mut Env<'_, M, P>, number: u64, holder: NodeId) {
        self.set_holder(number, Holder::of(holder));
    }
}

impl<M: Storage> Home<M> {
    /// Not what the access in progress, or the system call that is being prepared, needs.
    fn give_back_used<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
        for _ in 0..self.used.len() {
            let Some(addr) = self.used.pop() else { break };
            let site = env.site(addr);
            let is_needed = env.is_pinned(site.block) || env.pins.collects();
            if is_needed {
                if self.used.push(addr).is_err() {
                    env.port.fail(format_args!("no memory for the list of borrowed blocks"));
                }
            } else if env.tag(site.block) == Tag::Writable {
                give_back(env, &site);
            }
        }
    }

    fn holder(&self, number: u64) -> Holder {
        self.entries.get(number).holder
    }

    fn set_holder(&mut self, number: u64, holder: Holder) {
        self.entries.set(number, Entry { holder, ..self.entries.get(number) });
    }

    fn is_waited_for(&self, block: Block) -> bool {
        self.waiting.iter().any(|each| each.block == block)
    }

    /// At the home: whether node 0 gives back, unasked, what it has had since before this node existed, as the first event of the page.
    #[cold]
    fn is_first_of_page<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        number: u64,
        from: NodeId,
    ) -> bool {
        if self.holder(number) == Holder::HOME && env.tag(site.block) == Tag::Invalid {
            first_touch(self, env, site);
        }
        self.holder(number) == Holder::of(from)
    }

    /// At the home: somebody wants the block.
    fn wanted<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, who: Holder) {
        let number = env.port.number(site.block);
        if self.holder(number) == Holder::HOME && env.tag(site.block) == Tag::Invalid {
            first_touch(self, env, site);
        }
        let is_first = !self.is_waited_for(site.block);
        if is_first && self.is_served(env, site, number, who) {
            return;
        }
        if self.waiting.push(Waiting { block: site.block, who }).is_err() {
            env.port.fail(format_args!("no memory for the list of waiting nodes"));
        }
        if is_first {
            self.recall(env, site, number);
        }
    }

    /// At the home: the block goes to who wants it, if it is here.
    fn is_served<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, number: u64, who: Holder) -> bool {
        if self.holder(number) != Holder::HOME {
            return false;
        }
        match who.node() {
            None => env.grant(site.block),
            Some(_) if env.is_pinned(site.block) => return false,
            Some(to) => {
                let (entry, kind) = self.entries.get(number).lent_to(who);
                self.entries.set(number, entry);
                if !has_bug!(env.port, LentCopyStays) {
                    env.set_tag(site, Tag::Invalid);
                }
                env.send(to, site, kind, true);
            }
        }
        true
    }

    /// At the home: asks for a block that is lent. Who borrows it next time gives it back by itself.
    fn recall<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, number: u64) {
        let entry = self.entries.get(number);
        if let Some(holder) = entry.holder.node() {
            self.entries.set(number, Entry { visits: VISITS, ..entry });
            env.send(holder, site, RECALL, false);
        }
    }

    /// At the home: a node has used the block.
    fn returned<P: Port>(&mut self, env: &mut Env<'_, M, P>, site: &BlockSite, from: NodeId, data: Option<&Data>) {
        let number = env.port.number(site.block);
        if self.holder(number) != Holder::of(from) && !self.is_first_of_page(env, site, number, from) {
            return reject(env.port);
        }
        env.copy_in(site, data);
        self.set_holder(number, Holder::HOME);
        env.set_tag(site, Tag::Writable);
        self.serve_waiting(env);
    }

    /// At the home: serves those who wait, in order, as far as their blocks are here.
    fn serve_waiting<P: Port>(&mut self, env: &mut Env<'_, M, P>) {
        for _ in 0..self.waiting.len() {
            let Some(Waiting { block, who }) = self.waiting.pop() else { break };
            let site = env.site(block.addr());
            let number = env.port.number(block);
            if !self.is_served(env, &site, number, who) {
                if self.waiting.push(Waiting { block, who }).is_err() {
                    env.port.fail(format_args!("no memory for the list of waiting nodes"));
                }
            } else if who != Holder::HOME && self.is_waited_for(block) {
                self.recall(env, &site, number);
            }
        }
    }
}

/// Returns a block to its home.
fn give_back<M: Storage, P: Port>(env: &mut Env<'_, M, P>, site: &BlockSite) {
    env.set_tag(site, Tag::Invalid);
    env.port.count(Counter::WriteBacks);
    env.send(site.home, site, RETURN, true);
}
