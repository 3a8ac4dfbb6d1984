//! Calls of the program's handlers.
//!
//! Input: a handler with its arguments. Output: it has run, once, to its end. **Invariant**: one at a time.

use crate::node::user_handlers::{HandlerKind, in_handler, is_by_gate, set_running};
use crate::process::host::CallHost;
use crate::process::process;
use crate::tempest::exceptions;
use crate::tempest::saved_state;
use crate::transport::stage;
use blizzard_contract as contract;
use blizzard_contract::tempest::{BlockFaultHandler, ChannelHandler, MessageHandler, PageFaultHandler, TimerHandler};
use core::sync::atomic::{AtomicU32, Ordering};

/// A call of the program's code.
#[derive(Clone, Copy)]
pub enum Invocation {
    PageFault(PageFaultHandler, u64, i32, bool),
    BlockFault(BlockFaultHandler, u64, u64, u32),
    Timer(TimerHandler, u64),
    Message(MessageHandler, u32, i32),
    Channel(ChannelHandler, u32, i32),
}

impl Invocation {
    fn kind(&self) -> HandlerKind {
        match self {
            Invocation::PageFault(..) => HandlerKind::PageFault,
            Invocation::BlockFault(..) => HandlerKind::BlockFault,
            Invocation::Timer(..) => HandlerKind::Timer,
            Invocation::Message(..) => HandlerKind::Message,
            Invocation::Channel(..) => HandlerKind::Channel,
        }
    }

    /// # Safety
    /// The function is the program's handler of that type.
    unsafe fn run(&self) {
        // SAFETY: passed on from the caller.
        unsafe {
            match *self {
                Invocation::PageFault(run, va, pc, is_write) => run(va, pc, is_write.into()),
                Invocation::BlockFault(run, va, usr_ptr, home) => run(va, usr_ptr, home),
                Invocation::Timer(run, user_ptr) => run(user_ptr),
                Invocation::Message(run, src, size) => run(src, size),
                Invocation::Channel(run, node, channel) => run(node, channel),
            }
        }
    }
}

/// # Safety
/// `call` points to an [`Invocation`] whose function is the program's.
unsafe extern "C" fn trampoline(call: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { exceptions::keep_exceptions(run, call) }
}

/// # Safety
/// As [`trampoline`].
unsafe extern "C" fn run(call: *mut u8) {
    // SAFETY: passed on from the caller.
    unsafe { (*call.cast::<Invocation>()).run() }
}

/// Runs a handler of the program to its end.
#[inline]
pub fn invoke(host: &mut CallHost<'_>, mut call: Invocation) {
    debug_assert!(!in_handler());
    set_running(call.kind());
    let by_gate = is_by_gate();
    let mut run = || {
        let call = (&raw mut call).cast::<u8>();
        // SAFETY: the program gave the function for this purpose; at a gate its registers are kept.
        unsafe { if by_gate { saved_state::with_saved_state(trampoline, call) } else { trampoline(call) } }
    };
    match host {
        CallHost::Alone => run(),
        CallHost::Node(node) => process::lend(node, run),
    }
    set_running(HandlerKind::None);
}

/// Makes the next poll enter the runtime.
pub fn remind() {
    if stage::is_directed() {
        return;
    }
    // SAFETY: the context page is mapped for the whole run.
    unsafe { AtomicU32::from_ptr(contract::POLL_WORD as *mut u32) }.store(1, Ordering::Relaxed);
}
