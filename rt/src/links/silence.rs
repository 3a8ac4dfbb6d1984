//! What is wrong with a node that does not answer.
//!
//! Purpose: the error line for a peer that has not shown a sign of life for too long says what the kernel knows about its process.
//! Input: [`Silent`] from the transport, which watches the peers. Output: text.
//! Source: `proc(5)`, `/proc/pid/stat`, third field.

use crate::kernel::print::Line;
use crate::kernel::sys;
use crate::transport::peers::watch::Silent;
use core::ffi::CStr;
use core::fmt::{self, Write};

/// Bytes of `/proc/PID/stat` that are looked at: number, name (at most 64 bytes) and state come first.
const STAT_BYTES: usize = 128;

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Silent { node, pid, for_ms } = *self;
        write!(
            f,
            "node {} has not answered for {}.{} s: its process {pid} {}",
            node.index(),
            for_ms / 1000,
            for_ms % 1000 / 100,
            describe(state(pid))
        )
    }
}

/// The letter of a process's state.
fn state(pid: u32) -> Option<u8> {
    let mut path = Line::new();
    write!(path, "/proc/{pid}/stat\0").ok()?;
    let fd = sys::open(CStr::from_bytes_until_nul(path.as_bytes()).ok()?, libc::O_RDONLY | libc::O_CLOEXEC).ok()?;
    let mut text = [0; STAT_BYTES];
    let got = sys::read(fd, &mut text);
    let _ = sys::close(fd);
    letter(&text[..got.ok()?])
}

/// The state in the text: behind the name, which is in parentheses and may hold some itself.
fn letter(stat: &[u8]) -> Option<u8> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(end + 2).copied()
}

const fn describe(state: Option<u8>) -> &'static str {
    match state {
        None => "is gone",
        Some(b'T') => "is stopped by a signal",
        Some(b't') => "is stopped by a debugger",
        Some(b'Z' | b'X') => "has ended",
        Some(b'D') => "waits for a device",
        Some(b'S') => "waits in a system call",
        Some(_) => "runs, but neither polls nor misses",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blizzard_protocol::ids::NodeId;

    #[test]
    fn the_state_stands_behind_the_name() {
        assert_eq!(letter(b"12 (a) R) T 1 2"), Some(b'T'));
        assert_eq!(letter(b"12 (cat"), None);
        assert_eq!(letter(b""), None);
        assert_eq!(state(std::process::id()).map(|s| b"RSD".contains(&s)), Some(true));
        assert_eq!(state(u32::MAX), None);
    }

    #[test]
    fn a_silent_node_is_named_with_what_it_does() {
        let silent = Silent { node: NodeId::new(2).unwrap(), pid: u32::MAX, for_ms: 60_240 };
        assert_eq!(silent.to_string(), "node 2 has not answered for 60.2 s: its process 4294967295 is gone");
    }
}
