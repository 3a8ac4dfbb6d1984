//! Runs a program to its end, or to a time limit, and keeps everything it said.
//!
//! Invariant: when [`run`] returns, no process of the program's process group is left, whatever happened.

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process_group, setrlimit};
use std::fmt;
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Ends what hangs: many times what the longest usual run takes on an idle machine, because the one at hand may be busy, or stand still for a while.
pub const LIMIT: Duration = Duration::from_secs(300);

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Exit(i32),
    Signal(i32),
    /// Ended by us at the time limit.
    TimedOut,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Exit(status) => write!(f, "exit status {status}"),
            Ending::Signal(number) => write!(f, "signal {number}"),
            Ending::TimedOut => write!(f, "still running at the time limit"),
        }
    }
}

/// What a program did.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub ending: Ending,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub took: Duration,
}

impl Outcome {
    /// Standard output as text, for messages and for programs that print text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// The outcome if the program ended with status 0.
    ///
    /// # Errors
    /// How it ended instead and what it wrote.
    pub fn success(self) -> Result<Outcome, String> {
        if self.ending == Ending::Exit(0) { Ok(self) } else { Err(self.describe()) }
    }

    /// All of it, shortened, for failure messages.
    pub fn describe(&self) -> String {
        let short = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let keep: Vec<&str> = text.lines().take(40).collect();
            keep.join("\n    ")
        };
        format!("{}\n  stdout:\n    {}\n  stderr:\n    {}", self.ending, short(&self.stdout), short(&self.stderr))
    }
}

/// Runs `command` in a process group of its own with `stdin` as its input.
///
/// # Errors
/// It could not be started.
pub fn run(command: &mut Command, stdin: &str, limit: Duration) -> Result<Outcome, String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let started = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("cannot start {:?}: {e}", command.get_program()))?;
    let input = stdin.as_bytes().to_vec();
    let mut stdin_pipe = child.stdin.take();
    // A program may end without reading its input: the write error is no failure of the test.
    let writer = std::thread::spawn(move || stdin_pipe.take().map(|mut pipe| pipe.write_all(&input)));
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let ending = wait(&mut child, limit);
    // Also after an ordinary end: grandchildren that still hold the pipes would keep the reader threads waiting.
    end_group(&child);
    let _ = writer.join();
    let take = |reader: std::thread::JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    Ok(Outcome { ending, stdout: take(stdout), stderr: take(stderr), took: started.elapsed() })
}

fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

fn wait(child: &mut Child, limit: Duration) -> Ending {
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_micros(200);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return match (status.code(), status.signal()) {
                    (Some(code), _) => Ending::Exit(code),
                    (None, signal) => Ending::Signal(signal.unwrap_or(0)),
                };
            }
            Ok(None) if Instant::now() < deadline => std::thread::sleep(pause),
            Ok(None) | Err(_) => {
                end_group(child);
                let _ = child.wait();
                return Ending::TimedOut;
            }
        }
        pause = (pause * 2).min(Duration::from_millis(10));
    }
}

fn end_group(child: &Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // An error means that the group is empty already.
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Programs that abort on purpose must not leave core files behind; the limit is inherited.
pub fn forbid_core_files() {
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
}
