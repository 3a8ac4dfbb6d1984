//! Planted bugs of Stache's driver; see [`crate::planted`].

use crate::bugs::Bug;
use crate::ids::{Block, Data, NodeId};
use crate::planted;
use crate::port::{BlockSite, Port};
use crate::protocol::env::Env;
use crate::protocols::stache::directory::{DirState, Requester};
use crate::protocols::stache::driver::{Stache, StacheRules, send};
use crate::protocols::stache::vocabulary::{Action, Actions, CacheEvent, CacheState, HomeEvent, Msg};
use crate::storage::Storage;
use crate::tag::Tag;

impl<M: Storage, R: StacheRules<M>> Stache<M, R> {
    /// The tag that the home's own copy seems to have, so that the protocol's own consistency check does not end the run.
    pub(super) fn planted_home_tag(port: &impl Port, state: DirState, tag: Tag) -> Tag {
        match port.bug() {
            Some(Bug::HomeKeepsTag) => state.home_tag(),
            _ => tag,
        }
    }

    /// The state in which a node that is not the home steps an event. A copy that the home does not know of is given up as one that it
    /// knows of would be, so that the protocol's own consistency checks do not end the run before the wrong values are seen.
    pub(super) fn planted_cache_state(
        port: &impl Port,
        block: Block,
        state: CacheState,
        event: CacheEvent,
    ) -> CacheState {
        match (port.bug(), state, event) {
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

    /// A message at the home; true when the bug has dealt with it.
    pub(super) fn planted_message<P: Port>(
        &mut self,
        env: &mut Env<'_, M, P>,
        site: &BlockSite,
        msg: Msg,
        from: NodeId,
    ) -> bool {
        match (env.port.bug(), msg) {
            (Some(Bug::EarlyReply), Msg::InvalidateAck) => true,
            (Some(Bug::HomeStoreDoesNotWait), Msg::InvalidateAck) => planted::is_unexpected_answer(site.block, from),
            (Some(Bug::StaleReply), Msg::ReadRequest) => {
                let entry = self.directory.get(env.port.number(site.block));
                let owned = matches!(entry, Ok(DirState::Exclusive(owner)) if owner != from);
                if owned {
                    send(env, from, site, Msg::DataReadOnly);
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
        at_home: bool,
        action: Action,
        actions: &Actions,
        data: Option<&Data>,
    ) -> bool {
        let has = |wanted: Action| actions.as_slice().contains(&wanted);
        match (env.port.bug(), action) {
            (Some(_), Action::CopyIn) => planted::copy_in(env.port, site.block, at_home, data),
            (Some(Bug::LostInvalidation), Action::SetTag(_)) => has(Action::SendHome(Msg::InvalidateAck)),
            (Some(Bug::RecallKeepsWritable), Action::SetTag(_)) => has(Action::SendHome(Msg::Downgraded)),
            (Some(Bug::HomeKeepsTag), Action::SetTag(Tag::Invalid)) => at_home,
            (Some(Bug::EarlyReply), Action::Invalidate(nodes)) => {
                planted::send_later(env.port, site, Msg::Invalidate.byte(), nodes);
                for node in nodes.iter() {
                    self.home_event(env, site, HomeEvent::InvalidateAck(node), None);
                }
                true
            }
            (Some(Bug::HomeStoreDoesNotWait), Action::Invalidate(nodes)) => {
                let state = self.directory.get(env.port.number(site.block));
                let own = matches!(state, Ok(DirState::AwaitAcks { requester: Requester::Home, .. }));
                if !own || !planted::expect_no_answers(site.block, nodes) {
                    return false;
                }
                for node in nodes.iter() {
                    send(env, node, site, Msg::Invalidate);
                }
                for node in nodes.iter() {
                    self.home_event(env, site, HomeEvent::InvalidateAck(node), None);
                }
                true
            }
            _ => false,
        }
    }
}
