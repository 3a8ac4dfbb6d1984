//! `blizzard bench`: what the runtime's mechanisms cost, each as a ratio to a floor measured in the same run.
//!
//! Input: what to measure. Output: a report as a table or JSON.
//!
//! Two nodes, pinned to a processor each or on a host each, run an embedded program (`bench-apps/workload/bench.c`, `messages.c`), which measures figures and floors in
//! turn, batch by batch. This module starts it and collects what it has measured; [`plans`] says what that is, [`crate::cli::bench::report`] takes medians and
//! quartiles over all batches and prints them. Steps are measured in a run of their own with the runtime that has instruments, because
//! the time stamps take time. [`instructions`] counts instead of measuring time.

use crate::base::error::{Error, Result};
use crate::base::options::{AccessMode, Options};
use crate::cli::bench::instructions;
use crate::cli::bench::plans::{self, BenchPlan, Distance};
use crate::cli::bench::report::{BenchPlace, BenchReport, Samples};
use crate::cli::shared::arguments::whole;
use crate::cli::shared::hosts::{HostsOptions, RunPlace};
use crate::cli::shared::print::{misuse, print};
use crate::cli::shared::scratch;
use crate::cli::shared::workload::{Ending, WorkloadRun};
use crate::write::runtime_blob::Blob;
use blizzard_contract as contract;
use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// A run that takes longer stands still; one on two hosts, whatever the network.
const RUN_LIMIT: Duration = Duration::from_secs(300);
const FAR_LIMIT: Duration = Duration::from_secs(3600);

/// Measure the runtime's mechanisms against the speed of the machine
///
/// Two nodes run on two processors, or on two hosts. Each figure is the median over many batches, in nanoseconds and as a ratio to a floor that was measured in the
/// same run, in turn with it. On two hosts floors are what TCP takes between them, and there are no steps.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard bench miss\n  \
    blizzard bench miss --instructions\n  \
    blizzard bench am --runs 5\n  \
    blizzard bench am --hosts a,b\n  \
    blizzard bench bulk --json")]
pub struct BenchCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Args)]
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
    #[command(flatten)]
    hosts: HostsOptions,
}

#[derive(Debug, Clone, Args)]
struct MissOptions {
    #[command(flatten)]
    bench: BenchOptions,
    /// Count the instructions of a miss at each node instead, exactly, by single steps of three nodes
    #[arg(long, conflicts_with_all = ["runs", "batches", "access", "hosts", "hostfile"])]
    instructions: bool,
}

#[derive(Debug, Clone, Subcommand)]
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
    fn options(&self) -> &BenchOptions {
        match self {
            What::Miss(MissOptions { bench, .. }) => bench,
            What::Am(options) | What::Bulk(options) | What::FalseSharing(options) => options,
        }
    }

    fn plan(&self, distance: Distance) -> BenchPlan {
        match self {
            What::Miss(_) => plans::miss(distance),
            What::Am(_) => plans::messages(distance),
            What::Bulk(_) => plans::bulk(distance),
            What::FalseSharing(_) => plans::false_sharing(),
        }
    }
}

