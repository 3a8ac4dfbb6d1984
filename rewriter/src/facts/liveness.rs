//! Which registers and flags are live before each instruction, over the whole module.
//!
//! Input: graph, facts, conventions. Output: [`Liveness`].
//!
//! A backward may-analysis on the graph of all functions. Returns lead to the return sites of every direct caller
//! that can have led to them, so `-fipa-ra` and hand-written conventions inside a module are seen as they are; callers outside
//! the module, and those through pointers, are assumed to know only the ABI (psABI 3.2.1). Where an indirect call may know more, it may lead to one
//! function, or to any that can be entered so, and both sides know of each other what a direct call's know ([`crate::facts::callees`]). An unresolved jump
//! is a tail call or leads to any block of its function; without a frame that says what its function is, everything is live. Calls, and what else a frame
//! catches exceptions of (a load whose fault a handler turns into one), keep the callee-saved registers live, because an exception may resume in a landing
//! pad that reads them. What a frame is found by is live where it is: unwinders come from anywhere, and handlers may ask for the calls.
//!
//! The equations are monotone, so their least solution does not depend on the order in which blocks are visited. In particular, whether
//! anything is seen to enter the code in front of a return is decided by the graph alone, before they are solved.
//!
//! Invariant: a register outside [`Liveness::live_out`]-derived sets is never read again before it is written.

use crate::base::collections::grouped::Grouped;
use crate::base::collections::worklist::Worklist;
use crate::decode::insn::InsnId;
use crate::decode::regs::RegSet;
use crate::facts::conventions::Conventions;
use crate::facts::effects::Effects;
use crate::facts::kinds::Facts;
use crate::graph::cfg::{BlockId, Cfg, End};
use std::collections::{HashMap, HashSet};

/// The result: live sets at block ends.
#[derive(Debug)]
pub struct Liveness {
    out: Vec<RegSet>,
}

impl Liveness {
    /// Solves the equations.
    pub fn solve(cfg: &Cfg, facts: &Facts, conventions: &Conventions) -> Liveness {
        // From the last block to the first, again and again: what a block and its successors ask for is gathered before it is visited, as is
        // what all its callers do.
        Liveness::solve_in_order(cfg, facts, conventions, |visited| visited)
    }

    /// `next`, from the block that was visited last (at first, how many there are): the last waiting one in front of which is visited next, or,
    /// where none waits there, the last of all; the result does not depend on it.
    fn solve_in_order(
        cfg: &Cfg,
        facts: &Facts,
        conventions: &Conventions,
        mut next: impl FnMut(usize) -> usize,
    ) -> Liveness {
        let count = cfg.blocks.len();
        let mut s = Solver::new(cfg, facts, conventions);
        let mut visited = count;
        while let Some(b) = s.waiting.take_before(next(visited)).or_else(|| s.waiting.take_before(count)) {
            visited = b;
            s.visit(BlockId(b as u32));
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
        let framed = FrameReads::of(cfg, b);
        for i in (0..count).rev() {
            let e = framed.effects(facts, InsnId(block.first.0 + i as u32));
            live = live.without(e.kills) | e.reads;
            into[i] = live;
        }
    }
}

/// What unwinders read in a block.
struct FrameReads<'x> {
    caught: &'x [(InsnId, InsnId)],
    framed: &'x [(InsnId, InsnId, RegSet)],
}

