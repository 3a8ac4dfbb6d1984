//! The M-Machine's memory-coherence manager: a second, independent invalidation protocol, as two step functions.
//!
//! Purpose: [`home_step`] for the node that is a block's home, [`node_step`] for all others. Input: a block's state and one
//! event. Output: the new state and the actions to perform in order, or a [`Violation`]. It shares nothing with
//! [`crate::protocols::stache`] but node numbers and tags. Source: Gurevich, "The M-Machine Operating System", 1995, chapter 7.
//!
//! # What is taken from the source
//!
//! * **No queue at the home.** While the copies of a block are being revoked, its state is Transitioning and every other request
//!   is refused with a NACK; the requester asks again (section 7.3.2, "Invalidations Required", "Receiving NACKs").
//! * **The requester's event table.** Each block with something outstanding has an entry with state [`Bits`] beside its tag: PX, PR, I,
//!   AX and NX as in figure 7-4. NR, and the event [`NodeEvent::Serve`], stand for the jobs that the source's message handlers leave to
//!   its event handler (table 7.1: RESENDLOAD, RESENDSTORE, INVALIDATE, INV_LOAD, INV_STORE).
//! * **Messages may overtake each other.** An Invalidate that comes while an answer is outstanding is noted in I and done after
//!   the answer ("Dealing with Orderless Messages and Asynchrony").
//! * **Copies are always revoked whole**, also for a reader: there is no downgrade. A ReadOnly copy is dropped silently; a duplicate that
//!   comes after the exclusive copy is not installed.
//!
//! # What differs, and why
//!
//! * *The owner asks.* After an eviction the new request can overtake the ReturnDirty. The source would answer it with the home's stale
//!   copy. Here the owner's request is refused until its data has come.
//! * *An eviction crosses an Invalidate.* The source counts the plain answer, which can overtake the ReturnDirty, and would grant stale data.
//!   Here a home that revokes an exclusive copy waits for both: the answer to its Invalidate, and the data.
//! * *The yankbuffer is part of the directory entry* ([`HomeState::Transitioning`]), and the request that it holds is served in the step
//!   of the last answer: the block is never unprotected in between.
//! * *Remote operations.* The home does not perform the requester's load or store; the requester does, on its copy.
//! * *Exclusive-clean* is not told from exclusive-dirty: tags do not record stores.
//!
//! # Why reordering does no harm
//!
//! Each node has at most one request of each kind outstanding per block, the home answers each exactly once, and a node answers an
//! Invalidate only when none of its own requests is outstanding. So when the last answer has come, nothing that could carry stale
//! data to, or a stale claim from, a former sharer is on its way; a copy's ReturnDirty is waited for by name. At most one
//! Invalidate, or its answer, is on its way between the home and a node. No message needs a number. (The exploration in `rt/tests`
//! delivers in every order.)
//!
//! # Progress
//!
//! A NACK is sent only when something else is on its way whose arrival ends the reason: an answer to an Invalidate, or dirty data. The
//! last answer serves the request that began the transition. So some request is served again and again; *which* is a
//! matter of luck, as with every protocol that refuses: nobody waits in a queue. The runtime lets a refused node ask again after a
//! growing, bounded pause.
//!
//! # The home
//!
//! `X`, `Y`, `Z` are nodes other than the home; "Revoke X for Y, exclusive" is Transitioning: X has yet to answer, then Y gets the only copy;
//! "owes X": the data is to come from X. Every combination that is not in the table is a [`Violation`]. The tables are compared with
//! the functions by this module's tests.
//!
//! <!-- home table: begin -->
//! | state | event | next state | actions |
//! |---|---|---|---|
//! | Unshared | RequestReadOnly X | Shared X | tag ReadOnly, ReturnReadOnly to X |
//! | Unshared | RequestExclusive X | Exclusive X | tag Invalid, ReturnExclusive to X |
//! | Unshared | LocalLoad, LocalStore | same | resume |
//! | Shared X | RequestReadOnly X | same | ReturnReadOnly to X |
//! | Shared X | RequestExclusive X | Exclusive X | tag Invalid, ReturnExclusive to X |
//! | Shared X | RequestReadOnly Y | Shared X Y | ReturnReadOnly to Y |
//! | Shared X | RequestExclusive Y | Revoke X for Y, exclusive | Invalidate to X |
//! | Shared X | LocalLoad | same | resume |
//! | Shared X | LocalStore | Revoke X for home | Invalidate to X |
//! | Shared X Y | RequestReadOnly X | same | ReturnReadOnly to X |
//! | Shared X Y | RequestExclusive X | Revoke Y for X, exclusive | Invalidate to Y |
//! | Shared X Y | RequestReadOnly Z | Shared X Y Z | ReturnReadOnly to Z |
//! | Shared X Y | RequestExclusive Z | Revoke X Y for Z, exclusive | Invalidate to X Y |
//! | Shared X Y | LocalLoad | same | resume |
//! | Shared X Y | LocalStore | Revoke X Y for home | Invalidate to X Y |
//! | Exclusive X | RequestReadOnly X, RequestExclusive X | same | NACK |
//! | Exclusive X | ReturnDirty X | Unshared | copy in, tag Writable |
//! | Exclusive X | RequestReadOnly Y | Revoke X for Y, owes X | Invalidate to X |
//! | Exclusive X | RequestExclusive Y | Revoke X for Y, exclusive, owes X | Invalidate to X |
//! | Exclusive X | LocalLoad, LocalStore | Revoke X for home, owes X | Invalidate to X |
//! | Revoke X Y for Z, exclusive | RequestReadOnly X, RequestExclusive X, RequestReadOnly Z, RequestExclusive Z | same | NACK |
//! | Revoke X Y for Z, exclusive | Yanked X | Revoke Y for Z, exclusive | none |
//! | Revoke X Y for Z, exclusive | LocalLoad | same | resume |
//! | Revoke X Y for Z, exclusive | LocalStore | same | refused |
//! | Revoke X for Y, exclusive | RequestReadOnly X, RequestExclusive X, RequestReadOnly Y, RequestExclusive Y, RequestReadOnly Z, RequestExclusive Z | same | NACK |
//! | Revoke X for Y, exclusive | Yanked X | Exclusive Y | tag Invalid, ReturnExclusive to Y |
//! | Revoke X for Y, exclusive | LocalLoad | same | resume |
//! | Revoke X for Y, exclusive | LocalStore | same | refused |
//! | Revoke X for Y | RequestReadOnly X, RequestExclusive X, RequestReadOnly Y, RequestExclusive Y, RequestReadOnly Z, RequestExclusive Z | same | NACK |
//! | Revoke X for Y | Yanked X | Shared Y | ReturnReadOnly to Y |
//! | Revoke X for Y | LocalLoad | same | resume |
//! | Revoke X for Y | LocalStore | same | refused |
//! | Revoke X for home | RequestReadOnly X, RequestExclusive X, RequestReadOnly Y, RequestExclusive Y | same | NACK |
//! | Revoke X for home | Yanked X | Unshared | tag Writable, resume |
//! | Revoke X for home | LocalLoad | same | resume |
//! | Revoke X for home | LocalStore | same | none |
//! | Revoke X for Y, exclusive, owes X | RequestReadOnly X, RequestExclusive X, RequestReadOnly Y, RequestExclusive Y, RequestReadOnly Z, RequestExclusive Z | same | NACK |
//! | Revoke X for Y, exclusive, owes X | Yanked X | Revoke nobody for Y, exclusive, owes X | none |
//! | Revoke X for Y, exclusive, owes X | YankedFull X | Exclusive Y | copy in, ReturnExclusive to Y |
//! | Revoke X for Y, exclusive, owes X | ReturnDirty X | Revoke X for Y, exclusive | copy in, tag ReadOnly |
//! | Revoke X for Y, exclusive, owes X | LocalLoad, LocalStore | same | refused |
//! | Revoke X for Y, owes X | RequestReadOnly X, RequestExclusive X, RequestReadOnly Y, RequestExclusive Y, RequestReadOnly Z, RequestExclusive Z | same | NACK |
//! | Revoke X for Y, owes X | Yanked X | Revoke nobody for Y, owes X | none |
//! | Revoke X for Y, owes X | YankedFull X | Shared Y | copy in, tag ReadOnly, ReturnReadOnly to Y |
//! | Revoke X for Y, owes X | ReturnDirty X | Revoke X for Y | copy in, tag ReadOnly |
//! | Revoke X for Y, owes X | LocalLoad, LocalStore | same | refused |
//! | Revoke X for home, owes X | RequestReadOnly X, RequestExclusive X, RequestReadOnly Y, RequestExclusive Y | same | NACK |
//! | Revoke X for home, owes X | Yanked X | Revoke nobody for home, owes X | none |
//! | Revoke X for home, owes X | YankedFull X | Unshared | copy in, tag Writable, resume |
//! | Revoke X for home, owes X | ReturnDirty X | Revoke X for home | copy in, tag ReadOnly |
//! | Revoke X for home, owes X | LocalLoad, LocalStore | same | none |
//! | Revoke nobody for Y, exclusive, owes X | RequestReadOnly X, RequestExclusive X, RequestReadOnly Y, RequestExclusive Y, RequestReadOnly Z, RequestExclusive Z | same | NACK |
//! | Revoke nobody for Y, exclusive, owes X | ReturnDirty X | Exclusive Y | copy in, ReturnExclusive to Y |
//! | Revoke nobody for Y, exclusive, owes X | LocalLoad, LocalStore | same | refused |
//! | Revoke nobody for Y, owes X | RequestReadOnly X, RequestExclusive X, RequestReadOnly Y, RequestExclusive Y, RequestReadOnly Z, RequestExclusive Z | same | NACK |
//! | Revoke nobody for Y, owes X | ReturnDirty X | Shared Y | copy in, tag ReadOnly, ReturnReadOnly to Y |
//! | Revoke nobody for Y, owes X | LocalLoad, LocalStore | same | refused |
//! | Revoke nobody for home, owes X | RequestReadOnly X, RequestExclusive X, RequestReadOnly Y, RequestExclusive Y | same | NACK |
//! | Revoke nobody for home, owes X | ReturnDirty X | Unshared | copy in, tag Writable, resume |
//! | Revoke nobody for home, owes X | LocalLoad, LocalStore | same | none |
//! <!-- home table: end -->
//!
//! # The other nodes
//!
//! A state is the bits of the block's event-table entry and, behind the slash, its tag. A node may evict only what has no entry.
//!
//! <!-- node table: begin -->
//! | state | event | next state | actions |
//! |---|---|---|---|
//! | none / Invalid | Load | PR / Invalid | send RequestReadOnly |
//! | none / Invalid | Store | PX / Invalid | send RequestExclusive |
//! | none / Invalid | Evict | same | none |
//! | none / Invalid | Invalidate | same | send Yanked |
//! | none / ReadOnly | Store | PX / ReadOnly | send RequestExclusive |
//! | none / ReadOnly | Evict | none / Invalid | tag Invalid |
//! | none / ReadOnly | Invalidate | none / Invalid | tag Invalid, send Yanked |
//! | none / Writable | Evict | none / Invalid | tag Invalid, send ReturnDirty |
//! | none / Writable | Invalidate | none / Invalid | tag Invalid, send YankedFull |
//! | PR / Invalid | Load | same | none |
//! | PR / Invalid | Store | PR PX / Invalid | send RequestExclusive |
//! | PR / Invalid | ReturnReadOnly | none / ReadOnly | copy in, tag ReadOnly, resume |
//! | PR / Invalid | NackReadOnly | NR / Invalid | none |
//! | PR / Invalid | Invalidate | PR I / Invalid | none |
//! | PX / Invalid | Load, Store | same | none |
//! | PX / Invalid | ReturnExclusive | none / Writable | copy in, tag Writable, resume |
//! | PX / Invalid | NackExclusive | NX / Invalid | none |
//! | PX / Invalid | Invalidate | PX I / Invalid | none |
//! | PX / ReadOnly | Store | same | none |
//! | PX / ReadOnly | ReturnExclusive | none / Writable | copy in, tag Writable, resume |
//! | PX / ReadOnly | NackExclusive | NX / ReadOnly | none |
//! | PX / ReadOnly | Invalidate | PX I / ReadOnly | none |
//! | PR PX / Invalid | Load, Store | same | none |
//! | PR PX / Invalid | ReturnReadOnly | PX / ReadOnly | copy in, tag ReadOnly, resume |
//! | PR PX / Invalid | ReturnExclusive | PR AX / Writable | copy in, tag Writable, resume |
//! | PR PX / Invalid | NackReadOnly | PX / Invalid | none |
//! | PR PX / Invalid | NackExclusive | PR NX / Invalid | none |
//! | PR PX / Invalid | Invalidate | PR PX I / Invalid | none |
//! | I / ReadOnly | Store | PX / Invalid | tag Invalid, send Yanked, send RequestExclusive |
//! | I / ReadOnly | Serve | none / Invalid | tag Invalid, send Yanked |
//! | I / Writable | Serve | none / Invalid | tag Invalid, send YankedFull |
//! | PR I / Invalid | Load | same | none |
//! | PR I / Invalid | Store | PR PX I / Invalid | send RequestExclusive |
//! | PR I / Invalid | ReturnReadOnly | I / ReadOnly | copy in, tag ReadOnly, resume |
//! | PR I / Invalid | NackReadOnly | I NR / Invalid | none |
//! | PX I / Invalid | Load, Store | same | none |
//! | PX I / Invalid | ReturnExclusive | I / Writable | copy in, tag Writable, resume |
//! | PX I / Invalid | NackExclusive | I NX / Invalid | none |
//! | PX I / ReadOnly | Store | same | none |
//! | PX I / ReadOnly | ReturnExclusive | I / Writable | copy in, tag Writable, resume |
//! | PX I / ReadOnly | NackExclusive | I NX / ReadOnly | none |
//! | PR PX I / Invalid | Load, Store | same | none |
//! | PR PX I / Invalid | ReturnReadOnly | PX I / ReadOnly | copy in, tag ReadOnly, resume |
//! | PR PX I / Invalid | ReturnExclusive | PR I AX / Writable | copy in, tag Writable, resume |
//! | PR PX I / Invalid | NackReadOnly | PX I / Invalid | none |
//! | PR PX I / Invalid | NackExclusive | PR I NX / Invalid | none |
//! | PR AX / Writable | ReturnReadOnly, NackReadOnly | none / Writable | none |
//! | PR AX / Writable | Invalidate | PR I AX / Writable | none |
//! | PR I AX / Writable | ReturnReadOnly, NackReadOnly | I / Writable | none |
//! | NX / Invalid | Load, Store | same | none |
//! | NX / Invalid | Invalidate | same | send Yanked |
//! | NX / Invalid | Serve | PX / Invalid | send RequestExclusive |
//! | NX / ReadOnly | Store | same | none |
//! | NX / ReadOnly | Invalidate | NX / Invalid | tag Invalid, send Yanked |
//! | NX / ReadOnly | Serve | PX / ReadOnly | send RequestExclusive |
//! | PR NX / Invalid | Load, Store | same | none |
//! | PR NX / Invalid | ReturnReadOnly | NX / ReadOnly | copy in, tag ReadOnly, resume |
//! | PR NX / Invalid | NackReadOnly | NX / Invalid | none |
//! | PR NX / Invalid | Invalidate | PR I NX / Invalid | none |
//! | I NX / Invalid | Load, Store | same | none |
//! | I NX / Invalid | Serve | PX / Invalid | send Yanked, send RequestExclusive |
//! | I NX / ReadOnly | Store | same | none |
//! | I NX / ReadOnly | Serve | PX / Invalid | tag Invalid, send Yanked, send RequestExclusive |
//! | PR I NX / Invalid | Load, Store | same | none |
//! | PR I NX / Invalid | ReturnReadOnly | I NX / ReadOnly | copy in, tag ReadOnly, resume |
//! | PR I NX / Invalid | NackReadOnly | I NX / Invalid | none |
//! | NR / Invalid | Load | same | none |
//! | NR / Invalid | Store | PX / Invalid | send RequestExclusive |
//! | NR / Invalid | Invalidate | same | send Yanked |
//! | NR / Invalid | Serve | PR / Invalid | send RequestReadOnly |
//! | I NR / Invalid | Load | same | none |
//! | I NR / Invalid | Store | PX / Invalid | send Yanked, send RequestExclusive |
//! | I NR / Invalid | Serve | PR / Invalid | send Yanked, send RequestReadOnly |
//! <!-- node table: end -->

