//! Exceptions of the program's handlers end in them.
//!
//! Purpose: unwinders find the program's frames behind those of the runtime. An exception that led there would leave the node in the middle of its work. So whoever
//! looks for a `catch` outside of the handler is told that there is none, and the program ends (`std::terminate`). Input: a function and its argument.
//! Output: none but the function's effect.
//!
//! Source: Itanium C++ ABI, level I (personality routines, phases); gcc `unwind.inc`.

use core::arch::naked_asm;

const SEARCH_PHASE: i32 = 1;
const FATAL_PHASE1_ERROR: i32 = 3;
const CONTINUE_UNWIND: i32 = 8;

/// Calls `run(arg)`. No exception leads out of it.
///
/// # Safety
/// `run(arg)` is sound.
#[unsafe(naked)]
pub unsafe extern "C" fn keep_exceptions(run: unsafe extern "C" fn(*mut u8), arg: *mut u8) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_personality 0x1b, {personality}", // a distance of four bytes
        "sub rsp, 8",
        ".cfi_def_cfa_offset 16",
        "mov rax, rdi",
        "mov rdi, rsi",
        "call rax",
        "add rsp, 8",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        personality = sym personality,
    )
}

/// What unwinders ask. Without a search they run what frames clean up with, up to the end of the thread.
extern "C" fn personality(_version: i32, actions: i32, _class: u64, _exception: *mut u8, _context: *mut u8) -> i32 {
    if actions & SEARCH_PHASE != 0 { FATAL_PHASE1_ERROR } else { CONTINUE_UNWIND }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn add(to: *mut u8) {
        // SAFETY: the test's own byte.
        unsafe { *to += 1 }
    }

    #[test]
    fn the_function_is_called_once() {
        let mut called = 0u8;
        // SAFETY: the function adds to the byte.
        unsafe { keep_exceptions(add, &raw mut called) };
        assert_eq!(called, 1);
        assert_eq!(personality(1, SEARCH_PHASE, 0, core::ptr::null_mut(), core::ptr::null_mut()), FATAL_PHASE1_ERROR);
    }
}
