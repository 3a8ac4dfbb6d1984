//! The steps of update: those of stache, with a home that may store while others have copies.
//!
//! Input: a state and an event. Output: the next state and what is to be done, or a violation. Pure.
//!
//! | | stache | update |
//! |---|---|---|
//! | home's tag while shared, and while copies are invalidated for another node | ReadOnly | Writable |
//! | LocalStore in these states | invalidates | granted |
//! | Upgrade X, Store to a ReadOnly copy | the copy is good: no data | as Write X: the home may have stored since |
//! | Dropped X (13) | | X is no reader any more |

use crate::ids::NodeId;
use crate::protocol::messages::MessageRow;
use crate::protocols::stache::directory::{DirState, Requester};
use crate::protocols::stache::steps;
use crate::protocols::stache::vocabulary::{
    Action, Actions, CacheEvent, CacheState, HomeEvent, MESSAGES as OF_STACHE, Violation,
};
use crate::tag::Tag;

/// Node to home: what was pushed found no copy.
pub const DROPPED: u8 = 13;

/// Those of stache, and one more.
pub const MESSAGES: &[MessageRow] = &{
    let mut rows = [MessageRow { name: "Dropped", is_for_home: true, carries_data: false, is_answer: false }; 13];
    let mut at = 0;
    while at < OF_STACHE.len() {
        rows[at] = OF_STACHE[at];
        at += 1;
    }
    rows
};

/// The tag that the home's own copy has.
pub const fn home_tag(state: DirState) -> Tag {
    match state {
        DirState::Shared(_) | DirState::AwaitAcks { requester: Requester::Node(_), .. } => Tag::Writable,
        _ => state.home_tag(),
    }
}

/// As [`steps::home_step`].
pub fn home_step(state: DirState, local: Tag, event: HomeEvent) -> Result<(DirState, Tag, Actions), Violation> {
    if local != home_tag(state) {
        return Err(Violation::WrongTag { state, found: local });
    }
    let event = match event {
        HomeEvent::LocalLoad | HomeEvent::LocalStore if local == Tag::Writable => {
            return Ok((state, local, [Action::Resume].into()));
        }
        HomeEvent::Upgrade(node) => HomeEvent::Write(node),
        _ => event,
    };
    let (next, _, actions) = steps::home_step(state, state.home_tag(), event)?;
    Ok((
        next,
        home_tag(next),
        actions.map(|action| match action {
            Action::SetTag(_) => Action::SetTag(home_tag(next)),
            _ => action,
        }),
    ))
}

/// As [`steps::cache_step`].
pub fn cache_step(state: CacheState, event: CacheEvent) -> Result<(CacheState, Actions), Violation> {
    match (state, event) {
        // Without its copy.
        (CacheState::ReadOnly, CacheEvent::Store) => steps::cache_step(CacheState::Invalid, event),
        _ => steps::cache_step(state, event),
    }
}

/// At the home: a node says that it has no copy. Whatever it asked for, it will ask for behind this.
pub fn without_reader(state: DirState, from: NodeId) -> DirState {
    match state {
        DirState::Shared(readers) => match readers.without(from) {
            rest if rest.is_empty() => DirState::Idle,
            rest => DirState::Shared(rest),
        },
        _ => state,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeSet;
    use crate::protocols::stache::vocabulary::Msg;
    use crate::tests::{node, x, y, z};

    fn states() -> std::vec::Vec<DirState> {
        let (one, two) = (NodeSet::of(x()), NodeSet::of(x()).with(y()));
        let mut all = std::vec![DirState::Idle, DirState::Shared(one), DirState::Shared(two), DirState::Exclusive(x())];
        for requester in [Requester::Home, Requester::Node(z())] {
            all.push(DirState::AwaitAcks { waiting: two, requester, upgrade: false });
            all.push(DirState::AwaitAcks { waiting: one, requester, upgrade: false });
            all.push(DirState::RecallRead { owner: x(), requester });
            all.push(DirState::RecallWrite { owner: x(), requester });
        }
        all
    }

    fn events() -> impl Iterator<Item = HomeEvent> {
        use HomeEvent as E;
        let of = |node| {
            [
                E::Read(node),
                E::Write(node),
                E::Upgrade(node),
                E::InvalidateAck(node),
                E::WriteBack(node),
                E::Downgraded(node),
            ]
        };
        [x(), y(), z()].into_iter().flat_map(of).chain([E::LocalLoad, E::LocalStore])
    }

    /// Whatever happens: the home may store unless the block is elsewhere, and whoever is to store gets data.
    #[test]
    fn the_home_keeps_its_tag_and_who_stores_gets_data() {
        let mut accepted = 0;
        for (state, event) in states().into_iter().flat_map(|state| events().map(move |event| (state, event))) {
            let Ok((next, tag, actions)) = home_step(state, home_tag(state), event) else { continue };
            accepted += 1;
            assert_eq!(tag, home_tag(next), "{state:?} {event:?}");
            assert_ne!(tag, Tag::ReadOnly);
            for action in actions.as_slice() {
                assert!(!matches!(action, Action::SetTag(set) if *set != tag), "{state:?} {event:?}");
                assert!(!matches!(action, Action::Send(_, Msg::UpgradeAck)), "{state:?} {event:?}");
            }
            if matches!(event, HomeEvent::LocalStore) && matches!(state, DirState::Shared(_)) {
                assert_eq!((next, actions), (state, [Action::Resume].into()));
            }
        }
        assert!(accepted > 80, "{accepted}");
        assert!(home_step(DirState::Shared(NodeSet::of(x())), Tag::ReadOnly, HomeEvent::Read(y())).is_err());
        let (state, actions) = cache_step(CacheState::ReadOnly, CacheEvent::Store).unwrap();
        assert_eq!((state, actions.as_slice()[1]), (CacheState::WritePending, Action::SendHome(Msg::WriteRequest)));
    }

    #[test]
    fn the_last_reader_that_drops_its_copy_leaves_the_block_to_the_home() {
        let both = DirState::Shared(NodeSet::of(x()).with(y()));
        assert_eq!(without_reader(both, node(9)), both);
        assert_eq!(without_reader(without_reader(both, x()), y()), DirState::Idle);
        assert_eq!(without_reader(DirState::Exclusive(x()), x()), DirState::Exclusive(x()));
    }
}
