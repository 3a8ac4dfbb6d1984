//! Planted bugs: what `blizzard stress` must find.
//!
//! Purpose: each bug of the list breaks one rule of the protocol's driver, so that a test can show that the random tester notices. In the
//! tree only for a runtime that tests build with the feature `planted`; no other runtime contains any of this. Input: the number in the
//! word [`PLANTED`](crate::abi::instrument::PLANTED) of the node's context page. Output: steps that are left out, done too early or done
//! wrong.

use super::*;
use crate::abi::instrument;
use core::sync::atomic::{AtomicU64, Ordering};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// An invalidation is acknowledged, but the copy stays.
    LostInvalidation,
    /// The home answers a store before the other copies are gone: the answer goes out first, then the invalidations, and nobody waits for
    /// their acknowledgements.
    EarlyReply,
    /// The tag is raised and the program goes on; the data come only at the next entry into the runtime.
    TagBeforeData,
    /// The home takes a block back, but not its data.
    LostWriteBack,
    /// A recalled block is sent home, but its owner goes on writing it.
    DowngradeKeepsWritable,
    /// The home gives a block away, but goes on using its own copy.
    HomeKeepsTag,
    /// The last word of a block does not arrive.
    ShortCopy,
    /// The home answers a read with its own copy although another node owns the block.
    StaleReply,
    /// A node whose copy was invalidated while it asked to upgrade it goes on with what it has.
    UpgradeWithoutData,
}

/// By number, from 1.
const BUGS: [Bug; 9] = [
    Bug::LostInvalidation,
    Bug::EarlyReply,
    Bug::TagBeforeData,
    Bug::LostWriteBack,
    Bug::DowngradeKeepsWritable,
    Bug::HomeKeepsTag,
    Bug::ShortCopy,
    Bug::StaleReply,
    Bug::UpgradeWithoutData,
];

/// Of [`Bug::TagBeforeData`]: the block whose data are late, or 0, and the data.
static LATE: [AtomicU64; 1 + BLOCK_WORDS] = [const { AtomicU64::new(0) }; 1 + BLOCK_WORDS];
/// Of [`Bug::EarlyReply`]: the block whose invalidations go out at the next entry, or 0, and to which nodes (a bit
/// for each).
static UNSENT: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Of [`Bug::UpgradeWithoutData`]: the block.
static UPGRADING: AtomicU64 = AtomicU64::new(0);

impl Node {
    fn bug(&self) -> Option<Bug> {
        let number = self.context.instrument(instrument::PLANTED).load(Ordering::Relaxed);
        (number as usize).checked_sub(1).and_then(|index| BUGS.get(index)).copied()
    }

    /// The runtime is entered.
    pub fn planted_begin(&mut self) {
        let addr = LATE[0].swap(0, Ordering::Relaxed);
        if addr != 0 {
            let data: [u64; BLOCK_WORDS] = core::array::from_fn(|word| LATE[1 + word].load(Ordering::Relaxed));
            self.space.write(Block::of(addr), &data);
        }
        self.planted_send_unsent();
    }

    fn planted_send_unsent(&mut self) {
        let addr = UNSENT[0].swap(0, Ordering::Relaxed);
        if addr != 0 {
            let nodes = UNSENT[1].load(Ordering::Relaxed);
            for to in (0..u64::BITS).filter(|n| nodes >> n & 1 != 0).filter_map(NodeId::new) {
                self.send_protocol(to, Block::of(addr), Msg::Invalidate);
            }
        }
    }

    /// The tag that the home's own copy seems to have, so that the protocol's own consistency check does not end the run.
    pub(super) fn planted_tag(&self, state: DirState, tag: Tag) -> Tag {
        match self.bug() {
            Some(Bug::HomeKeepsTag) => state.home_tag(),
            _ => tag,
        }
    }

