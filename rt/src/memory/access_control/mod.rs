//! Who decides whether an access of the program may go on, and where the bytes of shared memory lie.
//!
//! | file | what |
//! |---|---|
//! | [`interface`] | the trait, and what a fault can mean |
//! | [`tag_tests`] | tags that inserted code tests: the kind that programs run with |
//! | [`program`] | the choice, and the functions of this process |
//! | `tests/aliased` | tags, and memory that faults: a kind that unit tests run |

pub mod interface;

pub mod tag_tests;

pub mod program;

#[cfg(test)]
mod tests;
