//! `blizzard demo`: the whole of Blizzard on one program.
//!
//! Input: numbers of nodes. Output: a table on standard output; an error if a checksum differs.
//!
//! Builds EM3D (its source is part of this executable) with the system's C compiler, rewrites it, audits the result, runs the
//! plain program and then the rewritten one on several numbers of nodes, compares the checksums, and prints a table. Everything it makes is in
//! a temporary folder that is gone afterwards.
//!
//! Times are those of EM3D's iterations alone, the median of a number of runs. Executed checks are counted in a run of their own with a
//! counting rewrite, because counting takes time.

use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::base::output_file::AtomicFile;
use crate::base::progress::{self, Progress};
use crate::cli::make::client::Client;
use crate::cli::shared::arguments::node_count;
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

const SOURCE: &str = include_str!("../../../bench-apps/em3d/em3d.c");

/// Build, rewrite and run the benchmark EM3D: plain, then on 1, 2 and 4 nodes
///
/// The graph is that of the thesis that Blizzard follows: 192,000 graph nodes of degree 5, 5 % of the edges remote, 20 iterations.
/// The exit status is 1 if a run's checksum differs from the plain program's.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    blizzard demo\n  \
    blizzard demo --nodes 1,2 --graph-nodes 19200    # smaller")]
pub struct DemoCommand {
    /// Numbers of node processes to run on
    #[arg(short, long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4", value_parser = node_count)]
    nodes: Vec<u32>,
    /// Nodes of EM3D's graph
    #[arg(long, value_name = "N", default_value_t = 192_000)]
    graph_nodes: u64,
    /// Iterations of EM3D
    #[arg(long, value_name = "N", default_value_t = 20)]
    iters: u64,
    /// Runs of which the median time is shown
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
}

/// What one run of EM3D says.
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
    reading: Reading,
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

/// EM3D, compiled and rewritten, in a temporary folder.
struct Prepared {
    program: PathBuf,
    rewritten: PathBuf,
    counting: PathBuf,
    stats: PathBuf,
    /// What was inserted, in words.
    summary: String,
    rewriting: Duration,
    audit: audit::Audit,
}

impl DemoCommand {
    /// Runs the demonstration and prints the table.
    pub fn execute(self) -> Result<ExitCode> {
        let compiler = Compiler::find(None)?
            .ok_or_else(|| Error::new("the demonstration needs a C compiler: install gcc or clang, or set CC"))?;
        let folder = scratch::folder("demo")?;
        let progress = self.progress();
        let prepared = prepare(&compiler, folder.path(), &progress)?;
        let rows = self.measure(&prepared, &progress)?;
        drop(progress);
        print(&self.report(&compiler, &prepared, &rows))?;
        match prepared.audit.open.first() {
            None => Ok(ExitCode::SUCCESS),
            Some(first) => Err(Error::new(format!(
                "the audit of the rewritten program has {} findings",
                prepared.audit.open.len()
            ))
            .because(format!("{:#x} ({}): {}", first.at, first.place, first.reason))
            .help("blizzard verify lists them for a program of your own")),
        }
    }

    /// The bar that shows how far the demonstration is; hidden where standard error is not a terminal.
    fn progress(&self) -> Progress {
        let configurations = 1 + self.nodes.len() as u64;
        let steps = 3 + u64::from(self.runs) * configurations + self.nodes.len() as u64;
        progress::begin(steps, "[{bar:24}] {pos}/{len} {wide_msg}")
    }

