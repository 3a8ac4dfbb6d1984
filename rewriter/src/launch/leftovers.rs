//! Ending what the nodes leave behind.
//!
//! A node may have started processes of its own. Supervisor and launcher are *subreapers*: when their parent ends, such processes become
//! the supervisor's children, daemons included, or the launcher's. After the last node has ended, everything below the process is killed,
//! again and again until nothing is left.
//!
//! **Invariant:** nobody else is killed. A process is held by descriptor before its descent is looked at, so that a number that the kernel
//! has given to another process meanwhile does no harm.

use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, pidfd_send_signal, wait};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long to try while a user waits; a process in an uninterruptible system call can take longer, and is then left to the kernel, which
/// has the kill signal pending for it.
pub const LIMIT: Duration = Duration::from_millis(500);
/// How long to try when nobody waits.
pub const LIMIT_ALONE: Duration = Duration::from_secs(60);
/// How long to wait between looks.
const PAUSE: Duration = Duration::from_millis(2);

/// Makes orphans of this process's descendants its own children.
pub fn adopt_orphans() {
    // Without it (kernels before 3.4) only the nodes themselves are cleaned up.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Kills all descendants of this process and waits for them, at most for `limit`.
///
/// Only for a process whose children are all the launcher's: it waits for any child.
pub fn end_all(limit: Duration) {
    let deadline = Instant::now() + limit;
    let own = std::process::id() as i32;
    let mut killed = HashSet::new();
    loop {
        // Usually there is nothing, and this one call says so.
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return,
            Ok(Some(_)) => continue,
            _ => {}
        }
        let new = kill_descendants(own, &mut killed);
        if Instant::now() >= deadline {
            return;
        }
        // Something that keeps starting successors of itself must be outrun: look again at once.
        if !new {
            std::thread::sleep(PAUSE);
        }
    }
}

/// Kills every descendant of `own` that it finds alive and adds it to `killed`; whether there was one that was not there.
///
/// The newest processes come first and each is killed as soon as it is recognised: a process that lives only until it has forked its
/// successor would be gone by the end of a look at all.
fn kill_descendants(own: i32, killed: &mut HashSet<i32>) -> bool {
    let mut parents = Parents::default();
    let mut new = false;
    for number in processes().into_iter().rev() {
        let Some(pid) = Pid::from_raw(number).filter(|_| number != own) else { continue };
        let held = pidfd_open(pid, PidfdFlags::empty());
        if !is_below(number, own, &mut |pid| parents.of(pid)) || parents.has_ended(number) {
            continue;
        }
        let sent = match held {
            Ok(held) => pidfd_send_signal(held, Signal::KILL).is_ok(),
            // Gone before it was looked at: whoever has the number now is not meant.
            Err(rustix::io::Errno::SRCH) => false,
            // Kernels before 5.3 have no such descriptors.
            Err(_) => kill_process(pid, Signal::KILL).is_ok(),
        };
        new |= sent && killed.insert(number);
    }
    new
}

/// The numbers of all processes, ascending.
fn processes() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut all: Vec<i32> = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}

/// Parents of processes, each looked up once.
#[derive(Default)]
struct Parents {
    known: HashMap<i32, Option<State>>,
}

/// What `/proc/PID/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    parent: i32,
    /// Only its parent has not noticed yet.
    ended: bool,
}

impl Parents {
    fn state(&mut self, pid: i32) -> Option<State> {
        *self.known.entry(pid).or_insert_with(|| state(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
    }

    fn of(&mut self, pid: i32) -> Option<i32> {
        self.state(pid).map(|state| state.parent)
    }

    fn has_ended(&mut self, pid: i32) -> bool {
        self.state(pid).is_none_or(|state| state.ended)
    }
}

/// From a line of `/proc/PID/stat`: `pid (name) state ppid …`, where the name may contain anything.
fn state(stat: &str) -> Option<State> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let ended = matches!(fields.next()?, "Z" | "X");
    Some(State { parent: fields.next()?.parse().ok()?, ended })
}

/// Whether `pid` descends from `root`.
fn is_below(pid: i32, root: i32, parent: &mut impl FnMut(i32) -> Option<i32>) -> bool {
    let mut at = pid;
    // Numbers read at different times can form a circle.
    for _ in 0..10_000 {
        match parent(at) {
            Some(next) if next == root => return true,
            Some(next) if next > 0 => at = next,
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_does_not_confuse() {
        assert_eq!(state("12 (a) b (c)) S 7 12 12 0"), Some(State { parent: 7, ended: false }));
        assert_eq!(state("12 (Z) Z 7 12 12 0"), Some(State { parent: 7, ended: true }));
        assert_eq!(state("12 (a"), None);
    }

    #[test]
    fn descendants_are_found_at_every_depth_and_nobody_else() {
        let parents =
            HashMap::from([(1, 0), (10, 1), (11, 10), (12, 11), (13, 10), (20, 1), (21, 20), (30, 31), (31, 30)]);
        let below: Vec<i32> = (1..40).filter(|&pid| is_below(pid, 10, &mut |pid| parents.get(&pid).copied())).collect();
        assert_eq!(below, [11, 12, 13]);
    }
}
