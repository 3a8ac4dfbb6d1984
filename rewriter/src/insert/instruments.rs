//! The instruments: everything that is inserted into a program, each by the same way from the plan to the recorder.
//!
//! | instrument | decided by | where it stands | what it uses | `verify` finds it in |
//! |---|---|---|---|---|
//! | check | [`crate::plan::decide`], the passes | in front of the access | dead registers, or saved ones; flags | `sites/find.rs` |
//! | poll | [`crate::plan::polls`] | in its block, where flags are dead, if anywhere | flags | `judge/code/polls.rs` |
//! | strip | [`crate::plan::strips`] | at the loop's head; its tests are cold | a register; dead flags | `sites/strips.rs` |
//! | counter | `--count-blocks` | in front of a block's first instruction | flags | `sites/find.rs` |
//! | stack test | [`crate::facts::rsp`] | behind what makes rsp | flags | `sites/stack_test.rs` |
//!
//! Flags that are live are saved. Nothing that enters the runtime may come between a check and what it covers: [`crate::plan::collect`] lets polls,
//! strips, gates and stack tests end that.
//!
//! Counters of executed checks and polls (`--count`) are part of their sequences ([`crate::insert::site::count`]).
//!
//! Input: a [`Site`] and what is planned for it. Output: bytes in the hot and the cold buffer of [`EmittedCode`]; the recorder knows of each.

use crate::insert::block_recorder::SequencePlace;
use crate::insert::code::EmittedCode;
use crate::insert::site::{Done, Site};
use crate::insert::{guard, polls, sequences, stack_test};
use crate::plan::decision::{Decision, DecisionClass};

/// What is inserted at an instruction. (A strip is inserted in two pieces: [`crate::insert::strip`].)
#[derive(Clone, Copy, Debug)]
pub enum Instrument {
    /// Counts a block of so many instructions.
    Counter {
        insns: u32,
    },
    Poll,
    Check(Decision),
    StackTest,
}

/// Emits an instrument.
///
/// # Errors
/// Why the instruction cannot be rewritten.
pub fn insert(code: &mut EmittedCode, site: &Site, instrument: Instrument) -> Done {
    let (hot, cold, screens) = (code.hot.pos(), code.cold.pos(), code.sites.screens);
    match instrument {
        Instrument::Counter { insns } => {
            if let Some(counter) = code.recorder.begin(site.program(), insns) {
                polls::count_block(code, site, counter);
            }
        }
        Instrument::Poll => polls::poll(code, site),
        Instrument::Check(decision) if site.plain.is_some() => guard::check(code, site, &decision)?,
        Instrument::Check(decision) => sequences::check(code, site, &decision)?,
        Instrument::StackTest => stack_test::insert(code, site),
    }
    if !code.recorder.is_on() {
        return Ok(());
    }
    let inserted = code.inserted(hot);
    let place = SequencePlace {
        live: site.live,
        screened: code.sites.screens > screens,
        hot: hot..code.hot.pos(),
        cold: cold..code.cold.pos(),
    };
    let mut mark = |class, inserted, place| code.recorder.mark_at(site.program(), class, inserted, place);
    match instrument {
        Instrument::Counter { .. } => code.recorder.counter_at(site.program(), place),
        Instrument::Poll => mark(DecisionClass::Poll, inserted, place),
        Instrument::StackTest => mark(DecisionClass::StackTest, inserted, place),
        Instrument::Check(Decision::CheckTwo(a, b)) => {
            mark(DecisionClass::of_check(a.store), inserted - inserted / 2, place);
            mark(DecisionClass::of_check(b.store), inserted / 2, SequencePlace::default());
        }
        Instrument::Check(decision) => {
            decision.class().into_iter().for_each(|class| mark(class, inserted, place.clone()))
        }
    }
    Ok(())
}
