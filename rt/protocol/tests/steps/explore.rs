//! Complete state spaces with unboundedly many operations, of both protocols.
//!
//! Each node may at any time load, store or evict any block, with at most one outstanding miss per block, or, as a program with
//! one thread, one in all. To stay finite, a copy holds one bit instead of a value: is it the
//! latest one? A store makes every other copy, in memory or on its way, an old one. Since a protocol never looks at data, any wrong
//! value would show as an old bit, whatever the values.

use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::graph;
use crate::model::{Access, Config, Fault, Machine, Mcm, Protocol, Service, Stache};
use crate::{mcm_mutants, stache_mutants};

#[derive(Clone, Debug)]
pub struct Free<P: Protocol, const N: usize, const B: usize> {
    pub config: Config<P::Mutation, B>,
    /// Each node waits for one block at a time.
    pub one_miss: bool,
}

/// A world, or what went wrong on the way to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State<W> {
    pub world: W,
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
    Serve(Service),
}

impl Step {
    /// Whether it follows from earlier steps, whatever the programs do next.
    pub fn is_service(&self) -> bool {
        matches!(self, Step::Serve(_))
    }
}

impl<P: Protocol, const N: usize, const B: usize> Free<P, N, B> {
    /// Block `b` at home on node `b`.
    fn new() -> Self {
        Free { config: Config { homes: std::array::from_fn(|block| block % N), mutation: None }, one_miss: false }
    }

    fn with(mutation: P::Mutation) -> Self {
        let mut free = Self::new();
        free.config.mutation = Some(mutation);
        free
    }

    /// All blocks at home on node 0.
    fn of_node_0() -> Self {
        Free { config: Config { homes: [0; B], mutation: None }, one_miss: false }
    }

    fn may_miss(&self, world: &P::World<N, B>, at: usize, block: usize, access: Access) -> bool {
        if world.allows(at, block, access) {
            return false;
        }
        let raises = access == Access::Store && world.can_raise_miss(at, block);
        let mut others = (0..B).filter(|&other| other != block);
        let waits_elsewhere = self.one_miss && others.any(|other| world.copy(at, other).miss.is_some());
        (raises || world.copy(at, block).miss.is_none()) && !waits_elsewhere
    }
}

