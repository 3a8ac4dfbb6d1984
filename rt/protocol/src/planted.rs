//! Planted bugs: what `blizzard stress` and the exploration of real nodes must find.
//!
//! Purpose: each bug of the list breaks one rule, so that a test can show that the random tester notices the first ten, and the exploration all
//! others. Only unit tests, and a runtime that tests build with the feature `planted`, contain any of this. Input: the bug that
//! [`Port::bug`] names. Output: steps that are left out, done too early or done wrong. Here is what does not depend on the protocol;
//! `stache/planted.rs` and `mcm/planted.rs` stand between the protocols' steps and their actions. For the first ten, blocks have 64 bytes. Those from
//! [`Bug::TagOfFirstPart`] on are a condition each where they are (`has_bug`); those of system calls, created nodes and bulk transfers are in the runtime.

#[cfg(feature = "planted")]
pub use enabled::*;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// An invalidation is acknowledged, but the copy stays.
    LostInvalidation,
    /// The home answers a store before the other copies are gone: the answer goes out first, then the invalidations (with Stache later), and
    /// nobody waits for their acknowledgements.
    EarlyReply,
    /// The tag is raised and the program goes on; the data come only at the next entry into the runtime.
    TagBeforeData,
    /// The home takes a block back, but not its data.
    LostWriteBack,
    /// A recalled block is sent home, but its owner goes on writing it.
    RecallKeepsWritable,
    /// The home gives a block away, but goes on using its own copy.
    HomeKeepsTag,
    /// The last word of a block does not arrive.
    ShortCopy,
    /// The home answers a read with its own copy although another node owns the block.
    StaleReply,
    /// A node whose copy was invalidated while it asked to upgrade it goes on with what it has.
    UpgradeWithoutData,
    /// The home's own store sends the invalidations, but does not wait for their acknowledgements.
    HomeStoreDoesNotWait,

    // Of larger blocks.
    /// Only the first minimum block of a block gets the new tag.
    TagOfFirstPart,
    /// Only the last part of the data is copied in.
    LastPartOnly,
    /// Parts that come from different nodes are collected in one place.
    PartsInOnePlace,

    // Of replacement.
    /// A modified block is given up, but its data are not sent home.
    EvictsWithoutData,
    /// A page is replaced that the access in progress uses.
    ReplacesWhatIsUsed,
    /// Of a page that is replaced, only the first block is given back.
    EvictsFirstBlockOnly,

    // Of system calls.
    /// The memory of a call is acquired range by range, and nobody looks whether all of it is there at the end.
    OnePass,
    /// After messages were served in front of a call its memory is not acquired again.
    CallIsNotPreparedAgain,
    /// Pages are replaced while the memory of a call is acquired.
    HoldsNoPages,

    // Of requests ahead.
    /// An access that finds its block asked for takes it as it comes, though it may be for loads only.
    JoinsAnyRequest,
    /// The answer to a request ahead ends the wait for another block.
    AheadIsGranted,
    /// A home forgets that it has asked for a block of its own.
    OwnAheadIsForgotten,

    // Of first touch.
    /// The keeper of a page's entry makes each node that asks the page's home.
    TwoHomes,
    /// Who asks for a home takes the page itself.
    AskerIsHome,
    /// What reaches a home before it knows that it is one is dropped.
    EarlyMessageIsDropped,

    // Of created nodes.
    /// Node 0 does not hold the pages that it has not touched.
    HoldsNoUntouchedPage,
    /// The created nodes do not hear what node 0 has handed out before.
    LimitsAreLost,
    /// Node 0 goes on as if it were the home of all pages.
    NodeZeroKeepsHomes,

    // Of bulk transfers.
    /// The last piece of a transfer is not waited for.
    BulkEndsEarly,
    /// The source stages pieces that the destination has claimed.
    StagesWhatIsClaimed,
}

/// By number, from 1.
pub const BUGS: [Bug; 30] = [
    Bug::LostInvalidation,
    Bug::EarlyReply,
    Bug::TagBeforeData,
    Bug::LostWriteBack,
    Bug::RecallKeepsWritable,
    Bug::HomeKeepsTag,
    Bug::ShortCopy,
    Bug::StaleReply,
    Bug::UpgradeWithoutData,
    Bug::HomeStoreDoesNotWait,
    Bug::TagOfFirstPart,
    Bug::LastPartOnly,
    Bug::PartsInOnePlace,
    Bug::EvictsWithoutData,
    Bug::ReplacesWhatIsUsed,
    Bug::EvictsFirstBlockOnly,
    Bug::OnePass,
    Bug::CallIsNotPreparedAgain,
    Bug::HoldsNoPages,
    Bug::JoinsAnyRequest,
    Bug::AheadIsGranted,
    Bug::OwnAheadIsForgotten,
    Bug::TwoHomes,
    Bug::AskerIsHome,
    Bug::EarlyMessageIsDropped,
    Bug::HoldsNoUntouchedPage,
    Bug::LimitsAreLost,
    Bug::NodeZeroKeepsHomes,
    Bug::BulkEndsEarly,
    Bug::StagesWhatIsClaimed,
];

/// Whether that bug is planted. Never in a runtime that Blizzard embeds.
macro_rules! has_bug {
    ($port:expr, $bug:ident) => {
        cfg!(feature = "planted") && $port.bug() == Some($crate::planted::Bug::$bug)
    };
}
pub(crate) use has_bug;

