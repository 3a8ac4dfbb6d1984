//! Ending what the nodes leave behind.
//!
//! A node may have started processes of its own. The launcher is their *subreaper*: when their parent ends they become the
//! launcher's children, daemons included. After the last node has ended, everything below the launcher is killed,
//! again and again until nothing is left.
//!
//! When the launcher itself is killed, nobody is left to do this: the nodes end with it all the same (`sys::tie_to_parent`), but processes
//! that nodes have started by themselves live on, as they do when their parent ends in a shell.

use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long to try; a process in an uninterruptible system call can take longer, and is then left to the kernel, which has
/// the kill signal pending for it.
const LIMIT: Duration = Duration::from_millis(500);

/// Makes orphans of this process's descendants its own children.
pub fn adopt_orphans() {
    // Without it (kernels before 3.4) only the nodes themselves are cleaned up.
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Kills all descendants of this process and waits for them.
///
/// Only for a process whose children are all the launcher's: it waits for any child.
pub fn end_all() {
    let deadline = Instant::now() + LIMIT;
    loop {
        // Usually there is nothing, and this one call says so.
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return,
            Ok(Some(_)) => continue,
            _ => {}
        }
        for pid in descendants(std::process::id() as i32, &parents()) {
            if let Some(pid) = Pid::from_raw(pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The parent of every process, by process number.
fn parents() -> HashMap<i32, i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return HashMap::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, parent_in_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?)))
        .collect()
}

/// The parent's number in a line of `/proc/PID/stat`: `pid (name) state ppid …`, where the name may contain anything.
fn parent_in_stat(stat: &str) -> Option<i32> {
    stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// All processes below `root`.
fn descendants(root: i32, parents: &HashMap<i32, i32>) -> Vec<i32> {
    let mut found = vec![root];
    let mut next = 0;
    while let Some(&parent) = found.get(next) {
        found.extend(parents.iter().filter(|&(_, &p)| p == parent).map(|(&child, _)| child));
        next += 1;
    }
    found.split_off(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_with_parentheses_does_not_confuse() {
        assert_eq!(parent_in_stat("12 (a) b (c)) S 7 12 12 0"), Some(7));
        assert_eq!(parent_in_stat("12 (a"), None);
    }

    #[test]
    fn descendants_are_found_at_every_depth_and_nobody_else() {
        let parents = HashMap::from([(1, 0), (10, 1), (11, 10), (12, 11), (13, 10), (20, 1), (21, 20)]);
        let mut found = descendants(10, &parents);
        found.sort_unstable();
        assert_eq!(found, [11, 12, 13]);
    }
}
