//! The alternate stack of a program that has none of its own.
//!
//! Purpose: where shared memory faults, a stack in it faults, too, and the kernel cannot begin a handler there: it would end the node without a word. So
//! handlers begin on a stack of the runtime's, and what the kernel has built goes to the program's stack at once, where it would be otherwise. Only what is the program's
//! goes there: coroutines may have stacks without room for it. What needs the node, and no code of the program, goes to the runtime's stack for faults. Input: the frame
//! of a signal. Output: the frame in its place, or the end of the run, with a line that names the stack.
//! **Invariants**
//! * Nothing stays on this stack: no handler finds another one's frame there. What a handler settles there at once lets no signal in.
//! * A frame keeps its distance to 64 bytes: the kernel reads the vector state from there again.
//! * The program sees no stack that it has not set: neither the call nor the context of a handler shows this one.
//! * A handler returns with this stack where its context has none. A child of `fork` has no part in the run, and gives it up; one of `vfork` gives it up
//!   before it has handlers of its own, and else uses it while the node waits.
//!
//! With one node the first thread has it, so that the launcher hears of a stack that is full. There only the runtime's handlers of faults and trap bytes may
//! begin on it. So it is gone for good when that thread sets a stack, or a handler without a wrapper that would begin there (SA_ONSTACK) or see it in its
//! context (SA_SIGINFO). Limit: where another thread sets such a handler, that does so in the first thread.
//!
//! Source: `sigaltstack(2)`; Linux `arch/x86/kernel/signal.c` (`get_sigframe`).

use crate::kernel::limits;
use crate::kernel::owned::{PerProcess, PerThread};
use crate::kernel::sys::{self, KernelSigaction};
use crate::kernel::ucontext::{self, REG_RIP, REG_RSP, Ucontext};
use crate::memory::access_control::program;
use crate::node::user_handlers;
use crate::process::own_stack;
use crate::process::private_stack;
use crate::process::process;
use crate::process::tags;
use crate::system_calls::execution::put_off;
use crate::system_calls::execution::situation;
use crate::system_calls::signals::dying;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// Bytes of the stack. The vector state alone may have 11 KiB (AMX).
pub const BYTES: u64 = 1 << 16;
const PAGE: u64 = 4096;
/// What a function may use below its stack pointer. Source: psABI, 3.2.2.
const RED_ZONE: u64 = 128;

/// Where it begins; 0: there is none.
pub static BEGIN: PerThread<AtomicU64> = PerThread::new(AtomicU64::new(0));

/// With one node: the thread whose stack this is.
static OWNER: PerProcess<AtomicI32> = PerProcess::new(AtomicI32::new(0));

/// The program has said that it has no stack, which the contexts of its handlers show.
static IS_DISABLED: PerThread<AtomicBool> = PerThread::new(AtomicBool::new(false));

/// `stack_t` of the kernel: where it begins, flags, bytes.
type Description = [u64; 3];

/// Makes the stack and tells the kernel; before the program runs.
///
/// # Errors
/// The kernel's.
pub fn prepare() -> sys::Result<()> {
    limits::make_room(BYTES + PAGE, true);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_STACK;
    // SAFETY: new anonymous memory, whose lowest page nothing uses.
    let at = unsafe {
        let at = sys::mmap(0, BYTES + PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)?;
        sys::mprotect(at, PAGE, libc::PROT_NONE)?;
        at + PAGE
    };
    BEGIN.store(at, Ordering::Relaxed);
    if process::nodes() == 1 {
        OWNER.store(sys::gettid(), Ordering::Relaxed);
    }
    tell_kernel()
}

/// Whether this is the stack of a run of one node.
fn is_alone() -> bool {
    OWNER.load(Ordering::Relaxed) != 0
}

/// The calling thread of a run of one node has another stack from here on, or a handler that must not find this one.
pub fn yield_alone() {
    if BEGIN.load(Ordering::Relaxed) == 0 || !is_alone() {
        return;
    }
    leave();
    // A child of `vfork` has its own, and this memory.
    if sys::gettid() == OWNER.load(Ordering::Relaxed) {
        BEGIN.store(0, Ordering::Relaxed);
    }
}

/// Whether `at` lies in it.
pub fn contains(at: u64) -> bool {
    let begin = BEGIN.load(Ordering::Relaxed);
    begin != 0 && at.wrapping_sub(begin) < BYTES
}

