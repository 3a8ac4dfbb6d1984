//! The judges: each finds open what it cannot prove.
//!
//! Input: what the stages before derived. Output: findings and counts in the [`crate::audit::Audit`].
//! A judge imports from the folders above its own in this list, and from its siblings.

pub(crate) mod file;

pub(crate) mod old_code;

pub(crate) mod unwinding;

pub(crate) mod versions;

pub(crate) mod code;
