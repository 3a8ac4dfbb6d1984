//! `blizzard bench`: what the runtime's mechanisms cost, each as a ratio to a floor measured in the same run.
//!
//! Input: what to measure. Output: a report as a table or JSON.
//!
//! Two nodes, pinned to a processor each, run an embedded program (`bench-apps/workload/bench.c`, `messages.c`), which measures figures and floors in
//! turn, batch by batch. This module starts it and collects what it has measured; [`plans`] says what that is, [`crate::cli::bench::report`] takes medians and
//! quartiles over all batches and prints them. Steps are measured in a run of their own with the runtime that has instruments, because
//! the time stamps take time. [`instructions`] counts instead of measuring time.

use crate::base::error::{Error, Result};
use crate::base::options::{AccessMode, Options};
use crate::cli::bench::instructions;
use crate::cli::bench::plans::{self, BenchPlan};
use crate::cli::bench::report::{BenchReport, Samples};
use crate::cli::shared::arguments::whole;
use crate::cli::shared::print::print;
use crate::cli::shared::scratch;
use crate::cli::shared::workload::{self, Ending};
use crate::write::runtime_blob::Blob;
use blizzard_contract as contract;
use clap::{Args, Subcommand};
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// A run that takes longer stands still.
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// Measure the runtime's mechanisms against the speed of the machine
///
/// Two nodes run on two processors. Each figure is the median over many batches, in nanoseconds and as a ratio to a floor that was measured in the
/// same run, in turn with it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard bench miss\n  \
    blizzard bench miss --instructions\n  \
    blizzard bench am --runs 5\n  \
    blizzard bench bulk --json")]
pub struct BenchCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Copy, Args)]
struct BenchOptions {
    /// Number of runs; the median is over the batches of all of them
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = whole::<u32>(1..=u32::MAX.into()))]
    runs: u32,
    /// Batches in each run
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = whole::<u32>(1..=u32::MAX.into()))]
    batches: u32,
    /// How an access to shared memory that must wait is stopped
    #[arg(long, value_name = "HOW", value_enum, default_value = "tests")]
    access: AccessMode,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, Args)]
struct MissOptions {
    #[command(flatten)]
    bench: BenchOptions,
    /// Count the instructions of a miss at each node instead, exactly, by single steps of three nodes
    #[arg(long, conflicts_with_all = ["runs", "batches", "access"])]
    instructions: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum What {
    /// Read miss, write miss and upgrade of a block of the other node, whatever that node does meanwhile; the steps of a read miss
    Miss(MissOptions),
    /// Messages of tempest.h: request and reply, its steps, and a stream of messages without reply
    Am(BenchOptions),
    /// Bulk channels of tempest.h, 4 KiB to 4 MiB, next to a plain copy of the other process's memory
    Bulk(BenchOptions),
    /// Stores of two nodes to neighbouring blocks of one page
    FalseSharing(BenchOptions),
}

impl What {
    fn plan(self) -> (BenchPlan, BenchOptions) {
        match self {
            What::Miss(MissOptions { bench, .. }) => (plans::miss(), bench),
            What::Am(options) => (plans::messages(), options),
            What::Bulk(options) => (plans::bulk(), options),
            What::FalseSharing(options) => (plans::false_sharing(), options),
        }
    }
}

impl BenchCommand {
    /// Measures and prints.
    pub fn execute(self) -> Result<ExitCode> {
        let folder = scratch::folder("bench")?;
        if let What::Miss(MissOptions { bench: BenchOptions { json, .. }, instructions: true }) = self.what {
            let report = instructions::count(folder.path())?;
            print(&if json { as_json(&report) } else { report.in_words() })?;
            return Ok(ExitCode::SUCCESS);
        }
        let processors = two_processors()?;
        let (plan, options) = self.what.plan();
        let samples = measure(folder.path(), &plan, options, processors, &Blob::of(options.access)?, None)?;
        let stepped = match plan.steps {
            None => None,
            Some(_) => {
                let at = contract::INSTRUMENTS + 8 * contract::instrument::STEPS as u64;
                Some(measure(
                    folder.path(),
                    &plan,
                    options,
                    processors,
                    &Blob::with_instruments(options.access)?,
                    Some(at),
                )?)
            }
        };
        let report = BenchReport::new(&plan, (options.runs, options.batches), processors, &samples, stepped.as_ref())?;
        print(&if options.json { as_json(&report) } else { report.in_words() })?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The object that `--json` asks for.
fn as_json(report: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(report).expect("numbers and texts can be written as JSON") + "\n"
}

/// The first two processors that this process may run on.
fn two_processors() -> Result<[usize; 2]> {
    let set = rustix::thread::sched_getaffinity(None)
        .map_err(|e| Error::new("cannot find out which processors there are").because(e))?;
    let mut all = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    match (all.next(), all.next()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(Error::new("the measurements need two processors, and this process may use only one")),
    }
}

/// Runs the program as often as asked for, and collects what it has measured.
fn measure(
    folder: &Path,
    plan: &BenchPlan,
    options: BenchOptions,
    processors: [usize; 2],
    blob: &Blob,
    steps: Option<u64>,
) -> Result<Samples> {
    let asked = Options { access: options.access, ..Options::default() };
    let program = plan.program.rewrite(folder, "bench", asked, blob)?;
    let mut samples = Samples::default();
    for run in 0..options.runs {
        let results = folder.join(format!("results-{run}"));
        let mut arguments: Vec<OsString> = vec![
            format!("what={}", plan.name).into(),
            format!("batches={}", options.batches).into(),
            format!("processor0={}", processors[0]).into(),
            format!("processor1={}", processors[1]).into(),
        ];
        arguments.extend(steps.map(|at| OsString::from(format!("steps={at}"))));
        for (name, path) in [("raw=", folder.join("raw")), ("results=", results.clone())] {
            let mut argument = OsString::from(name);
            argument.push(path);
            arguments.push(argument);
        }
        // Each batch misses the same blocks in the same order.
        let options = ["-n", "2", "--look-ahead", "0"].map(OsString::from);
        let finished = workload::run(&program, &options, &arguments, RUN_LIMIT)?;
        if !finished.succeeded() {
            let how = match finished.ending {
                Ending::Ended(status) => status.to_string(),
                Ending::StillRunning => format!("it did not end within {} s", RUN_LIMIT.as_secs()),
            };
            return Err(Error::new("the measuring program failed").because(how).because(finished.errors.trim()));
        }
        // The next run's processes map a fresh page.
        let _ = fs::remove_file(folder.join("raw"));
        for node in 0..2 {
            let path = folder.join(format!("results-{run}-{node}"));
            let text = fs::read_to_string(&path).map_err(|e| Error::new("cannot read the results").because(e))?;
            samples.add(&text)?;
        }
    }
    Ok(samples)
}
