//! The tables in the documentation of [`super::steps`] are what the functions do, and the functions keep their own rules in every
//! state and for every event, reachable or not.

use super::directory::*;
use super::steps::*;
use super::vocabulary::*;
use crate::ids::{NodeId, NodeSet};
use crate::tag::Tag;
use crate::tests::{documented, name, names, node, table, x, y, z};

const DOC: &str = include_str!("steps.rs");

fn state_name(state: HomeState) -> String {
    match state {
        HomeState::Unshared => "Unshared".into(),
        HomeState::Shared(set) => format!("Shared {}", names(set.iter())),
        HomeState::Exclusive(owner) => format!("Exclusive {}", name(owner)),
        HomeState::Transitioning { waiting, owes, requester } => {
            let waiting = if waiting.is_empty() { "nobody".into() } else { names(waiting.iter()) };
            let owes = owes.map(|owner| format!(", owes {}", name(owner))).unwrap_or_default();
            let requester = match requester {
                Requester::Home => "home".into(),
                Requester::Node { node, exclusive } => {
                    format!("{}{}", name(node), if exclusive { ", exclusive" } else { "" })
                }
            };
            format!("Revoke {waiting} for {requester}{owes}")
        }
    }
}

fn event_name(event: HomeEvent) -> String {
    match event {
        HomeEvent::RequestReadOnly(from) => format!("RequestReadOnly {}", name(from)),
        HomeEvent::RequestExclusive(from) => format!("RequestExclusive {}", name(from)),
        HomeEvent::Yanked(from) => format!("Yanked {}", name(from)),
        HomeEvent::YankedFull(from) => format!("YankedFull {}", name(from)),
        HomeEvent::ReturnDirty(from) => format!("ReturnDirty {}", name(from)),
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
            // To whoever asks.
            Action::Send(_, Msg::NackReadOnly | Msg::NackExclusive) => "NACK".into(),
            Action::Send(to, msg) => format!("{msg:?} to {}", name(*to)),
            Action::Invalidate(set) => format!("Invalidate to {}", names(set.iter())),
            Action::SendHome(msg) => format!("send {msg:?}"),
            Action::Resume => "resume".into(),
            Action::Refused => "refused".into(),
        })
        .collect();
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

fn events_from(from: NodeId) -> [HomeEvent; 5] {
    [
        HomeEvent::RequestReadOnly(from),
        HomeEvent::RequestExclusive(from),
        HomeEvent::Yanked(from),
        HomeEvent::YankedFull(from),
        HomeEvent::ReturnDirty(from),
    ]
}

fn home_table() -> String {
    let just_x = NodeSet::of(x());
    let xy = just_x.with(y());
    let for_node = |node, exclusive| Requester::Node { node, exclusive };
    let revoke = |waiting, owes, requester| HomeState::Transitioning { waiting, owes, requester };
    let mut rows = Vec::new();
    // With the nodes whose events are shown: all that play a part in the state, and one that does not.
    for (state, nodes) in [
        (HomeState::Unshared, vec![x()]),
        (HomeState::Shared(just_x), vec![x(), y()]),
        (HomeState::Shared(xy), vec![x(), z()]),
        (HomeState::Exclusive(x()), vec![x(), y()]),
        (revoke(xy, None, for_node(z(), true)), vec![x(), z()]),
        (revoke(just_x, None, for_node(y(), true)), vec![x(), y(), z()]),
        (revoke(just_x, None, for_node(y(), false)), vec![x(), y(), z()]),
        (revoke(just_x, None, Requester::Home), vec![x(), y()]),
        (revoke(just_x, Some(x()), for_node(y(), true)), vec![x(), y(), z()]),
        (revoke(just_x, Some(x()), for_node(y(), false)), vec![x(), y(), z()]),
        (revoke(just_x, Some(x()), Requester::Home), vec![x(), y()]),
        (revoke(NodeSet::EMPTY, Some(x()), for_node(y(), true)), vec![x(), y(), z()]),
        (revoke(NodeSet::EMPTY, Some(x()), for_node(y(), false)), vec![x(), y(), z()]),
        (revoke(NodeSet::EMPTY, Some(x()), Requester::Home), vec![x(), y()]),
    ] {
        let events = nodes.into_iter().flat_map(events_from).chain([HomeEvent::LocalLoad, HomeEvent::LocalStore]);
        for event in events {
            if let Ok((next, actions)) = home_step(Entry::encode(state), state.home_tag(), event) {
                let next = next.decode().unwrap();
                rows.push([state_name(state), event_name(event), state_name(next), actions_name(actions)]);
            }
        }
    }
    table(rows)
}

const TAGS: [Tag; 3] = [Tag::Invalid, Tag::ReadOnly, Tag::Writable];

/// All states of a copy, reachable or not.
fn node_states() -> impl Iterator<Item = (Bits, Tag)> {
    Bits::all().flat_map(|bits| TAGS.map(|tag| (bits, tag))).filter(|(bits, tag)| bits.is_possible(*tag))
}

