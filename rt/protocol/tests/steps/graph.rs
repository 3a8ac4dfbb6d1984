//! Progress, which a checker of single states cannot see: questions about the whole graph of reachable states.
//!
//! States are told apart by 64-bit fingerprints, as stateright does; the graph keeps numbers only.

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model;

/// The reachable states by number, in breadth-first order.
#[derive(Default)]
struct Graph {
    /// Whether the state is an end that is wanted.
    good: Vec<bool>,
    successors: Vec<Vec<u32>>,
}

impl Graph {
    fn predecessors(&self) -> Vec<Vec<u32>> {
        let mut predecessors = vec![Vec::new(); self.successors.len()];
        for (from, successors) in self.successors.iter().enumerate() {
            for &to in successors {
                predecessors[to as usize].push(from as u32);
            }
        }
        predecessors
    }
}

/// Calls `visit` with each reachable state and, of each step from it that `follow` accepts, the number of its end.
fn visit_states<M>(
    model: &M,
    follow: impl Fn(&M::State, &M::Action) -> bool,
    mut visit: impl FnMut(&M::State, Vec<u32>),
) where
    M: Model,
    M::State: Hash,
{
    let mut numbers: HashMap<u64, u32> = HashMap::new();
    let mut queue = VecDeque::new();
    let number = |state: M::State, numbers: &mut HashMap<u64, u32>, queue: &mut VecDeque<M::State>| {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        let next = numbers.len() as u32;
        *numbers.entry(hasher.finish()).or_insert_with(|| {
            queue.push_back(state);
            next
        })
    };
    for state in model.init_states() {
        number(state, &mut numbers, &mut queue);
    }
    let mut steps = Vec::new();
    while let Some(state) = queue.pop_front() {
        let mut successors = Vec::new();
        model.actions(&state, &mut steps);
        for step in steps.drain(..) {
            let followed = follow(&state, &step);
            if let Some(next) = model.next_state(&state, step) {
                let next = number(next, &mut numbers, &mut queue);
                if followed {
                    successors.push(next);
                }
            }
        }
        visit(&state, successors);
    }
}

fn build<M>(model: &M, follow: impl Fn(&M::State, &M::Action) -> bool, good: impl Fn(&M::State) -> bool) -> Graph
where
    M: Model,
    M::State: Hash,
{
    let mut graph = Graph::default();
    visit_states(model, follow, |state, successors| {
        graph.good.push(good(state));
        graph.successors.push(successors);
    });
    graph
}

/// Fails with the text and, in full, the first state of those that `bad` marks.
fn assert_none<M>(model: &M, what: &str, bad: impl Fn(usize) -> bool)
where
    M: Model,
    M::State: Hash + Debug,
{
    let mut number = 0;
    visit_states(
        model,
        |_, _| true,
        |state, _| {
            assert!(!bad(number), "{what} {state:#?}");
            number += 1;
        },
    );
}

/// Asserts that from every reachable state every sequence of `service` steps ends, and ends in a state that is `quiet`.
/// Returns the number of states and the length of the longest such sequence.
pub fn assert_service_ends<M>(
    model: &M,
    service: impl Fn(&M::State, &M::Action) -> bool,
    quiet: impl Fn(&M::State) -> bool,
) -> (usize, usize)
where
    M: Model,
    M::State: Hash + Debug,
{
    let graph = build(model, service, quiet);
    let count = graph.successors.len();
    let is_end = |state: usize| graph.successors[state].is_empty();
    if (0..count).any(|state| is_end(state) && !graph.good[state]) {
        assert_none(model, "stuck in", |state| is_end(state) && !graph.good[state]);
    }
    // Remove states without unremoved successors, round by round; a state left over is on or before a cycle.
    let predecessors = graph.predecessors();
    let mut left: Vec<usize> = graph.successors.iter().map(Vec::len).collect();
    let mut round: Vec<u32> = (0..count as u32).filter(|&state| is_end(state as usize)).collect();
    let (mut removed, mut longest) = (round.len(), 0);
    loop {
        let mut next = Vec::new();
        for state in round {
            for &from in &predecessors[state as usize] {
                left[from as usize] -= 1;
                if left[from as usize] == 0 {
                    next.push(from);
                }
            }
        }
        if next.is_empty() {
            break;
        }
        removed += next.len();
        longest += 1;
        round = next;
    }
    if removed < count {
        assert_none(model, "endless service from", |state| left[state] > 0);
    }
    (count, longest)
}

/// Asserts that from every reachable state some sequence of steps that `follow` accepts leads to a state that is `done`. Returns the
/// number of states.
pub fn assert_can_always_finish<M>(
    model: &M,
    follow: impl Fn(&M::Action) -> bool,
    done: impl Fn(&M::State) -> bool,
) -> usize
where
    M: Model,
    M::State: Hash + Debug,
{
    let graph = build(model, |_, step| follow(step), done);
    let count = graph.successors.len();
    let predecessors = graph.predecessors();
    let mut can = graph.good;
    let mut todo: Vec<u32> = (0..count as u32).filter(|&state| can[state as usize]).collect();
    while let Some(state) = todo.pop() {
        for &from in &predecessors[state as usize] {
            if !std::mem::replace(&mut can[from as usize], true) {
                todo.push(from);
            }
        }
    }
    if can.contains(&false) {
        assert_none(model, "cannot finish from", |state| !can[state]);
    }
    count
}
