//! Other tools, in rounds with the original: each round runs the original and each of them once.
//!
//! | tool | what it does |
//! |---|---|
//! | gcc's AddressSanitizer | tests a shadow byte for each load and store, put in by the compiler |
//! | Valgrind without a tool | translates the program, checks nothing |
//! | Valgrind's Memcheck, addresses only | tests shadow memory for each load and store, in a function that is called |
//! | Frida's Stalker | translates the program; `programs/stalker.py` puts an inline test of a shadow byte in front of each load and store |
//!
//! What is not installed leaves its cell empty.

use crate::workloads::Workload;
use crate::{installed, must, sources};
use blizzard::launch::leftovers;
use blizzard::launch::signals::Signals;
use blizzard::reports::overhead::process::{Extra, MeasuredJob, Printed, Replay, RunEnd};
use blizzard::reports::overhead::variants::Spread;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// What one tool makes of a workload: its ratio to the original, or why there is none.
pub type Ratio = Result<Spread, String>;

/// Longest run of any tool.
const LIMIT: Duration = Duration::from_secs(300);

/// The tools, in the order of the table.
pub const NAMES: [&str; 4] = ["gcc ASan", "Valgrind none", "Memcheck addresses", "Stalker check"];

/// What there is on this machine.
#[derive(Debug)]
pub struct Tools {
    valgrind: Option<PathBuf>,
    stalker: Option<Stalker>,
    /// What is missing, and what would bring it.
    pub missing: Vec<String>,
}

/// How `programs/stalker.py` is run.
#[derive(Debug)]
struct Stalker {
    python: PathBuf,
    gate: PathBuf,
    /// Where it writes how long the program has taken.
    seconds: PathBuf,
}

/// One tool's way of running a workload.
struct Way {
    program: PathBuf,
    job: MeasuredJob,
    /// The file that says how much processor time counts, if not all of it does.
    seconds: Option<PathBuf>,
}

impl Tools {
    /// Looks for them; `python` may have the package `frida`. What has to be built goes to `folder`.
    pub fn find(python: &str, folder: &Path) -> Tools {
        let mut missing = Vec::new();
        let valgrind = absolute(Path::new("valgrind")).ok().filter(|_| installed("valgrind"));
        if valgrind.is_none() {
            missing.push("Valgrind: not installed (Debian's package `valgrind`)".to_owned());
        }
        let stalker = Stalker::find(python, folder).map_err(|why| missing.push(format!("Stalker: {why}"))).ok();
        Tools { valgrind, stalker, missing }
    }

    /// How each tool runs a workload, the original first.
    fn ways(&self, workload: &Workload, original: &Path, input: &Arc<Replay>) -> [Option<Way>; 1 + NAMES.len()] {
        let way = |program: &Path, before: &[OsString]| {
            let args = before.iter().chain(&workload.args).cloned().collect();
            let input = Some(Arc::clone(input));
            let job = MeasuredJob { arg0: program.as_os_str().to_owned(), args, input, limit: Some(LIMIT) };
            Way { program: program.to_owned(), job, seconds: None }
        };
        let valgrind = |options: &[&str]| {
            let mut before: Vec<OsString> = options.iter().map(OsString::from).collect();
            before.extend(["-q".into(), original.into()]);
            Some(way(self.valgrind.as_deref()?, &before))
        };
        let stalker = self.stalker.as_ref().map(|s| {
            let script = sources().join("stalker.py");
            let before = [script.as_path(), &s.gate, &s.seconds, original].map(OsString::from);
            Way { seconds: Some(s.seconds.clone()), ..way(&s.python, &before) }
        });
        [
            Some(way(original, &[])),
            workload.asan.as_ref().map(|program| way(program, &[])),
            valgrind(&["--tool=none"]),
            valgrind(&["--tool=memcheck", "--undef-value-errors=no", "--leak-check=no"]),
            stalker,
        ]
    }
}

