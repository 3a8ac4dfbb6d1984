//! Errors and refusals as the user reads them: what, where, what to do.
//!
//! Input: texts of whoever fails. Output: an [`Error`], printed as one message. **Invariant**: all refusals of a program are in one error.

use crate::base::addresses::Vaddr;
use std::fmt;

/// Why a command failed. Printed as `blizzard: error: …`, then `caused by:` and `help:` lines.
#[derive(Debug)]
pub struct Error {
    pub what: String,
    pub causes: Vec<String>,
    pub help: Option<String>,
    pub refusals: Vec<Refusal>,
    /// Of a command that the user has ended: by this signal.
    pub signal: Option<i32>,
}

/// One thing in the input that cannot be rewritten soundly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub at: Vaddr,
    /// `function+0x12`, or the section's name and offset where there is no symbol.
    pub place: String,
    pub reason: String,
}

/// Most refusals that a message shows: whoever has more of them looks for what they have in common.
const SHOWN_REFUSALS: usize = 20;

/// The result type of every fallible step.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with its one-line description.
    pub fn new(what: impl Into<String>) -> Self {
        Error { what: what.into(), causes: Vec::new(), help: None, refusals: Vec::new(), signal: None }
    }

    /// Adds a `caused by:` line. Names of temporary files (`tempfile`: `… at path "…"`) say nothing to users.
    pub fn because(mut self, cause: impl fmt::Display) -> Self {
        let mut cause = plain(cause);
        if let Some(end) = cause.find(" at path \"") {
            cause.truncate(end);
        }
        self.causes.push(cause);
        self
    }

    /// Sets the `help:` line: what the user can do.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A text of the system's errors without their numbers, as Rust writes them (`… (os error 2)`): the words say the same.
pub fn plain(text: impl fmt::Display) -> String {
    let text = text.to_string();
    let mut parts = text.split(" (os error ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')').filter(|(number, _)| number.bytes().all(|b| b.is_ascii_digit())) {
            Some((_, behind)) => out += behind,
            None => out = [&out, " (os error ", part].concat(),
        }
    }
    out
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.what)?;
        for cause in &self.causes {
            write!(f, "\n  caused by: {cause}")?;
        }
        for r in self.refusals.iter().take(SHOWN_REFUSALS) {
            write!(f, "\n  refused: {} ({}): {}", r.at, r.place, r.reason)?;
        }
        if let Some(more) = self.refusals.len().checked_sub(SHOWN_REFUSALS).filter(|n| *n > 0) {
            write!(f, "\n  refused: {more} more, which `blizzard inspect` shows")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_have_no_numbers() {
        let missing = std::io::Error::from_raw_os_error(2);
        assert_eq!(plain(&missing), "No such file or directory");
        assert_eq!(
            plain(format!("a: {missing}; b: {missing}: c")),
            "a: No such file or directory; b: No such file or directory: c"
        );
        assert_eq!(plain("stays (os error or not) (os error 2"), "stays (os error or not) (os error 2");
        assert_eq!(Error::new("what").because(missing).causes, ["No such file or directory"]);
    }

    #[test]
    fn a_message_shows_some_refusals_and_counts_the_others() {
        let refusal = |n| Refusal { at: Vaddr(n), place: format!("f+{n:#x}"), reason: "why".into() };
        let shown = |n: u64| {
            let refusals = (0..n).map(refusal).collect();
            Error { refusals, ..Error::new("what") }.to_string()
        };
        let most = SHOWN_REFUSALS as u64;
        assert_eq!(shown(most).lines().count(), SHOWN_REFUSALS + 1);
        let text = shown(most + 3272);
        assert_eq!(text.lines().count(), SHOWN_REFUSALS + 2);
        assert!(text.contains("refused: 3272 more"), "{text}");
    }
}
