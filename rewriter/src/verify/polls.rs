//! Whether every cycle of the code looks for messages of other nodes.
//!
//! Input: the graph of the new code, sites. A finding for each cycle without a poll: what waits for this node would wait as long as the program
//! goes round in it. Edges are those within functions, from calls to what is called, and from calls to their landing pads. The head of a loop
//! that tests for several iterations polls: when it is entered, and after so many iterations as its own proof allows. A jump to an unknown place
//! must have a poll in front of it. Calls through pointers and of other modules are not followed.
//!
//! Nothing is believed of where the polls should be: a depth-first search over the blocks without one finds an edge back to a block that is
//! still open exactly where there is a cycle.
//! Source: `rewriter/DESIGN.md`, "Polls".

use super::audit::Audit;
use super::decode::Code;
use super::graph::{End, Graph};
use super::module::Module;
use super::sites::{Kind, Sites};
use crate::ids::Vaddr;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

/// Looks for cycles.
pub(super) fn prove(m: &Module, text: &Code, sites: &Sites, g: &Graph, audit: &mut Audit) {
    let n = g.starts.len();
    let mut polled = vec![false; n];
    for s in sites.list.iter().filter(|s| s.problem.is_none() && matches!(s.kind, Kind::Poll | Kind::Strip)) {
        polled[g.block_of(s.access)] = true;
    }
    let va_of = |b: usize| text.insns[g.starts[b] as usize].va;
    for b in (0..n).filter(|&b| !polled[b] && matches!(g.ends[b], End::Unresolved { .. })) {
        let va = text.insns[g.range(b, text).end - 1].va;
        audit.finding(Vaddr(va), m.place(va), "a jump to an unknown place has no poll in front of it");
    }
    let next = |b: usize| -> Vec<u32> {
        let called = match g.ends[b] {
            End::Call(callee) => callee,
            _ => None,
        };
        g.succ(b).iter().copied().chain(g.pad(b)).chain(called).filter(|&to| !polled[to as usize]).collect()
    };
    let mut state = vec![State::New; n];
    let mut work: Vec<(usize, Vec<u32>)> = Vec::new();
    for start in 0..n {
        if polled[start] || state[start] != State::New {
            continue;
        }
        state[start] = State::Open;
        work.push((start, next(start)));
        while let Some((b, list)) = work.last_mut() {
            let b = *b;
            let Some(to) = list.pop().map(|to| to as usize) else {
                state[b] = State::Done;
                work.pop();
                continue;
            };
            match state[to] {
                State::New => {
                    state[to] = State::Open;
                    work.push((to, next(to)));
                }
                State::Open => {
                    let (from, to) = (text.insns[g.range(b, text).end - 1].va, va_of(to));
                    audit.finding(
                        Vaddr(from),
                        m.place(from),
                        format!("leads back to {to:#x} without a poll on the way"),
                    );
                }
                State::Done => {}
            }
        }
    }
}
