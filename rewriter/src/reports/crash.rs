//! What to say of a node that died by a signal, or ended the run.
//!
//! Input: what the launcher has seen of it. Output: what the access was about, and the calls that led there, one line each.

use crate::launch::crashes::crash::{Access, Crash, Fault, Place};
use crate::reports::places::Files;
use blizzard_contract::{self as contract, guard_tags};
use std::path::Path;

/// Calls that are shown; of more those in the middle are left out.
const SHOWN: usize = 40;
const SHOWN_LAST: usize = 5;

/// The lines. `guard`: the program is guarded code, whose tags are others.
pub fn lines(crash: &Crash, guard: bool) -> Vec<String> {
    let mut files = Files::default();
    let mut lines: Vec<String> = crash.fault.iter().map(|fault| describe(fault, guard, &mut files)).collect();
    let mut calls = Vec::new();
    for frame in &crash.frames {
        if frame.is_trampoline {
            calls.push("the kernel, which has delivered a signal".to_owned());
            continue;
        }
        let found = frame.file.as_ref().and_then(|(path, offset)| files.calls(path, *offset, frame.is_behind_call));
        let name = frame.file.as_ref().and_then(|(path, _)| path.file_name()).map(|name| name.to_string_lossy());
        match found {
            Some(found) => {
                // Where a node ends the run is not the program's business.
                if crash.signal == 0 && calls.is_empty() && !found.is_moved {
                    continue;
                }
                let is_main = found.calls.last().is_some_and(|call| call.function == "main");
                let of_file = |line: &Option<String>| match (line, &name) {
                    (None, Some(name)) => format!(" in {name}"),
                    _ => String::new(),
                };
                calls.extend(found.calls.iter().map(|call| match (&name, call.is_function) {
                    (Some(name), false) => format!("a function without a name in {name}"),
                    _ => format!("{call}{}", of_file(&call.line)),
                }));
                // What has called it is the C library's start.
                if is_main {
                    break;
                }
            }
            None if crash.signal == 0 && calls.is_empty() => {}
            None => calls.push(format!("{:#x}, where no file is mapped", frame.address)),
        }
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

fn describe(fault: &Fault, guard: bool, files: &mut Files) -> String {
    let tried = match fault.access {
        Access::Read => "it read",
        Access::Write => "it wrote to",
        Access::Execute => "it went on at",
    };
    let at = fault.address;
    match &fault.place {
        Place::Nothing if at == 0 => format!("{tried} {at:#x}: a null pointer"),
        Place::Nothing if at < 4096 => format!("{tried} {at:#x}: {at} bytes from a null pointer"),
        Place::Nothing => format!("{tried} {at:#x}, where nothing is mapped"),
        Place::Unknown => {
            "it used an address that is none (not canonical), or that is not aligned as its instruction wants"
                .to_owned()
        }
        Place::Shared { tag } => {
            let tag = tag.map_or("no tag", |tag| tag_name(tag, guard));
            let what =
                if fault.access == Access::Execute { "shared memory, which is no code" } else { "shared memory" };
            format!("{tried} {at:#x}: {what}; its tag here: {tag}")
        }
        Place::Mapped { rights, name, offset } => {
            let what = match (rights.as_bytes(), name.as_str()) {
                ([b'-', b'-', b'-', ..], _) => "which nobody may access",
                ([_, b'-', ..], _) if fault.access == Access::Write => "which is read-only",
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
    use crate::launch::crashes::unwind::Frame;

    #[test]
    fn faults_are_told_in_words() {
        let told = |access, address, place| describe(&Fault { access, address, place }, false, &mut Files::default());
        assert_eq!(told(Access::Write, 16, Place::Nothing), "it wrote to 0x10: 16 bytes from a null pointer");
        assert_eq!(told(Access::Read, 0x7000, Place::Nothing), "it read 0x7000, where nothing is mapped");
        let shared = Place::Shared { tag: Some(contract::TAG_READONLY) };
        let expected = "it went on at 0x7000: shared memory, which is no code; its tag here: ReadOnly";
        assert_eq!(told(Access::Execute, 0x7000, shared), expected);
        let stack = Place::Mapped { rights: "rw-p".into(), name: "[stack]".into(), offset: 0 };
        assert_eq!(told(Access::Execute, 0x7000, stack), "it went on at 0x7000 ([stack]), which is no code");
        let guard = Place::Mapped { rights: "---p".into(), name: String::new(), offset: 0 };
        assert_eq!(told(Access::Write, 0x7000, guard), "it wrote to 0x7000, which nobody may access");
    }

    #[test]
    fn of_endless_recursion_both_ends_are_shown() {
        let frame = |address| Frame { address, is_behind_call: address != 1, is_trampoline: false, file: None };
        let crash = Crash { node: 0, signal: 11, fault: None, frames: (1..=60).map(frame).collect(), process: None };
        let lines = lines(&crash, false);
        assert_eq!(lines.len(), SHOWN + 1);
        assert_eq!(lines[0], "at 0x1, where no file is mapped");
        assert_eq!(lines[SHOWN - SHOWN_LAST], "by ... 20 calls more");
        assert_eq!(lines[SHOWN], "by 0x3c, where no file is mapped");
    }
}
