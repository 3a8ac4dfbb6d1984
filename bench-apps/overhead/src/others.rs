//! Other tools, in rounds with the original: each round runs the original and each of them once.

use crate::workloads::Workload;
use blizzard::launch::leftovers;
use blizzard::launch::supervise::Signals;
use blizzard::overhead::Spread;
use blizzard::overhead::process::{End, Extra, Job, Replay};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What one tool makes of a workload: its ratio to the original, or why there is none.
pub type Ratio = Result<Spread, String>;

/// Longest run of any tool.
const LIMIT: Duration = Duration::from_secs(300);

/// The ratios of AddressSanitizer and of Valgrind without a tool.
///
/// # Errors
/// The original cannot be run.
pub fn measure(workload: &Workload, runs: u32, valgrind: bool, signals: &mut Signals) -> Result<[Ratio; 2], String> {
    leftovers::adopt_orphans();
    let stdin = workload.stdin.clone().unwrap_or_else(|| "/dev/null".into());
    let input = File::open(&stdin).map_err(|e| format!("{}: {e}", stdin.display()))?;
    let input = Arc::new(Replay::read(input).map_err(|e| e.to_string())?);
    let original = absolute(&workload.program)?;
    let job = |program: &Path, args: Vec<OsString>| Job {
        arg0: program.as_os_str().to_owned(),
        args,
        input: Some(Arc::clone(&input)),
        limit: Some(LIMIT),
    };
    let mut jobs: [Option<(PathBuf, Job)>; 3] =
        [Some((original.clone(), job(&original, workload.args.clone()))), None, None];
    jobs[1] = workload.asan.as_ref().map(|program| (program.clone(), job(program, workload.args.clone())));
    if valgrind {
        let mut args: Vec<OsString> = vec!["--tool=none".into(), "-q".into(), original.clone().into()];
        args.extend(workload.args.iter().cloned());
        let tool = absolute(Path::new("valgrind"))?;
        jobs[2] = Some((tool.clone(), job(&tool, args)));
    }
    let mut times: [Result<Vec<f64>, String>; 3] = [Ok(Vec::new()), Ok(Vec::new()), Ok(Vec::new())];
    // The kernels give nothing back.
    let extra = Extra { env: Some(("ASAN_OPTIONS", "detect_leaks=0".to_owned())), ..Extra::default() };
    for _ in 0..runs {
        for (job, times) in jobs.iter().zip(&mut times) {
            let (Some((program, job)), Ok(list)) = (job, &mut *times) else { continue };
            let run = job.run(program, signals, &extra).map_err(|e| e.to_string())?;
            match run.end {
                End::Ended(status) if status.success() => list.push(run.cpu().as_secs_f64()),
                other => *times = Err(format!("{other:?}")),
            }
        }
    }
    let [base, asan, valgrind] = times;
    let base = base?;
    let ratio = |times: Result<Vec<f64>, String>| {
        let times = times?;
        let ratios: Vec<f64> = times.iter().zip(&base).map(|(own, base)| own / base).collect();
        if ratios.is_empty() { Err("-".into()) } else { Ok(Spread::of(ratios)) }
    };
    Ok([ratio(asan), ratio(valgrind)])
}

fn absolute(program: &Path) -> Result<PathBuf, String> {
    if program.components().count() > 1 {
        return std::path::absolute(program).map_err(|e| e.to_string());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file());
    found.ok_or_else(|| format!("{} is not in PATH", program.display()))
}
