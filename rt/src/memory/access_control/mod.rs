//! Who decides whether an access of the program may go on, and where the bytes of shared memory lie.
//!
//! | file | what |
//! |---|---|
//! | [`interface`] | the trait, and what a fault can mean |
//! | [`tag_tests`] | tags that inserted code tests: the kind that programs run with |
//! | [`program`] | the choice, and the functions of this process |
//! | `aliased` | tags, and memory that faults: a kind of tests |

pub mod interface;

pub mod tag_tests;

pub mod program;

#[cfg(test)]
mod aliased;
#[cfg(test)]
mod tests;
