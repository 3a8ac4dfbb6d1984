//! Stache: the single-writer, multiple-reader invalidation protocol, as two step functions.
//!
//! Purpose: [`home_step`] for the node that holds a block's directory entry, [`cache_step`] for all others; inputs, outputs and
//! the rules for the caller are in the [parent module](super). Source: Reinhardt 1996, section 2.3.
//!
//! # Decisions
//!
//! * **All data passes through the home** (four hops when a third node is the owner). The home's copy is then current in
//!   every state but Exclusive, and no two nodes other than the home ever exchange messages about a block.
//! * **A ReadOnly copy is dropped silently.** The home may then believe in a sharer that is none. That costs one
//!   Invalidate and one InvalidateAck when somebody stores, whereas a notice would cost a message for each of a page's 64
//!   blocks when it is replaced, and a notice that crosses an Invalidate would need states of its own. Hence a node
//!   acknowledges an Invalidate in whatever state, and WriteRequest (I have nothing) differs from UpgradeRequest.
//! * **Busy blocks defer requests**, in order of arrival (no negative acknowledgements, no retries: nobody starves).
//!   Answers are never deferred, and each busy state waits only for answers that their senders give at once.
//!
//! # Messages that cross
//!
//! "In order" below: messages about one block from one node to another arrive in the order of sending.
//!
//! * *UpgradeRequest crosses Invalidate.* The node gives up its copy, acknowledges, and from then waits for data. The home is
//!   busy when the UpgradeRequest arrives (in order, the acknowledgement is behind it), defers it, and finds on replay that the
//!   requester is no sharer: it answers with data.
//! * *Eviction crosses a recall.* The home takes the WriteBack as the answer. The recall reaches a node that has no copy or waits
//!   for a new one, and is ignored there: in order, a recall that is meant arrives behind the data that made
//!   that node the owner, so a node that has no Writable copy when a recall arrives has sent it home already.
//! * *Request right after an eviction.* In order, the WriteBack is first, so the home never sees a request of the owner.
//! * *Read reply followed at once by Invalidate.* The reply arrives first. `Resume` comes before the next event, so the load
//!   is performed first.
//! * *Invalidate for a dropped copy, while a new request is on its way.* In order, data that answers the new request arrives
//!   behind the Invalidate: the node acknowledges and goes on waiting, and never has to invalidate data that is yet to come.
//!
//! # The home
//!
//! `X`, `Y`, `Z` are nodes other than the home. Every combination that is not in the table is a [`Violation`]. The
//! tables are compared with the functions by this module's tests.
//!
//! <!-- home table: begin -->
//! | state | event | next state | actions |
//! |---|---|---|---|
//! | Idle | Read X | Shared X | tag ReadOnly, DataReadOnly to X |
//! | Idle | Write X, Upgrade X | Exclusive X | tag Invalid, DataWritable to X |
//! | Idle | LocalLoad, LocalStore | same | resume |
//! | Shared X | Read X | same | DataReadOnly to X |
//! | Shared X | Write X | Exclusive X | tag Invalid, DataWritable to X |
//! | Shared X | Upgrade X | Exclusive X | tag Invalid, UpgradeAck to X |
//! | Shared X | Read Y | Shared X Y | DataReadOnly to Y |
//! | Shared X | Write Y, Upgrade Y | AwaitAcks X for Y | Invalidate to X |
//! | Shared X | LocalLoad | same | resume |
//! | Shared X | LocalStore | AwaitAcks X for home | tag Busy, Invalidate to X |
//! | Shared X Y | Read X | same | DataReadOnly to X |
//! | Shared X Y | Write X | AwaitAcks Y for X | Invalidate to Y |
//! | Shared X Y | Upgrade X | AwaitAcks Y for X, upgrade | Invalidate to Y |
//! | Shared X Y | Read Z | Shared X Y Z | DataReadOnly to Z |
//! | Shared X Y | Write Z, Upgrade Z | AwaitAcks X Y for Z | Invalidate to X Y |
//! | Shared X Y | LocalLoad | same | resume |
//! | Shared X Y | LocalStore | AwaitAcks X Y for home | tag Busy, Invalidate to X Y |
//! | Exclusive X | WriteBack X | Idle | copy in, tag Writable |
//! | Exclusive X | Read Y | RecallRead X for Y | RecallRead to X |
//! | Exclusive X | Write Y, Upgrade Y | RecallWrite X for Y | RecallWrite to X |
//! | Exclusive X | LocalLoad | RecallRead X for home | tag Busy, RecallRead to X |
//! | Exclusive X | LocalStore | RecallWrite X for home | tag Busy, RecallWrite to X |
//! | AwaitAcks X Y for Z | Read X, Write X, Upgrade X, LocalStore | same | defer |
//! | AwaitAcks X Y for Z | InvalidateAck X | AwaitAcks Y for Z | none |
//! | AwaitAcks X Y for Z | LocalLoad | same | resume |
//! | AwaitAcks X for Y | Read X, Write X, Upgrade X, Read Z, Write Z, Upgrade Z, LocalStore | same | defer |
//! | AwaitAcks X for Y | InvalidateAck X | Exclusive Y | tag Invalid, DataWritable to Y, replay |
//! | AwaitAcks X for Y | LocalLoad | same | resume |
//! | AwaitAcks X for Y, upgrade | Read X, Write X, Upgrade X, Read Z, Write Z, Upgrade Z, LocalStore | same | defer |
//! | AwaitAcks X for Y, upgrade | InvalidateAck X | Exclusive Y | tag Invalid, UpgradeAck to Y, replay |
//! | AwaitAcks X for Y, upgrade | LocalLoad | same | resume |
//! | AwaitAcks X for home | Read X, Write X, Upgrade X, Read Y, Write Y, Upgrade Y | same | defer |
//! | AwaitAcks X for home | InvalidateAck X | Idle | tag Writable, resume, replay |
//! | RecallRead X for Y | WriteBack X | Shared Y | copy in, tag ReadOnly, DataReadOnly to Y, replay |
//! | RecallRead X for Y | Downgraded X | Shared X Y | copy in, tag ReadOnly, DataReadOnly to Y, replay |
//! | RecallRead X for Y | Read Z, Write Z, Upgrade Z, LocalLoad, LocalStore | same | defer |
//! | RecallRead X for home | WriteBack X | Idle | copy in, tag Writable, resume, replay |
//! | RecallRead X for home | Downgraded X | Shared X | copy in, tag ReadOnly, resume, replay |
//! | RecallRead X for home | Read Y, Write Y, Upgrade Y | same | defer |
//! | RecallWrite X for Y | WriteBack X | Exclusive Y | copy in, DataWritable to Y, replay |
//! | RecallWrite X for Y | Read Z, Write Z, Upgrade Z, LocalLoad, LocalStore | same | defer |
//! | RecallWrite X for home | WriteBack X | Idle | copy in, tag Writable, resume, replay |
//! | RecallWrite X for home | Read Y, Write Y, Upgrade Y | same | defer |
//! <!-- home table: end -->
//!
//! # The other nodes
//!
//! <!-- cache table: begin -->
//! | state | event | next state | actions |
//! |---|---|---|---|
//! | Invalid | Load | ReadPending | tag Busy, send ReadRequest |
//! | Invalid | Store | WritePending | tag Busy, send WriteRequest |
//! | Invalid | Evict, RecallRead, RecallWrite | same | none |
//! | Invalid | Invalidate | same | send InvalidateAck |
//! | ReadOnly | Load | same | resume |
//! | ReadOnly | Store | UpgradePending | tag Busy, send UpgradeRequest |
//! | ReadOnly | Evict | Invalid | tag Invalid |
//! | ReadOnly | Invalidate | Invalid | tag Invalid, send InvalidateAck |
//! | Writable | Load, Store | same | resume |
//! | Writable | Evict, RecallWrite | Invalid | tag Invalid, send WriteBack |
//! | Writable | RecallRead | ReadOnly | tag ReadOnly, send Downgraded |
//! | ReadPending | DataReadOnly | ReadOnly | copy in, tag ReadOnly, resume |
//! | ReadPending | Invalidate | same | send InvalidateAck |
//! | ReadPending | RecallRead, RecallWrite | same | none |
//! | WritePending | DataWritable | Writable | copy in, tag Writable, resume |
//! | WritePending | Invalidate | same | send InvalidateAck |
//! | WritePending | RecallRead, RecallWrite | same | none |
//! | UpgradePending | UpgradeAck | Writable | tag Writable, resume |
//! | UpgradePending | Invalidate | WritePending | send InvalidateAck |
//! <!-- cache table: end -->

