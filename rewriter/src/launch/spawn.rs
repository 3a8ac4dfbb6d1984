//! Starting the node processes.
//!
//! Input: program, arguments, region, options. Output: [`SpawnedNode`]s.
//!
//! Each node is the same program with the same arguments and [`BOOT_ENV`] in its environment; or only node 0 is, which creates the
//! others as further children of this process (`CLONE_PARENT`) and leaves their numbers in their context pages. All are in the launcher's
//! process group, so that a terminal's Ctrl-C, Ctrl-Z and input reach them as they reach any program.

use crate::base::error::{Error, Result};
use crate::base::limits;
use crate::launch::gdb::line::GdbLine;
use crate::launch::options::LaunchOptions;
use crate::launch::region::RegionFile;
use crate::launch::sys;
use blizzard_contract::{BOOT_ENV, EXE_ENV};
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};
use signal_hook::low_level::signal_name as name_of;
use std::ffi::OsString;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

/// Tells the commands for gdb (`libraries.gdb`) their folder.
const GDB_FOLDER_ENV: &str = "BLIZZARD_GDB_FOLDER";

/// A node, whether it has been started or not.
#[derive(Debug)]
pub struct SpawnedNode {
    /// What the launcher has started; none for a node that node 0 creates.
    pub child: Option<Child>,
    /// None until the node exists.
    pub pid: Option<Pid>,
    /// Set once the process has ended and has been waited for.
    pub ended: Option<ExitStatus>,
}