use crate::ids::{NodeId, NodeSet};
use crate::protocols::mcm::directory::{Entry, HomeState, Requester};
use crate::protocols::mcm::vocabulary::{Action, Actions, Bits, HomeEvent, Msg, NodeEvent, Violation};
use crate::tag::Tag;

/// One event at the block's home. `local` is the tag of the home's own copy. Returns the new directory entry, and what to do.
pub fn home_step(entry: Entry, local: Tag, event: HomeEvent) -> Result<(Entry, Actions), Violation> {
    let state = entry.decode().ok_or(Violation::CorruptEntry)?;
    if local != state.home_tag() {
        return Err(Violation::WrongTag { state, found: local });
    }
    let (next, actions) = home_transition(state, event).ok_or(Violation::AtHome { state, event })?;
    Ok((Entry::encode(next), actions))
}

/// One event at a node that is not the block's home. `tag` is that of its copy, `bits` those of the block's event-table entry.
pub fn node_step(bits: Bits, tag: Tag, event: NodeEvent) -> Result<(Bits, Actions), Violation> {
    let violation = Violation::AtNode { bits, tag, event };
    if !bits.is_possible(tag) {
        return Err(violation);
    }
    node_transition(bits, tag, event).ok_or(violation)
}

/// `None`: cannot occur.
fn home_transition(state: HomeState, event: HomeEvent) -> Option<(HomeState, Actions)> {
    match state {
        HomeState::Unshared => unshared(event),
        HomeState::Shared(sharers) => shared(sharers, event),
        HomeState::Exclusive(owner) => exclusive(owner, event),
        HomeState::Transitioning { waiting, owes, requester } => match event {
            HomeEvent::Yanked(from) if waiting.contains(from) => {
                revoked(state, waiting.without(from), owes, requester, Actions::NONE)
            }
            // The data comes with the answer.
            HomeEvent::YankedFull(from) if owes == Some(from) && waiting.contains(from) => {
                revoked(state, waiting.without(from), None, requester, [Action::CopyIn].into())
            }
            // An eviction crossed the Invalidate; the answer to it may be here already, or not.
            HomeEvent::ReturnDirty(from) if owes == Some(from) => {
                revoked(state, waiting, None, requester, [Action::CopyIn].into())
            }
            _ => refused(state, requester, event).map(|actions| (state, actions)),
        },
    }
}

