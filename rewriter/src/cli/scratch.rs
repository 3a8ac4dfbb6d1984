//! Temporary folders of commands.
//!
//! Purpose: [`folder`] makes one that is removed when the command is over, also when the user interrupts it. Input: the command's name. Output: the
//! folder, which lives as long as the value.
//! **Invariant**: the command's child processes end with it, and open their files by path: a folder that has another name gets no new ones.

use crate::error::{Error, Result};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A new folder, named after the command. From now on SIGINT, SIGTERM and SIGHUP end the process with a status, as shells number it.
pub fn folder(command: &str) -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix(&format!("blizzard-{command}-"))
        .tempdir()
        .map_err(|e| Error::new("cannot make a temporary folder").because(e))?;
    remove_when_interrupted(folder.path())?;
    Ok(folder)
}

fn remove_when_interrupted(folder: &Path) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
        .map_err(|e| Error::new("cannot listen for signals").because(e))?;
    let (folder, removed) = (folder.to_owned(), folder.with_extension("removed"));
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // What cannot be removed now is left to whoever cleans the temporary folder.
            let folder = if fs::rename(&folder, &removed).is_ok() { removed } else { folder };
            let _ = fs::remove_dir_all(folder);
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}
