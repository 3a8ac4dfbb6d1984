//! Locks, barriers and events under stateright: every order in which messages can arrive.
//!
//! Purpose: [`Lock`], [`GroupBarrier`] and [`Event`] themselves at a home, with nodes that ask it and messages that travel in order from one node to
//! another and in any order otherwise, as the rings carry them. Each model also runs with planted bugs, one changed step each, and must find each of
//! them. Output: the number of states, which must not become trivial.

use crate::sync::group::{Arrival, Event, GroupBarrier};
use crate::sync::lock::{Acquired, Lock};
use blizzard_protocol::ids::{NodeId, NodeSet};
use stateright::{Checker, Model, Property};
use std::collections::VecDeque;
use std::vec::Vec;

/// What is changed in the code under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// A lock is granted although it is held.
    GrantHeld,
    /// A release forgets who waits.
    ForgetQueue,
    /// A lock without waiters stays held.
    StayHeld,
    /// The node that waits longest is told twice.
    GrantTwice,
    /// A barrier is complete when one node is missing.
    OneMissing,
    /// A barrier lets all but its last caller go.
    KeepLast,
    /// A barrier keeps a node of the round before.
    KeepRound,
    /// An event that is set forgets who waits.
    ForgetWaiters,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Request {
    Acquire,
    Release,
    Arrive,
    SetEvent,
    WaitEvent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Doing {
    Computing,
    Asking(Request),
    /// In the critical section.
    Holding,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    lock: Lock,
    line: Vec<u16>,
    barrier: GroupBarrier,
    event: Event,
    doing: Vec<Doing>,
    /// Steps of its program that each node has finished.
    done: Vec<usize>,
    to_home: Vec<VecDeque<Request>>,
    /// Answers on their way to each node.
    answers: Vec<u8>,
    /// An answer that nobody had asked for has arrived.
    surplus: bool,
}

/// One home (not among the nodes) and nodes that all run the same program.
struct Run {
    nodes: usize,
    /// So many of them on each host.
    on_a_host: usize,
    program: &'static [Request],
    bug: Bug,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The node begins its next step.
    Begin(usize),
    /// The home handles the oldest message of the node.
    Handle(usize),
    /// The node gets an answer.
    Answer(usize),
}

fn node(number: usize) -> NodeId {
    NodeId::new(number as u32).unwrap()
}

impl Run {
    fn handle(&self, state: &mut State, from: usize) {
        let Some(request) = state.to_home[from].pop_front() else { return };
        let mut answer = |set: NodeSet, times: u8| {
            for (number, answers) in state.answers.iter_mut().enumerate() {
                *answers += times * u8::from(set.contains(node(number)));
            }
        };
        match request {
            Request::Acquire => {
                let acquired = state.lock.acquire(&mut state.line, node(from));
                if acquired == Acquired::Granted || self.bug == Bug::GrantHeld {
                    answer(NodeSet::of(node(from)), 1);
                }
            }
            Request::Release => {
                let waiting = state.lock.waiters(&state.line);
                let is_near = |other: NodeId| other.index() / self.on_a_host == from / self.on_a_host;
                let next = state.lock.release(&mut state.line, node(from), is_near).unwrap();
                if let Some(next) = next {
                    answer(NodeSet::of(next), if self.bug == Bug::GrantTwice { 2 } else { 1 });
                }
                if self.bug == Bug::ForgetQueue && waiting.len() > 1 {
                    (state.lock, state.line) = (Lock::default(), std::vec![0; self.nodes]);
                    state.lock.acquire(&mut state.line, next.unwrap());
                }
                if self.bug == Bug::StayHeld && next.is_none() {
                    state.lock.acquire(&mut state.line, node(from));
                }
            }
            Request::Arrive => {
                let before = state.barrier;
                let count = self.nodes as u64 - u64::from(self.bug == Bug::OneMissing);
                if let Arrival::Complete(all) = state.barrier.arrive(node(from), count) {
                    answer(if self.bug == Bug::KeepLast { all.without(node(from)) } else { all }, 1);
                    if self.bug == Bug::KeepRound {
                        state.barrier = before;
                    }
                }
            }
            Request::SetEvent => {
                let woken = state.event.set(true);
                answer(if self.bug == Bug::ForgetWaiters { NodeSet::EMPTY } else { woken }, 1);
                answer(NodeSet::of(node(from)), 1);
            }
            Request::WaitEvent => {
                if state.event.wait(node(from)) {
                    answer(NodeSet::of(node(from)), 1);
                }
            }
        }
    }

    /// The steps of a node's program: only node 0 sets events, and the others only wait for them.
    fn next(&self, state: &State, number: usize) -> Option<Request> {
        let request = *self.program.get(state.done[number])?;
        Some(if request == Request::SetEvent && number != 0 { Request::WaitEvent } else { request })
    }
}

impl Model for Run {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        std::vec![State {
            lock: Lock::default(),
            line: std::vec![0; self.nodes],
            barrier: GroupBarrier::default(),
            event: Event::default(),
            doing: std::vec![Doing::Computing; self.nodes],
            done: std::vec![0; self.nodes],
            to_home: std::vec![VecDeque::new(); self.nodes],
            answers: std::vec![0; self.nodes],
            surplus: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        for number in 0..self.nodes {
            let begins = !matches!(state.doing[number], Doing::Asking(_)) && self.next(state, number).is_some();
            actions.extend(begins.then_some(Step::Begin(number)));
            actions.extend((!state.to_home[number].is_empty()).then_some(Step::Handle(number)));
            actions.extend((state.answers[number] > 0).then_some(Step::Answer(number)));
        }
    }

    fn next_state(&self, last: &State, action: Step) -> Option<State> {
        let mut state = last.clone();
        match action {
            Step::Begin(number) => {
                let request = self.next(&state, number)?;
                state.to_home[number].push_back(request);
                if request == Request::Release {
                    // Nobody waits for a release.
                    state.doing[number] = Doing::Computing;
                    state.done[number] += 1;
                } else {
                    state.doing[number] = Doing::Asking(request);
                }
            }
            Step::Handle(number) => self.handle(&mut state, number),
            Step::Answer(number) => {
                state.answers[number] -= 1;
                match state.doing[number] {
                    Doing::Asking(request) => {
                        let holds = request == Request::Acquire;
                        state.doing[number] = if holds { Doing::Holding } else { Doing::Computing };
                        state.done[number] += 1;
                    }
                    _ => state.surplus = true,
                }
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        std::vec![
            Property::always("one holder", |_, state: &State| {
                state.doing.iter().filter(|doing| **doing == Doing::Holding).count() <= 1
            }),
            Property::always("no answer without a question", |_, state: &State| !state.surplus),
            // Nobody is past a barrier that somebody has not reached.
            Property::always("barriers hold", |run: &Run, state: &State| {
                let passed = |done: usize| run.program[..done].iter().filter(|r| **r == Request::Arrive).count();
                let reached = |number: usize| {
                    let asks = state.doing[number] == Doing::Asking(Request::Arrive);
                    passed(state.done[number]) + usize::from(asks)
                };
                let first = state.done.iter().map(|done| passed(*done)).max().unwrap_or(0);
                (0..run.nodes).all(|number| reached(number) >= first)
            }),
            Property::always("no deadlock", |run: &Run, state: &State| {
                let mut actions = Vec::new();
                run.actions(state, &mut actions);
                !actions.is_empty() || state.done.iter().all(|done| *done == run.program.len())
            }),
        ]
    }
}

use Request::{Acquire, Arrive, Release, SetEvent};

const LOCKS: &[Request] = &[Acquire, Release, Acquire, Release];
const BARRIERS: &[Request] = &[Arrive, Arrive, Acquire, Release, Arrive];
const EVENTS: &[Request] = &[SetEvent, Arrive];

/// The states of a run, and the property that does not hold, if there is one.
fn explore((nodes, on_a_host): (usize, usize), program: &'static [Request], bug: Bug) -> (usize, Vec<&'static str>) {
    let checker = Run { nodes, on_a_host, program, bug }.checker().spawn_bfs().join();
    let broken = checker.discoveries().into_keys().collect();
    (checker.unique_state_count(), broken)
}

#[test]
fn locks_barriers_and_events_keep_their_promises_in_every_order_of_messages() {
    for (program, nodes, floor) in
        [(LOCKS, (4, 4), 4_000), (LOCKS, (4, 2), 4_000), (BARRIERS, (4, 4), 2_000), (EVENTS, (4, 4), 300)]
    {
        let (states, broken) = explore(nodes, program, Bug::None);
        std::println!("{program:?} on {nodes:?} nodes, and of a host: {states} states");
        assert!(broken.is_empty(), "{program:?}: {broken:?}");
        assert!(states >= floor, "{program:?}: only {states} states");
    }
}

#[test]
fn planted_bugs_of_the_objects_are_found() {
    for (bug, program) in [
        (Bug::GrantHeld, LOCKS),
        (Bug::ForgetQueue, LOCKS),
        (Bug::StayHeld, LOCKS),
        (Bug::GrantTwice, LOCKS),
        (Bug::OneMissing, BARRIERS),
        (Bug::KeepLast, BARRIERS),
        (Bug::KeepRound, BARRIERS),
        (Bug::ForgetWaiters, EVENTS),
    ] {
        let found = std::panic::catch_unwind(|| explore((4, 2), program, bug));
        // A changed step may also end in a refusal of the code itself, such as a release of a lock that is not held.
        assert!(found.is_err() || found.is_ok_and(|(_, broken)| !broken.is_empty()), "{bug:?}");
    }
}