fn unshared(event: HomeEvent) -> Option<(HomeState, Actions)> {
    match event {
        HomeEvent::RequestReadOnly(node) => {
            Some(grant(Tag::Writable, Requester::Node { node, exclusive: false }, Actions::NONE))
        }
        HomeEvent::RequestExclusive(node) => {
            Some(grant(Tag::Writable, Requester::Node { node, exclusive: true }, Actions::NONE))
        }
        HomeEvent::LocalLoad | HomeEvent::LocalStore => Some((HomeState::Unshared, [Action::Resume].into())),
        HomeEvent::Yanked(_) | HomeEvent::YankedFull(_) | HomeEvent::ReturnDirty(_) => None,
    }
}

fn shared(sharers: NodeSet, event: HomeEvent) -> Option<(HomeState, Actions)> {
    let (requester, others) = match event {
        HomeEvent::RequestReadOnly(node) => {
            let send = Action::Send(node, Msg::ReturnReadOnly);
            return Some((HomeState::Shared(sharers.with(node)), [send].into()));
        }
        HomeEvent::LocalLoad => return Some((HomeState::Shared(sharers), [Action::Resume].into())),
        HomeEvent::RequestExclusive(node) => (Requester::Node { node, exclusive: true }, sharers.without(node)),
        HomeEvent::LocalStore => (Requester::Home, sharers),
        HomeEvent::Yanked(_) | HomeEvent::YankedFull(_) | HomeEvent::ReturnDirty(_) => return None,
    };
    Some(if others.is_empty() {
        grant(Tag::ReadOnly, requester, Actions::NONE)
    } else {
        (HomeState::Transitioning { waiting: others, owes: None, requester }, [Action::Invalidate(others)].into())
    })
}

