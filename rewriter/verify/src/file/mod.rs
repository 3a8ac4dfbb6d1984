//! What the file says, as the kernel, the dynamic loader and unwinders read it.
//!
//! Input: the bytes of the file. Output: [`module::Module`]. Nothing is judged here but that it can be read.

pub(crate) mod dynamic;
pub(crate) mod eh_frame_hdr;
pub(crate) mod frames;
pub(crate) mod lsda;
pub(crate) mod memory;
pub(crate) mod module;
