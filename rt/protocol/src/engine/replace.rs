//! The finite stache: copies of other nodes' pages, and what the program says about their use.
//!
//! Purpose: a node keeps copies from at most `Pages::limit` pages of other homes. A miss on one more page makes room: the oldest page that has not
//! missed again since its last turn gives its blocks back, modified ones with their data, and its memory to the kernel. The same
//! eviction of blocks serves check-in; prefetch and check-out acquire blocks before they are needed. Input: misses and hints.
//! Output: events of the protocol's driver. Source: Reinhardt 1996, section 2.3 (page replacement); Hill et al., Cooperative Shared Memory,
//! 1993 (check-in, check-out).
//!
//! **Invariants**
//! * Nothing of a page that the access in progress uses is evicted, nor a block with an outstanding request. If every page is in
//!   use, the node keeps more pages than the limit, and counts it.
//! * Hints never change results: each is a sequence of steps that any node may take at any time.

use crate::bugs::has_bug;
use crate::engine::access::Engine;
use crate::engine::pages::{PageState, RESIDENT, USED, page_address, page_number};
use crate::ids::{Block, PAGE_BYTES};
use crate::port::{BlockSite, Port};
use crate::storage::{Storage, Table};
use crate::tag::Tag;
use blizzard_contract::Counter;

/// What became of a request that nobody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AheadAnswer {
    Yes,
    /// The block is here, in use, or cannot be had this way.
    NotNeeded,
    /// As many requests are outstanding as may be.
    TooMany,
}

impl<M: Storage> Engine<M> {
    /// A block is about to be acquired: makes room for its page if it has another home.
    #[inline]
    pub(crate) fn note_page<P: Port>(&mut self, port: &mut P, site: &BlockSite) {
        if self.pages.limit != 0 && site.home != port.me() {
            self.make_room_for_page_of(port, site.block);
        }
    }

    /// A page was acquired before its home existed: see [`Engine::note_page`].
    pub fn note_page_of<P: Port>(&mut self, port: &mut P, addr: u64) {
        if let Some(site) = port.site(addr) {
            self.note_page(port, &site);
        }
    }

    /// Stops replacement while the memory of a system call is acquired, range by range. `hold` is false when all of it is here.
    pub fn hold_pages(&mut self, port: &impl Port, hold: bool) {
        self.pins.set_collects(hold && !has_bug!(port, HoldsNoPages));
        if !hold {
            self.protocols.keep();
        }
    }

    #[inline(never)]
    fn make_room_for_page_of<P: Port>(&mut self, port: &mut P, block: Block) {
        let number = page_number(block);
        let PageState(state) = self.pages.states.get(number);
        self.pages.states.set(number, PageState(RESIDENT | if state == 0 { 0 } else { USED }));
        if state != 0 {
            return;
        }
        // More than one when earlier ones were in use at their turn.
        while self.pages.order.len() >= self.pages.limit {
            if self.pins.collects() || !self.replace_page(port) {
                port.count(Counter::StacheOverruns);
                break;
            }
        }
        self.push_page(port, number);
    }

    fn push_page(&mut self, port: &impl Port, number: u64) {
        if self.pages.order.push(number).is_err() {
            port.fail(format_args!("no memory for the list of copied pages"));
        }
    }

    /// Gives the oldest page back that can be; false when none can.
    fn replace_page<P: Port>(&mut self, port: &mut P) -> bool {
        // Each page has at most two turns: one to lose its mark, one to go.
        for _ in 0..2 * self.pages.order.len() {
            let Some(number) = self.pages.order.pop() else { return false };
            let PageState(state) = self.pages.states.get(number);
            let goes = if state & USED != 0 {
                self.pages.states.set(number, PageState(RESIDENT));
                false
            } else {
                self.evict_page(port, page_address(number))
            };
            if goes {
                self.pages.states.set(number, PageState(0));
                port.count(Counter::PagesReplaced);
                return true;
            }
            self.push_page(port, number);
        }
        false
    }

    /// Evicts all blocks of a page; false, and the page stays, when one is in use.
    fn evict_page<P: Port>(&mut self, port: &mut P, page: u64) -> bool {
        let unit = port.block_bytes(page) as usize;
        let blocks = || (page..page + PAGE_BYTES).step_by(unit);
        let sites = |port: &P, addr| port.site(addr);
        if blocks().any(|addr| sites(port, addr).is_none_or(|site| self.is_in_use(port, &site))) {
            return false;
        }
        let evicted = if has_bug!(port, EvictsFirstBlockOnly) { 1 } else { usize::MAX };
        for addr in blocks().take(evicted) {
            if let Some(site) = sites(port, addr) {
                self.evict(port, &site);
            }
        }
        // Every block is Invalid now: nobody reads what the kernel takes.
        port.discard(page, PAGE_BYTES);
        true
    }

    /// Whether the access in progress, a message put aside or an outstanding request is about the block.
    fn is_in_use(&self, port: &impl Port, site: &BlockSite) -> bool {
        let block = site.block;
        if has_bug!(port, ReplacesWhatIsUsed) {
            return port.tag(block) == Some(Tag::Busy);
        }
        self.is_outstanding(site)
            || port.tag(block) == Some(Tag::Busy)
            || self.pins.is_acquiring(block)
            || self.pins.contains(block)
            || self.is_held(port, block)
    }

    /// Gives a copy back, if there is one. The block is in another home's page and not in use.
    fn evict<P: Port>(&mut self, port: &mut P, site: &BlockSite) -> bool {
        let (_, env) = self.parts(port);
        if !matches!(env.tag(site.block), Tag::ReadOnly | Tag::Writable) {
            return false;
        }
        port.count(Counter::BlocksEvicted);
        if has_bug!(port, EvictsWithoutData) {
            port.set_tags(site.block, site.bytes, Tag::Invalid);
            return true;
        }
        let (protocols, mut env) = self.parts(port);
        protocols.evict(&mut env, site);
        true
    }

    /// Asks for a block, if it makes sense and one more request may be outstanding. `makes_room`: also if another page has to go.
    pub(crate) fn ask_block<P: Port>(
        &mut self,
        port: &mut P,
        block: Block,
        store: bool,
        makes_room: bool,
    ) -> AheadAnswer {
        // Of a page that nobody has used there is nothing to fetch.
        let Some(site) = port.site(block.addr()) else { return AheadAnswer::NotNeeded };
        if port.allows(block, store) || self.is_in_use(port, &site) {
            return AheadAnswer::NotNeeded;
        }
        let own = site.home == port.me();
        if !self.protocols.is_worth_asking(port, &site) || !(own || makes_room || self.pages.has_room_for(block)) {
            return AheadAnswer::NotNeeded;
        }
        if !self.protocols.may_ask(&site) {
            return AheadAnswer::TooMany;
        }
        self.note_page(port, &site);
        let (protocols, mut env) = self.parts(port);
        protocols.ask(&mut env, &site, store);
        AheadAnswer::Yes
    }

    /// Asks for a block that the program says it will use; whether it did.
    pub fn prefetch<P: Port>(&mut self, port: &mut P, block: Block, store: bool) -> bool {
        let asked = self.ask_block(port, block, store, true) == AheadAnswer::Yes;
        if asked {
            port.count(Counter::Prefetches);
        }
        asked
    }

    /// Gives the copy of a block back to its home, if it is not in use; whether it did.
    pub fn check_in<P: Port>(&mut self, port: &mut P, block: Block) -> bool {
        let site = port.site(block.addr()).filter(|site| site.home != port.me());
        site.is_some_and(|site| !self.is_in_use(port, &site) && self.evict(port, &site))
    }
}
