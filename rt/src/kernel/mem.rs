//! The memory functions that the compiler calls: `memcpy`, `memmove`, `memset`, `memcmp`, `bcmp`, `strlen`.
//!
//! Purpose: the freestanding blob has no libc to provide them. Only that build defines them, so that the hosted library and the
//! unit tests keep the C library's.
//! **Invariant**: the bodies are assembly and moves of words, so the compiler cannot turn a body
//! into a call of the function itself. The direction flag is clear on entry (psABI; the gates execute `cld`).
//! Source: ISO C 7.24; SDM volume 1, 7.3.9 (fast string operation).

use core::arch::asm;

/// From here on the start-up cost of a fast string operation no longer matters.
const FAST_STRING_BYTES: usize = 768;

/// Copies `n` bytes between ranges that do not overlap.
///
/// # Safety
/// As C's `memcpy`.
#[cfg_attr(feature = "freestanding", unsafe(no_mangle))]
pub unsafe extern "C" fn memcpy(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    // SAFETY: the caller vouches for both ranges; every branch stays within n bytes of each. The short ones move the first and the
    // last word, which may overlap.
    unsafe {
        if n >= FAST_STRING_BYTES {
            asm!(
                "rep movsb",
                inout("rcx") n => _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                options(nostack, preserves_flags),
            );
        } else if n >= 16 {
            // All whole 16-byte words, then the last 16 bytes.
            asm!(
                "2:",
                "movups {x}, [{src} + {i}]",
                "movups [{dst} + {i}], {x}",
                "add {i}, 16",
                "cmp {i}, {last}",
                "jb 2b",
                "movups {x}, [{src} + {last}]",
                "movups [{dst} + {last}], {x}",
                x = out(xmm_reg) _,
                i = inout(reg) 0usize => _,
                src = in(reg) src,
                dst = in(reg) dst,
                last = in(reg) n - 16,
                options(nostack),
            );
        } else if n >= 8 {
            move_ends::<u64>(dst, src, n);
        } else if n >= 4 {
            move_ends::<u32>(dst, src, n);
        } else if n >= 2 {
            move_ends::<u16>(dst, src, n);
        } else if n == 1 {
            dst.write(src.read());
        }
    }
    dst
}

/// Moves the first and the last `T` of `n` bytes.
///
/// # Safety
/// As [`memcpy`], with `size_of::<T>() <= n <= 2 * size_of::<T>()`.
#[inline(always)]
unsafe fn move_ends<T: Copy>(dst: *mut u8, src: *const u8, n: usize) {
    let last = n - size_of::<T>();
    // SAFETY: both words lie within n bytes; both are read before either is written.
    unsafe {
        let (head, tail) = (src.cast::<T>().read_unaligned(), src.add(last).cast::<T>().read_unaligned());
        dst.cast::<T>().write_unaligned(head);
        dst.add(last).cast::<T>().write_unaligned(tail);
    }
}

/// Copies `n` bytes between ranges that may overlap.
///
/// # Safety
/// As C's `memmove`.
#[cfg_attr(feature = "freestanding", unsafe(no_mangle))]
pub unsafe extern "C" fn memmove(dst: *mut u8, src: *const u8, n: usize) -> *mut u8 {
    if (dst as usize).wrapping_sub(src as usize) >= n {
        // SAFETY: copying upwards is right unless dst lies inside (src, src + n).
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") n => _,
                inout("rdi") dst => _,
                inout("rsi") src => _,
                options(nostack, preserves_flags),
            );
        }
        dst
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
#[cfg_attr(feature = "freestanding", unsafe(no_mangle))]
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
#[cfg_attr(feature = "freestanding", unsafe(no_mangle))]
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
#[cfg_attr(feature = "freestanding", unsafe(no_mangle))]
pub unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: passed on from the caller.
    unsafe { memcmp(a, b, n) }
}

/// Length of a NUL-terminated string.
///
/// # Safety
/// As C's `strlen`.
#[cfg_attr(feature = "freestanding", unsafe(no_mangle))]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths around every branch.
    const LENGTHS: [usize; 24] =
        [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 767, 768, 769, 1500];

    fn pattern() -> Vec<u8> {
        (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    #[test]
    fn copies_and_fills() {
        for n in LENGTHS {
            for skew in [0, 1, 7] {
                let src = pattern();
                let (mut dst, mut expected) = (vec![0xeeu8; 4096], vec![0xeeu8; 4096]);
                // SAFETY: inside the vectors.
                unsafe { memcpy(dst.as_mut_ptr().add(skew), src.as_ptr().add(3), n) };
                expected[skew..skew + n].copy_from_slice(&src[3..3 + n]);
                assert!(dst == expected, "memcpy {n}");
                // SAFETY: inside the vector.
                unsafe { memset(dst.as_mut_ptr().add(skew), 0x1_5a, n) };
                expected[skew..skew + n].fill(0x5a);
                assert!(dst == expected, "memset {n}");
            }
        }
    }

    #[test]
    fn moves_overlapping_ranges() {
        for n in LENGTHS {
            for (from, to) in [(100, 101), (101, 100), (100, 164), (164, 100), (100, 100)] {
                let (mut got, mut expected) = (pattern(), pattern());
                // SAFETY: inside the vector.
                unsafe { memmove(got.as_mut_ptr().add(to), got.as_ptr().add(from), n) };
                expected.copy_within(from..from + n, to);
                assert!(got == expected, "memmove {n} from {from} to {to}");
            }
        }
    }

    #[test]
    fn compares_and_measures() {
        let a = pattern();
        for n in LENGTHS {
            let mut b = a.clone();
            // SAFETY: inside the vectors.
            assert_eq!(unsafe { memcmp(a.as_ptr(), b.as_ptr(), n) }, 0);
            if n > 0 {
                b[n - 1] = a[n - 1].wrapping_add(1);
                // SAFETY: inside the vectors.
                let (forth, back) = unsafe { (memcmp(a.as_ptr(), b.as_ptr(), n), memcmp(b.as_ptr(), a.as_ptr(), n)) };
                assert_eq!(forth.signum(), a[n - 1].cmp(&b[n - 1]) as i32);
                assert_eq!(forth.signum(), -back.signum());
                // SAFETY: inside the vectors.
                assert_ne!(unsafe { bcmp(a.as_ptr(), b.as_ptr(), n) }, 0);
            }
            let text = vec![b'x'; n].into_iter().chain([0, b'y', 0]).collect::<Vec<u8>>();
            // SAFETY: NUL-terminated.
            assert_eq!(unsafe { strlen(text.as_ptr()) }, n);
        }
    }
}
