//! What became of an access, or what else was inserted: the classes that reports count.
//!
//! Input: none. Output: [`Class`], with a name for people. **Invariant**: a class's number is what the section `.blizzard.blocks` holds.

use serde::Serialize;

/// What became of an access, or what else was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Class {
    // Accesses without a check of their own; see DESIGN.md for the proofs.
    Stack,
    Global,
    Tls,
    ImplicitStack,
    Addr32,
    NotRequested,
    /// Another check covers it.
    Merged,
    /// Tests outside the loop, or at its head for several iterations, cover it.
    Hoisted,
    // Accesses with a check in front.
    Load,
    Store,
    /// More than a block can hold: tested by range.
    Range,
    /// String instructions.
    String,
    /// Gathers and scatters.
    Lanes,
    // Not accesses.
    /// A check that stands for accesses elsewhere.
    Apart,
    Poll,
    /// Comparison of a loop's counter with the end of what has been tested, and what moves that end.
    Strip,
    /// Test of a stack pointer that was taken from something else.
    StackTest,
}

impl Class {
    pub const ALL: [Class; 17] = [
        Class::Stack,
        Class::Global,
        Class::Tls,
        Class::ImplicitStack,
        Class::Addr32,
        Class::NotRequested,
        Class::Merged,
        Class::Hoisted,
        Class::Load,
        Class::Store,
        Class::Range,
        Class::String,
        Class::Lanes,
        Class::Apart,
        Class::Poll,
        Class::Strip,
        Class::StackTest,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Class::Stack => "exempt: stack",
            Class::Global => "exempt: global",
            Class::Tls => "exempt: thread-local",
            Class::ImplicitStack => "exempt: push, pop, call, ret",
            Class::Addr32 => "exempt: 32-bit address",
            Class::NotRequested => "not asked for",
            Class::Merged => "merged into another check",
            Class::Hoisted => "checked for several iterations",
            Class::Load => "load, checked inline",
            Class::Store => "store, checked inline",
            Class::Range => "large, checked by range",
            Class::String => "string instruction, by range",
            Class::Lanes => "gather or scatter",
            Class::Apart => "checks for other places",
            Class::Poll => "polls",
            Class::Strip => "ends of what has been tested",
            Class::StackTest => "tests of the stack pointer",
        }
    }

    /// Whether an access of the program stands behind it.
    pub fn is_access(self) -> bool {
        !matches!(self, Class::Apart | Class::Poll | Class::Strip | Class::StackTest)
    }

    /// Whether a check is executed.
    pub fn is_check(self) -> bool {
        matches!(self, Class::Load | Class::Store | Class::Range | Class::String | Class::Lanes | Class::Apart)
    }
}