fn exclusive(owner: NodeId, event: HomeEvent) -> Option<(HomeState, Actions)> {
    let requester = match event {
        HomeEvent::ReturnDirty(from) if from == owner => {
            return Some((HomeState::Unshared, [Action::CopyIn, Action::SetTag(Tag::Writable)].into()));
        }
        // It has evicted its copy and the data is on its way; or it has asked for both kinds, and this is the request that is void.
        HomeEvent::RequestReadOnly(from) | HomeEvent::RequestExclusive(from) if from == owner => {
            return nack(event).map(|actions| (HomeState::Exclusive(owner), actions));
        }
        HomeEvent::RequestReadOnly(node) => Requester::Node { node, exclusive: false },
        HomeEvent::RequestExclusive(node) => Requester::Node { node, exclusive: true },
        HomeEvent::LocalLoad | HomeEvent::LocalStore => Requester::Home,
        HomeEvent::Yanked(_) | HomeEvent::YankedFull(_) | HomeEvent::ReturnDirty(_) => return None,
    };
    let waiting = NodeSet::of(owner);
    let next = HomeState::Transitioning { waiting, owes: Some(owner), requester };
    Some((next, [Action::Invalidate(waiting)].into()))
}

/// A step of a transition: an answer or data has come. `done` has copied the data in, if there was any.
fn revoked(
    before: HomeState,
    waiting: NodeSet,
    owes: Option<NodeId>,
    requester: Requester,
    done: Actions,
) -> Option<(HomeState, Actions)> {
    if waiting.is_empty() && owes.is_none() {
        return Some(grant(before.home_tag(), requester, done));
    }
    let next = HomeState::Transitioning { waiting, owes, requester };
    Some((next, done.then_tag(before.home_tag(), next.home_tag())))
}

