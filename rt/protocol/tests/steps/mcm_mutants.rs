//! Planted errors in the M-Machine's protocol: the exploration is seen to fail.
//!
//! As in [`crate::stache_mutants`]: a [`Mutation`] alters what the step functions return. Two of the errors are in the source itself:
//! see "What differs, and why" in the documentation of [`mcm`].

use blizzard_protocol::ids::NodeSet;
use blizzard_protocol::protocols::mcm::directory::{Entry, HomeState, Requester};
use blizzard_protocol::protocols::mcm::steps;
use blizzard_protocol::protocols::mcm::vocabulary::{
    Action, Actions, Bits, HomeEvent, MAX_ACTIONS, Msg, NodeEvent, Violation,
};
use blizzard_protocol::tag::Tag;

use crate::explore::{LATEST_VALUE, NO_FAULT, NOT_STUCK, ONE_WRITER, finds_each};
use crate::model::{Mcm, mutations};

mutations! {
    /// The home leaves one of several sharers out when it invalidates, but waits for it.
    InvalidateTooFew => NOT_STUCK,
    /// The home grants an exclusive copy while others have copies.
    GrantWithoutInvalidation => ONE_WRITER,
    /// The first of several answers counts as the last.
    GrantBeforeLastAnswer => ONE_WRITER,
    /// The home does not note the node it sends a ReadOnly copy to.
    ForgetSharer => ONE_WRITER,
    /// The home keeps its own copy Writable when it gives a ReadOnly one away.
    HomeKeepsWritable => ONE_WRITER,
    /// The home keeps its own copy ReadOnly when it gives the exclusive one away.
    HomeKeepsReadOnly => ONE_WRITER,
    /// As in the source: a plain answer counts although the data is still on its way.
    GrantBeforeDirtyData => LATEST_VALUE,
    /// As in the source: the owner's request, faster than its dirty data, is answered with the home's copy.
    AnswerOwnerWithStaleCopy => LATEST_VALUE,
    /// Dirty data that comes back is noted, but not kept.
    LoseDirtyData => LATEST_VALUE,
    /// Dirty data is passed on before it is copied in.
    ForwardBeforeCopyIn => LATEST_VALUE,
    /// A request that cannot be served is dropped instead of refused.
    SwallowRequest => NOT_STUCK,
    /// The home does not try its own refused request again.
    ForgetOwnRequest => NOT_STUCK,
    /// The home refuses a request of the other kind.
    NackOfOtherKind => NO_FAULT,
    /// The home grants a store as if it were a load.
    GrantWrongKind => NO_FAULT,
    /// The tag is raised without copying the data in.
    RaiseWithoutData => LATEST_VALUE,
    /// The tag is raised when the request is sent, before the data is here.
    RaiseBeforeData => LATEST_VALUE,
    /// An Invalidate that comes while an answer is outstanding is done at once.
    InvalidateAtOnce => ONE_WRITER,
    /// An Invalidate that comes after the exclusive copy but before the late ReadOnly one is done at once.
    InvalidateBeforeLateCopy => ONE_WRITER,
    /// An Invalidate that was noted is forgotten when the data comes.
    ForgetInvalidate => NOT_STUCK,
    /// An Invalidate is answered but the copy kept.
    AnswerWithoutInvalidating => ONE_WRITER,
    /// An Invalidate for a dropped copy is not answered.
    NoAnswerForDroppedCopy => NOT_STUCK,
    /// A ReadOnly copy that comes after the exclusive one is installed.
    InstallLateCopy => LATEST_VALUE,
    /// A refused request for the exclusive copy is not sent again.
    NoRetry => NOT_STUCK,
    /// A refused request is sent again, but the old answer is still waited for.
    RetryWithoutState => NO_FAULT,
    /// A Writable copy is dropped without sending it home.
    EvictWithoutReturn => NOT_STUCK,
    /// A Writable copy is given up without its data.
    YankWithoutData => NOT_STUCK,
    /// A Writable copy whose data is returned stays readable.
    YankKeepsReadOnly => ONE_WRITER,
}