/// The tag that the actions leave.
fn tag_after(tag: Tag, actions: &Actions) -> Tag {
    actions.as_slice().iter().fold(tag, |tag, action| match action {
        Action::SetTag(to) => *to,
        _ => tag,
    })
}

fn node_table() -> String {
    let mut rows = Vec::new();
    for (bits, tag) in node_states() {
        for event in NodeEvent::ALL {
            // Loads and stores that hit are no events, nor is the service of no job.
            let hits = match event {
                NodeEvent::Load => tag.allows_load(),
                NodeEvent::Store => tag.allows_store(),
                NodeEvent::Serve => !bits.has_job(),
                _ => false,
            };
            if let Ok((next, actions)) = node_step(bits, tag, event)
                && !hits
            {
                let state = |bits: Bits, tag| format!("{bits:?} / {tag:?}");
                let after = state(next, tag_after(tag, &actions));
                rows.push([state(bits, tag), format!("{event:?}"), after, actions_name(actions)]);
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
fn documented_node_table_is_what_the_function_does() {
    let expected = node_table();
    assert!(documented(DOC, "node") == expected, "the table must be:\n{expected}");
}

/// Every state of the home over four other nodes.
fn home_states() -> Vec<HomeState> {
    let nodes: Vec<NodeId> = (1..5).map(node).collect();
    let requesters: Vec<Requester> = [Requester::Home]
        .into_iter()
        .chain(nodes.iter().flat_map(|&node| [true, false].map(|exclusive| Requester::Node { node, exclusive })))
        .collect();
    let mut states = vec![HomeState::Unshared];
    let mut consider = |state| {
        if Entry::encode(state).decode() == Some(state) {
            states.push(state);
        }
    };
    for bits in 0..16u32 {
        let set = nodes.iter().filter(|n| bits >> (n.index() - 1) & 1 == 1).fold(NodeSet::EMPTY, |s, &n| s.with(n));
        consider(HomeState::Shared(set));
        for &requester in &requesters {
            for owes in nodes.iter().map(|&n| Some(n)).chain([None]) {
                consider(HomeState::Transitioning { waiting: set, owes, requester });
            }
        }
    }
    nodes.iter().for_each(|&owner| consider(HomeState::Exclusive(owner)));
    states
}

#[test]
fn home_steps_keep_their_rules() {
    let mut steps = 0;
    for state in home_states() {
        let events = (1..5).map(node).flat_map(events_from).chain([HomeEvent::LocalLoad, HomeEvent::LocalStore]);
        for event in events {
            let Ok((next, actions)) = home_step(Entry::encode(state), state.home_tag(), event) else { continue };
            steps += 1;
            let context = format!("{state:?} {event:?} -> {next:?} {actions:?}");
            let next = next.decode().expect(&context);
            let mut left = state.home_tag();
            let mut data_here = left.allows_load();
            for (at, &action) in actions.as_slice().iter().enumerate() {
                match action {
                    Action::CopyIn => {
                        let brings_data = matches!(event, HomeEvent::YankedFull(_) | HomeEvent::ReturnDirty(_));
                        assert!(brings_data && at == 0, "data first, and only when there is some: {context}");
                        data_here = true;
                    }
                    Action::SetTag(tag) => {
                        assert!(!tag.allows_load() || data_here, "a readable tag needs data: {context}");
                        left = tag;
                    }
                    Action::Send(to, msg) => {
                        assert!(!msg.is_for_home() && (data_here || !msg.carries_data()), "{context}");
                        match msg {
                            Msg::ReturnReadOnly => assert!(
                                !left.allows_store() && matches!(next, HomeState::Shared(set) if set.contains(to)),
                                "lowered first, and noted: {context}"
                            ),
                            Msg::ReturnExclusive => {
                                assert_eq!((left, next), (Tag::Invalid, HomeState::Exclusive(to)), "{context}")
                            }
                            _ => assert_eq!((state, actions.as_slice().len()), (next, 1), "a NACK only: {context}"),
                        }
                    }
                    Action::Invalidate(set) => {
                        let waits = matches!(next, HomeState::Transitioning { waiting, .. } if waiting == set);
                        assert!(waits && !state.is_transitioning(), "whoever is asked is waited for: {context}")
                    }
                    Action::Resume => assert!(left.allows_load(), "{context}"),
                    Action::Refused => assert!(actions.as_slice().len() == 1 && next == state, "{context}"),
                    Action::SendHome(_) => panic!("{context}"),
                }
            }
            assert_eq!(left, next.home_tag(), "{context}");
        }
    }
    assert!(steps > 900, "{steps}");
}

#[test]
fn node_steps_keep_their_rules() {
    let mut steps = 0;
    for (bits, tag) in node_states() {
        for event in NodeEvent::ALL {
            let Ok((next, actions)) = node_step(bits, tag, event) else { continue };
            steps += 1;
            let context = format!("{bits:?} {tag:?} {event:?} -> {next:?} {actions:?}");
            let (mut left, mut data_here, mut requests, mut answers) = (tag, tag.allows_load(), 0, 0);
            for &action in actions.as_slice() {
                match action {
                    Action::CopyIn => {
                        assert!(matches!(event, NodeEvent::ReturnReadOnly | NodeEvent::ReturnExclusive), "{context}");
                        assert!(!tag.allows_store(), "a copy that may be dirty is not overwritten: {context}");
                        data_here = true;
                    }
                    Action::SetTag(to) => {
                        assert!(!to.allows_load() || data_here, "{context}");
                        left = to;
                    }
                    Action::SendHome(msg) => {
                        assert!(msg.is_for_home(), "{context}");
                        match msg {
                            Msg::RequestReadOnly | Msg::RequestExclusive => requests += 1,
                            _ => answers += 1,
                        }
                        if msg.carries_data() {
                            assert!(tag.allows_store() && !left.allows_load(), "lowered before data leaves: {context}");
                        }
                    }
                    Action::Resume => assert!(left.allows_load(), "{context}"),
                    _ => panic!("only for a home: {context}"),
                }
            }
            assert!(next.is_possible(left), "{context}");
            // Each request sent is one more answer outstanding.
            let outstanding = |bits: Bits| usize::from(bits.any(Bits::PR)) + usize::from(bits.any(Bits::PX));
            let answered = usize::from(matches!(
                event,
                NodeEvent::ReturnReadOnly
                    | NodeEvent::ReturnExclusive
                    | NodeEvent::NackReadOnly
                    | NodeEvent::NackExclusive
            ));
            assert_eq!(outstanding(next) + answered, outstanding(bits) + requests, "{context}");
            // An Invalidate is answered once: at once, or when I is cleared.
            let asked = usize::from(event == NodeEvent::Invalidate) + usize::from(bits.any(Bits::I));
            let evicted = usize::from(event == NodeEvent::Evict && tag == Tag::Writable);
            assert_eq!(answers + usize::from(next.any(Bits::I)), asked + evicted, "{context}");
            // Never while an answer is outstanding: that is what makes reordering harmless.
            assert!(answers == 0 || !bits.is_pending(), "{context}");
        }
    }
    assert!(steps > 100, "{steps}");
}

#[test]
fn corruption_is_reported() {
    let shared = HomeState::Shared(NodeSet::of(x()));
    let entry = Entry::encode(shared);
    assert_eq!(
        home_step(entry, Tag::Writable, HomeEvent::LocalStore),
        Err(Violation::WrongTag { state: shared, found: Tag::Writable })
    );
    let event = HomeEvent::ReturnDirty(x());
    assert_eq!(home_step(entry, Tag::ReadOnly, event), Err(Violation::AtHome { state: shared, event }));
    let (bits, tag, event) = (Bits::NONE, Tag::ReadOnly, NodeEvent::ReturnExclusive);
    assert_eq!(node_step(bits, tag, event), Err(Violation::AtNode { bits, tag, event }));
    let (bits, event) = (Bits::PR, NodeEvent::NackReadOnly);
    assert_eq!(node_step(bits, tag, event), Err(Violation::AtNode { bits, tag, event }));
}

#[test]
fn bytes_round_trip() {
    for byte in 0..=255 {
        assert_eq!(Msg::from_byte(byte).map(Msg::byte), (1..=10).contains(&byte).then_some(byte));
    }
    assert!(Bits::all().all(|bits| Bits::from_byte(bits.byte()) == bits));
    for msg in Msg::ALL {
        assert_eq!(HomeEvent::from_msg(msg, x()).is_some(), msg.is_for_home(), "{msg:?}");
        assert_eq!(NodeEvent::from_msg(msg).is_some(), !msg.is_for_home(), "{msg:?}");
    }
}

#[test]
fn a_store_revokes_all_other_copies() {
    let mut entry = Entry::UNSHARED;
    let nodes = crate::ids::RUN_NODES as u32;
    let tag = |entry: Entry| entry.decode().unwrap().home_tag();
    for number in 1..nodes {
        (entry, _) = home_step(entry, tag(entry), HomeEvent::RequestReadOnly(node(number))).unwrap();
    }
    let (mut entry, actions) = home_step(entry, Tag::ReadOnly, HomeEvent::RequestExclusive(node(9))).unwrap();
    let [Action::Invalidate(set)] = actions.as_slice() else { panic!("{actions:?}") };
    let others: Vec<usize> = (1..nodes as usize).filter(|&n| n != 9).collect();
    assert_eq!(set.iter().map(NodeId::index).collect::<Vec<_>>(), others);
    let mut last = Actions::NONE;
    for from in set.iter() {
        assert_eq!(last, Actions::NONE);
        (entry, last) = home_step(entry, tag(entry), HomeEvent::Yanked(from)).unwrap();
    }
    assert_eq!(last.as_slice(), [Action::SetTag(Tag::Invalid), Action::Send(node(9), Msg::ReturnExclusive)]);
    assert_eq!(entry.decode(), Some(HomeState::Exclusive(node(9))));
}
