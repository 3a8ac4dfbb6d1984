//! `cargo run --release -p blizzard-bench-overhead`: measures everything and writes `RESULTS.md`.
//!
//! The program is its own `blizzard`: called with one of that program's commands, it is that program.

use blizzard::launch::signals::Signals;
use blizzard_bench_overhead::workloads::{self, Kind, Workload};
use blizzard_bench_overhead::{geometric_mean, must, others, shared};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// Measures what checks and polls cost on kernels and applications
#[derive(Debug, Parser)]
struct Cli {
    /// Runs of each form of each program
    #[arg(short, long, default_value = "3")]
    runs: u32,
    /// Only workloads whose name contains this
    #[arg(long)]
    only: Option<String>,
    /// Compare with other tools as well; takes an hour
    #[arg(long)]
    others: bool,
    /// A Python that has the package `frida`
    #[arg(long, value_name = "PYTHON", default_value = "python3")]
    frida: String,
    /// Only the second table: what programs cost whose data are all shared
    #[arg(long)]
    shared: bool,
    /// Where the table goes
    #[arg(short, long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/RESULTS.md"))]
    output: PathBuf,
}

/// One row: a workload and its ratios.
struct Row {
    name: &'static str,
    kind: Kind,
    /// Relocated, loads, stores, all, all + polls, guarded: ratio and spread.
    ratios: Vec<(f64, f64, f64)>,
    /// As [`others::NAMES`].
    others: [others::Ratio; others::NAMES.len()],
    /// Inserted instructions and checks, for each instruction of the program.
    growth: f64,
    checks: f64,
    remarks: Vec<String>,
}

/// Commands of `blizzard` that are called.
const COMMANDS: [&str; 6] = ["overhead", "cache", "config", "learn", "rewrite", "run"];

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|arg| COMMANDS.iter().any(|c| arg == OsStr::new(c))) {
        return blizzard::cli::command::main("");
    }
    match run(&Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    eprintln!("building the programs");
    let wanted = |w: &Workload| cli.only.as_ref().is_none_or(|part| w.name.contains(part.as_str()));
    let mut programs = shared::programs(folder.path(), &own)?;
    programs.retain(wanted);
    let mut tables = vec![String::new()];
    if !cli.shared {
        let (mut list, mut failed) = workloads::all(folder.path(), &own)?;
        list.retain(wanted);
        let tools = others::Tools::find(&cli.frida, folder.path());
        let mut signals = Signals::listen().map_err(|e| e.to_string())?;
        failed.extend(tools.missing.iter().cloned());
        let mut rows = Vec::new();
        for workload in progress(&list) {
            match measure(workload, cli, &tools, &own, &mut signals) {
                Ok(row) => rows.push(row),
                Err(e) => failed.push(one_line(workload.name, &e)),
            }
            // What has been measured stays, should the rest be stopped.
            tables[0] = table(&rows, &failed, cli.runs);
            write(cli, &tables)?;
        }
    }
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for workload in progress(&programs) {
        match shared::measure(workload, cli.runs, folder.path(), &own) {
            Ok(row) => rows.push(row),
            Err(e) => failed.push(one_line(workload.name, &e)),
        }
    }
    tables.push(shared_table(&rows, &failed, cli.runs));
    write(cli, &tables)?;
    print!("{}", tables.join("\n"));
    Ok(())
}

fn write(cli: &Cli, tables: &[String]) -> Result<(), String> {
    std::fs::write(&cli.output, tables.join("\n")).map_err(|e| format!("{}: {e}", cli.output.display()))
}

fn one_line(name: &str, error: &str) -> String {
    format!("{name}: {}", error.trim().replace('\n', "; "))
}

