//! Whether inserted code that keeps registers below the stack pointer overwrites nothing of the program's.
//!
//! Input: decoded text, sites, graph. Output: findings. Code keeps nothing there if no instruction of its connected part of the graph
//! names a place below rsp; if no store through an address that it makes from rsp may lie there ([`stack_stores`]); and if no caller, nor its callers, name a place below their own rsp. What calls through a pointer after it has named such a place
//! may be a caller of all that unknown code may call.
//! What rsp has been raised over may be in use where it is lowered again; so may what a call has left there.
//! Source: psABI section 3.2.2.

use crate::audit::Audit;
use crate::decode::decoder::Code;
use crate::decode::effects::{Flow, RSP};
use crate::decode::insn::{Insn, NONE, PREFIXED};
use crate::facts::stack_stores;
use crate::file::module::Module;
use crate::graph::blocks::{End, Graph};
use crate::sites::site::{Sites, get};
use std::collections::{BTreeMap, BTreeSet};

/// What the code of one part does.
#[derive(Clone, Copy, Default)]
struct Part {
    below: bool,
    named: bool,
    /// It makes addresses on the stack.
    takes: bool,
}

/// Judges all sites that keep something below rsp.
pub(crate) fn judge(m: &Module, text: &Code, sites: &Sites, g: &Graph, audit: &mut Audit) {
    if !sites.list.iter().any(|s| s.red_zone) {
        return;
    }
    let mut parts = vec![Part::default(); g.starts.len()];
    // Instructions that lower rsp, with their blocks.
    let mut lowers: Vec<(usize, usize)> = Vec::new();
    // Blocks that name a place below rsp.
    let mut names: Vec<usize> = Vec::new();
    for b in 0..g.starts.len() {
        let part = &mut parts[g.component[b] as usize];
        for k in g.range(b, text).filter(|&k| !get(&sites.inserted, k)) {
            let i = &text.insns[k];
            match use_of(i) {
                Some(Use::Named) => {
                    part.named = true;
                    // An object that reaches up into the 128 bytes does not begin a page below.
                    if i.mem.is_some_and(|m| m.disp >= -4096) {
                        names.push(b);
                    }
                }
                Some(Use::Below) => part.below = true,
                Some(Use::Address) => part.takes = true,
                // What is added from a register may be negative.
                None if explicit_step(i) == Some(false)
                    || (i.r0 == RSP && i.r1 < 16 && matches!(i.op, 0x01 | 0x03)) =>
                {
                    lowers.push((b, k));
                }
                None => {}
            }
        }
        if matches!(g.ends[b], End::Unresolved { framed: false }) {
            part.below = true;
        }
    }
    let part_of = |b: usize| g.component[b] as usize;
    if calls_unknown(g, |b| m.function_at(text.insns[g.starts[b] as usize].va).map(|f| f.0), names) {
        g.roots.iter().for_each(|&b| parts[part_of(b as usize)].named = true);
    }
    let callees: Vec<(usize, usize)> = (0..g.starts.len())
        .filter_map(|b| match g.ends[b] {
            End::Call(Some(callee)) => Some((part_of(b), part_of(callee as usize))),
            _ => None,
        })
        .collect();
    while callees.iter().any(|&(from, to)| parts[from].named && !parts[to].named) {
        callees.iter().for_each(|&(from, to)| parts[to].named |= parts[from].named);
    }
    // Addresses are followed only where a check relies on what is found.
    let mut asked: BTreeSet<usize> = BTreeSet::new();
    for s in sites.list.iter().filter(|s| s.red_zone && s.problem.is_none()) {
        asked.insert(part_of(g.block_of(s.access)));
    }
    let raised = Raised::new(text, sites, g, &lowers);
    for &(b, k) in &lowers {
        let part = part_of(b);
        if asked.contains(&part) && !parts[part].below {
            parts[part].below = raised.before(b, k);
        }
    }
    let mut members: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for b in (0..g.starts.len()).filter(|&b| parts[part_of(b)].takes && asked.contains(&part_of(b))) {
        members.entry(part_of(b)).or_default().push(b);
    }
    let mut entered = vec![false; g.starts.len()];
    g.entries.iter().chain(&g.roots).for_each(|&b| entered[b as usize] = true);
    // A landing pad is entered from the calls of its function, and a part of a function that stands elsewhere by the function alone.
    g.pad_blocks().for_each(|b| entered[b as usize] = false);
    let fragment = |b: usize| m.parts.binary_search(&text.insns[g.starts[b] as usize].va).is_ok();
    (0..entered.len()).filter(|&b| fragment(b)).for_each(|b| entered[b] = false);
    let continues = g.continues(text, &g.open());
    let is_inside = |b: usize| {
        let va = text.insns[g.starts[b] as usize].va;
        m.function_at(va).is_some_and(|f| f.0 != va)
    };
    for (part, blocks) in members {
        parts[part].below |= stack_stores::may_store_below(g, text, sites, &blocks, &entered, &continues, is_inside);
    }
    for s in sites.list.iter().filter(|s| s.red_zone && s.problem.is_none()) {
        let part = parts[g.component[g.block_of(s.access)] as usize];
        let va = text.insns[s.access].va;
        if part.below || part.named {
            audit.finding(va, m.place(va), "a check keeps a register below rsp, where the function may keep values");
        }
    }
}

