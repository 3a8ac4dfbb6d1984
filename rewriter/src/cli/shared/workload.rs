//! The programs that `blizzard stress` and `blizzard bench` run, which are part of this executable.
//!
//! Purpose: a program compiled when Blizzard was built (`build_workload.rs`), rewritten now, run by `blizzard run` as any other. Input: which
//! program, with which runtime. Output: its rewritten form in a folder of the caller's, and runs of it.

use crate::base::error::{Error, Result};
use crate::base::options::Options;
use crate::base::output_file::write_atomically;
use crate::cli::shared::libraries::{self, BUNDLE_FOLDER, LibraryOptions};
use crate::launch::sys;
use crate::pipeline;
use crate::store::closure::ClosureSource;
use crate::write::runtime_blob::Blob;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// One of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// `bench-apps/workload/stress.c`.
    Stress,
    /// `bench-apps/workload/bench.c`.
    Bench,
    /// `bench-apps/workload/messages.c`.
    Messages,
    /// `bench-apps/workload/marked.c`.
    Marked,
}

impl Workload {
    fn bytes(self) -> &'static [u8] {
        match self {
            Workload::Stress => include_bytes!(env!("BLIZZARD_WORKLOAD_STRESS")),
            Workload::Bench => include_bytes!(env!("BLIZZARD_WORKLOAD_BENCH")),
            Workload::Messages => include_bytes!(env!("BLIZZARD_WORKLOAD_MESSAGES")),
            Workload::Marked => include_bytes!(env!("BLIZZARD_WORKLOAD_MARKED")),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Workload::Stress => "blizzard-stress",
            Workload::Bench => "blizzard-bench",
            Workload::Messages => "blizzard-messages",
            Workload::Marked => "blizzard-marked",
        }
    }

    /// Rewrites the program, with the given runtime, to `folder/name`; its libraries come from the user's cache. `is_bundle`: they stand in the folder, too, so that
    /// other hosts can have them.
    ///
    /// # Errors
    /// The folder or the cache cannot be written to, or the C library cannot be rewritten.
    pub fn rewrite(self, folder: &Path, name: &str, asked: Options, blob: &Blob, is_bundle: bool) -> Result<PathBuf> {
        let failed = |path: &Path, e| Error::new(format!("cannot write {}", path.display())).because(e);
        let write = |path: &Path, bytes: &[u8]| write_atomically(path, bytes, 0o700).map_err(|e| failed(path, e));
        let (options, cached) = LibraryOptions::default().fitted(self.bytes(), asked)?;
        let original = folder.join(self.name());
        write(&original, self.bytes())?;
        let made = libraries::prepare(&original, &cached)?;
        let source = if is_bundle { ClosureSource::Bundle(BUNDLE_FOLDER.to_owned()) } else { cached };
        if is_bundle {
            let libraries = folder.join(BUNDLE_FOLDER);
            std::fs::create_dir_all(&libraries).map_err(|e| failed(&libraries, e))?;
            for (name, rewritten) in libraries::by_name(made)? {
                let link = libraries.join(name);
                match symlink(&rewritten, &link) {
                    // Another form of the program has the same ones.
                    Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                    linked => linked.map_err(|e| failed(&link, e))?,
                }
            }
        }
        let (bytes, name_of) = (self.bytes(), self.name());
        let rewritten = pipeline::in_memory(|sink| {
            pipeline::rewrite_with_runtime(bytes, name_of, &options, &source.record(), blob, sink)
        })?;
        let path = folder.join(name);
        write(&path, &rewritten.bytes)?;
        Ok(path)
    }
}

/// Exit status of `blizzard run` when a run on several hosts cannot begin.
const CANNOT_BEGIN: i32 = 2;

/// How a run ended.
#[derive(Debug)]
pub enum Ending {
    Ended(ExitStatus),
    /// Ended by force at the time limit.
    StillRunning,
}

/// A finished run.
#[derive(Debug)]
pub struct Finished {
    pub ending: Ending,
    /// What it wrote to standard error.
    pub errors: String,
}

impl Finished {
    /// Whether the run has done what it should.
    pub fn succeeded(&self) -> bool {
        matches!(self.ending, Ending::Ended(status) if status.success())
    }

    /// Whether the hosts could not begin. The programs have no such status.
    pub fn has_not_begun(&self) -> bool {
        matches!(self.ending, Ending::Ended(status) if status.code() == Some(CANNOT_BEGIN))
    }
}

/// A run of such a program.
#[derive(Debug)]
pub struct WorkloadRun<'a> {
    pub program: &'a Path,
    /// Of `blizzard run`.
    pub options: &'a [OsString],
    pub arguments: &'a [OsString],
    /// It is ended then.
    pub limit: Duration,
    /// What it prints goes there, if anybody wants it.
    pub output: Option<File>,
}

impl WorkloadRun<'_> {
    /// Runs the program through `blizzard run`, whose processes end with this one.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn run(self) -> Result<Finished> {
        let own = std::env::current_exe().map_err(|e| Error::new("cannot find my own executable").because(e))?;
        let failed = |e: &dyn std::fmt::Display| Error::new("cannot start a run").because(e);
        let mut errors = tempfile::tempfile().map_err(|e| failed(&e))?;
        let mut command = Command::new(own);
        command.arg("run").args(self.options).arg("--").arg(self.program).args(self.arguments);
        command.stdin(Stdio::null()).stdout(self.output.map_or_else(Stdio::null, Stdio::from));
        command.stderr(errors.try_clone().map_err(|e| failed(&e))?);
        sys::tie_to_parent(&mut command, &[]);
        let mut child = command.spawn().map_err(|e| failed(&e))?;
        let ending = wait(&mut child, self.limit)?;
        let mut text = Vec::new();
        use std::io::{Read, Seek};
        // What cannot be read is not shown.
        let _ = errors.rewind().and_then(|()| errors.read_to_end(&mut text));
        Ok(Finished { ending, errors: String::from_utf8_lossy(&text).into_owned() })
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<Ending> {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(1);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Ending::Ended(status)),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(pause),
            Ok(None) => {
                // The launcher's guard ends the nodes when it is gone.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Ending::StillRunning);
            }
            Err(e) => return Err(Error::new("cannot wait for a run").because(e)),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They share most of what they touch, so a screen would only cost.
    #[test]
    fn what_asks_for_the_runtime_gets_no_screens() {
        let alone = LibraryOptions { no_libraries: true };
        let screens = |program: &[u8]| alone.fitted(program, Options::default()).unwrap().0.screens;
        for workload in [Workload::Stress, Workload::Bench, Workload::Messages, Workload::Marked] {
            assert!(!screens(workload.bytes()), "{workload:?}");
        }
        assert!(screens(&std::fs::read("/usr/bin/env").unwrap()));
    }
}
