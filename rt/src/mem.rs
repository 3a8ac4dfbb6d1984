//! The memory functions that the compiler calls: `memcpy`, `memmove`, `memset`, `memcmp`, `bcmp`, `strlen`.
//!
//! Purpose: the freestanding blob has no libc to provide them. Only that build defines them, so that the hosted library and the
//! unit tests keep the C library's.
//! **Invariant**: the bodies are string instructions and plain loops over volatile-free asm, so the compiler cannot turn a body
//! into a call of the function itself. The direction flag is clear on entry (psABI; the gates execute `cld`).
//! Source: ISO C 7.24; SDM volume 1, 7.3.9 (fast string operation).

use core::arch::asm;

/// Copies `n` bytes between ranges that do not overlap.
///
/// # Safety
/// As C's `memcpy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller vouches for both ranges; rep movsb touches exactly n bytes of each.
    unsafe {
        if n <= 256 {
            // Below the start-up cost of a fast string operation: words, then the bytes that remain.
            asm!(
                "rep movsq",
                "mov ecx, {rest:e}",
                "rep movsb",
                rest = in(reg) n & 7,
                inout("rcx") n >> 3 => _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                options(nostack, preserves_flags),
            );
        } else {
            asm!(
                "rep movsb",
                inout("rcx") n => _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                options(nostack, preserves_flags),
            );
        }
    }
    dst
}

/// Copies `n` bytes between ranges that may overlap.
///
/// # Safety
/// As C's `memmove`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if (dst as usize).wrapping_sub(src as usize) >= n {
        // SAFETY: copying upwards is right unless dst lies inside (src, src + n).
        unsafe { memcpy(dst, src, n) }
    } else {
        // SAFETY: n > 0 here; copying downwards from the last byte is right when dst lies above src.
        unsafe {
            asm!(
                "std",
                "rep movsb",
                "cld",
                inout("rcx") n => _,
                inout("rdi") dst.add(n).sub(1) => _,
                inout("rsi") src.add(n).sub(1) => _,
                options(nostack),
            );
        }
        dst
    }
}

/// Sets `n` bytes to `byte`.
///
/// # Safety
/// As C's `memset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(dst: *mut u8, byte: i32, n: usize) -> *mut u8 {
    // SAFETY: the caller vouches for the range.
    unsafe {
        asm!(
            "rep stosb",
            inout("rcx") n => _,
            inout("rdi") dst => _,
            in("al") byte as u8,
            options(nostack, preserves_flags),
        );
    }
    dst
}

/// Compares `n` bytes.
///
/// # Safety
/// As C's `memcmp`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    let mut i = 0;
    while i < n {
        // SAFETY: i < n, and the caller vouches for n bytes of both.
        let (x, y) = unsafe { (a.add(i).read(), b.add(i).read()) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
        i += 1;
    }
    0
}

/// Compares `n` bytes for equality.
///
/// # Safety
/// As [`memcmp`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: passed on from the caller.
    unsafe { memcmp(a, b, n) }
}

/// Length of a NUL-terminated string.
///
/// # Safety
/// As C's `strlen`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn strlen(text: *const u8) -> usize {
    let left: usize;
    // SAFETY: the caller vouches for a NUL byte; repne scasb reads no byte behind it.
    unsafe {
        asm!(
            "repne scasb",
            inout("rcx") usize::MAX => left,
            inout("rdi") text => _,
            in("al") 0u8,
            options(nostack, readonly),
        );
    }
    // One count for each byte and one for the NUL.
    usize::MAX - left - 1
}
