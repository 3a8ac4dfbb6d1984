//! The command line of `corpus`.
//!
//! Started under the name `blizzard` this program *is* `blizzard`: a run always tests the rewriter that it was built with.

use crate::inside::{self, namespaces};
use crate::list::{self, Program};
use crate::mutate::run::{self as mutate, MutateArgs};
use crate::one::{self, Variant};
use crate::report::{self, Circumstances, CorpusResults, Sweep, SweepResults};
use crate::sweep;
use crate::trial::{Outcome, Plan, Row};
use crate::{inputs, trial};
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs real programs original and rewritten and compares what they do
#[derive(Debug, Parser)]
#[command(
    name = "corpus",
    max_term_width = 100,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  \
    corpus                          all programs; writes RESULTS.md\n  \
    corpus --quick                  the small selection\n  \
    corpus --kind compression rg    some\n  \
    corpus sweep                    rewrite every program and library of the system\n  \
    corpus mutate --quick           change bytes of outputs, and audit them"
)]
struct Cli {
    #[command(flatten)]
    run: RunArgs,
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Only these programs
    programs: Vec<String>,
    /// Only programs of this kind
    #[arg(long, value_name = "KIND")]
    kind: Vec<String>,
    /// Only the small selection
    #[arg(long)]
    quick: bool,
    /// List the programs and what is missing, and run nothing
    #[arg(long)]
    list: bool,
    /// Install the Debian packages that are missing (as root), or print how
    #[arg(long)]
    install: bool,
    /// How often each form of a program runs [default: 3; 1 with --quick]
    #[arg(long, value_name = "TIMES")]
    repeats: Option<usize>,
    /// Run only the originals, twice or more: tries the list itself
    #[arg(long)]
    originals: bool,
    /// Keep the output of failed runs in DIR
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Test this rewriter instead of the one built in
    #[arg(long, value_name = "FILE")]
    blizzard: Option<PathBuf>,
    /// Another list of programs
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// Rewrite every program and library of folders, and run none
    Sweep(SweepArgs),
    /// Change bytes of outputs one at a time: the audit finds each change, or a rule says why it is none
    Mutate(MutateArgs),
    /// Write RESULTS.md again from the results kept
    Report,
    #[command(name = inside::SUBCOMMAND, hide = true)]
    Inside { orders: PathBuf },
    #[command(name = one::SUBCOMMAND, hide = true)]
    One {
        file: PathBuf,
        variant: Variant,
        #[arg(long)]
        audit: bool,
    },
}

#[derive(Debug, Args)]
struct SweepArgs {
    /// The folders [default: /usr/bin /usr/sbin /usr/lib/x86_64-linux-gnu]
    folders: Vec<PathBuf>,
    /// Enter subfolders
    #[arg(long)]
    deep: bool,
    /// Which rewrite
    #[arg(long, value_enum, default_value = "null")]
    variant: Variant,
    /// Audit each output against its original, as `blizzard verify --original` does
    #[arg(long)]
    audit: bool,
    /// Put the summary into RESULTS.md, also for other folders than the usual ones
    #[arg(long)]
    record: bool,
}

