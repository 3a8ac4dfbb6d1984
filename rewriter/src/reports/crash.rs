//! What to say of a node that died by a signal, or ended the run.
//!
//! Input: what the launcher has seen of it. Output: what the access was about, and the calls that led there, one line each.

use crate::launch::crashes::allocations::Allocation;
use crate::launch::crashes::crash::{Crash, FaultAccess, FaultPlace, MemoryFault};
use crate::launch::crashes::unwind::StackFrame;
use crate::launch::launcher::RunOutcome;
use crate::reports::places::OpenedFiles;
use crate::store::closure::Originals;
use blizzard_contract::{self as contract, guard_tags};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;

/// Calls that are shown; of more those in the middle are left out.
const SHOWN: usize = 40;
const SHOWN_LAST: usize = 5;
/// Of shared memory in the hands of the C library.
const FREED: &str = "the C library cannot free it: what bz_alloc has given goes back by bz_free";
/// How names of the runtime's functions begin.
const RUNTIME: &str = "blizzard_rt";

/// The lines. `guard`: the program is guarded code, whose tags are others.
pub fn lines(crash: &Crash, guard: bool, originals: &Originals) -> Vec<String> {
    let mut files = OpenedFiles::with(originals);
    let mut lines: Vec<String> = crash.fault.iter().map(|fault| describe(fault, guard, &mut files)).collect();
    let is_freed = crash.signal == libc::SIGABRT;
    let is_told = !is_freed || crash.frames.iter().any(|frame| frees(frame, &mut files));
    if let Some((address, allocation)) = crash.allocation.as_ref().filter(|_| is_told) {
        lines.push(belongs_to(*address, allocation, &mut files));
        lines.extend(is_freed.then(|| FREED.to_owned()));
    }
    lines.extend(crash.storer.iter().filter_map(|(node, store)| stored_at(*node, store, &mut files)));
    let (mut calls, mut leads_to_program) = (Vec::new(), false);
    for frame in &crash.frames {
        // Where a node ends the run is not the program's business.
        let is_runtimes = crash.signal == 0 && calls.is_empty();
        if frame.is_trampoline {
            if is_runtimes {
                continue;
            }
            calls.push("the kernel, which has delivered a signal".to_owned());
            continue;
        }
        let found = frame.file.as_ref().and_then(|(path, offset)| files.calls(path, *offset, frame.is_behind_call));
        let name = frame.file.as_ref().and_then(|(path, _)| path.file_name()).map(|name| name.to_string_lossy());
        match found {
            Some(found) => {
                let is_runtimes = is_runtimes
                    || calls.is_empty() && found.calls.iter().all(|call| call.function.starts_with(RUNTIME));
                if is_runtimes && !found.is_moved {
                    continue;
                }
                let is_main = found.calls.last().is_some_and(|call| call.function == "main");
                let of_file = |line: &Option<String>| match (line, &name) {
                    (None, Some(name)) => format!(" in {name}"),
                    _ => String::new(),
                };
                calls.extend(found.calls.iter().map(|call| match (&name, call.is_function) {
                    (Some(name), false) => match found.in_original {
                        Some(at) => format!("{name}+{at:#x}"),
                        None => format!("a function without a name in {name}"),
                    },
                    _ => format!("{call}{}", of_file(&call.line)),
                }));
                leads_to_program |= is_main || found.calls.iter().any(|call| call.line.is_some());
                // What has called it is the C library's start.
                if is_main {
                    break;
                }
            }
            None if is_runtimes => {}
            None => calls.push(format!("{:#x}, where no file is mapped", frame.address)),
        }
    }
    // Inside a library whose frames end there, say where threads are started.
    if crash.signal == 0 && !leads_to_program {
        calls.clear();
    }
    let left_out = calls.len().saturating_sub(SHOWN);
    if left_out > 0 {
        let to = calls.len() - SHOWN_LAST;
        calls.splice(to - left_out..to, [format!("... {left_out} calls more")]);
    }
    lines.extend(
        calls.into_iter().enumerate().map(|(number, call)| format!("{} {call}", if number == 0 { "at" } else { "by" })),
    );
    lines
}

