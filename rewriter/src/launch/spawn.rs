//! Starting the node processes.
//!
//! Each node is the same program with the same arguments and [`BOOT_ENV`] in its environment. All are in the launcher's
//! process group, so that a terminal's Ctrl-C, Ctrl-Z and input reach them as they reach any program.

use super::region::Region;
use super::sys;
use super::{LaunchOptions, signal_name};
use crate::error::{Error, Result};
use blizzard_rt::abi::BOOT_ENV;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

/// A started node.
#[derive(Debug)]
pub struct Node {
    pub child: Child,
    /// Set once the process has ended and has been waited for.
    pub ended: Option<ExitStatus>,
}

impl Node {
    /// Sends a signal, unless the process has ended.
    pub fn signal(&self, signal: i32) {
        let (Some(pid), Some(signal)) =
            (Pid::from_raw(self.child.id() as i32), rustix::process::Signal::from_named_raw(signal))
        else {
            return;
        };
        if self.ended.is_none() {
            // Not waited for yet, so the number still means this process.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }
}

/// Starts all nodes in process group `group`; if one cannot be started, ends those that were.
///
/// # Errors
/// When the program cannot be executed.
pub fn start(
    program: &Path,
    args: &[OsString],
    region: &Region,
    group: Pid,
    options: &LaunchOptions,
) -> Result<Vec<Node>> {
    let mut nodes = Vec::new();
    for node in 0..options.nodes {
        let mut command = Command::new(program);
        command.args(args).env(BOOT_ENV, format!("fd={},node={node}", region.fd()));
        command.process_group(group.as_raw_nonzero().get());
        if let Some(name) = &options.arg0 {
            command.arg0(name);
        }
        if node > 0 {
            command.stdin(Stdio::null());
        }
        if options.pipes_output() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        sys::tie_to_parent(&mut command, Some(region.fd()));
        match command.spawn() {
            Ok(child) => nodes.push(Node { child, ended: None }),
            Err(e) => {
                for started in &mut nodes {
                    let _ = started.child.kill();
                    let _ = started.child.wait();
                }
                return Err(Error::new(format!("cannot start node {node}: {}", program.display())).because(e));
            }
        }
    }
    Ok(nodes)
}

/// Waits for every process that has ended; the numbers of the nodes among them. The others are orphans that a node had started: nobody
/// else would wait for them, and in a long run they would use up the process numbers.
pub fn reap(nodes: &mut [Node]) -> Vec<usize> {
    let mut ended = Vec::new();
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                let is_this =
                    |node: &Node| node.ended.is_none() && node.child.id() as i32 == pid.as_raw_nonzero().get();
                if let Some(number) = nodes.iter().position(is_this) {
                    nodes[number].ended = Some(ExitStatus::from_raw(status.as_raw()));
                    ended.push(number);
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::CHILD) => {
                // No child is left; a node whose end has been missed is a failure.
                for (number, node) in nodes.iter_mut().enumerate().filter(|(_, node)| node.ended.is_none()) {
                    node.ended = Some(ExitStatus::from_raw(libc::EXIT_FAILURE << 8));
                    ended.push(number);
                }
                return ended;
            }
            Ok(None) | Err(_) => return ended,
        }
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
