//! Planted bugs of the second protocol's driver; see [`crate::coherence::planted`].

use super::*;
use crate::coherence::planted::{self, Bug};
use crate::protocol::mcm::Requester;

impl Node {
    /// The tag that the home's own copy seems to have, so that the protocol's own consistency check does not end the run.
    pub(super) fn planted_mcm_tag(&self, entry: Entry, tag: Tag) -> Tag {
        match (self.bug(), entry.decode()) {
            (Some(Bug::HomeKeepsTag), Some(state)) => state.home_tag(),
            _ => tag,
        }
    }

    fn planted_mcm_state(&self, block: Block) -> Option<HomeState> {
        self.coherence.mcm.directory.get(self.space.number(block)).decode()
    }

    /// A message at the home; true when the bug has dealt with it.
    pub(super) fn planted_mcm_message(&mut self, block: Block, msg: Msg, from: NodeId) -> bool {
        match (self.bug(), msg) {
            (Some(Bug::EarlyReply | Bug::HomeStoreDoesNotWait), Msg::Yanked) => {
                planted::is_unexpected_answer(block, from)
            }
            (Some(Bug::StaleReply), Msg::RequestReadOnly) => {
                let state = self.planted_mcm_state(block);
                let owned = matches!(state, Some(HomeState::Exclusive(owner)) if owner != from);
                if owned {
                    self.mcm_send(from, block, Msg::ReturnReadOnly);
                }
                owned
            }
            _ => false,
        }
    }

    /// An event at a node that is not the home is about to be stepped.
    pub(super) fn planted_mcm_node(&self, block: Block, bits: Bits, tag: Tag, event: NodeEvent) {
        let upgrading = tag == Tag::ReadOnly && bits.any(Bits::PX.with(Bits::NX));
        let loses = event == NodeEvent::Invalidate || event == NodeEvent::Serve && bits.any(Bits::I);
        if self.bug() == Some(Bug::UpgradeWithoutData) && upgrading && loses {
            planted::note_upgrade(block);
        }
    }

    /// An action is about to be performed; true when the bug does something else instead.
    pub(super) fn planted_mcm_action(
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
            (Some(_), Action::CopyIn) => self.planted_copy_in(block, at_home, data),
            (Some(Bug::LostInvalidation), Action::SetTag(Tag::Invalid)) => has(Action::SendHome(Msg::Yanked)),
            (Some(Bug::RecallKeepsWritable), Action::SetTag(Tag::Invalid))
                if has(Action::SendHome(Msg::YankedFull)) =>
            {
                planted::note_upgrade(block);
                true
            }
            (Some(Bug::HomeKeepsTag), Action::SetTag(Tag::Invalid)) => at_home,
            (Some(bug @ (Bug::EarlyReply | Bug::HomeStoreDoesNotWait)), Action::Invalidate(nodes)) => {
                let Some(HomeState::Transitioning { owes: None, requester, .. }) = self.planted_mcm_state(block) else {
                    return false;
                };
                let bits = planted::bits_of(nodes.iter());
                let applies = bug == Bug::EarlyReply || requester == Requester::Home;
                if !applies || !planted::expect_no_answers(block, bits) {
                    return false;
                }
                let invalidate =
                    |node: &mut Node| nodes.iter().for_each(|to| node.mcm_send(to, block, Msg::Invalidate));
                // Not later than at once: an invalidation that others expect to be answered must not overtake these.
                if bug == Bug::HomeStoreDoesNotWait {
                    invalidate(self);
                }
                for node in nodes.iter() {
                    self.mcm_home_event(block, HomeEvent::Yanked(node), None);
                }
                if bug == Bug::EarlyReply {
                    invalidate(self);
                }
                true
            }
            _ => false,
        }
    }
}
