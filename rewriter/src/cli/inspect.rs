//! `blizzard inspect`: what a rewrite would do to a program, without doing it.
//!
//! Input: a program, options of a rewrite. Output: an [`Inspection`], or each decision, as text or JSON. **Invariant**: nothing is written.

use crate::base::error::{Error, Result};
use crate::base::learnt::{Knowledge, Object};
use crate::cli::shared::arguments::{ProgramFile, RewriteOptions};
use crate::cli::shared::input;
use crate::cli::shared::print::print;
use crate::plan::checks::PassCounts;
use crate::read::rewritten;
use crate::reports::decisions::{self, DecisionsReport, Totals};
use crate::reports::inspect::{self, AccessCounts, Inspection, word};
use crate::reports::learnt;
use crate::store::cache::Cache;
use crate::store::knowledge;
use clap::Args;
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Show a program's functions and accesses: what would be checked, what not and why, what is refused
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard inspect ./em3d\n  \
    blizzard inspect ./em3d --json > em3d.json    # each function, for programs\n  \
    blizzard inspect ./em3d --decisions --function main    # with reasons\n  \
    blizzard inspect ./em3d --learnt    # which accesses touch shared memory")]
pub struct InspectCommand {
    #[command(flatten)]
    input: ProgramFile,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// List each access, loop and entry: what was decided and why, and the registers, flags and bytes of each sequence
    #[arg(long)]
    decisions: bool,
    /// Only for this function: its name, plain or mangled, or an address in it
    #[arg(long, value_name = "F", requires = "decisions")]
    function: Option<String>,
    /// List the accesses that runs have learnt to touch shared memory, with functions, lines and faults: those of the cache, or of FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, conflicts_with = "decisions")]
    learnt: Option<Option<PathBuf>>,
    #[command(flatten)]
    options: RewriteOptions,
}

