//! What the stages call an instruction: its number, how control leaves it, who takes its address.
//!
//! Input: none. Output: types that [`crate::decode::insns::Insns`] and its parts are made of.

/// Number of an instruction in [`crate::decode::insns::Insns`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InsnId(pub u32);

impl InsnId {
    /// As a slice index.
    #[inline]
    pub fn ix(self) -> usize {
        self.0 as usize
    }
}

/// How control leaves an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    Next,
    /// Conditional direct branch, also `loop`, `jrcxz` and `xbegin`.
    Cond,
    Jmp,
    Call,
    IndirectJmp,
    IndirectCall,
    Ret,
    /// ud2, hlt: nothing follows.
    Stop,
}

/// An instruction whose address another one puts into a register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Label {
    pub at: InsnId,
    /// The one that does so.
    pub by: InsnId,
}
