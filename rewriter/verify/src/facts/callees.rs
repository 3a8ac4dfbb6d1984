//! Indirect calls and jumps that may know more of their callees than the ABI.
//!
//! Input: [`Graph`], decoded text. Output: [`Callees`]. Who calls a function whose name is a number (large code
//! model, psABI 3.5) may know which registers it leaves alone, and so may who calls the same address of code on all ways. A target is no name where it
//! was loaded from memory other than the stack, came with the caller (what a jump from another function brings to where functions are called, too), or
//! is a number below all code. Where callers keep more over calls of pointers
//! than the ABI says ([`crate::facts::ipa_ra`]), those may know of their callees, too.

use crate::decode::decoder::Code;
use crate::decode::effects::{Flow, RBP, RSP, bit};
use crate::decode::insn::{Insn, NONE, RIP, WIDE};
use crate::facts::ipa_ra;
use crate::graph::blocks::{End, Graph};
use crate::sites::site::{Sites, get};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

/// Ways into blocks followed for one target.
const MOST_WAYS: usize = 256;
const SYSCALL: u16 = 0x105;
/// Linux maps nothing below (`vm.mmap_min_addr`).
const LOWEST: i64 = 0x10000;

/// Code at an address, but nothing that is known to be entered there.
pub const NO_BLOCK: u32 = u32::MAX;

/// In front of where a function is called.
const CALLER: u32 = u32::MAX;

/// A target, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum From {
    Pointer,
    Anywhere,
    Number,
    Address(u64),
}

/// Blocks that end so.
pub struct Callees {
    /// Bitmap: to any root.
    pub any: Vec<u64>,
    /// To this root.
    pub one: HashMap<u32, u32>,
}

/// Looks at all indirect calls and unresolved jumps.
///
/// `code`: the block that an address of code leads to, [`NO_BLOCK`] where that is none; `None` for other numbers.
pub fn find(g: &Graph, text: &Code, sites: &Sites, code: &dyn Fn(u64) -> Option<u32>) -> Callees {
    let roots: HashSet<u32> = g.roots.iter().copied().collect();
    let callees = g.ends.iter().filter_map(|e| if let End::Call(c) = e { *c } else { None });
    let called: HashSet<u32> = roots.iter().copied().chain(callees).collect();
    let ways = |b: u32| g.succ(b as usize).iter().filter(|t| !called.contains(t)).map(move |&t| (t, b));
    let callers = called.iter().map(|&b| (b, CALLER));
    let mut into: Vec<(u32, u32)> = (0..g.starts.len() as u32).flat_map(ways).chain(callers).collect();
    into.sort_unstable();
    let mut found: Vec<(u32, From)> = Vec::new();
    for b in 0..g.starts.len() {
        if !matches!(g.ends[b], End::CallInd { .. } | End::Unresolved { .. }) {
            continue;
        }
        let i = &text.insns[g.range(b, text).end - 1];
        let from = match i.mem {
            _ if !matches!(i.flow, Flow::CallInd | Flow::JumpInd) => continue,
            Some(_) if of_stack(i) => From::Anywhere,
            Some(_) => From::Pointer,
            None => traced(g, text, sites, code, &into, b as u32, i.r0),
        };
        found.push((b as u32, from));
    }
    let kept = ipa_ra::find(g, text, sites);
    let numbers = found.iter().any(|f| f.1 == From::Number);
    let mut named = Callees { any: vec![0u64; g.starts.len() / 64 + 1], one: HashMap::new() };
    for (b, from) in found {
        let root = if let From::Address(va) = from { code(va).filter(|c| roots.contains(c)) } else { None };
        if let Some(root) = root {
            named.one.insert(b, root);
        } else if kept || numbers && from != From::Pointer {
            named.any[b as usize / 64] |= 1 << (b % 64);
        }
    }
    named
}

