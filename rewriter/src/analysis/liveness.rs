//! Which registers and flags are live before each instruction, over the whole module.
//!
//! A backward may-analysis on the graph of all functions. Returns lead to the return sites of every direct caller
//! that can have led to them, so `-fipa-ra` and hand-written conventions inside a module are seen as they are; callers outside
//! the module, and those through pointers, are assumed to know only the ABI (psABI 3.2.1). An unresolved jump is a tail call or leads
//! to any block of its function; without a frame that says what its function is, everything is live. Calls keep the callee-saved registers live, because an exception may resume in
//! a landing pad that reads them.
//!
//! Invariant: a register outside [`Liveness::live_out`]-derived sets is never read again before it is written.

use super::conventions::Conventions;
use super::effects::Effects;
use super::facts::Facts;
use super::group;
use super::regs::RegSet;
use crate::cfg::{BlockId, Cfg, End};
use crate::disasm::InsnId;
use std::collections::HashSet;

/// The result: live sets at block ends.
#[derive(Debug)]
pub struct Liveness {
    out: Vec<RegSet>,
}

impl Liveness {
    /// Solves the equations.
    pub fn solve(cfg: &Cfg, facts: &Facts, conventions: &Conventions) -> Liveness {
        let mut s = Solver::new(cfg, facts);
        for &b in &conventions.preserve_all {
            s.need(b, RegSet::GPRS);
        }
        s.switched = conventions.switched.iter().copied().collect();
        while let Some(b) = s.work.pop() {
            s.queued[b.ix()] = false;
            s.visit(b);
        }
        Liveness { out: s.out }
    }

    /// Everything is live everywhere.
    pub fn unknown(cfg: &Cfg) -> Liveness {
        Liveness { out: vec![RegSet::ALL; cfg.blocks.len()] }
    }

    /// Live behind the last instruction of `b`.
    pub fn live_out(&self, b: BlockId) -> RegSet {
        self.out[b.ix()]
    }

    /// Live before each instruction of `b`, into `into` (index 0: the block's first instruction).
    pub fn before_each(&self, cfg: &Cfg, facts: &Facts, b: BlockId, into: &mut Vec<RegSet>) {
        let block = &cfg.blocks[b.ix()];
        let count = (block.stop.0 - block.first.0) as usize;
        into.clear();
        into.resize(count, RegSet::NONE);
        let mut live = self.out[b.ix()];
        for i in (0..count).rev() {
            let e = facts.effects(InsnId(block.first.0 + i as u32));
            live = live.without(e.kills) | e.reads;
            into[i] = live;
        }
    }
}

fn block_effects(cfg: &Cfg, facts: &Facts, b: BlockId) -> Effects {
    let block = &cfg.blocks[b.ix()];
    let mut total = Effects::default();
    for i in (block.first.0..block.stop.0).rev() {
        let e = facts.effects(InsnId(i));
        total.reads = total.reads.without(e.kills) | e.reads;
        total.kills |= e.kills;
    }
    total
}

/// The equations of one module while they are solved.
struct Solver<'x> {
    cfg: &'x Cfg,
    transfer: Vec<Effects>,
    preds: Preds,
    live_in: Vec<RegSet>,
    out: Vec<RegSet>,
    /// What the callers of the functions that run through a block use after their calls: flows forward, from function
    /// entries to returns.
    needed: Vec<RegSet>,
    /// Components with an unresolved jump: what is live at the start of any of their blocks, what is needed in any, and those of their
    /// blocks that end in such a jump or a return.
    wild: Vec<Wild>,
    /// Index into `wild` of each block, [`TAME`] where its component has no such jump.
    wild_of: Vec<u32>,
    /// Returns that lead to another context.
    switched: HashSet<BlockId>,
    work: Vec<BlockId>,
    queued: Vec<bool>,
}

const TAME: u32 = u32::MAX;

#[derive(Default)]
struct Wild {
    live: RegSet,
    needed: RegSet,
    ends: Vec<BlockId>,
}

impl<'x> Solver<'x> {
    fn new(cfg: &'x Cfg, facts: &Facts) -> Self {
        let n = cfg.blocks.len();
        let mut wild: Vec<Wild> = Vec::new();
        let mut of_component = vec![TAME; n];
        for b in cfg.ids().filter(|b| cfg.blocks[b.ix()].end() == End::FramedJmp) {
            let of = &mut of_component[cfg.component[b.ix()] as usize];
            if *of == TAME {
                *of = wild.len() as u32;
                wild.push(Wild::default());
            }
        }
        let wild_of: Vec<u32> = cfg.ids().map(|b| of_component[cfg.component[b.ix()] as usize]).collect();
        for b in cfg.ids().filter(|b| matches!(cfg.blocks[b.ix()].end(), End::FramedJmp | End::Ret)) {
            if let Some(w) = wild.get_mut(wild_of[b.ix()] as usize) {
                w.ends.push(b);
            }
        }
        let mut solver = Solver {
            cfg,
            transfer: cfg.ids().map(|b| block_effects(cfg, facts, b)).collect(),
            preds: Preds::new(cfg),
            live_in: vec![RegSet::NONE; n],
            out: vec![RegSet::NONE; n],
            needed: vec![RegSet::NONE; n],
            wild,
            wild_of,
            switched: HashSet::new(),
            work: cfg.ids().collect(),
            queued: vec![true; n],
        };
        // Whoever enters from outside the module or through a pointer knows only the ABI.
        for b in cfg.ids().filter(|b| cfg.root[b.ix()]) {
            solver.need(b, RegSet::RETURNED);
        }
        solver
    }

