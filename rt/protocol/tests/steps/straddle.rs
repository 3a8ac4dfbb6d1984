//! Accesses that need two blocks at once: acquired in ascending order and held, they are all served, whatever the order of messages.
//!
//! Complete state spaces of nodes that do nothing but such accesses (and accesses to one block), unboundedly many. Here the access
//! is performed the moment its last block arrives, as the runtime must; messages about a held block wait. The two ways of getting
//! this wrong, not holding and acquiring in different orders, are seen to fail.

use stateright::{Checker, Model, Property};

use crate::explore;
use crate::graph;
use crate::model::{Access, Config, Fault, Machine, Mcm, Protocol, Service, Stache};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    HoldAscending,
    /// The first block may be taken away while the second is waited for.
    DoNotHold,
    /// Node 0 acquires the higher block first.
    NodeZeroDescends,
}

/// `N` nodes, `B` blocks, all neighbours.
#[derive(Clone, Debug)]
struct Straddling<P: Protocol, const N: usize, const B: usize> {
    config: Config<P::Rules, B>,
    policy: Policy,
}

/// An access to one block, or to two neighbours, in the order of acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Op {
    access: Access,
    first: usize,
    second: Option<usize>,
}

impl Op {
    fn blocks(self) -> impl Iterator<Item = usize> {
        std::iter::once(self.first).chain(self.second)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State<W, const N: usize> {
    world: W,
    /// The access that has missed.
    current: [Option<Op>; N],
    /// The block that it has acquired.
    held: [Option<usize>; N],
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Start { at: usize, op: Op },
    Serve(Service),
}

type StateOf<P, const N: usize, const B: usize> = State<<P as Protocol>::World<bool, N, B>, N>;

impl<P: Protocol, const N: usize, const B: usize> Straddling<P, N, B> {
    fn new(homes: [usize; B], policy: Policy) -> Self {
        Straddling { config: Config { homes, rules: P::REAL }, policy }
    }

    fn ops(&self, at: usize) -> impl Iterator<Item = Op> {
        let descends = self.policy == Policy::NodeZeroDescends && at == 0;
        [Access::Load, Access::Store].into_iter().flat_map(move |access| {
            let singles = (0..B).map(move |first| Op { access, first, second: None });
            singles.chain((1..B).map(move |high| match descends {
                true => Op { access, first: high, second: Some(high - 1) },
                false => Op { access, first: high - 1, second: Some(high) },
            }))
        })
    }

    /// Performs the access, or misses on the first of its blocks that does not allow it.
    fn advance(&self, state: &mut StateOf<P, N, B>, at: usize, op: Op) -> Result<(), Fault> {
        let missing = op.blocks().find(|&block| !state.world.allows(at, block, op.access));
        if let Some(block) = missing {
            state.current[at] = Some(op);
            let holds = block != op.first && self.policy != Policy::DoNotHold;
            state.held[at] = holds.then_some(op.first);
            let served = state.world.miss(&self.config, at, block, op.access)?;
            assert!(!served, "the tag did not allow the access");
            return Ok(());
        }
        state.current[at] = None;
        state.held[at] = None;
        if op.access == Access::Store {
            op.blocks().for_each(|block| explore::store::<_, N, B>(&mut state.world, at, block));
        }
        Ok(())
    }

    /// Asserts that no access waits for ever, and returns the number of states.
    fn assert_all_is_served(&self) -> usize {
        let (states, longest) = graph::assert_service_ends(
            self,
            |_, step| matches!(step, Step::Serve(_)),
            |state| state.world.is_quiet() && state.current.iter().all(Option::is_none),
        );
        println!("{N} nodes x {B} blocks: {states} states, at most {longest} steps until all is quiet");
        states
    }

    /// Asserts that, when no access begins, some order of the steps serves all. Returns the number of states.
    fn assert_all_can_be_served(&self) -> usize {
        let states = graph::assert_can_always_finish(
            self,
            |step| matches!(step, Step::Serve(_)),
            |state| state.world.is_quiet() && state.current.iter().all(Option::is_none),
        );
        println!("{}, {N} nodes x {B} blocks: {states} states", P::NAME);
        states
    }

    fn explore(&self, floor: usize) {
        let states = self.assert_all_is_served();
        assert!(states >= floor);
        let checker = self.clone().checker().spawn_bfs().join();
        checker.assert_properties();
        assert_eq!(checker.unique_state_count(), states);
    }
}

impl<P: Protocol, const N: usize, const B: usize> Model for Straddling<P, N, B> {
    type State = StateOf<P, N, B>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        let world = P::World::new(&self.config, true, false);
        vec![State { world, current: [None; N], held: [None; N], fault: None }]
    }

    fn actions(&self, state: &Self::State, steps: &mut Vec<Self::Action>) {
        if state.fault.is_some() {
            return;
        }
        for at in (0..N).filter(|&at| state.current[at].is_none()) {
            steps.extend(self.ops(at).map(|op| Step::Start { at, op }));
        }
        let is_free = |service: &Service| {
            let (at, block) = service.target();
            state.held[at] != Some(block)
        };
        steps.extend(state.world.services(&self.config).into_iter().filter(is_free).map(Step::Serve));
    }

    fn next_state(&self, state: &Self::State, step: Self::Action) -> Option<Self::State> {
        let mut next = state.clone();
        let served = match step {
            Step::Start { at, op } => self.advance(&mut next, at, op).map(|()| None),
            Step::Serve(service) => {
                next.world.serve(&self.config, service).map(|resumed| resumed.then_some(service.target().0))
            }
        };
        let result = served.and_then(|at| match at {
            Some(at) => {
                let op = next.current[at].take().expect("a miss has an access");
                self.advance(&mut next, at, op)
            }
            None => Ok(()),
        });
        next.fault = result.err();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(explore::NO_FAULT, |_, state: &Self::State| state.fault.is_none()),
            Property::always(explore::ONE_WRITER, |_, state: &Self::State| {
                state.world.has_one_writer_or_many_readers()
            }),
            Property::always(explore::LATEST_VALUE, |_, state: &Self::State| {
                explore::readable_copies_are_the_latest::<_, N, B>(&state.world)
            }),
            Property::sometimes("a block is held", |_, state: &Self::State| state.held.iter().any(Option::is_some)),
        ]
    }
}