fn tell_kernel() -> sys::Result<()> {
    let own: Description = [BEGIN.load(Ordering::Relaxed), 0, BYTES];
    // SAFETY: the kernel reads the description; nothing else uses the stack.
    unsafe { sys::call(libc::SYS_sigaltstack, [&raw const own as u64, 0, 0, 0, 0, 0]) }.map(drop)
}

/// `sigaltstack` of the program: what the kernel is to read, and where the program has room for the stack of before; 0: it does not ask. `None`: this stack does
/// not exist, and the program makes the call.
///
/// # Safety
/// The program's call, its memory accessible.
pub unsafe fn call(new: u64, old: u64) -> Option<i64> {
    let begin = BEGIN.load(Ordering::Relaxed);
    if begin == 0 {
        return None;
    }
    if situation::is_in_vfork_child() {
        leave();
        return None;
    }
    let mut before: Description = [0; 3];
    let room = if old == 0 { 0 } else { &raw mut before as u64 };
    // SAFETY: passed on from the caller; the kernel writes what it finds to `before`.
    let result = unsafe { sys::raw(libc::SYS_sigaltstack, [new, room, 0, 0, 0, 0]) };
    if result != 0 {
        return Some(result);
    }
    if old != 0 {
        if before[0] == begin {
            before = [0, libc::SS_DISABLE as u64, 0];
        }
        let bytes = before.map(u64::to_ne_bytes);
        // SAFETY: passed on from the caller: the program has room for it there.
        if let Err(sys::Errno(e)) = unsafe { program::write(old, bytes.as_flattened()) } {
            return Some(-i64::from(e));
        }
    }
    if is_alone() {
        if new != 0 {
            yield_alone();
        }
        return Some(0);
    }
    let mut now: Description = [0; 3];
    // SAFETY: the kernel writes what it has to `now`.
    unsafe { sys::raw(libc::SYS_sigaltstack, [0, &raw mut now as u64, 0, 0, 0, 0]) };
    if now[1] & libc::SS_DISABLE as u64 != 0 {
        IS_DISABLED.store(new != 0 || IS_DISABLED.load(Ordering::Relaxed), Ordering::Relaxed);
        let _ = tell_kernel();
    }
    Some(0)
}

/// In a forked child, before the program runs: it takes no part in the run, and has the program's stack or none.
pub fn give_up() {
    leave();
    BEGIN.store(0, Ordering::Relaxed);
}

/// In a child, whose handlers may be the kernel's to begin: its thread has this stack no more.
pub fn leave() {
    let begin = BEGIN.load(Ordering::Relaxed);
    if begin == 0 {
        return;
    }
    let mut now: Description = [0; 3];
    // SAFETY: the kernel writes what it has to `now`.
    unsafe { sys::raw(libc::SYS_sigaltstack, [0, &raw mut now as u64, 0, 0, 0, 0]) };
    if now[0] == begin {
        let none: Description = [0, libc::SS_DISABLE as u64, 0];
        // SAFETY: the kernel reads the description.
        unsafe { sys::raw(libc::SYS_sigaltstack, [&raw const none as u64, 0, 0, 0, 0, 0]) };
    }
}

/// A handler of the program is about to begin, if there is one, with this context: that shows no stack of the runtime's.
pub fn hide(handler: u64, context: &mut Ucontext) -> u64 {
    let begin = BEGIN.load(Ordering::Relaxed);
    if handler != 0 && begin != 0 && context.stack[0] == begin {
        let flags = if IS_DISABLED.load(Ordering::Relaxed) { libc::SS_DISABLE } else { 0 };
        context.stack = [0, flags as u64, 0];
    }
    handler
}

/// A handler of the program returns to `context`, whose stack the kernel takes: where that is disabled, this. Of one without room it keeps what there is, which the
/// handler may have set.
pub fn returns(context: &mut Ucontext) {
    let begin = BEGIN.load(Ordering::Relaxed);
    if begin != 0 && context.stack[1] & libc::SS_DISABLE as u64 != 0 {
        context.stack = [begin, 0, BYTES];
    }
}

/// Ends the run where a signal has found the stack in shared memory that faults.
pub fn refuse_shared_stack(context: &Ucontext) {
    let rsp = context.gregs[REG_RSP];
    if program::UNTESTED_FAULTS && program::in_segment(rsp) && process::nodes() > 1 && !tags::detached() {
        private_stack::refuse(rsp, context.gregs[REG_RIP], "the stack pointer was set to");
    }
}