pub fn home_step(
    mutation: Option<Mutation>,
    entry: Entry,
    tag: Tag,
    event: HomeEvent,
) -> Result<(Entry, Actions), Violation> {
    let (next, actions) = match (mutation, event) {
        // The data is believed to come with every answer.
        (Some(Mutation::GrantBeforeDirtyData), HomeEvent::Yanked(from)) => {
            match steps::home_step(entry, tag, HomeEvent::YankedFull(from)) {
                Ok((next, actions)) => (next, without(&actions, Action::CopyIn)),
                Err(_) => steps::home_step(entry, tag, event)?,
            }
        }
        _ => steps::home_step(entry, tag, event)?,
    };
    let (Some(mutation), Some(before), Some(after)) = (mutation, entry.decode(), next.decode()) else {
        return Ok((next, actions));
    };
    let (after, actions) = mutate_home(mutation, before, event, (after, actions));
    Ok((Entry::encode(after), actions))
}

pub fn node_step(
    mutation: Option<Mutation>,
    bits: Bits,
    tag: Tag,
    event: NodeEvent,
) -> Result<(Bits, Actions), Violation> {
    let real = steps::node_step(bits, tag, event)?;
    Ok(match mutation {
        Some(mutation) => mutate_node(mutation, bits, tag, event, real),
        None => real,
    })
}

/// The list with `change` applied to each action.
fn map(actions: &Actions, change: impl Fn(Action) -> Option<Action>) -> Actions {
    const { assert!(MAX_ACTIONS == 3) }
    let list: Vec<Action> = actions.as_slice().iter().filter_map(|&action| change(action)).collect();
    match *list {
        [] => Actions::NONE,
        [a] => [a].into(),
        [a, b] => [a, b].into(),
        [a, b, c] => [a, b, c].into(),
        _ => unreachable!("mutations never lengthen a list"),
    }
}

fn without(actions: &Actions, unwanted: Action) -> Actions {
    map(actions, |action| (action != unwanted).then_some(action))
}

/// Each message replaced by what `other` says.
fn with_msgs(actions: &Actions, other: impl Fn(Msg) -> Msg) -> Actions {
    map(actions, |action| match action {
        Action::Send(to, msg) => Some(Action::Send(to, other(msg))),
        Action::SendHome(msg) => Some(Action::SendHome(other(msg))),
        _ => Some(action),
    })
}

fn mutate_home(
    mutation: Mutation,
    before: HomeState,
    event: HomeEvent,
    real @ (after, actions): (HomeState, Actions),
) -> (HomeState, Actions) {
    use HomeEvent as E;
    use HomeState as S;
    match (mutation, before, event, after) {
        (Mutation::InvalidateTooFew, _, _, S::Transitioning { waiting, .. }) if waiting.len() > 1 => {
            let first = waiting.iter().next().expect("not empty");
            let fewer = |action| match action {
                Action::Invalidate(set) => Some(Action::Invalidate(set.without(first))),
                other => Some(other),
            };
            (after, map(&actions, fewer))
        }
        (Mutation::GrantWithoutInvalidation, S::Shared(_), E::RequestExclusive(node), S::Transitioning { .. }) => {
            (S::Exclusive(node), [Action::SetTag(Tag::Invalid), Action::Send(node, Msg::ReturnExclusive)].into())
        }
        (
            Mutation::GrantBeforeLastAnswer,
            S::Transitioning { owes: None, requester: Requester::Home, .. },
            E::Yanked(_),
            S::Transitioning { .. },
        ) => (S::Unshared, [Action::SetTag(Tag::Writable), Action::Resume].into()),
        (Mutation::ForgetSharer, S::Shared(set), E::RequestReadOnly(_), _) => (S::Shared(set), actions),
        (Mutation::HomeKeepsWritable, S::Unshared, E::RequestReadOnly(_), _) => {
            (after, without(&actions, Action::SetTag(Tag::ReadOnly)))
        }
        (Mutation::HomeKeepsReadOnly, S::Shared(_), E::RequestExclusive(_), S::Exclusive(_)) => {
            (after, without(&actions, Action::SetTag(Tag::Invalid)))
        }
        (Mutation::AnswerOwnerWithStaleCopy, S::Exclusive(owner), E::RequestReadOnly(from), _) if from == owner => {
            (after, [Action::Send(from, Msg::ReturnReadOnly)].into())
        }
        (Mutation::LoseDirtyData, S::Exclusive(_), E::ReturnDirty(_), _) => (after, without(&actions, Action::CopyIn)),
        (Mutation::ForwardBeforeCopyIn, S::Transitioning { .. }, E::YankedFull(_), S::Exclusive(_)) => {
            let [copy_in, send] = *actions.as_slice() else { unreachable!("{actions:?}") };
            (after, [send, copy_in].into())
        }
        (Mutation::SwallowRequest, S::Transitioning { .. }, ..) => {
            let nack = |action| matches!(action, Action::Send(_, Msg::NackReadOnly | Msg::NackExclusive));
            (after, map(&actions, |action| (!nack(action)).then_some(action)))
        }
        (Mutation::ForgetOwnRequest, ..) => (after, without(&actions, Action::Refused)),
        (Mutation::NackOfOtherKind, _, E::RequestReadOnly(_), _) => {
            let other = |msg| if msg == Msg::NackReadOnly { Msg::NackExclusive } else { msg };
            (after, with_msgs(&actions, other))
        }
        (
            Mutation::GrantWrongKind,
            S::Transitioning { requester: Requester::Node { node, exclusive: true }, .. },
            _,
            S::Exclusive(_),
        ) => {
            let other = |msg| if msg == Msg::ReturnExclusive { Msg::ReturnReadOnly } else { msg };
            (S::Shared(NodeSet::of(node)), with_msgs(&actions, other))
        }
        _ => real,
    }
}

