//! Notes that change how the file runs, and the one that names it.
//!
//! Input: module, the original's build id. Output: findings. Old addresses have no `endbr64` any more and the runtime's handlers know no shadow stack, so no note
//! may ask for IBT or SHSTK: the loader would turn them on. The build id is derived anew from the new code and the original's id.
//!
//! Source: psABI for x86-64 section 13.1, gABI chapter 5 (note sections), `rewriter/DESIGN.md`.

use crate::audit::Audit;
use crate::file::memory::{PT_GNU_PROPERTY, PT_NOTE, number};
use crate::file::module::Module;
use sha2::{Digest, Sha256};

const NT_GNU_PROPERTY_TYPE_0: u64 = 5;
const X86_FEATURE_1_AND: u64 = 0xc000_0002;
const IBT_AND_SHSTK: u64 = 3;

/// No note asks for what the output cannot do.
pub(crate) fn judge(m: &Module, audit: &mut Audit) {
    let notes = m.kernel.iter().filter(|p| matches!(p.kind, PT_NOTE | PT_GNU_PROPERTY));
    for p in notes {
        let align = if p.align == 8 { 8 } else { 4 };
        let Some(bytes) = m.bytes_at(p.va, p.file as usize) else { continue };
        if properties(bytes, align).any(|(kind, value)| kind == X86_FEATURE_1_AND && value & IBT_AND_SHSTK != 0) {
            audit.finding(p.va, "notes".into(), "the file says that it works with IBT or SHSTK, which it does not");
        }
    }
}

/// The properties of four bytes in the notes of a segment: kinds and values.
fn properties(notes: &[u8], align: usize) -> impl Iterator<Item = (u64, u64)> + '_ {
    let word = |at: usize| notes.get(at..at.checked_add(4)?).map(number);
    let mut at = 0;
    let descriptions = std::iter::from_fn(move || {
        let (name, bytes, kind) = (word(at)? as usize, word(at + 4)? as usize, word(at + 8)?);
        let from = (at + 12 + name).next_multiple_of(align);
        let description = notes.get(from..from.checked_add(bytes)?)?;
        let gnu = notes.get(at + 12..at + 16) == Some(b"GNU\0");
        at = (from + bytes).next_multiple_of(align);
        Some(if gnu && kind == NT_GNU_PROPERTY_TYPE_0 { description } else { &[] })
    });
    descriptions.flat_map(|d| {
        let mut at = 0;
        std::iter::from_fn(move || {
            let (kind, bytes) = (number(d.get(at..at + 4)?), number(d.get(at + 4..at + 8)?) as usize);
            let value = d.get(at + 8..at.checked_add(8)?.checked_add(bytes)?)?;
            at = (at + 8 + bytes).next_multiple_of(8);
            Some((kind, if bytes == 4 { number(value) } else { 0 }))
        })
    })
}

/// The build id of an output: as much of the hash of its new code and the original's id as the id is long.
pub(crate) fn build_id(m: &Module, original: &[u8]) -> Option<Vec<u8>> {
    let code = m.bytes_at(m.info.code_va, usize::try_from(m.info.code_bytes).ok()?)?;
    let hash = Sha256::new().chain_update(code).chain_update(original).finalize();
    let mut id = original.to_vec();
    let n = id.len().min(hash.len());
    id[..n].copy_from_slice(&hash[..n]);
    Some(id)
}
