//! How far rsp lies below the return address, and so which returns are jumps: to an address just pushed, or on a stack just chosen.
//!
//! Input: the graph, decoded text; inserted instructions are skipped. Output: [`Depths`], by block whether its end leads elsewhere than to where the function
//! returns: `push x; ret`, `mov [rsp], x; ret`, `sub rsp, 8; ret`, `mov rsp, x; ret`. A forward analysis of how far rsp lies under the return address.
//! **Invariant**: a return is ordinary only where on all ways from an entry of its function rsp is as it was there, and nothing was written to the word there. A
//! return that no such way is seen to lead to is none.
//! Source: SDM volume 2, RET; psABI section 3.2.2.

use crate::decode::decoder::Code;
use crate::decode::effects::{Flow, RSP, Touch, bit};
use crate::decode::insn::{Insn, NONE, PREFIXED};
use crate::file::module::{Module, Pad};
use crate::graph::blocks::{End, Graph};
use crate::sites::site::{Sites, get};
use foldhash::HashSet;

/// The register that functions with a frame keep rsp in.
const RBP: u8 = 5;

/// What an instruction does to rsp.
enum Step {
    By(i64),
    /// Takes it from the frame pointer.
    Frame,
    /// Takes it from anything else.
    Chosen,
}

/// Bytes of what is pushed or popped.
fn word(i: &Insn) -> i64 {
    let by_prefix = i.r0_bytes == 0 && i.mem.is_none() && i.has(PREFIXED);
    if i.r0_bytes == 2 || i.mem.is_some() && i.size == 2 || by_prefix { 2 } else { 8 }
}

fn step(i: &Insn) -> Option<Step> {
    let on_rsp = i.r0 == RSP && i.r0_bytes == 8 && i.mem.is_none();
    Some(match i.op {
        0x5c if i.r0 == RSP => Step::Chosen,
        0x50..=0x57 | 0x68 | 0x6a | 0x9c | 0x1a0 | 0x1a8 => Step::By(-word(i)),
        0xff if i.ext == 6 => Step::By(-word(i)),
        0x58..=0x5f | 0x8f | 0x9d | 0x1a1 | 0x1a9 => Step::By(word(i)),
        0x81 | 0x83 if on_rsp && i.ext == 0 => Step::By(i.imm),
        0x81 | 0x83 if on_rsp && i.ext == 5 => Step::By(-i.imm),
        0xff if on_rsp && i.ext <= 1 => Step::By(if i.ext == 0 { 1 } else { -1 }),
        0xc9 => Step::Frame,
        0x8d if i.r0 == RSP => match i.mem {
            Some(m) if m.base == RSP && m.index == NONE => Step::By(m.disp),
            Some(m) if m.base == RBP && m.index == NONE => Step::Frame,
            _ => Step::Chosen,
        },
        0x89 | 0x8b if on_rsp => match i.r1 {
            RBP => Step::Frame,
            RSP => return None,
            _ => Step::Chosen,
        },
        0x8b if i.r0 == RSP => Step::Chosen,
        0x87 | 0x90..=0x97 if i.r0 == RSP || i.r1 == RSP => Step::Chosen,
        _ => return None,
    })
}

/// What a function's code has done to rsp since it was entered.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Depth {
    /// How far down it is; `None`: ways differ, or nobody knows.
    bytes: Option<i64>,
    /// How far down rbp points, if it was made from rsp.
    rbp: Option<i64>,
    /// The return address may be another one.
    overwritten: bool,
}

const ENTERED: Depth = Depth { bytes: Some(0), rbp: None, overwritten: false };
/// Nothing is seen to lead there.
/// No instruction writes more.
const MOST_BYTES: i64 = 16384;
const LOST: Depth = Depth { bytes: None, ..ENTERED };

impl Depth {
    fn join(self, other: Depth) -> Depth {
        Depth {
            bytes: self.bytes.filter(|_| self.bytes == other.bytes),
            rbp: self.rbp.filter(|_| self.rbp == other.rbp),
            overwritten: self.overwritten || other.overwritten,
        }
    }

    /// As far as is known, a jump to a function hands the return address on.
    fn may_tail_call(self) -> bool {
        self.bytes == Some(0) && !self.overwritten
    }

