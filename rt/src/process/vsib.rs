//! Lane addresses of gathers and scatters.
//!
//! Purpose: from a [`VsibDesc`], the general registers, and the vector and mask registers, the addresses of the
//! active lanes.
//! Output: at most [`MAX_LANES`] pairs of address and bytes.
//! Source: SDM volume 2, 2.3.12 (VSIB), VGATHERDPS, VPGATHERDD (EVEX), volume 1 chapter 13 (XSAVE: standard format, section 13.4).

use crate::kernel::xsave::Vectors;
use crate::node::access::MAX_LANES;
use blizzard_contract::VsibDesc;

/// The vector and mask registers that an access uses.
pub trait LaneRegisters {
    /// All bytes of a vector register; 0 where the processor has less.
    fn vector(&self, register: u8) -> [u8; 64];
    /// A mask register, or at least the bits of its lanes.
    fn mask(&self, register: u8) -> u64;
}

impl LaneRegisters for Vectors {
    fn vector(&self, register: u8) -> [u8; 64] {
        Vectors::vector(self, register)
    }

    fn mask(&self, register: u8) -> u64 {
        Vectors::mask(self, register)
    }
}

/// Addresses and bytes of the active lanes.
#[derive(Clone, Copy, Debug)]
pub struct VsibLanes {
    lanes: [(u64, u64); MAX_LANES],
    count: usize,
}

impl VsibLanes {
    /// The lanes in ascending order.
    pub fn as_slice(&self) -> &[(u64, u64)] {
        &self.lanes[..self.count]
    }
}

/// The addresses and bytes of the active lanes, in ascending order. `base`: the value of the base register.
pub fn each_lane(desc: &VsibDesc, base: u64, vectors: &impl LaneRegisters, each: impl FnMut(u64, u64)) {
    // One after the other: their bytes are on the program's stack.
    let active = active(desc, vectors);
    each_address(desc, base, &vectors.vector(desc.index), active, each);
}

/// The active lanes of an access. `gpr`: general registers in encoding order.
pub fn lanes(desc: &VsibDesc, gpr: &[u64; 16], vectors: &impl LaneRegisters) -> VsibLanes {
    let index = vectors.vector(desc.index);
    let base = gpr.get(desc.base as usize).copied().unwrap_or(0);
    lane_addresses(desc, base, &index, active(desc, vectors))
}

/// One bit per lane: whether it is active. Higher bits mean nothing.
pub fn active(desc: &VsibDesc, vectors: &impl LaneRegisters) -> u64 {
    match desc.mask_kind {
        0 => sign_bits(&vectors.vector(desc.mask), desc.elem_bytes as usize),
        1 => vectors.mask(desc.mask),
        _ => u64::MAX,
    }
}

/// One bit per element: its sign bit.
fn sign_bits(vector: &[u8; 64], elem_bytes: usize) -> u64 {
    vector
        .chunks_exact(elem_bytes.clamp(1, 64))
        .enumerate()
        .fold(0, |bits, (i, element)| bits | u64::from(element[element.len() - 1] >> 7) << i)
}

fn lane_addresses(desc: &VsibDesc, base: u64, index: &[u8; 64], active: u64) -> VsibLanes {
    let mut out = VsibLanes { lanes: [(0, 0); MAX_LANES], count: 0 };
    each_address(desc, base, index, active, |addr, bytes| {
        out.lanes[out.count] = (addr, bytes);
        out.count += 1;
    });
    out
}

