//! Executables that tests write and then execute.
//!
//! A process that is started while a file is open for writing here holds that file open, too, until it executes its own program, and meanwhile the file
//! cannot be executed (ETXTBSY). Tests run at the same time, so another process writes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable.
pub fn write(path: &Path, bytes: &[u8]) {
    let mut install = Command::new("install");
    let mut install = install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped()).spawn().unwrap();
    install.stdin.take().unwrap().write_all(bytes).unwrap();
    assert!(install.wait().unwrap().success(), "{}", path.display());
}
