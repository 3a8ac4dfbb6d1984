//! Passing the nodes' output through, unmixed by line.
//!
//! Input: one pipe for each node's standard output and standard error, as a [`NodeStream`]. Output: the launcher's own. Each pipe has a
//! thread; a [`LineBuffer`] cuts what it reads into whole lines, and a [`SharedOutput`] writes whole lines under one lock.
//!
//! **Invariants:** a line of one node is never interrupted by another's; each node's bytes keep their order; no byte is
//! added, except the newline that separates an unfinished last line from what another node writes after it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

/// Whether a read of the pipe would return at once.
pub fn is_readable(pipe: &PipeReader) -> bool {
    let mut fds = [PollFd::new(pipe, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0)
}

/// The reading end of a node's pipe. One thread reads it; others can see whether all that has come through it has been passed on.
#[derive(Debug)]
pub struct NodeStream {
    pipe: PipeReader,
    /// The reader has taken something out of the pipe, or is about to, and has not come back for more.
    in_hand: AtomicBool,
}

impl NodeStream {
    /// Nothing has been read.
    pub fn new(pipe: impl Into<OwnedFd>) -> Self {
        NodeStream { pipe: PipeReader::from(pipe.into()), in_hand: AtomicBool::new(false) }
    }

    /// Whether anything is left to be passed on, the end of the pipe included.
    pub fn has_more(&self) -> bool {
        // In this order: the reader says that it has something in hand before it takes it.
        is_readable(&self.pipe) || self.in_hand.load(Ordering::SeqCst)
    }
}

impl Read for &NodeStream {
    /// Whoever reads on has passed on what he has read before.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.in_hand.store(false, Ordering::SeqCst);
        poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], None)?;
        self.in_hand.store(true, Ordering::SeqCst);
        (&self.pipe).read(buffer)
    }
}

/// A line longer than this is passed on in pieces, so that a node that writes no newline cannot fill the memory.
const LONGEST_LINE_BYTES: usize = 16 << 20;

/// Where all nodes' lines of one stream go.
pub struct SharedOutput<W> {
    state: Mutex<OutputState<W>>,
    /// Nothing can be written to the launcher's output any more.
    closed: AtomicBool,
}

struct OutputState<W> {
    out: W,
    at_line_start: bool,
    /// Why output was lost, if not because its reader has gone away.
    lost: Option<io::Error>,
}

impl<W: Write> SharedOutput<W> {
    /// A output at the start of a line.
    pub fn new(out: W) -> Self {
        SharedOutput {
            state: Mutex::new(OutputState { out, at_line_start: true, lost: None }),
            closed: AtomicBool::new(false),
        }
    }

    /// Whether writing has failed, as it does when the reader of this output has gone away.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Why output was lost (a full disk, say); none if its reader has gone away, which loses nothing that anybody wanted.
    pub fn lost(&self) -> Option<io::Error> {
        self.state().lost.take()
    }

    fn state(&self) -> MutexGuard<'_, OutputState<W>> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Writes `text`, which starts a line, or with `continues` is the next piece of a line begun before. Returns false once
    /// nothing can be written any more.
    fn write(&self, text: &[u8], continues: bool) -> bool {
        let mut state = self.state();
        if !self.is_closed() {
            let separate = !continues && !state.at_line_start;
            let written = (|| {
                if separate {
                    state.out.write_all(b"\n")?;
                }
                state.out.write_all(text)?;
                state.out.flush()
            })();
            self.closed.store(written.is_err(), Ordering::SeqCst);
            state.lost = written.err().filter(|e| e.kind() != io::ErrorKind::BrokenPipe);
            state.at_line_start = text.last() == Some(&b'\n');
        }
        !self.is_closed()
    }
}

/// Cuts one node's stream into lines, each with the node's prefix.
#[derive(Debug)]
pub struct LineBuffer {
    prefix: Vec<u8>,
    /// The unfinished line, without prefix.
    partial: Vec<u8>,
    /// A first piece of the unfinished line has been written already.
    begun: bool,
}

impl LineBuffer {
    /// Lines will start with `prefix`.
    pub fn new(prefix: impl Into<Vec<u8>>) -> Self {
        LineBuffer { prefix: prefix.into(), partial: Vec::new(), begun: false }
    }

    /// Takes the next bytes of the stream; writes the lines they complete. Returns false once nobody reads.
    pub fn feed<W: Write>(&mut self, bytes: &[u8], output: &SharedOutput<W>) -> bool {
        let Some(end) = bytes.iter().rposition(|&b| b == b'\n') else {
            self.partial.extend_from_slice(bytes);
            return self.partial.len() < LONGEST_LINE_BYTES || self.flush(output);
        };
        let (complete, rest) = bytes.split_at(end + 1);
        let mut text = Vec::with_capacity(self.partial.len() + complete.len() + self.prefix.len());
        let continues = std::mem::take(&mut self.begun);
        for (k, line) in complete.split_inclusive(|&b| b == b'\n').enumerate() {
            if k != 0 || !continues {
                text.extend_from_slice(&self.prefix);
            }
            if k == 0 {
                text.append(&mut self.partial);
            }
            text.extend_from_slice(line);
        }
        self.partial.extend_from_slice(rest);
        output.write(&text, continues)
    }

