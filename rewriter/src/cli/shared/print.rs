//! What commands write to standard output.
//!
//! Input: text. Output: bytes. **Invariant**: a reader that has gone away is no error.

use crate::base::error::{Error, Result};

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
