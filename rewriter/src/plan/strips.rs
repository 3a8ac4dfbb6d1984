//! Loops that test tags once for several iterations.
//!
//! Input: the list of checks, loops of one block. Output: [`Strip`]s; the checks that they cover are left out.
//!
//! A loop of one basic block moves through memory by constants: registers step by the same amount in each iteration. At its head stands,
//! in place of the poll, a comparison of one such register with a *limit* ([`blizzard_contract::LIMIT_UP`]). While the register has not
//! reached it, nothing is tested. When it has, a cold sequence polls, tests the tags of all blocks that the accesses touch in the next
//! iterations, and sets the limit behind them. Where one of those tags forbids its access, only what this iteration touches is tested,
//! and acquired if need be, and the next iteration asks again: nothing is acquired that the program might not touch.
//!
//! Where checks have screens, so have the tests: first they ask by one bit of each address that the accesses move on from whether it can be
//! shared memory at all. If none can, no tag is tested, and the limit stands as far ahead as a peer may wait, however wide the steps.
//!
//! **Invariants.** The limit says what it says only until the runtime is entered. So whoever enters it from within the loop takes the
//! limit back: the tests themselves, the stubs of the loop's other checks, the runtime where it lets a context continue; and entering
//! the loop does. The register steps onto the limit exactly, so no iteration behind it begins unseen, not even when addresses wrap around.
//! Source: design section 5 (polls; strip-mining); Shasta's batching of checks.

use crate::decode::insn::InsnId;
use crate::decode::regs::RegSet;
use crate::facts::red_zone::RedZone;
use crate::graph::cfg::BlockId;
use crate::plan::checks::{Check, CheckState, Fuel, PassInput, Polls};
use crate::plan::collect::{self, PassCode};
use crate::plan::copies;
use crate::plan::decision::Decisions;
use crate::plan::loop_tests::{AccessStream, Copy, REACH, Screen, Strip, told_at_once};
use crate::plan::ranges::{AddressKey, NO_REG, Range, SPAN};
use blizzard_contract as contract;

/// Most iterations of one strip: so long a peer waits at most.
pub const LONGEST: i64 = 128;
/// Where a strip of one test for each stream would be shorter, it has so many iterations, if it can.
const SHORTEST: i64 = 8;
/// Bytes that one stream has in an iteration: with any offset in a block, one test reaches them.
const WIDEST: i64 = 128;
/// Last tag that is tested, counted from the first: the tag table ends a page above the program's last address.
const LAST_TAG: i64 = 60;
/// Most tests of one strip, each of four tags.
const TESTS: usize = 24;
/// Most streams of one strip; most screens of its tests.
const STREAMS: usize = 8;
/// Instructions of an ordinary check, and of the cold sequence without its tests.
const CHECK: i64 = 4;
const FRAME: i64 = 5;

/// An access, as it is at the head, and by how much it advances.
#[derive(Clone, Copy)]
struct Candidate {
    check: usize,
    range: Range,
    stride: i64,
}

/// Runs the pass; the strips in the order of the instructions.
pub fn run(input: &PassInput, code: &mut PassCode, fuel: &mut Fuel) -> Vec<Strip> {
    let mut strips = Vec::new();
    for k in 0..code.loops.len() {
        let (b, live) = code.loops[k];
        let Some((mut strip, covered)) = plan(input, code, b, live) else { continue };
        if !fuel.take() {
            break;
        }
        if !strip.screens.is_empty() && !fuel.take() {
            strip.screens.clear();
            strip.copy = strip.copy.filter(|c| !c.private);
        }
        if strip.copy.is_some() {
            if fuel.take() {
                // Who comes from the copy has not come from the loop's checks.
                let behind = input.cfg.block_of(strip.stop);
                code.entry[behind.ix()] = true;
            } else {
                strip.copy = None;
            }
        }
        for c in code.checks_of(b) {
            code.checks[c].limit = Some(strip.limit());
        }
        for c in covered {
            code.checks[c].state = CheckState::Strip(strips.len() as u32);
        }
        // The tests may enter the runtime, whether it polls elsewhere or not.
        code.steps.kill(strip.first.ix());
        strips.push(strip);
    }
    strips
}

