//! The independent audit of a rewritten file.
//!
//! Input: the file's bytes, and if wanted the file that was rewritten; no plan. Output: an [`Audit`]. It shares no code with the stages that
//! plan and emit checks; what both use (the runtime's contract, names of functions that never return) and what a mistake there would do,
//! `DESIGN.md` lists under "What it shares". It decodes with Capstone and derives
//! anew what each instruction accesses, which accesses need no check, what is live, and what each inserted sequence does.
//!
//! **Invariant:** whatever the audit does not understand is a finding. An instruction of the new code is accepted only as
//! inserted code whose effect is known, as an instruction without data access, as an access of an exempt class proven
//! here, or as an access that a complete check guards on every way to it.
//!
//! Source: `rewriter/SEQUENCES.md`, `rewriter/DESIGN.md` ("Exempt accesses"); design section 7.
//!
//! # What an audit does
//!
//! | stage | what it does |
//! |---|---|
//! | [`mod@file`] | reads the file as the kernel, the dynamic loader and unwinders do |
//! | [`decode`] | decodes the new code and derives the effects of each instruction |
//! | [`sites`] | finds the inserted code: what each sequence tests, and what it changes |
//! | [`graph`] | finds basic blocks, jump tables, and calls that do not return |
//! | [`facts`] | solves data flow: live registers, stack addresses, depths of the stack, numbers of 32 bits |
//! | [`judge`] | proves the file, the old code, the frame tables and the new code; what it cannot prove is a finding |
//!
//! [`stages`] runs them. Judges of the file and of the old code run as soon as what they need is known. [`mutation`] changes bytes of a file and asks whether the
//! audit sees it.
//!
//! **Invariant:** a module imports from the folders above its own in the list below, and from its siblings; no modules import each other. `tests/layers.rs` of the
//! crate holds this, so the empty lines between the modules stay: `rustfmt` would sort them.
#![allow(rustdoc::private_intra_doc_links)]

mod error;

mod audit;

mod file;

mod decode;

mod sites;

mod graph;

mod facts;

mod judge;

mod stages;

pub mod mutation;

#[cfg(test)]
mod tests;

pub use audit::{Audit, ByteCounts, Checked, Finding, FrameCounts, OldCode, SuspectCode, Targets, Unmoved};
pub use error::{Error, Result};
pub use judge::file::runtime::{Runtime, Serves};
pub use judge::old_code::evidence::{Around, Run, Suspect, suspects};
pub use mutation::unwinding::Unwinding;

use judge::old_code::original::Original;
use stages::audit_against;

/// What an audit may be given besides the file.
#[derive(Clone, Debug, Default)]
pub struct Inputs<'a> {
    /// The file that was rewritten: then the output is compared with it.
    pub original: Option<&'a [u8]>,
    /// Its name, for messages.
    pub original_name: Option<&'a str>,
    /// The runtimes that a program may have.
    pub runtimes: Vec<Runtime<'a>>,
}

/// Audits the rewritten file `file`; `name` is used in messages.
///
/// # Errors
/// The file is no ELF file for x86-64, or not the output of a rewrite; the original is no ELF file.
pub fn verify_against(file: &[u8], name: &str, inputs: &Inputs) -> Result<Audit> {
    let name_of_original = inputs.original_name.unwrap_or("the original");
    let original = inputs.original.map(|o| Original::read(o, name_of_original)).transpose()?;
    audit_against(file, name, original.as_ref(), &inputs.runtimes, false)
}