/// Runs the command.
pub fn main() -> ExitCode {
    let name = std::env::current_exe().ok();
    if name.as_deref().and_then(Path::file_name) == Some(OsStr::new("blizzard")) {
        return blizzard::cli::command::main("");
    }
    let cli = Cli::parse();
    let done = match cli.command {
        None => run(&cli.run),
        Some(Sub::Sweep(arguments)) => run_sweep(&arguments),
        Some(Sub::Mutate(arguments)) => mutate::execute(&arguments, &folder()),
        Some(Sub::Report) => report::write_results(&folder()).map(|()| true),
        Some(Sub::Inside { orders }) => inside::supervise(&orders).map(|()| true),
        Some(Sub::One { file, variant, audit }) => one::execute(&file, variant, audit).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(text) => {
            eprintln!("corpus: error: {text}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of this package, where results are kept.
fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn run(arguments: &RunArgs) -> Result<bool, String> {
    let text = match &arguments.from {
        Some(path) => fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?,
        None => list::LIST.to_owned(),
    };
    let all = list::parse(&text)?;
    if let Some(unknown) = arguments.programs.iter().find(|name| !all.iter().any(|p| p.name == **name)) {
        return Err(format!("{unknown} is not in the list; see corpus --list"));
    }
    let chosen: Vec<&Program> = all
        .iter()
        .filter(|p| !arguments.quick || p.quick)
        .filter(|p| arguments.kind.is_empty() || arguments.kind.contains(&p.kind))
        .filter(|p| arguments.programs.is_empty() || arguments.programs.contains(&p.name))
        .collect();
    if chosen.is_empty() {
        return Err("no program of the list is of that sort".to_owned());
    }
    if arguments.install {
        return install(&chosen);
    }
    if arguments.list {
        for p in &chosen {
            let state = p.locate().map_or_else(|e| format!("MISSING: {e}"), |_| p.installed_version());
            println!("{:<16} {:<14} {state}", p.name, p.kind);
        }
        return Ok(true);
    }
    let temporary = tempfile::Builder::new().prefix("blizzard-corpus-").tempdir().map_err(|e| e.to_string())?;
    let repeats = arguments.repeats.unwrap_or(if arguments.quick { 1 } else { 3 });
    let mut plan = plan_in(temporary.path(), repeats)?;
    plan.originals_only = arguments.originals;
    plan.keep.clone_from(&arguments.keep);
    plan.traps = !arguments.quick && Command::new("strace").arg("-V").output().is_ok();
    if let Some(other) = &arguments.blizzard {
        plan.blizzard = other.canonicalize().map_err(|e| format!("{}: {e}", other.display()))?;
    }
    if !namespaces() {
        eprintln!(
            "corpus: mount namespaces are not allowed here: programs that must stand in their place are left out"
        );
    }
    let complete =
        chosen.len() == all.len() && arguments.from.is_none() && arguments.blizzard.is_none() && !arguments.originals;
    let at = Circumstances::now();
    let path = folder().join("results/corpus.json");
    let keep = |rows: &[Row]| {
        let results = CorpusResults { at: at.clone(), repeats, listed: all.len(), rows: rows.to_vec() };
        report::store(&path, &results)
    };
    let rows = try_all(&plan, &chosen, &mut |rows| if complete { keep(rows) } else { Ok(()) })?;
    print!("{}\n{}\n{}", report::table(&rows), report::summary(&rows), report::remarks(&rows));
    if complete {
        report::write_results(&folder())?;
    }
    Ok(report::is_good(&rows))
}

/// A plan that works in `folder`, with inputs and the built-in rewriter in place.
///
/// # Errors
/// The file system's.
pub fn plan_in(folder: &Path, repeats: usize) -> Result<Plan, String> {
    let text = |e: std::io::Error| e.to_string();
    // A path in a program's output must be the same each time, and the folder must be one that everybody may enter.
    fs::create_dir_all(folder.join("in")).map_err(text)?;
    let plan = trial::Plan {
        folder: folder.to_owned(),
        blizzard: folder.join("tool/blizzard"),
        repeats,
        keep: None,
        originals_only: false,
        traps: false,
    };
    inputs::write(&plan.inputs()).map_err(text)?;
    fs::create_dir_all(folder.join("tool")).map_err(text)?;
    let own = std::env::current_exe().map_err(text)?;
    fs::hard_link(&own, &plan.blizzard).or_else(|_| fs::copy(&own, &plan.blizzard).map(|_| ())).map_err(text)?;
    Ok(plan)
}

/// `keep` is told all rows so far after each program: a run of an hour that is stopped is not lost.
fn try_all(
    plan: &Plan,
    programs: &[&Program],
    keep: &mut dyn FnMut(&[Row]) -> Result<(), String>,
) -> Result<Vec<Row>, String> {
    let bar = ProgressBar::new(programs.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{pos}/{len} {bar:30} {elapsed} {msg}") {
        bar.set_style(style);
    }
    let mut rows = Vec::new();
    for program in programs {
        bar.set_message(program.name.clone());
        let row = plan.try_program(program);
        if row.outcome != Outcome::Passed {
            bar.suspend(|| eprintln!("{} {}: {}", row.name, row.outcome.word(), row.outcome.reason()));
        }
        rows.push(row);
        keep(&rows)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(rows)
}

fn install(programs: &[&Program]) -> Result<bool, String> {
    let absent: BTreeSet<&str> = programs
        .iter()
        .flat_map(|p| &p.packages)
        .filter(|p| list::version_of(p).is_none())
        .map(String::as_str)
        .collect();
    if absent.is_empty() {
        println!("All packages are installed.");
        return Ok(true);
    }
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(absent);
    println!("apt-get {}", arguments.join(" "));
    if !nix::unistd::geteuid().is_root() {
        return Ok(true);
    }
    let status = Command::new("apt-get").args(&arguments).env("DEBIAN_FRONTEND", "noninteractive").status();
    Ok(status.map_err(|e| e.to_string())?.success())
}

fn run_sweep(arguments: &SweepArgs) -> Result<bool, String> {
    let usual = ["/usr/bin", "/usr/sbin", "/usr/lib/x86_64-linux-gnu"].map(PathBuf::from);
    let record = arguments.record || arguments.folders.is_empty();
    let folders = if arguments.folders.is_empty() { usual.to_vec() } else { arguments.folders.clone() };
    let summary = sweep::sweep(&folders, arguments.deep, arguments.variant, arguments.audit);
    print!("{}", summary.markdown());
    let good = summary.crashed.is_empty() && summary.open.is_empty();
    if record {
        let path = folder().join("results/sweep.json");
        let mut results: SweepResults = report::load(&path)?.unwrap_or_default();
        let kind = |s: &sweep::Summary| (s.folders.clone(), s.variant.clone(), s.audited > 0);
        results.sweeps.retain(|s| kind(&s.summary) != kind(&summary));
        results.sweeps.push(Sweep { at: Circumstances::now(), summary });
        report::store(&path, &results)?;
        report::write_results(&folder())?;
    }
    Ok(good)
}