impl<P: Protocol, const N: usize, const B: usize> Model for Free<P, N, B> {
    type State = State<P::World<N, B>>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        vec![State { world: P::World::new(&self.config), fault: None }]
    }

    fn actions(&self, state: &Self::State, steps: &mut Vec<Self::Action>) {
        if state.fault.is_some() {
            return;
        }
        let world = &state.world;
        for at in 0..N {
            for block in 0..B {
                for access in [Access::Load, Access::Store] {
                    if self.may_miss(world, at, block, access) {
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
        steps.extend(world.services(&self.config).into_iter().map(Step::Serve));
    }

    fn next_state(&self, state: &Self::State, step: Self::Action) -> Option<Self::State> {
        let mut next = state.clone();
        let world = &mut next.world;
        let result = match step {
            Step::Miss { at, block, access } => world.miss(&self.config, at, block, access),
            Step::Store { at, block } => {
                store(world, at, block);
                Ok(())
            }
            Step::Evict { at, block } => world.evict(&self.config, at, block),
            Step::Serve(service) => world.serve(&self.config, service),
        };
        next.fault = result.err();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(NO_FAULT, |_, state: &Self::State| state.fault.is_none()),
            Property::always(ONE_WRITER, |_, state: &Self::State| state.world.has_one_writer_or_many_readers()),
            Property::always(LATEST_VALUE, |_, state: &Self::State| {
                readable_copies_are_the_latest::<_, N, B>(&state.world)
            }),
            Property::always(NOT_STUCK, |model: &Self, state: &Self::State| {
                state.fault.is_some() || !state.world.services(&model.config).is_empty() || state.world.is_quiet()
            }),
            Property::sometimes(SHARED_BY_ALL, |_, state: &Self::State| {
                (0..B).any(|block| (0..N).all(|at| state.world.allows(at, block, Access::Load)))
            }),
            Property::sometimes(KEPT_WAITING, |_, state: &Self::State| state.world.keeps_waiting()),
        ]
    }
}

pub const NO_FAULT: &str = "no impossible event";
pub const ONE_WRITER: &str = "one writer or many readers";
pub const LATEST_VALUE: &str = "each load returns the latest value";
pub const NOT_STUCK: &str = "nothing waits for a message that nobody sends";

const SHARED_BY_ALL: &str = "a block is shared by all";
const KEPT_WAITING: &str = "a request is kept waiting or refused";

fn store<W: Machine<N, B>, const N: usize, const B: usize>(world: &mut W, at: usize, block: usize) {
    for from in 0..N {
        world.copy_mut(from, block).data = from == at;
    }
    world.for_data_on_its_way(block, |latest| *latest = false);
}

fn readable_copies_are_the_latest<W: Machine<N, B>, const N: usize, const B: usize>(world: &W) -> bool {
    (0..N).all(|at| (0..B).all(|block| !world.allows(at, block, Access::Load) || world.copy(at, block).data))
}

/// Visits every reachable state, or `most` of them; all properties hold, and there are at least `floor` states.
fn explore<P: Protocol, const N: usize, const B: usize>(model: Free<P, N, B>, most: Option<usize>, floor: usize) {
    let start = Instant::now();
    let one_miss = if model.one_miss { ", one miss per node" } else { "" };
    let checker = match most {
        Some(most) => model.checker().target_state_count(most),
        None => model.checker(),
    };
    let checker = checker.threads(2).spawn_bfs().join();
    println!(
        "{}, {N} nodes x {B} blocks{one_miss}: {} states, {} transitions, depth {}, {:.1} s",
        P::NAME,
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        start.elapsed().as_secs_f64()
    );
    for property in [NO_FAULT, ONE_WRITER, LATEST_VALUE, NOT_STUCK] {
        checker.assert_no_discovery(property);
    }
    for property in [SHARED_BY_ALL, KEPT_WAITING] {
        checker.assert_any_discovery(property);
    }
    assert!(checker.unique_state_count() >= floor, "{}", checker.unique_state_count());
}

/// Each planted error is found by its property.
pub fn finds_each<P: Protocol>(mutations: &[(P::Mutation, &str)]) {
    for &(mutation, property) in mutations {
        let checker = Free::<P, 3, 1>::with(mutation).checker().finish_when(HasDiscoveries::AnyFailures);
        let checker = checker.spawn_bfs().join();
        let found = checker.discoveries();
        let names: Vec<&str> = found.keys().copied().collect();
        println!("{mutation:?}: {} states, {names:?}", checker.unique_state_count());
        assert!(found.contains_key(property), "{mutation:?} was not found by `{property}`, but: {names:?}");
    }
}

#[test]
fn three_nodes_one_block() {
    explore(Free::<Stache, 3, 1>::new(), None, 13_000);
    explore(Free::<Mcm, 3, 1>::new(), None, 80_000);
}

#[test]
fn two_nodes_two_blocks() {
    explore(Free::<Stache, 2, 2>::new(), None, 15_000);
    explore(Free::<Mcm, 2, 2>::new(), None, 250_000);
    explore(Free::<Stache, 2, 2>::of_node_0(), None, 15_000);
    explore(Free::<Mcm, 2, 2>::of_node_0(), None, 250_000);
}

#[test]
fn four_nodes_one_block() {
    explore(Free::<Stache, 4, 1>::new(), None, 1_200_000);
}

/// All of it would be hundreds of millions of states: the two blocks have nothing to do with each other here.
#[test]
fn three_nodes_two_blocks_in_part() {
    let one_miss = true;
    explore(Free::<Stache, 3, 2> { one_miss, ..Free::new() }, Some(3_000_000), 500_000);
    explore(Free::<Mcm, 3, 2> { one_miss, ..Free::new() }, Some(3_000_000), 500_000);
}

#[test]
#[ignore = "takes minutes and several GB of memory"]
fn more_of_three_nodes_two_blocks() {
    let one_miss = true;
    explore(Free::<Stache, 3, 2> { one_miss, ..Free::new() }, Some(20_000_000), 3_000_000);
    explore(Free::<Mcm, 3, 2> { one_miss, ..Free::new() }, Some(20_000_000), 3_000_000);
    explore(Free::<Mcm, 4, 1>::new(), Some(20_000_000), 3_000_000);
}

/// From every reachable state, whatever the order in which messages are handled, and if no program starts anything new, all misses
/// are served after a bounded number of steps.
fn service_ends<P: Protocol, const N: usize, const B: usize>(model: Free<P, N, B>) {
    let (states, longest) =
        graph::assert_service_ends(&model, |_, step| step.is_service(), |state| state.world.is_quiet());
    println!("{states} states, at most {longest} steps until all is quiet");
    assert!(states >= 13_000 && longest > 5);
}

#[test]
fn every_miss_is_served() {
    service_ends(Free::<Stache, 3, 1>::new());
    service_ends(Free::<Stache, 2, 2>::new());
    service_ends(Free::<Stache, 2, 2>::of_node_0());
}

#[test]
#[should_panic(expected = "stuck")]
fn a_forgotten_replay_is_seen() {
    service_ends(Free::<Stache, 3, 1>::with(stache_mutants::Mutation::ForgetReplay));
}

#[test]
#[should_panic(expected = "endless service")]
fn refusals_may_go_on_for_ever() {
    service_ends(Free::<Mcm, 3, 1>::new());
}

/// With refusals a request may be sent again and again. But from every reachable state, if no program starts anything new, some order
/// of the steps serves all misses; and between two retries there are boundedly many steps. So a run in which every
/// message arrives at some time serves all misses with probability one.
fn can_be_served<const N: usize, const B: usize>(model: Free<Mcm, N, B>) {
    let states = graph::assert_can_always_finish(&model, |step| step.is_service(), |state| state.world.is_quiet());
    let proceeds = |state: &State<_>, step: &Step| match *step {
        Step::Serve(service) => !<Mcm as Protocol>::World::<N, B>::is_retry(&state.world, service),
        _ => false,
    };
    let (_, longest) = graph::assert_service_ends(&model, proceeds, |state: &State<_>| {
        let services = state.world.services(&model.config);
        state.world.is_quiet() || services.iter().all(|&service| state.world.is_retry(service))
    });
    println!("{states} states, at most {longest} steps between two retries");
    assert!(states >= 10_000 && longest > 5);
}

#[test]
fn every_refused_miss_can_be_served() {
    can_be_served(Free::<Mcm, 3, 1>::new());
    can_be_served(Free::<Mcm, 2, 2>::new());
}

#[test]
#[should_panic(expected = "cannot finish")]
fn a_request_that_is_not_sent_again_is_seen() {
    can_be_served(Free::<Mcm, 3, 1>::with(mcm_mutants::Mutation::NoRetry));
}