/// No other node has a conflicting copy, and the home's copy, whose tag is `tag`, is current.
fn grant(tag: Tag, requester: Requester, done: Actions) -> (HomeState, Actions) {
    match requester {
        Requester::Home => (HomeState::Unshared, done.then_tag(tag, Tag::Writable).then(Action::Resume)),
        Requester::Node { node, exclusive: false } => (
            HomeState::Shared(NodeSet::of(node)),
            done.then_tag(tag, Tag::ReadOnly).then(Action::Send(node, Msg::ReturnReadOnly)),
        ),
        Requester::Node { node, exclusive: true } => (
            HomeState::Exclusive(node),
            done.then_tag(tag, Tag::Invalid).then(Action::Send(node, Msg::ReturnExclusive)),
        ),
    }
}

/// A request while copies are being revoked for `requester`.
fn refused(state: HomeState, requester: Requester, event: HomeEvent) -> Option<Actions> {
    match event {
        HomeEvent::LocalLoad if state.home_tag().allows_load() => Some([Action::Resume].into()),
        // Its request is the one in progress.
        HomeEvent::LocalLoad | HomeEvent::LocalStore if requester == Requester::Home => Some(Actions::NONE),
        HomeEvent::LocalLoad | HomeEvent::LocalStore => Some([Action::Refused].into()),
        _ => nack(event),
    }
}