fn mutate_node(
    mutation: Mutation,
    bits: Bits,
    tag: Tag,
    event: NodeEvent,
    real @ (after, actions): (Bits, Actions),
) -> (Bits, Actions) {
    use NodeEvent as E;
    let gave_up = |answer| [Action::SetTag(Tag::Invalid), Action::SendHome(answer)];
    match (mutation, event) {
        (Mutation::RaiseWithoutData, _) => (after, without(&actions, Action::CopyIn)),
        (Mutation::RaiseBeforeData, E::Load) if bits.is_empty() => {
            (after, [Action::SetTag(Tag::ReadOnly), Action::SendHome(Msg::RequestReadOnly)].into())
        }
        (Mutation::InvalidateAtOnce, E::Invalidate) if bits == Bits::PR => {
            (bits, [Action::SendHome(Msg::Yanked)].into())
        }
        (Mutation::InvalidateBeforeLateCopy, E::Invalidate) if bits.any(Bits::AX) => {
            (bits.without(Bits::AX), gave_up(Msg::YankedFull).into())
        }
        (Mutation::ForgetInvalidate, E::ReturnReadOnly | E::ReturnExclusive) => (after.without(Bits::I), actions),
        (Mutation::AnswerWithoutInvalidating, E::Invalidate) if tag == Tag::ReadOnly => {
            (after, without(&actions, Action::SetTag(Tag::Invalid)))
        }
        (Mutation::NoAnswerForDroppedCopy, E::Invalidate) if tag == Tag::Invalid => (after, Actions::NONE),
        (Mutation::InstallLateCopy, E::ReturnReadOnly) if bits.any(Bits::AX) => (after, [Action::CopyIn].into()),
        (Mutation::NoRetry, E::NackExclusive) => (after.without(Bits::NX), actions),
        (Mutation::RetryWithoutState, E::Serve) => (after.without(Bits::PX), actions),
        (Mutation::EvictWithoutReturn, E::Evict) if tag == Tag::Writable => {
            (after, [Action::SetTag(Tag::Invalid)].into())
        }
        (Mutation::YankWithoutData, _) => {
            (after, with_msgs(&actions, |msg| if msg == Msg::YankedFull { Msg::Yanked } else { msg }))
        }
        (Mutation::YankKeepsReadOnly, E::Invalidate) if tag == Tag::Writable && bits.is_empty() => {
            (after, [Action::SetTag(Tag::ReadOnly), Action::SendHome(Msg::YankedFull)].into())
        }
        _ => real,
    }
}

#[test]
fn every_planted_error_is_found() {
    finds_each::<Mcm>(Mutation::ALL);
}
