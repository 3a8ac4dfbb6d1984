//! Who decides whether an access of the program may go on, and where the bytes of shared memory lie.
//!
//! | file | what |
//! |---|---|
//! | [`interface`] | the trait, and what a fault can mean |
//! | [`tag_tests`] | tags that inserted code tests: the kind of tested code |
//! | `guard` | memory that faults, and tags that full code tests; with the feature `guard` |
//! | `written` | with it: which pages of a mapping this process has written |
//! | `fork_copies` | with it: a child of `fork` gets memory of its own |
//! | [`program`] | the choice, and the functions of this process |
//! | `tests/aliased` | tags, and memory that faults: a kind that unit tests run |

pub mod interface;

pub mod tag_tests;

#[cfg(any(feature = "guard", test))]
pub mod guard;

#[cfg(any(feature = "guard", test))]
pub mod written;

#[cfg(any(feature = "guard", test))]
pub mod fork_copies;

pub mod program;

#[cfg(test)]
mod tests;