    /// What pushes and pops do.
    fn down(&mut self, by: i64) {
        let before = self.bytes;
        self.bytes = before.map(|bytes| bytes + by);
        self.overwritten |= by > 0 && before.is_some_and(|bytes| bytes < 0 && bytes + by >= 0);
    }

    fn follow(&mut self, i: &Insn) {
        if let Some(m) = i.mem.filter(|m| matches!(m.base, RSP | RBP) && m.index == NONE && m.seg == 0)
            && matches!(i.touch, Touch::Mem(access) | Touch::BitString(access) if access.writes())
        {
            let at = if m.base == RSP { self.bytes } else { self.rbp };
            let popped = if m.base == RSP && i.op == 0x8f { word(i) } else { 0 };
            let size = if i.size == 0 { MOST_BYTES } else { i64::from(i.size) };
            let from = at.map(|bytes| m.disp + popped - bytes);
            self.overwritten |= from.is_some_and(|from| from < 8 && from + size > 0);
        }
        let wide = i.r0_bytes == 8;
        let to_rbp = i.fx.writes & bit(RBP) != 0;
        match (i.op, &i.mem) {
            (0xc9, _) => (self.bytes, self.rbp) = (self.rbp.map(|bytes| bytes - 8), None),
            // enter pushes rbp, and points it there.
            (0xc8, _) => (self.bytes, self.rbp) = (None, self.bytes.map(|bytes| bytes + 8)),
            (0x8d, Some(m)) if i.r0 == RSP && m.index == NONE && m.base == RBP => {
                self.bytes = self.rbp.map(|bytes| bytes - m.disp);
            }
            (0x89 | 0x8b, None) if i.r0 == RSP && wide && i.r1 == RBP => self.bytes = self.rbp,
            (0x89 | 0x8b, None) if i.r0 == RBP && wide && i.r1 == RSP => self.rbp = self.bytes,
            (0x8d, Some(m)) if i.r0 == RBP && wide && m.index == NONE && m.base == RSP => {
                self.rbp = self.bytes.map(|bytes| bytes - m.disp);
            }
            _ => {
                match step(i) {
                    Some(Step::By(n)) if matches!(i.op, 0x81 | 0x83 | 0x8d) || i.op == 0xff && i.ext <= 1 => {
                        self.bytes = self.bytes.map(|bytes| bytes - n);
                    }
                    Some(Step::By(n)) => self.down(-n),
                    Some(Step::Frame | Step::Chosen) => self.bytes = None,
                    None if matches!(i.flow, Flow::Call | Flow::CallInd | Flow::Ret) => {}
                    None if i.fx.writes & bit(RSP) != 0 => self.bytes = None,
                    None => {}
                }
                if to_rbp {
                    self.rbp = None;
                }
            }
        }
    }
}

/// Where blocks that seem to end a function do not.
pub(crate) struct Depths {
    /// Bitmap of blocks.
    elsewhere: Vec<u64>,
}

impl Depths {
    /// Goes forward from the entries of functions. `undefined`: where instructions stand that the original executes and the new code does not, ascending;
    /// `None` if nobody knows.
    pub(crate) fn new(m: &Module, text: &Code, sites: &Sites, g: &Graph, undefined: Option<&[u64]>) -> Depths {
        let solver = Solver::new(m, text, sites, g, undefined);
        let at = solver.solve();
        let mut elsewhere = vec![0; at.len() / 64 + 1];
        for b in (0..at.len()).filter(|&b| solver.leads_elsewhere(b, at[b])) {
            elsewhere[b / 64] |= 1 << (b % 64);
        }
        Depths { elsewhere }
    }

    /// Whether the block ends with a return that is not proven to take the function's own return address, with a jump through memory or a register that
    /// has another one in front of it or none, or with a jump to a function with something pushed or without a return address.
    pub(crate) fn leads_elsewhere(&self, b: usize) -> bool {
        get(&self.elsewhere, b)
    }
}