impl SpawnedNode {
    /// Sends a signal, unless the process has ended.
    pub fn signal(&self, signal: i32) {
        let (Some(pid), Some(signal)) = (self.pid, rustix::process::Signal::from_named_raw(signal)) else {
            return;
        };
        if self.ended.is_none() {
            // Not waited for yet, so the number still means this process.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Starts all nodes in process group `group`, or node 0 if that creates the others; if one cannot be started, ends those that were. A program that loses its
/// name when node 0 has been started is executed all the same.
///
/// # Errors
/// When the program cannot be executed.
pub fn start(
    program: &Path,
    args: &[OsString],
    region: &RegionFile,
    group: Pid,
    options: &LaunchOptions,
) -> Result<Vec<SpawnedNode>> {
    start_some(program, args, region, group, options, 0..options.nodes)
}

/// The same with these nodes only.
///
/// # Errors
/// As there.
pub fn start_some(
    program: &Path,
    args: &[OsString],
    region: &RegionFile,
    group: Pid,
    options: &LaunchOptions,
    numbers: Range<u32>,
) -> Result<Vec<SpawnedNode>> {
    let first = numbers.start;
    if options.pipes_output() {
        limits::expect_open_files(numbers.len() as u32, 0)?;
    }
    let mut nodes: Vec<SpawnedNode> = Vec::new();
    let held = File::open(program).ok();
    let line = options.debugger.as_ref().and_then(|debugger| debugger.port).map(GdbLine::open).transpose()?;
    for node in numbers {
        if node > 0 && options.creates_nodes() {
            nodes.push(SpawnedNode { child: None, pid: None, ended: None });
            continue;
        }
        let nameless = held.as_ref().filter(|_| node > 0 && !program.exists());
        let nameless = nameless.map(|file| PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())));
        let program = nameless.as_deref().unwrap_or(program);
        let debugger = options.debugger.as_ref().filter(|debugger| debugger.node == node);
        let starter = debugger.and_then(|debugged| Some((debugged, debugged.command.split_first()?)));
        let mut command = match starter {
            Some((debugged, (debugger, words))) => {
                let mut command = Command::new(debugger);
                command.args(words).args(line.iter().map(|line| &line.name)).arg(program);
                command.envs(debugged.folder.iter().map(|folder| (GDB_FOLDER_ENV, folder.path())));
                command
            }
            None => Command::new(program),
        };
        command.args(args).env(BOOT_ENV, format!("fd={},node={node}", region.fd()));
        command.env_remove(EXE_ENV).envs(options.original.as_ref().map(|path| (EXE_ENV, path)));
        // What the terminal sends to those at a debugger's prompt is not for the other nodes.
        let is_apart = options.debugger.is_some() && debugger.is_none();
        command.process_group(if is_apart { 0 } else { group.as_raw_nonzero().get() });
        if let Some(name) = options.arg0.as_ref().filter(|_| debugger.is_none()) {
            command.arg0(name);
        }
        let debugged = options.debugger.as_ref().filter(|_| !options.pipes_input);
        let has_input = debugged.map_or(0, |debugger| debugger.node) == node;
        if !has_input && !options.own_streams {
            command.stdin(Stdio::null());
        } else if options.pipes_input {
            command.stdin(Stdio::piped());
        }
        if options.pipes_output() && (debugger.is_none() || options.pipes_input) {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        } else {
            sys::leave_closed(&mut command);
        }
        sys::leave_mask(&mut command);
        sys::tie_to_parent(&mut command, &[region.fd()]);
        match command.spawn() {
            Ok(child) => {
                let pid = Pid::from_raw(child.id() as i32);
                nodes.push(SpawnedNode { child: Some(child), pid, ended: None });
            }
            Err(e) => {
                end(&mut nodes);
                let error = Error::new(format!("cannot start node {node}: {}", program.display())).because(&e);
                return Err(match remedy(&e) {
                    Some(help) => error.help(help),
                    None => error,
                });
            }
        }
    }
    let debugged = options.debugger.as_ref().map_or(0, |debugger| debugger.node - first);
    let server = nodes.get(debugged as usize).and_then(|node| node.child.as_ref()).map_or(0, Child::id);
    if let Err(error) = line.map_or(Ok(()), |line| line.forward(server)) {
        end(&mut nodes);
        return Err(error);
    }
    Ok(nodes)
}

/// Ends what has been started.
fn end(nodes: &mut [SpawnedNode]) {
    for child in nodes.iter_mut().filter_map(|started| started.child.as_mut()) {
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// What helps against a limit that a node could not be started for.
fn remedy(error: &std::io::Error) -> Option<&'static str> {
    Some(match Errno::from_io_error(error)? {
        Errno::AGAIN => "more processes are needed: see `ulimit -u`",
        Errno::MFILE => "more open files are needed: see `ulimit -n`",
        Errno::ACCESS => {
            "is its file system mounted noexec? BLIZZARD_CACHE names another folder for rewritten programs"
        }
        _ => return None,
    })
}

/// Waits for processes that have ended.
#[derive(Debug, Default)]
pub struct Reaper {
    /// Ended processes that are no node as far as is known: orphans that a node had started, or nodes that ended before the
    /// launcher had looked for their numbers.
    others: Vec<(Pid, ExitStatus)>,
}

impl Reaper {
    /// Waits for every process that has ended; the numbers of the nodes among them. The others are orphans that a node had started: nobody
    /// else would wait for them, and in a long run they would use up the process numbers.
    pub fn reap(&mut self, nodes: &mut [SpawnedNode], region: &RegionFile) -> Vec<usize> {
        let no_child = loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.others.push((pid, ExitStatus::from_raw(status.as_raw()))),
                Err(Errno::INTR) => {}
                Err(Errno::CHILD) => break true,
                Ok(None) | Err(_) => break false,
            }
        };
        // After the waiting: node 0 leaves a number before it can end, and so before its end is seen.
        let may_come = nodes.iter().any(|node| node.pid.is_none());
        for (number, node) in (0u32..).zip(nodes.iter_mut()) {
            node.pid = node.pid.or_else(|| region.created_pid(number));
        }
        let mut ended = Vec::new();
        self.others.retain(|&(pid, status)| {
            match nodes.iter().position(|node| node.ended.is_none() && node.pid == Some(pid)) {
                Some(number) => {
                    nodes[number].ended = Some(status);
                    ended.push(number);
                    false
                }
                None => may_come,
            }
        });
        if no_child {
            // A node whose end has been missed is a failure.
            let missed = |node: &SpawnedNode| node.ended.is_none() && node.pid.is_some();
            for (number, node) in nodes.iter_mut().enumerate().filter(|(_, node)| missed(node)) {
                node.ended = Some(ExitStatus::from_raw(libc::EXIT_FAILURE << 8));
                ended.push(number);
            }
        }
        ended
    }
}

/// The exit status a shell would report: the program's own, or 128 plus the signal's number.
pub fn shell_status(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// How a node ended, in words that follow its name.
pub fn describe(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("was killed by signal {signal} ({})", signal_name(signal)),
        None => format!("exited with status {}", shell_status(status)),
    }
}

/// The name of a signal, as SIGSEGV.
pub(crate) fn signal_name(signal: i32) -> &'static str {
    name_of(signal).unwrap_or("unnamed signal")
}
