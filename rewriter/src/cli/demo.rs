//! `blizzard demo`: the whole of Blizzard on one program.
//!
//! Input: numbers of nodes. Output: a table and bars on standard output; an error if a checksum differs.
//!
//! Builds three forms of a program (their sources are part of this executable) with the system's C compiler, rewrites them, audits the results, runs the
//! plain program and each form on several numbers of nodes, compares the checksums, and prints a table. Everything it makes is in
//! a temporary folder that is gone afterwards.
//!
//! Times are those of the program's iterations alone. All runs take turns, so that what disturbs the machine disturbs all of them; shown are the median time,
//! and its ratio to the plain program's. Executed checks are counted in a run of their own with a counting rewrite,
//! because counting takes time.

use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::base::output_file::AtomicFile;
use crate::base::progress::{self, Progress};
use crate::cli::make::client::Client;
use crate::cli::shared::arguments::{few_nodes, whole};
use crate::cli::shared::compiler::Compiler;
use crate::cli::shared::libraries::{self, LibraryOptions};
use crate::cli::shared::print::print;
use crate::cli::shared::scratch;
use crate::launch::sys;
use crate::pipeline;
use crate::reports::audit;
use crate::reports::overhead::render::grouped;
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

/// The program's folder; what all applications have in common is beside it.
const FOLDER: &str = "unstructured";
const SOURCES: [(&str, &str); 5] = [
    ("common.h", include_str!("../../../bench-apps/common.h")),
    ("common_shared.h", include_str!("../../../bench-apps/common_shared.h")),
    ("unstructured/unstructured.h", include_str!("../../../bench-apps/unstructured/unstructured.h")),
    ("unstructured/unstructured.c", include_str!("../../../bench-apps/unstructured/unstructured.c")),
    ("unstructured/custom.c", include_str!("../../../bench-apps/unstructured/custom.c")),
];

/// A form of the program: its name in the table, and its source with the compiler's option.
struct Form {
    name: &'static str,
    source: &'static str,
    option: Option<&'static str>,
}

/// The first one, without Blizzard, is the plain program.
const FORMS: [Form; 3] = [
    Form { name: "transparent", source: "unstructured.c", option: None },
    Form { name: "large blocks", source: "unstructured.c", option: Some("-DTUNED") },
    Form { name: "own protocol", source: "custom.c", option: None },
];

/// Build, rewrite and run a program that shares memory: plain, then on 1 and 2 nodes
///
/// The program computes the flow of a gas on a mesh, after the application "unstructured" of the thesis that Blizzard follows. Three forms: shared memory as it
/// is; with larger blocks, at home where they are used (bz_alloc_with); with a protocol of its own (tempest.h).
/// The exit status is 1 if a run's checksum differs from the plain program's.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard demo\n  \
    blizzard demo --nodes 2,4 --side 21    # as large as in the thesis")]
pub struct DemoCommand {
    /// Numbers of node processes to run on
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "1,2", value_parser = few_nodes)]
    nodes: Vec<u32>,
    /// Points of the mesh each way
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = whole::<u64>(2..=400))]
    side: u64,
    /// Iterations of the program
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole::<u64>(1..=1_000_000))]
    iters: u64,
    /// Runs of which the median time is shown
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<u32>(1..=u32::MAX.into()))]
    runs: u32,
}

/// What one run of the program says.
#[derive(Debug, Clone, PartialEq)]
struct Reading {
    checksum: String,
    /// Of the iterations.
    seconds: f64,
}

/// One line of the table.
#[derive(Debug)]
struct Row {
    name: String,
    seconds: f64,
    /// To the plain program.
    ratio: f64,
    counts: Option<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    checks: u64,
    misses: u64,
    messages: u64,
    bytes: u64,
}

/// A run with the runtime's counters.
struct Launched {
    reading: Reading,
    totals: serde_json::Value,
}

/// A form of the program, compiled and rewritten, in a temporary folder.
struct Prepared {
    name: &'static str,
    program: PathBuf,
    rewritten: PathBuf,
    counting: PathBuf,
    /// What was inserted, in words.
    summary: String,
    rewriting: Duration,
    audit: audit::Audit,
}

