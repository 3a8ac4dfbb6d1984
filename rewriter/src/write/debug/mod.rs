//! Debug information of the new code.

pub mod fixed;
pub mod line;
pub mod lists;
pub mod rewrite;
pub mod sections;
