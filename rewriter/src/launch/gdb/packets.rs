//! What a debugger asks gdbserver, made to fit rewritten programs.
//!
//! Input: bytes of a debugger. Output: bytes for gdbserver. Two packets are changed: the list of signals that are not shown gets those of the runtime, and
//! a library's file is that which is mapped in place of it. So a debugger that knows nothing of Blizzard sees the code that runs.
//! **Invariant**: all other bytes stay as they are; what is no whole packet yet waits.
//! Source: gdb's manual, appendix "Remote Protocol": "Packets", `QPassSignals`, `vFile:open`; `include/gdb/signals.def`.

use crate::base::memory::MappedFile;
use crate::read::rewritten;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// SIGILL, SIGSYS and signal 33, as gdb numbers them.
const OF_RUNTIME: [u8; 3] = [0x04, 0x0c, 0x2d];
const PASS_SIGNALS: &[u8] = b"QPassSignals:";
const OPEN: &[u8] = b"vFile:open:";
/// Hexadecimal digits behind a packet's `#`.
const SUM_DIGITS: usize = 2;

/// A debugger's bytes.
#[derive(Debug)]
pub struct DebuggerPackets {
    /// A packet that has begun.
    begun: Vec<u8>,
    /// Of the process that starts the program.
    server: u32,
    /// Which files are rewritten ones.
    rewritten: HashMap<PathBuf, bool>,
}

impl DebuggerPackets {
    /// For the gdbserver with this number.
    pub fn new(server: u32) -> DebuggerPackets {
        DebuggerPackets { begun: Vec::new(), server, rewritten: HashMap::new() }
    }

    /// What gdbserver gets, now that these bytes have come.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut all = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            // Between packets are acknowledgements and interrupts.
            if self.begun.is_empty() && byte != b'$' {
                all.push(byte);
                continue;
            }
            self.begun.push(byte);
            let end = self.begun.len().checked_sub(SUM_DIGITS + 1).filter(|&at| self.begun[at] == b'#');
            if let Some(end) = end {
                let packet = std::mem::take(&mut self.begun);
                all.extend(self.changed(&packet[1..end]).map_or(packet, |changed| framed(&changed)));
            }
        }
        all
    }

    /// Another packet in place of this one; none: it stays.
    fn changed(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        if let Some(list) = packet.strip_prefix(PASS_SIGNALS) {
            return Some([PASS_SIGNALS, &with_signals(list)?].concat());
        }
        let rest = packet.strip_prefix(OPEN)?;
        let comma = rest.iter().position(|&byte| byte == b',')?;
        let mapped = self.mapped_for(&path_of(&rest[..comma])?)?;
        let mut name = String::new();
        mapped.as_os_str().as_bytes().iter().for_each(|byte| write!(name, "{byte:02x}").expect("a string"));
        Some([OPEN, name.as_bytes(), &rest[comma..]].concat())
    }

    /// The rewritten file that the program has mapped for the library `path`.
    fn mapped_for(&mut self, path: &Path) -> Option<PathBuf> {
        let wanted = fs::canonicalize(path).ok()?;
        let maps = mapped_files(program_of(self.server)?)?;
        maps.into_iter().find(|file| file.file_name() == wanted.file_name() && self.is_rewritten(file))
    }

    fn is_rewritten(&mut self, path: &Path) -> bool {
        let look = || {
            let file = path.is_file().then(|| File::open(path).ok())??;
            MappedFile::of(&file, &path.display().to_string()).ok().filter(|file| rewritten::is_rewritten(file))
        };
        *self.rewritten.entry(path.to_owned()).or_insert_with(|| look().is_some())
    }
}

/// A packet with what stands around it.
fn framed(packet: &[u8]) -> Vec<u8> {
    let sum = packet.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    [b"$", packet, format!("#{sum:02x}").as_bytes()].concat()
}

/// A list of signals with those of the runtime: hexadecimal digits, which gdbserver wants in ascending order. While a debugger steps over its own
/// breakpoints it gives an empty list, and must see all signals.
fn with_signals(list: &[u8]) -> Option<Vec<u8>> {
    let numbers = std::str::from_utf8(list).ok()?.split(';').filter(|number| !number.is_empty());
    let mut all: BTreeSet<u8> = numbers.map(|number| u8::from_str_radix(number, 16).ok()).collect::<Option<_>>()?;
    if all.is_empty() {
        return None;
    }
    all.extend(OF_RUNTIME);
    Some(all.iter().map(|number| format!("{number:x};")).collect::<String>().into_bytes())
}

/// A path in hexadecimal digits.
fn path_of(digits: &[u8]) -> Option<PathBuf> {
    let value = |pair: &[u8; 2]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> = pairs.iter().map(value).collect::<Option<_>>()?;
    Some(PathBuf::from(OsStr::from_bytes(&bytes)))
}

/// The program that gdbserver has started: its only child.
fn program_of(server: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// Files of a process: the paths at the ends of its lines.
fn mapped_files(process: u32) -> Option<Vec<PathBuf>> {
    let maps = fs::read(format!("/proc/{process}/maps")).ok()?;
    let paths = maps.split(|&byte| byte == b'\n').filter_map(|line| {
        let at = line.iter().position(|&byte| byte == b'/')?;
        Some(PathBuf::from(OsStr::from_bytes(&line[at..])))
    });
    let mut all: Vec<PathBuf> = paths.collect();
    all.dedup();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_list_of_signals_changes_wherever_reads_end() {
        let said = b"+$qSupported:a#00+$QPassSignals:e;c;10;#00\x03$m0,4#fd";
        let expected: &[u8] = b"+$qSupported:a#00+$QPassSignals:4;c;e;10;2d;#0d\x03$m0,4#fd";
        for piece in [1, 2, 3, 7, said.len()] {
            let mut packets = DebuggerPackets::new(0);
            let passed: Vec<u8> = said.chunks(piece).flat_map(|bytes| packets.pass(bytes)).collect();
            assert_eq!(passed, expected, "in pieces of {piece}");
        }
        assert_eq!((with_signals(b""), with_signals(b"x;")), (None, None));
    }

    #[test]
    fn files_that_nobody_has_mapped_stay_as_they_are() {
        let said = b"$vFile:open:2f6574632f706173737764,0,0#00";
        assert_eq!(path_of(b"2f6574632f706173737764"), Some("/etc/passwd".into()));
        assert_eq!(path_of(b"2f6"), None);
        assert_eq!(DebuggerPackets::new(std::process::id()).pass(said), said);
    }
}
