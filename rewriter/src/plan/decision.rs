//! What is decided for an instruction, as data: its access is checked, and how; or it is not, and why.
//!
//! Input: what [`crate::plan::decide`] and the passes find. Output: [`Decisions`], one for each instruction of a module; everybody behind the plan reads
//! them, and nobody decides again. **Invariants**: equal decisions share an entry, so one costs two bytes, as a rule; a class's number is
//! what the section `.blizzard.blocks` holds.

use crate::base::collections::compact_ids::CompactIds;
use crate::decode::insn::InsnId;
use crate::facts::access::{PlainAccess, XSAVE_BYTES};
use blizzard_contract::{VsibDesc, listed};
use serde::Serialize;

listed! {
    /// Why an access has no check.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Reason: text {
        /// rsp, or a register that holds rsp plus a constant on every path; no index.
        Stack: "stack address",
        /// A constant address outside the segment.
        Global: "constant address",
        /// fs or gs override.
        Tls: "thread-local",
        /// push, pop, call, ret, leave, enter.
        ImplicitStack: "push, pop, call, ret",
        /// 32-bit address size: below 4 GiB.
        Addr32: "32-bit address",
        /// The options ask for no check of this direction.
        NotRequested: "not asked for",
        /// The check of an access in front of it, in its basic block, covers it.
        Merged: "covered in its block",
        /// Checks on every way to it cover it.
        Dominated: "covered on every way",
        /// Tests at the head of its loop, for several iterations, cover it.
        Strip: "tested at the loop's head",
    }
}

impl Reason {
    /// Whether another check covers the access: it may be to shared memory.
    pub fn is_cover(self) -> bool {
        matches!(self, Reason::Merged | Reason::Dominated | Reason::Strip)
    }
}

/// What is decided for the access of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It accesses no memory.
    Nothing,
    Unchecked(Reason),
    /// One tag test before the instruction; of ranges, if it [`is_big`].
    Check(PlainAccess),
    CheckTwo(PlainAccess, PlainAccess),
    /// The string gate; the check bits of the descriptor are set.
    String {
        desc: u32,
        rsi: bool,
        rdi: bool,
    },
    Vsib(VsibDesc),
    /// It cannot be rewritten.
    Refused(&'static str),
}

impl Decision {
    /// Whether nothing is inserted, and nothing said of it.
    pub fn is_quiet(&self) -> bool {
        match self {
            Decision::Nothing => true,
            Decision::Unchecked(reason) => !reason.is_cover(),
            _ => false,
        }
    }

    /// Whether something in front of the access decides whether it may go on.
    pub fn is_tested(&self) -> bool {
        matches!(self, Decision::Check(_) | Decision::CheckTwo(..) | Decision::String { .. } | Decision::Vsib(_))
    }

    /// The class that counts it.
    pub fn class(&self) -> Option<DecisionClass> {
        Some(match self {
            Decision::Nothing | Decision::Refused(_) => return None,
            Decision::Unchecked(reason) => match reason {
                Reason::Stack => DecisionClass::Stack,
                Reason::Global => DecisionClass::Global,
                Reason::Tls => DecisionClass::Tls,
                Reason::ImplicitStack => DecisionClass::ImplicitStack,
                Reason::Addr32 => DecisionClass::Addr32,
                Reason::NotRequested => DecisionClass::NotRequested,
                Reason::Merged | Reason::Dominated => DecisionClass::Merged,
                Reason::Strip => DecisionClass::Hoisted,
            },
            Decision::Check(p) if is_big(p) => DecisionClass::Range,
            Decision::Check(p) | Decision::CheckTwo(p, _) => DecisionClass::of_check(p.store),
            Decision::String { .. } => DecisionClass::String,
            Decision::Vsib(_) => DecisionClass::Lanes,
        })
    }
}

/// Whether the access takes a test of ranges: it is too large for one of tags, or only its address may be looked at.
pub fn is_big(p: &PlainAccess) -> bool {
    p.bytes > 64 || p.bytes == XSAVE_BYTES || p.gs
}

/// The decisions of a module.
#[derive(Debug, Default)]
pub struct Decisions {
    /// By instruction: its [`Number`].
    of: CompactIds,
    /// What the accesses alone ask for.
    pub distinct: Vec<Decision>,
}

/// What is decided for an instruction, in short: whether rsp is tested behind it; which cover leaves its check out; index into [`Decisions::distinct`].
#[derive(Clone, Copy, Debug)]
pub struct Number(u32);

/// The covers, by number.
const COVERS: [Option<Reason>; 4] = [None, Some(Reason::Merged), Some(Reason::Dominated), Some(Reason::Strip)];

impl Number {
    /// Whether rsp is tested behind the instruction.
    #[inline]
    pub fn tests_stack(self) -> bool {
        self.0 & 1 != 0
    }

