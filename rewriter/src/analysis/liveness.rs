//! Which registers and flags are live before each instruction, over the whole module.
//!
//! A backward may-analysis on the graph of all functions. Returns lead to every return site of the component's
//! direct callers, so `-fipa-ra` and hand-written conventions inside a module are seen as they are; callers outside
//! the module, and those through pointers, are assumed to know only the ABI (psABI 3.2.1). Where a jump's target is
//! unknown, everything is live. Calls keep the callee-saved registers live, because an exception may resume in
//! a landing pad that reads them.
//!
//! Invariant: a register outside [`Liveness::live_out`]-derived sets is never read again before it is written.

use super::effects::Effects;
use super::group;
use super::regs::RegSet;
use crate::cfg::{BlockId, Cfg, End};
use crate::disasm::InsnId;

/// The result: live sets at block ends.
#[derive(Debug)]
pub struct Liveness {
    out: Vec<RegSet>,
}

impl Liveness {
    /// Solves the equations. `got_jump`: an indirect jump that is a call by ABI rules (PLT, tail call through the GOT).
    pub fn solve(cfg: &Cfg, effects: &[Effects], got_jump: impl Fn(InsnId) -> bool) -> Liveness {
        let n = cfg.blocks.len();
        let transfer: Vec<Effects> = cfg.ids().map(|b| block_effects(cfg, effects, b)).collect();
        let component_root = component_roots(cfg);
        // What the callers of each component use after a return.
        let mut returned = vec![RegSet::NONE; n];
        for b in 0..n {
            if component_root[cfg.component[b] as usize] {
                returned[b] = RegSet::RETURNED;
            }
        }
        let mut live_in = vec![RegSet::NONE; n];
        let mut out = vec![RegSet::NONE; n];
        let preds = Preds::new(cfg);
        let mut queued = vec![true; n];
        let mut work: Vec<u32> = (0..n as u32).collect();
        while let Some(b) = work.pop() {
            let id = BlockId(b);
            queued[id.ix()] = false;
            let block = &cfg.blocks[id.ix()];
            let after = cfg.succ(id).iter().fold(RegSet::NONE, |l, s| l | live_in[s.ix()]);
            let last = InsnId(block.stop.0 - 1);
            let live = match block.end {
                End::Plain => after,
                End::Stop => RegSet::CALLEE_SAVED,
                End::Ret => returned[cfg.component[id.ix()] as usize],
                End::UnknownJmp if got_jump(last) => RegSet::PASSED,
                End::UnknownJmp => RegSet::ALL,
                End::UnknownCall => after.without(RegSet::FLAGS) | RegSet::PASSED,
                End::Call(callee) => after | live_in[callee.ix()] | RegSet::CALLEE_SAVED,
            };
            out[id.ix()] = live;
            let before = live.without(transfer[id.ix()].kills) | transfer[id.ix()].reads;
            if before == live_in[id.ix()] {
                continue;
            }
            live_in[id.ix()] = before;
            for &p in preds.of(id) {
                if !std::mem::replace(&mut queued[p as usize], true) {
                    work.push(p);
                }
                // `id` may be the return site of a call: then the callee's returns see more.
                if let End::Call(callee) = cfg.blocks[p as usize].end
                    && cfg.succ(BlockId(p)).contains(&id)
                {
                    let c = cfg.component[callee.ix()] as usize;
                    let more = returned[c] | before;
                    if more != returned[c] {
                        returned[c] = more;
                        for &r in preds.returns(c) {
                            if !std::mem::replace(&mut queued[r as usize], true) {
                                work.push(r);
                            }
                        }
                    }
                }
            }
        }
        Liveness { out }
    }

    /// Live behind the last instruction of `b`.
    pub fn live_out(&self, b: BlockId) -> RegSet {
        self.out[b.ix()]
    }

    /// Live before each instruction of `b`, into `into` (index 0: the block's first instruction).
    pub fn before_each(&self, cfg: &Cfg, effects: &[Effects], b: BlockId, into: &mut Vec<RegSet>) {
        let block = &cfg.blocks[b.ix()];
        let count = (block.stop.0 - block.first.0) as usize;
        into.clear();
        into.resize(count, RegSet::NONE);
        let mut live = self.out[b.ix()];
        for i in (0..count).rev() {
            let e = effects[block.first.ix() + i];
            live = live.without(e.kills) | e.reads;
            into[i] = live;
        }
    }
}

fn block_effects(cfg: &Cfg, effects: &[Effects], b: BlockId) -> Effects {
    let block = &cfg.blocks[b.ix()];
    let mut total = Effects::default();
    for e in effects[block.first.ix()..block.stop.ix()].iter().rev() {
        total.reads = total.reads.without(e.kills) | e.reads;
        total.kills |= e.kills;
    }
    total
}

/// Components that may be entered from outside the module or through a pointer.
fn component_roots(cfg: &Cfg) -> Vec<bool> {
    let mut roots = vec![false; cfg.blocks.len()];
    for b in cfg.ids().filter(|b| cfg.root[b.ix()]) {
        roots[cfg.component[b.ix()] as usize] = true;
    }
    roots
}

/// Reverse edges: successors, and from a callee's entry to its calls; and the returns of each component.
struct Preds {
    from: Vec<u32>,
    list: Vec<u32>,
    ret_from: Vec<u32>,
    rets: Vec<u32>,
}

impl Preds {
    fn new(cfg: &Cfg) -> Preds {
        let n = cfg.blocks.len();
        let mut pairs = Vec::new();
        let mut rets = Vec::new();
        for b in cfg.ids() {
            pairs.extend(cfg.succ(b).iter().map(|s| (s.0, b.0)));
            match cfg.blocks[b.ix()].end {
                End::Call(callee) => pairs.push((callee.0, b.0)),
                End::Ret => rets.push((cfg.component[b.ix()], b.0)),
                _ => {}
            }
        }
        let (from, list) = group(n, &pairs);
        let (ret_from, rets) = group(n, &rets);
        Preds { from, list, ret_from, rets }
    }

    fn of(&self, b: BlockId) -> &[u32] {
        &self.list[self.from[b.ix()] as usize..self.from[b.ix() + 1] as usize]
    }

    fn returns(&self, component: usize) -> &[u32] {
        &self.rets[self.ret_from[component] as usize..self.ret_from[component + 1] as usize]
    }
}
