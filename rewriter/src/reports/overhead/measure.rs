//! Variants -> [`Timing`]: the rounds, and what is wrong with a program that cannot be measured.
//!
//! Input: a [`MeasurePlan`]. Output: a [`Timing`].
//!
//! Each variant is run once to warm up and to see that all do the same; then come the rounds. A program that takes long is not
//! run for nothing: its first runs count. See [`super`] for the invariants.

use crate::base::error::{Error, Result};
use crate::base::messages;
use crate::base::progress::{self, Progress};
use crate::launch::signals::Signals;
use crate::launch::spawn::{describe, signal_name};
use crate::reports::overhead::process::{Extra, FinishedRun, MeasuredJob, Printed, RunEnd};
use crate::reports::overhead::variants::{Spread, Variant};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Rounds, when the user does not say.
const FEWEST_ROUNDS: u32 = 5;
const MOST_ROUNDS: u32 = 40;
/// Measured time that each variant gets, within those bounds.
const ENOUGH: Duration = Duration::from_secs(1);
/// A program that runs for less is measured poorly: starting it is part of what is measured.
const SHORT: Duration = Duration::from_millis(50);
/// A program that runs for longer is not run in vain.
pub const LONG: Duration = Duration::from_secs(10);
/// How often the original is run again to see whether it is the original that ends differently.
const RETRIES: u32 = 4;
/// How long a program may wait on the terminal that it is tried on.
const TERMINAL_LIMIT: Duration = Duration::from_secs(3);

/// What to run.
#[derive(Debug)]
pub struct MeasurePlan<'x> {
    /// In the order of the table; the original comes first.
    pub variants: &'x [(Variant, PathBuf)],
    pub job: MeasuredJob,
    /// None: as many as are needed.
    pub runs: Option<u32>,
    /// For messages.
    pub name: &'x str,
}

/// One variant's times.
#[derive(Debug, Clone, Serialize)]
pub struct Times {
    pub variant: Variant,
    /// Processor time of each run, in seconds.
    pub cpu_seconds: Vec<f64>,
    /// Elapsed time of each run, in seconds.
    pub wall_seconds: Vec<f64>,
    /// Median of processor time relative to the original's median; ends: relative to the original's in the same round. The original's own
    /// ends are relative to its median.
    pub ratio: Spread,
    /// Elapsed time, likewise.
    pub wall_ratio: Spread,
}

/// The result.
#[derive(Debug, Clone, Serialize)]
pub struct Timing {
    pub runs: u32,
    /// The processor that everything ran on.
    pub processor: Option<usize>,
    /// Of every run.
    pub exit_status: i32,
    pub variants: Vec<Times>,
    /// What makes the figures doubtful, or is worth knowing.
    pub remarks: Vec<String>,
}

impl Timing {
    /// How far chance goes, for people: the spread of the original's own times.
    pub fn noise(&self) -> String {
        let Spread { min, max, .. } = self.variants[0].ratio;
        match self.runs {
            1 => "one run of each: noise is unknown; more runs (-r) show it".to_owned(),
            _ => format!(
                "the original itself takes {min:.3} .. {max:.3} of its median; smaller differences may be chance"
            ),
        }
    }

    /// Of what the figures are.
    pub fn of(&self) -> String {
        let place = self.processor.map_or(String::new(), |cpu| format!(", on processor {cpu}"));
        match self.runs {
            1 => format!("one run of each{place}"),
            runs => format!("{runs} runs of each, in turn{place}"),
        }
    }
}

