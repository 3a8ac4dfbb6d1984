//! Tables: [`Row`]s and sweep summaries -> text for the terminal and `RESULTS.md`.
//!
//! The last full results are kept as JSON beside `RESULTS.md`, so that a run of the corpus and a sweep, made at
//! different times, both stand in it with their own dates.

use crate::inside::Processor;
use crate::mutate::results::Results;
use crate::sweep::Summary;
use crate::trial::{Outcome, Row};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where and with what something was measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Circumstances {
    pub date: String,
    pub processor: String,
    pub processors: usize,
    pub memory_gb: u64,
    pub kernel: String,
    pub system: String,
    pub rustc: String,
    /// The commit that was built: rewriter and runtime.
    pub commit: String,
}

/// A run of the corpus.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CorpusResults {
    pub at: Circumstances,
    pub repeats: usize,
    /// Programs in the list; fewer rows are a run that was stopped.
    pub listed: usize,
    pub rows: Vec<Row>,
}

/// The last sweep of each kind.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SweepResults {
    pub sweeps: Vec<Sweep>,
}

/// A sweep.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sweep {
    pub at: Circumstances,
    pub summary: Summary,
}

impl Circumstances {
    /// Those of this moment.
    pub fn now() -> Self {
        let said = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).output().ok();
            output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
        };
        let field = |file: &str, name: &str| {
            let text = fs::read_to_string(file).unwrap_or_default();
            let line = text.lines().find(|l| l.starts_with(name)).unwrap_or_default();
            line.split_once([':', '=']).map_or("", |(_, value)| value).trim().trim_matches('"').to_owned()
        };
        let memory_kb = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
        Circumstances {
            date: said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            processor: field("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gb: memory_kb.div_ceil(1 << 20),
            kernel: said("uname", &["-sr"]),
            system: format!(
                "{} ({})",
                field("/etc/os-release", "PRETTY_NAME"),
                fs::read_to_string("/etc/debian_version").unwrap_or_default().trim()
            ),
            rustc: said("rustc", &["--version"]),
            commit: env!("CORPUS_COMMIT").to_owned(),
        }
    }

    /// In one line.
    pub fn line(&self) -> String {
        format!(
            "{}; {}, {} processors, {} GB; {}; {}; {}; built from commit {}",
            self.date,
            self.processor,
            self.processors,
            self.memory_gb,
            self.kernel,
            self.system,
            self.rustc,
            self.commit
        )
    }
}

/// The geometric mean of positive numbers.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = values.into_iter().filter(|v| *v > 0.0).map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Slow-downs are not computed from less processor time than this.
const MEASURABLE_SECONDS: f64 = 0.05;

/// A part of what a workload costs.
type Part = fn(Processor) -> f64;
/// What one form of a program costs.
type Cost = fn(&Row) -> Option<Processor>;

const TOTAL: Part = Processor::total;
const USER: Part = |cost| cost.user;
const NULL: Cost = |row| row.null_cost;
const CHECKED: Cost = |row| row.checked_cost;
const GUARDED: Cost = |row| row.guarded_cost;

impl Row {
    /// How many times as much of `part` a form costs as the original.
    fn ratio(&self, cost: Cost, part: Part) -> Option<f64> {
        let original = self.original_cost.map(part).filter(|s| *s >= MEASURABLE_SECONDS)?;
        cost(self).map(|cost| part(cost) / original)
    }

