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
//!   inserted code runs in the state of the instruction that it precedes, save where it moves rsp ([`StackMove`]);
//! * an old call site covers the new code of the same instructions, and no other: a personality treats addresses
//!   without a call site differently from those with an empty one;
//! * nothing of the input is believed: every malformed record is an error with its address, never a panic.
//!
//! Source: System V psABI for x86-64 section 4.2.4 and DWARF 5 section 6.4 (frames), Linux Standard Base 5.0 section 10.6
//! (`.eh_frame`, `.eh_frame_hdr`), Itanium C++ ABI "Exception Handling Tables" (LSDA).

use crate::base::error::{Error, Refusal, Result};
use crate::base::ids::Vaddr;
use crate::read::{fde, lsda};
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
    /// In the order of `.eh_frame`. Those without file-backed code behind them are left out.
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
    /// It begins in the middle of a function: the stack there is not that of a function just called. Compilers describe the rare parts of
    /// functions so, which they put elsewhere.
    pub fragment: bool,
    pub personality: Option<Personality>,
    pub lsda: Option<Vaddr>,
    /// Addresses that the personality may resume at, ascending, each once. They may lie outside `[start, end)`.
    pub landing_pads: Vec<Vaddr>,
    /// The code from which it may do so, ascending: calls, and, where a signal's handler may throw (-fnon-call-exceptions), what may fault.
    pub caught: Vec<(Vaddr, Vaddr)>,
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
    pub(crate) fn section(&self) -> EhFrame<Bytes<'a>> {
        let mut section = EhFrame::new(self.eh_frame.bytes, LittleEndian);
        section.set_address_size(8);
        section
    }

    pub(crate) fn bases(&self) -> BaseAddresses {
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
    let mut budget = lsda::MAX_CALL_SITES;
    fde::each(input, &mut refused, |fde, refused| {
        if !fde.has_code(input) {
            // Left by a linker that threw the function away.
            return;
        }
        let (mut landing_pads, mut caught) = (Vec::new(), Vec::new());
        if let Some(at) = fde.lsda {
            match lsda::Lsda::parse(input, at, fde.start, &mut budget) {
                Ok(lsda) => {
                    landing_pads.extend(lsda.call_sites.iter().filter_map(|c| c.pad));
                    caught.extend(lsda.call_sites.iter().filter(|c| c.pad.is_some()).map(|c| (c.start, c.end)));
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
            fragment: fde.is_fragment(input),
            personality: fde.personality,
            lsda: fde.lsda,
            landing_pads,
            caught,
        });
    });
    refused.into_result("unwind tables that cannot be read")?;
    Ok(info)
}

/// The new sections with their addresses. They lie one behind the other from the address asked for, each aligned to 8.
#[derive(Debug)]
pub struct Frames {
    pub eh_frame_hdr: (Vaddr, Vec<u8>),
    /// Ends with the zero terminator.
    pub eh_frame: (Vaddr, Vec<u8>),
    /// May be empty.
    pub gcc_except_table: (Vaddr, Vec<u8>),
    pub report: Report,
}

/// What became of the input's frames.
#[derive(Debug, Default)]
pub struct Report {
    /// FDEs of the input.
    pub fdes: usize,
    /// FDEs of the output: one for each piece of new code.
    pub fdes_written: usize,
    /// FDEs of the input whose new code lies in several pieces.
    pub split: usize,
    /// Unwind rows of the output.
    pub rows: usize,
    pub lsdas: usize,
    pub call_sites: usize,
    pub dropped: Vec<Dropped>,
}

/// An FDE of the input that the output does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dropped {
    /// Address of the record in `.eh_frame`.
    pub record: Vaddr,
    pub start: Vaddr,
    pub end: Vaddr,
    pub reason: &'static str,
}

impl Frames {
    /// Address behind the last section.
    pub fn end(&self) -> Vaddr {
        let all = [&self.eh_frame_hdr, &self.eh_frame, &self.gcc_except_table];
        all.iter().map(|(at, bytes)| *at + bytes.len() as u64).max().expect("three sections")
    }
}

/// Collects what is refused, so that one run reports all of it.
#[derive(Default)]
pub(crate) struct Refused {
    list: Vec<Refusal>,
}

impl Refused {
    pub(crate) fn add(&mut self, at: Vaddr, place: String, reason: impl std::fmt::Display) {
        self.list.push(Refusal { at, place, reason: reason.to_string() });
    }

    pub(super) fn into_result(self, what: &str) -> Result<()> {
        if self.list.is_empty() {
            return Ok(());
        }
        let mut error = Error::new(what);
        error.refusals = self.list;
        Err(error)
    }
}
