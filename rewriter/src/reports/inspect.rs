//! Analysed -> [`Inspection`]: what a rewrite would do, function by function, without writing anything.

use crate::base::error::Result;
use crate::base::options::{Options, Poll};
use crate::decode::insn::InsnId;
use crate::facts::conventions;
use crate::facts::liveness::Liveness;
use crate::facts::stack::StackRegs;
use crate::pipeline::{Analysed, analyse};
use crate::plan::decide::{self, Action, Exempt, is_big};
use crate::plan::{checks, passes};
use crate::reports::inspection::{Accesses, FunctionReport, Inspection, RefusalReport};

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
