//! Checks are made as wide as what is certainly accessed behind them, over branches, where that leaves checks out.
//!
//! Input: the list of checks, the graph. Output: the list with wider checks, and which ones are.
//!
//! Backward over the graph: a stretch of addresses is *sure* in front of an instruction if on each way from there, before anything
//! that ends the effect of checks, accesses touch all blocks in which the stretch lies. Where ways part, what is sure on all of them is.
//! A loop's own edge makes nothing sure. [`run`] widens each check to what is sure behind it; [`crate::plan::across`] leaves out what is known
//! then; [`narrow`] takes back what nothing relies on.
//!
//! **Invariant.** A check that was widened looks at no more than [`SPAN`] bytes, and on each way each of them lies between two touched bytes
//! at most a block apart, so in the block of one of them.

use crate::graph::cfg::{BlockId, Cfg, End};
use crate::plan::checks::{Check, CheckState};
use crate::plan::collect::PassCode;
use crate::plan::covered::Walk;
use crate::plan::ranges::{Range, SPAN};

/// Stretches followed at once.
const SURE: usize = 8;
/// Instructions on all ways from a place to what makes a stretch sure; the audit goes each way by itself.
const FAR: u32 = 400;

/// A sure stretch, and how many instructions lead to what makes it so.
#[derive(Clone, Copy, Debug)]
struct Sure {
    range: Range,
    steps: u32,
}

/// A check that was widened, and what it was.
#[derive(Clone, Copy, Debug)]
pub struct Widened {
    check: usize,
    before: CheckState,
}

/// Widens checks.
pub fn run(cfg: &Cfg, code: &mut PassCode) -> Vec<Widened> {
    let mut widened = Vec::new();
    let mut at_start = AtStart { of: vec![0; cfg.blocks.len()], all: Vec::new() };
    for b in cfg.ids().rev() {
        let sure = block(cfg, code, b, &at_start, &mut widened);
        at_start.set(b, &sure);
    }
    widened
}

/// What is sure at each block's start: at most starts nothing.
struct AtStart {
    /// By block: where its stretches begin in `all` times sixteen, plus how many they are.
    of: Vec<u32>,
    all: Vec<Sure>,
}

const _: () = assert!(SURE < 16);

impl AtStart {
    fn get(&self, b: BlockId) -> &[Sure] {
        let (from, count) = (self.of[b.ix()] / 16, self.of[b.ix()] % 16);
        &self.all[from as usize..][..count as usize]
    }

    fn set(&mut self, b: BlockId, sure: &[Sure]) {
        if !sure.is_empty() {
            // Where there is no room for more, nothing is sure.
            let Some(from) = u32::try_from(self.all.len()).ok().and_then(|from| from.checked_mul(16)) else { return };
            self.of[b.ix()] = from + sure.len() as u32;
            self.all.extend_from_slice(sure);
        }
    }
}

/// What is sure at a block's start; widens its checks.
fn block(cfg: &Cfg, code: &mut PassCode, b: BlockId, at_start: &AtStart, widened: &mut Vec<Widened>) -> Vec<Sure> {
    let mut sure = at_end(cfg, code, b, at_start);
    let mut checks = code.checks_of(b).rev().peekable();
    if sure.is_empty() && checks.peek().is_none() {
        return sure;
    }
    let (first, stop) = (cfg.blocks[b.ix()].first.ix(), cfg.blocks[b.ix()].stop.ix());
    for i in (first..stop).rev() {
        let step = code.steps[i];
        if step.ends {
            sure.clear();
        }
        sure.retain_mut(|s| {
            s.steps += 1;
            s.steps <= FAR && s.range.before(&step).map(|r| s.range = r).is_some()
        });
        if let Some(c) = checks.next_if(|&c| code.checks[c].id.ix() == i) {
            let check = &mut code.checks[c];
            if !step.kills {
                widened.extend(widen(check, &sure).map(|before| Widened { check: c, before }));
            }
            if check.interrupts() {
                sure.clear();
            }
            if !check.masked {
                add(&mut sure, Sure { range: check.access(), steps: 0 });
            }
        }
        if step.kills {
            sure.clear();
        }
    }
    if code.entry[b.ix()] {
        sure.clear();
    }
    sure
}

