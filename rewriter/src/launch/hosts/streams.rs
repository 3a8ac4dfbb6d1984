//! What the launcher of a run on several hosts says and hears, and what goes through it: the work of threads.
//!
//! Input: frames for agents, frames of agents, standard input. Output: [`News`] of hosts, the nodes' output by whole lines.

use crate::base::error::{Error, Result};
use crate::launch::guard::LauncherGuard;
use crate::launch::hosts::frames::{self, GREETING, PIECE_BYTES, ToAgent, ToLauncher};
use crate::launch::hosts::mailbox::Slot;
use crate::launch::launcher::WrittenOutput;
use crate::launch::output::{LineBuffer, SharedOutput};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How often an agent hears from the launcher at least.
const BEAT: Duration = Duration::from_secs(1);
/// Most bytes in front of an agent's greeting: what shells of a host say to everybody.
const NOISE_BYTES: usize = 64 << 10;

/// What the threads of a host tell.
pub(super) enum News {
    Greeting(String),
    Frame(ToLauncher),
    /// Its output has ended.
    Gone,
}

/// A piece of a node's output.
pub(super) struct Piece {
    pub(super) host: usize,
    pub(super) node: u16,
    pub(super) is_error: bool,
    pub(super) bytes: Vec<u8>,
}

/// What a host's starter, and the agent, write to standard error: kept until the nodes begin, because the last line may be the cause of an error.
#[derive(Default)]
pub(super) struct Complaints {
    pub(super) lines: Vec<String>,
    nodes_have_begun: bool,
    pub(super) run_is_over: bool,
}

/// How an agent begins to say why it ends.
const ERROR: &str = "blizzard: error: ";

impl Complaints {
    pub(super) fn add(&mut self, line: String) {
        if self.nodes_have_begun && !self.run_is_over {
            eprintln!("{line}");
        }
        self.lines.push(line);
    }

    /// Why an agent has ended, if it says so itself.
    pub(super) fn reason(&self) -> Option<Error> {
        let at = self.lines.iter().rposition(|line| line.starts_with(ERROR))?;
        let with = |word: &str| {
            let lines = self.lines[at + 1..].iter().filter_map(|line| line.trim_start().strip_prefix(word));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let error = Error::new(&self.lines[at][ERROR.len()..]);
        Some(Error { causes: with("caused by: "), help: with("help: ").pop(), ..error })
    }

    pub(super) fn begin(&mut self) {
        self.nodes_have_begun = true;
        self.lines.iter().for_each(|line| eprintln!("{line}"));
    }
}

pub(super) fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

pub(super) fn thread(work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().spawn(work);
    let failed = |e| Error::new("cannot start a thread that speaks with a host").because(e).help("see `ulimit -u`");
    started.map(drop).map_err(failed)
}

/// Says to an agent what it is to hear, and a word now and then.
pub(super) fn speak(to: &mut impl Write, to_say: &Receiver<(ToAgent, Vec<u8>)>) {
    let mut has_begun = false;
    loop {
        let (frame, bytes) = match to_say.recv_timeout(BEAT) {
            Ok(next) => next,
            // Before the plan it expects nothing.
            Err(RecvTimeoutError::Timeout) if !has_begun => continue,
            Err(RecvTimeoutError::Timeout) => (ToAgent::Beat, Vec::new()),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        has_begun = true;
        if frames::write(to, &frame, &bytes).is_err() {
            return;
        }
    }
}

/// Listens to an agent.
pub(super) fn listen(
    host: usize,
    from: ChildStdout,
    slot: &Slot<(usize, News)>,
    (pieces, come): &(Sender<Piece>, Arc<AtomicU64>),
    heard: &Mutex<Instant>,
) {
    let mut from = BufReader::new(from);
    let mut noise = 0;
    loop {
        let mut line = Vec::new();
        match (&mut from).take(NOISE_BYTES as u64).read_until(b'\n', &mut line) {
            Ok(count) if count != 0 && noise < NOISE_BYTES => noise += count,
            _ => {
                slot.put((host, News::Gone));
                return;
            }
        }
        if let Some(version) = String::from_utf8_lossy(&line).trim_end().strip_prefix(GREETING) {
            slot.put((host, News::Greeting(version.to_owned())));
            break;
        }
    }
    while let Ok((frame, bytes)) = frames::read(&mut from) {
        *locked(heard) = Instant::now();
        let goes_on = match frame {
            ToLauncher::Output { node, is_error } => {
                come.fetch_add(1, Ordering::Relaxed);
                pieces.send(Piece { host, node, is_error, bytes }).is_ok()
            }
            frame => slot.put((host, News::Frame(frame))),
        };
        if !goes_on {
            return;
        }
    }
    slot.put((host, News::Gone));
}

/// Writes the nodes' output by whole lines, until all that could bring some have ended; what became of it.
pub(super) fn write_output(pieces: &Receiver<Piece>, says: &[Sender<(ToAgent, Vec<u8>)>], tag: bool) -> WrittenOutput {
    let (out, err) = (SharedOutput::new(io::stdout()), SharedOutput::new(io::stderr()));
    let mut lines: HashMap<(u16, bool), LineBuffer> = HashMap::new();
    let mut told = [false; 2];
    for Piece { host, node, is_error, bytes } in pieces {
        let prefix = if tag && !is_error { format!("[node {node}] ") } else { String::new() };
        let line = lines.entry((node, is_error)).or_insert_with(|| LineBuffer::new(prefix));
        let goes_on = match (is_error, bytes.is_empty()) {
            (false, false) => line.feed(&bytes, &out),
            (false, true) => line.flush(&out),
            (true, false) => line.feed(&bytes, &err),
            (true, true) => line.flush(&err),
        };
        if !bytes.is_empty() {
            let taken = ToAgent::Taken { node, is_error, bytes: bytes.len() };
            let _ = says[host].send((taken, Vec::new()));
        }
        if !goes_on && !std::mem::replace(&mut told[usize::from(is_error)], true) {
            for say in says {
                let _ = say.send((ToAgent::Closed { is_error }, Vec::new()));
            }
        }
    }
    for ((_, is_error), mut line) in lines {
        if is_error {
            line.flush(&err)
        } else {
            line.flush(&out)
        };
    }
    WrittenOutput::of(&out, &err)
}

/// Passes standard input on to node 0's host, a piece at a time.
pub(super) fn pass_input(guard: &LauncherGuard, say: Sender<(ToAgent, Vec<u8>)>, taken: Receiver<()>) -> Result<()> {
    // Only a process of the terminal's foreground may read from it, and this one is in the background.
    let mut reader: Option<Child> = None;
    if io::stdin().is_terminal() {
        let mut command = Command::new("cat");
        command.process_group(guard.group.as_raw_nonzero().get()).stdout(Stdio::piped());
        reader = command.spawn().ok();
    }
    thread(move || {
        let mut from: Box<dyn Read> = match reader.as_mut().and_then(|child| child.stdout.take()) {
            Some(pipe) => Box::new(pipe),
            None => Box::new(io::stdin()),
        };
        loop {
            let mut piece = vec![0; PIECE_BYTES];
            let count = from.read(&mut piece).unwrap_or(0);
            piece.truncate(count);
            if say.send((ToAgent::Input, piece)).is_err() || count == 0 || taken.recv().is_err() {
                return;
            }
        }
    })
}
