//! Complete state spaces with unboundedly many operations.
//!
//! Each node may at any time load, store or evict any block, with at most one outstanding miss per block (a program with
//! one thread has one in all: fewer behaviours). To stay finite, a copy holds one bit instead of a value: is it the
//! latest one? A store makes every other copy, in memory or on its way, an old one. Since the protocol never looks at data, any wrong
//! value would show as an old bit, whatever the values.

use std::time::Instant;

use stateright::{Checker, Model, Property};

use crate::graph;
use crate::model::{Access, Config, Fault, World};
use crate::mutants::Rules;

#[derive(Clone, Debug)]
pub struct Free<const N: usize, const B: usize> {
    pub config: Config<B>,
}

/// A world, or what went wrong on the way to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<const N: usize, const B: usize> {
    pub world: World<bool, N, B>,
    pub fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Miss {
        at: usize,
        block: usize,
        access: Access,
    },
    /// A store that the tag allows. (Loads that it allows change nothing; what they would return is a property.)
    Store {
        at: usize,
        block: usize,
    },
    Evict {
        at: usize,
        block: usize,
    },
    Deliver {
        channel: [usize; 3],
        slot: usize,
    },
    Replay {
        block: usize,
    },
}

impl Step {
    /// Whether it follows from earlier steps, whatever the programs do next.
    pub fn is_service(&self) -> bool {
        matches!(self, Step::Deliver { .. } | Step::Replay { .. })
    }
}

impl<const N: usize, const B: usize> Free<N, B> {
    /// Block `b` at home on node `b`.
    pub fn new(rules: Rules) -> Self {
        Free { config: Config { homes: std::array::from_fn(|block| block % N), rules } }
    }
}

impl<const N: usize, const B: usize> Model for Free<N, B> {
    type State = State<N, B>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State { world: World::new(&self.config, true, false), fault: None }]
    }

    fn actions(&self, state: &Self::State, steps: &mut Vec<Self::Action>) {
        if state.fault.is_some() {
            return;
        }
        let world = &state.world;
        for at in 0..N {
            for block in 0..B {
                if world.copies[at][block].miss.is_none() {
                    for access in [Access::Load, Access::Store] {
                        if !world.allows(at, block, access) {
                            steps.push(Step::Miss { at, block, access });
                        }
                    }
                    if world.allows(at, block, Access::Store) {
                        steps.push(Step::Store { at, block });
                    }
                    if world.can_evict(&self.config, at, block) {
                        steps.push(Step::Evict { at, block });
                    }
                }
            }
        }
        for channel @ [from, to, block] in world.deliverable() {
            let waiting = world.channels[from][to][block].len();
            let deliverable = if self.config.rules.reorders_messages() { waiting } else { 1 };
            steps.extend((0..deliverable).map(|slot| Step::Deliver { channel, slot }));
        }
        steps.extend((0..B).filter(|&block| world.replay[block]).map(|block| Step::Replay { block }));
    }

    fn next_state(&self, state: &Self::State, step: Self::Action) -> Option<Self::State> {
        let mut next = state.clone();
        let world = &mut next.world;
        let result = match step {
            Step::Miss { at, block, access } => world.miss(&self.config, at, block, access),
            Step::Store { at, block } => {
                store(world, at, block);
                Ok(false)
            }
            Step::Evict { at, block } => world.evict(&self.config, at, block),
            Step::Deliver { channel, slot } => world.deliver(&self.config, channel, slot),
            Step::Replay { block } => world.replay(&self.config, block),
        };
        next.fault = result.err();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_FAULT, |_, state: &Self::State| state.fault.is_none()),
            Property::always(ONE_WRITER, |_, state: &Self::State| state.world.has_one_writer_or_many_readers()),
            Property::always(LATEST_VALUE, |_, state: &Self::State| readable_copies_are_the_latest(&state.world)),
            Property::always(NOT_STUCK, |model, state: &Self::State| {
                let mut steps = Vec::new();
                model.actions(state, &mut steps);
                state.fault.is_some() || steps.iter().any(Step::is_service) || state.world.is_quiet()
            }),
            Property::sometimes("a block is shared by all", |_, state: &Self::State| {
                (0..B).any(|block| (0..N).all(|at| state.world.allows(at, block, Access::Load)))
            }),
            Property::sometimes("a request is deferred", |_, state: &Self::State| {
                state.world.deferred.iter().any(|queue| !queue.is_empty())
            }),
        ]
    }
}

pub const NO_FAULT: &str = "no impossible event";
pub const ONE_WRITER: &str = "one writer or many readers";
pub const LATEST_VALUE: &str = "each load returns the latest value";
pub const NOT_STUCK: &str = "nothing waits for a message that nobody sends";

pub fn store<const N: usize, const B: usize>(world: &mut World<bool, N, B>, at: usize, block: usize) {
    for from in 0..N {
        world.copies[from][block].data = from == at;
        for to in 0..N {
            world.channels[from][to][block].data_mut().for_each(|latest| *latest = false);
        }
    }
}

pub fn readable_copies_are_the_latest<const N: usize, const B: usize>(world: &World<bool, N, B>) -> bool {
    (0..N).all(|at| (0..B).all(|block| !world.allows(at, block, Access::Load) || world.copies[at][block].data))
}

/// Visits every reachable state; all properties hold, and there are at least `floor` states.
fn explore<const N: usize, const B: usize>(floor: usize) {
    let start = Instant::now();
    let checker = Free::<N, B>::new(Rules::REAL).checker().spawn_bfs().join();
    println!(
        "{N} nodes x {B} blocks: {} states, {} transitions, depth {}, {:.1} s",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64()
    );
    checker.assert_properties();
    assert!(checker.unique_state_count() >= floor, "{}", checker.unique_state_count());
}

#[test]
fn three_nodes_one_block() {
    explore::<3, 1>(13_000);
}

#[test]
fn two_nodes_two_blocks() {
    explore::<2, 2>(15_000);
}

#[test]
fn four_nodes_one_block() {
    explore::<4, 1>(1_200_000);
}

/// From every reachable state, whatever the order in which messages are handled, and if no program starts anything new, all misses
/// are served after a bounded number of steps.
#[test]
fn every_miss_is_served() {
    for (states, longest) in [
        graph::assert_service_ends(&Free::<3, 1>::new(Rules::REAL), Step::is_service, |s| s.world.is_quiet()),
        graph::assert_service_ends(&Free::<2, 2>::new(Rules::REAL), Step::is_service, |s| s.world.is_quiet()),
    ] {
        println!("{states} states, at most {longest} steps until all is quiet");
        assert!(states >= 13_000 && longest > 5);
    }
}
