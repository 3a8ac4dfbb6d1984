//! The signal by which peers call this node.
//!
//! Purpose: a node that is in a system call, or in code without polls, answers its peers. Input: the context that [`CALL_SIGNAL`]
//! has interrupted. Output: requests answered, or the call taken back to the gate, or a reminder.
//!
//! | where it has interrupted | what is done |
//! |---|---|
//! | a system call | [`interruptions::called`]; where that is over, a later signal |
//! | code that may rely on a tag: full code, a test in plain code that keeps registers on the stack | the next poll or call answers, or a later signal |
//! | another test in plain code, or its access | the context goes back to the test; answered |
//! | the runtime | it looks itself before it goes back to the program |
//! | the runtime on its alternate stack | a later signal |
//! | a slot | the context becomes the program's first |
//! | any other code | answered; what was put off comes in when the handler returns |
//!
//! **Invariants**: no message is handled while the context relies on a tag. Nothing is written below the stack that the program is on, because coroutines may have no
//! room there.
//!
//! Limits: the frame goes below the stack in use where that is the program's alternate one, where one call is still being handled, and for good once a handler of a
//! message has left by `siglongjmp`. Source: design section 9; `sigaltstack(2)`.

use crate::kernel::owned::per_thread;
use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::{REG_RIP, REG_RSP, Ucontext, restorer};
use crate::libraries::modules::MODULES;
use crate::node::nudge;
use crate::process::own_stack;
use crate::process::process;
use crate::process::tags;
use crate::system_calls::execution::interruptions;
use crate::system_calls::execution::put_off;
use crate::system_calls::execution::runtime_text::relies_on_tags;
use crate::system_calls::execution::signal_sets::{BLOCK_ALL, RESERVED, bit};
use crate::system_calls::execution::situation;
use crate::system_calls::execution::stubs;
use crate::system_calls::signals::alternate_stack;
use crate::system_calls::signals::carried::carry_out::leave;
use crate::system_calls::signals::sent;
use blizzard_contract::{CALL_SIGNAL, Counter};
use core::sync::atomic::{AtomicBool, Ordering};

per_thread! {
    /// Whether a frame is on the stack for calls.
    static IS_IN_USE: AtomicBool = AtomicBool::new(false);
}

/// The action for the signal.
pub fn action() -> KernelSigaction {
    KernelSigaction {
        handler: entry as *const () as u64,
        flags: (libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART) as u64 | sys::SA_RESTORER,
        restorer: restorer(),
        // A SIGTRAP that was sent finds what this has interrupted, not this.
        mask: BLOCK_ALL | bit(libc::SIGTRAP),
    }
}

/// The handler, on the stack for calls.
///
/// # Safety
/// Entered by the kernel only: edi signal, rsi information, rdx context.
#[unsafe(naked)]
unsafe extern "C" fn entry() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        ".cfi_def_cfa rsp, 32",
        "mov rdi, rdx",
        "lea rsi, [rsp + 24]",
        "call {leave_alternate}", // rsp is 8 off 16 at a handler's entry, aligned after three pushes
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_def_cfa rsp, 8",
        "add rdx, rax",
        "add rsi, rax",
        "add rsp, rax",
        "jmp {on_called}", // which returns to the restorer
        ".cfi_endproc",
        leave_alternate = sym leave_alternate,
        on_called = sym on_called,
    )
}

/// # Safety
/// Called by [`entry`] only.
unsafe extern "C" fn leave_alternate(context: &mut Ucontext, frame: u64) -> u64 {
    // A handler of the program that is run behind a call may let the next one in, or never come back.
    let top = own_stack::top_for_calls().filter(|_| !IS_IN_USE.load(Ordering::Relaxed));
    // SAFETY: the kernel's frame.
    let moved = unsafe { alternate_stack::move_to(top, context, frame) };
    if own_stack::is_for_calls(frame.wrapping_add(moved)) {
        IS_IN_USE.store(true, Ordering::Relaxed);
    }
    moved
}

extern "C" fn on_called(_signal: i32, info: &mut libc::siginfo_t, context: &mut Ucontext) {
    if tags::detached() {
        return;
    }
    tags::count(Counter::KernelCalls);
    // SAFETY: the kernel's frame.
    let _ = unsafe { leave(info, context) };
    handle(context);
    if own_stack::is_for_calls(&raw const *context as u64) {
        IS_IN_USE.store(false, Ordering::Relaxed);
    }
}

fn handle(context: &mut Ucontext) {
    let at = context.gregs[REG_RIP];
    let (mut comes_back, mut soon) = (false, false);
    match stubs::stage(at) {
        // What was interrupted settles a signal there, and leaves that stack first.
        None if alternate_stack::contains(context.gregs[REG_RSP]) => (comes_back, soon) = (true, true),
        // SAFETY: the context stands there.
        Some(stage) if unsafe { interruptions::called(context, stage) } => {}
        // Behind a call that is over nothing may ask for a while. What the call has sent to the program itself, and what came here instead, is for that place.
        Some(_) => {
            context.sigmask &= !sent::let_in_on_return();
            (comes_back, soon) = (true, true);
        }
        None if relies_on_tags(at) => match MODULES.plain_test_of(at) {
            Some(test) => return answer(context, Some(test)),
            None => {
                put_off::call_put_off();
                // What is inside the node looks for messages before it goes back to the program.
                (comes_back, soon) = (!process::is_inside(), MODULES.in_plain_code(at));
                interruptions::goes_back_if_prepared();
            }
        },
        None if process::is_inside() => {}
        None if stubs::contains(at) => (comes_back, soon) = (true, true),
        None => return answer(context, None),
    }
    if comes_back || put_off::has_of_program() {
        put_off::come_back(soon);
    }
}

/// The signal has come to the thread of `tempest.h` in a run of one node, where the program may have a handler for it, too. What cannot be done now is tried
/// again: whoever has sent it sends another one.
pub fn nudged(info: &mut libc::siginfo_t, context: &mut Ucontext) {
    sys::set_signal_mask(BLOCK_ALL | bit(libc::SIGTRAP) | bit(CALL_SIGNAL));
    nudge::has_come();
    if !situation::is_tempest_thread() {
        return;
    }
    // SAFETY: the kernel's frame.
    let _ = unsafe { leave(info, context) };
    let at = context.gregs[REG_RIP];
    let mut test = None;
    if relies_on_tags(at) {
        test = MODULES.plain_test_of(at);
        if test.is_none() {
            return put_off::ring();
        }
    } else if stubs::contains(at) {
        return;
    }
    nudge::is_answered();
    answer(context, test);
}

/// Nothing relies on a tag, once the test begins again at `test`. As a handler of the program, which could run here, too.
fn answer(context: &mut Ucontext, test: Option<u64>) {
    if let Some(begin) = test {
        context.gregs[REG_RIP] = begin;
    }
    // It may meet trap bytes.
    sys::unblock_signals(bit(libc::SIGTRAP));
    process::answer();
    if cfg!(feature = "guard") {
        // Nobody else may let them in: there is no poll.
        context.sigmask &= !(put_off::take_put_off() & !RESERVED);
        sent::let_in_on_return();
    }
}
