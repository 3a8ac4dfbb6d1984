//! The signals that the launcher and the supervisor receive.
//!
//! Input: the process's signals from [`Signals::listen`] on. Output: [`LaunchEvent`]s. **Invariant**: a signal that was ignored when the process started stays
//! ignored.

use crate::base::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::fmt;
use std::io::PipeReader;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// What can wake the loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LaunchEvent {
    /// A signal to the launcher or the supervisor. `from_kernel`: the kernel itself sent it, as a terminal's Ctrl-C, which the nodes have
    /// received too.
    Signal {
        signal: i32,
        from_kernel: bool,
    },
    LauncherGone,
}

/// The signals that the process receives from now on.
pub struct Signals {
    delivery: SignalDelivery<UnixStream, WithOrigin>,
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl Signals {
    /// Begins to listen. A signal that was ignored when the process started (as under `nohup`) stays ignored.
    ///
    /// # Errors
    /// When the kernel refuses a handler.
    pub fn listen() -> Result<Self> {
        let ignored = ignored_signals();
        let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2]
            .into_iter()
            .filter(|signal| ignored & (1 << (signal - 1)) == 0)
            .chain([SIGCHLD]);
        UnixStream::pair()
            .and_then(|(read, write)| SignalDelivery::with_pipe(read, write, WithOrigin::default(), wanted))
            .map(|delivery| Signals { delivery })
            .map_err(|e| Error::new("cannot listen for signals").because(e))
    }

    /// Sleeps until a signal arrives, there is something to read from one of `pipes`, or `timeout` has passed; the signals, each with
    /// whether the kernel itself sent it.
    pub fn wait<'a>(&mut self, pipes: impl IntoIterator<Item = &'a PipeReader>, timeout: Duration) -> Vec<(i32, bool)> {
        let limit = Timespec::try_from(timeout).expect("timeouts are short");
        let mut fds = vec![PollFd::new(self.delivery.get_read(), PollFlags::IN)];
        fds.extend(pipes.into_iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
        // An interrupted poll means that a signal has arrived; other errors end in the same look around.
        let _ = poll(&mut fds, Some(&limit));
        drop(fds);
        self.delivery.pending().map(|origin| (origin.signal, matches!(origin.cause, Cause::Kernel))).collect()
    }
}

/// Bit `s - 1` is set for each signal `s` that this process ignores.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0)
}
