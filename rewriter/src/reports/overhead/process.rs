//! One run of one variant: started, watched, its output kept, its cost read.
//!
//! Input: a [`MeasuredJob`]: program, arguments, what it reads. Output: a [`FinishedRun`]: how it ended, what it printed, and what it used. The program
//! runs in a session of its own, so that it has no terminal and takes nothing from the one that `blizzard` has.
//!
//! **Invariant**: when [`MeasuredJob::run`] returns, nothing that the program started is alive.

use crate::base::error::{Error, Result};
use crate::launch::signals::Signals;
use crate::launch::{leftovers, sys};
use rustix::process::{Pid, Signal, kill_process};
use sha2::{Digest, Sha256};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How much of what a program prints is kept for messages.
const TAIL_BYTES: u64 = 2000;
/// How often to look although no signal announced anything.
const RECHECK: Duration = Duration::from_secs(1);

/// What all variants get.
#[derive(Debug, Clone)]
pub struct MeasuredJob {
    /// What the program sees as its own name.
    pub arg0: OsString,
    pub args: Vec<OsString>,
    /// All of standard input, for each run anew; none: standard input is a terminal, of which the program gets nothing.
    pub input: Option<Arc<Replay>>,
    /// A run that takes longer is ended.
    pub limit: Option<Duration>,
}

/// Standard input, read once.
#[derive(Debug)]
pub struct Replay {
    file: tempfile::NamedTempFile,
}

impl Replay {
    /// Reads all of `from`.
    ///
    /// # Errors
    /// When it cannot be read or kept.
    pub fn read(mut from: impl Read) -> Result<Self> {
        let failed = |e| Error::new("cannot keep standard input for the repetitions").because(e);
        let mut file = tempfile::NamedTempFile::new().map_err(failed)?;
        io::copy(&mut from, file.as_file_mut()).map_err(failed)?;
        Ok(Replay { file })
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    Ended(ExitStatus),
    /// It took longer than [`MeasuredJob::limit`].
    TimeOut,
    /// `blizzard` itself got this signal.
    Interrupted(i32),
}

/// What a program printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    digest: [u8; 32],
    pub bytes: u64,
    /// The last bytes.
    pub tail: Vec<u8>,
}

/// A run that is over.
#[derive(Debug)]
pub struct FinishedRun {
    pub end: RunEnd,
    pub stdout: Printed,
    pub stderr: Printed,
    /// Processor time in user mode and in the kernel, of the program and what it waited for.
    pub user: Duration,
    pub system: Duration,
    pub wall: Duration,
}

impl FinishedRun {
    /// All processor time.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }
}

/// What is different in one run.
#[derive(Debug, Default)]
pub struct Extra<'x> {
    /// What the program finds open under the same numbers.
    pub inherit: &'x [RawFd],
    /// Added to the environment.
    pub env: Option<(&'x str, String)>,
    /// The controlling terminal, where all output goes then and nothing of it is kept; input too, if there is none to replay.
    pub terminal: Option<&'x OwnedFd>,
}

impl MeasuredJob {
    /// Runs `program` to its end.
    ///
    /// # Errors
    /// When it cannot be started, or what it prints cannot be kept.
    pub fn run(&self, program: &Path, signals: &mut Signals, extra: &Extra) -> Result<FinishedRun> {
        let no_file = |e: io::Error| Error::new("cannot keep what the program prints").because(e);
        let (mut out, mut err) = (tempfile::tempfile().map_err(no_file)?, tempfile::tempfile().map_err(no_file)?);
        let mut command = Command::new(program);
        command.arg0(&self.arg0).args(&self.args).envs(extra.env.as_ref().map(|(name, value)| (name, value)));
        command.stdout(out.try_clone().map_err(no_file)?).stderr(err.try_clone().map_err(no_file)?);
        command.stdin(Stdio::null());
        if let Some(fd) = extra.terminal {
            let end = || fd.try_clone().map_err(no_file);
            command.stdin(end()?).stdout(end()?).stderr(end()?);
        }
        if let Some(replay) = &self.input {
            // Opened anew, so that each run begins at the first byte.
            command.stdin(replay.file.reopen().map_err(no_file)?);
        }
        sys::own_session(&mut command, extra.terminal.map(AsRawFd::as_raw_fd));
        sys::tie_to_parent(&mut command, extra.inherit);
        let begin = Instant::now();
        let child =
            command.spawn().map_err(|e| Error::new(format!("{}: cannot be started", program.display())).because(e))?;
        drop(command);
        let pid = Pid::from_raw(child.id() as i32).expect("a process has a number");
        let (end, used, wall) = self.watch(pid, begin, signals)?;
        leftovers::end_all(leftovers::LIMIT);
        Ok(FinishedRun {
            end,
            stdout: printed(&mut out).map_err(no_file)?,
            stderr: printed(&mut err).map_err(no_file)?,
            user: used.user,
            system: used.system,
            wall,
        })
    }

    /// Waits until the process has ended, the time is over, or `blizzard` is to stop.
    fn watch(&self, pid: Pid, begin: Instant, signals: &mut Signals) -> Result<(RunEnd, sys::EndedProcess, Duration)> {
        let mut early = None;
        loop {
            match sys::wait_usage(pid) {
                Ok(Some(ended)) => {
                    return Ok((early.unwrap_or(RunEnd::Ended(ended.status)), ended, begin.elapsed()));
                }
                Ok(None) => {}
                Err(e) => return Err(Error::new("lost the program that was to be measured").because(e)),
            }
            let left = self.limit.map_or(RECHECK, |limit| limit.saturating_sub(begin.elapsed()).min(RECHECK));
            let timeout = if early.is_some() { RECHECK } else { left };
            for (signal, _) in signals.wait(None, timeout) {
                if [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal) {
                    early.get_or_insert(RunEnd::Interrupted(signal));
                }
            }
            if self.limit.is_some_and(|limit| begin.elapsed() >= limit) {
                early.get_or_insert(RunEnd::TimeOut);
            }
            if early.is_some() {
                // Not waited for yet, so the number still means this process.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

/// Reads back what has been written to `file`.
fn printed(file: &mut File) -> io::Result<Printed> {
    file.rewind()?;
    let mut digest = Sha256::new();
    let (mut bytes, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => digest.update(&buffer[..n]),
        }
        bytes = file.stream_position()?;
    }
    let mut tail = Vec::new();
    file.seek(io::SeekFrom::Start(bytes.saturating_sub(TAIL_BYTES)))?;
    file.read_to_end(&mut tail)?;
    Ok(Printed { digest: digest.finalize().into(), bytes, tail })
}