/// Why nothing is known of the node that has ended a run by a signal that instructions raise, or `abort`.
pub fn unseen(outcome: &RunOutcome) -> Option<&'static str> {
    let signal = outcome.exit_status - 128;
    let is_so = outcome.nodes.iter().any(|node| node.status.signal() == Some(signal));
    match signal {
        _ if !is_so || outcome.crash.is_some() => None,
        libc::SIGSEGV => Some("its calls are not known: its stack was full, or somebody has sent the signal"),
        libc::SIGBUS => {
            Some("its calls are not known: somebody has sent the signal, or the program checks alignment (EFLAGS.AC)")
        }
        libc::SIGFPE | libc::SIGILL | libc::SIGTRAP | libc::SIGABRT => {
            Some("its calls are not known: somebody has sent the signal")
        }
        _ => None,
    }
}

fn describe(fault: &MemoryFault, guard: bool, files: &mut OpenedFiles) -> String {
    let tried = match fault.access {
        FaultAccess::Read => "it read",
        FaultAccess::Write => "it wrote to",
        FaultAccess::Execute => "it went on at",
    };
    let at = fault.address;
    match &fault.place {
        FaultPlace::Nothing if at == 0 => format!("{tried} {at:#x}: a null pointer"),
        FaultPlace::Nothing if at < 4096 => format!("{tried} {at:#x}: {at} bytes from a null pointer"),
        FaultPlace::Nothing => format!("{tried} {at:#x}, where nothing is mapped"),
        FaultPlace::BelowStack => format!("its stack was full: {tried} {at:#x}, below it"),
        FaultPlace::Unknown => {
            "it used an address that is none (not canonical), or that is not aligned as its instruction wants"
                .to_owned()
        }
        FaultPlace::Privileged { instruction } => {
            format!("its instruction `{instruction}` is privileged: only the kernel may use it")
        }
        FaultPlace::Shared { tag } => {
            let tag = tag.map_or("no tag", |tag| tag_name(tag, guard));
            let what =
                if fault.access == FaultAccess::Execute { "shared memory, which is no code" } else { "shared memory" };
            format!("{tried} {at:#x}: {what}; its tag here: {tag}")
        }
        FaultPlace::Mapped { rights, name, offset } => {
            let what = match (rights.as_bytes(), name.as_str()) {
                ([b'-', b'-', b'-', ..], _) => "which nobody may access",
                ([_, b'-', ..], _) if fault.access == FaultAccess::Write => "which is read-only",
                _ => "which is no code",
            };
            let path = Path::new(name);
            let whose = match files.data(path, *offset) {
                Some((data, bytes, 0)) => format!(" ({data}, {bytes} bytes)"),
                Some((data, bytes, distance)) => format!(" ({data} + {distance}, of {bytes} bytes)"),
                None if name.is_empty() => String::new(),
                None => format!(" ({})", path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()),
            };
            format!("{tried} {at:#x}{whose}, {what}")
        }
    }
}

/// What an address in shared memory has to do with an allocation.
fn belongs_to(address: u64, allocation: &Allocation, files: &mut OpenedFiles) -> String {
    let Allocation { start, bytes, is_free, by } = allocation;
    let where_to = match (address - start, address - start < *bytes) {
        (0, true) => "at the beginning of".to_owned(),
        (distance, true) => format!("{distance} bytes into"),
        (distance, false) => format!("{} bytes behind the end of", distance - bytes),
    };
    let by = by.as_ref().and_then(|(path, offset)| files.caller(path, *offset));
    let what = match (is_free, by) {
        (true, _) => format!("{bytes} bytes at {start:#x} that were freed"),
        // What was asked for is not known to the byte.
        (false, None) => format!("an allocation of up to {bytes} bytes at {start:#x}"),
        (false, Some(by)) => format!("an allocation of up to {bytes} bytes at {start:#x}, made by {by}"),
    };
    format!("{address:#x} is {where_to} {what}")
}

