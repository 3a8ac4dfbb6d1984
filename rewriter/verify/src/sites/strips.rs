//! Loops that test tags once for several iterations: recognising the comparison at the head and the tests behind it.
//!
//! Input: the comparison of a register with a limit. Output: a [`Site`] with a [`Strip`]: on each way from the tests to the loop's body,
//! where the limit then is, and what is known to be accessible. Whether that is enough for what the file claims is judged where claims are
//! proven (`judge/code/covered.rs`); nothing is believed of the loop here but that its own jump leads to the comparison.
//!
//! The way through the tests is executed symbolically. Where it branches, the way that leads off begins anew with nothing known but which
//! registers are as they were: so each stretch is walked once, and less is known than is true.
//! Source: `rewriter/SEQUENCES.md`, "Loops that test for several iterations".

use crate::decode::effects::{ALL_FLAGS, Flow, RSP};
use crate::decode::insn::{Insn, NONE, PREFIXED, WIDE};
use crate::sites::gates::{Gate, chain, lane_descriptor_va};
use crate::sites::site::{Context, Copy, Held, Limit, Site, SiteKind, Strip, Test, Way};
use crate::sites::symbolic::{Cond, Lin, SymbolicState, Val, WalkStep, is_taken_back, none_of};
use blizzard_contract as contract;

/// Instructions of all ways through the tests.
const LONGEST: usize = 2000;

/// Where a copy may find its limit, counted from rsp.
const BELOW: i64 = -8;

/// The limit that an instruction compares a register with.
pub(crate) fn compared(i: &Insn) -> Option<u64> {
    let m = i.mem.as_ref().filter(|m| i.op == 0x3b && m.base == NONE && m.index == NONE && m.seg == 0)?;
    let plain = i.has(WIDE) && !i.has(PREFIXED);
    (plain && none_of(m.disp as u64).is_some()).then_some(m.disp as u64)
}

/// The site whose comparison is instruction `probe`.
pub(crate) fn recognise(cx: &Context, probe: usize, free_from: usize, claimed: &mut Vec<usize>) -> Site {
    let start = probe.saturating_sub(1).max(free_from);
    let mut site = Site { dirty_flags: ALL_FLAGS, ..Site::of_kind(SiteKind::Strip, start, probe + 2) };
    if let Err(problem) = judge(cx, probe, free_from, &mut site, claimed) {
        site.problem = Some(problem);
    }
    site
}

fn judge(
    cx: &Context,
    probe: usize,
    free_from: usize,
    site: &mut Site,
    claimed: &mut Vec<usize>,
) -> Result<(), String> {
    let text = &cx.text.insns;
    let compare = &text[probe];
    let word = compared(compare).ok_or("no comparison with a limit")?;
    let counter = if compare.r0 < 16 { compare.r0 } else { compare.r1 };
    if counter >= 16 || counter == RSP {
        return Err("no register is compared with the limit".into());
    }
    let follows = |k: usize| text.get(k).filter(|i| i.va == text[k - 1].end());
    let enters = |i: &Insn| {
        let at = i.mem.is_some_and(|m| m.base == NONE && m.index == NONE && m.seg == 0 && m.disp as u64 == word);
        at && i.op == 0xc7 && i.ext == 0 && i.has(WIDE) && !i.has(PREFIXED) && Some(i.imm) == none_of(word)
    };
    if site.start + 1 != probe || site.start < free_from || !enters(&text[site.start]) || follows(probe).is_none() {
        return Err("the limit is not taken back where the loop is entered".into());
    }
    // Above or equal, below or equal: the register is on the limit, or behind it.
    let cc = if word == contract::LIMIT_UP { 3 } else { 6 };
    let branch = follows(probe + 1).filter(|i| i.flow == Flow::Cond && i.op == (0x180 | cc));
    let branch = branch.ok_or("no branch behind the comparison with the limit")?;
    let body = follows(probe + 2).ok_or("no loop behind the comparison with the limit")?.va;
    // Its own jump.
    let mut jump = probe + 2;
    while let Some(i) = text.get(jump).filter(|i| i.flow == Flow::Next || cx.cold.contains(i.target)) {
        jump += 1;
        if text.get(jump).is_none_or(|next| next.va != i.end()) {
            return Err("the loop has a gap".into());
        }
    }
    let back = text.get(jump).filter(|i| matches!(i.flow, Flow::Cond | Flow::Jump) && i.target == compare.va);
    let back = back.ok_or("the loop does not lead back to its comparison")?;
    site.own_edges.push((back.va, compare.va));
    let tests = branch.target;
    let exit = back.end();
    let (rung, silent, ways, copy) = (Vec::new(), Vec::new(), Vec::new(), None);
    let (used, steps) = (claimed, 0);
    let mut walk = Walk { cx, body, word, counter, cc, tests, exit, rung, silent, ways, copy, site, used, steps };
    walk.all(tests)?;
    let Walk { rung, silent, ways, copy, .. } = walk;
    if cx.polls && rung.is_empty() {
        return Err("the tests of the loop do not poll".into());
    }
    if cx.guard && copy.as_ref().is_none_or(|copy| copy.limit == Held::Word) {
        return Err("the tests of the loop lead into no copy with a limit of its own".into());
    }
    if rung.iter().any(|at| silent.contains(at)) {
        return Err("the tests of the loop find the doorbell rung, and do not call its gate".into());
    }
    site.strip = Some(Box::new(Strip { word, counter, inner: probe, jump, ways, copy }));
    Ok(())
}

