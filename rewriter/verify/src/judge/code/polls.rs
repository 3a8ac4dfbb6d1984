//! Whether every cycle of the code looks for messages of other nodes.
//!
//! Input: the graph of the new code, sites. A finding for each cycle without a poll: what waits for this node would wait as long as the program
//! goes round in it. Edges are those within functions, from calls to what is called, and from calls to their landing pads. The head of a loop
//! that tests for several iterations polls: when it is entered, and after so many iterations as its own proof allows. A jump to an unknown place
//! must have a poll in front of it. A call or tail call through a pointer, the GOT or the PLT may lead to whatever unknown code may enter: so no way
//! from such an entry to such an edge may be without a poll.
//!
//! In guarded code a signal is answered at each instruction of plain code. So only blocks that have a full version need polls, and have them there.
//!
//! Nothing is believed of where the polls should be: a depth-first search over the blocks without one finds an edge back to a block that is
//! still open exactly where there is a cycle.
//! Source: `rewriter/DESIGN.md`, "Polls".

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::facts::stack_depth::Depths;
use crate::file::module::Module;
use crate::graph::blocks::{End, Graph};
use crate::sites::site::{SiteKind, Sites};
use std::ops::Range;

/// The finding for a way without a poll that unknown code may begin and go on with.
pub(crate) const UNKNOWN_TARGET: &str =
    "leads to an unknown place, and no poll is on the way here from a place that unknown code may enter";

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    Open,
    Done,
}

/// Looks for cycles. `sites` are those of full code where it exists; `interruptible`: whether a signal is answered anywhere in a block.
pub(crate) fn prove(
    m: &Module,
    text: &Code,
    sites: &Sites,
    g: &Graph,
    depths: &Depths,
    interruptible: impl Fn(Range<usize>) -> bool,
    audit: &mut Audit,
) {
    let n = g.starts.len();
    let mut polled: Vec<bool> = (0..n).map(|b| interruptible(g.range(b, text))).collect();
    for s in sites.list.iter().filter(|s| s.problem.is_none() && matches!(s.kind, SiteKind::Poll | SiteKind::Strip)) {
        polled[g.block_of(s.access)] = true;
    }
    let va_of = |b: usize| text.insns[g.starts[b] as usize].va;
    for b in (0..n).filter(|&b| !polled[b] && matches!(g.ends[b], End::Unresolved { .. })) {
        let va = text.insns[g.range(b, text).end - 1].va;
        audit.finding(va, m.place(va), "a jump to an unknown place has no poll in front of it");
    }
    let ends = |e: End| matches!(e, End::Ret | End::Fall | End::Jump(_) | End::Cond(_) | End::GotJump);
    // Padding behind what does not come back: in full code, which has none, its poll stands in front of what follows.
    let falls_into_poll = |b: usize| {
        matches!(g.ends[b], End::Fall)
            && b + 1 < n
            && polled[b + 1]
            && g.range(b, text).end == g.range(b + 1, text).start
    };
    let leads = |b: usize| ends(g.ends[b]) && depths.leads_elsewhere(b) && !falls_into_poll(b);
    for b in (0..n).filter(|&b| !polled[b] && leads(b)) {
        let va = text.insns[g.range(b, text).end - 1].va;
        audit.finding(
            va,
            m.place(va),
            "a return to what was pushed, or on a stack just chosen, has no poll in front of it",
        );
    }
    let next = |b: usize| -> Vec<u32> {
        let called = match g.ends[b] {
            End::Call(callee) => callee,
            _ => None,
        };
        g.succ(b).iter().copied().chain(g.pad(b)).chain(called).filter(|&to| !polled[to as usize]).collect()
    };
    for b in unpolled_ways_out(g, &polled, next) {
        let va = text.insns[g.range(b, text).end - 1].va;
        audit.finding(va, m.place(va), UNKNOWN_TARGET);
    }
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
                    audit.finding(from, m.place(from), format!("leads back to {to:#x} without a poll on the way"));
                }
                State::Done => {}
            }
        }
    }
}

/// Blocks that end with a call or jump of unknown target, and that a way without a poll leads to from a block that unknown code may enter.
fn unpolled_ways_out(g: &Graph, polled: &[bool], next: impl Fn(usize) -> Vec<u32>) -> Vec<usize> {
    let mut seen = polled.to_vec();
    let mut work: Vec<usize> = Vec::new();
    let mut out = Vec::new();
    let mut add = |b: u32, work: &mut Vec<usize>| {
        if !std::mem::replace(&mut seen[b as usize], true) {
            work.push(b as usize);
        }
    };
    g.roots.iter().for_each(|&b| add(b, &mut work));
    while let Some(b) = work.pop() {
        if matches!(g.ends[b], End::GotJump | End::CallInd { .. } | End::Call(None)) {
            out.push(b);
        }
        next(b).into_iter().for_each(|to| add(to, &mut work));
    }
    out
}