#[cfg(feature = "planted")]
mod enabled {
    use super::Bug;
    use crate::ids::{BLOCK_WORDS, Block, Data, NodeId};
    use crate::port::{Port, Site};
    use blizzard_contract::BLOCK_BYTES;
    use core::sync::atomic::{AtomicU64, Ordering};

    /// Of [`Bug::TagBeforeData`]: the block whose data are late, or 0, and the data.
    static LATE: [AtomicU64; 1 + BLOCK_WORDS] = [const { AtomicU64::new(0) }; 1 + BLOCK_WORDS];
    /// Of [`Bug::EarlyReply`] with Stache: the block whose invalidations go out at the next entry, or 0, to which nodes (a bit for each), and their number.
    static UNSENT: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
    /// Of [`Bug::UpgradeWithoutData`]: the block.
    static UPGRADING: AtomicU64 = AtomicU64::new(0);
    /// Of [`Bug::HomeStoreDoesNotWait`], by a part of the address: a block, and the nodes whose acknowledgements nobody waits for.
    static OWED: [[AtomicU64; 2]; 1024] = [const { [const { AtomicU64::new(0) }; 2] }; 1024];

    fn owed_of(block: Block) -> &'static [AtomicU64; 2] {
        &OWED[(block.addr() / BLOCK_BYTES) as usize % OWED.len()]
    }

    /// Notes that nobody waits for the acknowledgements of these nodes; false when there is no room to note it.
    pub fn expect_no_answers(block: Block, nodes: u64) -> bool {
        let [addr, owing] = owed_of(block);
        if owing.load(Ordering::Relaxed) != 0 {
            return false;
        }
        addr.store(block.addr(), Ordering::Relaxed);
        owing.store(nodes, Ordering::Relaxed);
        true
    }

    /// Whether this acknowledgement is one that nobody waits for.
    pub fn is_unexpected_answer(block: Block, from: NodeId) -> bool {
        let [addr, owing] = owed_of(block);
        let (owed, bit) = (owing.load(Ordering::Relaxed), 1 << from.index());
        let found = addr.load(Ordering::Relaxed) == block.addr() && owed & bit != 0;
        if found {
            owing.store(owed & !bit, Ordering::Relaxed);
        }
        found
    }

    /// The nodes of a set of bits.
    fn nodes_of(bits: u64) -> impl Iterator<Item = NodeId> {
        (0..u64::BITS).filter(move |n| bits >> n & 1 != 0).filter_map(NodeId::new)
    }

    /// The set of bits of nodes.
    pub fn bits_of(nodes: impl Iterator<Item = NodeId>) -> u64 {
        nodes.fold(0, |bits, node| bits | 1 << node.index())
    }

    /// Notes the block of an upgrade that has lost its copy.
    pub fn note_upgrade(block: Block) {
        UPGRADING.store(block.addr(), Ordering::Relaxed);
    }

    /// Whether the data that come now are for that upgrade.
    fn is_noted_upgrade(block: Block) -> bool {
        UPGRADING.compare_exchange(block.addr(), 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// The runtime is entered.
    pub fn begin(port: &mut impl Port) {
        let addr = LATE[0].swap(0, Ordering::Relaxed);
        if addr != 0 {
            let data: Data = core::array::from_fn(|word| LATE[1 + word].load(Ordering::Relaxed));
            port.write(Block::of(addr), &data);
        }
        send_unsent(port);
    }

    fn send_unsent(port: &mut impl Port) {
        let addr = UNSENT[0].swap(0, Ordering::Relaxed);
        if addr != 0 {
            let number = UNSENT[2].load(Ordering::Relaxed) as u16;
            for to in nodes_of(UNSENT[1].load(Ordering::Relaxed)) {
                port.send(to, number, Block::of(addr), None);
            }
        }
    }

    /// Sends these messages at the next entry into the runtime.
    pub fn send_later(port: &mut impl Port, site: &Site, kind: u8, nodes: u64) {
        send_unsent(port);
        UNSENT[2].store(site.protocol.number_of(kind).into(), Ordering::Relaxed);
        UNSENT[1].store(nodes, Ordering::Relaxed);
        UNSENT[0].store(site.block.addr(), Ordering::Relaxed);
    }

    /// Arriving data are copied in: true when the bug does something else instead.
    pub fn copy_in(port: &impl Port, block: Block, at_home: bool, data: Option<&Data>) -> bool {
        match port.bug() {
            Some(Bug::LostWriteBack) => at_home,
            Some(Bug::ShortCopy) => {
                if let Some(data) = data {
                    let mut short = *data;
                    short[BLOCK_WORDS - 1] = port.read(block)[BLOCK_WORDS - 1];
                    port.write(block, &short);
                }
                true
            }
            Some(Bug::TagBeforeData) if !at_home => {
                for (late, word) in LATE.iter().skip(1).zip(data.into_iter().flatten()) {
                    late.store(*word, Ordering::Relaxed);
                }
                LATE[0].store(block.addr(), Ordering::Relaxed);
                true
            }
            Some(Bug::UpgradeWithoutData) if !at_home => is_noted_upgrade(block),
            _ => false,
        }
    }
}
