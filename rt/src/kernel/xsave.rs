//! The layout of the XSAVE area.
//!
//! Purpose: [`init`] finds out where the processor puts each register in that area; [`Vectors`] reads one. Input: the processor's identification, an area.
//! Output: bytes, masks, registers. Source: SDM volume 1, chapter 13 (standard format: section 13.4).

use crate::kernel::owned::PerProcess;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::sync::atomic::{AtomicU32, Ordering};

/// Bytes of the XSAVE area that holds [`XSAVE_MASK`]; 0 on a processor without XSAVE.
pub static XSAVE_BYTES: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));
/// State components that the runtime stores: x87, SSE, AVX, opmask, ZMM_Hi256, Hi16_ZMM as far as the system enables them.
pub static XSAVE_MASK: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));
/// Nonzero: the processor has XSAVEC.
pub static XSAVE_COMPACT: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));
/// Bytes of the XSAVE area that the program's XCR0 describes: what an `xsave` or `xrstor` of the program touches at most.
static STATE_BYTES: PerProcess<AtomicU32> = PerProcess::new(AtomicU32::new(0));
/// Offsets of components in the area, 0: not there.
static OFFSETS: PerProcess<[AtomicU32; 8]> = PerProcess::new([const { AtomicU32::new(0) }; 8]);

/// State-component numbers.
const SSE: u32 = 1;
const AVX: u32 = 2;
const OPMASK: u32 = 5;
const ZMM_HI256: u32 = 6;
const HI16_ZMM: u32 = 7;
const WANTED: u32 = 1 | 1 << SSE | 1 << AVX | 1 << OPMASK | 1 << ZMM_HI256 | 1 << HI16_ZMM;
/// Legacy region and header.
pub const LEGACY_BYTES: u32 = 576;

/// Reads the processor's layout. Idempotent; before it, nothing may be stored.
pub fn init() {
    const OSXSAVE: u32 = 1 << 27;
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return;
    }
    let xcr0: u32;
    // SAFETY: XGETBV exists when OSXSAVE is set; component 0 is XCR0.
    unsafe {
        core::arch::asm!("xgetbv", in("ecx") 0, out("eax") xcr0, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    let mask = xcr0 & WANTED;
    let mut bytes = LEGACY_BYTES;
    for component in [AVX, OPMASK, ZMM_HI256, HI16_ZMM] {
        if mask & 1 << component != 0 {
            let leaf = __cpuid_count(0xd, component);
            OFFSETS[component as usize].store(leaf.ebx, Ordering::Relaxed);
            bytes = bytes.max(leaf.ebx + leaf.eax);
        }
    }
    const XSAVEC: u32 = 1 << 1;
    XSAVE_COMPACT.store(__cpuid_count(0xd, 1).eax & XSAVEC, Ordering::Relaxed);
    XSAVE_MASK.store(mask, Ordering::Relaxed);
    STATE_BYTES.store(__cpuid_count(0xd, 0).ebx, Ordering::Relaxed);
    XSAVE_BYTES.store(bytes, Ordering::Relaxed);
}

/// Whether the processor has AVX-512, and the system enables it.
pub fn has_avx512() -> bool {
    const ALL: u32 = 1 << OPMASK | 1 << ZMM_HI256 | 1 << HI16_ZMM;
    XSAVE_MASK.load(Ordering::Relaxed) & ALL == ALL
}

/// Bytes that `xsave` stores for the components the system enables; 0 without XSAVE.
pub fn state_bytes() -> u64 {
    STATE_BYTES.load(Ordering::Relaxed).into()
}

/// The vector and mask registers in an XSAVE area.
pub struct Vectors {
    area: *const u8,
    present: u64,
}

impl Vectors {
    /// # Safety
    /// `area` is an XSAVE area in standard format, stored with [`XSAVE_MASK`], alive as long as the value.
    pub unsafe fn new(area: *const u8) -> Self {
        // SAFETY: XSTATE_BV is the first word of the header.
        let present = unsafe { area.add(512).cast::<u64>().read() };
        Vectors { area, present }
    }

    /// Where `bytes` bytes of a component begin; `None` when the component is in its initial state (all zero) or absent.
    fn component(&self, number: u32, at: usize) -> Option<*const u8> {
        if self.present & 1 << number == 0 {
            return None;
        }
        // The SSE registers are in the legacy region, at byte 160.
        let start = if number == SSE { 160 } else { OFFSETS[number as usize].load(Ordering::Relaxed) as usize };
        (start != 0).then(|| self.area.wrapping_add(start + at))
    }

    fn copy(&self, number: u32, at: usize, to: &mut [u8]) {
        if let Some(from) = self.component(number, at) {
            // SAFETY: the component's bytes lie inside the area that the caller of `new` vouches for.
            unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
        }
    }

    /// All 64 bytes of vector register 0..31.
    pub fn vector(&self, register: u8) -> [u8; 64] {
        let mut value = [0; 64];
        let n = register as usize & 31;
        if n < 16 {
            self.copy(SSE, 16 * n, &mut value[..16]);
            self.copy(AVX, 16 * n, &mut value[16..32]);
            self.copy(ZMM_HI256, 32 * n, &mut value[32..]);
        } else {
            self.copy(HI16_ZMM, 64 * (n - 16), &mut value);
        }
        value
    }

    /// Mask register 0..7.
    pub fn mask(&self, register: u8) -> u64 {
        let mut value = [0; 8];
        self.copy(OPMASK, 8 * (register as usize & 7), &mut value);
        u64::from_le_bytes(value)
    }
}

/// Where bytes of a component lie in an area, which has the component afterwards. `bytes`: of the whole component.
///
/// # Safety
/// As [`set_vector`].
unsafe fn made(area: *mut u8, number: u32, bytes: usize) -> *mut u8 {
    let start = if number == SSE { 160 } else { OFFSETS[number as usize].load(Ordering::Relaxed) as usize };
    // SAFETY: the caller's promise; XSTATE_BV is the first word of the header.
    unsafe {
        let present = area.add(512).cast::<u64>();
        if *present & 1 << number == 0 {
            area.add(start).write_bytes(0, bytes);
            *present |= 1 << number;
        }
        area.add(start)
    }
}

/// Changes the lower 32 bytes of vector register 0 to 15.
///
/// # Safety
/// `area` is an XSAVE area in standard format, with room for all that the system enables. The processor has AVX.
pub unsafe fn set_vector(area: *mut u8, register: u8, value: &[u8; 32]) {
    let at = 16 * (register as usize & 15);
    for (number, half) in [SSE, AVX].into_iter().zip(value.as_chunks::<16>().0.iter()) {
        // SAFETY: 16 bytes for each of 16 registers.
        unsafe { made(area, number, 256).add(at).cast::<[u8; 16]>().write(*half) };
    }
}

/// Changes mask register 0 to 7.
///
/// # Safety
/// As [`set_vector`], with AVX-512.
pub unsafe fn set_mask(area: *mut u8, register: u8, value: u64) {
    // SAFETY: 8 bytes for each of 8 registers.
    unsafe { made(area, OPMASK, 64).cast::<u64>().add(register as usize & 7).write(value) };
}
