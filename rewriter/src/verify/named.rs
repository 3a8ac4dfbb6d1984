//! Calls and jumps through registers, or words of the stack, that may lead to functions which the program names.
//!
//! Input: [`Graph`], decoded text. Output: a bitmap of the blocks that end so. Who calls a function whose name is a number (large code
//! model, psABI 3.5) may know which registers it leaves alone. A target is no name where it was loaded from memory other than the stack, came with
//! the caller, or is a number below all code; and in a module of which no target is seen to come from a number of 64 bits or to be the same
//! address of code on all ways.

use super::decode::{Code, Insn, NONE, RIP, WIDE};
use super::effects::{Flow, RBP, RSP, bit};
use super::graph::{End, Graph};
use super::sites::{Sites, get};
use std::collections::HashSet;

/// Ways into blocks followed for one target.
const MOST_WAYS: usize = 256;
const SYSCALL: u16 = 0x105;
/// Linux maps nothing below (`vm.mmap_min_addr`).
const LOWEST: i64 = 0x10000;

/// A target, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum From {
    Pointer,
    Anywhere,
    Name,
}

/// Looks at all indirect calls and unresolved jumps.
///
/// `is_code`: whether an address lies in an executable section.
pub fn find(g: &Graph, text: &Code, sites: &Sites, is_code: &dyn Fn(u64) -> bool) -> Vec<u64> {
    let mut into: Vec<(u32, u32)> =
        (0..g.starts.len()).flat_map(|b| g.succ(b).iter().map(move |&t| (t, b as u32))).collect();
    into.sort_unstable();
    let mut found = vec![0u64; g.starts.len() / 64 + 1];
    let mut names = false;
    for b in 0..g.starts.len() {
        if !matches!(g.ends[b], End::CallInd { .. } | End::Unresolved { .. }) {
            continue;
        }
        let i = &text.insns[g.range(b, text).end - 1];
        let from = match i.mem {
            _ if !matches!(i.flow, Flow::CallInd | Flow::JumpInd) => From::Pointer,
            Some(_) if of_stack(i) => From::Anywhere,
            Some(_) => From::Pointer,
            None => traced(g, text, sites, is_code, &into, b as u32, i.r0),
        };
        names |= from == From::Name;
        if from != From::Pointer {
            found[b / 64] |= 1 << (b % 64);
        }
    }
    if !names {
        found.fill(0);
    }
    found
}

/// Follows a register back from the end of a block; `into`: (block, block in front of it), sorted.
fn traced(
    g: &Graph,
    text: &Code,
    sites: &Sites,
    is_code: &dyn Fn(u64) -> bool,
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
                if seen.insert((p, reg)) {
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
            (0xb8..=0xbf, None) if i.has(WIDE) => return From::Name,
            _ if is_pointer(i) => leaves.others = true,
            _ => {
                worst = worst.max(From::Anywhere);
                leaves.add(constant(i).filter(|va| is_code(*va)));
            }
        }
    }
    if leaves.one_address() { From::Name } else { worst }
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

    fn one_address(&self) -> bool {
        self.code.is_some() && !self.others
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
