//! Block access tags of user-managed pages (Tempest 1.2.1, section 3.2).
//!
//! Purpose: table 2 as a pure function, and the operations on blocks. Input: block specifiers as programs give them (any address in the
//! block, a length), tag changes. Output: tags in the tag table, data in the block.
//! **Invariants**: only mapped user-managed pages are touched; with one computation thread per node nothing comes between data and tag
//! of one operation (section 3.2.6); a change that table 2 does not allow sets the tag that the operation names.

use crate::kernel::owned::PerProcess;
use crate::kernel::print;
use crate::memory::access_control::interface::AccessControl;
use crate::memory::access_control::program::{PROGRAM, runtime_address};
use crate::process::process;
use crate::process::tags;
use blizzard_contract::{BLOCK_BYTES, Counter, listed};
use blizzard_protocol::tag::Tag;
use core::fmt;
use core::sync::atomic::{AtomicU8, Ordering};

listed! {
    /// `TPPI_BlkTagChange`, in the order of section 3.2.5, with the names of C.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Change: name {
        ValidateRw: "TPPI_Blk_Validate_RW",
        UpgradeRw: "TPPI_Blk_Upgrade_RW",
        ValidateRo: "TPPI_Blk_Validate_RO",
        DowngradeRo: "TPPI_Blk_Downgrade_RO",
        Invalidate: "TPPI_Blk_Invalidate",
        MarkBusy: "TPPI_Blk_Mark_Busy",
        NoTagChange: "TPPI_Blk_No_Tag_Change",
        InvalidToBusy: "TPPI_Blk_Invalid_To_Busy",
        BusyToInvalid: "TPPI_Blk_Busy_To_Invalid",
    }
}

/// The tags by their C values (section 3.2.1), with their names.
pub const TAGS: [(Tag, &str); 4] = [
    (Tag::Busy, "TPPI_Blk_Busy"),
    (Tag::Invalid, "TPPI_Blk_Invalid"),
    (Tag::ReadOnly, "TPPI_Blk_ReadOnly"),
    (Tag::Writable, "TPPI_Blk_Writable"),
];

impl Change {
    pub fn from_c(value: u32) -> Option<Change> {
        Change::ALL.get(value as usize).copied()
    }

    /// The tag that a block tagged `now` gets.
    pub const fn result(self, now: Tag) -> Tag {
        match self {
            Change::ValidateRw | Change::UpgradeRw => Tag::Writable,
            Change::ValidateRo | Change::DowngradeRo => Tag::ReadOnly,
            Change::Invalidate | Change::BusyToInvalid => Tag::Invalid,
            Change::MarkBusy | Change::InvalidToBusy => Tag::Busy,
            Change::NoTagChange => now,
        }
    }

    /// Whether table 2 has the change in the row of `now`.
    pub const fn is_allowed(self, now: Tag) -> bool {
        match self {
            Change::ValidateRw | Change::Invalidate | Change::MarkBusy | Change::NoTagChange => true,
            Change::UpgradeRw => matches!(now, Tag::ReadOnly),
            Change::ValidateRo => matches!(now, Tag::Invalid | Tag::Busy),
            Change::DowngradeRo => matches!(now, Tag::Writable),
            Change::InvalidToBusy => matches!(now, Tag::Invalid),
            Change::BusyToInvalid => matches!(now, Tag::Busy),
        }
    }
}

/// The C value of a tag.
pub fn tag_to_c(tag: Tag) -> u32 {
    TAGS.iter().position(|(known, _)| *known == tag).unwrap_or(0) as u32
}

/// The tag of a C value.
pub fn tag_from_c(value: u32) -> Option<Tag> {
    TAGS.get(value as usize).map(|(tag, _)| *tag)
}

struct TagName(Tag);

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TAGS[tag_to_c(self.0) as usize].1)
    }
}

/// The tag of the block that holds `addr`; `None` when the byte is no tag.
pub fn tag(addr: u64) -> Option<Tag> {
    PROGRAM.tag(addr)
}

/// Sets the tags of all blocks of `[addr, addr + bytes)`, which starts and ends with a block.
pub fn set_tags(addr: u64, bytes: u64, tag: Tag) {
    PROGRAM.set_tags(addr, bytes, tag);
}

/// A block of user-managed memory, minimal or super (section 3.2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSpec {
    pub addr: u64,
    pub bytes: u64,
}

impl BlockSpec {
    /// The block of `len` bytes that holds `va`; `None` when the length is no power of two or below the minimum.
    pub const fn new(va: u64, len: i32) -> Option<BlockSpec> {
        if len < BLOCK_BYTES as i32 || !(len as u32).is_power_of_two() {
            return None;
        }
        let bytes = len as u64;
        Some(BlockSpec { addr: va & !(bytes - 1), bytes })
    }

    pub const fn contains(self, addr: u64) -> bool {
        addr >= self.addr && addr - self.addr < self.bytes
    }
}