/// Whether a call is one of the C library's functions that give memory back.
fn frees(frame: &StackFrame, files: &mut OpenedFiles) -> bool {
    let found = frame.file.as_ref().and_then(|(path, offset)| files.calls(path, *offset, frame.is_behind_call));
    let is_one = |function: &str| ["free", "cfree", "realloc", "reallocarray"].contains(&function);
    found.is_some_and(|found| found.calls.iter().any(|call| is_one(&call.function)))
}

/// Where another node has stored.
fn stored_at(node: u32, store: &StackFrame, files: &mut OpenedFiles) -> Option<String> {
    let (path, offset) = store.file.as_ref()?;
    let found = files.calls(path, *offset, store.is_behind_call)?;
    let call = found.calls.first()?;
    let name = match (&call.line, path.file_name()) {
        (None, Some(name)) => format!(" in {}", name.to_string_lossy()),
        _ => String::new(),
    };
    Some(format!("node {node} stored at {call}{name}"))
}

fn tag_name(tag: u8, guard: bool) -> &'static str {
    if guard {
        return match tag {
            _ if tag & guard_tags::WRITABLE != 0 => "Writable",
            _ if tag & guard_tags::READONLY != 0 => "ReadOnly",
            guard_tags::BUSY => "Busy",
            _ => "Invalid",
        };
    }
    match tag {
        contract::TAG_WRITABLE => "Writable",
        contract::TAG_READONLY => "ReadOnly",
        contract::TAG_BUSY => "Busy",
        _ => "Invalid",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_in_words() {
        let told = |access, address, place| {
            describe(&MemoryFault { access, address, place }, false, &mut OpenedFiles::default())
        };
        assert_eq!(told(FaultAccess::Write, 16, FaultPlace::Nothing), "it wrote to 0x10: 16 bytes from a null pointer");
        assert_eq!(told(FaultAccess::Read, 0x7000, FaultPlace::Nothing), "it read 0x7000, where nothing is mapped");
        let shared = FaultPlace::Shared { tag: Some(contract::TAG_READONLY) };
        let expected = "it went on at 0x7000: shared memory, which is no code; its tag here: ReadOnly";
        assert_eq!(told(FaultAccess::Execute, 0x7000, shared), expected);
        let stack = FaultPlace::Mapped { rights: "rw-p".into(), name: "[stack]".into(), offset: 0 };
        assert_eq!(told(FaultAccess::Execute, 0x7000, stack), "it went on at 0x7000 ([stack]), which is no code");
        let guard = FaultPlace::Mapped { rights: "---p".into(), name: String::new(), offset: 0 };
        assert_eq!(told(FaultAccess::Write, 0x7000, guard), "it wrote to 0x7000, which nobody may access");
    }

    #[test]
    fn an_address_is_told_by_its_allocation() {
        let told = |address, is_free| {
            let allocation = Allocation { start: 0x1000, bytes: 128, is_free, by: None };
            belongs_to(address, &allocation, &mut OpenedFiles::default())
        };
        assert_eq!(told(0x1000, false), "0x1000 is at the beginning of an allocation of up to 128 bytes at 0x1000");
        assert_eq!(told(0x1008, true), "0x1008 is 8 bytes into 128 bytes at 0x1000 that were freed");
        let behind = "0x1080 is 0 bytes behind the end of an allocation of up to 128 bytes at 0x1000";
        assert_eq!(told(0x1080, false), behind);
    }

    #[test]
    fn of_endless_recursion_both_ends_are_shown() {
        let frame = |address| StackFrame { address, is_behind_call: address != 1, is_trampoline: false, file: None };
        let crash = Crash {
            node: 0,
            signal: 11,
            fault: None,
            allocation: None,
            storer: None,
            frames: (1..=60).map(frame).collect(),
            process: None,
        };
        let lines = lines(&crash, false, &Originals::new());
        assert_eq!(lines.len(), SHOWN + 1);
        assert_eq!(lines[0], "at 0x1, where no file is mapped");
        assert_eq!(lines[SHOWN - SHOWN_LAST], "by ... 20 calls more");
        assert_eq!(lines[SHOWN], "by 0x3c, where no file is mapped");
    }
}