    /// Writes what is left of an unfinished line. Returns false once nobody reads.
    pub fn flush<W: Write>(&mut self, output: &SharedOutput<W>) -> bool {
        if self.partial.is_empty() {
            return true;
        }
        let continues = std::mem::replace(&mut self.begun, true);
        let mut text = if continues { Vec::new() } else { self.prefix.clone() };
        text.append(&mut self.partial);
        output.write(&text, continues)
    }
}

/// Copies `from` to `output` by lines until `from` ends or the output takes no more; then `from` is closed, so that its writer
/// gets SIGPIPE as it would without a launcher.
pub fn forward<W: Write>(mut from: impl Read, prefix: &str, output: &SharedOutput<W>) {
    let mut lines = LineBuffer::new(prefix);
    let mut chunk = vec![0u8; 64 << 10];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => {
                if !lines.feed(&chunk[..n], output) {
                    return;
                }
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    lines.flush(output);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(output: SharedOutput<Vec<u8>>) -> String {
        String::from_utf8(output.state.into_inner().unwrap().out).unwrap()
    }

    #[test]
    fn lines_of_two_nodes_are_not_mixed() {
        let output = SharedOutput::new(Vec::new());
        let (mut a, mut b) = (LineBuffer::new(""), LineBuffer::new(""));
        a.feed(b"one ", &output);
        b.feed(b"three\nfo", &output);
        a.feed(b"two\n", &output);
        b.feed(b"ur\n", &output);
        assert_eq!(text(output), "three\none two\nfour\n");
    }

    #[test]
    fn an_unfinished_last_line_keeps_its_bytes_and_its_line() {
        let output = SharedOutput::new(Vec::new());
        let (mut a, mut b) = (LineBuffer::new(""), LineBuffer::new(""));
        a.feed(b"x\nend of a", &output);
        a.flush(&output);
        b.feed(b"end of b", &output);
        b.flush(&output);
        assert_eq!(text(output), "x\nend of a\nend of b");
    }

    #[test]
    fn every_line_gets_the_prefix_once() {
        let output = SharedOutput::new(Vec::new());
        let mut a = LineBuffer::new("[node 2] ");
        a.feed(b"p", &output);
        a.feed(b"q\n\nr\ns", &output);
        a.flush(&output);
        assert_eq!(text(output), "[node 2] pq\n[node 2] \n[node 2] r\n[node 2] s");
    }

    #[test]
    fn an_endless_line_is_passed_on_in_pieces_under_one_prefix() {
        let output = SharedOutput::new(Vec::new());
        let mut a = LineBuffer::new("> ");
        let piece = vec![b'x'; LONGEST_LINE_BYTES - 1];
        a.feed(&piece, &output);
        a.feed(b"yz", &output);
        assert!(a.partial.is_empty(), "held back no further");
        a.feed(b"end\nnext\n", &output);
        let out = text(output);
        assert_eq!(out.len(), 2 + piece.len() + "yzend\n> next\n".len());
        assert!(out.ends_with("xyzend\n> next\n"));
        assert_eq!(out.matches("> ").count(), 2);
    }

    #[test]
    fn bytes_that_are_not_text_pass_unchanged() {
        let output = SharedOutput::new(Vec::new());
        let bytes: Vec<u8> = (0..=255u8).chain((0..=255).rev()).collect();
        forward(&bytes[..], "", &output);
        assert_eq!(output.state.into_inner().unwrap().out, bytes);
    }

    /// Fails each time.
    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lost_output_is_told_from_a_reader_that_has_gone_away() {
        for (kind, lost) in [(io::ErrorKind::BrokenPipe, None), (io::ErrorKind::StorageFull, Some(()))] {
            let output = SharedOutput::new(Failing(kind));
            assert!(!LineBuffer::new("").feed(b"a\n", &output) && output.is_closed());
            assert_eq!(output.lost().map(|e| assert_eq!(e.kind(), kind)), lost);
        }
    }

    /// What has been read and not written yet is in nobody's pipe, and would be lost.
    #[test]
    fn a_stream_has_more_until_its_reader_comes_back() {
        let (pipe, mut writer) = io::pipe().unwrap();
        let stream = NodeStream::new(pipe);
        assert!(!stream.has_more());
        writer.write_all(b"ab").unwrap();
        assert!(stream.has_more());
        assert_eq!((&stream).read(&mut [0; 8]).unwrap(), 2);
        assert!(stream.has_more(), "two bytes are in the reader's hand");
        drop(writer);
        assert_eq!((&stream).read(&mut [0; 8]).unwrap(), 0);
        assert!(stream.has_more(), "an unfinished line is");
    }

    #[test]
    fn a_closed_output_stops_the_forwarding() {
        let output = SharedOutput::new(Failing(io::ErrorKind::BrokenPipe));
        assert!(!output.is_closed());
        let mut lines = LineBuffer::new("");
        assert!(!lines.feed(b"a\n", &output));
        assert!(output.is_closed());
        // An endless input ends all the same.
        forward(io::repeat(b'\n'), "", &output);
    }
}