/// All of them, with a bar that names the one at work.
fn progress(list: &[Workload]) -> impl Iterator<Item = &Workload> {
    let style = ProgressStyle::with_template("{spinner} {msg:<14} {pos} of {len}, {eta} to go");
    let bar = ProgressBar::new(list.len() as u64).with_style(style.expect("the template is well-formed"));
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut done = 0;
    let mut rest = list.iter();
    std::iter::from_fn(move || {
        bar.set_position(done);
        done += 1;
        let Some(w) = rest.next() else {
            bar.finish_and_clear();
            return None;
        };
        bar.set_message(w.name);
        Some(w)
    })
}

fn shared_table(rows: &[shared::Row], failed: &[String], runs: u32) -> String {
    let mut out = String::from("## All data shared\n\n");
    let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string cannot fail");
    line("`--shared`: all arrays from `bz_alloc`. Processor time in multiples of that of as many originals at once, the least of".into());
    line(format!(
        "{runs} rounds. First on one node, then on two, where each runs the kernel with arrays of its own. *First run*: nothing is"
    ));
    line("learnt. *Learnt*: after four runs. *Sites*: accesses that were learnt, libraries included.\n".into());
    line(format!("{}\n", machine()));
    line(format!("| program | original s | {} | sites |", shared::FORMS.join(" | ")));
    line(format!("|{}", "---|".repeat(3 + shared::FORMS.len())));
    let cell = |v: Option<f64>| v.map_or("-".to_owned(), |v| format!("{v:.2}"));
    let cells = |of: &dyn Fn(usize) -> Option<f64>| (0..shared::FORMS.len()).map(|k| cell(of(k))).collect::<Vec<_>>();
    for row in rows {
        let cells = cells(&|k| row.forms.get(k).copied()).join(" | ");
        line(format!("| {} | {:.3} | {cells} | {} |", row.name, row.original, row.sites));
    }
    let mean = |k: usize| {
        let all: Vec<f64> = rows.iter().filter_map(|r| r.forms.get(k).copied()).collect();
        (!all.is_empty()).then(|| geometric_mean(&all))
    };
    line(format!("| geometric mean | | {} | |", cells(&mean).join(" | ")));
    failed.iter().for_each(|note| line(format!("\n- not measured: {note}")));
    out
}

fn measure(w: &Workload, cli: &Cli, tools: &others::Tools, own: &Path, signals: &mut Signals) -> Result<Row, String> {
    let runs = cli.runs;
    let mut command = Command::new(own);
    command.args(["overhead", "--json", "-r", &runs.to_string(), "--"]).arg(&w.program).args(&w.args);
    command.stdin(match &w.stdin {
        Some(path) => Stdio::from(std::fs::File::open(path).map_err(|e| e.to_string())?),
        None => Stdio::null(),
    });
    let report: serde_json::Value = serde_json::from_slice(&must(&mut command)?).map_err(|e| e.to_string())?;
    let ratio = |v: &serde_json::Value| {
        let part = |name: &str| v["ratio"][name].as_f64().unwrap_or(f64::NAN);
        (part("median"), part("min"), part("max"))
    };
    let variants = report["variants"].as_array().ok_or("no variants in the report")?;
    let count = |name: &str| report["counts"][name].as_f64().unwrap_or(f64::NAN);
    let others = match cli.others {
        true => others::measure(w, runs, tools, signals)?,
        false => std::array::from_fn(|_| Err("-".to_owned())),
    };
    let mut remarks: Vec<String> =
        report["remarks"].as_array().into_iter().flatten().filter_map(|r| Some(r.as_str()?.to_owned())).collect();
    // A trap costs microseconds: thousands are what a program pays for.
    if let Some(traps) = report["counts"]["runtime"]["traps"].as_u64().filter(|&n| n > 1000) {
        remarks.push(format!("{traps} traps at old code addresses"));
    }
    Ok(Row {
        name: w.name,
        kind: w.kind,
        ratios: variants.iter().skip(1).map(ratio).collect(),
        others,
        growth: count("inserted") / count("instructions"),
        checks: count("checks") / count("instructions"),
        remarks,
    })
}

