//! The tables in the documentation of [`super::steps`] are what the functions do, and the functions keep their own rules in every
//! state and for every event, reachable or not.

use super::directory::*;
use super::steps::*;
use super::vocabulary::*;
use crate::ids::{NodeId, NodeSet};
use crate::tag::Tag;
use crate::tests::{documented, name, names, node, table, x, y, z};

const DOC: &str = include_str!("steps.rs");

fn requester_name(requester: Requester) -> &'static str {
    match requester {
        Requester::Home => "home",
        Requester::Node(node) => name(node),
    }
}

fn state_name(state: DirState) -> String {
    match state {
        DirState::Idle => "Idle".into(),
        DirState::Shared(set) => format!("Shared {}", names(set.iter())),
        DirState::Exclusive(owner) => format!("Exclusive {}", name(owner)),
        DirState::AwaitAcks { waiting, requester, upgrade } => {
            let upgrade = if upgrade { ", upgrade" } else { "" };
            format!("AwaitAcks {} for {}{upgrade}", names(waiting.iter()), requester_name(requester))
        }
        DirState::RecallRead { owner, requester } => {
            format!("RecallRead {} for {}", name(owner), requester_name(requester))
        }
        DirState::RecallWrite { owner, requester } => {
            format!("RecallWrite {} for {}", name(owner), requester_name(requester))
        }
    }
}

fn event_name(event: HomeEvent) -> String {
    match event {
        HomeEvent::Read(from) => format!("Read {}", name(from)),
        HomeEvent::Write(from) => format!("Write {}", name(from)),
        HomeEvent::Upgrade(from) => format!("Upgrade {}", name(from)),
        HomeEvent::InvalidateAck(from) => format!("InvalidateAck {}", name(from)),
        HomeEvent::WriteBack(from) => format!("WriteBack {}", name(from)),
        HomeEvent::Downgraded(from) => format!("Downgraded {}", name(from)),
        HomeEvent::LocalLoad => "LocalLoad".into(),
        HomeEvent::LocalStore => "LocalStore".into(),
    }
}

