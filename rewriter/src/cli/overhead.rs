//! `blizzard overhead`: what the checks cost a program, and why.
//!
//! Input: a program with its arguments. Output: a report as text, JSON or HTML.
//!
//! The program and its libraries are rewritten in each form into the cache, as `blizzard run` does; then all forms run in turn.

use crate::base::error::{Error, Result};
use crate::base::learnt::Knowledge;
use crate::base::messages;
use crate::base::options::Options;
use crate::base::output_file::write_report;
use crate::cli::itself::overview;
use crate::cli::run::command;
use crate::cli::shared::arguments::{ProgramAndArgs, whole};
use crate::cli::shared::input;
use crate::cli::shared::libraries::LibraryOptions;
use crate::cli::shared::print::print;
use crate::launch::signals::Signals;
use crate::launch::{leftovers, sys};
use crate::read::rewritten;
use crate::reports::overhead::counts::{self, Counted};
use crate::reports::overhead::measure::{LONG, MeasurePlan, Timing, check_counting, measure};
use crate::reports::overhead::process::{MeasuredJob, Replay};
use crate::reports::overhead::render::command_line;
use crate::reports::overhead::report::{CodeSize, OverheadReport};
use crate::reports::overhead::setting::Setting;
use crate::reports::overhead::variants::Variant;
use crate::reports::overhead::{hot_spots, html, render};
use clap::Args;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// How long standard input may take before a line says what is waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Measure what checks and polls cost a program, and show where
///
/// Seven variants of the program run in turn, as one node, on one processor. They are the original; relocated without checks; with checks of
/// loads, of stores, of both; with polls as well, as it runs by default; guarded, as `--access guard` has it. The checks are what each access
/// costs, whatever it touches; `--shared` adds guarded code that has learnt of every access. Ratios are of processor time. What it reads from
/// standard input is read once, and given to each run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard overhead -- ./em3d --iters 20\n  \
    blizzard overhead -r 3 --html em3d.html -- ./em3d\n  \
    blizzard overhead -r 3 --json -- ./em3d > em3d-overhead.json\n  \
    echo 1 2 3 | blizzard overhead -r 3 --variants original,all-polls -- wc")]
pub struct OverheadCommand {
    /// Runs of each variant [default: as many as take a second, but 5 to 40]
    #[arg(short, long, value_name = "RUNS", value_parser = whole::<u32>(1..=10_000))]
    runs: Option<u32>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
    /// Write a page with pictures and the hottest loops to FILE
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Give up when one run takes longer than SECONDS
    #[arg(long, value_name = "SECONDS", value_parser = whole::<u64>(1..=u64::MAX))]
    time_limit: Option<u64>,
    /// Compare only these, besides the original
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    variants: Vec<Variant>,
    /// Also guarded with every access tested: what it costs if all data are shared
    #[arg(long)]
    shared: bool,
    /// Count exactly what this form executes
    #[arg(long, value_name = "FORM", default_value = "all-polls", conflicts_with = "no_counts")]
    counts_of: Variant,
    /// Measure times only
    #[arg(long)]
    no_counts: bool,
    #[command(flatten)]
    libraries: LibraryOptions,
    #[command(flatten)]
    program: ProgramAndArgs,
}

