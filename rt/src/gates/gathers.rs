//! The gate of gathers and scatters.
//!
//! Purpose: before such an access all its active lanes become accessible at once. Input: the address of the access's [`VsibDesc`] as stack argument, and the program's
//! registers, from which the addresses come. Output: none but the effect. **Invariants**
//! * The gate has no state and no memory but the caller's stack: threads, handlers that interrupt it, and handlers that leave it by `siglongjmp` find it as ever.
//! * It reads single vector and mask registers where they are. What Rust code may have changed by then, the lower 16 bytes of the first sixteen, is read
//!   from where the gate has saved it.
//!
//! Source: SDM volume 2, 2.3.12 (VSIB), VMOVDQU, VMOVDQU64, KMOVW.

use crate::gates::notes::note_for_handlers;
use crate::kernel::xsave;
use crate::node::access::Lane;
use crate::process::frame::{Frame, restore, save};
use crate::process::groups::Lanes;
use crate::process::process;
use crate::process::tags;
use crate::process::vsib::{self, LaneRegisters};
use blizzard_contract::{Counter, VsibDesc};
use core::arch::naked_asm;

/// Its number in a descriptor.
const RSP: u8 = 4;

macro_rules! vsib_gate {
    ($(#[$doc:meta])* $name:ident, $rust:path) => {
        $(#[$doc])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                save!(),
                "lea rdi, [rbp - 8]",
                "mov rsi, rbx",
                "call {rust}",
                restore!(),
                "ret 8", // the descriptor's address
                ".cfi_endproc",
                rust = sym $rust,
            )
        }
    };
}

vsib_gate! {
    /// `GATE_VSIB`: makes the active lanes of a gather or scatter accessible. Clobbers nothing.
    ///
    /// # Safety
    /// Called from rewritten code with the address of a [`VsibDesc`] as stack argument, on a processor with AVX.
    vsib, on_vsib::<false>
}

vsib_gate! {
    /// [`vsib()`] in a run whose accesses are looked at.
    ///
    /// # Safety
    /// As [`vsib()`].
    vsib_watched, on_vsib::<true>
}

/// The Rust half of [`vsib()`]. `saved`: xmm0-15.
extern "C" fn on_vsib<const WATCHED: bool>(frame: &mut Frame, saved: &[[u8; 16]; 16]) {
    tags::count(Counter::VsibCalls);
    note_for_handlers(frame, 8);
    let mut wanted = Lanes::new();
    each_lane(frame, saved, |lane| wanted.push(lane));
    wanted.require();
    if WATCHED {
        each_lane(frame, saved, |lane| process::watch(frame.return_address, lane, false));
    }
}

/// The active lanes. Not inlined: what it takes of the program's stack is free again when they are required.
#[inline(never)]
fn each_lane(frame: &Frame, saved: &[[u8; 16]; 16], mut each: impl FnMut(Lane)) {
    // SAFETY: the rewriter pushed the address of a descriptor in read-only data of the program.
    let desc = unsafe { (frame.args[0] as *const VsibDesc).read_unaligned() };
    let base = match desc.base {
        // rsp before the stub lowered it: the one argument and the return address are above the frame's registers.
        RSP => (&raw const frame.args[1]) as u64 + u64::from(desc.rsp_moved),
        base => frame.gpr.get(usize::from(base)).copied().unwrap_or(0),
    };
    let store = desc.access & 2 != 0;
    vsib::each_lane(&desc, base, &LiveRegisters { saved }, |addr, bytes| {
        each(Lane { addr, bytes, store, masked: false });
    });
}

/// The processor's registers, as the program has them.
struct LiveRegisters<'a> {
    /// xmm0-15.
    saved: &'a [[u8; 16]; 16],
}

impl LaneRegisters for LiveRegisters<'_> {
    fn vector(&self, register: u8) -> [u8; 64] {
        let mut value = [0; 64];
        let register = register & 31;
        // SAFETY: room for the register, which the processor has: the program's instruction uses it.
        unsafe {
            if xsave::has_avx512() {
                store_zmm(register.into(), &mut value);
            } else {
                store_ymm((register & 15).into(), &mut value);
            }
        }
        if let Some(low) = self.saved.get(usize::from(register)) {
            value[..16].copy_from_slice(low);
        }
        value
    }

    fn mask(&self, register: u8) -> u64 {
        let mut value = 0;
        // SAFETY: as above. No gather has more than 16 lanes.
        unsafe { store_mask((register & 7).into(), &mut value) };
        value
    }
}