/// What is run in each turn, and what its runs said.
struct Configuration<'a> {
    name: String,
    form: &'a Prepared,
    /// None: the plain program.
    nodes: Option<u32>,
    runs: Vec<Launched>,
}

impl DemoCommand {
    /// Runs the demonstration and prints the table.
    pub fn execute(self) -> Result<ExitCode> {
        let compiler = Compiler::find(None)?
            .ok_or_else(|| Error::new("the demonstration needs a C compiler: install gcc or clang, or set CC"))?;
        let folder = scratch::folder("demo")?;
        let progress = self.progress();
        let write = |(name, text)| fs::write(folder.path().join::<&str>(name), text);
        fs::create_dir(folder.path().join(FOLDER))
            .and_then(|()| SOURCES.into_iter().try_for_each(write))
            .map_err(|e| Error::new("cannot write the program's source").because(e))?;
        let forms: Vec<_> =
            FORMS.iter().map(|form| prepare(&compiler, form, folder.path(), &progress)).collect::<Result<_>>()?;
        let rows = self.measure(&forms, &folder.path().join("stats.json"), &progress)?;
        drop(progress);
        print(&self.report(&compiler, &forms, &rows))?;
        let Some((form, first)) = forms.iter().find_map(|form| Some((form, form.audit.open.first()?))) else {
            return Ok(ExitCode::SUCCESS);
        };
        Err(Error::new(format!(
            "the audit of the rewritten program has {} findings ({})",
            form.audit.open.len(),
            form.name
        ))
        .because(format!("{:#x} ({}): {}", first.at, first.place, first.reason))
        .help("blizzard verify lists them for a program of your own"))
    }

    /// The bar that shows how far the demonstration is; hidden where standard error is not a terminal.
    fn progress(&self) -> Progress {
        let launched = (FORMS.len() * self.nodes.len()) as u64;
        let steps = 3 * FORMS.len() as u64 + u64::from(self.runs) * (1 + launched) + launched;
        progress::begin(steps, "[{bar:24}] {pos}/{len} {wide_msg}", "begins")
    }

    /// Runs the plain program and each form on each number of nodes, in turn. All must have computed the same.
    fn measure(&self, forms: &[Prepared], stats: &Path, progress: &Progress) -> Result<Vec<Row>> {
        let args = [("--side", self.side), ("--iters", self.iters)]
            .map(|(name, value)| [name.to_owned(), value.to_string()])
            .concat();
        let mut all = vec![Configuration { name: "plain program".into(), form: &forms[0], nodes: None, runs: vec![] }];
        for form in forms {
            for &nodes in &self.nodes {
                let name = format!("{}, {nodes} node{}", form.name, if nodes == 1 { "" } else { "s" });
                all.push(Configuration { name, form, nodes: Some(nodes), runs: vec![] });
            }
        }
        let mut expected = None;
        for turn in 1..=self.runs {
            for configuration in &mut all {
                let Configuration { name, form, nodes, runs } = configuration;
                let run = step(progress, format!("{name}, run {turn} of {}", self.runs), || match *nodes {
                    None => Ok(Launched { reading: run_plain(&form.program, &args)?, totals: serde_json::Value::Null }),
                    Some(nodes) => run_launched(&form.rewritten, nodes, &args, stats),
                })?;
                same_as_plain(expected.get_or_insert_with(|| run.reading.clone()), name, &run.reading)?;
                runs.push(run);
            }
        }
        let seconds = |runs: &[Launched]| median(runs.iter().map(|run| run.reading.seconds).collect());
        let plain = seconds(&all[0].runs);
        let row = |Configuration { name, form, nodes, runs }| {
            let Some(nodes) = nodes else {
                return Ok(Row { name, seconds: plain, ratio: 1.0, counts: None });
            };
            let counted = step(progress, format!("{name}, counting checks"), || {
                run_launched(&form.counting, nodes, &args, stats)
            })?;
            same_as_plain(expected.as_ref().unwrap_or(&counted.reading), &name, &counted.reading)?;
            let totals = &runs[runs.len() - 1].totals;
            let counts = Counts {
                checks: sum(&counted.totals, &["load_checks", "store_checks"])?,
                misses: sum(totals, &["read_misses", "write_misses", "upgrades", "user_faults"])?,
                messages: sum(totals, &["messages_sent"])?,
                bytes: sum(totals, &["bytes_sent", "bulk_bytes"])?,
            };
            let seconds = seconds(&runs);
            Ok(Row { name, seconds, ratio: seconds / plain, counts: Some(counts) })
        };
        all.into_iter().map(row).collect()
    }

