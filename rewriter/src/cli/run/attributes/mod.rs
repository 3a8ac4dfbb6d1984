//! `--attr FILE`: attributes of allocations in programs that nobody changes.
//!
//! Input: a text with a rule a line, a rewritten program with its libraries. Output: the table that the nodes read
//! ([`blizzard_contract::RulesHead`]); after the run what each rule has matched.

pub(crate) mod file;

pub(crate) mod frames;

pub(crate) mod sites;

pub(crate) mod matched;
