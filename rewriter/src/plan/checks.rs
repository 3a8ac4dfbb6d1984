//! The plan: what is decided for each instruction, how widely checks test, what covered accesses rely on, and where polls stand.
//!
//! Input: what the passes decide ([`crate::plan::passes`]). Output: [`CheckPlan`], which the emission and reports follow. **Invariant**: an access has a check of
//! its own, or a claim that says which checks cover it.

use crate::base::collections::ranked_bits::RankedBits;
use crate::base::options::Options;
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::facts::held::StackRegs;
use crate::facts::kinds::Facts;
use crate::facts::liveness::Liveness;
use crate::graph::cfg::{BlockId, Cfg};
use crate::graph::computed_targets::Computed;
use crate::plan::decision::Decisions;
use crate::plan::loop_tests;
use crate::plan::ranges::{AddressKey, Range};
use crate::read::image::Image;
use blizzard_contract::GroupRange;
use serde::Serialize;

/// What has become of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckState {
    /// It tests `bytes` from displacement `lo` on. `chain`: first range of what a miss acquires, when that is more than its own.
    Own { lo: i32, bytes: u8, load: bool, store: bool, chain: Option<u32> },
    /// Left out: that of the access with this index covers it.
    Merged(u32),
    /// Left out: checks on every way here cover it.
    Dominated,
    /// Left out: the tests of this strip cover it.
    Strip(u32),
}

/// An access that is checked with one tag test, unless a pass decides otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub id: InsnId,
    pub key: AddressKey,
    pub disp: i32,
    pub bytes: u8,
    /// What is asked for.
    pub load: bool,
    pub store: bool,
    /// Some of the bytes may not be touched: it neither covers nor is covered.
    pub masked: bool,
    /// Its sequence spills a register or saves flags: while there is one, no check in front of it counts behind it.
    pub unclean: bool,
    pub state: CheckState,
    /// It is executed in a loop that counts on tests made earlier: a miss makes the loop test again.
    pub limit: Option<loop_tests::Limit>,
}

impl Check {
    /// What the access touches.
    pub fn access(&self) -> Range {
        Range { key: self.key, lo: self.disp, hi: self.disp + i32::from(self.bytes), store: self.store }
    }

    /// Whether what was checked before it counts no more behind it.
    pub fn interrupts(&self) -> bool {
        self.unclean && matches!(self.state, CheckState::Own { .. })
    }

    /// What the check, if there is one, proves.
    pub fn proves(&self) -> Option<Range> {
        match self.state {
            CheckState::Own { lo, bytes, store, .. } if !self.masked => {
                Some(Range { key: self.key, lo, hi: lo + i32::from(bytes), store })
            }
            _ => None,
        }
    }
}

/// An access without a check of its own.
#[derive(Clone, Copy, Debug)]
pub struct PlannedClaim {
    pub id: InsnId,
    /// The access whose check covers it, when it is the same on all ways.
    pub cover: Option<InsnId>,
    /// [`blizzard_contract::claim_reason`].
    pub reason: u32,
}

/// A stretch of instructions that rely on checks behind them: from the beginning of `first` to that of `stop`.
#[derive(Clone, Copy, Debug)]
pub struct PlannedRegion {
    pub first: InsnId,
    pub stop: InsnId,
    /// First range of the chain.
    pub chain: u32,
}

/// How much each pass has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PassCounts {
    /// Accesses whose check was merged into another one of their basic block.
    pub merged: u64,
    /// Loops that test tags once for several iterations, and accesses that those tests cover.
    pub strips: u64,
    pub stripped: u64,
    /// Of those loops, the ones with a copy in which nothing is checked.
    pub copies: u64,
    /// Checks widened to what is certainly accessed behind them.
    pub widened: u64,
    /// Checks left out because checks on every way have tested the same.
    pub dominated: u64,
    /// Checks whose stub acquires more than their own range.
    pub chained: u64,
    pub regions: u64,
    /// Covered accesses that got their checks back, because what they rely on could not be followed.
    pub given_back: u64,
    /// Targets of backward branches without a poll, because no cycle needs it.
    pub polls_left_out: u64,
    /// Polls at entries of functions, because of recursion.
    pub polls_recursive: u64,
    /// Polls in front of calls and jumps of unknown target.
    pub polls_unknown: u64,
    /// Polls that stand where no flags need be saved, and not at their block's beginning or in front of its jump.
    pub polls_moved: u64,
}

/// A check that tests other bytes than its access alone asks for, acquires more, or that claims name.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    pub id: InsnId,
    /// It tests `bytes` from displacement `lo` on.
    pub lo: i32,
    pub bytes: u8,
    pub load: bool,
    pub store: bool,
    /// A miss takes this limit back.
    pub limit: Option<loop_tests::Limit>,
    /// A claim names it.
    pub named: bool,
    /// First range of what a miss acquires, its own included; `None`: its own alone.
    pub chain: Option<u32>,
}

/// The result: the decisions, and what follows from them.
#[derive(Debug, Default)]
pub struct CheckPlan {
    pub decisions: Decisions,
    /// In the order of the instructions.
    pub checks: Vec<Planned>,
    /// Chains of ranges; one ends where `more` is 0.
    pub ranges: Vec<GroupRange>,
    /// In the order of the instructions.
    pub claims: Vec<PlannedClaim>,
    pub regions: Vec<PlannedRegion>,
    /// In the order of the instructions.
    pub strips: Vec<loop_tests::Strip>,
    pub polls: Polls,
    pub counts: PassCounts,
    /// What is left of it for emission.
    pub fuel: Fuel,
}

/// Everything the passes read.
pub struct PassInput<'x, 'a> {
    pub image: &'x Image<'a>,
    pub insns: &'x Insns,
    pub cfg: &'x Cfg,
    pub computed: &'x Computed,
    pub facts: &'x Facts,
    pub stack: &'x StackRegs,
    pub live: &'x Liveness,
    pub options: &'x Options,
}

/// How many transformations the passes may still make (`--fuel`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Fuel(pub(super) Option<u64>);

impl Fuel {
    /// Whether one more is allowed; uses it up.
    pub fn take(&mut self) -> bool {
        match &mut self.0 {
            None => true,
            Some(left) => {
                let any = *left > 0;
                *left = left.saturating_sub(1);
                any
            }
        }
    }
}

/// Why a poll stands in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PollReason {
    /// It is the head of a loop.
    Loop,
    /// What ends it may lead anywhere.
    UnknownTarget,
    /// Functions call each other in a circle.
    Recursion,
}

/// Where the polls are.
#[derive(Debug, Default)]
pub struct Polls {
    /// The blocks that have one.
    pub(super) blocks: RankedBits,
    /// Of each of them: the instruction that the poll stands in front of, and why.
    pub(super) at: Vec<(InsnId, PollReason)>,
}

impl Polls {
    /// The instruction of a block that a poll stands in front of.
    #[inline]
    pub fn of(&self, b: BlockId) -> Option<InsnId> {
        self.get(b).map(|poll| poll.0)
    }

    /// The same, and why it polls.
    #[inline]
    pub fn get(&self, b: BlockId) -> Option<(InsnId, PollReason)> {
        self.blocks.contains(b.ix()).then(|| self.at[self.blocks.before(b.ix()) as usize])
    }
}
