//! Facts, Cfg -> [`Checks`]: which ordinary accesses are checked, how widely, and which another check covers.
//!
//! [`collect`] lists the accesses that are checked with one tag test each; the passes change the list, one file each, in this order:
//!
//! | pass | switch | what it does |
//! |---|---|---|
//! | [`polls`] | `--no-poll-placement` | polls only where every cycle has one |
//! | [`strips`] | `--no-strips` | a loop tests tags once for several iterations |
//! | [`copies`] | `--no-copies` | such tests lead into a copy of the loop without checks (part of `strips`) |
//! | [`merge`] | `--no-merge` | accesses near the same address in one basic block share the check of the first |
//! | [`ahead`] | `--no-ahead` | checks are widened to what is certainly accessed behind them, over branches, for the next pass |
//! | [`across`] | `--no-across` | a check that repeats what checks on every way here have tested is left out |
//! | [`keep`] | | finds for each covered access the checks it relies on, and what must be put right where they may be lost |
//!
//! Input: decoded instructions, graph, liveness. Output: the list that [`crate::write::new_code::emit`] follows, chains of ranges, claims, regions.
//!
//! **Invariants.** Tags change only where the runtime is entered. Between a covering check and what it covers there is no call, poll,
//! system call, breakpoint or other gate. There may be other checks: a miss there may give a block away that the covering check found
//! accessible, so its stub acquires all that is still relied upon, at once ([`blizzard_contract::GATE_GROUP`]). A check is made no wider
//! than accesses that are certainly executed when it is: nothing is acquired that the program might not touch.
//! Source: design section 5 (merged checks; restart the group).

use crate::base::options::{Options, Poll};
use crate::decode::insn::InsnId;
use crate::decode::insns::Insns;
use crate::facts::kinds::Facts;
use crate::facts::liveness::Liveness;
use crate::facts::stack::StackRegs;
use crate::graph::cfg::Cfg;
use crate::graph::computed::Computed;
use crate::plan::polls::{self, Polls};
use crate::plan::{across, ahead, collect, keep, merge, strips};
use crate::read::image::Image;
use blizzard_contract::GroupRange;
use serde::Serialize;

/// No register: as base or index of a [`Key`].
pub const NO_REG: u8 = 16;
/// Most bytes that one check covers: two blocks at most, each of them touched by an access.
pub const SPAN: i64 = 64;

/// Instructions back that registers are followed to see that they hold the same.
pub const ALIKE: usize = 64;

/// What an address is formed from, the displacement aside. Registers are numbers in encoding order; of two that count once each the lower one
/// is the base, so that a sum has one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    pub base: u8,
    pub index: u8,
    pub scale: u8,
}

impl Key {
    /// The key of an address that is formed so.
    pub fn new(base: u8, index: u8, scale: u8) -> Key {
        let scale = if index == NO_REG { 1 } else { scale };
        let (base, index) = if scale == 1 && index < base { (index, base) } else { (base, index) };
        Key { base, index, scale }
    }
}

/// Bytes relative to a [`Key`] at some place, and what may be done to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    pub key: Key,
    pub lo: i32,
    pub hi: i32,
    pub store: bool,
}

impl Range {
    /// Whether what allows `self` allows `other`.
    pub fn covers(&self, other: &Range) -> bool {
        self.key == other.key && self.lo <= other.lo && other.hi <= self.hi && (self.store || !other.store)
    }

    /// The same addresses in terms of the registers that `like` is named by, where those hold the same plus a constant: both are followed
    /// back through `steps`, which are in front of both, until their registers are the same.
    pub fn named_like<'s>(&self, like: &Range, steps: impl DoubleEndedIterator<Item = &'s Step>) -> Option<Range> {
        let (mut own, mut other) = (*self, *like);
        let mut steps = steps.rev().take(ALIKE);
        while own.key != other.key {
            let step = steps.next()?;
            (own, other) = (own.before(step)?, other.before(step)?);
        }
        let moved = |at: i32| at.checked_add(like.lo.checked_sub(other.lo)?);
        Some(Range { key: like.key, lo: moved(own.lo)?, hi: moved(own.hi)?, store: self.store })
    }

    /// The same addresses in front of an instruction, when `self` stands behind it. `None`: it changes a register in another way
    /// than by a constant.
    pub fn before(mut self, step: &Step) -> Option<Range> {
        let mut moved = 0i64;
        for (reg, scale) in [(&mut self.key.base, 1), (&mut self.key.index, i64::from(self.key.scale))] {
            if *reg == step.dst && *reg < NO_REG {
                *reg = step.src;
                moved += scale * i64::from(step.off);
            } else if step.writes(*reg) {
                return None;
            }
        }
        self.lo = i32::try_from(i64::from(self.lo) + moved).ok()?;
        self.hi = i32::try_from(i64::from(self.hi) + moved).ok()?;
        self.key = Key::new(self.key.base, self.key.index, self.key.scale);
        Some(self)
    }
}

