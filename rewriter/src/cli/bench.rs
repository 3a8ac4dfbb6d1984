//! `blizzard bench`: what the runtime's mechanisms cost, each as a ratio to a floor measured in the same run.
//!
//! Two nodes, pinned to a processor each, run the embedded program `bench-apps/workload/bench.c`, which measures figures and floors in turn, batch by
//! batch. This module starts it, takes medians and quartiles over all batches, and prints them. The steps of a miss are measured in
//! a run of their own with the runtime that has instruments, because the time stamps take time.

use super::print;
use super::workload::{self, Ending, Workload};
use crate::error::{Error, Result};
use crate::rt_blob::Blob;
use blizzard_rt::abi;
use clap::{Args, Subcommand};
use serde::Serialize;
use std::collections::BTreeMap;
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
    blizzard bench false-sharing --json")]
pub struct BenchCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Clone, Copy, Args)]
struct BenchOptions {
    /// Runs, of which all batches together are looked at
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Batches in each run
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    batches: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, Subcommand)]
enum What {
    /// Read miss, write miss and upgrade of a block of the other node, and the steps of a read miss
    Miss(BenchOptions),
    /// Stores of two nodes to neighbouring blocks of one page
    FalseSharing(BenchOptions),
}

/// A figure and what it is to be compared with.
struct Wanted {
    /// In the program's output.
    key: &'static str,
    name: &'static str,
    /// At most so many times the floor, where the design says so.
    most: Option<f64>,
}

const fn wanted(key: &'static str, name: &'static str, most: Option<f64>) -> Wanted {
    Wanted { key, name, most }
}

const MISSES: [Wanted; 6] = [
    wanted("read_miss", "read miss, home spins", Some(2.5)),
    wanted("write_miss", "write miss, home spins", None),
    wanted("upgrade", "upgrade, home spins", None),
    wanted("read_miss_computing", "read miss, home computes", None),
    wanted("write_miss_computing", "write miss, home computes", None),
    wanted("upgrade_computing", "upgrade, home computes", None),
];

const FALSE_SHARING: [Wanted; 2] = [
    wanted("neighbouring_blocks", "neighbouring blocks of one page", None),
    wanted("same_block", "the same block", None),
];

/// The steps of a read miss, in order: key, what happens, on which node.
const STEPS: [(&str, &str, &str); 10] = [
    ("step_gate", "check, gate: save the registers", "node"),
    ("step_look_up", "look up tag and home, step the protocol", "node"),
    ("step_send", "write the request into the ring", "node"),
    ("step_request", "request travels; home takes it out of the ring", "both"),
    ("step_handler", "home's handler: directory, protocol, read the block", "home"),
    ("step_reply", "home writes the answer; it travels; node takes it out", "both"),
    ("step_copy", "check the answer, copy the block in", "node"),
    ("step_tag", "raise the tag", "node"),
    ("step_end", "end of the miss: pins, doorbell", "node"),
    ("step_return", "gate: restore the registers; check again, load", "node"),
];

/// The `--json` object.
#[derive(Debug, Serialize)]
struct Report {
    /// `miss` or `false-sharing`.
    bench: &'static str,
    /// The processors of node 0 and node 1.
    processors: [usize; 2],
    runs: u32,
    batches: u32,
    floor: Figure,
    figures: Vec<Figure>,
    /// How often a computing home polls, in nanoseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    poll_interval_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Steps>,
}

/// One measured figure: median and quartiles over all batches.
#[derive(Debug, Clone, Serialize)]
struct Figure {
    name: String,
    median_ns: f64,
    lower_quartile_ns: f64,
    upper_quartile_ns: f64,
    /// Median to median.
    ratio_to_floor: f64,
    /// The ratio that is aimed at, if there is such a one.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
}

/// The steps of a read miss. Each contains one time stamp.
#[derive(Debug, Serialize)]
struct Steps {
    /// What a time stamp takes.
    stamp_ns: f64,
    /// A read miss with all stamps.
    total_ns: f64,
    steps: Vec<StepTime>,
}

