//! The steps of broadcast: those of stache, with exact sharers and with copies that nobody has asked for.
//!
//! | at the home | event | stache | broadcast |
//! |---|---|---|---|
//! | Shared X Y | InvalidateAck X | | Shared Y |
//! | Shared X | InvalidateAck X | | Idle, tag Writable |
//! | Exclusive X, RecallRead X, RecallWrite X, AwaitAcks for X | InvalidateAck X | | nothing: of a Copy that crossed its request to store |
//! | Shared X, AwaitAcks X | Read X arrives | answered, deferred | nothing: a Copy is its answer |
//!
//! | elsewhere | event | stache | broadcast |
//! |---|---|---|---|
//! | Invalid | Copy | | copy in, tag ReadOnly. If the node does not keep the page: InvalidateAck |
//! | ReadPending | Copy | | as DataReadOnly |
//! | WritePending | Copy | | InvalidateAck; it goes on waiting |
//! | ReadOnly | Evict | silent | InvalidateAck |
//! | Invalid, ReadPending, WritePending | Invalidate | InvalidateAck | nothing: one is on its way |
//!
//! # Messages that cross
//! A Copy goes only to a node that is no sharer and has no request at the home. So it finds a node without a copy, and a request that it finds outstanding
//! arrives at the home later.
//! * *Copy crosses ReadRequest.* The Copy is the answer. When the request arrives its sender is still a sharer, or one of those that are being invalidated: whatever
//!   else it says comes behind the request. Nobody else's request is so, as a node asks when it has no copy.
//! * *Copy crosses WriteRequest.* The Copy is given up. Its InvalidateAck comes behind the request, and may find that the node has become, or is about to become, the
//!   owner; it cannot come later, as an owner gives a block up by a message behind it.
//! * *Copy crosses the replacement of its page.* It is given up; the home does not remember its receiver.
//! * *Copy followed by Invalidate.* They arrive in order.
//! * *InvalidateAck of a copy that is given up crosses Invalidate.* It is taken as the answer, and the Invalidate is not answered.

use crate::protocol::messages::MessageRow;
use crate::protocols::stache::directory::{DirState, Requester};
use crate::protocols::stache::steps;
use crate::protocols::stache::vocabulary::{
    Action, Actions, CacheEvent, CacheState, HomeEvent, MESSAGES as OF_STACHE, Msg, Violation,
};
use crate::tag::Tag;

/// Home to node, with data, unasked.
pub const COPY: u8 = 13;

/// Those of stache, and one more. It answers only by chance, so its receiver is told of it.
pub const MESSAGES: &[MessageRow] = &{
    let mut rows = [MessageRow { name: "Copy", is_for_home: false, carries_data: true, is_answer: false }; 13];
    let mut at = 0;
    while at < OF_STACHE.len() {
        rows[at] = OF_STACHE[at];
        at += 1;
    }
    rows
};

/// As [`steps::home_step`].
#[inline(always)]
pub fn home_step(state: DirState, local: Tag, event: HomeEvent) -> Result<(DirState, Tag, Actions), Violation> {
    match (state, event) {
        (DirState::Shared(sharers), HomeEvent::InvalidateAck(from)) if sharers.contains(from) => {
            if local != state.home_tag() {
                return Err(Violation::WrongTag { state, found: local });
            }
            let rest = sharers.without(from);
            Ok(if rest.is_empty() {
                (DirState::Idle, Tag::Writable, [Action::SetTag(Tag::Writable)].into())
            } else {
                (DirState::Shared(rest), local, Actions::NONE)
            })
        }
        (
            DirState::Exclusive(node)
            | DirState::RecallRead { owner: node, .. }
            | DirState::RecallWrite { owner: node, .. }
            | DirState::AwaitAcks { requester: Requester::Node(node), .. },
            HomeEvent::InvalidateAck(from),
        ) if from == node => Ok((state, local, Actions::NONE)),
        _ => steps::home_step(state, local, event),
    }
}

