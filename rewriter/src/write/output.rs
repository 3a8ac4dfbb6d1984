//! The output file while it is put together: appended to, and patched where it has been written.
//!
//! Input: pieces in the order of the file, as a rule, and patches. Output: writes to a [`OutputSink`], in large pieces. A write that fails is
//! reported at the end, once; what follows it is dropped.

use crate::base::error::{Error, Result};
use crate::base::output_file::OutputSink;
use std::io;

/// What is written at once.
const PIECE_BYTES: usize = 256 << 10;
/// What a [`Window`] holds.
const WINDOW_BYTES: u64 = 64 << 10;

/// The file.
pub struct Output<'x> {
    sink: &'x mut dyn OutputSink,
    /// The last bytes, not yet written.
    tail: Vec<u8>,
    /// Where they stand.
    tail_at: u64,
    failure: Option<io::Error>,
}

impl<'x> Output<'x> {
    /// An empty file.
    pub fn new(sink: &'x mut dyn OutputSink) -> Output<'x> {
        Output { sink, tail: Vec::with_capacity(PIECE_BYTES), tail_at: 0, failure: None }
    }

    /// To be asked before anything is written.
    ///
    /// # Errors
    /// There is no room for so many bytes.
    pub fn expect_room(&mut self, bytes: u64) -> Result<()> {
        self.sink.expect_room(bytes).map_err(|e| Error::new("cannot write the output").because(e))
    }

    /// Bytes so far.
    #[inline]
    pub fn len(&self) -> u64 {
        self.tail_at + self.tail.len() as u64
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        if self.failure.is_none() {
            self.failure = self.sink.write_at(at, bytes).err();
        }
    }

    fn flush(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.write(self.tail_at, &tail);
            self.tail_at += tail.len() as u64;
            self.tail = tail;
            self.tail.clear();
        }
    }

    /// Appends.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.tail.len() + bytes.len() > PIECE_BYTES {
            self.flush();
        }
        if bytes.len() >= PIECE_BYTES {
            self.write(self.tail_at, bytes);
            self.tail_at += bytes.len() as u64;
        } else {
            self.tail.extend_from_slice(bytes);
        }
    }

    /// Appends zeros until the file has `bytes` bytes.
    pub fn fill_to(&mut self, bytes: u64) {
        while self.len() < bytes {
            let more = (bytes - self.len()).min(PIECE_BYTES as u64 / 2) as usize;
            if self.tail.len() + more > PIECE_BYTES {
                self.flush();
            }
            self.tail.resize(self.tail.len() + more, 0);
        }
    }

    /// Overwrites what has been appended.
    pub fn patch(&mut self, at: u64, bytes: &[u8]) {
        assert!(at + bytes.len() as u64 <= self.len(), "a patch lies in the file");
        if at >= self.tail_at {
            let at = (at - self.tail_at) as usize;
            self.tail[at..at + bytes.len()].copy_from_slice(bytes);
        } else {
            self.flush();
            self.write(at, bytes);
        }
    }

    /// As [`Output::patch`], for many small patches near each other: `window` holds the part of the file that was patched last.
    /// [`Output::close`] must follow.
    pub fn patch_through(&mut self, window: &mut Window, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        assert!(end <= self.len(), "a patch lies in the file");
        if at < window.at || end > window.at + window.bytes.len() as u64 {
            self.close(window);
            self.flush();
            let size = WINDOW_BYTES.max(bytes.len() as u64).min(window.stop.max(end) - at);
            window.at = at;
            window.bytes.resize(size as usize, 0);
            if self.failure.is_none() {
                self.failure = self.sink.read_at(at, &mut window.bytes).err();
            }
        }
        let at = (at - window.at) as usize;
        window.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Writes a window back.
    pub fn close(&mut self, window: &mut Window) {
        if !window.bytes.is_empty() {
            self.write(window.at, &window.bytes);
            window.bytes.clear();
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// The first write that failed.
    pub fn finish(mut self) -> Result<()> {
        self.flush();
        match self.failure {
            None => Ok(()),
            Some(e) => Err(Error::new("cannot write the output").because(e)),
        }
    }
}

/// A part of the file that is being patched.
pub struct Window {
    at: u64,
    bytes: Vec<u8>,
    /// It does not reach further: what stands behind may have a window of its own.
    stop: u64,
}

impl Window {
    /// Of a part of the file that ends at `stop`.
    pub fn up_to(stop: u64) -> Window {
        Window { at: 0, bytes: Vec::new(), stop }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces of all sizes, and patches of what is written and of what is not.
    #[test]
    fn the_file_is_what_a_buffer_would_be() {
        let mut memory: Vec<u8> = Vec::new();
        let mut wanted: Vec<u8> = Vec::new();
        let mut out = Output::new(&mut memory);
        let mut window = Window::up_to(0);
        let mut seed = 1u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for round in 0..400u64 {
            let size = [1, 100, 5000, PIECE_BYTES as u64 + 10][random(4) as usize];
            let bytes: Vec<u8> = (0..random(size)).map(|k| (k * 7 + round) as u8).collect();
            out.extend(&bytes);
            wanted.extend(&bytes);
            let filled = out.len() + random(40);
            out.fill_to(filled);
            wanted.resize(filled as usize, 0);
            let at = random(filled.saturating_sub(8).max(1));
            window.stop = filled;
            if filled >= at + 8 {
                let patch = [round as u8; 8];
                wanted[at as usize..at as usize + 8].copy_from_slice(&patch);
                if round % 3 == 0 {
                    out.close(&mut window);
                    out.patch(at, &patch);
                } else {
                    out.patch_through(&mut window, at, &patch);
                }
            }
        }
        out.close(&mut window);
        out.finish().unwrap();
        assert!(memory == wanted);
    }

    #[test]
    fn a_failed_write_is_reported_at_the_end() {
        struct Full;
        impl OutputSink for Full {
            fn write_at(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
                panic!("nothing was written")
            }
        }
        let mut full = Full;
        let mut out = Output::new(&mut full);
        out.extend(&vec![1; 2 * PIECE_BYTES]);
        out.patch_through(&mut Window::up_to(9), 0, &[2]);
        let error = out.finish().unwrap_err();
        assert!(error.what.contains("cannot write") && !error.causes.is_empty());
    }
}
