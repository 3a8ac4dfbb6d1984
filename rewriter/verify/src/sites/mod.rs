//! Inserted code: the sequences that Blizzard puts in front of accesses, onto back-edges and behind changes of rsp, and what each makes sure of.
//!
//! Input: decoded text and cold code. Output: [`site::Sites`]. All else is the program's own code.

pub(crate) mod alias;
pub(crate) mod find;
pub(crate) mod gates;
pub(crate) mod site;
pub(crate) mod stack_test;
pub(crate) mod strips;
pub(crate) mod symbolic;
pub(crate) mod tested_address;
pub(crate) mod walk;
