//! The runtime blob: the freestanding program that the rewriter links into every output.
//!
//! Purpose: the ELF entry point. Everything else is the library's. Built by the rewriter's build script only, as a
//! position-independent file without interpreter, libraries or thread-local storage.
//! Input: the stack as the kernel leaves it at process start (psABI figure 3.9). Output: a jump to the dynamic loader or to the
//! program's own entry point, on a rebuilt copy of that stack, with all general registers zero as after `execve`.
//! **Invariant**: until the relocations are applied, no instruction uses a relocated word.
#![no_std]
#![no_main]

use blizzard_rt::kernel::{print, sys};
use blizzard_rt::node::node::Node;
use blizzard_rt::start::entry;
use core::arch::naked_asm;

/// Of the stack that the start runs on. A node is built there before it is put in place, by several functions whose frames each have room for it.
const START_STACK_BYTES: usize = (8 * size_of::<Node>()).next_power_of_two();

/// The entry point; see the module's documentation.
///
/// # Safety
/// Entered by the kernel only.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn _start() -> ! {
    naked_asm!(
        "xor ebp, ebp",                    // outermost frame
        "mov rbx, rsp",                    // the kernel's stack block
        "lea r12, [rip + __ehdr_start]",   // the blob's run-time base
        // Apply the blob's own R_X86_64_RELATIVE relocations: word at base + offset = base + addend.
        "lea rsi, [rip + _DYNAMIC]",
        "xor edi, edi",                    // DT_RELA: table, as an offset from the base
        "xor ecx, ecx",                    // DT_RELASZ: its bytes
        "2: mov rax, [rsi]",
        "test rax, rax",                   // DT_NULL
        "jz 3f",
        "cmp rax, 7",                      // DT_RELA
        "cmove rdi, [rsi + 8]",
        "cmp rax, 8",                      // DT_RELASZ
        "cmove rcx, [rsi + 8]",
        "add rsi, 16",
        "jmp 2b",
        "3: add rdi, r12",
        "add rcx, rdi",                    // end of the table
        "4: cmp rdi, rcx",
        "jae 5f",
        "mov rax, [rdi]",                  // r_offset
        "mov rdx, [rdi + 16]",             // r_addend
        "add rdx, r12",
        "mov [r12 + rax], rdx",
        "add rdi, 24",                     // sizeof(Elf64_Rela)
        "jmp 4b",
        // Make room for the rebuilt stack block below the kernel's.
        "5: mov rdi, rbx",
        "call {stack_bytes}",
        "mov rsp, rbx",
        "sub rsp, rax",
        "and rsp, -16",
        "mov r13, rsp",
        // The start runs on a stack of its own: whatever it needs, the program's limit (RLIMIT_STACK) is for the program.
        "mov eax, {mmap}",
        "xor edi, edi",
        "mov esi, {START_STACK_BYTES}",
        "mov edx, {PROT}",
        "mov r10d, {MAP}",
        "mov r8, -1",
        "xor r9d, r9d",
        "syscall",
        "mov r14, rax",
        "cmp rax, -4096",                  // an error: the program's stack has to do
        "ja 6f",
        "lea rsp, [rax + {START_STACK_BYTES}]",
        "6: mov rdi, rbx",
        "mov rsi, r13",
        "mov rdx, r12",
        "call {start}",                    // returns where to go
        "mov rbx, rax",
        "mov rsp, r13",
        "cmp r14, -4096",
        "ja 7f",
        "mov eax, {munmap}",
        "mov rdi, r14",
        "mov esi, {START_STACK_BYTES}",
        "syscall",
        // Enter the loader or the program as execve would have: only rsp is set. The target passes through a stack word
        // below the new block, so that no register holds it.
        "7: push rbx",
        "xor eax, eax",
        "xor ebx, ebx",
        "xor ecx, ecx",
        "xor edx, edx",                    // no function for atexit
        "xor esi, esi",
        "xor edi, edi",
        "xor ebp, ebp",
        "xor r8d, r8d",
        "xor r9d, r9d",
        "xor r10d, r10d",
        "xor r11d, r11d",
        "xor r12d, r12d",
        "xor r13d, r13d",
        "xor r14d, r14d",
        "xor r15d, r15d",
        "ret",
        stack_bytes = sym entry::stack_bytes,
        start = sym entry::start,
        mmap = const libc::SYS_mmap,
        munmap = const libc::SYS_munmap,
        START_STACK_BYTES = const START_STACK_BYTES,
        PROT = const libc::PROT_READ | libc::PROT_WRITE,
        MAP = const libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
    )
}

/// A bug of the runtime itself: says where and ends the process.
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    match info.location() {
        Some(at) => print::error(format_args!("runtime panic at {}:{}: {}", at.file(), at.line(), info.message())),
        None => print::error(format_args!("runtime panic: {}", info.message())),
    }
    sys::exit_group(134)
}