fn nack(event: HomeEvent) -> Option<Actions> {
    match event {
        HomeEvent::RequestReadOnly(node) => Some([Action::Send(node, Msg::NackReadOnly)].into()),
        HomeEvent::RequestExclusive(node) => Some([Action::Send(node, Msg::NackExclusive)].into()),
        _ => None,
    }
}

/// `None`: cannot occur.
fn node_transition(bits: Bits, tag: Tag, event: NodeEvent) -> Option<(Bits, Actions)> {
    let wants_exclusive = bits.any(Bits::PX.with(Bits::NX));
    match event {
        NodeEvent::Load => match tag {
            Tag::Invalid if bits.is_empty() => Some((Bits::PR, [Action::SendHome(Msg::RequestReadOnly)].into())),
            // What is outstanding or waits to be sent again will serve it.
            Tag::Invalid => Some((bits, Actions::NONE)),
            _ => Some((bits, [Action::Resume].into())),
        },
        NodeEvent::Store => match tag {
            Tag::Writable => Some((bits, [Action::Resume].into())),
            _ if wants_exclusive => Some((bits, Actions::NONE)),
            // The exclusive copy also serves the load that was refused. An invalidation that waits for an answer goes on waiting.
            _ if bits.is_pending() || !bits.any(Bits::I) => {
                Some((bits.without(Bits::NR).with(Bits::PX), [Action::SendHome(Msg::RequestExclusive)].into()))
            }
            _ => Some((Bits::PX, give_up(tag).then(Action::SendHome(Msg::RequestExclusive)))),
        },
        NodeEvent::Evict if !bits.is_empty() => None,
        NodeEvent::Evict => Some((
            bits,
            match tag {
                // The home learns of it when it sends an Invalidate in vain.
                Tag::ReadOnly => [Action::SetTag(Tag::Invalid)].into(),
                Tag::Writable => [Action::SetTag(Tag::Invalid), Action::SendHome(Msg::ReturnDirty)].into(),
                _ => Actions::NONE,
            },
        )),
        NodeEvent::ReturnReadOnly if !bits.any(Bits::PR) => None,
        // The exclusive copy was faster: this one is out of date.
        NodeEvent::ReturnReadOnly if bits.any(Bits::AX) => Some((bits.without(Bits::PR.with(Bits::AX)), Actions::NONE)),
        NodeEvent::ReturnReadOnly => {
            Some((bits.without(Bits::PR), [Action::CopyIn, Action::SetTag(Tag::ReadOnly), Action::Resume].into()))
        }
        NodeEvent::ReturnExclusive if !bits.any(Bits::PX) => None,
        NodeEvent::ReturnExclusive => {
            let late = if bits.any(Bits::PR) { Bits::AX } else { Bits::NONE };
            let actions = [Action::CopyIn, Action::SetTag(Tag::Writable), Action::Resume];
            Some((bits.without(Bits::PX).with(late), actions.into()))
        }
        NodeEvent::NackReadOnly if !bits.any(Bits::PR) => None,
        // The exclusive copy that is here, or will be, serves the load as well.
        NodeEvent::NackReadOnly if wants_exclusive || bits.any(Bits::AX) => {
            Some((bits.without(Bits::PR.with(Bits::AX)), Actions::NONE))
        }
        NodeEvent::NackReadOnly => Some((bits.without(Bits::PR).with(Bits::NR), Actions::NONE)),
        NodeEvent::NackExclusive if !bits.any(Bits::PX) => None,
        NodeEvent::NackExclusive => Some((bits.without(Bits::PX).with(Bits::NX), Actions::NONE)),
        // The home sends no second one before the first is answered.
        NodeEvent::Invalidate if bits.any(Bits::I) => None,
        // It may be meant for data that is still on its way.
        NodeEvent::Invalidate if bits.is_pending() => Some((bits.with(Bits::I), Actions::NONE)),
        NodeEvent::Invalidate => Some((bits, give_up(tag))),
        NodeEvent::Serve if !bits.has_job() => Some((bits, Actions::NONE)),
        NodeEvent::Serve => {
            let done = if bits.any(Bits::I) { give_up(tag) } else { Actions::NONE };
            Some(if bits.any(Bits::NX) {
                (Bits::PX, done.then(Action::SendHome(Msg::RequestExclusive)))
            } else if bits.any(Bits::NR) {
                (Bits::PR, done.then(Action::SendHome(Msg::RequestReadOnly)))
            } else {
                (Bits::NONE, done)
            })
        }
    }
}

/// Gives up whatever copy there is, and answers the home's Invalidate.
fn give_up(tag: Tag) -> Actions {
    let answer = if tag == Tag::Writable { Msg::YankedFull } else { Msg::Yanked };
    Actions::NONE.then_tag(tag, Tag::Invalid).then(Action::SendHome(answer))
}
