//! The stages, in order.

use crate::error::{Error, Result};
use crate::options::Options;

/// What a rewrite produced.
#[derive(Debug)]
pub struct Rewritten {
    /// The output file's bytes.
    pub bytes: Vec<u8>,
}

/// Rewrites the ELF file in `input`; `name` is used in messages.
///
/// # Errors
/// What is wrong with the input, or the list of refusals.
pub fn rewrite(input: &[u8], name: &str, options: &Options) -> Result<Rewritten> {
    let _ = (input, options);
    Err(Error::new(format!("{name}: not an ELF file")))
}
