//! Checks that repeat what checks on every way here have tested are left out.
//!
//! A forward must-analysis: what is known at a block's start is what all its predecessors leave. A check makes its range known; a write to
//! a register that the range is named by forgets it, unless it adds or copies; a kill forgets everything. A check whose whole range is
//! known is left out, with the accesses that were merged into it. Nothing is widened: whatever is tested was asked for.
//!
//! Leaving a check out takes nothing away: on every way to it the first check of that range stays.

use super::collect::Code;
use super::{Fuel, NO_REG, Range, State, Step};
use crate::cfg::{BlockId, Cfg};
use std::collections::VecDeque;

/// Ranges known at once.
const KNOWN: usize = 6;
/// How often what is known at a block may change before nothing is.
const VISITS: u8 = 32;

/// What is known at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Known(Vec<Range>);

impl Known {
    fn add(&mut self, range: Range) {
        self.0.retain(|r| !range.covers(r));
        if self.0.iter().any(|r| r.covers(&range)) {
            return;
        }
        if self.0.len() == KNOWN {
            self.0.remove(0);
        }
        self.0.push(range);
    }

    /// What both know.
    fn meet(&self, other: &Known) -> Known {
        let mut out = Known::default();
        for a in &self.0 {
            for b in other.0.iter().filter(|b| b.key == a.key) {
                let (lo, hi) = (a.lo.max(b.lo), a.hi.min(b.hi));
                if lo < hi && out.0.len() < KNOWN {
                    out.add(Range { key: a.key, lo, hi, store: a.store && b.store });
                }
            }
        }
        out
    }

    /// Behind an instruction.
    fn follow(&mut self, step: &Step) {
        if self.0.is_empty() {
            return;
        }
        let copies: Vec<Range> = self.0.iter().filter_map(|r| copied(r, step)).collect();
        self.0.retain(|r| !step.writes(r.key.base) && !step.writes(r.key.index));
        copies.into_iter().for_each(|r| self.add(r));
    }
}

/// The range under the name that `dst = src + off` gives it.
fn copied(r: &Range, step: &Step) -> Option<Range> {
    if step.dst >= NO_REG || (r.key.base != step.src && r.key.index != step.src) {
        return None;
    }
    // With both registers the same, both get the new name.
    let mut out = *r;
    let mut moved = 0i64;
    for (reg, scale) in [(&mut out.key.base, 1), (&mut out.key.index, i64::from(r.key.scale))] {
        if *reg == step.src {
            *reg = step.dst;
            moved += scale * i64::from(step.off);
        } else if step.writes(*reg) {
            return None;
        }
    }
    out.lo = i32::try_from(i64::from(out.lo) - moved).ok()?;
    out.hi = i32::try_from(i64::from(out.hi) - moved).ok()?;
    Some(out)
}

/// Runs the pass; returns how many checks it left out.
pub fn run(cfg: &Cfg, code: &mut Code, fuel: &mut Fuel) -> u64 {
    let at_start = solve(cfg, code);
    let mut gone: Vec<usize> = Vec::new();
    for b in cfg.ids() {
        let Some(mut known) = at_start[b.ix()].clone() else { continue };
        walk(cfg, code, b, &mut known, |c, known| {
            let proves = code.checks[c].proves();
            if proves.is_some_and(|range| known.0.iter().any(|r| r.covers(&range))) {
                gone.push(c);
            }
        });
    }
    gone.retain(|_| fuel.take());
    for &c in &gone {
        code.checks[c].state = State::Dominated;
    }
    for c in 0..code.checks.len() {
        if let State::Merged(leader) = code.checks[c].state
            && code.checks[leader as usize].state == State::Dominated
        {
            code.checks[c].state = State::Dominated;
        }
    }
    gone.len() as u64
}

/// What is known at each block's start; `None` where nothing leads.
fn solve(cfg: &Cfg, code: &Code) -> Vec<Option<Known>> {
    let n = cfg.blocks.len();
    let mut at_start: Vec<Option<Known>> = vec![None; n];
    let mut queued = vec![false; n];
    let mut visits = vec![0u8; n];
    let mut work: VecDeque<u32> = VecDeque::new();
    for b in cfg.ids().filter(|b| code.entry[b.ix()]) {
        at_start[b.ix()] = Some(Known::default());
        queued[b.ix()] = true;
        work.push_back(b.0);
    }
    while let Some(b) = work.pop_front() {
        let b = BlockId(b);
        queued[b.ix()] = false;
        let mut known = at_start[b.ix()].clone().unwrap_or_default();
        walk(cfg, code, b, &mut known, |_, _| {});
        for s in cfg.succ(b) {
            let slot = &mut at_start[s.ix()];
            let mut met = match slot {
                None => known.clone(),
                Some(old) => old.meet(&known),
            };
            if slot.as_ref() != Some(&met) {
                // What shrinks so often is not worth following.
                visits[s.ix()] = visits[s.ix()].saturating_add(1);
                if visits[s.ix()] > VISITS {
                    met.0.clear();
                }
                *slot = Some(met);
                if !std::mem::replace(&mut queued[s.ix()], true) {
                    work.push_back(s.0);
                }
            }
        }
    }
    at_start
}

/// Follows a block from what is known at its start to what is known at its end; `each` sees what is known in front of each check.
fn walk(cfg: &Cfg, code: &Code, b: BlockId, known: &mut Known, mut each: impl FnMut(usize, &Known)) {
    let block = &cfg.blocks[b.ix()];
    let mut checks = code.checks_of(b).peekable();
    // Nothing is known here, and nothing learnt.
    if known.0.is_empty() && checks.peek().is_none() {
        return;
    }
    for i in block.first.ix()..block.stop.ix() {
        let step = &code.steps[i];
        if step.kills {
            known.0.clear();
        }
        if let Some(c) = checks.next_if(|c| code.checks[*c].id.ix() == i) {
            if code.checks[c].interrupts() {
                // What was known decides about the check, but counts no more behind it.
                each(c, known);
                known.0.clear();
            } else {
                each(c, known);
            }
            if let Some(range) = code.checks[c].proves() {
                known.add(range);
            }
        }
        known.follow(step);
        if step.ends {
            known.0.clear();
        }
    }
}