/// What is sure behind a block.
fn at_end(cfg: &Cfg, code: &PassCode, b: BlockId, at_start: &AtStart) -> Vec<Sure> {
    let block = &cfg.blocks[b.ix()];
    let falls = block.end() == End::Plain && !code.steps[block.stop.ix() - 1].kills;
    let succ = cfg.succ(b);
    if !falls || succ.iter().any(|s| s.0 <= b.0) {
        return Vec::new();
    }
    let Some((first, others)) = succ.split_first() else { return Vec::new() };
    let mut sure = at_start.get(*first).to_vec();
    for other in others {
        sure = meet(&sure, at_start.get(*other));
    }
    sure
}

/// What is sure on both ways. Where two stretches have nothing in common, the result ends before it begins: together with what is touched
/// in front of it, it says how far both ways go on from there.
fn meet(a: &[Sure], b: &[Sure]) -> Vec<Sure> {
    let mut out = Vec::new();
    for x in a {
        for y in b.iter().filter(|y| y.range.key == x.range.key) {
            let (lo, hi) = (x.range.lo.max(y.range.lo), x.range.hi.min(y.range.hi));
            if i64::from(lo) - i64::from(hi) <= SPAN && out.len() < SURE {
                let store = x.range.store && y.range.store;
                out.push(Sure { range: Range { lo, hi, store, ..x.range }, steps: x.steps + y.steps });
            }
        }
    }
    out
}

/// Adds a stretch that is touched first.
fn add(sure: &mut Vec<Sure>, new: Sure) {
    let near = |s: &&mut Sure| s.range.key == new.range.key && together(&s.range, &new.range).is_some();
    match sure.iter_mut().find(near) {
        Some(s) => {
            s.range = together(&s.range, &new.range).unwrap_or(s.range);
            s.steps = s.steps.max(new.steps);
        }
        None => {
            if sure.len() == SURE {
                sure.remove(0);
            }
            sure.push(new);
        }
    }
}

/// A touched stretch together with a sure one and what lies between them, if one check can look at all of it.
fn together(sure: &Range, own: &Range) -> Option<Range> {
    let (lo, hi) = (sure.lo.min(own.lo), sure.hi.max(own.hi));
    // A sure one may end before it begins.
    let (first, last) = (lo.min(sure.hi), hi.max(sure.lo));
    let near = i64::from(last) - i64::from(first) <= SPAN;
    near.then_some(Range { lo, hi, store: sure.store || own.store, ..*own })
}

/// Widens one check; what it was, if it has changed.
fn widen(check: &mut Check, sure: &[Sure]) -> Option<CheckState> {
    let own = check.proves()?;
    let wide =
        sure.iter().filter(|s| s.range.key == own.key).fold(own, |wide, s| together(&s.range, &wide).unwrap_or(wide));
    if wide == own {
        return None;
    }
    let before = check.state;
    check.state = owning(before, &wide);
    Some(before)
}

/// The state of a check that looks at `range` instead.
fn owning(state: CheckState, range: &Range) -> CheckState {
    let load = matches!(state, CheckState::Own { load: true, .. }) || !range.store;
    CheckState::Own { lo: range.lo, bytes: (range.hi - range.lo) as u8, load, store: range.store, chain: None }
}

/// Takes back what nothing relies on; the checks that stay widened.
pub fn narrow(cfg: &Cfg, code: &mut PassCode, widened: &[Widened]) -> u64 {
    if widened.is_empty() {
        return 0;
    }
    let mut needed: Vec<Option<Range>> = vec![None; code.checks.len()];
    let mut restored: Vec<(usize, CheckState)> = Vec::new();
    {
        let walk = Walk::new(cfg, code);
        for c in (0..code.checks.len()).filter(|&c| code.checks[c].state == CheckState::Dominated) {
            let Some(covers) = walk.back(c, |_, _| true) else { continue };
            for (cover, range) in covers {
                let all = needed[cover].get_or_insert(range);
                *all = Range {
                    lo: all.lo.min(range.lo),
                    hi: all.hi.max(range.hi),
                    store: all.store || range.store,
                    ..*all
                };
            }
        }
    }
    let mut stay = 0;
    for w in widened {
        let check = &code.checks[w.check];
        if !matches!(check.state, CheckState::Own { .. }) {
            continue;
        }
        let now = Check { state: w.before, ..*check };
        let own = now.proves().expect("only checks that prove something are widened");
        let keep = needed[w.check].map_or(own, |n| Range {
            lo: own.lo.min(n.lo),
            hi: own.hi.max(n.hi),
            store: own.store || n.store,
            ..own
        });
        stay += u64::from(keep != own);
        restored.push((w.check, if keep == own { w.before } else { owning(w.before, &keep) }));
    }
    restored.into_iter().for_each(|(c, state)| code.checks[c].state = state);
    stay
}
