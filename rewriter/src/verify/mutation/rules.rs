//! Changes of tables and headers that change nothing: each rule looks at the bytes alone and says why nobody reads them, or why they mean the same.
//!
//! Input: the part, the output, the same with one byte changed, and where. Output: a reason, if there is one. Source: gABI chapters 4 and 5.

use super::super::decode;
use super::super::module::Module;
use super::parts::{self, Part};
use super::Subject;
use std::ops::Range;

/// The parts of the file that segments map.
pub struct Mapped(Vec<Range<usize>>);

impl Mapped {
    pub fn of(m: &Module) -> Mapped {
        let range = |off: u64, bytes: u64| off as usize..off.saturating_add(bytes) as usize;
        Mapped(m.segments.iter().map(|s| range(s.file_off, s.file_bytes)).collect())
    }

    fn has(&self, at: usize) -> bool {
        self.0.iter().any(|r| r.contains(&at))
    }
}

/// Why the change at `at` is none.
pub fn harmless(s: &Subject, part: &Part, mutant: &[u8], at: usize) -> Option<&'static str> {
    match part.name {
        parts::SYMBOLS | parts::NAMES | parts::DEBUG | parts::NOT_LOADED | parts::SECTIONS if !s.mapped.has(at) => {
            Some("no segment maps it: debuggers and profilers read it, neither kernel, loader, runtime nor program")
        }
        parts::BETWEEN if !s.mapped.has(at) => {
            Some("between the tables of the file and in no segment: no header names it")
        }
        parts::BETWEEN => Some("between the tables of a segment: nothing that names a table names it, and no code leads there"),
        parts::FILLING => is_filling(mutant, at)
            .then_some("padding between functions, which no way leads into, became another no-operation or trap"),
        _ => None,
    }
}

/// Whether the byte decodes by itself as what may stand between functions.
fn is_filling(mutant: &[u8], at: usize) -> bool {
    let code = decode::decode(&mutant[at..=at], 0, &[]);
    code.undecoded.is_empty() && code.insns.iter().all(|i| i.is_nop() || i.is_int3())
}