fn each_address(desc: &VsibDesc, base: u64, index: &[u8; 64], active: u64, mut each: impl FnMut(u64, u64)) {
    for lane in 0..(desc.lanes as usize).min(MAX_LANES) {
        if active >> lane & 1 == 0 {
            continue;
        }
        let offset = if desc.index_bytes == 4 {
            let at = 4 * lane;
            i64::from(i32::from_le_bytes([index[at], index[at + 1], index[at + 2], index[at + 3]]))
        } else {
            let mut bytes = [0; 8];
            // At most 8 lanes have 8-byte indices.
            bytes.copy_from_slice(&index[8 * (lane & 7)..8 * (lane & 7) + 8]);
            i64::from_le_bytes(bytes)
        };
        let addr = base
            .wrapping_add((offset as u64).wrapping_mul(desc.scale.into()))
            .wrapping_add(i64::from(desc.disp) as u64);
        each(addr, desc.elem_bytes.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::xsave::{LEGACY_BYTES, XSAVE_BYTES, XSAVE_MASK, init, state_bytes};
    use core::sync::atomic::Ordering;

    const DESC: VsibDesc = VsibDesc {
        disp: -16,
        base: 3,
        index: 1,
        index_bytes: 4,
        elem_bytes: 8,
        lanes: 4,
        scale: 8,
        mask_kind: 0,
        mask: 2,
        access: 1,
        rsp_moved: 0,
        _pad: [0; 2],
    };

    fn words<const N: usize>(values: [i32; N]) -> [u8; 64] {
        let mut out = [0; 64];
        for (i, v) in values.into_iter().enumerate() {
            out[4 * i..4 * i + 4].copy_from_slice(&v.to_le_bytes());
        }
        out
    }

    #[test]
    fn indices_are_sign_extended_and_scaled() {
        let lanes = lane_addresses(&DESC, 0x10_0000, &words([0, 1, -1, i32::MIN]), 0b1111);
        let expected = [0xf_fff0u64, 0xf_fff8, 0xf_ffe8, 0xf_fff0u64.wrapping_sub(1 << 34)];
        assert_eq!(lanes.as_slice(), expected.map(|addr| (addr, 8)));
    }

    #[test]
    fn inactive_lanes_are_left_out() {
        let lanes = lane_addresses(&DESC, 0, &words([2, 4, 6, 8]), 0b1_1010);
        assert_eq!(lanes.as_slice(), [(16, 8), (48, 8)], "the fifth mask bit belongs to no lane");
    }

    #[test]
    fn eight_byte_indices() {
        let mut index = [0; 64];
        index[8..16].copy_from_slice(&(-2i64).to_le_bytes());
        let desc = VsibDesc { index_bytes: 8, elem_bytes: 4, lanes: 2, disp: 0, scale: 1, ..DESC };
        assert_eq!(lane_addresses(&desc, 10, &index, 0b11).as_slice(), [(10, 4), (8, 4)]);
    }

    #[test]
    fn vector_masks_are_sign_bits_of_the_elements() {
        let mut vector = [0u8; 64];
        vector[7] = 0x80;
        vector[12] = 0xff;
        vector[23] = 0x7f;
        assert_eq!(sign_bits(&vector, 8), 0b001);
        assert_eq!(sign_bits(&vector, 4), 0b10);
    }

    #[repr(align(64))]
    struct Area([u8; 16384]);

    /// The area and the mask of [`XSAVE_MASK`], for XSAVE.
    fn area() -> (Box<Area>, u32) {
        init();
        let (bytes, mask) = (XSAVE_BYTES.load(Ordering::Relaxed), XSAVE_MASK.load(Ordering::Relaxed));
        assert!(bytes > LEGACY_BYTES && state_bytes() >= u64::from(bytes));
        (Box::new(Area([0; 16384])), mask)
    }

    /// Stores this processor's registers after loading known values into them, then reads them back through [`Vectors`].
    #[test]
    #[ignore = "needs AVX2: rewriter/tests/programs/of_the_library.rs"]
    fn registers_are_found_in_the_xsave_area() {
        let (mut area, mask) = area();
        let pattern: Vec<u8> = (1..=64).collect();
        // SAFETY: AVX2 is there; the area is aligned and larger than XSAVE_BYTES; the registers are declared.
        unsafe {
            core::arch::asm!(
                "vmovdqu ymm3, [{p}]",
                "xsave64 [{area}]",
                "vzeroupper",
                p = in(reg) pattern.as_ptr(),
                area = in(reg) area.0.as_mut_ptr(),
                inout("eax") mask => _,
                out("edx") _,
                out("xmm3") _,
            );
        }
        // SAFETY: the area was stored just now.
        let vectors = unsafe { Vectors::new(area.0.as_ptr()) };
        assert_eq!(vectors.vector(3)[..32], pattern[..32]);
    }

    #[test]
    #[ignore = "needs AVX-512: rewriter/tests/programs/of_the_library.rs"]
    fn large_registers_and_masks_are_found_in_the_xsave_area() {
        let (mut area, mask) = area();
        let pattern: Vec<u8> = (1..=64).collect();
        // SAFETY: as above, with AVX-512.
        unsafe {
            core::arch::asm!(
                "vmovdqu64 zmm5, [{p}]",
                "vmovdqu64 zmm21, [{p}]",
                "kmovw k3, {k:e}",
                "xsave64 [{area}]",
                "vzeroupper",
                p = in(reg) pattern.as_ptr(),
                k = in(reg) 0xa55a,
                area = in(reg) area.0.as_mut_ptr(),
                inout("eax") mask => _,
                out("edx") _,
                out("zmm5") _,
                out("zmm21") _,
                out("k3") _,
            );
        }
        // SAFETY: the area was stored just now.
        let vectors = unsafe { Vectors::new(area.0.as_ptr()) };
        assert_eq!(vectors.vector(5)[..], pattern[..]);
        assert_eq!(vectors.vector(21)[..], pattern[..]);
        assert_eq!(vectors.mask(3), 0xa55a);
    }
}