struct Walk<'x, 'a> {
    cx: &'x Context<'a>,
    body: u64,
    word: u64,
    counter: u8,
    /// Of the branch behind the comparison with the limit, which leads to the tests.
    cc: u16,
    tests: u64,
    /// Behind the loop.
    exit: u64,
    /// Where the branches lead that find the doorbell rung.
    rung: Vec<u64>,
    /// Beginnings of stretches whose first deed is not to call the doorbell's gate.
    silent: Vec<u64>,
    ways: Vec<Way>,
    copy: Option<Copy>,
    site: &'x mut Site,
    used: &'x mut Vec<usize>,
    steps: usize,
}

impl Walk<'_, '_> {
    /// All ways from the branch of the comparison on.
    fn all(&mut self, target: u64) -> Result<(), String> {
        let mut seen: Vec<(u64, SymbolicState)> = vec![(target, known_registers(&SymbolicState::new(self.cx.guard)))];
        let mut next = 0;
        while let Some((va, state)) = seen.get(next).cloned() {
            next += 1;
            for (to, state) in self.stretch(va, state)? {
                let state = known_registers(&state);
                let same = |s: &(u64, SymbolicState)| s.0 == to && s.1.regs == state.regs && s.1.slots == state.slots;
                if !seen.iter().any(same) {
                    seen.push((to, state));
                }
            }
        }
        Ok(())
    }

