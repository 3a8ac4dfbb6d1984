//! Where the program goes on when a stub has called a gate.
//!
//! Purpose: no frame describes stubs, so unwinders would stop there. Where handlers may run, gates lead them past it. Input: a gate's frame.
//! Output: the program's instruction that comes next, and its rsp, in the frame. What stands behind the call of a gate, [`blizzard_contract::goes_on`] knows.

use crate::process::frame::Frame;
use blizzard_contract::goes_on;

/// Leads unwinders past the stub that has called a gate, which takes `popped` bytes of arguments.
pub fn lead(frame: &mut Frame, popped: u64) {
    // SAFETY: the stub's code follows its call, and behind a stub stand more code and the module's tables.
    let code = |at: u64| unsafe { (at as *const [u8; 12]).read_unaligned() };
    // SAFETY: the stub's stack lies behind the arguments; what has called shared code has pushed where it goes on.
    let word = |at: u64| unsafe { (at as *const u64).read_unaligned() };
    let (at, rsp) = goes_on(frame.return_address, frame.callers_stack() + popped, code, word);
    frame.lead_to(at, rsp);
}
