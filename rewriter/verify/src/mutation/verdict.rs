//! What became of a change.
//!
//! Input: a [`Subject`], and the same output with one byte changed. Output: [`ChangeVerdict`].

use crate::mutation::parts::Part;
use crate::mutation::subject::Subject;
use crate::mutation::{code, rules};
use crate::stages::audit_against;

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeVerdict {
    /// The audit has an open finding, or refuses the file.
    Found,
    /// Nothing changes, for this reason.
    Harmless(&'static str),
    /// Neither: a hole in the audit, or a rule that is wanting.
    Missed,
}

impl Subject<'_> {
    /// Judges `mutant`, which differs from the output in the byte at `at`, a place of `part`.
    pub fn judge(&self, part: &Part, mutant: &[u8], at: usize) -> ChangeVerdict {
        if self.reasons(mutant) != Some(0) {
            return ChangeVerdict::Found;
        }
        let rule = match self.instruction_at(at) {
            Some(va) if part.is_code() => code::harmless(self.output, mutant, va),
            _ => None,
        };
        let unwinders = || self.unwinding.as_ref().and_then(|u| u.harmless(mutant, at));
        match rule.or_else(unwinders).or_else(|| rules::harmless(self, part, mutant, at)) {
            Some(why) => ChangeVerdict::Harmless(why),
            None => ChangeVerdict::Missed,
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
