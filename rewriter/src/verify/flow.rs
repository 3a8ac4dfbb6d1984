//! The two dataflow analyses the audit rests on: which registers hold a stack address, and what is live.
//!
//! Input: [`Graph`], decoded text. Output: [`Stack`] (forward, must) and [`Live`] (backward, may). Inserted instructions
//! are skipped. Source: psABI section 3.2 (registers across calls).
//!
//! A register "holds a stack address" when on every path it was computed from rsp by moves and constant offsets. Nothing
//! is known at function entries and indirect targets; at a landing pad, what holds at every call that may lead there and
//! lies in a callee-saved register, which the unwinder restores.
//!
//! Liveness is computed over the whole program: a call leads into its callee, a return to every place behind a call of a
//! function that the return belongs to (`-fipa-ra` lets callers keep values in registers that a local callee does not
//! use), and, unless nothing but known calls reaches the function, to an unknown caller, to whom the return and
//! callee-saved registers matter.

use super::decode::{ADDR32, Code, Insn, NONE, WIDE};
use super::effects::{RAX, RBP, RBX, RCX, RDI, RDX, RSI, RSP, bit};
use super::graph::{End, Graph};
use super::sites::{Sites, get};

/// Registers that a call preserves, rsp included.
pub const CALLEE_SAVED: u16 = bit(RBX) | bit(RBP) | bit(RSP) | 0xf000;
/// Registers that may carry arguments: integer arguments, al, the static chain.
const ARGUMENTS: u16 = bit(RDI) | bit(RSI) | bit(RDX) | bit(RCX) | bit(8) | bit(9) | bit(RAX) | bit(10);
const RETURNED: u16 = bit(RAX) | bit(RDX) | CALLEE_SAVED;

/// Registers (low 16 bits) and status flags (next 6).
pub type Set = u32;
pub const EVERYTHING: Set = 0x3f_ffff;

/// Registers that hold stack addresses at each block's start.
pub struct Stack {
    at_start: Vec<u16>,
}

impl Stack {
    /// Runs the analysis.
    pub fn new(g: &Graph, text: &Code, sites: &Sites) -> Stack {
        let n = g.starts.len();
        let mut state = vec![0xffffu16; n];
        let mut reached = vec![false; n];
        let mut work: Vec<u32> = Vec::new();
        for &e in &g.entries {
            state[e as usize] = bit(RSP);
            reached[e as usize] = true;
            work.push(e);
        }
        let mut pads: Vec<usize> = (0..g.pads.len()).collect();
        pads.sort_by_key(|&p| g.pads[p].0.from);
        let mut queued = vec![false; n];
        for &e in &work {
            queued[e as usize] = true;
        }
        let (mut cursor, mut second, mut first_phase) = (0, false, Vec::new());
        loop {
            while let Some(b) = work.pop() {
                let b = b as usize;
                queued[b] = false;
                let mut s = state[b];
                let range = g.range(b, text);
                for k in range.clone() {
                    if !get(&sites.inserted, k) {
                        s = stack_step(s, &text.insns[k]);
                    }
                }
                let mut to = |t: u32, s: u16| {
                    let t = t as usize;
                    if second && first_phase[t] {
                        return;
                    }
                    let new = state[t] & s;
                    if new != state[t] || !reached[t] {
                        state[t] = new;
                        reached[t] = true;
                        if !queued[t] {
                            queued[t] = true;
                            work.push(t as u32);
                        }
                    }
                };
                let next = b as u32 + 1;
                match g.ends[b] {
                    End::Fall => to(next, s),
                    End::Jump(t) => to(t, s),
                    End::Cond(t) => {
                        to(t, s);
                        fall(next, n, |t| to(t, s));
                    }
                    End::Call(_) | End::CallInd { .. } => {
                        let after = s & CALLEE_SAVED;
                        if !get(&g.no_return, b) {
                            fall(next, n, |t| to(t, after));
                        }
                        let va = text.insns[range.end - 1].va;
                        let at = pads.partition_point(|&p| g.pads[p].0.from <= va);
                        if let Some(&p) = pads[..at].last()
                            && va < g.pads[p].0.to
                        {
                            to(g.pads[p].1, after);
                        }
                    }
                    End::Table(k) => g.table_targets[k as usize].iter().for_each(|&t| to(t, s)),
                    End::Unresolved { .. } | End::Ret | End::Stop => {}
                }
            }
            // Code that no known way reaches is analysed as if entered from outside, without a say in what holds in
            // reached code: else the padding in front of a loop would spoil it.
            while cursor < n && reached[cursor] {
                cursor += 1;
            }
            if cursor == n {
                break;
            }
            if !second {
                second = true;
                first_phase.clone_from(&reached);
            }
            reached[cursor] = true;
            state[cursor] = bit(RSP);
            queued[cursor] = true;
            work.push(cursor as u32);
        }
        Stack { at_start: state }
    }

