//! Accesses that need several ranges at once: gathers, and groups of accesses that one check covers.
//!
//! Input: ranges, or the chain that the rewriter wrote. Output: all of them are accessible.

use crate::memory::access_control::program;
use crate::node::access::{Lane, MAX_LANES};
use crate::process::accesses;
use crate::process::process;
use blizzard_contract::{GROUP_RANGES, GroupRange, miss_desc};

/// The ranges of one access.
pub struct Lanes {
    /// Those that may lie in the segment, and from the end on those that do not.
    list: [Lane; MAX_LANES],
    shared: usize,
    private: usize,
}

impl Lanes {
    pub fn new() -> Lanes {
        let none = Lane { addr: 0, bytes: 0, store: false, masked: false };
        Lanes { list: [none; MAX_LANES], shared: 0, private: 0 }
    }

    /// Takes one of at most [`MAX_LANES`].
    pub fn push(&mut self, lane: Lane) {
        let last = lane.addr.wrapping_add(lane.bytes.wrapping_sub(1));
        if program::in_segment(lane.addr) || program::in_segment(last) {
            self.list[self.shared] = lane;
            self.shared += 1;
        } else {
            self.private += 1;
            self.list[MAX_LANES - self.private] = lane;
        }
    }

    /// Makes all of them accessible at once.
    pub fn require(&self) {
        if self.shared > 0 {
            accesses::require_lanes(&self.list[..self.shared]);
        }
        process::required(&self.list[MAX_LANES - self.private..], self.shared > 0);
    }
}

/// Makes the ranges of the chain at `at` accessible; `register` tells the program's values, by number in encoding order.
///
/// # Safety
/// A chain of [`GroupRange`]s stands at `at`.
pub unsafe fn require_group(at: u64, register: impl Fn(u8) -> u64) {
    let mut lanes = Lanes::new();
    for k in 0..GROUP_RANGES {
        // SAFETY: passed on from the caller: the chain goes on while `more` says so.
        let range = unsafe { (at as *const GroupRange).add(k).read_unaligned() };
        let index = if range.index < 16 { register(range.index).wrapping_mul(range.scale.into()) } else { 0 };
        lanes.push(Lane {
            addr: register(range.base).wrapping_add(index).wrapping_add(i64::from(range.disp) as u64),
            bytes: (range.desc & miss_desc::SIZE_MASK).into(),
            store: range.desc & miss_desc::STORE != 0,
            masked: range.desc & miss_desc::MASKED != 0,
        });
        if range.more == 0 {
            break;
        }
    }
    lanes.require();
}

const _: () = assert!(GROUP_RANGES <= MAX_LANES);
