//! Data of blocks larger than a minimum block, which travels as messages of 64 bytes.
//!
//! Purpose: all parts but the last wait here. The last one is the protocol's own message; channels keep the order, so it finds the others
//! arrived. Input: parts by sender. Output: the whole block, when its last part is copied in.

use crate::ids::{Data, NodeId};
use crate::storage::{Storage, Table};
use blizzard_contract::{BLOCK_BYTES, BLOCK_MAX_BYTES, MAX_NODES};

/// Most minimum blocks of a block.
const MOST_PARTS: u64 = BLOCK_MAX_BYTES / BLOCK_BYTES;

/// What has come of a block's data.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Arriving {
    block: u64,
    parts: u64,
}

/// By source: data of larger blocks, up to the message that they belong to.
pub struct Parts<M: Storage> {
    arriving: [Arriving; MAX_NODES],
    parts: M::Table<Data>,
    /// Whose parts belong to the message being handled.
    from: usize,
}

impl<M: Storage> Parts<M> {
    pub(crate) fn new() -> Result<Parts<M>, M::Error> {
        let parts = M::table(MAX_NODES as u64 * MOST_PARTS)?;
        Ok(Parts { arriving: [Arriving::default(); MAX_NODES], parts, from: 0 })
    }

    /// A part arrives that is not the last: number `part` of the `parts` of a block; false if it comes out of turn.
    pub(crate) fn arrives(&mut self, from: NodeId, block: u64, (part, parts): (u64, u64), data: &Data) -> bool {
        let Some(arriving) = self.arriving.get_mut(from.index()) else { return false };
        if part == 0 {
            *arriving = Arriving { block, parts: 0 };
        }
        if arriving.block != block || arriving.parts != part || part + 1 == parts {
            *arriving = Arriving::default();
            return false;
        }
        arriving.parts += 1;
        self.parts.set(from.index() as u64 * MOST_PARTS + part, *data);
        true
    }

    /// A message with data of a larger block is handled: the last of the `parts`; false if the others have not come.
    pub(crate) fn completes(&mut self, from: NodeId, block: u64, parts: u64) -> bool {
        // Another message may have been put aside and come between the parts of what is arriving.
        let Some(arriving) = self.arriving.get_mut(from.index()).map(core::mem::take) else { return false };
        self.from = from.index();
        arriving == Arriving { block, parts: parts - 1 }
    }

    /// A part of the data that the message being handled completes.
    pub(crate) fn get(&self, part: u64) -> Data {
        self.parts.get(self.from as u64 * MOST_PARTS + part)
    }
}
