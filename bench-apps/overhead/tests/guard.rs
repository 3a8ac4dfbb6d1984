//! No optimisation is lost unseen: what the kernels execute, counted exactly, does not exceed the committed table.
//!
//! `guard.txt` holds, for each kernel: executed instructions of the program's own file, inserted instructions, checks, polls; then inserted instructions and
//! checks of guarded code, whose data are private, and where each of its accesses has a test.
//! After an improvement, or a change that is meant, `BLIZZARD_BLESS=1 cargo test -p blizzard-bench-overhead` writes it anew.
//! Another compiler makes other code: then the figures for each executed instruction may be a tenth higher.

use blizzard_bench_overhead::c_compiler;
use blizzard_bench_overhead::workloads::{KERNELS, build_kernels};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

blizzard_test_harness::tests! {
    the_kernels_execute_no_more_than_they_did,
    more_checks_are_seen,
}

/// The rounds of a measurement, divided by this.
const FEWER: u32 = 50;

/// Instructions, inserted, checks, polls; of guarded code inserted, checks, and both where all is tested.
type Figures = [u64; 8];
/// Names of [`Figures`], from the second on.
const NAMES: [&str; 7] = [
    "inserted instructions",
    "checks",
    "polls",
    "inserted instructions of guarded code",
    "checks of guarded code",
    "inserted instructions of guarded code with tests",
    "checks of guarded code with tests",
];

fn compiler() -> String {
    let out = Command::new(c_compiler()).arg("--version").output().expect("the tests need gcc").stdout;
    String::from_utf8_lossy(&out).lines().next().unwrap_or_default().to_owned()
}

/// What a kernel executes in its own file.
fn count(folder: &Path, name: &str, rounds: u32) -> Figures {
    let [a, b, c, d] = count_of(folder, "all-polls", name, rounds);
    let [[_, e, f, _], [_, g, h, _]] = ["guarded", "shared"].map(|form| count_of(folder, form, name, rounds));
    [a, b, c, d, e, f, g, h]
}

/// Instructions of the program, inserted ones, checks and polls that a form executes.
fn count_of(folder: &Path, form: &str, name: &str, rounds: u32) -> [u64; 4] {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blizzard-bench-overhead"));
    command.args([
        "overhead",
        "--json",
        "-r",
        "1",
        "--variants",
        "original",
        "--counts-of",
        form,
        "--",
        "./kernels",
        name,
    ]);
    command.arg((rounds / FEWER).to_string()).current_dir(folder).env("BLIZZARD_CACHE", folder.join("cache"));
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let files = report["counts"]["files"].as_array().unwrap();
    let own = files.iter().find(|f| f["file"].as_str().unwrap().ends_with("kernels")).unwrap();
    ["instructions", "inserted", "checks", "polls"].map(|part| own[part].as_u64().unwrap())
}

fn parse(table: &str) -> (String, Vec<(String, Figures)>) {
    let mut lines = table.lines();
    let compiler = lines.next().unwrap_or_default().trim_start_matches("# ").to_owned();
    let rows = lines.filter(|l| !l.starts_with('#') && !l.is_empty()).map(|l| {
        let mut words = l.split_whitespace();
        let name = words.next().unwrap().to_owned();
        (name, std::array::from_fn(|_| words.next().unwrap().parse().unwrap()))
    });
    (compiler, rows.collect())
}

/// What is worse than in the table; `same`: the same compiler made the program.
fn worse(name: &str, now: Figures, table: Figures, same: bool) -> Vec<String> {
    let mut worse = Vec::new();
    for (k, what) in (1..).zip(NAMES) {
        let exceeds = if same {
            now[k] > table[k]
        } else {
            now[k] as f64 / now[0] as f64 > 1.1 * table[k] as f64 / table[0] as f64
        };
        if exceeds {
            worse.push(format!("{name}: {} {what} executed, {} in the table", now[k], table[k]));
        }
    }
    worse
}

fn the_kernels_execute_no_more_than_they_did() {
    let folder = tempfile::tempdir().unwrap();
    build_kernels(&folder.path().join("kernels"), &[]).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("guard.txt");
    let now: Vec<(&str, Figures)> =
        KERNELS.iter().map(|&(name, rounds)| (name, count(folder.path(), name, rounds))).collect();
    if std::env::var_os("BLIZZARD_BLESS").is_some() {
        let mut text = format!(
            "# {}\n# kernel, instructions, inserted, checks, polls; guarded: inserted, checks; guarded, all tested: inserted, checks\n",
            compiler()
        );
        for (name, figures) in now {
            let figures: String = figures.iter().map(|figure| format!(" {figure:>12}")).collect();
            writeln!(text, "{name:<14}{figures}").unwrap();
        }
        std::fs::write(&path, text).unwrap();
        return;
    }
    let (made_by, table) = parse(&std::fs::read_to_string(&path).unwrap());
    let same = made_by == compiler();
    let mut problems = Vec::new();
    for (name, now) in now {
        match table.iter().find(|row| row.0 == name) {
            Some(row) => problems.extend(worse(name, now, row.1, same)),
            None => problems.push(format!("{name}: not in the table")),
        }
        assert!(now[2] > 0 && now[0] > 10_000, "{name}: nothing was counted: {now:?}");
    }
    assert!(problems.is_empty(), "{}\nif that is meant: BLIZZARD_BLESS=1\n", problems.join("\n"));
}

fn more_checks_are_seen() {
    let table = [1000, 400, 100, 50, 0, 0, 300, 100];
    assert!(worse("k", table, table, true).is_empty());
    let with = |changes: &[(usize, u64)]| {
        let mut now = table;
        changes.iter().for_each(|&(k, figure)| now[k] = figure);
        now
    };
    assert_eq!(worse("k", with(&[(2, 101)]), table, true), ["k: 101 checks executed, 100 in the table"]);
    assert_eq!(worse("k", with(&[(1, 401), (3, 51)]), table, true).len(), 2);
    assert_eq!(worse("k", with(&[(5, 1)]), table, true), ["k: 1 checks of guarded code executed, 0 in the table"]);
    // Another compiler: a little more is its doing, much more is not.
    let other = [2000, 850, 210, 100, 0, 0, 600, 200];
    assert!(worse("k", other, table, false).is_empty());
    assert_eq!(worse("k", with(&[(2, 120)]), table, false).len(), 1);
    assert_eq!(worse("k", with(&[(4, 9)]), table, false).len(), 1);
}
