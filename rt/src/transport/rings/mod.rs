//! Rings in memory that the nodes of one machine share.
//!
//! Purpose: the transport of a run on one machine. Input: the region that the launcher makes. Output: [`ends::Ends`] and [`ends::Own`].
//! [`ring`] and [`shuttle`] are the two ways of a message, [`link`] chooses between them; [`doorbell`] is how a receiver learns of it.

pub mod ring;

pub mod shuttle;

pub mod link;

pub mod doorbell;

pub mod ends;

#[cfg(test)]
mod tests;
