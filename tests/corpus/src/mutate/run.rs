//! The systematic mutation run: one changed byte of an output at a time, which the audit finds or a rule explains.
//!
//! Input: the files of [`files`]. Output: [`Results`], a table of parts with what became of the changes in each. The audit runs in this process, on all
//! processors. Of the changes that a rule takes for harmless a sample is run, too, and must do what the output does: a rule is a claim like any other.
//!
//! **Invariants:** the same seed, places and files make the same changes. The k-th change of each part comes before the k+1-st of any, so a run that its time limit
//! ends has looked at as many places of each. A part's row says how many these were.

use crate::mutate::files::{self, File};
use crate::mutate::results::{Results, Row};
use crate::mutate::trial::Trial;
use crate::report::{self, Circumstances};
use blizzard::reports::audit::mutation::{ChangeVerdict, Part, Subject};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

#[derive(Debug, Args)]
pub struct MutateArgs {
    /// A sample of two minutes or so: few places, a limit for each file
    #[arg(long)]
    quick: bool,
    /// What chooses the places and the new bytes
    #[arg(long, default_value_t = 24)]
    seed: u64,
    /// Places of each part [default: 2000; 60 with --quick]
    #[arg(long, value_name = "N")]
    places: Option<usize>,
    /// Only this file; may be given again
    #[arg(long, value_name = "NAME")]
    file: Vec<String>,
    /// Only parts whose names contain this
    #[arg(long, value_name = "TEXT")]
    part: Option<String>,
    /// Stop after so many minutes, shared among the files [default: none; 2 with --quick]
    #[arg(long, value_name = "MINUTES")]
    minutes: Option<f64>,
    /// List the files and stop
    #[arg(long)]
    list: bool,
    /// Put the table into RESULTS.md
    #[arg(long)]
    record: bool,
}

/// The longest audit takes a second.
const AUDIT_LIMIT: Duration = Duration::from_secs(120);

/// A thread that panicked leaves nothing half done here.
fn lock<T>(shared: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A change.
#[derive(Clone, Copy)]
struct Change {
    part: usize,
    at: usize,
    new: u8,
}

/// Makes the run that the arguments ask for; whether nothing was missed.
///
/// # Errors
/// A file that cannot be rewritten, or that the audit does not accept as it is.
pub fn execute(arguments: &MutateArgs, folder: &Path) -> Result<bool, String> {
    if arguments.list {
        files::names().for_each(|name| println!("{name}"));
        return Ok(true);
    }
    let chosen: Vec<String> =
        files::names().filter(|n| arguments.file.is_empty() || arguments.file.contains(n)).collect();
    if let Some(unknown) = arguments.file.iter().find(|f| !chosen.contains(f)) {
        return Err(format!("no file is called {unknown}; see corpus mutate --list"));
    }
    let wanted = arguments.places.unwrap_or(if arguments.quick { 60 } else { 2000 });
    let minutes = arguments.minutes.or(arguments.quick.then_some(2.0));
    let started = Instant::now();
    let temporary = tempfile::Builder::new().prefix("blizzard-mutate-").tempdir().map_err(|e| e.to_string())?;
    let mut results = Results {
        at: Circumstances::now(),
        seed: arguments.seed,
        wanted,
        minutes: 0.0,
        files: Vec::new(),
        absent: Vec::new(),
        parts: BTreeMap::new(),
        defects: Vec::new(),
    };
    // What a panic says is in the row of its change.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    for (k, name) in chosen.iter().enumerate() {
        let file = match files::make(name, temporary.path()) {
            Ok(file) => file,
            Err(why) => {
                eprintln!("skipped: {name}: {why}");
                results.absent.push((name.clone(), why));
                continue;
            }
        };
        let deadline = minutes.map(|m| {
            let left = Duration::from_secs_f64(m * 60.0).saturating_sub(started.elapsed());
            Instant::now() + left / (chosen.len() - k) as u32
        });
        one(&file, arguments, wanted, deadline, temporary.path(), &mut results)?;
    }
    std::panic::set_hook(hook);
    results.minutes = started.elapsed().as_secs_f64() / 60.0;
    print!("{}", results.markdown());
    if arguments.record {
        report::store(&folder.join("results/mutation.json"), &results)?;
        report::write_results(folder)?;
    }
    Ok(results.defects.is_empty() && !results.files.is_empty())
}

/// Which bytes become what: of each part as many as wanted, or all.
fn changes(file: &File, parts: &[Part], chosen: &[usize], wanted: usize, seed: u64) -> Vec<Change> {
    let mut lists: Vec<Vec<Change>> = Vec::new();
    for &part in chosen {
        // A part's changes do not depend on which other parts there are.
        let name = file.name.bytes().chain(parts[part].name.bytes());
        let mut random =
            fastrand::Rng::with_seed(name.fold(seed, |h, b| h.wrapping_mul(0x100_0000_01b3) ^ u64::from(b)));
        let mut places = parts[part].places.clone();
        random.shuffle(&mut places);
        places.truncate(wanted);
        let change = |at: usize| {
            let old = file.output[at];
            let new = match random.u8(0..3) {
                0 => old ^ 1 << random.u8(0..8),
                1 => old.wrapping_add(1),
                _ => old.wrapping_add(random.u8(1..=255)),
            };
            Change { part, at, new }
        };
        lists.push(places.into_iter().map(change).collect());
    }
    let most = lists.iter().map(Vec::len).max().unwrap_or(0);
    (0..most).flat_map(|k| lists.iter().filter_map(move |list| list.get(k).copied())).collect()
}