impl InspectCommand {
    /// Prints the inspection.
    pub fn execute(self) -> Result<ExitCode> {
        let input = input::read(&self.input.program)?;
        let (bytes, name) = (&input.bytes, &input.name);
        let options = &rewritten::fitting(bytes, self.options.options());
        let text = if let Some(file) = &self.learnt {
            let known = known(file.as_deref(), &input.bytes)?;
            let all = learnt::report(&known, &learnt::files(&input.path)?);
            if self.json { json(&all) } else { Ok(learnt::render(name, &all)) }
        } else if self.decisions {
            let report = decisions::decisions(bytes, name, options, self.function.as_deref());
            report.and_then(|report| if self.json { json(&report) } else { Ok(render_decisions(&report)) })
        } else {
            let inspection = inspect::inspect(bytes, name, options);
            inspection.and_then(|inspection| if self.json { json(&inspection) } else { Ok(render(&inspection)) })
        };
        input.bytes.expect_unchanged(&input.name)?;
        print(&text?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// What a file says, or the cache.
fn known(file: Option<&Path>, program: &[u8]) -> Result<Knowledge> {
    let Some(path) = file else { return Ok(knowledge::of_program(&Cache::of_user()?, Object::of(program))) };
    let text = fs::read(path).map_err(|e| Error::new(format!("{}: cannot be read", path.display())).because(e))?;
    Knowledge::parse(&String::from_utf8_lossy(&text), path)
}

fn json(report: &impl Serialize) -> Result<String> {
    let json = serde_json::to_string_pretty(report)
        .map_err(|e| Error::new("cannot write the inspection as JSON").because(e))?;
    Ok(json + "\n")
}

/// The decisions as text: sums, then a table for each function.
fn render_decisions(report: &DecisionsReport) -> String {
    let Totals { checked, gates, unchecked, refused, polls, strips, stack_tests, counters } = &report.totals;
    let mut out = format!(
        "{}: checked {checked}, by the runtime {gates}, unchecked {}, refused {refused}; polls {polls}, loops tested at once {strips}, \
         tests of rsp {stack_tests}, counters {counters}\n",
        report.program,
        unchecked.values().sum::<u64>(),
    );
    for function in &report.functions {
        let mut table = vec![
            ["address", "instruction", "point", "decision", "why", "bytes", "registers", "flags"].map(str::to_owned),
        ];
        for p in &function.points {
            let mut why = p.why.clone();
            p.covered_by.iter().for_each(|at| why += &format!(", at {at:#x}"));
            p.tests.iter().for_each(|t| why += &format!(", {} bytes from {}", t.bytes, t.displacement));
            let [mut bytes, mut registers, mut flags] = <[String; 3]>::default();
            if let Some(s) = &p.sequence {
                let used =
                    s.registers.iter().map(|r| if s.saved.contains(r) { format!("{r} (saved)") } else { r.clone() });
                bytes = format!("{}+{}", s.hot_bytes, s.cold_bytes);
                registers = used.collect::<Vec<_>>().join(" ");
                flags = word(&s.flags);
            }
            let instruction = p.instruction.clone();
            table.push([
                format!("{:#x}", p.address),
                instruction,
                word(&p.point),
                word(&p.decision),
                why,
                bytes,
                registers,
                flags,
            ]);
        }
        write!(out, "\n{}, {} bytes\n", function.name, function.bytes).expect("writing to a string cannot fail");
        let widths: [usize; 8] =
            std::array::from_fn(|k| table.iter().map(|row| row[k].chars().count()).max().unwrap_or(0));
        for row in &table {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
            out += format!("  {}", cells.collect::<Vec<_>>().join("  ")).trim_end();
            out.push('\n');
        }
    }
    out
}

/// The inspection as text: sums, a table of functions, refusals.
fn render(inspection: &Inspection) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    let AccessCounts { checked_loads, checked_stores, by_runtime, polls, exempt } = &inspection.accesses;
    line(format!(
        "{}: {} bytes of code, {} instructions, {} functions",
        inspection.program,
        inspection.code_bytes,
        inspection.instructions,
        inspection.functions.len()
    ));
    line(format!("  checked     {checked_loads} loads, {checked_stores} stores"));
    let PassCounts {
        merged,
        strips,
        stripped,
        copies,
        widened,
        dominated,
        chained,
        regions,
        given_back,
        polls_left_out,
        polls_recursive,
        polls_unknown,
        polls_moved,
    } = inspection.optimiser;
    line(format!(
        "  covered     {merged} merged, {dominated} dominated ({widened} widened for them); {chained} chained stubs, {regions} regions"
    ));
    line(format!(
        "  loops       {strips} test tags for several iterations, of {stripped} accesses; {copies} run in copies"
    ));
    if given_back > 0 {
        line(format!("  given back  {given_back} covered accesses that could not be followed"));
    }
    line(format!("  by runtime  {by_runtime} string instructions, gathers, scatters, state saves"));
    line(format!(
        "  polls       {polls}; {polls_left_out} left out, {polls_recursive} because of recursion, {polls_unknown} in front of unknown targets, {polls_moved} moved"
    ));
    line(format!("  exempt      {}", inspection.accesses.exempt_total()));
    for (class, count) in exempt {
        line(format!("    {class:<18} {count}"));
    }
    if inspection.refusals.is_empty() {
        line("  refused     nothing".into());
    } else {
        line(format!("  refused     {}", inspection.refusals.len()));
        for refusal in &inspection.refusals {
            line(format!("    {:#x} ({}): {}", refusal.address, refusal.place, refusal.reason));
        }
    }
    if !inspection.functions.is_empty() {
        line(String::new());
        line(row(["address", "bytes", "loads", "stores", "runtime", "polls", "exempt"].map(String::from), "function"));
    }
    for function in &inspection.functions {
        let a = &function.accesses;
        let counts = [function.bytes, a.checked_loads, a.checked_stores, a.by_runtime, a.polls, a.exempt_total()];
        let mut cells = vec![format!("{:#x}", function.address)];
        cells.extend(counts.iter().map(u64::to_string));
        line(row(cells, &function.name));
    }
    out
}

fn row(cells: impl IntoIterator<Item = String>, name: &str) -> String {
    let mut text = String::new();
    for (k, cell) in cells.into_iter().enumerate() {
        let width = if k == 0 { 10 } else { 8 };
        write!(text, "{cell:>width$}").expect("writing to a string cannot fail");
    }
    format!("{text}  {name}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reports::inspect::{FunctionReport, RefusalReport};
    use std::collections::BTreeMap;

    #[test]
    fn sums_functions_and_refusals_are_shown() {
        let accesses = AccessCounts {
            checked_loads: 3,
            checked_stores: 2,
            by_runtime: 1,
            polls: 4,
            exempt: BTreeMap::from([("stack".to_owned(), 7), ("tls".to_owned(), 1)]),
        };
        let function = FunctionReport {
            name: "main".into(),
            address: 0x1040,
            bytes: 99,
            instructions: 30,
            accesses: accesses.clone(),
        };
        let inspection = Inspection {
            program: "p".into(),
            code_bytes: 99,
            instructions: 30,
            functions: vec![function],
            accesses,
            optimiser: PassCounts {
                merged: 2,
                strips: 1,
                stripped: 2,
                copies: 1,
                widened: 5,
                dominated: 1,
                chained: 3,
                regions: 4,
                given_back: 0,
                polls_left_out: 5,
                polls_recursive: 1,
                polls_unknown: 1,
                polls_moved: 2,
            },
            refusals: vec![RefusalReport { address: 0x1050, place: "main+0x10".into(), reason: "unknown".into() }],
        };
        let expected = "\
p: 99 bytes of code, 30 instructions, 1 functions
  checked     3 loads, 2 stores
  covered     2 merged, 1 dominated (5 widened for them); 3 chained stubs, 4 regions
  loops       1 test tags for several iterations, of 2 accesses; 1 run in copies
  by runtime  1 string instructions, gathers, scatters, state saves
  polls       4; 5 left out, 1 because of recursion, 1 in front of unknown targets, 2 moved
  exempt      8
    stack              7
    tls                1
  refused     1
    0x1050 (main+0x10): unknown

   address   bytes   loads  stores runtime   polls  exempt  function
    0x1040      99       3       2       1       4       8  main
";
        assert_eq!(render(&inspection), expected);
    }
}
