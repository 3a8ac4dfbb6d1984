//! Why a file cannot be audited at all.
//!
//! Input: what the reader of the file says. Output: one line for the user. What is wrong with a file that can be audited is a finding instead.

use std::fmt;

/// What is wrong with the file, why, and what the user can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub what: String,
    pub cause: Option<String>,
    pub help: Option<&'static str>,
}

/// The result of what may fail so.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn new(what: impl Into<String>) -> Error {
        Error { what: what.into(), cause: None, help: None }
    }

    pub(crate) fn because(self, cause: impl fmt::Display) -> Error {
        Error { cause: Some(cause.to_string()), ..self }
    }

    pub(crate) fn help(self, help: &'static str) -> Error {
        Error { help: Some(help), ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.cause.iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for Error {}
