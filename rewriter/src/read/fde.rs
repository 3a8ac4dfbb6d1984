//! Reading CIEs and FDEs.
//!
//! Input: `.eh_frame`. Output: one [`Fde`] per record, in file order. A record that cannot be parsed is refused with its
//! address, and the walk goes on behind it.
//!
//! Source: Linux Standard Base 5.0 section 10.6.1.

use crate::base::addresses::Vaddr;
use crate::read::eh_frame::{FrameBytes, FrameInput, Personality, RefusedFrames};
use gimli::{
    CfaRule, CommonInformationEntry, EhFrameOffset, FrameDescriptionEntry, Operation, Pointer, Register, UnwindContext,
    UnwindSection, X86_64,
};
use std::collections::HashMap;

/// A parsed FDE. Null pointers (an encoded 0, whatever its base) are `None`.
pub(crate) struct Fde<'a> {
    pub record: Vaddr,
    pub start: Vaddr,
    pub end: Vaddr,
    pub signal: bool,
    pub personality: Option<Personality>,
    pub lsda: Option<Vaddr>,
    pub raw: FrameDescriptionEntry<FrameBytes<'a>>,
}

impl Fde<'_> {
    /// Whether its code range is not empty and backed by the file. Ranges of functions that a linker threw away are not.
    pub fn has_code(&self, input: &FrameInput) -> bool {
        let behind = (input.tail)(self.start).map_or(0, |b| b.len() as u64);
        self.end > self.start && self.end - self.start <= behind
    }

    /// Whether the canonical frame address at its start is `rsp + n` with `n` other than 8, as no caller leaves the stack (psABI section 3.2.2).
    pub fn is_fragment(&self, input: &FrameInput) -> bool {
        let mut context = UnwindContext::new();
        let first = self.raw.unwind_info_for_address(&input.section(), &input.bases(), &mut context, self.start.0);
        first.is_ok_and(|row| {
            matches!(row.cfa(), CfaRule::RegisterAndOffset { register, offset } if (*register, *offset) != (X86_64::RSP, 8))
        })
    }
}

impl Fde<'_> {
    /// The code in which a frame is found by a register other than rsp, ascending, with the register's number in DWARF. What cannot be read is left out.
    pub fn found_by(&self, input: &FrameInput) -> Vec<(Vaddr, Vaddr, u16)> {
        let (section, bases, mut context) = (input.section(), input.bases(), UnwindContext::new());
        let mut found = Vec::new();
        let Ok(mut rows) = self.raw.rows(&section, &bases, &mut context) else { return found };
        while let Ok(Some(row)) = rows.next_row() {
            let (from, to) = (Vaddr(row.start_address()), Vaddr(row.end_address()));
            let mut add = |register: Register| {
                if !matches!(register, X86_64::RSP | X86_64::RA) {
                    found.push((from, to, register.0));
                }
            };
            match row.cfa() {
                CfaRule::RegisterAndOffset { register, .. } => add(*register),
                CfaRule::Expression(e) => {
                    let Ok(expression) = e.get(&section) else { continue };
                    let mut operations = expression.operations(self.raw.cie().encoding());
                    while let Ok(Some(operation)) = operations.next() {
                        match operation {
                            Operation::Register { register } | Operation::RegisterOffset { register, .. } => {
                                add(register);
                            }
                            _ => {}
                        }
                    }
                }
            }
        }
        found
    }
}

/// The extent of one record of `.eh_frame` as offsets in the section.
struct Record {
    end: usize,
    is_cie: bool,
}

