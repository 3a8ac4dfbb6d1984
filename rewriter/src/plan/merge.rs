//! Accesses near the same address share the check of the first, within a basic block.
//!
//! Input: the list of checks, the graph. Output: the list with fewer, wider checks, and how many were merged.
//!
//! Two accesses belong together when they add constants to the same registers, as they were at one moment, and all their bytes lie
//! within [`SPAN`]. All of them are executed when the first is, unless the program ends in between, so the first check may look at
//! all their bytes; if one of them stores, it asks for the right to store. No kill lies between the first and the last.

use crate::decode::insn::InsnId;
use crate::graph::cfg::{BlockId, Cfg};
use crate::plan::checks::{Check, CheckState, Fuel};
use crate::plan::collect::PassCode;
use crate::plan::covered::STEPS;
use crate::plan::ranges::{NO_REG, RangeStep, SPAN};
use std::iter::Peekable;
use std::ops::Range;

/// Groups that may be open at once: what a miss must acquire together stays small.
const OPEN: usize = 6;

/// Loads of a block that are looked for at once.
const LOADS: usize = 16;

/// A register's value as one that it or another register had at some moment of the block, plus a constant.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Value {
    root: u32,
    off: i64,
}

/// Accesses that share a check so far.
struct Group {
    base: u32,
    index: u32,
    scale: u8,
    /// Displacements from the roots.
    lo: i64,
    hi: i64,
    store: bool,
    /// Index of the first check, and its displacement from the roots.
    leader: usize,
    at: i64,
}

/// Runs the pass; returns how many checks it left out.
pub fn run(cfg: &Cfg, code: &mut PassCode, fuel: &mut Fuel) -> u64 {
    let mut merged = 0;
    for b in cfg.ids() {
        // One check alone shares with none.
        if code.checks_of(b).len() > 1 {
            merged += block(cfg, code, b, fuel);
        }
    }
    merged
}

/// Loads of bytes that an instruction behind them in their block stores to. A test for stores in front of them saves a second miss, where none is shared.
pub fn stored_later(cfg: &Cfg, code: &PassCode) -> Vec<InsnId> {
    let mut out = Vec::new();
    for b in cfg.ids().filter(|b| code.checks_of(*b).len() > 1) {
        let mut loads: Vec<(usize, (u32, u32, u8), i64)> = Vec::new();
        let mut walk = Walk::of(cfg, code, b);
        while let Some((kills, check)) = walk.next(code) {
            if kills {
                loads.clear();
            }
            let Some(c) = check.filter(|c| !code.checks[*c].masked) else { continue };
            let check = &code.checks[c];
            let (base, index, at) = place(check, &walk.values);
            let form = (base, index, check.key.scale);
            if check.store {
                let end = at + i64::from(check.bytes);
                loads.retain(|&(l, of, from)| {
                    let load = &code.checks[l];
                    let meets = of == form && from < end && at < from + i64::from(load.bytes);
                    let found =
                        meets && check.id.ix() - load.id.ix() < STEPS && is_named_alike(code, check, load, walk.first);
                    if found {
                        out.push(load.id);
                    }
                    !found
                });
            } else {
                if loads.len() == LOADS {
                    loads.remove(0);
                }
                loads.push((c, form, at));
            }
        }
    }
    out
}

fn block(cfg: &Cfg, code: &mut PassCode, b: BlockId, fuel: &mut Fuel) -> u64 {
    let mut open: Vec<Group> = Vec::with_capacity(OPEN);
    let mut merged = 0;
    let mut walk = Walk::of(cfg, code, b);
    while let Some((kills, check)) = walk.next(code) {
        if kills {
            open.clear();
        }
        // An access of a strip has no check.
        let Some(c) = check.filter(|c| !matches!(code.checks[*c].state, CheckState::Strip(_))) else { continue };
        if !code.checks[c].masked && join(code, c, &walk.values, &mut open, walk.first, fuel) {
            merged += 1;
        } else {
            if code.checks[c].unclean {
                open.clear();
            }
            if !code.checks[c].masked {
                start(code, c, &walk.values, &mut open);
            }
        }
    }
    merged
}

/// The instructions of a block, one after the other, and what the registers hold in front of each.
struct Walk {
    first: usize,
    /// The instruction to come.
    at: usize,
    stop: usize,
    /// Those of the instructions to come.
    checks: Peekable<Range<usize>>,
    values: [Value; 17],
    /// How many values there have been.
    roots: u32,
}