use crate::ids::{NodeId, NodeSet};
use crate::protocols::stache::directory::{DirState, Requester};
use crate::protocols::stache::vocabulary::{Action, Actions, CacheEvent, CacheState, HomeEvent, Msg, Violation};
use crate::tag::Tag;

/// One event at the block's home. `local` is the tag of the home's own copy. Returns the new state, the new tag of
/// the home's own copy (which the actions also set, at the right moment), and what to do.
#[inline(always)]
pub fn home_step(state: DirState, local: Tag, event: HomeEvent) -> Result<(DirState, Tag, Actions), Violation> {
    if local != state.home_tag() {
        return Err(Violation::WrongTag { state, found: local });
    }
    let (next, actions) = home_transition(state, event).ok_or(Violation::AtHome { state, event })?;
    Ok((next, next.home_tag(), actions))
}

/// One event at a node that is not the block's home.
#[inline(always)]
pub fn cache_step(state: CacheState, event: CacheEvent) -> Result<(CacheState, Actions), Violation> {
    cache_transition(state, event).ok_or(Violation::AtCache { state, event })
}

/// `None`: cannot occur.
#[inline(always)]
fn home_transition(state: DirState, event: HomeEvent) -> Option<(DirState, Actions)> {
    match state {
        DirState::Idle => idle(event),
        DirState::Shared(sharers) => shared(sharers, event),
        DirState::Exclusive(owner) => exclusive(owner, event),
        DirState::AwaitAcks { waiting, requester, upgrade } => match event {
            HomeEvent::InvalidateAck(from) if waiting.contains(from) => {
                let waiting = waiting.without(from);
                if waiting.is_empty() {
                    Some(last_ack(requester, upgrade))
                } else {
                    Some((DirState::AwaitAcks { waiting, requester, upgrade }, Actions::NONE))
                }
            }
            _ => busy(state, requester, event),
        },
        DirState::RecallRead { owner, requester } => match event {
            HomeEvent::Downgraded(from) if from == owner => Some(read_recalled(NodeSet::of(owner), requester)),
            // The owner evicted its copy: it is no sharer.
            HomeEvent::WriteBack(from) if from == owner => Some(read_recalled(NodeSet::EMPTY, requester)),
            _ if event.is_from(owner) => None,
            _ => busy(state, requester, event),
        },
        DirState::RecallWrite { owner, requester } => match event {
            HomeEvent::WriteBack(from) if from == owner => Some(match requester {
                Requester::Home => data_came_home(),
                Requester::Node(node) => (
                    DirState::Exclusive(node),
                    [Action::CopyIn, Action::Send(node, Msg::DataWritable), Action::Replay].into(),
                ),
            }),
            _ if event.is_from(owner) => None,
            _ => busy(state, requester, event),
        },
    }
}