/// Calls `visit` for each FDE.
pub(crate) fn each<'a>(
    input: &FrameInput<'a>,
    refused: &mut RefusedFrames,
    mut visit: impl FnMut(Fde<'a>, &mut RefusedFrames),
) {
    let section = input.section();
    let bases = input.bases();
    // A CIE is parsed when an FDE first names it, and is kept with its failure: thousands of FDEs share one.
    let mut cies: HashMap<usize, gimli::Result<CommonInformationEntry<FrameBytes<'a>>>> = HashMap::new();
    let mut offset = 0;
    loop {
        let at = input.eh_frame.at + offset as u64;
        let record = match record(input.eh_frame.bytes, offset) {
            Ok(Some(record)) => record,
            Ok(None) => return,
            Err(reason) => return refused.add(at, format!(".eh_frame+{offset:#x}"), reason),
        };
        if !record.is_cie {
            let fde = section.fde_from_offset(&bases, EhFrameOffset(offset), |section, bases, cie| {
                cies.entry(cie.0).or_insert_with(|| section.cie_from_offset(bases, cie)).clone()
            });
            match fde.map_err(|e| e.to_string()).and_then(|raw| describe(input, offset..record.end, raw)) {
                Ok(fde) => visit(fde, refused),
                Err(reason) => refused.add(at, format!(".eh_frame+{offset:#x}"), reason),
            }
        }
        offset = record.end;
    }
}

/// The record at `offset`; `None` at the zero terminator (unwinders do not look behind it either) and at the end.
fn record(bytes: &[u8], offset: usize) -> Result<Option<Record>, &'static str> {
    let Some(rest) = bytes.get(offset..).filter(|r| !r.is_empty()) else { return Ok(None) };
    let word = |at: usize| rest.get(at..at + 4).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")));
    let (head, length) = match word(0).ok_or("the section ends inside a record")? {
        0 => return Ok(None),
        0xffff_ffff => {
            let long = rest.get(4..12).ok_or("the section ends inside a record")?;
            (12, u64::from_le_bytes(long.try_into().expect("eight bytes")))
        }
        short => (4, u64::from(short)),
    };
    let id = word(head).ok_or("the section ends inside a record")?;
    let length = usize::try_from(length).ok().filter(|&n| n >= 4 && n <= rest.len() - head);
    let length = length.ok_or("the record is longer than the section")?;
    Ok(Some(Record { end: offset + head + length, is_cie: id == 0 }))
}

/// The offsets of the FDEs of a section, in order.
pub(crate) fn offsets(eh_frame: &[u8]) -> Result<Vec<usize>, &'static str> {
    let mut offsets = Vec::new();
    let mut offset = 0;
    while let Some(record) = record(eh_frame, offset)? {
        if !record.is_cie {
            offsets.push(offset);
        }
        offset = record.end;
    }
    Ok(offsets)
}

fn describe<'a>(
    input: &FrameInput,
    record: std::ops::Range<usize>,
    raw: FrameDescriptionEntry<FrameBytes<'a>>,
) -> Result<Fde<'a>, String> {
    let inside = |range: std::ops::Range<usize>, a: u64| {
        let offset = a.wrapping_sub(input.eh_frame.at.0);
        (range.start as u64..range.end as u64).contains(&offset)
    };
    let cie = raw.cie();
    // gimli adds the base to an encoded 0 too, but unwinders take it as null; a PC-relative null then points into its own
    // record, which nothing else does.
    let lsda = match raw.lsda() {
        Some(Pointer::Direct(0)) | None => None,
        Some(Pointer::Direct(a)) if inside(record.clone(), a) => None,
        Some(Pointer::Direct(a)) => Some(Vaddr(a)),
        Some(Pointer::Indirect(a)) => return Err(format!("indirect LSDA pointer through {a:#x}")),
    };
    let cie_range = cie.offset()..cie.offset() + cie.entry_len() + 4;
    let personality = match cie.personality() {
        Some(Pointer::Direct(0)) | None => None,
        Some(Pointer::Direct(a) | Pointer::Indirect(a)) if inside(cie_range.clone(), a) => None,
        Some(Pointer::Direct(a)) => Some(Personality::Direct(Vaddr(a))),
        Some(Pointer::Indirect(a)) => Some(Personality::Indirect(Vaddr(a))),
    };
    let start = Vaddr(raw.initial_address());
    let end = start.0.checked_add(raw.len()).ok_or("the code range wraps around the address space")?;
    Ok(Fde {
        record: input.eh_frame.at + record.start as u64,
        start,
        end: Vaddr(end),
        signal: cie.is_signal_trampoline(),
        personality,
        lsda,
        raw,
    })
}
