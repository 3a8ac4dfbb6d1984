//! Ending what the nodes leave behind.
//!
//! Input: the process tree below this process. Output: none of it is left.
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

/// How long to try in vain while a user waits; a process in an uninterruptible system call can take longer, and is then left to the kernel,
/// which has the kill signal pending for it. A killed process that could run ends as soon as it gets a processor, and is waited for.
pub const LIMIT: Duration = Duration::from_millis(500);
/// How long to try in vain when nobody waits.
pub const LIMIT_ALONE: Duration = Duration::from_secs(60);
/// How long to try at all, in limits: something may go on starting successors faster than it is found.
const MOST_LIMITS: u32 = 40;
/// How long to wait between looks.
const PAUSE: Duration = Duration::from_millis(2);
/// A limit is not over before so many looks, however late they come: a machine can stand still for longer than a limit.
const FEWEST_LOOKS: u32 = 20;

/// Makes orphans of this process's descendants its own children.
pub fn adopt_orphans() {
    // Without it (kernels before 3.4) only the nodes themselves are cleaned up.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Kills all descendants of this process and waits for them; in vain at most for `limit`.
///
/// Only for a process whose children are all the launcher's: it waits for any child.
pub fn end_all(limit: Duration) {
    let mut patience = Patience::new(limit, Instant::now());
    let mut killed = HashSet::new();
    let own = std::process::id() as i32;
    loop {
        // Usually there is nothing, and this one call says so.
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return,
            Ok(Some(_)) => {
                patience.progress(Instant::now());
                continue;
            }
            _ => {}
        }
        let Look { new, ending } = kill_descendants(own, &mut killed);
        if new || ending {
            patience.progress(Instant::now());
        }
        if patience.is_over(Instant::now()) {
            return;
        }
        // Something that keeps starting successors of itself must be outrun: look again at once.
        if !new {
            std::thread::sleep(PAUSE);
        }
    }
}

/// How long processes that do not end are waited for.
struct Patience {
    limit: Duration,
    begin: Instant,
    /// The last sign that processes still end.
    progress: Instant,
    /// Looks since.
    looks: u32,
}

impl Patience {
    fn new(limit: Duration, now: Instant) -> Self {
        Patience { limit, begin: now, progress: now, looks: 0 }
    }

    fn progress(&mut self, now: Instant) {
        (self.progress, self.looks) = (now, 0);
    }

    /// After a look: whether it was the last.
    fn is_over(&mut self, now: Instant) -> bool {
        self.looks += 1;
        let in_vain = now.saturating_duration_since(self.progress) >= self.limit && self.looks >= FEWEST_LOOKS;
        in_vain || now.saturating_duration_since(self.begin) >= MOST_LIMITS * self.limit
    }
}

/// What a look at all processes has found.
struct Look {
    /// A process that was not killed before.
    new: bool,
    /// One that has been killed and can end: it only waits for a processor.
    ending: bool,
}

/// Kills every descendant of `own` that it finds alive and adds it to `killed`.
///
/// The newest processes come first and each is killed as soon as it is recognised: a process that lives only until it has forked its
/// successor would be gone by the end of a look at all.
fn kill_descendants(own: i32, killed: &mut HashSet<i32>) -> Look {
    let mut parents = Parents::default();
    let mut look = Look { new: false, ending: false };
    for number in processes().into_iter().rev() {
        let Some(pid) = Pid::from_raw(number).filter(|_| number != own) else { continue };
        let held = pidfd_open(pid, PidfdFlags::empty());
        if !is_below(number, own, &mut |pid| parents.of(pid)) {
            continue;
        }
        let Some(state) = parents.state(number).filter(|state| !state.has_ended()) else { continue };
        let sent = match held {
            Ok(held) => pidfd_send_signal(held, Signal::KILL).is_ok(),
            // Gone before it was looked at: whoever has the number now is not meant.
            Err(rustix::io::Errno::SRCH) => false,
            // Kernels before 5.3 have no such descriptors.
            Err(_) => kill_process(pid, Signal::KILL).is_ok(),
        };
        look.new |= sent && killed.insert(number);
        look.ending |= sent && !state.is_uninterruptible();
    }
    look
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
    /// As `proc(5)` has it.
    letter: u8,
}

impl State {
    /// Only its parent has not noticed yet.
    fn has_ended(self) -> bool {
        matches!(self.letter, b'Z' | b'X')
    }

    /// In a system call that not even SIGKILL ends.
    fn is_uninterruptible(self) -> bool {
        self.letter == b'D'
    }
}

impl Parents {
    fn state(&mut self, pid: i32) -> Option<State> {
        *self.known.entry(pid).or_insert_with(|| state(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
    }

    fn of(&mut self, pid: i32) -> Option<i32> {
        self.state(pid).map(|state| state.parent)
    }
}

/// The parent of a process that is there.
pub(super) fn parent_of(process: i32) -> Option<i32> {
    Parents::default().of(process)
}

/// From a line of `/proc/PID/stat`: `pid (name) state ppid …`, where the name may contain anything.
fn state(stat: &str) -> Option<State> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let letter = *fields.next()?.as_bytes().first()?;
    Some(State { parent: fields.next()?.parse().ok()?, letter })
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
        assert_eq!(state("12 (a) b (c)) S 7 12 12 0"), Some(State { parent: 7, letter: b'S' }));
        assert_eq!(state("12 (Z) Z 7 12 12 0"), Some(State { parent: 7, letter: b'Z' }));
        assert_eq!(state("12 (a"), None);
    }

    /// A look that came half a second after the one before, because the machine had stood still, was the last: killed processes were left to end
    /// by themselves, and one that runs away from its number got away.
    #[test]
    fn a_machine_that_stood_still_is_not_taken_for_processes_that_do_not_end() {
        let begin = Instant::now();
        let after = |ms| begin + Duration::from_millis(ms);
        let mut patience = Patience::new(LIMIT, begin);
        assert!((0..FEWEST_LOOKS - 1).all(|look| !patience.is_over(after(600 + u64::from(look)))));
        assert!(patience.is_over(after(700)), "nothing has ended for longer than the limit, in many looks");
        // Whatever still ends is waited for, but not for ever.
        let mut patience = Patience::new(LIMIT, begin);
        let ends = (0..100_000).map(|look| 2 * look).find(|&ms| {
            patience.progress(after(ms));
            patience.is_over(after(ms))
        });
        assert_eq!(ends, Some(500 * u64::from(MOST_LIMITS)));
    }

    #[test]
    fn descendants_are_found_at_every_depth_and_nobody_else() {
        let parents =
            HashMap::from([(1, 0), (10, 1), (11, 10), (12, 11), (13, 10), (20, 1), (21, 20), (30, 31), (31, 30)]);
        let below: Vec<i32> = (1..40).filter(|&pid| is_below(pid, 10, &mut |pid| parents.get(&pid).copied())).collect();
        assert_eq!(below, [11, 12, 13]);
    }
}
