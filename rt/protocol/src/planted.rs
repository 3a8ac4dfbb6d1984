//! What planted bugs do that does not depend on the protocol.
//!
//! Input: the bug that [`Port::bug`] names. Output: steps that are left out, done too early or done wrong. `stache/planted.rs` and `mcm/planted.rs` stand
//! between the protocols' steps and their actions. The state is the process's: in a process with several nodes one of them has the bug.

use crate::bugs::Bug;
use crate::ids::{BLOCK_WORDS, Block, Data, NodeId, NodeSet, RUN_WORDS};
use crate::port::{BlockSite, Port};
use blizzard_contract::BLOCK_BYTES;
use core::sync::atomic::{AtomicU64, Ordering};

/// Of [`Bug::TagBeforeData`]: the block whose data are late, or 0, and the data.
static LATE: [AtomicU64; 1 + BLOCK_WORDS] = [const { AtomicU64::new(0) }; 1 + BLOCK_WORDS];
/// Of [`Bug::EarlyReply`] with Stache: the block whose invalidations go out at the next entry, or 0, and their number; and to which nodes.
static UNSENT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static UNSENT_TO: SharedSet = SharedSet::new();
/// Of [`Bug::UpgradeWithoutData`]: the block.
static UPGRADING: AtomicU64 = AtomicU64::new(0);
/// Of [`Bug::HomeStoreDoesNotWait`], by a part of the address: a block, and the nodes whose acknowledgements nobody waits for.
static OWED: [(AtomicU64, SharedSet); 1024] = [const { (AtomicU64::new(0), SharedSet::new()) }; 1024];

/// A set of nodes that is changed behind a shared reference.
struct SharedSet([AtomicU64; RUN_WORDS]);

impl SharedSet {
    const fn new() -> SharedSet {
        SharedSet([const { AtomicU64::new(0) }; RUN_WORDS])
    }

    fn get(&self) -> NodeSet {
        NodeSet(core::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }

    fn set(&self, nodes: NodeSet) {
        for (word, of_set) in self.0.iter().zip(nodes.0) {
            word.store(of_set, Ordering::Relaxed);
        }
    }
}

fn owed_of(block: Block) -> &'static (AtomicU64, SharedSet) {
    &OWED[(block.addr() / BLOCK_BYTES) as usize % OWED.len()]
}

/// Notes that nobody waits for the acknowledgements of these nodes; false when there is no room to note it.
pub fn expect_no_answers(block: Block, nodes: NodeSet) -> bool {
    let (addr, owing) = owed_of(block);
    if !owing.get().is_empty() {
        return false;
    }
    addr.store(block.addr(), Ordering::Relaxed);
    owing.set(nodes);
    true
}

/// Whether this acknowledgement is one that nobody waits for.
pub fn is_unexpected_answer(block: Block, from: NodeId) -> bool {
    let (addr, owing) = owed_of(block);
    let owed = owing.get();
    let found = addr.load(Ordering::Relaxed) == block.addr() && owed.contains(from);
    if found {
        owing.set(owed.without(from));
    }
    found
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
        let number = UNSENT[1].load(Ordering::Relaxed) as u16;
        for to in UNSENT_TO.get().iter() {
            port.send(to, number, Block::of(addr), None);
        }
    }
}

/// Sends these messages at the next entry into the runtime.
pub fn send_later(port: &mut impl Port, site: &BlockSite, kind: u8, nodes: NodeSet) {
    send_unsent(port);
    UNSENT[1].store(site.protocol.number_of(kind).into(), Ordering::Relaxed);
    UNSENT_TO.set(nodes);
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