/// Whether a Copy is the answer to a request that has just arrived at the home.
pub fn is_answered(state: DirState, event: HomeEvent) -> bool {
    match (state, event) {
        (DirState::Shared(with_copies) | DirState::AwaitAcks { waiting: with_copies, .. }, HomeEvent::Read(from)) => {
            with_copies.contains(from)
        }
        _ => false,
    }
}

/// As [`steps::cache_step`]. DataReadOnly is also what a Copy is.
#[inline(always)]
pub fn cache_step(state: CacheState, event: CacheEvent) -> Result<(CacheState, Actions), Violation> {
    use CacheState as S;
    let given_up = Action::SendHome(Msg::InvalidateAck);
    Ok(match (state, event) {
        (S::Invalid, CacheEvent::DataReadOnly) => (S::ReadOnly, [Action::CopyIn, Action::SetTag(Tag::ReadOnly)].into()),
        (S::WritePending, CacheEvent::DataReadOnly) => (state, [given_up].into()),
        (S::ReadOnly, CacheEvent::Evict) => (S::Invalid, [Action::SetTag(Tag::Invalid), given_up].into()),
        (S::Invalid | S::ReadPending | S::WritePending, CacheEvent::Invalidate) => (state, Actions::NONE),
        _ => return steps::cache_step(state, event),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeSet;
    use crate::tests::{x, y, z};

    #[test]
    fn who_gives_a_copy_up_is_no_sharer() {
        let both = DirState::Shared(NodeSet::of(x()).with(y()));
        let one = home_step(both, Tag::ReadOnly, HomeEvent::InvalidateAck(x())).unwrap();
        assert_eq!(one, (DirState::Shared(NodeSet::of(y())), Tag::ReadOnly, Actions::NONE));
        let none = home_step(one.0, Tag::ReadOnly, HomeEvent::InvalidateAck(y())).unwrap();
        assert_eq!(none, (DirState::Idle, Tag::Writable, [Action::SetTag(Tag::Writable)].into()));
        assert!(home_step(one.0, Tag::ReadOnly, HomeEvent::InvalidateAck(x())).is_err());
        assert!(home_step(one.0, Tag::Writable, HomeEvent::InvalidateAck(y())).is_err());
        assert!(home_step(DirState::Idle, Tag::Writable, HomeEvent::InvalidateAck(y())).is_err());
    }

    #[test]
    fn an_owner_may_have_given_up_a_copy_that_it_had_not_asked_for() {
        let requester = Requester::Node(z());
        let awaits = DirState::AwaitAcks { waiting: NodeSet::of(x()), requester, upgrade: false };
        for (state, tag, from) in [
            (DirState::Exclusive(x()), Tag::Invalid, x()),
            (DirState::RecallRead { owner: x(), requester }, Tag::Invalid, x()),
            (DirState::RecallWrite { owner: x(), requester }, Tag::Invalid, x()),
            (awaits, Tag::ReadOnly, z()),
        ] {
            assert_eq!(home_step(state, tag, HomeEvent::InvalidateAck(from)), Ok((state, tag, Actions::NONE)));
            assert!(home_step(state, tag, HomeEvent::InvalidateAck(y())).is_err());
        }
        assert!(matches!(
            home_step(awaits, Tag::ReadOnly, HomeEvent::InvalidateAck(x())),
            Ok((DirState::Exclusive(_), ..))
        ));
    }

    #[test]
    fn a_copy_answers_reads_that_it_crosses_and_no_others() {
        let set = NodeSet::of(x());
        let awaits = DirState::AwaitAcks { waiting: set, requester: Requester::Home, upgrade: false };
        for state in [DirState::Shared(set), awaits] {
            assert!(is_answered(state, HomeEvent::Read(x())));
            assert!(!is_answered(state, HomeEvent::Read(y())) && !is_answered(state, HomeEvent::Write(x())));
        }
        assert!(!is_answered(DirState::Idle, HomeEvent::Read(x())));
        assert!(!is_answered(DirState::Exclusive(y()), HomeEvent::Read(x())));
    }
}