    fn report(&self, compiler: &Compiler, forms: &[Prepared], rows: &[Row]) -> String {
        let audit = match forms.iter().map(|form| form.audit.open.len()).sum() {
            0 => "nothing open".to_owned(),
            open => format!("{open} findings open"),
        };
        format!(
            "gas on a mesh of {} points, {} iterations; compiled by {} -O2\n\
             rewritten in {:.1} ms; {}; audit: {audit}\n\n{}\n{}\n{}\n\
             all checksums are equal\n\
             time: of the iterations; {} {} each, in turn; the median, and its ratio to the plain program's\n\
             checks: counted in a separate run; misses, messages, bytes: of the last run\n{}",
            grouped(self.side.saturating_pow(3)),
            self.iters,
            compiler.name(),
            forms[0].rewriting.as_secs_f64() * 1e3,
            forms[0].summary,
            table(rows),
            bars(rows),
            verdict(rows),
            self.runs,
            if self.runs == 1 { "run" } else { "runs" },
            processors_note(&self.nodes),
        )
    }
}

/// The middle one of at least one number; of an even count the upper of two.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Does one step of the demonstration, shown by the bar.
fn step<T>(progress: &Progress, what: String, work: impl FnOnce() -> Result<T>) -> Result<T> {
    progress.set_message(what);
    let done = work()?;
    progress.inc(1);
    Ok(done)
}

/// Compiles a form of the program, rewrites it twice (once with counting), and audits the result.
fn prepare(compiler: &Compiler, form: &Form, folder: &Path, progress: &Progress) -> Result<Prepared> {
    let at = |kind: &str| folder.join(format!("{}.{kind}", form.name.replace(' ', "-")));
    let (program, rewritten, counting) = (at("plain"), at("blz"), at("count"));
    step(progress, format!("compiling the program ({}) with {}", form.name, compiler.name()), || {
        compile(compiler, form, &folder.join(FOLDER).join(form.source), &program)
    })?;
    let (summary, rewriting) = step(progress, "rewriting".into(), || {
        let began = Instant::now();
        let summary = rewrite(&program, &rewritten, &Options::default())?;
        let took = began.elapsed();
        rewrite(&program, &counting, &Options { count: true, ..Options::default() })?;
        Ok((summary, took))
    })?;
    let audit = step(progress, "auditing the rewritten program".into(), || {
        let bytes = fs::read(&rewritten).map_err(|e| Error::new("cannot read the rewritten program").because(e))?;
        audit::verify(&bytes, "unstructured.blz")
    })?;
    Ok(Prepared { name: form.name, program, rewritten, counting, summary, rewriting, audit })
}

