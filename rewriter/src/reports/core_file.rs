//! What to say of the core file of a node that has ended the run.
//!
//! Input: how the node has ended, its process, the rewritten program on the node's host. Output: a text for the user. Keeps beside the core file what gdb needs.

use crate::launch::crashes::{core_files, core_folder};
use rustix::process::Pid;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// The text. `name`: what the node is called. `there`: where the command is to be given, if not here: `on host b: `.
pub fn text(
    name: &str,
    there: &str,
    status: ExitStatus,
    process: Option<&(Pid, PathBuf)>,
    executable: &Path,
) -> String {
    if !status.core_dumped() {
        let why = match status.signal() {
            Some(_) => "the kernel has written no core file of it",
            None => "it was no signal that ended it, so there is no core file of it",
        };
        return format!("{name}: {why}");
    }
    let from_cache = |core: &str| {
        let executable = executable.display();
        format!(
            "gdb -x \"$(blizzard config --gdb)\" {executable} {core}\n  help: that program is in the cache, until somebody cleans it"
        )
    };
    let what = format!("{name} has left a core file");
    match process.map(|(pid, folder)| core_files::place(*pid, folder)) {
        Some(Ok(core)) => match core_folder::make(&core, executable) {
            Ok(commands) => format!(
                "{what}, {}, of the rewritten program: the original does not fit it\n  help: {there}gdb -x {}",
                core.display(),
                commands.display()
            ),
            Err(error) => format!("{what}; {error}\n  help: {there}{}", from_cache(&core.display().to_string())),
        },
        Some(Err(pattern)) => format!(
            "{what}, where /proc/sys/kernel/core_pattern says: {pattern}\n  help: {there}{}",
            from_cache("CORE")
        ),
        None => format!("{what}\n  help: {there}{}", from_cache("CORE")),
    }
}
