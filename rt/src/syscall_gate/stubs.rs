//! The instructions that execute the program's system calls.
//!
//! Purpose: a gated call does not run inside the signal handler: the handler prepares the registers and lets the program's context continue
//! at one of these stubs, which lie in the runtime's text, where Syscall User Dispatch lets calls through. So blocking calls
//! are interrupted and restarted by signals exactly as in the original program.
//! Contract: rax = number, rdi rsi rdx r10 r8 r9 = arguments, rcx = where the program continues, r11 = a signal mask
//! (mask stubs only). A `syscall` instruction clobbers rcx and r11, so the program expects nothing in them.
//! Clobbers: rcx, r11 (`create` also sets rax, the number); no flag changes (`lea`, `push`, `mov`, `jrcxz` write none). Each works below the red zone and gives
//! the stack back with its `ret`.
//! Source: Linux `kernel/entry/syscall_user_dispatch.c`; psABI 3.2.2 (red zone) and A.2.1.

use crate::entry::gates;
use core::sync::atomic::AtomicU64;

/// Bytes of the red zone.
pub const RED_ZONE: u64 = 128;

/// Where the program continues after `vfork`: the child runs on the parent's stack and overwrites what lies below it, so the
/// return address cannot stay there. One thread per process whenever this gate is active.
pub static VFORK_RETURN: AtomicU64 = AtomicU64::new(0);

core::arch::global_asm!(
    ".pushsection .text.blizzard_stubs, \"ax\", @progbits",
    ".balign 16",
    ".hidden blizzard_stubs_start",
    ".globl blizzard_stubs_start",
    "blizzard_stubs_start:",
    // Any call.
    ".hidden blizzard_stub_plain",
    ".globl blizzard_stub_plain",
    "blizzard_stub_plain:",
    "lea rsp, [rsp - 128]",
    ".hidden blizzard_stub_plain_push",
    ".globl blizzard_stub_plain_push",
    "blizzard_stub_plain_push:",
    "push rcx",
    ".hidden blizzard_stub_plain_look",
    ".globl blizzard_stub_plain_look",
    "blizzard_stub_plain_look:",
    // A signal that was put off since the gate let the last ones in must not wait behind a call that blocks: then the program's own
    // `syscall` is executed, whose dispatch lets it in.
    "mov rcx, [rip + {put_off}]",
    "jrcxz 2f",
    "pop rcx",
    "lea rsp, [rsp + 128]",
    "lea rcx, [rcx - 2]",
    "jmp rcx",
    ".hidden blizzard_stub_plain_syscall",
    ".globl blizzard_stub_plain_syscall",
    "blizzard_stub_plain_syscall:",
    "2: syscall",
    "ret 128",
    // Calls with a signal mask: r11 lands at (program's rsp) - 136, where the handler made the argument point.
    ".hidden blizzard_stub_mask",
    ".globl blizzard_stub_mask",
    "blizzard_stub_mask:",
    "lea rsp, [rsp - 128]",
    "push r11",
    "push rcx",
    "syscall",
    "ret 136",
    // pselect6: the mask at rsp - 136, and at rsp - 152 the pair of its address and its size.
    ".hidden blizzard_stub_pselect",
    ".globl blizzard_stub_pselect",
    "blizzard_stub_pselect:",
    "lea rsp, [rsp - 128]",
    "push r11",
    "push 8",
    "lea r11, [rsp + 8]",
    "push r11",
    "push rcx",
    "syscall",
    "ret 152",
    // fork, and clone without CLONE_VM: the child leaves the run before it returns to the program.
    ".hidden blizzard_stub_fork",
    ".globl blizzard_stub_fork",
    "blizzard_stub_fork:",
    "lea rsp, [rsp - 128]",
    "push rcx",
    "syscall",
    "mov rcx, rax",
    "jrcxz 2f",
    "ret 128",
    "2: call {fork_child}",
    "ret 128",
    // fork or clone that creates a node: always clone, since its flags are the runtime's. The child becomes the node.
    ".hidden blizzard_stub_create",
    ".globl blizzard_stub_create",
    "blizzard_stub_create:",
    "lea rsp, [rsp - 128]",
    "push rcx",
    "mov eax, {clone}",
    "syscall",
    "mov rcx, rax",
    "jrcxz 2f",
    "ret 128",
    "2: call {created_child}",
    "ret 128",
    // vfork: nothing below the program's stack pointer survives the child.
    ".hidden blizzard_stub_vfork",
    ".globl blizzard_stub_vfork",
    "blizzard_stub_vfork:",
    "syscall",
    "jmp qword ptr [rip + {vfork_return}]",
    // rt_sigreturn: rsp is at the signal frame.
    ".hidden blizzard_stub_sigreturn",
    ".globl blizzard_stub_sigreturn",
    "blizzard_stub_sigreturn:",
    "syscall",
    "ud2",
    ".hidden blizzard_stubs_end",
    ".globl blizzard_stubs_end",
    "blizzard_stubs_end:",
    ".popsection",
    fork_child = sym gates::fork_child,
    created_child = sym gates::created_child,
    clone = const libc::SYS_clone,
    vfork_return = sym VFORK_RETURN,
    put_off = sym super::signals::PUT_OFF,
);