#[inline(always)]
fn idle(event: HomeEvent) -> Option<(DirState, Actions)> {
    match event {
        HomeEvent::Read(node) => Some((
            DirState::Shared(NodeSet::of(node)),
            [Action::SetTag(Tag::ReadOnly), Action::Send(node, Msg::DataReadOnly)].into(),
        )),
        // An upgrade: its copy was invalidated while the request was on its way.
        HomeEvent::Write(node) | HomeEvent::Upgrade(node) => Some((
            DirState::Exclusive(node),
            [Action::SetTag(Tag::Invalid), Action::Send(node, Msg::DataWritable)].into(),
        )),
        HomeEvent::LocalLoad | HomeEvent::LocalStore => Some((DirState::Idle, [Action::Resume].into())),
        HomeEvent::InvalidateAck(_) | HomeEvent::WriteBack(_) | HomeEvent::Downgraded(_) => None,
    }
}

#[inline(always)]
fn shared(sharers: NodeSet, event: HomeEvent) -> Option<(DirState, Actions)> {
    match event {
        HomeEvent::Read(node) => {
            Some((DirState::Shared(sharers.with(node)), [Action::Send(node, Msg::DataReadOnly)].into()))
        }
        HomeEvent::Write(node) | HomeEvent::Upgrade(node) => {
            let upgrade = matches!(event, HomeEvent::Upgrade(_)) && sharers.contains(node);
            let waiting = sharers.without(node);
            Some(if waiting.is_empty() {
                grant_store(node, upgrade)
            } else {
                (
                    DirState::AwaitAcks { waiting, requester: Requester::Node(node), upgrade },
                    [Action::Invalidate(waiting)].into(),
                )
            })
        }
        HomeEvent::LocalLoad => Some((DirState::Shared(sharers), [Action::Resume].into())),
        HomeEvent::LocalStore => Some((
            DirState::AwaitAcks { waiting: sharers, requester: Requester::Home, upgrade: false },
            [Action::SetTag(Tag::Busy), Action::Invalidate(sharers)].into(),
        )),
        HomeEvent::InvalidateAck(_) | HomeEvent::WriteBack(_) | HomeEvent::Downgraded(_) => None,
    }
}