/// Runs everything.
///
/// # Errors
/// Why the program cannot be measured, or that a variant does something else than the original.
pub fn measure(plan: &MeasurePlan, signals: &mut Signals) -> Result<Timing> {
    let mut remarks = Vec::new();
    let processor = pin();
    if processor.is_none() {
        remarks.push("the runs could not be pinned to one processor".to_owned());
    }
    let (_, original) = plan.variants.first().expect("the original comes first");
    let first = plan.job.run(original, signals, &Extra::default())?;
    let status = judge_original(plan, &first, signals)?;
    if status != 0 {
        remarks.push(format!("every run ends with exit status {status}"));
    }
    let rounds = plan.runs.unwrap_or_else(|| {
        let enough = ENOUGH.as_secs_f64() / first.cpu().as_secs_f64().max(1e-4);
        (enough.ceil() as u32).clamp(FEWEST_ROUNDS, MOST_ROUNDS)
    });
    let keep = first.wall > LONG;
    let all_runs = rounds as usize * plan.variants.len() + if keep { 0 } else { plan.variants.len() };
    let bar = progress(all_runs as u64, first.wall);
    let mut runs: Vec<Vec<FinishedRun>> = plan.variants.iter().map(|_| Vec::new()).collect();
    runs[0].push(first);
    bar.inc(1);
    // The warm-up round, or the first one.
    for (k, (variant, program)) in plan.variants.iter().enumerate().skip(1) {
        bar.set_message(variant.name());
        let run = plan.job.run(program, signals, &Extra::default())?;
        compare(plan, *variant, &run, status, signals)?;
        runs[k].push(run);
        bar.inc(1);
    }
    let measured = rounds - u32::from(keep);
    for round in 0..measured as usize {
        for k in 0..plan.variants.len() {
            // Each variant comes behind each other one now and then.
            let k = (k + round) % plan.variants.len();
            let (variant, program) = &plan.variants[k];
            bar.set_message(variant.name());
            let run = plan.job.run(program, signals, &Extra::default())?;
            compare(plan, *variant, &run, status, signals)?;
            runs[k].push(run);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    outputs(plan, &runs, &mut remarks)?;
    if !keep {
        runs.iter_mut().for_each(|runs| drop(runs.remove(0)));
    }
    let seconds = |of: fn(&FinishedRun) -> Duration, k: usize| {
        runs[k].iter().map(|run| of(run).as_secs_f64()).collect::<Vec<_>>()
    };
    let wall = |run: &FinishedRun| run.wall;
    let ratio = |of: fn(&FinishedRun) -> Duration, k: usize| {
        let (own, base) = (seconds(of, k), seconds(of, 0));
        let middle = Spread::of(base.iter().copied()).median;
        let base = if k == 0 { vec![middle; base.len()] } else { base };
        let ends = Spread::of(own.iter().zip(&base).map(|(own, base)| own / base.max(1e-6)));
        Spread { median: Spread::of(own).median / middle.max(1e-6), ..ends }
    };
    let variants: Vec<Times> = (0..runs.len())
        .map(|k| Times {
            variant: plan.variants[k].0,
            cpu_seconds: seconds(FinishedRun::cpu, k),
            wall_seconds: seconds(wall, k),
            ratio: ratio(FinishedRun::cpu, k),
            wall_ratio: ratio(wall, k),
        })
        .collect();
    let typical = Spread::of(variants[0].cpu_seconds.iter().copied()).median;
    if typical < SHORT.as_secs_f64() {
        remarks.push(format!(
            "the program runs for {:.1} ms only, its start included: the resolution is poor; give it more to do",
            typical * 1e3
        ));
    }
    let idle = Spread::of(variants[0].wall_seconds.iter().copied()).median;
    if idle > 2.0 * typical && idle > 0.01 {
        remarks.push("the program waits or shares its processor most of the time; ratios are of processor time".into());
    }
    Ok(Timing { runs: rounds, processor, exit_status: status, variants, remarks })
}

/// Keeps this process and its children on one processor: the last one it may use, where fewer interrupts are handled than on the first.
fn pin() -> Option<usize> {
    let allowed = sched_getaffinity(None).ok()?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu))?;
    let mut one = CpuSet::new();
    one.set(last);
    sched_setaffinity(None, &one).ok().map(|()| last)
}

/// Shows how far the rounds are, on a terminal; elsewhere one line says how long they will take, if that is long.
fn progress(runs: u64, each: Duration) -> Progress {
    let bar = progress::begin(runs, "{spinner} {msg:<12} run {pos} of {len}, {eta} to go", Variant::Original.name());
    let total = each * runs as u32;
    if !bar.is_shown() && total > Duration::from_secs(60) {
        messages::note(&format!(
            "{runs} runs of {:.0} s: about {:.0} minutes",
            each.as_secs_f64(),
            total.as_secs_f64() / 60.0
        ));
    }
    bar
}

/// Whether the original can be measured; its exit status.
fn judge_original(plan: &MeasurePlan, run: &FinishedRun, signals: &mut Signals) -> Result<i32> {
    let status = ended(plan, Variant::Original, run)?;
    let Some(code) = status.code() else {
        return Err(with_tail(Error::new(format!("{}: {} without being rewritten", plan.name, describe(status))), run));
    };
    if code != 0 && wants_terminal(plan, run, signals)? {
        // Chance can look like a terminal: without one, the program must go on ending like this.
        for _ in 0..RETRIES {
            let again = plan.job.run(&plan.variants[0].1, signals, &Extra::default())?;
            compare(plan, Variant::Original, &again, code, signals)?;
        }
        return Err(with_tail(
            Error::new(format!(
                "{}: needs a terminal: it ends with exit status {code} without one, and otherwise with one",
                plan.name
            ))
            .help("measure something of it that runs without a terminal"),
            run,
        ));
    }
    Ok(code)
}

/// Whether the program ended by itself; else why not.
fn ended(plan: &MeasurePlan, variant: Variant, run: &FinishedRun) -> Result<std::process::ExitStatus> {
    match run.end {
        RunEnd::Ended(status) => Ok(status),
        RunEnd::TimeOut => {
            let limit = plan.job.limit.unwrap_or_default().as_secs_f64();
            let form = if variant == Variant::Original { "" } else { ", rewritten" };
            let what = format!("{}{form} ({}): has not ended after {limit} seconds", plan.name, variant.name());
            Err(with_tail(Error::new(what), run)
                .help("give it less to do, or a larger --time-limit; -r 1 runs each variant only once"))
        }
        RunEnd::Interrupted(signal) => {
            let error = Error::new(format!("stopped by {}", signal_name(signal)));
            Err(Error { signal: Some(signal), ..error })
        }
    }
}