    fn queue(&mut self, b: BlockId) {
        if !std::mem::replace(&mut self.queued[b.ix()], true) {
            self.work.push(b);
        }
    }

    /// Notes that whoever entered at `b` uses `regs` after the return.
    fn need(&mut self, b: BlockId, regs: RegSet) {
        if self.needed[b.ix()].contains(regs) {
            return;
        }
        let mut work = vec![b];
        while let Some(b) = work.pop() {
            if self.needed[b.ix()].contains(regs) {
                continue;
            }
            self.needed[b.ix()] |= regs;
            if self.cfg.blocks[b.ix()].end() == End::Ret {
                self.queue(b);
            }
            work.extend(self.cfg.succ(b));
            if let Some(w) = self.wild.get_mut(self.wild_of[b.ix()] as usize)
                && !w.needed.contains(regs)
            {
                w.needed |= regs;
                for e in w.ends.clone() {
                    self.queue(e);
                }
            }
        }
    }

    fn visit(&mut self, b: BlockId) {
        let cfg = self.cfg;
        let after = cfg.succ(b).iter().fold(RegSet::NONE, |l, s| l | self.live_in[s.ix()]);
        let wild = self.wild.get(self.wild_of[b.ix()] as usize);
        let live = match cfg.blocks[b.ix()].end() {
            End::Plain => after,
            End::Stop => RegSet::CALLEE_SAVED,
            End::Ret if self.switched.contains(&b) => RegSet::ALL,
            // Code that nothing is seen to enter returns to somebody all the same.
            End::Ret if self.needed[b.ix()] == RegSet::NONE => {
                RegSet::RETURNED | wild.map_or(RegSet::NONE, |w| w.needed)
            }
            End::Ret => RegSet::CALLEE_SAVED | self.needed[b.ix()] | wild.map_or(RegSet::NONE, |w| w.needed),
            End::GotJmp => RegSet::PASSED,
            End::FramedJmp => RegSet::PASSED | wild.map_or(RegSet::ALL, |w| w.live),
            End::UnknownJmp => RegSet::ALL,
            End::UnknownCall => RegSet::PASSED,
            End::DescriptorCall => RegSet::PASSED | after & RegSet::GPRS,
            // What is live behind it and not written by the callee is live at the callee's returns, so at its entry.
            End::Call(callee) => self.live_in[callee.ix()] | RegSet::CALLEE_SAVED,
        };
        self.out[b.ix()] = live;
        let before = live.without(self.transfer[b.ix()].kills) | self.transfer[b.ix()].reads;
        if before == self.live_in[b.ix()] {
            return;
        }
        self.live_in[b.ix()] = before;
        if let Some(w) = self.wild.get_mut(self.wild_of[b.ix()] as usize)
            && !w.live.contains(before)
        {
            w.live |= before;
            for e in w.ends.clone() {
                self.queue(e);
            }
        }
        for i in self.preds.range(b) {
            let p = BlockId(self.preds.list[i]);
            self.queue(p);
            // `b` may be the return site of a call: then the callee's returns see more.
            if let End::Call(callee) = cfg.blocks[p.ix()].end()
                && cfg.succ(p).contains(&b)
            {
                self.need(callee, before);
            }
        }
    }
}

/// Reverse edges: successors, and from a callee's entry to its calls.
struct Preds {
    from: Vec<u32>,
    list: Vec<u32>,
}

impl Preds {
    fn new(cfg: &Cfg) -> Preds {
        let pairs = || {
            cfg.ids().flat_map(|b| {
                let callee = match cfg.blocks[b.ix()].end() {
                    End::Call(callee) => Some((callee.0, b.0)),
                    _ => None,
                };
                cfg.succ(b).iter().map(move |s| (s.0, b.0)).chain(callee)
            })
        };
        let (from, list) = group(cfg.blocks.len(), pairs);
        Preds { from, list }
    }

    fn range(&self, b: BlockId) -> std::ops::Range<usize> {
        self.from[b.ix()] as usize..self.from[b.ix() + 1] as usize
    }
}
