//! Planted bugs of the second protocol's driver; see [`crate::planted`].

use crate::bugs::Bug;
use crate::ids::{Block, Data, NodeId};
use crate::planted;
use crate::port::{BlockSite, Port};
use crate::protocol::env::Env;
use crate::protocols::mcm::directory::{Entry, HomeState, Requester};
use crate::protocols::mcm::driver::{Mcm, send};
use crate::protocols::mcm::vocabulary::{Action, Actions, Bits, HomeEvent, Msg, NodeEvent};
use crate::storage::{Storage, Table};
use crate::tag::Tag;

impl<M: Storage> Mcm<M> {
    /// The tag that the home's own copy seems to have, so that the protocol's own consistency check does not end the run.
    pub(super) fn planted_home_tag(port: &impl Port, entry: Entry, tag: Tag) -> Tag {
        match (port.bug(), entry.decode()) {
            (Some(Bug::HomeKeepsTag), Some(state)) => state.home_tag(),
            _ => tag,
        }
    }

    /// An event at a node that is not the home is about to be stepped.
    pub(super) fn planted_node_event(port: &impl Port, block: Block, bits: Bits, tag: Tag, event: NodeEvent) {
        let upgrading = tag == Tag::ReadOnly && bits.any(Bits::PX.with(Bits::NX));
        let loses = event == NodeEvent::Invalidate || event == NodeEvent::Serve && bits.any(Bits::I);
        if port.bug() == Some(Bug::UpgradeWithoutData) && upgrading && loses {
            planted::note_upgrade(block);
        }
    }

    fn planted_state(&self, port: &impl Port, site: &BlockSite) -> Option<HomeState> {
        self.directory.get(port.number(site.block)).decode()
    }

    /// A message at the home; true when the bug has dealt with it.
    pub(super) fn planted_message<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        msg: Msg,
        from: NodeId,
    ) -> bool {
        match (env.port.bug(), msg) {
            (Some(Bug::EarlyReply | Bug::HomeStoreDoesNotWait), Msg::Yanked) => {
                planted::is_unexpected_answer(site.block, from)
            }
            (Some(Bug::StaleReply), Msg::RequestReadOnly) => {
                let state = self.planted_state(env.port, site);
                let owned = matches!(state, Some(HomeState::Exclusive(owner)) if owner != from);
                if owned {
                    send(env, from, site, Msg::ReturnReadOnly);
                }
                owned
            }
            _ => false,
        }
    }

    /// An action is about to be performed; true when the bug does something else instead.
    pub(super) fn planted_action<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        action: Action,
        actions: &Actions,
        data: Option<&Data>,
    ) -> bool {
        let at_home = site.home == env.port.me();
        let has = |wanted: Action| actions.as_slice().contains(&wanted);
        match (env.port.bug(), action) {
            (Some(_), Action::CopyIn) => planted::copy_in(env.port, site.block, at_home, data),
            (Some(Bug::LostInvalidation), Action::SetTag(Tag::Invalid)) => has(Action::SendHome(Msg::Yanked)),
            (Some(Bug::RecallKeepsWritable), Action::SetTag(Tag::Invalid))
                if has(Action::SendHome(Msg::YankedFull)) =>
            {
                planted::note_upgrade(site.block);
                true
            }
            (Some(Bug::HomeKeepsTag), Action::SetTag(Tag::Invalid)) => at_home,
            (Some(bug @ (Bug::EarlyReply | Bug::HomeStoreDoesNotWait)), Action::Invalidate(nodes)) => {
                let Some(HomeState::Transitioning { owes: None, requester, .. }) = self.planted_state(env.port, site)
                else {
                    return false;
                };
                let applies = bug == Bug::EarlyReply || requester == Requester::Home;
                if !applies || !planted::expect_no_answers(site.block, nodes) {
                    return false;
                }
                let invalidate = |env: &mut Env<'_, M, P>| {
                    nodes.iter().for_each(|to| send(env, to, site, Msg::Invalidate));
                };
                // Not later than at once: an invalidation that others expect to be answered must not overtake these.
                if bug == Bug::HomeStoreDoesNotWait {
                    invalidate(env);
                }
                for node in nodes.iter() {
                    self.home_event(env, site, HomeEvent::Yanked(node), None);
                }
                if bug == Bug::EarlyReply {
                    invalidate(env);
                }
                true
            }
            _ => false,
        }
    }
}