    fn cells(&self) -> [String; 17] {
        let number = |v: Option<f64>, digits: usize| v.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
        let (null, checked, guarded) = (self.null.as_ref(), self.checked.as_ref(), self.guarded.as_ref());
        let growth = |f: &crate::one::Figures| f.output_bytes as f64 / f.input_bytes as f64;
        [
            self.name.clone(),
            self.kind.clone(),
            self.version.clone(),
            self.outcome.word().to_owned(),
            number(null.map(|f| f.text_bytes as f64 / 1e6), 2),
            number(checked.map(|f| f.seconds), 2),
            number(checked.map(|f| f.max_rss_kb as f64 * 1024.0 / f.text_bytes as f64), 0),
            number(checked.map(growth), 1),
            number(guarded.map(growth), 1),
            number(self.original_cost.map(TOTAL), 2),
            number(self.ratio(NULL, TOTAL), 2),
            number(self.ratio(CHECKED, TOTAL), 2),
            number(self.ratio(GUARDED, TOTAL), 2),
            number(self.ratio(NULL, USER), 2),
            number(self.ratio(CHECKED, USER), 2),
            number(self.ratio(GUARDED, USER), 2),
            self.traps.map_or("-".to_owned(), |t| t.to_string()),
        ]
    }
}

const HEADER: [&str; 17] = [
    "program",
    "kind",
    "version",
    "result",
    "text MB",
    "rewriting s",
    "memory/text",
    "growth",
    "guarded growth",
    "original s",
    "null",
    "checked",
    "guarded",
    "null user",
    "checked user",
    "guarded user",
    "traps",
];