impl Stalker {
    fn find(python: &str, folder: &Path) -> Result<Stalker, String> {
        // As it was given: the table is for other machines, too.
        let lacking = || format!("{python} has no package `frida`; give one that has (--frida)");
        let python = absolute(Path::new(python))?;
        must(Command::new(&python).args(["-c", "import frida"])).map_err(|_| lacking())?;
        let gate = folder.join("stalker.so");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-shared", "-fPIC"]).arg(sources().join("stalker.c")).arg("-o").arg(&gate);
        must(&mut gcc)?;
        Ok(Stalker { python, gate, seconds: folder.join("stalker.seconds") })
    }
}

impl Way {
    /// Processor time of one run, in seconds, and what it printed.
    fn run(&self, signals: &mut Signals) -> Result<(f64, Printed), String> {
        // The kernels give nothing back.
        let extra = Extra { env: Some(("ASAN_OPTIONS", "detect_leaks=0".to_owned())), ..Extra::default() };
        let run = self.job.run(&self.program, signals, &extra).map_err(|e| e.to_string())?;
        match run.end {
            RunEnd::Ended(status) if status.success() => {}
            RunEnd::Ended(status) => return Err(format!("fails: {status}")),
            RunEnd::TimeOut => return Err(format!("has not ended after {} s", LIMIT.as_secs())),
            RunEnd::Interrupted(signal) => return Err(format!("stopped by signal {signal}")),
        }
        let Some(path) = &self.seconds else { return Ok((run.cpu().as_secs_f64(), run.stdout)) };
        let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let time = text.trim().parse().map_err(|_| format!("{}: no number: {text:?}", path.display()))?;
        Ok((time, run.stdout))
    }
}

/// The ratios of all tools.
///
/// # Errors
/// The original cannot be run.
pub fn measure(
    workload: &Workload,
    runs: u32,
    tools: &Tools,
    signals: &mut Signals,
) -> Result<[Ratio; NAMES.len()], String> {
    leftovers::adopt_orphans();
    let stdin = workload.stdin.clone().unwrap_or_else(|| "/dev/null".into());
    let input = File::open(&stdin).map_err(|e| format!("{}: {e}", stdin.display()))?;
    let input = Arc::new(Replay::read(input).map_err(|e| e.to_string())?);
    let original = absolute(&workload.program)?;
    let ways = tools.ways(workload, &original, &input);
    let mut times: [Result<Vec<f64>, String>; 1 + NAMES.len()] = std::array::from_fn(|_| Ok(Vec::new()));
    let mut printed = None;
    for _ in 0..runs {
        for (way, times) in ways.iter().zip(&mut times) {
            let (Some(way), Ok(list)) = (way, &mut *times) else { continue };
            match way.run(signals) {
                Ok((_, out)) if *printed.get_or_insert_with(|| out.clone()) != out => {
                    *times = Err("prints something else".into());
                }
                Ok((time, _)) => list.push(time),
                Err(why) => *times = Err(why),
            }
        }
    }
    let [base, others @ ..] = times;
    let base = base?;
    let ratio = |times: Result<Vec<f64>, String>| {
        let times = times?;
        let ratios: Vec<f64> = times.iter().zip(&base).map(|(own, base)| own / base).collect();
        if ratios.is_empty() { Err("-".into()) } else { Ok(Spread::of(ratios)) }
    };
    Ok(others.map(ratio))
}

fn absolute(program: &Path) -> Result<PathBuf, String> {
    if program.components().count() > 1 {
        return std::path::absolute(program).map_err(|e| e.to_string());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.ok_or_else(|| format!("{} is not in PATH", program.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said_and_leaves_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let tools = Tools::find("/no/such/python", folder.path());
        assert!(tools.stalker.is_none());
        assert!(tools.missing.iter().any(|m| m.starts_with("Stalker: ")), "{:?}", tools.missing);
        let workload = Workload {
            name: "true",
            kind: crate::workloads::Kind::Kernel,
            program: "true".into(),
            args: Vec::new(),
            stdin: None,
            asan: None,
        };
        let mut signals = Signals::listen().unwrap();
        let [asan, .., stalker] = measure(&workload, 1, &tools, &mut signals).unwrap();
        assert_eq!((asan.unwrap_err().as_str(), stalker.unwrap_err().as_str()), ("-", "-"));
    }
}