    /// Calls `f` for each instruction of a block that is not inserted, with the registers that hold stack addresses in
    /// front of it.
    pub fn each(&self, g: &Graph, text: &Code, sites: &Sites, block: usize, mut f: impl FnMut(usize, u16)) {
        let mut s = self.at_start[block];
        for k in g.range(block, text) {
            if !get(&sites.inserted, k) {
                f(k, s);
                s = stack_step(s, &text.insns[k]);
            }
        }
    }
}

fn fall(next: u32, n: usize, mut f: impl FnMut(u32)) {
    if (next as usize) < n {
        f(next);
    }
}

fn stack_step(s: u16, i: &Insn) -> u16 {
    let wide = i.has(WIDE) && !i.has(ADDR32);
    let derived = |r: u8| r < 16 && s & bit(r) != 0;
    let set = |r: u8, on: bool| (if on { s | bit(r) } else { s & !bit(r) }) | bit(RSP);
    match (i.op, &i.mem) {
        (0x89 | 0x8b, None) if wide && i.r0 < 16 => set(i.r0, derived(i.r1)),
        (0x8d, Some(m)) if wide && i.r0 < 16 => set(i.r0, m.index == NONE && m.seg == 0 && derived(m.base)),
        (0x81 | 0x83, None) if wide && matches!(i.ext, 0 | 5) => s,
        // Realignment clears low bits.
        (0x83, None) if wide && i.ext == 4 && (-128..0).contains(&i.imm) => s,
        (0x05 | 0x2d, None) if wide => s,
        (0xff, None) if wide && i.ext < 2 => s,
        _ => (s & !i.fx.writes) | bit(RSP),
    }
}

/// How liveness treats what it cannot see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assumptions {
    /// An indirect jump without a known table is a tail call.
    pub jumps_are_tail_calls: bool,
    /// Returns lead back to the known callers.
    pub follow_returns: bool,
}

/// Live registers and flags at each block's start.
pub struct Live {
    at_start: Vec<Set>,
    at_end: Vec<Set>,
}