impl<'x> FrameReads<'x> {
    fn of(cfg: &'x Cfg, b: BlockId) -> FrameReads<'x> {
        FrameReads { caught: cfg.caught_of(b), framed: cfg.framed_of(b) }
    }

    /// What an instruction reads and overwrites. An exception that it raises (`caught`) takes the callee-saved registers along to a landing pad, as they
    /// are in front of it.
    #[inline]
    fn effects(&self, facts: &Facts, id: InsnId) -> Effects {
        let mut e = facts.effects(id);
        if self.caught.iter().any(|c| c.0 <= id && id < c.1) {
            e.reads |= RegSet::CALLEE_SAVED;
        }
        for f in self.framed.iter().filter(|f| f.0 <= id && id < f.1) {
            e.reads |= f.2;
        }
        e
    }
}

fn block_effects(cfg: &Cfg, facts: &Facts, b: BlockId) -> Effects {
    let block = &cfg.blocks[b.ix()];
    let framed = FrameReads::of(cfg, b);
    let mut total = Effects::default();
    for i in (block.first.0..block.stop.0).rev() {
        let e = framed.effects(facts, InsnId(i));
        total.reads = total.reads.without(e.kills) | e.reads;
        total.kills |= e.kills;
    }
    total
}

/// The equations of one module while they are solved.
struct Solver<'x> {
    cfg: &'x Cfg,
    transfer: Vec<Effects>,
    /// By block that is a callee's first one: the blocks that end with its calls.
    callers: Grouped,
    live_in: Vec<RegSet>,
    out: Vec<RegSet>,
    /// What the callers of the functions that run through a block use after their calls: flows forward, from function
    /// entries to returns.
    needed: Vec<RegSet>,
    /// Blocks that something is seen to enter, by an entry or a call that returns.
    entered: Vec<bool>,
    /// Components with an unresolved jump: what is live at the start of any of their blocks, what is needed in any, and those of their
    /// blocks that end in such a jump or a return.
    wild: Vec<Wild>,
    /// Index into `wild` of each block, [`TAME`] where its component has no such jump.
    wild_of: Vec<u32>,
    /// Returns that lead to another context, or to code of another convention.
    switched: HashSet<BlockId>,
    /// Blocks that end in indirect calls or jumps which may lead to this block.
    to_one: HashMap<BlockId, BlockId>,
    /// Such blocks whose calls or jumps may lead to any of `roots`, and what is needed behind these.
    named: HashSet<BlockId>,
    named_needed: RegSet,
    roots: Vec<BlockId>,
    /// Blocks to be visited.
    waiting: Worklist,
    /// What [`Solver::need`] has still to look at; empty outside.
    needing: Vec<BlockId>,
}

const TAME: u32 = u32::MAX;

#[derive(Default)]
struct Wild {
    live: RegSet,
    needed: RegSet,
    ends: Vec<BlockId>,
}