    /// Runs the plain program, then the rewritten one on each number of nodes.
    fn measure(&self, prepared: &Prepared, progress: &Progress) -> Result<Vec<Row>> {
        let args = ["--nodes", &self.graph_nodes.to_string(), "--iters", &self.iters.to_string()].map(str::to_owned);
        let plain = self.median(|run| {
            step(progress, format!("plain program, run {run} of {}", self.runs), || {
                Ok(Launched { reading: run_plain(&prepared.program, &args)?, totals: serde_json::Value::Null })
            })
        })?;
        let mut rows = vec![Row { name: "plain program".into(), reading: plain.reading, counts: None }];
        for &nodes in &self.nodes {
            let name = if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") };
            let timed = self.median(|run| {
                step(progress, format!("{name}, run {run} of {}", self.runs), || {
                    run_launched(&prepared.rewritten, nodes, &args, &prepared.stats)
                })
            })?;
            let counted = step(progress, format!("{name}, counting checks"), || {
                run_launched(&prepared.counting, nodes, &args, &prepared.stats)
            })?;
            same_as_plain(&rows[0].reading, &name, &timed.reading)?;
            same_as_plain(&rows[0].reading, &name, &counted.reading)?;
            let counts = Counts {
                checks: sum(&counted.totals, &["load_checks", "store_checks"])?,
                misses: sum(&timed.totals, &["read_misses", "write_misses", "upgrades"])?,
                messages: sum(&timed.totals, &["messages_sent"])?,
                bytes: sum(&timed.totals, &["bytes_sent"])?,
            };
            rows.push(Row { name, reading: timed.reading, counts: Some(counts) });
        }
        Ok(rows)
    }

    fn report(&self, compiler: &Compiler, prepared: &Prepared, rows: &[Row]) -> String {
        let audit = match prepared.audit.open.len() {
            0 => "nothing open".to_owned(),
            open => format!("{open} findings open"),
        };
        format!(
            "EM3D, {} graph nodes, degree 5, 5 % remote, {} iterations; compiled by {} -O2\n\
             rewritten in {:.1} ms; {}; audit: {audit}\n\n{}\n\
             all checksums are {}\n\
             time: of the iterations, median of {} {}; checks: counted in a separate run\n{}",
            grouped(self.graph_nodes),
            self.iters,
            compiler.name(),
            prepared.rewriting.as_secs_f64() * 1e3,
            prepared.summary,
            table(rows),
            rows[0].reading.checksum,
            self.runs,
            if self.runs == 1 { "run" } else { "runs" },
            processors_note(&self.nodes),
        )
    }

    /// Runs `one` as often as asked; the run with the median time. All must have computed the same.
    fn median(&self, mut one: impl FnMut(u32) -> Result<Launched>) -> Result<Launched> {
        let mut all = (1..=self.runs).map(&mut one).collect::<Result<Vec<_>>>()?;
        for later in &all[1..] {
            same_as_plain(&all[0].reading, "a repeated run", &later.reading)?;
        }
        all.sort_by(|a, b| a.reading.seconds.total_cmp(&b.reading.seconds));
        Ok(all.swap_remove(all.len() / 2))
    }
}

/// Does one step of the demonstration, shown by the bar.
fn step<T>(progress: &Progress, what: String, work: impl FnOnce() -> Result<T>) -> Result<T> {
    progress.set_message(what);
    let done = work()?;
    progress.inc(1);
    Ok(done)
}

/// Compiles EM3D, rewrites it twice (once with counting), and audits the result.
fn prepare(compiler: &Compiler, folder: &Path, progress: &Progress) -> Result<Prepared> {
    let at = |name: &str| folder.join(name);
    let (program, rewritten, counting) = (at("em3d"), at("em3d.blz"), at("em3d.count"));
    step(progress, format!("compiling EM3D with {}", compiler.name()), || compile(compiler, &at("em3d.c"), &program))?;
    let (summary, rewriting) = step(progress, "rewriting".into(), || {
        let began = Instant::now();
        let summary = rewrite(&program, &rewritten, &Options::default())?;
        let took = began.elapsed();
        rewrite(&program, &counting, &Options { count: true, ..Options::default() })?;
        Ok((summary, took))
    })?;
    let audit = step(progress, "auditing the rewritten program".into(), || {
        let bytes = fs::read(&rewritten).map_err(|e| Error::new("cannot read the rewritten program").because(e))?;
        audit::verify(&bytes, "em3d.blz")
    })?;
    Ok(Prepared { program, rewritten, counting, stats: at("stats.json"), summary, rewriting, audit })
}