/// The table as Markdown; aligned, so that it reads well in a terminal too.
pub fn table(rows: &[Row]) -> String {
    let mut all = vec![HEADER.map(str::to_owned)];
    all.extend(rows.iter().map(Row::cells));
    let widths: Vec<usize> =
        (0..HEADER.len()).map(|c| all.iter().map(|r| r[c].chars().count()).max().unwrap_or(0)).collect();
    let mut out = String::new();
    for (k, row) in all.iter().enumerate() {
        for (c, cell) in row.iter().enumerate() {
            let pad = " ".repeat(widths[c] - cell.chars().count());
            // Words to the left, numbers to the right.
            let text = if c < 4 { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
            write!(out, "| {text} ").expect("writing to a string cannot fail");
        }
        out.push_str("|\n");
        if k == 0 {
            for (c, width) in widths.iter().enumerate() {
                let line = "-".repeat(*width);
                let text = if c < 4 { format!("|-{line}-") } else { format!("|-{line}:") };
                out.push_str(&text);
            }
            out.push_str("|\n");
        }
    }
    out
}

/// What the rows come to, one line each.
pub fn summary(rows: &[Row]) -> String {
    let count = |word: &str| rows.iter().filter(|r| r.outcome.word() == word).count();
    let kinds: BTreeSet<_> = rows.iter().map(|r| &r.kind).collect();
    let mean = |v: Vec<f64>| {
        let n = v.len();
        geometric_mean(v).map_or("-".to_owned(), |m| format!("{m:.3} ({n} programs)"))
    };
    let ratios = |cost: Cost, part: Part| mean(rows.iter().filter_map(|r| r.ratio(cost, part)).collect());
    let traps: Vec<u64> = rows.iter().filter_map(|r| r.traps).collect();
    let speed = |figures: fn(&Row) -> Option<&crate::one::Figures>| {
        let (mut text, mut seconds) = (0.0, 0.0);
        for f in rows.iter().filter_map(figures) {
            text += f.text_bytes as f64 / 1e6;
            seconds += f.seconds;
        }
        if seconds > 0.0 { format!("{:.1} MB/s", text / seconds) } else { "-".to_owned() }
    };
    let mut out = String::new();
    let mut line = |what: &str, value: String| writeln!(out, "* {what}: {value}").expect("a string");
    line(
        "programs",
        format!(
            "{} of {} kinds: {} passed, {} failed, {} refused, {} unstable, {} missing",
            rows.len(),
            kinds.len(),
            count("passed"),
            count("FAILED"),
            count("refused"),
            count("UNSTABLE"),
            count("missing")
        ),
    );
    line("slow-down of the null rewrite, geometric mean", ratios(NULL, TOTAL));
    line("slow-down with all checks and polls, geometric mean", ratios(CHECKED, TOTAL));
    line("slow-down of guarded code, geometric mean", ratios(GUARDED, TOTAL));
    let users = [NULL, CHECKED, GUARDED].map(|cost| ratios(cost, USER));
    line("the same in user mode alone", format!("{} null, {} checked, {} guarded", users[0], users[1], users[2]));
    let speeds = [speed(|r| r.null.as_ref()), speed(|r| r.checked.as_ref()), speed(|r| r.guarded.as_ref())];
    line(
        "rewriting, text per second on one core",
        format!("{} null, {} checked, {} guarded", speeds[0], speeds[1], speeds[2]),
    );
    if !traps.is_empty() {
        let none = traps.iter().filter(|t| **t == 0).count();
        line("programs whose workload hits no trap byte", format!("{none} of {}", traps.len()));
        let most = rows.iter().filter_map(Row::trap_share).fold(0.0, f64::max);
        line("largest part of a null rewrite's time in traps", format!("{:.2} %", most * 100.0));
    }
    out
}

/// Whether a run is a success: something passed, and nothing failed or was refused. What is not installed says nothing.
pub fn is_good(rows: &[Row]) -> bool {
    let passed = rows.iter().any(|r| r.outcome == Outcome::Passed);
    passed && rows.iter().all(|r| matches!(r.outcome, Outcome::Passed | Outcome::Missing(_)))
}

/// Everything that is not plain success, with its reason.
pub fn remarks(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows.iter().filter(|r| r.outcome != Outcome::Passed) {
        writeln!(out, "* {} {}: {}", row.name, row.outcome.word(), row.outcome.reason()).expect("a string");
    }
    out
}

/// Writes `RESULTS.md` in `folder` from the results kept there.
///
/// # Errors
/// The file system's, or damaged results.
pub fn write_results(folder: &Path) -> Result<(), String> {
    let corpus: Option<CorpusResults> = load(&folder.join("results/corpus.json"))?;
    let sweep: Option<SweepResults> = load(&folder.join("results/sweep.json"))?;
    let mut out = String::from(
        "# Results of the corpus\n\nGenerated by `corpus` from `results/*.json`; the commands are in `README.md`.\n",
    );
    if let Some(CorpusResults { at, repeats, listed, rows }) = &corpus {
        write!(
            out,
            "\n## Programs\n\nMeasured: {}. Each form ran {repeats} times in turns; times are the least ",
            at.line()
        )
        .expect("a string");
        out.push_str(
            "user and the least system time of all processes of the workload, together.\n\
             *rewriting s* and *memory/text* (peak memory over bytes of text) are for all checks; *growth* is the output file \
             over the input file; *null*, *checked* and *guarded* are slow-downs against the original, all with all libraries rewritten, \
             *null user*, *checked user* and *guarded user* those of the time that is not the kernel's; *traps* are trap bytes hit by the null rewrite, of program and libraries.\n\
             Single slow-downs are noisy, by a third and more where the original takes little time.\n\n",
        );
        if rows.len() < *listed {
            write!(out, "Stopped after {} of {listed} programs.\n\n", rows.len()).expect("a string");
        }
        out.push_str(&summary(rows));
        let remarks = remarks(rows);
        if !remarks.is_empty() {
            write!(out, "\n{remarks}").expect("a string");
        }
        write!(out, "\n{}", table(rows)).expect("a string");
    }
    if let Some(SweepResults { sweeps }) = &sweep {
        out.push_str("\n## Sweeps\n");
        for Sweep { at, summary } in sweeps {
            write!(out, "\n{}\nMeasured: {}.\n", summary.markdown(), at.line()).expect("a string");
        }
    }
    let mutation: Option<Results> = load(&folder.join("results/mutation.json"))?;
    if let Some(results) = &mutation {
        write!(out, "\n{}", results.markdown()).expect("a string");
    }
    for name in ["notes.md", "fuzzing.md"] {
        if let Ok(text) = fs::read_to_string(folder.join("results").join(name)) {
            write!(out, "\n{text}").expect("a string");
        }
    }
    fs::write(folder.join("RESULTS.md"), out).map_err(|e| e.to_string())
}

/// Reads kept results.
///
/// # Errors
/// They are damaged; that there are none is no error.
pub fn load<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    let Ok(text) = fs::read(path) else { return Ok(None) };
    serde_json::from_slice(&text).map(Some).map_err(|e| format!("{}: {e}", path.display()))
}

