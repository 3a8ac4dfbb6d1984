//! Which registers and status flags are live.
//!
//! Input: [`Graph`], decoded text. Output: [`Live`], the result of a backward may-analysis over the whole program. Inserted
//! instructions are skipped. Source: psABI section 3.2 (registers across calls).
//!
//! A call leads into its callee. What is live behind it is *needed* by its caller; that need travels forward from the
//! callee's entry to the returns which can be reached from there, so that registers which `-fipa-ra` lets a caller keep
//! over a local call are seen as live in the callee. A function entered through a pointer or from outside returns to
//! callers that need what the ABI says. An indirect call or jump whose caller may know more ([`crate::facts::callees`]) leads to one
//! root, or to any, as far as liveness is concerned. An unresolved jump is a tail call, or leads to any block of its function. At a return that is not
//! proven to be one ([`crate::facts::stack_depth`]) everything is live.

use crate::decode::decoder::Code;
use crate::decode::effects::{CALLEE_SAVED, RAX, RCX, RDI, RDX, RSI, RSP, bit};
use crate::decode::insn::{ADDR32, Insn, NONE, PREFIXED, RIP, WIDE};
use crate::facts::callees::{self, Callees};
use crate::facts::stack_depth::Depths;
use crate::graph::blocks::{End, Graph};
use crate::sites::site::{Sites, get};
use std::collections::HashMap;

/// Registers that may carry arguments: integer arguments, al, the static chain.
const ARGUMENTS: u16 = bit(RDI) | bit(RSI) | bit(RDX) | bit(RCX) | bit(8) | bit(9) | bit(RAX) | bit(10);
const RETURNED: u16 = bit(RAX) | bit(RDX) | CALLEE_SAVED;

/// Registers (low 16 bits) and status flags (next 6).
pub type Set = u32;
pub const EVERYTHING: Set = 0x3f_ffff;

/// How liveness treats what it cannot see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assumptions {
    /// An indirect jump without a known table is a tail call.
    pub jumps_are_tail_calls: bool,
    /// Known callers' needs reach the returns.
    pub follow_returns: bool,
}

/// Live registers and flags at each block's start and end.
pub struct Live {
    at_start: Vec<Set>,
    at_end: Vec<Set>,
}

/// What holds for a whole part with an unresolved jump.
#[derive(Default)]
struct Wild {
    live: Set,
    needed: Set,
    /// Its blocks that end in such a jump or a return.
    ends: Vec<u32>,
}

struct Solver<'x> {
    g: &'x Graph,
    depths: &'x Depths,
    gens: Vec<Set>,
    kills: Vec<Set>,
    /// By block: what callers of the functions that run through it need.
    needed: Vec<Set>,
    wild: HashMap<u32, Wild>,
    /// (to, from), sorted: successors, and callees' entries to calls.
    preds: Vec<(u32, u32)>,
    /// (return site, callee's entry), sorted.
    returns: Vec<(u32, u32)>,
    /// Blocks that end in calls or jumps which may know more of their callees than the ABI.
    named: Callees,
    /// What is needed behind named functions.
    named_needed: Set,
    live: Live,
    work: Vec<u32>,
    queued: Vec<bool>,
}

impl Live {
    /// Runs the analysis.
    ///
    /// `code`: as [`callees::find`] wants it.
    pub fn new(
        g: &Graph,
        text: &Code,
        sites: &Sites,
        depths: &Depths,
        code: &dyn Fn(u64) -> Option<u32>,
        assume: Assumptions,
    ) -> Live {
        let mut s = Solver::new(g, text, sites, depths, code);
        for &b in &g.roots {
            s.need(b, RETURNED.into());
        }
        while let Some(b) = s.work.pop() {
            s.queued[b as usize] = false;
            s.visit(b as usize, assume);
        }
        s.live
    }

    /// Live in front of instruction `insn` of `block`.
    pub fn before(&self, g: &Graph, text: &Code, sites: &Sites, block: usize, insn: usize) -> Set {
        let mut s = self.at_end[block];
        uses_and_kills(g, text, sites, insn..g.range(block, text).end, |r, w| s = r | (s & !w));
        s
    }
}

