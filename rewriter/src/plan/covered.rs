//! What each covered access relies on, and so what must be put right where it may be lost.
//!
//! Input: the final list of checks. Output: [`CheckPlan`]; the decisions say which checks are left out.
//!
//! From each covered access backward, on every way, to the checks that cover it. On the way
//! * a check that does not cover it may miss: its stub acquires the range, too (a *chain*);
//! * anywhere in between the program may continue without having come from the checks (a signal handler returns, a trap redirects a
//!   jump): the stretch becomes a *region*, with the chain that such a continuation must acquire.
//!
//! An access for which the way back meets a kill, or becomes too long, gets its check back. Whatever other accesses rely on stays as it is.

use crate::base::collections::ranked_bits::{is_set, set};
use crate::decode::insn::InsnId;
use crate::graph::cfg::{BlockId, Cfg};
use crate::plan::checks::{Check, CheckPlan, CheckState, PassCounts, Planned, PlannedClaim, PlannedRegion};
use crate::plan::collect::PassCode;
use crate::plan::decision::{Decisions, Reason};
use crate::plan::loop_tests::Strip;
use crate::plan::ranges::{AddressKey, Range, SPAN};
use blizzard_contract::{GROUP_RANGES, GroupRange, claim_reason, miss_desc};
use std::collections::{HashMap, HashSet};

/// Instructions between an access and the checks that cover it, all ways together.
pub const STEPS: usize = 2000;
const NONE: u32 = u32::MAX;

/// Instructions that share a page of [`Needs`].
const PAGE: usize = 32;

/// The ranges relied upon in front of each instruction; at most nothing is.
struct Needs {
    /// By page of instructions: index into `pages`, [`NONE`].
    page: Vec<u32>,
    /// By instruction: first entry, [`NONE`].
    pages: Vec<[u32; PAGE]>,
    entries: Vec<(Range, u32)>,
}

impl Needs {
    /// For so many instructions.
    fn new(count: usize) -> Needs {
        Needs { page: vec![NONE; count.div_ceil(PAGE)], pages: Vec::new(), entries: Vec::new() }
    }

    fn first(&self, i: usize) -> u32 {
        match self.page[i / PAGE] {
            NONE => NONE,
            page => self.pages[page as usize][i % PAGE],
        }
    }

    /// The instructions in front of which something is relied upon, ascending.
    fn instructions(&self) -> impl Iterator<Item = usize> {
        let pages = self.page.iter().enumerate().filter(|(_, page)| **page != NONE);
        pages.flat_map(|(k, _)| (PAGE * k..PAGE * (k + 1)).filter(|&i| self.first(i) != NONE))
    }

    fn at(&self, i: usize) -> impl Iterator<Item = Range> {
        let mut next = self.first(i);
        std::iter::from_fn(move || {
            let (range, then) = *self.entries.get(next as usize)?;
            next = then;
            Some(range)
        })
    }

    /// Adds a range in front of an instruction; false when there are too many.
    fn add(&mut self, i: usize, range: Range) -> bool {
        let first = self.first(i);
        let (mut at, mut count) = (first, 0);
        while at != NONE {
            let (old, next) = &mut self.entries[at as usize];
            let (lo, hi) = (old.lo.min(range.lo), old.hi.max(range.hi));
            let near = i64::from(hi) - i64::from(lo) <= SPAN;
            if old.key == range.key && (old.covers(&range) || old.store == range.store && near) {
                (old.lo, old.hi) = (lo, hi);
                return true;
            }
            at = *next;
            count += 1;
        }
        // One is left for the check's own range.
        if count + 1 >= GROUP_RANGES {
            return false;
        }
        self.entries.push((range, first));
        let page = &mut self.page[i / PAGE];
        if *page == NONE {
            *page = self.pages.len() as u32;
            self.pages.push([NONE; PAGE]);
        }
        self.pages[*page as usize][i % PAGE] = self.entries.len() as u32 - 1;
        true
    }
}

/// Goes back from covered accesses.
pub struct Walk<'x> {
    cfg: &'x Cfg,
    code: &'x PassCode,
}