impl BenchCommand {
    /// Measures and prints.
    pub fn execute(self) -> Result<ExitCode> {
        let options = self.what.options();
        let place = match options.hosts.place().and_then(|place| place.map(two_hosts).transpose()) {
            Ok(place) => place,
            Err(error) => return Ok(misuse(&error)),
        };
        let folder = scratch::folder("bench")?;
        if let What::Miss(MissOptions { instructions: true, .. }) = self.what {
            let report = instructions::count(folder.path())?;
            print(&if options.json { as_json(&report) } else { report.in_words() })?;
            return Ok(ExitCode::SUCCESS);
        }
        let where_to = match &place {
            None => BenchPlace::Processors(two_processors()?),
            Some((_, names)) => BenchPlace::Hosts(names.clone()),
        };
        let place = place.as_ref().map(|(place, _)| place);
        let plan = self.what.plan(if place.is_some() { Distance::Far } else { Distance::Near });
        let bench = BenchRuns { folder: folder.path(), plan: &plan, options, where_to: &where_to, place };
        let samples = match bench.measure(&Blob::of(options.access)?, None)? {
            Measured::Samples(samples) => samples,
            Measured::NotBegun(why) => {
                eprintln!("{}", why.trim_end());
                return Ok(ExitCode::from(2));
            }
        };
        let stepped = match plan.steps {
            None => None,
            Some(_) => {
                let at = contract::INSTRUMENTS + 8 * contract::instrument::STEPS as u64;
                match bench.measure(&Blob::with_instruments(options.access)?, Some(at))? {
                    Measured::Samples(samples) => Some(samples),
                    Measured::NotBegun(why) => return Err(Error::new("the measuring program failed").because(why)),
                }
            }
        };
        let counts = (options.runs, options.batches);
        let report = BenchReport::new(&plan, counts, where_to, &samples, stepped.as_ref())?;
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

/// The hosts, if there are two with a node each; and their names.
fn two_hosts(place: RunPlace) -> Result<(RunPlace, [String; 2])> {
    match place.hosts.hosts() {
        [first, second] if place.hosts.nodes() == 2 => {
            let names = [first.name.clone(), second.name.clone()];
            Ok((place, names))
        }
        _ => {
            let what = format!("--hosts {}: two nodes measure each other, one on each of two hosts", place.list());
            Err(Error::new(what).help("--hosts a,b"))
        }
    }
}

/// What is measured, and where.
struct BenchRuns<'a> {
    folder: &'a Path,
    plan: &'a BenchPlan,
    options: &'a BenchOptions,
    where_to: &'a BenchPlace,
    /// The hosts, if there are several.
    place: Option<&'a RunPlace>,
}

/// What became of runs.
enum Measured {
    Samples(Samples),
    /// The hosts could not begin: what the run has said.
    NotBegun(String),
}

impl BenchRuns<'_> {
    /// Runs the program as often as asked for, and collects what it has measured.
    fn measure(&self, blob: &Blob, steps: Option<u64>) -> Result<Measured> {
        let BenchRuns { folder, plan, options, where_to, place } = self;
        let asked = Options { access: options.access, ..Options::default() };
        let program = plan.program.rewrite(folder, "bench", asked, blob, place.is_some())?;
        let failed = |e: std::io::Error| Error::new("cannot make a file for the results").because(e);
        let mut samples = Samples::default();
        for run in 0..options.runs {
            let mut arguments: Vec<OsString> =
                vec![format!("what={}", plan.name).into(), format!("batches={}", options.batches).into()];
            arguments.extend(steps.map(|at| OsString::from(format!("steps={at}"))));
            let raw = folder.join("raw");
            if let BenchPlace::Processors(processors) = where_to {
                let pinned = (0..).zip(processors).map(|(node, cpu)| format!("processor{node}={cpu}").into());
                arguments.extend(pinned);
                let mut argument = OsString::from("raw=");
                argument.push(&raw);
                arguments.push(argument);
            }
            // Each batch misses the same blocks in the same order.
            let mut words = place.map_or_else(|| ["-n", "2"].map(str::to_owned).to_vec(), RunPlace::words);
            words.extend(["--look-ahead", "0", "--block-size", "64", "--tag-output"].map(str::to_owned));
            let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
            let results = folder.join(format!("results-{run}"));
            let output = Some(fs::File::create(&results).map_err(failed)?);
            let (program, limit) = (&*program, if place.is_some() { FAR_LIMIT } else { RUN_LIMIT });
            let finished = WorkloadRun { program, options: &words, arguments: &arguments, limit, output }.run()?;
            if place.is_some() && finished.has_not_begun() {
                return Ok(Measured::NotBegun(finished.errors));
            }
            if !finished.succeeded() {
                let how = match finished.ending {
                    Ending::Ended(status) => status.to_string(),
                    Ending::StillRunning => format!("it did not end within {} s", limit.as_secs()),
                };
                return Err(Error::new("the measuring program failed").because(how).because(finished.errors.trim()));
            }
            // The next run's processes map a fresh page.
            let _ = fs::remove_file(raw);
            let text = fs::read_to_string(&results).map_err(|e| Error::new("cannot read the results").because(e))?;
            by_node(&text).values().try_for_each(|text| samples.add(text))?;
        }
        Ok(Measured::Samples(samples))
    }
}

/// What each node has printed, by what its lines begin with.
fn by_node(text: &str) -> BTreeMap<&str, String> {
    let mut nodes: BTreeMap<&str, String> = BTreeMap::new();
    for line in text.lines() {
        let (node, rest) = line.split_once("] ").unwrap_or(("", line));
        *nodes.entry(node).or_default() += &format!("{rest}\n");
    }
    nodes
}
