//! Ranges of bytes that are named by registers, and what an instruction does to such names.
//!
//! Input: the form of an address, displacement and size of an access. Output: [`Range`]s, which may be compared, and followed back over [`RangeStep`]s.
//! **Invariant**: two ranges with equal keys at one place are relative to the same address.

/// No register: as base or index of a [`AddressKey`].
pub const NO_REG: u8 = 16;

/// Most bytes that one check covers: two blocks at most, each of them touched by an access.
pub const SPAN: i64 = 64;

/// Instructions back that registers are followed to see that they hold the same.
pub const ALIKE: usize = 64;

/// What an address is formed from, the displacement aside. Registers are numbers in encoding order; of two that count once each the lower one
/// is the base, so that a sum has one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AddressKey {
    pub base: u8,
    pub index: u8,
    pub scale: u8,
}

impl AddressKey {
    /// The key of an address that is formed so.
    pub fn new(base: u8, index: u8, scale: u8) -> AddressKey {
        let scale = if index == NO_REG { 1 } else { scale };
        let (base, index) = if scale == 1 && index < base { (index, base) } else { (base, index) };
        AddressKey { base, index, scale }
    }
}

/// Bytes relative to a [`AddressKey`] at some place, and what may be done to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Range {
    pub key: AddressKey,
    pub lo: i32,
    pub hi: i32,
    pub store: bool,
}

impl Range {
    /// Whether what allows `self` allows `other`.
    pub fn covers(&self, other: &Range) -> bool {
        self.key == other.key && self.lo <= other.lo && other.hi <= self.hi && (self.store || !other.store)
    }

    /// The same addresses in terms of the registers that `like` is named by, where those hold the same plus a constant: both are followed
    /// back through `steps`, which are in front of both, until their registers are the same.
    pub fn named_like<'s>(&self, like: &Range, steps: impl DoubleEndedIterator<Item = &'s RangeStep>) -> Option<Range> {
        let (mut own, mut other) = (*self, *like);
        let mut steps = steps.rev().take(ALIKE);
        while own.key != other.key {
            let step = steps.next()?;
            (own, other) = (own.before(step)?, other.before(step)?);
        }
        let moved = |at: i32| at.checked_add(like.lo.checked_sub(other.lo)?);
        Some(Range { key: like.key, lo: moved(own.lo)?, hi: moved(own.hi)?, store: self.store })
    }

    /// The same addresses in front of an instruction, when `self` stands behind it. `None`: it changes a register in another way
    /// than by a constant.
    pub fn before(mut self, step: &RangeStep) -> Option<Range> {
        let mut moved = 0i64;
        for (reg, scale) in [(&mut self.key.base, 1), (&mut self.key.index, i64::from(self.key.scale))] {
            if *reg == step.dst && *reg < NO_REG {
                *reg = step.src;
                moved += scale * i64::from(step.off);
            } else if step.writes(*reg) {
                return None;
            }
        }
        self.lo = i32::try_from(i64::from(self.lo) + moved).ok()?;
        self.hi = i32::try_from(i64::from(self.hi) + moved).ok()?;
        self.key = AddressKey::new(self.key.base, self.key.index, self.key.scale);
        Some(self)
    }
}

/// What an instruction does to addresses and to what has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RangeStep {
    /// General registers it may change.
    pub(super) written: u16,
    /// `dst = src + off`; 16: nothing of that kind.
    pub(super) dst: u8,
    pub(super) src: u8,
    pub(super) off: i32,
    /// Checks in front of it do not count for it, nor behind it.
    pub(super) kills: bool,
    /// It kills only because a poll stands in front of it.
    pub(super) only_polls: bool,
    /// No check counts behind it, its own included.
    pub(super) ends: bool,
}

impl RangeStep {
    /// A bit for each register that is changed, or of which another one becomes a copy.
    #[inline]
    pub(super) fn touched(&self) -> u16 {
        self.written | if self.dst < NO_REG { 1 << self.src } else { 0 }
    }

    #[inline]
    pub(super) fn writes(&self, reg: u8) -> bool {
        reg < NO_REG && self.written >> reg & 1 != 0
    }
}
