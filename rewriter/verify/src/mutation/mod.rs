//! One changed byte of a rewritten file: what the audit says of it, and if nothing, why the change changes nothing.
//!
//! Input: an original and its output, which the audit accepts. Output: the output's parts, each with its places in the file, and a [`ChangeVerdict`] for a
//! change. The parts are told apart by the output's own tables and by comparing it with the original.
//!
//! **Invariant:** a change that the audit accepts is harmless only by a rule that looks at the bytes of the two files and says in a sentence why nobody
//! reads them, or why they mean the same. All else is a [`ChangeVerdict::Missed`].

pub mod code;
mod parts;
mod places;
mod rules;
mod subject;
pub(crate) mod unwinding;
mod verdict;

pub use parts::Part;
pub use subject::Subject;
pub use verdict::ChangeVerdict;
