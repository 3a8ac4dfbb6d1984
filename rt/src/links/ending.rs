//! How a node ends the run.
//!
//! Purpose: leaves what went wrong where the launcher and the other nodes find it, and ends the process. Input: the region, a status, a message.
//! Output: nothing returns.

use crate::kernel::print;
use crate::kernel::sys;
use crate::links::last_words;
use crate::memory::region::{ContextPage, Region};
use crate::transport::control;
use blizzard_contract::CrashRecord;
use core::fmt::{self, Write};

/// Exit status of a node that stops the run, or stops because another one has stopped it.
pub const EXIT_FAILED: i32 = 1;

/// Leaves the message in the context page, ends the run for all nodes, and then this process. `addr`: what the message is about; 0: nothing in memory.
pub fn fail_run(region: &Region, context: ContextPage, status: i32, addr: u64, message: fmt::Arguments<'_>) -> ! {
    let mut line = print::Line::new();
    // A failing Display leaves what was written before it.
    let _ = write!(line, "{message}");
    context.set_message(line.as_bytes());
    last_words::tell(&context, CrashRecord { address: addr, ..last_words::here() });
    control::fail(region, &context, status);
    end_process(status, core::str::from_utf8(line.as_bytes()).unwrap_or("failed"))
}

/// Ends the process; a test, which has several nodes in one process, ends the node's thread.
pub fn end_process(status: i32, why: &str) -> ! {
    if cfg!(test) {
        panic!("{why}");
    }
    sys::exit_group(status)
}