    /// From a place to where its way ends; the places that branches lead to.
    fn stretch(&mut self, va: u64, mut state: SymbolicState) -> Result<Vec<(u64, SymbolicState)>, String> {
        let cold = self.cx.cold;
        let mut k = cold.at(va).ok_or_else(|| format!("the tests lead to {va:#x}, no cold instruction"))?;
        let mut leads = Vec::new();
        let mut way = Way { limit: Limit::Here, tests: Vec::new(), chain: None, copied: false };
        let mut begins = true;
        loop {
            let i = cold.insns.get(k).ok_or("the tests run off the section")?;
            self.used.push(k);
            self.steps += 1;
            if self.steps > LONGEST {
                return Err(format!("the tests at {va:#x} have no end"));
            }
            let cond = state.cond;
            let step = state.step(i);
            if begins && step != WalkStep::Next {
                begins = false;
                if step != WalkStep::Gate(contract::GATE_POLL) {
                    self.silent.push(va);
                }
            }
            match step {
                WalkStep::Next => {}
                WalkStep::Branch { cc: 5, target } => {
                    match cond {
                        Some(Cond::Tag { lin, bytes, mask }) => way.tests.push(Test::Tags { lin, tags: bytes, mask }),
                        Some(Cond::Poll) => self.rung.push(target),
                        _ => return Err(format!("unexpected branch at {:#x} in the tests of a loop", i.va)),
                    }
                    state.cond = None;
                    leads.push((target, state.clone()));
                }
                // Taken when the tag is lower.
                WalkStep::Branch { cc: 2, target } => {
                    let Some(Cond::Level { lin, level: level @ 1.. }) = cond else {
                        return Err(format!("unexpected branch at {:#x} in the tests of a loop", i.va));
                    };
                    way.tests.push(Test::Level { lin, level });
                    state.cond = None;
                    leads.push((target, state.clone()));
                }
                // Taken when the bit is clear.
                WalkStep::Branch { cc: 3, target } => {
                    let Some(Cond::Private { lin }) = cond else {
                        return Err(format!("unexpected branch at {:#x} in the tests of a loop", i.va));
                    };
                    way.tests.push(Test::Private(lin));
                    state.cond = None;
                    leads.push((target, state.clone()));
                }
                WalkStep::Jump(to) if self.enters_copy(to, &state)? => {
                    way.copied = true;
                    self.leaves(i.va, self.body, state, way)?;
                    return Ok(leads);
                }
                WalkStep::Jump(to) if cold.contains(to) => {
                    leads.push((to, state));
                    return Ok(leads);
                }
                WalkStep::Jump(to) => {
                    self.leaves(i.va, to, state, way)?;
                    return Ok(leads);
                }
                WalkStep::Gate(address) => self.enters(i.va, address, &mut state, &mut way)?,
                _ => return Err(format!("unexpected instruction at {:#x} in the tests of a loop", i.va)),
            }
            if let Some(fault) = state.fault {
                return Err(format!("the tests of a loop: {fault} at {:#x}", i.va));
            }
            k += 1;
        }
    }

    /// Whether the place is where a copy of the loop begins, behind a comparison with the limit.
    fn enters_copy(&mut self, to: u64, state: &SymbolicState) -> Result<bool, String> {
        let cold = self.cx.cold;
        let Some(first) = cold.at(to).filter(|&k| k >= 2) else { return Ok(false) };
        let head = first - 2;
        let (compare, branch) = (&cold.insns[head], &cold.insns[head + 1]);
        let registers = compare.op == 0x39 && compare.mem.is_none() && compare.has(WIDE) && !compare.has(PREFIXED);
        let plain = compare.op == 0x3b && compare.has(WIDE) && !compare.has(PREFIXED);
        let below = plain && compare.mem.is_some_and(|m| (m.base, m.index, m.disp, m.seg) == (RSP, NONE, BELOW, 0));
        let to_tests = branch.flow == Flow::Cond && branch.target == self.tests;
        let limit = match compared(compare) {
            Some(word) if word == self.word => Held::Word,
            _ if registers && to_tests => Held::Register(compare.r1),
            _ if self.cx.guard && below && to_tests => Held::Below,
            _ => return Ok(false),
        };
        let bad = |what: &str| Err(format!("the copy of the loop at {to:#x} {what}"));
        let counter = if compare.r0 < 16 { compare.r0 } else { compare.r1 };
        let leads = branch.flow == Flow::Cond && branch.op == (0x180 | self.cc) && branch.target == self.tests;
        if counter != self.counter || !leads || compare.end() != branch.va || branch.end() != to {
            return bad("does not compare the register with the limit");
        }
        let held = match limit {
            Held::Word => None,
            Held::Register(r) => state.regs.get(usize::from(r)).copied(),
            Held::Below => Some(state.slot(BELOW)),
        };
        let holds = |(word, value)| word == self.word && matches!(value, Val::Lin(_)) && held == Some(value);
        if limit != Held::Word && !state.limit.is_some_and(holds) {
            return bad("compares with what does not hold the limit");
        }
        if self.copy.is_some() {
            return if self.copy.as_ref().is_some_and(|c| c.head == head) { Ok(true) } else { bad("is another one") };
        }
        let mut copy = Copy { head, limit, exit: self.exit, blocks: Vec::new() };
        let (mut from, mut k) = (first, first);
        let follows = |k: usize| cold.insns.get(k).filter(|i| i.va == cold.insns[k - 1].end());
        loop {
            let Some(i) = follows(k) else { return bad("has a gap") };
            let ends = i.flow == Flow::Cond && !cold.contains(i.target);
            let repeats = i.flow == Flow::Cond && i.target == compare.va;
            if ends || repeats {
                copy.blocks.push(from..k);
                from = k + 1;
            } else if i.flow != Flow::Next && i.flow != Flow::Cond {
                return bad("is left by another way than the loop");
            }
            if ends && i.target != self.exit {
                return bad("leads elsewhere than the loop");
            }
            k += 1;
            if repeats {
                break;
            }
            if k - first > LONGEST {
                return bad("has no end");
            }
        }
        if follows(k).is_none_or(|i| i.flow != Flow::Jump || i.target != self.exit) {
            return bad("leads elsewhere than the loop");
        }
        self.used.extend(head..=k);
        self.copy = Some(copy);
        Ok(true)
    }

