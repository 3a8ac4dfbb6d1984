//! Checks that repeat what checks on every way here have tested are left out.
//!
//! Input: the list of checks, the graph. Output: the list with fewer checks, and how many were left out.
//!
//! A forward must-analysis: what is known at a block's start is what all its predecessors leave. A check makes its range known; a write to
//! a register that the range is named by forgets it, unless it adds or copies; a kill forgets everything. A check whose whole range is
//! known is left out, with the accesses that were merged into it. Nothing is widened: whatever is tested was asked for.
//!
//! Leaving a check out takes nothing away: on every way to it the first check of that range stays.

use crate::base::collections::ranked_bits::{is_set, set};
use crate::decode::regs::RegSet;
use crate::graph::cfg::{BlockId, Cfg};
use crate::plan::checks::{CheckState, Fuel};
use crate::plan::collect::PassCode;
use crate::plan::ranges::{AddressKey, NO_REG, Range, RangeStep};
use std::collections::VecDeque;

/// Ranges known at once.
const KNOWN: usize = 6;
/// How often what is known at a block may change before nothing is.
const VISITS: u8 = 32;

/// What is known at one place: ranges, the oldest first.
#[derive(Clone, Copy, Debug)]
struct Known {
    ranges: [Range; KNOWN],
    count: u8,
    /// The registers that they are named by.
    named: u32,
}

/// Fills places that hold nothing.
const NOTHING: Range = Range { key: AddressKey { base: NO_REG, index: NO_REG, scale: 1 }, lo: 0, hi: 0, store: false };

impl PartialEq for Known {
    fn eq(&self, other: &Known) -> bool {
        self.list() == other.list()
    }
}

impl Known {
    const NONE: Known = Known { ranges: [NOTHING; KNOWN], count: 0, named: 0 };

    fn list(&self) -> &[Range] {
        &self.ranges[..usize::from(self.count)]
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn clear(&mut self) {
        *self = Known::NONE;
    }

    fn retain(&mut self, keep: impl Fn(&Range) -> bool) {
        let old = *self;
        (self.count, self.named) = (0, 0);
        old.list().iter().filter(|r| keep(r)).for_each(|r| self.push(*r));
    }

    fn push(&mut self, range: Range) {
        self.ranges[usize::from(self.count)] = range;
        self.count += 1;
        self.named |= 1 << range.key.base | 1 << range.key.index;
    }

    fn add(&mut self, range: Range) {
        if self.list().iter().any(|r| range.covers(r)) {
            self.retain(|r| !range.covers(r));
        }
        if self.list().iter().any(|r| r.covers(&range)) {
            return;
        }
        if usize::from(self.count) == KNOWN {
            self.ranges.copy_within(1.., 0);
            self.count -= 1;
        }
        self.push(range);
    }

    /// What both know.
    fn meet(&self, other: &Known) -> Known {
        let mut out = Known::NONE;
        for a in self.list() {
            for b in other.list().iter().filter(|b| b.key == a.key) {
                let (lo, hi) = (a.lo.max(b.lo), a.hi.min(b.hi));
                if lo < hi && usize::from(out.count) < KNOWN {
                    out.add(Range { key: a.key, lo, hi, store: a.store && b.store });
                }
            }
        }
        out
    }

    /// Behind an instruction.
    fn follow(&mut self, step: &RangeStep) {
        if self.named & u32::from(step.touched()) == 0 {
            return;
        }
        let before = *self;
        self.retain(|r| !step.writes(r.key.base) && !step.writes(r.key.index));
        before.list().iter().filter_map(|r| copied(r, step)).for_each(|r| self.add(r));
    }
}

/// The range under the name that `dst = src + off` gives it.
fn copied(r: &Range, step: &RangeStep) -> Option<Range> {
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
    out.key = AddressKey::new(out.key.base, out.key.index, out.key.scale);
    Some(out)
}

/// Runs the pass; returns how many checks it left out.
pub fn run(cfg: &Cfg, code: &mut PassCode, briefs: &Briefs, fuel: &mut Fuel) -> u64 {
    let at_start = solve(cfg, code, briefs);
    let mut gone: Vec<usize> = Vec::new();
    for b in cfg.ids().filter(|b| !code.checks_of(*b).is_empty()) {
        let Some(mut known) = at_start.get(b) else { continue };
        // The only check of a block to which nothing is known stays.
        if known.is_empty() && code.checks_of(b).len() == 1 {
            continue;
        }
        walk(code, (cfg.blocks[b.ix()].first.ix(), cfg.blocks[b.ix()].stop.ix()), b, &mut known, |c, known| {
            let proves = code.checks[c].proves();
            if proves.is_some_and(|range| known.list().iter().any(|r| r.covers(&range))) {
                gone.push(c);
            }
        });
    }
    gone.retain(|_| fuel.take());
    for &c in &gone {
        code.checks[c].state = CheckState::Dominated;
    }
    for c in 0..code.checks.len() {
        if let CheckState::Merged(leader) = code.checks[c].state
            && code.checks[leader as usize].state == CheckState::Dominated
        {
            code.checks[c].state = CheckState::Dominated;
        }
    }
    gone.len() as u64
}

/// What the instructions of each block do to what is known, in short: so most blocks need not be gone through.
pub struct Briefs(Vec<u16>);

/// Behind some place of the block nothing is known that was known before: in the place of rsp, which no range is named by.
const FORGETS: u16 = RegSet::RSP.0 as u16;

impl Briefs {
    /// Those of all blocks.
    pub fn of(cfg: &Cfg, code: &PassCode) -> Briefs {
        let brief = |b: BlockId| {
            let block = &cfg.blocks[b.ix()];
            code.steps.range(block.first.ix()..block.stop.ix()).fold(0, |brief, step| {
                brief | step.touched() & !FORGETS | if step.kills || step.ends { FORGETS } else { 0 }
            })
        };
        Briefs(cfg.ids().map(brief).collect())
    }

