//! The call in the registers that the gate saved.
//!
//! Input: the frame. Output: the call; changed registers, with the address at which the gate continues in [`Frame::return_address`].

use crate::process::frame::{Frame, R8, R9, R10, R11, RAX, RCX, RDI, RDX, RSI};
use crate::system_calls::execution::call::{Call, CallOutcome};
use crate::system_calls::execution::stubs::{RED_ZONE, SYSCALL_BYTES};

/// The program's call.
pub fn call_of(frame: &Frame) -> Call {
    let g = &frame.gpr;
    let args = [g[RDI], g[RSI], g[RDX], g[R10], g[R8], g[R9]];
    // Above the frame, its return address and the red zone.
    let rsp = &raw const frame.args as u64 + RED_ZONE;
    Call::new(g[RAX], args, frame.return_address, rsp)
}

/// Makes the gate continue with the outcome.
pub fn finish(frame: &mut Frame, outcome: CallOutcome) {
    match outcome {
        CallOutcome::Done(result) => frame.gpr[RAX] = result as u64,
        CallOutcome::Run(stub, args, word) => {
            frame.gpr[RCX] = frame.return_address;
            frame.gpr[R11] = word;
            frame.return_address = stub.address();
            set_arguments(frame, args);
        }
    }
}

/// The program executes its own `syscall`, with these arguments.
pub fn own_syscall(frame: &mut Frame, args: [u64; 6]) {
    set_arguments(frame, args);
    frame.return_address -= SYSCALL_BYTES;
}

fn set_arguments(frame: &mut Frame, args: [u64; 6]) {
    let g = &mut frame.gpr;
    [g[RDI], g[RSI], g[RDX], g[R10], g[R8], g[R9]] = args;
}
