//! Sequential consistency: every interleaving of short programs gives only results that some interleaving of their operations
//! on one memory would give.
//!
//! Each node performs its operations one after the other. An access that its tag does not allow misses; when the miss is served,
//! the access is tried again at any later time, when the block may already be gone again (the runtime tries at once: fewer
//! behaviours). Copies may be evicted at any time. What a node loaded is recorded, and at the end stateright's
//! `SequentialConsistencyTester` looks for an order of all operations on a [`Memory`].
//!
//! * All programs of given lengths at once: each node chooses its next operation freely.
//! * The litmus programs: the set of results must *equal* the set that the interleavings of the program give, so that the
//!   exploration is also seen to reach everything it should.

use std::collections::BTreeSet;
use std::time::Instant;

use stateright::semantics::{ConsistencyTester, SequentialConsistencyTester, SequentialSpec};
use stateright::{Checker, HasDiscoveries, Model, Property};

use crate::graph;
use crate::model::{Access, Config, Fault, Machine, Mcm, Protocol, Service, Stache};
use crate::{mcm_mutants, stache_mutants};

/// An operation on a block, each of which holds one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    Load(usize),
    Store(usize, u8),
}

impl Op {
    fn block(self) -> usize {
        match self {
            Op::Load(block) | Op::Store(block, _) => block,
        }
    }

    fn access(self) -> Access {
        match self {
            Op::Load(_) => Access::Load,
            Op::Store(..) => Access::Store,
        }
    }
}

/// The sequential reference: `B` blocks, all zero at first. Loads return `Some`.
#[derive(Clone, Debug)]
struct Memory<const B: usize>([u8; B]);

impl<const B: usize> SequentialSpec for Memory<B> {
    type Op = Op;
    type Ret = Option<u8>;

    fn invoke(&mut self, op: &Op) -> Option<u8> {
        match *op {
            Op::Load(block) => Some(self.0[block]),
            Op::Store(block, value) => {
                self.0[block] = value;
                None
            }
        }
    }
}

/// What each node runs.
#[derive(Clone, Debug)]
enum Programs<const N: usize> {
    /// Each node so many operations, any.
    All([usize; N]),
    These([Vec<Op>; N]),
}

#[derive(Clone, Debug)]
struct Scripted<P: Protocol, const N: usize, const B: usize> {
    config: Config<P::Rules, B>,
    programs: Programs<N>,
    evictions: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State<W, const N: usize> {
    world: W,
    /// Each node's finished operations with what they returned.
    history: [Vec<(Op, Option<u8>)>; N],
    /// The operation that has missed and not been performed yet.
    current: [Option<Op>; N],
    fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Try { at: usize, op: Op },
    Evict { at: usize, block: usize },
    Serve(Service),
}

type StateOf<P, const N: usize, const B: usize> = State<<P as Protocol>::World<u8, N, B>, N>;

impl<P: Protocol, const N: usize, const B: usize> Scripted<P, N, B> {
    fn ops_of(&self, at: usize) -> usize {
        match &self.programs {
            Programs::All(ops) => ops[at],
            Programs::These(programs) => programs[at].len(),
        }
    }

    fn is_done(&self, state: &StateOf<P, N, B>) -> bool {
        (0..N).all(|at| state.history[at].len() == self.ops_of(at))
    }

    fn next_ops(&self, state: &StateOf<P, N, B>, at: usize) -> Vec<Op> {
        let index = state.history[at].len();
        if let Some(op) = state.current[at] {
            return vec![op];
        }
        match &self.programs {
            Programs::These(programs) => programs[at].get(index).copied().into_iter().collect(),
            Programs::All(ops) if index < ops[at] => {
                let unique = (1 + ops[..at].iter().sum::<usize>() + index) as u8;
                (0..B).flat_map(|block| [Op::Load(block), Op::Store(block, unique)]).collect()
            }
            Programs::All(_) => Vec::new(),
        }
    }

    fn try_op(&self, state: &mut StateOf<P, N, B>, at: usize, op: Op) -> Result<bool, Fault> {
        let block = op.block();
        if !state.world.allows(at, block, op.access()) {
            state.current[at] = Some(op);
            return state.world.miss(&self.config, at, block, op.access());
        }
        let data = &mut state.world.copy_mut(at, block).data;
        let returned = match op {
            Op::Load(_) => Some(*data),
            Op::Store(_, value) => {
                *data = value;
                None
            }
        };
        state.current[at] = None;
        state.history[at].push((op, returned));
        Ok(false)
    }
}

impl<P: Protocol, const N: usize, const B: usize> Model for Scripted<P, N, B> {
    type State = StateOf<P, N, B>;
    type Action = Step;

