//! Running a function of the program in the middle of a gate.
//!
//! Purpose: the gates save no register that the runtime cannot touch, but a handler of the program may use all of them: AVX, mask
//! registers, x87. [`with_saved_state`] keeps them. Input: a function and its argument. Output: none but the function's effect.
//! **Invariants**
//! * Everything lives on the caller's stack, below what it uses.
//! * The function starts as psABI 3.2.1 wants it: direction flag clear, x87 stack empty, control words of the program. What the vector registers hold is
//!   nobody's business there, so they are not cleared.
//! * Where there is XSAVEC, state that is in its initial configuration is not stored.
//! * Before [`crate::kernel::xsave::init`], or on a processor without XSAVE, FXSAVE keeps what there is.
//!
//! Source: SDM volume 1, chapter 13 (13.7, 13.8: XSAVE, XRSTOR, which initialises what XSTATE_BV leaves out; 13.10: XSAVEC and the compacted format, never
//! larger than the standard one).

use crate::kernel::xsave::{XSAVE_BYTES, XSAVE_COMPACT, XSAVE_MASK};
use core::arch::naked_asm;

/// Calls `run(arg)`; afterwards vector, mask and x87 registers are what they were.
///
/// # Safety
/// `run(arg)` is sound.
#[unsafe(naked)]
pub unsafe extern "C" fn with_saved_state(run: unsafe extern "C" fn(*mut u8), arg: *mut u8) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa rsp, 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        ".cfi_offset rbx, -24",
        ".cfi_offset r12, -32",
        ".cfi_offset r13, -40",
        ".cfi_offset r14, -48",
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
        "jz 4f",
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
        "cmp dword ptr [rip + {compact}], 0",
        "je 2f",
        "xsavec64 [rbx]",
        "jmp 3f",
        "2: xsave64 [rbx]",
        // XSTATE_BV says whether the x87 unit is in its initial state: if so its stack is empty and its control word the usual one.
        "3: test byte ptr [rbx + 512], 1",
        "jz 7f",
        "jmp 5f",
        "4: fxsave64 [rbx]",
        // The state to start with: legacy area and header, all zero but the control words.
        "5: sub rsp, 576",
        "mov rdi, rsp",
        "mov ecx, 72",
        "xor eax, eax",
        "rep stosq",
        "movzx eax, word ptr [rbx]", // the x87 control word
        "mov [rsp], ax",
        "mov eax, [rbx + 24]",       // MXCSR
        "mov [rsp + 24], eax",
        "test r14d, r14d",
        "jz 6f",
        "mov qword ptr [rsp + 512], 1", // x87 from memory
        "mov eax, 1",                   // and nothing else
        "xor edx, edx",
        "xrstor64 [rsp]",
        "jmp 7f",
        "6: fxrstor64 [rsp]",
        "7: mov rdi, r13",
        "call r12",                // rsp is a multiple of 64
        "test r14d, r14d",
        "jz 8f",
        "mov eax, r14d",
        "xor edx, edx",
        "xrstor64 [rbx]",
        "jmp 9f",
        "8: fxrstor64 [rbx]",
        "9: lea rsp, [rbp - 32]",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        bytes = sym XSAVE_BYTES,
        mask = sym XSAVE_MASK,
        compact = sym XSAVE_COMPACT,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering;
    use std::sync::Mutex;

    /// Held by whoever changes [`XSAVE_COMPACT`].
    static ALONE: Mutex<()> = Mutex::new(());

    /// Leaves something else in every kind of register; sees the initial state.
    unsafe extern "C" fn spoil(seen: *mut u8) {
        // SAFETY: the test's own words; the instructions touch registers only.
        unsafe {
            let mut control = 0u16;
            let (mut environment, mut mxcsr) = ([0u32; 7], 0u32);
            core::arch::asm!(
                "fnstcw [{control}]",
                "fnstenv [{environment}]",
                "fldcw [{control}]",
                "fld1",
                "fld1",
                "fldz",
                "fdivp",
                "fldz",
                "stmxcsr [{mxcsr}]",
                "or dword ptr [{mxcsr}], 0x3f",
                "ldmxcsr [{mxcsr}]",
                "vpcmpeqd ymm3, ymm3, ymm3",
                "vzeroall",
                control = in(reg) &raw mut control,
                environment = in(reg) environment.as_mut_ptr(),
                mxcsr = in(reg) &raw mut mxcsr,
                out("xmm3") _,
            );
            core::arch::asm!("fstp st(0)", "fstp st(0)");
            // Control word and tag word: all registers of the x87 stack are empty.
            seen.cast::<u32>().write(u32::from(control) | environment[2] << 16);
        }
    }

    /// What is there after a call.
    #[derive(Debug, PartialEq)]
    struct After {
        ymm: [u64; 4],
        st: f64,
        mxcsr: u32,
        /// x87 control, status and tag words.
        x87: [u16; 3],
        /// What the function saw.
        seen: u32,
    }

    /// Calls [`spoil`] with a vector register, a number on the x87 stack if there is to be one, and MXCSR.
    fn call(start: [u64; 4], has_x87: bool, mxcsr: u32) -> After {
        let (mut seen, mut ymm, mut st, mut control) = (0u32, [0u64; 4], f64::from(u8::from(has_x87)), mxcsr);
        let (mut usual, mut environment) = (0u32, [0u32; 7]);
        // SAFETY: the call keeps what psABI says and, by design, the vector registers; MXCSR and the x87 unit are put back.
        unsafe {
            core::arch::asm!("stmxcsr [{usual}]", usual = in(reg) &raw mut usual);
            core::arch::asm!(
                "ldmxcsr [r15]",
                "vmovdqu ymm5, [r12]",
                "fninit",
                "cmp qword ptr [r13], 0",
                "je 2f",
                "fldpi",
                "2: call {run}",
                "cmp qword ptr [r13], 0",
                "je 3f",
                "fstp qword ptr [r13]",
                "3: vmovdqu [r14], ymm5",
                "stmxcsr [r15]",
                in("r12") start.as_ptr(),
                run = sym with_saved_state,
                in("r13") &raw mut st,
                in("r14") ymm.as_mut_ptr(),
                in("r15") &raw mut control,
                in("rdi") spoil as *const (),
                in("rsi") &raw mut seen,
                clobber_abi("C"),
            );
            core::arch::asm!("fnstenv [{at}]", "fninit", "ldmxcsr [{usual}]", "vzeroupper",
                at = in(reg) environment.as_mut_ptr(), usual = in(reg) &raw const usual);
        }
        let x87 = [environment[0] as u16, environment[1] as u16, environment[2] as u16];
        After { ymm, st, mxcsr: control, x87, seen }
    }

    const START: [u64; 4] = [1, 2, 3, 4];
    /// Rounding upwards, and an inexact result so far.
    const MXCSR: u32 = 0x1f80 | 0x4000 | 0x20;
    /// An empty stack and the usual control word.
    const CLEAN: u32 = 0xffff_037f;

    #[test]
    fn vectors_and_the_x87_stack_survive_and_the_function_starts_clean() {
        let _alone = ALONE.lock().unwrap();
        for compact in [0, 1] {
            if !is_ready(compact) {
                return;
            }
            let after = call(START, true, MXCSR);
            assert_eq!((after.ymm, after.mxcsr, after.seen), (START, MXCSR, CLEAN));
            assert_eq!((after.st, after.x87[0], after.x87[2]), (core::f64::consts::PI, 0x37f, 0xffff));
        }
    }

    /// What the function has left in an x87 unit that was not in use before must be gone.
    #[test]
    fn an_unused_x87_unit_is_unused_afterwards() {
        let _alone = ALONE.lock().unwrap();
        for compact in [0, 1] {
            if !is_ready(compact) {
                return;
            }
            let after = call(START, false, 0x1f80);
            assert_eq!(after, After { ymm: START, st: 0.0, mxcsr: 0x1f80, x87: [0x37f, 0, 0xffff], seen: CLEAN });
        }
    }

    /// With or without XSAVEC; false where the processor does not have what the test needs.
    fn is_ready(compact: u32) -> bool {
        crate::kernel::xsave::init();
        let has_compact = XSAVE_COMPACT.load(Ordering::Relaxed) != 0;
        XSAVE_COMPACT.store(compact, Ordering::Relaxed);
        is_x86_feature_detected!("avx") && (compact == 0 || has_compact)
    }
}