#[test]
fn held_blocks_are_always_given_up_in_the_end() {
    Straddling::<Stache, 2, 2>::new([0, 1], Policy::HoldAscending).explore(500);
    Straddling::<Stache, 2, 2>::new([1, 0], Policy::HoldAscending).explore(500);
    Straddling::<Stache, 2, 2>::new([0, 0], Policy::HoldAscending).explore(500);
    Straddling::<Stache, 2, 3>::new([0, 1, 0], Policy::HoldAscending).explore(5_000);
    Straddling::<Stache, 2, 3>::new([0, 0, 1], Policy::HoldAscending).explore(5_000);
    Straddling::<Stache, 3, 2>::new([0, 1], Policy::HoldAscending).explore(100_000);
    Straddling::<Stache, 3, 2>::new([0, 0], Policy::HoldAscending).explore(100_000);
}

#[test]
#[should_panic(expected = "endless service")]
fn without_holding_nodes_take_the_blocks_from_each_other_for_ever() {
    Straddling::<Stache, 2, 2>::new([0, 1], Policy::DoNotHold).assert_all_is_served();
}

#[test]
#[should_panic(expected = "stuck")]
fn with_different_orders_nodes_wait_in_a_circle() {
    Straddling::<Stache, 2, 2>::new([0, 1], Policy::NodeZeroDescends).assert_all_is_served();
}

/// The same with the protocol that refuses: no bound, but always a way.
#[test]
fn held_blocks_are_given_up_though_requests_are_refused() {
    assert!(Straddling::<Mcm, 2, 2>::new([0, 1], Policy::HoldAscending).assert_all_can_be_served() > 500);
    assert!(Straddling::<Mcm, 2, 2>::new([0, 0], Policy::HoldAscending).assert_all_can_be_served() > 500);
    assert!(Straddling::<Mcm, 2, 3>::new([0, 1, 0], Policy::HoldAscending).assert_all_can_be_served() > 5_000);
}

#[test]
#[should_panic(expected = "cannot finish")]
fn with_different_orders_refusals_do_not_help() {
    Straddling::<Mcm, 2, 2>::new([0, 1], Policy::NodeZeroDescends).assert_all_can_be_served();
}