    fn init_states(&self) -> Vec<Self::State> {
        let rubbish = u8::MAX;
        vec![State {
            world: P::World::new(&self.config, 0, rubbish),
            history: std::array::from_fn(|_| Vec::new()),
            current: [None; N],
            fault: None,
        }]
    }

    fn actions(&self, state: &Self::State, steps: &mut Vec<Self::Action>) {
        if state.fault.is_some() {
            return;
        }
        for at in 0..N {
            if (0..B).all(|block| state.world.copy(at, block).miss.is_none()) {
                steps.extend(self.next_ops(state, at).into_iter().map(|op| Step::Try { at, op }));
            }
            let blocks = (0..B).filter(|&block| self.evictions && state.world.can_evict(&self.config, at, block));
            // Once the programs have ended, evictions decide nothing.
            steps.extend(blocks.filter(|_| !self.is_done(state)).map(|block| Step::Evict { at, block }));
        }
        steps.extend(state.world.services(&self.config).into_iter().map(Step::Serve));
    }

    fn next_state(&self, state: &Self::State, step: Self::Action) -> Option<Self::State> {
        let mut next = state.clone();
        let result = match step {
            Step::Try { at, op } => self.try_op(&mut next, at, op),
            Step::Evict { at, block } => next.world.evict(&self.config, at, block),
            Step::Serve(service) => next.world.serve(&self.config, service),
        };
        next.fault = result.err();
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no impossible event", |_, state: &Self::State| state.fault.is_none()),
            Property::always(CONSISTENT, |model: &Self, state: &Self::State| {
                !model.is_done(state) || is_sequentially_consistent::<B>(&state.history)
            }),
            Property::always("no dead end", |model: &Self, state: &Self::State| {
                let mut steps = Vec::new();
                model.actions(state, &mut steps);
                state.fault.is_some() || !steps.is_empty() || (model.is_done(state) && state.world.is_quiet())
            }),
            Property::sometimes("the programs end", |model: &Self, state: &Self::State| model.is_done(state)),
        ]
    }
}

const CONSISTENT: &str = "sequentially consistent";

/// Whether one order of all operations explains what they returned. A prefix of a run is consistent if the run is, so this is only
/// asked at the end.
fn is_sequentially_consistent<const B: usize>(history: &[Vec<(Op, Option<u8>)>]) -> bool {
    let mut tester = SequentialConsistencyTester::new(Memory([0; B]));
    for (at, history) in history.iter().enumerate() {
        for &(op, returned) in history {
            tester.on_invoke(at, op).expect("one at a time");
            tester.on_return(at, returned).expect("was invoked");
        }
    }
    tester.is_consistent()
}

fn all_programs<P: Protocol, const N: usize, const B: usize>(homes: [usize; B], ops: [usize; N], floor: usize) {
    let start = Instant::now();
    let config = Config { homes, rules: P::REAL };
    let model = Scripted::<P, N, B> { config, programs: Programs::All(ops), evictions: true };
    let checker = model.checker().threads(2).spawn_dfs().join();
    println!(
        "{}, {N} nodes x {B} blocks (homes {homes:?}), all programs of {ops:?} operations: {} states, {:.1} s",
        P::NAME,
        checker.unique_state_count(),
        start.elapsed().as_secs_f64()
    );
    checker.assert_properties();
    assert!(checker.unique_state_count() >= floor, "{}", checker.unique_state_count());
}

#[test]
fn all_programs_of_two_nodes_and_two_blocks() {
    all_programs::<Stache, 2, 2>([0, 1], [3, 3], 1_300_000);
    all_programs::<Stache, 2, 2>([0, 0], [3, 3], 1_200_000);
    all_programs::<Mcm, 2, 2>([0, 1], [3, 3], 1_600_000);
    all_programs::<Mcm, 2, 2>([0, 0], [3, 2], 150_000);
}

#[test]
fn all_programs_of_three_nodes_and_one_block() {
    all_programs::<Stache, 3, 1>([0], [2, 2, 2], 1_000_000);
    all_programs::<Mcm, 3, 1>([0], [2, 2, 1], 120_000);
}

#[test]
fn all_programs_of_three_nodes_and_two_blocks() {
    for homes in [[0, 1], [1, 2]] {
        all_programs::<Stache, 3, 2>(homes, [2, 1, 1], 400_000);
        all_programs::<Mcm, 3, 2>(homes, [2, 1, 1], 400_000);
    }
}

/// `cargo test --release -p blizzard-rt --test protocol -- --ignored --nocapture`
#[test]
#[ignore = "takes minutes and several GB of memory"]
fn more_programs_of_three_nodes_and_two_blocks() {
    all_programs::<Stache, 3, 2>([0, 1], [2, 2, 1], 3_000_000);
    all_programs::<Mcm, 3, 2>([0, 1], [2, 2, 1], 4_000_000);
}

