//! `blizzard inspect`: what a rewrite would do to a program, without doing it.
//!
//! Input: a program, options of a rewrite. Output: an [`Inspection`] as text or JSON. **Invariant**: nothing is written.

use crate::base::error::{Error, Result};
use crate::cli::shared::arguments::{ProgramFile, RewriteOptions};
use crate::cli::shared::input;
use crate::cli::shared::print::print;
use crate::plan::checks::Counts;
use crate::reports::inspect::{self, Accesses, Inspection};
use clap::Args;
use std::fmt::Write;
use std::process::ExitCode;

/// Show a program's functions and accesses: what would be checked, what not and why, what is refused
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard inspect ./em3d\n  \
    blizzard inspect ./em3d --json > em3d.json    # each function, for programs")]
pub struct InspectCommand {
    #[command(flatten)]
    input: ProgramFile,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: RewriteOptions,
}

impl InspectCommand {
    /// Prints the inspection.
    pub fn execute(self) -> Result<ExitCode> {
        let input = input::read(&self.input.program)?;
        let inspection = inspect::inspect(&input.bytes, &input.name, &self.options.options());
        input.bytes.expect_unchanged(&input.name)?;
        let inspection = inspection?;
        let text = if self.json {
            let json = serde_json::to_string_pretty(&inspection)
                .map_err(|e| Error::new("cannot write the inspection as JSON").because(e))?;
            json + "\n"
        } else {
            render(&inspection)
        };
        print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The inspection as text: sums, a table of functions, refusals.
fn render(inspection: &Inspection) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    let Accesses { checked_loads, checked_stores, by_runtime, polls, exempt } = &inspection.accesses;
    line(format!(
        "{}: {} bytes of code, {} instructions, {} functions",
        inspection.program,
        inspection.code_bytes,
        inspection.instructions,
        inspection.functions.len()
    ));
    line(format!("  checked     {checked_loads} loads, {checked_stores} stores"));
    let Counts {
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
        let accesses = Accesses {
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
            optimiser: Counts {
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
