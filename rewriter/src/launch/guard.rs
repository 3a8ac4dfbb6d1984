//! The two processes that guard a run: the launcher and the supervisor.
//!
//! Whoever is killed with `kill -9` cannot clean up behind itself, so two processes watch each other. [`split`] makes them:
//!
//! ```text
//! shell --- launcher      what the user started: waits, passes signals on, exits with the supervisor's status
//!              |
//!           supervisor    its child: starts the nodes, passes their output through, says how the run ended
//!              |
//!           nodes --- whatever they start, daemons too
//! ```
//!
//! Both are subreapers, so a process below them whose parent ends becomes the supervisor's child, or, should that be gone,
//! the launcher's. A pipe from the launcher to the supervisor carries the signals that the launcher gets, a byte each, and its end
//! says that the launcher is gone.
//!
//! **Invariants**
//! * The launcher gone, the supervisor kills everything below it; the supervisor gone, the launcher does.
//! * The supervisor is in a process group of its own (and under a name of its own), so that a terminal's Ctrl-C and Ctrl-Z, and a
//!   `kill -9` of the whole group or of everything called blizzard, leave it in place. The nodes are in the launcher's group, where
//!   job control expects the program.
//! * Both killed in one blow, the nodes end all the same ([`crate::launch::sys::tie_to_parent`]); what they have started may be left.

use crate::base::error::{Error, Result};
use crate::base::messages;
use crate::launch::leftovers;
use crate::launch::output::is_readable;
use crate::launch::signals::{LaunchEvent, Signals};
use crate::launch::spawn::{describe, shell_status};
use crate::launch::sys::{self, SignalMask};
use rustix::process::{Pid, Signal, WaitOptions, waitpid};
use signal_hook::consts::signal::SIGCHLD;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::process::ExitStatus;
use std::time::Duration;

/// The supervisor's name in `ps`.
const NAME: &std::ffi::CStr = c"bz-supervisor";
/// How often the launcher looks after the supervisor although no signal announced anything.
const RECHECK: Duration = Duration::from_secs(1);
/// Set in a byte on the pipe when the kernel itself sent the signal.
const FROM_KERNEL: u8 = 0x80;

/// The supervisor's connection to the launcher.
#[derive(Debug)]
pub struct LauncherGuard {
    launcher: Pid,
    /// The launcher's process group: the nodes'.
    pub group: Pid,
    control: PipeReader,
    signals: Signals,
    gone: bool,
}

/// Splits the process into launcher and supervisor, and returns in the supervisor only; the launcher exits with the supervisor's
/// status.
///
/// To be called while no other thread of the process holds a lock.
///
/// # Errors
/// When the kernel gives no process or pipe.
pub fn split() -> Result<LauncherGuard> {
    let failed = |e: std::io::Error| Error::new("cannot start the process that watches over the run").because(e);
    let (control, to_supervisor) = std::io::pipe().map_err(failed)?;
    let (launcher, group) = (rustix::process::getpid(), rustix::process::getpgrp());
    // What is in the buffer must not be written twice; a reader that has gone away is noticed later.
    let _ = std::io::stdout().flush();
    // Until each process has its own handlers, signals wait.
    let mask = SignalMask::block_all();
    match sys::fork() {
        Err(e) => {
            mask.restore();
            Err(failed(e))
        }
        Ok(Some(supervisor)) => {
            drop(control);
            leftovers::adopt_orphans();
            let signals = Signals::listen();
            mask.restore();
            std::process::exit(match signals {
                Ok(signals) => watch(supervisor, to_supervisor, signals),
                Err(error) => {
                    messages::error(&error.to_string());
                    // The end of the pipe tells the supervisor.
                    drop(to_supervisor);
                    let _ = waitpid(Some(supervisor), WaitOptions::empty());
                    libc::EXIT_FAILURE
                }
            })
        }
        Ok(None) => {
            drop(to_supervisor);
            leftovers::adopt_orphans();
            // Fails for no reason that applies to a new child.
            let _ = rustix::process::setpgid(None, None);
            let _ = rustix::thread::set_name(NAME);
            let signals = Signals::listen();
            mask.restore_for_output();
            Ok(LauncherGuard { launcher, group, control, signals: signals?, gone: false })
        }
    }
}

/// The launcher's part: passes signals on until the supervisor has ended; the exit status.
fn watch(supervisor: Pid, control: PipeWriter, mut signals: Signals) -> i32 {
    let ended = loop {
        match waitpid(Some(supervisor), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => break Some(status),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => break None,
        }
        for (signal, from_kernel) in signals.wait([], RECHECK) {
            let mark = if from_kernel { FROM_KERNEL } else { 0 };
            if signal != SIGCHLD {
                // A supervisor that has just ended reads no more.
                let _ = (&control).write(&[signal as u8 | mark]);
            }
        }
    };
    // Usually there is nothing: the supervisor has done it.
    leftovers::end_all(leftovers::LIMIT);
    let status = ended.map(|status| <ExitStatus as std::os::unix::process::ExitStatusExt>::from_raw(status.as_raw()));
    match status.and_then(|status| status.code()) {
        Some(code) => code,
        None => {
            let how = status.map_or("is gone".to_owned(), describe);
            messages::error(&format!("the process that watches over the run {how}"));
            status.map_or(libc::EXIT_FAILURE, shell_status)
        }
    }
}

impl LauncherGuard {
    /// Sleeps until something happens or `timeout` has passed; what has happened. That the launcher is gone is told once.
    pub fn wait(&mut self, timeout: Duration) -> Vec<LaunchEvent> {
        self.wait_also(None, timeout)
    }

    /// The same, and until there is something to read from `also`.
    pub fn wait_also(&mut self, also: Option<&PipeReader>, timeout: Duration) -> Vec<LaunchEvent> {
        let pipe = (!self.gone).then_some(&self.control);
        let own = self.signals.wait(pipe.into_iter().chain(also), timeout);
        let mut events: Vec<LaunchEvent> =
            own.into_iter().map(|(signal, from_kernel)| LaunchEvent::Signal { signal, from_kernel }).collect();
        while !self.gone && is_readable(&self.control) {
            let mut bytes = [0; 64];
            match self.control.read(&mut bytes) {
                Ok(0) => {
                    self.gone = true;
                    events.push(LaunchEvent::LauncherGone);
                }
                Ok(n) => events.extend(bytes[..n].iter().map(|byte| LaunchEvent::Signal {
                    signal: i32::from(byte & !FROM_KERNEL),
                    from_kernel: byte & FROM_KERNEL != 0,
                })),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        events
    }

    /// When the nodes have ended and only their output is left to be written: nothing but that depends on this process any more, so from
    /// now on it simply ends with the launcher. False if the launcher is gone already.
    pub fn end_with_launcher(&self) -> bool {
        // The kernel sends the signal when the thread that forked ends: the launcher's main thread.
        let tied = rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).is_ok();
        tied && rustix::process::getppid() == Some(self.launcher)
    }
}
