//! `.debug_frame`: what debuggers unwind by where a program was built without unwind tables.
//!
//! Its records differ from those of `.eh_frame` in how CIEs are marked and named, so they are brought into that form and go through the same
//! builder. Input: the old contents. Output: the new ones, or none where they have a form that compilers do not use (augmentations, 64-bit
//! records, segments).
//! Source: DWARF 5 section 6.4.1.

use crate::base::addresses::Vaddr;
use crate::read::eh_frame::{FrameInput, Section};
use crate::write::frames::build;
use crate::write::frames::pieces::CodeMap;

/// The new contents of `.debug_frame`. None: the old ones are not understood, or there are none.
pub fn build_debug<'a>(old: &[u8], tail: &dyn Fn(Vaddr) -> Option<&'a [u8]>, map: &dyn CodeMap) -> Option<Vec<u8>> {
    let bytes = as_eh_frame(old)?;
    let eh_frame = Section { at: Vaddr(0), bytes: &bytes };
    let tail = |va| tail(va);
    build::build_debug(&FrameInput { eh_frame, tail: &tail, text: None, got: None }, map).ok()
}

/// A section `.debug_frame` with the frames of code that moves as a whole, by so many bytes. None: they are not understood, or there are none.
pub fn of_moved(frames: &FrameInput, by: u64) -> Option<Vec<u8>> {
    build::build_debug(frames, &Moved(by)).ok().filter(|section| !section.is_empty())
}

/// The runtime's section, if there is one, and one that may be empty, as one.
pub fn joined(runtime: Option<Vec<u8>>, mut more: Vec<u8>) -> Option<Vec<u8>> {
    if more.is_empty() {
        return runtime;
    }
    let mut all = runtime.unwrap_or_default();
    let word = |bytes: &[u8], at: usize| bytes.get(at..at + 4).map(|w| u32::from_le_bytes([w[0], w[1], w[2], w[3]]));
    let mut at = 0;
    // FDEs say where their CIE is in the section.
    while let (Some(length), Some(id)) = (word(&more, at), word(&more, at + 4)) {
        if id != CIE {
            more[at + 4..at + 8].copy_from_slice(&(id + all.len() as u32).to_le_bytes());
        }
        at += 4 + length as usize;
    }
    all.extend(more);
    Some(all)
}

/// Code that moves as a whole.
struct Moved(u64);

impl CodeMap for Moved {
    fn begin(&self, old: Vaddr) -> Option<Vaddr> {
        Some(old + self.0)
    }

    fn end(&self, old_end: Vaddr) -> Option<Vaddr> {
        Some(old_end + self.0)
    }

    fn first(&self, from: Vaddr, _to: Vaddr) -> Option<Vaddr> {
        self.begin(from)
    }

    fn in_order(&self, _from: Vaddr, _to: Vaddr) -> bool {
        true
    }
}

const CIE: u32 = 0xffff_ffff;
const NOP: u8 = 0;

/// Records keep their lengths, so that offsets of one section are those of the other.
fn as_eh_frame(old: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u32::from_le_bytes(old.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let mut out = old.to_vec();
    let mut at = 0;
    while at < old.len() {
        let length = word(at).filter(|length| (4..0xffff_fff0).contains(length))? as usize;
        let (id_at, end) = (at + 4, at.checked_add(4 + length).filter(|end| *end <= old.len())?);
        let id = word(id_at)?;
        let new_id = if id == CIE { 0 } else { u32::try_from(id_at.checked_sub(id as usize)?).ok()? };
        out.get_mut(id_at..id_at + 4)?.copy_from_slice(&new_id.to_le_bytes());
        if id == CIE {
            // Version, an empty augmentation; of version 4 also the sizes of addresses and of segments.
            let body = out.get_mut(id_at + 4..end)?;
            match *body {
                [1 | 3, 0, ..] => {}
                [4, 0, 8, 0, ..] => {
                    body.copy_within(4.., 2);
                    let last = body.len() - 2;
                    body[last..].fill(NOP);
                }
                _ => return None,
            }
            // What `.eh_frame` has, with a return address register of one byte, which that of a smaller number than 128 is in all.
            body[0] = 1;
        }
        at = end;
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Version 4: code factor 1, data factor -8, register 16, CFA is rsp + 8; then one FDE of 16 bytes.
    fn section(cie_tail: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let record = |out: &mut Vec<u8>, id: u32, body: &[u8]| {
            out.extend((body.len() as u32 + 4).to_le_bytes());
            out.extend(id.to_le_bytes());
            out.extend(body);
        };
        record(&mut out, CIE, cie_tail);
        let body: Vec<u8> = [0x1000u64, 16].iter().flat_map(|w| w.to_le_bytes()).collect();
        record(&mut out, 0, &body);
        out
    }

    #[test]
    fn records_of_all_versions_take_the_form_of_eh_frame() {
        let rest = [1, 0x78, 16, 0x0c, 7, 8, 0x90, 1];
        for head in [&[1, 0][..], &[3, 0], &[4, 0, 8, 0]] {
            let old = section(&[head, &rest].concat());
            let new = as_eh_frame(&old).unwrap();
            assert_eq!(new.len(), old.len());
            assert_eq!(new[4..10], [0, 0, 0, 0, 1, 0]);
            assert_eq!(new[10..18], rest);
            // The FDE leads back to the CIE, which is the first record.
            let fde = new.len() - 20;
            assert_eq!(new[fde..fde + 4], (fde as u32).to_le_bytes());
        }
    }

    #[test]
    fn unknown_forms_are_left_alone() {
        for head in [&[1, b'z', 0][..], &[4, 0, 4, 0], &[4, 0, 8, 2], &[2, 0]] {
            assert_eq!(as_eh_frame(&section(&[head, &[1, 0x78, 16]].concat())), None);
        }
        let whole = section(&[1, 0, 1, 0x78, 16]);
        for length in 1..whole.len() {
            // Cut anywhere but behind the first record.
            assert_eq!(as_eh_frame(&whole[..length]).is_some(), length == whole.len() - 24, "{length}");
        }
    }
}