fn table(rows: &[Row], failed: &[String], runs: u32) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string cannot fail");
    line("# What checks and polls cost\n".into());
    line("Written by `cargo run --release -p blizzard-bench-overhead`; see `README.md`. Ratios of processor time to the original's, the".into());
    line(format!(
        "median of {runs} rounds, in brackets from .. to. The last two columns are exact counts for each executed instruction of the"
    ));
    line(
        "program, its libraries included: executed checks, and instructions that were inserted for checks and polls.\n"
            .into(),
    );
    line(format!("{}\n", machine()));
    let others = others::NAMES.join(" | ");
    line(format!(
        "| program | relocated | loads | stores | all | all + polls | guarded | {others} | checks | inserted |"
    ));
    line(format!("|{}", "---|".repeat(9 + others::NAMES.len())));
    for row in rows {
        let mut cells = vec![row.name.to_owned()];
        cells.extend(row.ratios.iter().enumerate().map(|(k, (median, min, max))| {
            if k == 5 { format!("**{median:.2}** ({min:.2} .. {max:.2})") } else { format!("{median:.2}") }
        }));
        cells.extend(row.others.iter().map(|o| o.as_ref().map_or_else(Clone::clone, |r| format!("{:.2}", r.median))));
        cells.push(format!("{:.3}", row.checks));
        cells.push(format!("{:.3}", row.growth));
        line(format!("| {} |", cells.join(" | ")));
    }
    line(String::new());
    line("| figure | aim | measured |".into());
    line("|---|---|---|".into());
    for (what, kind, column, aim) in [
        ("relocation alone, kernels", Kind::Kernel, 0, "mean 1.01, worst 1.05"),
        ("relocation alone, applications", Kind::Application, 0, "mean 1.01, worst 1.05"),
        ("guarded, kernels", Kind::Kernel, 5, "mean 1.02, worst 1.06"),
        ("guarded, applications", Kind::Application, 5, "mean 1.02, worst 1.08"),
        ("all checks + polls, kernels", Kind::Kernel, 4, "mean 1.15, worst 1.5"),
        ("all checks + polls, applications", Kind::Application, 4, "each 1.10"),
    ] {
        let values: Vec<f64> =
            rows.iter().filter(|r| r.kind == kind).filter_map(|r| Some(r.ratios.get(column)?.0)).collect();
        if !values.is_empty() {
            let worst = values.iter().copied().fold(0.0, f64::max);
            line(format!("| {what} | {aim} | mean {:.2}, worst {worst:.2} |", geometric_mean(&values)));
        }
    }
    let slower = |r: &&Row| r.others[0].as_ref().is_ok_and(|asan| r.ratios[4].0 > asan.median);
    let slower: Vec<&str> = rows.iter().filter(slower).map(|r| r.name).collect();
    line(format!(
        "| slower than source-level AddressSanitizer | none | {} |",
        if slower.is_empty() { "none".into() } else { slower.join(", ") }
    ));
    line("\nMeans are geometric.".into());
    for note in failed {
        line(format!("\n- not measured: {note}"));
    }
    // What is said of many is said once.
    let mut remarks: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows {
        row.remarks.iter().for_each(|text| remarks.entry(text).or_default().push(row.name));
    }
    for (text, names) in remarks {
        line(format!("\n- {}: {text}", names.join(", ")));
    }
    out
}

/// Processor, kernel, compiler, date.
fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let cpu = info
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = read("/proc/sys/kernel/osrelease");
    let first = |program: &str, args: &[&str]| {
        let out = must(Command::new(program).args(args)).unwrap_or_default();
        String::from_utf8_lossy(&out).lines().next().unwrap_or("unknown").to_owned()
    };
    let load = read("/proc/loadavg");
    format!(
        "{cpu}, {cores} processors, Linux {}, {}, load {} at the end, {}.",
        kernel.trim().split('-').next().unwrap_or_default(),
        first("gcc", &["--version"]),
        load.split(' ').next().unwrap_or("unknown"),
        first("date", &["-u", "+%Y-%m-%d"])
    )
}