/// Follows a register back from the end of a block; `into`: (block, block in front of it or [`CALLER`]), sorted.
fn traced(
    g: &Graph,
    text: &Code,
    sites: &Sites,
    code: &dyn Fn(u64) -> Option<u32>,
    into: &[(u32, u32)],
    block: u32,
    reg: u8,
) -> From {
    let mut worst = From::Pointer;
    let mut leaves = Leaves::default();
    let mut work = vec![(block, g.range(block as usize, text).end, reg)];
    let mut seen = HashSet::new();
    while let Some((b, end, reg)) = work.pop() {
        if reg >= 16 {
            worst = worst.max(From::Anywhere);
            leaves.others = true;
            continue;
        }
        let start = g.range(b as usize, text).start;
        let writes = |k: &usize| !get(&sites.inserted, *k) && text.insns[*k].fx.writes & bit(reg) != 0;
        let Some(k) = (start..end).rev().find(writes) else {
            let first = into.partition_point(|w| w.0 < b);
            for &(_, p) in into[first..].iter().take_while(|w| w.0 == b) {
                if p == CALLER {
                    leaves.others = true;
                } else if seen.insert((p, reg)) {
                    work.push((p, g.range(p as usize, text).end, reg));
                }
            }
            if seen.len() > MOST_WAYS {
                return worst.max(From::Anywhere);
            }
            continue;
        };
        let i = &text.insns[k];
        let sum = i.mem.filter(|m| m.base < 16 && m.index < 16);
        match (i.op, &i.mem) {
            _ if i.r0 != reg => {
                worst = worst.max(if i.op == SYSCALL { From::Pointer } else { From::Anywhere });
                leaves.others = true;
            }
            (0x89 | 0x8b, None) if i.has(WIDE) => work.push((b, k, i.r1)),
            (0x01 | 0x03, None) if i.has(WIDE) => work.extend([(b, k, reg), (b, k, i.r1)]),
            (0x8d, Some(_)) if sum.is_some() => work.extend(sum.iter().flat_map(|m| [(b, k, m.base), (b, k, m.index)])),
            (0xb8..=0xbf, None) if i.has(WIDE) => return From::Number,
            _ if is_pointer(i) => leaves.others = true,
            _ => {
                worst = worst.max(From::Anywhere);
                leaves.add(constant(i).filter(|va| code(*va).is_some()));
            }
        }
    }
    leaves.one_address().map_or(worst, From::Address)
}

/// Where the ways of one target end.
#[derive(Default)]
struct Leaves {
    code: Option<u64>,
    /// More than one address, or something else.
    others: bool,
}

impl Leaves {
    fn add(&mut self, code: Option<u64>) {
        match (self.code, code) {
            (None, Some(_)) => self.code = code,
            (Some(known), Some(va)) if known == va => {}
            _ => self.others = true,
        }
    }

    fn one_address(&self) -> Option<u64> {
        self.code.filter(|_| !self.others)
    }
}

/// The number that an instruction puts into its register: a short one, or one at a distance from the instruction.
fn constant(i: &Insn) -> Option<u64> {
    match (i.op, &i.mem) {
        (0xb8..=0xbf | 0xc7, None) => Some(i.imm as u64),
        (0x8d, Some(m)) if m.index == NONE && matches!(m.base, RIP | NONE) => Some(m.disp as u64),
        _ => None,
    }
}

/// Whether what an instruction puts into its register is the name of no function.
fn is_pointer(i: &Insn) -> bool {
    match (i.op, &i.mem) {
        (0x8b, Some(_)) => !of_stack(i),
        (0xa1, _) => true,
        (0xb8..=0xbf | 0xc7, None) => (0..LOWEST).contains(&i.imm),
        (0x31 | 0x33, None) => i.r0 == i.r1,
        _ => false,
    }
}

/// Whether an instruction's operand is a place of the stack.
fn of_stack(i: &Insn) -> bool {
    i.mem.is_some_and(|m| matches!(m.base, RSP | RBP) && m.index == NONE)
}
