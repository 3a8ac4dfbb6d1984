//! Returns that are jumps in other words: to an address that the code has just pushed, or on a stack that it has just chosen.
//!
//! Input: decoded text without inserted instructions, the instructions of a block that ends with a return. Output: whether the word that the
//! return takes was put there by the block. `push x; ret`, `mov [rsp], x; ret`, `sub rsp, 8; ret`, `mov rsp, x; ret`. With branches in between ([`Depths`]):
//! whether a way from the function's entry leads to the return on which rsp is lower than at the entry, or the return address has been written over.
//! **Invariant**: an ordinary return takes a word that lies above everything that the block has pushed and not popped, and rsp comes from
//! rsp or, by `leave` and its kin, from rbp.
//! Source: SDM volume 2, RET; psABI section 3.2.2.

use super::decode::{Code, Insn, NONE};
use super::effects::RSP;
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

/// How far a function's code has moved rsp down since it was entered, and whether the return address is another one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Depth {
    bytes: i64,
    overwritten: bool,
}

impl Depth {
    /// Whether a return takes what the function has put there.
    fn is_pushed(self) -> bool {
        self.bytes > 0 || self.bytes == 0 && self.overwritten
    }
}

/// Of a block's beginning.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Unseen,
    At(Depth),
    /// Ways differ.
    No,
}

/// The depth at the beginning of each block, if all ways to it agree.
pub(super) struct Depths {
    at: Vec<Known>,
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
        let begin = Known::At(Depth { bytes: 0, overwritten: false });
        let at = entry.iter().map(|&e| if e { begin } else { Known::Unseen }).collect();
        let mut work: Vec<usize> = (0..n).filter(|&b| entry[b]).collect();
        let mut ways = vec![0u32; n];
        (0..n).flat_map(|b| g.succ(b)).for_each(|&to| ways[to as usize] += 1);
        let mut depths = Depths { at, entry };
        while let Some(b) = work.pop() {
            let behind = depths.behind(text, sites, g, b);
            let calls = matches!(g.ends[b], End::Call(_) | End::CallInd { .. });
            for &to in g.succ(b) {
                let to = to as usize;
                // Behind what does not come back stands something else.
                if depths.entry[to] || calls && ways[to] > 1 {
                    continue;
                }
                let joined = match (depths.at[to], behind) {
                    (Known::Unseen, Some(depth)) => Known::At(depth),
                    (Known::At(k), Some(depth)) if k.bytes == depth.bytes => {
                        Known::At(Depth { overwritten: k.overwritten || depth.overwritten, ..k })
                    }
                    _ => Known::No,
                };
                if depths.at[to] != joined {
                    depths.at[to] = joined;
                    work.push(to);
                }
            }
        }
        depths
    }

    /// What is known where the block ends, in front of its return if it has one.
    fn behind(&self, text: &Code, sites: &Sites, g: &Graph, b: usize) -> Option<Depth> {
        let Known::At(mut depth) = self.at[b] else { return None };
        for k in g.range(b, text).filter(|&k| !get(&sites.inserted, k)) {
            let i = &text.insns[k];
            let stack = i.mem.filter(|m| m.base == RSP && m.index == NONE && m.seg == 0);
            let stores = matches!(i.op, 0x01 | 0x29 | 0x31 | 0x87 | 0x89 | 0xc7)
                || matches!((i.op, i.ext), (0x81 | 0x83, 0 | 5 | 6) | (0xff, 0 | 1));
            depth.overwritten |= stores && stack.is_some_and(|m| m.disp == depth.bytes);
            match step(i) {
                Some(Step::By(n)) => depth.bytes -= n,
                Some(Step::Frame | Step::Chosen) => return None,
                // Moved by what is not known; `cmp` and `test` move nothing.
                None if i.r0 == RSP && i.r0_bytes == 8 && i.mem.is_none() && !matches!(i.op, 0x39 | 0x3b | 0x85) => {
                    return None;
                }
                None => {}
            }
        }
        // A call of what follows leaves its own address there.
        depth.bytes += if g.ends[b] == End::Call(Some(b as u32 + 1)) { 8 } else { 0 };
        Some(depth)
    }

    /// Whether the block ends with a return that takes a word which its function has put there, or jumps to a function that will.
    pub(super) fn leads_to_pushed(&self, text: &Code, sites: &Sites, g: &Graph, b: usize) -> bool {
        let ends_so = match g.ends[b] {
            End::Ret => true,
            End::Jump(to) => self.entry[to as usize] && g.ends[to as usize] != End::GotJump,
            _ => false,
        };
        ends_so && self.behind(text, sites, g, b).is_some_and(Depth::is_pushed)
    }
}
