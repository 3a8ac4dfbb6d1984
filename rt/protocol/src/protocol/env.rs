//! What the engine offers a protocol, while something happens to a block.
//!
//! Input: a protocol's wishes. Output: tags, data and messages, through the port. Larger blocks are taken apart and put together here.

use crate::bugs::has_bug;
use crate::ids::{Block, Data, NodeId};
use crate::port::{BlockSite, Port};
use crate::protocol::messages::PART;
use crate::protocol::parts::Parts;
use crate::protocol::pins::Pins;
use crate::storage::Storage;
use crate::tag::Tag;
use blizzard_contract::BLOCK_BYTES;

/// The state of a node, and what may be done with it, while something happens to a block.
pub struct Env<'a, M: Storage, P> {
    pub port: &'a mut P,
    pub pins: &'a mut Pins,
    pub(crate) parts: &'a mut Parts<M>,
}

impl<M: Storage, P: Port> Env<'_, M, P> {
    pub fn is_pinned(&self, block: Block) -> bool {
        self.pins.contains(block)
    }

    /// The block allows the access in progress, if that is what this node waits for: from now on it is pinned.
    #[inline]
    pub fn grant(&mut self, block: Block) {
        if has_bug!(self.port, AheadIsGranted) {
            self.pins.grant_any();
        }
        self.pins.grant(block);
    }

    /// The block at an address that has a home which this node knows.
    #[inline]
    pub fn site(&self, addr: u64) -> BlockSite {
        match self.port.site(addr) {
            Some(site) => site,
            None => self.refuse_homeless(addr),
        }
    }

    #[cold]
    fn refuse_homeless(&self, addr: u64) -> ! {
        self.port.fail(format_args!("block {addr:#x} has no home"))
    }

    #[inline]
    pub fn tag(&self, block: Block) -> Tag {
        match self.port.tag(block) {
            Some(tag) => tag,
            None => self.refuse_tag(block),
        }
    }

    #[cold]
    fn refuse_tag(&self, block: Block) -> ! {
        self.port.fail(format_args!("the tag of block {:#x} was overwritten", block.addr()))
    }

    /// Sets the tags of a block.
    #[inline]
    pub fn set_tag(&self, site: &BlockSite, tag: Tag) {
        let bytes = if has_bug!(self.port, TagOfFirstPart) { BLOCK_BYTES } else { site.bytes };
        self.port.set_tags(site.block, bytes, tag);
    }

    /// Writes the data of the message being handled into the own copy: what came before it, and its own, which is the last part.
    #[inline]
    pub fn copy_in(&mut self, site: &BlockSite, data: Option<&Data>) {
        let Some(data) = data else { self.refuse_no_data(site) };
        let last = site.bytes - BLOCK_BYTES;
        if last != 0 {
            self.copy_parts_in(site);
        }
        self.port.write(Block::of(site.block.addr() + last), data);
    }

    /// Whether the data of the message being handled differ from the own copy.
    pub fn brings_news(&self, site: &BlockSite, data: Option<&Data>) -> bool {
        let last = site.bytes / BLOCK_BYTES - 1;
        (0..=last).any(|part| {
            let own = self.port.read(Block::of(site.block.addr() + part * BLOCK_BYTES));
            if part == last { data != Some(&own) } else { self.parts.get(part) != own }
        })
    }

    #[inline(never)]
    fn copy_parts_in(&mut self, site: &BlockSite) {
        let last = site.bytes / BLOCK_BYTES - 1;
        for part in if has_bug!(self.port, LastPartOnly) { last..last } else { 0..last } {
            let data = self.parts.get(part);
            self.port.write(Block::of(site.block.addr() + part * BLOCK_BYTES), &data);
        }
    }

    #[cold]
    fn refuse_no_data(&self, site: &BlockSite) -> ! {
        self.port.fail(format_args!("protocol error: no data for block {:#x}", site.block.addr()))
    }

    /// A part, but for the last one, of the data of the message being handled.
    pub fn part(&self, part: u64) -> Data {
        self.parts.get(part)
    }

    /// Sends a message of the block's protocol to another node; `with_data`: with the bytes of the own copy as they are now.
    #[inline]
    pub fn send(&mut self, to: NodeId, site: &BlockSite, kind: u8, with_data: bool) {
        let number = site.protocol.number_of(kind);
        if !with_data {
            return self.port.send(to, number, site.block, None);
        }
        let last = site.bytes - BLOCK_BYTES;
        if last != 0 {
            self.send_parts(to, site);
        }
        let last = Block::of(site.block.addr() + last);
        let data = self.port.read(last);
        self.port.send(to, number, site.block, Some(&data));
    }

    #[inline(never)]
    fn send_parts(&mut self, to: NodeId, site: &BlockSite) {
        for part in 0..site.bytes / BLOCK_BYTES - 1 {
            let each = Block::of(site.block.addr() + part * BLOCK_BYTES);
            let data = self.port.read(each);
            self.port.send(to, PART, each, Some(&data));
        }
    }
}