    /// Why its check is left out, if it is.
    #[inline]
    pub fn cover(self) -> Option<Reason> {
        COVERS[(self.0 / 2 % 4) as usize]
    }

    /// Index into [`Decisions::distinct`].
    #[inline]
    pub fn ix(self) -> usize {
        (self.0 / 8) as usize
    }

    /// What is decided, from [`Decisions::distinct`].
    #[inline]
    pub fn decision(self, distinct: &[Decision]) -> Decision {
        self.cover().map_or_else(|| distinct[self.ix()], Decision::Unchecked)
    }
}

impl Decisions {
    /// With room for so many instructions.
    pub(super) fn with_capacity(count: usize) -> Decisions {
        Decisions { of: CompactIds::with_capacity(count), ..Decisions::default() }
    }

    /// The index of a decision; it gets one.
    pub(super) fn index(&mut self, decision: Decision) -> u32 {
        let known = self.distinct.iter().position(|d| *d == decision);
        known.unwrap_or_else(|| {
            self.distinct.push(decision);
            self.distinct.len() - 1
        }) as u32
    }

    /// Decides for the next instruction.
    #[inline]
    pub(super) fn push(&mut self, index: u32, tests_stack: bool) {
        self.of.push(8 * index + u32::from(tests_stack));
    }

    /// Leaves the check of an instruction out, because another one covers it.
    pub(super) fn leave_out(&mut self, id: InsnId, cover: Reason) {
        let cover = COVERS.iter().position(|c| *c == Some(cover)).expect("a cover") as u32;
        self.of.set(id.ix(), self.number(id).0 | cover << 1);
    }

    /// Lets the test of a load ask for the right to store.
    pub(super) fn ask_to_store(&mut self, id: InsnId) {
        if let Decision::Check(p) = self.get(id) {
            let index = self.index(Decision::Check(PlainAccess { store: true, ..p }));
            self.of.set(id.ix(), (8 * index) | u32::from(self.number(id).tests_stack()));
        }
    }

    /// Decides for an instruction what others say of it.
    pub fn take(&mut self, id: InsnId, from: &Decisions) {
        let index = self.index(from.get(id));
        self.of.set(id.ix(), 8 * index);
    }

    /// What is decided for an instruction, in short.
    #[inline]
    pub fn number(&self, id: InsnId) -> Number {
        Number(self.of.get(id.ix()))
    }

    /// What is decided for an instruction.
    pub fn get(&self, id: InsnId) -> Decision {
        self.number(id).decision(&self.distinct)
    }

    /// What its access alone asks for.
    pub fn asked(&self, id: InsnId) -> Decision {
        self.distinct[self.number(id).ix()]
    }
}

listed! {
    /// What became of an access, or what else was inserted: the classes that reports count.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
    #[serde(rename_all = "kebab-case")]
    #[repr(u8)]
    pub enum DecisionClass: name {
        // Accesses without a check of their own; see DESIGN.md for the proofs.
        Stack: "exempt: stack",
        Global: "exempt: global",
        Tls: "exempt: thread-local",
        ImplicitStack: "exempt: push, pop, call, ret",
        Addr32: "exempt: 32-bit address",
        NotRequested: "not asked for",
        /// Another check covers it.
        Merged: "merged into another check",
        /// Tests outside the loop, or at its head for several iterations, cover it.
        Hoisted: "checked for several iterations",
        // Accesses with a check in front.
        Load: "load, checked inline",
        Store: "store, checked inline",
        /// More than a block can hold: tested by range.
        Range: "large, checked by range",
        /// String instructions.
        String: "string instruction, by range",
        /// Gathers and scatters.
        Lanes: "gather or scatter",
        // Not accesses.
        /// A check that stands for accesses elsewhere.
        Apart: "checks for other places",
        Poll: "polls",
        /// Comparison of a loop's counter with the end of what has been tested, and what moves that end.
        Strip: "ends of what has been tested",
        /// Test of a stack pointer that was taken from something else.
        StackTest: "tests of the stack pointer",
    }
}

impl DecisionClass {
    /// That of a check with one tag test.
    pub fn of_check(store: bool) -> DecisionClass {
        if store { DecisionClass::Store } else { DecisionClass::Load }
    }

    /// Whether an access of the program stands behind it.
    pub fn is_access(self) -> bool {
        !matches!(self, DecisionClass::Apart | DecisionClass::Poll | DecisionClass::Strip | DecisionClass::StackTest)
    }

    /// Whether a check is executed.
    pub fn is_check(self) -> bool {
        matches!(
            self,
            DecisionClass::Load
                | DecisionClass::Store
                | DecisionClass::Range
                | DecisionClass::String
                | DecisionClass::Lanes
                | DecisionClass::Apart
        )
    }
}
