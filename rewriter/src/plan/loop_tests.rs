//! What is planned for a loop that tests tags once for several iterations.
//!
//! Input: what [`crate::plan::strips`] and [`crate::plan::copies`] decide. Output: [`Strip`], which [`crate::insert::strip`] turns into bytes.

use crate::base::options::{AccessMode, Options};
use crate::decode::insn::InsnId;
use crate::plan::ranges::{AddressKey, NO_REG, Range};
use blizzard_contract as contract;

/// Four tags: so many bytes from the tested address on are known, wherever in its block it lies.
pub const REACH: i64 = 3 * contract::BLOCK_BYTES as i64 + 1;

/// Of how many blocks one test tells: a comparison of four tags; in guarded code a tag speaks for its block and the next.
pub fn told_at_once(options: &Options) -> i64 {
    if options.access == AccessMode::Guard { 2 } else { 4 }
}

/// Which way the compared register steps, and so which limit is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Up,
    Down,
}

/// Accesses that advance alike from the same registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessStream {
    pub key: AddressKey,
    /// First byte that is tested, in terms of the registers at the head.
    pub lo: i32,
    pub store: bool,
    /// Tests that tell of four blocks each, in guarded code of two ([`told_at_once`]): the first of them, counted from that of `lo`.
    pub tags: Vec<u8>,
}

/// An address that accesses move on from, and never so far that a screen would not tell of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Screen {
    pub key: AddressKey,
    /// What is added to a sum of registers; a single one is asked itself.
    pub lo: i32,
    pub store: bool,
}

impl Screen {
    pub(super) fn of(range: &Range) -> Screen {
        let alone = range.key.index == NO_REG && range.key.base != NO_REG;
        Screen { key: range.key, lo: if alone { 0 } else { range.lo }, store: range.store }
    }
}

/// A loop with such tests.
#[derive(Clone, Debug)]
pub struct Strip {
    pub first: InsnId,
    pub stop: InsnId,
    /// The register that is compared, and by how much it steps.
    pub counter: u8,
    pub step: i32,
    /// The register that the tests use; whether it must be saved and restored.
    pub scratch: u8,
    pub spilled: bool,
    /// Of guarded code: the copy finds its limit in the first word below rsp, not in that register.
    pub limit_below: bool,
    /// Iterations that the tests cover.
    pub iterations: i32,
    pub streams: Vec<AccessStream>,
    /// What is asked before tags are tested; empty: nothing is.
    pub screens: Vec<Screen>,
    /// What one iteration relies upon, at the head; and as a chain.
    pub needs: Vec<Range>,
    pub chain: u32,
    /// The copy of the loop that runs where the tests say that everything may be accessed.
    pub copy: Option<Copy>,
}

impl Strip {
    /// Which limit it uses.
    pub fn limit(&self) -> Limit {
        if self.step > 0 { Limit::Up } else { Limit::Down }
    }
}

/// A copy of a loop's block.
#[derive(Clone, Debug)]
pub struct Copy {
    /// How often the block stands in it.
    pub times: u32,
    /// What is tested beside the streams of the strip.
    pub tables: Vec<AccessStream>,
    /// The accesses that these tests, or screens, cover; of guarded code, all that have no test in the copy.
    pub elements: Vec<InsnId>,
    /// It runs only where the screens find everything private.
    pub private: bool,
}
