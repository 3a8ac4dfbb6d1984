//! What the output may no longer say about itself.
//!
//! Purpose: a file that is marked for indirect-branch tracking (IBT) has `endbr64` wherever an indirect branch may lead, and
//! one for the shadow stack (SHSTK) returns only where it was called from. Old addresses hold springboards and trap bytes, no
//! `endbr64`; and the runtime's handlers have not been tried with a shadow stack. So both marks are taken from the output's
//! copy of the notes; loader and kernel then run it without. And its build id is another one, since its code is: debuggers and profilers
//! look symbols up by it, and took those of the original. Input: the output file and its program headers. Invariant: nothing but
//! these two bits and the build id changes.
//! Source: psABI for x86-64 section 13.1 (`.note.gnu.property`), gABI chapter 5 (note sections), `ld --build-id`.

use crate::write::output::Output;
use object::LittleEndian as LE;
use object::elf::{self, ProgramHeader64};
use sha2::{Digest, Sha256};
use std::ops::Range;

const NT_GNU_BUILD_ID: u32 = 3;
const NT_GNU_PROPERTY_TYPE_0: u32 = 5;
const GNU_PROPERTY_X86_FEATURE_1_AND: u32 = 0xc000_0002;
const IBT_AND_SHSTK: u32 = 3;

/// Clears the marks in every note of the output, which begins with a copy of the `input`, and makes a build id of the old one and of `code`,
/// which has seen the new code.
pub fn correct(out: &mut Output, input: &[u8], phdrs: &[ProgramHeader64<LE>], code: &Sha256) {
    for p in phdrs {
        if matches!(p.p_type.get(LE), elf::PT_NOTE | elf::PT_GNU_PROPERTY) {
            let (off, bytes) = (p.p_offset.get(LE) as usize, p.p_filesz.get(LE) as usize);
            let align = if p.p_align.get(LE) == 8 { 8 } else { 4 };
            if let Some(notes) = off.checked_add(bytes).and_then(|end| input.get(off..end)) {
                for (at, value) in cleared(notes, align) {
                    out.patch((off + at) as u64, &value.to_le_bytes());
                }
                for id in gnu_notes(notes, align, NT_GNU_BUILD_ID) {
                    let hash = code.clone().chain_update(&notes[id.clone()]).finalize();
                    let new = &hash[..id.len().min(hash.len())];
                    out.patch((off + id.start) as u64, new);
                }
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// The contents of the GNU notes of one kind.
fn gnu_notes(notes: &[u8], align: usize, wanted: u32) -> Vec<Range<usize>> {
    let mut out = Vec::new();
    let mut at = 0;
    while let (Some(name), Some(desc), Some(kind)) = (word(notes, at), word(notes, at + 4), word(notes, at + 8)) {
        let name_at = at + 12;
        let desc_at = (name_at + name as usize).next_multiple_of(align);
        let end = desc_at + desc as usize;
        if kind == wanted && notes.get(name_at..name_at + 4) == Some(b"GNU\0") && end <= notes.len() {
            out.push(desc_at..end);
        }
        at = end.next_multiple_of(align);
    }
    out
}

/// Offsets and new values of the words that hold marks.
fn cleared(notes: &[u8], align: usize) -> Vec<(usize, u32)> {
    let all = gnu_notes(notes, align, NT_GNU_PROPERTY_TYPE_0);
    let features = all.into_iter().flat_map(|desc| features(notes, desc));
    features.map(|at| (at, word(notes, at).expect("lies in the note") & !IBT_AND_SHSTK)).collect()
}

/// Where the feature words of a property note stand.
fn features(notes: &[u8], desc: Range<usize>) -> Vec<usize> {
    let mut out = Vec::new();
    let mut at = desc.start;
    while let (Some(kind), Some(bytes)) = (word(notes, at), word(notes, at + 4)) {
        let next = (at + 8 + bytes as usize).next_multiple_of(8);
        if next > desc.end {
            break;
        }
        if kind == GNU_PROPERTY_X86_FEATURE_1_AND && bytes == 4 {
            out.push(at + 8);
        }
        at = next;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clear(notes: &mut [u8], align: usize) {
        for (at, value) in cleared(notes, align) {
            notes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
    }

    fn note(kind: u32, properties: &[(u32, u32)]) -> Vec<u8> {
        let mut desc = Vec::new();
        for (kind, value) in properties {
            desc.extend([*kind, 4, *value, 0].iter().flat_map(|w| w.to_le_bytes()));
        }
        let mut out: Vec<u8> = [4, desc.len() as u32, kind].iter().flat_map(|w| w.to_le_bytes()).collect();
        out.extend(b"GNU\0");
        out.extend(desc);
        out
    }

    #[test]
    fn only_the_two_marks_are_cleared() {
        let (feature, needed) = (GNU_PROPERTY_X86_FEATURE_1_AND, 0xc000_8002);
        let mut notes = note(1, &[(feature, 7)]);
        notes.extend(note(NT_GNU_PROPERTY_TYPE_0, &[(needed, 3), (feature, 7)]));
        let mut wanted = note(1, &[(feature, 7)]);
        wanted.extend(note(NT_GNU_PROPERTY_TYPE_0, &[(needed, 3), (feature, 4)]));
        clear(&mut notes, 8);
        assert_eq!(notes, wanted);
    }

    #[test]
    fn damaged_notes_are_left_alone() {
        let whole = note(NT_GNU_PROPERTY_TYPE_0, &[(GNU_PROPERTY_X86_FEATURE_1_AND, 3)]);
        for len in 0..whole.len() {
            let mut cut = whole[..len].to_vec();
            clear(&mut cut, 8);
            assert_eq!(cut, whole[..len]);
        }
        let mut wild = whole.clone();
        wild[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        let before = wild.clone();
        clear(&mut wild, 8);
        assert_eq!(wild, before);
    }
}
