//! Analysed -> [`Inspection`]: what a rewrite would do, function by function, without writing anything.
//!
//! Input: a program. Output: data only; the command line renders it.

use crate::base::error::{Refusal, Result};
use crate::base::options::{Options, Poll};
use crate::decode::insn::InsnId;
use crate::facts::conventions;
use crate::facts::liveness::Liveness;
use crate::facts::stack::StackRegs;
use crate::pipeline::{Analysed, analyse};
use crate::plan::checks::{self, Counts};
use crate::plan::decide::{self, Action, Exempt, is_big};
use crate::plan::passes;
use serde::Serialize;
use std::collections::BTreeMap;

/// Analyses `input` and counts.
///
/// # Errors
/// What is wrong with the file as a whole; refused instructions are part of the result.
pub fn inspect(input: &[u8], name: &str, options: &Options) -> Result<Inspection> {
    let analysed = analyse(input, name)?;
    let Analysed { image, insns, cfg, facts, .. } = &analysed;
    let stack = &StackRegs::solve(cfg, facts, &analysed.computed);
    let plan = decide::decide(image, insns, cfg, facts, stack, options);
    let conventions = conventions::find(image, insns, cfg, facts, &analysed.frames);
    let live = Liveness::solve(cfg, facts, &conventions);
    let computed = &analysed.computed;
    let checks = passes::run(&checks::Input { image, insns, cfg, computed, facts, stack, live: &live, options });
    let mut out = Inspection {
        optimiser: checks.counts,
        program: name.to_owned(),
        instructions: analysed.insns.len() as u64,
        refusals: plan.refusals.iter().map(RefusalReport::from).collect(),
        ..Inspection::default()
    };
    for i in 0..analysed.insns.len() as u32 {
        let id = InsnId(i);
        let bytes = u64::from(analysed.insns.length(id));
        if out.functions.is_empty() || analysed.insns.starts.binary_search(&id).is_ok() {
            let address = analysed.insns.va(id);
            let place = analysed.image.place(address);
            let name = place.strip_suffix("+0x0").map_or(place.clone(), str::to_owned);
            out.functions.push(FunctionReport { name, address: address.0, ..FunctionReport::default() });
        }
        let function = out.functions.last_mut().expect("pushed above");
        function.bytes += bytes;
        function.instructions += 1;
        count(&plan.actions[id.ix()], &mut function.accesses);
        if options.poll == Poll::Backedge && checks.polls.of(cfg.block_of(id)) == Some(id) {
            function.accesses.polls += 1;
        }
        out.code_bytes += bytes;
    }
    for f in &out.functions {
        out.accesses.add(&f.accesses);
    }
    Ok(out)
}

fn count(action: &Action, into: &mut Accesses) {
    let mut exempt = |why: Exempt| {
        let class = serde_json::to_value(why).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
        *into.exempt.entry(class).or_default() += 1;
    };
    match action {
        // What the passes cover is counted for the whole program.
        Action::Nothing | Action::Covered => {}
        Action::Exempt(why) => exempt(*why),
        Action::Check(p) if is_big(p) => into.by_runtime += 1,
        Action::Check(p) if p.store => into.checked_stores += 1,
        Action::Check(_) => into.checked_loads += 1,
        Action::CheckTwo(..) => {
            into.checked_loads += 1;
            into.checked_stores += 1;
        }
        Action::String { .. } | Action::Vsib(_) => into.by_runtime += 1,
    }
}

/// A program as the rewriter sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Inspection {
    pub program: String,
    /// Bytes decoded as code.
    pub code_bytes: u64,
    pub instructions: u64,
    /// In the order of their addresses.
    pub functions: Vec<FunctionReport>,
    /// Sums over all functions.
    pub accesses: Accesses,
    /// What the optimiser's passes do: of the checked accesses, so many are covered by other checks.
    pub optimiser: Counts,
    /// What keeps the program from being rewritten.
    pub refusals: Vec<RefusalReport>,
}

/// One function, or a stretch of code that no symbol names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct FunctionReport {
    pub name: String,
    /// Link-time address.
    pub address: u64,
    pub bytes: u64,
    pub instructions: u64,
    pub accesses: Accesses,
}

/// Counts of memory accesses and of what the rewrite does about them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Accesses {
    pub checked_loads: u64,
    /// Read-modify-writes included.
    pub checked_stores: u64,
    /// String instructions, gathers, scatters and state saves: tested by range, performed or prepared by the runtime.
    pub by_runtime: u64,
    pub polls: u64,
    /// Unchecked accesses by the class that proves them private (`DESIGN.md`, exempt accesses).
    pub exempt: BTreeMap<String, u64>,
}

/// A [`Refusal`], for output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusalReport {
    pub address: u64,
    pub place: String,
    pub reason: String,
}

impl From<&Refusal> for RefusalReport {
    fn from(refusal: &Refusal) -> Self {
        RefusalReport { address: refusal.at.0, place: refusal.place.clone(), reason: refusal.reason.clone() }
    }
}

impl Accesses {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Accesses) {
        self.checked_loads += other.checked_loads;
        self.checked_stores += other.checked_stores;
        self.by_runtime += other.by_runtime;
        self.polls += other.polls;
        for (class, count) in &other.exempt {
            *self.exempt.entry(class.clone()).or_default() += count;
        }
    }

    /// All exempt accesses.
    pub fn exempt_total(&self) -> u64 {
        self.exempt.values().sum()
    }
}
