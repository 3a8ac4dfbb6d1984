//! What is inserted where, and why: decisions as data.
//!
//! Facts, graph -> [`checks::CheckPlan`]. [`decide`] decides for every instruction ([`decision::Decision`]): its access is checked, and how, or it is not, and
//! why. The passes leave checks out and widen others. Nobody behind the plan decides again.
//!
//! [`collect`] lists the accesses that are checked with one tag test each; the passes change the list, one file each, in this order:
//!
//! | pass | switch | what it does | why here |
//! |---|---|---|---|
//! | [`polls`] | `--no-poll-placement` | polls only where every cycle has one | before the list is made: a poll ends what checks in front of it cover |
//! | [`strips`] | `--no-strips` | a loop tests tags once for several iterations | first on the list: what it covers needs no check to be shared |
//! | [`copies`] | `--no-copies` | such tests lead into a copy of the loop without checks | part of `strips` |
//! | [`merge`] | `--no-merge` | accesses near the same address in one basic block share the check of the first | leaves fewer checks to the passes over branches |
//! | [`ahead`] | `--no-ahead` | checks are widened to what is certainly accessed behind them, over branches | for the next pass alone |
//! | [`across`] | `--no-across` | a check that repeats what checks on every way here have tested is left out | behind all that widens checks |
//! | [`covered`] | | finds for each covered access the checks it relies on, and what must be put right where they may be lost | last: nothing may change the list any more |
//!
//! Input: decoded instructions, graph, liveness. Output: the list that [`crate::write::new_code::emit`] follows, chains of ranges, claims, regions.
//!
//! **Invariants.** Tags change only where the runtime is entered. Between a covering check and what it covers there is no call, poll,
//! system call, breakpoint or other gate. There may be other checks: a miss there may give a block away that the covering check found
//! accessible, so its stub acquires all that is still relied upon, at once ([`blizzard_contract::GATE_GROUP`]). A check is made no wider
//! than accesses that are certainly executed when it is: nothing is acquired that the program might not touch.
//! Source: design section 5 (merged checks; restart the group).

pub(crate) mod decision;

pub(crate) mod ranges;

pub(crate) mod loop_tests;

pub(crate) mod checks;

pub(crate) mod decide;

pub(crate) mod polls;

pub(crate) mod collect;

pub(crate) mod covered;

pub(crate) mod copies;

pub(crate) mod strips;

pub(crate) mod merge;

pub(crate) mod ahead;

pub(crate) mod across;

pub(crate) mod passes;
