//! The line that shows how far a command is.
//!
//! Input: a template and a number of steps. Output: a bar on standard error, if that is a terminal.
//! **Invariant**: one line at a time. Two that are drawn at once leave each other's text behind: a bar that is begun while another one is shown stays
//! hidden.

use crate::base::messages;
use indicatif::{ProgressBar, ProgressFinish, ProgressStyle};
use std::borrow::Cow;
use std::io::Write;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a line is drawn anew.
const TICK: Duration = Duration::from_millis(250);

static SHOWN: AtomicBool = AtomicBool::new(false);

/// A bar; it goes away with this value.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    is_shown: bool,
}

/// Begins to show `steps` steps, of which `first` is the first.
pub fn begin(steps: u64, template: &str, first: impl Into<Cow<'static, str>>) -> Progress {
    let style = ProgressStyle::with_template(template).expect("the template is well-formed");
    let visible = ProgressBar::new(steps).with_style(style).with_finish(ProgressFinish::AndClear).with_message(first);
    let wanted = !visible.is_hidden() && !messages::is_quiet();
    if !wanted || SHOWN.swap(true, Ordering::SeqCst) {
        return Progress { bar: ProgressBar::hidden(), is_shown: false };
    }
    visible.enable_steady_tick(TICK);
    Progress { bar: visible, is_shown: true }
}

impl Progress {
    /// Whether the user sees it.
    pub fn is_shown(&self) -> bool {
        self.is_shown
    }
}

impl Deref for Progress {
    type Target = ProgressBar;

    fn deref(&self) -> &ProgressBar {
        &self.bar
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        if self.is_shown {
            SHOWN.store(false, Ordering::SeqCst);
        }
    }
}

/// Removes the line of a process that is about to end without dropping its bar.
pub fn clear() {
    if SHOWN.swap(false, Ordering::SeqCst) {
        // ECMA-48: to the first column; erase the line.
        let _ = std::io::stderr().write_all(b"\r\x1b[2K");
    }
}
