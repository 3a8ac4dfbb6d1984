//! Planted errors in Stache: the explorations are seen to fail.
//!
//! A [`Mutation`] stands between a model and the step functions and alters what they return, once in each place
//! where somebody might get the protocol wrong. Each must be found, and by the property that names the damage.

use blizzard_protocol::protocols::stache::directory::{DirState, Requester};
use blizzard_protocol::protocols::stache::steps;
use blizzard_protocol::protocols::stache::vocabulary::{
    Action, Actions, CacheEvent, CacheState, HomeEvent, MAX_ACTIONS, Msg, Violation,
};
use blizzard_protocol::tag::Tag;

use crate::explore::{LATEST_VALUE, NO_FAULT, NOT_STUCK, ONE_WRITER, finds_each};
use crate::model::{Stache, mutations};

mutations! {
    /// The home leaves one of several sharers out when it invalidates, but waits for it.
    InvalidateTooFew => NOT_STUCK,
    /// The home lets a node store while others have copies.
    GrantWithoutInvalidation => ONE_WRITER,
    /// The first of several acknowledgements counts as the last.
    ReplyBeforeLastAck => ONE_WRITER,
    /// The home does not note the node it sends a ReadOnly copy to.
    ForgetSharer => ONE_WRITER,
    /// The home does not note that the former owner keeps a ReadOnly copy.
    ForgetDowngradedOwner => ONE_WRITER,
    /// The home keeps its own copy Writable when it gives a ReadOnly one away.
    HomeKeepsWritable => ONE_WRITER,
    /// The home keeps its own copy ReadOnly when it gives a Writable one away.
    HomeKeepsReadOnly => ONE_WRITER,
    /// An upgrade is acknowledged although the requester's copy was invalidated meanwhile.
    UpgradeWithoutCopy => NO_FAULT,
    /// A WriteBack's data is passed on before it is copied in.
    ForwardBeforeCopyIn => LATEST_VALUE,
    /// A voluntary WriteBack is noted, but its data not kept.
    LoseWriteBack => LATEST_VALUE,
    /// Deferred requests are not replayed.
    ForgetReplay => NOT_STUCK,
    /// The home passes on a store before the owner has answered the recall.
    GrantBeforeRecallAnswer => ONE_WRITER,
    /// The home does not raise its own tag after its own store miss.
    ResumeWithoutTag => NO_FAULT,
    /// The tag is raised without copying the data in.
    RaiseWithoutData => LATEST_VALUE,
    /// An owner that is asked for its data for a reader keeps its Writable copy.
    NoDowngrade => ONE_WRITER,
    /// An owner that is asked for its data for a writer keeps a ReadOnly copy.
    DowngradeInsteadOfInvalidate => ONE_WRITER,
    /// An Invalidate is acknowledged but the copy kept.
    AckWithoutInvalidating => ONE_WRITER,
    /// An Invalidate that crosses an UpgradeRequest is taken for one of a copy that the node no longer needs.
    UpgradeIgnoresInvalidate => NO_FAULT,
    /// An Invalidate for a dropped copy is not acknowledged.
    NoAckForDroppedCopy => NOT_STUCK,
    /// A Writable copy is dropped without a WriteBack.
    EvictWithoutWriteBack => NOT_STUCK,
    /// A recall that crossed a WriteBack is answered once more.
    AnswerCrossedRecall => NO_FAULT,
    /// The two steps are right, but messages about one block overtake each other.
    Reorder => NO_FAULT,
}

pub fn home_step(
    mutation: Option<Mutation>,
    before: DirState,
    tag: Tag,
    event: HomeEvent,
) -> Result<(DirState, Tag, Actions), Violation> {
    let real = steps::home_step(before, tag, event)?;
    Ok(match mutation {
        Some(mutation) => mutate_home(mutation, before, event, real),
        None => real,
    })
}

pub fn cache_step(
    mutation: Option<Mutation>,
    state: CacheState,
    event: CacheEvent,
) -> Result<(CacheState, Actions), Violation> {
    let real = steps::cache_step(state, event)?;
    Ok(match mutation {
        Some(mutation) => mutate_cache(mutation, state, event, real),
        None => real,
    })
}

/// The list with `change` applied to each action.
fn map(actions: &Actions, change: impl Fn(Action) -> Option<Action>) -> Actions {
    list(&actions.as_slice().iter().filter_map(|&action| change(action)).collect::<Vec<_>>())
}

fn without(actions: &Actions, unwanted: Action) -> Actions {
    map(actions, |action| (action != unwanted).then_some(action))
}

fn list(actions: &[Action]) -> Actions {
    const { assert!(MAX_ACTIONS == 4) }
    match *actions {
        [] => Actions::NONE,
        [a] => [a].into(),
        [a, b] => [a, b].into(),
        [a, b, c] => [a, b, c].into(),
        [a, b, c, d] => [a, b, c, d].into(),
        _ => unreachable!("mutations never lengthen a full list"),
    }
}

