//! The memory of a system call: all of it accessible at once, and for as long as the kernel may use it.
//!
//! Purpose: the kernel looks at no tags, so what a call touches must be accessible before it begins and must not change hands before it is over. Here is what
//! decides that, apart from where the memory is: [`crate::system_calls::gate::own_memory`] is the process's node, and the exploration of real nodes
//! (`src/tests/explore`) has others.
//! Input: ranges, and calls. Output: misses, and the moment at which the call may be made.
//!
//! **Invariants**
//! * *All at once.* To acquire one range can cost another, so ranges are looked at again until one pass finds all of them accessible. Replacement is held off
//!   meanwhile: it would take one away for the other again and again.
//! * *Until the end.* Between that pass and the call no message is looked at but by [`CallMemory::serve`] and where [`CallMemory::enter_kernel`] says that it has waited.
//!   After both the call is prepared again.

use crate::node::waiting::Entered;
use crate::system_calls::table::visitor::CallRange;

/// How often a call is prepared anew because a message has come meanwhile. Then it is made all the same: who waits calls again.
const ROUNDS: u32 = 16;

/// A node's memory, and the node.
pub trait CallMemory {
    fn is_accessible(&mut self, range: &CallRange) -> bool;
    /// Makes a range accessible; others may cease to be.
    fn require(&mut self, range: &CallRange);
    /// Stops the replacement of pages, or allows it again.
    fn hold_pages(&mut self, hold: bool);
    /// Says that the node waits in the kernel, unless something has to be done first.
    fn enter_kernel(&mut self) -> Entered;
    /// Handles messages.
    fn serve(&mut self);
    /// Whether the second pass is left out, and whether a call is not prepared again: planted bugs.
    fn bugs(&mut self) -> (bool, bool) {
        (false, false)
    }
}

/// Makes all ranges that `visit` names accessible at once. It is called again and may name others each time, because it reads what it has made accessible.
pub fn make_accessible<M: CallMemory>(memory: &mut M, mut visit: impl FnMut(&mut dyn FnMut(CallRange))) {
    let mut held = false;
    loop {
        let mut complete = true;
        visit(&mut |range: CallRange| {
            if !memory.is_accessible(&range) {
                complete = false;
                memory.require(&range);
            }
        });
        if held == complete {
            held = !complete;
            memory.hold_pages(held);
        }
        if complete || memory.bugs().0 {
            return;
        }
    }
}

/// Prepares a call until it can be made. `prepare` also says whether it may wait.
pub fn until_made<M: CallMemory, R>(memory: &mut M, mut prepare: impl FnMut(&mut M) -> (R, bool)) -> R {
    let mut rounds = 0;
    loop {
        let (outcome, waits) = prepare(memory);
        if !waits {
            return outcome;
        }
        match memory.enter_kernel() {
            Entered::Yes => return outcome,
            Entered::Message if rounds == ROUNDS => return outcome,
            Entered::Message => rounds += 1,
            // What it has waited for is done; the next time there is less.
            Entered::Waited => {}
        }
        memory.serve();
        if memory.bugs().1 {
            return outcome;
        }
    }
}
