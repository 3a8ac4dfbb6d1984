//! Planted bugs of Stache's driver; see [`crate::coherence::planted`].

use super::*;
use crate::coherence::planted::{self, Bug};
use crate::protocol::Requester;

impl Node {
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
            (Some(Bug::HomeStoreDoesNotWait), Msg::InvalidateAck) => planted::is_unexpected_answer(block, from),
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
                planted::note_upgrade(block);
                state
            }
            (Some(Bug::LostInvalidation | Bug::StaleReply), CacheState::ReadOnly, CacheEvent::Store) => {
                CacheState::Invalid
            }
            (Some(Bug::RecallKeepsWritable | Bug::EarlyReply), CacheState::Writable, CacheEvent::Invalidate) => {
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
        at_home: bool,
        action: Action,
        actions: &Actions,
        data: Option<&[u64; BLOCK_WORDS]>,
    ) -> bool {
        let has = |wanted: Action| actions.as_slice().contains(&wanted);
        match (self.bug(), action) {
            (Some(_), Action::CopyIn) => self.planted_copy_in(block, at_home, data),
            (Some(Bug::LostInvalidation), Action::SetTag(_)) => has(Action::SendHome(Msg::InvalidateAck)),
            (Some(Bug::RecallKeepsWritable), Action::SetTag(_)) => has(Action::SendHome(Msg::Downgraded)),
            (Some(Bug::HomeKeepsTag), Action::SetTag(Tag::Invalid)) => at_home,
            (Some(Bug::EarlyReply), Action::Invalidate(nodes)) => {
                self.planted_send_later(block, planted::bits_of(nodes.iter()));
                for node in nodes.iter() {
                    self.home_event(block, HomeEvent::InvalidateAck(node), None);
                }
                true
            }
            (Some(Bug::HomeStoreDoesNotWait), Action::Invalidate(nodes)) => {
                let state = self.coherence.stache.directory.get(self.space.number(block));
                let own = matches!(state, Ok(DirState::AwaitAcks { requester: Requester::Home, .. }));
                if !own || !planted::expect_no_answers(block, planted::bits_of(nodes.iter())) {
                    return false;
                }
                for node in nodes.iter() {
                    self.send_protocol(node, block, Msg::Invalidate);
                }
                for node in nodes.iter() {
                    self.home_event(block, HomeEvent::InvalidateAck(node), None);
                }
                true
            }
            _ => false,
        }
    }
}