/// Follows everything, and turns the list of checks into the result, but for decisions and polls.
pub fn run(
    cfg: &Cfg,
    mut code: PassCode,
    mut strips: Vec<Strip>,
    mut counts: PassCounts,
    decisions: &mut Decisions,
) -> CheckPlan {
    let (needs, claims) = loop {
        let (needs, claims, mut given_back) = follow(cfg, &code, &strips);
        given_back.extend(strips.iter().flat_map(|s| s.interrupted(&code)));
        if given_back.is_empty() {
            break (needs, claims);
        }
        // Each round gives at least one back, so this ends.
        counts.given_back += given_back.len() as u64;
        give_back(&mut code, &given_back);
    };
    // Nothing is followed any more.
    (code.steps, code.entry, code.wild) = Default::default();
    let mut chains = Chains::default();
    strips.retain(|s| !s.checks(&code).is_empty());
    let kept = |id: InsnId| strips[..strips.partition_point(|s| s.first <= id)].last().is_some_and(|s| id < s.stop);
    code.checks.iter_mut().filter(|c| c.limit.is_some() && !kept(c.id)).for_each(|c| c.limit = None);
    for strip in &mut strips {
        let mut list: Vec<(Range, u32)> = needs.at(strip.first.ix()).map(|r| (r, descriptor(&r))).collect();
        list.sort_unstable();
        strip.chain = chains.add(&list);
        strip.needs = list.into_iter().map(|(r, _)| r).collect();
        strip.settle(&code);
        counts.strips += 1;
        counts.copies += u64::from(strip.copy.is_some());
        counts.stripped += strip.checks(&code).len() as u64;
    }
    for c in &mut code.checks {
        let own = Range { store: false, ..c.access() };
        let CheckState::Own { lo, bytes, load, store, chain } = &mut c.state else { continue };
        let proven = Range { lo: *lo, hi: *lo + i32::from(*bytes), store: *store, ..own };
        let mut list: Vec<(Range, u32)> =
            needs.at(c.id.ix()).filter(|r| c.masked || !proven.covers(r)).map(|r| (r, descriptor(&r))).collect();
        if list.is_empty() && c.limit.is_none() {
            continue;
        }
        list.sort_unstable();
        let desc = u32::from(*bytes)
            | if *load { miss_desc::LOAD } else { 0 }
            | if *store { miss_desc::STORE } else { 0 }
            | if c.masked { miss_desc::MASKED } else { 0 };
        list.insert(0, (Range { lo: *lo, ..own }, desc));
        *chain = Some(chains.add(&list));
        counts.chained += 1;
    }
    let regions = regions(&needs, &mut chains);
    counts.regions = regions.len() as u64;
    let checks = settle(&code.checks, &claims, decisions);
    CheckPlan { checks, ranges: chains.ranges, claims, regions, strips, counts, ..CheckPlan::default() }
}

/// Leaves checks out; lists those of the others of which more must be known than what their accesses ask for.
fn settle(list: &[Check], claims: &[PlannedClaim], decisions: &mut Decisions) -> Vec<Planned> {
    let mut covers = vec![0; list.last().map_or(0, |c| c.id.ix() / 64 + 1)];
    claims.iter().filter_map(|claim| claim.cover).for_each(|id| set(&mut covers, id.ix()));
    let mut out = Vec::new();
    for c in list {
        match c.state {
            CheckState::Own { lo, bytes, load, store, chain } => {
                let Check { id, limit, .. } = *c;
                let named = is_set(&covers, id.ix());
                if named || (lo, bytes, load, store, chain) != (c.disp, c.bytes, c.load, c.store, None) {
                    out.push(Planned { id, lo, bytes, load, store, limit, named, chain });
                }
            }
            CheckState::Merged(_) => decisions.leave_out(c.id, Reason::Merged),
            CheckState::Dominated => decisions.leave_out(c.id, Reason::Dominated),
            CheckState::Strip(_) => decisions.leave_out(c.id, Reason::Strip),
        }
    }
    out
}