/// Whether what begins with these blocks may call through a pointer, itself or by what it calls. `function`: the one that a block is in; whoever jumps out
/// of it keeps nothing any more.
fn calls_unknown(g: &Graph, function: impl Fn(usize) -> Option<u64>, from: Vec<usize>) -> bool {
    // Blocks, and whether they belong to what was called.
    let mut seen = [vec![false; g.starts.len()], vec![false; g.starts.len()]];
    let mut work: Vec<(usize, bool)> = from.into_iter().map(|b| (b, false)).collect();
    while let Some((b, called)) = work.pop() {
        if std::mem::replace(&mut seen[usize::from(called)][b], true) {
            continue;
        }
        match g.ends[b] {
            End::CallInd { .. } => return true,
            End::GotJump | End::Unresolved { .. } if called => return true,
            End::Call(Some(callee)) => work.push((callee as usize, true)),
            _ => {}
        }
        let here = function(b);
        let next = g.succ(b).iter().map(|&to| to as usize);
        work.extend(next.filter(|&to| called || function(to) == here).map(|to| (to, called)));
    }
    false
}

/// Where rsp has been raised: what it was raised over is still in use where it is lowered again, but by a push or call, which write what they uncover.
struct Raised<'x> {
    text: &'x Code,
    sites: &'x Sites,
    g: &'x Graph,
    /// Blocks with what leads to them, sorted.
    preds: Vec<(u32, u32)>,
}

impl<'x> Raised<'x> {
    fn new(text: &'x Code, sites: &'x Sites, g: &'x Graph, lowers: &[(usize, usize)]) -> Raised<'x> {
        let mut preds: Vec<(u32, u32)> = Vec::new();
        if !lowers.is_empty() {
            preds.extend((0..g.starts.len()).flat_map(|b| g.succ(b).iter().map(move |&to| (to, b as u32))));
            preds.sort_unstable();
        }
        Raised { text, sites, g, preds }
    }

    /// Whether a way leads to instruction `k` of block `b` from one that raises rsp.
    fn before(&self, b: usize, k: usize) -> bool {
        let raises = |range: std::ops::Range<usize>| {
            range.filter(|&k| !get(&self.sites.inserted, k)).any(|k| raises(&self.text.insns[k]))
        };
        if raises(self.g.range(b, self.text).start..k) {
            return true;
        }
        let mut seen = BTreeSet::new();
        let mut work = vec![b as u32];
        while let Some(to) = work.pop() {
            let first = self.preds.partition_point(|p| p.0 < to);
            for &(_, from) in self.preds[first..].iter().take_while(|p| p.0 == to) {
                if seen.insert(from) {
                    if raises(self.g.range(from as usize, self.text)) {
                        return true;
                    }
                    work.push(from);
                }
            }
        }
        false
    }
}

/// Whether an instruction that is no push, pop or call raises rsp, or lowers it; `None` if it does not change it.
fn explicit_step(i: &Insn) -> Option<bool> {
    if i.r0 != RSP || i.r0_bytes != 8 {
        return None;
    }
    match (i.op, i.ext, &i.mem) {
        (0x81 | 0x83, 0, None) => Some(i.imm > 0),
        (0x81 | 0x83, 5, None) => Some(i.imm < 0),
        (0x81 | 0x83, 4, None) | (0x21 | 0x23 | 0x29 | 0x2b, ..) => Some(false),
        (0x8d, _, Some(m)) if m.base == RSP && m.index == NONE => Some(m.disp > 0),
        (0x01 | 0x03 | 0x89 | 0x8b | 0x8d, ..) => Some(true),
        _ => None,
    }
}

/// Whether it raises rsp, pops and `leave` included. A call leaves its own address below rsp.
fn raises(i: &Insn) -> bool {
    // What is subtracted by a register may be negative.
    if i.r0 == RSP && matches!(i.op, 0x29 | 0x2b) {
        return true;
    }
    matches!(i.flow, Flow::Call | Flow::CallInd)
        || matches!(i.op, 0x58..=0x5f | 0x8f | 0x9d | 0xc9)
        || explicit_step(i) == Some(true)
}

/// How an instruction uses rsp, apart from what pushes, calls and returns do.
enum Use {
    /// Names a place below.
    Named,
    /// Reaches below, perhaps.
    Below,
    /// Makes an address on the stack, copies rsp to a register, or forms an address with an index.
    Address,
}

fn use_of(i: &Insn) -> Option<Use> {
    let based = i.mem.filter(|m| m.base == RSP);
    let named = i.r0 == RSP || i.r1 == RSP;
    if matches!(i.op, 0x89 | 0x8b) && i.mem.is_none() && i.r1 == RSP && i.r0 != RSP && i.r0_bytes == 8 {
        return Some(Use::Address);
    }
    let far = based.is_some_and(|m| m.index != NONE || m.disp < 0);
    if named {
        // mov, add, sub, and; lea without an index.
        let moves = match (i.op, i.ext) {
            (0x89 | 0x8b | 0x01 | 0x03 | 0x29 | 0x2b | 0x21 | 0x23, _) | (0x81 | 0x83, 0 | 4 | 5) => !far,
            (0x8d, _) => i.mem.is_some_and(|m| m.index == NONE),
            _ => false,
        };
        let only_changes = i.r0 == RSP && i.r0_bytes == 8 && i.r1 != RSP;
        return (!moves || !only_changes).then_some(Use::Below);
    }
    match (based, i.op) {
        // `lock or [rsp-64], 0`: a fence.
        (Some(m), 0x81 | 0x83) if i.ext == 1 && i.imm == 0 && i.has(PREFIXED) && m.index == NONE => None,
        // enter
        (_, 0xc8) => Some(Use::Below),
        (Some(m), _) if far && m.index == NONE => Some(Use::Named),
        // bt, bts, btr, btc with a number in a register.
        (Some(_), 0x1a3 | 0x1ab | 0x1b3 | 0x1bb) => Some(Use::Below),
        // The constant part is below, whatever the index is.
        (Some(m), _) if m.disp < 0 => Some(Use::Below),
        (Some(_), _) if far => Some(Use::Address),
        (Some(_), 0x8d) => Some(Use::Address),
        _ => None,
    }
}