#[derive(Debug, Serialize)]
struct StepTime {
    name: &'static str,
    node: &'static str,
    /// Median, the stamp included.
    ns: f64,
}

/// Samples by name, in nanoseconds, unsorted.
type Samples = BTreeMap<String, Vec<f64>>;

impl BenchCommand {
    /// Measures and prints.
    pub fn execute(self) -> Result<ExitCode> {
        let folder = tempfile::Builder::new()
            .prefix("blizzard-bench-")
            .tempdir()
            .map_err(|e| Error::new("cannot make a temporary folder").because(e))?;
        let processors = two_processors()?;
        let (options, report) = match self.what {
            What::Miss(options) => (options, miss(folder.path(), options, processors)?),
            What::FalseSharing(options) => {
                let samples = measure(folder.path(), "false-sharing", options, processors, &Blob::embedded()?, None)?;
                let report =
                    compare("false-sharing", options, processors, &samples, "different_pages", &FALSE_SHARING)?;
                (options, report)
            }
        };
        if options.json {
            let text = serde_json::to_string_pretty(&report).expect("numbers and texts can be written as JSON");
            print(&(text + "\n"))?;
        } else {
            print(&in_words(&report))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn miss(folder: &Path, options: BenchOptions, processors: [usize; 2]) -> Result<Report> {
    let samples = measure(folder, "miss", options, processors, &Blob::embedded()?, None)?;
    let mut report = compare("miss", options, processors, &samples, "ping_pong", &MISSES)?;
    report.poll_interval_ns = Some(quantile(&samples, "poll_interval", 0.5)?);
    let steps_at = abi::INSTRUMENTS + 8 * abi::instrument::STEPS as u64;
    let stepped = measure(folder, "miss", options, processors, &Blob::with_instruments()?, Some(steps_at))?;
    let median = |key: &str| quantile(&stepped, key, 0.5);
    let steps = STEPS.iter().map(|&(key, name, node)| Ok(StepTime { name, node, ns: median(key)? }));
    report.steps = Some(Steps {
        stamp_ns: median("stamp")?,
        total_ns: median("step_total")?,
        steps: steps.collect::<Result<_>>()?,
    });
    Ok(report)
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
    what: &str,
    options: BenchOptions,
    processors: [usize; 2],
    blob: &Blob,
    steps: Option<u64>,
) -> Result<Samples> {
    let program = Workload::Bench.rewrite(folder, "bench", blob)?;
    let mut samples = Samples::new();
    for run in 0..options.runs {
        let results = folder.join(format!("results-{run}"));
        let mut arguments: Vec<OsString> = vec![
            format!("what={what}").into(),
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
        let finished = workload::run(&program, &["-n".into(), "2".into()], &arguments, RUN_LIMIT)?;
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
            add(&mut samples, &text)?;
        }
    }
    Ok(samples)
}

/// Adds the samples of one node's results, which are in cycles.
fn add(samples: &mut Samples, text: &str) -> Result<()> {
    let damaged = || Error::new("the measuring program has written something else than results");
    let pairs = text.lines().map(|line| {
        let (name, value) = line.split_once(' ').ok_or_else(damaged)?;
        Ok((name, value.parse::<f64>().map_err(|_| damaged())?))
    });
    let pairs: Vec<(&str, f64)> = pairs.collect::<Result<_>>()?;
    let rate = pairs.iter().find(|(name, _)| *name == "cycles_per_ns").ok_or_else(damaged)?.1;
    for (name, cycles) in pairs.into_iter().filter(|(name, _)| *name != "cycles_per_ns") {
        samples.entry(name.to_owned()).or_default().push(cycles / rate);
    }
    Ok(())
}

fn quantile(samples: &Samples, key: &str, at: f64) -> Result<f64> {
    let mut sorted = samples.get(key).cloned().ok_or_else(|| Error::new(format!("{key} was not measured")))?;
    sorted.sort_by(f64::total_cmp);
    Ok(sorted[((sorted.len() - 1) as f64 * at).round() as usize])
}

fn compare(
    bench: &'static str,
    options: BenchOptions,
    processors: [usize; 2],
    samples: &Samples,
    floor: &str,
    all: &[Wanted],
) -> Result<Report> {
    let floor_ns = quantile(samples, floor, 0.5)?;
    let figure = |key: &str, name: &str, at_most: Option<f64>| -> Result<Figure> {
        let median_ns = quantile(samples, key, 0.5)?;
        Ok(Figure {
            name: name.to_owned(),
            median_ns,
            lower_quartile_ns: quantile(samples, key, 0.25)?,
            upper_quartile_ns: quantile(samples, key, 0.75)?,
            ratio_to_floor: median_ns / floor_ns,
            at_most,
        })
    };
    let floor_name = match floor {
        "ping_pong" => "floor: a cache line to and fro",
        _ => "floor: on different pages",
    };
    Ok(Report {
        bench,
        processors,
        runs: options.runs,
        batches: options.batches,
        floor: figure(floor, floor_name, None)?,
        figures: all.iter().map(|w| figure(w.key, w.name, w.most)).collect::<Result<_>>()?,
        poll_interval_ns: None,
        steps: None,
    })
}

fn in_words(report: &Report) -> String {
    let Report { bench, processors: [first, second], runs, batches, .. } = report;
    let mut text =
        format!("{bench}: two nodes on processors {first} and {second}; {runs} runs of {batches} batches each\n\n");
    text += &format!("{:<34} {:>9} {:>19} {:>9}  {}\n", "", "median", "half lie within", "to floor", "aim");
    for figure in std::iter::once(&report.floor).chain(&report.figures) {
        let within = format!("{:.1}-{:.1}", figure.lower_quartile_ns, figure.upper_quartile_ns);
        let aim = figure.at_most.map_or(String::new(), |most| format!("at most {most}"));
        let line = format!(
            "{:<34} {:>6.1} ns {:>16} ns {:>9.2}  {aim}",
            figure.name, figure.median_ns, within, figure.ratio_to_floor
        );
        text += &(line.trim_end().to_owned() + "\n");
    }
    if let Some(interval) = report.poll_interval_ns {
        text += &format!("\na home that computes polls every {interval:.1} ns (median)\n");
    }
    if let Some(Steps { stamp_ns, total_ns, steps }) = &report.steps {
        text += "\na read miss, home spins, step by step (medians, runtime with instruments)\n\n";
        for step in steps {
            text += &format!("{:<56} {:<5} {:>7.1} ns\n", step.name, step.node, step.ns);
        }
        text += &format!("{:<56} {:<5} {total_ns:>7.1} ns\n", "all of it, ten time stamps included", "");
        text += &format!("{:<56} {:<5} {stamp_ns:>7.1} ns\n", "one time stamp", "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_become_nanoseconds_and_ratios() {
        let mut samples = Samples::new();
        add(&mut samples, "ping_pong 200.00\nread_miss 900.00\nread_miss 500.00\ncycles_per_ns 2.0\n").unwrap();
        add(&mut samples, "read_miss 1000.00\nping_pong 300\ncycles_per_ns 4.0\n").unwrap();
        let options = BenchOptions { runs: 1, batches: 2, json: false };
        let wanted = [wanted("read_miss", "read miss", Some(2.5))];
        let report = compare("miss", options, [0, 3], &samples, "ping_pong", &wanted).unwrap();
        assert_eq!(report.floor.median_ns, 100.0);
        assert_eq!(report.figures[0].median_ns, 250.0);
        assert_eq!(report.figures[0].ratio_to_floor, 2.5);
        let text = in_words(&report);
        assert!(text.contains("processors 0 and 3") && text.contains("at most 2.5"), "{text}");
        assert!(text.lines().all(|line| line.len() < 100 && line.trim_end() == line), "{text}");
    }

    #[test]
    fn results_without_their_clock_or_with_other_text_are_refused() {
        for text in ["ping_pong 200\n", "ping_pong\ncycles_per_ns 2\n", "ping_pong x\ncycles_per_ns 2\n"] {
            assert!(add(&mut Samples::new(), text).is_err(), "{text}");
        }
        assert!(quantile(&Samples::new(), "ping_pong", 0.5).is_err());
    }
}
