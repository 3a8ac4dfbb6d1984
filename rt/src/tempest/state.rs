//! Running a function of the program in the middle of a gate.
//!
//! Purpose: the gates save no register that the runtime cannot touch, but a handler of the program may use all of them: AVX, mask
//! registers, x87. [`with_saved_state`] keeps them. Input: a function and its argument. Output: none but the function's effect.
//! **Invariants**
//! * Everything lives on the caller's stack, below what it uses.
//! * The function starts as psABI 3.2.1 wants it: direction flag clear, x87 stack empty, control words of the program.
//! * Before [`crate::vsib::init`], or on a processor without XSAVE, FXSAVE keeps what there is.
//!
//! Source: SDM volume 1, chapter 13 (XSAVE, XRSTOR: standard format; 13.8: XRSTOR initialises what XSTATE_BV leaves out).

use crate::vsib::{XSAVE_BYTES, XSAVE_MASK};
use core::arch::naked_asm;

/// Calls `run(arg)`; afterwards vector, mask and x87 registers are what they were.
///
/// # Safety
/// `run(arg)` is sound.
#[unsafe(naked)]
pub unsafe extern "C" fn with_saved_state(run: unsafe extern "C" fn(*mut u8), arg: *mut u8) {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "mov r12, rdi",            // run
        "mov r13, rsi",            // arg
        "mov ecx, dword ptr [rip + {bytes}]",
        "mov r14d, dword ptr [rip + {mask}]",
        "mov eax, 512",            // FXSAVE's area
        "test r14d, r14d",
        "cmovz ecx, eax",
        "sub rsp, rcx",
        "and rsp, -64",
        "mov rbx, rsp",            // rbx = the saved state
        "test r14d, r14d",
        "jz 2f",
        "xor eax, eax",
        "mov [rbx + 512], rax",    // the header starts as zero
        "mov [rbx + 520], rax",
        "mov [rbx + 528], rax",
        "mov [rbx + 536], rax",
        "mov [rbx + 544], rax",
        "mov [rbx + 552], rax",
        "mov [rbx + 560], rax",
        "mov [rbx + 568], rax",
        "mov eax, r14d",
        "xor edx, edx",
        "xsave64 [rbx]",
        "jmp 3f",
        "2: fxsave64 [rbx]",
        // The state to start with: legacy area and header, all zero but the control words.
        "3: sub rsp, 576",
        "mov rdi, rsp",
        "mov ecx, 72",
        "xor eax, eax",
        "rep stosq",
        "movzx eax, word ptr [rbx]", // the x87 control word
        "mov [rsp], ax",
        "mov eax, [rbx + 24]",       // MXCSR
        "mov [rsp + 24], eax",
        "test r14d, r14d",
        "jz 4f",
        "mov qword ptr [rsp + 512], 1", // x87 from memory, everything else initial
        "mov eax, r14d",
        "xor edx, edx",
        "xrstor64 [rsp]",
        "jmp 5f",
        "4: fxrstor64 [rsp]",
        "5: mov rdi, r13",
        "call r12",                // rsp is a multiple of 64
        "test r14d, r14d",
        "jz 6f",
        "mov eax, r14d",
        "xor edx, edx",
        "xrstor64 [rbx]",
        "jmp 7f",
        "6: fxrstor64 [rbx]",
        "7: lea rsp, [rbp - 32]",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
        bytes = sym XSAVE_BYTES,
        mask = sym XSAVE_MASK,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::arch::x86_64::*;

    /// Leaves something else in every kind of register; sees the initial state.
    unsafe extern "C" fn spoil(seen: *mut u8) {
        // SAFETY: the test's own words; the instructions touch registers only.
        unsafe {
            let mut control = 0u16;
            let mut environment = [0u32; 7];
            core::arch::asm!(
                "fnstcw [{control}]",
                "fnstenv [{environment}]",
                "fldcw [{control}]",
                "fld1",
                "fld1",
                "vpcmpeqd ymm3, ymm3, ymm3",
                "vzeroall",
                control = in(reg) &raw mut control,
                environment = in(reg) environment.as_mut_ptr(),
                out("xmm3") _,
            );
            core::arch::asm!("fstp st(0)", "fstp st(0)");
            // Control word and tag word: all registers of the x87 stack are empty.
            seen.cast::<u32>().write(u32::from(control) | environment[2] << 16);
        }
    }

    #[test]
    fn vectors_and_the_x87_stack_survive_and_the_function_starts_clean() {
        crate::vsib::init();
        if !is_x86_feature_detected!("avx") {
            return;
        }
        let (mut seen, mut ymm, mut st) = (0u32, [0u64; 4], 0f64);
        let start = [1u64, 2, 3, 4];
        // SAFETY: the call keeps what psABI says and, by design, the vector registers.
        unsafe {
            core::arch::asm!(
                "vmovdqu ymm5, [r12]",
                "fldpi",
                "call {run}",
                "fstp qword ptr [r13]",
                "vmovdqu [r14], ymm5",
                in("r12") start.as_ptr(),
                run = sym with_saved_state,
                in("r13") &raw mut st,
                in("r14") ymm.as_mut_ptr(),
                in("rdi") spoil as *const (),
                in("rsi") &raw mut seen,
                clobber_abi("C"),
            );
            _mm256_zeroupper();
        }
        assert_eq!(ymm, start);
        assert_eq!(st, core::f64::consts::PI);
        assert_eq!(seen, 0xffff_037f, "an empty stack and the program's control word");
    }
}
