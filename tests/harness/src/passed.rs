//! What has passed already: a file with a line for each, so that the gate's second run, with more installed, runs only what is new.
//!
//! Input: the file that [`FILE`] names, if it is set. Without it nothing has passed, and nothing is written.
//! A line names all that a test ran with, where that depends on what is installed: the compilers of a case.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::LazyLock;

/// The environment variable that names the file.
pub const FILE: &str = "BLIZZARD_TEST_PASSED";

/// What had passed when this test program began.
static BEFORE: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let text = std::env::var_os(FILE).and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
});

/// Whether this had passed before the test program began.
pub fn is_known(what: &str) -> bool {
    BEFORE.contains(what)
}

/// Adds a line to the file.
///
/// # Panics
/// The file cannot be written.
pub fn add(what: &str) {
    let Some(file) = std::env::var_os(FILE) else { return };
    // One write to a file that is open for appending: lines of threads and programs do not mix.
    let opened = OpenOptions::new().create(true).append(true).open(&file);
    let written = opened.and_then(|mut file| file.write_all(format!("{what}\n").as_bytes()));
    assert!(written.is_ok(), "{FILE}: {}: {}", file.display(), written.unwrap_err());
}