impl<'x> Solver<'x> {
    fn new(cfg: &'x Cfg, facts: &Facts, conventions: &Conventions) -> Self {
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
            callers: Grouped::new(n, || {
                calls(cfg).chain(conventions.callees.to_one()).map(|(call, callee)| (callee.0, call.0))
            }),
            live_in: vec![RegSet::NONE; n],
            out: vec![RegSet::NONE; n],
            needed: vec![RegSet::NONE; n],
            entered: entered(cfg),
            wild,
            wild_of,
            switched: conventions.switched.iter().chain(&cfg.switched).copied().collect(),
            to_one: conventions.callees.to_one().collect(),
            named: conventions.callees.to_any.iter().copied().collect(),
            named_needed: RegSet::NONE,
            roots: cfg.ids().filter(|b| cfg.root[b.ix()]).collect(),
            waiting: Worklist::all(n),
            needing: Vec::new(),
        };
        // Whoever enters from outside the module or through a pointer knows only the ABI.
        for b in cfg.ids().filter(|b| cfg.root[b.ix()]) {
            solver.need(b, if cfg.called_by_returns { RegSet::ALL } else { RegSet::RETURNED });
        }
        for &b in &conventions.preserve_all {
            solver.need(b, RegSet::GPRS);
        }
        solver
    }

    /// Lets the blocks be visited that depend on what is known of all of an unresolved jump's component.
    fn queue_ends(&mut self, wild: u32) {
        self.wild[wild as usize].ends.iter().for_each(|end| self.waiting.add(end.ix()));
    }

    /// Notes that whoever entered at `b` uses `regs` after the return.
    fn need(&mut self, b: BlockId, regs: RegSet) {
        if self.needed[b.ix()].contains(regs) {
            return;
        }
        self.needing.push(b);
        while let Some(b) = self.needing.pop() {
            if self.needed[b.ix()].contains(regs) {
                continue;
            }
            self.needed[b.ix()] |= regs;
            match self.cfg.blocks[b.ix()].end() {
                End::Ret => self.waiting.add(b.ix()),
                End::FramedJmp | End::UnknownJmp => {
                    self.needing.extend(self.to_one.get(&b));
                    if self.named.contains(&b) {
                        self.waiting.add(b.ix());
                        if self.is_news_of_named(regs) {
                            self.needing.extend(&self.roots);
                        }
                    }
                }
                _ => {}
            }
            self.needing.extend(self.cfg.succ(b));
            let wild = self.wild_of[b.ix()];
            if let Some(w) = self.wild.get_mut(wild as usize)
                && !w.needed.contains(regs)
            {
                w.needed |= regs;
                self.queue_ends(wild);
            }
        }
    }

    /// Notes that `regs` are used after the return of a function that is known by its name, which may be any of `roots`; whether that is news.
    fn is_news_of_named(&mut self, regs: RegSet) -> bool {
        let news = !self.named_needed.contains(regs);
        self.named_needed |= regs;
        news
    }

    /// What the callee of an indirect call or jump may use.
    fn passed(&self, b: BlockId) -> RegSet {
        RegSet::PASSED | self.to_one.get(&b).map_or(RegSet::NONE, |callee| self.live_in[callee.ix()])
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
            End::Ret if !self.entered[b.ix()] => RegSet::RETURNED | wild.map_or(RegSet::NONE, |w| w.needed),
            End::Ret => RegSet::CALLEE_SAVED | self.needed[b.ix()] | wild.map_or(RegSet::NONE, |w| w.needed),
            End::GotJmp => RegSet::PASSED,
            End::FramedJmp if self.named.contains(&b) => {
                self.passed(b) | self.needed[b.ix()] | wild.map_or(RegSet::ALL, |w| w.live)
            }
            End::FramedJmp => self.passed(b) | wild.map_or(RegSet::ALL, |w| w.live),
            End::UnknownJmp => RegSet::ALL,
            End::UnknownCall if self.named.contains(&b) => self.passed(b) | after,
            End::UnknownCall => self.passed(b),
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
        let wild = self.wild_of[b.ix()];
        if let Some(w) = self.wild.get_mut(wild as usize)
            && !w.live.contains(before)
        {
            w.live |= before;
            self.queue_ends(wild);
        }
        self.callers.of(b.ix()).iter().for_each(|call| self.waiting.add(*call as usize));
        for p in cfg.preds(b) {
            self.waiting.add(p.ix());
            // `b` is the return site of a call: the callee's returns see more.
            match cfg.blocks[p.ix()].end() {
                End::Call(callee) => self.need(callee, before),
                End::UnknownCall => {
                    if let Some(&callee) = self.to_one.get(&p) {
                        self.need(callee, before);
                    }
                    if self.named.contains(&p) && self.is_news_of_named(before) {
                        for i in 0..self.roots.len() {
                            self.need(self.roots[i], before);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Direct calls: the blocks that end with them, and those that they call.
fn calls(cfg: &Cfg) -> impl Iterator<Item = (BlockId, BlockId)> {
    cfg.ids().filter_map(|b| match cfg.blocks[b.ix()].end() {
        End::Call(callee) => Some((b, callee)),
        _ => None,
    })
}

/// The blocks that an entry of the module, or a call that returns, leads to.
fn entered(cfg: &Cfg) -> Vec<bool> {
    let mut entered = vec![false; cfg.blocks.len()];
    let called = calls(cfg).filter(|(call, _)| !cfg.succ(*call).is_empty()).map(|(_, callee)| callee);
    let mut work: Vec<BlockId> = cfg.ids().filter(|b| cfg.root[b.ix()]).chain(called).collect();
    while let Some(b) = work.pop() {
        if !std::mem::replace(&mut entered[b.ix()], true) {
            work.extend(cfg.succ(b));
        }
    }
    entered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::conventions;
    use crate::pipeline::{Analysed, analyse};
    use std::process::Command;

    /// Visits by a pseudo-random choice.
    fn shuffled(a: &Analysed, mut seed: u64) -> Vec<RegSet> {
        let conventions = conventions::find(&a.image, &a.insns, &a.cfg, &a.facts, &a.frames);
        let next = |_| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) as usize % (a.cfg.blocks.len() + 1)
        };
        Liveness::solve_in_order(&a.cfg, &a.facts, &conventions, next).out
    }

    fn in_order(a: &Analysed) -> Vec<RegSet> {
        Liveness::solve(&a.cfg, &a.facts, &conventions::find(&a.image, &a.insns, &a.cfg, &a.facts, &a.frames)).out
    }

    /// `f` is called in front of a block that uses only rax. As long as nothing was known to be needed behind its return, everything that a
    /// function may return counted, and what had been derived from that for `h` stayed: rdx, in some orders.
    #[test]
    fn what_is_needed_behind_a_return_does_not_depend_on_the_order() {
        let folder = tempfile::tempdir().unwrap();
        // No symbols and no frames: only the entry point is known to be entered from outside.
        let source = "
.intel_syntax noprefix
.globl _start
_start: call g
1: test eax, eax
 jmp 1b
g: call h
 call f
 ret
f: mov eax, ecx
 ret
h: mov ecx, 0x7654321
 ret
";
        std::fs::write(folder.path().join("p.s"), source).unwrap();
        let made =
            Command::new("cc").current_dir(&folder).args(["-nostdlib", "-static", "-s", "-o", "p", "p.s"]).status();
        assert!(made.unwrap().success());
        let file = std::fs::read(folder.path().join("p")).unwrap();
        let a = analyse(&file, "p").unwrap();
        let h = a.image.exec_bytes(0).windows(5).position(|b| b == [0xb9, 0x21, 0x43, 0x65, 0x07]).unwrap();
        let returned = a.cfg.block_of(a.insns.at(a.image.exec[0].va + h as u64).unwrap());
        for seed in 0..40 {
            let out = shuffled(&a, seed);
            assert!(out[returned.ix()].contains(RegSet::of(iced_x86::Register::RCX)));
            assert!(!out[returned.ix()].meets(RegSet::of(iced_x86::Register::RDX)), "{seed}");
        }
    }

    /// The check of a load took rbp, which nothing read any more: unwinders that came by its stub took an address of a tag for the frame's.
    #[test]
    fn what_a_frame_is_found_by_is_live() {
        let folder = tempfile::tempdir().unwrap();
        let source = "
.intel_syntax noprefix
.globl _start
_start: call f
 hlt
f: .cfi_startproc
 push rbp
 .cfi_def_cfa_offset 16
 mov rbp, rsp
 .cfi_def_cfa_register rbp
 mov eax, [rdi]
 pop rbp
 .cfi_def_cfa rsp, 8
 mov edx, [rdi]
 ret
 .cfi_endproc
";
        std::fs::write(folder.path().join("p.s"), source).unwrap();
        let made = Command::new("cc").current_dir(&folder).args(["-nostdlib", "-static", "-o", "p", "p.s"]).status();
        assert!(made.unwrap().success());
        let file = std::fs::read(folder.path().join("p")).unwrap();
        let a = analyse(&file, "p").unwrap();
        let live =
            Liveness::solve(&a.cfg, &a.facts, &conventions::find(&a.image, &a.insns, &a.cfg, &a.facts, &a.frames));
        // In front of each instruction of the function: push, mov, load, pop, load, ret.
        let f = a.image.exec_bytes(0).windows(4).position(|b| b == [0x55, 0x48, 0x89, 0xe5]).unwrap();
        let f = a.cfg.block_of(a.insns.at(a.image.exec[0].va + f as u64).unwrap());
        let mut before = Vec::new();
        live.before_each(&a.cfg, &a.facts, f, &mut before);
        let rbp = RegSet::of(iced_x86::Register::RBP);
        assert_eq!(
            before.iter().map(|live| live.meets(rbp)).collect::<Vec<_>>(),
            [true, false, true, true, true, true]
        );
        for (number, register) in [(6, rbp), (7, RegSet::RSP), (0, RegSet::RAX), (16, RegSet::NONE)] {
            assert_eq!(RegSet::of_dwarf(number), register);
        }
    }

    #[test]
    fn waiting_blocks_are_taken_from_the_last_to_the_first() {
        for count in [0, 1, 63, 64, 65, 200] {
            let mut waiting = Worklist::all(count);
            let taken: Vec<usize> =
                std::iter::successors(waiting.take_before(count), |b| waiting.take_before(*b)).collect();
            assert!(taken.into_iter().eq((0..count).rev()), "{count}");
            assert_eq!(waiting.take_before(count), None);
        }
        let mut waiting = Worklist::none(192);
        [2, 64, 130].into_iter().for_each(|b| waiting.add(b));
        assert_eq!(waiting.take_before(64), Some(2));
        assert_eq!(waiting.take_before(64), None);
        assert_eq!(waiting.take_before(192), Some(130));
    }

    #[test]
    fn the_result_does_not_depend_on_the_order() {
        // Compiled code, and hand-written code with jumps to unknown places.
        for path in ["/bin/cat", "/lib64/ld-linux-x86-64.so.2"] {
            let file = std::fs::read(path).unwrap();
            let a = analyse(&file, path).unwrap();
            let first = in_order(&a);
            assert!(first.iter().any(|set| *set != RegSet::ALL && *set != RegSet::NONE));
            for seed in 0..3 {
                assert!(first == shuffled(&a, seed), "{path} {seed}");
            }
        }
    }
}