unsafe extern "C" {
    static blizzard_stubs_start: u8;
    static blizzard_stub_plain: u8;
    static blizzard_stub_plain_push: u8;
    static blizzard_stub_plain_look: u8;
    static blizzard_stub_plain_syscall: u8;
    static blizzard_stub_mask: u8;
    static blizzard_stub_pselect: u8;
    static blizzard_stub_fork: u8;
    static blizzard_stub_create: u8;
    static blizzard_stub_vfork: u8;
    static blizzard_stub_sigreturn: u8;
    static blizzard_stubs_end: u8;
}

/// How a call is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stub {
    Plain,
    Mask,
    Pselect,
    Fork,
    /// A fork whose child is a node; the number in rax does not matter.
    Create,
    Vfork,
    Sigreturn,
}

impl Stub {
    /// Address of its first instruction.
    pub fn address(self) -> u64 {
        let at = match self {
            Stub::Plain => &raw const blizzard_stub_plain,
            Stub::Mask => &raw const blizzard_stub_mask,
            Stub::Pselect => &raw const blizzard_stub_pselect,
            Stub::Fork => &raw const blizzard_stub_fork,
            Stub::Create => &raw const blizzard_stub_create,
            Stub::Vfork => &raw const blizzard_stub_vfork,
            Stub::Sigreturn => &raw const blizzard_stub_sigreturn,
        };
        at as u64
    }
}

/// Whether `at` lies in a stub.
pub fn contains(at: u64) -> bool {
    (&raw const blizzard_stubs_start as u64..&raw const blizzard_stubs_end as u64).contains(&at)
}

/// Where a context stopped in the plain stub before its call (and before it goes back to the program by itself), or at the call because the kernel will restart it, was when the program
/// made the call: its instruction and stack pointer. `None` anywhere else.
///
/// # Safety
/// `rsp` and `rcx` belong to a context stopped at `rip`.
pub unsafe fn rewound(rip: u64, rsp: u64, rcx: u64) -> Option<(u64, u64)> {
    /// Bytes of the `syscall` instruction.
    const SYSCALL_BYTES: u64 = 2;
    let (after, rsp) = if rip == &raw const blizzard_stub_plain as u64 {
        (rcx, rsp)
    } else if rip == &raw const blizzard_stub_plain_push as u64 {
        (rcx, rsp + RED_ZONE)
    } else if rip == &raw const blizzard_stub_plain_look as u64 || rip == &raw const blizzard_stub_plain_syscall as u64
    {
        // SAFETY: the stub has pushed where the program continues.
        (unsafe { (rsp as *const u64).read() }, rsp + 8 + RED_ZONE)
    } else {
        return None;
    };
    Some((after - SYSCALL_BYTES, rsp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_in_the_plain_stub_rewind_to_the_programs_syscall() {
        let stack = [0x5002u64, 7];
        let rsp = stack.as_ptr() as u64;
        let plain = Stub::Plain.address();
        // SAFETY: `stack` plays the stub's frame.
        unsafe {
            assert_eq!(rewound(plain, 0x9000, 0x5002), Some((0x5000, 0x9000)));
            let push = &raw const blizzard_stub_plain_push as u64;
            assert_eq!(rewound(push, 0x9000 - 128, 0x5002), Some((0x5000, 0x9000)));
            let look = &raw const blizzard_stub_plain_look as u64;
            assert_eq!(rewound(look, rsp, 0), Some((0x5000, rsp + 136)));
            let call = &raw const blizzard_stub_plain_syscall as u64;
            assert_eq!(rewound(call, rsp, 0), Some((0x5000, rsp + 136)));
            assert_eq!(rewound(call + 2, rsp, 0), None, "after the call there is nothing to repeat");
            assert_eq!(rewound(Stub::Mask.address(), rsp, 0), None);
        }
        assert!(contains(plain) && contains(Stub::Sigreturn.address()) && !contains(0x1000));
    }

    /// Calls a stub as the handler's sigreturn would enter it: getpid through `stub`, and the stack pointer must come back.
    #[test]
    fn the_stubs_call_the_kernel_and_give_the_stack_back() {
        for stub in [Stub::Plain, Stub::Mask, Stub::Pselect] {
            let (pid, moved): (u64, u64);
            // SAFETY: the stub works below the red zone, returns to label 2 with the stack pointer unchanged, and clobbers
            // what `syscall` clobbers.
            unsafe {
                core::arch::asm!(
                    "mov {rsp}, rsp",
                    "lea rcx, [rip + 2f]",
                    "jmp {stub}",
                    "2: sub {rsp}, rsp",
                    rsp = out(reg) moved,
                    stub = in(reg) stub.address(),
                    inlateout("rax") libc::SYS_getpid as u64 => pid,
                    out("rcx") _,
                    out("r11") _,
                );
            }
            assert_eq!((pid as u32, moved), (std::process::id(), 0), "{stub:?}");
        }
    }
}
