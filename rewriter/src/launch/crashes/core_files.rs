//! Core files of nodes: that the kernel writes them, and where.
//!
//! Input: nothing; a node that has died. Output: a raised limit; the file. The runtime keeps out of them what is large and says nothing: the table of tags,
//! its own tables, the second mapping of shared memory.
//! Source: core(5).

use crate::base::error::{Error, Result};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use std::path::{Path, PathBuf};

const PATTERN: &str = "/proc/sys/kernel/core_pattern";
const USES_PID: &str = "/proc/sys/kernel/core_uses_pid";
/// What core files of this process's children hold.
const FILTER: &str = "/proc/self/coredump_filter";
/// What is mapped of files, too: a debugger cannot read it from files of a cache that has been cleaned.
const OF_FILES: u32 = 1 << 2;

/// Lets the kernel write core files of this process's children, with their code.
///
/// # Errors
/// This process may not have any.
pub fn allow() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Core);
    let refused = || {
        Error::new("--core: the limit for core files is 0 here, and may not be raised")
            .help("raise the hard limit where the shell is started: see `ulimit -Hc`")
    };
    if maximum == Some(0) {
        return Err(refused());
    }
    setrlimit(Resource::Core, Rlimit { current: maximum, maximum }).map_err(|e| refused().because(e))?;
    // What cannot be set leaves core files that are of use while the cache has the program.
    let filter = std::fs::read_to_string(FILTER).unwrap_or_default();
    if let Ok(filter) = u32::from_str_radix(filter.trim_end(), 16) {
        let _ = std::fs::write(FILTER, format!("{:#x}", filter | OF_FILES));
    }
    Ok(())
}

/// Where the kernel has put the core file of a process that ran in `folder`; else what it does with core files.
pub fn place(pid: Pid, folder: &Path) -> std::result::Result<PathBuf, String> {
    let setting = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim_end().to_owned();
    let (pattern, uses_pid) = (setting(PATTERN), setting(USES_PID) == "1");
    named(&pattern, uses_pid, pid, folder).filter(|path| path.is_file()).ok_or(pattern)
}

fn named(pattern: &str, uses_pid: bool, pid: Pid, folder: &Path) -> Option<PathBuf> {
    let pid = pid.as_raw_nonzero().to_string();
    let has_pid = pattern.contains("%p");
    let name = pattern.replace("%p", &pid);
    // Other words (%e, %t) are not known here.
    if pattern.starts_with('|') || name.contains('%') {
        return None;
    }
    Some(folder.join(if uses_pid && !has_pid { format!("{name}.{pid}") } else { name }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_lead_to_files() {
        let (pid, folder) = (Pid::from_raw(77).unwrap(), Path::new("/run/here"));
        let named = |pattern, uses_pid| named(pattern, uses_pid, pid, folder);
        assert_eq!(named("core", false), Some("/run/here/core".into()));
        assert_eq!(named("core", true), Some("/run/here/core.77".into()));
        assert_eq!(named("/cores/core.%p", true), Some("/cores/core.77".into()));
        assert_eq!(named("|/usr/lib/systemd/systemd-coredump %P", false), None);
        assert_eq!(named("core.%e.%p", false), None);
    }
}
