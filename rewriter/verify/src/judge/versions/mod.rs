//! Guarded code: full code is plain code with tests, and who is in one version may go on in the other.
//!
//! The rest of the audit reads plain code as the program. What is proven here carries its results over to full code: both versions have the same
//! instructions in the same order, and control goes the same ways.

pub(crate) mod flow;
pub(crate) mod pairs;
pub(crate) mod probes;
pub(crate) mod records;
pub(crate) mod redirects;
pub(crate) mod rows;
pub(crate) mod sequences;