/// Of guarded code: the loops of plain code that have a copy. The loop itself keeps the test of each access, so that who is in full code, or comes from a
/// handler, may go on anywhere in it. `reaches`: whether an access goes to the alias behind its test; `red_zone`: where the program keeps nothing below rsp.
pub fn of_guarded(
    input: &PassInput,
    decisions: &Decisions,
    red_zone: &RedZone,
    mut reaches: impl FnMut(InsnId) -> bool,
) -> Vec<Strip> {
    let code = collect::collect(input, decisions, &Polls::default());
    let mut live_before = Vec::new();
    let whole = |&(b, live): &(BlockId, RegSet)| {
        let (mut strip, covered) = plan(input, &code, b, live)?;
        let (first, stop) = (strip.first.ix(), strip.stop.ix());
        let copy = strip.copy.as_mut()?;
        copy.elements.extend(covered.into_iter().map(|c| code.checks[c].id));
        // The limit that counts is in a register, or below rsp: the word may be that of another loop by now. Checks take the first register that is free.
        live_before.clear();
        input.live.before_each(input.cfg, input.facts, b, &mut live_before);
        let is_taken = |id: InsnId| {
            let free = RegSet::GPRS.without(live_before[id.ix() - first]).without(RegSet::RSP);
            !copy.elements.contains(&id) && free.gprs().next().is_none_or(|r| r >= strip.scratch)
        };
        let mut checks = code.checks_of(b).map(|c| code.checks[c].id);
        let is_written = || code.steps.range(first..stop).any(|s| s.writes(strip.scratch));
        strip.limit_below = strip.spilled || is_written() || checks.clone().any(is_taken);
        // Where a function begins that may be redirected, nothing stands in front.
        let begins = input.insns.starts.binary_search(&strip.first).is_ok();
        (!begins && (!strip.limit_below || red_zone.is_free(b)) && checks.all(&mut reaches)).then_some(strip)
    };
    code.loops.iter().filter_map(whole).collect()
}

/// The strip of a loop and the checks that it covers, if it has one.
fn plan(input: &PassInput, code: &PassCode, b: BlockId, live: RegSet) -> Option<(Strip, Vec<usize>)> {
    let cfg = input.cfg;
    let block = &cfg.blocks[b.ix()];
    let (first, stop) = (block.first.ix(), block.stop.ix());
    let interrupted = |i: usize| {
        let step = &code.steps[i];
        step.ends || step.kills && !(i == first && step.only_polls)
    };
    if code.wild[cfg.component[b.ix()] as usize] || live.meets(RegSet::FLAGS) || (first..stop).any(interrupted) {
        return None;
    }
    let steps: [Option<i64>; 16] = std::array::from_fn(|r| stepped(code, first, stop, r as u8));
    let all = code.checks_of(b);
    let candidates: Vec<Candidate> = all.clone().filter_map(|c| candidate(code, first, c, &steps)).collect();
    let left: Vec<usize> = all.filter(|c| !candidates.iter().any(|x| x.check == *c)).collect();
    let goes = |k: usize| !code.checks[left[k]].unclean || left[..k].iter().any(|&c| is_near(code, c, left[k]));
    if candidates.is_empty() || !(0..left.len()).all(goes) {
        return None;
    }
    let mut groups = streams(&candidates);
    groups.sort_unstable_by_key(|g| g.range);
    if groups.len() > STREAMS {
        return None;
    }
    let counter = counter(&groups, &steps, live)?;
    let step = i32::try_from(steps[usize::from(counter)]?).ok()?;
    let writes = |r: &u8| (first..stop).any(|i| code.steps[i].writes(*r));
    let written = (0..NO_REG).filter(writes).fold(RegSet::NONE, |set, r| set | RegSet(1 << r));
    let (scratch, spilled) = scratch(&groups, counter, live, written)?;
    let (iterations, streams) = shape(&groups, told_at_once(input.options))?;
    step.checked_mul(iterations as i32)?;
    let copy = if input.options.copies { copy(input, code, b, &left, &steps, &groups, iterations) } else { None };
    // Tests that take a register away must not be about what it leads to.
    let names = |key: &AddressKey| spilled && [key.base, key.index].contains(&scratch);
    let copy = copy.filter(|(copy, ranges)| {
        !copy.tables.iter().any(|table| names(&table.key)) && !ranges.iter().any(|range| names(&range.key))
    });
    let (copy, elements) = copy.map_or_else(Default::default, |(copy, elements)| (Some(copy), elements));
    let asks = input.options.screens && step.checked_mul(LONGEST as i32).is_some();
    let ranges = groups.iter().map(|g| &g.range).chain(&elements).filter(|_| asks);
    let screens = screens(ranges);
    let copy = copy.filter(|c| !c.private || !screens.is_empty());
    let strip = Strip {
        first: block.first,
        stop: block.stop,
        counter,
        step,
        scratch,
        spilled,
        limit_below: false,
        iterations: iterations as i32,
        streams,
        screens,
        needs: Vec::new(),
        chain: 0,
        copy,
    };
    Some((strip, candidates.iter().map(|c| c.check).collect()))
}