/// Gives checks back, to all accesses of a group or strip if to one: the check of the first was made wide for all of them.
fn give_back(code: &mut PassCode, list: &[usize]) {
    let leaders: HashSet<u32> = list
        .iter()
        .filter_map(|&c| match code.checks[c].state {
            CheckState::Merged(leader) => Some(leader),
            _ => None,
        })
        .collect();
    let strips: HashSet<u32> = list
        .iter()
        .filter_map(|&c| match code.checks[c].state {
            CheckState::Strip(k) => Some(k),
            _ => None,
        })
        .collect();
    let alone: HashSet<usize> = list.iter().copied().chain(leaders.iter().map(|&l| l as usize)).collect();
    for (c, check) in code.checks.iter_mut().enumerate() {
        let member = match check.state {
            CheckState::Merged(leader) => leaders.contains(&leader),
            CheckState::Strip(k) => strips.contains(&k),
            CheckState::Own { .. } | CheckState::Dominated => false,
        };
        if member || alone.contains(&c) {
            let Check { disp, bytes, load, store, .. } = *check;
            check.state = CheckState::Own { lo: disp, bytes, load, store, chain: None };
        }
    }
}

/// Follows each covered access; also the indices of those that must have their checks back.
fn follow(cfg: &Cfg, code: &PassCode, strips: &[Strip]) -> (Needs, Vec<PlannedClaim>, Vec<usize>) {
    let mut needs = Needs::new(code.steps.count());
    let mut claims = Vec::new();
    let mut given_back = Vec::new();
    let walk = Walk::new(cfg, code);
    let cover = |list: Vec<(usize, Range)>| {
        let mut covers: Vec<InsnId> = list.iter().map(|&(c, _)| code.checks[c].id).collect();
        covers.sort_unstable();
        covers.dedup();
        match covers.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    };
    let back = |c, needs: &mut Needs| walk.back(c, |i, range| needs.add(i, range)).map(cover);
    for c in 0..walk.code.checks.len() {
        let (reason, followed) = match walk.code.checks[c].state {
            CheckState::Own { .. } => continue,
            CheckState::Merged(_) => (claim_reason::MERGED, back(c, &mut needs)),
            CheckState::Dominated => (claim_reason::DOMINATED, back(c, &mut needs)),
            CheckState::Strip(k) => {
                (claim_reason::STRIP, walk.to_head(c, &strips[k as usize], &mut needs).map(|()| None))
            }
        };
        match followed {
            Some(cover) => claims.push(PlannedClaim { id: walk.code.checks[c].id, cover, reason }),
            None => given_back.push(c),
        }
    }
    (needs, claims, given_back)
}

impl<'x> Walk<'x> {
    /// Through the code as it is.
    pub fn new(cfg: &'x Cfg, code: &'x PassCode) -> Walk<'x> {
        Walk { cfg, code }
    }

    /// From a covered access back to the checks that cover it: their indices, and what they cover. `pass` is told in front of which
    /// instructions what is relied upon, and says whether it can be. `None`: it cannot be followed.
    pub fn back(&self, c: usize, mut pass: impl FnMut(usize, Range) -> bool) -> Option<Vec<(usize, Range)>> {
        let check = &self.code.checks[c];
        let access = check.access();
        if !pass(check.id.ix(), access) {
            return None;
        }
        let mut covers = Vec::new();
        // (block, instruction behind the last one to look at, range there)
        let mut work = vec![(self.cfg.block_of(check.id), check.id.ix(), access)];
        let mut seen: Vec<(BlockId, Range)> = Vec::new();
        let mut steps = 0;
        if self.code.steps[check.id.ix()].kills {
            return None;
        }
        while let Some((b, behind, mut range)) = work.pop() {
            let first = self.cfg.blocks[b.ix()].first.ix();
            let mut checks = self.checks_before(b, behind);
            let mut found = false;
            for i in (first..behind).rev() {
                steps += 1;
                let step = &self.code.steps[i];
                if steps > STEPS || step.ends {
                    return None;
                }
                range = range.before(step)?;
                let own = checks.next_if(|&own| self.code.checks[own].id.ix() == i);
                let steps = || self.code.steps.range(first..i);
                let proves = |own: usize| {
                    let proven = self.code.checks[own].proves()?;
                    range.named_like(&proven, steps()).filter(|range| proven.covers(range)).map(|range| (own, range))
                };
                if let Some(cover) = own.and_then(proves) {
                    covers.push(cover);
                    found = true;
                    break;
                }
                if step.kills || own.is_some_and(|own| self.code.checks[own].interrupts()) || !pass(i, range) {
                    return None;
                }
            }
            if found {
                continue;
            }
            if self.code.entry[b.ix()] {
                return None;
            }
            for p in self.cfg.preds(b) {
                if !seen.contains(&(p, range)) {
                    seen.push((p, range));
                    work.push((p, self.cfg.blocks[p.ix()].stop.ix(), range));
                }
            }
        }
        Some(covers)
    }

    /// From an access to the tests at the head of its loop, in straight line. `None`: too much is relied upon.
    fn to_head(&self, c: usize, strip: &Strip, needs: &mut Needs) -> Option<()> {
        let check = &self.code.checks[c];
        let mut range = check.access();
        let mut kept = needs.add(check.id.ix(), range);
        for i in (strip.first.ix()..check.id.ix()).rev() {
            range = range.before(&self.code.steps[i])?;
            kept &= needs.add(i, range);
        }
        kept.then_some(())
    }

    /// The checks of a block in front of an instruction, the last first.
    fn checks_before(&self, b: BlockId, behind: usize) -> std::iter::Peekable<impl Iterator<Item = usize>> {
        self.code.checks_between(b, 0, behind).rev().peekable()
    }
}

