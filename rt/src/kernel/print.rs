//! Error lines of the runtime.
//!
//! Purpose: one formatted line to file descriptor 2, written with a single system call so that lines of several nodes do not mix.
//! No allocation: text beyond the buffer is cut and marked.
//! **Invariant**: works before and after everything else, at any point where a miss can occur.

use crate::kernel::sys;
use core::fmt::{self, Write};

/// Bytes of the longest line.
const LINE_BYTES: usize = 1024;
/// What ends a line that was cut.
const CUT: &[u8] = b"...";

/// A line under construction on the stack.
pub struct Line {
    bytes: [u8; LINE_BYTES],
    len: usize,
    cut: bool,
}

impl Line {
    /// An empty line.
    pub const fn new() -> Self {
        Line { bytes: [0; LINE_BYTES], len: 0, cut: false }
    }

    /// The text so far; ends in `...` when it was cut.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Default for Line {
    fn default() -> Self {
        Line::new()
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.cut {
            return Ok(());
        }
        // One byte stays free for the newline.
        let room = LINE_BYTES - 1 - CUT.len() - self.len;
        let take = text.len().min(room);
        self.bytes[self.len..self.len + take].copy_from_slice(&text.as_bytes()[..take]);
        self.len += take;
        if take < text.len() {
            self.bytes[self.len..self.len + CUT.len()].copy_from_slice(CUT);
            self.len += CUT.len();
            self.cut = true;
        }
        Ok(())
    }
}

/// A number of bytes, exact and for people: `26843545600 bytes (25.0 GiB)`. The second is rounded down.
#[derive(Clone, Copy)]
pub struct ByteCount(pub u64);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0)?;
        let thousands = self.0.checked_ilog2().unwrap_or(0) / 10;
        if thousands == 0 {
            return Ok(());
        }
        // A tenth at most is lost.
        let tenths = (u128::from(self.0) * 10) >> (10 * thousands);
        let unit = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][thousands as usize - 1];
        write!(f, " ({}.{} {unit})", tenths / 10, tenths % 10)
    }
}

/// Formats `blizzard: error: <message>` without the newline.
pub fn error_line(message: fmt::Arguments<'_>) -> Line {
    let mut line = Line::new();
    // `Line` never fails; a failing Display of an argument leaves what was written before it.
    let _ = write!(line, "blizzard: error: {message}");
    line
}

/// Writes `blizzard: error: <message>` and a newline to file descriptor 2.
pub fn error(message: fmt::Arguments<'_>) {
    put(error_line(message));
}

/// Writes `blizzard: warning: <message>` and a newline to file descriptor 2.
pub fn warning(message: fmt::Arguments<'_>) {
    let mut line = Line::new();
    // As in `error_line`.
    let _ = write!(line, "blizzard: warning: {message}");
    put(line);
}

fn put(mut line: Line) {
    line.bytes[line.len] = b'\n';
    line.len += 1;
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        match sys::write(2, rest) {
            Ok(0) => return,
            Ok(n) => rest = &rest[n..],
            Err(sys::Errno(libc::EINTR)) => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_prefixed() {
        assert_eq!(error_line(format_args!("{} of {}", 1, 2)).as_bytes(), b"blizzard: error: 1 of 2");
    }

    #[test]
    fn numbers_of_bytes_are_exact_and_readable() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1024 bytes (1.0 KiB)"),
            ((1 << 20) - 1, "1048575 bytes (1023.9 KiB)"),
            (25 << 30, "26843545600 bytes (25.0 GiB)"),
            (u64::MAX, "18446744073709551615 bytes (15.9 EiB)"),
        ] {
            assert_eq!(ByteCount(bytes).to_string(), text);
        }
    }

    #[test]
    fn long_lines_are_cut_and_marked() {
        let long = "x".repeat(5000);
        let line = error_line(format_args!("{long}"));
        assert_eq!(line.as_bytes().len(), LINE_BYTES - 1);
        assert!(line.as_bytes().ends_with(b"x..."));
    }
}
