//! The search: depth first, by repeating choices.

use crate::tests::explore::world::{self, Choice, Model, World};
use crate::transport::delaying::fiber::Fiber;
use std::collections::HashSet;
use std::string::String;
use std::vec::Vec;

/// What must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A node ended the run with these words.
    Failure(String),
    /// A message that no node sends in a correct run.
    Rejected,
    /// One node may store while another one may load or store.
    Writers,
    /// A node may load a value that is not the latest.
    Stale,
    /// A node has left a barrier that another one has not come to.
    Early,
    /// The kernel uses memory that its node has not got.
    Kernel,
    /// These nodes wait for nothing.
    Standstill(String),
    /// A step that never ends.
    Endless,
}

/// How much was explored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub states: usize,
    pub steps: usize,
    /// Orders that differ, from beginning to end.
    pub ends: usize,
    pub deepest: usize,
    /// Nothing was left out.
    pub is_complete: bool,
}

/// One step of the path that is explored.
struct Turn {
    choices: Vec<(usize, Choice)>,
    at: usize,
}

/// More steps than any execution of a small model has.
const DEEPEST: usize = 3_000;

/// Explores all orders, as far as so many steps go.
pub fn explore(model: &Model, most_steps: usize) -> Result<Report, (Found, Vec<(usize, Choice)>)> {
    let mut fibers: Vec<Fiber> = (0..model.nodes).map(|_| Fiber::new()).collect();
    let result = search(model, most_steps, &mut fibers);
    World::leave();
    result
}

fn search(model: &Model, most_steps: usize, fibers: &mut [Fiber]) -> Result<Report, (Found, Vec<(usize, Choice)>)> {
    let region = world::region(model);
    let mut seen = HashSet::new();
    let mut path: Vec<Turn> = Vec::new();
    let mut report = Report::default();
    loop {
        let world = World::new(model, &region);
        world.enter(fibers);
        let known = path.len().saturating_sub(1);
        for turn in &path[..known] {
            world.step(fibers, turn.choices[turn.at]);
        }
        // The last choice of the path is a new one.
        let mut next = path.last().map(|turn| turn.choices[turn.at]);
        loop {
            if let Some(choice) = next {
                world.step(fibers, choice);
                report.steps += 1;
            }
            let found = world.check().or_else(|| (path.len() > DEEPEST).then_some(Found::Endless));
            if let Some(found) = found {
                return Err((found, path.iter().map(|turn| turn.choices[turn.at]).collect()));
            }
            if !seen.insert(world.name()) {
                break;
            }
            report.deepest = report.deepest.max(path.len());
            let choices = world.choices();
            if choices.is_empty() {
                if let Some(found) = world.check_end() {
                    return Err((found, path.iter().map(|turn| turn.choices[turn.at]).collect()));
                }
                report.ends += 1;
                break;
            }
            next = Some(choices[0]);
            path.push(Turn { choices, at: 0 });
        }
        report.states = seen.len();
        if report.steps >= most_steps {
            return Ok(report);
        }
        loop {
            let Some(turn) = path.last_mut() else {
                report.is_complete = true;
                return Ok(report);
            };
            turn.at += 1;
            if turn.at < turn.choices.len() {
                break;
            }
            path.pop();
        }
    }
}