/// What tells of all these ranges; nothing, if that is too much.
fn screens<'r>(ranges: impl Iterator<Item = &'r Range>) -> Vec<Screen> {
    let mut list: Vec<Screen> = ranges.map(Screen::of).collect();
    list.sort_unstable();
    list.dedup_by(|later, first| {
        let same = (later.key, later.lo) == (first.key, first.lo);
        first.store |= same && later.store;
        same
    });
    if list.len() > STREAMS { Vec::new() } else { list }
}

/// The copy of a loop, if one pays, and what its screens ask beside the accesses that advance by constants. `left`: the checks that the tests
/// of the strip do not stand for.
fn copy(
    input: &PassInput,
    code: &PassCode,
    b: BlockId,
    left: &[usize],
    steps: &[Option<i64>; 16],
    groups: &[Group],
    iterations: i64,
) -> Option<(Copy, Vec<Range>)> {
    let block = &input.cfg.blocks[b.ix()];
    if left.iter().any(|&c| code.checks[c].unclean) {
        return None;
    }
    let (mut tables, mut anchored, mut elements) = (Vec::new(), Vec::new(), Vec::new());
    for &c in left {
        if let Some(table) = copies::table(input, code, block.first.ix(), c, steps) {
            tables.push(table);
            elements.push(code.checks[c].id);
        } else if input.options.screens
            && let Some(range) = copies::anchored(input, code, block.first.ix(), c, steps)
        {
            anchored.push(range);
            elements.push(code.checks[c].id);
        }
    }
    tables.sort_unstable();
    tables.dedup_by(|later, first| first.covers(later));
    let ranges: Vec<Range> = tables.iter().chain(&anchored).copied().collect();
    // Tags are not tested for all that may be anywhere behind a register.
    let private = !anchored.is_empty();
    let (tables, iterations) = if private { (&[][..], LONGEST) } else { (&tables[..], iterations) };
    let told = told_at_once(input.options);
    let copy = copies::plan(block.stop.0 - block.first.0, iterations, tables, elements, told)?;
    let tests: usize = copy.tables.iter().map(|t| t.tags.len()).sum();
    let checks: Vec<InsnId> = code.checks_of(b).map(|c| code.checks[c].id).collect();
    let fits = copy.tables.len() + groups.len() <= STREAMS && tests <= most_tests(told);
    (fits && copies::is_copyable(input, b, &checks)).then_some((Copy { private, ..copy }, ranges))
}

/// Whether a check may be expected to join that of an earlier access of its block, when checks are merged.
fn is_near(code: &PassCode, earlier: usize, later: usize) -> bool {
    let (first, check) = (&code.checks[earlier], &code.checks[later]);
    let steps = code.steps.range(first.id.ix()..check.id.ix());
    let there = steps.rev().try_fold(check.access(), |range, step| range.before(step));
    let near = |r: Range| {
        let own = first.access();
        r.key == own.key && i64::from(r.hi.max(own.hi)) - i64::from(r.lo.min(own.lo)) <= SPAN
    };
    !first.unclean && !first.masked && !check.masked && there.is_some_and(near)
}

/// By how much a register steps in each iteration; `None`: not by a constant.
fn stepped(code: &PassCode, first: usize, stop: usize, reg: u8) -> Option<i64> {
    let at_end = Range { key: AddressKey { base: reg, index: NO_REG, scale: 1 }, lo: 0, hi: 1, store: false };
    let at_head = code.steps.range(first..stop).rev().try_fold(at_end, |range, step| range.before(step))?;
    (at_head.key.base == reg).then_some(i64::from(at_head.lo))
}

fn candidate(code: &PassCode, first: usize, c: usize, steps: &[Option<i64>; 16]) -> Option<Candidate> {
    let check: &Check = &code.checks[c];
    if check.masked {
        return None;
    }
    let range = code.steps.range(first..check.id.ix()).rev().try_fold(check.access(), |r, step| r.before(step))?;
    let of = |reg: u8| if reg == NO_REG { Some(0) } else { steps[usize::from(reg)] };
    let stride = of(range.key.base)? + i64::from(range.key.scale) * of(range.key.index)?;
    // Within the tags that one strip may look at, two iterations find room.
    (stride.abs() <= LAST_TAG * contract::BLOCK_BYTES as i64).then_some(Candidate { check: c, range, stride })
}

/// Accesses that advance alike.
struct Group {
    range: Range,
    stride: i64,
}

