//! Debug information of the new code.

pub mod address_map;
pub mod fixed;
pub mod line;
pub mod lists;
pub mod rewrite;
pub mod sections;