/// Compiles it as a user would: `cc -O2 $(blizzard config --cflags) unstructured.c $(blizzard config --libs) -lm`.
fn compile(compiler: &Compiler, form: &Form, source: &Path, program: &Path) -> Result<()> {
    let client = Client::install()?;
    let mut command = compiler.command();
    // The compiler's temporary files go where ours are, and it ends when we do: interrupted, it would leave them.
    command.env("TMPDIR", program.with_file_name(""));
    sys::tie_to_parent(&mut command, &[]);
    let output = command
        .args(["-O2", "-std=c11"])
        .args(form.option)
        .arg(client.cflags())
        .arg(source)
        .args(client.libs())
        .args(["-lm", "-o"])
        .arg(program)
        .output()
        .map_err(|e| Error::new(format!("cannot run {}", compiler.name())).because(e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(format!("{} cannot compile the program", compiler.name()))
        .because(last_lines(&output.stderr))
        .help("the C library's headers may be missing: on Debian, install libc6-dev"))
}

/// Rewrites a file; says in a few words what was done.
fn rewrite(program: &Path, output: &Path, options: &Options) -> Result<String> {
    let input = fs::read(program).map_err(|e| Error::new("cannot read the compiled program").because(e))?;
    let (options, source) = LibraryOptions::default().fitted(&input, *options)?;
    libraries::prepare(program, &source)?;
    let failed = |e: std::io::Error| Error::new("cannot write the rewritten program").because(e);
    let mut file = AtomicFile::new(output, 0o700);
    let report = pipeline::rewrite_program(&input, "unstructured", &options, &source.record(), &mut file);
    file.failure().map_or(Ok(()), |e| Err(failed(e)))?;
    let report = report?;
    file.finish().map_err(failed)?;
    Ok(format!("{} checks and {} polls inserted", report.checks, report.polls))
}

fn run_plain(program: &Path, args: &[String]) -> Result<Reading> {
    let mut command = Command::new(program);
    command.args(args);
    sys::tie_to_parent(&mut command, &[]);
    read(&finish(command, "the plain program")?)
}

/// Runs through `blizzard run` itself, as a user would.
fn run_launched(program: &Path, nodes: u32, args: &[String], stats: &Path) -> Result<Launched> {
    let own = std::env::current_exe().map_err(|e| Error::new("cannot find my own executable").because(e))?;
    let mut command = Command::new(own);
    command.args(["run", "-n", &nodes.to_string(), "--stats"]).arg(stats).arg("--").arg(program).args(args);
    sys::tie_to_parent(&mut command, &[]);
    let reading = read(&finish(command, &format!("the run on {nodes} nodes"))?)?;
    let stats =
        fs::read(stats).map_err(|e| Error::new("cannot read the statistics of a run").because(e)).and_then(|text| {
            serde_json::from_slice::<serde_json::Value>(&text)
                .map_err(|e| Error::new("the statistics of a run are damaged").because(e))
        })?;
    Ok(Launched { reading, totals: stats["totals"].clone() })
}

fn finish(mut command: Command, what: &str) -> Result<Output> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|e| Error::new(format!("cannot start {what}")).because(e))?;
    if output.status.success() {
        return Ok(output);
    }
    Err(Error::new(format!("{what} failed ({})", output.status)).because(last_lines(&output.stderr)))
}

/// The end of what a program wrote to standard error.
fn last_lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(8)..].join("\n    ")
}

/// The checksum from standard output and its time from standard error.
fn read(output: &Output) -> Result<Reading> {
    let text = String::from_utf8_lossy(&output.stdout);
    let checksums: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("checksum ")).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    let seconds = errors
        .lines()
        .find_map(|line| line.strip_prefix("unstructured: ")?.split_once(" s for")?.0.parse::<f64>().ok());
    match (checksums.as_slice(), seconds) {
        ([checksum], Some(seconds)) => Ok(Reading { checksum: (*checksum).to_owned(), seconds }),
        _ => Err(Error::new("the program did not print one checksum and its time").because(last_lines(&output.stderr))),
    }
}

fn same_as_plain(plain: &Reading, name: &str, reading: &Reading) -> Result<()> {
    if plain.checksum == reading.checksum {
        return Ok(());
    }
    Err(Error::new(format!("{name}: the checksum differs"))
        .because(format!("expected {}, got {}", plain.checksum, reading.checksum)))
}

fn sum(totals: &serde_json::Value, names: &[&str]) -> Result<u64> {
    names
        .iter()
        .map(|name| totals[name].as_u64().ok_or_else(|| Error::new(format!("the statistics have no counter {name}"))))
        .sum()
}

/// Says when nodes have to share processors: times then say little about the nodes.
fn processors_note(nodes: &[u32]) -> String {
    let processors = rustix::thread::sched_getaffinity(None).map_or(1, |set| set.count());
    match nodes.iter().max() {
        Some(&most) if most > processors => {
            format!("this machine offers {processors} processors: runs of more nodes share them\n")
        }
        _ => String::new(),
    }
}

fn table(rows: &[Row]) -> String {
    let header = ["", "time", "to plain", "checks executed", "misses", "messages", "bytes"].map(str::to_owned);
    let mut cells = vec![header];
    for row in rows {
        let counts = row
            .counts
            .as_ref()
            .map_or([const { String::new() }; 4], |c| [c.checks, c.misses, c.messages, c.bytes].map(grouped));
        let [checks, misses, messages, bytes] = counts;
        let time = format!("{:.3} s", row.seconds);
        let ratio = format!("{:.2}", row.ratio);
        cells.push([row.name.clone(), time, ratio, checks, misses, messages, bytes]);
    }
    let widths: [usize; 7] = std::array::from_fn(|k| cells.iter().map(|row| row[k].len()).max().unwrap_or(0));
    let line = |row: &[String; 7]| {
        let mut text = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(widths).skip(1) {
            text.push_str(&format!("  {cell:>width$}"));
        }
        text.trim_end().to_owned() + "\n"
    };
    cells.iter().map(line).collect()
}