fn streams(candidates: &[Candidate]) -> Vec<Group> {
    let mut sorted: Vec<(Range, i64)> = candidates.iter().map(|c| (c.range, c.stride)).collect();
    sorted.sort_unstable();
    let mut out: Vec<Group> = Vec::new();
    for (range, stride) in sorted {
        match out.last_mut() {
            Some(g)
                if g.range.key == range.key
                    && i64::from(range.hi.max(g.range.hi)) - i64::from(g.range.lo) <= WIDEST =>
            {
                g.range.hi = g.range.hi.max(range.hi);
                g.range.store |= range.store;
            }
            _ => out.push(Group { range, stride }),
        }
    }
    out
}

/// The register to compare: one that addresses are formed from, else any that steps and is used.
fn counter(groups: &[Group], steps: &[Option<i64>; 16], live: RegSet) -> Option<u8> {
    let moves = |r: u8| r < NO_REG && steps[usize::from(r)].is_some_and(|s| s != 0) && live.contains(RegSet(1 << r));
    groups.iter().flat_map(|g| [g.range.key.base, g.range.key.index]).chain(0..NO_REG).find(|&r| moves(r))
}

/// A register for the tests: a free one, if possible one that the loop does not write, so that its copy can compare with it, and checks in the loop
/// do not, which take the first; or one that no address is formed from. Whether it must be saved.
fn scratch(groups: &[Group], counter: u8, live: RegSet, written: RegSet) -> Option<(u8, bool)> {
    let named = groups.iter().flat_map(|g| [g.range.key.base, g.range.key.index]).filter(|&r| r < NO_REG);
    let taken = named.fold(RegSet::RSP | RegSet(1 << counter), |set, r| set | RegSet(1 << r));
    let candidates = RegSet::GPRS.without(taken);
    let free = candidates.without(live);
    let free = free.without(written).gprs().last().or_else(|| free.gprs().next()).map(|r| (r, false));
    free.or_else(|| candidates.gprs().next().map(|r| (r, true)))
}

/// How many iterations are tested at once, and how.
fn shape(groups: &[Group], told: i64) -> Option<(i64, Vec<AccessStream>)> {
    let width = |g: &Group| i64::from(g.range.hi) - i64::from(g.range.lo);
    let by_one_test = |g: &Group| if g.stride == 0 { LONGEST } else { (REACH - width(g)) / g.stride.abs() + 1 };
    // A copy of the loop has its block twice or four times.
    let whole = |n: i64| if n >= SHORTEST { n - n % 4 } else { n };
    let simple = whole(groups.iter().map(by_one_test).min()?.min(LONGEST));
    let choices = if simple >= SHORTEST { simple..=simple } else { 2..=SHORTEST };
    for iterations in choices.rev() {
        let streams: Option<Vec<AccessStream>> = groups.iter().map(|g| stream(g, iterations, told)).collect();
        let Some(streams) = streams else { continue };
        let tests: usize = streams.iter().map(|s| s.tags.len()).sum();
        let cost = FRAME + 2 * (streams.len() + tests) as i64;
        if tests <= most_tests(told) && cost < iterations * CHECK * groups.len() as i64 {
            return Some((iterations, streams));
        }
    }
    None
}

/// The most tests of one strip, each of which tells of so many blocks.
fn most_tests(told: i64) -> usize {
    TESTS * 4 / told as usize
}

/// The tests of one stream for so many iterations, each of which tells of so many blocks. `None`: it goes too far.
fn stream(g: &Group, iterations: i64, told: i64) -> Option<AccessStream> {
    let (block, stride) = (contract::BLOCK_BYTES as i64, g.stride.abs());
    let width = i64::from(g.range.hi) - i64::from(g.range.lo);
    let (behind, total) = ((iterations - 1) * g.stride, width + (iterations - 1) * stride);
    let mut tags: Vec<i64> = vec![0];
    if stride <= REACH {
        // Side by side.
        while block * (tags.len() as i64 * told - 1) + 1 < total {
            tags.push(tags.len() as i64 * told);
        }
    } else {
        // The last byte of an iteration, counted from where the block of its first test begins.
        let last = |j: i64| j * stride % block + width - 1;
        let more = |j: i64| (0..).step_by(told as usize).take_while(move |t| *t == 0 || block * (t - 1) < last(j));
        tags = (0..iterations).flat_map(|j| more(j).map(move |t| j * stride / block + t)).collect();
    }
    if tags.last().is_some_and(|&t| t > LAST_TAG) {
        return None;
    }
    let lo = i32::try_from(i64::from(g.range.lo) + behind.min(0)).ok()?;
    Some(AccessStream { key: g.range.key, lo, store: g.range.store, tags: tags.into_iter().map(|t| t as u8).collect() })
}