impl Live {
    /// Runs the analysis.
    pub fn new(g: &Graph, text: &Code, sites: &Sites, assume: Assumptions) -> Live {
        let n = g.starts.len();
        let (mut gen_, mut kill) = (vec![0 as Set; n], vec![0 as Set; n]);
        for b in 0..n {
            for k in g.range(b, text).rev() {
                if get(&sites.inserted, k) {
                    continue;
                }
                let (r, w) = use_and_kill(&text.insns[k]);
                gen_[b] = r | (gen_[b] & !w);
                kill[b] |= w;
            }
        }
        let mut preds: Vec<(u32, u32)> = Vec::new();
        // Blocks behind calls: (that block, the callee's first).
        let mut returns_to: Vec<(u32, u32)> = Vec::new();
        for b in 0..n {
            let next = b as u32 + 1;
            let has_next = (next as usize) < n;
            let mut edge = |t: u32| preds.push((t, b as u32));
            match g.ends[b] {
                End::Fall => edge(next),
                End::Jump(t) => edge(t),
                End::Cond(t) => {
                    edge(t);
                    if has_next {
                        edge(next);
                    }
                }
                End::Call(callee) => {
                    if let Some(c) = callee {
                        edge(c);
                        if has_next && !get(&g.no_return, b) {
                            returns_to.push((next, c));
                        }
                    }
                }
                End::CallInd { .. } => {
                    if has_next && !get(&g.no_return, b) {
                        edge(next);
                    }
                }
                End::Table(k) => g.table_targets[k as usize].iter().for_each(|&t| edge(t)),
                End::Ret | End::Unresolved { .. } | End::Stop => {}
            }
        }
        preds.sort_unstable();
        returns_to.sort_unstable();
        let mut live = Live { at_start: vec![0; n], at_end: vec![0; n] };
        let mut work: Vec<u32> = (0..n as u32).collect();
        let mut queued = vec![true; n];
        // A function that only known calls reach returns to them alone.
        let mut needed = Needed { of: vec![0; n] };
        for &b in &g.roots {
            needed.add(g, b, RETURNED.into(), |_| {});
        }
        let call = Set::from(ARGUMENTS | CALLEE_SAVED);
        while let Some(b) = work.pop() {
            let b = b as usize;
            queued[b] = false;
            let at = |t: u32| live.at_start.get(t as usize).copied().unwrap_or(0);
            let next = b as u32 + 1;
            let out = match g.ends[b] {
                End::Fall => at(next),
                End::Jump(t) => at(t),
                End::Cond(t) => at(t) | at(next),
                End::Call(Some(c)) => at(c),
                End::Call(None) => call,
                End::CallInd { through_rax: true } => call | (at(next) & !Set::from(bit(RAX)) & 0xffff),
                End::CallInd { .. } => call,
                End::Table(k) => g.table_targets[k as usize].iter().fold(0, |s, &t| s | at(t)),
                End::Unresolved { got } if got || assume.jumps_are_tail_calls => call,
                End::Unresolved { .. } => EVERYTHING,
                End::Ret => needed.of[b] | Set::from(CALLEE_SAVED),
                End::Stop => 0,
            };
            live.at_end[b] = out;
            let new = gen_[b] | (out & !kill[b]);
            if new == live.at_start[b] {
                continue;
            }
            live.at_start[b] = new;
            let from = preds.partition_point(|p| p.0 < b as u32);
            for &(_, p) in preds[from..].iter().take_while(|p| p.0 == b as u32) {
                if !std::mem::replace(&mut queued[p as usize], true) {
                    work.push(p);
                }
            }
            if assume.follow_returns {
                let from = returns_to.partition_point(|p| p.0 < b as u32);
                for &(_, c) in returns_to[from..].iter().take_while(|p| p.0 == b as u32) {
                    needed.add(g, c, new, |r| {
                        if !std::mem::replace(&mut queued[r as usize], true) {
                            work.push(r);
                        }
                    });
                }
            }
        }
        live
    }

    /// Live in front of instruction `insn` of `block`.
    pub fn before(&self, g: &Graph, text: &Code, sites: &Sites, block: usize, insn: usize) -> Set {
        let mut s = self.at_end[block];
        for k in (insn..g.range(block, text).end).rev() {
            if !get(&sites.inserted, k) {
                let (r, w) = use_and_kill(&text.insns[k]);
                s = r | (s & !w);
            }
        }
        s
    }
}

fn use_and_kill(i: &Insn) -> (Set, Set) {
    let set = |r: u16, f: u8| Set::from(r) | Set::from(f) << 16;
    (set(i.fx.reads, i.fx.flag_reads), set(i.fx.kills, i.fx.flag_kills))
}

/// What the callers that can have led to a block use after their calls: flows forward from callees' first blocks to returns.
struct Needed {
    of: Vec<Set>,
}

impl Needed {
    /// Adds `regs` at `b` and everything that runs behind it before its return; calls `at_return` for the returns that see more.
    fn add(&mut self, g: &Graph, b: u32, regs: Set, mut at_return: impl FnMut(u32)) {
        let mut work = vec![b];
        while let Some(b) = work.pop() {
            let Some(old) = self.of.get_mut(b as usize).filter(|old| **old | regs != **old) else { continue };
            *old |= regs;
            match g.ends[b as usize] {
                End::Fall => work.push(b + 1),
                End::Jump(t) => work.push(t),
                End::Cond(t) => work.extend([t, b + 1]),
                End::Call(_) | End::CallInd { .. } if get(&g.no_return, b as usize) => {}
                End::Call(_) | End::CallInd { .. } => work.push(b + 1),
                End::Table(k) => work.extend(&g.table_targets[k as usize]),
                End::Ret => at_return(b),
                End::Unresolved { .. } | End::Stop => {}
            }
        }
    }
}