/// What instructions of one block use and kill, the last first.
fn uses_and_kills(g: &Graph, text: &Code, sites: &Sites, range: std::ops::Range<usize>, mut f: impl FnMut(Set, Set)) {
    let set = |r: u16, f: u8| Set::from(r) | Set::from(f) << 16;
    let mut k = range.end;
    while k > range.start {
        k -= 1;
        if get(&sites.inserted, k) {
            continue;
        }
        if k >= range.start + 2 && pushes_address(&text.insns[k - 2..=k]) {
            k -= 2;
            f(bit(RSP).into(), 0);
            continue;
        }
        let fx = &text.insns[k].fx;
        // An exception takes them along to the landing pad.
        let caught = if g.is_caught(k) { CALLEE_SAVED } else { 0 };
        f(set(fx.reads | caught, fx.flag_reads), set(fx.kills, fx.flag_kills));
    }
}

/// `push rax; lea rax, [rip + x]; xchg [rsp], rax`: what a call of the next instruction became. rax is pushed only to be put back.
fn pushes_address(i: &[Insn]) -> bool {
    let [push, lea, xchg] = i else { return false };
    let plain = push.op == 0x50 && push.r0 == RAX && !push.has(PREFIXED);
    let constant = lea.op == 0x8d && lea.r0 == RAX && lea.has(WIDE) && !lea.has(ADDR32);
    let constant = constant && lea.mem.is_some_and(|m| m.base == RIP);
    let at_rsp = |m: crate::decode::insn::Mem| m.base == RSP && m.index == NONE && m.disp == 0 && m.seg == 0;
    let exchanged =
        xchg.op == 0x87 && xchg.has(WIDE) && (xchg.r0 == RAX || xchg.r1 == RAX) && xchg.mem.is_some_and(at_rsp);
    plain && constant && exchanged && push.end() == lea.va && lea.end() == xchg.va
}

