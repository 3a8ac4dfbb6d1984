//! What planted bugs do that does not depend on the protocol.
//!
//! Input: the bug that [`Port::bug`] names. Output: steps that are left out, done too early or done wrong. `stache/planted.rs` and `mcm/planted.rs` stand
//! between the protocols' steps and their actions. The state is the process's: in a process with several nodes one of them has the bug.

use crate::bugs::Bug;
use crate::ids::{BLOCK_WORDS, Block, Data, NodeId};
use crate::port::{BlockSite, Port};
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
pub fn send_later(port: &mut impl Port, site: &BlockSite, kind: u8, nodes: u64) {
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