fn actions_name(actions: Actions) -> String {
    let names: Vec<String> = actions
        .as_slice()
        .iter()
        .map(|action| match action {
            Action::CopyIn => "copy in".into(),
            Action::SetTag(tag) => format!("tag {tag:?}"),
            Action::Send(to, msg) => format!("{msg:?} to {}", name(*to)),
            Action::Invalidate(set) => format!("Invalidate to {}", names(set.iter())),
            Action::SendHome(msg) => format!("send {msg:?}"),
            Action::Resume => "resume".into(),
            Action::Replay => "replay".into(),
            Action::Defer => "defer".into(),
        })
        .collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn events_from(from: NodeId) -> [HomeEvent; 6] {
    [
        HomeEvent::Read(from),
        HomeEvent::Write(from),
        HomeEvent::Upgrade(from),
        HomeEvent::InvalidateAck(from),
        HomeEvent::WriteBack(from),
        HomeEvent::Downgraded(from),
    ]
}

fn home_table() -> String {
    let xy = NodeSet::of(x()).with(y());
    let mut rows = Vec::new();
    let acks = |waiting, requester, upgrade| DirState::AwaitAcks { waiting, requester, upgrade };
    let just_x = NodeSet::of(x());
    // With the nodes whose events are shown: all that play a part in the state, and one that does not.
    for (state, nodes) in [
        (DirState::Idle, vec![x()]),
        (DirState::Shared(just_x), vec![x(), y()]),
        (DirState::Shared(xy), vec![x(), z()]),
        (DirState::Exclusive(x()), vec![x(), y()]),
        (acks(xy, Requester::Node(z()), false), vec![x(), z()]),
        (acks(just_x, Requester::Node(y()), false), vec![x(), y(), z()]),
        (acks(just_x, Requester::Node(y()), true), vec![x(), y(), z()]),
        (acks(just_x, Requester::Home, false), vec![x(), y()]),
        (DirState::RecallRead { owner: x(), requester: Requester::Node(y()) }, vec![x(), y(), z()]),
        (DirState::RecallRead { owner: x(), requester: Requester::Home }, vec![x(), y()]),
        (DirState::RecallWrite { owner: x(), requester: Requester::Node(y()) }, vec![x(), y(), z()]),
        (DirState::RecallWrite { owner: x(), requester: Requester::Home }, vec![x(), y()]),
    ] {
        let events = nodes.into_iter().flat_map(events_from).chain([HomeEvent::LocalLoad, HomeEvent::LocalStore]);
        for event in events {
            if let Ok((next, _, actions)) = home_step(state, state.home_tag(), event) {
                rows.push([state_name(state), event_name(event), state_name(next), actions_name(actions)]);
            }
        }
    }
    table(rows)
}

fn cache_table() -> String {
    let mut rows = Vec::new();
    for state in CacheState::ALL {
        for event in CacheEvent::ALL {
            if let Ok((next, actions)) = cache_step(state, event) {
                rows.push([format!("{state:?}"), format!("{event:?}"), format!("{next:?}"), actions_name(actions)]);
            }
        }
    }
    table(rows)
}

#[test]
fn documented_home_table_is_what_the_function_does() {
    let expected = home_table();
    assert!(documented(DOC, "home") == expected, "the table must be:\n{expected}");
}

#[test]
fn documented_cache_table_is_what_the_function_does() {
    let expected = cache_table();
    assert!(documented(DOC, "cache") == expected, "the table must be:\n{expected}");
}

/// Every directory state over four remote nodes.
fn dir_states() -> Vec<DirState> {
    let nodes: Vec<NodeId> = (1..5).map(node).collect();
    let mut states = vec![DirState::Idle];
    for bits in 1..16u32 {
        let set = nodes.iter().filter(|n| bits >> (n.index() - 1) & 1 == 1).fold(NodeSet::EMPTY, |s, &n| s.with(n));
        states.push(DirState::Shared(set));
        states.push(DirState::AwaitAcks { waiting: set, requester: Requester::Home, upgrade: false });
        for &n in nodes.iter().filter(|&&n| !set.contains(n)) {
            for upgrade in [false, true] {
                states.push(DirState::AwaitAcks { waiting: set, requester: Requester::Node(n), upgrade });
            }
        }
    }
    for &owner in &nodes {
        states.push(DirState::Exclusive(owner));
        let others = nodes.iter().filter(|&&n| n != owner).map(|&n| Requester::Node(n));
        for requester in others.chain([Requester::Home]) {
            states.push(DirState::RecallRead { owner, requester });
            states.push(DirState::RecallWrite { owner, requester });
        }
    }
    states
}

fn home_events() -> impl Iterator<Item = HomeEvent> {
    (1..5).map(node).flat_map(events_from).chain([HomeEvent::LocalLoad, HomeEvent::LocalStore])
}

#[test]
fn home_steps_keep_their_rules() {
    let mut steps = 0;
    for state in dir_states() {
        for event in home_events() {
            let Ok((next, tag, actions)) = home_step(state, state.home_tag(), event) else {
                continue;
            };
            steps += 1;
            let context = format!("{state:?} {event:?} -> {next:?} {actions:?}");
            let list = actions.as_slice();
            // The tag that the actions leave is the one returned, and the one that the new state implies.
            let mut left = state.home_tag();
            // A store miss of the home itself: the tag is Busy, the data is good.
            let mut data_here = matches!(state, DirState::AwaitAcks { .. });
            for (at, &action) in list.iter().enumerate() {
                match action {
                    Action::CopyIn => {
                        let brings_data = matches!(event, HomeEvent::WriteBack(_) | HomeEvent::Downgraded(_));
                        assert!(brings_data && at == 0, "data first, and only when there is some: {context}");
                        data_here = true;
                    }
                    Action::SetTag(tag) => {
                        let raised = tag.allows_load() && !left.allows_load();
                        assert!(!raised || data_here, "a readable tag needs data: {context}");
                        left = tag;
                    }
                    Action::Send(to, msg) => {
                        assert!(!msg.is_for_home(), "{context}");
                        match msg {
                            Msg::DataReadOnly => assert!(!left.allows_store(), "lowered first: {context}"),
                            Msg::DataWritable | Msg::UpgradeAck => {
                                assert_eq!((left, next), (Tag::Invalid, DirState::Exclusive(to)), "{context}")
                            }
                            _ => {}
                        }
                    }
                    Action::Invalidate(set) => assert!(!set.is_empty(), "{context}"),
                    Action::Resume => assert!(left.allows_load(), "{context}"),
                    Action::Replay => {
                        assert!(state.is_busy() && !next.is_busy() && at + 1 == list.len(), "{context}")
                    }
                    Action::Defer => {
                        assert!(list.len() == 1 && next == state && event.is_request(), "{context}")
                    }
                    Action::SendHome(_) => panic!("{context}"),
                }
            }
            assert_eq!((left, tag), (next.home_tag(), next.home_tag()), "{context}");
            assert_eq!(state.is_busy() && !next.is_busy(), list.last() == Some(&Action::Replay), "{context}");
        }
    }
    assert!(steps > 500, "{steps}");
}

#[test]
fn cache_steps_keep_their_rules() {
    let mut steps = 0;
    for state in CacheState::ALL {
        for event in CacheEvent::ALL {
            let Ok((next, actions)) = cache_step(state, event) else { continue };
            steps += 1;
            let context = format!("{state:?} {event:?} -> {next:?} {actions:?}");
            let mut left = state.tag();
            let mut data_here = state == CacheState::UpgradePending;
            for &action in actions.as_slice() {
                match action {
                    Action::CopyIn => {
                        assert!(matches!(event, CacheEvent::DataReadOnly | CacheEvent::DataWritable), "{context}");
                        data_here = true;
                    }
                    Action::SetTag(tag) => {
                        assert!(!tag.allows_load() || left.allows_load() || data_here, "{context}");
                        left = tag;
                    }
                    Action::SendHome(msg) => {
                        assert!(msg.is_for_home(), "{context}");
                        if msg.carries_data() {
                            assert!(!left.allows_store(), "lowered before data leaves: {context}");
                        }
                    }
                    Action::Resume => assert!(left.allows_load(), "{context}"),
                    _ => panic!("only for a home: {context}"),
                }
            }
            assert_eq!(left, next.tag(), "{context}");
            let served = state.is_pending() && !next.is_pending();
            assert!(!served || actions.as_slice().contains(&Action::Resume), "{context}");
        }
    }
    assert_eq!(steps, 25);
}

#[test]
fn corruption_is_reported() {
    let shared = DirState::Shared(NodeSet::of(x()));
    let entry = shared;
    assert_eq!(
        home_step(entry, Tag::Writable, HomeEvent::LocalStore),
        Err(Violation::WrongTag { state: shared, found: Tag::Writable })
    );
    let event = HomeEvent::WriteBack(x());
    assert_eq!(home_step(entry, Tag::ReadOnly, event), Err(Violation::AtHome { state: shared, event }));
    let (state, event) = (CacheState::Writable, CacheEvent::Invalidate);
    assert_eq!(cache_step(state, event), Err(Violation::AtCache { state, event }));
}

/// The bit-vector form steps like the pointer form.
#[test]
fn a_store_invalidates_all_of_31_sharers() {
    let mut entry = DirState::Idle;
    let mut tag = Tag::Writable;
    for number in 1..32 {
        (entry, tag, _) = home_step(entry, tag, HomeEvent::Read(node(number))).unwrap();
    }
    let (mut entry, mut tag, actions) = home_step(entry, tag, HomeEvent::Upgrade(node(9))).unwrap();
    let [Action::Invalidate(set)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!(set.iter().map(NodeId::index).collect::<Vec<_>>(), (1..32).filter(|&n| n != 9).collect::<Vec<_>>());
    let mut last = Actions::NONE;
    for from in set.iter() {
        assert_eq!(last, Actions::NONE);
        (entry, tag, last) = home_step(entry, tag, HomeEvent::InvalidateAck(from)).unwrap();
    }
    assert_eq!(last.as_slice(), [Action::SetTag(Tag::Invalid), Action::Send(node(9), Msg::UpgradeAck), Action::Replay]);
    assert_eq!((entry, tag), (DirState::Exclusive(node(9)), Tag::Invalid));
}
