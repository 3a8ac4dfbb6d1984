//! An output that changes are made to, with all that the rules ask of it.
//!
//! Input: an original and its output, which the audit accepts. Output: [`Subject`].

use crate::error::{Error, Result};
use crate::judge::file::runtime::Runtime;
use crate::judge::old_code::original::Original;
use crate::mutation::code::decoded;
use crate::mutation::parts::{self, Part};
use crate::mutation::places::Places;
use crate::mutation::unwinding::Unwinding;
use crate::sites::site::get;
use crate::stages::audit_against;
use std::ops::Range;

/// An output that changes are made to.
pub struct Subject<'a> {
    pub(super) name: &'a str,
    pub(super) output: &'a [u8],
    pub(super) original: Original<'a>,
    pub(super) runtimes: Vec<Runtime<'a>>,
    parts: Vec<Part>,
    /// Instructions of the new code: where they stand in the file, and their addresses. Ascending.
    pub(super) instructions: Vec<(Range<usize>, u64)>,
    /// The addresses of the program's own, and what those of tables are relative to.
    pub(super) own: Vec<u64>,
    /// The same without padding.
    pub(super) solid: Vec<u64>,
    pub(super) new_base: u64,
    pub(super) places: Places,
    pub(super) unwinding: Option<Unwinding<'a>>,
}

impl<'a> Subject<'a> {
    /// Reads both files.
    ///
    /// # Errors
    /// One cannot be read, or the audit does not accept the output as it is.
    pub fn new(name: &'a str, original: &'a [u8], output: &'a [u8], runtimes: Vec<Runtime<'a>>) -> Result<Subject<'a>> {
        let compared = Original::read(original, name)?;
        let audit = audit_against(output, name, Some(&compared), &runtimes, false)?;
        if !audit.is_clean() {
            return Err(Error::new(format!("{name}: the audit does not accept the output as it is:\n{audit}")));
        }
        let read = decoded(output);
        let places = Places::of(&read.m, &read.sites);
        let start = output.as_ptr() as usize;
        let mut instructions = Vec::new();
        for (code, data) in [(&read.text, read.m.text.data), (&read.cold, read.m.cold.data)] {
            let offset = data.as_ptr() as usize - start;
            instructions.extend(code.insns.iter().map(|i| {
                let at = offset + (i.va - code.base) as usize;
                (at..at + usize::from(i.len), i.va)
            }));
        }
        instructions.sort_unstable_by_key(|i| i.0.start);
        let all = read.text.insns.iter().enumerate();
        let own = all.filter(|(k, _)| !get(&read.sites.inserted, *k)).map(|(_, i)| i);
        let solid = own.clone().filter(|i| !i.is_nop() && !i.is_int3()).map(|i| i.va).collect();
        let own = own.map(|i| i.va).collect();
        Ok(Subject {
            name,
            output,
            original: compared,
            runtimes,
            parts: parts::of(&read, &places, original, output)?,
            instructions,
            own,
            solid,
            new_base: read.m.info.new_base_va,
            places,
            unwinding: Unwinding::of(output).ok(),
        })
    }

    /// The parts, without those that are empty.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }
}