/// Whether the stack reaches down to `at`, or can grow so far: the kernel writes there.
fn has_room(at: u64) -> bool {
    // SAFETY: the kernel writes the mask, below what is in use of the stack, or says that it cannot.
    unsafe { sys::raw(libc::SYS_rt_sigprocmask, [libc::SIG_BLOCK as u64, 0, at, 8, 0, 0]) == 0 }
}

/// Moves the frame that the kernel has built on this stack, from `frame` to the stack's end, to the stack of the program. By how much.
///
/// # Safety
/// Called by [`handler_entry`] only.
pub unsafe extern "C" fn move_frame(context: &mut Ucontext, frame: u64, signal: i32, info: &libc::siginfo_t) -> u64 {
    let begin = BEGIN.load(Ordering::Relaxed);
    refuse_shared_stack(context);
    let rsp = context.gregs[REG_RSP];
    if contains(rsp) {
        if matches!(signal, libc::SIGSEGV | libc::SIGBUS) && info.si_code > 0 {
            // The copy below has faulted: the program's stack has no room.
            ucontext::default_action(libc::SIGSEGV);
            sys::unblock_signals(1 << (libc::SIGSEGV - 1));
        }
        // A signal has interrupted that copy, perhaps of the frame of one that is let in. Its handler does not run here: it is put off.
        put_off::AT_SAFE_POINT.store(false, Ordering::Relaxed);
        return 0;
    }
    let bytes = begin + BYTES - frame;
    let to = (rsp.wrapping_sub(RED_ZONE) & !63).wrapping_sub(bytes);
    let delta = to.wrapping_sub(frame);
    if context.fpstate != 0 {
        context.fpstate = context.fpstate.wrapping_add(delta);
    }
    if !has_room(to) {
        // The copy ends the node, as the kernel would have.
        dying::by_handler(libc::SIGSEGV, info, context);
    }
    // SAFETY: the kernel's frame; the memory below the program's stack pointer and its red zone is nobody's, or faults.
    unsafe { core::ptr::copy_nonoverlapping(frame as *const u8, to as *mut u8, bytes as usize) };
    delta
}

/// How a signal is done that the program's code has raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Settled {
    /// Its frame goes where the program's handler would find it.
    No = 0,
    /// By a changed context.
    Yes = 1,
    /// On the stack for faults, without any code of the program.
    Apart = 2,
}

/// The end of the stack for faults, where the context's signal may be done there. Not where the program's code runs inside the runtime, whose frames may be on that stack.
fn end_apart(context: &Ucontext) -> Option<u64> {
    let is_node = BEGIN.load(Ordering::Relaxed) != 0;
    let is_free = is_node && !process::is_inside() && !user_handlers::in_handler();
    if is_free { own_stack::top_for_faults(context.gregs[REG_RSP]) } else { None }
}

/// Whether the context's signal may be done on the stack for faults.
pub fn may_go_apart(context: &Ucontext) -> bool {
    end_apart(context).is_some()
}

/// Moves the frame that the kernel has built on this stack to the stack for faults. By how much.
///
/// # Safety
/// Called by [`handler_entry`] only, where [`may_go_apart`].
pub unsafe extern "C" fn move_apart(context: &mut Ucontext, frame: u64) -> u64 {
    refuse_shared_stack(context);
    own_stack::note_alternate(context.stack);
    let end = end_apart(context);
    // SAFETY: the kernel's frame; nobody has frames on that stack.
    unsafe { move_to(end, context, frame) }
}

/// Moves a frame that the kernel has built on an alternate stack, the program's or this one, to the stack that ends at `top`, or else to the one that was interrupted.
/// By how much; 0: that was the alternate one, where it stays.
///
/// # Safety
/// `context` is in the frame of the kernel's that begins at `frame`. Nobody uses what lies below `top`.
pub unsafe fn move_to(top: Option<u64>, context: &mut Ucontext, frame: u64) -> u64 {
    let [begin, _, bytes] = context.stack;
    let is_there = |at: u64| at.wrapping_sub(begin) < bytes;
    let rsp = context.gregs[REG_RSP];
    if !is_there(frame) || is_there(rsp) {
        return 0;
    }
    let end = begin + bytes;
    let delta = top.unwrap_or(rsp.wrapping_sub(RED_ZONE)).wrapping_sub(end) & !63;
    if context.fpstate != 0 {
        context.fpstate = context.fpstate.wrapping_add(delta);
    }
    // SAFETY: passed on from the caller.
    unsafe {
        core::ptr::copy_nonoverlapping(frame as *const u8, frame.wrapping_add(delta) as *mut u8, (end - frame) as usize)
    };
    delta
}

