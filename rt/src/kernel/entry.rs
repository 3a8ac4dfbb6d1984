//! Entries of the tables of functions that programs call.

/// An entry of the table that leads to the function with rsp aligned, as compiled code wants it. Programs that keep rsp 8 off (hand-written code, coroutines)
/// got on with the C library, and crashed here. No function has arguments on the stack.
macro_rules! aligned {
    // `by`: a sixth argument says where the caller's `rbp` stands, and behind it the address that the call returns to.
    ($function:ident, by) => {
        crate::kernel::entry::aligned!($function, "mov r9, rbp",)
    };
    ($function:ident $(, $first:literal,)?) => {{
        #[unsafe(naked)]
        unsafe extern "C" fn entry() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "push rbp",
                ".cfi_def_cfa rsp, 16",
                ".cfi_offset rbp, -16",
                "mov rbp, rsp",
                ".cfi_def_cfa_register rbp",
                "and rsp, -16",
                $($first,)?
                "call {function}",
                "leave",
                ".cfi_def_cfa rsp, 8",
                "ret",
                ".cfi_endproc",
                function = sym $function
            )
        }
        // SAFETY: passes registers on and gives results back as they are, so it has the function's type.
        #[allow(clippy::missing_transmute_annotations, reason = "each entry of the table has its own type")]
        let function = unsafe { core::mem::transmute(entry as unsafe extern "C" fn()) };
        function
    }};
}
pub(crate) use aligned;
