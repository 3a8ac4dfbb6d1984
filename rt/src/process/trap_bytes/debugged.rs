//! Trap bytes where a debugger watches.
//!
//! A debugger takes the SIGTRAP of a trap byte for its own business: it stops, and goes on behind the byte. So in a process that is traced from its start
//! trap bytes become an instruction that does not exist. Its signal, SIGILL, debuggers pass on. Input: modules that have been mapped; SIGILL. Output: other
//! bytes; a context that goes on in new code.
//! **Invariant**: only bytes that the trap map has a row for, and that are trap bytes, are changed; none that may be a short jump's distance.
//!
//! Limits: whoever blocks or ignores SIGILL dies at such a byte. Source: SDM volume 2 (PUSH: 06 is none in 64-bit mode); ptrace(2); proc(5).

use crate::kernel::owned::PerProcess;
use crate::kernel::sys;
use crate::kernel::ucontext::{REG_RIP, Ucontext};
use crate::libraries::closure::paths::Fd;
use crate::libraries::modules::{MODULES, OldAddress};
use crate::process::resume;
use crate::process::tags;
use crate::process::trap_bytes::filters;
use crate::process::trap_bytes::hot_traps::{self, TRAP};
use blizzard_contract::Counter;
use core::sync::atomic::{AtomicBool, Ordering};

/// `jmp rel8`.
const SHORT_JUMP: u8 = 0xeb;
/// `push es`.
const NO_INSTRUCTION: u8 = 0x06;
const PAGE: u64 = 4096;

static WATCHED: PerProcess<AtomicBool> = PerProcess::new(AtomicBool::new(false));

/// Looks whether this process is traced, and whether somebody has given it a filter of system calls. SIGILL must be the runtime's by now.
pub fn watch() {
    let mut text = [0u8; PAGE as usize];
    let status = sys::open(c"/proc/self/status", libc::O_RDONLY | libc::O_CLOEXEC).map(Fd);
    let got = status.and_then(|file| sys::read(file.0, &mut text)).unwrap_or(0);
    WATCHED.store(is_set(&text[..got], b"\nTracerPid:\t"), Ordering::Relaxed);
    if is_set(&text[..got], b"\nSeccomp:\t") {
        filters::begin_with_one();
    }
    catch_up();
}

/// Whether instructions that do not exist stand in place of trap bytes.
pub fn is_watched() -> bool {
    WATCHED.load(Ordering::Relaxed)
}

/// Whether that line of `/proc/PID/status` has a number other than 0.
fn is_set(status: &[u8], line: &[u8]) -> bool {
    let at = status.windows(line.len()).position(|w| w == line);
    at.and_then(|at| status.get(at + line.len())).is_some_and(|digit| digit.is_ascii_digit() && *digit != b'0')
}

/// Replaces the trap bytes of the modules that have come since the last time, and are mapped by now.
pub fn catch_up() {
    if !WATCHED.load(Ordering::Relaxed) {
        return;
    }
    // Writes to what is mapped privately, whatever its rights are.
    let Ok(memory) = sys::open(c"/proc/self/mem", libc::O_RDWR | libc::O_CLOEXEC).map(Fd) else { return };
    let mut page = Page { at: 0, bytes: [0; PAGE as usize], before: 0, is_changed: false };
    MODULES.each_new_trap(|at| {
        if at & !(PAGE - 1) != page.at {
            page.write(&memory);
            page = Page::read(&memory, at & !(PAGE - 1));
        }
        page.replace((at - page.at) as usize);
    });
    page.write(&memory);
}

/// A page of old code.
struct Page {
    at: u64,
    bytes: [u8; PAGE as usize],
    /// The byte in front of them.
    before: u8,
    is_changed: bool,
}

impl Page {
    /// What cannot be read has no trap bytes.
    fn read(memory: &Fd, at: u64) -> Page {
        let mut page = Page { at, bytes: [0; PAGE as usize], before: 0, is_changed: false };
        let _ = sys::pread(memory.0, &mut page.bytes, at);
        let _ = sys::pread(memory.0, core::slice::from_mut(&mut page.before), at - 1);
        page
    }

    /// Replaces a trap byte, unless a short jump may stand in front of it, whose distance it is then.
    fn replace(&mut self, k: usize) {
        let before = k.checked_sub(1).map_or(self.before, |k| self.bytes[k]);
        if self.bytes[k] == TRAP && before != SHORT_JUMP {
            self.bytes[k] = NO_INSTRUCTION;
            self.is_changed = true;
        }
    }

    /// What cannot be written keeps them: the debugger stops there.
    fn write(&self, memory: &Fd) {
        if self.is_changed {
            let _ = sys::pwrite(memory.0, &self.bytes, self.at);
        }
    }
}

/// Lets a context that has come to such a byte go on in new code. False: it has not.
pub fn go_on(context: &mut Ucontext) -> bool {
    if !WATCHED.load(Ordering::Relaxed) {
        return false;
    }
    let OldAddress::Instruction(new) = MODULES.find(context.gregs[REG_RIP]) else { return false };
    tags::count(Counter::Traps);
    hot_traps::count(context.gregs[REG_RIP], new, NO_INSTRUCTION);
    context.gregs[REG_RIP] = new;
    resume::reestablish(context);
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_a_springboard_stays() {
        let mut page = Page { at: 0x1000, bytes: [TRAP; PAGE as usize], before: SHORT_JUMP, is_changed: false };
        page.bytes[7] = SHORT_JUMP;
        [0, 7, 8].iter().for_each(|k| page.replace(*k));
        assert!(!page.is_changed && page.bytes[0] == TRAP && page.bytes[8] == TRAP);
        page.replace(9);
        assert!(page.is_changed && page.bytes[9] == NO_INSTRUCTION);
    }

    #[test]
    fn a_tracer_is_seen() {
        let is_traced = |status: &[u8]| is_set(status, b"\nTracerPid:\t");
        assert!(is_traced(b"Name:\tx\nPPid:\t3\nTracerPid:\t17\nUid:\t0\n"));
        assert!(!is_traced(b"Name:\tx\nPPid:\t3\nTracerPid:\t0\nUid:\t0\n"));
        assert!(!is_traced(b"Name:\tx\n") && !is_traced(b"\nTracerPid:\t"));
    }
}
