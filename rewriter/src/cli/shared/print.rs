//! What commands write to standard output, and what keeps them from beginning.
//!
//! Input: text, errors. Output: bytes, a status. **Invariant**: a reader that has gone away is no error.

use crate::base::error::{Error, Result};
use crate::base::messages;
use std::process::ExitCode;

/// Says what keeps a command from beginning; the status of that.
pub(crate) fn misuse(error: &Error) -> ExitCode {
    messages::error(&error.to_string());
    ExitCode::from(2)
}

/// Writes to standard output; a reader that has gone away (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// Writes to standard output; a reader that has gone away is no error.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    match std::io::stdout().lock().write_all(bytes) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::new("cannot write to standard output").because(e))
        }
        _ => Ok(()),
    }
}