impl OverheadCommand {
    /// Measures and prints. `commit`: of this build.
    pub fn execute(self, commit: &str) -> Result<ExitCode> {
        let (name, args) = self.program.command.split_first().expect("clap requires the program");
        let input = input::read(&input::find_program(name)?)?;
        if rewritten::rewritten_with(&input.bytes).is_some() {
            return Err(Error::new(format!("{}: is already rewritten", input.name))
                .help("name the original program: it is compared with its rewritten forms"));
        }
        if let Some(path) = &self.html {
            refuse_bad_path(path)?;
        }
        if self.counts_of == Variant::Original {
            return Err(Error::new("--counts-of original: nothing was inserted there")
                .help("all-polls, guarded, shared, relocated"));
        }
        let variants = self.chosen();
        let mut programs = Vec::new();
        let mut sizes = Vec::new();
        for &variant in &variants {
            let (program, size) = self.prepare(&input, variant)?;
            programs.push((variant, program));
            sizes.push(size);
        }
        let job = MeasuredJob {
            arg0: name.clone(),
            args: args.to_vec(),
            input: standard_input()?,
            limit: self.time_limit.map(Duration::from_secs),
        };
        leftovers::adopt_orphans();
        let mut signals = Signals::listen()?;
        let shown = name.display().to_string();
        let counting = match self.no_counts {
            true => None,
            false => Some(self.prepare_with(&input, self.counts_of, Options { blocks: true, ..Options::tests() })?.0),
        };
        let own = std::iter::once("blizzard".to_owned());
        let line: Vec<String> = own.chain(words(&std::env::args_os().skip(1).collect::<Vec<_>>())).collect();
        let setting = Setting::now(command_line(&line), overview::version(commit));
        let plan = MeasurePlan { variants: &programs, job, runs: self.runs, name: &shown };
        let mut timing = measure(&plan, &mut signals)?;
        // Counts are to be the same in each run. Times are not: of one place of all memory they would say what the caches make of it.
        let _ = sys::disable_randomisation();
        let counted = counting.map(|program| count_twice(&plan, &program, &mut signals, &mut timing)).transpose()?;
        let added = counted.as_ref().map(hot_spots::counts);
        let (counts, files) = added.map_or((None, None), |(counts, files)| (Some(counts), Some(files)));
        let report = OverheadReport {
            program: shown,
            args: words(args),
            setting,
            code_bytes: sizes,
            timing,
            counts_of: self.counts_of,
            counts,
        };
        if let Some(path) = &self.html {
            let page = html::page(&report, counted.as_ref().zip(files.as_ref()));
            write_report(path, page.as_bytes())
                .map_err(|e| Error::new(format!("cannot write the page {}", path.display())).because(e))?;
        }
        print(&self.render(&report)?)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The variants to compare, the original first.
    fn chosen(&self) -> Vec<Variant> {
        let all = <Variant as clap::ValueEnum>::value_variants();
        let wanted = |v: &Variant| match v {
            Variant::Original => true,
            Variant::Shared if self.shared => true,
            Variant::Shared => self.variants.contains(v),
            _ => self.variants.is_empty() || self.variants.contains(v),
        };
        all.iter().copied().filter(wanted).collect()
    }

    /// A variant's program file, and how large its code is.
    fn prepare(&self, input: &input::InputFile, variant: Variant) -> Result<(PathBuf, CodeSize)> {
        self.prepare_with(input, variant, Options::tests())
    }

    fn prepare_with(&self, input: &input::InputFile, variant: Variant, base: Options) -> Result<(PathBuf, CodeSize)> {
        let Some(options) = variant.options(&base) else {
            let path = std::path::absolute(&input.path).unwrap_or_else(|_| input.path.clone());
            return Ok((path, CodeSize::default()));
        };
        let made = command::closure(input, &options, self.libraries, &Knowledge::default())?;
        let size =
            |path: &Path| std::fs::read(path).ok().and_then(|file| rewritten::new_code_bytes(&file)).unwrap_or(0);
        let libraries = made.libraries.iter().map(|(_, rewritten)| size(rewritten)).sum();
        let size = CodeSize { program: size(&made.program), libraries };
        Ok((made.program, size))
    }

    fn render(&self, report: &OverheadReport) -> Result<String> {
        if !self.json {
            return Ok(render::text(report));
        }
        let json = serde_json::to_string_pretty(report)
            .map_err(|e| Error::new("cannot write the measurement as JSON").because(e))?;
        Ok(json + "\n")
    }
}

/// The counting run, and another one to see whether the program goes the same way each time, unless that takes long.
fn count_twice(plan: &MeasurePlan, program: &Path, signals: &mut Signals, timing: &mut Timing) -> Result<Counted> {
    let original = &plan.variants[0].1;
    let once = |signals: &mut Signals| {
        let counted = counts::count(program, original, &plan.job, signals)?;
        check_counting(plan, &counted.run, timing.exit_status)?;
        Ok::<_, Error>(counted)
    };
    let first = once(signals)?;
    if !first.missing.is_empty() {
        timing.remarks.push(format!("not counted: {}", first.missing.join(", ")));
    }
    if first.run.wall < LONG {
        let difference = once(signals)?.difference(&first);
        if difference > 0 {
            timing.remarks.push(format!(
                "the program changes its behaviour between runs: two counting runs differ by {} instructions",
                render::grouped(difference)
            ));
        }
    }
    Ok(first)
}

/// A page that cannot be written is said before anything runs.
fn refuse_bad_path(path: &Path) -> Result<()> {
    if path == "-" {
        return Err(Error::new("--html -: the page is a file, and does not go to standard output")
            .help("--html FILE; --html ./- for a file of that name"));
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let failed = || Error::new(format!("cannot write the page {}", path.display()));
    if path.is_dir() {
        return Err(failed().because("it is a directory"));
    }
    if path.exists() && !path.is_file() {
        return Ok(());
    }
    tempfile::tempfile_in(folder).map(drop).map_err(|e| failed().because(e))
}

fn words(args: &[OsString]) -> Vec<String> {
    args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// All of standard input, unless it is a terminal.
fn standard_input() -> Result<Option<Arc<Replay>>> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let (done, waiting) = mpsc::channel::<()>();
    let patience = std::thread::spawn(move || {
        if waiting.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            messages::note("reading standard input to its end, for all runs; < /dev/null if there is none");
        }
    });
    let replay = Replay::read(stdin.lock());
    drop(done);
    let _ = patience.join();
    Ok(Some(Arc::new(replay?)))
}
