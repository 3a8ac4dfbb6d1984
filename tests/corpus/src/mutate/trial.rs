//! Runs changed outputs and compares what they do with what the output does.

use crate::inside::{Ended, Job, Status, argv};
use crate::mutate::files::File;
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Runs for each reason and file.
const EACH: usize = 12;
/// Processor time and bytes written of a run; both far beyond what the programs need.
const LIMITS: &str = "ulimit -t 10; ulimit -f 4096; exec \"$0\"";
const LIMIT: Duration = Duration::from_secs(60);
/// What the shell says where a child of another thread, not yet executed, holds the file open for writing; so often it is tried again then.
const BUSY: &[u8] = b"Text file busy";
const TRIES: usize = 100;

/// What the unchanged output did.
pub struct Trial {
    folder: PathBuf,
    expected: (Status, Vec<u8>),
    runs: AtomicUsize,
    by_reason: Mutex<HashMap<&'static str, usize>>,
}

impl Trial {
    /// Runs the output.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn new(file: &File, folder: &Path) -> Result<Trial, String> {
        let folder = folder.join(format!("run-{}", file.name));
        fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
        let none = (Status::TimedOut, Vec::new());
        let mut trial = Trial { folder, expected: none, runs: AtomicUsize::new(0), by_reason: Mutex::default() };
        trial.expected = trial.run(&file.output)?;
        match trial.expected.0 {
            Status::Exit(0) => Ok(trial),
            status => Err(format!("{}: the output as it is ends with {status}", file.name)),
        }
    }

    /// Whether a change that is harmless for this reason is still to be run.
    pub fn wants(&self, why: &'static str) -> bool {
        let mut counts = self.by_reason.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let n = counts.entry(why).or_default();
        *n += 1;
        *n <= EACH
    }

    /// How a mutant's run differs from the output's, if it does.
    pub fn differs(&self, mutant: &[u8]) -> Option<String> {
        match self.run(mutant) {
            Ok(done) if done == self.expected => None,
            Ok((status, said)) if status == self.expected.0 => {
                Some(format!("it prints {} bytes, not the {} expected", said.len(), self.expected.1.len()))
            }
            Ok((status, _)) => Some(format!("it ends with {status}")),
            Err(why) => Some(why),
        }
    }

    fn run(&self, program: &[u8]) -> Result<(Status, Vec<u8>), String> {
        let k = self.runs.fetch_add(1, Ordering::Relaxed);
        let path = |what: &str| self.folder.join(format!("{what}-{k}"));
        let text = |e: std::io::Error| e.to_string();
        fs::write(path("p"), program).map_err(text)?;
        fs::set_permissions(path("p"), fs::Permissions::from_mode(0o755)).map_err(text)?;
        let job = Job {
            argv: argv([Path::new("sh"), Path::new("-c"), Path::new(LIMITS), &path("p")]),
            env: std::env::vars_os().filter(|v| v.0 == "PATH").collect(),
            cwd: self.folder.clone(),
            stdout: path("out"),
            stderr: path("err"),
            replace: Vec::new(),
            limit: LIMIT,
            open: false,
        };
        let mut tries = 0..TRIES;
        let status = loop {
            let Ended { status, .. } = job.run()?;
            let said = || fs::read(path("err")).unwrap_or_default();
            let is_held = status == Status::Exit(126) && said().windows(BUSY.len()).any(|word| word == BUSY);
            if !is_held || tries.next().is_none() {
                break status;
            }
        };
        let said = fs::read(path("out")).map_err(text)?;
        for what in ["p", "out", "err"] {
            let _ = fs::remove_file(path(what));
        }
        Ok((status, said))
    }
}