/// Of a handler's address, what [`handler_entry`] takes for: it has not asked for an alternate stack.
const NOT_ON_ALTERNATE: u64 = 1 << NOT_ON_ALTERNATE_BIT;
pub const NOT_ON_ALTERNATE_BIT: u32 = 63;

/// The program's handler with this action, for [`handler_entry`]. The kernel may have put its frame on an alternate stack for the runtime's sake.
pub fn handler(action: &KernelSigaction) -> u64 {
    let apart = if action.flags & libc::SA_ONSTACK as u64 == 0 { NOT_ON_ALTERNATE } else { 0 };
    action.handler | apart
}

/// Moves the frame of a handler that has not asked for an alternate stack to the one that was interrupted. By how much.
///
/// # Safety
/// Called by [`handler_entry`] only.
pub unsafe extern "C" fn leave_alternate(context: &mut Ucontext, frame: u64) -> u64 {
    // SAFETY: passed on from the caller; what lies below the red zone is nobody's.
    unsafe { move_to(None, context, frame) }
}

/// The entry of a handler: `edi` signal, `rsi` information, `rdx` context. `$decide` gets them and returns a handler of the program's, which begins on the
/// frame that the kernel has built, as [`handler`] has it, or 0. `$settle` gets them first, where the frame is on this stack, and returns a [`Settled`]: if that is `Apart`,
/// `$apart` does the rest, on the stack for faults.
macro_rules! handler_entry {
    ($settle:path, $apart:path, $decide:path) => {
        core::arch::naked_asm!(
            ".cfi_startproc",
            "mov rax, rsp",
            "sub rax, qword ptr [rip + {begin}]",
            "cmp rax, {bytes}",
            "jae 3f",
            "push rdi",
            "push rsi",
            "push rdx",
            ".cfi_def_cfa rsp, 32",
            "call {settle}", // rsp is 8 off 16 at a handler's entry, aligned after three pushes
            "cmp eax, {yes}",
            "je 4f",
            "mov rdi, [rsp]",
            "lea rsi, [rsp + 24]",
            "ja 6f",
            "mov edx, dword ptr [rsp + 16]",
            "mov rcx, [rsp + 8]",
            "call {move_frame}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_def_cfa rsp, 8",
            "add rdx, rax",
            "add rsi, rax",
            "add rsp, rax",
            "3:",
            "push rdi",
            "push rsi",
            "push rdx",
            ".cfi_def_cfa rsp, 32",
            "call {decide}",
            "xor ecx, ecx",
            "btr rax, {not_on_alternate}",
            "jnc 5f",
            "push rax",
            "push rax",
            ".cfi_def_cfa rsp, 48",
            "mov rdi, [rsp + 16]",
            "lea rsi, [rsp + 40]",
            "call {leave_alternate}",
            "mov rcx, rax",
            "pop rax",
            "pop rax",
            ".cfi_def_cfa rsp, 32",
            "add [rsp], rcx",
            "add [rsp + 8], rcx",
            "5:",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_def_cfa rsp, 8",
            "add rsp, rcx",
            "test rax, rax",
            "jz 2f",
            "jmp rax", // the program's handler, as if the kernel had called it
            "2: ret",  // to the restorer
            "4:",
            ".cfi_def_cfa rsp, 32",
            "add rsp, 24",
            ".cfi_def_cfa rsp, 8",
            "ret",
            "6:",
            ".cfi_def_cfa rsp, 32",
            "call {move_apart}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            ".cfi_def_cfa rsp, 8",
            "add rdx, rax",
            "add rsi, rax",
            "add rsp, rax",
            "jmp {apart}", // which returns to the restorer
            ".cfi_endproc",
            begin = sym $crate::system_calls::signals::alternate_stack::BEGIN,
            bytes = const $crate::system_calls::signals::alternate_stack::BYTES,
            not_on_alternate = const $crate::system_calls::signals::alternate_stack::NOT_ON_ALTERNATE_BIT,
            leave_alternate = sym $crate::system_calls::signals::alternate_stack::leave_alternate,
            move_frame = sym $crate::system_calls::signals::alternate_stack::move_frame,
            move_apart = sym $crate::system_calls::signals::alternate_stack::move_apart,
            yes = const $crate::system_calls::signals::alternate_stack::Settled::Yes as u32,
            settle = sym $settle,
            apart = sym $apart,
            decide = sym $decide,
        )
    };
}
pub(crate) use handler_entry;
