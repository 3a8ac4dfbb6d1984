//! Unwind tables for relocated code: `.eh_frame`, `.eh_frame_hdr` and `.gcc_except_table`.
//!
//! Purpose: the unwinder (libgcc, LLVM libunwind, gdb) and the language personalities see return addresses in new
//! code, so they need tables that describe it. Data stays where it is, so only code addresses change.
//!
//! Input: the original `.eh_frame` and the file image behind it ([`Input`]); for [`build`] also where each old
//! instruction went ([`CodeMap`]). Output: [`FrameInfo`] before layout, [`Frames`] after it.
//!
//! Invariants:
//! * a row that begins at old address L begins at the new address of L's instruction, inserted checks included:
//!   inserted code runs in the state of the instruction that it precedes;
//! * an old call site covers the new code of the same instructions, and no other: a personality treats addresses
//!   without a call site differently from those with an empty one;
//! * nothing of the input is believed: every malformed record is an error with its address, never a panic.
//!
//! Source: System V psABI for x86-64 section 4.2.4 and DWARF 5 section 6.4 (frames), Linux Standard Base 5.0 section 10.6
//! (`.eh_frame`, `.eh_frame_hdr`), Itanium C++ ABI "Exception Handling Tables" (LSDA).

#[allow(dead_code, reason = "the builder reads the rest")]
mod fde;
#[allow(dead_code, reason = "the builder reads the rest")]
mod lsda;

use crate::error::{Error, Refusal, Result};
use crate::ids::Vaddr;
use gimli::{BaseAddresses, EhFrame, EndianSlice, LittleEndian};

/// A section of the input: its link-time address and its bytes.
#[derive(Clone, Copy)]
pub struct Section<'a> {
    pub at: Vaddr,
    pub bytes: &'a [u8],
}

/// What the frames of a module are read from.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub eh_frame: Section<'a>,
    /// The file-backed bytes from an address to the end of its load segment (or section); `None` where nothing is
    /// mapped from the file. LSDAs have no length of their own and may lie in any section.
    pub tail: &'a dyn Fn(Vaddr) -> Option<&'a [u8]>,
    /// Base of `DW_EH_PE_textrel`: address of `.text`.
    pub text: Option<Vaddr>,
    /// Base of `DW_EH_PE_datarel`: address of `.got`.
    pub got: Option<Vaddr>,
}

/// The frames of a module as roots for disassembly.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FrameInfo {
    /// In the order of `.eh_frame`.
    pub fdes: Vec<FdeInfo>,
}

/// One FDE of the input: usually one function, or one part of a function that was split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FdeInfo {
    /// Address of the record in `.eh_frame`.
    pub record: Vaddr,
    /// The code described is `[start, end)`.
    pub start: Vaddr,
    pub end: Vaddr,
    /// The frame of a signal trampoline (`S`): its return addresses are those of interrupted instructions.
    pub signal: bool,
    pub personality: Option<Personality>,
    pub lsda: Option<Vaddr>,
    /// Addresses that the personality may resume at, ascending, each once. They may lie outside `[start, end)`.
    pub landing_pads: Vec<Vaddr>,
}

/// Where the personality function's address is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Personality {
    /// The function itself.
    Direct(Vaddr),
    /// Eight bytes of data that hold the function's address at run time.
    Indirect(Vaddr),
}

impl FrameInfo {
    /// All landing pads of the module, ascending, each once.
    pub fn landing_pads(&self) -> Vec<Vaddr> {
        let mut all: Vec<Vaddr> = self.fdes.iter().flat_map(|f| f.landing_pads.iter().copied()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

pub(crate) type Bytes<'a> = EndianSlice<'a, LittleEndian>;

impl<'a> Input<'a> {
    fn section(&self) -> EhFrame<Bytes<'a>> {
        let mut section = EhFrame::new(self.eh_frame.bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    fn bases(&self) -> BaseAddresses {
        let mut bases = BaseAddresses::default().set_eh_frame(self.eh_frame.at.0);
        bases.eh_frame.text = self.text.map(|a| a.0);
        bases.eh_frame.data = self.got.map(|a| a.0);
        bases
    }
}

/// Lists the FDEs of a module with their landing pads.
///
/// # Errors
/// Every record that cannot be understood, as refusals of one error.
pub fn parse(input: &Input) -> Result<FrameInfo> {
    let mut refused = Refused::default();
    let mut info = FrameInfo::default();
    fde::each(input, &mut refused, |fde, refused| {
        let mut landing_pads = Vec::new();
        if let Some(at) = fde.lsda {
            match lsda::Lsda::parse(input, at, fde.start) {
                Ok(lsda) => {
                    landing_pads.extend(lsda.call_sites.iter().filter_map(|c| c.pad));
                    landing_pads.sort_unstable();
                    landing_pads.dedup();
                }
                Err(reason) => refused.add(at, format!("LSDA of the code at {}", fde.start), reason),
            }
        }
        info.fdes.push(FdeInfo {
            record: fde.record,
            start: fde.start,
            end: fde.end,
            signal: fde.signal,
            personality: fde.personality,
            lsda: fde.lsda,
            landing_pads,
        });
    });
    refused.into_result("unwind tables that cannot be read")?;
    Ok(info)
}

/// Collects what is refused, so that one run reports all of it.
#[derive(Default)]
struct Refused {
    list: Vec<Refusal>,
}

impl Refused {
    fn add(&mut self, at: Vaddr, place: String, reason: impl std::fmt::Display) {
        self.list.push(Refusal { at, place, reason: reason.to_string() });
    }

    fn into_result(self, what: &str) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        let mut error = Error::new(what);
        error.refusals = self.list;
        Err(error)
    }
}

#[cfg(test)]
mod tests;