struct Solver<'x> {
    text: &'x Code,
    sites: &'x Sites,
    g: &'x Graph,
    pads: &'x [Pad],
    undefined: Option<&'x [u64]>,
    /// By block: whether a function begins there.
    entry: Vec<bool>,
    /// By block: how many it is a successor of, padding aside.
    ways: Vec<u32>,
}

impl<'x> Solver<'x> {
    fn new(m: &'x Module, text: &'x Code, sites: &'x Sites, g: &'x Graph, undefined: Option<&'x [u64]>) -> Solver<'x> {
        let n = g.starts.len();
        let mut ways = vec![0; n];
        let (padding, code): (Vec<usize>, Vec<usize>) = (0..n).partition(|&b| g.is_padding(text, b));
        code.iter().flat_map(|&b| g.succ(b)).for_each(|&to| ways[to as usize] += 1);
        for b in padding {
            let used = ways[b] > 0;
            g.succ(b).iter().filter(|_| used).for_each(|&to| ways[to as usize] += 1);
        }
        let mut entry = vec![false; n];
        g.roots
            .iter()
            .for_each(|&b| entry[b as usize] = ways[b as usize] == 0 && !is_described(m, text, g, b as usize));
        for b in 0..n {
            let va = text.insns[g.starts[b] as usize].va;
            let begins = m.parts.binary_search(&va).is_err();
            // Where no frame tells, functions begin where nothing is seen to lead.
            let alone = || ways[b] == 0 && !g.is_padding(text, b) && !(b > 0 && g.stops_in_front(text, b - 1));
            entry[b] |= m.function_at(va).map_or_else(alone, |f| f.0 == va && begins);
            match g.ends[b] {
                End::Call(Some(callee)) if callee as usize != b + 1 => entry[callee as usize] = true,
                _ => {}
            }
        }
        Solver { text, sites, g, pads: &m.pads, undefined, entry, ways }
    }

    /// What is known at the beginning of each block; `None`: padding.
    fn solve(&self) -> Vec<Option<Depth>> {
        let (g, n) = (self.g, self.g.starts.len());
        let pads: HashSet<u32> = g.pad_blocks().collect();
        let by_fault = self.pads_of_faults();
        let begins = |b: usize| self.ways[b] > 0 || self.entry[b] || pads.contains(&(b as u32));
        // It comes back against expectation, or the original goes on.
        let comes_back = |b: usize| {
            let goes_on = g.ends[b] != End::Stop || self.goes_on_in_the_original(b);
            g.stops_in_front(self.text, b) && goes_on && !begins(b + 1) && !g.is_padding(self.text, b + 1)
        };
        let mut at: Vec<Option<Depth>> = self.entry.iter().map(|&e| e.then_some(ENTERED)).collect();
        let mut work: Vec<usize> = (0..n).filter(|&b| self.entry[b]).collect();
        let mut unseen = (0..n).filter(|&b| !g.is_padding(self.text, b));
        // Calls with something behind them that is reached by other ways, and those of them that come back all the same.
        let (mut waiting, mut back) = (Vec::new(), vec![false; n]);
        loop {
            let next = work.pop().or_else(|| {
                let b = waiting.extract_if(.., |b: &mut usize| at[*b + 1].is_none()).next()?;
                back[b] = true;
                Some(b)
            });
            let Some(b) = next.or_else(|| unseen.find(|&b| at[b].is_none())) else { break };
            let behind = self.behind(b, *at[b].get_or_insert(LOST));
            let calls = matches!(g.ends[b], End::Call(_) | End::CallInd { .. });
            // Behind what does not come back stands something else, which other ways lead to if it is of this function.
            let doubtful = calls && !back[b] && g.succ(b).iter().any(|&to| self.ways[to as usize] > 1);
            if doubtful {
                waiting.push(b);
            }
            let on = g.succ(b).iter().map(|&to| to as usize).filter(|&to| {
                // An ordinary tail call begins anew.
                let is_entry = self.entry[to];
                !doubtful && !(is_entry && (calls || behind.may_tail_call() || self.only_pushes(b)))
            });
            // What unwinds leaves rsp as it was at the call.
            let pad = g.pad(b).map(|to| to as usize);
            let on = on.chain(pad).chain(comes_back(b).then_some(b + 1)).map(|to| (to, behind));
            let faults = by_fault.iter().skip(by_fault.partition_point(|f| f.0 < b)).take_while(|f| f.0 == b);
            let start = at[b].unwrap_or(LOST);
            let faults: Vec<(usize, Depth)> = faults.map(|&(_, k, to)| (to, self.in_front(b, k, start))).collect();
            for (to, depth) in on.chain(faults) {
                let joined = at[to].map_or(depth, |known| known.join(depth));
                if at[to] != Some(joined) {
                    at[to] = Some(joined);
                    work.push(to);
                }
            }
        }
        at
    }

    /// Whether what stops at the end of the block may be an instruction that the original executes.
    fn goes_on_in_the_original(&self, b: usize) -> bool {
        let last = &self.text.insns[self.g.range(b, self.text).end - 1];
        self.undefined.is_none_or(|list| list.binary_search(&last.va).is_ok())
    }

    /// Landing pads that no call leads to, but a fault, if a signal's handler throws: block, an instruction in it that may raise it, block of the pad.
    fn pads_of_faults(&self) -> Vec<(usize, usize, usize)> {
        let (g, text) = (self.g, self.text);
        let of_calls: HashSet<u32> = (0..g.starts.len()).filter_map(|b| g.pad(b)).collect();
        let mut found = Vec::new();
        for p in self.pads {
            let Some(pad) = text.at(p.pad).map(|k| g.block_of(k)).filter(|&pad| !of_calls.contains(&(pad as u32)))
            else {
                continue;
            };
            let range = text.lower_bound(p.from)..text.lower_bound(p.to);
            found.extend(range.filter(|&k| !get(&self.sites.inserted, k)).map(|k| (g.block_of(k), k, pad)));
        }
        found.sort_unstable();
        found
    }

    /// What is known in front of instruction `k` of the block.
    fn in_front(&self, b: usize, k: usize, mut depth: Depth) -> Depth {
        let own = (self.g.range(b, self.text).start..k).filter(|&k| !get(&self.sites.inserted, k));
        own.for_each(|k| depth.follow(&self.text.insns[k]));
        depth
    }

    /// What is known where the block ends, in front of its return if it has one.
    fn behind(&self, b: usize, mut depth: Depth) -> Depth {
        let g = self.g;
        depth = self.in_front(b, g.range(b, self.text).end, depth);
        // A call of what follows leaves its own address there.
        if g.ends[b] == End::Call(Some(b as u32 + 1)) {
            depth.down(8);
        }
        depth
    }

    fn leads_elsewhere(&self, b: usize, at: Option<Depth>) -> bool {
        let behind = at.map(|depth| self.behind(b, depth));
        let calls = || behind.is_some_and(|d| !d.may_tail_call()) && !self.only_pushes(b);
        match self.g.ends[b] {
            End::Ret => behind.is_none_or(|d| d.bytes != Some(0) || d.overwritten),
            End::Fall => self.entry.get(b + 1) == Some(&true) && calls(),
            End::Jump(to) | End::Cond(to) => self.entry[to as usize] && calls(),
            End::GotJump => behind.is_some_and(|d| d.bytes.is_some_and(|bytes| bytes != 0)) && !self.only_pushes(b),
            End::Unresolved { .. } => behind.is_some_and(|d| d.bytes.is_some_and(|bytes| bytes < 0)),
            _ => false,
        }
    }

    /// Whether the block, but for the jump that ends it, pushes numbers or words of memory: a PLT that is bound at the first call.
    fn only_pushes(&self, b: usize) -> bool {
        let range = self.g.range(b, self.text);
        let own =
            || (range.start..range.end - 1).filter(|&k| !get(&self.sites.inserted, k)).map(|k| &self.text.insns[k]);
        let pushes = |i: &Insn| matches!(i.op, 0x68 | 0x6a) || (i.op == 0xff && i.ext == 6 && i.mem.is_some());
        own().any(pushes) && own().all(|i| pushes(i) || i.is_nop())
    }
}

/// Whether a frame describes the block.
fn is_described(m: &Module, text: &Code, g: &Graph, b: usize) -> bool {
    m.function_at(text.insns[g.starts[b] as usize].va).is_some()
}