impl<'x> Solver<'x> {
    fn new(
        g: &'x Graph,
        text: &Code,
        sites: &Sites,
        depths: &'x Depths,
        code: &dyn Fn(u64) -> Option<u32>,
    ) -> Solver<'x> {
        let n = g.starts.len();
        let mut s = Solver {
            g,
            depths,
            gens: vec![0; n],
            kills: vec![0; n],
            needed: vec![0; n],
            wild: HashMap::new(),
            preds: Vec::new(),
            returns: Vec::new(),
            named: callees::find(g, text, sites, code),
            named_needed: 0,
            live: Live { at_start: vec![0; n], at_end: vec![0; n] },
            work: (0..n as u32).collect(),
            queued: vec![true; n],
        };
        for b in 0..n {
            let (mut gens, mut kills) = (0, 0);
            uses_and_kills(g, text, sites, g.range(b, text), |r, w| {
                gens = r | (gens & !w);
                kills |= w;
            });
            (s.gens[b], s.kills[b]) = (gens, kills);
            s.preds.extend(g.succ(b).iter().map(|&t| (t, b as u32)));
            if let End::Call(Some(callee)) = g.ends[b] {
                s.preds.push((callee, b as u32));
                if !get(&g.no_return, b) {
                    s.returns.push((b as u32 + 1, callee));
                }
            }
            let component = g.component[b];
            if g.wild[component as usize] && matches!(g.ends[b], End::Ret | End::Unresolved { .. }) {
                s.wild.entry(component).or_default().ends.push(b as u32);
            }
        }
        s.preds.extend(s.named.one.iter().map(|(&from, &to)| (to, from)));
        s.preds.sort_unstable();
        s.returns.sort_unstable();
        s
    }

    fn queue(&mut self, b: u32) {
        if !std::mem::replace(&mut self.queued[b as usize], true) {
            self.work.push(b);
        }
    }

    /// Whoever entered at `entry` needs `regs` after the return.
    fn need(&mut self, entry: u32, regs: Set) {
        let g = self.g;
        let mut work = vec![(entry, regs)];
        while let Some((b, regs)) = work.pop() {
            let k = b as usize;
            if self.needed[k] | regs == self.needed[k] {
                continue;
            }
            self.needed[k] |= regs;
            match g.ends[k] {
                End::Ret => self.queue(b),
                End::Unresolved { .. } => {
                    work.extend(self.named.one.get(&b).map(|&root| (root, regs)));
                    if get(&self.named.any, k) {
                        self.queue(b);
                        work.extend(self.need_of_named(regs));
                    }
                }
                _ => {}
            }
            work.extend(g.succ(k).iter().map(|&t| (t, regs)));
            // What unwinds clobbers the other registers: nobody keeps values in them over a call that may end in a pad.
            work.extend(g.pad(k).map(|t| (t, regs & Set::from(RETURNED))));
            if let Some(w) = self.wild.get_mut(&g.component[k])
                && w.needed | regs != w.needed
            {
                w.needed |= regs;
                for e in w.ends.clone() {
                    self.queue(e);
                }
            }
        }
    }

    /// What follows when `regs` are needed behind a named function: where that is news.
    fn need_of_named(&mut self, regs: Set) -> Vec<(u32, Set)> {
        if self.named_needed | regs == self.named_needed {
            return Vec::new();
        }
        self.named_needed |= regs;
        self.g.roots.iter().map(|&root| (root, regs)).collect()
    }

    fn visit(&mut self, b: usize, assume: Assumptions) {
        let g = self.g;
        let after = g.succ(b).iter().fold(0, |s, &t| s | self.live.at_start[t as usize]);
        let wild = self.wild.get(&g.component[b]);
        let named = get(&self.named.any, b);
        let one = self.named.one.get(&(b as u32)).map_or(0, |&root| self.live.at_start[root as usize]);
        let call = Set::from(ARGUMENTS | CALLEE_SAVED) | one | if named { after } else { 0 };
        // A tail call returns to whoever called this function.
        let tail_call = call | if named { self.needed[b] } else { 0 };
        let out = match g.ends[b] {
            End::Fall | End::Jump(_) | End::Cond(_) | End::Table(_) => after,
            End::Call(Some(c)) => self.live.at_start[c as usize],
            End::CallInd { through_rax: true } => call | (after & !Set::from(bit(RAX)) & 0xffff),
            // What comes next knows more than the ABI says.
            End::Ret | End::GotJump | End::Unresolved { .. } if self.depths.leads_elsewhere(b) => EVERYTHING,
            End::Call(None) | End::CallInd { .. } | End::GotJump => call,
            End::Unresolved { .. } if assume.jumps_are_tail_calls => tail_call,
            End::Unresolved { framed: true } => tail_call | wild.map_or(EVERYTHING, |w| w.live),
            End::Unresolved { framed: false } => EVERYTHING,
            End::Ret => {
                let elsewhere = wild.filter(|_| !assume.jumps_are_tail_calls).map_or(0, |w| w.needed);
                Set::from(CALLEE_SAVED) | self.needed[b] | elsewhere
            }
            End::Stop => 0,
        };
        self.live.at_end[b] = out;
        let new = self.gens[b] | (out & !self.kills[b]);
        if new == self.live.at_start[b] {
            return;
        }
        self.live.at_start[b] = new;
        if let Some(w) = self.wild.get_mut(&g.component[b])
            && w.live | new != w.live
        {
            w.live |= new;
            for e in w.ends.clone() {
                self.queue(e);
            }
        }
        let mut k = self.preds.partition_point(|p| p.0 < b as u32);
        while let Some(&(to, from)) = self.preds.get(k).filter(|p| p.0 == b as u32) {
            debug_assert_eq!(to, b as u32);
            self.queue(from);
            k += 1;
        }
        let mut k = self.returns.partition_point(|p| p.0 < b as u32);
        while let Some(&(_, callee)) = self.returns.get(k).filter(|p| assume.follow_returns && p.0 == b as u32) {
            self.need(callee, new);
            k += 1;
        }
        // Behind a call that comes back, the next block is its return site.
        let calls =
            b.checked_sub(1).filter(|&p| matches!(g.ends[p], End::CallInd { .. }) && g.succ(p).contains(&(b as u32)));
        let Some(call) = calls.filter(|_| assume.follow_returns) else { return };
        if let Some(&root) = self.named.one.get(&(call as u32)) {
            self.need(root, new);
        }
        if get(&self.named.any, call) {
            for (root, regs) in self.need_of_named(new) {
                self.need(root, regs);
            }
        }
    }
}