    /// A message at the home; true when the bug has dealt with it.
    pub(super) fn planted_message(&mut self, block: Block, msg: Msg, from: NodeId) -> bool {
        let entry = || self.coherence.stache.directory.get(self.space.number(block)).ok();
        match (self.bug(), msg) {
            (Some(Bug::EarlyReply), Msg::InvalidateAck) => true,
            (Some(Bug::StaleReply), Msg::ReadRequest) => {
                let owned = matches!(entry(), Some(DirState::Exclusive(owner)) if owner != from);
                if owned {
                    self.send_protocol(from, block, Msg::DataReadOnly);
                }
                owned
            }
            _ => false,
        }
    }

    /// The state in which a node that is not the home steps an event. A copy that the home does not know of is given up as one that it
    /// knows of would be, so that the protocol's own consistency checks do not end the run before the wrong values are seen.
    pub(super) fn planted_state(&self, block: Block, state: CacheState, event: CacheEvent) -> CacheState {
        match (self.bug(), state, event) {
            (Some(Bug::UpgradeWithoutData), CacheState::UpgradePending, CacheEvent::Invalidate) => {
                UPGRADING.store(block.addr(), Ordering::Relaxed);
                state
            }
            (Some(Bug::LostInvalidation | Bug::StaleReply), CacheState::ReadOnly, CacheEvent::Store) => {
                CacheState::Invalid
            }
            (Some(Bug::DowngradeKeepsWritable | Bug::EarlyReply), CacheState::Writable, CacheEvent::Invalidate) => {
                CacheState::ReadOnly
            }
            (Some(Bug::EarlyReply), CacheState::UpgradePending, CacheEvent::DataWritable) => CacheState::WritePending,
            (Some(Bug::EarlyReply), CacheState::WritePending, CacheEvent::UpgradeAck) => CacheState::UpgradePending,
            _ => state,
        }
    }

    /// An action is about to be performed; true when the bug does something else instead.
    pub(super) fn planted_action(
        &mut self,
        block: Block,
        home: NodeId,
        action: Action,
        actions: &Actions,
        data: Option<&[u64; BLOCK_WORDS]>,
    ) -> bool {
        let at_home = home == self.me;
        let has = |wanted: Action| actions.as_slice().contains(&wanted);
        match (self.bug(), action) {
            (Some(Bug::LostInvalidation), Action::SetTag(_)) => has(Action::SendHome(Msg::InvalidateAck)),
            (Some(Bug::DowngradeKeepsWritable), Action::SetTag(_)) => has(Action::SendHome(Msg::Downgraded)),
            (Some(Bug::LostWriteBack), Action::CopyIn) => at_home,
            (Some(Bug::HomeKeepsTag), Action::SetTag(Tag::Invalid)) => at_home,
            (Some(Bug::ShortCopy), Action::CopyIn) => {
                if let Some(data) = data {
                    let mut short = *data;
                    short[BLOCK_WORDS - 1] = self.space.read(block)[BLOCK_WORDS - 1];
                    self.space.write(block, &short);
                }
                true
            }
            (Some(Bug::TagBeforeData), Action::CopyIn) if !at_home => {
                for (late, word) in LATE.iter().skip(1).zip(data.into_iter().flatten()) {
                    late.store(*word, Ordering::Relaxed);
                }
                LATE[0].store(block.addr(), Ordering::Relaxed);
                true
            }
            (Some(Bug::UpgradeWithoutData), Action::CopyIn) if !at_home => {
                UPGRADING.compare_exchange(block.addr(), 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            }
            (Some(Bug::EarlyReply), Action::Invalidate(nodes)) => {
                self.planted_send_unsent();
                UNSENT[1].store(nodes.iter().fold(0, |bits, node| bits | 1 << node.index()), Ordering::Relaxed);
                UNSENT[0].store(block.addr(), Ordering::Relaxed);
                for node in nodes.iter() {
                    self.home_event(block, HomeEvent::InvalidateAck(node), None);
                }
                true
            }
            _ => false,
        }
    }
}