/// Chains by their contents.
#[derive(Default)]
struct Chains {
    ranges: Vec<GroupRange>,
    known: HashMap<Vec<(Range, u32)>, u32>,
}

impl Chains {
    fn add(&mut self, list: &[(Range, u32)]) -> u32 {
        if let Some(&at) = self.known.get(list) {
            return at;
        }
        let at = self.ranges.len() as u32;
        for (k, (Range { key: AddressKey { base, index, scale }, lo, .. }, desc)) in list.iter().enumerate() {
            let more = u8::from(k + 1 < list.len());
            let (base, index, scale) = (*base, *index, *scale);
            self.ranges.push(GroupRange { disp: *lo, desc: *desc, base, index, scale, more, _pad: 0 });
        }
        self.known.insert(list.to_vec(), at);
        at
    }
}

/// What must be acquired for a range that was covered.
fn descriptor(r: &Range) -> u32 {
    (r.hi - r.lo) as u32 | if r.store { miss_desc::STORE } else { miss_desc::LOAD }
}

/// Runs of instructions that rely on the same ranges.
fn regions(needs: &Needs, chains: &mut Chains) -> Vec<PlannedRegion> {
    let mut out: Vec<PlannedRegion> = Vec::new();
    for i in needs.instructions() {
        let mut list: Vec<(Range, u32)> = needs.at(i).map(|r| (r, descriptor(&r))).collect();
        list.sort_unstable();
        let chain = chains.add(&list);
        let id = InsnId(i as u32);
        match out.last_mut() {
            Some(last) if last.stop == id && last.chain == chain => last.stop = InsnId(id.0 + 1),
            _ => out.push(PlannedRegion { first: id, stop: InsnId(id.0 + 1), chain }),
        }
    }
    out
}

impl Strip {
    /// Keeps the checks of tables' elements in its copy, if one of them stands for an access that is no element.
    pub fn settle(&mut self, code: &PassCode) {
        let at = |id: InsnId| code.checks.partition_point(|c| c.id < id);
        let list = &code.checks[at(self.first)..at(self.stop)];
        let Some(copy) = &mut self.copy else { return };
        let relies = |c: &Check| matches!(c.state, CheckState::Merged(_) | CheckState::Dominated);
        if list.iter().any(|c| relies(c) && !copy.elements.contains(&c.id)) {
            copy.elements.clear();
        }
    }

    /// Indices of the accesses that it covers.
    pub fn checks(&self, code: &PassCode) -> Vec<usize> {
        let at = |id: InsnId| code.checks.partition_point(|c| c.id < id);
        (at(self.first)..at(self.stop)).filter(|&c| matches!(code.checks[c].state, CheckState::Strip(_))).collect()
    }

    /// The same, if a check is left in the loop that spills: it has no stub that takes the limit back.
    pub fn interrupted(&self, code: &PassCode) -> Vec<usize> {
        let at = |id: InsnId| code.checks.partition_point(|c| c.id < id);
        if code.checks[at(self.first)..at(self.stop)].iter().any(Check::interrupts) {
            self.checks(code)
        } else {
            Vec::new()
        }
    }
}