#[inline(always)]
fn exclusive(owner: NodeId, event: HomeEvent) -> Option<(DirState, Actions)> {
    let requester = match event {
        HomeEvent::WriteBack(from) if from == owner => {
            return Some((DirState::Idle, [Action::CopyIn, Action::SetTag(Tag::Writable)].into()));
        }
        _ if event.is_from(owner) => return None,
        HomeEvent::Read(node) | HomeEvent::Write(node) | HomeEvent::Upgrade(node) => Requester::Node(node),
        HomeEvent::LocalLoad | HomeEvent::LocalStore => Requester::Home,
        HomeEvent::InvalidateAck(_) | HomeEvent::WriteBack(_) | HomeEvent::Downgraded(_) => return None,
    };
    let (next, recall) = match event {
        HomeEvent::Read(_) | HomeEvent::LocalLoad => (DirState::RecallRead { owner, requester }, Msg::RecallRead),
        _ => (DirState::RecallWrite { owner, requester }, Msg::RecallWrite),
    };
    let send = Action::Send(owner, recall);
    Some((
        next,
        match requester {
            Requester::Home => [Action::SetTag(Tag::Busy), send].into(),
            Requester::Node(_) => [send].into(),
        },
    ))
}

/// A request while the home waits for answers on behalf of `requester`; answers that are waited for have been handled.
#[inline(always)]
fn busy(state: DirState, requester: Requester, event: HomeEvent) -> Option<(DirState, Actions)> {
    match event {
        HomeEvent::Read(node) | HomeEvent::Write(node) | HomeEvent::Upgrade(node)
            if requester != Requester::Node(node) =>
        {
            Some((state, [Action::Defer].into()))
        }
        HomeEvent::LocalLoad if state.home_tag().allows_load() => Some((state, [Action::Resume].into())),
        HomeEvent::LocalLoad | HomeEvent::LocalStore if requester != Requester::Home => {
            Some((state, [Action::Defer].into()))
        }
        _ => None,
    }
}

#[inline(always)]
fn last_ack(requester: Requester, upgrade: bool) -> (DirState, Actions) {
    match requester {
        Requester::Home => (DirState::Idle, [Action::SetTag(Tag::Writable), Action::Resume, Action::Replay].into()),
        Requester::Node(node) => {
            let reply = if upgrade { Msg::UpgradeAck } else { Msg::DataWritable };
            let actions = [Action::SetTag(Tag::Invalid), Action::Send(node, reply), Action::Replay];
            (DirState::Exclusive(node), actions.into())
        }
    }
}