/// Evictions and lost races included, every program can always be brought to its end.
#[test]
fn programs_can_always_finish() {
    fn check<P: Protocol, const N: usize, const B: usize>(homes: [usize; B], ops: [usize; N], floor: usize) {
        let config = Config { homes, rules: P::REAL };
        let model = Scripted::<P, N, B> { config, programs: Programs::All(ops), evictions: true };
        let is_over = |state: &StateOf<P, N, B>| model.is_done(state) && state.world.is_quiet();
        let states = graph::assert_can_always_finish(&model, |_| true, is_over);
        println!("{}, {N} nodes x {B} blocks: {states} states", P::NAME);
        assert!(states >= floor);
    }
    check::<Stache, 2, 2>([0, 1], [2, 2], 34_000);
    check::<Stache, 3, 1>([0], [1, 1, 1], 12_000);
    check::<Mcm, 2, 2>([0, 1], [2, 2], 40_000);
    check::<Mcm, 3, 1>([0], [1, 1, 1], 12_000);
}

/// What each load of each node returned.
type Outcome = Vec<Vec<u8>>;

/// All outcomes of the interleavings of the programs on one memory.
fn sequential_outcomes<const N: usize, const B: usize>(programs: &[Vec<Op>; N]) -> BTreeSet<Outcome> {
    fn go<const N: usize, const B: usize>(
        programs: &[Vec<Op>; N],
        next: &mut [usize; N],
        memory: &Memory<B>,
        loaded: &Outcome,
        outcomes: &mut BTreeSet<Outcome>,
    ) {
        if (0..N).all(|at| next[at] == programs[at].len()) {
            outcomes.insert(loaded.clone());
        }
        for at in 0..N {
            if let Some(op) = programs[at].get(next[at]) {
                let (mut memory, mut loaded) = (memory.clone(), loaded.clone());
                loaded[at].extend(memory.invoke(op));
                next[at] += 1;
                go(programs, next, &memory, &loaded, outcomes);
                next[at] -= 1;
            }
        }
    }
    let mut outcomes = BTreeSet::new();
    go(programs, &mut [0; N], &Memory([0; B]), &vec![Vec::new(); N], &mut outcomes);
    outcomes
}

/// All outcomes of the programs on the protocol.
fn protocol_outcomes<P: Protocol, const N: usize, const B: usize>(
    model: &Scripted<P, N, B>,
) -> (usize, BTreeSet<Outcome>) {
    let (mut states, mut outcomes) = (0, BTreeSet::new());
    graph::visit_states(
        model,
        |_, _| true,
        |state, _| {
            states += 1;
            assert_eq!(state.fault, None, "{state:#?}");
            if model.is_done(state) {
                let loads = |history: &Vec<(Op, Option<u8>)>| history.iter().filter_map(|&(_, ret)| ret).collect();
                outcomes.insert(state.history.iter().map(loads).collect());
            }
        },
    );
    (states, outcomes)
}

fn litmus<const N: usize, const B: usize>(name: &str, homes: [usize; B], evictions: bool, programs: [Vec<Op>; N]) {
    litmus_with::<Stache, N, B>(name, homes, evictions, programs.clone());
    litmus_with::<Mcm, N, B>(name, homes, evictions, programs);
}

fn litmus_with<P: Protocol, const N: usize, const B: usize>(
    name: &str,
    homes: [usize; B],
    evictions: bool,
    programs: [Vec<Op>; N],
) {
    let expected = sequential_outcomes::<N, B>(&programs);
    let config = Config { homes, rules: P::REAL };
    let model = Scripted::<P, N, B> { config, programs: Programs::These(programs), evictions };
    let (states, outcomes) = protocol_outcomes(&model);
    println!("{}, {name}, homes {homes:?}: {states} states, {} outcomes", P::NAME, outcomes.len());
    assert!(expected.len() > 1);
    assert_eq!(outcomes, expected, "{}, {name}, homes {homes:?}", P::NAME);
}

const X: usize = 0;
const Y: usize = 1;

