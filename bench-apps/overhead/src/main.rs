//! `cargo run --release -p blizzard-bench-overhead`: measures everything and writes `RESULTS.md`.
//!
//! The program is its own `blizzard`: called with one of that program's commands, it is that program.

use blizzard::launch::signals::Signals;
use blizzard_bench_overhead::workloads::{self, Kind, Workload};
use blizzard_bench_overhead::{geometric_mean, must, others};
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

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|arg| [OsStr::new("overhead"), "cache".as_ref(), "config".as_ref()].contains(&&*arg))
    {
        return blizzard::cli::command::main();
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
    let (mut list, left_out) = workloads::all(folder.path(), &own)?;
    list.retain(|w| cli.only.as_ref().is_none_or(|part| w.name.contains(part.as_str())));
    let tools = others::Tools::find(&cli.frida, folder.path());
    let mut signals = Signals::listen().map_err(|e| e.to_string())?;
    let style = ProgressStyle::with_template("{spinner} {msg:<14} {pos} of {len}, {eta} to go");
    let bar = ProgressBar::new(list.len() as u64).with_style(style.expect("the template is well-formed"));
    bar.enable_steady_tick(Duration::from_millis(200));
    let (mut rows, mut failed) = (Vec::new(), left_out);
    failed.extend(tools.missing.iter().cloned());
    for workload in &list {
        bar.set_message(workload.name);
        match measure(workload, cli, &tools, &own, &mut signals) {
            Ok(row) => rows.push(row),
            Err(e) => failed.push(format!("{}: {}", workload.name, e.trim().replace('\n', "; "))),
        }
        bar.inc(1);
        // What has been measured stays, should the rest be stopped.
        let text = table(&rows, &failed, cli.runs);
        std::fs::write(&cli.output, text).map_err(|e| format!("{}: {e}", cli.output.display()))?;
    }
    bar.finish_and_clear();
    print!("{}", table(&rows, &failed, cli.runs));
    Ok(())
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