impl Walk {
    fn of(cfg: &Cfg, code: &PassCode, b: BlockId) -> Walk {
        let values: [Value; 17] = std::array::from_fn(|r| Value { root: r as u32, off: 0 });
        let block = &cfg.blocks[b.ix()];
        let (first, stop) = (block.first.ix(), block.stop.ix());
        Walk { first, at: first, stop, checks: code.checks_of(b).peekable(), roots: values.len() as u32, values }
    }

    /// Whether the next instruction kills, and the index of its check, if it has one. None: the block ends.
    fn next(&mut self, code: &PassCode) -> Option<(bool, Option<usize>)> {
        if self.at > self.first {
            self.follow(&code.steps[self.at - 1]);
        }
        let at = self.at;
        self.at += 1;
        (at < self.stop).then(|| (code.steps[at].kills, self.checks.next_if(|c| code.checks[*c].id.ix() == at)))
    }

    /// What an instruction leaves in the registers.
    fn follow(&mut self, step: &RangeStep) {
        let copied = (step.dst < NO_REG).then(|| {
            let from = self.values[usize::from(step.src)];
            Value { off: from.off + i64::from(step.off), ..from }
        });
        for r in (0..NO_REG).filter(|r| step.writes(*r)) {
            self.values[usize::from(r)] = Value { root: self.roots, off: 0 };
            self.roots += 1;
        }
        if let Some(v) = copied {
            self.values[usize::from(step.dst)] = v;
        }
    }
}

/// The registers that an address is formed from, as values, and the displacement from them.
fn place(check: &Check, values: &[Value; 17]) -> (u32, u32, i64) {
    let (base, index) = (values[usize::from(check.key.base)], values[usize::from(check.key.index)]);
    let at = i64::from(check.disp) + base.off + i64::from(check.key.scale) * index.off;
    // As in a key: a sum has one name.
    let swapped = check.key.scale == 1 && index.root < base.root;
    if swapped { (index.root, base.root, at) } else { (base.root, index.root, at) }
}

/// Joins a check to a group, if it can.
fn join(
    code: &mut PassCode,
    c: usize,
    values: &[Value; 17],
    open: &mut [Group],
    block_first: usize,
    fuel: &mut Fuel,
) -> bool {
    let check = code.checks[c];
    let (base, index, at) = place(&check, values);
    let end = at + i64::from(check.bytes);
    let near = open.iter_mut().find(|g| {
        let same = (g.base, g.index, g.scale) == (base, index, check.key.scale);
        same && g.hi.max(end) - g.lo.min(at) <= SPAN
    });
    if let Some(g) = near {
        let first = &code.checks[g.leader];
        let lo = i32::try_from(i64::from(first.disp) + g.lo.min(at) - g.at);
        if let Ok(lo) = lo
            && check.id.ix() - first.id.ix() < STEPS
            && is_named_alike(code, &check, first, block_first)
            && fuel.take()
        {
            (g.lo, g.hi) = (g.lo.min(at), g.hi.max(end));
            g.store |= check.store;
            let bytes = (g.hi - g.lo) as u8;
            // Whoever may store may load.
            let load = first.load || !g.store;
            code.checks[g.leader].state = CheckState::Own { lo, bytes, load, store: g.store, chain: None };
            code.checks[c].state = CheckState::Merged(g.leader as u32);
            return true;
        }
    }
    false
}

/// Whether the registers of the access can be followed back to the first one, and are those of the first one there, or hold the same.
fn is_named_alike(code: &PassCode, access: &Check, first: &Check, block_first: usize) -> bool {
    let steps = code.steps.range(first.id.ix()..access.id.ix());
    let back = steps.rev().try_fold(access.access(), |range, step| range.before(step));
    let before = code.steps.range(block_first..first.id.ix());
    back.is_some_and(|range| range.named_like(&first.access(), before).is_some())
}

/// Opens a group with one access.
fn start(code: &PassCode, c: usize, values: &[Value; 17], open: &mut Vec<Group>) {
    if open.len() == OPEN {
        open.remove(0);
    }
    let check = &code.checks[c];
    let (base, index, at) = place(check, values);
    open.push(Group {
        base,
        index,
        scale: check.key.scale,
        lo: at,
        hi: at + i64::from(check.bytes),
        store: check.store,
        leader: c,
        at,
    });
}
