//! One changed byte of a rewritten file: what the audit says of it, and if nothing, why the change changes nothing.
//!
//! Input: an original and its output, which the audit accepts. Output: the output's parts, each with its places in the file, and a [`Verdict`] for a
//! change. The parts are told apart by the output's own tables and by comparing it with the original.
//!
//! **Invariant:** a change that the audit accepts is harmless only by a rule that looks at the bytes of the two files and says in a sentence why nobody
//! reads them, or why they mean the same. All else is a [`Verdict::Missed`].

pub mod code;
mod parts;
mod rules;

pub use parts::Part;

use super::original::Original;
use super::sites::get;
use super::unwinding::Unwinding;
use super::{Runtime, audit_against};
use crate::error::{Error, Result};
use code::decoded;
use rules::Places;
use std::ops::Range;

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The audit has an open finding, or refuses the file.
    Found,
    /// Nothing changes, for this reason.
    Harmless(&'static str),
    /// Neither: a hole in the audit, or a rule that is wanting.
    Missed,
}

/// An output that changes are made to.
pub struct Subject<'a> {
    name: &'a str,
    output: &'a [u8],
    original: Original<'a>,
    runtimes: Vec<Runtime<'a>>,
    parts: Vec<Part>,
    /// Instructions of the new code: where they stand in the file, and their addresses. Ascending.
    instructions: Vec<(Range<usize>, u64)>,
    /// The addresses of the program's own, and what those of tables are relative to.
    own: Vec<u64>,
    /// The same without padding.
    solid: Vec<u64>,
    new_base: u64,
    places: Places,
    unwinding: Option<Unwinding<'a>>,
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
            parts: parts::of(&read, original, output)?,
            instructions,
            own,
            solid,
            new_base: read.m.info.new_base_va,
            places: Places::of(&read.m, &read.sites),
            unwinding: Unwinding::of(output).ok(),
        })
    }

    /// The parts, without those that are empty.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Judges `mutant`, which differs from the output in the byte at `at`, a place of `part`.
    pub fn judge(&self, part: &Part, mutant: &[u8], at: usize) -> Verdict {
        if self.reasons(mutant) != Some(0) {
            return Verdict::Found;
        }
        let rule = match self.instruction_at(at) {
            Some(va) if part.is_code() => code::harmless(self.output, mutant, va),
            _ => None,
        };
        let unwinders = || self.unwinding.as_ref().and_then(|u| u.harmless(mutant, at));
        match rule.or_else(unwinders).or_else(|| rules::harmless(self, part, mutant, at)) {
            Some(why) => Verdict::Harmless(why),
            None => Verdict::Missed,
        }
    }

    /// How many findings are open until the first stage that finds any ends; none where the file is refused.
    fn reasons(&self, mutant: &[u8]) -> Option<usize> {
        audit_against(mutant, self.name, Some(&self.original), &self.runtimes, true).ok().map(|audit| audit.open.len())
    }

    /// The address of the new code's instruction with the byte at `at`.
    fn instruction_at(&self, at: usize) -> Option<u64> {
        let k = self.instructions.partition_point(|i| i.0.start <= at).checked_sub(1)?;
        let (bytes, va) = &self.instructions[k];
        bytes.contains(&at).then_some(*va)
    }
}
