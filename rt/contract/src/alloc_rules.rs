//! Which allocations get other attributes than the program asks for: a table that the launcher makes and every node reads.
//!
//! It stands in the run's region at [`RegionHeader::rules_off`](crate::RegionHeader::rules_off): a [`RulesHead`], [`SEEN_SITES`] words, the rules, the ranges, the
//! frames. Each process counts in it what its rules have matched. **Invariant**: ranges and frames are sorted by where they begin, and ranges do not overlap.
//!
//! A place in code has a name that does not depend on where a file is loaded: [`ModuleInfo::number`](crate::ModuleInfo::number) in the upper half, the distance from
//! [`ModuleInfo::new_base_va`](crate::ModuleInfo::new_base_va) in the lower one.

/// How many of each there are.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RulesHead {
    pub rules: u32,
    pub ranges: u32,
    pub frames: u32,
    pub _pad: u32,
}

/// Places that are remembered because they have allocated: as many words, 0 where none stands.
pub const SEEN_SITES: usize = 512;
/// So many callers are looked at.
pub const RULE_CALLERS: usize = 8;

/// What an allocation gets. Zero leaves an attribute as it is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocRule {
    /// Not for a place in code, but for a node's allocation of this number, from 1.
    pub nth: u64,
    pub block_bytes: u32,
    /// [`alloc_homes`](crate::alloc_homes).
    pub homes: u32,
    pub node: u32,
    pub protocol: u32,
    /// What it has matched, of all nodes; changed atomically.
    pub allocations: u64,
    pub bytes: u64,
}

/// [`SiteRange::rule`] of code through which programs call the runtime: who calls it is what counts.
pub const CLIENT_CODE: u32 = u32::MAX;

/// A call that ends at a name in `(start, end]` has the rule of that number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteRange {
    pub start: u64,
    pub end: u64,
    pub rule: u32,
    pub _pad: u32,
}

/// Where the caller's registers are, from here on in the code.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameRow {
    pub start: u64,
    /// What the call began with in `rsp` is at this distance ([`FrameRow::BASE`] cleared) from the register that the low bits say; 0: not known.
    pub cfa: i32,
    /// The caller's `rbp` stands at this distance from there; 0: it has not been changed.
    pub rbp: i32,
}

impl FrameRow {
    /// The low bits of [`FrameRow::cfa`], and their values.
    pub const BASE: i32 = 3;
    pub const FROM_RSP: i32 = 1;
    pub const FROM_RBP: i32 = 2;
}

/// Bytes of a table.
pub const fn rules_bytes(head: &RulesHead) -> u64 {
    (size_of::<RulesHead>() + SEEN_SITES * 8) as u64
        + head.rules as u64 * size_of::<AllocRule>() as u64
        + head.ranges as u64 * size_of::<SiteRange>() as u64
        + head.frames as u64 * size_of::<FrameRow>() as u64
}