/// The change of a call of `function`, or the end of the run.
pub fn require_change(function: &str, value: u32) -> Change {
    Change::from_c(value)
        .unwrap_or_else(|| process::fail(format_args!("{function}: {value} is not a TPPI_BlkTagChange")))
}

/// Changes the tags of a mapped block; with `debug`, compares each change with table 2.
pub fn change(function: &str, block: BlockSpec, change: Change, debug: bool) {
    if change == Change::NoTagChange {
        return;
    }
    for at in (block.addr..block.addr + block.bytes).step_by(BLOCK_BYTES as usize) {
        let Some(now) = PROGRAM.tag(at) else {
            process::fail(format_args!("{function}: the tag of block {at:#x} was overwritten"));
        };
        if debug && !change.is_allowed(now) {
            report(function, at, change, now);
        }
        PROGRAM.set_tags(at, BLOCK_BYTES, change.result(now));
    }
}

/// Counts a change that table 2 does not allow, and tells about the first.
#[cold]
fn report(function: &str, at: u64, change: Change, now: Tag) {
    static TOLD: PerProcess<AtomicU8> = PerProcess::new(AtomicU8::new(0));
    tags::count(Counter::BadTagChanges);
    if TOLD.swap(1, Ordering::Relaxed) == 0 {
        print::warning(format_args!(
            "{function}: {} on block {at:#x}, whose tag is {}, is not in table 2 of the Tempest specification (3.2.5); later \
             ones are only counted",
            change.name(),
            TagName(now)
        ));
    }
}

/// Copies `bytes` bytes from anywhere into user-managed memory or back.
///
/// # Safety
/// Both ranges are the program's or the runtime's, mapped, and do not overlap.
pub unsafe fn copy(from: u64, to: u64, bytes: u64) {
    // SAFETY: passed on from the caller.
    unsafe { core::ptr::copy_nonoverlapping(runtime_address(from), runtime_address(to), bytes as usize) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 3.2.5, table 2: for each current tag, the operations in each column.
    #[test]
    fn table_2_is_complete() {
        use Change::*;
        let [busy, invalid, read_only, writable] = [Tag::Busy, Tag::Invalid, Tag::ReadOnly, Tag::Writable];
        type Column = (Tag, &'static [Change]);
        let table: [(Tag, [Column; 4]); 4] = [
            (
                invalid,
                [
                    (invalid, &[NoTagChange, Invalidate]),
                    (busy, &[InvalidToBusy, MarkBusy]),
                    (read_only, &[ValidateRo]),
                    (writable, &[ValidateRw]),
                ],
            ),
            (
                busy,
                [
                    (invalid, &[BusyToInvalid, Invalidate]),
                    (busy, &[NoTagChange, MarkBusy]),
                    (read_only, &[ValidateRo]),
                    (writable, &[ValidateRw]),
                ],
            ),
            (
                read_only,
                [
                    (invalid, &[Invalidate]),
                    (busy, &[MarkBusy]),
                    (read_only, &[NoTagChange]),
                    (writable, &[UpgradeRw, ValidateRw]),
                ],
            ),
            (
                writable,
                [
                    (invalid, &[Invalidate]),
                    (busy, &[MarkBusy]),
                    (read_only, &[DowngradeRo]),
                    (writable, &[NoTagChange, ValidateRw]),
                ],
            ),
        ];
        for (now, columns) in table {
            for change in Change::ALL {
                let column = columns.iter().find(|(_, changes)| changes.contains(&change));
                assert_eq!(change.is_allowed(now), column.is_some(), "{change:?} on {now:?}");
                if let Some((next, _)) = column {
                    assert_eq!(change.result(now), *next, "{change:?} on {now:?}");
                }
            }
        }
    }

    #[test]
    fn c_values_and_changes_agree() {
        for (value, change) in (0..).zip(Change::ALL) {
            assert_eq!((change as u32, Change::from_c(value)), (value, Some(change)));
        }
        assert_eq!((Change::from_c(9), tag_from_c(4)), (None, None));
        for (value, (tag, _)) in (0..).zip(TAGS) {
            assert_eq!((tag_to_c(tag), tag_from_c(value)), (value, Some(tag)));
        }
    }

    /// Section 3.2.3: any address in the block names it; lengths are powers of two from the minimum on.
    #[test]
    fn blocks_are_named_by_any_address_in_them() {
        for va in [0x1000, 0x1001, 0x103f] {
            assert_eq!(BlockSpec::new(va, 64), Some(BlockSpec { addr: 0x1000, bytes: 64 }));
        }
        assert_eq!(BlockSpec::new(0x1fff, 256), Some(BlockSpec { addr: 0x1f00, bytes: 256 }));
        for len in [0, 1, 32, 63, 96, 100, -64, i32::MIN] {
            assert_eq!(BlockSpec::new(0x1000, len), None, "{len}");
        }
        let block = BlockSpec::new(0x1080, 128).unwrap();
        assert!(block.contains(0x1080) && block.contains(0x10ff) && !block.contains(0x1100) && !block.contains(0x107f));
    }
}