#[test]
fn litmus_of_two_nodes() {
    use Op::{Load, Store};
    for homes in [[0, 0], [0, 1], [1, 0]] {
        litmus("SB", homes, true, [vec![Store(X, 1), Load(Y)], vec![Store(Y, 1), Load(X)]]);
        litmus("MP", homes, true, [vec![Store(X, 1), Store(Y, 1)], vec![Load(Y), Load(X)]]);
        litmus("LB", homes, true, [vec![Load(X), Store(Y, 1)], vec![Load(Y), Store(X, 1)]]);
        litmus("R", homes, true, [vec![Store(X, 1), Store(Y, 1)], vec![Store(Y, 2), Load(X), Load(Y)]]);
        litmus("S", homes, true, [vec![Store(X, 2), Store(Y, 1)], vec![Load(Y), Store(X, 1), Load(X)]]);
        let w = |first, second| vec![Store(first, 1), Store(second, 2), Load(X), Load(Y)];
        litmus("2+2W", homes, true, [w(X, Y), w(Y, X)]);
    }
    for homes in [[0], [1]] {
        litmus("CoRR", homes, true, [vec![Store(X, 1), Store(X, 2)], vec![Load(X), Load(X), Load(X)]]);
        litmus("CoRW", homes, true, [vec![Store(X, 1), Load(X)], vec![Load(X), Store(X, 2), Load(X)]]);
    }
}

#[test]
fn litmus_of_three_and_four_nodes() {
    use Op::{Load, Store};
    let wrc = || [vec![Store(X, 1)], vec![Load(X), Store(Y, 1)], vec![Load(Y), Load(X)]];
    litmus("WRC", [0, 0], true, wrc());
    litmus("WRC", [2, 1], true, wrc());
    let iriw = || [vec![Store(X, 1)], vec![Store(Y, 1)], vec![Load(X), Load(Y)], vec![Load(Y), Load(X)]];
    litmus("IRIW", [0, 1], false, iriw());
    litmus("IRIW", [2, 3], false, iriw());
    litmus("IRIW", [0, 0], false, iriw());
    litmus("CoRR", [0], true, [vec![Store(X, 1)], vec![Store(X, 2)], vec![Load(X), Load(X), Load(X)]]);
}

/// The tester is seen to fail: with these planted errors, message passing gives results that no order explains, for some home of
/// the two blocks. (The others are seen as impossible events before a program has ended: see [`crate::stache_mutants`].)
#[test]
fn inconsistent_results_are_found() {
    use stache_mutants::{Mutation, Rules};
    for mutation in [
        Mutation::HomeKeepsWritable,
        Mutation::HomeKeepsReadOnly,
        Mutation::GrantWithoutInvalidation,
        Mutation::ForgetSharer,
        Mutation::ForgetDowngradedOwner,
        Mutation::ForwardBeforeCopyIn,
        Mutation::LoseWriteBack,
        Mutation::RaiseWithoutData,
        Mutation::NoDowngrade,
        Mutation::AckWithoutInvalidating,
    ] {
        assert_inconsistent::<Stache>(Rules::with(mutation));
    }
}

#[test]
fn inconsistent_results_of_the_second_protocol_are_found() {
    use mcm_mutants::{Mutation, Rules};
    for mutation in [
        Mutation::GrantWithoutInvalidation,
        Mutation::ForgetSharer,
        Mutation::GrantBeforeDirtyData,
        Mutation::AnswerOwnerWithStaleCopy,
        Mutation::LoseDirtyData,
        Mutation::ForwardBeforeCopyIn,
        Mutation::RaiseWithoutData,
        Mutation::InvalidateAtOnce,
        Mutation::AnswerWithoutInvalidating,
        Mutation::YankKeepsReadOnly,
    ] {
        assert_inconsistent::<Mcm>(Rules::with(mutation));
    }
}

fn assert_inconsistent<P: Protocol>(rules: P::Rules) {
    use Op::{Load, Store};
    let writers = [vec![Load(X), Store(X, 1), Store(Y, 1)], vec![Store(X, 1), Store(X, 2), Store(Y, 1)]];
    let readers = [vec![Load(X), Load(Y), Load(X)], vec![Store(X, 3), Load(Y), Load(X)]];
    for (x_home, y_home) in (0..3).flat_map(|x_home| (0..3).map(move |y_home| (x_home, y_home))) {
        for (writer, reader) in writers.iter().flat_map(|writer| readers.iter().map(move |reader| (writer, reader))) {
            let config = Config { homes: [x_home, y_home], rules };
            let programs = Programs::These([vec![], writer.clone(), reader.clone()]);
            let model = Scripted::<P, 3, 2> { config, programs, evictions: true };
            let wanted = HasDiscoveries::AnyOf(BTreeSet::from([CONSISTENT]));
            let checker = model.checker().finish_when(wanted).spawn_bfs().join();
            if checker.discovery(CONSISTENT).is_some() {
                println!("{}, {rules:?}: inconsistent with homes {x_home} and {y_home}", P::NAME);
                return;
            }
        }
    }
    panic!("{}: {rules:?} gives no inconsistent result", P::NAME);
}
