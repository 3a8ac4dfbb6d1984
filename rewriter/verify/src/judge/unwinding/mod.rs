//! The frame tables: unwinders find in the new code what they found in the old.

pub(crate) mod cfi;
pub(crate) mod frame_index;
