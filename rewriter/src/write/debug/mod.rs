//! Debug information of the new code.

pub(crate) mod address_map;
pub(crate) mod fixed;
pub(crate) mod line;
pub(crate) mod lists;
pub(crate) mod rewrite;
pub(crate) mod sections;
