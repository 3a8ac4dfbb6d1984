//! Returns that are jumps in other words: to an address that the code has just pushed, or on a stack that it has just chosen.
//!
//! Input: decoded text without inserted instructions, the instructions of a block that ends with a return. Output: whether the word that the
//! return takes was put there by the block. `push x; ret`, `mov [rsp], x; ret`, `sub rsp, 8; ret`, `mov rsp, x; ret`. With branches in between ([`Depths`]):
//! whether a way from the function's entry leads to the return on which rsp is lower than at the entry, or the return address has been written over.
//! **Invariant**: an ordinary return takes a word that lies above everything that the block has pushed and not popped, and rsp comes from
//! rsp or, by `leave` and its kin, from rbp.
//! Source: SDM volume 2, RET; psABI section 3.2.2.

use super::decode::{Code, Insn, NONE};
use super::effects::{Flow, RSP, Touch, bit};
use super::graph::{End, Graph};
use super::module::Module;
use super::sites::{Sites, get};

/// The register that functions with a frame keep rsp in.
const RBP: u8 = 5;

/// Whether the return behind `body`, the block's own instructions in front of it, is a jump.
pub(super) fn leads_to_pushed<'a>(body: impl Iterator<Item = &'a Insn>) -> bool {
    // Heights are relative to rsp at the block's start.
    let mut height = 0i64;
    let mut highest = 0i64;
    let mut stored: Vec<i64> = Vec::new();
    let mut chosen = false;
    for i in body {
        if let Some(m) = i.mem.filter(|m| m.base == RSP && m.index == NONE && m.seg == 0)
            && matches!(i.op, 0x89 | 0xc7)
        {
            stored.push(height + m.disp);
        }
        match step(i) {
            Some(Step::By(n)) => height += n,
            Some(Step::Frame) => (height, highest, chosen) = (0, 0, false),
            Some(Step::Chosen) => chosen = true,
            None => {}
        }
        if matches!(step(i), Some(Step::Frame)) {
            stored.clear();
        }
        highest = highest.max(height);
    }
    chosen || height < highest || stored.contains(&height)
}

/// What an instruction does to rsp.
enum Step {
    By(i64),
    /// Takes it from the frame pointer.
    Frame,
    /// Takes it from anything else.
    Chosen,
}

