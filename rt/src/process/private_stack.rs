//! The end of a run whose program has a stack in shared memory.

use crate::libraries::places::CodePlace;
use crate::process::process;

/// Ends the run: a stack begins at `top`, which is shared memory. `at`: whose code uses it; `how` it got there.
pub fn refuse(top: u64, at: u64, how: &str) -> ! {
    process::fail(format_args!(
        "{how} {top:#x}, which is shared memory, in {}: a stack must be private, because accesses through it are not checked; take it from malloc or mmap",
        CodePlace(at)
    ))
}
