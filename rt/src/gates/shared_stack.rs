//! `GATE_STACK`: a stack in shared memory ends the run.
//!
//! Purpose: accesses through rsp are not checked, because stacks are private. Rewritten code tests rsp wherever it takes it from something that is no stack
//! pointer, and comes here when it leads into the segment's window. Input: rsp and, in rax, an address in the new code of the function. Output: one error
//! line; the run ends.
//! **Invariants**: nothing is written to the program's stack, which is other nodes' memory. The gate has a stack of its own; threads of
//! a one-node run that come at the same time wait for the end that the first one brings.
//! Source: `rewriter/DESIGN.md`, "What the private stack rests on".

use crate::kernel::owned::PerProcess;
use crate::process::private_stack;
use core::arch::naked_asm;
use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU32;

/// Enough for an error line and a page of a file.
const BYTES: usize = 64 << 10;

#[repr(C, align(16))]
struct Stack(UnsafeCell<[u8; BYTES]>);

// SAFETY: `TAKEN` gives it to one thread, for ever.
unsafe impl Sync for Stack {}

static STACK: PerProcess<Stack> = PerProcess::new(Stack(UnsafeCell::new([0; BYTES])));
static TAKEN: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));

/// The gate.
///
/// # Safety
/// Jumped to from rewritten code, as [`blizzard_contract::GATE_STACK`] says.
#[unsafe(naked)]
pub unsafe extern "C" fn gate() {
    naked_asm!(
        "cld",
        "mov rsi, rax",
        "mov edx, 1",
        "2: xor eax, eax",
        "lock cmpxchg dword ptr [rip + {taken}], edx",
        "je 3f",
        "pause",
        "jmp 2b",
        "3: mov rdi, rsp",
        "lea rsp, [rip + {stack} + {bytes}]",
        "call {rust}",
        "ud2",
        taken = sym TAKEN,
        stack = sym STACK,
        bytes = const BYTES,
        rust = sym on_shared_stack,
    )
}

/// The Rust half. `at`: where the stack pointer was tested.
extern "C" fn on_shared_stack(rsp: u64, at: u64) -> ! {
    private_stack::refuse(rsp, at, "the stack pointer was set to")
}