/// What an instruction does to addresses and to what has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// General registers it may change.
    pub(super) written: u16,
    /// `dst = src + off`; 16: nothing of that kind.
    pub(super) dst: u8,
    pub(super) src: u8,
    pub(super) off: i32,
    /// Checks in front of it do not count for it, nor behind it.
    pub(super) kills: bool,
    /// It kills only because a poll stands in front of it.
    pub(super) only_polls: bool,
    /// No check counts behind it, its own included.
    pub(super) ends: bool,
}

impl Step {
    /// A bit for each register that is changed, or of which another one becomes a copy.
    #[inline]
    pub(super) fn touched(&self) -> u16 {
        self.written | if self.dst < NO_REG { 1 << self.src } else { 0 }
    }

    #[inline]
    pub(super) fn writes(&self, reg: u8) -> bool {
        reg < NO_REG && self.written >> reg & 1 != 0
    }
}

/// What has become of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
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
    pub key: Key,
    pub disp: i32,
    pub bytes: u8,
    /// What is asked for.
    pub load: bool,
    pub store: bool,
    /// Some of the bytes may not be touched: it neither covers nor is covered.
    pub masked: bool,
    /// Its sequence spills a register or saves flags: while there is one, no check in front of it counts behind it.
    pub unclean: bool,
    pub state: State,
    /// It is executed in a loop that counts on tests made earlier: a miss makes the loop test again.
    pub limit: Option<strips::Limit>,
}

impl Check {
    /// What the access touches.
    pub fn access(&self) -> Range {
        Range { key: self.key, lo: self.disp, hi: self.disp + i32::from(self.bytes), store: self.store }
    }

    /// Whether what was checked before it counts no more behind it.
    pub fn interrupts(&self) -> bool {
        self.unclean && matches!(self.state, State::Own { .. })
    }

    /// What the check, if there is one, proves.
    pub fn proves(&self) -> Option<Range> {
        match self.state {
            State::Own { lo, bytes, store, .. } if !self.masked => {
                Some(Range { key: self.key, lo, hi: lo + i32::from(bytes), store })
            }
            _ => None,
        }
    }
}

/// An access without a check of its own.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    pub id: InsnId,
    /// The access whose check covers it, when it is the same on all ways.
    pub cover: Option<InsnId>,
    /// [`blizzard_contract::claim_reason`].
    pub reason: u32,
}

/// A stretch of instructions that rely on checks behind them: from the beginning of `first` to that of `stop`.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    pub first: InsnId,
    pub stop: InsnId,
    /// First range of the chain.
    pub chain: u32,
}

/// How much each pass has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
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

/// The result: the accesses in order, and what follows from the decisions.
#[derive(Debug, Default)]
pub struct Checks {
    pub list: Vec<Check>,
    /// Chains of ranges; one ends where `more` is 0.
    pub ranges: Vec<GroupRange>,
    /// In the order of the instructions.
    pub claims: Vec<Claim>,
    pub regions: Vec<Region>,
    /// In the order of the instructions.
    pub strips: Vec<strips::Strip>,
    pub polls: Polls,
    pub counts: Counts,
    /// What is left of it for emission.
    pub fuel: Fuel,
}

/// Everything the passes read.
pub struct Input<'x, 'a> {
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
pub struct Fuel(Option<u64>);

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

/// Runs all passes.
pub fn run(input: &Input) -> Checks {
    let options = input.options;
    let mut fuel = Fuel(options.fuel);
    let mut counts = Counts::default();
    let polls =
        if options.poll == Poll::Backedge { polls::place(input, &mut fuel, &mut counts) } else { Polls::default() };
    let checks = options.checks.loads() || options.checks.stores();
    if !checks || !options.merge && !options.across && !options.strips {
        return Checks { polls, counts, fuel, ..Checks::default() };
    }
    let mut code = collect::collect(input, &polls);
    input.image.give_back();
    let strips = if options.strips { strips::run(input, &mut code, &mut fuel) } else { Vec::new() };
    if options.merge {
        counts.merged = merge::run(input.cfg, &mut code, &mut fuel);
    }
    if options.across {
        let widened = if options.ahead { ahead::run(input.cfg, &mut code) } else { Vec::new() };
        let briefs = across::Briefs::of(input.cfg, &code);
        counts.dominated = across::run(input.cfg, &mut code, &briefs, &mut fuel);
        if !widened.is_empty() {
            counts.widened = ahead::narrow(input.cfg, &mut code, &widened);
            // One whose own accesses are known was kept for what turned out to be of no use.
            counts.dominated += across::run(input.cfg, &mut code, &briefs, &mut fuel);
        }
    }
    Checks { polls, fuel, ..keep::run(input.cfg, code, strips, counts) }
}