    #[inline]
    fn forgets(&self, b: BlockId) -> bool {
        self.0[b.ix()] & FORGETS != 0
    }

    /// Whether the block's instructions leave all that is known as it is.
    #[inline]
    fn keeps(&self, b: BlockId, known: &Known) -> bool {
        u32::from(self.0[b.ix()]) & (known.named | u32::from(FORGETS)) == 0
    }
}

/// What is known at each block's start: at most starts nothing, at most others one range.
struct AtStart {
    /// By block: [`UNREACHED`], or where its ranges begin in `ranges` times eight, plus how many they are.
    of: Vec<u32>,
    ranges: Vec<Range>,
}

/// Nothing is seen to lead there.
const UNREACHED: u32 = u32::MAX;
const _: () = assert!(KNOWN < 7);

impl AtStart {
    /// Whether something is seen to lead there, and nothing is known: so it stays.
    #[inline]
    fn is_settled(&self, b: BlockId) -> bool {
        self.of[b.ix()] != UNREACHED && self.of[b.ix()].is_multiple_of(8)
    }

    fn get(&self, b: BlockId) -> Option<Known> {
        if self.of[b.ix()] == UNREACHED {
            return None;
        }
        let (from, count) = (self.of[b.ix()] / 8, self.of[b.ix()] % 8);
        let mut known = Known::NONE;
        self.ranges[from as usize..][..count as usize].iter().for_each(|r| known.push(*r));
        Some(known)
    }

