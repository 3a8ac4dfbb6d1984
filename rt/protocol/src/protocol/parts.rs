//! Data of blocks larger than a minimum block, which travels as messages of 64 bytes.
//!
//! Purpose: all parts but the last wait here. The last one is the protocol's own message; channels keep the order, so it finds the others
//! arrived. Input: parts by sender. Output: the whole block, when its last part is copied in.

use crate::ids::{Data, NodeId};
use crate::storage::{Storage, Table, Zeroed};
use blizzard_contract::{BLOCK_BYTES, BLOCK_MAX_BYTES};

/// Most minimum blocks of a block.
const MOST_PARTS: u64 = BLOCK_MAX_BYTES / BLOCK_BYTES;

/// What has come of a block's data.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Arriving {
    block: u64,
    parts: u64,
}

// SAFETY: integers.
unsafe impl Zeroed for Arriving {}

/// By source: data of larger blocks, up to the message that they belong to.
pub struct Parts<M: Storage> {
    arriving: M::Table<Arriving>,
    parts: M::Table<Data>,
    /// Whose parts belong to the message being handled.
    from: u64,
}

impl<M: Storage> Parts<M> {
    /// Of a run of so many nodes.
    pub(crate) fn new(nodes: u32) -> Result<Parts<M>, M::Error> {
        let nodes = u64::from(nodes);
        Ok(Parts { arriving: M::table(nodes)?, parts: M::table(nodes * MOST_PARTS)?, from: 0 })
    }

    /// A part arrives that is not the last: number `part` of the `parts` of a block; false if it comes out of turn.
    pub(crate) fn arrives(&mut self, from: NodeId, block: u64, (part, parts): (u64, u64), data: &Data) -> bool {
        let from = from.index() as u64;
        let arriving = self.arriving.get(from);
        let fits = (part == 0 || arriving == Arriving { block, parts: part }) && part + 1 != parts;
        self.arriving.set(from, if fits { Arriving { block, parts: part + 1 } } else { Arriving::default() });
        if fits {
            self.parts.set(from * MOST_PARTS + part, *data);
        }
        fits
    }

    /// A message with data of a larger block is handled: the last of the `parts`; false if the others have not come.
    pub(crate) fn completes(&mut self, from: NodeId, block: u64, parts: u64) -> bool {
        // Another message may have been put aside and come between the parts of what is arriving.
        self.from = from.index() as u64;
        let arriving = self.arriving.get(self.from);
        self.arriving.set(self.from, Arriving::default());
        arriving == Arriving { block, parts: parts - 1 }
    }

    /// A part of the data that the message being handled completes.
    pub(crate) fn get(&self, part: u64) -> Data {
        self.parts.get(self.from * MOST_PARTS + part)
    }
}