/// A function that stores the register of a number: a jump to one of so many stores, each in 8 bytes.
macro_rules! stores {
    ($(#[$doc:meta])* $name:ident, $to:ty, $store:literal, $($number:literal)*) => {
        $(#[$doc])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name(register: u64, to: &mut $to) {
            naked_asm!(
                ".cfi_startproc",
                "lea rax, [rip + 2f]",
                "lea rax, [rax + 8 * rdi]",
                "jmp rax",
                ".p2align 3",
                "2:",
                $(concat!($store, $number, "\nret\n.p2align 3"),)*
                ".cfi_endproc",
            )
        }
    };
}

stores! {
    /// Stores ymm0-15.
    ///
    /// # Safety
    /// The processor has AVX, and the system enables it.
    store_ymm, [u8; 64], "vmovdqu ymmword ptr [rsi], ymm", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
}

stores! {
    /// Stores zmm0-31.
    ///
    /// # Safety
    /// The processor has AVX-512, and the system enables it.
    store_zmm, [u8; 64], "vmovdqu64 zmmword ptr [rsi], zmm",
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
}

stores! {
    /// Stores the lower 16 bits of k0-7.
    ///
    /// # Safety
    /// As [`store_zmm`].
    store_mask, u64, "kmovw word ptr [rsi], k", 0 1 2 3 4 5 6 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs AVX2: rewriter/tests/programs/of_the_library.rs"]
    fn registers_are_read_where_they_are() {
        xsave::init();
        let pattern: [u8; 32] = core::array::from_fn(|k| k as u8 + 1);
        let saved = core::array::from_fn(|k| [k as u8 + 100; 16]);
        let mut stored = [[0u8; 64]; 2];
        for (number, to) in [3, 12].into_iter().zip(&mut stored) {
            // SAFETY: AVX2 is there; the registers are declared, and the function changes rax alone.
            unsafe {
                core::arch::asm!(
                    "vmovdqu ymm3, [{p}]",
                    "vmovdqu ymm12, [{p}]",
                    "call {store}",
                    "vzeroupper",
                    p = in(reg) pattern.as_ptr(),
                    store = sym store_ymm,
                    in("rdi") number,
                    in("rsi") to.as_mut_ptr(),
                    out("rax") _,
                    out("xmm3") _,
                    out("xmm12") _,
                );
            }
            assert_eq!((to[..32] == pattern, &to[32..]), (true, &[0; 32][..]), "ymm{number}");
        }
        let registers = LiveRegisters { saved: &saved };
        assert_eq!(registers.vector(12)[..16], saved[12], "as the gate has saved it");
    }

    #[test]
    #[ignore = "needs AVX-512: rewriter/tests/programs/of_the_library.rs"]
    fn large_registers_and_masks_are_read_where_they_are() {
        xsave::init();
        assert!(xsave::has_avx512());
        let pattern: [u8; 64] = core::array::from_fn(|k| k as u8 + 1);
        let mut stored = [[0u8; 64]; 2];
        for (number, to) in [5, 21].into_iter().zip(&mut stored) {
            // SAFETY: AVX-512 is there; the registers are declared, and the function changes rax alone.
            unsafe {
                core::arch::asm!(
                    "vmovdqu64 zmm5, [{p}]",
                    "vmovdqu64 zmm21, [{p}]",
                    "call {store}",
                    "vzeroupper",
                    p = in(reg) pattern.as_ptr(),
                    store = sym store_zmm,
                    in("rdi") number,
                    in("rsi") to.as_mut_ptr(),
                    out("rax") _,
                    out("zmm5") _,
                    out("zmm21") _,
                );
            }
            assert_eq!(*to, pattern, "zmm{number}");
        }
        let mut mask = 0u64;
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                "kmovw k3, {k:e}",
                "call {store}",
                k = in(reg) 0xa55a,
                store = sym store_mask,
                in("rdi") 3u64,
                in("rsi") &raw mut mask,
                out("rax") _,
                out("k3") _,
            );
        }
        assert_eq!(mask, 0xa55a);
    }
}