    fn set(&mut self, b: BlockId, known: &Known) {
        let of = self.of[b.ix()];
        let (mut from, count) = if of == UNREACHED { (0, 0) } else { (of / 8, of % 8) };
        // What was known shrinks, as a rule.
        if u32::from(known.count) > count {
            from = self.ranges.len() as u32;
            self.ranges.extend_from_slice(known.list());
        } else {
            self.ranges[from as usize..][..known.list().len()].copy_from_slice(known.list());
        }
        self.of[b.ix()] = 8 * from + u32::from(known.count);
    }
}

fn solve(cfg: &Cfg, code: &PassCode, briefs: &Briefs) -> AtStart {
    let n = cfg.blocks.len();
    let mut at_start = AtStart { of: vec![UNREACHED; n], ranges: Vec::new() };
    let mut queued = vec![0u64; n.div_ceil(64)];
    // Blocks whose end is the same whatever is known at their start, and has been passed on.
    let mut settled = vec![0u64; n.div_ceil(64)];
    let mut visits = vec![0u8; n];
    for b in cfg.ids().filter(|b| code.entry[b.ix()]) {
        at_start.set(b, &Known::NONE);
        set(&mut queued, b.ix());
    }
    // First in, first out; all entries are in at first.
    let mut entries = cfg.ids().filter(|b| code.entry[b.ix()]);
    let mut work: VecDeque<BlockId> = VecDeque::new();
    while let Some(b) = entries.next().or_else(|| work.pop_front()) {
        queued[b.ix() / 64] &= !(1 << (b.ix() % 64));
        if is_set(&settled, b.ix()) {
            continue;
        }
        let (first, stop) = (cfg.blocks[b.ix()].first.ix(), cfg.blocks[b.ix()].stop.ix());
        let checks = !code.checks_of(b).is_empty();
        let mut known = Known::NONE;
        if briefs.forgets(b) {
            set(&mut settled, b.ix());
            if checks {
                let from = forgets(code, first, stop).unwrap_or(first);
                walk(code, (from, stop), b, &mut known, |_, _| {});
            }
        } else {
            known = at_start.get(b).unwrap_or(Known::NONE);
            if checks || !briefs.keeps(b, &known) {
                walk(code, (first, stop), b, &mut known, |_, _| {});
            }
        }
        for &s in cfg.succ(b) {
            if at_start.is_settled(s) {
                continue;
            }
            let old = at_start.get(s);
            let mut met = match &old {
                None => known,
                Some(old) => old.meet(&known),
            };
            if old != Some(met) {
                // What shrinks so often is not worth following.
                visits[s.ix()] = visits[s.ix()].saturating_add(1);
                if visits[s.ix()] > VISITS {
                    met.clear();
                }
                at_start.set(s, &met);
                if !is_set(&queued, s.ix()) {
                    set(&mut queued, s.ix());
                    work.push_back(s);
                }
            }
        }
    }
    at_start
}

/// The last place among instructions `[first, stop)` where nothing is known, whatever was known before.
fn forgets(code: &PassCode, first: usize, stop: usize) -> Option<usize> {
    (first..stop).rev().find_map(|i| match code.steps[i] {
        RangeStep { ends: true, .. } => Some(i + 1),
        RangeStep { kills: true, .. } => Some(i),
        _ => None,
    })
}

/// Follows the instructions `[from, stop)` of a block, from what is known in front of them to what is known behind; `each` sees what is known
/// in front of each check.
fn walk(
    code: &PassCode,
    (from, stop): (usize, usize),
    b: BlockId,
    known: &mut Known,
    mut each: impl FnMut(usize, &Known),
) {
    let mut checks = code.checks_between(b, from, usize::MAX).peekable();
    // Nothing is known here, and nothing learnt.
    if known.is_empty() && checks.peek().is_none() {
        return;
    }
    for i in from..stop {
        let step = &code.steps[i];
        if step.kills {
            known.clear();
        }
        if let Some(c) = checks.next_if(|c| code.checks[*c].id.ix() == i) {
            // What was known decides about the check, but may count no more behind it.
            each(c, known);
            if code.checks[c].interrupts() {
                known.clear();
            }
            if let Some(range) = code.checks[c].proves() {
                known.add(range);
            }
        }
        known.follow(step);
        if step.ends {
            known.clear();
        }
    }
}