/// Whether a counting run did what the others did.
///
/// # Errors
/// It ended in another way.
pub fn check_counting(plan: &MeasurePlan, run: &FinishedRun, expected: i32) -> Result<()> {
    let status = ended(plan, Variant::AllPolls, run)?;
    if status.code() == Some(expected) {
        return Ok(());
    }
    let what =
        format!("{}: with counters, it {} instead of exiting with status {expected}", plan.name, describe(status));
    Err(with_tail(Error::new(what), run))
}

/// Refuses a variant that ends in another way than the original, and an original that ends now so, now so.
fn compare(
    plan: &MeasurePlan,
    variant: Variant,
    run: &FinishedRun,
    expected: i32,
    signals: &mut Signals,
) -> Result<()> {
    let status = ended(plan, variant, run)?;
    if status.code() == Some(expected) {
        return Ok(());
    }
    let mut changing = (variant == Variant::Original).then_some(status);
    for _ in 0..RETRIES {
        if changing.is_none() {
            let again = plan.job.run(&plan.variants[0].1, signals, &Extra::default())?;
            let status = ended(plan, Variant::Original, &again)?;
            changing = (status.code() != Some(expected)).then_some(status);
        }
    }
    let error = match changing {
        Some(other) => Error::new(format!(
            "{}: changes its behaviour between runs: the original exited with status {expected}, then it {}",
            plan.name,
            describe(other)
        )),
        None => Error::new(format!(
            "{}: rewritten ({}), it {}; the original exits with status {expected}",
            plan.name,
            variant.name(),
            describe(status)
        )),
    };
    Err(with_tail(error, run))
}

/// Adds the end of what a run has written to standard error.
fn with_tail(error: Error, run: &FinishedRun) -> Error {
    let text = String::from_utf8_lossy(&run.stderr.tail).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    last.iter().fold(error, |error, line| error.because(format!("standard error: {line}")))
}

/// Compares what was printed: other output of a rewritten program is an error, unless the original's changes, too.
fn outputs(plan: &MeasurePlan, runs: &[Vec<FinishedRun>], remarks: &mut Vec<String>) -> Result<()> {
    for (stream, of) in [
        ("standard output", (|run| &run.stdout) as fn(&FinishedRun) -> &Printed),
        ("standard error", |run| &run.stderr),
    ] {
        let reference = of(&runs[0][0]);
        if runs[0].len() > 1 && runs[0].iter().any(|run| of(run) != reference) {
            remarks.push(format!("the original's {stream} changes between runs, so it was not compared"));
            continue;
        }
        for ((variant, _), runs) in plan.variants.iter().zip(runs).skip(1) {
            if let Some(other) = runs.iter().find(|run| of(run) != reference) {
                let differs = format!(
                    "{} ({}): {stream} is not the original's ({} bytes instead of {})",
                    plan.name,
                    variant.name(),
                    of(other).bytes,
                    reference.bytes
                );
                if runs.iter().all(|run| of(run) == of(other)) && plan.runs != Some(1) {
                    return Err(Error::new(differs));
                }
                remarks.push(differs + ", and not always");
            }
        }
        if reference.bytes > 0 && stream == "standard error" {
            remarks.push(format!("each run writes {} bytes to standard error", reference.bytes));
        }
    }
    Ok(())
}

/// Whether the program ends in another way when it has a terminal.
fn wants_terminal(plan: &MeasurePlan, without: &FinishedRun, signals: &mut Signals) -> Result<bool> {
    // Where there is no pseudo-terminal, nobody can tell.
    let Ok((master, slave)) = terminal() else { return Ok(false) };
    let reader = std::thread::spawn(move || {
        let mut master = File::from(master);
        let mut buffer = [0u8; 4096];
        // Ends with EIO when the last user of the other end has gone.
        while matches!(master.read(&mut buffer), Ok(1..)) {}
    });
    let job = MeasuredJob { limit: Some(without.wall * 2 + TERMINAL_LIMIT), ..plan.job.clone() };
    let run = job.run(&plan.variants[0].1, signals, &Extra { terminal: Some(&slave), ..Extra::default() });
    drop(slave);
    let _ = reader.join();
    let run = run?;
    if let RunEnd::Interrupted(_) = run.end {
        ended(plan, Variant::Original, &run)?;
    }
    Ok(run.end != without.end)
}

/// A new pseudo-terminal: the end of whoever types, and the program's.
fn terminal() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let path = Path::new(std::ffi::OsStr::new(name.to_str().map_err(|_| rustix::io::Errno::INVAL)?)).to_owned();
    let noctty = rustix::fs::OFlags::NOCTTY.bits() as i32;
    let slave = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(path);
    let slave = slave.map_err(|e| rustix::io::Errno::from_io_error(&e).unwrap_or(rustix::io::Errno::IO))?;
    Ok((master, slave.into()))
}
