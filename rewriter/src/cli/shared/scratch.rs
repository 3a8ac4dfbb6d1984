//! Temporary folders of commands.
//!
//! Purpose: [`folder`] makes one that is removed when the command is over, also when the user interrupts it. Input: the command's name. Output: the
//! folder, which lives as long as the value.
//! **Invariant**: the command's child processes end with it, and open their files by path: a folder that has another name gets no new ones.

use crate::base::error::{Error, Result};
use crate::base::progress;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A signal has come, and the thread that has seen it will end the process.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);
/// How often the removal of an interrupted command's folder is tried, and how long the pauses are: a second in all, and more where the machine stands still.
const TRIES: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// The folder of a command.
#[derive(Debug)]
pub struct ScratchFolder(TempDir);

impl ScratchFolder {
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for ScratchFolder {
    /// An interrupted command fails, because its folder has gone: it must not end the process before the folder is removed, nor with a status of
    /// its own.
    fn drop(&mut self) {
        while INTERRUPTED.load(Ordering::SeqCst) {
            std::thread::park();
        }
    }
}

/// A new folder, named after the command. From now on SIGINT, SIGTERM and SIGHUP end the process with a status, as shells number it.
pub fn folder(command: &str) -> Result<ScratchFolder> {
    let folder = tempfile::Builder::new()
        .prefix(&format!("blizzard-{command}-"))
        .tempdir()
        .map_err(|e| Error::new("cannot make a temporary folder").because(e))?;
    remove_when_interrupted(folder.path())?;
    Ok(ScratchFolder(folder))
}

fn remove_when_interrupted(folder: &Path) -> Result<()> {
    let mut signals = signal_hook::iterator::Signals::new([libc::SIGINT, libc::SIGTERM, libc::SIGHUP])
        .map_err(|e| Error::new("cannot listen for signals").because(e))?;
    let (folder, removed) = (folder.to_owned(), folder.with_extension("removed"));
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            INTERRUPTED.store(true, Ordering::SeqCst);
            let folder = if fs::rename(&folder, &removed).is_ok() { removed } else { folder };
            remove(&folder);
            progress::clear();
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// A child that has just looked up the old name can still make its file, which is met as a folder that is not empty. What cannot be removed in time is
/// left to whoever cleans the temporary folder.
fn remove(folder: &Path) {
    for _ in 0..TRIES {
        match fs::remove_dir_all(folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => std::thread::sleep(PAUSE),
            _ => return,
        }
    }
}
