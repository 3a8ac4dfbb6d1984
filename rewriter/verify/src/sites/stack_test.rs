//! Tests of rsp: what they follow, and whether one is whole.
//!
//! Input: an instruction, or the hot way of a test that has been walked. Output: what the instruction makes rsp from; the test's [`Site`].
//! **Invariant**: what an instruction makes rsp from is told from its effects; the test asks every bit of the segment's window and ends the run if rsp lies in it.
//! Source: `rewriter/DESIGN.md`, "What the private stack rests on"; SDM volume 2, BT.

use crate::decode::decoder::Code;
use crate::decode::effects::{ALL_FLAGS, Flow, RAX, RBP, RSP, bit};
use crate::decode::insn::{ADDR32, Insn, Mem, NONE, PREFIXED, RIP, STACK, WIDE};
use crate::sites::site::{Context, Hot, Site, SiteKind};
use crate::sites::symbolic::{Cond, Lin};
use blizzard_contract as contract;

/// What rsp is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    /// It stays on its stack.
    Stack,
    Register(u8),
    Elsewhere,
}

/// Whether a test of rsp may begin with instruction `k`. (A check of an operand with an index may test the same bit of rsp, too.)
pub(crate) fn may_follow(text: &Code, k: usize) -> bool {
    k.checked_sub(1).is_some_and(|k| from(&text.insns[k]) != From::Stack)
}

/// What an instruction makes rsp from.
pub(crate) fn from(i: &Insn) -> From {
    let whole = i.r0 == RSP && i.r0_bytes == 8;
    let popped = matches!(i.op, 0x58..=0x5f) || i.op == 0x8f && i.mem.is_none();
    match (i.op, &i.mem) {
        // iret
        (0xcf, _) => From::Elsewhere,
        (0xc9, _) => From::Register(RBP),
        _ if popped && i.r0 == RSP => From::Elsewhere,
        _ if i.has(STACK) || i.fx.writes & bit(RSP) == 0 => From::Stack,
        (0x81 | 0x83, None) if whole && matches!(i.ext, 0 | 4 | 5) => From::Stack,
        (0xff, None) if whole && i.ext < 2 => From::Stack,
        (0x8d, Some(m)) if whole && m.index == NONE && !i.has(ADDR32) => {
            if m.base == RSP {
                From::Stack
            } else {
                From::Register(m.base)
            }
        }
        (0x89 | 0x8b, None) if whole => From::Register(i.r1),
        _ => From::Elsewhere,
    }
}

/// The site of a test, whose hot way has been walked.
pub(crate) fn judge(cx: &Context, start: usize, hot: &Hot, used: &mut Vec<usize>) -> Result<Site, String> {
    let [(state, to, cond, from)] = hot.colds.as_slice() else { return Err("rsp is tested more than once".into()) };
    let lowered = state.rsp().ok_or("rsp is lost before it is tested")?;
    if *cond != (Cond::Private { lin: Lin { disp: lowered, ..Lin::reg(RSP) } }) {
        return Err("the bit that is tested is not one of rsp".into());
    }
    let branch = cx.text.at(*from).ok_or("the branch is nowhere")?;
    let back = cx.text.insns[branch].end();
    let mut site = Site {
        dirty: hot.state.dirty(),
        dirty_flags: ALL_FLAGS & !hot.state.clean,
        touched: hot.touched,
        red_zone: hot.state.uses_red_zone(),
        ..Site::of_kind(SiteKind::StackTest, start, hot.access)
    };
    let first = cx.cold.at(*to).ok_or_else(|| format!("branch at {from:#x} does not lead to a cold stub"))?;
    let mut stub = Stub { code: &cx.cold.insns, first, next: first };
    // The address is one of the window if all its bits are.
    for number in (contract::SEGMENT_SHIFT..contract::PRIVATE_BIT).rev() {
        let set = contract::SEGMENT_BASE >> number & 1 == 1;
        stub.expect(|i| is_test_of(i, number), "every bit of the window")?;
        site.own_edges.push(stub.branch(if set { 3 } else { 2 }, back)?);
    }
    stub.expect(is_test_of_nodes, "the number of nodes")?;
    site.own_edges.push(stub.branch(4, back)?);
    let through = |m: &Mem, base: u8, disp: i64| m.base == base && m.index == NONE && m.disp == disp;
    if lowered != 0 {
        let up = |i: &Insn| i.r0 == RSP && i.mem.is_some_and(|m| through(&m, RSP, -lowered));
        stub.expect(|i| i.op == 0x8d && is_plain(i) && up(i), "what moves rsp back")?;
    }
    let place = |i: &Insn| i.r0 == RAX && i.mem.is_some_and(|m| through(&m, RIP, back as i64));
    stub.expect(|i| i.op == 0x8d && is_plain(i) && place(i), "where it is")?;
    let gate = |i: &Insn| i.mem.is_some_and(|m| through(&m, NONE, contract::GATE_STACK as i64) && m.seg == 0);
    stub.expect(|i| i.flow == Flow::JumpInd && i.ext == 4 && !i.has(PREFIXED) && gate(i), "the gate")?;
    used.extend(stub.first..stub.next);
    Ok(site)
}

/// A stub as far as it has been read.
struct Stub<'x> {
    code: &'x [Insn],
    first: usize,
    next: usize,
}

impl<'x> Stub<'x> {
    fn expect(&mut self, is: impl Fn(&Insn) -> bool, what: &str) -> Result<&'x Insn, String> {
        let i = self.code.get(self.next).ok_or("cold stub runs off the section")?;
        let follows = self.next == self.first || self.code[self.next - 1].end() == i.va;
        if !follows || !is(i) {
            return Err(format!("the cold stub of a test of rsp does not have {what} at {:#x}", i.va));
        }
        self.next += 1;
        Ok(i)
    }

    /// A branch under the condition `cc`, to `to`.
    fn branch(&mut self, cc: u16, to: u64) -> Result<(u64, u64), String> {
        let is = |i: &Insn| {
            i.flow == Flow::Cond && matches!(i.op, 0x70..=0x7f | 0x180..=0x18f) && i.op & 15 == cc && i.target == to
        };
        Ok((self.expect(is, "the way back")?.va, to))
    }
}

fn is_plain(i: &Insn) -> bool {
    i.has(WIDE) && !i.has(PREFIXED | ADDR32)
}

fn is_test_of(i: &Insn, number: u32) -> bool {
    i.op == 0x1ba && i.mem.is_none() && i.ext == 4 && i.r0 == RSP && i.imm == i64::from(number) && is_plain(i)
}

fn is_test_of_nodes(i: &Insn) -> bool {
    let nodes = |m: &Mem| (m.base, m.index, m.seg, m.disp as u64) == (NONE, NONE, 0, contract::CTX_NODES);
    i.op == 0x83 && i.ext == 7 && i.size == 4 && i.imm == 1 && !i.has(PREFIXED) && i.mem.is_some_and(|m| nodes(&m))
}
