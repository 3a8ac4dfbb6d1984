//! Analysed -> [`Inspection`]: what a rewrite would do, function by function, without writing anything.
//!
//! Input: a program. Output: data only; the command line renders it.

use crate::base::error::Result;
use crate::base::options::Options;
use crate::decode::insn::InsnId;
use crate::pipeline::analyse;
use crate::plan::checks::PassCounts;
use crate::plan::decision::{Decision, is_big};
use serde::Serialize;
use std::collections::BTreeMap;

/// Analyses `input` and counts.
///
/// # Errors
/// What is wrong with the file as a whole; refused instructions are part of the result.
pub fn inspect(input: &[u8], name: &str, options: &Options) -> Result<Inspection> {
    let analysed = analyse(input, name)?;
    let registers = analysed.registers(true, false);
    let plan = analysed.plan(&registers, options);
    let (insns, cfg) = (&analysed.insns, &analysed.cfg);
    let mut out = Inspection {
        optimiser: plan.counts,
        program: name.to_owned(),
        instructions: insns.len() as u64,
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
        let asked = plan.decisions.asked(id);
        count(&asked, &mut function.accesses);
        if let Decision::Refused(reason) = asked {
            let (address, place) = (insns.va(id).0, analysed.image.place(insns.va(id)));
            out.refusals.push(RefusalReport { address, place, reason: reason.to_owned() });
        }
        if plan.polls.of(cfg.block_of(id)) == Some(id) {
            function.accesses.polls += 1;
        }
        out.code_bytes += bytes;
    }
    for f in &out.functions {
        out.accesses.add(&f.accesses);
    }
    Ok(out)
}

fn count(asked: &Decision, into: &mut AccessCounts) {
    match asked {
        Decision::Nothing | Decision::Refused(_) => {}
        Decision::Unchecked(why) => {
            *into.exempt.entry(word(why)).or_default() += 1;
        }
        // What the passes cover is counted for the whole program.
        Decision::Check(p) if is_big(p) => into.by_runtime += 1,
        Decision::Check(p) if p.store => into.checked_stores += 1,
        Decision::Check(_) => into.checked_loads += 1,
        Decision::CheckTwo(..) => {
            into.checked_loads += 1;
            into.checked_stores += 1;
        }
        Decision::String { .. } | Decision::Vsib(_) => into.by_runtime += 1,
    }
}

/// A value as the JSON form names it.
pub fn word(value: &impl Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
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
    pub accesses: AccessCounts,
    /// What the optimiser's passes do: of the checked accesses, so many are covered by other checks.
    pub optimiser: PassCounts,
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
    pub accesses: AccessCounts,
}

/// Counts of memory accesses and of what the rewrite does about them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AccessCounts {
    pub checked_loads: u64,
    /// Read-modify-writes included.
    pub checked_stores: u64,
    /// String instructions, gathers, scatters and state saves: tested by range, performed or prepared by the runtime.
    pub by_runtime: u64,
    pub polls: u64,
    /// Unchecked accesses by the class that proves them private (`DESIGN.md`, exempt accesses).
    pub exempt: BTreeMap<String, u64>,
}

/// A refusal, for output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RefusalReport {
    pub address: u64,
    pub place: String,
    pub reason: String,
}

impl AccessCounts {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &AccessCounts) {
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
