//! Changed bytes of outputs, which the audit finds or a rule explains.

pub mod files;
pub mod results;
pub mod run;
mod trial;