/// Compiles EM3D as a user would: `cc -O2 $(blizzard config --cflags) em3d.c $(blizzard config --libs)`.
fn compile(compiler: &Compiler, source: &Path, program: &Path) -> Result<()> {
    fs::write(source, SOURCE).map_err(|e| Error::new("cannot write the source of EM3D").because(e))?;
    let client = Client::install()?;
    let mut command = compiler.command();
    // The compiler's temporary files go where ours are, and it ends when we do: interrupted, it would leave them.
    command.env("TMPDIR", program.with_file_name(""));
    sys::tie_to_parent(&mut command, &[]);
    let output = command
        .args(["-O2", "-std=c11"])
        .arg(client.cflags())
        .arg(source)
        .args(client.libs())
        .arg("-o")
        .arg(program)
        .output()
        .map_err(|e| Error::new(format!("cannot run {}", compiler.name())).because(e))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(format!("{} cannot compile EM3D", compiler.name()))
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
    let report = pipeline::rewrite_program(&input, "em3d", &options, &source.record(), &mut file);
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

/// EM3D's checksum from standard output and its time from standard error.
fn read(output: &Output) -> Result<Reading> {
    let text = String::from_utf8_lossy(&output.stdout);
    let checksums: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("checksum ")).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    let seconds =
        errors.lines().find_map(|line| line.strip_prefix("em3d: ")?.split_once(" s for")?.0.parse::<f64>().ok());
    match (checksums.as_slice(), seconds) {
        ([checksum], Some(seconds)) => Ok(Reading { checksum: (*checksum).to_owned(), seconds }),
        _ => Err(Error::new("EM3D did not print one checksum and its time").because(last_lines(&output.stderr))),
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
    let plain = rows[0].reading.seconds;
    let mut cells = vec![header];
    for row in rows {
        let counts = row
            .counts
            .as_ref()
            .map_or([const { String::new() }; 4], |c| [c.checks, c.misses, c.messages, c.bytes].map(grouped));
        let [checks, misses, messages, bytes] = counts;
        let time = format!("{:.3} s", row.reading.seconds);
        let ratio = format!("{:.2}", row.reading.seconds / plain);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn reading(checksum: &str, seconds: f64) -> Reading {
        Reading { checksum: checksum.to_owned(), seconds }
    }

    #[test]
    fn checksum_and_time_are_read_from_em3ds_output() {
        let output = |out: &str, err: &str| Output {
            status: std::process::ExitStatus::from_raw(0),
            stdout: out.into(),
            stderr: err.into(),
        };
        let time = "em3d: 0.250000 s for the iterations on 2 nodes; 4.70 % of the edges cross\n";
        assert_eq!(read(&output("em3d …\nchecksum 0x12\n", time)).unwrap(), reading("0x12", 0.25));
        assert!(read(&output("checksum 0x12\nchecksum 0x12\n", time)).is_err());
        assert!(read(&output("", time)).is_err());
        assert!(read(&output("checksum 0x12\n", "")).is_err());
    }

    #[test]
    fn a_different_checksum_is_an_error_that_shows_both() {
        let error = same_as_plain(&reading("0x1", 1.0), "2 nodes", &reading("0x2", 1.0)).unwrap_err().to_string();
        assert!(error.contains("2 nodes") && error.contains("0x1") && error.contains("0x2"), "{error}");
    }

    #[test]
    fn the_table_is_aligned() {
        let counts = Counts { checks: 12_345_678, misses: 90, messages: 1_000, bytes: 128_000 };
        let rows = [
            Row { name: "plain program".into(), reading: reading("0", 0.5), counts: None },
            Row { name: "2 nodes".into(), reading: reading("0", 0.625), counts: Some(counts) },
        ];
        let expected = [
            "                  time  to plain  checks executed  misses  messages    bytes",
            "plain program  0.500 s      1.00",
            "2 nodes        0.625 s      1.25       12,345,678      90     1,000  128,000",
        ];
        assert_eq!(table(&rows).lines().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn numbers_are_grouped_by_three() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn the_median_run_is_chosen_and_repeated_runs_must_agree() {
        let demo = DemoCommand { nodes: vec![1], graph_nodes: 128, iters: 1, runs: 3 };
        let launched = |reading| Ok(Launched { reading, totals: serde_json::Value::Null });
        let median = demo.median(|run| launched(reading("0x1", [9.0, 1.0, 4.0][run as usize - 1]))).unwrap();
        assert_eq!(median.reading.seconds, 4.0);
        assert!(demo.median(|run| launched(reading(&format!("{run}"), 1.0))).is_err());
    }
}