/// Keeps results.
///
/// # Errors
/// The file system's.
pub fn store<T: Serialize>(path: &Path, results: &T) -> Result<(), String> {
    let text = serde_json::to_string_pretty(results).map_err(|e| e.to_string())?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    }
    fs::write(path, text + "\n").map_err(|e| format!("{}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three quarters of it in the kernel.
    fn cost(total: f64) -> Processor {
        Processor { user: total / 4.0, system: total * 0.75 }
    }

    fn row(name: &str, original: f64, null: f64, outcome: Outcome) -> Row {
        Row {
            name: name.to_owned(),
            kind: "k".to_owned(),
            version: "1".to_owned(),
            outcome,
            null: None,
            checked: None,
            guarded: None,
            original_cost: Some(cost(original)),
            null_cost: Some(Processor { user: null / 2.0, system: null / 2.0 }),
            checked_cost: Some(cost(4.0 * original)),
            guarded_cost: Some(cost(2.0 * original)),
            traps: Some(0),
        }
    }

    #[test]
    fn means_are_geometric_and_leave_out_what_is_too_short_to_measure() {
        assert_eq!(geometric_mean([]), None);
        assert!((geometric_mean([1.0, 4.0]).unwrap() - 2.0).abs() < 1e-12);
        let rows = [
            row("a", 1.0, 1.0, Outcome::Passed),
            row("b", 1.0, 4.0, Outcome::Passed),
            row("short", 0.001, 1.0, Outcome::Failed("x".into())),
        ];
        let text = summary(&rows);
        assert!(text.contains("null rewrite, geometric mean: 2.000 (2 programs)"), "{text}");
        assert!(text.contains("all checks and polls, geometric mean: 4.000"), "{text}");
        assert!(text.contains("guarded code, geometric mean: 2.000"), "{text}");
        assert!(
            text.contains(
                "user mode alone: 4.000 (2 programs) null, 4.000 (2 programs) checked, 2.000 (2 programs) guarded"
            ),
            "{text}"
        );
        assert!(text.contains("2 passed, 1 failed"), "{text}");
        assert_eq!(remarks(&rows), "* short FAILED: x\n");
    }

    #[test]
    fn a_run_in_which_nothing_passed_or_something_was_refused_is_no_success() {
        let good =
            |outcomes: &[Outcome]| is_good(&outcomes.iter().map(|o| row("a", 1.0, 1.0, o.clone())).collect::<Vec<_>>());
        let said = || "why".to_owned();
        assert!(good(&[Outcome::Passed, Outcome::Missing(said())]));
        assert!(!good(&[]) && !good(&[Outcome::Missing(said())]));
        for bad in [Outcome::Refused(said()), Outcome::Failed(said()), Outcome::Unstable(said())] {
            assert!(!good(&[Outcome::Passed, bad]));
        }
    }

    #[test]
    fn the_largest_part_of_the_time_in_traps_is_told() {
        let [mut few, mut many] = ["few", "many"].map(|name| row(name, 1.0, 2.0, Outcome::Passed));
        (few.traps, many.traps) = (Some(3), Some(16_000));
        assert_eq!(many.trap_share(), Some(0.02));
        assert!(summary(&[few, many]).contains("time in traps: 2.00 %"));
    }

    #[test]
    fn the_table_is_aligned() {
        let text = table(&[row("a", 1.0, 1.0, Outcome::Passed), row("longer", 1.0, 10.0, Outcome::Passed)]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.iter().all(|l| l.len() == lines[0].len()), "{text}");
    }
}