fn mutate_home(
    mutation: Mutation,
    before: DirState,
    event: HomeEvent,
    real @ (after, tag, actions): (DirState, Tag, Actions),
) -> (DirState, Tag, Actions) {
    match (mutation, before, event, after) {
        (Mutation::InvalidateTooFew, _, _, DirState::AwaitAcks { waiting, .. }) if waiting.len() > 1 => {
            let first = waiting.iter().next().expect("not empty");
            let fewer = |action| match action {
                Action::Invalidate(set) => Some(Action::Invalidate(set.without(first))),
                other => Some(other),
            };
            (after, tag, map(&actions, fewer))
        }
        (
            Mutation::GrantWithoutInvalidation,
            DirState::Shared(_),
            HomeEvent::Write(node),
            DirState::AwaitAcks { .. },
        ) => (
            DirState::Exclusive(node),
            Tag::Invalid,
            [Action::SetTag(Tag::Invalid), Action::Send(node, Msg::DataWritable)].into(),
        ),
        (
            Mutation::ReplyBeforeLastAck,
            DirState::AwaitAcks { .. },
            HomeEvent::InvalidateAck(_),
            DirState::AwaitAcks { requester: Requester::Home, .. },
        ) => (DirState::Idle, Tag::Writable, [Action::SetTag(Tag::Writable), Action::Resume, Action::Replay].into()),
        (Mutation::ForgetSharer, DirState::Shared(set), HomeEvent::Read(_), _) => (DirState::Shared(set), tag, actions),
        (
            Mutation::ForgetDowngradedOwner,
            DirState::RecallRead { owner, requester: Requester::Node(_) },
            HomeEvent::Downgraded(_),
            DirState::Shared(set),
        ) => (DirState::Shared(set.without(owner)), tag, actions),
        (Mutation::HomeKeepsWritable, DirState::Idle, HomeEvent::Read(_), _) => {
            (after, Tag::Writable, without(&actions, Action::SetTag(Tag::ReadOnly)))
        }
        (Mutation::HomeKeepsReadOnly, DirState::Shared(_), HomeEvent::Write(_), DirState::Exclusive(_)) => {
            (after, Tag::ReadOnly, without(&actions, Action::SetTag(Tag::Invalid)))
        }
        (Mutation::UpgradeWithoutCopy, _, HomeEvent::Upgrade(_), _) => {
            let acknowledge = |action| match action {
                Action::Send(to, Msg::DataWritable) => Some(Action::Send(to, Msg::UpgradeAck)),
                other => Some(other),
            };
            (after, tag, map(&actions, acknowledge))
        }
        (Mutation::ForwardBeforeCopyIn, DirState::RecallWrite { requester: Requester::Node(_), .. }, _, _)
            if actions.as_slice().len() == 3 =>
        {
            let [copy_in, send, replay] = *actions.as_slice() else { unreachable!() };
            (after, tag, [send, copy_in, replay].into())
        }
        (Mutation::LoseWriteBack, DirState::Exclusive(_), HomeEvent::WriteBack(_), _) => {
            (after, tag, without(&actions, Action::CopyIn))
        }
        (Mutation::ForgetReplay, ..) => (after, tag, without(&actions, Action::Replay)),
        (
            Mutation::GrantBeforeRecallAnswer,
            DirState::Exclusive(_),
            HomeEvent::Write(node),
            DirState::RecallWrite { .. },
        ) => (DirState::Exclusive(node), Tag::Invalid, [Action::Send(node, Msg::DataWritable)].into()),
        (Mutation::ResumeWithoutTag, DirState::AwaitAcks { .. }, _, DirState::Idle) => {
            (after, Tag::Busy, without(&actions, Action::SetTag(Tag::Writable)))
        }
        _ => real,
    }
}

fn mutate_cache(
    mutation: Mutation,
    before: CacheState,
    event: CacheEvent,
    real @ (after, actions): (CacheState, Actions),
) -> (CacheState, Actions) {
    use CacheEvent as E;
    use CacheState as S;
    match (mutation, before, event) {
        (Mutation::RaiseWithoutData, ..) => (after, without(&actions, Action::CopyIn)),
        (Mutation::NoDowngrade, S::Writable, E::RecallRead) => {
            (S::Writable, [Action::SendHome(Msg::Downgraded)].into())
        }
        (Mutation::DowngradeInsteadOfInvalidate, S::Writable, E::RecallWrite) => {
            (S::ReadOnly, [Action::SetTag(Tag::ReadOnly), Action::SendHome(Msg::WriteBack)].into())
        }
        (Mutation::AckWithoutInvalidating, S::ReadOnly, E::Invalidate) => {
            (S::ReadOnly, [Action::SendHome(Msg::InvalidateAck)].into())
        }
        (Mutation::UpgradeIgnoresInvalidate, S::UpgradePending, E::Invalidate) => (S::UpgradePending, actions),
        (Mutation::NoAckForDroppedCopy, S::Invalid, E::Invalidate) => (after, Actions::NONE),
        (Mutation::EvictWithoutWriteBack, S::Writable, E::Evict) => (S::Invalid, [Action::SetTag(Tag::Invalid)].into()),
        (Mutation::AnswerCrossedRecall, S::Invalid, E::RecallRead | E::RecallWrite) => {
            (after, [Action::SendHome(Msg::WriteBack)].into())
        }
        _ => real,
    }
}

#[test]
fn every_planted_error_is_found() {
    finds_each::<Stache>(Mutation::ALL);
}
