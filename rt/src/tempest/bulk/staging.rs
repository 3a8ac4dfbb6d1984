//! The staging area: memory of both ends of a channel, through which bulk data goes in pieces.
//!
//! Purpose: move bulk data at the speed of memory. Each node has one area in the region. The source copies a piece of its buffer into it, says so, and goes
//! on with the next one, while the destination copies the piece out. Input of [`Area::put`] and output of [`Area::take`]: bytes.
//!
//! ```text
//! claim (u64)     transfer's number << 32 | pieces that belong to the source; a line of its own
//! places of 32 KiB, of which piece k uses the k-th, modulo their number
//! ```
//!
//! The source claims each piece before it copies it. A destination that waits for a source which does not get on claims all the rest at once
//! ([`Area::claim_rest`]), and copies it itself. **Invariants**: each piece is claimed once; a place is written again only when its piece has been
//! taken, which the destination says in a message; whoever is told of a piece by a message sees it.
//! Source: SDM volume 1, 12.10.3 (stores that bypass the caches, and their fence).

use crate::memory::region::Region;
use blizzard_contract::tempest_flags::NO_DIRECT_BULK;
use blizzard_contract::{NEAR_PLACES, STAGE_PIECE_BYTES, STAGE_PLACES};
use blizzard_protocol::ids::NodeId;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Bytes in front of the places.
const HEADER_BYTES: u64 = blizzard_contract::CONTEXT_BYTES;
/// The lower half of a claim when nothing is left.
const ALL: u64 = u32::MAX as u64;

/// One node's area.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    base: u64,
    places: u64,
}

impl Area {
    /// The area of a node of this run.
    pub fn of(region: &Region, node: NodeId) -> Area {
        // Another host is far away, and what is under way there must be more.
        let places = if region.header().tempest_flags & NO_DIRECT_BULK == 0 { NEAR_PLACES } else { STAGE_PLACES };
        Area { base: region.stage(node) as u64, places }
    }

    /// How many pieces have room.
    pub const fn places(&self) -> u64 {
        self.places
    }

    fn claim(&self) -> &AtomicU64 {
        // SAFETY: the first word of the area, which stays mapped, aligned, and is used atomically by everyone.
        unsafe { AtomicU64::from_ptr(self.base as *mut u64) }
    }

    fn place(&self, piece: u64) -> u64 {
        self.base + HEADER_BYTES + piece % self.places * STAGE_PIECE_BYTES
    }

    /// The source begins a transfer.
    pub fn begin(&self, number: u32) {
        self.claim().store(u64::from(number) << 32, Ordering::Release);
    }