/// Columns of the longest bar.
const LONGEST: f64 = 48.0;

/// The ratios as bars, in eighths of a column, at least one.
fn bars(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let most = rows.iter().map(|row| row.ratio).fold(1.0, f64::max);
    let bar = |ratio: f64| {
        let eighths = ((ratio / most * LONGEST * 8.0).round() as usize).max(1);
        let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
        "█".repeat(eighths / 8) + part
    };
    rows.iter().map(|row| format!("{:<width$}  {} {:.2}\n", row.name, bar(row.ratio), row.ratio)).collect()
}

/// A smaller gain may be noise.
const GAIN: f64 = 1.05;

/// Which one was fastest, in a line.
fn verdict(rows: &[Row]) -> String {
    match rows.iter().min_by(|a, b| a.ratio.total_cmp(&b.ratio)) {
        Some(best) if best.ratio * GAIN < 1.0 => {
            format!("{} runs {:.2} times as fast as the plain program", best.name, 1.0 / best.ratio)
        }
        _ => "nothing was clearly faster than the plain program: nodes need a processor each, with nothing else to do"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn reading(checksum: &str, seconds: f64) -> Reading {
        Reading { checksum: checksum.to_owned(), seconds }
    }

    #[test]
    fn checksum_and_time_are_read_from_the_programs_output() {
        let output = |out: &str, err: &str| Output {
            status: std::process::ExitStatus::from_raw(0),
            stdout: out.into(),
            stderr: err.into(),
        };
        let time = "unstructured: 0.250000 s for the iterations on 2 nodes\n";
        assert_eq!(read(&output("unstructured …\nchecksum 0x12\n", time)).unwrap(), reading("0x12", 0.25));
        assert!(read(&output("checksum 0x12\nchecksum 0x12\n", time)).is_err());
        assert!(read(&output("", time)).is_err());
        assert!(read(&output("checksum 0x12\n", "")).is_err());
    }

    #[test]
    fn a_different_checksum_is_an_error_that_shows_both() {
        let error = same_as_plain(&reading("0x1", 1.0), "2 nodes", &reading("0x2", 1.0)).unwrap_err().to_string();
        assert!(error.contains("2 nodes") && error.contains("0x1") && error.contains("0x2"), "{error}");
    }

    fn row(name: &str, seconds: f64, ratio: f64, counts: Option<Counts>) -> Row {
        Row { name: name.into(), seconds, ratio, counts }
    }

    #[test]
    fn the_table_is_aligned() {
        let counts = Counts { checks: 12_345_678, misses: 90, messages: 1_000, bytes: 128_000 };
        let rows = [row("plain program", 0.5, 1.0, None), row("2 nodes", 0.625, 1.25, Some(counts))];
        let expected = [
            "                  time  to plain  checks executed  misses  messages    bytes",
            "plain program  0.500 s      1.00",
            "2 nodes        0.625 s      1.25       12,345,678      90     1,000  128,000",
        ];
        assert_eq!(table(&rows).lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn bars_are_as_long_as_the_ratios_say_and_the_fastest_is_named() {
        let rows = [row("plain", 1.0, 1.0, None), row("a", 2.0, 2.0, None), row("b", 0.51, 0.51, None)];
        let expected = [
            format!("plain  {} 1.00", "█".repeat(24)),
            format!("a      {} 2.00", "█".repeat(48)),
            format!("b      {}▎ 0.51", "█".repeat(12)),
        ];
        assert_eq!(bars(&rows).lines().collect::<Vec<_>>(), expected);
        assert_eq!(verdict(&rows), "b runs 1.96 times as fast as the plain program");
        assert!(verdict(&rows[..2]).starts_with("nothing was clearly faster"));
        assert!(verdict(&[row("a", 0.98, 0.98, None)]).starts_with("nothing was clearly faster"));
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![9.0, 1.0, 4.0]), 4.0);
    }
}