    /// The runtime is entered: what was known is no more.
    fn enters(&mut self, at: u64, address: u64, state: &mut SymbolicState, way: &mut Way) -> Result<(), String> {
        let lowered = state.rsp().filter(|d| *d <= -128).ok_or("the tests call a gate inside the red zone")?;
        way.tests.clear();
        (state.limit, state.cond, way.chain) = (None, None, None);
        match address {
            contract::GATE_POLL => {}
            contract::GATE_GROUP => {
                let (top, below) = (state.slot(lowered), state.slot(lowered + 8));
                let gate = Gate { at, address, top, below, lowered, state: state.clone() };
                let at = lane_descriptor_va(&gate).ok_or("the tests pass no chain of ranges")?;
                let intact = |r: u8| r == NONE || state.intact(r);
                let list = chain(self.cx.rodata, at)?;
                if list.iter().any(|r| !intact(r.proven.lin.base) || !intact(r.proven.lin.index)) {
                    return Err("a register that the chain of ranges names is changed at the gate".into());
                }
                way.chain = Some(at);
                self.site.chain = Some(at);
                state.popped(8);
            }
            _ => return Err(format!("the tests call the gate {address:#x}")),
        }
        Ok(())
    }

    /// A way ends at the body.
    fn leaves(&mut self, from: u64, to: u64, state: SymbolicState, mut way: Way) -> Result<(), String> {
        if to != self.body {
            return Err(format!("the tests lead to {to:#x} at {from:#x}, which is not the loop's body"));
        }
        let (word, value) = state.limit.ok_or_else(|| format!("the tests set no limit before {from:#x}"))?;
        let is_limit = |slot| self.cx.guard && slot == (BELOW, value);
        if state.rsp() != Some(0) || state.undo_pending() || !state.in_red_zone().all(is_limit) {
            return Err(format!("the tests leave something to be undone at {from:#x}"));
        }
        self.site.red_zone |= state.uses_red_zone();
        way.limit = match value {
            _ if word != self.word => return Err("the tests set another limit than that of the loop".into()),
            value if is_taken_back((word, value)) => Limit::Here,
            Val::Lin(l) if l == (Lin { disp: l.disp, ..Lin::reg(self.counter) }) => Limit::Plus(l.disp),
            _ => return Err(format!("the limit before {from:#x} is not a place of the compared register")),
        };
        self.site.dirty |= state.dirty();
        self.ways.push(way);
        Ok(())
    }
}

/// A state of which only registers as they were at the head, and what was saved, are known.
fn known_registers(state: &SymbolicState) -> SymbolicState {
    let mut out = state.clone();
    for r in 0..16 {
        if !state.intact(r) && r != RSP {
            out.regs[usize::from(r)] = Val::Junk;
        }
    }
    (out.clean, out.cond, out.limit) = (0, None, None);
    out
}