    /// The source claims its next piece, after `piece` others; false when the destination has taken the rest over.
    pub fn claim_next(&self, number: u32, piece: u64) -> bool {
        let before = u64::from(number) << 32 | piece;
        self.claim().compare_exchange(before, before + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The destination takes over what the source has not claimed; how many pieces that leaves to the source. `None`: that is another transfer, or
    /// all `pieces` of this one have been claimed.
    pub fn claim_rest(&self, number: u32, pieces: u64) -> Option<u64> {
        let taken = |now: u64| (now >> 32 == u64::from(number) && (now & ALL) < pieces).then_some(now | ALL);
        self.claim().fetch_update(Ordering::AcqRel, Ordering::Relaxed, taken).ok().map(|before| before & ALL)
    }

    /// Copies a piece into its place.
    ///
    /// # Safety
    /// `bytes` bytes at `from` are readable, at most those of a piece.
    pub unsafe fn put(&self, piece: u64, from: u64, bytes: u64) {
        debug_assert!(bytes <= STAGE_PIECE_BYTES);
        // SAFETY: the caller vouches for the source, the size of a place for the other side.
        unsafe { copy_past_caches(self.place(piece), from, bytes) };
    }

    /// Copies a piece out.
    ///
    /// # Safety
    /// Room for `bytes` bytes at `to`, at most those of a piece.
    pub unsafe fn take(&self, piece: u64, to: u64, bytes: u64) {
        debug_assert!(bytes <= STAGE_PIECE_BYTES);
        // SAFETY: the caller vouches for the target; the place has the bytes. The peer may be faulty and write meanwhile: any bytes will do.
        unsafe {
            asm!(
                "rep movsb",
                inout("rcx") bytes => _,
                inout("rdi") to => _,
                inout("rsi") self.place(piece) => _,
                options(nostack, preserves_flags),
            );
        }
    }
}

/// Copies without leaving the target in this processor's caches: the other one would have to fetch it from there line by line, and this
/// one to take each line back before it can write it again.
///
/// # Safety
/// Both ranges are the caller's; `to` is a multiple of 64.
unsafe fn copy_past_caches(to: u64, from: u64, bytes: u64) {
    let lines = bytes & !63;
    // SAFETY: whole lines first, up to `lines` bytes; then the rest.
    unsafe {
        if lines != 0 {
            asm!(
                "2:",
                "movdqu {a}, [{from} + {at}]",
                "movdqu {b}, [{from} + {at} + 16]",
                "movdqu {c}, [{from} + {at} + 32]",
                "movdqu {d}, [{from} + {at} + 48]",
                "movntdq [{to} + {at}], {a}",
                "movntdq [{to} + {at} + 16], {b}",
                "movntdq [{to} + {at} + 32], {c}",
                "movntdq [{to} + {at} + 48], {d}",
                "add {at}, 64",
                "jnz 2b",
                "sfence",
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                at = inout(reg) 0u64.wrapping_sub(lines) => _,
                from = in(reg) from + lines,
                to = in(reg) to + lines,
                options(nostack),
            );
        }
        core::ptr::copy_nonoverlapping((from + lines) as *const u8, (to + lines) as *mut u8, (bytes - lines) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::region::testing::TestRegion;

    #[test]
    fn pieces_of_all_lengths_arrive() {
        let test = TestRegion::new(2, 2, 1 << 20, 4);
        let area = Area::of(&test.region, NodeId::new(1).unwrap());
        let from: Vec<u8> = (0..STAGE_PIECE_BYTES + 64).map(|n| (n * 7) as u8).collect();
        for (piece, bytes) in (0..300).chain([STAGE_PIECE_BYTES - 4, STAGE_PIECE_BYTES]).enumerate() {
            let mut to = vec![0xeeu8; bytes as usize + 8];
            let skew = piece % 13 * 4;
            // SAFETY: both vectors are long enough.
            unsafe {
                area.put(piece as u64, from[skew..].as_ptr() as u64, bytes);
                area.take(piece as u64, to.as_mut_ptr() as u64, bytes);
            }
            assert_eq!(to[..bytes as usize], from[skew..][..bytes as usize]);
            assert_eq!(to[bytes as usize..], [0xee; 8]);
        }
    }

    #[test]
    fn each_piece_is_claimed_once_and_the_rest_by_the_destination() {
        let test = TestRegion::new(2, 2, 1 << 20, 4);
        let area = Area::of(&test.region, NodeId::new(0).unwrap());
        area.begin(7);
        assert!(area.claim_next(7, 0) && area.claim_next(7, 1) && !area.claim_next(7, 1) && !area.claim_next(6, 2));
        assert_eq!(area.claim_rest(6, 10), None, "another transfer");
        assert_eq!(area.claim_rest(7, 2), None, "nothing is left");
        assert_eq!(area.claim_rest(7, 10), Some(2));
        assert_eq!(area.claim_rest(7, 10), None);
        assert!(!area.claim_next(7, 2));
        area.begin(8);
        assert!(area.claim_next(8, 0));
    }

    /// Both ends claim as fast as they can; each piece has one owner.
    #[test]
    fn claims_of_two_threads_leave_no_piece_out_and_none_twice() {
        let test = TestRegion::new(2, 2, 1 << 20, 4);
        let area = Area::of(&test.region, NodeId::new(0).unwrap());
        for number in 0..2000 {
            area.begin(number);
            let other = std::thread::spawn(move || area.claim_rest(number, 50));
            let own = (0..50).take_while(|&piece| area.claim_next(number, piece)).count() as u64;
            assert_eq!(own, other.join().unwrap().unwrap_or(50));
        }
    }
}