fn step(i: &Insn) -> Option<Step> {
    let on_rsp = i.r0 == RSP && i.r0_bytes == 8 && i.mem.is_none();
    Some(match i.op {
        0x5c if i.r0 == RSP => Step::Chosen,
        0x50..=0x57 | 0x68 | 0x6a | 0x9c => Step::By(-8),
        0xff if i.ext == 6 => Step::By(-8),
        0x58..=0x5f | 0x9d => Step::By(8),
        0x8f => Step::By(8),
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

impl Depth {
    fn join(self, other: Depth) -> Depth {
        Depth {
            bytes: self.bytes.filter(|_| self.bytes == other.bytes),
            rbp: self.rbp.filter(|_| self.rbp == other.rbp),
            overwritten: self.overwritten || other.overwritten,
        }
    }

    /// A return takes what the function has put there.
    fn is_pushed(self) -> bool {
        self.bytes.is_some_and(|bytes| bytes > 0) || self.bytes == Some(0) && self.overwritten
    }

    /// What pushes and pops do.
    fn down(&mut self, by: i64) {
        let before = self.bytes;
        self.bytes = before.map(|bytes| bytes + by);
        self.overwritten |= by > 0 && before.is_some_and(|bytes| bytes < 0 && bytes + by >= 0);
    }

    fn follow(&mut self, i: &Insn) {
        if let Some(m) = i.mem.filter(|m| matches!(m.base, RSP | RBP) && m.index == NONE && m.seg == 0)
            && matches!(i.touch, Touch::Mem(access) if access.writes())
        {
            let at = if m.base == RSP { self.bytes } else { self.rbp };
            let popped = if m.base == RSP && i.op == 0x8f { 8 } else { 0 };
            self.overwritten |= at.is_some_and(|bytes| m.disp + popped == bytes);
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

/// What is known at the beginning of each block.
pub(super) struct Depths {
    at: Vec<Option<Depth>>,
    entry: Vec<bool>,
}

impl Depths {
    /// Goes forward from the entries of functions.
    pub(super) fn new(m: &Module, text: &Code, sites: &Sites, g: &Graph) -> Depths {
        let n = g.starts.len();
        let mut entry = vec![false; n];
        for b in 0..n {
            let va = text.insns[g.starts[b] as usize].va;
            entry[b] |= m.function_at(va).is_some_and(|f| f.0 == va) && m.parts.binary_search(&va).is_err();
            match g.ends[b] {
                End::Call(Some(callee)) if callee as usize != b + 1 => entry[callee as usize] = true,
                _ => {}
            }
        }
        let at = entry.iter().map(|&e| e.then_some(ENTERED)).collect();
        let mut work: Vec<usize> = (0..n).filter(|&b| entry[b]).collect();
        let mut ways = vec![0u32; n];
        (0..n).flat_map(|b| g.succ(b)).for_each(|&to| ways[to as usize] += 1);
        let mut depths = Depths { at, entry };
        while let Some(b) = work.pop() {
            let Some(behind) = depths.behind(text, sites, g, b) else { continue };
            let calls = matches!(g.ends[b], End::Call(_) | End::CallInd { .. });
            for &to in g.succ(b) {
                let to = to as usize;
                // Behind what does not come back stands something else; an ordinary tail call begins anew.
                let is_entry = depths.entry[to];
                if calls && (is_entry || ways[to] > 1)
                    || is_entry && (!behind.is_pushed() || only_pushes(text, sites, g, b))
                {
                    continue;
                }
                let joined = depths.at[to].map_or(behind, |known| known.join(behind));
                if depths.at[to] != Some(joined) {
                    depths.at[to] = Some(joined);
                    work.push(to);
                }
            }
        }
        depths
    }

    /// What is known where the block ends, in front of its return if it has one; `None`: nothing is seen to lead there.
    fn behind(&self, text: &Code, sites: &Sites, g: &Graph, b: usize) -> Option<Depth> {
        let mut depth = self.at[b]?;
        for k in g.range(b, text).filter(|&k| !get(&sites.inserted, k)) {
            depth.follow(&text.insns[k]);
        }
        // A call of what follows leaves its own address there.
        if g.ends[b] == End::Call(Some(b as u32 + 1)) {
            depth.down(8);
        }
        Some(depth)
    }

    /// Whether the block ends with a return that is not proven to take the function's own return address, or jumps to a function with something pushed.
    pub(super) fn leads_elsewhere(&self, text: &Code, sites: &Sites, g: &Graph, b: usize) -> bool {
        let behind = self.behind(text, sites, g, b);
        match g.ends[b] {
            End::Ret => behind.is_some_and(|d| d.bytes != Some(0) || d.overwritten),
            End::Fall => self.entry.get(b + 1) == Some(&true) && behind.is_some_and(Depth::is_pushed),
            End::Jump(to) | End::Cond(to) => {
                self.entry[to as usize] && behind.is_some_and(Depth::is_pushed) && !only_pushes(text, sites, g, b)
            }
            End::GotJump => {
                behind.is_some_and(|d| d.bytes.is_some_and(|bytes| bytes != 0)) && !only_pushes(text, sites, g, b)
            }
            _ => false,
        }
    }
}

/// Whether the block, but for the jump that ends it, pushes numbers or words of memory: a PLT that is bound at the first call.
fn only_pushes(text: &Code, sites: &Sites, g: &Graph, b: usize) -> bool {
    let range = g.range(b, text);
    let own = || (range.start..range.end - 1).filter(|&k| !get(&sites.inserted, k)).map(|k| &text.insns[k]);
    let pushes = |i: &Insn| matches!(i.op, 0x68 | 0x6a) || (i.op == 0xff && i.ext == 6 && i.mem.is_some());
    own().any(pushes) && own().all(|i| pushes(i) || i.is_nop())
}
