//! The audit of [`blizzard_verify`], with the runtimes that this build puts into programs.
//!
//! Input: a rewritten file, and if wanted its original. Output: an [`Audit`]. **Invariant**: the audit sees the files only, nothing of the rewrite.

pub use blizzard_verify::{Around, Audit, Finding, Inputs, Run, Runtime, Suspect, mutation, suspects, verify_against};

use crate::base::error::{Error, Result};
use crate::base::options::AccessMode;
use crate::write::runtime_blob::{FILES, RuntimeFile};
use blizzard_verify::Serves;

/// The runtimes that programs have which this build rewrites.
pub fn runtimes() -> Vec<Runtime<'static>> {
    let serves = |file: &RuntimeFile| Serves { guard: file.access == AccessMode::Guard, many_nodes: file.many_nodes };
    FILES.iter().map(|file| Runtime::File { file: file.bytes, serves: Some(serves(file)) }).collect()
}

/// Audits the rewritten file `file`; `name` is used in messages.
///
/// # Errors
/// The file is no ELF file for x86-64, or not the output of a rewrite.
pub fn verify(file: &[u8], name: &str) -> Result<Audit> {
    verify_with(file, name, None)
}

/// As [`verify`], and compares the output with the file that was rewritten.
///
/// # Errors
/// As [`verify`], or `original` is no ELF file.
pub fn verify_with(file: &[u8], name: &str, original: Option<&[u8]>) -> Result<Audit> {
    Ok(verify_against(file, name, &Inputs { original, original_name: None, runtimes: runtimes() })?)
}

impl From<blizzard_verify::Error> for Error {
    fn from(e: blizzard_verify::Error) -> Error {
        let causes = e.cause.into_iter().collect();
        Error { causes, help: e.help.map(str::to_owned), ..Error::new(e.what) }
    }
}