/// All changes of one file.
fn one(
    file: &File,
    arguments: &MutateArgs,
    wanted: usize,
    deadline: Option<Instant>,
    folder: &Path,
    results: &mut Results,
) -> Result<(), String> {
    let subject = Subject::new(&file.name, &file.original, &file.output, blizzard::reports::audit::runtimes())
        .map_err(|e| e.to_string())?;
    let parts = subject.parts();
    let asked = |p: &Part| arguments.part.as_ref().is_none_or(|text| p.name.contains(text.as_str()));
    let chosen: Vec<usize> = (0..parts.len()).filter(|&k| asked(&parts[k])).collect();
    let all = changes(file, parts, &chosen, wanted, arguments.seed);
    let trial = if file.runs { Some(Trial::new(file, folder)?) } else { None };
    let bar = ProgressBar::new(all.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {bar:30} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.set_message(file.name.clone());
    let next = AtomicUsize::new(0);
    let rows: Mutex<BTreeMap<usize, Row>> = Mutex::default();
    let defects: Mutex<Vec<String>> = Mutex::default();
    // What each thread is at, and since when.
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let busy: Vec<Mutex<Option<(Instant, Change)>>> = (0..threads).map(|_| Mutex::default()).collect();
    let done = AtomicUsize::new(0);
    let describe = |Change { part, at, new }: Change, what: &str| {
        let name = parts[part].name;
        format!("{}: {name}: byte {at:#x}: {:#04x} became {new:#04x}: {what}", file.name, file.output[at])
    };
    let work = |thread: usize| {
        let mut mutant = file.output.clone();
        while deadline.is_none_or(|d| Instant::now() < d) {
            let Some(&change) = all.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let Change { part, at, new } = change;
            mutant[at] = new;
            *lock(&busy[thread]) = Some((Instant::now(), change));
            let verdict = catch_unwind(AssertUnwindSafe(|| subject.judge(&parts[part], &mutant, at)));
            *lock(&busy[thread]) = None;
            let mut missed = None;
            let mut run = None;
            if let Ok(ChangeVerdict::Harmless(why)) = verdict
                && let Some(trial) = &trial
                && trial.wants(why)
            {
                run = Some(trial.differs(&mutant));
            }
            mutant[at] = file.output[at];
            let mut rows = lock(&rows);
            let row = rows.entry(part).or_default();
            row.places += 1;
            row.run += usize::from(run.is_some());
            match verdict {
                Ok(ChangeVerdict::Found) => row.found += 1,
                Ok(ChangeVerdict::Harmless(why)) => match run.flatten() {
                    Some(how) => missed = Some(describe(change, &format!("not harmless ({why}): {how}"))),
                    None => *row.harmless.entry(why.to_owned()).or_default() += 1,
                },
                Ok(ChangeVerdict::Missed) => missed = Some(describe(change, "not found, and no rule explains it")),
                Err(_) => missed = Some(describe(change, "the audit panics")),
            }
            if let Some(text) = missed {
                row.defects += 1;
                lock(&defects).push(text);
            }
            drop(rows);
            bar.inc(1);
        }
        done.fetch_add(1, Ordering::Relaxed);
    };
    // An audit that does not end cannot be ended from outside: it ends the run.
    let watch = || {
        while done.load(Ordering::Relaxed) < threads {
            std::thread::sleep(Duration::from_millis(50));
            for slot in &busy {
                if let Some((_, change)) = lock(slot).filter(|(since, _)| since.elapsed() > AUDIT_LIMIT) {
                    let what = format!("the audit has not ended in {} seconds", AUDIT_LIMIT.as_secs());
                    bar.suspend(|| eprintln!("defect: {}", describe(change, &what)));
                    std::process::exit(1);
                }
            }
        }
    };
    std::thread::scope(|s| {
        let work = &work;
        (0..threads).for_each(|thread| _ = s.spawn(move || work(thread)));
        watch();
    });
    bar.finish_and_clear();
    let rows = rows.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.files.push((file.name.clone(), rows.values().map(|r| r.places).sum()));
    for (part, row) in rows {
        let sum = results.parts.entry(parts[part].name.to_owned()).or_default();
        sum.bytes += parts[part].places.len();
        sum.places += row.places;
        sum.found += row.found;
        sum.defects += row.defects;
        sum.run += row.run;
        for (why, n) in row.harmless {
            *sum.harmless.entry(why).or_default() += n;
        }
    }
    let mut defects = defects.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    defects.sort();
    defects.iter().for_each(|d| println!("defect: {d}"));
    results.defects.append(&mut defects);
    Ok(())
}