#[inline(always)]
fn grant_store(node: NodeId, upgrade: bool) -> (DirState, Actions) {
    let reply = if upgrade { Msg::UpgradeAck } else { Msg::DataWritable };
    (DirState::Exclusive(node), [Action::SetTag(Tag::Invalid), Action::Send(node, reply)].into())
}

/// The data has come back for a load of `requester`; `kept` have ReadOnly copies.
#[inline(always)]
fn read_recalled(kept: NodeSet, requester: Requester) -> (DirState, Actions) {
    let (sharers, answer) = match requester {
        Requester::Home if kept.is_empty() => return data_came_home(),
        Requester::Home => (kept, Action::Resume),
        Requester::Node(node) => (kept.with(node), Action::Send(node, Msg::DataReadOnly)),
    };
    (DirState::Shared(sharers), [Action::CopyIn, Action::SetTag(Tag::ReadOnly), answer, Action::Replay].into())
}

/// The home asked for the data and no other node has a copy: it may store, even if it only wanted to load.
#[inline(always)]
fn data_came_home() -> (DirState, Actions) {
    (DirState::Idle, [Action::CopyIn, Action::SetTag(Tag::Writable), Action::Resume, Action::Replay].into())
}

/// `None`: cannot occur.
#[inline(always)]
fn cache_transition(state: CacheState, event: CacheEvent) -> Option<(CacheState, Actions)> {
    use CacheEvent as E;
    use CacheState as S;
    let ack = Action::SendHome(Msg::InvalidateAck);
    Some(match (state, event) {
        (S::Invalid, E::Load) => {
            (S::ReadPending, [Action::SetTag(Tag::Busy), Action::SendHome(Msg::ReadRequest)].into())
        }
        (S::Invalid, E::Store) => {
            (S::WritePending, [Action::SetTag(Tag::Busy), Action::SendHome(Msg::WriteRequest)].into())
        }
        (S::Invalid, E::Evict) => (S::Invalid, Actions::NONE),
        // For a copy that was dropped.
        (S::Invalid | S::ReadPending | S::WritePending, E::Invalidate) => (state, [ack].into()),
        // Crossed the WriteBack of an eviction, which answers it.
        (S::Invalid | S::ReadPending | S::WritePending, E::RecallRead | E::RecallWrite) => (state, Actions::NONE),

        (S::ReadOnly, E::Load) => (S::ReadOnly, [Action::Resume].into()),
        (S::ReadOnly, E::Store) => {
            (S::UpgradePending, [Action::SetTag(Tag::Busy), Action::SendHome(Msg::UpgradeRequest)].into())
        }
        (S::ReadOnly, E::Evict) => (S::Invalid, [Action::SetTag(Tag::Invalid)].into()),
        (S::ReadOnly, E::Invalidate) => (S::Invalid, [Action::SetTag(Tag::Invalid), ack].into()),

        (S::Writable, E::Load | E::Store) => (S::Writable, [Action::Resume].into()),
        (S::Writable, E::Evict | E::RecallWrite) => {
            (S::Invalid, [Action::SetTag(Tag::Invalid), Action::SendHome(Msg::WriteBack)].into())
        }
        (S::Writable, E::RecallRead) => {
            (S::ReadOnly, [Action::SetTag(Tag::ReadOnly), Action::SendHome(Msg::Downgraded)].into())
        }

        (S::ReadPending, E::DataReadOnly) => {
            (S::ReadOnly, [Action::CopyIn, Action::SetTag(Tag::ReadOnly), Action::Resume].into())
        }
        (S::WritePending, E::DataWritable) => {
            (S::Writable, [Action::CopyIn, Action::SetTag(Tag::Writable), Action::Resume].into())
        }
        (S::UpgradePending, E::UpgradeAck) => (S::Writable, [Action::SetTag(Tag::Writable), Action::Resume].into()),
        // The tag is Busy already; the data is lost, so the home will answer with data.
        (S::UpgradePending, E::Invalidate) => (S::WritePending, [ack].into()),
        _ => return None,
    })
}
